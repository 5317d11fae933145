// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An intrusive balanced tree ordered by a 64-bit key, and among equal keys by a second number, the tie. No
// two nodes have both the same.
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

// Inserts a node by its key and tie; false, and nothing done, if they are there already. O(log n), as all
// below.
bool tide__tree_insert(tide__tree* tree, tide__tree_node* node);
void tide__tree_remove(tide__tree* tree, tide__tree_node* node);

// The node with the greatest key <= `key`, or with the smallest key >= `key`; NULL if there is none. Among
// equal keys the one with the greatest, or the smallest tie.
tide__tree_node* tide__tree_floor(const tide__tree* tree, uint64_t key);
tide__tree_node* tide__tree_ceiling(const tide__tree* tree, uint64_t key);

// The smallest, and the next in order; NULL at the end.
tide__tree_node* tide__tree_first(const tide__tree* tree);
tide__tree_node* tide__tree_next(const tide__tree_node* node);

// The number of the first invariant that does not hold, 0 if all do.
int tide__tree_check(const tide__tree* tree);

#endif
