// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Views that are made before a request needs them. They are the views of a memo, and each is made as soon as
// all its handles are there. They cost addresses and time of the helper, and no memory.
//
// A request decides as if these views were not there. To make a view, it chooses the handles. If a view of
// exactly these handles was made ahead, the request takes that view instead of mapping its own. So the memo
// of another program, or a forged one, changes no decision. A program that repeats what the last run did
// finds all its views.
//
// A view that was made ahead belongs to its lane like any other, and is the first to be retired. The helper
// maps one handle at a time. Until all handles are mapped, the view is broken, and the handles that are not
// mapped yet are NULL in it. If one of its handles is given back meanwhile, the view stays broken, and is
// dropped after its last handle. The caller has the gate.
#include <string.h>

#include "device/tide/memo.h"
#include "device/tide/view.h"
#include "device/tide/view_list.h"

// ---------------------------------------------------------------------------------------------------
// Beginning

// What is known about a view of a memo.
typedef struct outlook {
  bool is_possible;  // all its handles are there
  bool is_over;      // it will never be
  size_t count;      // of handles
  uint64_t bytes;
} outlook;

// Stores the handles of a view, if `out` is not NULL.
static outlook view_look(tide_device_cache* device, const tide__memo* memo, const tide__memo_view* view,
                         tide__handle** out, size_t capacity) {
  outlook o = { .is_possible = tide__memo_lane(device, view->number) != NULL };
  for (size_t i = view->part; i < view->part + view->part_count && o.is_possible; i++) {
    tide__handle** const place = out != NULL ? &out[o.count] : NULL;
    const size_t left = out != NULL ? capacity - o.count : 0;
    const size_t count = tide__memo_part_handles(device, &memo->parts[i], place, left, &o.is_over);
    o.is_possible = count > 0;
    o.count += count;
    o.bytes += memo->parts[i].bytes;
  }
  o.is_over |= o.bytes > tide__load_relaxed(&device->reserved_bytes);
  return o;
}

// Makes the records of a view, of which nothing is mapped. They are the caller's on failure.
static tide_status view_prepare(tide_device_cache* device, const tide__memo* memo,
                                const tide__memo_view* from, const outlook* o, tide__segment** out) {
  tide__lane* const lane = tide__memo_lane(device, from->number);
  tide__addresses* addresses = NULL;
  TIDE_TRY(tide__view_record(device, lane, o->count, out));
  tide__view* const view = (*out)->view;
  (void)view_look(device, memo, from, view->handles, o->count);
  for (size_t i = 1; i < o->count; i++) view->offsets[i] = view->offsets[i - 1] + view->handles[i - 1]->bytes;
  memset(view->handles, 0, o->count * sizeof *view->handles);
  view->is_broken = view->is_ahead = true;
  TIDE_TRY(tide__addresses_take(device, o->bytes, &addresses));
  const tide_status status = tide__map_cover(&device->map, addresses->node.tie, o->bytes, false);
  if (status != TIDE_OK || !tide__lane_lock_with_spares(device, lane)) {
    tide__addresses_give(device, addresses);
    return TIDE_ERR_NO_MEMORY;
  }
  tide__view_link_locked(device, *out, addresses, o->bytes);
  tide__list_append(device->views.next, &view->order);  // before all others
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

// Begins with the next view of the memo. False if its handles are not all there yet, or if there is none.
static bool view_begin(tide_device_cache* device, tide__memo* memo) {
  tide__ahead_memory* const ahead = &device->ahead;
  while (memo->next_view < memo->view_count && !tide__views_are_many(device)) {
    tide__segment* segment = NULL;
    const tide__memo_view* const view = &memo->views[memo->next_view];
    const outlook o = view_look(device, memo, view, NULL, 0);
    if (!o.is_over && !o.is_possible) return false;
    memo->next_view++;
    if (o.is_over) continue;
    if (view_prepare(device, memo, view, &o, &segment) != TIDE_OK) {
      tide__view_record_free(device, segment);
      return false;
    }
    ahead->view = segment;
    ahead->view_filled = 0;
    ahead->view_count++;
    return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Going on

// The handle for an offset in the view that is being made, which has so many bytes; NULL: it is gone.
static tide__handle* view_handle_at(tide_device_cache* device, const tide__memo* memo, uint64_t offset,
                                    uint64_t bytes) {
  const tide__memo_part* part = &memo->parts[memo->views[memo->next_view - 1].part];
  tide__handle* handle = NULL;
  bool differs = false;
  for (; offset >= part->bytes; part++) offset -= part->bytes;
  const tide__memo_part wanted = { part->number, part->offset + offset, bytes };
  return tide__memo_part_handles(device, &wanted, &handle, 1, &differs) == 1 ? handle : NULL;
}

static tide_status view_map_handle(tide_device_cache* device, uint64_t address, tide__handle* handle) {
  tide__mapping* mapping = NULL;
  TIDE_TRY(tide__mapping_new(device, address, handle->bytes, 0, &mapping));
  const tide_status status = tide__handles_map(device, mapping, &handle, 1);
  if (status != TIDE_OK) (void)tide__mapping_end(device, mapping);
  return status;
}

static bool view_map_next(tide_device_cache* device, const tide__memo* memo) {
  tide__ahead_memory* const ahead = &device->ahead;
  const tide__segment* const segment = ahead->view;
  tide__view* const view = segment->view;
  const size_t i = ahead->view_filled;
  const uint64_t end = i + 1 < view->count ? view->offsets[i + 1] : segment->bytes;
  tide__handle* const handle = view_handle_at(device, memo, view->offsets[i], end - view->offsets[i]);
  if (view->is_retired || handle == NULL) return false;
  if (view_map_handle(device, segment->address + view->offsets[i], handle) != TIDE_OK) return false;
  view->handles[i] = handle;
  tide__view_place_add(view, i);
  ahead->view_filled++;
  return true;
}

// All its handles were mapped. Are all of them still there?
static bool view_complete(tide_device_cache* device) {
  const tide__segment* const segment = device->ahead.view;
  tide__view* const view = segment->view;
  for (size_t i = 0; i < view->count; i++) {
    if (view->handles[i] == NULL) return false;
  }
  view->middle = view->handles[tide__view_index(view, 0, segment->bytes / 2)];
  view->is_broken = false;
  device->ahead.view = NULL;
  return true;
}

bool tide__view_ahead_step(tide_device_cache* device) {
  tide__ahead_memory* const ahead = &device->ahead;
  if (ahead->view == NULL && !view_begin(device, ahead->memo)) return false;
  bool is_good = view_map_next(device, ahead->memo);
  if (is_good && ahead->view_filled == ahead->view->view->count) is_good = view_complete(device);
  if (!is_good) tide__view_ahead_end(device);
  return true;
}
