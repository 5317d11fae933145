// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lanes: how the lane of a stream is found, made and closed; and its spare records. A lane is found by its
// stream without a lock; everything in it is guarded by the lane's lock.
#include "device/lane/lane.h"

// ---------------------------------------------------------------------------------------------------
// Lanes

static uint32_t stream_hash(tide_stream stream) {
  return (uint32_t)(((uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

static tide__lane* table_find(tide__lane_table* table, tide_stream stream) {
  if (table == NULL) return NULL;
  for (uint32_t i = stream_hash(stream);; i++) {
    tide__lane* const lane = tide__load_acquire(&table->places[i & table->mask]);  // pairs with table_add
    if (lane == NULL || tide__load_relaxed(&lane->key) == stream) return lane;
  }
}

static void table_add(tide__lane_table* table, tide__lane* lane) {
  uint32_t i = stream_hash(lane->stream);
  while (tide__load_relaxed(&table->places[i & table->mask]) != NULL) i++;
  tide__store_release(&table->places[i & table->mask], lane);  // pairs with table_find
}

static size_t table_bytes(uint32_t mask) {
  return sizeof(tide__lane_table) + ((size_t)mask + 1) * sizeof(_Atomic(tide__lane*));
}

static void table_free(tide_device_cache* device, tide__lane_table* table) {
  while (table != NULL) {
    tide__lane_table* const older = table->older;
    tide__heap_release(device->heap, table, 1, table_bytes(table->mask));
    table = older;
  }
}

// A table with room for one lane more than the pool has, or the one it has if that has room. NULL: no memory.
static tide__lane_table* table_for_one_more(tide_device_cache* device, tide__lane_table* now,
                                            uint32_t lane_count) {
  if (now != NULL && (lane_count + 1) * 2 <= now->mask + 1) return now;
  const uint32_t mask = now != NULL ? now->mask * 2 + 1 : 7;
  tide__lane_table* const table = tide__heap_alloc(device->heap, 1, table_bytes(mask));
  if (table != NULL) table->mask = mask;
  return table;
}

static void table_publish(tide__pool* pool, tide__lane_table* table) {
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  if (table == now) return;
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    if (!lane->is_unlisted) table_add(table, lane);
  }
  table->older = now;
  tide__store_release(&pool->table, table);  // pairs with tide__lane_find
}

static void marks_init(tide__marks* marks) {
  tide__mutex_init(&marks->lock, TIDE__RANK_MARKS);
  tide__signal_init(&marks->left);
}

static void marks_fini(tide_device_cache* device, tide__marks* marks) {
  for (uint32_t i = 0; i < marks->capacity; i++) {
    if (marks->events[i] == NULL) continue;
    tide__ignore(tide_machine_event_free(device->machine, marks->events[i]));
  }
  tide__heap_release(device->heap, marks->events, marks->capacity, sizeof *marks->events);
  tide__signal_fini(&marks->left);
  tide__mutex_fini(&marks->lock);
}

static tide__lane* lane_new(tide_device_cache* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__lane* lane = device->idle_lanes;
  if (lane != NULL) device->idle_lanes = lane->next_idle;
  tide__mutex_unlock(&device->pools_lock);
  if (lane != NULL) {
    lane->arrival_number = 0;
    return lane;
  }
  lane = tide__heap_alloc(device->heap, 1, sizeof *lane);
  if (lane == NULL) return NULL;
  if (!tide__bins_init(&lane->free_index[TIDE__SMALL].bins, device->heap, true) ||
      !tide__bins_init(&lane->free_index[TIDE__LARGE].bins, device->heap, device->has_tcaches)) {
    tide__bins_fini(&lane->free_index[TIDE__SMALL].bins, device->heap);
    tide__heap_release(device->heap, lane, 1, sizeof *lane);
    return NULL;
  }
  tide__mutex_init(&lane->lock, TIDE__RANK_LANE);
  marks_init(&lane->marks);
  tide__list_init(&lane->segments);
  tide__list_init(&lane->retired);
  return lane;
}

static void lane_give_back(tide_device_cache* device, tide__lane* lane) {
  tide__mutex_lock(&device->pools_lock);
  lane->next_idle = device->idle_lanes;
  device->idle_lanes = lane;
  tide__mutex_unlock(&device->pools_lock);
}

void tide__lane_fini(tide_device_cache* device, tide__lane* lane) {
  while (lane->spare_uses != NULL) {
    tide__use* const use = lane->spare_uses;
    lane->spare_uses = use->next;
    tide__heap_release(device->heap, use, 1, sizeof *use);
  }
  for (int i = 0; i < 2; i++) tide__bins_fini(&lane->free_index[i].bins, device->heap);
  marks_fini(device, &lane->marks);
  tide__heap_release(device->heap, lane->waited, lane->waited_count, sizeof *lane->waited);
  tide__view_list* const views = &lane->views;
  tide__heap_release(device->heap, views->entries, views->entry_capacity, sizeof *views->entries);
  tide__heap_release(device->heap, views->bounds, views->bound_capacity, sizeof *views->bounds);
  tide__mutex_fini(&lane->lock);
  tide__heap_release(device->heap, lane, 1, sizeof *lane);
}

// Memory goes from stream to stream in the default pool alone. The stream of each thread is another one under
// the same name, and lends nothing. An external stream may be gone at a release.
static void pool_set_marks_locked(tide_device_cache* device, tide__pool* pool) {
  if (!device->has_tcaches || pool != &device->default_pool || pool->lane_count < 2) return;
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    const bool is_constant = lane->stream != TIDE_STREAM_PER_THREAD && !lane->is_unlisted;
    tide__store_relaxed(&lane->makes_marks, is_constant);
  }
}

static void pool_link_lane_locked(tide_device_cache* device, tide__pool* pool, tide__lane* lane) {
  tide__lane** place = &pool->lanes;
  while (*place != NULL && tide__address((*place)->stream) < tide__address(lane->stream)) {
    place = &(*place)->next;
  }
  lane->next = *place;
  *place = lane;
  lane->number = pool->lane_count++;
  pool_set_marks_locked(device, pool);
}

// Puts a lane into its pool. False if the pool has one for the stream already, or the table is too small.
static bool pool_add_lane_locked(tide_device_cache* device, tide__pool* pool, tide__lane* lane,
                                 tide__lane_table* table) {
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  if (table_find(now, lane->stream) != NULL) return false;
  if (now != NULL && table != now && table->mask <= now->mask) return false;  // another thread was faster
  if ((pool->table_count + 1) * 2 > table->mask + 1) return false;
  table_publish(pool, table);
  pool_link_lane_locked(device, pool, lane);
  pool->table_count++;
  table_add(table, lane);
  return true;
}

static void lane_set(tide__lane* lane, tide__pool* pool, tide_stream stream) {
  lane->pool = pool;
  lane->stream = stream;
  lane->is_unlisted = false;
  tide__store_relaxed(&lane->key, stream);
  tide__store_relaxed(&lane->is_closed, 0);
  tide__store_relaxed(&lane->is_external, 0);
}

static tide_status lane_make(tide_device_cache* device, tide__pool* pool, tide_stream stream) {
  tide__lane* const lane = lane_new(device);
  TIDE_REQUIRE(lane != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of a stream");
  tide__mutex_lock(&device->pools_lock);
  const uint32_t count = pool->table_count;
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  tide__mutex_unlock(&device->pools_lock);
  tide__lane_table* const table = table_for_one_more(device, now, count);
  if (table == NULL) {
    lane_give_back(device, lane);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of a stream");
  }
  lane_set(lane, pool, stream);
  tide__mutex_lock(&device->pools_lock);
  const bool is_added = pool_add_lane_locked(device, pool, lane, table);
  tide__mutex_unlock(&device->pools_lock);
  if (is_added) return TIDE_OK;
  lane_give_back(device, lane);
  if (table != now) tide__heap_release(device->heap, table, 1, table_bytes(table->mask));
  return TIDE_OK;
}

tide_status tide__lane_find(tide_device_cache* device, tide__pool* pool, tide_stream stream,
                            tide__lane** out) {
  for (;;) {
    *out = table_find(tide__load_acquire(&pool->table), stream);  // pairs with table_publish
    if (*out != NULL) return TIDE_OK;
    TIDE_TRY(lane_make(device, pool, stream));
  }
}

tide__lane* tide__lane_new_external(tide_device_cache* device, tide_stream stream) {
  tide__lane* const lane = lane_new(device);
  if (lane == NULL) return NULL;
  lane_set(lane, &device->default_pool, stream);
  lane->is_unlisted = true;
  tide__store_relaxed(&lane->key, (tide_stream)lane);
  tide__store_relaxed(&lane->is_external, 1);
  tide__mutex_lock(&device->pools_lock);
  pool_link_lane_locked(device, &device->default_pool, lane);
  tide__mutex_unlock(&device->pools_lock);
  return lane;
}

tide__lane* tide__lane_next(tide_device_cache* device, tide__pool* pool, tide__lane* lane) {
  tide__mutex_lock(&device->pools_lock);
  tide__lane* const next = lane == NULL ? pool->lanes : lane->next;
  tide__mutex_unlock(&device->pools_lock);
  return next;
}

static void lane_close_locked(tide_device_cache* device, tide__pool* pool, tide_stream stream) {
  tide__lane_table* const table = tide__load_relaxed(&pool->table);
  tide__lane* const lane = table_find(table, stream);
  if (lane == NULL) return;
  tide__store_relaxed(&lane->key, (tide_stream)lane);
  tide__store_relaxed(&lane->is_closed, 1);
  (void)tide__add_release(&device->lane_drops, 1);  // pairs with tide__lane_change
}

// The record of a lane stays with its memory, but no request finds it. A new stream with the same handle gets
// another lane, and uses memory of this one like that of any other stream.
void tide__lanes_close(tide_device_cache* device, tide_stream stream) {
  tide__mutex_lock(&device->pools_lock);
  (void)tide__hash_map_take(&device->externals, tide__address(stream));
  lane_close_locked(device, &device->default_pool, stream);
  tide__pool_base* pool = tide__pools_first_locked(&device->pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) {
    lane_close_locked(device, tide__pool_of(pool), stream);
  }
  tide__mutex_unlock(&device->pools_lock);
}

void tide__lanes_drop_locked(tide_device_cache* device, tide__pool* pool) {
  while (pool->lanes != NULL) {
    tide__lane* const lane = pool->lanes;
    pool->lanes = lane->next;
    lane->next_idle = device->idle_lanes;
    device->idle_lanes = lane;
  }
  pool->lane_count = pool->table_count = 0;
  (void)tide__add_relaxed(&device->lane_drops, 1);
}

void tide__lane_tables_free(tide_device_cache* device, tide__pool* pool) {
  table_free(device, tide__load_relaxed(&pool->table));
  tide__store_relaxed(&pool->table, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Whose turn it is, and counting

// The lane that this thread used last, for each allocator: its tally is added to the totals before the thread
// counts in another one, so that for one thread the totals see all changes in their order.
static _Thread_local tide__lane_memory last_lanes[64];
_Thread_local tide__lane_memory tide__last_lane;

void tide__lane_change(tide_device_cache* device, tide__lane* lane) {
  tide__lane_memory* const last = &last_lanes[device->id % 64];
  if (last->uid == device->uid && last->lane != NULL && last->lane != lane) {
    tide__mutex_lock(&last->lane->lock);
    tide__tally_settle(device, &last->lane->tally);
    tide__mutex_unlock(&last->lane->lock);
  }
  // The key, not the stream: no request finds a lane whose stream is closed. It is read last, so that the
  // number of drops shows a close that happens meanwhile.
  const uint32_t drops = tide__load_acquire(&device->lane_drops);  // pairs with lane_close_locked
  *last = tide__last_lane = (tide__lane_memory){ .uid = device->uid,
                                                 .lane = lane,
                                                 .pool = lane->pool,
                                                 .stream = tide__load_relaxed(&lane->key),
                                                 .drops = drops };
}

void tide__tally_settle(tide_device_cache* device, tide__tally* tally) {
  if (tally->changes != 0) tide__totals_add(device, tally);
}

// ---------------------------------------------------------------------------------------------------
// Spare records

enum { SPARE_BATCH = 16 };

static void lane_add_spares_locked(tide__lane* lane, tide__block* list) {
  while (list != NULL) {
    tide__block* const next = list->heap_next;
    tide__lane_give_spare_locked(lane, list);
    list = next;
  }
}

static tide__block* spares_make(tide_device_cache* device) {
  tide__block* list = NULL;
  for (int i = 0; i < SPARE_BATCH; i++) {
    tide__block* const block = tide__slots_take(&device->blocks);
    if (block == NULL) break;
    block->heap_next = list;
    list = block;
  }
  return list;
}

TIDE_UNCHECKED_LOCKING bool tide__lane_lock_slowly(tide_device_cache* device, tide__lane* lane) {
  for (;;) {
    tide__mutex_lock(&lane->lock);
    if (lane->spares != NULL && lane->spares->heap_next != NULL) return true;
    tide__mutex_unlock(&lane->lock);
    tide__block* const list = spares_make(device);
    const bool is_enough = list != NULL && list->heap_next != NULL;
    tide__mutex_lock(&lane->lock);
    lane_add_spares_locked(lane, list);
    tide__mutex_unlock(&lane->lock);
    if (is_enough) continue;
    (void)TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of blocks");
    return false;
  }
}

tide_status tide__lane_add_spares(tide_device_cache* device, tide__lane* lane, size_t count) {
  size_t has = 0;
  tide__mutex_lock(&lane->lock);
  for (const tide__block* spare = lane->spares; spare != NULL && has < count; spare = spare->heap_next) has++;
  tide__mutex_unlock(&lane->lock);
  for (; has < count; has++) {
    tide__block* const block = tide__slots_take(&device->blocks);
    TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of %zu blocks", count);
    tide__mutex_lock(&lane->lock);
    tide__lane_give_spare_locked(lane, block);
    tide__mutex_unlock(&lane->lock);
  }
  return TIDE_OK;
}

tide_status tide__lane_hold_spares(tide_device_cache* device, tide__lane* lane, tide__block* out[2]) {
  if (!tide__lane_lock_with_spares(device, lane)) return TIDE_ERR_NO_MEMORY;
  out[0] = tide__lane_take_spare_locked(lane);
  out[1] = tide__lane_take_spare_locked(lane);
  tide__mutex_unlock(&lane->lock);
  return TIDE_OK;
}

void tide__lane_unhold_spares_locked(tide__lane* lane, tide__block* const held[2]) {
  tide__lane_give_spare_locked(lane, held[0]);
  tide__lane_give_spare_locked(lane, held[1]);
}
