// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes the script. A pass over all entries finds the streams, and the ledger knows the blocks before the
// first entry. Then each entry is handled in turn, with a map of live requests and a tree of segments
// (ranges.c). At the end the final list of segments names the pools, which are assigned to the requests.
//
// Cost: O(n) on average, with O(log s) for each request among s segments where there are private pools.
#include "replay/steps.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/hash_map.h"
#include "replay/old.h"
#include "tidemark/ledger.h"

#define REQUEST_END ((uint64_t)1 << 60)  // a cache refuses sizes from here on
#define NO_ENTRY SIZE_MAX
#define NO_SLOT UINT32_MAX

// A request that gets the pool of a range.
typedef struct home {
  uint32_t step;
  uint32_t range;
} home;

// A live request, or the record of an unused slot.
typedef struct live_request {
  uint64_t address;
  uint64_t bytes;   // rounded
  uint32_t step;    // its own, or of a release that waits; of an unused slot, the next unused one
  bool is_waiting;  // it was released
} live_request;

typedef struct script_writer {
  tide__script* script;    // borrowed during the call
  tide__hash_map live;     // from an address to the slot of its request + 1
  live_request* requests;  // owned; by slot
  size_t request_capacity;
  uint32_t idle_slot;  // the last slot that became unused; NO_SLOT: none
  tide__ranges ranges;
  home* homes;  // owned
  size_t home_count;
  size_t home_capacity;
  uint64_t live_bytes;
  bool has_pools;        // beside the default one
  bool has_completions;  // without any, a release is complete at once, or never
  // Without any: from the address of a block that waits at the end to the entry of its last release + 1.
  tide__hash_map kept_waiting;
} script_writer;

// ---------------------------------------------------------------------------------------------------
// Streams

static bool action_has_stream(uint8_t action) {
  switch (action) {
    case TIDE_ACTION_ALLOC:
    case TIDE_ACTION_OOM:
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_MAP:
    case TIDE_ACTION_SEGMENT_UNMAP: return true;
    default: return false;
  }
}

