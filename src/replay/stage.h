// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stage of one run: a dry machine, an allocator on it, the streams and pools of the recording, and what
// every slot holds. Steps are played on it one by one.
//
// Time is the number of the entry: entry i happens at i << TIDE__ENTRY_SHIFT ns, a minute after the one
// before, so that no cost of the machine's calls reaches the next. A release that waits is announced to a
// side stream, which gets work until the entry that completes it.
#ifndef TIDEMARK_SRC_REPLAY_STAGE_H
#define TIDEMARK_SRC_REPLAY_STAGE_H

#include "replay/steps.h"
#include "tidemark/replay.h"

#define TIDE__ENTRY_SHIFT 36u
#define TIDE__STAGE_SIDES 32u

// What a slot holds; a NULL address: the request was refused.
typedef struct tide__held {
  tide_block block;
  uint64_t bytes;  // that count as live
} tide__held;

// A stream that blocks wait for. What is queued on it ends in its order, the last at `end_ns`.
typedef struct tide__side {
  tide_stream stream;
  uint64_t end_ns;
} tide__side;

typedef struct tide__stage {
  const tide__script* script;          // borrowed until fini
  const tide_replay_options* options;  // borrowed until fini
  const tide_heap* heap;               // borrowed until fini
  tide_device_cache* device;           // owned
  tide_machine* machine;               // owned
  tide_stream* streams;                // owned: by the script's numbers
  tide_pool* pools;                    // owned: by the trace's numbers; 0: not made yet
  size_t pool_count;
  tide__held* held;  // owned: by slots
  uint64_t live_bytes;
  uint64_t peak_bytes;
  uint64_t allocations;
  uint64_t ooms;
  uint64_t first_oom;  // number of the entry; UINT64_MAX: none
  uint64_t oom_bytes;
  uint64_t empties;
  bool is_refused;  // the allocator has just said that it is out of memory
  size_t side_count;
  tide__side sides[TIDE__STAGE_SIDES];
} tide__stage;

// Sets the stage, and clears it.
// Errors: TIDE_ERR_NO_MEMORY, or what the allocator says to its options.
tide_status tide__stage_init(tide__stage* stage, const tide__script* script, const tide_heap* heap,
                             const tide_replay_options* options);
void tide__stage_fini(tide__stage* stage);

// Plays one step. Of segments nothing is played. A request that is refused is no failure: see `ooms`.
tide_status tide__stage_alloc(tide__stage* stage, const tide__step* step);
tide_status tide__stage_oom(tide__stage* stage, const tide__step* step);
tide_status tide__stage_free(tide__stage* stage, const tide__step* step);
tide_status tide__stage_free_later(tide__stage* stage, const tide__step* step);
tide_status tide__stage_done(tide__stage* stage, const tide__step* step);

// The two halves of a step DONE: the clock moves to its entry, and the block counts as live no longer. What
// is done is found by the allocator when it looks.
tide_status tide__stage_clock_to(tide__stage* stage, uint64_t entry);
void tide__stage_end_life(tide__stage* stage, const tide__step* step);

// Empties the cache before a step.
tide_status tide__stage_empty(tide__stage* stage, size_t at);
// A private pool gives memory back only when it has no users any more. So those whose memory is given back
// from a step on, before the next request or release, lose theirs, unless a request of theirs comes later.
tide_status tide__stage_end_pools(tide__stage* stage, size_t at);

#endif
