// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Limits of the solvers. The time limit and a stop by the caller end the work of all threads at any point.
// Nodes are assigned before the work begins, so a node limit has the same effect with any number of
// threads.
//
// A node limit bounds work. A node is a placement that visits up to TIDE__BUDGET_WORK tiles, sections or
// bars. A placement that visits more is charged as several nodes.
#ifndef TIDEMARK_SRC_PLAN_BUDGET_H
#define TIDEMARK_SRC_PLAN_BUDGET_H

#include <pthread.h>

#include "base/atomic.h"
#include "tidemark/plan.h"

#define TIDE__BUDGET_WORK 16384u

// Work done, or allowed.
typedef struct tide__effort {
  uint64_t nodes;
  uint64_t work;  // elements visited
} tide__effort;

typedef struct tide__budget {
  const tide_plan_options* options;  // borrowed
  uint64_t begin_ns;
  uint64_t end_ns;        // UINT64_MAX: no limit
  uint64_t next_call_ns;  // of on_progress; used by the caller's thread only
  uint64_t nodes;         // spent; not changed while threads work
  uint64_t work;          // less than one node, not charged yet
  uint64_t given;         // free work for hints: two nodes per buffer
  uint64_t share_end_ns;  // of the current pool
  uint64_t share_nodes;   // limit of `nodes` for it; UINT64_MAX: none
  bool is_stopped;        // by the caller
  pthread_t caller;
  tide__atomic_u32 is_over;
  tide_plan_progress progress;  // as reported last; used by the caller's thread only
} tide__budget;

void tide__budget_init(tide__budget* budget, const tide_plan_options* options, size_t buffers);

// Gives the next pool its share of the rest; `pools` are left, this one included.
void tide__budget_share(tide__budget* budget, uint32_t pool, uint32_t pools);

// Limits the next work to one part in `parts` of the remaining time. Pass the result to `widen` afterwards.
uint64_t tide__budget_narrow(tide__budget* budget, uint32_t parts);
void tide__budget_widen(tide__budget* budget, uint64_t end_ns);

// Has the time run out, or does the caller want to stop? Call it from time to time, on any thread.
bool tide__budget_is_over(tide__budget* budget);

// Tells one of several concurrent works to stop: the budget is spent, or a work with a lower index has
// succeeded.
typedef struct tide__watch {
  tide__budget* budget;      // borrowed
  tide__atomic_u32* winner;  // borrowed, (optional) the lowest work known to have succeeded
  uint32_t index;            // of this work
} tide__watch;

static inline bool tide__watch_is_over(const tide__watch* watch) {
  if (watch->winner != NULL && tide__load_relaxed(watch->winner) < watch->index) return true;
  return tide__budget_is_over(watch->budget);
}

// Reports the success of work `index`.
static inline void tide__watch_win(tide__atomic_u32* winner, uint32_t index) {
  uint32_t before = tide__load_relaxed(winner);
  while (index < before && !atomic_compare_exchange_weak(winner, &before, index)) {}
}

// Returns the remaining nodes.
uint64_t tide__budget_left(const tide__budget* budget);
// Charges nodes, or more if the work exceeds what they pay for.
void tide__budget_spend(tide__budget* budget, tide__effort effort);
// The same for hints, which have free work first; false if all is spent.
bool tide__budget_keep(tide__budget* budget, uint64_t work);
// The work that `nodes` pay for.
static inline uint64_t tide__budget_worth(uint64_t nodes) {
  return nodes < UINT64_MAX / TIDE__BUDGET_WORK ? nodes * TIDE__BUDGET_WORK : UINT64_MAX;
}

double tide__budget_seconds(const tide__budget* budget);

// Sets what on_progress reports from now on.
void tide__budget_tell(tide__budget* budget, tide_plan_stage stage, uint64_t peak, uint64_t lower_bound);

#endif