static tide_status streams_gather(script_writer* w) {
  tide__script* const script = w->script;
  uint64_t last = 0;
  TIDE_TRY(tide__script_add_stream(script, 0));
  for (size_t i = 0; i < script->entry_count; i++) {
    const tide_trace_entry* const entry = &script->entries[i];
    if (entry->action == TIDE_ACTION_FREE_COMPLETED) w->has_completions = true;
    if (entry->stream == last || !action_has_stream(entry->action)) continue;
    last = entry->stream;
    TIDE_TRY(tide__script_add_stream(script, last));
  }
  size_t segment_count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(script->trace, &segment_count);
  for (size_t i = 0; i < segment_count; i++) {
    if (segments[i].device == script->device) TIDE_TRY(tide__script_add_stream(script, segments[i].stream));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Steps and slots

static tide_status step_add(script_writer* w, tide__step_kind kind, size_t index, tide__step** out) {
  tide__script* const script = w->script;
  if (!tide__heap_grow(script->heap, (void**)&script->steps, &script->step_capacity, script->step_count + 1,
                       sizeof *script->steps)) {
    return tide__script_no_memory(script);
  }
  *out = &script->steps[script->step_count++];
  **out = (tide__step){ .entry = (uint32_t)index, .kind = (uint8_t)kind };
  return TIDE_OK;
}

// A step with the size and the stream of its entry.
static tide_status step_add_sized(script_writer* w, tide__step_kind kind, size_t index, tide__step** out) {
  const tide_trace_entry* const entry = &w->script->entries[index];
  TIDE_TRY(step_add(w, kind, index, out));
  (*out)->bytes = entry->bytes;
  (*out)->stream = (uint16_t)tide__script_stream_place(w->script, entry->stream);
  return TIDE_OK;
}

// Makes room for one more live request.
static bool slot_reserve(script_writer* w) {
  return tide__hash_map_reserve(&w->live, w->live.count + 1) &&
         tide__heap_grow(w->script->heap, (void**)&w->requests, &w->request_capacity,
                         (size_t)w->script->slot_count + 1, sizeof *w->requests);
}

static uint32_t slot_take(script_writer* w) {
  const uint32_t slot = w->idle_slot;
  if (slot == NO_SLOT) return w->script->slot_count++;
  w->idle_slot = w->requests[slot].step;
  return slot;
}

static uint32_t slot_of(const script_writer* w, const live_request* request) {
  return (uint32_t)(request - w->requests);
}

// The request ends, and its slot becomes unused.
static void slot_give(script_writer* w, live_request* request) {
  w->live_bytes -= request->bytes;
  (void)tide__hash_map_take(&w->live, request->address);
  request->step = w->idle_slot;
  w->idle_slot = slot_of(w, request);
}

// The live request at an address, or NULL. Valid until another request begins.
static live_request* request_find(const script_writer* w, uint64_t address) {
  const uint64_t found = tide__hash_map_find(&w->live, address);
  return found != 0 ? &w->requests[found - 1] : NULL;
}

// The next entry that is not a remark; NO_ENTRY at the end.
static size_t entry_next(const tide__script* script, size_t index) {
  for (size_t i = index + 1; i < script->entry_count; i++) {
    const uint8_t action = script->entries[i].action;
    if (action <= TIDE_ACTION_SEGMENT_UNMAP || action == TIDE_ACTION_OOM) return i;
  }
  return NO_ENTRY;
}

// ---------------------------------------------------------------------------------------------------
// Requests

// The number of a pool, or of the default pool if it is unknown.
static uint16_t pool_known(const tide__script* script, uint32_t pool) {
  const bool is_known = pool < tide_trace_pool_count(script->trace) && pool <= UINT16_MAX;
  return is_known ? (uint16_t)pool : 0;
}

// Assigns a pool to a request: from its entry, or later from the range that contains it.
static tide_status request_place(script_writer* w, size_t index, tide__step* step) {
  tide__script* const script = w->script;
  const tide_trace_entry* const entry = &script->entries[index];
  if (!w->has_pools) return TIDE_OK;
  if ((entry->absent & TIDE_ENTRY_POOL) == 0) {
    step->pool = pool_known(script, entry->pool);
    return TIDE_OK;
  }
  const uint32_t range = tide__ranges_find(&w->ranges, entry->address);
  if (range == TIDE__NO_RANGE || entry->action != TIDE_ACTION_ALLOC) return TIDE_OK;
  if (!tide__heap_grow(script->heap, (void**)&w->homes, &w->home_capacity, w->home_count + 1,
                       sizeof *w->homes)) {
    return tide__script_no_memory(script);
  }
  w->homes[w->home_count++] = (home){ (uint32_t)(step - script->steps), range };
  return TIDE_OK;
}

// A request is released, or ends without a release: now it is known how long it lives.
static void request_leave(const script_writer* w, const live_request* request, size_t index) {
  tide__step* const step = &w->script->steps[request->step];
  if (!request->is_waiting && index - step->entry <= w->script->entry_count / 2) step->is_long = false;
}

// Ends a request: it was completed, or another one is served at its address without a release.
static tide_status request_end(script_writer* w, live_request* request, size_t index) {
  tide__step* step = NULL;
  request_leave(w, request, index);
  if (request->is_waiting) w->script->steps[request->step].until = index;
  TIDE_TRY(step_add(w, request->is_waiting ? TIDE__STEP_DONE : TIDE__STEP_FREE, index, &step));
  step->slot = slot_of(w, request);
  slot_give(w, request);
  return TIDE_OK;
}

static bool request_is_sane(uint64_t bytes) { return bytes > 0 && bytes < REQUEST_END; }

// The request of a step begins, at an address of the recording.
static tide_status request_begin(script_writer* w, uint64_t address, tide__step* step) {
  if (!slot_reserve(w)) return tide__script_no_memory(w->script);
  step->slot = slot_take(w);
  (void)tide__hash_map_put(&w->live, address, (uint64_t)step->slot + 1);
  const uint64_t bytes = tide__request_bytes(step->bytes);
  w->requests[step->slot] = (live_request){ .address = address, .bytes = bytes };
  w->requests[step->slot].step = (uint32_t)(step - w->script->steps);
  step->is_long = step->entry < w->script->entry_count / 2;
  w->live_bytes += bytes;
  w->script->peak_bytes = tide__max(w->script->peak_bytes, w->live_bytes);
  return TIDE_OK;
}

static tide_status write_alloc(script_writer* w, size_t index) {
  const tide_trace_entry* const entry = &w->script->entries[index];
  live_request* const before = request_find(w, entry->address);
  if (before != NULL) TIDE_TRY(request_end(w, before, index));
  if (!request_is_sane(entry->bytes)) return TIDE_OK;
  tide__step* step = NULL;
  TIDE_TRY(step_add_sized(w, TIDE__STEP_ALLOC, index, &step));
  TIDE_TRY(request_begin(w, entry->address, step));
  return request_place(w, index, step);
}

static tide_status write_oom(script_writer* w, size_t index) {
  tide__step* step = NULL;
  if (!request_is_sane(w->script->entries[index].bytes)) return TIDE_OK;
  TIDE_TRY(step_add_sized(w, TIDE__STEP_OOM, index, &step));
  return request_place(w, index, step);
}

// ---------------------------------------------------------------------------------------------------
// Releases

static bool is_completion_of(const tide__script* script, size_t index, uint64_t address) {
  return index != NO_ENTRY && script->entries[index].action == TIDE_ACTION_FREE_COMPLETED &&
         script->entries[index].address == address;
}

// Adds the blocks of a segment that wait at the end.
static tide_status waiting_add(script_writer* w, const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(w->script->trace, NULL);
  for (uint64_t i = 0; i < segment->block_count; i++) {
    const tide_trace_block* const block = &blocks[segment->first_block + i];
    const bool has_address = (block->absent & TIDE_BLOCK_KEY_ADDRESS) == 0;
    if (block->state != TIDE_BLOCK_PENDING || !has_address) continue;
    if (!tide__hash_map_reserve(&w->kept_waiting, w->kept_waiting.count + 1)) {
      return tide__script_no_memory(w->script);
    }
    (void)tide__hash_map_put(&w->kept_waiting, block->address, NO_ENTRY);
  }
  return TIDE_OK;
}

// A recording may have no completions because they were not recorded, or because there were none. In both
// cases, the last release of a block that waits at the end, by the final list, was never completed.
static tide_status waiting_gather(script_writer* w) {
  const tide__script* const script = w->script;
  if (w->has_completions) return TIDE_OK;
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(script->trace, &count);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device == script->device) TIDE_TRY(waiting_add(w, &segments[i]));
  }
  for (size_t i = 0; i < script->entry_count; i++) {
    if (script->entries[i].action != TIDE_ACTION_FREE_REQUESTED) continue;
    const uint64_t address = script->entries[i].address;
    const bool is_kept = tide__hash_map_find(&w->kept_waiting, address) != 0;
    if (is_kept) (void)tide__hash_map_put(&w->kept_waiting, address, i + 1);
  }
  return TIDE_OK;
}

