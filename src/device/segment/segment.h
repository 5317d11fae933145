// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of the machine: raw segments, and expandable ones in virtual memory. Uses lanes.
#ifndef TIDEMARK_SRC_DEVICE_SEGMENT_SEGMENT_H
#define TIDEMARK_SRC_DEVICE_SEGMENT_SEGMENT_H

#include "device/lane/lane.h"

// ---------------------------------------------------------------------------------------------------
// segment.c: segments of raw memory

// Makes a segment for a request; its one block is BUSY. TIDE_ERR_NO_MEMORY when the device is full.
tide_status tide__segment_grow(const tide__request* request, tide__block** out);
// A record for raw memory that is about to be requested. It is freed when the memory is in use. If the memory
// cannot be used, tide__stray_give() releases it, and keeps the record if the machine refuses.
tide_status tide__stray_new(tide_device_cache* device, tide__stray** out);
void tide__stray_free(tide_device_cache* device, tide__stray* stray);
void tide__stray_give(tide_device_cache* device, tide__stray* stray, void* address);
void tide__strays_retry(tide_device_cache* device);
// Gives a whole segment back whose one block is BUSY. On failure the block is idle again.
tide_status tide__segment_release(tide_device_cache* device, tide__segment* segment,
                                  const tide__call_context* context);
tide__segment* tide__segment_new(tide_device_cache* device, const tide__segment_kind* kind, tide__lane* lane,
                                 bool is_small);
void tide__segment_free(tide_device_cache* device, tide__segment* segment);
// Links the segment into its lane with one block.
tide__block* tide__segment_link_locked(tide__segment* segment, uint64_t address, uint64_t bytes,
                                       uint8_t state);
void tide__segment_unlink_locked(tide__segment* segment);
// Gives back the addresses of all segments of a lane in which nothing is mapped any more.
void tide__segments_drop_unmapped(tide_device_cache* device, tide__lane* lane);
// Counts and records memory that was mapped for a request.
void tide__mapped_tell(const tide__request* request, uint64_t address, uint64_t bytes);
// The same for memory of a segment that no request asked for.
void tide__mapped_keep(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                       const tide__call_context* context);
// Tells observers that memory of a segment is about to be unmapped; the gate is left meanwhile, and all of it
// must be BUSY. Then counts and records what was unmapped, and tells observers what was not after all.
void tide__unmapping_tell(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                          const tide__call_context* context);
void tide__unmapped_keep(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                         const tide__call_context* context);
void tide__unmapping_revoke(tide_device_cache* device, const tide__segment* segment, uint64_t from,
                            uint64_t to, const tide__call_context* context);
// Tells observers that all memory of a segment is about to go, whatever uses it: at the end of the allocator.
void tide__segment_end_tell(tide_device_cache* device, const tide__segment* segment,
                            const tide__call_context* context);
// Waits until no work of the lane's stream uses its idle memory. Unless `is_always`, it waits only where the
// machine does not wait itself when raw memory is released.
tide_status tide__lane_quiesce(tide_device_cache* device, const tide__lane* lane, bool is_always);

// ---------------------------------------------------------------------------------------------------
// expand.c: segments of virtual memory

tide_status tide__expand_grow(const tide__request* request, tide__block** out);

// ---------------------------------------------------------------------------------------------------
// uncached.c: memory without a cache

tide_status tide__uncached_alloc(tide_device_cache* device, size_t bytes, tide_block* out);
// Takes a block back whose handle was ended. If the machine fails, it stays the caller's.
tide_status tide__uncached_release(tide_device_cache* device, tide__block* block);

#endif
