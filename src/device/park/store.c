// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: where contents are kept while their memory is away: locked pages, ordinary pages, or a file.
#include "device/park/store.h"

#include <string.h>

#include "base/sys.h"

#define CHUNK_BYTES ((uint64_t)32 << 20)
#define SLOT_BYTES ((uint64_t)16 << 20)
#define SLOT_COUNT 16
#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)

static void store_init(tide__store* store, tide_device_cache* device, tide_backup kind, uint64_t bytes) {
  store->device = device;
  store->kind = kind;
  store->bytes = tide__round_up(tide__max(bytes, 1), tide__sys_page_bytes());
  store->file = -1;
  store->is_dry = !tide_machine_pinned_memory(device->machine, device->index).is_host;
  store->chunk_bytes = CHUNK_BYTES;
  store->slot_bytes = SLOT_BYTES;
  store->slot_count = SLOT_COUNT;
  store->thread_count = TIDE__CREW_MOST;
  tide__mutex_init(&store->lock, TIDE__RANK_LEAF);
  tide__signal_init(&store->changed);
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
  const tide_heap* const heap = store->device->heap;
  tide__heap_release(heap, store->chunks, store->chunk_count, sizeof *store->chunks);
  tide__signal_fini(&store->changed);
  tide__mutex_fini(&store->lock);
  tide__heap_release(heap, store, 1, sizeof *store + store->path_bytes);
}

// Memory that the machine has locked must stay mapped.
void tide__store_free(tide__store* store) {
  if (store == NULL) return;
  tide_device_cache* const device = store->device;
  tide__chunks_stop(store);
  if (!tide__chunks_unlock(store)) {
    store->next = device->stuck_stores;
    device->stuck_stores = store;
    return;
  }
  if (store->file >= 0) tide__sys_file_close(store->file);
  if (store->address != 0) (void)tide__sys_release(store->address, store->bytes);
  store_forget(store);
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
static int pages_map(const tide__store* store, uint64_t* out) {
  const bool is_huge = store->bytes >= HUGE_PAGE_BYTES;
  const uint64_t alignment = is_huge ? HUGE_PAGE_BYTES : tide__sys_page_bytes();
  if (store->is_dry) return tide__sys_reserve(store->bytes, alignment, 0, out);
  const int error = tide__sys_map_sparse(store->bytes, alignment, out);
  if (error == 0 && is_huge) tide__sys_ask_huge_pages(*out, store->bytes);
  return error;
}

static tide_status pages_open(tide__store* store) {
  const size_t count = (size_t)((store->bytes - 1) / store->chunk_bytes + 1);
  store->chunks = tide__heap_alloc(store->device->heap, count, sizeof *store->chunks);
  TIDE_REQUIRE(store->chunks != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for the record of a backup");
  store->chunk_count = count;
  const int error = pages_map(store, &store->address);
  if (error == 0) return TIDE_OK;
  tide__heap_release(store->device->heap, store->chunks, count, sizeof *store->chunks);
  store->chunks = NULL;
  store->chunk_count = 0;
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "park: cannot map %llu bytes for a backup: %s",
                          (unsigned long long)store->bytes, strerror(error));
}

tide_status tide__store_open(tide__store* store) {
  if (store->is_open) return TIDE_OK;
  TIDE_TRY(store->kind == TIDE_BACKUP_FILE && !store->is_dry ? file_open(store) : pages_open(store));
  store->is_open = true;
  return TIDE_OK;
}

tide_status tide__store_prepare(tide__store* store) {
  TIDE_TRY(tide__store_open(store));
  if (store->kind != TIDE_BACKUP_FILE) tide__chunks_make(store);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Use

tide_backup tide__store_kind(const tide__store* store) {
  return tide__load_relaxed(&store->is_refused) ? TIDE_BACKUP_PAGEABLE : store->kind;
}

uint64_t tide__store_bytes(const tide__store* store) { return store->bytes; }

// The first chunk tells whether the machine locks memory. If not, all threads that touch pages must end before
// others write there.
bool tide__store_is_direct(tide__store* store) {
  if (store->kind == TIDE_BACKUP_PINNED) {
    tide__chunks_make(store);
    (void)tide__chunk_wait(store, 0);
  }
  if (store->is_dry || tide__store_kind(store) == TIDE_BACKUP_PINNED) return true;
  for (size_t i = 0; i < store->chunk_count && store->is_making; i++) (void)tide__chunk_wait(store, i);
  return false;
}

// A copy must not go across the border of two chunks, which the machine has locked one by one.
void* tide__store_window(tide__store* store, uint64_t offset, uint64_t* bytes) {
  if (store->kind == TIDE_BACKUP_PINNED) {
    const size_t chunk = (size_t)(offset / store->chunk_bytes);
    (void)tide__chunk_wait(store, chunk);
    *bytes = tide__min(*bytes, (chunk + 1) * store->chunk_bytes - offset);
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
