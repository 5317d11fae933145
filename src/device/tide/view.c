// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Views: addresses at which handles are mapped a second time, one behind the other, so that a block can be
// made of idle memory that lies apart. A block in a view owns pieces of homes, which are LENT there; every
// byte of a handle is in one hole or in one block, however many addresses it has. Views stay when their block
// is released and serve again for nothing; they are tried in the order they were made, so that a new one
// never changes a decision that was free before, and programs that repeat themselves stop making any.
// The caller has the gate.
#include "device/tide/view.h"

#include <string.h>

#include "device/tide/hurry.h"
#include "device/tide/lasting.h"
#include "device/tide/view_list.h"

#define VIEW_WINDOW_BYTES ((uint64_t)64 << 20)
enum { SPARES_AT_FIRST = 16 };

// ---------------------------------------------------------------------------------------------------
// Records

tide_status tide__view_record(tide_device_cache* device, tide__lane* lane, size_t count,
                              tide__segment** out) {
  *out = tide__segment_new(device, &tide__view_kind, lane, false);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a view");
  (*out)->is_expandable = true;
  tide__view* const view = tide__heap_alloc(device->heap, 1, sizeof *view);
  TIDE_REQUIRE(view != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a view");
  (*out)->view = view;
  view->segment = *out;
  view->entry = SIZE_MAX;
  tide__list_init(&view->order);
  view->count = count;
  view->handles = tide__heap_alloc(device->heap, count, sizeof *view->handles);
  view->offsets = tide__heap_alloc(device->heap, count, sizeof *view->offsets);
  view->places = tide__heap_alloc(device->heap, count, sizeof *view->places);
  TIDE_REQUIRE(view->handles != NULL && view->offsets != NULL && view->places != NULL, TIDE_ERR_NO_MEMORY,
               "no memory for the records of %zu handles", count);
  return TIDE_OK;
}

void tide__view_record_free(tide_device_cache* device, tide__segment* segment) {
  if (segment == NULL) return;
  tide__view_free(device, segment->view);
  tide__segment_free(device, segment);
}

void tide__view_link_locked(tide_device_cache* device, tide__segment* segment, tide__addresses* addresses,
                            uint64_t bytes) {
  TIDE_ASSERT(addresses != NULL);
  segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
  segment->view->addresses = addresses;
  (void)tide__segment_link_locked(segment, addresses->node.tie, bytes, TIDE__BLOCK_VACANT);
  device->view_bytes += bytes;
  device->view_count++;
  segment->lane->view_count++;
}

// ---------------------------------------------------------------------------------------------------
// Blocks in views

// Tells the history which addresses the memory of a block belongs to now: those of its view, or of its homes.
static void block_tell(tide_device_cache* device, const tide__block* block, const tide__call_context* context,
                       bool is_in_view) {
  if (!tide__is_recording(device)) return;
  const tide_action there = is_in_view ? TIDE_ACTION_SEGMENT_UNMAP : TIDE_ACTION_SEGMENT_MAP;
  const tide_action here = is_in_view ? TIDE_ACTION_SEGMENT_MAP : TIDE_ACTION_SEGMENT_UNMAP;
  if (!is_in_view) {
    tide__entry_add(device, here, context, context->stack, tide__block_lane(block), block->address,
                    block->bytes);
  }
  for (const tide__block* piece = block->pieces; piece != NULL; piece = piece->heap_next) {
    tide__entry_add(device, there, context, context->stack, tide__block_lane(piece), piece->address,
                    piece->bytes);
  }
  if (is_in_view) {
    tide__entry_add(device, here, context, context->stack, tide__block_lane(block), block->address,
                    block->bytes);
  }
}

tide__block* tide__view_cut_locked(tide__gathering* g, tide__segment* segment, uint64_t offset,
                                   uint64_t bytes) {
  tide__lane* const lane = segment->lane;
  const uint64_t address = segment->address + offset;
  tide__block* const block = tide__chain_find(segment->head, address);
  TIDE_ASSERT(block->state == TIDE__BLOCK_VACANT && tide__block_end(block) >= address + bytes);
  tide__lane_supply_locked(g, lane);
  if (address > block->address) {
    tide__block_cut_front_locked(lane, block, address - block->address)->state = TIDE__BLOCK_VACANT;
  }
  if (bytes < block->bytes) {
    tide__block_cut_back_locked(lane, block, block->bytes - bytes)->state = TIDE__BLOCK_VACANT;
  }
  block->state = TIDE__BLOCK_BUSY;
  block->last_use = 0;
  block->pieces = g->pieces;
  g->pieces = NULL;
  segment->view->live++;
  tide__view_list_use(g->request->device, segment->view);
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

void tide__view_block_end_locked(tide_device_cache* device, tide__block* block,
                                 const tide__call_context* context) {
  tide__lane* const lane = block->segment->lane;
  uint64_t stamp = block->last_use;
  const bool is_noted = stamp != 0 || tide__lane_stamp_locked(lane, &stamp);
  tide__sizes_release_locked(lane, block->bytes);
  block_tell(device, block, context, false);
  if (tide__history_is_observed(&device->history)) {
    block->segment->view->turns = tide__history_turns(&device->history);
  }
  block->segment->view->last_use = tide__max(block->segment->view->last_use, stamp);
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
    if (is_noted) {
      tide__home_add_use_locked(device, piece->segment->home, piece->address, piece->bytes, lane, stamp);
    }
    tide__block_return_locked(piece, true);
  }
}

const tide__segment_kind tide__view_kind = { .block_rest_locked = tide__view_block_end_locked,
                                             .add_peer = tide__view_add_peer,
                                             .destroy = tide__view_destroy };

tide_status tide__view_block_finish(tide__gathering* g, tide__block* block, tide__block** out) {
  tide_device_cache* const device = g->request->device;
  const tide_status status = tide__marks_wait(device, g->request->lane, block->bytes);
  if (status == TIDE_OK) {
    uint32_t count = 1;
    tide__pieces_settle(g, block->pieces);
    for (const tide__block* piece = block->pieces; piece != NULL; piece = piece->heap_next) count++;
    if (count > tide__load_relaxed(&device->most_pieces)) tide__store_relaxed(&device->most_pieces, count);
    tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + count);
    block_tell(device, block, &g->request->context, true);
    *out = block;
    return TIDE_OK;
  }
  tide__mutex_lock(&g->request->lane->lock);
  g->pieces = view_uncut_locked(block);
  tide__mutex_unlock(&g->request->lane->lock);
  tide__pieces_give_up(g);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Using a view

// A run of idle memory in a view.
typedef struct view_run {
  uint64_t begin;
  uint64_t end;
  size_t last;  // the handle in which it ends
} view_run;

// The run over an offset, which is in the handle `index`; false if no memory is idle there.
static bool view_run_at(const tide__gathering* g, const tide__view* view, size_t index, uint64_t offset,
                        view_run* out) {
  if (view->handles[index]->idle_prefix == 0 && view->handles[index]->idle_suffix == 0) return false;
  const tide__handle* const handle = tide__handle_look_locked(g, view->handles[index]);
  const uint64_t begin = view->offsets[index];
  const uint64_t end = begin + handle->bytes;
  const bool is_in_prefix = offset < begin + handle->prefix;
  const bool is_in_suffix = offset >= end - handle->suffix;
  if (!is_in_prefix && !is_in_suffix) return false;
  *out = (view_run){ is_in_prefix ? begin : end - handle->suffix, is_in_suffix ? end : begin + handle->prefix,
                     index };
  for (size_t i = index; i > 0 && out->begin == view->offsets[i]; i--) {
    out->begin -= tide__handle_look_locked(g, view->handles[i - 1])->suffix;
  }
  for (size_t i = index + 1; i < view->count && out->end == view->offsets[i]; i++) {
    const uint64_t more = tide__handle_look_locked(g, view->handles[i])->prefix;
    if (more == 0) break;
    out->end += more;
    out->last = i;
  }
  return true;
}

// The bytes of a run of at least `bytes` in a view that is less than twice as long: it can only be in the
// middle. UINT64_MAX: there is none.
static uint64_t view_find_middle(const tide__gathering* g, const tide__view_entry* entry, uint64_t bytes,
                                 uint64_t* out_offset) {
  const tide__view* const view = entry->view;
  const uint64_t middle = entry->bytes / 2;
  view_run run;
  if (!view_run_at(g, view, tide__view_index(view, 0, middle), middle, &run)) return UINT64_MAX;
  *out_offset = run.begin;
  return run.end - run.begin >= bytes ? run.end - run.begin : UINT64_MAX;
}

// The bytes of the tightest run of idle memory of at least `bytes` in a view; UINT64_MAX if there is none. A
// run that begins behind an offset has the offset `bytes` further in it, so that a look at these is enough.
static uint64_t view_find_run(const tide__gathering* g, const tide__view_entry* entry, uint64_t bytes,
                              uint64_t* out_offset) {
  const tide__view* const view = entry->view;
  uint64_t best = UINT64_MAX;
  size_t index = 0;
  if (entry->bytes / 2 < bytes) return view_find_middle(g, entry, bytes, out_offset);
  for (uint64_t offset = bytes - 1; offset < entry->bytes; offset += bytes) {
    view_run run;
    index = tide__view_index(view, index, offset);
    if (!view_run_at(g, view, index, offset, &run)) continue;
    index = run.last;
    offset = run.end - 1;
    if (run.end - run.begin < bytes || run.end - run.begin >= best) continue;
    best = run.end - run.begin;
    *out_offset = run.begin;
  }
  return best;
}

// Has a view a hole inside a handle for the request, which is less than `best`?
static bool view_find_inner(const tide__gathering* g, const tide__view* view, uint64_t best,
                            uint64_t* out_offset) {
  bool is_found = false;
  for (size_t i = 0; i < view->count; i++) {
    const tide__handle* const handle = view->handles[i];
    if (handle->idle_inner < g->request->rounded || handle->idle_inner >= best) continue;
    if (!tide__inner_is_usable_locked(g, handle)) continue;
    best = handle->idle_inner;
    *out_offset = view->offsets[i] + handle->inner_hole->address - handle->address;
    is_found = true;
  }
  return is_found;
}

// The longest run or inner hole of idle memory in a view, whoever may use it.
static uint64_t view_most_idle(const tide__view* view) {
  uint64_t longest = 0;
  uint64_t run = 0;
  for (size_t i = 0; i < view->count; i++) {
    const tide__handle* const handle = view->handles[i];
    run += handle->idle_prefix;
    longest = tide__max(longest, tide__max(run, handle->idle_inner));
    if (handle->idle_prefix < handle->bytes) run = handle->idle_suffix;
  }
  return tide__max(longest, run);
}

// Is there no run of `bytes` in a view, because one that long has to use the handle in the middle?
static bool view_is_split(const tide__view_entry* entry, uint64_t bytes) {
  const tide__handle* const middle = entry->view->middle;
  return entry->bytes / 2 < bytes && middle->idle_prefix == 0 && middle->idle_suffix == 0 &&
         middle->idle_inner == 0;
}

// A view without a long enough run is not searched again, until so much more of its memory is idle that it
// may have one.
static bool view_search_locked(const tide__gathering* g, const tide__view_entry* entry, int32_t* bound,
                               uint64_t* out_offset) {
  const uint64_t bytes = g->request->rounded;
  const uint64_t most = view_is_split(entry, bytes) ? bytes - TIDE__GRAIN : view_most_idle(entry->view);
  *bound = tide__view_bound_of(most);
  if (most < bytes) return false;
  const uint64_t best = view_find_run(g, entry, bytes, out_offset);
  return view_find_inner(g, entry->view, best, out_offset) || best != UINT64_MAX;
}

static tide__segment* view_find_locked(const tide__gathering* g, uint64_t* out_offset) {
  tide__view_list* const list = &g->request->lane->views;
  const uint64_t bytes = g->request->rounded;
  const int32_t need = tide__view_need_of(bytes);
  const uint64_t window = bytes + bytes / 4 + VIEW_WINDOW_BYTES;
  const uint64_t most = tide__is_hurried(g->request) ? UINT64_MAX : window;
  for (size_t i = tide__view_list_next(list, 0, need); i < list->count;
       i = tide__view_list_next(list, i + 1, need)) {
    const tide__view_entry* const entry = &list->entries[i];
    if (entry->bytes < bytes || entry->bytes > most) continue;
    if (view_search_locked(g, entry, &list->bounds[i], out_offset)) return entry->view->segment;
  }
  return NULL;
}

tide__span tide__view_span(const tide__view* view, uint64_t offset, uint64_t bytes) {
  const size_t first = tide__view_index(view, 0, offset);
  tide__span span = { &view->handles[first], 1, offset - view->offsets[first] };
  while (first + span.count < view->count && view->offsets[first + span.count] < offset + bytes) span.count++;
  return span;
}

static tide__block* view_take_locked(tide__gathering* g, tide__segment* segment, uint64_t offset) {
  const tide__view* const view = segment->view;
  const size_t i = tide__view_index(view, 0, offset);
  const bool is_taken = tide__pieces_take_locked(g, &view->handles[i], view->count - i,
                                                 offset - view->offsets[i], g->request->rounded);
  TIDE_ASSERT(is_taken);
  return is_taken ? tide__view_cut_locked(g, segment, offset, g->request->rounded) : NULL;
}

static tide_status view_use(tide__gathering* g, tide__block** out) {
  const tide__request* const request = g->request;
  tide__block* block = NULL;
  for (size_t wanted = SPARES_AT_FIRST; wanted > 0 && block == NULL;) {
    uint64_t offset = 0;
    TIDE_TRY(tide__spares_get(g, wanted));
    tide__homes_lock(request);
    tide__survey_locked(g);
    tide__segment* const segment = view_find_locked(g, &offset);
    const size_t count = segment != NULL ? tide__view_span(segment->view, offset, request->rounded).count : 0;
    wanted = count > 0 ? tide__spares_for(count) : 0;
    if (wanted > 0 && wanted <= g->spares.count) block = view_take_locked(g, segment, offset);
    tide__homes_unlock(request);
  }
  return block != NULL ? tide__view_block_finish(g, block, out) : TIDE_OK;
}

tide_status tide__view_use(const tide__request* request, const tide__growth* growth, tide__block** out) {
  tide__gathering g = { .request = request, .look = growth->look, .can_wait = growth->can_wait };
  if (request->lane->view_count == 0) return TIDE_OK;
  const tide_status status = view_use(&g, out);
  tide__spares_give(&g);
  return status;
}
