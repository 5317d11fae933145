// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A request is one call of the cache, and a release another; slots and streams have numbers, so nothing is
// searched. Side streams are shared: a release takes the one whose work ends latest, but not after its own
// must end. So there are as many as completions overtake each other. Beyond TIDE__STAGE_SIDES a completion
// comes later than recorded.
//
// When the cache waits for all work, the clock jumps to the end of that work. Entries before that time happen
// at it; a release that would have waited until then is complete at once.
#include "replay/stage.h"

#include "base/arith.h"
#include "base/error.h"
#include "replay/begin.h"
#include "replay/budgets.h"
#include "replay/parks.h"

#define STAGE_GIB ((uint64_t)1 << 30)
// More memory than any device has; the records of all of it stay below 10 MB.
#define STAGE_CAPACITY ((uint64_t)1 << 40)
#define STAGE_BYTES_MAX ((uint64_t)1 << 62)
#define STAGE_RESERVE_MIN (16 * STAGE_GIB)
#define STAGE_ADDRESSES ((uint64_t)40 << 40)  // of the dry machine, and some left over
#define STAGE_RESERVE_MAX (157 * STAGE_GIB)   // what PyTorch reserves on a device of 140 GiB

// ---------------------------------------------------------------------------------------------------
// Setting up

// The scaled size of a request; at most STAGE_BYTES_MAX, which no device can serve.
static uint64_t bytes_scaled(const tide__stage* stage, uint64_t bytes) {
  if (stage->options->scale == 1) return bytes;
  const double scaled = (double)bytes * stage->options->scale;
  return scaled < (double)STAGE_BYTES_MAX ? tide__max(1, (uint64_t)scaled) : STAGE_BYTES_MAX;
}

// Does a request keep its size?
static bool stage_keeps(const tide__stage* stage, const tide__step* step) {
  return step->is_long && stage->options->scale != 1 && !stage->options->scales_all;
}

uint64_t tide__stage_bytes(const tide__stage* stage, const tide__step* step) {
  return stage_keeps(stage, step) ? step->bytes : bytes_scaled(stage, step->bytes);
}

static uint64_t gib_up(uint64_t bytes) {
  return bytes / STAGE_GIB * STAGE_GIB + (bytes % STAGE_GIB != 0) * STAGE_GIB;
}

// The addresses that an expandable segment reserves. With recorded addresses, so few that they fit between
// those; otherwise as many as PyTorch reserves, or several times the peak of live memory, if there are enough
// for a small and a large one in every lane. A segment that runs out of addresses would not grow where
// PyTorch's grows.
static uint64_t reserve_bytes(const tide__stage* stage) {
  const tide__script* const script = stage->script;
  const bool is_tight = stage->options->checks || tide__begins_in_place(script, stage->options);
  const uint64_t wanted = tide__min(bytes_scaled(stage, script->peak_bytes), STAGE_CAPACITY / 4) * 4;
  const uint64_t share = STAGE_ADDRESSES / (2 * script->lane_count + 1);
  if (!is_tight)
    return gib_up(tide__max(STAGE_RESERVE_MIN, tide__min(tide__max(wanted, STAGE_RESERVE_MAX), share)));
  const uint64_t room = tide__min(script->spread_bytes, STAGE_RESERVE_MAX) / STAGE_GIB * STAGE_GIB;
  return tide__max(room, gib_up(tide__min(script->reach_bytes, STAGE_CAPACITY)));
}

static tide_status stage_open_machine(tide__stage* stage) {
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  options.capacity = stage->options->capacity != 0 ? stage->options->capacity : STAGE_CAPACITY;
  options.heap = stage->heap;
  return tide_machine_new_dry(&options, &stage->machine);
}

static void stage_on_oom(void* user, const tide_oom* oom) {
  tide__stage* const stage = user;
  (void)oom;
  stage->is_refused = true;
}

static tide_status stage_open_device(tide__stage* stage) {
  tide_device_options options = *stage->options->device;
  tide_observer observer = 0;
  if (options.heap == NULL) options.heap = stage->heap;
  if (options.address_reserve.fraction == 0 && options.address_reserve.bytes == 0)
    options.address_reserve.bytes = reserve_bytes(stage);
  TIDE_TRY(tide_device_new(stage->machine, 0, &options, &stage->device));
  if (stage->options->limit != TIDE_NO_LIMIT)
    TIDE_TRY(tide_device_set_limit(stage->device, stage->options->limit));
  return tide_device_observe_oom(stage->device, stage_on_oom, stage, &observer);
}

// Streams are created in the order of the recorded handles, so that their handles have the same order.
static tide_status stage_open_streams(tide__stage* stage) {
  const size_t count = stage->script->stream_count;
  stage->streams = tide__heap_alloc(stage->heap, count, sizeof *stage->streams);
  TIDE_REQUIRE(stage->streams != NULL, TIDE_ERR_NO_MEMORY, "replay: no memory for %zu streams", count);
  if (stage->options->has_one_stream) return TIDE_OK;  // the default stream
  for (size_t i = 1; i < count; i++) {
    TIDE_TRY(tide_machine_stream_new(stage->machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &stage->streams[i]));
  }
  return TIDE_OK;
}

