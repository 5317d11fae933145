// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The blocks of a lane: how a block is cut, joined, handed out and taken back. The lane's lock guards all of
// it.
#include "device/lane/lane.h"

// ---------------------------------------------------------------------------------------------------
// Spare records

tide__block* tide__lane_take_spare_locked(tide__lane* lane) {
  tide__block* const block = lane->spares;
  TIDE_ASSERT(block != NULL);
  lane->spares = block->heap_next;
  return block;
}

void tide__lane_give_spare_locked(tide__lane* lane, tide__block* block) {
  block->state = TIDE__BLOCK_SPARE;
  block->segment = NULL;
  block->heap_next = lane->spares;
  lane->spares = block;
}

// ---------------------------------------------------------------------------------------------------
// Idle blocks

uint64_t tide__block_counted_bytes(const tide__block* block) {
  if (!block->is_small || block->segment == NULL || block->segment->home == NULL) return block->bytes;
  return tide__round_up(tide__load_relaxed(&block->requested_bytes), TIDE__GRAIN);
}

bool tide__block_is_whole(const tide__block* block) { return block->prev == NULL && block->next == NULL; }

// ---------------------------------------------------------------------------------------------------
// Notes of what has changed, for the next survey of a home. A part of a noted block is noted as well, and so
// is what a noted block is joined with. So all memory that became idle, or is idle no more, is in noted ones.

void tide__notes_stop_locked(tide__home* home) {
  for (uint16_t i = 0; i < home->noted_count; i++) home->noted[i]->note = 0;
  home->noted_count = 0;
  home->is_noting = false;
}

static inline void note_locked(tide__block* block) {
  if (block->note != 0) return;
  tide__home* const home = block->segment->home;
  if (home == NULL || !home->is_noting) return;
  if (home->noted_count == TIDE__NOTED_MOST) {
    tide__notes_stop_locked(home);
    return;
  }
  home->noted[home->noted_count++] = block;
  block->note = home->noted_count;
}

// The memory of a record that is about to go belongs to another one now.
static inline void note_move_locked(tide__block* from, tide__block* to) {
  if (from->note == 0) return;
  tide__home* const home = to->segment->home;
  tide__block* const moved = to->note == 0 ? to : home->noted[--home->noted_count];
  home->noted[from->note - 1] = moved;
  moved->note = from->note;
  from->note = 0;
}

static inline void index_put_locked(tide__block* block, bool restamps) {
  tide__lane* const lane = block->segment->lane;
  const int kind = block->is_small ? TIDE__SMALL : TIDE__LARGE;
  block->state = TIDE__BLOCK_FREE;
  block->tie = block->address - block->segment->tie_origin;
  if (restamps) {
    block->stamp = tide__load_relaxed(&lane->pool->searches[kind]);
    lane->puts++;
  }
  tide__bins_put(&lane->free_index[kind].bins, block);
  note_locked(block);
}

static inline void index_take_locked(tide__block* block) {
  tide__lane* const lane = block->segment->lane;
  tide__bins_take(&lane->free_index[block->is_small ? TIDE__SMALL : TIDE__LARGE].bins, block);
  lane->takes++;
  block->state = TIDE__BLOCK_BUSY;
  note_locked(block);
}

void tide__free_index_put_locked(tide__block* block, bool restamps) { index_put_locked(block, restamps); }

void tide__free_index_take_locked(tide__block* block) { index_take_locked(block); }

void tide__free_index_put_unmapped_locked(tide__block* block) {
  block->state = TIDE__BLOCK_UNMAPPED;
  block->tree.key = block->address - block->segment->tie_origin;
  block->tree.tie = 0;
  (void)tide__tree_insert(&tide__block_free_index(block)->unmapped, &block->tree);
}

void tide__free_index_take_unmapped_locked(tide__block* block) {
  tide__tree_remove(&tide__block_free_index(block)->unmapped, &block->tree);
  block->state = TIDE__BLOCK_BUSY;
}

// ---------------------------------------------------------------------------------------------------
// Chains

// A new record in the segment of `block`, BUSY, not yet in the chain.
static tide__block* block_beside(tide__lane* lane, const tide__block* block, uint64_t address,
                                 uint64_t bytes) {
  tide__block* const made = tide__lane_take_spare_locked(lane);
  made->address = address;
  made->bytes = bytes;
  made->segment = block->segment;
  tide__store_relaxed(&made->lane, lane);
  made->is_small = block->is_small;
  made->state = TIDE__BLOCK_BUSY;
  tide__store_relaxed(&made->requested_bytes, 0);
  tide__store_relaxed(&made->stack, 0);
  made->uses = NULL;
  made->pieces = NULL;
  made->last_use = 0;
  made->note = 0;
  if (block->note != 0) note_locked(made);
  return made;
}

