// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checkpoints of a private pool: a list of its segments and their blocks. Restoring takes back everything
// that is handed out, which leaves each segment one idle block (an expandable one: one for each range with
// memory); then hands the blocks of the checkpoint out in the order of their addresses, and takes those back
// that were idle in it. Everything is checked, and all memory for it taken, before the first change.
//
// A block that the pool lent to a request of the default pool is not the pool's to take back: a checkpoint
// has it as idle, and a restore leaves it where it is, or is refused if the checkpoint has a block there.
#include <stdlib.h>

#include "base/sized.h"
#include "device/tide/tide.h"

typedef struct saved_block {
  uint64_t address;
  uint64_t bytes;
  bool is_allocated;
} saved_block;

typedef struct saved_segment {
  tide_stream stream;
  uint64_t address;
  uint64_t ordinal;
  bool is_small;
  size_t first;  // of its blocks with memory
  size_t count;
} saved_segment;

struct tide_checkpoint {
  const tide_heap* heap;  // borrowed; the allocator's
  uint64_t device_uid;
  tide_pool pool;
  saved_segment* segments;  // owned
  saved_block* blocks;      // owned
  size_t segment_count;
  size_t block_count;
  size_t segment_capacity;
  size_t block_capacity;
  size_t allocated_count;
};

void tide_checkpoint_free(tide_checkpoint* c) {
  if (c == NULL) return;
  const tide_heap* const heap = c->heap;
  tide__heap_release(heap, c->segments, c->segment_capacity, sizeof *c->segments);
  tide__heap_release(heap, c->blocks, c->block_capacity, sizeof *c->blocks);
  tide__heap_release(heap, c, 1, sizeof *c);
}

// ---------------------------------------------------------------------------------------------------
// Walking a pool

// What a walk over a lane counts.
typedef struct lane_census {
  size_t segments;
  size_t blocks;  // with memory
  size_t allocated;
  size_t waiting;    // for work on other streams
  size_t announced;  // to other streams, and still handed out
} lane_census;

// Is it handed out, by the pool for itself?
static bool block_is_own(const tide__block* block) {
  return block->state == TIDE__BLOCK_ALLOCATED && !block->is_borrowed;
}

static lane_census lane_count_blocks_locked(const tide__lane* lane) {
  lane_census census = { 0 };
  TIDE_LIST_EACH(it, (tide__link*)(uintptr_t)&lane->segments) {
    census.segments++;
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) {
      if (!tide__state_has_memory(block->state)) continue;
      census.blocks++;
      if (block_is_own(block)) census.allocated++;
      if (block->state == TIDE__BLOCK_PENDING) census.waiting++;
      if (block_is_own(block) && block->uses != NULL) census.announced++;
    }
  }
  return census;
}

// A private pool in use, by its number.
TIDE_UNCHECKED_LOCKING static tide_status pool_get(tide_device_cache* device, tide_pool number,
                                                   const char* call, tide__pool** out) {
  tide__pool_base* found = NULL;
  TIDE_TRY(tide__pools_lock(&device->pools, number, true, call, &found));
  tide__mutex_unlock(&device->pools_lock);
  *out = tide__pool_of(found);
  TIDE_REQUIRE(!tide__load_relaxed(&(*out)->is_parked), TIDE_ERR_STATE, "%s: pool %u is parked", call,
               number);
  return TIDE_OK;
}

static tide_status pool_census(tide_device_cache* device, tide__pool* pool, const char* call,
                               lane_census* out) {
  *out = (lane_census){ 0 };
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    const lane_census census = lane_count_blocks_locked(lane);
    tide__mutex_unlock(&lane->lock);
    out->segments += census.segments;
    out->blocks += census.blocks;
    out->allocated += census.allocated;
    out->waiting += census.waiting;
    out->announced += census.announced;
  }
  TIDE_REQUIRE(out->waiting == 0, TIDE_ERR_STATE, "%s: %zu blocks of pool %u wait for work on other streams",
               call, out->waiting, pool->base.number);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Saving

