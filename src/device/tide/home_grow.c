// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How homes grow, and how idle memory of a home is made ready for a request: mapped at home, and waited for
// where another stream used it last. The caller has the gate.
#include "device/tide/growth.h"
#include "device/tide/home.h"

// How soon the lane of a home may use a range of it.
static tide__readiness range_readiness_locked(tide_device_cache* device, const tide__home* home,
                                              uint64_t address, uint64_t bytes) {
  tide__readiness worst = TIDE__READY;
  TIDE__HANDLES_EACH(i, home, address, address + bytes) {
    const tide__handle* const handle = home->handles[i];
    const tide__readiness readiness =
        tide__handle_readiness(device, handle, tide__handle_from(handle, address),
                               tide__handle_to(handle, address + bytes), home->segment->lane);
    if (readiness > worst) worst = readiness;
  }
  return worst;
}

static bool can_be_used(tide__readiness readiness, bool can_wait) {
  return readiness == TIDE__READY || (readiness == TIDE__READY_AFTER_WAIT && can_wait);
}

// ---------------------------------------------------------------------------------------------------
// Growing

// What lies before the top of a home and is idle, if its lane can use it; or NULL.
static tide__block* top_hole_locked(tide_device_cache* device, const tide__home* home, bool can_wait) {
  tide__block* const hole = home->top->prev;
  if (hole == NULL || hole->state != TIDE__BLOCK_FREE) return NULL;
  return can_be_used(range_readiness_locked(device, home, hole->address, hole->bytes), can_wait) ? hole
                                                                                                 : NULL;
}

tide_status tide__home_fill(tide_device_cache* device, tide__segment* segment, uint64_t address,
                            uint64_t bytes, tide__handle_sizes sizes) {
  const size_t count = tide__handles_for(bytes, sizes);
  tide__handle** handles = NULL;
  tide__mapping* mapping = NULL;
  TIDE_TRY(tide__map_cover(&device->map, address, bytes, segment->is_small));
  TIDE_TRY(tide__home_make_room(device, segment, count));
  TIDE_TRY(tide__mapping_new(device, address, bytes, count, &mapping));
  tide_status status = tide__handles_make(device, mapping, bytes, sizes, &handles);
  if (status == TIDE_OK) status = tide__handles_map(device, mapping, handles, count);
  if (status != TIDE_OK) {
    (void)tide__mapping_end(device, mapping);
    tide__handles_free(device, handles, count);
    return status;
  }
  tide__mutex_lock(&segment->lane->lock);
  tide__home_add_handles_locked(device, segment, handles, count, address, true);
  tide__mutex_unlock(&segment->lane->lock);
  tide__heap_release(device->heap, handles, count, sizeof *handles);
  return TIDE_OK;
}

// What is taken to grow, each if there is one: the idle block before the top, and a part of the top.
typedef struct growing {
  tide__block* hole;
  tide__block* fresh;
} growing;

// How much memory a request needs after a hole; NULL: there is none.
static uint64_t missing_bytes(const tide__request* request, const tide__growth* growth,
                              const tide__block* hole) {
  const uint64_t idle = hole != NULL ? hole->bytes : 0;
  return idle < request->rounded ? tide__round_up(request->rounded - idle, growth->unit) : 0;
}

// False if it would take more than `most` bytes; without a part of the top if the hole is enough.
static bool grow_begin_locked(const tide__request* request, tide__segment* segment,
                              const tide__growth* growth, uint64_t most, growing* out) {
  out->hole = top_hole_locked(request->device, segment->home, growth->can_wait);
  out->fresh = NULL;
  const uint64_t missing = missing_bytes(request, growth, out->hole);
  if (missing > most || missing > segment->home->top->bytes) return false;
  if (out->hole != NULL) tide__free_index_take_locked(out->hole);
  if (missing > 0) out->fresh = tide__home_cut_top_locked(segment, missing);
  return true;
}

