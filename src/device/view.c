// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Views: addresses at which handles are mapped a second time, one behind the other, so that a block can be
// made of idle memory that lies apart. A block in a view owns pieces of homes, which are LENT there; every
// byte of a handle is in one hole or in one block, however many addresses it has. Views stay when their block
// is released and serve again for nothing; they are tried in the order they were made, so that a new one
// never changes a decision that was free before, and programs that repeat themselves stop making any.
//
// The gate is the caller's. Choosing and taking pieces happens with all lanes locked that have homes in the
// pool: only who has the gate takes more than one such lock, and nobody waits for the gate with one held. The
// choice of a stitch needs memory of the heap: it is made on a copy without the locks, and made again if
// another thread took something of it meanwhile.
#include <string.h>

#include "device/allocator.h"
#include "device/stitch.h"

#define VIEW_WINDOW_BYTES ((uint64_t)64 << 20)
#define END_LEAST_BYTES ((uint64_t)1 << 20)
enum { STITCH_ATTEMPTS = 8, SPARES_AT_FIRST = 64 };

// One stitch or use on its way.
typedef struct stitching {
  const tide__request* request;
  tide__handle** handles;  // owned; all that may be used, homes by age, in each by address
  uint64_t* handle_bytes;  // owned
  size_t handle_count;
  size_t handle_capacity;
  size_t byte_capacity;
  tide__stitch_run* runs;  // owned
  size_t run_count;
  size_t run_capacity;
  tide__block* spares;  // records for blocks to come, by heap_next
  size_t spare_count;
  tide__block* pieces;  // taken, in order, by heap_next
  tide__block** last_piece;
  bool can_wait;  // the request's stream may wait for marks of others
  size_t mapped;  // handles, in a new view
} stitching;

// ---------------------------------------------------------------------------------------------------
// Locking

// May a request use memory of a home? The stream of each thread is another one under the same name: nobody
// else can wait for it.
static bool home_is_open(const tide__request* request, const tide__segment* segment) {
  const tide__lane* const lane = segment->lane;
  const bool is_of_thread = lane->stream == TIDE_STREAM_PER_THREAD ||
                            request->lane->stream == TIDE_STREAM_PER_THREAD;
  return lane->pool == request->pool && (lane == request->lane || !is_of_thread);
}

#define HOMES_EACH(it, request)                 \
  TIDE_LIST_EACH(it, &(request)->device->homes) \
  if (home_is_open(request, TIDE_OWNER(it, tide__home, link)->segment))

TIDE_UNCHECKED_LOCKING static void lanes_lock(const tide__request* request) {
  tide__mutex_lock(&request->lane->lock);
  request->lane->is_held = true;
  HOMES_EACH(it, request) {
    tide__lane* const lane = TIDE_OWNER(it, tide__home, link)->segment->lane;
    if (lane->is_held) continue;
    tide__mutex_lock_many(&lane->lock);
    lane->is_held = true;
  }
}

TIDE_UNCHECKED_LOCKING static void lanes_unlock(const tide__request* request) {
  HOMES_EACH(it, request) {
    tide__lane* const lane = TIDE_OWNER(it, tide__home, link)->segment->lane;
    if (!lane->is_held || lane == request->lane) continue;
    lane->is_held = false;
    tide__mutex_unlock_many(&lane->lock);
  }
  request->lane->is_held = false;
  tide__mutex_unlock(&request->lane->lock);
}

static bool handle_is_whole(const tide__handle* handle) { return handle->prefix == handle->bytes; }

// Is a range of a handle of use to the request, and does its stream have to wait for it?
static bool range_is_usable_locked(const stitching* s, const tide__handle* handle, uint64_t from, uint64_t to,
                                   bool* out_waits) {
  const tide__readiness readiness =
      tide__handle_readiness(s->request->device, handle, from, to, s->request->lane);
  *out_waits = readiness == TIDE__READY_AFTER_WAIT;
  return readiness == TIDE__READY || (*out_waits && s->can_wait);
}

