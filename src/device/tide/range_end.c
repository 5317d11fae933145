// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The beginning and the end of ranges, and how their memory returns to its homes. The caller has the gate.
#include "device/tide/range.h"

// ---------------------------------------------------------------------------------------------------
// Taking memory away

// Adjacent blocks that have memory; from `first` to `last`.
typedef struct range_run {
  tide__block* first;
  tide__block* last;
  size_t count;
  uint64_t from;
  uint64_t to;
} range_run;

bool tide__range_has_gap(tide_range* range, uint64_t from, uint64_t to) {
  tide__lane* const lane = range->segment->lane;
  tide__mutex_lock(&lane->lock);
  const tide__block* block = tide__range_block_at(range, from);
  while (block != NULL && block->address < to && block->state != TIDE__BLOCK_VACANT) block = block->next;
  const bool has_gap = block != NULL && block->address < to;
  tide__mutex_unlock(&lane->lock);
  return has_gap;
}

// The first run of blocks that lie wholly between two addresses; false if there is none.
static bool run_find(const tide_range* range, uint64_t from, uint64_t to, range_run* out) {
  *out = (range_run){ .first = NULL };
  tide__block* block = tide__range_block_at(range, from);
  for (; block != NULL && tide__block_end(block) <= to; block = block->next) {
    const bool is_in = block->state == TIDE__BLOCK_COMMITTED && block->address >= from;
    if (!is_in && out->first != NULL) break;
    if (!is_in) continue;
    if (out->first == NULL) out->first = block;
    out->last = block;
    out->count++;
  }
  if (out->first == NULL) return false;
  out->from = out->first->address;
  out->to = tide__block_end(out->last);
  return true;
}

bool tide__range_has_memory(tide_range* range, uint64_t from, uint64_t to) {
  range_run run;
  tide__mutex_lock(&range->segment->lane->lock);
  const bool has_memory = run_find(range, from, to, &run);
  tide__mutex_unlock(&range->segment->lane->lock);
  return has_memory;
}

#define RUN_EACH(it, run) \
  for (tide__block* it = (run)->first; it != NULL; it = it == (run)->last ? NULL : it->next)

static void run_set(const tide_range* range, const range_run* run, uint8_t state) {
  tide__mutex_lock(&range->segment->lane->lock);
  RUN_EACH(it, run) it->state = state;
  tide__mutex_unlock(&range->segment->lane->lock);
}

// Tells observers that the memory is about to go, and that it did not after all.
static void run_announce(const tide_range* range, const range_run* run, const tide__call_context* context) {
  tide_device_cache* const device = range->device;
  if (!tide__is_recording(device)) return;
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + 2 * run->count);
  RUN_EACH(it, run) {
    tide__block_record_free(device, TIDE_ACTION_FREE_REQUESTED, it, context);
    tide__block_record_free(device, TIDE_ACTION_FREE_COMPLETED, it, context);
  }
  tide__unmapping_tell(device, range->segment, run->from, run->to, context);
}

static void run_revoke(const tide_range* range, const range_run* run, const tide__call_context* context) {
  tide_device_cache* const device = range->device;
  if (!tide__is_recording(device)) return;
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + run->count);
  tide__unmapping_revoke(device, range->segment, run->from, run->to, context);
  RUN_EACH(it, run) {
    tide__entry_add(device, TIDE_ACTION_ALLOC, context, tide__load_relaxed(&it->stack), range->segment->lane,
                    it->address, it->bytes);
  }
}

// The memory is back at its homes.
static void run_tell(const tide_range* range, const range_run* run, const tide__block* pieces,
                     const tide__call_context* context) {
  tide_device_cache* const device = range->device;
  if (!tide__is_recording(device)) return;
  tide__end_keep(device, TIDE_ACTION_SEGMENT_UNMAP, context, context->stack, range->segment->lane, run->from,
                 run->to - run->from);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + run->count);
  for (const tide__block* piece = pieces; piece != NULL; piece = piece->heap_next) {
    tide__entry_add(device, TIDE_ACTION_SEGMENT_MAP, context, context->stack, tide__block_lane(piece),
                    piece->address, piece->bytes);
  }
}

// Makes the addresses of a run vacant, and returns its pieces as a list.
static tide__block* run_vacate_locked(tide_range* range, const range_run* run) {
  tide__lane* const lane = range->segment->lane;
  tide__block* pieces = NULL;
  tide__block** place = &pieces;
  RUN_EACH(it, run) {
    *place = it->pieces;
    place = &it->pieces->heap_next;
    it->pieces = NULL;
    tide__range_unnote_locked(range, it);
  }
  tide__block* const block = run->last;
  while (block->address != run->from) tide__block_absorb_prev_locked(lane, block);
  tide__store_relaxed(&block->requested_bytes, 0);
  tide__store_relaxed(&block->stack, 0);
  if (block->prev != NULL && block->prev->state == TIDE__BLOCK_VACANT) {
    tide__range_unnote_locked(range, block->prev);
  }
  if (block->next != NULL && block->next->state == TIDE__BLOCK_VACANT) {
    tide__range_unnote_locked(range, block->next);
  }
  tide__block_merge_locked(lane, block, TIDE__BLOCK_VACANT);
  block->state = TIDE__BLOCK_VACANT;
  tide__range_note_locked(range, block);
  return pieces;
}

