// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of the caches above a machine share: work that is held up, calls that fail, and what a visit
// shows.
#ifndef TIDEMARK_TESTS_CACHES_H
#define TIDEMARK_TESTS_CACHES_H

#include "machine/machines.h"
#include "tidemark/device.h"

static const tide_block block_none = { NULL, 0 };

static inline uint8_t* bytes_of(tide_block block) { return block.address; }

// ---------------------------------------------------------------------------------------------------
// Streams

static inline tide_stream side_new(tide_machine* m) { return stream_new(m, 0, TIDE_STREAM_NON_BLOCKING); }

// Queues work that is not done before let_go(), which waits until it is.
static inline void hold_up(gate* g, tide_machine* m, tide_stream stream) {
  gate_close(g, m, 0, stream);
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1));
}

static inline void let_go(gate* g) {
  gate_open(g);
  stream_finish(g->machine, g->device, g->stream);
}

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
// Looking inside

#define SEEN_SEGMENTS 256
#define SEEN_BLOCKS 8192

// Everything that a visit shows; blocks stand behind those of the segments before.
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
