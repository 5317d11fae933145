// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The size of the block of a request. A trace has requested sizes; PyTorch's rules and the settings in the
// trace decide how they are rounded and when a block is split.
#ifndef TIDEMARK_SRC_LEDGER_RULES_H
#define TIDEMARK_SRC_LEDGER_RULES_H

#include "tidemark/trace.h"

#define TIDE__RULES_UNIT 512u                    // blocks begin and end at multiples of it
#define TIDE__RULES_SMALL ((uint64_t)1 << 20)    // the largest request of the small pool
#define TIDE__RULES_SEGMENT ((uint64_t)2 << 20)  // a segment of the small pool
#define TIDE__RULES_HANDLE ((uint64_t)20 << 20)  // of an expandable segment of the large pool
#define TIDE__RULES_SLOTS 16

typedef struct tide__rules {
  uint64_t max_split_bytes;  // blocks for requests of at least this size are not split
  uint64_t
      divisions[TIDE__RULES_SLOTS];  // steps between powers of two, by slots of 1 MiB, 2 MiB, ...; 0: none
  bool is_expandable;                // every rest of at least 512 bytes is split off
} tide__rules;

// The bytes that a live request counts for, whatever the allocator does.
static inline uint64_t tide__request_bytes(uint64_t requested) {
  return (requested + TIDE__RULES_UNIT - 1) & ~(uint64_t)(TIDE__RULES_UNIT - 1);
}

// The rules by the settings in a trace, with PyTorch's defaults.
tide__rules tide__rules_of(const tide_trace* trace);

// The size of a block for `requested` bytes, which must be below 2^62.
uint64_t tide__rules_round(const tide__rules* rules, uint64_t requested);

// Is a rest of `rest` bytes split off after a block of `bytes` bytes?
bool tide__rules_cuts(const tide__rules* rules, uint64_t bytes, uint64_t rest, bool is_expandable);

#endif
