// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The address map: from an address to the block that is handed out there. Looking an address up takes no lock
// and follows four pointers. Adding and removing one needs no memory, because the places are made with the
// segment.
//
// It is a radix tree over tiles of 512 KiB of addresses. At most one large block can begin in a tile, because
// it is at least as large. Small blocks have a place for every 512 bytes.
#ifndef TIDEMARK_SRC_CORE_MAP_H
#define TIDEMARK_SRC_CORE_MAP_H

#include "base/atomic.h"
#include "base/heap.h"
#include "base/lock.h"
#include "tidemark/base.h"

#define TIDE__MAP_ADDRESS_BITS 48
#define TIDE__MAP_ROOT_BITS 11
#define TIDE__MAP_NODE_BITS 9
#define TIDE__MAP_NODE_ENTRIES ((uint64_t)1 << TIDE__MAP_NODE_BITS)
#define TIDE__MAP_TILE_SHIFT 19
#define TIDE__MAP_SMALL_PLACES 1024  // in one tile
#define TIDE__MAP_SMALL_BYTES ((uint64_t)512)

typedef tide__atomic_u32 tide__map_place;  // the index of a block's record plus 1; 0: none
typedef tide__atomic_u64 tide__map_large;  // the same; from bit 32 on, its place among the small ones

// A pointer that is set once, to what it owns.
typedef _Atomic(void*) tide__map_link;

typedef struct tide__map_tile {
  tide__map_link small;  // tide__map_place[TIDE__MAP_SMALL_PLACES]; NULL until covered for small blocks
  tide__map_large large;
} tide__map_tile;

typedef struct tide__map_node {
  tide__map_link leaves[1 << TIDE__MAP_NODE_BITS];  // tide__map_tile[1 << TIDE__MAP_NODE_BITS]
} tide__map_node;

typedef struct tide__map {
  const tide_heap* heap;                           // borrowed until fini
  tide__mutex lock;                                // held to add nodes
  tide__map_link nodes[1 << TIDE__MAP_ROOT_BITS];  // tide__map_node
} tide__map;

void tide__map_init(tide__map* map, const tide_heap* heap);
void tide__map_fini(tide__map* map);

// Makes the places for blocks in a range.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_UNSUPPORTED above 2^48.
tide_status tide__map_cover(tide__map* map, uint64_t address, uint64_t bytes, bool is_small);

// The index of the block that begins at exactly this address. False if there is none.
bool tide__map_find(tide__map* map, uint64_t address, uint32_t* out_index);

// The entry of the tile of an address, or NULL. Acquire pairs with the release in the functions below.
static inline tide__map_tile* tide__map_tile_at(tide__map* map, uint64_t address) {
  const uint64_t tile = address >> TIDE__MAP_TILE_SHIFT;
  if (tile >> (TIDE__MAP_ADDRESS_BITS - TIDE__MAP_TILE_SHIFT) != 0) return NULL;
  tide__map_node* const node = tide__load_acquire(&map->nodes[tile >> (2 * TIDE__MAP_NODE_BITS)]);
  if (node == NULL) return NULL;
  tide__map_tile* const tiles =
      tide__load_acquire(&node->leaves[(tile >> TIDE__MAP_NODE_BITS) & (TIDE__MAP_NODE_ENTRIES - 1)]);
  return tiles != NULL ? &tiles[tile & (TIDE__MAP_NODE_ENTRIES - 1)] : NULL;
}

static inline uint64_t tide__map_small_place(uint64_t address) {
  return (address >> 9) & (TIDE__MAP_SMALL_PLACES - 1);
}

// The word of a tile for a large block at an address.
static inline uint64_t tide__map_large_entry(uint64_t address, uint32_t place) {
  return tide__map_small_place(address) << 32 | place;
}

// Notes the index of the block at an address in a covered range, or forgets it; the releases pair with
// tide__map_find().
static inline void tide__map_set(tide__map* map, uint64_t address, bool is_small, uint32_t index) {
  tide__map_tile* const tile = tide__map_tile_at(map, address);
  tide__map_place* const places = tide__load_acquire(&tile->small);
  if (is_small) tide__store_release(&places[tide__map_small_place(address)], index + 1);
  else tide__store_release(&tile->large, tide__map_large_entry(address, index + 1));
}

static inline void tide__map_clear(tide__map* map, uint64_t address, bool is_small) {
  tide__map_tile* const tile = tide__map_tile_at(map, address);
  tide__map_place* const places = tide__load_acquire(&tile->small);
  if (is_small) tide__store_release(&places[tide__map_small_place(address)], 0);
  else tide__store_release(&tile->large, 0);
}

#endif
