// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Makes views: chooses idle memory, wherever it lies, for a block that no hole has room for, and maps it one
// behind the other. The choice needs memory of the heap. So it is made on a copy without the locks, and made
// again if another thread took something of it meanwhile. The caller has the gate.
#include <string.h>

#include "device/tide/stitch.h"
#include "device/tide/view.h"
#include "device/tide/view_list.h"

#define END_LEAST_BYTES ((uint64_t)1 << 20)
enum { STITCH_ATTEMPTS = 8 };
// A view that saves less new memory than so many of the smallest handles is not worth its calls.
enum { SAVED_LEAST_UNITS = 3 };

// A stitch while it is being made.
typedef struct stitching {
  tide__gathering own;
  tide__handle** handles;  // owned; all that may be used, homes by age, in each by address
  uint64_t* handle_bytes;  // owned
  size_t handle_count;
  size_t handle_capacity;
  size_t byte_capacity;
  tide__stitch_run* runs;  // owned
  size_t run_count;
  size_t run_capacity;
  size_t mapped;  // handles, in a new view
} stitching;

// ---------------------------------------------------------------------------------------------------
// What a stitch can use

static bool handles_get_room(stitching* s, size_t count) {
  const tide_heap* const heap = s->own.request->device->heap;
  return tide__heap_grow(heap, (void**)&s->handles, &s->handle_capacity, count, sizeof *s->handles) &&
         tide__heap_grow(heap, (void**)&s->handle_bytes, &s->byte_capacity, count, sizeof *s->handle_bytes);
}

static bool handle_follows(const tide__handle* before, const tide__handle* handle) {
  return before->home == handle->home && before->address + before->bytes == handle->address;
}

// Ends a run; what comes next begins with no handle.
static void run_close(stitching* s, tide__stitch_run* run) {
  if (run->pre > 0 || run->whole > 0 || run->suf > 0) s->runs[s->run_count++] = *run;
  *run = (tide__stitch_run){ .first = 0 };
}

static bool run_is_open(const tide__stitch_run* run) { return run->pre > 0 || run->whole > 0; }

// Continues the run with a handle. A new run begins there if the handle does not follow at home, or if
// only one of the two must be waited for.
static void run_reach(stitching* s, tide__stitch_run* run, uint32_t handle, bool goes_on, bool waits,
                      bool is_foreign) {
  if (run_is_open(run) && goes_on && run->waits == waits) return;
  run_close(s, run);
  *run = (tide__stitch_run){ .first = handle, .is_foreign = is_foreign, .waits = waits };
}

// Notes what a survey found, as runs of handles.
static void runs_note_locked(stitching* s, const tide__survey* survey) {
  const tide__lane* const lane = s->own.request->lane;
  const tide__handle* before = NULL;
  tide__stitch_run run = { .first = 0 };
  s->run_count = s->handle_count = 0;
  for (tide__handle* handle = survey->first; handle != NULL; handle = handle->next_idle) {
    const uint32_t index = (uint32_t)s->handle_count;
    const bool is_foreign = handle->home->lane != lane;
    const bool goes_on = run_is_open(&run) && handle_follows(before, handle);
    before = s->handles[s->handle_count] = handle;
    s->handle_bytes[s->handle_count++] = handle->bytes;
    if (handle->prefix > 0) run_reach(s, &run, index, goes_on, handle->prefix_waits, is_foreign);
    if (handle->prefix == handle->bytes) {
      run.whole++;
      continue;
    }
    run.suf = handle->prefix;
    run_close(s, &run);
    run = (tide__stitch_run){
      .first = index, .pre = handle->suffix, .is_foreign = is_foreign, .waits = handle->suffix_waits
    };
  }
  run_close(s, &run);
}

// A handle ends at most two runs.
static bool has_room(const stitching* s, size_t handles) {
  return handles < s->handle_capacity && handles < s->byte_capacity && 2 * handles < s->run_capacity;
}

