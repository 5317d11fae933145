// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The views of a lane that serve requests, in the order they were made; and for each handle, its places in
// views. Of most views, a search reads four bytes: how much idle memory there is in one piece at most. The
// caller has the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_VIEW_LIST_H
#define TIDEMARK_SRC_DEVICE_TIDE_VIEW_LIST_H

#include "device/tide/tide.h"

// From 1 TiB on, a bound says nothing.
#define TIDE__VIEW_UNBOUNDED INT32_MAX

// Converts a bound of idle memory to units of TIDE__GRAIN, rounded up, and back; and what a request needs,
// rounded down.
static inline int32_t tide__view_bound_of(uint64_t bytes) {
  return (int32_t)tide__min((bytes + TIDE__GRAIN - 1) / TIDE__GRAIN, TIDE__VIEW_UNBOUNDED);
}
static inline int32_t tide__view_need_of(uint64_t bytes) {
  return (int32_t)tide__min(bytes / TIDE__GRAIN, TIDE__VIEW_UNBOUNDED);
}
static inline uint64_t tide__view_bound_bytes(int32_t bound) { return (uint64_t)bound * TIDE__GRAIN; }
// The first entry from `index` on with a bound of at least `need`, which is above 0; or the count.
size_t tide__view_list_next(const tide__view_list* list, size_t index, int32_t need);

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

// Raises the bounds of the views of a handle. A survey has just found more idle memory in it: up to so many
// bytes more at each end, or a larger hole inside.
void tide__view_places_grow(const tide__handle* handle, uint64_t more);

#endif
