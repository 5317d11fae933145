// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A hash map from 64-bit keys to 64-bit values other than 0.
//
// It uses open addressing with linear probing. A removal shifts the following slots back, so there are no
// tombstones. The order of the slots depends on the hash, and no result may depend on that order.
//
// A key that is not a number is hashed to 64 bits by the user. If another key has that number already, the
// user tries the next one (hash + 1), and so on; such keys must not be removed. tool/sums.c is an example.
//
// Two kinds of tables do not use this map: those that are read without a lock (device/lane.c, core/map.h),
// and interning (trace/intern.c), which needs slots of half the size.
//
// Cost: O(1) on average. Hostile keys can make the map slow, but not wrong. 32 to 64 bytes for each key.
// Lock: none, the caller's. To grow without calling the heap under a lock, fill a larger map: see
//       tide__hash_map_grow_into().
#ifndef TIDEMARK_SRC_BASE_HASH_MAP_H
#define TIDEMARK_SRC_BASE_HASH_MAP_H

#include "tidemark/base.h"

typedef struct tide__hash_slot {
  uint64_t key;
  uint64_t value;  // 0: the slot is empty
} tide__hash_slot;

// [H1] the number of slots is 0 or a power of two, and at least 2 * count
// [H2] no slot between the one that a key hashes to and its own is empty
typedef struct tide__hash_map {
  const tide_heap* heap;   // borrowed until fini
  tide__hash_slot* slots;  // owned; NULL until there is room for a key
  size_t count;            // of keys
  uint32_t shift;          // 64 - log2 of the number of slots
} tide__hash_map;

// Makes an empty map, which has no room yet.
static inline void tide__hash_map_init(tide__hash_map* map, const tide_heap* heap) {
  *map = (tide__hash_map){ .heap = heap };
}
// Frees the memory. The map is empty, and may be used again.
void tide__hash_map_fini(tide__hash_map* map);
// Removes all keys but keeps the memory.
void tide__hash_map_clear(tide__hash_map* map);

static inline size_t tide__hash_map_slot_count(const tide__hash_map* map) {
  return map->slots != NULL ? (size_t)1 << (64 - map->shift) : 0;
}

// Is there room for one more key?
static inline bool tide__hash_map_has_room(const tide__hash_map* map) {
  return 2 * (map->count + 1) <= tide__hash_map_slot_count(map);
}

// Makes room for `count` keys in total. Returns false, with the map unchanged, if there is no memory.
bool tide__hash_map_reserve(tide__hash_map* map, size_t count);

// The slot that a key hashes to. The multiplier is 2^64 divided by the golden ratio: it spreads keys that are
// multiples of a power of two, as addresses and offsets are.
static inline size_t tide__hash_map_home(const tide__hash_map* map, uint64_t key) {
  return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> map->shift);
}

// The value of a key, or 0 if the key is not there.
static inline uint64_t tide__hash_map_find(const tide__hash_map* map, uint64_t key) {
  if (map->count == 0) return 0;
  const size_t mask = tide__hash_map_slot_count(map) - 1;
  for (size_t i = tide__hash_map_home(map, key);; i = (i + 1) & mask) {
    const tide__hash_slot* const slot = &map->slots[i];
    if (slot->key == key || slot->value == 0) return slot->value;
  }
}

// Gives a key a value, which is not 0, and returns the value it had before, or 0. There must be room for one
// more key, so this cannot fail.
uint64_t tide__hash_map_put(tide__hash_map* map, uint64_t key, uint64_t value);

// Removes a key and returns its value, or 0 if the key is not there.
uint64_t tide__hash_map_take(tide__hash_map* map, uint64_t key);

// Moves all keys into `larger`, an empty map with reserved room, and swaps the two maps; the caller frees
// `larger` afterwards. Does nothing unless `larger` has more slots. So a map can grow under a lock, while the
// heap is called without the lock.
void tide__hash_map_grow_into(tide__hash_map* map, tide__hash_map* larger);

// Iterates over all keys in an unspecified order: returns the slot after `before`, or the first for NULL.
// NULL is the end.
const tide__hash_slot* tide__hash_map_next(const tide__hash_map* map, const tide__hash_slot* before);

// The number of the first invariant that does not hold, or 0 if all hold. O(n).
int tide__hash_map_check(const tide__hash_map* map);

#endif
