// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gives small handles back, so that larger ones can take their place: a view of few handles costs little.
// Only handles go that are wholly idle and that no work uses any more, so nobody waits. The caller has the
// gate.
#include "device/tide/pieces.h"

// What is looked for, and found.
typedef struct recasting {
  tide__gathering own;
  uint64_t least;  // handles below this size go
} recasting;

static const tide__survey* survey_of(const recasting* r) { return &r->own.request->device->survey; }

static bool handle_may_go_locked(const recasting* r, tide__handle* handle) {
  return handle->bytes < r->least && tide__handle_is_whole_locked(&r->own, handle);
}

static bool handle_goes_locked(const recasting* r, tide__handle* handle) {
  return handle_may_go_locked(r, handle) && tide__handle_is_over(r->own.request->device, handle);
}

// How far handles go that follow each other in a hole, up to `bytes`. The survey has them by address.
static uint64_t stretch_end_locked(const recasting* r, tide__handle* first, const tide__block* hole,
                                   uint64_t bytes) {
  uint64_t to = first->address;
  for (tide__handle* it = first; it != NULL && to - first->address < bytes; it = it->next_idle) {
    if (it->address != to || tide__handle_end(it) > tide__block_end(hole)) break;
    if (!handle_goes_locked(r, it)) break;
    to = tide__handle_end(it);
  }
  return to;
}

// Takes them, BUSY; NULL: there are none.
static tide__block* stretch_take_locked(recasting* r, uint64_t bytes) {
  tide__handle* first = survey_of(r)->first;
  while (first != NULL && !handle_goes_locked(r, first)) first = first->next_idle;
  if (first == NULL) return NULL;
  const uint64_t from = first->address;
  tide__block* const block = first->prefix_hole;
  const uint64_t to = stretch_end_locked(r, first, block, bytes);
  tide__lane* const lane = first->home->lane;
  tide__lane_supply_locked(&r->own, lane);
  tide__free_index_take_locked(block);
  if (from > block->address) {
    tide__free_index_put_locked(tide__block_cut_front_locked(lane, block, from - block->address), true);
  }
  if (to < tide__block_end(block)) {
    tide__free_index_put_locked(tide__block_cut_back_locked(lane, block, tide__block_end(block) - to), true);
  }
  return block;
}

static tide__block* stretch_take(recasting* r, uint64_t bytes) {
  tide__homes_lock(r->own.request);
  tide__survey_list_locked(&r->own);
  tide__block* const block = stretch_take_locked(r, bytes);
  tide__homes_unlock(r->own.request);
  return block;
}

static tide_status recast_some(recasting* r, uint64_t bytes) {
  while (bytes > 0) {
    TIDE_TRY(tide__spares_get(&r->own, tide__spares_for(1)));
    tide__block* const block = stretch_take(r, bytes);
    TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "other threads took what was idle");
    bytes -= tide__min(bytes, block->bytes);
    TIDE_TRY(tide__home_give_unused(r->own.request->device, block, &r->own.request->context));
  }
  return TIDE_OK;
}

// How many bytes of handles are small and wholly idle, and how many of these no work uses any more.
typedef struct supply {
  uint64_t idle;
  uint64_t over;
} supply;

static supply supply_of(const recasting* r) {
  supply found = { 0, 0 };
  tide__homes_lock(r->own.request);
  tide__survey_list_locked(&r->own);
  for (tide__handle* it = survey_of(r)->first; it != NULL; it = it->next_idle) {
    if (!handle_may_go_locked(r, it)) continue;
    found.idle += it->bytes;
    if (tide__handle_is_over(r->own.request->device, it)) found.over += it->bytes;
  }
  tide__homes_unlock(r->own.request);
  return found;
}

// A later mark of a stream says that handles are over if they know when they were used last.
enum { NOTED_RELEASES = 4096 };

static void lane_set_notes(tide__lane* lane, uint32_t count) {
  tide__mutex_lock(&lane->lock);
  lane->notes_left = count;
  tide__mutex_unlock(&lane->lock);
}

// With one stream, releases make no marks. Where they would help, the request makes one for all before it. If
// that has not passed yet, it helps a later request, and handles note their uses until then.
static bool is_enough(const recasting* r, uint64_t bytes) {
  tide_device_cache* const device = r->own.request->device;
  tide__lane* const lane = r->own.request->lane;
  const supply found = supply_of(r);
  if (found.idle < bytes) lane_set_notes(lane, 0);
  if (found.idle < bytes || found.over >= bytes) return found.over >= bytes;
  if (!tide__marks_mark_late(device, lane)) return false;
  (void)tide__marks_poll(device, lane);
  if (supply_of(r).over >= bytes) return true;
  lane_set_notes(lane, NOTED_RELEASES);
  return false;
}

// What fails is tried again with the next request.
bool tide__recast(const tide__request* request, uint64_t least, uint64_t bytes) {
  tide_device_cache* const device = request->device;
  recasting r = { .own = { .request = request, .takes_all = true }, .least = least };
  if (tide__pool_is_arriving(device, request->pool) || !is_enough(&r, bytes)) return false;
  const tide_error before = *tide_last_error();
  const bool is_given = recast_some(&r, bytes) == TIDE_OK;
  if (!is_given) tide__error_restore(&before);
  tide__spares_give(&r.own);
  return is_given;
}
