// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stacks as a tree: those that begin with the same outermost frames share these nodes.
#ifndef TIDEMARK_SRC_BASE_STACK_TREE_H
#define TIDEMARK_SRC_BASE_STACK_TREE_H

#include "base/hash_map.h"

typedef struct tide__stack_node {
  uint64_t frame;   // whatever tells the children of a node apart
  uint32_t parent;  // 0: none
} tide__stack_node;

// Nodes have the numbers from 1 to `count`; a parent has a smaller number than its children.
typedef struct tide__stack_tree {
  const tide_heap* heap;    // borrowed until fini
  tide__stack_node* nodes;  // owned; nodes[0] is node 1
  size_t count;
  size_t capacity;
  tide__hash_map numbers;  // from a hash of parent and frame to the number of a node
} tide__stack_tree;

void tide__stack_tree_init(tide__stack_tree* tree, const tide_heap* heap);
void tide__stack_tree_fini(tide__stack_tree* tree);

// The child of a node (0: of no node) with this frame, which is made if it does not exist.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for 2^32 nodes.
// Cost:   O(1) on average; 48 to 80 bytes for a node.
tide_status tide__stack_tree_add(tide__stack_tree* tree, uint32_t parent, uint64_t frame, uint32_t* out);

#endif
