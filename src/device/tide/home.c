// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Homes: where the memory of the policy `tide` lives. Each lane has one for small and one for large blocks, a
// range of addresses for more than the device has. Physical memory is made in handles of several sizes, each
// with a place at the top of a home, so that idle memory grows together there; blocks and holes go across the
// borders of handles. A handle that was made for a view is mapped at home only when a block is placed there.
//
// Growing, mapping and giving back take the gate, and the machine is called with no lock held: what is being
// changed is BUSY meanwhile. The records of handles change with the gate and the lock of the lane, so that
// either is enough to read them.
#include "device/tide/home.h"

#include <string.h>

#include "device/tide/lasting.h"
#include "device/tide/view_list.h"

static uint64_t unit_of(const tide_device_cache* device, const tide_device_options* options) {
  return tide__round_up(options->tide_least_handle_bytes, device->granularity);
}

uint64_t tide__home_unit(tide_device_cache* device) { return unit_of(device, tide__device_options(device)); }

uint64_t tide__request_unit(const tide__request* request) {
  return unit_of(request->device, request->options);
}

// ---------------------------------------------------------------------------------------------------
// Handles

void tide__handle_note_locked(tide_device_cache* device, tide__handle* handle) {
  tide__home* const home = handle->home->home;
  const bool is_odd = !handle->is_mapped || tide__handle_readiness(device, handle, 0, handle->bytes,
                                                                   handle->home->lane) != TIDE__READY;
  if (is_odd && !handle->is_odd) home->odd_count++;
  if (!is_odd && handle->is_odd) home->odd_count--;
  handle->is_odd = is_odd;
}

void tide__home_note_locked(tide_device_cache* device, tide__home* home, uint64_t address, uint64_t bytes) {
  TIDE__HANDLES_EACH(i, home, address, address + bytes) tide__handle_note_locked(device, home->handles[i]);
}

void tide__home_add_use_locked(tide_device_cache* device, tide__home* home, uint64_t address, uint64_t bytes,
                               tide__lane* lane, uint64_t stamp) {
  const uint64_t end = address + bytes;
  TIDE__HANDLES_EACH(i, home, address, end) {
    tide__handle* const handle = home->handles[i];
    const tide__user use = { lane, stamp, tide__handle_from(handle, address), tide__handle_to(handle, end) };
    tide__handle_note_use_locked(device, handle, &use);
    if (lane != home->segment->lane) tide__handle_note_locked(device, handle);
  }
}

tide__span tide__home_span(const tide__home* home, uint64_t address, uint64_t bytes) {
  const size_t first = tide__handle_index_at(home, address);
  tide__span span = { &home->handles[first], 0, address - home->handles[first]->address };
  while (first + span.count < home->count && span.handles[span.count]->address < address + bytes) {
    span.count++;
  }
  return span;
}

bool tide__home_is_ready_locked(const tide__block* block, uint64_t bytes) {
  const tide__home* const home = block->segment->home;
  if (home == NULL || home->odd_count == 0) return true;
  TIDE__HANDLES_EACH(i, home, block->address, block->address + bytes) {
    if (home->handles[i]->is_odd) return false;
  }
  return true;
}

// Finds the largest idle block in a handle that touches neither of its ends. `block` lies in the handle.
static void handle_survey_inner_locked(tide__handle* handle, tide__block* block) {
  const uint64_t end = tide__handle_end(handle);
  handle->inner_hole = NULL;
  handle->idle_inner = 0;
  while (block->address > handle->address) block = block->prev;
  if (tide__block_end(block) >= end) return;
  for (block = block->next; tide__block_end(block) < end; block = block->next) {
    if (block->state != TIDE__BLOCK_FREE || block->bytes <= handle->idle_inner) continue;
    handle->inner_hole = block;
    handle->idle_inner = block->bytes;
  }
}

// Notes what a block, idle or not, says about a handle in which it lies.
static void handle_survey_locked(tide__handle* handle, tide__block* block) {
  const bool is_idle = block->state == TIDE__BLOCK_FREE;
  const uint64_t from = tide__handle_from(handle, block->address);
  const uint64_t to = tide__handle_to(handle, tide__block_end(block));
  const uint64_t prefix = handle->idle_prefix;
  const uint64_t suffix = handle->idle_suffix;
  const uint64_t inner = handle->idle_inner;
  if (from == 0) {
    handle->idle_prefix = is_idle ? to : 0;
    handle->prefix_hole = is_idle ? block : NULL;
  }
  if (to == handle->bytes) {
    handle->idle_suffix = is_idle ? to - from : 0;
    handle->suffix_hole = is_idle ? block : NULL;
  }
  if (inner > 0 || to - from < handle->bytes) handle_survey_inner_locked(handle, block);
  if (handle->idle_prefix > prefix || handle->idle_suffix > suffix || handle->idle_inner > inner) {
    const uint64_t more = tide__difference(handle->idle_prefix, prefix);
    tide__view_places_grow(handle, tide__max(more, tide__difference(handle->idle_suffix, suffix)));
  }
}

