// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Visiting segments and their blocks (core/visit.h), and memory snapshots (core/snapshot.h). The blocks of a
// segment are found by their addresses and copied without a lock. Calls the room `stats` only.
#include "core/snapshot.h"

#include "core/visit.h"
#include "pinned/stats/stats.h"

typedef struct seen_segment {
  tide_segment_info info;
  uint64_t block_bytes;
  uint32_t capacity;
} seen_segment;

typedef struct pinned_view {
  tide__visit visit;  // the first member: functions of notes get it
  tide_pinned_cache* pinned;
  tide_block_info* blocks;  // owned; those of one segment
  size_t block_capacity;
} pinned_view;

// ---------------------------------------------------------------------------------------------------
// Noting

static seen_segment segment_note(const tide__pin_segment* segment) {
  return (seen_segment){ .info = { .address = segment->memory.address,
                                   .bytes = segment->memory.bytes,
                                   .pool = segment->pool->base.number,
                                   .stack = segment->stack,
                                   .device = -1,
                                   .is_large = segment->capacity == 1,
                                   .ordinal = segment->ordinal,
                                   .tag = "" },
                         .block_bytes = segment->block_bytes,
                         .capacity = segment->capacity };
}

// Notes segments of a pool while there is room; returns how many there are.
static size_t pool_note_locked(tide__visit* visit, const tide__pin_pool* pool) {
  size_t count = 0;
  TIDE_LIST_EACH(it, &pool->segments) {
    if (visit->count < visit->capacity) {
      *(seen_segment*)tide__visit_next_note(visit) = segment_note(TIDE_OWNER(it, tide__pin_segment, all));
    }
    count++;
  }
  return count;
}

static tide_status pool_note(pinned_view* view, const tide__pin_pool* pool) {
  tide__visit* const visit = &view->visit;
  const size_t first = visit->count;
  for (;;) {
    visit->count = first;
    tide__mutex_lock(&view->pinned->chunks_lock);
    const size_t count = pool_note_locked(visit, pool);
    tide__mutex_unlock(&view->pinned->chunks_lock);
    if (visit->count == first + count) return TIDE_OK;
    visit->count = first;
    TIDE_TRY(tide__visit_reserve(visit, count + 16));
  }
}

static tide_status view_note(pinned_view* view) {
  tide_pinned_cache* const pinned = view->pinned;
  tide__pool_cursor at = { 0 };
  const tide__pin_pool* pool = pinned->default_pool;
  for (; pool != NULL; pool = tide__pin_pool_at(tide__pools_next(&pinned->pools, &at))) {
    TIDE_TRY(pool_note(view, pool));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Showing

static tide_block_info block_describe(const tide__pin* block) {
  const uint32_t state = tide__load_relaxed(&block->state);
  const bool is_waiting = state == TIDE__PIN_WAITING || state == TIDE__PIN_KEPT;
  const uint32_t shown = tide__pin_is_live(block) ? TIDE_BLOCK_ALLOCATED
                         : is_waiting             ? TIDE_BLOCK_PENDING
                                                  : TIDE_BLOCK_INACTIVE;
  return (tide_block_info){ tide__pin_address(block), tide__pin_bytes(block),
                            tide__load_relaxed(&block->requested_bytes),
                            shown != TIDE_BLOCK_INACTIVE ? tide__load_relaxed(&block->stack) : 0, shown };
}

// Copies the blocks of a segment and adds them up; false if it is gone.
static bool segment_copy(pinned_view* view, seen_segment* seen) {
  tide_pinned_cache* const pinned = view->pinned;
  for (uint32_t i = 0; i < seen->capacity; i++) {
    const uint64_t address = seen->info.address + i * seen->block_bytes;
    uint32_t index = 0;
    if (!tide__map_find(&pinned->map, address, &index)) return false;
    const tide_block_info info = block_describe(tide__slots_at(&pinned->blocks, index));
    if (info.address != address || info.bytes != seen->block_bytes) return false;
    view->blocks[i] = info;
    if (info.state == TIDE_BLOCK_ALLOCATED) seen->info.allocated_bytes += info.bytes;
    if (info.state == TIDE_BLOCK_INACTIVE) continue;
    seen->info.active_bytes += info.bytes;
    seen->info.requested_bytes += info.requested_bytes;
  }
  return true;
}

static bool seen_show(tide__visit* visit, void* note) {
  pinned_view* const view = (pinned_view*)(void*)visit;
  seen_segment* const seen = note;
  if (!segment_copy(view, seen)) return true;
  return tide__visit_segment(visit, &seen->info) && tide__visit_blocks(visit, view->blocks, seen->capacity);
}

static tide_status view_show(pinned_view* view) {
  const seen_segment* const segments = view->visit.notes;
  size_t most = 1;
  for (size_t i = 0; i < view->visit.count; i++) most = tide__max(most, segments[i].capacity);
  TIDE_REQUIRE(tide__heap_grow(view->pinned->heap, (void**)&view->blocks, &view->block_capacity, most,
                               sizeof *view->blocks),
               TIDE_ERR_NO_MEMORY, "pinned_visit: no memory for %zu blocks", most);
  tide__visit_show(&view->visit, seen_show);
  return TIDE_OK;
}

tide_status tide_pinned_visit(tide_pinned_cache* pinned, const tide_device_visitor* visitor) {
  TIDE_REQUIRE(pinned != NULL && visitor != NULL && visitor->segment != NULL, TIDE_ERR_ARGUMENT,
               "pinned_visit: no cache or visitor");
  pinned_view view = { .visit = { .heap = pinned->heap,
                                  .visitor = visitor,
                                  .call = "pinned_visit",
                                  .note_bytes = sizeof(seen_segment) },
                       .pinned = pinned };
  tide_status status = view_note(&view);
  if (status == TIDE_OK) status = view_show(&view);
  tide__visit_fini(&view.visit);
  tide__heap_release(pinned->heap, view.blocks, view.block_capacity, sizeof *view.blocks);
  if (status == TIDE_OK && visitor->block != NULL)
    tide__history_add_snapshot(&pinned->history, view.visit.active_bytes);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Snapshots

enum { TRACE_DEVICES = 256 };

static tide_status visit_pools(void* owner, const tide_pool* pool, const tide_device_visitor* visitor) {
  uint32_t users = 0;
  const bool is_private = pool != NULL && *pool != TIDE_POOL_DEFAULT;
  if (is_private) TIDE_TRY(tide_pinned_pool_users(owner, *pool, &users));
  return tide_pinned_visit(owner, visitor);
}

tide_status tide_pinned_snapshot(tide_pinned_cache* pinned, const tide_snapshot_options* options, int device,
                                 tide_trace* trace) {
  TIDE_REQUIRE(pinned != NULL && trace != NULL, TIDE_ERR_ARGUMENT, "pinned_snapshot: no cache or trace");
  TIDE_REQUIRE(device >= 0 && device < TRACE_DEVICES, TIDE_ERR_ARGUMENT,
               "pinned_snapshot: device %d is not in 0 to 255", device);
  tide__snapshot_source source = { .call = "pinned_snapshot",
                                   .history = &pinned->history,
                                   .heap = pinned->heap,
                                   .device = (uint8_t)device,
                                   .owner = pinned,
                                   .visit = visit_pools };
  tide__mutex_lock(&pinned->pools_lock);
  source.last_pool = pinned->pools.last_number;
  tide__mutex_unlock(&pinned->pools_lock);
  return tide__snapshot_take(&source, options, trace);
}
