// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache as a source of arenas.
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "tidemark/pinned.h"

static tide_status pinned_cache_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  tide_pinned_cache* const pinned = memory->user;
  tide_block block = { NULL, 0 };
  *out = NULL;
  TIDE_TRY(tide_pinned_alloc(pinned, bytes, &block));
  if (!tide__is_aligned(tide__address(block.address), alignment)) {
    tide__ignore(tide_pinned_release(pinned, block));
    return TIDE_FAIL(TIDE_ERR_UNSUPPORTED, "the pinned cache gives no memory at a multiple of %zu",
                     alignment);
  }
  *out = block.address;
  return TIDE_OK;
}

static tide_status pinned_cache_release(const tide_memory* memory, void* address) {
  return tide_pinned_release_address(memory->user, address);
}

tide_memory tide_pinned_memory(tide_pinned_cache* pinned) {
  const bool is_host = pinned != NULL && strcmp(tide_machine_name(tide_pinned_machine(pinned)), "dry") != 0;
  return (tide_memory){ pinned_cache_alloc, pinned_cache_release, pinned, 0, is_host };
}
