// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The stage of one run: a dry machine, a cache on it, the streams and pools of the recording, and the blocks
// by slot. Steps run on it one by one.
//
// Time is the number of the entry: entry i happens at (i + 1) << TIDE__ENTRY_SHIFT ns, a minute after the one
// before, so that the cost of the machine's calls never reaches the next entry. A release that waits is
// recorded on a side stream, which has work until the entry that completes it.
#ifndef TIDEMARK_SRC_REPLAY_STAGE_H
#define TIDEMARK_SRC_REPLAY_STAGE_H

#include "replay/steps.h"
#include "tidemark/replay.h"

#define TIDE__ENTRY_SHIFT 36u
#define TIDE__STAGE_SIDES 32u

// The content of a slot; a NULL address: the request was refused.
typedef struct tide__held {
  tide_block block;
  uint64_t bytes;  // that count as live
} tide__held;

// A stream that blocks wait for. Its queued work ends at `end_ns`.
typedef struct tide__side {
  tide_stream stream;
  uint64_t end_ns;
} tide__side;

typedef struct tide__budgets tide__budgets;  // see budgets.h

typedef struct tide__stage {
  const tide__script* script;          // borrowed until fini
  const tide_replay_options* options;  // borrowed until fini
  const tide_heap* heap;               // borrowed until fini
  tide_device_cache* device;           // owned
  tide_machine* machine;               // owned
  tide_stream* streams;                // owned: by the script's numbers
  tide_pool* pools;                    // owned: by the trace's numbers; 0: not created yet
  size_t pool_count;
  tide__held* held;  // owned: by slots
  uint64_t live_bytes;
  uint64_t peak_bytes;
  uint64_t allocations;
  uint64_t ooms;
  uint64_t first_oom;  // number of the entry; UINT64_MAX: none
  uint64_t oom_bytes;
  uint64_t empties;
  uint64_t unscaled_blocks;
  uint64_t unscaled_bytes;
  bool is_in_place;        // it began with the segments that are older than the recording
  bool is_refused;         // the cache has just reported that it is out of memory
  bool has_region;         // requests go to the pool of a region, whatever the recording says
  tide__budgets* budgets;  // owned; NULL: the run has no tags
  size_t side_count;
  tide__side sides[TIDE__STAGE_SIDES];
} tide__stage;

// Errors: TIDE_ERR_NO_MEMORY, or any error of the cache about its options.
tide_status tide__stage_init(tide__stage* stage, const tide__script* script, const tide_heap* heap,
                             const tide_replay_options* options);
void tide__stage_fini(tide__stage* stage);

// The size of a request in this run.
uint64_t tide__stage_bytes(const tide__stage* stage, const tide__step* step);

// Run one step. Segments have no steps of their own. A refused request is not a failure: see `ooms`.
tide_status tide__stage_alloc(tide__stage* stage, const tide__step* step);
tide_status tide__stage_oom(tide__stage* stage, const tide__step* step);
tide_status tide__stage_free(tide__stage* stage, const tide__step* step);
tide_status tide__stage_free_later(tide__stage* stage, const tide__step* step);
tide_status tide__stage_done(tide__stage* stage, const tide__step* step);
// The second half of FREE_LATER: releases the block, which waits from now on.
tide_status tide__stage_wait(tide__stage* stage, const tide__step* step);
// Makes a pool of the trace, if it is private and does not exist yet.
tide_status tide__stage_pool_make(tide__stage* stage, uint16_t number);
// Undoes an ALLOC that was served just now.
tide_status tide__stage_take_back(tide__stage* stage, const tide__step* step);

// The two halves of a step DONE: the clock moves to its entry, and the block no longer counts as live. The
// cache finds completed work when it polls.
tide_status tide__stage_clock_to(tide__stage* stage, uint64_t entry);
void tide__stage_end_life(tide__stage* stage, const tide__step* step);

// Empties the cache before a step.
tide_status tide__stage_empty(tide__stage* stage, size_t at);
// A private pool gives memory back only without users. This drops the users of all pools whose memory is
// given back from a step on, before the next request or release, unless such a pool has a later request.
tide_status tide__stage_end_pools(tide__stage* stage, size_t at);

#endif
