// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The no-good table of a search: states that are known to lead to no plan. A state is identified by a key
// of 128 bits. Proofs rely on two states never sharing a key.
#ifndef TIDEMARK_SRC_PLAN_NOGOODS_H
#define TIDEMARK_SRC_PLAN_NOGOODS_H

#include "base/hash_map.h"

typedef struct tide__key {
  uint64_t low;
  uint64_t high;  // 0: a key that is not stored
} tide__key;

typedef struct tide__nogoods {
  tide__hash_map map;  // from the low half of a key to its high half
} tide__nogoods;

void tide__nogoods_init(tide__nogoods* nogoods, const tide_heap* heap);
void tide__nogoods_fini(tide__nogoods* nogoods);
void tide__nogoods_clear(tide__nogoods* nogoods);

static inline bool tide__nogoods_has(const tide__nogoods* nogoods, tide__key key) {
  const uint64_t high = tide__hash_map_find(&nogoods->map, key.low);
  return high != 0 && high == key.high;
}

// Stores a key. Without memory for it, or at the limit of keys, the table is cleared first. That costs time
// but never makes an answer wrong.
void tide__nogoods_add(tide__nogoods* nogoods, tide__key key);

#endif
