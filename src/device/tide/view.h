// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks in views: what using a view and making one share.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_VIEW_H
#define TIDEMARK_SRC_DEVICE_TIDE_VIEW_H

#include "device/tide/pieces.h"

extern const tide__segment_kind tide__view_kind;
// The handle of a view over an offset, if it is not before the handle `low`.
static inline size_t tide__view_index(const tide__view* view, size_t low, uint64_t offset) {
  size_t high = view->count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (view->offsets[middle] <= offset) low = middle;
    else high = middle;
  }
  return low;
}
// Makes the records of a view; *out is the caller's also on failure. And frees them.
tide_status tide__view_record(tide_device_cache* device, tide__lane* lane, size_t count, tide__segment** out);
void tide__view_record_free(tide_device_cache* device, tide__segment* segment);
// Adds a view to its lane, whose addresses are vacant.
void tide__view_link_locked(tide_device_cache* device, tide__segment* segment, tide__addresses* addresses,
                            uint64_t bytes);
// Makes a BUSY block of vacant addresses of a view. It takes the pieces that were gathered.
tide__block* tide__view_cut_locked(tide__gathering* g, tide__segment* segment, uint64_t offset,
                                   uint64_t bytes);
// Makes the block's stream wait for the lanes that used its memory, so that it may be handed out.
tide_status tide__view_block_finish(tide__gathering* g, tide__block* block, tide__block** out);

#endif
