// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gathers idle memory of homes for a block in a view. Choosing and taking pieces happens with all lanes
// locked that have homes in the pool. Only the thread that has the gate takes more than one such lock, and
// nobody waits for the gate with one held.
#include "device/tide/pieces.h"

// ---------------------------------------------------------------------------------------------------
// Locking

TIDE_UNCHECKED_LOCKING void tide__homes_lock(const tide__request* request) {
  tide__mutex_lock(&request->lane->lock);
  request->lane->is_held = true;
  TIDE__HOMES_EACH(it, request) {
    tide__lane* const lane = TIDE_OWNER(it, tide__home, link)->segment->lane;
    if (lane->is_held) continue;
    tide__mutex_lock_many(&lane->lock);
    lane->is_held = true;
  }
}

TIDE_UNCHECKED_LOCKING void tide__homes_unlock(const tide__request* request) {
  TIDE__HOMES_EACH(it, request) {
    tide__lane* const lane = TIDE_OWNER(it, tide__home, link)->segment->lane;
    if (!lane->is_held || lane == request->lane) continue;
    lane->is_held = false;
    tide__mutex_unlock_many(&lane->lock);
  }
  request->lane->is_held = false;
  tide__mutex_unlock(&request->lane->lock);
}

// Is it known without a look at its users that a lane may use all of a handle at once?
static bool handle_is_plain_locked(const tide__handle* handle, const tide__lane* lane) {
  return handle->home->lane == lane && !handle->is_odd && handle->crowd == 0;
}

// Is a range of a handle of use to the request, and does its stream have to wait for it?
static bool range_is_usable_locked(const tide__gathering* g, const tide__handle* handle, uint64_t from,
                                   uint64_t to, bool* out_waits) {
  *out_waits = false;
  if (g->takes_all || handle_is_plain_locked(handle, g->request->lane)) return true;
  const tide__readiness readiness =
      tide__handle_readiness(g->request->device, handle, from, to, g->request->lane);
  *out_waits = readiness == TIDE__READY_AFTER_WAIT;
  return readiness == TIDE__READY || (*out_waits && g->can_wait);
}

// What other lanes may still use and cannot be waited for counts as in use. So does what another process can
// see: it serves its own stream only.
void tide__handle_survey_locked(const tide__gathering* g, tide__handle* handle) {
  const uint64_t bytes = handle->bytes;
  handle->survey = g->request->device->survey.number;
  handle->prefix = handle->is_shared ? 0 : handle->idle_prefix;
  handle->suffix = handle->is_shared ? 0 : handle->idle_suffix;
  handle->prefix_waits = handle->suffix_waits = false;
  if (handle_is_plain_locked(handle, g->request->lane)) return;
  if (handle->prefix != 0 && !range_is_usable_locked(g, handle, 0, handle->prefix, &handle->prefix_waits)) {
    handle->prefix = 0;
  }
  if (handle->idle_prefix == bytes) {
    handle->suffix = handle->prefix;
    handle->suffix_waits = handle->prefix_waits;
  } else if (handle->suffix != 0 &&
             !range_is_usable_locked(g, handle, bytes - handle->suffix, bytes, &handle->suffix_waits)) {
    handle->suffix = 0;
  }
}

bool tide__inner_is_usable_locked(const tide__gathering* g, const tide__handle* handle) {
  const uint64_t from = handle->inner_hole->address - handle->address;
  bool waits = false;
  return !handle->is_shared && range_is_usable_locked(g, handle, from, from + handle->idle_inner, &waits);
}

// Every block that becomes idle, or is idle no more, is counted by its lane.
static uint64_t changes_locked(const tide__request* request) {
  uint64_t changes = 0;
  TIDE__HOMES_EACH(it, request) {
    const tide__lane* const lane = TIDE_OWNER(it, tide__home, link)->segment->lane;
    changes += lane->puts + lane->takes;
  }
  return changes;
}

void tide__survey_locked(const tide__gathering* g) {
  tide__survey* const survey = &g->request->device->survey;
  const uint64_t changes = changes_locked(g->request);
  if (g->look != 0 && survey->look == g->look && survey->changes == changes) return;
  *survey = (tide__survey){ .number = survey->number + 1, .look = g->look, .changes = changes };
  TIDE__HOMES_EACH(it, g->request) { tide__home_survey_locked(TIDE_OWNER(it, tide__home, link)->segment); }
}

// Adds the handles of a home to a list; returns where the next one goes.
static tide__handle** home_list_locked(const tide__gathering* g, const tide__home* home, tide__handle** end) {
  for (size_t i = tide__home_next_idle(home, 0); i < home->count; i = tide__home_next_idle(home, i + 1)) {
    tide__handle* const handle = tide__handle_look_locked(g, home->handles[i]);
    if (handle->prefix == 0 && handle->suffix == 0) continue;
    *end = handle;
    end = &handle->next_idle;
    g->request->device->survey.count++;
  }
  return end;
}

void tide__survey_list_locked(const tide__gathering* g) {
  tide__survey* const survey = &g->request->device->survey;
  tide__handle** end = &survey->first;
  tide__survey_locked(g);
  if (survey->is_listed) return;
  survey->is_listed = true;
  TIDE__HOMES_EACH(it, g->request) { end = home_list_locked(g, TIDE_OWNER(it, tide__home, link), end); }
  *end = NULL;
}

// ---------------------------------------------------------------------------------------------------
// Records

static void spares_push(tide__spares* spares, tide__block* block) {
  block->heap_next = spares->first;
  spares->first = block;
  spares->count++;
}

