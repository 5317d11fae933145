// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The end of views: what is unmapped when a handle goes, when memory is given back, and when there are too
// many. A view that serves no more may still be used by work that was queued: it is retired, and unmapped
// when a mark behind that work has passed, about as many handles at a time as the stitch before had mapped,
// so that no request pays for more than its own. The gate is the caller's.
#include "device/tide/tide.h"
#include "device/tide/view_list.h"

// Of views that are kept: how many, and how many times the bytes that are reserved.
enum { VIEWS_MOST = 4096, VIEW_BYTES_MOST = 8 };

// ---------------------------------------------------------------------------------------------------
// Giving views back

void tide__view_free(tide_device_cache* device, tide__view* view) {
  if (view == NULL) return;
  tide__heap_release(device->heap, view->handles, view->count, sizeof *view->handles);
  tide__heap_release(device->heap, view->offsets, view->count, sizeof *view->offsets);
  tide__heap_release(device->heap, view->places, view->count, sizeof *view->places);
  tide__heap_release(device->heap, view, 1, sizeof *view);
}

// The view of a lane that comes after `segment` (NULL: the first); NULL at the end.
static tide__segment* view_next(tide__lane* lane, const tide__segment* segment) {
  tide__link* link = segment != NULL ? segment->link.next : lane->segments.next;
  while (link != &lane->segments && TIDE_OWNER(link, tide__segment, link)->view == NULL) link = link->next;
  return link != &lane->segments ? TIDE_OWNER(link, tide__segment, link) : NULL;
}

static tide_status view_unmap_handle(tide_device_cache* device, tide__segment* segment, size_t index) {
  tide__view* const view = segment->view;
  tide__handle* const handle = view->handles[index];
  TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(segment->address + view->offsets[index]),
                              handle->bytes));
  tide__view_place_remove(view, index);
  view->handles[index] = NULL;
  view->is_broken = true;
  tide__view_list_remove(segment);
  return TIDE_OK;
}

tide_status tide__views_drop_handle(tide_device_cache* device, tide__handle* handle) {
  while (handle->places != NULL) {
    const tide__view_place* const place = handle->places;
    TIDE_TRY(view_unmap_handle(device, place->view->segment, (size_t)(place - place->view->places)));
  }
  return TIDE_OK;
}

static void view_discount(tide_device_cache* device, const tide__segment* segment) {
  device->view_bytes -= segment->bytes;
  device->view_count--;
  segment->lane->view_count--;
}

tide_status tide__view_drop(tide_device_cache* device, tide__segment* segment) {
  tide__lane* const lane = segment->lane;
  tide__view* const view = segment->view;
  for (size_t i = 0; i < view->count; i++) {
    if (view->handles[i] != NULL) TIDE_TRY(view_unmap_handle(device, segment, i));
  }
  tide__mutex_lock(&lane->lock);
  tide__segment_unlink_locked(segment);
  tide__mutex_unlock(&lane->lock);
  tide__list_unlink(&view->order);
  tide__addresses_give(device, view->addresses);
  if (view->is_retired) device->retired_count--;
  else view_discount(device, segment);
  tide__view_free(device, view);
  tide__segment_free(device, segment);
  return TIDE_OK;
}

static bool view_is_idle(const tide__segment* segment) {
  tide__mutex_lock(&segment->lane->lock);
  const bool is_idle = segment->view->live == 0;
  tide__mutex_unlock(&segment->lane->lock);
  return is_idle;
}

// Do observers know that no block is in a view any more? Until then it is not unmapped.
static bool view_is_told(tide_device_cache* device, const tide__segment* segment) {
  tide__mutex_lock(&segment->lane->lock);
  const uint64_t turns = segment->view->turns;
  tide__mutex_unlock(&segment->lane->lock);
  return turns == 0 || tide__history_has_told(&device->history, turns);
}

