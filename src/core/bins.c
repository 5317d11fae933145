// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pairing heaps (Fredman, Sedgewick, Sleator, Tarjan, 1986) under a two-level bitmap, and a tree for the
// rest. A heap node has its first child and a ring-free list of siblings; heap_prev of a first child is its
// parent.
#include "core/bins.h"

#include <stddef.h>

static bool bins_has_heap(const tide__bins* bins, uint64_t bytes) {
  return bins->heaps != NULL && bytes < (uint64_t)TIDE__BINS_HEAPS << TIDE__GRAIN_SHIFT;
}

bool tide__bins_init(tide__bins* bins, const tide_heap* heap, bool has_heaps) {
  *bins = (tide__bins){ .heaps = NULL };
  if (!has_heaps) return true;
  bins->heaps = tide__heap_alloc(heap, TIDE__BINS_HEAPS, sizeof *bins->heaps);
  return bins->heaps != NULL;
}

void tide__bins_fini(tide__bins* bins, const tide_heap* heap) {
  tide__heap_release(heap, bins->heaps, TIDE__BINS_HEAPS, sizeof *bins->heaps);
  *bins = (tide__bins){ .heaps = NULL };
}

// ---------------------------------------------------------------------------------------------------
// Heaps

// Joins two roots; the one with the lower address stays a root.
static tide__block* heap_join(tide__block* a, tide__block* b) {
  if (b->tie < a->tie) {
    tide__block* other = a;
    a = b;
    b = other;
  }
  b->heap_prev = a;
  b->heap_next = a->heap_child;
  if (a->heap_child != NULL) a->heap_child->heap_prev = b;
  a->heap_child = b;
  return a;
}

// Makes one heap of a list of siblings: joins them in pairs, then the pairs from the last to the first.
static tide__block* heap_join_all(tide__block* list) {
  tide__block* pairs = NULL;
  while (list != NULL) {
    tide__block* a = list;
    tide__block* b = a->heap_next;
    list = b != NULL ? b->heap_next : NULL;
    a->heap_next = NULL;
    if (b != NULL) b->heap_next = NULL;
    if (b != NULL) a = heap_join(a, b);
    a->heap_next = pairs;
    pairs = a;
  }
  tide__block* root = pairs;
  if (root != NULL) pairs = root->heap_next;
  while (pairs != NULL) {
    tide__block* rest = pairs->heap_next;
    root = heap_join(root, pairs);
    pairs = rest;
  }
  if (root != NULL) root->heap_next = root->heap_prev = NULL;
  return root;
}

static void heap_put(tide__block** root, tide__block* block) {
  block->heap_child = block->heap_next = block->heap_prev = NULL;
  *root = *root != NULL ? heap_join(*root, block) : block;
  (*root)->heap_next = (*root)->heap_prev = NULL;
}

static void heap_take(tide__block** root, tide__block* block) {
  tide__block* below = block->heap_child != NULL ? heap_join_all(block->heap_child) : NULL;
  if (block == *root) {
    *root = below;
    return;
  }
  if (block->heap_prev->heap_child == block) {
    block->heap_prev->heap_child = block->heap_next;
  } else {
    block->heap_prev->heap_next = block->heap_next;
  }
  if (block->heap_next != NULL) block->heap_next->heap_prev = block->heap_prev;
  if (below != NULL) {
    *root = heap_join(*root, below);
    (*root)->heap_next = (*root)->heap_prev = NULL;
  }
}

// ---------------------------------------------------------------------------------------------------
// The index

void tide__bins_put(tide__bins* bins, tide__block* block) {
  bins->count++;
  if (!bins_has_heap(bins, block->bytes)) {
    block->tree.key = block->bytes;
    block->tree.tie = block->tie;
    (void)tide__tree_insert(&bins->tree, &block->tree);
    return;
  }
  const uint64_t n = block->bytes >> TIDE__GRAIN_SHIFT;
  heap_put(&bins->heaps[n], block);
  bins->words[n / 64] |= (uint64_t)1 << (n % 64);
  bins->summary |= (uint64_t)1 << (n / 64);
}

void tide__bins_take(tide__bins* bins, tide__block* block) {
  bins->count--;
  if (!bins_has_heap(bins, block->bytes)) {
    tide__tree_remove(&bins->tree, &block->tree);
    return;
  }
  const uint64_t n = block->bytes >> TIDE__GRAIN_SHIFT;
  heap_take(&bins->heaps[n], block);
  if (bins->heaps[n] != NULL) return;
  bins->words[n / 64] &= ~((uint64_t)1 << (n % 64));
  if (bins->words[n / 64] == 0) bins->summary &= ~((uint64_t)1 << (n / 64));
}

