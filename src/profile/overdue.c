// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tree by offset. Live requests never overlap, so of those that begin below an offset only the last can
// reach over it. A place holds at most one request, so there is one node for each place.
#include "profile/overdue.h"

#include "base/heap.h"
#include "base/list.h"

void tide__overdue_set_fini(tide__overdue_set* overdue, const tide_heap* heap) {
  tide__heap_release(heap, overdue->by_place, overdue->places, sizeof *overdue->by_place);
  *overdue = (tide__overdue_set){ 0 };
}

static bool overdue_make_room(tide__overdue_set* overdue, const tide_heap* heap, size_t places) {
  if (places <= overdue->places) return true;
  // Nodes cannot move while they are in the tree; it is empty when a run begins.
  if (overdue->count != 0) return false;
  tide__overdue_set_fini(overdue, heap);
  overdue->by_place = tide__heap_alloc(heap, places, sizeof *overdue->by_place);
  overdue->places = overdue->by_place != NULL ? places : 0;
  return overdue->by_place != NULL;
}

bool tide__overdue_set_add(tide__overdue_set* overdue, const tide_heap* heap, size_t places, uint32_t place,
                           tide__overdue item) {
  if (!overdue_make_room(overdue, heap, places)) return false;
  tide__overdue_set_remove(overdue, place);
  overdue->by_place[place] = item;
  overdue->by_place[place].is_in = true;
  tide__tree_insert(&overdue->tree, &overdue->by_place[place].node);
  overdue->count++;
  return true;
}

void tide__overdue_set_remove(tide__overdue_set* overdue, uint32_t place) {
  if (place >= overdue->places || !overdue->by_place[place].is_in) return;
  tide__tree_remove(&overdue->tree, &overdue->by_place[place].node);
  overdue->by_place[place].is_in = false;
  overdue->count--;
}

uint32_t tide__overdue_set_find(const tide__overdue_set* overdue, uint64_t offset, uint64_t bytes) {
  const tide__tree_node* const node = tide__tree_floor(&overdue->tree, offset + bytes - 1);
  if (node == NULL) return UINT32_MAX;
  const tide__overdue* const item = TIDE_OWNER_CONST(node, tide__overdue, node);
  return item->end > offset ? (uint32_t)(item - overdue->by_place) : UINT32_MAX;
}

void tide__overdue_set_clear(tide__overdue_set* overdue) {
  for (const tide__tree_node* node; (node = tide__tree_first(&overdue->tree)) != NULL;) {
    tide__overdue_set_remove(overdue,
                             (uint32_t)(TIDE_OWNER_CONST(node, tide__overdue, node) - overdue->by_place));
  }
}