// What other lanes may still use and cannot be waited for counts as in use. So does what another process can
// see: it serves its own stream only. A block stays handed out as long as it is shared, so that a handle that
// is wholly idle is shared no more.
static void survey_handle_locked(const stitching* s, tide__handle* handle) {
  const uint64_t bytes = handle->bytes;
  if (handle_is_whole(handle)) handle->is_shared = false;
  if (handle->is_shared) handle->prefix = handle->suffix = 0;
  const bool is_whole = handle_is_whole(handle);
  handle->prefix_waits = handle->suffix_waits = false;
  if (handle->prefix != 0 && !range_is_usable_locked(s, handle, 0, handle->prefix, &handle->prefix_waits)) {
    handle->prefix = 0;
  }
  if (is_whole && handle->prefix == 0) handle->suffix = 0;
  if (handle->suffix != 0 &&
      !range_is_usable_locked(s, handle, bytes - handle->suffix, bytes, &handle->suffix_waits)) {
    handle->suffix = 0;
  }
}

static void survey_locked(const stitching* s) {
  HOMES_EACH(it, s->request) {
    const tide__home* const home = TIDE_OWNER(it, tide__home, link);
    tide__home_survey_locked(home->segment);
    for (size_t i = 0; i < home->count; i++) survey_handle_locked(s, home->handles[i]);
  }
}

// ---------------------------------------------------------------------------------------------------
// Records

static void spares_give(stitching* s) {
  tide__lane* const lane = s->request->lane;
  tide__mutex_lock(&lane->lock);
  while (s->spares != NULL) {
    tide__block* const block = s->spares;
    s->spares = block->heap_next;
    tide__lane_give_spare_locked(lane, block);
  }
  tide__mutex_unlock(&lane->lock);
  s->spare_count = 0;
}

static void spares_push(stitching* s, tide__block* block) {
  block->heap_next = s->spares;
  s->spares = block;
  s->spare_count++;
}

// Has at least `count` records in hand: those that the lane has, and then new ones.
static tide_status spares_get(stitching* s, size_t count) {
  tide__lane* const lane = s->request->lane;
  tide__mutex_lock(&lane->lock);
  while (s->spare_count < count && lane->spares != NULL) spares_push(s, tide__lane_take_spare_locked(lane));
  tide__mutex_unlock(&lane->lock);
  while (s->spare_count < count) {
    tide__block* const block = tide__slots_take(&s->request->device->blocks);
    TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu blocks", count);
    spares_push(s, block);
  }
  return TIDE_OK;
}

// Sees to it that a lane has two spare records, as cutting a piece out needs at most.
static void lane_supply_locked(stitching* s, tide__lane* lane) {
  while (lane->spares == NULL || lane->spares->heap_next == NULL) {
    tide__block* const block = s->spares;
    TIDE_ASSERT(block != NULL);
    s->spares = block->heap_next;
    s->spare_count--;
    tide__lane_give_spare_locked(lane, block);
  }
}

// ---------------------------------------------------------------------------------------------------
// Pieces

static void piece_add(stitching* s, tide__block* block) {
  block->heap_next = NULL;
  if (s->pieces == NULL) s->last_piece = &s->pieces;
  *s->last_piece = block;
  s->last_piece = &block->heap_next;
}

// The block over an address, from one that is near.
static tide__block* chain_find(tide__block* near, uint64_t address) {
  while (near->address > address) near = near->prev;
  while (tide__block_end(near) <= address) near = near->next;
  return near;
}

// Takes a range of a home that is idle; false if it is not any more.
static bool piece_take_locked(stitching* s, const tide__handle* handle, uint64_t address, uint64_t bytes) {
  tide__lane* const lane = handle->home->lane;
  tide__block* const block = chain_find(handle->first, address);
  if (block->state != TIDE__BLOCK_FREE || tide__block_end(block) < address + bytes) return false;
  lane_supply_locked(s, lane);
  tide__free_index_take_locked(block);
  if (address > block->address) {
    tide__free_index_put_locked(tide__block_cut_front_locked(lane, block, address - block->address), true);
  }
  if (bytes < block->bytes) {
    tide__free_index_put_locked(tide__block_cut_back_locked(lane, block, block->bytes - bytes), true);
  }
  block->state = TIDE__BLOCK_LENT;
  piece_add(s, block);
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
static bool stretch_want_locked(const stitching* s, tide__handle* const* handles, size_t count,
                                uint64_t start, uint64_t bytes) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t to = tide__min(handles[i]->bytes, start + bytes);
    bool waits = false;
    if (!range_is_usable_locked(s, handles[i], start, to, &waits)) return false;
    tide__handle_want_locked(handles[i], start, to, s->request->lane);
    bytes -= to - start;
    start = 0;
  }
  return true;
}

