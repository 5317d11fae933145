// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lanes, and the blocks in them: how a block is cut, joined, handed out and taken back. A lane is found by
// its stream without a lock; everything in it is guarded by the lane's lock.
#include "device/allocator.h"

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

static void table_free(tide_device* device, tide__lane_table* table) {
  while (table != NULL) {
    tide__lane_table* const older = table->older;
    tide__heap_release(device->heap, table, 1, table_bytes(table->mask));
    table = older;
  }
}

// A table with room for one lane more than the pool has, or the one it has if that has room. NULL: no memory.
static tide__lane_table* table_for_one_more(tide_device* device, tide__lane_table* now, uint32_t lane_count) {
  if (now != NULL && (lane_count + 1) * 2 <= now->mask + 1) return now;
  const uint32_t mask = now != NULL ? now->mask * 2 + 1 : 7;
  tide__lane_table* const table = tide__heap_alloc(device->heap, 1, table_bytes(mask));
  if (table != NULL) table->mask = mask;
  return table;
}

static void table_publish(tide__pool* pool, tide__lane_table* table) {
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  if (table == now) return;
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) table_add(table, lane);
  table->older = now;
  tide__store_release(&pool->table, table);  // pairs with tide__lane_find
}

static tide__lane* lane_new(tide_device* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__lane* lane = device->idle_lanes;
  if (lane != NULL) device->idle_lanes = lane->next_idle;
  tide__mutex_unlock(&device->pools_lock);
  if (lane != NULL) return lane;
  lane = tide__heap_alloc(device->heap, 1, sizeof *lane);
  if (lane == NULL) return NULL;
  if (!tide__bins_init(&lane->free_index[TIDE__SMALL].bins, device->heap, true) ||
      !tide__bins_init(&lane->free_index[TIDE__LARGE].bins, device->heap, device->has_tcaches)) {
    tide__bins_fini(&lane->free_index[TIDE__SMALL].bins, device->heap);
    tide__heap_release(device->heap, lane, 1, sizeof *lane);
    return NULL;
  }
  tide__mutex_init(&lane->lock, TIDE__RANK_LANE);
  tide__marks_init(&lane->marks);
  tide__list_init(&lane->segments);
  return lane;
}

static void lane_give_back(tide_device* device, tide__lane* lane) {
  tide__mutex_lock(&device->pools_lock);
  lane->next_idle = device->idle_lanes;
  device->idle_lanes = lane;
  tide__mutex_unlock(&device->pools_lock);
}

void tide__lane_fini(tide_device* device, tide__lane* lane) {
  while (lane->spare_uses != NULL) {
    tide__use* const use = lane->spare_uses;
    lane->spare_uses = use->next;
    tide__heap_release(device->heap, use, 1, sizeof *use);
  }
  for (int i = 0; i < 2; i++) tide__bins_fini(&lane->free_index[i].bins, device->heap);
  tide__marks_fini(device, &lane->marks);
  tide__heap_release(device->heap, lane->waited, lane->waited_count, sizeof *lane->waited);
  tide__mutex_fini(&lane->lock);
  tide__heap_release(device->heap, lane, 1, sizeof *lane);
}

// Memory goes from stream to stream in the default pool alone. The stream of each thread is another one under
// the same name, and lends nothing.
static void pool_set_marks_locked(tide_device* device, tide__pool* pool) {
  if (!device->has_tcaches || pool != &device->default_pool || pool->lane_count < 2) return;
  for (tide__lane* lane = pool->lanes; lane != NULL; lane = lane->next) {
    tide__store_relaxed(&lane->makes_marks, lane->stream != TIDE_STREAM_PER_THREAD);
  }
}

// Puts a lane into its pool. False if the pool has one for the stream already, or the table is too small.
static bool pool_add_lane_locked(tide_device* device, tide__pool* pool, tide__lane* lane,
                                 tide__lane_table* table) {
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  if (table_find(now, lane->stream) != NULL) return false;
  if (now != NULL && table != now && table->mask <= now->mask) return false;  // another thread was faster
  if ((pool->lane_count + 1) * 2 > table->mask + 1) return false;
  table_publish(pool, table);
  tide__lane** place = &pool->lanes;
  while (*place != NULL && tide__address((*place)->stream) < tide__address(lane->stream)) {
    place = &(*place)->next;
  }
  lane->next = *place;
  *place = lane;
  lane->number = pool->lane_count++;
  table_add(table, lane);
  pool_set_marks_locked(device, pool);
  return true;
}