static void home_set_idle_bit_locked(const tide__home* home, size_t index, bool is_set) {
  uint64_t* const word = &home->idle_bits[index / 64];
  const uint64_t bit = (uint64_t)1 << index % 64;
  *word = is_set ? *word | bit : *word & ~bit;
}

// The first handle that the block lies over is handle `i`. A block stays handed out as long as it is shared,
// so that a handle that is wholly idle is shared no more.
static void block_survey_locked(const tide__home* home, size_t i, tide__block* block) {
  const uint64_t end = tide__block_end(block);
  for (; i < home->count && home->handles[i]->address < end; i++) {
    tide__handle* const handle = home->handles[i];
    handle_survey_locked(handle, block);
    home_set_idle_bit_locked(home, i, handle->idle_prefix + handle->idle_suffix > 0);
    if (handle->idle_prefix == handle->bytes) handle->is_shared = false;
  }
}

// The next block may begin in the handle in which the last one ended.
static void home_survey_all_locked(const tide__segment* segment) {
  const tide__home* const home = segment->home;
  size_t i = 0;
  for (tide__block* block = segment->head; block != NULL; block = block->next) {
    i = tide__handle_index_from(home, i, block->address);
    block_survey_locked(home, i, block);
  }
}

void tide__home_survey_locked(const tide__segment* segment) {
  tide__home* const home = segment->home;
  if (!home->is_noting) home_survey_all_locked(segment);
  for (uint16_t i = 0; i < home->noted_count; i++) {
    tide__block* const block = home->noted[i];
    block_survey_locked(home, tide__handle_index_at(home, block->address), block);
    block->note = 0;
  }
  home->noted_count = 0;
  home->is_noting = true;
}

static void handle_arrays_free(tide_device_cache* device, tide__handle** handles, uint64_t* ends,
                               size_t capacity) {
  tide__heap_release(device->heap, handles, capacity, sizeof *handles);
  tide__heap_release(device->heap, ends, capacity, sizeof *ends);
}

