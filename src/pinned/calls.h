// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the entry points share. They lie in the folder itself, above all rooms. stage.c and pinned.c call
// alloc.c, release.c and record.c; record.c calls release.c; alloc.c, pinned.c and poller.c call trim.c.
#ifndef TIDEMARK_SRC_PINNED_CALLS_H
#define TIDEMARK_SRC_PINNED_CALLS_H

#include "pinned/cache.h"

// ---------------------------------------------------------------------------------------------------
// release.c

// The block with exactly this handle and address, or NULL. The handle may end at any time, so the caller
// compares the generation again in its own atomic step. That step also orders later reads.
static inline tide__pin* tide__pin_named(tide_pinned_cache* pinned, tide_block block) {
  tide__pin* const found = tide__slots_named(&pinned->blocks, block.handle);
  const bool is_it = found != NULL &&
                     tide__load_relaxed(&found->slot.generation) == (uint32_t)(block.handle >> 32) &&
                     tide__pin_address(found) == tide__address(block.address);
  return is_it ? found : NULL;
}
// The block that a caller names, with the generation of its handle; or the reason why there is none.
tide_status tide__pin_name(tide_pinned_cache* pinned, const char* call, tide_block block, tide__pin** out,
                           uint32_t* out_generation);

// ---------------------------------------------------------------------------------------------------
// trim.c

// Polls waiting blocks, and gives back idle memory that is too old.
tide_status tide__pin_sweep(tide_pinned_cache* pinned);
// Gives back wholly idle segments of the default pool with blocks of at least `least_bytes`, until at most
// `keep_bytes` are left. *out_count is how many went.
tide_status tide__pin_trim(tide_pinned_cache* pinned, uint64_t least_bytes, uint64_t keep_bytes,
                           uint32_t* out_count);

// ---------------------------------------------------------------------------------------------------
// monitor_row.c: a tide__monitored_fill

bool tide__pinned_row_fill(void* cache, tide_monitor_row* row);

// ---------------------------------------------------------------------------------------------------
// children.c

// Before fork(): chooses which pages the child gets. `user` is the cache.
void tide__pin_prepare_fork(void* user);

// ---------------------------------------------------------------------------------------------------
// poller.c

tide_status tide__pin_helper_start(tide_pinned_cache* pinned);
void tide__pin_helper_stop(tide_pinned_cache* pinned);
// Keeps the helper from sweeping, after waiting for a sweep that is in progress; and lets it continue.
void tide__pin_helper_pause(tide_pinned_cache* pinned);
void tide__pin_helper_resume(tide_pinned_cache* pinned);

#endif