static tide_status lane_make(tide_device* device, tide__pool* pool, tide_stream stream) {
  tide__lane* const lane = lane_new(device);
  TIDE_REQUIRE(lane != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of a stream");
  tide__mutex_lock(&device->pools_lock);
  const uint32_t count = pool->lane_count;
  tide__lane_table* const now = tide__load_relaxed(&pool->table);
  tide__mutex_unlock(&device->pools_lock);
  tide__lane_table* const table = table_for_one_more(device, now, count);
  if (table == NULL) {
    lane_give_back(device, lane);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of a stream");
  }
  lane->pool = pool;
  lane->stream = stream;
  tide__store_relaxed(&lane->key, stream);
  tide__store_relaxed(&lane->is_closed, 0);
  tide__mutex_lock(&device->pools_lock);
  const bool is_added = pool_add_lane_locked(device, pool, lane, table);
  tide__mutex_unlock(&device->pools_lock);
  if (is_added) return TIDE_OK;
  lane_give_back(device, lane);
  if (table != now) tide__heap_release(device->heap, table, 1, table_bytes(table->mask));
  return TIDE_OK;
}

tide_status tide__lane_find(tide_device* device, tide__pool* pool, tide_stream stream, tide__lane** out) {
  for (;;) {
    *out = table_find(tide__load_acquire(&pool->table), stream);  // pairs with table_publish
    if (*out != NULL) return TIDE_OK;
    TIDE_TRY(lane_make(device, pool, stream));
  }
}

tide__lane* tide__lane_next(tide_device* device, tide__pool* pool, tide__lane* lane) {
  tide__mutex_lock(&device->pools_lock);
  tide__lane* const next = lane == NULL ? pool->lanes : lane->next;
  tide__mutex_unlock(&device->pools_lock);
  return next;
}

static void lane_close_locked(tide_device* device, tide__pool* pool, tide_stream stream) {
  tide__lane_table* const table = tide__load_relaxed(&pool->table);
  tide__lane* const lane = table_find(table, stream);
  if (lane == NULL) return;
  tide__store_relaxed(&lane->key, (tide_stream)lane);
  tide__store_relaxed(&lane->is_closed, 1);
  (void)tide__add_release(&device->lane_drops, 1);  // pairs with tide__lane_change
}

// The record of the lane stays with its memory, but nobody finds it: a new stream of the same name gets
// another one, and takes memory of this one like any other stream.
tide_status tide_device_close_stream(tide_device* device, tide_stream stream) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_close_stream: no device");
  const bool is_default = stream == NULL || stream == TIDE_STREAM_LEGACY || stream == TIDE_STREAM_PER_THREAD;
  TIDE_REQUIRE(!is_default, TIDE_ERR_ARGUMENT, "device_close_stream: the default streams cannot be closed");
  (void)tide__gate_enter(device);
  tide__mutex_lock(&device->pools_lock);
  lane_close_locked(device, &device->default_pool, stream);
  tide__pool_base* pool = tide__pools_first_locked(&device->pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) {
    lane_close_locked(device, tide__pool_of(pool), stream);
  }
  tide__mutex_unlock(&device->pools_lock);
  tide__marks_drain_closed(device);
  tide__tcache_forget_closed(device);
  tide__gate_leave(device);
  return TIDE_OK;
}

void tide__lanes_drop_locked(tide_device* device, tide__pool* pool) {
  while (pool->lanes != NULL) {
    tide__lane* const lane = pool->lanes;
    pool->lanes = lane->next;
    lane->next_idle = device->idle_lanes;
    device->idle_lanes = lane;
  }
  pool->lane_count = 0;
  (void)tide__add_relaxed(&device->lane_drops, 1);
}

void tide__lane_tables_free(tide_device* device, tide__pool* pool) {
  table_free(device, tide__load_relaxed(&pool->table));
  tide__store_relaxed(&pool->table, NULL);
}

// ---------------------------------------------------------------------------------------------------
// Whose turn it is, and counting

// The lane that this thread used last, for each allocator: its tally is added to the totals before the thread
// counts in another one, so that for one thread the totals see all changes in their order.
static _Thread_local tide__lane_memory last_lanes[64];
_Thread_local tide__lane_memory tide__last_lane;

