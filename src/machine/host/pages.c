// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The pages of the host machine: ranges of one memory file for each device, address ranges, and page locks.
// The soft machine calls these functions through the backend.
#include <errno.h>

#include "base/arith.h"
#include "base/sys.h"
#include "machine/host/host.h"

tide_status tide__host_fail(const char* name, const char* what, uint64_t bytes, int error) {
  const bool is_mapping = error == ENOMEM;
  const bool is_descriptor = error == EMFILE || error == ENFILE;
  const bool is_memory = is_mapping || is_descriptor || error == EAGAIN || error == EFBIG || error == ENOSPC;
  return TIDE_FAIL_NATIVE(is_memory ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE, error,
                          "%s: %s of %llu bytes failed: %s (errno %d)", name, what, (unsigned long long)bytes,
                          is_descriptor ? "the process has no file descriptor left"
                          : is_mapping  ? "no memory, address range or mapping is left (vm.max_map_count)"
                                        : "the system refused",
                          error);
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

// Creates the file of a device at its first use.
static tide_status file_open(tide__host_file* file, const char* name) {
  if (file->descriptor >= 0) return TIDE_OK;
  int descriptor = -1;
  int error = tide__sys_file_new("tidemark-device", &descriptor);
  if (error != 0) return tide__host_fail(name, "a new file", 0, error);
  error = tide__sys_file_grow(descriptor, TIDE__HOST_LEDGER_BYTES);
  if (error == 0) error = tide__sys_file_write(descriptor, 0, TIDE__HOST_MARK);
  if (error == 0) error = tide__sys_file_seal(descriptor);
  if (error != 0) {
    tide__sys_file_close(descriptor);
    return tide__host_fail(name, "the ledger", TIDE__HOST_LEDGER_BYTES, error);
  }
  file->descriptor = descriptor;
  file->next_offset = file->bytes = TIDE__HOST_LEDGER_BYTES;
  return TIDE_OK;
}

static tide_status file_grow(tide__host_file* file, const char* name, uint64_t end, uint64_t bytes) {
  if (end <= file->bytes) return TIDE_OK;
  const int error = tide__sys_file_grow(file->descriptor, end);
  if (error != 0) return tide__host_fail(name, "growth", bytes, error);
  file->bytes = end;
  return TIDE_OK;
}

tide_status tide__host_physical_take(tide__soft* soft, const char* name, tide__physical* physical) {
  tide__host_file* file = &tide__host_of(soft)->files[physical->device];
  TIDE_TRY(file_open(file, name));
  uint64_t end = 0;
  const bool is_first = soft->devices[physical->device].used_bytes ==
                        physical->bytes;  // it is counted already
  if (is_first && tide__list_is_empty(&soft->lingering)) file->next_offset = TIDE__HOST_LEDGER_BYTES;
  TIDE_REQUIRE(tide__add(file->next_offset, physical->bytes, &end) && end <= INT64_MAX, TIDE_ERR_NO_MEMORY,
               "%s: the file of device %d has reached its largest size", name, physical->device);
  TIDE_TRY(file_grow(file, name, end, physical->bytes));
  physical->offset = file->next_offset;
  file->next_offset = end;
  return TIDE_OK;
}

bool tide__host_physical_give(tide__soft* soft, tide__physical* physical) {
  if (physical->descriptor >= 0) {  // memory of another process: close its file
    tide__sys_file_close(physical->descriptor);
    return true;
  }
  const int file = tide__host_of(soft)->files[physical->device].descriptor;
  const bool is_shared = (physical->flags & TIDE_PHYSICAL_SHAREABLE) != 0;
  if (is_shared && tide__sys_file_is_locked(file, physical->offset, physical->bytes)) return false;
  (void)tide__sys_file_punch(file, physical->offset, physical->bytes);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Addresses

tide_status tide__host_reserve(tide__soft* soft, int device, tide_call call, uint64_t bytes,
                               uint64_t alignment, uint64_t hint, uint64_t* out) {
  (void)soft, (void)device;
  const int error = tide__sys_reserve(bytes, alignment, hint, out);
  return error == 0 ? TIDE_OK : tide__host_fail(tide_call_name(call), "an address range", bytes, error);
}

void tide__host_unreserve(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft;
  (void)tide__sys_release(address, bytes);
}

tide_status tide__host_map(tide__soft* soft, const tide__physical* physical, uint64_t address) {
  const int own = tide__host_of(soft)->files[physical->device].descriptor;
  const int file = physical->descriptor >= 0 ? physical->descriptor : own;
  const int error = tide__sys_map_file(address, physical->bytes, file, physical->offset);
  return error == 0 ? TIDE_OK : tide__host_fail("map", "a mapping", physical->bytes, error);
}

tide_status tide__host_unmap(tide__soft* soft, uint64_t address, uint64_t bytes) {
  (void)soft;
  const int error = tide__sys_map_nothing(address, bytes);
  return error == 0 ? TIDE_OK : tide__host_fail("unmap", "a mapping", bytes, error);
}

tide_status tide__host_protect(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read,
                               bool can_write) {
  (void)soft;
  const int error = tide__sys_protect(address, bytes, can_read, can_write);
  return error == 0 ? TIDE_OK : tide__host_fail("set_access", "a mapping", bytes, error);
}

// ---------------------------------------------------------------------------------------------------
// Pinned memory: locked if the system permits it, and used unlocked otherwise

tide_status tide__host_pinned_take(tide__soft* soft, tide__range* range) {
  if (!range->is_registered) {
    const int error = tide__sys_map_private(range->span, &range->node.key);
    if (error != 0) return tide__host_fail("pinned_alloc", "a mapping", range->span, error);
  } else {
    TIDE_REQUIRE(tide__sys_is_mapped(range->node.key, range->bytes), TIDE_ERR_ARGUMENT,
                 "pinned_register: not all of the %llu bytes at %p are memory of this process",
                 (unsigned long long)range->bytes, tide__pointer(range->node.key));
  }
  range->is_locked = tide__sys_lock_pages(range->node.key, range->bytes) == 0;
  if (!range->is_locked) tide__store_relaxed(&tide__host_of(soft)->is_lock_refused, 1);
  return TIDE_OK;
}

// Unlocks the pages of a registration, except those it shares with a neighbour: page locks do not nest.
static void pages_unlock(tide__soft* soft, const tide__range* range) {
  const uint64_t page = tide__sys_page_bytes();
  const uint64_t begin = range->node.key;
  const uint64_t end = begin + range->bytes;
  uint64_t first = begin & ~(page - 1);
  uint64_t last = (end + page - 1) & ~(page - 1);
  if (tide__soft_has_pinned(soft, first, begin)) first += page;
  if (tide__soft_has_pinned(soft, end, last)) last -= page;
  if (first < last) tide__sys_unlock_pages(first, last - first);
}

void tide__host_pinned_give(tide__soft* soft, tide__range* range) {
  if (!range->is_registered) {
    (void)tide__sys_release(range->node.key, range->span);
  } else if (range->is_locked) {
    pages_unlock(soft, range);
  }
}
