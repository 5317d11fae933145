// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The views of a lane that serve requests, in the order they were made; and for each handle, its places in
// views. Of most views, a search needs only the entry in the list, which is a short array. The caller has
// the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_VIEW_LIST_H
#define TIDEMARK_SRC_DEVICE_TIDE_VIEW_LIST_H

#include "device/tide/tide.h"

// The entry of a view in the list of its lane; NULL: it serves no more requests.
static inline tide__view_entry* tide__view_entry_of(const tide__segment* segment) {
  const size_t index = segment->view->entry;
  return index != SIZE_MAX ? &segment->lane->view_entries[index] : NULL;
}

// Makes room for one more view of a lane.
tide_status tide__view_list_make_room(tide_device_cache* device, tide__lane* lane);
// Adds a view behind those of its lane.
void tide__view_list_add(tide__segment* segment);
// The view serves no more requests. Nothing happens if it was removed before.
void tide__view_list_remove(tide__segment* segment);
// The view is used now: of all views, it comes last to be retired.
static inline void tide__view_list_use(tide_device_cache* device, tide__view* view) {
  tide__list_unlink(&view->order);
  tide__list_append(&device->views, &view->order);
}
// Removes a view, and puts it among the retired ones of its lane.
void tide__view_list_retire(tide__segment* segment);
// The handle `index` of a view has a place in it from now on; and no more.
void tide__view_place_add(tide__view* view, size_t index);
void tide__view_place_remove(const tide__view* view, size_t index);

// More memory of a handle is idle than before: the views of it may have longer runs.
void tide__view_places_grow(const tide__handle* handle);
// Makes the entries of a lane know of that.
void tide__view_list_settle(tide__lane* lane);

#endif
