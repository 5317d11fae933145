// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sharing host memory with other processes.
//
// Physical memory is exported as a descriptor: the device's file, opened again, with a lock on the shared
// range. The lock belongs to that open file description. Every copy of the descriptor, in any process or in
// transit, keeps it. The kernel drops it with the last copy, however the process ends. The owner punches a
// range out of its file only if no process holds such a lock. The position of the description is where the
// range begins: so a descriptor and a size are enough, as they are for memory of a GPU.
//
// Data from another process is not trusted. A descriptor must be a memory file with our mark that is sealed
// against shrinking; otherwise its other owners could remove pages under our mappings. A range must lie
// inside the file.
//
// Raw memory is exported as bytes that name a process, its descriptor, a range, and a word of the ledger at
// the beginning of the file. The importer opens the file through /proc, locks the range, and then reads the
// word. If the word differs from the exported one, the memory was freed meanwhile. The owner first clears the
// word and then looks for locks, so at least one of the two sees the other.
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/arith.h"
#include "base/sys.h"
#include "machine/host/host.h"
#include "machine/soft/capture.h"

// The bytes of a tide_raw_share.
typedef struct raw_ticket {
  uint64_t mark;  // TIDE__HOST_MARK
  int32_t process;
  int32_t descriptor;
  uint64_t word;   // index in the ledger
  uint64_t value;  // of that word
  uint64_t offset;
  uint64_t bytes;  // as the exporter requested
  uint64_t span;   // whole pages
  uint64_t sum;    // checksum of the fields above
} raw_ticket;

TIDE_STATIC_ASSERT(sizeof(raw_ticket) <= sizeof(tide_raw_share));

// FNV-1a over the fields before the sum: a damaged ticket must not open another range.
static uint64_t ticket_sum(const raw_ticket* ticket) {
  unsigned char bytes[offsetof(raw_ticket, sum)];
  memcpy(bytes, ticket, sizeof bytes);
  uint64_t sum = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof bytes; i++) sum = (sum ^ bytes[i]) * 0x100000001b3u;
  return sum;
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

// Opens the file of physical memory again with a lock on its range, or copies the descriptor it came with.
static int physical_open(const tide__host* host, const tide__physical* physical, int* out) {
  if (physical->descriptor >= 0) return tide__sys_file_duplicate(physical->descriptor, out);
  const int own = host->files[physical->device].descriptor;
  int error = tide__sys_file_reopen(tide__sys_process(), own, out);
  if (error != 0) return error;
  error = tide__sys_file_lock(*out, physical->offset, physical->bytes);
  if (error == 0) error = tide__sys_file_seek(*out, physical->offset);
  if (error != 0) tide__sys_file_close(*out);
  return error;
}

static tide_status physical_export_locked(tide__host* host, tide_physical handle, tide_physical_share* out) {
  const tide__physical* physical = tide__slots_find(&host->soft.physicals, tide__address(handle));
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_HANDLE,
               "physical_export: %p is not physical memory of this machine", (void*)handle);
  TIDE_REQUIRE((physical->flags & TIDE_PHYSICAL_SHAREABLE) != 0, TIDE_ERR_ARGUMENT,
               "physical_export: the memory was made without TIDE_PHYSICAL_SHAREABLE");
  int file = -1;
  const int error = physical_open(host, physical, &file);
  if (error != 0) return tide__host_fail("physical_export", "a descriptor", physical->bytes, error);
  *out = (tide_physical_share){ file, physical->offset, physical->bytes };
  return TIDE_OK;
}

tide_status tide__host_physical_export(void* self, tide_physical handle, tide_physical_share* out) {
  tide__host* host = self;
  tide__mutex_lock(&host->soft.memory_lock);
  const tide_status status = physical_export_locked(host, handle, out);
  tide__mutex_unlock(&host->soft.memory_lock);
  return status;
}

// Checks that a descriptor is a device's file with such a range.
static tide_status import_check(const char* name, int file, uint64_t offset, uint64_t bytes, uint64_t unit) {
  uint64_t mark = 0;
  uint64_t end = 0;
  uint64_t file_bytes = 0;
  const bool is_ours = tide__sys_file_is_sealed(file) && tide__sys_file_bytes(file, &file_bytes) == 0 &&
                       tide__sys_file_read(file, 0, &mark) == 0 && mark == TIDE__HOST_MARK;
  TIDE_REQUIRE(is_ours, TIDE_ERR_ARGUMENT, "%s: the descriptor %d is not memory of a host machine", name,
               file);
  const bool is_inside = offset >= TIDE__HOST_LEDGER_BYTES && tide__add(offset, bytes, &end) &&
                         end <= file_bytes && tide__is_aligned(offset, tide__sys_page_bytes()) &&
                         tide__is_aligned(bytes, unit);
  TIDE_REQUIRE(is_inside, TIDE_ERR_ARGUMENT, "%s: there is no shared range of %llu bytes at offset %llu",
               name, (unsigned long long)bytes, (unsigned long long)offset);
  return TIDE_OK;
}

