// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The room `pool`: the pools of the cache and their scopes (core/pools.h). It calls the rooms `stream`,
// `segment` and `stats`.
#ifndef TIDEMARK_SRC_PINNED_POOL_POOL_H
#define TIDEMARK_SRC_PINNED_POOL_POOL_H

#include "pinned/cache.h"

// ---------------------------------------------------------------------------------------------------
// pools.c

// Makes the default pool; false if there is no memory.
bool tide__pin_pools_start(tide_pinned_cache* pinned);
void tide__pin_pools_fini(tide_pinned_cache* pinned);
// Gives back the memory of pools without users, and drops those that are empty then.
tide_status tide__pin_pools_empty(tide_pinned_cache* pinned);
// The checks of every call that takes a pool.
tide_status tide__pin_cache_check(const tide_pinned_cache* pinned, const char* call);

// ---------------------------------------------------------------------------------------------------
// scopes.c

// Sets the pool of a request if an open scope accepts it. The request is then a guest of the pool until
// tide__pools_leave().
void tide__pin_pool_choose(tide__pin_request* request);
// Notes what a captured copy reads, if a scope of the block's pool asks for it.
void tide__pin_copy_note(tide_pinned_cache* pinned, const tide__pin* block, int device, tide_stream stream,
                         const void* source, uint64_t bytes);

#endif
