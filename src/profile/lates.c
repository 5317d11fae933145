// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tree by offset. Live requests never overlap, so the one that begins before an end is the only one that
// can reach over it. A place holds one request at most, so there is one node for each place.
#include "profile/lates.h"

#include "base/heap.h"
#include "base/list.h"

void tide__lates_fini(tide__lates* lates, const tide_heap* heap) {
  tide__heap_release(heap, lates->by_place, lates->places, sizeof *lates->by_place);
  *lates = (tide__lates){ 0 };
}

static bool lates_make_room(tide__lates* lates, const tide_heap* heap, size_t places) {
  if (places <= lates->places) return true;
  // Nodes cannot move while they are in the tree; it is empty when a run begins.
  if (lates->count != 0) return false;
  tide__lates_fini(lates, heap);
  lates->by_place = tide__heap_alloc(heap, places, sizeof *lates->by_place);
  lates->places = lates->by_place != NULL ? places : 0;
  return lates->by_place != NULL;
}

bool tide__lates_add(tide__lates* lates, const tide_heap* heap, size_t places, uint32_t place,
                     tide__late late) {
  if (!lates_make_room(lates, heap, places)) return false;
  tide__lates_remove(lates, place);
  lates->by_place[place] = late;
  lates->by_place[place].is_in = true;
  tide__tree_insert(&lates->tree, &lates->by_place[place].node);
  lates->count++;
  return true;
}

void tide__lates_remove(tide__lates* lates, uint32_t place) {
  if (place >= lates->places || !lates->by_place[place].is_in) return;
  tide__tree_remove(&lates->tree, &lates->by_place[place].node);
  lates->by_place[place].is_in = false;
  lates->count--;
}

uint32_t tide__lates_find(const tide__lates* lates, uint64_t offset, uint64_t bytes) {
  const tide__tree_node* const node = tide__tree_floor(&lates->tree, offset + bytes - 1);
  if (node == NULL) return UINT32_MAX;
  const tide__late* const late = TIDE_OWNER_CONST(node, tide__late, node);
  return late->end > offset ? (uint32_t)(late - lates->by_place) : UINT32_MAX;
}

void tide__lates_clear(tide__lates* lates) {
  for (const tide__tree_node* node; (node = tide__tree_first(&lates->tree)) != NULL;) {
    tide__lates_remove(lates, (uint32_t)(TIDE_OWNER_CONST(node, tide__late, node) - lates->by_place));
  }
}