// The first heap from `n` on that is not empty, or NULL.
static tide__block* heaps_peek(const tide__bins* bins, uint64_t n) {
  uint64_t word = n / 64;
  uint64_t bits = bins->words[word] & (~(uint64_t)0 << (n % 64));
  if (bits == 0) {
    const uint64_t above = word < 63 ? bins->summary & (~(uint64_t)0 << (word + 1)) : 0;
    if (above == 0) return NULL;
    word = (uint64_t)__builtin_ctzll(above);
    bits = bins->words[word];
  }
  return bins->heaps[word * 64 + (uint64_t)__builtin_ctzll(bits)];
}

tide__block* tide__bins_peek(const tide__bins* bins, uint64_t bytes) {
  const uint64_t grains = (bytes >> TIDE__GRAIN_SHIFT) + ((bytes & (TIDE__GRAIN - 1)) != 0);
  if (bins->heaps != NULL && grains < TIDE__BINS_HEAPS) {
    tide__block* const found = heaps_peek(bins, grains);
    if (found != NULL) return found;
  }
  tide__tree_node* const node = tide__tree_ceiling(&bins->tree, bytes);
  return node != NULL ? TIDE_OWNER(node, tide__block, tree) : NULL;
}

tide__block* tide__bins_largest(const tide__bins* bins) {
  tide__tree_node* const node = tide__tree_floor(&bins->tree, UINT64_MAX);
  if (node != NULL) return TIDE_OWNER(node, tide__block, tree);
  if (bins->summary == 0) return NULL;
  const uint64_t word = 63u - (uint64_t)__builtin_clzll(bins->summary);
  return bins->heaps[word * 64 + 63u - (uint64_t)__builtin_clzll(bins->words[word])];
}

// ---------------------------------------------------------------------------------------------------
// Check

// The block after `block` in a walk through its heap, parents first; NULL at the end.
static const tide__block* heap_next_in_walk(const tide__block* block) {
  if (block->heap_child != NULL) return block->heap_child;
  while (block->heap_next == NULL) {
    while (block->heap_prev != NULL && block->heap_prev->heap_child != block) block = block->heap_prev;
    if (block->heap_prev == NULL) return NULL;
    block = block->heap_prev;
  }
  return block->heap_next;
}

static int heap_check(const tide__block* root, uint64_t bytes, uint64_t* count) {
  if (root->heap_prev != NULL || root->heap_next != NULL) return 2;
  for (const tide__block* block = root; block != NULL; block = heap_next_in_walk(block)) {
    if (block->bytes != bytes || block->state != TIDE__BLOCK_FREE) return 2;
    const tide__block* const child = block->heap_child;
    if (child != NULL && (child->heap_prev != block || child->tie < block->tie)) return 2;
    if (block->heap_next != NULL && block->heap_next->heap_prev != block) return 2;
    (*count)++;
  }
  return 0;
}

static int heaps_check(const tide__bins* bins, uint64_t* count) {
  for (uint64_t n = 0; n < TIDE__BINS_HEAPS; n++) {
    const bool has_bit = (bins->words[n / 64] >> (n % 64) & 1) != 0;
    if (has_bit != (bins->heaps[n] != NULL)) return 1;
    if (((bins->summary >> (n / 64) & 1) != 0) != (bins->words[n / 64] != 0)) return 1;
    const int broken = has_bit ? heap_check(bins->heaps[n], n << TIDE__GRAIN_SHIFT, count) : 0;
    if (broken != 0) return broken;
  }
  return 0;
}

int tide__bins_check(const tide__bins* bins) {
  uint64_t count = 0;
  const int broken = bins->heaps != NULL ? heaps_check(bins, &count) : 0;
  if (broken != 0) return broken;
  if (tide__tree_check(&bins->tree) != 0) return 3;
  for (tide__tree_node* it = tide__tree_first(&bins->tree); it != NULL; it = tide__tree_next(it)) {
    const tide__block* const block = TIDE_OWNER(it, tide__block, tree);
    if (it->key != block->bytes || it->tie != block->tie || block->state != TIDE__BLOCK_FREE) return 3;
    if (bins_has_heap(bins, block->bytes)) return 3;
    count++;
  }
  return count == bins->count ? 0 : 3;
}