// Takes `bytes` of handles one behind the other, from an offset in the first; those that follow each other at
// home as one piece. False, with what was taken so far, if something is not idle any more.
static bool pieces_take_locked(stitching* s, tide__handle* const* handles, size_t count, uint64_t start,
                               uint64_t bytes) {
  while (bytes > 0) {
    uint64_t own = 0;
    const size_t stretch = stretch_measure(handles, count, start, bytes, &own);
    if (!stretch_want_locked(s, handles, stretch, start, own)) return false;
    if (!piece_take_locked(s, handles[0], handles[0]->address + start, own)) return false;
    handles += stretch;
    count -= stretch;
    bytes -= own;
    start = 0;
  }
  return true;
}

void tide__pieces_give(tide_device* device, tide__block* pieces, tide__lane* user) {
  while (pieces != NULL) {
    tide__block* const piece = pieces;
    tide__lane* const lane = piece->segment->lane;
    pieces = piece->heap_next;
    tide__mutex_lock(&lane->lock);
    if (user != NULL) {
      tide__home_add_use_locked(device, piece->segment->home, piece->address, piece->bytes, user,
                                piece->last_use);
    }
    tide__block_return_locked(piece, true);
    tide__mutex_unlock(&lane->lock);
  }
}

// The lane waits for whoever used the pieces before: those of its own home need no other wait.
static void pieces_settle(const stitching* s, const tide__block* pieces) {
  tide__lane* const lane = s->request->lane;
  tide__mutex_lock(&lane->lock);
  for (const tide__block* piece = pieces; piece != NULL; piece = piece->heap_next) {
    if (piece->segment->lane != lane) continue;
    tide__home_note_locked(s->request->device, piece->segment->home, piece->address, piece->bytes);
  }
  tide__mutex_unlock(&lane->lock);
}

