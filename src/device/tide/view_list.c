// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The list of views of a lane is an array. A view that is removed leaves an empty entry, in which no request
// fits. When more than half of the entries are empty, the others move together.
#include "device/tide/view_list.h"

// ---------------------------------------------------------------------------------------------------
// Entries

// NULL: the view is in no list.
static void view_set_entry(tide__view* view, tide__view_list* list, size_t entry) {
  view->entry = list != NULL ? entry : SIZE_MAX;
  for (size_t i = 0; i < view->count; i++) {
    view->places[i].list = list;
    view->places[i].entry = entry;
  }
}

static void list_compact(tide__view_list* list) {
  size_t count = 0;
  for (size_t i = 0; i < list->count; i++) {
    const tide__view_entry entry = list->entries[i];
    if (entry.view == NULL) continue;
    list->bounds[count] = list->bounds[i];
    list->entries[count] = entry;
    view_set_entry(entry.view, list, count++);
  }
  list->count = count;
}

tide_status tide__view_list_make_room(tide_device_cache* device, tide__lane* lane) {
  tide__view_list* const list = &lane->views;
  if (list->count > 2 * lane->view_count) list_compact(list);
  const size_t count = list->count + 1;
  const bool has_room = tide__heap_grow(device->heap, (void**)&list->entries, &list->entry_capacity, count,
                                        sizeof *list->entries) &&
                        tide__heap_grow(device->heap, (void**)&list->bounds, &list->bound_capacity, count,
                                        sizeof *list->bounds);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu views", count);
  return TIDE_OK;
}

void tide__view_list_add(tide__segment* segment) {
  tide__view_list* const list = &segment->lane->views;
  TIDE_ASSERT(list->count < list->entry_capacity && list->count < list->bound_capacity);
  list->bounds[list->count] = tide__view_bound_of(segment->bytes);
  list->entries[list->count] = (tide__view_entry){ segment->bytes, segment->view };
  view_set_entry(segment->view, list, list->count++);
}

void tide__view_list_remove(tide__segment* segment) {
  tide__view_list* const list = &segment->lane->views;
  const size_t entry = segment->view->entry;
  if (entry == SIZE_MAX) return;
  list->bounds[entry] = 0;
  list->entries[entry] = (tide__view_entry){ .view = NULL };
  view_set_entry(segment->view, NULL, 0);
}

void tide__view_list_retire(tide__segment* segment) {
  tide__link* const list = &segment->lane->retired;
  tide__link* at = list->prev;
  while (at != list && TIDE_OWNER(at, tide__view, order)->segment->ordinal > segment->ordinal) at = at->prev;
  tide__view_list_remove(segment);
  tide__list_unlink(&segment->view->order);
  tide__list_append(at->next, &segment->view->order);
}

size_t tide__view_list_next(const tide__view_list* list, size_t index, int32_t need) {
  while (index < list->count && list->bounds[index] < need) index++;
  return index;
}

// ---------------------------------------------------------------------------------------------------
// Places of handles

void tide__view_place_add(tide__view* view, size_t index) {
  tide__view_place* const place = &view->places[index];
  tide__handle* const handle = view->handles[index];
  *place = (tide__view_place){ .view = view, .next = handle->places, .link = &handle->places };
  if (place->next != NULL) place->next->link = &place->next;
  handle->places = place;
}

void tide__view_place_remove(const tide__view* view, size_t index) {
  const tide__view_place* const place = &view->places[index];
  *place->link = place->next;
  if (place->next != NULL) place->next->link = place->link;
}

// A run that ends in the handle is longer by `more` at most. If all of the handle is idle, two runs may have
// become one with it.
static uint64_t most_after(const tide__handle* handle, uint64_t most, uint64_t more) {
  if (handle->idle_prefix == handle->bytes) return 2 * most + handle->bytes;
  return tide__max(most + more, handle->idle_inner);
}

void tide__view_places_grow(const tide__handle* handle, uint64_t more) {
  for (const tide__view_place* it = handle->places; it != NULL; it = it->next) {
    if (it->list == NULL) continue;
    int32_t* const bound = &it->list->bounds[it->entry];
    *bound = tide__view_bound_of(most_after(handle, tide__view_bound_bytes(*bound), more));
  }
}