void tide__lane_change(tide_device* device, tide__lane* lane) {
  tide__lane_memory* const last = &last_lanes[device->id % 64];
  if (last->uid == device->uid && last->lane != NULL && last->lane != lane) {
    tide__mutex_lock(&last->lane->lock);
    tide__tally_settle(device, &last->lane->tally);
    tide__mutex_unlock(&last->lane->lock);
  }
  // The key, not the stream: nobody finds a lane whose stream is closed. It is read last, so that the number
  // of drops shows a close that happens meanwhile.
  const uint32_t drops = tide__load_acquire(&device->lane_drops);  // pairs with lane_close_locked
  *last = tide__last_lane = (tide__lane_memory){ .uid = device->uid,
                                                 .lane = lane,
                                                 .pool = lane->pool,
                                                 .stream = tide__load_relaxed(&lane->key),
                                                 .drops = drops };
}

void tide__tally_settle(tide_device* device, tide__tally* tally) {
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

static tide__block* spares_make(tide_device* device) {
  tide__block* list = NULL;
  for (int i = 0; i < SPARE_BATCH; i++) {
    tide__block* const block = tide__slots_take(&device->blocks);
    if (block == NULL) break;
    block->heap_next = list;
    list = block;
  }
  return list;
}

TIDE_UNCHECKED_LOCKING bool tide__lane_lock_with_spares(tide_device* device, tide__lane* lane) {
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

tide_status tide__lane_add_spares(tide_device* device, tide__lane* lane, size_t count) {
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
  if (block->state == TIDE__BLOCK_FREE) tide__free_index_take_locked(block);
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
  tide__lane_give_spare_locked(lane, prev);
}

void tide__block_absorb_next_locked(tide__lane* lane, tide__block* block) {
  tide__block* const next = block->next;
  neighbour_take_locked(next);
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != NULL) block->next->prev = block;
  tide__lane_give_spare_locked(lane, next);
}

void tide__block_merge_locked(tide__lane* lane, tide__block* block, uint8_t state) {
  if (block->prev != NULL && block->prev->state == state) tide__block_absorb_prev_locked(lane, block);
  if (block->next != NULL && block->next->state == state) tide__block_absorb_next_locked(lane, block);
}

// ---------------------------------------------------------------------------------------------------
// Handing out and taking back

// Counts how the idle parts of segments in use change: `count` parts, `bytes` bytes, as one change.
static inline void count_split(tide__tally* tally, bool is_small, int64_t count, int64_t bytes) {
  tide__tally_move(tally, is_small, TIDE__TALLY_SPLITS, count);
  tide__tally_move(tally, is_small, TIDE__TALLY_SPLIT_BYTES, bytes);
  tally->changes++;
}

// Keeps the front of a block for the request and puts the rest back; returns the front.
static tide__block* block_split_locked(const tide__request* request, tide__block* block) {
  tide__lane* const lane = block->segment->lane;
  const bool was_whole = tide__block_is_whole(block);
  tide__block* const front = tide__block_cut_front_locked(lane, block, request->rounded);
  if (!block->segment->is_expandable) {
    count_split(&lane->tally, block->is_small, was_whole ? 1 : 0,
                was_whole ? (int64_t)block->bytes : -(int64_t)front->bytes);
  }
  // While the block was in the hands of this thread, without the lock, its neighbour may have become idle.
  if (block->next != NULL && block->next->state == TIDE__BLOCK_FREE) {
    if (!block->segment->is_expandable) count_split(&lane->tally, block->is_small, -1, 0);
    tide__block_absorb_next_locked(lane, block);
  }
  tide__free_index_put_locked(block, true);
  return front;
}

// Takes the part of an idle block from `address` on; what lies before it stays idle.
tide__block* tide__block_take_from_locked(tide__block* block, uint64_t address) {
  tide__lane* const lane = block->segment->lane;
  tide__free_index_take_locked(block);
  if (block->address == address) return block;
  const bool was_whole = tide__block_is_whole(block);
  const bool is_counted = !block->segment->is_expandable;
  tide__block* const front = tide__block_cut_front_locked(lane, block, address - block->address);
  tide__free_index_put_locked(front, true);
  // As if the front were a request that is released at once: one idle part more, or both are the first two.
  if (is_counted) {
    count_split(&lane->tally, block->is_small, was_whole ? 2 : 1,
                was_whole ? (int64_t)(front->bytes + block->bytes) : 0);
  }
  return block;
}

// What is active decides about growth: of large blocks no thread keeps much to itself.
static inline void tally_settle_large(tide_device* device, tide__tally* tally) {
  const int64_t bytes = tally->items[TIDE__TALLY_BYTES].sides[TIDE__LARGE].sum;
  if (device->has_tcaches && (bytes > TIDE__TALLY_BYTES_KEPT || bytes < -TIDE__TALLY_BYTES_KEPT)) {
    tide__tally_settle(device, tally);
  }
}

tide__block* tide__block_commit_locked(const tide__request* request, tide__block* block, bool splits,
                                       tide__tally* tally, tide_block* out) {
  tide_device* const device = request->device;
  tide__lane* const lane = block->segment->lane;
  if (splits) {
    block = block_split_locked(request, block);
  } else if (!tide__block_is_whole(block) && !block->segment->is_expandable) {
    count_split(&lane->tally, block->is_small, -1, -(int64_t)block->bytes);
  }
  block->state = TIDE__BLOCK_ALLOCATED;
  block->last_use = 0;
  tide__store_relaxed(&block->requested_bytes, request->bytes);
  tide__store_relaxed(&block->stack, request->moment.stack);
  tide__tally_hand_out(tally, block->is_small, tide__block_counted_bytes(block), request->bytes);
  if (!block->is_small) tally_settle_large(device, tally);
  if (block->bytes >= request->options->max_split_bytes) tide__totals_oversize(device, true);
  tide__tally_count(device, tally);
  if (tide__is_recording(device)) {
    tide__entry_add(device, TIDE_ACTION_ALLOC, &request->moment, request->moment.stack, lane, block->address,
                    request->bytes);
  }
  block->is_public = out != NULL;
  block->is_borrowed = request->is_borrowing;
  if (out == NULL) return block;
  out->address = tide__pointer(block->address);
  out->handle = tide__slots_publish(&device->blocks, block);
  tide__map_set(&device->map, block->address, block->is_small, block->slot.index);
  return block;
}

void tide__block_record_free(tide_device* device, tide_action action, const tide__block* block,
                             const tide__call_context* moment) {
  const uint32_t stack = moment->stack != 0 ? moment->stack : tide__load_relaxed(&block->stack);
  tide__entry_add(device, action, moment, stack, block->segment->lane, block->address,
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
  count_split(&lane->tally, block->is_small, count,
              is_whole_then ? -(int64_t)absorbed : (int64_t)block->bytes);
}

// Puts a block that nobody has any more among the idle ones.
static void block_rest_locked(tide_device* device, tide__block* block, const tide__call_context* moment,
                              tide__tally* tally) {
  tide__lane* const lane = block->segment->lane;
  if (tide__is_recording(device)) tide__block_record_free(device, TIDE_ACTION_FREE_COMPLETED, block, moment);
  if (!block->segment->is_expandable) count_freed(lane, block);
  tide__store_relaxed(&block->stack, 0);
  if (block->segment->view != NULL) {
    tide__view_block_end_locked(device, block, moment);
  } else {
    if (block->segment->home != NULL && !block->is_small) tide__home_block_end_locked(device, block);
    tide__block_merge_locked(lane, block, TIDE__BLOCK_FREE);
    tide__free_index_put_locked(block, true);
  }
  tide__tally_count(device, tally);
}

void tide__lane_unlock_ended(tide_device* device, tide__lane* lane) {
  tide__block* const pieces = lane->leaving;
  lane->leaving = NULL;
  tide__mutex_unlock(&lane->lock);
  if (pieces != NULL) tide__pieces_give(device, pieces, lane);
}

bool tide__block_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment,
                            tide__tally* tally) {
  if (block->is_public) tide__map_clear(&device->map, block->address, block->is_small);
  block->state = TIDE__BLOCK_PENDING;
  if (block->bytes >= tide__device_options(device)->max_split_bytes) tide__totals_oversize(device, false);
  if (tide__is_recording(device)) tide__block_record_free(device, TIDE_ACTION_FREE_REQUESTED, block, moment);
  tide__store_relaxed(&block->use_word, 0);
  if (block->uses != NULL) {
    tide__tally_settle(device, tally);
    tide__totals_wait_begin(device, block);
    return true;
  }
  tide__tally_take_back(tally, block->is_small, tide__block_counted_bytes(block),
                        tide__load_relaxed(&block->requested_bytes));
  if (!block->is_small) tally_settle_large(device, tally);
  block_rest_locked(device, block, moment, tally);
  return false;
}

void tide__block_wait_end_locked(tide_device* device, tide__block* block, const tide__call_context* moment,
                                 tide__tally* tally) {
  tide__tally_settle(device, tally);
  tide__totals_wait_end(device, block);
  block_rest_locked(device, block, moment, tally);
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
    count_split(&lane->tally, block->is_small, -absorbed - is_whole, is_whole ? -(int64_t)block->bytes : 0);
  }
  tide__free_index_put_locked(block, restamps);
}
