// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The free index: finds the smallest block that is large enough, and among blocks of equal size the one with
// the lowest tie. The owner's lock guards it.
//
// Each size below 2 MiB has a pairing heap, ordered by the tie. Two levels of bits say which heaps are not
// empty. So the work does not grow with the number of blocks, except for n blocks of one size: amortised
// O(log n). Larger blocks, and all blocks of an index made without heaps, are in balanced trees, each for
// sizes that differ by less than a sixteenth: nearly all trees have few nodes. Bits say which have any.
#ifndef TIDEMARK_SRC_CORE_BINS_H
#define TIDEMARK_SRC_CORE_BINS_H

#include "base/heap.h"
#include "base/list.h"
#include "core/block.h"

#define TIDE__BINS_HEAPS 4096  // heap n is for blocks of n grains; heap 0 is never used
#define TIDE__BINS_TREES 448   // the last one is for all larger blocks too

// [I1] bit n of words is set iff heaps[n] is not empty; bit w of summary iff words[w] is not 0; the same for
//      trees
// [I2] a heap's blocks have its size, and no child has a lower tie than its parent
// [I3] the trees hold (bytes, tie) of every other block, each in the tree of its size
typedef struct tide__bins {
  tide__block** heaps;  // owned; NULL: this index has only trees
  uint64_t summary;
  uint64_t words[TIDE__BINS_HEAPS / 64];
  tide__tree* trees;  // owned
  uint64_t tree_summary;
  uint64_t tree_words[TIDE__BINS_TREES / 64];
  uint64_t count;
} tide__bins;

// `has_heaps`: for an index with many small blocks. Returns false if there is no memory.
bool tide__bins_init(tide__bins* bins, const tide_heap* heap, bool has_heaps);
void tide__bins_fini(tide__bins* bins, const tide_heap* heap);

// The largest block, or NULL (of a heap, any of its blocks).
tide__block* tide__bins_largest(const tide__bins* bins);

// The number of the first invariant that does not hold, 0 if all do. O(n).
int tide__bins_check(const tide__bins* bins);

// Makes one heap of a list of siblings.
tide__block* tide__heap_join_all(tide__block* list);

// ---------------------------------------------------------------------------------------------------
// Inline, because every allocation and release calls them: putting a block, taking it out, and
// tide__bins_peek(), which finds the first block of at least `bytes` and leaves it in the index.

static inline bool tide__bins_has_heap(const tide__bins* bins, uint64_t bytes) {
  return bins->heaps != NULL && bytes < (uint64_t)TIDE__BINS_HEAPS << TIDE__GRAIN_SHIFT;
}

