// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory under both policies: physical memory that the machine may refuse to take back, access of the
// device and its peers, and ranges that could not be unmapped. No fault of the machine loses memory: what it
// refuses is kept and tried again. The caller has the gate, and no lock is held.
#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// Physical memory

tide_status tide__orphans_reserve(tide_device_cache* device, size_t count) {
  if (tide__heap_grow(device->heap, (void**)&device->orphans, &device->orphan_capacity,
                      device->orphan_count + count, sizeof *device->orphans)) {
    return TIDE_OK;
  }
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", count);
}

void tide__physical_give(tide_device_cache* device, tide_physical handle) {
  if (tide_machine_physical_free(device->machine, handle) == TIDE_OK) return;
  device->orphans[device->orphan_count++] = handle;
}

void tide__orphans_retry(tide_device_cache* device) {
  const size_t count = device->orphan_count;
  device->orphan_count = 0;
  for (size_t i = 0; i < count; i++) tide__physical_give(device, device->orphans[i]);
}

// In a capture nothing idle is given back, but what the machine would not take before does not count as such.
tide_status tide__physical_new(tide_device_cache* device, uint64_t bytes, tide_physical* out) {
  const uint32_t flags = device->has_physical_sharing ? TIDE_PHYSICAL_SHAREABLE : 0;
  const tide_status status = tide_machine_physical_new(device->machine, device->index, bytes, flags, out);
  if (status != TIDE_ERR_NO_MEMORY || device->orphan_count == 0) return status;
  tide__orphans_retry(device);
  return tide_machine_physical_new(device->machine, device->index, bytes, flags, out);
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
// Ranges that the machine would not unmap

tide__stuck* tide__stuck_new(tide_device_cache* device, size_t handles) {
  tide__stuck* const stuck =
      tide__heap_alloc(device->heap, 1, sizeof *stuck + handles * sizeof *stuck->handles);
  if (stuck != NULL) stuck->capacity = handles;
  else (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %zu mappings", handles);
  return stuck;
}

void tide__stuck_free(tide_device_cache* device, tide__stuck* stuck) {
  if (stuck == NULL) return;
  tide__heap_release(device->heap, stuck, 1, sizeof *stuck + stuck->capacity * sizeof *stuck->handles);
}

void tide__stuck_add(tide_device_cache* device, tide__stuck* stuck) {
  stuck->next = device->stuck;
  device->stuck = stuck;
}

// Unmaps and gives back as much as goes; true when nothing is left.
bool tide__stuck_try(tide_device_cache* device, tide__stuck* stuck) {
  void* const address = tide__pointer(stuck->address);
  if (stuck->bytes > 0 && tide_machine_unmap(device->machine, address, stuck->bytes) != TIDE_OK) return false;
  stuck->bytes = 0;
  while (stuck->count > 0) tide__physical_give(device, stuck->handles[--stuck->count]);
  return stuck->range_bytes == 0 ||
         tide_machine_address_release(device->machine, address, stuck->range_bytes) == TIDE_OK;
}

void tide__stuck_end(tide_device_cache* device, tide__stuck* stuck) {
  const tide_error before = *tide_last_error();
  const bool is_done = tide__orphans_reserve(device, stuck->count) == TIDE_OK &&
                       tide__stuck_try(device, stuck);
  if (is_done) tide__stuck_free(device, stuck);
  else tide__stuck_add(device, stuck);
  tide__error_restore(&before);
}

void tide__stuck_retry(tide_device_cache* device) {
  tide__stuck* list = device->stuck;
  device->stuck = NULL;
  while (list != NULL) {
    tide__stuck* const stuck = list;
    list = stuck->next;
    tide__stuck_end(device, stuck);
  }
}

// Is a range free of what could not be unmapped? It is tried again first.
tide_status tide__range_clear(tide_device_cache* device, uint64_t address, uint64_t bytes) {
  tide__stuck_retry(device);
  for (const tide__stuck* stuck = device->stuck; stuck != NULL; stuck = stuck->next) {
    TIDE_REQUIRE(stuck->address + stuck->bytes <= address || address + bytes <= stuck->address,
                 TIDE_ERR_MACHINE, "%llu bytes at %#llx could not be unmapped yet",
                 (unsigned long long)stuck->bytes, (unsigned long long)stuck->address);
  }
  return TIDE_OK;
}
