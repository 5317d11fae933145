// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory under both policies: physical memory, the access of the device and its peers, and mapping
// handles as one step that is undone if it fails. No fault of the machine loses memory: what it refuses to
// take back is kept and tried again. The caller has the gate, and no lock is held.
#include "device/segment/virtual.h"

#include "base/sys.h"

// ---------------------------------------------------------------------------------------------------
// Physical memory

tide_status tide__orphans_reserve(tide_device_cache* device, size_t count) {
  if (tide__heap_grow(device->heap, (void**)&device->orphans, &device->orphan_capacity,
                      device->orphan_count + device->stock_count + count, sizeof *device->orphans)) {
    return TIDE_OK;
  }
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", count);
}

// An open descriptor would keep the memory.
static void kept_close(tide_device_cache* device, tide_physical handle) {
  const uint64_t kept = tide__hash_map_take(&device->kept, tide__address(handle));
  if (kept != 0) tide__sys_file_close((int)(kept - 1));
}

void tide__kept_close_all(tide_device_cache* device) {
  const tide__hash_slot* slot = NULL;
  while ((slot = tide__hash_map_next(&device->kept, slot)) != NULL)
    tide__sys_file_close((int)(slot->value - 1));
  tide__hash_map_clear(&device->kept);
}

tide_status tide__kept_open(tide_device_cache* device, tide_physical handle, tide_physical_share* out) {
  const uint64_t kept = tide__hash_map_find(&device->kept, tide__address(handle));
  if (kept != 0) {
    out->descriptor = (int)(kept - 1);
    return TIDE_OK;
  }
  TIDE_REQUIRE(tide__hash_map_reserve(&device->kept, device->kept.count + 1), TIDE_ERR_NO_MEMORY,
               "device_share: no memory for the record of a descriptor");
  TIDE_TRY(tide_machine_physical_export(device->machine, handle, out));
  (void)tide__hash_map_put(&device->kept, tide__address(handle), (uint64_t)out->descriptor + 1);
  return TIDE_OK;
}

static bool physical_try_give(tide_device_cache* device, tide_physical handle) {
  if (device->kept.count > 0) kept_close(device, handle);
  return tide_machine_physical_free(device->machine, handle) == TIDE_OK;
}

void tide__physical_give(tide_device_cache* device, tide_physical handle) {
  if (!physical_try_give(device, handle)) device->orphans[device->orphan_count++] = handle;
}

void tide__orphans_retry(tide_device_cache* device) {
  const size_t count = device->orphan_count;
  device->orphan_count = 0;
  for (size_t i = 0; i < count; i++) tide__physical_give(device, device->orphans[i]);
}

tide_status tide__physical_learn(tide_device_cache* device) {
  static const struct {
    tide_feature feature;
    uint32_t flag;
  } rows[] = { { TIDE_FEATURE_DESCRIPTORS, TIDE_PHYSICAL_SHAREABLE },
               { TIDE_FEATURE_RDMA, TIDE_PHYSICAL_RDMA },
               { TIDE_FEATURE_FABRIC, TIDE_PHYSICAL_FABRIC } };
  uint32_t flags = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tide_probe probe = TIDE_PROBE_INIT;
    TIDE_TRY(tide_machine_probe(device->machine, device->index, rows[i].feature, &probe));
    if (probe.works) flags |= rows[i].flag;
  }
  tide__store_relaxed(&device->physical_flags, flags);
  return TIDE_OK;
}

uint32_t tide__physical_flags(tide_device_cache* device) {
  const tide_device_options* const options = tide__device_options(device);
  uint32_t flags = tide__load_relaxed(&device->physical_flags);
  if (!options->rdma_handles) flags &= ~TIDE_PHYSICAL_RDMA;
  if (!options->fabric_handles) flags &= ~TIDE_PHYSICAL_FABRIC;
  return flags;
}

