// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pairing heaps (Fredman, Sedgewick, Sleator, Tarjan, 1986) under a two-level bitmap, and trees under another
// for the rest. A heap node has its first child and a ring-free list of siblings; heap_prev of a first child
// is its parent.
#include "core/bins.h"

#include <stddef.h>

bool tide__bins_init(tide__bins* bins, const tide_heap* heap, bool has_heaps) {
  *bins = (tide__bins){ .heaps = NULL };
  bins->trees = tide__heap_alloc(heap, TIDE__BINS_TREES, sizeof *bins->trees);
  if (has_heaps) bins->heaps = tide__heap_alloc(heap, TIDE__BINS_HEAPS, sizeof *bins->heaps);
  if (bins->trees != NULL && (bins->heaps != NULL) == has_heaps) return true;
  tide__bins_fini(bins, heap);
  return false;
}

void tide__bins_fini(tide__bins* bins, const tide_heap* heap) {
  tide__heap_release(heap, bins->heaps, TIDE__BINS_HEAPS, sizeof *bins->heaps);
  tide__heap_release(heap, bins->trees, TIDE__BINS_TREES, sizeof *bins->trees);
  *bins = (tide__bins){ .heaps = NULL };
}

// Joins them in pairs, then the pairs from the last to the first.
tide__block* tide__heap_join_all(tide__block* list) {
  tide__block* pairs = NULL;
  while (list != NULL) {
    tide__block* a = list;
    tide__block* b = a->heap_next;
    list = b != NULL ? b->heap_next : NULL;
    a->heap_next = NULL;
    if (b != NULL) b->heap_next = NULL;
    if (b != NULL) a = tide__heap_join(a, b);
    a->heap_next = pairs;
    pairs = a;
  }
  tide__block* root = pairs;
  if (root != NULL) pairs = root->heap_next;
  while (pairs != NULL) {
    tide__block* rest = pairs->heap_next;
    root = tide__heap_join(root, pairs);
    pairs = rest;
  }
  if (root != NULL) root->heap_next = root->heap_prev = NULL;
  return root;
}

// The last bit that is set, by words and their summary, which is not 0.
static uint64_t bits_last(const uint64_t* words, uint64_t summary) {
  const uint64_t word = 63u - (uint64_t)__builtin_clzll(summary);
  return word * 64 + 63u - (uint64_t)__builtin_clzll(words[word]);
}

tide__block* tide__bins_largest(const tide__bins* bins) {
  if (bins->tree_summary != 0) {
    const tide__tree* const tree = &bins->trees[bits_last(bins->tree_words, bins->tree_summary)];
    return TIDE_OWNER(tide__tree_floor(tree, UINT64_MAX), tide__block, tree);
  }
  return bins->summary != 0 ? bins->heaps[bits_last(bins->words, bins->summary)] : NULL;
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

static int tree_check(const tide__bins* bins, uint64_t n, uint64_t* count) {
  const tide__tree* const tree = &bins->trees[n];
  if (tide__tree_check(tree) != 0) return 3;
  for (tide__tree_node* it = tide__tree_first(tree); it != NULL; it = tide__tree_next(it)) {
    const tide__block* const block = TIDE_OWNER(it, tide__block, tree);
    if (it->key != block->bytes || it->tie != block->tie || block->state != TIDE__BLOCK_FREE) return 3;
    if (tide__bins_has_heap(bins, block->bytes) || tide__tree_number(block->bytes) != n) return 3;
    (*count)++;
  }
  return 0;
}

static int trees_check(const tide__bins* bins, uint64_t* count) {
  for (uint64_t n = 0; n < TIDE__BINS_TREES; n++) {
    const bool has_bit = (bins->tree_words[n / 64] >> (n % 64) & 1) != 0;
    if (has_bit != (bins->trees[n].root != NULL)) return 1;
    if (((bins->tree_summary >> (n / 64) & 1) != 0) != (bins->tree_words[n / 64] != 0)) return 1;
    const int broken = has_bit ? tree_check(bins, n, count) : 0;
    if (broken != 0) return broken;
  }
  return 0;
}

int tide__bins_check(const tide__bins* bins) {
  uint64_t count = 0;
  int broken = bins->heaps != NULL ? heaps_check(bins, &count) : 0;
  if (broken == 0) broken = trees_check(bins, &count);
  if (broken != 0) return broken;
  return count == bins->count ? 0 : 3;
}