// Joins two roots; the one with the lower tie stays a root.
static inline tide__block* tide__heap_join(tide__block* a, tide__block* b) {
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

static inline void tide__heap_put(tide__block** root, tide__block* block) {
  block->heap_child = block->heap_next = block->heap_prev = NULL;
  *root = *root != NULL ? tide__heap_join(*root, block) : block;
  (*root)->heap_next = (*root)->heap_prev = NULL;
}

static inline void tide__heap_take(tide__block** root, tide__block* block) {
  tide__block* below = block->heap_child != NULL ? tide__heap_join_all(block->heap_child) : NULL;
  if (block == *root) {
    *root = below;
    return;
  }
  TIDE_ASSERT(block->heap_prev != NULL);
  if (block->heap_prev->heap_child == block) {
    block->heap_prev->heap_child = block->heap_next;
  } else {
    block->heap_prev->heap_next = block->heap_next;
  }
  if (block->heap_next != NULL) block->heap_next->heap_prev = block->heap_prev;
  if (below != NULL) {
    *root = tide__heap_join(*root, below);
    (*root)->heap_next = (*root)->heap_prev = NULL;
  }
}

// Which tree is for a size: its highest five bits, in the order of sizes.
static inline uint64_t tide__tree_number(uint64_t bytes) {
  const uint64_t grains = bytes >> TIDE__GRAIN_SHIFT;
  if (grains < 32) return grains;
  const uint64_t shift = 59u - (uint64_t)__builtin_clzll(grains);
  const uint64_t n = shift * 16 + (grains >> shift);
  return n < TIDE__BINS_TREES ? n : TIDE__BINS_TREES - 1;
}

static inline void tide__trees_put(tide__bins* bins, tide__block* block) {
  const uint64_t n = tide__tree_number(block->bytes);
  block->tree.key = block->bytes;
  block->tree.tie = block->tie;
  (void)tide__tree_insert(&bins->trees[n], &block->tree);
  bins->tree_words[n / 64] |= (uint64_t)1 << (n % 64);
  bins->tree_summary |= (uint64_t)1 << (n / 64);
}

static inline void tide__trees_take(tide__bins* bins, tide__block* block) {
  const uint64_t n = tide__tree_number(block->bytes);
  tide__tree_remove(&bins->trees[n], &block->tree);
  if (bins->trees[n].root != NULL) return;
  bins->tree_words[n / 64] &= ~((uint64_t)1 << (n % 64));
  if (bins->tree_words[n / 64] == 0) bins->tree_summary &= ~((uint64_t)1 << (n / 64));
}

static inline void tide__bins_put(tide__bins* bins, tide__block* block) {
  bins->count++;
  if (!tide__bins_has_heap(bins, block->bytes)) {
    tide__trees_put(bins, block);
    return;
  }
  const uint64_t n = block->bytes >> TIDE__GRAIN_SHIFT;
  tide__heap_put(&bins->heaps[n], block);
  bins->words[n / 64] |= (uint64_t)1 << (n % 64);
  bins->summary |= (uint64_t)1 << (n / 64);
}

static inline void tide__bins_take(tide__bins* bins, tide__block* block) {
  bins->count--;
  if (!tide__bins_has_heap(bins, block->bytes)) {
    tide__trees_take(bins, block);
    return;
  }
  const uint64_t n = block->bytes >> TIDE__GRAIN_SHIFT;
  tide__heap_take(&bins->heaps[n], block);
  if (bins->heaps[n] != NULL) return;
  bins->words[n / 64] &= ~((uint64_t)1 << (n % 64));
  if (bins->words[n / 64] == 0) bins->summary &= ~((uint64_t)1 << (n / 64));
}

// The first bit from `n` on that is set, by words and their summary; UINT64_MAX if there is none.
static inline uint64_t tide__bits_next(const uint64_t* words, uint64_t summary, uint64_t n) {
  uint64_t word = n / 64;
  uint64_t bits = words[word] & (~(uint64_t)0 << (n % 64));
  if (bits == 0) {
    const uint64_t above = word < 63 ? summary & (~(uint64_t)0 << (word + 1)) : 0;
    if (above == 0) return UINT64_MAX;
    word = (uint64_t)__builtin_ctzll(above);
    bits = words[word];
  }
  return word * 64 + (uint64_t)__builtin_ctzll(bits);
}

// The first block of at least `bytes` in the trees, or NULL. In the tree of this size all may be smaller.
static inline tide__tree_node* tide__trees_peek(const tide__bins* bins, uint64_t bytes) {
  const uint64_t own = tide__tree_number(bytes);
  tide__tree_node* const node = tide__tree_ceiling(&bins->trees[own], bytes);
  if (node != NULL || own + 1 == TIDE__BINS_TREES) return node;
  const uint64_t n = tide__bits_next(bins->tree_words, bins->tree_summary, own + 1);
  return n != UINT64_MAX ? tide__tree_first(&bins->trees[n]) : NULL;
}

static inline tide__block* tide__bins_peek(const tide__bins* bins, uint64_t bytes) {
  const uint64_t grains = (bytes >> TIDE__GRAIN_SHIFT) + ((bytes & (TIDE__GRAIN - 1)) != 0);
  if (bins->heaps != NULL && grains < TIDE__BINS_HEAPS) {
    const uint64_t n = tide__bits_next(bins->words, bins->summary, grains);
    if (n != UINT64_MAX) return bins->heaps[n];
  }
  tide__tree_node* const node = tide__trees_peek(bins, bytes);
  return node != NULL ? TIDE_OWNER(node, tide__block, tree) : NULL;
}

#endif
