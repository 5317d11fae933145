// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: where contents are kept while their memory is away.
#include <string.h>

#include "base/sys.h"
#include "device/park/store.h"

tide_status tide__store_new(tide_device_cache* device, tide_backup kind, const char* folder, uint64_t bytes,
                            tide__store** out) {
  const char* const chosen = folder != NULL ? folder : tide__sys_environment("TMPDIR");
  const char* const path = chosen != NULL && chosen[0] != '\0' ? chosen : "/tmp";
  const size_t path_bytes = kind == TIDE_BACKUP_FILE ? strlen(path) + 1 : 0;
  tide__store* const store = tide__heap_alloc(device->heap, 1, sizeof *store + path_bytes);
  TIDE_REQUIRE(store != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for the record of a backup");
  store->device = device;
  store->kind = kind;
  store->bytes = tide__round_up(tide__max(bytes, 1), tide__sys_page_bytes());
  store->file = -1;
  store->is_dry = !tide_machine_pinned_memory(device->machine, device->index).is_host;
  store->path_bytes = path_bytes;
  if (path_bytes > 0) memcpy(store->path, path, path_bytes);
  *out = store;
  return TIDE_OK;
}

static tide_status file_open(tide__store* store) {
  const int error = store->is_dry ? 0 : tide__sys_temporary_new(store->path, store->bytes, &store->file);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "park: cannot make a file of %llu bytes in %s",
                          (unsigned long long)store->bytes, store->path);
}

static tide_status pages_open(tide__store* store) {
  const int error = store->is_dry ? tide__sys_reserve(store->bytes, 0, 0, &store->address)
                                  : tide__sys_map_private(store->bytes, &store->address);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "park: cannot map %llu bytes for a backup",
                          (unsigned long long)store->bytes);
}

tide_status tide__store_open(tide__store* store) {
  if (store->is_open) return TIDE_OK;
  TIDE_TRY(store->kind == TIDE_BACKUP_FILE ? file_open(store) : pages_open(store));
  store->is_open = true;
  return TIDE_OK;
}

tide_status tide__store_prepare(tide__store* store) { return tide__store_open(store); }

void tide__store_free(tide__store* store) {
  if (store == NULL) return;
  if (store->file >= 0) tide__sys_file_close(store->file);
  if (store->address != 0) (void)tide__sys_release(store->address, store->bytes);
  tide__heap_release(store->device->heap, store, 1, sizeof *store + store->path_bytes);
}

tide_backup tide__store_kind(const tide__store* store) { return store->kind; }

uint64_t tide__store_bytes(const tide__store* store) { return store->bytes; }

const void* tide__store_data(const tide__store* store, uint64_t offset) {
  return store->address != 0 ? tide__pointer(store->address + offset) : NULL;
}

tide_status tide__store_write(tide__store* store, uint64_t offset, uint64_t bytes, const void* source) {
  if (store->is_dry) return TIDE_OK;
  if (store->kind != TIDE_BACKUP_FILE) {
    memcpy(tide__pointer(store->address + offset), source, bytes);
    return TIDE_OK;
  }
  const int error = tide__sys_page_put(store->file, offset, source, bytes);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "park: cannot write %llu bytes of a backup",
                          (unsigned long long)bytes);
}

tide_status tide__store_read(tide__store* store, uint64_t offset, uint64_t bytes, void* destination) {
  if (store->is_dry) memset(destination, 0, bytes);
  if (store->is_dry) return TIDE_OK;
  if (store->kind != TIDE_BACKUP_FILE) {
    memcpy(destination, tide__pointer(store->address + offset), bytes);
    return TIDE_OK;
  }
  const int error = tide__sys_page_get(store->file, offset, destination, bytes);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "park: cannot read %llu bytes of a backup",
                          (unsigned long long)bytes);
}
