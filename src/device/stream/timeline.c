// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that were released while other streams use them: the device allocator's part of core/stream_waits.h.
// A block carries notes of the streams that use it (tide__use). When it is released, each note becomes a
// wait.
//
// A block that is released inside a scope is deferred without events. It gets them when the scope is over,
// except for streams that the scope's capture has proven to be done, or capture.c makes it ready before.
#include "device/stream/stream.h"

static tide__block* waiter_block(tide__waiter* waiter) { return TIDE_OWNER(waiter, tide__block, waiter); }

// ---------------------------------------------------------------------------------------------------
// Uses

static void use_give(tide__block* block, tide__use* use) {
  tide__lane* const lane = block->segment->lane;
  tide__mutex_lock(&lane->lock);
  use->next = lane->spare_uses;
  lane->spare_uses = use;
  tide__mutex_unlock(&lane->lock);
}

// Drops the uses of a block: all, or those announced while a scope was open. These are over when the capture
// is, because it ends with all its streams joined.
static void uses_drop(tide__block* block, bool drops_all) {
  tide__use** place = &block->uses;
  while (*place != NULL) {
    tide__use* const use = *place;
    if (!drops_all && !use->is_captured) {
      place = &use->next;
      continue;
    }
    *place = use->next;
    use_give(block, use);
  }
}

// Turns the uses of a block into waits. Those for which there is no record stay.
static tide_status block_prepare(void* owner, tide__waiter* waiter) {
  tide_device_cache* const device = owner;
  tide__block* const block = waiter_block(waiter);
  if (block->is_scoped) {
    tide__markers_free(device, block);
    uses_drop(block, false);
  }
  while (block->uses != NULL) {
    tide__use* const use = block->uses;
    TIDE_TRY(tide__waiter_add(&device->waits, waiter, use->device, use->stream));
    block->uses = use->next;
    use_give(block, use);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The end of a wait

static void block_ready(tide_device_cache* device, tide__block* block, const tide__call_context* context) {
  tide__lane* const lane = block->segment->lane;
  if (block->is_scoped) {
    tide__markers_free(device, block);
    uses_drop(block, true);
  }
  tide__lane_turn(device, lane);
  tide__tally* const tally = tide__tally_enter(device, lane);
  tide__mutex_lock(&lane->lock);
  tide__block_wait_end_locked(device, block, context, tally);
  tide__lane_unlock_ended(device, lane);
  tide__tally_leave(device, tally);
  if (tide__is_recording(device)) {
    tide__history_make_room(&device->history, TIDE__STEP_ENTRIES + tide__load_relaxed(&device->most_pieces));
  }
}

static void blocks_ready(void* owner, tide__waiter* list, void* call) {
  while (list != NULL) {
    tide__waiter* const waiter = list;
    list = waiter->next;
    block_ready(owner, waiter_block(waiter), call);
  }
}

// ---------------------------------------------------------------------------------------------------
// Calls

void tide__timeline_init(tide_device_cache* device) {
  static const tide__waits_callbacks callbacks = { .ready = blocks_ready, .prepare = block_prepare };
  const tide__waits_options options = { .identity = TIDE__STREAMS_ASKED_AFTER, .survives_failures = false };
  tide__waits_init(&device->waits, device->machine, device->heap, &callbacks, device, options);
}

// An external stream may be gone, and is not asked.
static bool block_is_scoped(tide_device_cache* device, const tide__block* block) {
  const tide__lane* const lane = tide__block_lane(block);
  return tide__load_relaxed(&lane->is_external) ? tide__has_captures(device)
                                                : tide__is_capturing(device, lane->stream);
}

void tide__timeline_add(tide_device_cache* device, tide__block* block, const tide__call_context* context) {
  tide__call_context now = *context;
  block->is_scoped = block_is_scoped(device, block);
  if (!block->is_scoped) {
    tide__waits_begin(&device->waits, &block->waiter, &now);
    return;
  }
  const bool is_external = tide__load_relaxed(&tide__block_lane(block)->is_external);
  if (tide__device_options(device)->is_capture_reuse && !is_external) tide__markers_make(device, block);
  tide__waits_defer(&device->waits, &block->waiter);
}

tide_status tide__timeline_poll(tide_device_cache* device, const tide__call_context* context) {
  tide__call_context now = *context;
  const tide__waits_pass pass = { .mode = TIDE__WAITS_POLL, .call = &now };
  return tide__waits_run(&device->waits, &pass, NULL);
}

static bool block_is_of_pool(tide__waiter* waiter, const void* pool) {
  return tide__block_lane(waiter_block(waiter))->pool == pool;
}

static bool block_is_of_lane(tide__waiter* waiter, const void* lane) {
  return tide__block_lane(waiter_block(waiter)) == lane;
}

uint64_t tide__host_wait_begin(tide_device_cache* device) {
  const tide_error before = *tide_last_error();
  uint64_t now_ns = 0;
  if (tide_machine_clock(device->machine, &now_ns) != TIDE_OK) tide__error_restore(&before);
  return now_ns;
}

void tide__host_wait_end(tide_device_cache* device, uint64_t begin_ns) {
  const uint64_t end_ns = begin_ns != 0 ? tide__host_wait_begin(device) : 0;
  if (end_ns > begin_ns) TIDE__COUNT_MANY(device, host_wait_ns, end_ns - begin_ns);
}

// Runs a pass that waits; how long that takes is counted.
static tide_status pass_run(tide_device_cache* device, const tide__waits_pass* pass, bool* out_waited) {
  const bool is_needed = !tide__timeline_is_empty(device);
  const uint64_t begin_ns = is_needed ? tide__host_wait_begin(device) : 0;
  const tide_status status = tide__waits_run(&device->waits, pass, out_waited);
  tide__host_wait_end(device, begin_ns);
  return status;
}

tide_status tide__timeline_wait(tide_device_cache* device, const tide__pool* pool,
                                const tide__call_context* context) {
  tide__call_context now = *context;
  const tide__waits_pass pass = { TIDE__WAITS_FOR_ALL, pool != NULL ? block_is_of_pool : NULL, pool, &now };
  TIDE__COUNT(device, num_sync_all_streams);
  return pass_run(device, &pass, NULL);
}

tide_status tide__timeline_wait_one(tide_device_cache* device, const tide__lane* lane,
                                    const tide__call_context* context, bool* out_waited) {
  tide__call_context now = *context;
  const tide__waits_pass pass = { TIDE__WAITS_FOR_ONE, block_is_of_lane, lane, &now };
  return pass_run(device, &pass, out_waited);
}
