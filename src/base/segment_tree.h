// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A segment tree over an array of numbers: it adds to ranges of them, and finds the largest of a range. Sums
// must not overflow.
//
// Trees with other questions stand where they are asked: plan/fit.h visits all leaves above a limit,
// plan/waiting.c keeps two orders in one cache line, and plan/verify.c shares no code with the solver.
//
// Cost: O(log n) a call and O(n) to fill; 24 bytes for each leaf.
#ifndef TIDEMARK_SRC_BASE_SEGMENT_TREE_H
#define TIDEMARK_SRC_BASE_SEGMENT_TREE_H

#include <stddef.h>
#include <stdint.h>

#define TIDE__SEGMENT_TREE_NONE UINT32_MAX

// [S1] max[node] == the larger max of its two children + added[node], for nodes below `leaves`
// Leaf i is the node leaves + i, node 1 the root, and the children of a node are 2 * node and 2 * node + 1.
// What is added to a whole node is never passed on to its children.
typedef struct tide__segment_tree {
  int64_t* max;     // borrowed; 2 * leaves
  int64_t* added;   // borrowed; leaves
  uint32_t leaves;  // a power of two, at least the number of values
} tide__segment_tree;

// How many numbers of memory a tree of `count` values needs.
size_t tide__segment_tree_words(uint32_t count);
// Makes a tree of `count` values in memory of that size, which the caller keeps; `words` may be NULL if the
// tree is not used.
void tide__segment_tree_init(tide__segment_tree* tree, int64_t* words, uint32_t count);
// Sets the first `count` values; those behind them are smaller than any sum.
void tide__segment_tree_fill(tide__segment_tree* tree, const int64_t* values, uint32_t count);

// All ranges [first, last) below are not empty.
void tide__segment_tree_add(tide__segment_tree* tree, uint32_t first, uint32_t last, int64_t amount);
static inline int64_t tide__segment_tree_max(const tide__segment_tree* tree) { return tree->max[1]; }
int64_t tide__segment_tree_max_of(const tide__segment_tree* tree, uint32_t first, uint32_t last);
// The index of the first value that is the largest of all.
uint32_t tide__segment_tree_argmax(const tide__segment_tree* tree);
// The index of a largest value of the range, if that is above `limit`; otherwise TIDE__SEGMENT_TREE_NONE.
uint32_t tide__segment_tree_argmax_above(const tide__segment_tree* tree, uint32_t first, uint32_t last,
                                         int64_t limit);

#endif
