// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A segment tree over an array of numbers. It adds a number to a range, and finds the maximum of a range.
// Sums must not overflow.
//
// Some code has its own tree: plan/fit.h visits all leaves above a limit, plan/waiting.c keeps two orders in
// one cache line, and plan/verify.c shares no code with the solver.
//
// Cost: O(log n) for each call, O(n) to fill; 24 bytes for each leaf.
#ifndef TIDEMARK_SRC_BASE_SEGMENT_TREE_H
#define TIDEMARK_SRC_BASE_SEGMENT_TREE_H

#include <stddef.h>
#include <stdint.h>

#define TIDE__SEGMENT_TREE_NONE UINT32_MAX

// [S1] max[node] == the larger max of its two children + added[node], for nodes below `leaves`
// Leaf i is the node leaves + i, node 1 the root, and the children of a node are 2 * node and 2 * node + 1.
// An amount added to a whole node is never pushed down to its children.
typedef struct tide__segment_tree {
  int64_t* max;     // borrowed; 2 * leaves
  int64_t* added;   // borrowed; leaves
  uint32_t leaves;  // a power of two, at least the number of values
} tide__segment_tree;

// The number of words that a tree of `count` values needs.
size_t tide__segment_tree_words(uint32_t count);
// Creates a tree of `count` values in memory of that size, which the caller owns. `words` may be NULL if the
// tree is not used.
void tide__segment_tree_init(tide__segment_tree* tree, int64_t* words, uint32_t count);
// Sets the first `count` values. The other leaves are smaller than any sum.
void tide__segment_tree_fill(tide__segment_tree* tree, const int64_t* values, uint32_t count);

// Ranges [first, last) must not be empty.
void tide__segment_tree_add(tide__segment_tree* tree, uint32_t first, uint32_t last, int64_t amount);
static inline int64_t tide__segment_tree_max(const tide__segment_tree* tree) { return tree->max[1]; }
int64_t tide__segment_tree_max_of(const tide__segment_tree* tree, uint32_t first, uint32_t last);
// The index of the first value that is the largest of all.
uint32_t tide__segment_tree_argmax(const tide__segment_tree* tree);
// The index of a largest value of the range, if that is above `limit`; otherwise TIDE__SEGMENT_TREE_NONE.
uint32_t tide__segment_tree_argmax_above(const tide__segment_tree* tree, uint32_t first, uint32_t last,
                                         int64_t limit);

#endif
