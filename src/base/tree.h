// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An intrusive balanced tree, ordered by a 64-bit key and then by a second number, the tie. Each pair of key
// and tie is unique.
#ifndef TIDEMARK_SRC_BASE_TREE_H
#define TIDEMARK_SRC_BASE_TREE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tide__tree_node {
  struct tide__tree_node* parent;    // borrowed while in the tree, like both children
  struct tide__tree_node* child[2];  // [0] keys below, [1] keys above
  uint64_t key;
  uint64_t tie;    // 0 where keys are unique
  int32_t height;  // 1 for a leaf
} tide__tree_node;

// [T1] child[0] < the node < child[1] by (key, tie), for whole subtrees
// [T2] height == 1 + max(height of the children), and these differ by at most 1
// [T3] child[i]->parent == the node
typedef struct tide__tree {
  tide__tree_node* root;
} tide__tree;

// Inserts a node by its key and tie. Returns false, with nothing changed, if they exist already. O(log n),
// like all functions below.
bool tide__tree_insert(tide__tree* tree, tide__tree_node* node);
void tide__tree_remove(tide__tree* tree, tide__tree_node* node);

// The node with the greatest key <= `key`, or with the smallest key >= `key`; NULL if there is none. Of equal
// keys, floor returns the one with the greatest tie, and ceiling the one with the smallest.
tide__tree_node* tide__tree_floor(const tide__tree* tree, uint64_t key);
tide__tree_node* tide__tree_ceiling(const tide__tree* tree, uint64_t key);

// The first node, and the next one in order; NULL is the end.
tide__tree_node* tide__tree_first(const tide__tree* tree);
tide__tree_node* tide__tree_next(const tide__tree_node* node);

// The number of the first invariant that does not hold, or 0 if all hold.
int tide__tree_check(const tide__tree* tree);

#endif
