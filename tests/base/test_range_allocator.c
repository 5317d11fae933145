// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The range allocator, compared with an array of cells that are free or taken.
#include "base/range_allocator.h"

#include "t.h"

#define CELLS 400u
#define TAKEN_MAX 64u

typedef enum cell { CELL_OUTSIDE, CELL_FREE, CELL_TAKEN } cell;

typedef struct span {
  uint64_t offset;
  uint64_t bytes;
} span;

// The records that the allocator does not have are in `idle`.
typedef struct line {
  tide__range_allocator ranges;
  tide__free_range records[TAKEN_MAX + 8];
  tide__free_range* idle[TAKEN_MAX + 8];
  size_t idle_count;
  uint8_t cells[CELLS];
  span taken[TAKEN_MAX];
  size_t taken_count;
  uint64_t end;
} line;

static void line_init(line* l) {
  memset(l, 0, sizeof *l);
  for (size_t i = 0; i < TAKEN_MAX + 8; i++) l->idle[l->idle_count++] = &l->records[i];
}

// ---------------------------------------------------------------------------------------------------
// The model

static span model_free_from(const line* l, uint64_t at) {
  while (at < CELLS && l->cells[at] != CELL_FREE) at++;
  span found = { at, 0 };
  while (at < CELLS && l->cells[at] == CELL_FREE) at++;
  found.bytes = at - found.offset;
  return found;
}

// The smallest free range of at least `bytes`, the lowest of those; 0 bytes: none.
static span model_best_fit(const line* l, uint64_t bytes) {
  span best = { 0, 0 };
  for (span s = model_free_from(l, 0); s.bytes != 0; s = model_free_from(l, s.offset + s.bytes)) {
    if (s.bytes >= bytes && (best.bytes == 0 || s.bytes < best.bytes)) best = s;
  }
  return best;
}

static void model_set(line* l, uint64_t offset, uint64_t bytes, cell to) {
  memset(&l->cells[offset], (int)to, bytes);
}

static void expect_same(const line* l) {
  const tide__free_range* range = tide__free_range_first(&l->ranges);
  T_EQ(tide__range_check(&l->ranges), 0);
  for (span s = model_free_from(l, 0); s.bytes != 0; s = model_free_from(l, s.offset + s.bytes)) {
    T_CHECK(range != NULL);
    T_EQ(tide__free_range_offset(range), s.offset);
    T_EQ(tide__free_range_bytes(range), s.bytes);
    range = tide__free_range_next(range);
  }
  T_PTR_EQ(range, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Steps

static void note_taken(line* l, uint64_t offset, uint64_t bytes) {
  l->idle_count--;
  l->taken[l->taken_count++] = (span){ offset, bytes };
  model_set(l, offset, bytes, CELL_TAKEN);
}

static void step_take(line* l, uint64_t bytes) {
  const span want = model_best_fit(l, bytes);
  uint64_t offset = UINT64_MAX;
  const bool is_taken = tide__range_take(&l->ranges, l->idle[l->idle_count - 1], bytes, &offset);
  T_EQ(is_taken, want.bytes != 0);
  if (!is_taken) return;
  T_EQ(offset, want.offset);
  note_taken(l, offset, bytes);
}

static void step_take_end(line* l, uint64_t bytes, bool joins_last) {
  uint64_t want = l->end;
  while (joins_last && want > 0 && l->cells[want - 1] == CELL_FREE) want--;
  if (want + bytes > CELLS) return;
  uint64_t offset = UINT64_MAX;
  T_CHECK(tide__range_take_end(&l->ranges, l->idle[l->idle_count - 1], bytes, joins_last, &offset));
  T_EQ(offset, want);
  note_taken(l, offset, bytes);
  l->end = offset + bytes;
  T_EQ(l->ranges.end, l->end);
}

static void step_give(line* l, size_t index) {
  const span s = l->taken[index];
  tide__free_range* const record = tide__range_give(&l->ranges, s.offset, s.bytes);
  model_set(l, s.offset, s.bytes, CELL_FREE);
  l->taken[index] = l->taken[--l->taken_count];
  if (record != NULL) l->idle[l->idle_count++] = record;
}

// Takes all records out; each is there once.
static void line_end(line* l) {
  tide__free_range* record = NULL;
  while ((record = tide__range_pop(&l->ranges)) != NULL) l->idle[l->idle_count++] = record;
  T_EQ(l->idle_count, TAKEN_MAX + 8);
  for (size_t i = 0; i < l->idle_count; i++) {
    for (size_t k = 0; k < i; k++) T_CHECK(l->idle[i] != l->idle[k]);
  }
  T_PTR_EQ(tide__free_range_first(&l->ranges), NULL);
}

static void play(line* l, t_rng* rng, size_t steps, bool has_end, uint64_t largest) {
  for (size_t i = 0; i < steps; i++) {
    const uint64_t bytes = 1 + t_rng_below(rng, largest);
    const bool is_full = l->taken_count == TAKEN_MAX;
    if (l->taken_count > 0 && (is_full || t_rng_below(rng, 2) == 0)) {
      step_give(l, t_rng_below(rng, l->taken_count));
    } else if (has_end && model_best_fit(l, bytes).bytes == 0) {
      step_take_end(l, bytes, t_rng_below(rng, 2) == 0);
    } else {
      step_take(l, bytes);
    }
    expect_same(l);
  }
}

T_TEST(test_range_allocator__agrees_with_a_line_that_grows) {
  static line l;
  t_rng rng = t_rng_new(0);
  for (size_t round = 0; round < t_scaled(60); round++) {
    line_init(&l);
    play(&l, &rng, 500, true, 1 + t_rng_below(&rng, 30));
    line_end(&l);
  }
}

T_TEST(test_range_allocator__agrees_with_ranges_that_are_added) {
  static line l;
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(60); round++) {
    line_init(&l);
    // Areas with gaps between them, and two that touch and become one.
    static const span areas[] = { { 10, 90 }, { 200, 50 }, { 120, 40 }, { 250, 50 }, { 350, 50 } };
    for (size_t i = 0; i < sizeof areas / sizeof *areas; i++) {
      tide__range_add(&l.ranges, l.idle[--l.idle_count], areas[i].offset, areas[i].bytes);
      model_set(&l, areas[i].offset, areas[i].bytes, CELL_FREE);
      expect_same(&l);
    }
    play(&l, &rng, 500, false, 1 + t_rng_below(&rng, 40));
    line_end(&l);
  }
}

T_TEST(test_range_allocator__line_has_an_end) {
  tide__range_allocator ranges = { 0 };
  tide__free_range first;
  tide__free_range second;
  uint64_t offset = 0;
  T_CHECK(tide__range_take_end(&ranges, &first, INT64_MAX, false, &offset));
  T_CHECK(!tide__range_take_end(&ranges, &second, 1, false, &offset));
  T_CHECK(!tide__range_take_end(&ranges, &second, UINT64_MAX, false, &offset));
  T_EQ(ranges.end, INT64_MAX);
  T_PTR_EQ(ranges.spare, &first);
}
