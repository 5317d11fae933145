// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A table that is full and cannot grow is cleared.
#include "plan/nogoods.h"

#define NOGOODS_MOST ((size_t)1 << 20)  // keys: 32 MiB of slots

void tide__nogoods_init(tide__nogoods* nogoods, const tide_heap* heap) {
  tide__hash_map_init(&nogoods->map, heap);
}

void tide__nogoods_fini(tide__nogoods* nogoods) { tide__hash_map_fini(&nogoods->map); }

void tide__nogoods_clear(tide__nogoods* nogoods) { tide__hash_map_clear(&nogoods->map); }

static void nogoods_make_room(tide__nogoods* nogoods) {
  const size_t wanted = nogoods->map.count + 1;
  if (wanted > NOGOODS_MOST || !tide__hash_map_reserve(&nogoods->map, wanted)) tide__nogoods_clear(nogoods);
}

void tide__nogoods_add(tide__nogoods* nogoods, tide__key key) {
  if (key.high == 0) return;
  if (!tide__hash_map_has_room(&nogoods->map)) nogoods_make_room(nogoods);
  if (!tide__hash_map_has_room(&nogoods->map)) return;  // no memory at all
  (void)tide__hash_map_put(&nogoods->map, key.low, key.high);
}
