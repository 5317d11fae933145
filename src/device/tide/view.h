// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks in views: what using a view and making one share.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_VIEW_H
#define TIDEMARK_SRC_DEVICE_TIDE_VIEW_H

#include "device/tide/pieces.h"

extern const tide__segment_kind tide__view_kind;
// Makes a BUSY block of vacant addresses of a view. It takes the pieces that were gathered.
tide__block* tide__view_cut_locked(tide__gathering* g, tide__segment* segment, uint64_t offset,
                                   uint64_t bytes);
// Makes the block's stream wait for the lanes that used its memory, so that it may be handed out.
tide_status tide__view_block_finish(tide__gathering* g, tide__block* block, tide__block** out);

#endif
