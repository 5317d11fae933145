// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Per section of a search node: the sum of the heights of its tiles, their lowest floor, and how many tiles
// have it. This is the hot loop of the search, so numbers have 32 bits where possible and are processed
// four at a time, the rest of a range under a mask.
#ifndef TIDEMARK_SRC_PLAN_ROWS_H
#define TIDEMARK_SRC_PLAN_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TIDE__ROWS_NARROW ((int64_t)1 << 29)  // heights below it need 32 bits, with room for a sum of three
#define TIDE__ROWS_PADDING 4u                 // readable sections after the last

typedef int32_t tide__four __attribute__((vector_size(16)));

typedef struct tide__rows {
  void* sums;    // borrowed; int32_t or int64_t for each section
  void* lows;    // borrowed
  void* counts;  // borrowed
  bool is_narrow;
} tide__rows;

static inline tide__four tide__four_load(const int32_t* from) {
  tide__four four;
  memcpy(&four, from, sizeof four);
  return four;
}
static inline void tide__four_store(int32_t* to, tide__four four) { memcpy(to, &four, sizeof four); }
static inline tide__four tide__four_of(int32_t n) { return (tide__four){ n, n, n, n }; }
// Ones in the first `count` places of four.
static inline tide__four tide__four_mask(uint32_t count) {
  static const int32_t masks[8] = { -1, -1, -1, -1, 0, 0, 0, 0 };
  return tide__four_load(&masks[count < 4 ? 4 - count : 0]);
}
static inline bool tide__four_is_negative(tide__four four) {
  uint64_t halves[2];
  memcpy(halves, &four, sizeof halves);
  return ((halves[0] | halves[1]) & UINT64_C(0x8000000080000000)) != 0;
}

// Clears the sums and counts of the sections [first, last).
static inline void tide__rows_clear(tide__rows* rows, uint32_t first, uint32_t last) {
  const size_t bytes = rows->is_narrow ? sizeof(int32_t) : sizeof(int64_t);
  memset((char*)rows->sums + first * bytes, 0, (last - first) * bytes);
  memset((char*)rows->counts + first * bytes, 0, (last - first) * bytes);
}

static inline bool tide__rows_stack_narrow(tide__rows* rows, uint32_t first, uint32_t last, int32_t height,
                                           int32_t floor, int32_t most) {
  int32_t* const sums = rows->sums;
  int32_t* const lows = rows->lows;
  const tide__four heights = tide__four_of(height);
  const tide__four floors = tide__four_of(floor);
  const tide__four limits = tide__four_of(most);
  tide__four below = tide__four_of(0);
  uint32_t i = first;
  for (; i + 4 <= last; i += 4) {
    const tide__four sum = tide__four_load(&sums[i]) + heights;
    tide__four_store(&sums[i], sum);
    tide__four_store(&lows[i], floors);
    below |= limits - sum;
  }
  if (i < last) {
    const tide__four mask = tide__four_mask(last - i);
    const tide__four sum = tide__four_load(&sums[i]) + (heights & mask);
    tide__four_store(&sums[i], sum);
    tide__four_store(&lows[i], (floors & mask) | (tide__four_load(&lows[i]) & ~mask));
    below |= (limits - sum) & mask;
  }
  return !tide__four_is_negative(below);
}

static inline bool tide__rows_stack_wide(tide__rows* rows, uint32_t first, uint32_t last, int64_t height,
                                         int64_t floor, int64_t most) {
  int64_t* const sums = rows->sums;
  int64_t* const lows = rows->lows;
  int64_t below = 0;
  for (uint32_t i = first; i < last; i++) {
    sums[i] += height;
    lows[i] = floor;
    below |= most - sums[i];
  }
  return below >= 0;
}

// Adds a tile whose floor is at most that of all tiles before. Are the sums still at most `most`?
static inline bool tide__rows_stack(tide__rows* rows, uint32_t first, uint32_t last, int64_t height,
                                    int64_t floor, int64_t most) {
  return rows->is_narrow
             ? tide__rows_stack_narrow(rows, first, last, (int32_t)height, (int32_t)floor, (int32_t)most)
             : tide__rows_stack_wide(rows, first, last, height, floor, most);
}

static inline int64_t tide__rows_at(const tide__rows* rows, const void* row, uint32_t section) {
  return rows->is_narrow ? ((const int32_t*)row)[section] : ((const int64_t*)row)[section];
}
static inline int64_t tide__rows_sum(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, rows->sums, section);
}
static inline int64_t tide__rows_low(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, rows->lows, section);
}
static inline int64_t tide__rows_count(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, rows->counts, section);
}

// Counts a tile in the sections where its floor is the lowest.
static inline void tide__rows_add(tide__rows* rows, uint32_t first, uint32_t last, int64_t floor) {
  for (uint32_t i = first; i < last && rows->is_narrow; i++) {
    ((int32_t*)rows->counts)[i] += ((const int32_t*)rows->lows)[i] == (int32_t)floor;
  }
  for (uint32_t i = first; i < last && !rows->is_narrow; i++) {
    ((int64_t*)rows->counts)[i] += ((const int64_t*)rows->lows)[i] == floor;
  }
}

#endif