// Idle memory is not given back in a capture. Memory that the machine refused before may still be tried
// again.
tide_status tide__physical_new(tide_device_cache* device, uint64_t bytes, tide_physical* out) {
  const uint32_t flags = tide__physical_flags(device);
  TIDE_TRY(tide__allowance_take(device, bytes));
  *out = tide__stock_take(device, bytes);
  if (*out != NULL) return TIDE_OK;
  tide_status status = tide_machine_physical_new(device->machine, device->index, bytes, flags, out);
  if (status == TIDE_ERR_NO_MEMORY && device->orphan_count + device->stock_count > 0) {
    tide__stock_empty(device);
    tide__orphans_retry(device);
    status = tide_machine_physical_new(device->machine, device->index, bytes, flags, out);
  }
  if (status != TIDE_OK) tide__allowance_undo(device, bytes);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Addresses

// Addresses for more than the device has, so that a segment can grow past holes; or less if the options say
// so.
uint64_t tide__reserve_wanted(const tide_device_cache* device, const tide_reserve* reserve) {
  const uint64_t most = device->total_bytes + device->total_bytes / 8;
  if (reserve->bytes != 0) return tide__min(most, reserve->bytes);
  const double wanted = reserve->fraction * (double)device->total_bytes;
  return reserve->fraction > 0 && wanted < (double)most ? (uint64_t)wanted : most;
}

tide_status tide__access_give(tide_device_cache* device, uint64_t address, uint64_t bytes) {
  TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(address), bytes, device->index,
                                   TIDE_ACCESS_READ_WRITE));
  for (uint32_t i = 0; i < device->peer_count; i++) {
    TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(address), bytes, (int)device->peers[i],
                                     TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Mappings

tide_status tide__mapping_new(tide_device_cache* device, uint64_t address, uint64_t bytes, size_t handles,
                              tide__mapping** out) {
  TIDE_TRY(tide__range_clear(device, address, bytes));
  tide__mapping* const mapping =
      tide__heap_alloc(device->heap, 1, sizeof *mapping + handles * sizeof *mapping->handles);
  TIDE_REQUIRE(mapping != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", handles);
  mapping->address = address;
  mapping->capacity = handles;
  *out = mapping;
  return TIDE_OK;
}

void tide__mapping_free(tide_device_cache* device, tide__mapping* mapping) {
  tide__heap_release(device->heap, mapping, 1,
                     sizeof *mapping + mapping->capacity * sizeof *mapping->handles);
}

tide_status tide__mapping_make(tide_device_cache* device, tide__mapping* mapping, uint64_t bytes,
                               tide_physical* out) {
  TIDE_ASSERT(mapping->count < mapping->capacity);
  TIDE_TRY(tide__physical_new(device, bytes, out));
  mapping->handles[mapping->count++] = *out;
  mapping->made_bytes += bytes;
  return TIDE_OK;
}

tide_status tide__mapping_add(tide_device_cache* device, tide__mapping* mapping, tide_physical handle,
                              uint64_t bytes) {
  TIDE_TRY(tide_machine_map(device->machine, tide__pointer(mapping->address + mapping->bytes), handle));
  mapping->bytes += bytes;
  return TIDE_OK;
}

tide_status tide__mapping_commit(tide_device_cache* device, tide__mapping* mapping) {
  TIDE_TRY(tide__access_give(device, mapping->address, mapping->bytes));
  tide__mapping_free(device, mapping);
  return TIDE_OK;
}

static void mapping_give_handles(tide_device_cache* device, tide__mapping* mapping) {
  const size_t count = mapping->count;
  mapping->count = 0;
  for (size_t i = 0; i < count; i++) {
    if (!physical_try_give(device, mapping->handles[i]))
      mapping->handles[mapping->count++] = mapping->handles[i];
  }
}

// Unmaps and gives back as much as the machine takes; true when nothing is left. The record of the mapping
// keeps what the machine refuses, so that this needs no memory.
static bool mapping_try_end(tide_device_cache* device, tide__mapping* mapping) {
  void* const address = tide__pointer(mapping->address);
  if (mapping->is_busy && tide_machine_device_synchronize(device->machine, device->index) != TIDE_OK)
    return false;
  mapping->is_busy = false;
  if (mapping->bytes > 0 && tide_machine_unmap(device->machine, address, mapping->bytes) != TIDE_OK) {
    return false;
  }
  mapping->bytes = 0;
  mapping_give_handles(device, mapping);
  tide__allowance_undo(device, mapping->made_bytes);
  mapping->made_bytes = 0;
  if (mapping->range_bytes > 0 &&
      tide_machine_address_release(device->machine, address, mapping->range_bytes) != TIDE_OK) {
    return false;
  }
  mapping->range_bytes = 0;
  return mapping->count == 0;
}

bool tide__mapping_end(tide_device_cache* device, tide__mapping* mapping) {
  const tide_error before = *tide_last_error();
  const bool is_done = mapping_try_end(device, mapping);
  if (is_done) {
    tide__mapping_free(device, mapping);
  } else {
    mapping->next = device->stuck;
    mapping->made_bytes = 0;  // it is not counted from the end of this turn on
    device->stuck = mapping;
  }
  tide__error_restore(&before);
  return is_done;
}

void tide__stuck_retry(tide_device_cache* device) {
  tide__mapping* list = device->stuck;
  device->stuck = NULL;
  while (list != NULL) {
    tide__mapping* const mapping = list;
    list = mapping->next;
    (void)tide__mapping_end(device, mapping);
  }
}

tide_status tide__range_clear(tide_device_cache* device, uint64_t address, uint64_t bytes) {
  tide__stuck_retry(device);
  for (const tide__mapping* stuck = device->stuck; stuck != NULL; stuck = stuck->next) {
    TIDE_REQUIRE(stuck->address + stuck->bytes <= address || address + bytes <= stuck->address,
                 TIDE_ERR_MACHINE, "%llu bytes at %#llx could not be unmapped yet",
                 (unsigned long long)stuck->bytes, (unsigned long long)stuck->address);
  }
  return TIDE_OK;
}
