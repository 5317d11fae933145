// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide`: homes, views, and the thread caches of small blocks. Uses the common part of the
// policies.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_TIDE_H
#define TIDEMARK_SRC_DEVICE_TIDE_TIDE_H

#include "device/policy/policy.h"

extern const tide__policy tide__policy_tide;

// ---------------------------------------------------------------------------------------------------
// tcache.c: thread caches of small blocks

tide_status tide__tcache_init(tide_device_cache* device);
// May a request be served from magazines?
static inline bool tide__tcache_serve(const tide__request* request) {
  return request->device->has_tcaches && request->kind == TIDE__SMALL &&
         request->pool == &request->device->default_pool && !request->is_capturing &&
         !request->lane->is_unlisted && request->policy != request->device->plain_policy;
}
// Serves such a request, refilling a magazine from the lane. *out_found is false if that has no memory.
tide_status tide__tcache_search(tide__request* request, tide_block* out, bool* out_found);
// Takes back a block of a magazine whose handle was ended.
void tide__tcache_release_slow(tide_device_cache* device, tide__block* block);
// Returns all blocks in thread caches to their lanes; or those of one lane of an allocator that has thread
// caches, false if there were none.
void tide__tcache_flush(tide_device_cache* device);
bool tide__tcache_flush_lane(tide_device_cache* device, const tide__lane* lane);
// Empties the thread caches of lanes whose stream is closed.
void tide__tcache_forget_closed(tide_device_cache* device);
// Flushes a lane, and cuts off the excess of blocks that are larger than their requests.
void tide__tcache_squeeze(tide_device_cache* device, tide__lane* lane);
// Adds what the calling thread counted to the totals, or what all did.
void tide__tcache_settle_own(tide_device_cache* device);
void tide__tcache_settle(tide_device_cache* device);
// How many blocks are in thread caches.
uint64_t tide__tcache_count(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// home.c: homes of handles

// The sizes of new handles in a range. The first one has a part of the range, the next one the same part of
// what is left, and so on, but each has at least and at most so many bytes.
typedef struct tide__handle_sizes {
  uint64_t unit;  // all sizes are multiples of it, except for the last of a range
  uint64_t least;
  uint64_t most;
} tide__handle_sizes;

// The caller has the gate, except where a function is named `locked`.
// The sizes of new handles for a request, and how much of them may be made before idle memory is stitched.
typedef struct tide__growth {
  uint64_t look;  // its number: one survey serves all steps that follow, while idle memory stays the same
  uint64_t peak;  // the expected one, which decides how large handles are
  tide__handle_sizes handles;  // once they are chosen
  uint64_t unit;               // new memory is a multiple of it
  uint64_t slack_left;
  uint64_t idle_left;  // the same for a small program, before a view is used
  uint64_t limit_left;
  bool can_wait;      // the request's stream may wait for marks of others
  bool avoids_waits;  // it could, but new memory is better
} tide__growth;
// The smallest handle; all are multiples of it.
uint64_t tide__home_unit(tide_device_cache* device);
// The same for a request, until it ends: its options stay as they are when those of the allocator change.
uint64_t tide__request_unit(const tide__request* request);
// Makes memory at the top of the home of a request's lane and kind, after what is idle there; the block is
// BUSY. TIDE_OK without a block if that would be more than `most` bytes.
tide_status tide__home_grow(const tide__request* request, const tide__growth* growth, uint64_t most,
                            tide__block** out);
// Makes and maps `bytes` at an address of a home, BUSY, of which nothing is mapped.
tide_status tide__home_fill(tide_device_cache* device, tide__segment* segment, uint64_t address,
                            uint64_t bytes, tide__handle_sizes sizes);
// Makes idle memory at the top of the home of a request's lane: see tide__policy.
tide_status tide__home_reserve(tide__request* request, uint64_t* out_bytes);
// How much of that would be new memory.
uint64_t tide__home_missing(const tide__request* request, const tide__growth* growth);
// The newest home of the request's lane and kind, with addresses for `bytes` more.
tide_status tide__home_with_room(const tide__request* request, uint64_t bytes, tide__segment** out);
// Takes addresses from the top of a home, BUSY, and back.
tide__block* tide__home_cut_top_locked(tide__segment* segment, uint64_t bytes);
void tide__home_uncut_top_locked(tide__segment* segment, tide__block* block);
// How many handles are needed for this many bytes; the last may be smaller.
size_t tide__handles_for(uint64_t bytes, tide__handle_sizes sizes);
// Makes that many new handles, whose memory belongs to the mapping. The caller owns the array.
tide_status tide__handles_make(tide_device_cache* device, struct tide__mapping* mapping, uint64_t bytes,
                               tide__handle_sizes sizes, tide__handle*** out);
// Maps handles one after another and commits the mapping. On failure the caller ends it.
tide_status tide__handles_map(tide_device_cache* device, struct tide__mapping* mapping,
                              tide__handle* const* handles, size_t count);
// Frees the records of handles, and their array.
void tide__handles_free(tide_device_cache* device, tide__handle** handles, size_t count);
// Makes room for the records of `count` more handles in a home, and adds them, from an address on.
tide_status tide__home_make_room(tide_device_cache* device, tide__segment* segment, size_t count);
void tide__home_add_handles_locked(tide_device_cache* device, tide__segment* segment, tide__handle** handles,
                                   size_t count, uint64_t address, bool is_mapped);
// Are all handles under `bytes` from an idle block's beginning mapped at home, and used by no other lane?
bool tide__home_is_ready_locked(const tide__block* block, uint64_t bytes);
// Makes this true for a BUSY block. *out_ready is false if other lanes may still use it and cannot be waited
// for.
tide_status tide__home_prepare(tide_device_cache* device, tide__block* block, bool can_wait, bool* out_ready);
// Updates whether the handles under a range are mapped and not used by other lanes.
void tide__home_note_locked(tide_device_cache* device, tide__home* home, uint64_t address, uint64_t bytes);
// Notes the last use of a range of a home by a lane.
void tide__home_add_use_locked(tide_device_cache* device, tide__home* home, uint64_t address, uint64_t bytes,
                               tide__lane* lane, uint64_t stamp);
// The handles under a range that has memory.
tide__span tide__home_span(const tide__home* home, uint64_t address, uint64_t bytes);
// Brings what handles say about idle memory up to date. Only blocks are looked at that have changed since the
// last call, unless they are many.
void tide__home_survey_locked(const tide__segment* segment);

// ---------------------------------------------------------------------------------------------------
// view.c: stitched memory

// A BUSY block made of idle memory from anywhere: through an existing view (NULL if none fits), or a new one.
tide_status tide__view_use(const tide__request* request, const tide__growth* growth, tide__block** out);
tide_status tide__view_make(const tide__request* request, const tide__growth* growth, tide__block** out);
// Ends a block in a view: its addresses become vacant, and its pieces idle or returned to their lanes.
void tide__view_block_end_locked(tide_device_cache* device, tide__block* block,
                                 const tide__call_context* context);
// The handles under a block in a view, from an offset there.
tide__span tide__view_span(const tide__view* view, uint64_t offset, uint64_t bytes);

// ---------------------------------------------------------------------------------------------------
// handle_size.c

// How large new handles for a large request are.
tide__handle_sizes tide__handle_sizes_for(const tide__request* request, uint64_t peak);
// How large handles are of so many bytes that are reserved at once.
uint64_t tide__handle_bytes_of_reserve(const tide__request* request, uint64_t bytes);
// All handles of a range have one size.
static inline tide__handle_sizes tide__handles_of(uint64_t bytes) {
  return (tide__handle_sizes){ bytes, bytes, bytes };
}

// ---------------------------------------------------------------------------------------------------
// recast.c: larger handles in the place of smaller ones

// Gives back at least `bytes` of handles that are smaller than `least`, wholly idle, and used by no work any
// more. False if there are not so many, or if that fails.
bool tide__recast(const tide__request* request, uint64_t least, uint64_t bytes);

// ---------------------------------------------------------------------------------------------------
// addresses.c: addresses of views

// Takes at least this many bytes of addresses, and gives them back; and frees a record whose addresses belong
// to something else now.
tide_status tide__addresses_take(tide_device_cache* device, uint64_t bytes, tide__addresses** out);
void tide__addresses_give(tide_device_cache* device, tide__addresses* addresses);
void tide__addresses_forget(tide_device_cache* device, tide__addresses* addresses);
// Gives idle addresses back to the machine; and frees all records at the end.
void tide__addresses_trim(tide_device_cache* device);
void tide__addresses_fini(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// view_end.c: the end of views

void tide__view_free(tide_device_cache* device, tide__view* view);
// Called after a stitch for a lane mapped this many handles: if there are too many views, the least recently
// used ones are retired.
void tide__views_keep_few(tide_device_cache* device, tide__lane* lane, size_t mapped);
// Unmaps a view that no block is in, and that no work uses any more.
tide_status tide__view_drop(tide_device_cache* device, tide__segment* segment);
// Takes a handle out of all views of its pool.
tide_status tide__views_drop_handle(tide_device_cache* device, tide__handle* handle);
// Unmaps all views that no block is in.
tide_status tide__views_trim(tide_device_cache* device, tide__pool* pool);
void tide__view_destroy(tide_device_cache* device, tide__segment* segment);
tide_status tide__view_add_peer(tide_device_cache* device, const tide__segment* segment, int peer);

#endif
