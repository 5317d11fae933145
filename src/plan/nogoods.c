// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An open-addressing table with linear probing, at most half full. A full table that may not grow is cleared:
// a forgotten nogood costs time, never a wrong answer.
#include "plan/nogoods.h"

#include <string.h>

#include "base/heap.h"

#define NOGOODS_FIRST ((size_t)1 << 10)
#define NOGOODS_MOST ((size_t)1 << 21)

void tide__nogoods_init(tide__nogoods* nogoods, const tide_heap* heap) {
  *nogoods = (tide__nogoods){ .heap = heap };
}

void tide__nogoods_fini(tide__nogoods* nogoods) {
  tide__heap_release(nogoods->heap, nogoods->keys, nogoods->places, sizeof *nogoods->keys);
  *nogoods = (tide__nogoods){ .heap = nogoods->heap };
}

void tide__nogoods_clear(tide__nogoods* nogoods) {
  if (nogoods->count > 0) memset(nogoods->keys, 0, nogoods->places * sizeof *nogoods->keys);
  nogoods->count = 0;
}

static bool nogoods_is_empty(tide__key key) { return key.low == 0 && key.high == 0; }

// The slot of a key, or the empty slot where it would go.
static size_t nogoods_place(const tide__nogoods* nogoods, tide__key key) {
  size_t place = key.low & (nogoods->places - 1);
  while (!nogoods_is_empty(nogoods->keys[place]) &&
         (nogoods->keys[place].low != key.low || nogoods->keys[place].high != key.high)) {
    place = (place + 1) & (nogoods->places - 1);
  }
  return place;
}

bool tide__nogoods_has(const tide__nogoods* nogoods, tide__key key) {
  return nogoods->count > 0 && !nogoods_is_empty(nogoods->keys[nogoods_place(nogoods, key)]);
}

static void nogoods_grow(tide__nogoods* nogoods) {
  const size_t places = nogoods->places > 0 ? 2 * nogoods->places : NOGOODS_FIRST;
  tide__key* const keys = places <= NOGOODS_MOST ? tide__heap_alloc(nogoods->heap, places, sizeof *keys)
                                                 : NULL;
  if (keys == NULL) {
    tide__nogoods_clear(nogoods);
    return;
  }
  const tide__nogoods old = *nogoods;
  nogoods->keys = keys;
  nogoods->places = places;
  for (size_t i = 0; i < old.places; i++) {
    if (!nogoods_is_empty(old.keys[i])) nogoods->keys[nogoods_place(nogoods, old.keys[i])] = old.keys[i];
  }
  tide__heap_release(old.heap, old.keys, old.places, sizeof *old.keys);
}

void tide__nogoods_add(tide__nogoods* nogoods, tide__key key) {
  if (nogoods_is_empty(key)) return;
  if (2 * nogoods->count >= nogoods->places) nogoods_grow(nogoods);
  if (nogoods->places == 0) return;
  const size_t place = nogoods_place(nogoods, key);
  nogoods->count += nogoods_is_empty(nogoods->keys[place]);
  nogoods->keys[place] = key;
}
