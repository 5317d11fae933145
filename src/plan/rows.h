// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a search knows about each section at its current node. This is the hot loop of the search, so numbers
// have 32 bits where possible and are processed four at a time, the rest of a range under a mask.
#ifndef TIDEMARK_SRC_PLAN_ROWS_H
#define TIDEMARK_SRC_PLAN_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TIDE__ROWS_NARROW ((int64_t)1 << 29)  // heights below it need 32 bits, with room for a sum of three
#define TIDE__ROWS_PADDING 4u                 // readable sections after the last

typedef int32_t tide__four __attribute__((vector_size(16)));

typedef enum tide__rows_kind {
  TIDE__ROWS_SUMS,       // of the heights of its tiles
  TIDE__ROWS_LOWS,       // their lowest floor; -1: there is none
  TIDE__ROWS_COUNTS,     // tiles that have that floor
  TIDE__ROWS_CROSSINGS,  // tiles that go on from the section before
} tide__rows_kind;
#define TIDE__ROWS_COUNT 4u

typedef struct tide__rows {
  char* rows[TIDE__ROWS_COUNT];  // borrowed; int32_t or int64_t for each section
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

static inline size_t tide__rows_width(const tide__rows* rows) {
  return rows->is_narrow ? sizeof(int32_t) : sizeof(int64_t);
}

// The bytes that `save` needs for so many sections.
static inline size_t tide__rows_bytes(const tide__rows* rows, uint32_t sections) {
  return (size_t)TIDE__ROWS_COUNT * sections * tide__rows_width(rows);
}

// Copies the sections [first, last) to `out`, or back from there.
static inline void tide__rows_save(const tide__rows* rows, uint32_t first, uint32_t last, char* out) {
  const size_t width = tide__rows_width(rows);
  const size_t bytes = (last - first) * width;
  for (size_t i = 0; i < TIDE__ROWS_COUNT; i++) memcpy(out + i * bytes, rows->rows[i] + first * width, bytes);
}
static inline void tide__rows_restore(tide__rows* rows, uint32_t first, uint32_t last, const char* saved) {
  const size_t width = tide__rows_width(rows);
  const size_t bytes = (last - first) * width;
  for (size_t i = 0; i < TIDE__ROWS_COUNT; i++)
    memcpy(rows->rows[i] + first * width, saved + i * bytes, bytes);
}

// Empties the sections [first, last).
static inline void tide__rows_clear(tide__rows* rows, uint32_t first, uint32_t last) {
  const size_t width = tide__rows_width(rows);
  const size_t bytes = (last - first) * width;
  memset(rows->rows[TIDE__ROWS_SUMS] + first * width, 0, bytes);
  memset(rows->rows[TIDE__ROWS_LOWS] + first * width, -1, bytes);
  memset(rows->rows[TIDE__ROWS_COUNTS] + first * width, 0, bytes);
}

static inline bool tide__rows_stack_narrow(tide__rows* rows, uint32_t first, uint32_t last, int32_t height,
                                           int32_t floor, int32_t most) {
  int32_t* const sums = (int32_t*)rows->rows[TIDE__ROWS_SUMS];
  int32_t* const lows = (int32_t*)rows->rows[TIDE__ROWS_LOWS];
  int32_t* const counts = (int32_t*)rows->rows[TIDE__ROWS_COUNTS];
  const tide__four heights = tide__four_of(height);
  const tide__four floors = tide__four_of(floor);
  const tide__four limits = tide__four_of(most);
  const tide__four ones = tide__four_of(1);
  tide__four below = tide__four_of(0);
  uint32_t i = first;
  for (; i + 4 <= last; i += 4) {
    const tide__four sum = tide__four_load(&sums[i]) + heights;
    const tide__four equal = (tide__four)(tide__four_load(&lows[i]) == floors);
    tide__four_store(&sums[i], sum);
    tide__four_store(&counts[i], (tide__four_load(&counts[i]) & equal) + ones);
    tide__four_store(&lows[i], floors);
    below |= limits - sum;
  }
  if (i < last) {
    const tide__four mask = tide__four_mask(last - i);
    const tide__four sum = tide__four_load(&sums[i]) + (heights & mask);
    const tide__four low = tide__four_load(&lows[i]);
    const tide__four equal = (tide__four)(low == floors);
    tide__four_store(&sums[i], sum);
    tide__four_store(&counts[i], (tide__four_load(&counts[i]) & (equal | ~mask)) + (ones & mask));
    tide__four_store(&lows[i], (floors & mask) | (low & ~mask));
    below |= (limits - sum) & mask;
  }
  return !tide__four_is_negative(below);
}

static inline bool tide__rows_stack_wide(tide__rows* rows, uint32_t first, uint32_t last, int64_t height,
                                         int64_t floor, int64_t most) {
  int64_t* const sums = (int64_t*)rows->rows[TIDE__ROWS_SUMS];
  int64_t* const lows = (int64_t*)rows->rows[TIDE__ROWS_LOWS];
  int64_t* const counts = (int64_t*)rows->rows[TIDE__ROWS_COUNTS];
  int64_t below = 0;
  for (uint32_t i = first; i < last; i++) {
    sums[i] += height;
    counts[i] = lows[i] == floor ? counts[i] + 1 : 1;
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

static inline int64_t tide__rows_at(const tide__rows* rows, tide__rows_kind kind, uint32_t section) {
  const char* const row = rows->rows[kind];
  return rows->is_narrow ? ((const int32_t*)row)[section] : ((const int64_t*)row)[section];
}
static inline int64_t tide__rows_sum(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, TIDE__ROWS_SUMS, section);
}
static inline int64_t tide__rows_low(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, TIDE__ROWS_LOWS, section);
}
static inline int64_t tide__rows_count(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, TIDE__ROWS_COUNTS, section);
}
static inline int64_t tide__rows_crossing(const tide__rows* rows, uint32_t section) {
  return tide__rows_at(rows, TIDE__ROWS_CROSSINGS, section);
}

static inline void tide__rows_clear_crossings(tide__rows* rows, uint32_t sections) {
  memset(rows->rows[TIDE__ROWS_CROSSINGS], 0, sections * tide__rows_width(rows));
}

// Adds `by` to the crossings of a tile. Is there one without crossings now?
static inline bool tide__rows_cross(tide__rows* rows, uint32_t first, uint32_t last, int32_t by) {
  char* const row = rows->rows[TIDE__ROWS_CROSSINGS];
  bool is_open = false;
  for (uint32_t i = first + 1; i < last && rows->is_narrow; i++) {
    ((int32_t*)row)[i] += by;
    is_open |= ((int32_t*)row)[i] == 0;
  }
  for (uint32_t i = first + 1; i < last && !rows->is_narrow; i++) {
    ((int64_t*)row)[i] += by;
    is_open |= ((int64_t*)row)[i] == 0;
  }
  return is_open;
}

#endif