static tide_status stage_open(tide__stage* stage) {
  stage->pools = tide__heap_alloc(stage->heap, stage->pool_count, sizeof *stage->pools);
  stage->held = tide__heap_alloc(stage->heap, (size_t)stage->script->slot_count + 1, sizeof *stage->held);
  TIDE_REQUIRE(stage->pools != NULL && stage->held != NULL, TIDE_ERR_NO_MEMORY,
               "replay: no memory for %u blocks at once", (unsigned)stage->script->slot_count);
  TIDE_TRY(stage_open_machine(stage));
  TIDE_TRY(stage_open_device(stage));
  TIDE_TRY(stage_open_streams(stage));
  TIDE_TRY(tide__parks_begin(stage));
  TIDE_TRY(tide__budgets_begin(stage));
  stage->is_in_place = tide__begins_in_place(stage->script, stage->options);
  return stage->is_in_place ? tide__stage_begin(stage) : TIDE_OK;
}

tide_status tide__stage_init(tide__stage* stage, const tide__script* script, const tide_heap* heap,
                             const tide_replay_options* options) {
  *stage = (tide__stage){ .script = script, .options = options, .heap = heap, .first_oom = UINT64_MAX };
  stage->pool_count = tide_trace_pool_count(script->trace);
  const tide_status status = stage_open(stage);
  if (status != TIDE_OK) tide__stage_fini(stage);
  return status;
}

void tide__stage_fini(tide__stage* stage) {
  const tide_error before = *tide_last_error();
  tide_device_free(stage->device);
  tide_machine_free(stage->machine);
  tide__budgets_end(stage);
  tide__heap_release(stage->heap, stage->streams, stage->script->stream_count, sizeof *stage->streams);
  tide__heap_release(stage->heap, stage->pools, stage->pool_count, sizeof *stage->pools);
  tide__heap_release(stage->heap, stage->held, (size_t)stage->script->slot_count + 1, sizeof *stage->held);
  tide__error_restore(&before);
}

// ---------------------------------------------------------------------------------------------------
// Requests

tide_status tide__stage_pool_make(tide__stage* stage, uint16_t number) {
  if (number == 0 || stage->pools[number] != TIDE_POOL_DEFAULT) return TIDE_OK;
  const tide_pool_label label = tide_trace_pool(stage->script->trace, number);
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = label.first;
  options.label[1] = label.second;
  return tide_device_pool_new(stage->device, &options, &stage->pools[number]);
}

// Makes a request in a private pool, as in a capture.
static tide_status stage_alloc_in_pool(tide__stage* stage, const tide__step* step, tide_block* out) {
  const tide_scope scope = { .size = sizeof scope, .kind = TIDE_SCOPE_ALL };
  const uint16_t number = stage->options->has_one_pool ? 1 : step->pool;
  TIDE_TRY(tide__stage_pool_make(stage, number));
  const tide_pool pool = stage->pools[number];
  TIDE_TRY(tide_device_pool_begin(stage->device, pool, &scope));
  const uint64_t bytes = tide__stage_bytes(stage, step);
  const tide_status status = tide_device_alloc(stage->device, stage->streams[step->stream], bytes, out);
  TIDE_TRY(tide_device_pool_end(stage->device, pool));
  return status;
}

static inline tide_status stage_request(tide__stage* stage, const tide__step* step, tide_block* out) {
  if (step->pool != 0 && !stage->has_region) return stage_alloc_in_pool(stage, step, out);
  const uint64_t bytes = tide__stage_bytes(stage, step);
  return tide_device_alloc(stage->device, stage->streams[step->stream], bytes, out);
}

// Counts a refusal. Other failures, also lack of memory for the cache's records, are returned.
static tide_status stage_refuse(tide__stage* stage, const tide__step* step, tide_status status) {
  if (status != TIDE_ERR_NO_MEMORY || !stage->is_refused) return status;
  stage->is_refused = false;
  stage->ooms++;
  if (stage->first_oom != UINT64_MAX) return TIDE_OK;
  stage->first_oom = step->entry;
  stage->oom_bytes = tide__stage_bytes(stage, step);
  return TIDE_OK;
}

tide_status tide__stage_alloc(tide__stage* stage, const tide__step* step) {
  tide__held* const held = &stage->held[step->slot];
  const tide_status status = stage_request(stage, step, &held->block);
  if (status != TIDE_OK) return stage_refuse(stage, step, status);
  held->bytes = tide__request_bytes(tide__stage_bytes(stage, step));
  if (stage_keeps(stage, step)) {
    stage->unscaled_blocks++;
    stage->unscaled_bytes += step->bytes;
  }
  stage->live_bytes += held->bytes;
  stage->peak_bytes = tide__max(stage->peak_bytes, stage->live_bytes);
  stage->allocations++;
  return TIDE_OK;
}