tide_status tide__views_trim(tide_device_cache* device, tide__pool* pool) {
  const bool has_views = device->view_count + device->retired_count > 0;
  tide__lane* lane = has_views ? tide__lane_next(device, pool, NULL) : NULL;
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__segment* next = NULL;
    for (tide__segment* segment = view_next(lane, NULL); segment != NULL; segment = next) {
      next = view_next(lane, segment);
      if (!view_is_idle(segment) || !view_is_told(device, segment)) continue;
      TIDE_TRY(tide__lane_quiesce(device, lane, true));
      TIDE_TRY(tide__view_drop(device, segment));
    }
  }
  tide__addresses_trim(device);
  return TIDE_OK;
}

void tide__view_destroy(tide_device_cache* device, tide__segment* segment) {
  const tide__view* const view = segment->view;
  for (size_t i = 0; i < view->count; i++) {
    if (view->handles[i] == NULL) continue;
    void* const address = tide__pointer(segment->address + view->offsets[i]);
    tide__ignore(tide_machine_unmap(device->machine, address, view->handles[i]->bytes));
  }
  tide__addresses_give(device, view->addresses);
  tide__view_free(device, segment->view);
}

tide_status tide__view_add_peer(tide_device_cache* device, const tide__segment* segment, int peer) {
  const tide__view* const view = segment->view;
  for (size_t i = 0; i < view->count; i++) {
    if (view->handles[i] == NULL) continue;
    TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(segment->address + view->offsets[i]),
                                     view->handles[i]->bytes, peer, TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Too many views

static bool views_are_many(tide_device_cache* device) {
  return device->view_count > VIEWS_MOST ||
         device->view_bytes / VIEW_BYTES_MOST > tide__load_relaxed(&device->reserved_bytes);
}

// The view that was not used for longest, of those that no block is in.
static tide__segment* view_oldest(tide_device_cache* device) {
  TIDE_LIST_EACH(it, &device->views) {
    tide__segment* const segment = TIDE_OWNER(it, tide__view, order)->segment;
    if (view_is_idle(segment)) return segment;
  }
  return NULL;
}

// A view that serves no more. Work that was queued may still use it.
static void view_retire(tide_device_cache* device, tide__segment* segment) {
  segment->view->is_retired = segment->view->is_broken = true;
  tide__view_list_retire(segment);
  view_discount(device, segment);
  device->retired_count++;
}

static bool view_is_over(const tide__segment* segment) {
  tide__mutex_lock(&segment->lane->lock);
  const uint64_t last_use = segment->view->last_use;
  tide__mutex_unlock(&segment->lane->lock);
  return tide__stamp_has_passed(segment->lane, last_use);
}

// Unmaps retired views whose work is done, of about so many handles.
static tide_status views_unmap_retired(tide_device_cache* device, tide__pool* pool, size_t most) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL && most > 0; lane = tide__lane_next(device, pool, lane)) {
    tide__link* next = NULL;
    for (tide__link* it = lane->retired.next; it != &lane->retired && most > 0; it = next) {
      tide__segment* const segment = TIDE_OWNER(it, tide__view, order)->segment;
      const size_t count = segment->view->count;
      next = it->next;
      if (!view_is_over(segment) || !view_is_told(device, segment)) continue;
      TIDE_TRY(tide__view_drop(device, segment));
      most -= tide__min(most, count);
    }
  }
  return TIDE_OK;
}

// What fails is tried again with the next.
void tide__views_keep_few(tide_device_cache* device, tide__lane* lane, size_t mapped) {
  const tide_error before = *tide_last_error();
  while (views_are_many(device)) {
    tide__segment* const oldest = view_oldest(device);
    if (oldest == NULL) break;
    view_retire(device, oldest);
  }
  if (device->retired_count > 0) {
    (void)tide__marks_mark_late(device, lane);
    (void)tide__marks_poll(device, lane);
    tide__ignore(views_unmap_retired(device, lane->pool, tide__max(mapped, 64)));
  }
  tide__error_restore(&before);
}
