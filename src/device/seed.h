// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Seeds: segments with blocks handed out at given places, with which a cache can begin. A replay of a
// recording that begins in the middle of a run begins with the memory that existed then.
#ifndef TIDEMARK_SRC_DEVICE_SEED_H
#define TIDEMARK_SRC_DEVICE_SEED_H

#include "tidemark/device.h"

// A range of a segment, by its distance from the beginning of the segment.
typedef struct tide__seed_range {
  uint64_t offset;
  uint64_t bytes;
  uint64_t requested_bytes;  // of a block
} tide__seed_range;

typedef struct tide__seed {
  tide_pool pool;
  tide_stream stream;
  uint64_t bytes;  // of the segment; of an expandable one, up to the end of its last memory
  bool is_small;
  bool is_expandable;
  const tide__seed_range* holes;  // ranges without memory, of whole handles, by offset; borrowed for the call
  size_t hole_count;
  const tide__seed_range* blocks;  // that are handed out, by offset; borrowed for the call
  size_t block_count;
} tide__seed;

// Makes a segment and hands out its blocks. The policy must be `torch`. Limits do not count. The caller has
// checked that ranges lie within the segment, are multiples of 512 bytes and do not overlap.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_HANDLE for a pool that does not exist; any error of the machine. The
//         segment may exist then.
tide_status tide__device_seed(tide_device_cache* device, const tide__seed* seed, tide_block* out);

#endif
