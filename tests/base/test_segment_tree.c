// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The segment tree, compared with a plain array. The words of one tree are reused for the next, so filling
// must clear what was added.
#include "base/segment_tree.h"

#include "t.h"

#define VALUES 200u

static int64_t model_max(const int64_t* values, uint32_t first, uint32_t last) {
  int64_t max = values[first];
  for (uint32_t i = first; i < last; i++) max = values[i] > max ? values[i] : max;
  return max;
}

static uint32_t model_argmax(const int64_t* values, uint32_t count) {
  uint32_t at = 0;
  for (uint32_t i = 1; i < count; i++) at = values[i] > values[at] ? i : at;
  return at;
}

typedef struct range {
  uint32_t first;
  uint32_t last;
} range;

static range range_draw(t_rng* rng, uint32_t count) {
  const uint32_t first = (uint32_t)t_rng_below(rng, count);
  return (range){ first, first + 1 + (uint32_t)t_rng_below(rng, count - first) };
}

// A largest value of the range, and none where even that is not above the limit.
static void expect_above(const tide__segment_tree* tree, const int64_t* values, range r, int64_t limit) {
  const int64_t max = model_max(values, r.first, r.last);
  const uint32_t at = tide__segment_tree_argmax_above(tree, r.first, r.last, limit);
  if (max <= limit) {
    T_EQ(at, TIDE__SEGMENT_TREE_NONE);
    return;
  }
  T_LE(r.first, at);
  T_LT(at, r.last);
  T_EQ(values[at], max);
}

static void expect_same(const tide__segment_tree* tree, const int64_t* values, uint32_t count, t_rng* rng) {
  const range r = range_draw(rng, count);
  T_EQ(tide__segment_tree_max(tree), model_max(values, 0, count));
  T_EQ(tide__segment_tree_argmax(tree), model_argmax(values, count));
  T_EQ(tide__segment_tree_max_of(tree, r.first, r.last), model_max(values, r.first, r.last));
  expect_above(tree, values, r, (int64_t)t_rng_below(rng, 200) - 100);
  expect_above(tree, values, r, model_max(values, r.first, r.last));
  expect_above(tree, values, r, model_max(values, r.first, r.last) - 1);
}

T_TEST(test_segment_tree__agrees_with_an_array) {
  static int64_t words[3 * 256];
  int64_t values[VALUES];
  t_rng rng = t_rng_new(0);
  for (size_t round = 0; round < t_scaled(400); round++) {
    const uint32_t count = round < VALUES ? (uint32_t)round + 1 : 1 + (uint32_t)t_rng_below(&rng, VALUES);
    tide__segment_tree tree;
    T_LE(tide__segment_tree_words(count), sizeof words / sizeof *words);
    tide__segment_tree_init(&tree, words, count);
    for (uint32_t i = 0; i < count; i++) values[i] = (int64_t)t_rng_below(&rng, 100) - 50;
    tide__segment_tree_fill(&tree, values, count);
    expect_same(&tree, values, count, &rng);
    for (size_t step = 0; step < 60; step++) {
      const range r = range_draw(&rng, count);
      const int64_t amount = (int64_t)t_rng_below(&rng, 60) - 30;
      tide__segment_tree_add(&tree, r.first, r.last, amount);
      for (uint32_t i = r.first; i < r.last; i++) values[i] += amount;
      expect_same(&tree, values, count, &rng);
    }
  }
}

// Leaves behind the last value are never the largest, however small the values are.
T_TEST(test_segment_tree__unused_leaves_do_not_count) {
  int64_t words[3 * 4];
  static const int64_t values[] = { -(INT64_C(1) << 61), -(INT64_C(1) << 61), -(INT64_C(1) << 61) };
  tide__segment_tree tree;
  tide__segment_tree_init(&tree, words, 3);
  tide__segment_tree_fill(&tree, values, 3);
  T_EQ(tide__segment_tree_max(&tree), values[0]);
  T_EQ(tide__segment_tree_argmax(&tree), 0);
  tide__segment_tree_add(&tree, 0, 1, -1);
  T_EQ(tide__segment_tree_argmax(&tree), 1);
}
