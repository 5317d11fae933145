// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How long the solvers may work. Time and the caller's wish to stop end the work of every thread wherever it
// is; nodes are handed out before the work begins, so that their limit acts alike with any number of threads.
//
// A limit of nodes bounds work. A node is a placement, and may look at TIDE__BUDGET_WORK things: tiles,
// sections, bars. Who looks at more pays for as many nodes as that is worth.
#ifndef TIDEMARK_SRC_PLAN_BUDGET_H
#define TIDEMARK_SRC_PLAN_BUDGET_H

#include <pthread.h>

#include "base/atomic.h"
#include "tidemark/plan.h"

#define TIDE__BUDGET_WORK 16384u

// What was done, or may be.
typedef struct tide__effort {
  uint64_t nodes;
  uint64_t work;  // things looked at
} tide__effort;

typedef struct tide__budget {
  const tide_plan_options* options;  // borrowed
  uint64_t begin_ns;
  uint64_t end_ns;        // UINT64_MAX: no limit
  uint64_t next_call_ns;  // of on_progress; the caller's thread alone
  uint64_t nodes;         // spent; changed between the works of threads only
  uint64_t work;          // less than a node is worth, and not paid yet
  uint64_t given;         // work for which hints need not pay: two nodes for each buffer, once
  uint64_t share_end_ns;  // of the pool at work
  uint64_t share_nodes;   // that may be spent when it is done; UINT64_MAX: no limit
  bool is_stopped;        // by the caller
  pthread_t caller;
  tide__atomic_u32 is_over;
  tide_plan_progress progress;  // as told last; the caller's thread alone
} tide__budget;

void tide__budget_init(tide__budget* budget, const tide_plan_options* options, size_t buffers);

// Gives the next pool its share of what is left; `pools` are to come, with this one.
void tide__budget_share(tide__budget* budget, uint32_t pool, uint32_t pools);

// Lets the next work have one part in `parts` of the time that is left; returns what `widen` is given
// afterwards.
uint64_t tide__budget_narrow(tide__budget* budget, uint32_t parts);
void tide__budget_widen(tide__budget* budget, uint64_t end_ns);

// To be asked now and then, on any thread: is the time over, or does the caller want to stop?
bool tide__budget_is_over(tide__budget* budget);

// What one of several works at once asks: is the budget spent, or has one before it in their order found
// what all of them look for?
typedef struct tide__watch {
  tide__budget* budget;      // borrowed
  tide__atomic_u32* winner;  // borrowed, (optional) the first work that is known to have found it
  uint32_t index;            // of this work
} tide__watch;

static inline bool tide__watch_is_over(const tide__watch* watch) {
  if (watch->winner != NULL && tide__load_relaxed(watch->winner) < watch->index) return true;
  return tide__budget_is_over(watch->budget);
}

// Says that work `index` has found it.
static inline void tide__watch_win(tide__atomic_u32* winner, uint32_t index) {
  uint32_t before = tide__load_relaxed(winner);
  while (index < before && !atomic_compare_exchange_weak(winner, &before, index)) {}
}

// Nodes that are left.
uint64_t tide__budget_left(const tide__budget* budget);
// Takes nodes away, or what the work beside them is worth where that is more.
void tide__budget_spend(tide__budget* budget, tide__effort effort);
// The same for hints, which have something given; false if that and all nodes are spent.
bool tide__budget_keep(tide__budget* budget, uint64_t work);
// The work that so many nodes are worth.
static inline uint64_t tide__budget_worth(uint64_t nodes) {
  return nodes < UINT64_MAX / TIDE__BUDGET_WORK ? nodes * TIDE__BUDGET_WORK : UINT64_MAX;
}

double tide__budget_seconds(const tide__budget* budget);

// What on_progress is told from now on.
void tide__budget_tell(tide__budget* budget, tide_plan_stage stage, uint64_t peak, uint64_t lower_bound);

#endif