// Wraps a range of an open file into physical memory, which owns the descriptor if this succeeds.
static tide_status import_wrap(tide__host* host, int device, int file, uint64_t offset, uint64_t bytes,
                               tide__physical** out) {
  tide__physical* physical = tide__slots_take(&host->soft.physicals);
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_NO_MEMORY, "import: no memory for its records");
  physical->device = device;
  physical->flags = TIDE_PHYSICAL_SHAREABLE;
  physical->bytes = bytes;
  physical->offset = offset;
  physical->refs = 1;
  physical->descriptor = file;
  tide__list_init(&physical->lingering);
  *out = physical;
  return TIDE_OK;
}

// Holds somebody the lock that every exported descriptor has? Asked through an opening without locks.
static bool range_is_shared(const tide_physical_share* share) {
  int file = -1;
  if (tide__sys_file_reopen(tide__sys_process(), share->descriptor, &file) != 0) return false;
  const bool is_shared = tide__sys_file_has_lock_over(file, share->offset, share->bytes);
  tide__sys_file_close(file);
  return is_shared;
}

// A share without an offset, as it comes through formats that have no place for one.
static tide_physical_share share_located(const tide_physical_share* share) {
  tide_physical_share located = *share;
  if (share->offset == 0) (void)tide__sys_file_position(share->descriptor, &located.offset);
  return located;
}