static tide_status room_get(stitching* s, size_t handles) {
  TIDE_REQUIRE(handles_get_room(s, handles + 1) &&
                   tide__heap_grow(s->own.request->device->heap, (void**)&s->runs, &s->run_capacity,
                                   2 * handles + 1, sizeof *s->runs),
               TIDE_ERR_NO_MEMORY, "no memory to look at %zu handles", handles);
  return TIDE_OK;
}

// Copies what is idle.
static tide_status holes_note(stitching* s) {
  const tide__request* const request = s->own.request;
  const tide__survey* const survey = &request->device->survey;
  for (bool is_done = false; !is_done;) {
    TIDE_TRY(room_get(s, survey->count));
    tide__homes_lock(request);
    tide__survey_list_locked(&s->own);
    is_done = has_room(s, survey->count);
    if (is_done) runs_note_locked(s, survey);
    tide__homes_unlock(request);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Making a view

// A view while it is being made.
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

static void new_view_free(tide_device_cache* device, new_view* n) {
  tide__view_record_free(device, n->segment);
  tide__stitch_plan_free(&n->plan, device->heap);
  *n = (new_view){ .segment = NULL };
}

static tide_status view_record(const stitching* s, new_view* n) {
  const tide__request* const request = s->own.request;
  const size_t count = n->plan.count;
  TIDE_TRY(tide__view_record(request->device, request->lane, count, &n->segment));
  n->segment->stack = request->context.stack;
  tide__view* const view = n->segment->view;
  n->first_new = count;
  for (size_t i = 0; i < count; i++) {
    const tide__stitch_part* const part = &n->plan.parts[i];
    const bool is_new = part->handle == TIDE__STITCH_NEW;
    if (is_new && n->first_new == count) n->first_new = i;
    view->handles[i] = is_new ? NULL : s->handles[part->handle];
    view->offsets[i] = n->bytes;
    n->bytes += part->bytes;
  }
  return tide__view_list_make_room(request->device, request->lane);
}

static tide_status view_plan(stitching* s, const tide__growth* growth, bool uses_holes, new_view* n) {
  tide_device_cache* const device = s->own.request->device;
  TIDE_TRY(holes_note(s));
  const tide__stitch_problem problem = { .bytes = s->own.request->rounded,
                                         .handles = s->handle_bytes,
                                         .handle_count = s->handle_count,
                                         .runs = s->runs,
                                         .run_count = uses_holes ? s->run_count : 0,
                                         .granularity = tide__request_unit(s->own.request),
                                         .handle_bytes = growth->handles.least,
                                         .growth_left = tide__min(growth->slack_left, growth->limit_left),
                                         .end_least = END_LEAST_BYTES };
  TIDE_TRY(tide__stitch_plan_make(&problem, device->heap, &n->plan));
  TIDE_REQUIRE(n->plan.created <= growth->limit_left, TIDE_ERR_NO_MEMORY,
               "%llu bytes more are above the limit", (unsigned long long)n->plan.created);
  return view_record(s, n);
}

// Takes the place of new handles at the top of the home.
static void fresh_take_locked(stitching* s, new_view* n, uint64_t bytes) {
  tide__lane_supply_locked(&s->own, s->own.request->lane);
  n->fresh = tide__home_cut_top_locked(n->home, n->plan.created);
  tide__lane_supply_locked(&s->own, s->own.request->lane);
  if (bytes < n->plan.created) {
    n->rest = tide__block_cut_back_locked(s->own.request->lane, n->fresh, n->plan.created - bytes);
  }
  n->fresh->state = TIDE__BLOCK_LENT;
  n->fresh_address = n->fresh->address;
  tide__piece_add(&s->own, n->fresh);
}

// Takes everything that the plan says; false if something is not idle any more.
static bool view_pieces_take_locked(stitching* s, new_view* n) {
  const tide__view* const view = n->segment->view;
  const size_t old_count = n->first_new;
  size_t new_count = 0;
  while (old_count + new_count < view->count && view->handles[old_count + new_count] == NULL) new_count++;
  const size_t behind = old_count + new_count;
  uint64_t left = s->own.request->rounded;
  const uint64_t before = old_count < view->count ? view->offsets[old_count] - n->plan.start : left;
  const uint64_t own = old_count > 0 ? tide__min(left, before) : 0;
  if (own > 0 && !tide__pieces_take_locked(&s->own, view->handles, old_count, n->plan.start, own))
    return false;
  left -= own;
  const uint64_t fresh = tide__min(left, n->plan.created);
  if (fresh > 0) fresh_take_locked(s, n, fresh);
  left -= fresh;
  return left == 0 ||
         tide__pieces_take_locked(&s->own, &view->handles[behind], view->count - behind, 0, left);
}

// Gives back what was taken for a view that is not made after all.
static void view_give_up(stitching* s, new_view* n) {
  const tide_error error = *tide_last_error();
  tide__block** place = &s->own.pieces;
  while (*place != NULL && *place != n->fresh) place = &(*place)->heap_next;
  if (*place != NULL) *place = n->fresh->heap_next;
  tide__mutex_lock(&s->own.request->lane->lock);
  if (n->rest != NULL) tide__home_uncut_top_locked(n->home, n->rest);
  if (n->fresh != NULL) tide__home_uncut_top_locked(n->home, n->fresh);
  tide__mutex_unlock(&s->own.request->lane->lock);
  n->fresh = n->rest = NULL;
  tide__pieces_give_up(&s->own);
  tide__error_restore(&error);
}

static tide_status view_take(stitching* s, new_view* n, bool* out_taken) {
  const tide__request* const request = s->own.request;
  if (n->plan.created > 0) TIDE_TRY(tide__home_with_room(request, n->plan.created, &n->home));
  TIDE_TRY(tide__spares_get(&s->own, tide__spares_for(n->plan.count)));
  tide__homes_lock(request);
  tide__survey_locked(&s->own);
  *out_taken = view_pieces_take_locked(s, n);
  tide__homes_unlock(request);
  if (!*out_taken) view_give_up(s, n);
  return TIDE_OK;
}

// Makes new handles, and maps all one behind the other.
static tide_status view_fill(const stitching* s, const tide__growth* growth, new_view* n,
                             tide__mapping* mapping) {
  tide_device_cache* const device = s->own.request->device;
  tide__view* const view = n->segment->view;
  if (n->made_count > 0) {
    TIDE_TRY(tide__handles_make(device, mapping, n->plan.created, tide__handles_of(growth->handles.least),
                                &n->made));
    memcpy(&view->handles[n->first_new], n->made, n->made_count * sizeof *n->made);
  }
  return tide__handles_map(device, mapping, view->handles, view->count);
}

// The same at addresses of their own. If they cannot be unmapped again, these stay with the stuck mapping.
static tide_status view_map(const stitching* s, const tide__growth* growth, new_view* n) {
  tide_device_cache* const device = s->own.request->device;
  tide__mapping* mapping = NULL;
  n->made_count = tide__handles_for(n->plan.created, tide__handles_of(growth->handles.least));
  if (n->made_count > 0) {
    TIDE_TRY(tide__home_make_room(device, n->home, n->made_count));
    TIDE_TRY(tide__map_cover(&device->map, n->fresh->address, n->plan.created, false));
  }
  TIDE_TRY(tide__addresses_take(device, n->bytes, &n->addresses));
  const uint64_t address = n->addresses->node.tie;
  TIDE_TRY(tide__map_cover(&device->map, address, n->bytes, false));
  TIDE_TRY(tide__mapping_new(device, address, n->bytes, n->made_count, &mapping));
  const tide_status status = view_fill(s, growth, n, mapping);
  if (status == TIDE_OK || tide__mapping_end(device, mapping)) return status;
  mapping->range_bytes = n->addresses->node.key;
  tide__addresses_forget(device, n->addresses);
  n->addresses = NULL;
  return status;
}

// Gives back what a view that could not be mapped would have had.
static void view_unmap(const stitching* s, new_view* n) {
  tide_device_cache* const device = s->own.request->device;
  tide__addresses_give(device, n->addresses);
  tide__handles_free(device, n->made, n->made_count);
  n->addresses = NULL;
  n->made = NULL;
}

// The view and its new handles are there for all.
static tide__block* view_commit_locked(stitching* s, new_view* n) {
  tide_device_cache* const device = s->own.request->device;
  tide__segment* const segment = n->segment;
  tide__view* const view = segment->view;
  tide__lane_supply_locked(&s->own, segment->lane);
  if (n->made_count > 0) {
    tide__home_add_handles_locked(device, n->home, n->made, n->made_count, n->fresh->address, false);
  }
  if (n->rest != NULL) tide__block_return_locked(n->rest, true);
  view->middle = view->handles[tide__view_index(view, 0, n->bytes / 2)];
  tide__view_link_locked(device, segment, n->addresses, n->bytes);
  for (size_t i = 0; i < view->count; i++) tide__view_place_add(view, i);
  tide__view_list_add(segment);
  return tide__view_cut_locked(&s->own, segment, n->plan.start, s->own.request->rounded);
}

static tide__block* view_commit(stitching* s, new_view* n) {
  tide_device_cache* const device = s->own.request->device;
  tide__mutex_lock(&s->own.request->lane->lock);
  tide__block* const block = view_commit_locked(s, n);
  tide__mutex_unlock(&s->own.request->lane->lock);
  tide__heap_release(device->heap, n->made, n->made_count, sizeof *n->made);
  s->mapped = n->segment->view->count;
  n->segment = NULL;  // it is the lane's now
  if (n->plan.created > 0) tide__mapped_tell(s->own.request, n->fresh_address, n->plan.created);
  return block;
}

static tide_status view_build(stitching* s, const tide__growth* growth, new_view* n, tide__block** out) {
  const tide_status status = view_map(s, growth, n);
  if (status != TIDE_OK) {
    view_unmap(s, n);
    view_give_up(s, n);
    return status;
  }
  return tide__view_block_finish(&s->own, view_commit(s, n), out);
}

// Would growth at home take little more new memory than the view? Then its place at home is as good.
static bool view_saves_little(const stitching* s, const tide__growth* growth, const new_view* n) {
  if (n->plan.created == 0 || n->plan.created == n->bytes) return n->plan.created > 0;
  const uint64_t least = SAVED_LEAST_UNITS * tide__request_unit(s->own.request);
  const uint64_t missing = tide__home_missing(s->own.request, growth);
  return missing < n->plan.created + least && missing <= growth->limit_left;
}

static tide_status view_try(stitching* s, const tide__growth* growth, bool uses_holes, tide__block** out) {
  tide_device_cache* const device = s->own.request->device;
  new_view n = { .segment = NULL };
  bool is_taken = false;
  tide_status status = view_plan(s, growth, uses_holes, &n);
  const bool is_grown = status == TIDE_OK && view_saves_little(s, growth, &n);
  if (status == TIDE_OK && !is_grown) status = view_take(s, &n, &is_taken);
  if (is_taken) status = view_build(s, growth, &n, out);
  new_view_free(device, &n);
  if (is_grown) status = tide__home_grow(s->own.request, growth, growth->limit_left, out);
  return status;
}

tide_status tide__view_make(const tide__request* request, const tide__growth* growth, tide__block** out) {
  const tide_heap* const heap = request->device->heap;
  stitching s = { .own = { .request = request, .look = growth->look, .can_wait = growth->can_wait } };
  tide_status status = TIDE_OK;
  for (int i = 0; i < STITCH_ATTEMPTS && status == TIDE_OK && *out == NULL; i++) {
    status = view_try(&s, growth, i + 1 < STITCH_ATTEMPTS, out);
  }
  if (*out != NULL) tide__views_keep_few(request->device, request->lane, s.mapped);
  tide__spares_give(&s.own);
  tide__heap_release(heap, s.handles, s.handle_capacity, sizeof *s.handles);
  tide__heap_release(heap, s.handle_bytes, s.byte_capacity, sizeof *s.handle_bytes);
  tide__heap_release(heap, s.runs, s.run_capacity, sizeof *s.runs);
  return status;
}
