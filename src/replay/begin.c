// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Old segments are made one by one at their recorded addresses, and their blocks handed out. The parts of an
// address reserve, which follow each other, are one segment of the cache, with holes between them.
//
// Cost: O(n) for n old blocks.
#include "replay/begin.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "device/seed.h"

bool tide__begins_in_place(const tide__script* script, const tide_replay_options* options) {
  return script->old_count > 0 && options->device->policy == TIDE_POLICY_TORCH && options->scale == 1 &&
         options->tag_count == 0;
}

// Ranges and blocks for the segments of a run, as many as any one needs.
typedef struct begin_room {
  tide__seed_range* holes;   // owned
  tide__seed_range* ranges;  // owned
  tide_block* blocks;        // owned
  size_t count;
} begin_room;

static tide_status room_init(begin_room* room, const tide__stage* stage) {
  room->count = stage->script->old_block_count + stage->script->old_count + 1;
  room->holes = tide__heap_alloc(stage->heap, room->count, sizeof *room->holes);
  room->ranges = tide__heap_alloc(stage->heap, room->count, sizeof *room->ranges);
  room->blocks = tide__heap_alloc(stage->heap, room->count, sizeof *room->blocks);
  const bool has_memory = room->holes != NULL && room->ranges != NULL && room->blocks != NULL;
  TIDE_REQUIRE(has_memory, TIDE_ERR_NO_MEMORY, "replay: no memory for %zu old blocks", room->count);
  return TIDE_OK;
}

static void room_fini(begin_room* room, const tide__stage* stage) {
  tide__heap_release(stage->heap, room->holes, room->count, sizeof *room->holes);
  tide__heap_release(stage->heap, room->ranges, room->count, sizeof *room->ranges);
  tide__heap_release(stage->heap, room->blocks, room->count, sizeof *room->blocks);
}

// Adds the blocks of an old segment, and the hole before it.
static void seed_add(tide__seed* seed, begin_room* room, const tide__script* script,
                     const tide__old_segment* old) {
  const uint64_t offset = old->address - old->base;
  if (offset > seed->bytes)
    room->holes[seed->hole_count++] = (tide__seed_range){ seed->bytes, offset - seed->bytes, 0 };
  for (uint32_t i = 0; i < old->block_count; i++) {
    const size_t index = old->first_block + i;
    const tide__old_block* const block = &script->old_blocks[index];
    room->ranges[seed->block_count++] =
        (tide__seed_range){ block->address - old->base, block->bytes, script->steps[index].bytes };
  }
  seed->bytes = offset + old->bytes;
}

// The blocks of steps from `first` on are live.
static void stage_hold(tide__stage* stage, size_t first, const tide_block* blocks, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const tide__step* const step = &stage->script->steps[first + i];
    const uint64_t bytes = tide__request_bytes(step->bytes);
    stage->held[step->slot] = (tide__held){ blocks[i], bytes };
    stage->live_bytes += bytes;
  }
  stage->peak_bytes = tide__max(stage->peak_bytes, stage->live_bytes);
}

// Makes the segment of the old segments from `first` to below `end`, which share a base.
static tide_status begin_segment(tide__stage* stage, begin_room* room, size_t first, size_t end) {
  const tide__script* const script = stage->script;
  const tide__old_segment* const old = &script->old_segments[first];
  const tide_call call = old->is_expandable ? TIDE_CALL_ADDRESS_RESERVE : TIDE_CALL_RAW_ALLOC;
  TIDE_TRY(tide__stage_pool_make(stage, old->pool));
  tide__seed seed = { .pool = stage->pools[old->pool], .stream = stage->streams[old->stream] };
  seed.is_small = old->is_small;
  seed.is_expandable = old->is_expandable;
  for (size_t i = first; i < end; i++) seed_add(&seed, room, script, &script->old_segments[i]);
  seed.holes = room->holes;
  seed.blocks = room->ranges;
  TIDE_TRY(tide_dry_dictate(stage->machine, 0, call, tide__pointer(old->base)));
  TIDE_TRY(tide__device_seed(stage->device, &seed, room->blocks));
  stage_hold(stage, old->first_block, room->blocks, seed.block_count);
  return TIDE_OK;
}

static tide_status begin_segments(tide__stage* stage, begin_room* room) {
  const tide__script* const script = stage->script;
  size_t end = 0;
  for (size_t first = 0; first < script->old_count; first = end) {
    const tide__old_segment* const old = script->old_segments;
    for (end = first + 1; end < script->old_count && old[end].base == old[first].base; end++) continue;
    TIDE_TRY(begin_segment(stage, room, first, end));
  }
  return TIDE_OK;
}

tide_status tide__stage_begin(tide__stage* stage) {
  const tide__script* const script = stage->script;
  begin_room room = { .count = 0 };
  tide_status status = room_init(&room, stage);
  if (status == TIDE_OK) status = begin_segments(stage, &room);
  room_fini(&room, stage);
  for (size_t i = (size_t)script->before_count; i < script->first_step && status == TIDE_OK; i++)
    status = tide__stage_wait(stage, &script->steps[i]);
  tide_device_reset_accumulated(stage->device);
  tide_device_reset_peaks(stage->device);
  return status;
}