tide_status tide__host_physical_import(void* self, int device, const tide_physical_share* given,
                                       tide_physical* out) {
  tide__host* host = self;
  const tide_physical_share located = share_located(given);
  const tide_physical_share* const share = &located;
  TIDE_TRY(import_check("physical_import", share->descriptor, share->offset, share->bytes,
                        host->soft.granularity));
  TIDE_REQUIRE(range_is_shared(share), TIDE_ERR_ARGUMENT,
               "physical_import: no process shares the %llu bytes at offset %llu",
               (unsigned long long)share->bytes, (unsigned long long)share->offset);
  int file = -1;
  const int error = tide__sys_file_duplicate(share->descriptor, &file);
  if (error != 0) return tide__host_fail("physical_import", "a descriptor", share->bytes, error);
  tide__physical* physical = NULL;
  const tide_status status = import_wrap(host, device, file, share->offset, share->bytes, &physical);
  if (status != TIDE_OK) {
    tide__sys_file_close(file);
    return status;
  }
  *out = (tide_physical)tide__pointer(tide__slots_publish(&host->soft.physicals, physical));
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Raw memory

// Takes a free word of the ledger for a range and writes a new value to it.
static tide_status export_begin_locked(tide__host* host, tide__range* range) {
  tide__host_file* file = &host->files[range->device];
  for (uint64_t tried = 1; tried < TIDE__HOST_LEDGER_WORDS; tried++) {
    const uint64_t word = 1 + (file->last_export + tried - 1) % (TIDE__HOST_LEDGER_WORDS - 1);
    uint64_t value = 0;
    if (tide__sys_file_read(file->descriptor, word * sizeof word, &value) != 0 || value != 0) continue;
    value = tide__sys_clock_ns() ^ (++host->export_count << 40) ^ (uint64_t)tide__sys_process() << 20;
    const int error = tide__sys_file_write(file->descriptor, word * sizeof word, value | 1);
    if (error != 0) return tide__host_fail("raw_export", "the ledger", sizeof word, error);
    file->last_export = word;
    range->export_slot = (uint32_t)word;
    range->physical->flags |= TIDE_PHYSICAL_SHAREABLE;
    return TIDE_OK;
  }
  return TIDE_FAIL(TIDE_ERR_LIMIT, "raw_export: %llu exports of device %d are live already",
                   (unsigned long long)TIDE__HOST_LEDGER_WORDS - 1, range->device);
}

void tide__host_export_end(tide__soft* soft, tide__range* range) {
  const int file = tide__host_of(soft)->files[range->device].descriptor;
  (void)tide__sys_file_write(file, range->export_slot * sizeof(uint64_t), 0);
  range->export_slot = 0;
}

TIDE_UNCHECKED_LOCKING static tide_status export_locked(tide__host* host, int device, void* address,
                                                        raw_ticket* out) {
  tide__range* range = tide__soft_range_at_locked(&host->soft, tide__address(address), TIDE_MEMORY_RAW);
  TIDE_REQUIRE(range != NULL && range->device == device, TIDE_ERR_ARGUMENT,
               "raw_export: no raw memory of device %d begins at %p", device, address);
  if (range->export_slot == 0) TIDE_TRY(export_begin_locked(host, range));
  const int file = host->files[device].descriptor;
  *out = (raw_ticket){ .mark = TIDE__HOST_MARK, .process = tide__sys_process(), .descriptor = file };
  out->word = range->export_slot;
  out->offset = range->physical->offset;
  out->bytes = range->bytes;
  out->span = range->span;
  const int error = tide__sys_file_read(file, out->word * sizeof(uint64_t), &out->value);
  if (error != 0) return tide__host_fail("raw_export", "the ledger", sizeof(uint64_t), error);
  out->sum = ticket_sum(out);
  return TIDE_OK;
}

tide_status tide__host_raw_export(void* self, int device, void* address, tide_raw_share* out) {
  tide__host* host = self;
  raw_ticket ticket;
  tide__mutex_lock(&host->soft.memory_lock);
  const tide_status status = export_locked(host, device, address, &ticket);
  tide__mutex_unlock(&host->soft.memory_lock);
  if (status == TIDE_OK) memcpy(out->bytes, &ticket, sizeof ticket);
  return status;
}

// Opens the exporter's file and checks that it still has the memory of the ticket.
static tide_status ticket_open(const raw_ticket* ticket, int* out_file) {
  const int error = tide__sys_file_reopen(ticket->process, ticket->descriptor, out_file);
  TIDE_REQUIRE(error != EACCES && error != EPERM, TIDE_ERR_ACCESS,
               "raw_import: process %d belongs to another user or another container", (int)ticket->process);
  if (error == EMFILE || error == ENFILE)
    return tide__host_fail("raw_import", "a descriptor", ticket->bytes, error);
  TIDE_REQUIRE(error == 0, TIDE_ERR_STATE,
               "raw_import: process %d, which exported the memory, has ended or freed it (errno %d)",
               (int)ticket->process, error);
  uint64_t value = 0;
  tide_status status =
      import_check("raw_import", *out_file, ticket->offset, ticket->span, tide__sys_page_bytes());
  if (status != TIDE_OK) status = TIDE_ERR_STATE;  // the descriptor is another file now
  if (status == TIDE_OK && tide__sys_file_lock(*out_file, ticket->offset, ticket->span) != 0)
    status = TIDE_ERR_STATE;
  if (status == TIDE_OK && tide__sys_file_read(*out_file, ticket->word * sizeof value, &value) != 0) {
    status = TIDE_ERR_STATE;
  }
  if (status == TIDE_OK && value != ticket->value) status = TIDE_ERR_STATE;
  if (status == TIDE_OK) return TIDE_OK;
  tide__sys_file_close(*out_file);
  return TIDE_FAIL(TIDE_ERR_STATE, "raw_import: process %d has freed the memory", (int)ticket->process);
}

static tide_status ticket_check(const raw_ticket* ticket) {
  const bool is_export = ticket->mark == TIDE__HOST_MARK && ticket->sum == ticket_sum(ticket) &&
                         ticket->value != 0 && ticket->word != 0 && ticket->word < TIDE__HOST_LEDGER_WORDS &&
                         ticket->bytes != 0 && ticket->bytes <= ticket->span && ticket->process > 0 &&
                         ticket->descriptor >= 0;
  TIDE_REQUIRE(is_export, TIDE_ERR_ARGUMENT, "raw_import: the bytes are not an export of a host machine");
  TIDE_REQUIRE(ticket->process != tide__sys_process(), TIDE_ERR_STATE,
               "raw_import: the memory belongs to this process; use it directly");
  return TIDE_OK;
}

tide_status tide__host_raw_import(void* self, int device, const tide_raw_share* share, void** out) {
  tide__host* host = self;
  TIDE_TRY(tide__capture_guard(&host->soft, "raw_import"));
  raw_ticket ticket;
  memcpy(&ticket, share->bytes, sizeof ticket);
  TIDE_TRY(ticket_check(&ticket));
  int file = -1;
  TIDE_TRY(ticket_open(&ticket, &file));
  tide__physical* physical = NULL;
  tide_status status = import_wrap(host, device, file, ticket.offset, ticket.span, &physical);
  if (status == TIDE_OK) {
    status = tide__soft_range_over(&host->soft, physical, TIDE_MEMORY_IMPORTED, ticket.bytes,
                                   TIDE_CALL_RAW_IMPORT, out);
    if (status != TIDE_OK) tide__slots_give(&host->soft.physicals, physical);
  }
  if (status != TIDE_OK) tide__sys_file_close(file);
  return status;
}
