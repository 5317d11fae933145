// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that is made for one block and goes with it, while caching is off.
#include "device/segment/segment.h"

// The record of uncached memory has no segment. It is noted like a small block, because any number of them
// can begin in one tile of the map.
static tide_status uncached_note(tide_device_cache* device, void* address, size_t bytes, tide_block* out) {
  TIDE_TRY(tide__map_cover(&device->map, tide__address(address), 1, true));
  tide__block* const block = tide__slots_take(&device->blocks);
  TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a block");
  block->address = tide__address(address);
  block->bytes = bytes;
  tide__store_relaxed(&block->requested_bytes, bytes);
  block->segment = NULL;
  tide__store_relaxed(&block->lane, NULL);
  block->uses = NULL;
  block->state = TIDE__BLOCK_ALLOCATED;
  block->is_small = true;
  const uint64_t handle = tide__slots_publish(&device->blocks, block);
  tide__map_set(&device->map, block->address, true, block->slot.index);
  *out = (tide_block){ address, handle };
  return TIDE_OK;
}

tide_status tide__uncached_alloc(tide_device_cache* device, size_t bytes, tide_block* out) {
  void* address = NULL;
  tide__stray* stray = NULL;
  TIDE_TRY(tide__stray_new(device, &stray));
  tide_status status = tide_machine_raw_alloc(device->machine, device->index, bytes, &address);
  if (status == TIDE_OK) {
    status = uncached_note(device, address, bytes, out);
    if (status != TIDE_OK) {
      tide__stray_give(device, stray, address);
      return status;
    }
  }
  tide__stray_free(device, stray);
  return status;
}

tide_status tide__uncached_release(tide_device_cache* device, tide__block* block) {
  void* const address = tide__pointer(block->address);
  tide_status status = TIDE_OK;
  tide__map_clear(&device->map, block->address, true);  // before another thread gets the same address
  if (!device->waits_on_release) status = tide_machine_device_synchronize(device->machine, device->index);
  if (status == TIDE_OK) status = tide_machine_raw_release(device->machine, device->index, address);
  if (status != TIDE_OK) {  // it stays the caller's, under the handle it had
    (void)tide__slots_unclaim(&device->blocks, block);
    tide__map_set(&device->map, block->address, true, block->slot.index);
    return status;
  }
  block->state = TIDE__BLOCK_SPARE;
  tide__slots_give(&device->blocks, block);
  return TIDE_OK;
}
