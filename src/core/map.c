// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The radix tree of the map. Nodes are only ever added: a node is made without the lock, and published under
// it unless another thread was faster. Readers meet a whole node or none.
#include "core/map.h"

#include "base/arith.h"
#include "base/error.h"

void tide__map_init(tide__map* map, const tide_heap* heap) {
  map->heap = heap;
  tide__mutex_init(&map->lock, TIDE__RANK_MAP);
}

static void leaves_release(tide__map* map, tide__map_tile* tiles) {
  for (uint64_t i = 0; i < TIDE__MAP_NODE_ENTRIES; i++) {
    tide__heap_release(map->heap, tide__load_relaxed(&tiles[i].small), TIDE__MAP_SMALL_PLACES,
                       sizeof(tide__map_place));
  }
  tide__heap_release(map->heap, tiles, TIDE__MAP_NODE_ENTRIES, sizeof *tiles);
}

void tide__map_fini(tide__map* map) {
  for (uint64_t n = 0; n < (uint64_t)1 << TIDE__MAP_ROOT_BITS; n++) {
    tide__map_node* const node = tide__load_relaxed(&map->nodes[n]);
    if (node == NULL) continue;
    for (uint64_t i = 0; i < TIDE__MAP_NODE_ENTRIES; i++) {
      tide__map_tile* const tiles = tide__load_relaxed(&node->leaves[i]);
      if (tiles != NULL) leaves_release(map, tiles);
    }
    tide__heap_release(map->heap, node, 1, sizeof *node);
  }
  tide__mutex_fini(&map->lock);
}

// Makes what a link should point to, unless it does already. The release pairs with the acquire in
// tide__map_tile_at().
static tide_status map_link_make(tide__map* map, tide__map_link* link, size_t count, size_t bytes) {
  if (tide__load_acquire(link) != NULL) return TIDE_OK;
  void* const made = tide__heap_alloc(map->heap, count, bytes);
  TIDE_REQUIRE(made != NULL, TIDE_ERR_NO_MEMORY, "no memory for records of addresses");
  tide__mutex_lock(&map->lock);
  const bool is_first = tide__load_relaxed(link) == NULL;
  if (is_first) tide__store_release(link, made);
  tide__mutex_unlock(&map->lock);
  if (!is_first) tide__heap_release(map->heap, made, count, bytes);
  return TIDE_OK;
}

static tide_status map_cover_tile(tide__map* map, uint64_t tile, bool is_small) {
  tide__map_link* const root = &map->nodes[tile >> (2 * TIDE__MAP_NODE_BITS)];
  TIDE_TRY(map_link_make(map, root, 1, sizeof(tide__map_node)));
  tide__map_node* const node = tide__load_acquire(root);
  tide__map_link* const leaf = &node->leaves[(tile >> TIDE__MAP_NODE_BITS) & (TIDE__MAP_NODE_ENTRIES - 1)];
  TIDE_TRY(map_link_make(map, leaf, TIDE__MAP_NODE_ENTRIES, sizeof(tide__map_tile)));
  if (!is_small) return TIDE_OK;
  tide__map_tile* const tiles = tide__load_acquire(leaf);
  return map_link_make(map, &tiles[tile & (TIDE__MAP_NODE_ENTRIES - 1)].small, TIDE__MAP_SMALL_PLACES,
                       sizeof(tide__map_place));
}

tide_status tide__map_cover(tide__map* map, uint64_t address, uint64_t bytes, bool is_small) {
  uint64_t end = 0;
  TIDE_REQUIRE(tide__add(address, bytes, &end) && end >> TIDE__MAP_ADDRESS_BITS == 0, TIDE_ERR_UNSUPPORTED,
               "memory at %#llx is above 2^%d", (unsigned long long)address, TIDE__MAP_ADDRESS_BITS);
  for (uint64_t tile = address >> TIDE__MAP_TILE_SHIFT; tile <= (end - 1) >> TIDE__MAP_TILE_SHIFT; tile++) {
    TIDE_TRY(map_cover_tile(map, tile, is_small));
  }
  return TIDE_OK;
}

bool tide__map_find(tide__map* map, uint64_t address, uint32_t* out_index) {
  tide__map_tile* const tile = tide__map_tile_at(map, address);
  if (tile == NULL || address % TIDE__MAP_SMALL_BYTES != 0) return false;
  tide__map_place* const places = tide__load_acquire(&tile->small);
  uint32_t place = places != NULL ? tide__load_acquire(&places[tide__map_small_place(address)]) : 0;
  const uint64_t large = place == 0 ? tide__load_acquire(&tile->large) : 0;
  if (large != 0 && large == tide__map_large_entry(address, (uint32_t)large)) place = (uint32_t)large;
  if (place == 0) return false;
  *out_index = place - 1;
  return true;
}