static tide_status run_empty(tide_range* range, const range_run* run, const tide__call_context* context) {
  tide_device_cache* const device = range->device;
  const uint64_t bytes = run->to - run->from;
  run_set(range, run, TIDE__BLOCK_BUSY);
  run_announce(range, run, context);
  const tide_status status = tide_machine_unmap(device->machine, tide__pointer(run->from), bytes);
  if (status != TIDE_OK) {
    run_set(range, run, TIDE__BLOCK_COMMITTED);
    run_revoke(range, run, context);
    return status;
  }
  tide__mutex_lock(&range->segment->lane->lock);
  tide__block* const pieces = run_vacate_locked(range, run);
  tide__mutex_unlock(&range->segment->lane->lock);
  (void)tide__add_relaxed(&range->committed, -bytes);
  run_tell(range, run, pieces, context);
  tide__totals_commit(device, -(int64_t)run->count, -(int64_t)bytes);
  tide__pieces_give(device, pieces, NULL);
  return TIDE_OK;
}

tide_status tide__range_empty(tide_range* range, uint64_t from, uint64_t to,
                              const tide__call_context* context) {
  range_run run;
  for (uint64_t at = from; run_find(range, at, to, &run); at = run.to) {
    TIDE_TRY(run_empty(range, &run, context));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// What a range does as a segment

#define BLOCKS_EACH(it, segment)                                           \
  for (const tide__block* it = (segment)->head; it != NULL; it = it->next) \
    if (it->state != TIDE__BLOCK_VACANT)

static tide_status range_add_peer(tide_device_cache* device, const tide__segment* segment, int peer) {
  BLOCKS_EACH(it, segment) {
    TIDE_TRY(tide_machine_set_access(device->machine, tide__pointer(it->address), it->bytes, peer,
                                     TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

static void range_destroy(tide_device_cache* device, tide__segment* segment) {
  BLOCKS_EACH(it, segment) {
    tide__ignore(tide_machine_unmap(device->machine, tide__pointer(it->address), it->bytes));
  }
  tide__ignore(
      tide_machine_address_release(device->machine, tide__pointer(segment->address), segment->bytes));
  tide__heap_release(device->heap, segment->range, 1, sizeof *segment->range);
}

static const tide__segment_kind range_kind = { .add_peer = range_add_peer, .destroy = range_destroy };

// ---------------------------------------------------------------------------------------------------
// Beginning and end

static tide_status range_reserve(tide_range* range, tide__lane* lane) {
  tide_device_cache* const device = range->device;
  tide__segment* const segment = range->segment;
  void* address = NULL;
  TIDE_TRY(tide_machine_address_reserve(device->machine, device->index, range->bytes, 0, NULL, &address));
  if (!tide__lane_lock_with_spares(device, lane)) {
    tide__ignore(tide_machine_address_release(device->machine, address, range->bytes));
    return TIDE_ERR_NO_MEMORY;
  }
  range->address = tide__address(address);
  segment->range = range;
  segment->is_expandable = true;
  segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
  tide__range_note_locked(
      range, tide__segment_link_locked(segment, range->address, range->bytes, TIDE__BLOCK_VACANT));
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

tide_status tide__range_new(tide_device_cache* device, tide__lane* lane, uint64_t bytes, uint32_t stack,
                            tide_range** out) {
  tide_range* const range = tide__heap_alloc(device->heap, 1, sizeof *range);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a range");
  range->device = device;
  range->unit = tide__home_unit(device);
  range->bytes = tide__round_up(bytes, range->unit);
  range->segment = tide__segment_new(device, &range_kind, lane, false);
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (range->segment != NULL) {
    range->segment->stack = stack;
    status = range_reserve(range, lane);
  } else {
    (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  }
  if (status == TIDE_OK) {
    *out = range;
    return TIDE_OK;
  }
  if (range->segment != NULL) tide__segment_free(device, range->segment);
  tide__heap_release(device->heap, range, 1, sizeof *range);
  return status;
}

tide_status tide__range_free(tide_range* range) {
  tide_device_cache* const device = range->device;
  tide__segment* const segment = range->segment;
  TIDE_TRY(tide__range_clear(device, range->address, range->bytes));
  TIDE_TRY(tide_machine_address_release(device->machine, tide__pointer(range->address), range->bytes));
  tide__mutex_lock(&segment->lane->lock);
  tide__segment_unlink_locked(segment);
  tide__mutex_unlock(&segment->lane->lock);
  tide__segment_free(device, segment);
  tide__heap_release(device->heap, range, 1, sizeof *range);
  return TIDE_OK;
}
