// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How large the block of a request is. A trace has the sizes that were asked for; PyTorch's rules, and the
// settings in the trace, say to what they were rounded and what was cut off behind them.
#ifndef TIDEMARK_SRC_LEDGER_RULES_H
#define TIDEMARK_SRC_LEDGER_RULES_H

#include "tidemark/trace.h"

#define TIDE__RULES_UNIT 512u                    // blocks begin and end at multiples of it
#define TIDE__RULES_SMALL ((uint64_t)1 << 20)    // the largest request of the small pool
#define TIDE__RULES_SEGMENT ((uint64_t)2 << 20)  // a segment of the small pool
#define TIDE__RULES_SLOTS 16

typedef struct tide__rules {
  uint64_t max_split_bytes;  // requests of this size and more are given what was found, whole
  uint64_t
      divisions[TIDE__RULES_SLOTS];  // steps between powers of two, by slots of 1 MiB, 2 MiB, ...; 0: none
  bool is_expandable;                // everything from 512 bytes on is cut off
} tide__rules;

// The rules that the settings in a trace ask for; PyTorch's defaults where they say nothing.
tide__rules tide__rules_of(const tide_trace* trace);

// The bytes of a block for `requested` bytes, which are below 2^62.
uint64_t tide__rules_round(const tide__rules* rules, uint64_t requested);

// Is a rest of `rest` bytes cut off behind a block of `bytes`?
bool tide__rules_cuts(const tide__rules* rules, uint64_t bytes, uint64_t rest, bool is_expandable);

#endif
