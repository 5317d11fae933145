// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memo: how much memory the streams of a run had, and in which handles. See tide_device_memo_save(). The
// caller of these functions has the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_MEMO_H
#define TIDEMARK_SRC_DEVICE_TIDE_MEMO_H

#include "device/tide/tide.h"

// Handles of one size, one after another.
typedef struct tide__memo_run {
  uint64_t count;
  uint64_t bytes;  // of each
} tide__memo_run;

// The memory of one stream of the default pool, from low addresses to high ones.
typedef struct tide__memo_stream {
  uint32_t number;  // of its lane
  size_t run;       // the first one
  size_t run_count;
  uint64_t bytes;  // of all
  uint64_t made;   // that its home got so far in this run, by requests or ahead
} tide__memo_stream;

struct tide__memo {
  uint64_t peak;         // of large blocks
  uint64_t left;         // bytes that may still be made ahead, if is_measured
  bool is_measured;      // the free memory of the device was looked at
  uint64_t used_ns;      // the machine's time when a home grew last; 0: none did
  tide__memo_run* runs;  // owned, like the next
  size_t run_count;
  size_t run_capacity;
  tide__memo_stream* streams;
  size_t stream_count;
  size_t stream_capacity;
};
typedef struct tide__memo tide__memo;

void tide__memo_free(tide_device_cache* device, tide__memo* memo);
// The stream of a memo that a lane belongs to; NULL: there is none.
tide__memo_stream* tide__memo_stream_of(tide__memo* memo, const tide__lane* lane);
// The size of the next handle of a stream; 0: it has all that the memo says.
uint64_t tide__memo_next(tide_device_cache* device, const tide__memo* memo, const tide__memo_stream* stream);

#endif