static tide__block* spares_pop(tide__spares* spares) {
  tide__block* const block = spares->first;
  TIDE_ASSERT(block != NULL);
  spares->first = block->heap_next;
  spares->count--;
  return block;
}

// One list is nearly always empty; then no record is touched.
static void spares_move(tide__spares* from, tide__spares* to) {
  if (to->count == 0) {
    *to = *from;
    *from = (tide__spares){ NULL, 0 };
  }
  while (from->count > 0) spares_push(to, spares_pop(from));
}

void tide__spares_give(tide__gathering* g) { spares_move(&g->spares, &g->request->device->spares); }

tide_status tide__spares_get(tide__gathering* g, size_t count) {
  if (g->spares.count < count) spares_move(&g->request->device->spares, &g->spares);
  while (g->spares.count < count) {
    tide__block* const block = tide__slots_take(&g->request->device->blocks);
    TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu blocks", count);
    spares_push(&g->spares, block);
  }
  return TIDE_OK;
}

void tide__lane_supply_locked(tide__gathering* g, tide__lane* lane) {
  while (lane->spares == NULL || lane->spares->heap_next == NULL)
    tide__lane_give_spare_locked(lane, spares_pop(&g->spares));
}

// ---------------------------------------------------------------------------------------------------
// Pieces

void tide__piece_add(tide__gathering* g, tide__block* block) {
  block->heap_next = NULL;
  if (g->pieces == NULL) g->last_piece = &g->pieces;
  *g->last_piece = block;
  g->last_piece = &block->heap_next;
}

// Takes a range of a home that is idle; false if it is not any more. An idle block may have been cut since
// the survey, but its record is still near.
static bool piece_take_locked(tide__gathering* g, const tide__handle* handle, uint64_t address,
                              uint64_t bytes) {
  tide__lane* const lane = handle->home->lane;
  const bool is_in_prefix = address < handle->address + handle->idle_prefix;
  const bool is_in_suffix = address >= tide__handle_end(handle) - handle->idle_suffix;
  tide__block* const end = is_in_prefix ? handle->prefix_hole : handle->suffix_hole;
  tide__block* const hole = is_in_prefix || is_in_suffix ? end : handle->inner_hole;
  if (hole == NULL) return false;
  tide__block* const block = tide__chain_find(hole, address);
  if (block->state != TIDE__BLOCK_FREE || tide__block_end(block) < address + bytes) return false;
  tide__lane_supply_locked(g, lane);
  tide__free_index_take_locked(block);
  if (address > block->address) {
    tide__free_index_put_locked(tide__block_cut_front_locked(lane, block, address - block->address), true);
  }
  if (bytes < block->bytes) {
    tide__free_index_put_locked(tide__block_cut_back_locked(lane, block, block->bytes - bytes), true);
  }
  block->state = TIDE__BLOCK_LENT;
  tide__piece_add(g, block);
  return true;
}

// How many handles follow each other at home from the first on, as far as `bytes` from `start` reach, and how
// many bytes of them that is.
static size_t stretch_measure(tide__handle* const* handles, size_t count, uint64_t start, uint64_t bytes,
                              uint64_t* out_bytes) {
  uint64_t covered = tide__min(bytes, handles[0]->bytes - start);
  size_t i = 1;
  for (; i < count && covered < bytes; i++) {
    const tide__handle* const before = handles[i - 1];
    if (handles[i]->home != before->home || handles[i]->address != before->address + before->bytes) break;
    covered += tide__min(bytes - covered, handles[i]->bytes);
  }
  *out_bytes = covered;
  return i;
}

// Asks for the waits that a range of handles takes; false if it cannot be used yet.
static bool stretch_want_locked(const tide__gathering* g, tide__handle* const* handles, size_t count,
                                uint64_t start, uint64_t bytes) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t to = tide__min(handles[i]->bytes, start + bytes);
    bool waits = false;
    if (!range_is_usable_locked(g, handles[i], start, to, &waits)) return false;
    if (!g->takes_all) tide__handle_want_locked(handles[i], start, to, g->request->lane);
    bytes -= to - start;
    start = 0;
  }
  return true;
}

bool tide__pieces_take_locked(tide__gathering* g, tide__handle* const* handles, size_t count, uint64_t start,
                              uint64_t bytes) {
  while (bytes > 0) {
    uint64_t own = 0;
    const size_t stretch = stretch_measure(handles, count, start, bytes, &own);
    if (!stretch_want_locked(g, handles, stretch, start, own)) return false;
    if (!piece_take_locked(g, handles[0], handles[0]->address + start, own)) return false;
    handles += stretch;
    count -= stretch;
    bytes -= own;
    start = 0;
  }
  return true;
}

void tide__pieces_settle(const tide__gathering* g, const tide__block* pieces) {
  tide__lane* const lane = g->request->lane;
  tide__mutex_lock(&lane->lock);
  for (const tide__block* piece = pieces; piece != NULL; piece = piece->heap_next) {
    if (piece->segment->lane != lane) continue;
    tide__home_note_locked(g->request->device, piece->segment->home, piece->address, piece->bytes);
  }
  tide__mutex_unlock(&lane->lock);
}

void tide__pieces_give_up(tide__gathering* g) {
  tide__block* const pieces = g->pieces;
  g->pieces = NULL;
  tide__marks_forget_wanted(g->request->device, g->request->lane);
  tide__pieces_give(g->request->device, pieces, NULL);
}
