// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The exact search: does a puzzle fit below a height?
#ifndef TIDEMARK_SRC_PLAN_SEARCH_H
#define TIDEMARK_SRC_PLAN_SEARCH_H

#include "plan/budget.h"
#include "plan/puzzle.h"

typedef struct tide__search tide__search;  // opaque; the records of one thread

typedef enum tide__search_answer {
  TIDE__SEARCH_FITS,
  TIDE__SEARCH_FITS_NOT,  // nothing was left to try
  TIDE__SEARCH_STOPPED,   // at a limit, or the end of the budget
} tide__search_answer;

// Which valley is worked on next.
typedef enum tide__search_rule {
  TIDE__SEARCH_WEIGHED,   // few children for the weight that its section has from failures
  TIDE__SEARCH_FEWEST,    // fewest children, then the heaviest
  TIDE__SEARCH_TIGHTEST,  // fewest children, then the least room
  TIDE__SEARCH_LOWEST,    // fewest children, then the lowest
} tide__search_rule;

// Which of the tiles of a valley is tried first.
typedef struct tide__search_order {
  float duration;  // weights of the logarithms of these
  float sections;
  float bytes;
  float noise;  // the most that chance adds
} tide__search_order;

// The end of a run.
typedef struct tide__search_limit {
  tide__effort effort;
  uint64_t failures;  // nodes that break the bound or are known to fail
} tide__search_limit;

tide_status tide__search_new(const tide__puzzle* puzzle, uint64_t seed, const tide_heap* heap,
                             tide__search** out);
void tide__search_free(tide__search* search);
// Forgets what was learned.
void tide__search_reset(tide__search* search, uint64_t seed);

// Looks for an arrangement whose tiles all end at `height` bytes or below, within the limit, and writes what
// it spent. What earlier runs learned (which sections are hard, which states fail) is kept.
tide__search_answer tide__search_run(tide__search* search, int64_t height, tide__search_rule rule,
                                     const tide__search_order* order, const tide__search_limit* limit,
                                     const tide__watch* watch, tide__effort* out_spent);

// After FITS: the offset of each tile in bytes.
int64_t tide__search_offset(const tide__search* search, uint32_t tile);

#endif
