// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memo: how much memory the streams of a run had, in which handles, and which views of them. See
// tide_device_memo_save(). The caller of these functions has the gate.
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

// Handles of a stream that follow each other, as bytes of its memory.
typedef struct tide__memo_part {
  uint32_t number;  // of its lane
  uint64_t offset;
  uint64_t bytes;
} tide__memo_part;

// A view of a stream: parts of any streams, one behind the other.
typedef struct tide__memo_view {
  uint32_t number;  // of its lane
  size_t part;      // the first one
  size_t part_count;
} tide__memo_view;

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
  tide__memo_part* parts;  // owned, like the next
  size_t part_count;
  size_t part_capacity;
  tide__memo_view* views;
  size_t view_count;
  size_t view_capacity;
  size_t next_view;  // the first that was not made yet
};
typedef struct tide__memo tide__memo;

void tide__memo_free(tide_device_cache* device, tide__memo* memo);
// The stream of a memo that a lane belongs to; NULL: there is none.
tide__memo_stream* tide__memo_stream_of(tide__memo* memo, const tide__lane* lane);
// The lane of the default pool with a number; NULL: there is none.
tide__lane* tide__memo_lane(tide_device_cache* device, uint32_t number);
// The handles of a part of a memo: stores up to `capacity` of them, and returns how many there are. 0: not
// all of them were made yet, or *out_differs: handles begin and end elsewhere in this run.
size_t tide__memo_part_handles(tide_device_cache* device, const tide__memo_part* part, tide__handle** out,
                               size_t capacity, bool* out_differs);
// The size of the next handle of a stream; 0: it has all that the memo says.
uint64_t tide__memo_next(tide_device_cache* device, const tide__memo* memo, const tide__memo_stream* stream);
// ahead.c: replaces the memo, which is the device's from then on. The helper begins with it at once if a
// stream of it is known, otherwise when one gets memory.
void tide__ahead_set_memo(tide_device_cache* device, tide__memo* memo, const tide__call_context* context);

#endif