static void segment_save_locked(tide_checkpoint* c, const tide__segment* segment) {
  saved_segment* const saved = &c->segments[c->segment_count++];
  *saved = (saved_segment){ .stream = segment->lane->stream,
                            .address = segment->address,
                            .ordinal = segment->ordinal,
                            .is_small = segment->is_small,
                            .first = c->block_count };
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    if (!tide__state_has_memory(block->state)) continue;
    const bool is_allocated = block_is_own(block);
    c->blocks[c->block_count++] = (saved_block){ block->address, block->bytes, is_allocated };
    c->allocated_count += is_allocated;
  }
  saved->count = c->block_count - saved->first;
}

static tide_status lane_save(tide_checkpoint* c, tide__lane* lane) {
  for (;;) {
    tide__mutex_lock(&lane->lock);
    const lane_census census = lane_count_blocks_locked(lane);
    const bool has_room = c->segment_count + census.segments <= c->segment_capacity &&
                          c->block_count + census.blocks <= c->block_capacity;
    if (has_room) {
      TIDE_LIST_EACH(it, &lane->segments) segment_save_locked(c, TIDE_OWNER(it, tide__segment, link));
    }
    tide__mutex_unlock(&lane->lock);
    if (has_room) return TIDE_OK;
    const bool is_grown = tide__heap_grow(c->heap, (void**)&c->segments, &c->segment_capacity,
                                          c->segment_count + census.segments, sizeof *c->segments) &&
                          tide__heap_grow(c->heap, (void**)&c->blocks, &c->block_capacity,
                                          c->block_count + census.blocks, sizeof *c->blocks);
    TIDE_REQUIRE(is_grown, TIDE_ERR_NO_MEMORY, "device_checkpoint: no memory for %zu blocks", census.blocks);
  }
}

static tide_status pool_save(tide_device_cache* device, tide__pool* pool, tide_checkpoint* c) {
  lane_census census;
  TIDE_TRY(pool_census(device, pool, "device_checkpoint", &census));
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) TIDE_TRY(lane_save(c, lane));
  return TIDE_OK;
}

tide_status tide_device_checkpoint(tide_device_cache* device, tide_pool pool, tide_checkpoint** out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_checkpoint: no device or out");
  *out = NULL;
  tide__pool* found = NULL;
  TIDE_TRY(tide_device_poll(device));
  tide_checkpoint* const c = tide__heap_alloc(device->heap, 1, sizeof *c);
  TIDE_REQUIRE(c != NULL, TIDE_ERR_NO_MEMORY, "device_checkpoint: no memory");
  c->heap = device->heap;
  c->device_uid = device->uid;
  c->pool = pool;
  (void)tide__gate_enter(device);
  tide__gate_settle(device);
  tide_status status = pool_get(device, pool, "device_checkpoint", &found);
  if (status == TIDE_OK) status = pool_save(device, found, c);
  tide__gate_leave(device);
  if (status != TIDE_OK) {
    tide_checkpoint_free(c);
    return status;
  }
  *out = c;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Checking that a checkpoint can be restored

static tide__segment* saved_find_locked(const tide__lane* lane, const saved_segment* saved) {
  TIDE_LIST_EACH(it, (tide__link*)(uintptr_t)&lane->segments) {
    tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->address == saved->address && segment->ordinal == saved->ordinal) return segment;
  }
  return NULL;
}

// Has every block of the checkpoint memory today? `block` walks along.
static bool saved_has_memory_locked(const tide_checkpoint* c, const saved_segment* saved,
                                    const tide__segment* segment) {
  const tide__block* block = segment->head;
  for (size_t i = saved->first; i < saved->first + saved->count; i++) {
    uint64_t address = c->blocks[i].address;
    const uint64_t end = address + c->blocks[i].bytes;
    while (address < end) {
      while (block != NULL && tide__block_end(block) <= address) block = block->next;
      if (block == NULL || !tide__state_has_memory(block->state)) return false;
      address = tide__block_end(block);
    }
  }
  return true;
}