tide__block* tide__block_cut_front_locked(tide__lane* lane, tide__block* block, uint64_t bytes) {
  TIDE_ASSERT(bytes > 0 && bytes < block->bytes);
  tide__block* const front = block_beside(lane, block, block->address, bytes);
  front->prev = block->prev;
  front->next = block;
  if (front->prev != NULL) front->prev->next = front;
  if (front->prev == NULL) block->segment->head = front;
  block->prev = front;
  block->address += bytes;
  block->bytes -= bytes;
  return front;
}

tide__block* tide__block_cut_back_locked(tide__lane* lane, tide__block* block, uint64_t bytes) {
  TIDE_ASSERT(bytes > 0 && bytes < block->bytes);
  tide__block* const back = block_beside(lane, block, tide__block_end(block) - bytes, bytes);
  back->prev = block;
  back->next = block->next;
  if (back->next != NULL) back->next->prev = back;
  block->next = back;
  block->bytes -= bytes;
  return back;
}

// Takes a neighbour out of its index; BUSY ones are in none.
static void neighbour_take_locked(tide__block* block) {
  if (block->state == TIDE__BLOCK_FREE) index_take_locked(block);
  if (block->state == TIDE__BLOCK_UNMAPPED) tide__free_index_take_unmapped_locked(block);
}

void tide__block_absorb_prev_locked(tide__lane* lane, tide__block* block) {
  tide__block* const prev = block->prev;
  neighbour_take_locked(prev);
  block->address = prev->address;
  block->bytes += prev->bytes;
  block->prev = prev->prev;
  if (block->prev != NULL) block->prev->next = block;
  if (block->prev == NULL) block->segment->head = block;
  note_move_locked(prev, block);
  tide__lane_give_spare_locked(lane, prev);
}

void tide__block_absorb_next_locked(tide__lane* lane, tide__block* block) {
  tide__block* const next = block->next;
  neighbour_take_locked(next);
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != NULL) block->next->prev = block;
  note_move_locked(next, block);
  tide__lane_give_spare_locked(lane, next);
}

void tide__block_merge_locked(tide__lane* lane, tide__block* block, uint8_t state) {
  if (block->prev != NULL && block->prev->state == state) tide__block_absorb_prev_locked(lane, block);
  if (block->next != NULL && block->next->state == state) tide__block_absorb_next_locked(lane, block);
}

// ---------------------------------------------------------------------------------------------------
// Handing out and taking back

// Keeps the front of a block for the request and puts the rest back; returns the front.
static tide__block* block_split_locked(const tide__request* request, tide__block* block) {
  tide__lane* const lane = block->segment->lane;
  const bool was_whole = tide__block_is_whole(block);
  tide__block* const front = tide__block_cut_front_locked(lane, block, request->rounded);
  if (!block->segment->is_expandable) {
    tide__tally_split(&lane->tally, block->is_small, was_whole ? 1 : 0,
                      was_whole ? (int64_t)block->bytes : -(int64_t)front->bytes);
  }
  // While the block was in the hands of this thread, without the lock, its neighbour may have become idle.
  if (block->next != NULL && block->next->state == TIDE__BLOCK_FREE) {
    if (!block->segment->is_expandable) tide__tally_split(&lane->tally, block->is_small, -1, 0);
    tide__block_absorb_next_locked(lane, block);
  }
  index_put_locked(block, true);
  return front;
}

// Takes the part of an idle block from `address` on; what lies before it stays idle.
tide__block* tide__block_take_from_locked(tide__block* block, uint64_t address) {
  tide__lane* const lane = block->segment->lane;
  index_take_locked(block);
  if (block->address == address) return block;
  const bool was_whole = tide__block_is_whole(block);
  const bool is_counted = !block->segment->is_expandable;
  tide__block* const front = tide__block_cut_front_locked(lane, block, address - block->address);
  index_put_locked(front, true);
  // As if the front were a request that is released at once: one idle part more, or both are the first two.
  if (is_counted) {
    tide__tally_split(&lane->tally, block->is_small, was_whole ? 2 : 1,
                      was_whole ? (int64_t)(front->bytes + block->bytes) : 0);
  }
  return block;
}

// What is active decides about growth: of large blocks no thread keeps much to itself.
static inline void tally_settle_large(tide_device_cache* device, tide__tally* tally) {
  const int64_t bytes = tally->items[TIDE__TALLY_BYTES].sides[TIDE__LARGE].sum;
  if (device->has_tcaches && (bytes > TIDE__TALLY_BYTES_KEPT || bytes < -TIDE__TALLY_BYTES_KEPT)) {
    tide__tally_settle(device, tally);
  }
}

