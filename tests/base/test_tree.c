// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The balanced tree, against a sorted array.
#include "base/tree.h"

#include "t.h"

#define KEYS 512u

typedef struct item {
  tide__tree_node node;
  bool is_in;
} item;

// The place of the nearest key at or below (step -1) or above (step 1) that is in, or KEYS.
static size_t model_nearest(const item* items, size_t key, int step) {
  for (size_t i = key; i < KEYS; i += (size_t)step) {
    if (items[i].is_in) return i;
  }
  return KEYS;
}

static void expect_node(const item* items, const tide__tree_node* got, size_t want) {
  T_PTR_EQ(got, want == KEYS ? NULL : &items[want].node);
}

static void expect_same(const item* items, const tide__tree* tree) {
  const tide__tree_node* node = tide__tree_first(tree);
  for (size_t i = model_nearest(items, 0, 1); i != KEYS; i = model_nearest(items, i + 1, 1)) {
    expect_node(items, node, i);
    node = tide__tree_next(node);
  }
  T_PTR_EQ(node, NULL);
}

T_TEST(test_tree__agrees_with_a_sorted_array) {
  static item items[KEYS];
  tide__tree tree = { NULL };
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < KEYS; i++) items[i].node.key = i;

  for (size_t step = 0; step < t_scaled(20000); step++) {
    item* it = &items[t_rng_below(&rng, KEYS)];
    if (it->is_in) {
      tide__tree_remove(&tree, &it->node);
    } else {
      T_CHECK(tide__tree_insert(&tree, &it->node));
    }
    it->is_in = !it->is_in;

    const size_t key = t_rng_below(&rng, KEYS);
    expect_node(items, tide__tree_floor(&tree, key), model_nearest(items, key, -1));
    expect_node(items, tide__tree_ceiling(&tree, key), model_nearest(items, key, 1));
    T_EQ(tide__tree_check(&tree), 0);
    if (step % 64 == 0) expect_same(items, &tree);
  }
}

T_TEST(test_tree__refuses_a_key_twice) {
  tide__tree tree = { NULL };
  tide__tree_node first = { .key = 7 };
  tide__tree_node second = { .key = 7 };

  T_CHECK(tide__tree_insert(&tree, &first));

  T_CHECK(!tide__tree_insert(&tree, &second));
  T_PTR_EQ(tree.root, &first);
}

T_TEST(test_tree__stays_low_when_filled_in_order) {
  static tide__tree_node nodes[4096];
  tide__tree tree = { NULL };
  for (size_t i = 0; i < 4096; i++) {
    nodes[i].key = i;
    T_CHECK(tide__tree_insert(&tree, &nodes[i]));
  }

  T_EQ(tide__tree_check(&tree), 0);
  T_LE(tree.root->height, 14);
}

T_TEST(test_tree__check_reports_what_is_broken) {
  static tide__tree_node nodes[7];
  tide__tree tree = { NULL };
  for (size_t i = 0; i < 7; i++) {
    nodes[i].key = i;
    T_CHECK(tide__tree_insert(&tree, &nodes[i]));
  }

  nodes[2].key = 100;
  T_EQ(tide__tree_check(&tree), 1);
  nodes[2].key = 2;
  nodes[3].height = 9;
  T_EQ(tide__tree_check(&tree), 2);
  nodes[3].height = 3;
  T_EQ(tide__tree_check(&tree), 0);
}
