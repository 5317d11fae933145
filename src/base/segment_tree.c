// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Calls walk the tree from its leaves up: a range covers at most two whole nodes on each level. After an
// addition the ancestors of both ends of the range are recomputed.
#include "base/segment_tree.h"

#include <stdbool.h>
#include <string.h>

#include "base/arith.h"
#include "base/check.h"

#define LEAST (INT64_MIN / 2)  // so that additions to it do not overflow

// The max of the two nodes below a node.
static const int64_t* children_of(const tide__segment_tree* tree, uint32_t node) {
  return &tree->max[(size_t)2 * node];
}

static int64_t children_max(const tide__segment_tree* tree, uint32_t node) {
  const int64_t* const children = children_of(tree, node);
  return tide__signed_max(children[0], children[1]);
}

static uint32_t leaves_for(uint32_t count) {
  uint32_t leaves = 1;
  while (leaves < count) leaves *= 2;
  return leaves;
}

size_t tide__segment_tree_words(uint32_t count) { return (size_t)3 * leaves_for(count); }

void tide__segment_tree_init(tide__segment_tree* tree, int64_t* words, uint32_t count) {
  const uint32_t leaves = leaves_for(count);
  int64_t* const added = words != NULL ? words + (size_t)2 * leaves : NULL;
  *tree = (tide__segment_tree){ .max = words, .added = added, .leaves = leaves };
}

void tide__segment_tree_fill(tide__segment_tree* tree, const int64_t* values, uint32_t count) {
  const uint32_t leaves = tree->leaves;
  memset(tree->added, 0, leaves * sizeof *tree->added);
  for (uint32_t i = 0; i < leaves; i++) tree->max[leaves + i] = i < count ? values[i] : LEAST;
  for (uint32_t node = leaves; node-- > 1;) tree->max[node] = children_max(tree, node);
}

static void node_add(tide__segment_tree* tree, uint32_t node, int64_t amount) {
  tree->max[node] += amount;
  if (node < tree->leaves) tree->added[node] += amount;
}

static void ancestors_update(tide__segment_tree* tree, uint32_t node) {
  for (node /= 2; node > 0; node /= 2) tree->max[node] = children_max(tree, node) + tree->added[node];
}

void tide__segment_tree_add(tide__segment_tree* tree, uint32_t first, uint32_t last, int64_t amount) {
  uint32_t left = first + tree->leaves;
  uint32_t right = last + tree->leaves;
  TIDE_ASSERT(first < last && last <= tree->leaves);
  for (; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) node_add(tree, left++, amount);
    if (right % 2 == 1) node_add(tree, --right, amount);
  }
  ancestors_update(tree, first + tree->leaves);
  ancestors_update(tree, last - 1 + tree->leaves);
}

int64_t tide__segment_tree_max_of(const tide__segment_tree* tree, uint32_t first, uint32_t last) {
  uint32_t left = first + tree->leaves;
  uint32_t right = last - 1 + tree->leaves;
  TIDE_ASSERT(first < last && last <= tree->leaves);
  // The largest of the range below `left`, and below `right`, without what their ancestors add.
  int64_t left_max = tree->max[left];
  int64_t right_max = tree->max[right];
  for (; left / 2 != right / 2;) {
    if (left % 2 == 0) left_max = tide__signed_max(left_max, tree->max[left + 1]);
    if (right % 2 == 1) right_max = tide__signed_max(right_max, tree->max[right - 1]);
    left /= 2;
    right /= 2;
    left_max += tree->added[left];
    right_max += tree->added[right];
  }
  int64_t max = tide__signed_max(left_max, right_max);
  for (uint32_t node = left / 2; node > 0; node /= 2) max += tree->added[node];
  return max;
}

uint32_t tide__segment_tree_argmax(const tide__segment_tree* tree) {
  uint32_t node = 1;
  while (node < tree->leaves) {
    const int64_t* const children = children_of(tree, node);
    node = 2 * node + (children[0] >= children[1] ? 0 : 1);
  }
  return node - tree->leaves;
}

typedef struct above_query {
  uint32_t first;
  uint32_t last;
  int64_t limit;   // the largest value so far
  uint32_t index;  // of that value
} above_query;

// Searches below `node`, whose leaves are [low, high) and whose ancestors add `above`, the larger side first.
static void search_above(const tide__segment_tree* tree, uint32_t node, uint32_t low, uint32_t high,
                         int64_t above, above_query* query) {
  if (low >= query->last || high <= query->first) return;
  if (tree->max[node] + above <= query->limit) return;
  if (node >= tree->leaves) {
    query->limit = tree->max[node] + above;
    query->index = low;
    return;
  }
  const uint32_t middle = low + (high - low) / 2;
  const int64_t more = above + tree->added[node];
  const bool left_first = children_of(tree, node)[0] >= children_of(tree, node)[1];
  if (left_first) search_above(tree, 2 * node, low, middle, more, query);
  search_above(tree, 2 * node + 1, middle, high, more, query);
  if (!left_first) search_above(tree, 2 * node, low, middle, more, query);
}

uint32_t tide__segment_tree_argmax_above(const tide__segment_tree* tree, uint32_t first, uint32_t last,
                                         int64_t limit) {
  above_query query = { first, last, limit, TIDE__SEGMENT_TREE_NONE };
  search_above(tree, 1, 0, tree->leaves, 0, &query);
  return query.index;
}