// Makes room for `count` more handles in a home.
tide_status tide__home_make_room(tide_device_cache* device, tide__segment* segment, size_t count) {
  tide__home* const home = segment->home;
  TIDE_REQUIRE(tide__heap_grow(device->heap, (void**)&home->idle_bits, &home->idle_capacity,
                               (home->count + count) / 64 + 1, sizeof *home->idle_bits),
               TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", home->count + count);
  if (home->count + count <= home->capacity) return TIDE_OK;
  const size_t before_capacity = home->capacity;
  const size_t capacity = tide__max(home->count + count, before_capacity * 2);
  tide__handle** handles = tide__heap_alloc(device->heap, capacity, sizeof *handles);
  uint64_t* ends = tide__heap_alloc(device->heap, capacity, sizeof *ends);
  if (handles == NULL || ends == NULL) {
    handle_arrays_free(device, handles, ends, capacity);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", capacity);
  }
  tide__handle** const before_handles = home->handles;
  uint64_t* const before_ends = home->ends;
  tide__mutex_lock(&segment->lane->lock);
  if (home->count > 0) memcpy(handles, before_handles, home->count * sizeof *handles);
  if (home->count > 0) memcpy(ends, before_ends, home->count * sizeof *ends);
  home->handles = handles;
  home->ends = ends;
  home->capacity = capacity;
  tide__mutex_unlock(&segment->lane->lock);
  handle_arrays_free(device, before_handles, before_ends, before_capacity);
  return TIDE_OK;
}

void tide__home_add_handles_locked(tide_device_cache* device, tide__segment* segment, tide__handle** handles,
                                   size_t count, uint64_t address, bool is_mapped) {
  tide__home* const home = segment->home;
  for (size_t i = 0; i < count; i++) {
    tide__handle* const handle = handles[i];
    handle->address = address;
    handle->home = segment;
    handle->is_mapped = is_mapped;
    home_set_idle_bit_locked(home, home->count, false);
    tide__home_put_handle_locked(home, home->count++, handle);
    tide__handle_note_locked(device, handle);
    address += handle->bytes;
  }
}

// ---------------------------------------------------------------------------------------------------
// What a home does as a segment

// A use without a mark of its own counts for all memory of the lane: nearly always, it has the only stream.
// Small memory stays in its lane, which may get another external stream.
static void home_block_rest_locked(tide_device_cache* device, tide__block* block,
                                   const tide__call_context* context) {
  tide__lane* const lane = block->segment->lane;
  uint64_t stamp = block->last_use;
  bool is_noted = stamp != 0;
  (void)context;
  if (!block->is_small) tide__sizes_release_locked(lane, block->bytes);
  if (stamp == 0 && (!block->is_small || lane->is_unlisted)) is_noted = tide__lane_stamp_locked(lane, &stamp);
  if (is_noted && !block->is_small) {
    tide__home_add_use_locked(device, block->segment->home, block->address, block->bytes, lane, stamp);
  }
  tide__block_merge_locked(lane, block, TIDE__BLOCK_FREE);
  tide__free_index_put_locked(block, true);
}

static void home_piece_used_locked(tide_device_cache* device, tide__block* piece, tide__lane* user) {
  tide__home_add_use_locked(device, piece->segment->home, piece->address, piece->bytes, user,
                            piece->last_use);
}

static void home_free(tide_device_cache* device, tide__home* home) {
  if (home == NULL) return;
  tide__heap_release(device->heap, home->sizes, 1, sizeof *home->sizes);
  handle_arrays_free(device, home->handles, home->ends, home->capacity);
  tide__heap_release(device->heap, home->idle_bits, home->idle_capacity, sizeof *home->idle_bits);
  tide__heap_release(device->heap, home, 1, sizeof *home);
}

// What the lane knows about sizes goes to its newest home.
static void lane_set_home(tide__lane* lane, int kind, tide__segment* home) {
  tide__mutex_lock(&lane->lock);
  const tide__sizes* const known = kind == TIDE__LARGE ? tide__sizes_of_locked(lane) : NULL;
  if (home != NULL && home->home->sizes != NULL && known != NULL) *home->home->sizes = *known;
  lane->homes[kind] = home;
  tide__mutex_unlock(&lane->lock);
}

// The newest home of a kind that a lane has; NULL: none.
static tide__segment* lane_newest_home(const tide__lane* lane, bool is_small) {
  tide__segment* newest = NULL;
  TIDE_LIST_EACH(it, &lane->segments) {
    tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->home != NULL && segment->is_small == is_small) newest = segment;
  }
  return newest;
}

// The segment is not in its lane any more.
static void home_forget(tide_device_cache* device, tide__segment* segment) {
  tide__lane* const lane = segment->lane;
  tide__list_unlink(&segment->home->link);
  if (lane->homes[segment->is_small] == segment)
    lane_set_home(lane, segment->is_small, lane_newest_home(lane, segment->is_small));
  home_free(device, segment->home);
}

// Of a parked pool, what has memory is mapped, although no request may use it.
static void home_destroy(tide_device_cache* device, tide__segment* segment) {
  tide__home* const home = segment->home;
  const bool is_parked = tide__load_relaxed(&segment->lane->pool->is_parked) != 0;
  for (size_t i = 0; i < home->count; i++) {
    tide__handle* const handle = home->handles[i];
    if (handle->is_mapped || (is_parked && handle->physical != NULL)) {
      tide__ignore(tide_machine_unmap(device->machine, tide__pointer(handle->address), handle->bytes));
    }
    if (handle->physical != NULL) {
      tide__ignore(tide_machine_physical_free(device->machine, handle->physical));
    }
    tide__heap_release(device->heap, handle, 1, sizeof *handle);
  }
  tide__ignore(
      tide_machine_address_release(device->machine, tide__pointer(segment->address), segment->bytes));
  home_free(device, home);
}