static const tide__block* chain_find_locked(const tide__block* block, uint64_t address) {
  while (block != NULL && tide__block_end(block) <= address) block = block->next;
  return block;
}

// Has the default pool part of a saved block? `block` is at its beginning, or before.
static bool saved_is_lent_locked(const tide__block* block, const saved_block* saved) {
  block = chain_find_locked(block, saved->address);
  for (; block != NULL && block->address < saved->address + saved->bytes; block = block->next) {
    if (block->state == TIDE__BLOCK_ALLOCATED && block->is_borrowed) return true;
  }
  return false;
}

// Are the places of all blocks that are to be handed out still the pool's?
static bool saved_is_own_locked(const tide_checkpoint* c, const saved_segment* saved,
                                const tide__segment* segment) {
  for (size_t i = saved->first; i < saved->first + saved->count; i++) {
    if (c->blocks[i].is_allocated && saved_is_lent_locked(segment->head, &c->blocks[i])) return false;
  }
  return true;
}

// Finds a saved segment, and gives its lane enough records to restore it.
static tide_status saved_check(tide_device_cache* device, tide__pool* pool, const tide_checkpoint* c,
                               const saved_segment* saved) {
  tide__lane* lane = NULL;
  TIDE_TRY(tide__lane_find(device, pool, saved->stream, &lane));
  tide__mutex_lock(&lane->lock);
  const tide__segment* const segment = saved_find_locked(lane, saved);
  const bool is_there = segment != NULL && saved_has_memory_locked(c, saved, segment);
  const bool is_own = is_there && saved_is_own_locked(c, saved, segment);
  tide__mutex_unlock(&lane->lock);
  TIDE_REQUIRE(is_there, TIDE_ERR_STATE, "device_restore: the segment at %#llx is gone",
               (unsigned long long)saved->address);
  TIDE_REQUIRE(is_own, TIDE_ERR_STATE,
               "device_restore: requests of the default pool have memory of the segment at %#llx",
               (unsigned long long)saved->address);
  return tide__lane_add_spares(device, lane, c->block_count + 2);
}

// ---------------------------------------------------------------------------------------------------
// Restoring

// Takes back what is handed out of a lane.
static void lane_take_back(tide_device_cache* device, tide__lane* lane, const tide__call_context* context,
                           tide_restore_delta* delta) {
  tide__tally* const tally = tide__tally_enter(device, lane);
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    for (tide__block* block = segment->head; block != NULL; block = block->next) {
      if (!block_is_own(block)) continue;
      if (!tide__slots_retire(block)) continue;  // its user releases it just now
      delta->released[delta->released_count++] = tide__pointer(block->address);
      // The record stays, and takes its neighbours in.
      (void)tide__block_end_locked(device, block, context, tally);
    }
  }
  tide__mutex_unlock(&lane->lock);
  tide__tally_leave(device, tally);
}

// The idle block around an address, at `block` or behind it, taken out from there on.
static tide__block* idle_take_at_locked(tide__block* block, uint64_t address) {
  while (block != NULL && tide__block_end(block) <= address) block = block->next;
  TIDE_ASSERT(block != NULL && block->state == TIDE__BLOCK_FREE);
  return tide__block_take_from_locked(block, address);
}

// Hands out the blocks of a saved segment, one after the other; those that were idle only as far as the
// counts go, and not where the default pool has a part of them. There are spares enough: see saved_check().
static void saved_hand_out(tide__request* request, const tide_checkpoint* c, const saved_segment* saved,
                           tide__block** records, tide_restore_delta* delta) {
  tide__tally* const tally = tide__tally_enter(request->device, request->lane);
  tide__mutex_lock(&request->lane->lock);
  tide__block* from = saved_find_locked(request->lane, saved)->head;
  for (size_t i = 0; i < saved->count; i++) {
    const saved_block* const want = &c->blocks[saved->first + i];
    records[i] = NULL;
    if (saved_is_lent_locked(from, want)) continue;
    tide_block* const out = want->is_allocated ? &delta->created[delta->created_count++] : NULL;
    request->bytes = request->rounded = want->bytes;
    tide__block* const block = idle_take_at_locked(from, want->address);
    records[i] = tide__block_commit_locked(request, block, block->bytes > want->bytes, tally, out);
    from = records[i]->next;
  }
  tide__mutex_unlock(&request->lane->lock);
  tide__tally_leave(request->device, tally);
}

