// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
#include "base/stack_tree.h"

#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"

void tide__stack_tree_init(tide__stack_tree* tree, const tide_heap* heap) {
  *tree = (tide__stack_tree){ .heap = heap };
  tide__hash_map_init(&tree->numbers, heap);
}

void tide__stack_tree_fini(tide__stack_tree* tree) {
  tide__heap_release(tree->heap, tree->nodes, tree->capacity, sizeof *tree->nodes);
  tide__hash_map_fini(&tree->numbers);
  *tree = (tide__stack_tree){ .heap = tree->heap };
}

// The number of a node; or 0, and in `*out_at` the key that it would get in the map.
static uint32_t tree_find(const tide__stack_tree* tree, uint32_t parent, uint64_t frame, uint64_t* out_at) {
  for (*out_at = tide__random_mix(frame ^ tide__random_mix((uint64_t)parent + 1));; ++*out_at) {
    const uint64_t found = tide__hash_map_find(&tree->numbers, *out_at);
    if (found == 0) return 0;
    const tide__stack_node* const node = &tree->nodes[found - 1];
    if (node->parent == parent && node->frame == frame) return (uint32_t)found;
  }
}

tide_status tide__stack_tree_add(tide__stack_tree* tree, uint32_t parent, uint64_t frame, uint32_t* out) {
  uint64_t at = 0;
  *out = tree_find(tree, parent, frame, &at);
  if (*out != 0) return TIDE_OK;
  TIDE_REQUIRE(tree->count < UINT32_MAX, TIDE_ERR_LIMIT, "stacks: more than 2^32 nodes");
  TIDE_REQUIRE(tide__hash_map_reserve(&tree->numbers, tree->count + 1) &&
                   tide__heap_grow(tree->heap, (void**)&tree->nodes, &tree->capacity, tree->count + 1,
                                   sizeof *tree->nodes),
               TIDE_ERR_NO_MEMORY, "stacks: no memory for %zu nodes", tree->count + 1);
  tree->nodes[tree->count++] = (tide__stack_node){ frame, parent };
  *out = (uint32_t)tree->count;
  (void)tide__hash_map_put(&tree->numbers, at, tree->count);
  return TIDE_OK;
}