tide__block* tide__block_commit_locked(const tide__request* request, tide__block* block, bool splits,
                                       tide__tally* tally, tide_block* out) {
  tide_device_cache* const device = request->device;
  tide__lane* const lane = block->segment->lane;
  if (block->state == TIDE__BLOCK_FREE) index_take_locked(block);
  if (splits) {
    block = block_split_locked(request, block);
  } else if (!tide__block_is_whole(block) && !block->segment->is_expandable) {
    tide__tally_split(&lane->tally, block->is_small, -1, -(int64_t)block->bytes);
  }
  block->state = TIDE__BLOCK_ALLOCATED;
  block->last_use = 0;
  tide__store_relaxed(&block->requested_bytes, request->bytes);
  tide__store_relaxed(&block->stack, request->context.stack);
  tide__tally_hand_out(tally, block->is_small, tide__block_counted_bytes(block), request->bytes);
  if (!block->is_small) tally_settle_large(device, tally);
  if (block->bytes >= request->options->max_split_bytes) tide__totals_oversize(device, true);
  TIDE__TALLY_CHANGED(device, tally);
  if ((tide__load_relaxed(&device->detours) & TIDE__RECORDS) != 0) {
    tide__entry_add(device, TIDE_ACTION_ALLOC, &request->context, request->context.stack, lane,
                    block->address, request->bytes);
  }
  block->is_public = out != NULL;
  block->is_borrowed = request->is_borrowing;
  if (out == NULL) return block;
  out->address = (void*)(uintptr_t)block->address;
  out->handle = tide__slots_publish(&device->blocks, block);
  tide__map_set(&device->map, block->address, block->is_small, block->slot.index);
  return block;
}

void tide__block_record_free(tide_device_cache* device, tide_action action, const tide__block* block,
                             const tide__call_context* context) {
  const uint32_t stack = context->stack != 0 ? context->stack : tide__load_relaxed(&block->stack);
  tide__entry_add(device, action, context, stack, block->segment->lane, block->address,
                  tide__load_relaxed(&block->requested_bytes));
}

// The change of the idle parts of segments in use when a block becomes idle between its neighbours.
static void count_freed(tide__lane* lane, const tide__block* block) {
  const bool has_prev = block->prev != NULL && block->prev->state == TIDE__BLOCK_FREE;
  const bool has_next = block->next != NULL && block->next->state == TIDE__BLOCK_FREE;
  const uint64_t absorbed = (has_prev ? block->prev->bytes : 0) + (has_next ? block->next->bytes : 0);
  const bool is_whole_then = (block->prev == NULL || (has_prev && block->prev->prev == NULL)) &&
                             (block->next == NULL || (has_next && block->next->next == NULL));
  const int64_t count = (is_whole_then ? 0 : 1) - (has_prev ? 1 : 0) - (has_next ? 1 : 0);
  tide__tally_split(&lane->tally, block->is_small, count,
                    is_whole_then ? -(int64_t)absorbed : (int64_t)block->bytes);
}

// Makes a block idle that is no longer in use.
static void block_rest_locked(tide_device_cache* device, tide__block* block,
                              const tide__call_context* context, tide__tally* tally) {
  tide__lane* const lane = block->segment->lane;
  const bool is_recording = (tide__load_relaxed(&device->detours) & TIDE__RECORDS) != 0;
  if (is_recording) tide__block_record_free(device, TIDE_ACTION_FREE_COMPLETED, block, context);
  if (!block->segment->is_expandable) count_freed(lane, block);
  tide__store_relaxed(&block->stack, 0);
  if (block->segment->kind->block_rest_locked != NULL) {
    block->segment->kind->block_rest_locked(device, block, context);
  } else {
    tide__block_merge_locked(lane, block, TIDE__BLOCK_FREE);
    index_put_locked(block, true);
  }
  TIDE__TALLY_CHANGED(device, tally);
}

void tide__pieces_give(tide_device_cache* device, tide__block* pieces, tide__lane* user) {
  while (pieces != NULL) {
    tide__block* const piece = pieces;
    tide__lane* const lane = piece->segment->lane;
    pieces = piece->heap_next;
    tide__mutex_lock(&lane->lock);
    if (user != NULL) piece->segment->kind->piece_used_locked(device, piece, user);
    tide__block_return_locked(piece, true);
    tide__mutex_unlock(&lane->lock);
  }
}