// Takes those back again that were idle in the checkpoint.
static void saved_end_idle(tide__request* request, const tide_checkpoint* c, const saved_segment* saved,
                           tide__block** records) {
  tide__tally* const tally = tide__tally_enter(request->device, request->lane);
  tide__mutex_lock(&request->lane->lock);
  for (size_t i = 0; i < saved->count; i++) {
    if (c->blocks[saved->first + i].is_allocated || records[i] == NULL) continue;
    (void)tide__block_end_locked(request->device, records[i], &request->context, tally);
  }
  tide__mutex_unlock(&request->lane->lock);
  tide__tally_leave(request->device, tally);
}

static tide_status saved_restore(tide_device_cache* device, tide__pool* pool, const tide_checkpoint* c,
                                 const saved_segment* saved, tide__block** records,
                                 tide_restore_delta* delta) {
  tide__request request = { .device = device,
                            .options = tide__device_options(device),
                            .policy = tide__policy_of(device, pool),
                            .pool = pool,
                            .stream = saved->stream,
                            .kind = saved->is_small ? TIDE__SMALL : TIDE__LARGE };
  if (tide__is_recording(device)) request.context = tide__context_now(device, TIDE_HISTORY_STATE);
  TIDE_TRY(tide__lane_find(device, pool, saved->stream, &request.lane));
  tide__lane_turn(device, request.lane);
  saved_hand_out(&request, c, saved, records, delta);
  saved_end_idle(&request, c, saved, records);
  return TIDE_OK;
}

static tide_status restore_check(tide_device_cache* device, tide__pool* pool, const tide_checkpoint* c,
                                 lane_census* out) {
  TIDE_TRY(pool_census(device, pool, "device_restore", out));
  TIDE_REQUIRE(out->announced == 0, TIDE_ERR_STATE,
               "device_restore: %zu blocks of pool %u are announced to streams", out->announced,
               pool->base.number);
  for (size_t i = 0; i < c->segment_count; i++) TIDE_TRY(saved_check(device, pool, c, &c->segments[i]));
  return TIDE_OK;
}

static tide_status restore_at_gate(tide_device_cache* device, tide__pool* pool, const tide_checkpoint* c,
                                   tide__block** records, tide_restore_delta* delta) {
  const tide__call_context context = tide__is_recording(device) ? tide__context_now(device, TIDE_HISTORY_ALL)
                                                                : (tide__call_context){ 0, 0, 0 };
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__lane_turn(device, lane);
    lane_take_back(device, lane, &context, delta);
  }
  for (size_t i = 0; i < c->segment_count; i++) {
    TIDE_TRY(saved_restore(device, pool, c, &c->segments[i], records, delta));
  }
  return TIDE_OK;
}

void tide_restore_delta_clear(tide_restore_delta* delta) {
  if (delta == NULL) return;
  const tide_heap* const heap = tide__heap_or_system(delta->heap);
  tide__heap_release(heap, delta->released, delta->released_capacity, sizeof *delta->released);
  tide__heap_release(heap, delta->created, delta->created_capacity, sizeof *delta->created);
  *delta = (tide_restore_delta){ .size = delta->size };
}

