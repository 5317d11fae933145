// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// An open table with linear probing, half full at most. A full table that may not grow is emptied: what was
// forgotten costs time, never a wrong answer.
#include "plan/failed.h"

#include <string.h>

#include "base/heap.h"

#define FAILED_FIRST ((size_t)1 << 10)
#define FAILED_MOST ((size_t)1 << 21)

void tide__failed_init(tide__failed* failed, const tide_heap* heap) {
  *failed = (tide__failed){ .heap = heap };
}

void tide__failed_fini(tide__failed* failed) {
  tide__heap_release(failed->heap, failed->keys, failed->places, sizeof *failed->keys);
  *failed = (tide__failed){ .heap = failed->heap };
}

void tide__failed_clear(tide__failed* failed) {
  if (failed->count > 0) memset(failed->keys, 0, failed->places * sizeof *failed->keys);
  failed->count = 0;
}

static bool failed_is_empty(tide__key key) { return key.low == 0 && key.high == 0; }

// The place of a key, or the empty place where it would be.
static size_t failed_place(const tide__failed* failed, tide__key key) {
  size_t place = key.low & (failed->places - 1);
  while (!failed_is_empty(failed->keys[place]) &&
         (failed->keys[place].low != key.low || failed->keys[place].high != key.high)) {
    place = (place + 1) & (failed->places - 1);
  }
  return place;
}

bool tide__failed_has(const tide__failed* failed, tide__key key) {
  return failed->count > 0 && !failed_is_empty(failed->keys[failed_place(failed, key)]);
}

static void failed_grow(tide__failed* failed) {
  const size_t places = failed->places > 0 ? 2 * failed->places : FAILED_FIRST;
  tide__key* const keys = places <= FAILED_MOST ? tide__heap_alloc(failed->heap, places, sizeof *keys) : NULL;
  if (keys == NULL) {
    tide__failed_clear(failed);
    return;
  }
  const tide__failed old = *failed;
  failed->keys = keys;
  failed->places = places;
  for (size_t i = 0; i < old.places; i++) {
    if (!failed_is_empty(old.keys[i])) failed->keys[failed_place(failed, old.keys[i])] = old.keys[i];
  }
  tide__heap_release(old.heap, old.keys, old.places, sizeof *old.keys);
}

void tide__failed_add(tide__failed* failed, tide__key key) {
  if (failed_is_empty(key)) return;
  if (2 * failed->count >= failed->places) failed_grow(failed);
  if (failed->places == 0) return;
  const size_t place = failed_place(failed, key);
  failed->count += failed_is_empty(failed->keys[place]);
  failed->keys[place] = key;
}