// Everything that was taken is idle again.
static void pieces_give_up(stitching* s) {
  tide__block* const pieces = s->pieces;
  s->pieces = NULL;
  tide__marks_forget_wanted(s->request->device, s->request->lane);
  tide__pieces_give(s->request->device, pieces, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Blocks in views

// Tells the history which addresses the memory of a block belongs to now: those of its view, or of its homes.
static void block_tell(tide_device* device, const tide__block* block, const tide__call_context* moment,
                       bool is_in_view) {
  if (!tide__is_recording(device)) return;
  const tide_action there = is_in_view ? TIDE_ACTION_SEGMENT_UNMAP : TIDE_ACTION_SEGMENT_MAP;
  const tide_action here = is_in_view ? TIDE_ACTION_SEGMENT_MAP : TIDE_ACTION_SEGMENT_UNMAP;
  if (!is_in_view) {
    tide__entry_add(device, here, moment, moment->stack, tide__block_lane(block), block->address,
                    block->bytes);
  }
  for (const tide__block* piece = block->pieces; piece != NULL; piece = piece->heap_next) {
    tide__entry_add(device, there, moment, moment->stack, tide__block_lane(piece), piece->address,
                    piece->bytes);
  }
  if (is_in_view) {
    tide__entry_add(device, here, moment, moment->stack, tide__block_lane(block), block->address,
                    block->bytes);
  }
}

// Makes a BUSY block of vacant addresses of a view; the pieces are its own from now on.
static tide__block* view_cut_locked(stitching* s, tide__segment* segment, uint64_t offset, uint64_t bytes) {
  tide__lane* const lane = segment->lane;
  const uint64_t address = segment->address + offset;
  tide__block* const block = chain_find(segment->head, address);
  TIDE_ASSERT(block->state == TIDE__BLOCK_VACANT && tide__block_end(block) >= address + bytes);
  lane_supply_locked(s, lane);
  if (address > block->address) {
    tide__block_cut_front_locked(lane, block, address - block->address)->state = TIDE__BLOCK_VACANT;
  }
  if (bytes < block->bytes) {
    tide__block_cut_back_locked(lane, block, block->bytes - bytes)->state = TIDE__BLOCK_VACANT;
  }
  block->state = TIDE__BLOCK_BUSY;
  block->last_use = 0;
  block->pieces = s->pieces;
  s->pieces = NULL;
  segment->view->live++;
  segment->view->used_at = ++s->request->device->view_uses;
  return block;
}

// Takes the pieces off a block, whose addresses are vacant again.
static tide__block* view_uncut_locked(tide__block* block) {
  tide__block* const pieces = block->pieces;
  block->pieces = NULL;
  block->segment->view->live--;
  tide__block_merge_locked(block->segment->lane, block, TIDE__BLOCK_VACANT);
  block->state = TIDE__BLOCK_VACANT;
  return pieces;
}

void tide__view_block_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment) {
  tide__lane* const lane = block->segment->lane;
  const uint64_t stamp = block->last_use != 0 ? block->last_use : tide__lane_next_stamp(lane);
  block_tell(device, block, moment, false);
  block->segment->view->last_use = tide__max(block->segment->view->last_use, stamp);
  if (block->last_use == 0) lane->unmarked = stamp;
  tide__block* pieces = view_uncut_locked(block);
  while (pieces != NULL) {
    tide__block* const piece = pieces;
    pieces = piece->heap_next;
    piece->last_use = stamp;
    if (piece->segment->lane != lane) {
      piece->heap_next = lane->leaving;
      lane->leaving = piece;
      continue;
    }
    if (stamp % 2 == 1) {
      tide__home_add_use_locked(device, piece->segment->home, piece->address, piece->bytes, lane, stamp);
    }
    tide__block_return_locked(piece, true);
  }
}

// The block may be handed out when its stream waits for whoever used its memory.
static tide_status view_block_finish(stitching* s, tide__block* block, tide__block** out) {
  tide_device* const device = s->request->device;
  const tide_status status = tide__marks_wait(device, s->request->lane);
  if (status == TIDE_OK) {
    uint32_t count = 1;
    pieces_settle(s, block->pieces);
    for (const tide__block* piece = block->pieces; piece != NULL; piece = piece->heap_next) count++;
    if (count > tide__load_relaxed(&device->most_pieces)) tide__store_relaxed(&device->most_pieces, count);
    tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + count);
    block_tell(device, block, &s->request->moment, true);
    *out = block;
    return TIDE_OK;
  }
  tide__mutex_lock(&s->request->lane->lock);
  s->pieces = view_uncut_locked(block);
  tide__mutex_unlock(&s->request->lane->lock);
  pieces_give_up(s);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Using a view

// The tightest run of idle memory of at least `bytes` in a view; false if there is none.
static bool view_find_run(const tide__view* view, uint64_t bytes, uint64_t* out_offset) {
  uint64_t best = UINT64_MAX;
  uint64_t run = 0;
  uint64_t start = 0;
  for (size_t i = 0; i < view->count; i++) {
    const tide__handle* const handle = view->handles[i];
    if (run == 0) start = view->offsets[i];
    if (handle->prefix == handle->bytes) {
      run += handle->bytes;
      continue;
    }
    if (run + handle->prefix >= bytes && run + handle->prefix < best) {
      best = run + handle->prefix;
      *out_offset = start;
    }
    run = handle->suffix;
    start = view->offsets[i] + handle->bytes - run;
  }
  if (run >= bytes && run < best) {
    best = run;
    *out_offset = start;
  }
  return best != UINT64_MAX;
}

static tide__segment* view_find_locked(const tide__request* request, uint64_t* out_offset) {
  const uint64_t bytes = request->rounded;
  const uint64_t most = bytes + bytes / 4 + VIEW_WINDOW_BYTES;
  TIDE_LIST_EACH(it, &request->lane->segments) {
    tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    const bool fits = segment->view != NULL && !segment->view->is_broken && segment->bytes >= bytes &&
                      segment->bytes <= most;
    if (fits && view_find_run(segment->view, bytes, out_offset)) return segment;
  }
  return NULL;
}

static size_t spares_for(size_t handles) { return 2 * handles + 8; }

// The handle of a view over an offset.
static size_t view_index(const tide__view* view, uint64_t offset) {
  size_t i = view->count - 1;
  while (view->offsets[i] > offset) i--;
  return i;
}

tide__span tide__view_span(const tide__view* view, uint64_t offset, uint64_t bytes) {
  const size_t first = view_index(view, offset);
  tide__span span = { &view->handles[first], 1, offset - view->offsets[first] };
  while (first + span.count < view->count && view->offsets[first + span.count] < offset + bytes) span.count++;
  return span;
}

static tide__block* view_take_locked(stitching* s, tide__segment* segment, uint64_t offset) {
  const tide__view* const view = segment->view;
  const size_t i = view_index(view, offset);
  const bool is_taken = pieces_take_locked(s, &view->handles[i], view->count - i, offset - view->offsets[i],
                                           s->request->rounded);
  TIDE_ASSERT(is_taken);
  return is_taken ? view_cut_locked(s, segment, offset, s->request->rounded) : NULL;
}

static tide_status view_use(stitching* s, tide__block** out) {
  const tide__request* const request = s->request;
  tide__block* block = NULL;
  for (size_t wanted = SPARES_AT_FIRST; wanted > 0 && block == NULL;) {
    uint64_t offset = 0;
    TIDE_TRY(spares_get(s, wanted));
    lanes_lock(request);
    survey_locked(s);
    tide__segment* const segment = view_find_locked(request, &offset);
    wanted = segment != NULL ? spares_for(segment->view->count) : 0;
    if (wanted > 0 && wanted <= s->spare_count) block = view_take_locked(s, segment, offset);
    lanes_unlock(request);
  }
  return block != NULL ? view_block_finish(s, block, out) : TIDE_OK;
}

tide_status tide__view_use(const tide__request* request, const tide__growth* growth, tide__block** out) {
  stitching s = { .request = request, .can_wait = growth->can_wait };
  if (request->lane->view_count == 0) return TIDE_OK;
  const tide_status status = view_use(&s, out);
  spares_give(&s);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// What a stitch can use

static bool handles_get_room(stitching* s, size_t count) {
  const tide_heap* const heap = s->request->device->heap;
  return tide__heap_grow(heap, (void**)&s->handles, &s->handle_capacity, count, sizeof *s->handles) &&
         tide__heap_grow(heap, (void**)&s->handle_bytes, &s->byte_capacity, count, sizeof *s->handle_bytes);
}

static bool handle_follows(const tide__handle* before, const tide__handle* handle) {
  return before->address + before->bytes == handle->address;
}

// Ends a run; what comes next begins with no handle.
static void run_close(stitching* s, tide__stitch_run* run) {
  if (run->pre > 0 || run->whole > 0 || run->suf > 0) s->runs[s->run_count++] = *run;
  *run = (tide__stitch_run){ .first = 0 };
}

static bool run_is_open(const tide__stitch_run* run) { return run->pre > 0 || run->whole > 0; }

// Sees to it that the run goes on with a handle: another begins there if the handle does not follow, or if
// only one of the two must be waited for.
static void run_reach(stitching* s, tide__stitch_run* run, uint32_t handle, bool goes_on, bool waits,
                      bool is_foreign) {
  if (run_is_open(run) && goes_on && run->waits == waits) return;
  run_close(s, run);
  *run = (tide__stitch_run){ .first = handle, .is_foreign = is_foreign, .waits = waits };
}

// Notes the holes of a home that was surveyed, as runs of handles.
static void runs_note(stitching* s, const tide__home* home) {
  const bool is_foreign = home->segment->lane != s->request->lane;
  const uint32_t base = (uint32_t)(s->handle_count - home->count);
  tide__stitch_run run = { .first = 0 };
  for (size_t i = 0; i < home->count; i++) {
    const tide__handle* const handle = home->handles[i];
    const uint32_t index = base + (uint32_t)i;
    const bool goes_on = run_is_open(&run) && handle_follows(home->handles[i - 1], handle);
    if (handle_is_whole(handle)) {
      run_reach(s, &run, index, goes_on, handle->prefix_waits, is_foreign);
      run.whole++;
      continue;
    }
    if (handle->prefix > 0) {
      run_reach(s, &run, index, goes_on, handle->prefix_waits, is_foreign);
      run.suf = handle->prefix;
    }
    run_close(s, &run);
    run = (tide__stitch_run){
      .first = index, .pre = handle->suffix, .is_foreign = is_foreign, .waits = handle->suffix_waits
    };
  }
  run_close(s, &run);
}

static void handles_note(stitching* s, const tide__home* home) {
  for (size_t i = 0; i < home->count; i++) {
    s->handles[s->handle_count] = home->handles[i];
    s->handle_bytes[s->handle_count++] = home->handles[i]->bytes;
  }
}

// Copies what is idle. A handle begins and ends at most two runs.
static tide_status holes_note(stitching* s) {
  const tide__request* const request = s->request;
  size_t handles = 0;
  HOMES_EACH(it, request) { handles += TIDE_OWNER(it, tide__home, link)->count; }
  TIDE_REQUIRE(handles_get_room(s, handles + 1) &&
                   tide__heap_grow(request->device->heap, (void**)&s->runs, &s->run_capacity, 3 * handles + 1,
                                   sizeof *s->runs),
               TIDE_ERR_NO_MEMORY, "no memory to look at %zu handles", handles);
  s->run_count = s->handle_count = 0;
  lanes_lock(request);
  survey_locked(s);
  HOMES_EACH(it, request) {
    handles_note(s, TIDE_OWNER(it, tide__home, link));
    runs_note(s, TIDE_OWNER(it, tide__home, link));
  }
  lanes_unlock(request);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Making a view

// A view on its way.
typedef struct new_view {
  tide__stitch_plan plan;
  tide__segment* segment;  // with its view; owned until it is linked
  uint64_t bytes;
  tide__addresses* addresses;  // owned until the view has them
  tide__segment* home;         // where new handles have their place
  tide__handle** made;         // owned: the new handles
  size_t made_count;
  size_t first_new;    // part
  tide__block* fresh;  // their place, as far as the block has it, LENT
  tide__block* rest;   // and beyond, BUSY
  uint64_t fresh_address;
} new_view;

static void new_view_free(tide_device* device, new_view* n) {
  if (n->segment != NULL) {
    tide__view_free(device, n->segment->view);
    tide__segment_free(device, n->segment);
  }
  tide__stitch_plan_free(&n->plan, device->heap);
  *n = (new_view){ .segment = NULL };
}

static tide_status view_record(const stitching* s, new_view* n) {
  tide_device* const device = s->request->device;
  const size_t count = n->plan.count;
  n->segment = tide__segment_new(device, s->request->lane, false);
  TIDE_REQUIRE(n->segment != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a view");
  n->segment->is_expandable = true;
  n->segment->stack = s->request->moment.stack;
  tide__view* const view = tide__heap_alloc(device->heap, 1, sizeof *view);
  TIDE_REQUIRE(view != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a view");
  n->segment->view = view;
  view->count = count;
  view->handles = tide__heap_alloc(device->heap, count, sizeof *view->handles);
  view->offsets = tide__heap_alloc(device->heap, count, sizeof *view->offsets);
  TIDE_REQUIRE(view->handles != NULL && view->offsets != NULL, TIDE_ERR_NO_MEMORY,
               "no memory for the records of %zu handles", count);
  n->first_new = count;
  for (size_t i = 0; i < count; i++) {
    const tide__stitch_part* const part = &n->plan.parts[i];
    const bool is_new = part->handle == TIDE__STITCH_NEW;
    if (is_new && n->first_new == count) n->first_new = i;
    view->handles[i] = is_new ? NULL : s->handles[part->handle];
    view->offsets[i] = n->bytes;
    n->bytes += part->bytes;
  }
  return TIDE_OK;
}

static tide_status view_plan(stitching* s, const tide__growth* growth, bool uses_holes, new_view* n) {
  tide_device* const device = s->request->device;
  TIDE_TRY(holes_note(s));
  const tide__stitch_problem problem = { .bytes = s->request->rounded,
                                         .handles = s->handle_bytes,
                                         .handle_count = s->handle_count,
                                         .runs = s->runs,
                                         .run_count = uses_holes ? s->run_count : 0,
                                         .granularity = tide__home_unit(device),
                                         .handle_bytes = growth->handle_bytes,
                                         .growth_left = tide__min(growth->slack_left, growth->limit_left),
                                         .end_least = END_LEAST_BYTES };
  TIDE_TRY(tide__stitch_plan_make(&problem, device->heap, &n->plan));
  TIDE_REQUIRE(n->plan.created <= growth->limit_left, TIDE_ERR_NO_MEMORY,
               "%llu bytes more are above the limit", (unsigned long long)n->plan.created);
  return view_record(s, n);
}

// Takes the place of new handles at the top of the home.
static void fresh_take_locked(stitching* s, new_view* n, uint64_t bytes) {
  lane_supply_locked(s, s->request->lane);
  n->fresh = tide__home_cut_top_locked(n->home, n->plan.created);
  lane_supply_locked(s, s->request->lane);
  if (bytes < n->plan.created) {
    n->rest = tide__block_cut_back_locked(s->request->lane, n->fresh, n->plan.created - bytes);
  }
  n->fresh->state = TIDE__BLOCK_LENT;
  n->fresh_address = n->fresh->address;
  piece_add(s, n->fresh);
}

// Takes everything that the plan says; false if something is not idle any more.
static bool view_pieces_take_locked(stitching* s, new_view* n) {
  const tide__view* const view = n->segment->view;
  const size_t old_count = n->first_new;
  size_t new_count = 0;
  while (old_count + new_count < view->count && view->handles[old_count + new_count] == NULL) new_count++;
  const size_t behind = old_count + new_count;
  uint64_t left = s->request->rounded;
  const uint64_t before = old_count < view->count ? view->offsets[old_count] - n->plan.start : left;
  const uint64_t own = old_count > 0 ? tide__min(left, before) : 0;
  if (own > 0 && !pieces_take_locked(s, view->handles, old_count, n->plan.start, own)) return false;
  left -= own;
  const uint64_t fresh = tide__min(left, n->plan.created);
  if (fresh > 0) fresh_take_locked(s, n, fresh);
  left -= fresh;
  return left == 0 || pieces_take_locked(s, &view->handles[behind], view->count - behind, 0, left);
}

// Gives back what was taken for a view that is not made after all.
static void view_give_up(stitching* s, new_view* n) {
  const tide_error error = *tide_last_error();
  tide__block** place = &s->pieces;
  while (*place != NULL && *place != n->fresh) place = &(*place)->heap_next;
  if (*place != NULL) *place = n->fresh->heap_next;
  tide__mutex_lock(&s->request->lane->lock);
  if (n->rest != NULL) tide__home_uncut_top_locked(n->home, n->rest);
  if (n->fresh != NULL) tide__home_uncut_top_locked(n->home, n->fresh);
  tide__mutex_unlock(&s->request->lane->lock);
  n->fresh = n->rest = NULL;
  pieces_give_up(s);
  tide__error_restore(&error);
}

static tide_status view_take(stitching* s, new_view* n, bool* out_taken) {
  const tide__request* const request = s->request;
  if (n->plan.created > 0) TIDE_TRY(tide__home_with_room(request, n->plan.created, &n->home));
  TIDE_TRY(spares_get(s, spares_for(n->plan.count)));
  lanes_lock(request);
  survey_locked(s);
  *out_taken = view_pieces_take_locked(s, n);
  lanes_unlock(request);
  if (!*out_taken) view_give_up(s, n);
  return TIDE_OK;
}

// Makes new handles, and maps all at addresses of their own.
static tide_status view_map(stitching* s, const tide__growth* growth, new_view* n) {
  tide_device* const device = s->request->device;
  tide__view* const view = n->segment->view;
  TIDE_TRY(tide__handles_make(device, n->plan.created, growth->handle_bytes, &n->made, &n->made_count));
  if (n->made_count > 0) {
    TIDE_TRY(tide__home_make_room(device, n->home, n->made_count));
    memcpy(&view->handles[n->first_new], n->made, n->made_count * sizeof *n->made);
    TIDE_TRY(tide__map_cover(&device->map, n->fresh->address, n->plan.created, false));
  }
  TIDE_TRY(tide__addresses_take(device, n->bytes, &n->addresses));
  const uint64_t address = n->addresses->node.tie;
  TIDE_TRY(tide__map_cover(&device->map, address, n->bytes, false));
  tide__stuck* stuck = NULL;
  const tide_status status = tide__handles_map(device, view->handles, view->count, address, &stuck);
  if (stuck == NULL) return status;
  tide__stuck_keep(stuck, n->made, n->made_count);
  stuck->range_bytes = n->addresses->node.key;
  tide__addresses_forget(device, n->addresses);
  n->addresses = NULL;
  return status;
}

// Gives back what a view that could not be mapped would have had.
static void view_unmap(const stitching* s, new_view* n) {
  tide_device* const device = s->request->device;
  const tide_error error = *tide_last_error();
  tide__addresses_give(device, n->addresses);
  if (n->made != NULL) tide__handles_free(device, n->made, n->made_count);
  n->addresses = NULL;
  n->made = NULL;
  tide__error_restore(&error);
}

// The view and its new handles are there for all.
static tide__block* view_commit_locked(stitching* s, new_view* n) {
  tide_device* const device = s->request->device;
  tide__segment* const segment = n->segment;
  tide__view* const view = segment->view;
  lane_supply_locked(s, segment->lane);
  if (n->made_count > 0) {
    tide__home_add_handles_locked(device, n->home, n->made, n->made_count, n->fresh->address, false);
  }
  if (n->rest != NULL) tide__block_return_locked(n->rest, true);
  for (size_t i = 0; i < view->count; i++) view->handles[i]->view_places++;
  segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
  TIDE_ASSERT(n->addresses != NULL);
  view->addresses = n->addresses;
  (void)tide__segment_link_locked(segment, n->addresses->node.tie, n->bytes, TIDE__BLOCK_VACANT);
  device->view_bytes += n->bytes;
  device->view_count++;
  segment->lane->view_count++;
  return view_cut_locked(s, segment, n->plan.start, s->request->rounded);
}

static tide__block* view_commit(stitching* s, new_view* n) {
  tide_device* const device = s->request->device;
  tide__mutex_lock(&s->request->lane->lock);
  tide__block* const block = view_commit_locked(s, n);
  tide__mutex_unlock(&s->request->lane->lock);
  tide__heap_release(device->heap, n->made, n->made_count, sizeof *n->made);
  s->mapped = n->segment->view->count;
  n->segment = NULL;  // it is the lane's now
  if (n->plan.created > 0) tide__home_tell_growth(s->request, n->fresh_address, n->plan.created);
  return block;
}

static tide_status view_build(stitching* s, const tide__growth* growth, new_view* n, tide__block** out) {
  const tide_status status = view_map(s, growth, n);
  if (status != TIDE_OK) {
    view_unmap(s, n);
    view_give_up(s, n);
    return status;
  }
  return view_block_finish(s, view_commit(s, n), out);
}

static tide_status view_try(stitching* s, const tide__growth* growth, bool uses_holes, tide__block** out) {
  tide_device* const device = s->request->device;
  new_view n = { .segment = NULL };
  bool is_taken = false;
  tide_status status = view_plan(s, growth, uses_holes, &n);
  const bool is_all_new = status == TIDE_OK && n.plan.created == n.bytes;
  if (status == TIDE_OK && !is_all_new) status = view_take(s, &n, &is_taken);
  if (is_taken) status = view_build(s, growth, &n, out);
  new_view_free(device, &n);
  // What is new as a whole needs no view: its place at home is as good.
  if (is_all_new) status = tide__home_grow(s->request, growth, growth->limit_left, out);
  return status;
}

tide_status tide__view_make(const tide__request* request, const tide__growth* growth, tide__block** out) {
  const tide_heap* const heap = request->device->heap;
  stitching s = { .request = request, .can_wait = growth->can_wait };
  tide_status status = TIDE_OK;
  for (int i = 0; i < STITCH_ATTEMPTS && status == TIDE_OK && *out == NULL; i++) {
    status = view_try(&s, growth, i + 1 < STITCH_ATTEMPTS, out);
  }
  if (*out != NULL) tide__views_keep_few(request->device, request->lane, s.mapped);
  spares_give(&s);
  tide__heap_release(heap, s.handles, s.handle_capacity, sizeof *s.handles);
  tide__heap_release(heap, s.handle_bytes, s.byte_capacity, sizeof *s.handle_bytes);
  tide__heap_release(heap, s.runs, s.run_capacity, sizeof *s.runs);
  return status;
}
