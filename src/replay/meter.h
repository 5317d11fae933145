// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Collects the figures of a run: by tenths of the entries and by parts of a curve while it runs, and the rest
// at the end.
#ifndef TIDEMARK_SRC_REPLAY_METER_H
#define TIDEMARK_SRC_REPLAY_METER_H

#include "replay/stage.h"

#define TIDE__METER_CALLS 9  // kinds of calls that manage memory

typedef struct tide__meter {
  const tide__stage* stage;  // borrowed until the run ends
  size_t next;               // the first step of the next tenth or part
  size_t tenth;              // the current one
  size_t tenth_end;          // the first step of the next one
  size_t part;               // the current one of the curve
  size_t part_end;           // SIZE_MAX: there is none
  tide_call_stats before[TIDE__METER_CALLS];
} tide__meter;

void tide__meter_init(tide__meter* meter, const tide__stage* stage);

// Must be called before step `at` if `at` is not below `next`.
// Errors: those of reading the statistics of the cache.
tide_status tide__meter_tick(tide__meter* meter, size_t at, tide_replay_result* result);

// Fills in the result of a run that ended before step `at`.
tide_status tide__meter_finish(tide__meter* meter, size_t at, tide_replay_result* result);

#endif
