// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The functions of the hash map that are not inline.
#include "base/hash_map.h"

#include <string.h>

#include "base/check.h"
#include "base/heap.h"

#define HASH_FIRST_LOG 6u  // of the slots of the smallest map

void tide__hash_map_fini(tide__hash_map* map) {
  tide__heap_release(map->heap, map->slots, tide__hash_map_slot_count(map), sizeof *map->slots);
  tide__hash_map_init(map, map->heap);
}

void tide__hash_map_clear(tide__hash_map* map) {
  if (map->count > 0) memset(map->slots, 0, tide__hash_map_slot_count(map) * sizeof *map->slots);
  map->count = 0;
}

// The slot of a key, or the empty slot where it belongs.
static size_t hash_probe(const tide__hash_map* map, uint64_t key) {
  const size_t mask = tide__hash_map_slot_count(map) - 1;
  size_t i = tide__hash_map_home(map, key);
  while (map->slots[i].value != 0 && map->slots[i].key != key) i = (i + 1) & mask;
  return i;
}

bool tide__hash_map_reserve(tide__hash_map* map, size_t count) {
  uint32_t log = HASH_FIRST_LOG;
  if (count <= tide__hash_map_slot_count(map) / 2) return true;
  if (count > SIZE_MAX / 4 / sizeof *map->slots) return false;
  while ((size_t)1 << log < 2 * count) log++;
  tide__hash_map larger = { .heap = map->heap, .shift = 64 - log };
  larger.slots = tide__heap_alloc(map->heap, (size_t)1 << log, sizeof *larger.slots);
  if (larger.slots == NULL) return false;
  tide__hash_map_grow_into(map, &larger);
  tide__hash_map_fini(&larger);
  return true;
}

uint64_t tide__hash_map_put(tide__hash_map* map, uint64_t key, uint64_t value) {
  TIDE_ASSERT(value != 0 && map->slots != NULL);
  tide__hash_slot* const slot = &map->slots[hash_probe(map, key)];
  const uint64_t before = slot->value;
  if (before == 0) {
    TIDE_ASSERT(tide__hash_map_has_room(map));
    map->count++;
  }
  *slot = (tide__hash_slot){ key, value };
  return before;
}

// Empties a slot, and moves back later keys that could not be found any more.
static void hash_empty(tide__hash_map* map, size_t hole) {
  const size_t mask = tide__hash_map_slot_count(map) - 1;
  for (size_t i = (hole + 1) & mask; map->slots[i].value != 0; i = (i + 1) & mask) {
    const size_t home = tide__hash_map_home(map, map->slots[i].key);
    // A key may move to the hole unless its home lies after the hole.
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    map->slots[hole] = map->slots[i];
    hole = i;
  }
  map->slots[hole].value = 0;
}

uint64_t tide__hash_map_take(tide__hash_map* map, uint64_t key) {
  if (map->count == 0) return 0;
  const size_t at = hash_probe(map, key);
  const uint64_t value = map->slots[at].value;
  if (value == 0) return 0;
  hash_empty(map, at);
  map->count--;
  return value;
}

void tide__hash_map_grow_into(tide__hash_map* map, tide__hash_map* larger) {
  if (tide__hash_map_slot_count(larger) <= tide__hash_map_slot_count(map)) return;
  const tide__hash_map old = *map;
  for (size_t i = 0; i < tide__hash_map_slot_count(&old); i++) {
    if (old.slots[i].value != 0) larger->slots[hash_probe(larger, old.slots[i].key)] = old.slots[i];
  }
  larger->count = old.count;
  *map = *larger;
  *larger = old;
}

const tide__hash_slot* tide__hash_map_next(const tide__hash_map* map, const tide__hash_slot* before) {
  const size_t count = tide__hash_map_slot_count(map);
  for (size_t i = before != NULL ? (size_t)(before - map->slots) + 1 : 0; i < count; i++) {
    if (map->slots[i].value != 0) return &map->slots[i];
  }
  return NULL;
}

int tide__hash_map_check(const tide__hash_map* map) {
  size_t count = 0;
  const tide__hash_slot* slot = NULL;
  while ((slot = tide__hash_map_next(map, slot)) != NULL) {
    if (hash_probe(map, slot->key) != (size_t)(slot - map->slots)) return 2;
    count++;
  }
  return count == map->count && 2 * count <= tide__hash_map_slot_count(map) ? 0 : 1;
}