static tide_status home_add_peer(tide_device_cache* device, const tide__segment* segment, int peer) {
  const tide__home* const home = segment->home;
  for (size_t i = 0; i < home->count; i++) {
    if (!home->handles[i]->is_mapped) continue;
    TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(home->handles[i]->address),
                                     home->handles[i]->bytes, peer, TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

static const tide__segment_kind home_kind = { .block_rest_locked = home_block_rest_locked,
                                              .piece_used_locked = home_piece_used_locked,
                                              .give_idle = tide__home_give_idle,
                                              .forget = home_forget,
                                              .add_peer = home_add_peer,
                                              .destroy = home_destroy };

// ---------------------------------------------------------------------------------------------------
// Segments

static tide_status home_reserve(const tide__request* request, tide__segment* segment, uint64_t bytes) {
  tide_device_cache* const device = request->device;
  void* address = NULL;
  TIDE_TRY(tide_machine_address_reserve(device->machine, device->index, bytes, 0, NULL, &address));
  if (!tide__lane_lock_with_spares(device, request->lane)) {
    tide__ignore(tide_machine_address_release(device->machine, address, bytes));
    return TIDE_ERR_NO_MEMORY;
  }
  segment->home->top =
      tide__segment_link_locked(segment, tide__address(address), bytes, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(segment->home->top);
  tide__mutex_unlock(&request->lane->lock);
  return TIDE_OK;
}

#define EXTERNAL_HOME_BYTES ((uint64_t)1 << 30)

// How many addresses a new home gets. There may be thousands of external streams, which hold little: their
// homes begin small, and each has as many addresses as those before.
static uint64_t home_wanted(const tide__request* request) {
  const uint64_t wanted = tide__reserve_wanted(request->device, &request->options->address_reserve);
  uint64_t before = 0;
  if (!request->lane->is_unlisted) return wanted;
  TIDE_LIST_EACH(it, &request->lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->home != NULL) before += segment->bytes;
  }
  return tide__min(wanted, tide__max(before, EXTERNAL_HOME_BYTES));
}

// There may be thousands of external streams, and what they have does not last.
static tide__home* home_new(const tide__request* request, tide__segment* segment) {
  tide_device_cache* const device = request->device;
  tide__home* const home = tide__heap_alloc(device->heap, 1, sizeof *home);
  if (home == NULL) return NULL;
  tide__list_init(&home->link);
  home->segment = segment;
  if (request->kind == TIDE__SMALL || request->lane->is_unlisted) return home;
  home->sizes = tide__heap_alloc(device->heap, 1, sizeof *home->sizes);
  if (home->sizes != NULL) return home;
  home_free(device, home);
  return NULL;
}

static tide_status home_make(const tide__request* request, uint64_t least_bytes) {
  tide_device_cache* const device = request->device;
  const uint64_t wanted = home_wanted(request);
  const uint64_t bytes = tide__round_up(tide__max(wanted, least_bytes), tide__request_unit(request));
  tide__segment* const segment =
      tide__segment_new(device, &home_kind, request->lane, request->kind == TIDE__SMALL);
  TIDE_REQUIRE(segment != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  segment->home = home_new(request, segment);
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (segment->home != NULL) {
    segment->is_expandable = true;
    segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
    segment->stack = request->context.stack;
    status = home_reserve(request, segment, bytes);
  } else {
    (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  }
  if (status != TIDE_OK) {
    home_free(device, segment->home);
    tide__segment_free(device, segment);
    return status;
  }
  if (!segment->is_small) tide__list_append(&device->homes, &segment->home->link);
  lane_set_home(request->lane, request->kind, segment);
  return TIDE_OK;
}

tide_status tide__home_with_room(const tide__request* request, uint64_t bytes, tide__segment** out) {
  TIDE_REQUIRE(bytes <= request->device->total_bytes, TIDE_ERR_NO_MEMORY,
               "%llu bytes are more than the device has", (unsigned long long)bytes);
  const tide__segment* const newest = request->lane->homes[request->kind];
  const bool has_room = newest != NULL && newest->home->top != NULL && newest->home->top->bytes >= bytes;
  if (!has_room) TIDE_TRY(home_make(request, bytes));
  *out = request->lane->homes[request->kind];
  return TIDE_OK;
}

tide__block* tide__home_cut_top_locked(tide__segment* segment, uint64_t bytes) {
  tide__home* const home = segment->home;
  tide__block* const top = home->top;
  tide__free_index_take_unmapped_locked(top);
  if (top->bytes == bytes) {
    home->top = NULL;
    return top;
  }
  tide__block* const front = tide__block_cut_front_locked(segment->lane, top, bytes);
  tide__free_index_put_unmapped_locked(top);
  return front;
}

void tide__home_uncut_top_locked(tide__segment* segment, tide__block* block) {
  tide__block_merge_locked(segment->lane, block, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(block);
  if (block->next == NULL) segment->home->top = block;
}
