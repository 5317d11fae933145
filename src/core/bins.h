// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The index of free blocks: finds the smallest block that is large enough, and among equal ones that with the
// lowest tie. Its owner's lock guards it.
//
// Sizes below 2 MiB have a pairing heap each, ordered by the tie, and two levels of bits that say which heaps
// are not empty: the work does not grow with the number of blocks, except where many have one size (amortised
// O(log n) of these). Larger blocks, and all blocks of an index made without heaps, are in a balanced tree.
#ifndef TIDEMARK_SRC_CORE_BINS_H
#define TIDEMARK_SRC_CORE_BINS_H

#include "base/heap.h"
#include "base/list.h"
#include "core/block.h"

#define TIDE__BINS_HEAPS 4096  // heap n is for blocks of n grains; heap 0 is never used

// [I1] bit n of words is set iff heaps[n] is not empty; bit w of summary iff words[w] is not 0
// [I2] a heap's blocks have its size, and no child has a lower tie than its parent
// [I3] the tree holds (bytes, tie) of every other block
typedef struct tide__bins {
  tide__block** heaps;  // owned; NULL: this index has only the tree
  uint64_t summary;
  uint64_t words[TIDE__BINS_HEAPS / 64];
  tide__tree tree;
  uint64_t count;
} tide__bins;

// `has_heaps`: for an index in which small blocks are many. False without memory.
bool tide__bins_init(tide__bins* bins, const tide_heap* heap, bool has_heaps);
void tide__bins_fini(tide__bins* bins, const tide_heap* heap);

void tide__bins_put(tide__bins* bins, tide__block* block);
void tide__bins_take(tide__bins* bins, tide__block* block);
// The first block of at least `bytes`, or NULL. It stays.
tide__block* tide__bins_peek(const tide__bins* bins, uint64_t bytes);
// The largest block, or NULL (of a heap, any of its blocks).
tide__block* tide__bins_largest(const tide__bins* bins);

// The number of the first invariant that does not hold, 0 if all do. O(n).
int tide__bins_check(const tide__bins* bins);

#endif