uint64_t tide__home_missing(const tide__request* request, const tide__growth* growth) {
  const tide__segment* const segment = request->lane->homes[request->kind];
  const tide__block* hole = NULL;
  tide__mutex_lock(&request->lane->lock);
  if (segment != NULL && segment->home->top != NULL)
    hole = top_hole_locked(request->device, segment->home, growth->can_wait);
  const uint64_t missing = missing_bytes(request, growth, hole);
  tide__mutex_unlock(&request->lane->lock);
  return missing;
}

static void grow_give_up(tide__segment* segment, const growing* g) {
  tide__mutex_lock(&segment->lane->lock);
  if (g->fresh != NULL) tide__home_uncut_top_locked(segment, g->fresh);
  if (g->hole != NULL) tide__block_return_locked(g->hole, false);
  tide__mutex_unlock(&segment->lane->lock);
}

static tide__block* grow_join_locked(tide__lane* lane, const growing* g) {
  if (g->fresh == NULL) return g->hole;
  if (g->hole != NULL) tide__block_absorb_prev_locked(lane, g->fresh);
  return g->fresh;
}

static tide_status home_grow(const tide__request* request, const tide__growth* growth, uint64_t most,
                             tide__block** out) {
  tide_device_cache* const device = request->device;
  tide__segment* segment = NULL;
  growing g = { NULL, NULL };
  TIDE_TRY(tide__home_with_room(request, tide__round_up(request->rounded, growth->unit), &segment));
  if (!tide__lane_lock_with_spares(device, request->lane)) return TIDE_ERR_NO_MEMORY;
  const bool has_begun = grow_begin_locked(request, segment, growth, most, &g);
  tide__mutex_unlock(&request->lane->lock);
  if (!has_begun) return TIDE_OK;
  const uint64_t address = g.fresh != NULL ? g.fresh->address : 0;
  const uint64_t bytes = g.fresh != NULL ? g.fresh->bytes : 0;
  const tide_status status = bytes > 0 ? tide__home_fill(device, segment, address, bytes, growth->handles)
                                       : TIDE_OK;
  if (status != TIDE_OK) {
    grow_give_up(segment, &g);
    return status;
  }
  tide__mutex_lock(&request->lane->lock);
  *out = grow_join_locked(request->lane, &g);
  tide__mutex_unlock(&request->lane->lock);
  if (bytes > 0) tide__mapped_tell(request, address, bytes);
  return TIDE_OK;
}

// Where there is no memory for large handles in a hurry, there may be enough for the request alone.
tide_status tide__home_grow(const tide__request* request, const tide__growth* growth, uint64_t most,
                            tide__block** out) {
  tide__growth exact = *growth;
  exact.unit = tide__request_unit(request);
  const tide_status status = home_grow(request, growth, most, out);
  if (status != TIDE_ERR_NO_MEMORY || growth->unit == exact.unit) return status;
  return home_grow(request, &exact, most, out);
}

// ---------------------------------------------------------------------------------------------------
// Reserving

enum { RESERVE_HANDLES = 8 };  // that are made in one turn at the gate

// How much is reserved in this turn; 0: a limit or a budget allows no more.
static uint64_t reserve_bytes(const tide__request* request, uint64_t handle_bytes) {
  const uint64_t unit = tide__home_unit(request->device);
  const uint64_t allowed = tide__growth_limit(request) / unit * unit;
  const uint64_t wanted = tide__round_up(request->rounded, unit);
  return tide__min(allowed, tide__min(wanted, RESERVE_HANDLES * handle_bytes));
}

// Makes and maps handles at the top of a home, which become idle.
static tide_status top_fill(const tide__request* request, tide__segment* segment, uint64_t bytes,
                            uint64_t handle_bytes) {
  tide_device_cache* const device = request->device;
  if (!tide__lane_lock_with_spares(device, request->lane)) return TIDE_ERR_NO_MEMORY;
  tide__block* const block = tide__home_cut_top_locked(segment, bytes);
  tide__mutex_unlock(&request->lane->lock);
  const uint64_t address = block->address;
  const tide_status status = tide__home_fill(device, segment, address, bytes, tide__handles_of(handle_bytes));
  tide__mutex_lock(&request->lane->lock);
  if (status == TIDE_OK) tide__block_return_locked(block, true);
  else tide__home_uncut_top_locked(segment, block);
  tide__mutex_unlock(&request->lane->lock);
  if (status == TIDE_OK) tide__mapped_tell(request, address, bytes);
  return status;
}

