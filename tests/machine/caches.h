// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Helpers for tests of the caches above a machine: streams, calls that fail, and the results of a visit.
#ifndef TIDEMARK_TESTS_CACHES_H
#define TIDEMARK_TESTS_CACHES_H

#include "machine/machines.h"
#include "tidemark/device.h"

static const tide_block block_none = { NULL, 0 };

static inline uint8_t* bytes_of(tide_block block) { return block.address; }

static inline tide_stream side_new(tide_machine* m) { return stream_new(m, 0, TIDE_STREAM_NON_BLOCKING); }

// ---------------------------------------------------------------------------------------------------
// Calls that fail

// The next calls of a kind take longer, and fail unless the status is TIDE_OK.
static inline void slow_down(tide_machine* m, tide_call call, tide_status status, uint64_t count,
                             uint64_t ms) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.status = (uint32_t)status;
  fault.count = count;
  fault.latency_ns = ms * 1000000;
  T_OK(tide_machine_fault_add(m, &fault));
}

// The next calls of a kind fail.
static inline void break_calls(tide_machine* m, tide_call call, tide_status status, uint64_t count) {
  slow_down(m, call, status, count, 0);
}

// ---------------------------------------------------------------------------------------------------
// Visits

#define SEEN_SEGMENTS 256
#define SEEN_BLOCKS 8192

// Everything that a visit reports. first_block[i] is the index of the first block of segment i.
typedef struct seen {
  size_t segment_count;
  size_t block_count;
  tide_segment_info segments[SEEN_SEGMENTS];
  size_t first_block[SEEN_SEGMENTS];
  tide_block_info blocks[SEEN_BLOCKS];
} seen;

static inline bool seen_segment(void* user, const tide_segment_info* segment) {
  seen* const s = user;
  T_LT(s->segment_count, SEEN_SEGMENTS);
  s->first_block[s->segment_count] = s->block_count;
  s->segments[s->segment_count++] = *segment;
  return true;
}

static inline bool seen_block(void* user, const tide_block_info* block) {
  seen* const s = user;
  T_LT(s->block_count, SEEN_BLOCKS);
  s->blocks[s->block_count++] = *block;
  return true;
}

#endif