static bool is_kept_waiting(const script_writer* w, size_t index) {
  return tide__hash_map_find(&w->kept_waiting, w->script->entries[index].address) == index + 1;
}

// Is a release certainly complete at once? Only if the completion follows, and then another call of the
// program. If anything else follows, the block may have waited for that.
static bool is_at_once(const script_writer* w, size_t index, size_t* out_last) {
  const tide__script* const script = w->script;
  const size_t next = entry_next(script, index);
  *out_last = index;
  if (!w->has_completions) return !is_kept_waiting(w, index);
  if (!is_completion_of(script, next, script->entries[index].address)) return false;
  const size_t after = entry_next(script, next);
  if (after == NO_ENTRY) return false;
  *out_last = next;
  const uint8_t action = script->entries[after].action;
  return action == TIDE_ACTION_ALLOC || action == TIDE_ACTION_FREE_REQUESTED;
}

// Adds a release that waits.
static tide_status release_add(script_writer* w, live_request* request, size_t index) {
  tide__step* step = NULL;
  TIDE_TRY(step_add(w, TIDE__STEP_FREE_LATER, index, &step));
  step->slot = slot_of(w, request);
  step->until = w->script->entry_count;
  request->is_waiting = true;
  request->step = (uint32_t)(w->script->step_count - 1);
  return TIDE_OK;
}

// Writes the release at *index, and skips its completion if it is complete at once.
static tide_status write_free(script_writer* w, size_t* index) {
  live_request* const request = request_find(w, w->script->entries[*index].address);
  if (request == NULL || request->is_waiting) {
    w->script->skipped++;
    return TIDE_OK;
  }
  tide__step* step = NULL;
  size_t last = 0;
  request_leave(w, request, *index);
  if (is_at_once(w, *index, &last)) {
    TIDE_TRY(step_add(w, TIDE__STEP_FREE, *index, &step));
    step->slot = slot_of(w, request);
    *index = last;
    slot_give(w, request);
    return TIDE_OK;
  }
  return release_add(w, request, *index);
}