// A request that was refused in the recording. If it is served now, its block is released at once, but counts
// for the peak of live requests.
tide_status tide__stage_oom(tide__stage* stage, const tide__step* step) {
  tide_block block = { NULL, 0 };
  const tide_status status = stage_request(stage, step, &block);
  if (status != TIDE_OK) return stage_refuse(stage, step, status);
  const uint64_t bytes = tide__request_bytes(tide__stage_bytes(stage, step));
  stage->peak_bytes = tide__max(stage->peak_bytes, stage->live_bytes + bytes);
  return tide_device_release(stage->device, block);
}

// ---------------------------------------------------------------------------------------------------
// Releases

void tide__stage_end_life(tide__stage* stage, const tide__step* step) {
  tide__held* const held = &stage->held[step->slot];
  stage->live_bytes -= held->bytes;
  *held = (tide__held){ { NULL, 0 }, 0 };
}

tide_status tide__stage_free(tide__stage* stage, const tide__step* step) {
  const tide_block block = stage->held[step->slot].block;
  tide__stage_end_life(stage, step);
  return tide_device_release(stage->device, block);  // no effect if the request was refused
}

tide_status tide__stage_take_back(tide__stage* stage, const tide__step* step) {
  stage->allocations--;
  return tide__stage_free(stage, step);
}

static uint64_t entry_ns(uint64_t entry) { return (entry + 1) << TIDE__ENTRY_SHIFT; }

tide_status tide__stage_clock_to(tide__stage* stage, uint64_t entry) {
  uint64_t now = 0;
  TIDE_TRY(tide_machine_clock(stage->machine, &now));
  return now < entry_ns(entry) ? tide_dry_advance(stage->machine, entry_ns(entry) - now) : TIDE_OK;
}

static tide_status side_make(tide__stage* stage, tide__side** out) {
  tide__side* const side = &stage->sides[stage->side_count];
  *out = NULL;
  TIDE_TRY(tide_machine_stream_new(stage->machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &side->stream));
  stage->side_count++;
  *out = side;
  return TIDE_OK;
}

// The side stream for work that ends at `end_ns`: see the top of the file.
static tide_status side_take(tide__stage* stage, uint64_t end_ns, tide__side** out) {
  tide__side* best = NULL;
  tide__side* first = NULL;
  for (size_t i = 0; i < stage->side_count; i++) {
    tide__side* const side = &stage->sides[i];
    if (side->end_ns <= end_ns && (best == NULL || side->end_ns > best->end_ns)) best = side;
    if (first == NULL || side->end_ns < first->end_ns) first = side;
  }
  *out = best != NULL ? best : first;
  return best == NULL && stage->side_count < TIDE__STAGE_SIDES ? side_make(stage, out) : TIDE_OK;
}

tide_status tide__stage_free_later(tide__stage* stage, const tide__step* step) {
  if (stage->held[step->slot].block.address == NULL) return TIDE_OK;
  TIDE_TRY(tide__stage_clock_to(stage, step->entry));
  return tide__stage_wait(stage, step);
}

tide_status tide__stage_wait(tide__stage* stage, const tide__step* step) {
  const tide_block block = stage->held[step->slot].block;
  const uint64_t end_ns = entry_ns(step->until);
  uint64_t now = 0;
  if (block.address == NULL) return TIDE_OK;
  TIDE_TRY(tide_machine_clock(stage->machine, &now));
  if (end_ns <= now || stage->options->never_waits) return tide_device_release(stage->device, block);
  tide__side* side = NULL;
  TIDE_TRY(side_take(stage, end_ns, &side));
  const uint64_t begin_ns = tide__max(side->end_ns, now);
  if (begin_ns < end_ns) {
    TIDE_TRY(tide_dry_work(stage->machine, 0, side->stream, end_ns - begin_ns));
    side->end_ns = end_ns;
  }
  TIDE_TRY(tide_device_record(stage->device, block, side->stream));
  return tide_device_release(stage->device, block);
}

tide_status tide__stage_done(tide__stage* stage, const tide__step* step) {
  tide__stage_end_life(stage, step);
  TIDE_TRY(tide__stage_clock_to(stage, step->entry));
  return tide_device_poll(stage->device);
}

tide_status tide__stage_end_pools(tide__stage* stage, size_t at) {
  const tide__script* const script = stage->script;
  if (stage->options->has_one_pool) return TIDE_OK;
  for (size_t i = at; i < script->step_count && script->steps[i].kind >= TIDE__STEP_DONE; i++) {
    const tide__step* const step = &script->steps[i];
    const bool gives_back = step->kind == TIDE__STEP_SEGMENT_FREE || step->kind == TIDE__STEP_UNMAP;
    const bool is_open = stage->pools[step->pool] != TIDE_POOL_DEFAULT;
    if (!gives_back || !is_open || script->pool_ends[step->pool] > at) continue;
    TIDE_TRY(tide_device_pool_drop(stage->device, stage->pools[step->pool]));
    stage->pools[step->pool] = TIDE_POOL_DEFAULT;
  }
  return TIDE_OK;
}

tide_status tide__stage_empty(tide__stage* stage, size_t at) {
  TIDE_TRY(tide__stage_end_pools(stage, at));
  stage->empties++;
  return tide_device_trim(stage->device, 0);
}
