// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The requests that live at a moment of a recording, by address: a table with open addressing.
#ifndef TIDEMARK_SRC_REPLAY_LIVE_H
#define TIDEMARK_SRC_REPLAY_LIVE_H

#include "base/heap.h"

typedef struct tide__live_row {
  uint64_t address;
  uint64_t bytes;  // rounded
  uint32_t slot;
  uint32_t step;    // of a release that waits
  bool is_used;     // false: the row is empty
  bool is_waiting;  // released
} tide__live_row;

// [L1] capacity is 0 or a power of two, above count
// [L2] all rows from the one an address hashes to up to its own are used
typedef struct tide__live {
  const tide_heap* heap;  // borrowed until fini
  tide__live_row* rows;   // owned
  size_t count;
  size_t capacity;
} tide__live;

void tide__live_fini(tide__live* live);

// The row of an address; NULL if there is none. Good until something is added or removed.
tide__live_row* tide__live_find(const tide__live* live, uint64_t address);
// Adds an address that is not there; NULL if there is no memory.
tide__live_row* tide__live_add(tide__live* live, uint64_t address);
void tide__live_remove(tide__live* live, tide__live_row* row);

#endif