static tide_status write_completion(script_writer* w, size_t index) {
  live_request* const request = request_find(w, w->script->entries[index].address);
  return request != NULL ? request_end(w, request, index) : TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Segments

static tide_status write_segment(script_writer* w, size_t index) {
  const tide_trace_entry* const entry = &w->script->entries[index];
  tide__step* step = NULL;
  bool is_new = false;
  bool has_memory = true;
  TIDE_TRY(step_add_sized(w, TIDE__STEP_SEGMENT, index, &step));
  switch (entry->action) {
    case TIDE_ACTION_SEGMENT_ALLOC:
      has_memory = tide__ranges_make(&w->ranges, entry->address, entry->bytes);
      break;
    case TIDE_ACTION_SEGMENT_MAP:
      has_memory = tide__ranges_map(&w->ranges, entry->address, entry->bytes, &is_new);
      step->kind = is_new ? TIDE__STEP_RESERVE : TIDE__STEP_MAP;
      break;
    default:
      tide__ranges_give(&w->ranges, entry->address, entry->bytes);
      step->kind = entry->action == TIDE_ACTION_SEGMENT_FREE ? TIDE__STEP_SEGMENT_FREE : TIDE__STEP_UNMAP;
      if ((entry->absent & TIDE_ENTRY_POOL) == 0) step->pool = pool_known(w->script, entry->pool);
      break;
  }
  return has_memory ? TIDE_OK : tide__script_no_memory(w->script);
}

// The final list of segments names the pools of the remaining ranges; all others are of the default pool.
static tide_status pools_tell(script_writer* w) {
  tide__script* const script = w->script;
  if (w->home_count == 0) return TIDE_OK;
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(script->trace, &count);
  uint16_t* const pools = tide__heap_alloc(script->heap, w->ranges.count, sizeof *pools);
  if (pools == NULL) return tide__script_no_memory(script);
  for (size_t i = 0; i < count; i++) {
    const uint32_t range = tide__ranges_find(&w->ranges, segments[i].address);
    const bool is_ours = segments[i].device == script->device && range != TIDE__NO_RANGE;
    if (is_ours && segments[i].pool <= UINT16_MAX) pools[range] = (uint16_t)segments[i].pool;
  }
  for (size_t i = 0; i < w->home_count; i++) script->steps[w->homes[i].step].pool = pools[w->homes[i].range];
  tide__heap_release(script->heap, pools, w->ranges.count, sizeof *pools);
  return TIDE_OK;
}

// Memory older than the recording

typedef struct before_writer {
  script_writer* w;  // borrowed
  uint64_t stream;   // of the segment that is being visited
  uint32_t pool;
  bool is_placed;  // the places are known
  tide_status status;
} before_writer;

static bool before_on_segment(void* user, const tide_ledger_segment* segment) {
  before_writer* const before = user;
  before->stream = segment->stream;
  before->pool = segment->pool;
  const uint16_t pool = pool_known(before->w->script, segment->pool);
  if (before->is_placed) before->status = tide__old_segment_add(before->w->script, segment, pool);
  return before->status == TIDE_OK;
}

static tide_status before_write(before_writer* before, const tide_ledger_block* block) {
  script_writer* const w = before->w;
  tide__script* const script = w->script;
  tide__step* step = NULL;
  const uint32_t stream = tide__script_stream(script, before->stream);
  TIDE_TRY(step_add(w, TIDE__STEP_ALLOC, 0, &step));
  step->bytes = block->requested_bytes;
  step->stream = (uint16_t)(stream < script->stream_count ? stream : 0);
  step->pool = pool_known(script, before->pool);
  if (!tide__heap_grow(script->heap, (void**)&script->before_stacks, &script->before_capacity,
                       (size_t)script->before_count + 1, sizeof *script->before_stacks)) {
    return tide__script_no_memory(script);
  }
  script->before_stacks[script->before_count++] = block->stack;
  script->before_bytes += block->requested_bytes;
  if (before->is_placed) TIDE_TRY(tide__old_block_add(script, block));
  return request_begin(w, block->address, &script->steps[script->step_count - 1]);
}

static bool before_on_block(void* user, const tide_ledger_block* block) {
  before_writer* const before = user;
  const bool is_live = block->state != TIDE_BLOCK_INACTIVE && request_is_sane(block->requested_bytes);
  if (is_live) before->status = before_write(before, block);
  return before->status == TIDE_OK;
}

// Blocks that waited when the recording began were released before.
static bool before_on_waiting(void* user, const tide_ledger_block* block) {
  before_writer* const before = user;
  live_request* const request = request_find(before->w, block->address);
  if (block->state == TIDE_BLOCK_PENDING && request != NULL && before->w->has_completions)
    before->status = release_add(before->w, request, 0);
  return before->status == TIDE_OK;
}

// Are the places of old blocks certain? Not if the recording contradicts itself.
static bool places_are_known(const script_writer* w, const tide_ledger* ledger) {
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  return tide_trace_get_about(w->script->trace).has_segments && faults.unknown_frees == 0 &&
         faults.homeless_allocs == 0 && faults.overlaps == 0 && faults.odd_segments == 0 &&
         faults.differences == 0;
}

// The first request of a recording that begins in the middle may have begun before it, and may have freed
// memory or made a segment then. So it counts as old. Returns the number of old entries.
static size_t old_entries(const tide__script* script) {
  size_t index = 0;
  while (index < script->entry_count && script->entries[index].action != TIDE_ACTION_ALLOC &&
         script->entries[index].action != TIDE_ACTION_OOM &&
         script->entries[index].action != TIDE_ACTION_FREE_REQUESTED) {
    index++;
  }
  const bool is_request = index < script->entry_count &&
                          script->entries[index].action != TIDE_ACTION_FREE_REQUESTED;
  return is_request ? index + 1 : 0;
}

static tide_status before_visit(script_writer* w, tide_ledger* ledger) {
  before_writer before = { .w = w, .is_placed = places_are_known(w, ledger) };
  w->script->first_entry = before.is_placed ? old_entries(w->script) : 0;
  TIDE_TRY(tide_ledger_seek(ledger, (uint64_t)w->script->first_entry - 1));  // or TIDE_LEDGER_BEFORE
  tide_ledger_visit(ledger, before_on_segment, before_on_block, &before);
  if (before.status == TIDE_OK) tide_ledger_visit(ledger, NULL, before_on_waiting, &before);
  if (before.status != TIDE_OK) return before.status;
  return tide__old_ranges_add(w->script, &w->ranges, tide_ledger_get_peaks(ledger).reserved.bytes);
}

static tide_status write_before(script_writer* w) {
  tide_ledger* ledger = NULL;
  TIDE_TRY(tide_ledger_new(w->script->trace, w->script->device, &ledger));
  const bool is_cut = !tide_ledger_get_faults(ledger).is_from_start;
  const tide_status status = is_cut ? before_visit(w, ledger) : TIDE_OK;
  tide_ledger_free(ledger);
  w->script->first_step = w->script->step_count;
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The script

static tide_status write_entry(script_writer* w, size_t* index) {
  switch (w->script->entries[*index].action) {
    case TIDE_ACTION_ALLOC: return write_alloc(w, *index);
    case TIDE_ACTION_OOM: return write_oom(w, *index);
    case TIDE_ACTION_FREE_REQUESTED: return write_free(w, index);
    case TIDE_ACTION_FREE_COMPLETED: return write_completion(w, *index);
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_MAP:
    case TIDE_ACTION_SEGMENT_UNMAP: return write_segment(w, *index);
    default: return TIDE_OK;
  }
}

static tide_status script_write(script_writer* w) {
  tide__script* const script = w->script;
  TIDE_TRY(streams_gather(w));
  TIDE_TRY(waiting_gather(w));
  TIDE_TRY(write_before(w));
  for (size_t i = script->first_entry; i < script->entry_count; i++) TIDE_TRY(write_entry(w, &i));
  TIDE_TRY(pools_tell(w));
  script->reach_bytes = w->ranges.reach_bytes;
  script->spread_bytes = w->ranges.spread_bytes;
  return tide__script_derive(script);
}

tide_status tide__script_init(tide__script* script, const tide_trace* trace, size_t device,
                              const tide_heap* heap) {
  *script = (tide__script){ .heap = heap, .trace = trace, .device = device };
  script->entries = tide_trace_entries(trace, device, &script->entry_count);
  TIDE_REQUIRE(script->entry_count < TIDE__SCRIPT_ENTRIES, TIDE_ERR_LIMIT,
               "replay: the recording has %zu entries; at most %zu can be replayed", script->entry_count,
               TIDE__SCRIPT_ENTRIES - 1);
  script_writer w = { .script = script, .idle_slot = NO_SLOT };
  w.has_pools = tide_trace_pool_count(trace) > 1;
  tide__hash_map_init(&w.live, heap);
  tide__hash_map_init(&w.kept_waiting, heap);
  tide__ranges_init(&w.ranges, heap);
  const tide_status status = script_write(&w);
  tide__hash_map_fini(&w.live);
  tide__hash_map_fini(&w.kept_waiting);
  tide__ranges_fini(&w.ranges);
  tide__heap_release(heap, w.requests, w.request_capacity, sizeof *w.requests);
  tide__heap_release(heap, w.homes, w.home_capacity, sizeof *w.homes);
  if (status != TIDE_OK) tide__script_fini(script);
  return status;
}
