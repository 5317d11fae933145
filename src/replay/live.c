// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Linear probing, at most half full; removing moves the rows behind up, so that there are no tombstones.
// O(1) each on average. A hostile choice of addresses can make it slow, not wrong.
#include "replay/live.h"

#define LIVE_FIRST_CAPACITY 1024u

void tide__live_fini(tide__live* live) {
  tide__heap_release(live->heap, live->rows, live->capacity, sizeof *live->rows);
  live->rows = NULL;
  live->count = live->capacity = 0;
}

// Addresses are multiples of 512 that lie close together: a multiplication spreads them.
static size_t live_place(const tide__live* live, uint64_t address) {
  const uint64_t hash = (address ^ address >> 32) * 0x9e3779b97f4a7c15ULL;
  return (size_t)(hash >> 20) & (live->capacity - 1);
}

static tide__live_row* live_probe(const tide__live* live, uint64_t address) {
  size_t at = live_place(live, address);
  while (live->rows[at].is_used && live->rows[at].address != address) at = (at + 1) & (live->capacity - 1);
  return &live->rows[at];
}

tide__live_row* tide__live_find(const tide__live* live, uint64_t address) {
  if (live->capacity == 0) return NULL;
  tide__live_row* const row = live_probe(live, address);
  return row->is_used ? row : NULL;
}

static bool live_grow(tide__live* live) {
  tide__live larger = { .heap = live->heap, .count = live->count };
  larger.capacity = live->capacity == 0 ? LIVE_FIRST_CAPACITY : 2 * live->capacity;
  larger.rows = tide__heap_alloc(live->heap, larger.capacity, sizeof *larger.rows);
  if (larger.rows == NULL) return false;
  for (size_t i = 0; i < live->capacity; i++) {
    if (live->rows[i].is_used) *live_probe(&larger, live->rows[i].address) = live->rows[i];
  }
  tide__live_fini(live);
  *live = larger;
  return true;
}

tide__live_row* tide__live_add(tide__live* live, uint64_t address) {
  if (2 * (live->count + 1) > live->capacity && !live_grow(live)) return NULL;
  tide__live_row* const row = live_probe(live, address);
  *row = (tide__live_row){ .address = address, .is_used = true };
  live->count++;
  return row;
}

void tide__live_remove(tide__live* live, tide__live_row* row) {
  const size_t mask = live->capacity - 1;
  size_t hole = (size_t)(row - live->rows);
  live->rows[hole].is_used = false;
  live->count--;
  for (size_t at = (hole + 1) & mask; live->rows[at].is_used; at = (at + 1) & mask) {
    const size_t distance = (at - live_place(live, live->rows[at].address)) & mask;
    if (distance < ((at - hole) & mask)) continue;  // it would come to lie before its place
    live->rows[hole] = live->rows[at];
    live->rows[at].is_used = false;
    hole = at;
  }
}
