// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: where contents are kept while their memory is away: locked pages, ordinary pages, or a file.
#include "device/park/carrier.h"

#include <string.h>

#include "base/sys.h"
#include "core/capture.h"
#include "machine/pages.h"

#define SLOT_BYTES ((uint64_t)16 << 20)
#define SLOT_COUNT 16

static void store_init(tide__store* store, tide_device_cache* device, tide_backup kind, uint64_t bytes) {
  store->device = device;
  store->kind = kind;
  store->bytes = tide__round_up(tide__max(bytes, 1), tide__sys_page_bytes());
  store->file = -1;
  store->is_dry = !tide_machine_pinned_memory(device->machine, device->index).is_host;
  store->piece_bytes = TIDE__PINNED_PIECE_BYTES;
  store->slot_bytes = SLOT_BYTES;
  store->slot_count = SLOT_COUNT;
  store->thread_count = TIDE__CREW_MOST;
}

tide_status tide__store_new(tide_device_cache* device, tide_backup kind, const char* folder, uint64_t bytes,
                            tide__store** out) {
  const char* const chosen = folder != NULL ? folder : tide__sys_environment("TMPDIR");
  const char* const path = chosen != NULL && chosen[0] != '\0' ? chosen : "/tmp";
  const size_t path_bytes = kind == TIDE_BACKUP_FILE ? strlen(path) + 1 : 0;
  tide__stores_retry(device);
  tide__store* const store = tide__heap_alloc(device->heap, 1, sizeof *store + path_bytes);
  TIDE_REQUIRE(store != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for the record of a backup");
  store_init(store, device, kind, bytes);
  store->path_bytes = path_bytes;
  if (path_bytes > 0) memcpy(store->path, path, path_bytes);
  *out = store;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end

static void store_forget(tide__store* store) {
  tide__heap_release(store->device->heap, store, 1, sizeof *store + store->path_bytes);
}

static bool pages_free(tide__store* store) {
  tide_error before;
  tide__crew_join(&store->toucher);
  if (store->range == NULL) {
    if (store->address != 0) tide__pages_unmap(store->address, store->bytes);
    return true;
  }
  tide__error_keep(&before);
  const bool is_free = tide__pinned_range_free(store->range) == TIDE_OK;
  tide__error_restore(&before);
  return is_free;
}

// Frees the records of pages that stay with the machine.
static void pages_forget(tide__store* store) {
  tide__pinned_range* const range = store->range;
  tide__crew_join(&store->toucher);
  if (range == NULL) return;
  tide__store_release(&range->is_ending, 1);  // pairs with the helpers of the range
  tide__pinned_range_join(range);
  tide__heap_release(range->heap, range->states, range->piece_count, sizeof *range->states);
  tide__heap_release(range->heap, range, 1, sizeof *range);
}

// Waits again for copies, if waiting for them failed before.
static bool copies_are_over(tide_device_cache* device) {
  tide_error before;
  if (device->carrier == NULL || !device->carrier->is_unsettled) return true;
  tide__error_keep(&before);
  const bool is_over = tide__carrier_drain(device) == TIDE_OK;
  tide__error_restore(&before);
  return is_over;
}

// Memory that the machine has locked must stay mapped. So must all memory if the allocator could not wait for
// the copies and has left the machine.
void tide__store_free(tide__store* store) {
  if (store == NULL) return;
  tide_device_cache* const device = store->device;
  const bool has_machine = device->machine != NULL;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  if (store->file >= 0) tide__sys_file_close(store->file);
  store->file = -1;
  if (!has_machine) pages_forget(store);
  if (!has_machine || (copies_are_over(device) && pages_free(store))) {
    store_forget(store);
  } else {
    store->next = device->stuck_stores;
    device->stuck_stores = store;
  }
  tide__relax_end(&relaxed);
}

void tide__stores_retry(tide_device_cache* device) {
  tide__store* list = device->stuck_stores;
  device->stuck_stores = NULL;
  while (list != NULL) {
    tide__store* const store = list;
    list = store->next;
    tide__store_free(store);
  }
}

void tide__stores_end(tide_device_cache* device) {
  tide__stores_retry(device);
  while (device->stuck_stores != NULL) {
    tide__store* const store = device->stuck_stores;
    device->stuck_stores = store->next;
    pages_forget(store);
    store_forget(store);
  }
}

// ---------------------------------------------------------------------------------------------------
// Opening

static tide_status file_open(tide__store* store) {
  const int error = tide__sys_temporary_new(store->path, store->bytes, &store->file);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "park: cannot make a file of %llu bytes in %s: %s",
                          (unsigned long long)store->bytes, store->path, strerror(error));
}

// On a machine without memory, the addresses have none either.
static tide_status pages_open(tide__store* store) {
  tide_machine* const machine = store->device->machine;
  const bool is_locked = store->kind == TIDE_BACKUP_PINNED && tide__pages_can_lock(machine);
  if (store->kind == TIDE_BACKUP_PINNED && !is_locked) tide__store_relaxed(&store->is_refused, 1);
  if (!is_locked) return tide__pages_map(machine, store->bytes, &store->address);
  TIDE_TRY(
      tide__pinned_range_new(machine, store->device->heap, store->bytes, store->piece_bytes, &store->range));
  store->address = store->range->address;
  return TIDE_OK;
}

tide_status tide__store_open(tide__store* store) {
  if (store->is_open) return TIDE_OK;
  TIDE_TRY(store->kind == TIDE_BACKUP_FILE && !store->is_dry ? file_open(store) : pages_open(store));
  store->is_open = true;
  return TIDE_OK;
}

// Threads that are started here prefer the NUMA node of the device.
static void node_prefer(tide__store* store, bool is_preferred) {
  tide_error before;
  tide_device_info info = TIDE_DEVICE_INFO_INIT;
  tide__error_keep(&before);
  const tide_status status = tide_machine_device_info(store->device->machine, store->device->index, &info);
  if (status == TIDE_OK && info.numa_node >= 0) tide__sys_prefer_node(is_preferred ? info.numa_node : -1);
  tide__error_restore(&before);
}

static void* toucher_run(void* user) {
  const tide__store* const store = user;
  tide__sys_touch(store->address, store->bytes, store->thread_count);
  return NULL;
}

// Starts to make the pages, in other threads.
static void pages_make(tide__store* store) {
  if (store->is_making || store->is_dry || store->address == 0) return;
  store->is_making = true;
  node_prefer(store, true);
  if (store->range != NULL) tide__pinned_range_ahead(store->range, store->thread_count);
  else tide__crew_start(&store->toucher, 1, toucher_run, store);
  node_prefer(store, false);
}

tide_status tide__store_prepare(tide__store* store) {
  TIDE_TRY(tide__store_open(store));
  pages_make(store);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Use

tide_backup tide__store_kind(const tide__store* store) {
  return tide__load_relaxed(&store->is_refused) ? TIDE_BACKUP_PAGEABLE : store->kind;
}

uint64_t tide__store_bytes(const tide__store* store) { return store->bytes; }

// Touching writes to pages, so those threads must end before others write there.
static void pages_finish(tide__store* store) {
  if (store->range != NULL) tide__pinned_range_join(store->range);
  tide__crew_join(&store->toucher);
}

// Locks the piece with an offset, unless the machine has refused one before.
static void piece_lock(tide__store* store, uint64_t offset) {
  tide_error before;
  if (store->range == NULL || tide__load_relaxed(&store->is_refused)) return;
  tide__error_keep(&before);
  if (tide__pinned_range_lock(store->range, offset, 1) != TIDE_OK) {
    tide__store_relaxed(&store->is_refused, 1);
    pages_finish(store);
  }
  tide__error_restore(&before);
}

// The first piece tells whether the machine locks memory.
bool tide__store_is_direct(tide__store* store) {
  if (store->range != NULL) pages_make(store);
  piece_lock(store, 0);
  if (store->is_dry || tide__store_kind(store) == TIDE_BACKUP_PINNED) return true;
  pages_finish(store);
  return false;
}

// A copy must not go across the border of two pieces.
void* tide__store_window(tide__store* store, uint64_t offset, uint64_t* bytes) {
  piece_lock(store, offset);
  if (store->range != NULL) {
    const uint64_t piece_bytes = store->range->piece_bytes;
    *bytes = tide__min(*bytes, piece_bytes - offset % piece_bytes);
  }
  return tide__pointer(store->address + offset);
}

const void* tide__store_data(const tide__store* store, uint64_t offset) {
  return store->address != 0 && !store->is_dry ? tide__pointer(store->address + offset) : NULL;
}

tide_status tide__store_write(tide__store* store, uint64_t offset, uint64_t bytes, const void* source) {
  if (store->kind != TIDE_BACKUP_FILE) {
    memcpy(tide__pointer(store->address + offset), source, bytes);
    return TIDE_OK;
  }
  const int error = tide__sys_page_put(store->file, offset, source, bytes);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "park: cannot write %llu bytes of a backup: %s",
                          (unsigned long long)bytes, strerror(error));
}

tide_status tide__store_read(tide__store* store, uint64_t offset, uint64_t bytes, void* destination) {
  if (store->is_dry) return TIDE_OK;
  if (store->kind != TIDE_BACKUP_FILE) {
    memcpy(destination, tide__pointer(store->address + offset), bytes);
    return TIDE_OK;
  }
  const int error = tide__sys_page_get(store->file, offset, destination, bytes);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "park: cannot read %llu bytes of a backup: %s",
                          (unsigned long long)bytes, strerror(error));
}