static tide_status restore_with_room(tide_device_cache* device, tide__pool* pool, const tide_checkpoint* c,
                                     tide_restore_delta* delta) {
  lane_census census;
  TIDE_TRY(restore_check(device, pool, c, &census));
  const size_t room = c->block_count + 1;
  if (tide__is_recording(device)) tide__history_make_room(&device->history, 2 * census.allocated + 3 * room);
  tide__block** const records = tide__heap_alloc(device->heap, room, sizeof *records);
  bool is_enough = records != NULL;
  is_enough = is_enough && tide__heap_grow(delta->heap, (void**)&delta->released, &delta->released_capacity,
                                           census.allocated + 1, sizeof *delta->released);
  is_enough = is_enough && tide__heap_grow(delta->heap, (void**)&delta->created, &delta->created_capacity,
                                           c->allocated_count + 1, sizeof *delta->created);
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (is_enough) {
    status = restore_at_gate(device, pool, c, records, delta);
  } else {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "device_restore: no memory for %zu blocks", room);
  }
  tide__heap_release(device->heap, records, room, sizeof *records);
  return status;
}

tide_status tide_device_restore(tide_device_cache* device, const tide_checkpoint* checkpoint,
                                tide_restore_delta* out) {
  TIDE_REQUIRE(device != NULL && checkpoint != NULL, TIDE_ERR_ARGUMENT,
               "device_restore: no device or checkpoint");
  TIDE_TRY(tide__sized_check("device_restore", out, sizeof *out));
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  tide__sized_clear(out);
  delta.heap = device->heap;
  TIDE_REQUIRE(checkpoint->device_uid == device->uid, TIDE_ERR_ARGUMENT,
               "device_restore: a checkpoint of another allocator");
  tide__pool* pool = NULL;
  TIDE_TRY(tide_device_poll(device));
  (void)tide__gate_enter(device);
  tide__gate_settle(device);
  tide_status status = pool_get(device, checkpoint->pool, "device_restore", &pool);
  if (status == TIDE_OK) status = restore_with_room(device, pool, checkpoint, &delta);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  if (status == TIDE_OK) return tide__sized_write("device_restore", &delta, out, sizeof delta);
  tide_restore_delta_clear(&delta);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Which blocks are handed out

static int address_compare(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a;
  const uint64_t y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

// Counts the handed-out blocks of a lane; returns whether all of them are in the sorted list.
static bool lane_is_within_locked(const tide__lane* lane, const uint64_t* sorted, size_t count,
                                  size_t* found) {
  TIDE_LIST_EACH(it, (tide__link*)(uintptr_t)&lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) {
      if (!tide__block_is_handed_out(block)) continue;
      (*found)++;
      if (bsearch(&block->address, sorted, count, sizeof *sorted, address_compare) == NULL) return false;
    }
  }
  return true;
}

static bool pool_is_exactly(tide_device_cache* device, tide__pool* pool, const uint64_t* sorted,
                            size_t count) {
  size_t found = 0;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    const bool is_within = lane_is_within_locked(lane, sorted, count, &found);
    tide__mutex_unlock(&lane->lock);
    if (!is_within) return false;
  }
  return found == count;
}

tide_status tide_device_pool_check(tide_device_cache* device, tide_pool pool, const void* const* addresses,
                                   size_t count, bool* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_pool_check: no device or out");
  *out = false;
  TIDE_REQUIRE(addresses != NULL || count == 0, TIDE_ERR_ARGUMENT, "device_pool_check: no addresses");
  tide__pool* const found = tide__pool_find(device, pool);
  TIDE_REQUIRE(found != NULL, TIDE_ERR_HANDLE, "device_pool_check: there is no pool %u", pool);
  uint64_t* const sorted = tide__heap_alloc(device->heap, count + 1, sizeof *sorted);
  TIDE_REQUIRE(sorted != NULL, TIDE_ERR_NO_MEMORY, "device_pool_check: no memory for %zu addresses", count);
  for (size_t i = 0; i < count; i++) sorted[i] = tide__address(addresses[i]);
  qsort(sorted, count, sizeof *sorted, address_compare);
  size_t distinct = 0;
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || sorted[i] != sorted[i - 1]) sorted[distinct++] = sorted[i];
  }
  *out = pool_is_exactly(device, found, sorted, distinct);
  tide__heap_release(device->heap, sorted, count + 1, sizeof *sorted);
  return TIDE_OK;
}
