// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The script: its streams, what is derived from its steps, and windows of steps.
//
// Cost: O(n) for n steps; a search takes O(log n).
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "replay/steps.h"

// ---------------------------------------------------------------------------------------------------
// Streams

// The place of the first stream that is not below a handle.
uint32_t tide__script_stream_place(const tide__script* script, uint64_t handle) {
  uint32_t low = 0;
  uint32_t high = script->stream_count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (script->streams[middle] < handle) low = middle + 1;
    else high = middle;
  }
  return low;
}

uint32_t tide__script_stream(const tide__script* script, uint64_t handle) {
  const uint32_t place = tide__script_stream_place(script, handle);
  const bool is_there = place < script->stream_count && script->streams[place] == handle;
  return is_there ? place : script->stream_count;
}

tide_status tide__script_add_stream(tide__script* script, uint64_t handle) {
  const uint32_t place = tide__script_stream_place(script, handle);
  if (place < script->stream_count && script->streams[place] == handle) return TIDE_OK;
  TIDE_REQUIRE(script->stream_count < TIDE__SCRIPT_STREAMS, TIDE_ERR_LIMIT,
               "replay: the recording has more than %u streams", TIDE__SCRIPT_STREAMS);
  memmove(&script->streams[place + 1], &script->streams[place],
          (script->stream_count - place) * sizeof script->streams[0]);
  script->streams[place] = handle;
  script->stream_count++;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// What is derived from the steps

static tide_status pool_ends_find(tide__script* script) {
  const size_t count = tide_trace_pool_count(script->trace);
  script->pool_ends = tide__heap_alloc(script->heap, count, sizeof *script->pool_ends);
  if (script->pool_ends == NULL) return tide__script_no_memory(script);
  script->pool_count = count;
  for (size_t i = 0; i < script->step_count; i++) {
    const tide__step* const step = &script->steps[i];
    if (step->kind <= TIDE__STEP_OOM) script->pool_ends[step->pool] = (uint32_t)i + 1;
  }
  return TIDE_OK;
}

#define LANE_BITS_MAX ((uint64_t)1 << 26)

// Counts the pairs of pool and stream that occur; uses an upper bound if there could be very many.
static tide_status lanes_count(tide__script* script) {
  const uint64_t pairs = (uint64_t)tide_trace_pool_count(script->trace) * script->stream_count;
  script->lane_count = tide__min(pairs, script->step_count);
  if (pairs > LANE_BITS_MAX) return TIDE_OK;
  uint64_t* const seen = tide__heap_alloc(script->heap, pairs / 64 + 1, sizeof *seen);
  if (seen == NULL) return tide__script_no_memory(script);
  script->lane_count = 0;
  for (size_t i = 0; i < script->step_count; i++) {
    const tide__step* const step = &script->steps[i];
    if (step->kind > TIDE__STEP_OOM) continue;
    const uint64_t pair = (uint64_t)step->pool * script->stream_count + step->stream;
    const uint64_t bit = (uint64_t)1 << pair % 64;
    script->lane_count += (seen[pair / 64] & bit) == 0;
    seen[pair / 64] |= bit;
  }
  tide__heap_release(script->heap, seen, pairs / 64 + 1, sizeof *seen);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Windows

tide__window tide__window_at(const tide__step* steps, size_t count, size_t first) {
  tide__window window = { .first = first, .end = first };
  for (; window.end < count && steps[window.end].kind >= TIDE__STEP_DONE; window.end++) {
    const uint8_t kind = steps[window.end].kind;
    if (kind == TIDE__STEP_DONE && window.lead == window.end - first) window.lead++;
    if (kind == TIDE__STEP_SEGMENT_FREE || kind == TIDE__STEP_UNMAP) window.gives_back = true;
  }
  window.has_request = window.end < count && steps[window.end].kind <= TIDE__STEP_OOM;
  return window;
}

// Memory that was freed before a release, or before the end, was freed by emptying the cache.
static tide_status empties_find(tide__script* script) {
  for (size_t i = 0; i < script->step_count; i++) {
    if (script->steps[i].kind < TIDE__STEP_DONE) continue;
    const tide__window window = tide__window_at(script->steps, script->step_count, i);
    i = window.end;
    if (window.has_request || !window.gives_back) continue;
    if (!tide__heap_grow(script->heap, (void**)&script->empties, &script->empty_capacity,
                         script->empty_count + 1, sizeof *script->empties)) {
      return tide__script_no_memory(script);
    }
    script->empties[script->empty_count++] = (uint32_t)(window.first + window.lead);
  }
  return TIDE_OK;
}

size_t tide__script_find(const tide__script* script, size_t entry) {
  size_t low = 0;
  size_t high = script->step_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (script->steps[middle].entry < entry) low = middle + 1;
    else high = middle;
  }
  return low;
}

tide_status tide__script_derive(tide__script* script) {
  TIDE_TRY(pool_ends_find(script));
  TIDE_TRY(lanes_count(script));
  return empties_find(script);
}

void tide__script_fini(tide__script* script) {
  tide__heap_release(script->heap, script->steps, script->step_capacity, sizeof *script->steps);
  tide__heap_release(script->heap, script->empties, script->empty_capacity, sizeof *script->empties);
  tide__heap_release(script->heap, script->pool_ends, script->pool_count, sizeof *script->pool_ends);
  tide__heap_release(script->heap, script->old_segments, script->old_capacity, sizeof *script->old_segments);
  tide__heap_release(script->heap, script->old_blocks, script->old_block_capacity,
                     sizeof *script->old_blocks);
  tide__heap_release(script->heap, script->before_stacks, script->before_capacity,
                     sizeof *script->before_stacks);
  script->before_stacks = NULL;
  script->steps = NULL;
  script->old_segments = NULL;
  script->old_blocks = NULL;
  script->empties = NULL;
  script->pool_ends = NULL;
}
