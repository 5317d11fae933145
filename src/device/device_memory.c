// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache of one stream as a source of arenas.
#include "base/arith.h"
#include "base/error.h"
#include "tidemark/device.h"

static tide_status cached_memory_alloc(const tide_memory* memory, size_t bytes, size_t alignment,
                                       void** out) {
  tide_device_cache* const device = memory->user;
  tide_block block = { NULL, 0 };
  *out = NULL;
  TIDE_TRY(tide_device_alloc(device, tide__pointer(memory->detail), bytes, &block));
  if (!tide__is_aligned(tide__address(block.address), alignment)) {
    tide__ignore(tide_device_release(device, block));
    return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "the cache cannot align memory to %zu bytes", alignment);
  }
  *out = block.address;
  return TIDE_OK;
}

static tide_status cached_memory_release(const tide_memory* memory, void* address) {
  return tide_device_release_address(memory->user, address);
}

tide_memory tide_device_memory(tide_device_cache* device, tide_stream stream) {
  return (tide_memory){ cached_memory_alloc, cached_memory_release, device, tide__address(stream), false };
}