__attribute__((always_inline)) static inline bool block_end_locked(tide_device_cache* device,
                                                                   tide__block* block,
                                                                   const tide__call_context* context,
                                                                   tide__tally* tally) {
  const bool is_recording = (tide__load_relaxed(&device->detours) & TIDE__RECORDS) != 0;
  const tide_device_options* const options = &tide__load_acquire(&device->settings)->options;
  if (block->is_public) tide__map_clear(&device->map, block->address, block->is_small);
  block->state = TIDE__BLOCK_PENDING;
  if (block->bytes >= options->max_split_bytes) tide__totals_oversize(device, false);
  if (is_recording) tide__block_record_free(device, TIDE_ACTION_FREE_REQUESTED, block, context);
  tide__store_relaxed(&block->use_word, 0);
  if (block->uses != NULL) {
    tide__tally_settle(device, tally);
    tide__totals_wait_begin(device, block);
    return true;
  }
  tide__tally_take_back(tally, block->is_small, tide__block_counted_bytes(block),
                        tide__load_relaxed(&block->requested_bytes));
  if (!block->is_small) tally_settle_large(device, tally);
  block_rest_locked(device, block, context, tally);
  return false;
}

bool tide__block_end_locked(tide_device_cache* device, tide__block* block, const tide__call_context* context,
                            tide__tally* tally) {
  return block_end_locked(device, block, context, tally);
}

// The handle is ended under the lock of the lane: of two releases one finds it ended.
TIDE_UNCHECKED_LOCKING tide__release tide__block_release(tide_device_cache* device, tide__block* block,
                                                         uint64_t handle, uint64_t last_use,
                                                         const tide__call_context* context) {
  tide__lane* const lane = tide__load_relaxed(&block->lane);
  tide__release result = TIDE__RELEASE_REFUSED;
  tide__lane_turn(device, lane);
  tide__tally* const tally = tide__tally_enter(device, lane);
  tide__mutex_lock(&lane->lock);
  if (tide__slots_handle(&device->blocks, block) == handle) {
    tide__slots_end(block);
    block->last_use = last_use;
    result = block_end_locked(device, block, context, tally) ? TIDE__RELEASE_WAITS : TIDE__RELEASE_DONE;
  }
  tide__lane_shut(device, lane, tally);
  return result;
}

void tide__block_wait_end_locked(tide_device_cache* device, tide__block* block,
                                 const tide__call_context* context, tide__tally* tally) {
  tide__tally_settle(device, tally);
  tide__totals_wait_end(device, block);
  block_rest_locked(device, block, context, tally);
}

// A part of a segment in use that was idle, and is again, may find neighbours that became idle meanwhile.
void tide__block_return_locked(tide__block* block, bool restamps) {
  tide__lane* const lane = block->segment->lane;
  const bool was_whole = tide__block_is_whole(block);
  const uint64_t bytes_before = block->bytes;
  const int64_t absorbed = (block->prev != NULL && block->prev->state == TIDE__BLOCK_FREE) +
                           (block->next != NULL && block->next->state == TIDE__BLOCK_FREE);
  tide__block_merge_locked(lane, block, TIDE__BLOCK_FREE);
  if (!block->segment->is_expandable && !was_whole && absorbed > 0) {
    const bool is_whole = tide__block_is_whole(block);
    TIDE_ASSERT(block->bytes > bytes_before);
    tide__tally_split(&lane->tally, block->is_small, -absorbed - is_whole,
                      is_whole ? -(int64_t)block->bytes : 0);
  }
  index_put_locked(block, restamps);
}

void tide__block_hollow_locked(tide__block* block, uint64_t from, uint64_t to) {
  tide__lane* const lane = block->segment->lane;
  if (from > block->address) {
    tide__block_return_locked(tide__block_cut_front_locked(lane, block, from - block->address), true);
  }
  if (to < tide__block_end(block)) {
    tide__block_return_locked(tide__block_cut_back_locked(lane, block, tide__block_end(block) - to), true);
  }
  tide__block_merge_locked(lane, block, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(block);
}

// Uncached memory has no lane and no lock. The record may be that of another block by now.
TIDE_UNCHECKED_LOCKING tide_status tide__block_place(tide_device_cache* device, tide_block block,
                                                     const char* call, tide__place* out) {
  const tide__block* const record = tide__slots_find(&device->blocks, block.handle);
  tide__lane* const lane = record != NULL ? tide__block_lane(record) : NULL;
  if (lane != NULL) tide__mutex_lock(&lane->lock);
  const bool is_there = record != NULL && tide__slots_handle(&device->blocks, record) == block.handle;
  if (is_there) *out = (tide__place){ record->segment, record->address, record->bytes };
  if (lane != NULL) tide__mutex_unlock(&lane->lock);
  TIDE_REQUIRE(is_there, TIDE_ERR_HANDLE, "%s: %p is not handed out", call, block.address);
  return TIDE_OK;
}