tide_status tide__home_reserve(tide__request* request, uint64_t* out_bytes) {
  const uint64_t handle_bytes = tide__handle_bytes_of_reserve(request, request->bytes);
  const uint64_t bytes = reserve_bytes(request, handle_bytes);
  tide__segment* segment = NULL;
  TIDE_REQUIRE(bytes > 0, TIDE_ERR_NO_MEMORY, "a limit or a budget allows no more");
  tide__stuck_retry(request->device);
  TIDE_TRY(tide__home_with_room(request, bytes, &segment));
  TIDE_TRY(top_fill(request, segment, bytes, handle_bytes));
  *out_bytes = bytes;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Preparing

// Maps handles that follow each other at their places at home.
static tide_status handles_map_at_home(tide_device_cache* device, tide__handle* const* handles,
                                       size_t count) {
  const uint64_t address = handles[0]->address;
  tide__lane* const lane = handles[0]->home->lane;
  tide__mapping* mapping = NULL;
  TIDE_TRY(tide__mapping_new(device, address, tide__handle_end(handles[count - 1]) - address, 0, &mapping));
  const tide_status status = tide__handles_map(device, mapping, handles, count);
  if (status != TIDE_OK) {
    (void)tide__mapping_end(device, mapping);
    return status;
  }
  tide__mutex_lock(&lane->lock);
  for (size_t i = 0; i < count; i++) {
    handles[i]->is_mapped = true;
    tide__handle_note_locked(device, handles[i]);
  }
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

// Maps the handles under a block that are not mapped at home yet, run by run.
static tide_status block_map_at_home(tide_device_cache* device, const tide__block* block) {
  const tide__home* const home = block->segment->home;
  const uint64_t end = tide__block_end(block);
  size_t i = tide__handle_index_at(home, block->address);
  while (i < home->count && home->handles[i]->address < end) {
    size_t run = 0;
    while (i + run < home->count && home->handles[i + run]->address < end &&
           !home->handles[i + run]->is_mapped &&
           (run == 0 || tide__handle_end(home->handles[i + run - 1]) == home->handles[i + run]->address)) {
      run++;
    }
    if (run > 0) TIDE_TRY(handles_map_at_home(device, &home->handles[i], run));
    i += tide__max(run, 1);
  }
  return TIDE_OK;
}

static void block_want_locked(const tide__block* block) {
  const tide__home* const home = block->segment->home;
  const uint64_t end = tide__block_end(block);
  TIDE__HANDLES_EACH(i, home, block->address, end) {
    const tide__handle* const handle = home->handles[i];
    tide__handle_want_locked(handle, tide__handle_from(handle, block->address), tide__handle_to(handle, end),
                             home->segment->lane);
  }
}

// Until the waits are queued the handles stay odd, so that no other thread of the lane takes a part of them
// without the gate.
tide_status tide__home_prepare(tide_device_cache* device, tide__block* block, bool can_wait,
                               bool* out_ready) {
  tide__segment* const segment = block->segment;
  tide__lane* const lane = segment->lane;
  tide__mutex_lock(&lane->lock);
  *out_ready =
      can_be_used(range_readiness_locked(device, segment->home, block->address, block->bytes), can_wait);
  if (*out_ready) block_want_locked(block);
  tide__mutex_unlock(&lane->lock);
  if (!*out_ready) return TIDE_OK;
  TIDE_TRY(tide__marks_wait(device, lane, block->bytes));
  TIDE_TRY(block_map_at_home(device, block));
  tide__mutex_lock(&lane->lock);
  tide__home_note_locked(device, segment->home, block->address, block->bytes);
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}
