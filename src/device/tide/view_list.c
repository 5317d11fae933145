// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The list of views of a lane is an array. A view that is removed leaves an empty entry, in which no request
// fits. When more than half of the entries are empty, the others move together.
#include "device/tide/view_list.h"

static void list_compact(tide__lane* lane) {
  size_t count = 0;
  for (size_t i = 0; i < lane->view_entry_count; i++) {
    const tide__view_entry entry = lane->view_entries[i];
    if (entry.segment == NULL) continue;
    entry.segment->view->entry = count;
    lane->view_entries[count++] = entry;
  }
  lane->view_entry_count = count;
}

tide_status tide__view_list_make_room(tide_device_cache* device, tide__lane* lane) {
  if (lane->view_entry_count > 2 * lane->view_count) list_compact(lane);
  TIDE_REQUIRE(tide__heap_grow(device->heap, (void**)&lane->view_entries, &lane->view_entry_capacity,
                               lane->view_entry_count + 1, sizeof *lane->view_entries),
               TIDE_ERR_NO_MEMORY, "no memory for the records of %zu views", lane->view_entry_count + 1);
  return TIDE_OK;
}

void tide__view_place_add(tide__view* view, size_t index) {
  tide__view_place* const place = &view->places[index];
  tide__handle* const handle = view->handles[index];
  *place = (tide__view_place){ view, handle->places, &handle->places };
  if (place->next != NULL) place->next->link = &place->next;
  handle->places = place;
}

void tide__view_list_add(tide__segment* segment) {
  tide__lane* const lane = segment->lane;
  TIDE_ASSERT(lane->view_entry_count < lane->view_entry_capacity);
  segment->view->entry = lane->view_entry_count;
  lane->view_entries[lane->view_entry_count++] =
      (tide__view_entry){ segment->bytes, segment->bytes, segment };
}

void tide__view_list_remove(tide__segment* segment) {
  tide__view_entry* const entry = tide__view_entry_of(segment);
  if (entry == NULL) return;
  tide__view_list_settle(segment->lane);
  *entry = (tide__view_entry){ .segment = NULL };
  segment->view->entry = SIZE_MAX;
}

void tide__view_list_retire(tide__segment* segment) {
  tide__link* const list = &segment->lane->retired;
  tide__link* at = list->prev;
  while (at != list && TIDE_OWNER(at, tide__view, order)->segment->ordinal > segment->ordinal) at = at->prev;
  tide__view_list_remove(segment);
  tide__list_unlink(&segment->view->order);
  tide__list_append(at->next, &segment->view->order);
}

void tide__view_place_remove(const tide__view* view, size_t index) {
  const tide__view_place* const place = &view->places[index];
  *place->link = place->next;
  if (place->next != NULL) place->next->link = place->link;
}

void tide__view_places_grow(const tide__handle* handle) {
  for (const tide__view_place* it = handle->places; it != NULL; it = it->next) {
    tide__view* const view = it->view;
    if (view->has_grown || view->entry == SIZE_MAX) continue;
    view->has_grown = true;
    view->next_grown = view->segment->lane->grown;
    view->segment->lane->grown = view;
  }
}

void tide__view_list_settle(tide__lane* lane) {
  for (tide__view* view = lane->grown; view != NULL; view = view->next_grown) {
    tide__view_entry* const entry = &lane->view_entries[view->entry];
    entry->most_idle = entry->bytes;
    view->has_grown = false;
  }
  lane->grown = NULL;
}
