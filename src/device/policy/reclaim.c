// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Giving memory back to the machine: everything that is idle, just enough for a request, or what has been
// idle for long. Each walk first takes the idle blocks it is after out of their free indexes, lane by lane,
// into a list, sorts that as the policy wants it, and then calls the machine with no lock held. What could
// not be given back is idle again. The gate is the caller's.
#include "device/policy/policy.h"
#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// Lists of blocks that were taken

// By size, and by the tie among equal ones.
static bool block_is_before(const tide__block* a, const tide__block* b) {
  return a->bytes < b->bytes || (a->bytes == b->bytes && a->tie < b->tie);
}

static tide__block* list_merge(tide__block* a, tide__block* b) {
  tide__block* first = NULL;
  tide__block** place = &first;
  while (a != NULL && b != NULL) {
    tide__block** const lower = block_is_before(b, a) ? &b : &a;
    *place = *lower;
    place = &(*lower)->list_next;
    *lower = *place;
  }
  *place = a != NULL ? a : b;
  return first;
}

// Merge sort, bottom up: parts[i] is empty or a sorted list of 2^i blocks.
static tide__block* list_sort(tide__block* list) {
  tide__block* parts[48] = { NULL };
  while (list != NULL) {
    tide__block* part = list;
    list = list->list_next;
    part->list_next = NULL;
    size_t i = 0;
    for (; parts[i] != NULL; i++) {
      part = list_merge(parts[i], part);
      parts[i] = NULL;
    }
    parts[i] = part;
  }
  tide__block* sorted = NULL;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) sorted = list_merge(parts[i], sorted);
  return sorted;
}

static void list_push(tide__block** list, tide__block* block) {
  block->list_next = *list;
  *list = block;
}

static tide__block* list_reverse(tide__block* list) {
  tide__block* reversed = NULL;
  while (list != NULL) {
    tide__block* const next = list->list_next;
    list_push(&reversed, list);
    list = next;
  }
  return reversed;
}

// Makes the blocks of a list idle again, with the age they had. A walk inside of an observer may not have
// seen them meanwhile: the next walk looks again.
static void list_return(tide__block* list) {
  while (list != NULL) {
    tide__block* const next = list->list_next;
    tide__lane* const lane = list->segment->lane;
    tide__mutex_lock(&lane->lock);
    tide__block_return_locked(list, false);
    lane->puts++;
    tide__mutex_unlock(&lane->lock);
    list = next;
  }
}

// Which segments a walk looks at.
typedef enum walk_kind { WALK_RAW, WALK_EXPANDABLE, WALK_HOMES, WALK_ALL } walk_kind;

static bool walk_has(walk_kind walk, const tide__segment* segment) {
  if (segment->view != NULL) return false;
  const walk_kind own = segment->home != NULL    ? WALK_HOMES
                        : segment->is_expandable ? WALK_EXPANDABLE
                                                 : WALK_RAW;
  return walk == WALK_ALL || walk == own;
}

// The least of a segment that can be given back: all of a raw one, or a handle.
static uint64_t segment_unit(const tide_device_cache* device, const tide__segment* segment) {
  if (!segment->is_expandable) return segment->bytes;
  return segment->home != NULL ? device->granularity : segment->handle_bytes;
}

// Takes the idle blocks of a segment of which something may be given back.
static void segment_take_idle_locked(const tide_device_cache* device, const tide__segment* segment,
                                     tide__block** list) {
  const uint64_t unit = segment_unit(device, segment);
  const tide__bins* const bins = &segment->lane->free_index[segment->is_small].bins;
  const bool is_possible = segment->is_expandable ? tide__bins_peek(bins, unit) != NULL
                                                  : tide__block_is_whole(segment->head);
  if (!is_possible) return;
  for (tide__block* block = segment->head; block != NULL; block = block->next) {
    if (block->state != TIDE__BLOCK_FREE || block->bytes < unit) continue;
    tide__free_index_take_locked(block);
    list_push(list, block);
  }
}

// Is it known that a lane has nothing of a kind to give back? So it is after a walk that gave back all it
// could, until something becomes idle: one refusal after the other costs no walk over all segments. What is
// idle at homes may be given back later without anything becoming idle, and is looked at each time.
static bool lane_is_barren_locked(const tide__lane* lane, bool is_small, walk_kind walk) {
  return walk <= WALK_EXPANDABLE && lane->barren_puts[is_small] == lane->puts + 1;
}

static bool lane_is_barren(tide__lane* lane, bool is_small, walk_kind walk) {
  tide__mutex_lock(&lane->lock);
  const bool is_barren = lane_is_barren_locked(lane, is_small, walk);
  tide__mutex_unlock(&lane->lock);
  return is_barren;
}

// Takes idle blocks of one kind out of a lane and puts them before a list. The walk ends with the last idle
// block, so that a lane with little of it costs less than all its segments.
static void lane_take_idle(const tide_device_cache* device, tide__lane* lane, bool is_small, walk_kind walk,
                           tide__block** list) {
  tide__mutex_lock(&lane->lock);
  const tide__bins* const bins = &lane->free_index[is_small].bins;
  if (walk == WALK_RAW) lane->walk_puts[is_small] = lane->puts;
  TIDE_LIST_EACH(it, &lane->segments) {
    if (bins->count == 0 || lane_is_barren_locked(lane, is_small, walk)) break;
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment->is_small != is_small || !walk_has(walk, segment)) continue;
    segment_take_idle_locked(device, segment, list);
  }
  tide__mutex_unlock(&lane->lock);
}

// Takes the idle raw segments of one kind out of a lane, sorted.
static tide__block* lane_take_raw(const tide_device_cache* device, tide__lane* lane, bool is_small) {
  tide__block* list = NULL;
  lane_take_idle(device, lane, is_small, WALK_RAW, &list);
  return list_sort(list);
}

// Gives the blocks of a list back until at most `target` bytes are reserved; the rest is idle again, also
// after a failure.
static tide_status list_give(tide_device_cache* device, tide__block* list, uint64_t target,
                             const tide__call_context* context) {
  tide_status status = TIDE_OK;
  while (list != NULL && status == TIDE_OK && tide__load_relaxed(&device->reserved_bytes) > target) {
    tide__block* const next = list->list_next;
    status = list->segment->kind->give_idle(device, list, target, context);
    list = next;
  }
  list_return(list);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Everything

// What is idle now could not be given back.
static void lanes_note_walk(tide_device_cache* device, tide__pool* pool, bool is_small) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    lane->barren_puts[is_small] = lane->walk_puts[is_small] + 1;
    tide__mutex_unlock(&lane->lock);
  }
}

// Gives back what is idle of one kind in a lane; raw and expandable memory in PyTorch's order.
static tide_status lane_give(tide_device_cache* device, tide__lane* lane, bool is_small, walk_kind walk,
                             const tide__call_context* context) {
  tide__block* list = NULL;
  if (lane_is_barren(lane, is_small, walk)) return TIDE_OK;
  lane_take_idle(device, lane, is_small, walk, &list);
  const tide_status status = list_give(device, walk != WALK_HOMES ? list_sort(list) : list, 0, context);
  if (walk != WALK_RAW) tide__segments_drop_unmapped(device, lane);
  return status;
}

// Gives back what is idle of one kind: raw segments of all lanes by rising stream, then expandable ones, then
// homes.
static tide_status pool_give_kind(tide_device_cache* device, tide__pool* pool, bool is_small,
                                  const tide__call_context* context) {
  const bool has_homes = device->policy != device->plain_policy || !tide__list_is_empty(&device->homes);
  const walk_kind last = has_homes ? WALK_HOMES : WALK_EXPANDABLE;
  for (walk_kind walk = WALK_RAW; walk <= last; walk++) {
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
      TIDE_TRY(lane_give(device, lane, is_small, walk, context));
    }
  }
  lanes_note_walk(device, pool, is_small);
  return TIDE_OK;
}

// Tries again what the machine refused before.
static void retry_refused(tide_device_cache* device) {
  tide__orphans_retry(device);
  tide__stuck_retry(device);
  tide__strays_retry(device);
}

// Makes idle what the policy keeps of a pool.
static tide_status pool_let_go(tide_device_cache* device, tide__pool* pool) {
  return device->policy->let_go != NULL ? device->policy->let_go(device, pool) : TIDE_OK;
}

// PyTorch's order: of the default pool large blocks come first, of private pools small ones.
static tide_status pool_give(tide_device_cache* device, tide__pool* pool, const tide__call_context* context) {
  const bool is_small_first = pool != &device->default_pool;
  TIDE_TRY(pool_let_go(device, pool));
  TIDE_TRY(pool_give_kind(device, pool, is_small_first, context));
  return pool_give_kind(device, pool, !is_small_first, context);
}

tide_status tide__reclaim_pool(tide_device_cache* device, tide__pool* pool,
                               const tide__call_context* context) {
  retry_refused(device);
  return pool_give(device, pool, context);
}

// Idle memory of a pool with users stays, because graphs may use it; except in a pool with a tag that no
// capture has used.
static bool pool_keeps_idle(tide_device_cache* device, tide__pool* pool) {
  const bool has_tag = tide__pool_tag(pool)[0] != '\0';
  const bool is_open = has_tag && tide__load_relaxed(&pool->is_captured) == 0;
  return tide__pool_is_away(pool) || (!is_open && tide__pool_is_used(device, pool));
}

// A walk over the pools whose idle memory may go: the default one, and private ones that do not keep it.
typedef struct pool_walk {
  tide__pool_cursor at;
  bool has_default;  // the default one comes first
  bool is_request;   // pools whose tags have guarantees are left out: they give way by the rules of budgets
} pool_walk;

static tide__pool* pool_walk_next(tide_device_cache* device, pool_walk* walk) {
  const bool is_default = walk->has_default;
  walk->has_default = false;
  if (is_default) return &device->default_pool;
  tide__pool* pool = tide__pool_next(device, &walk->at);
  while (pool != NULL &&
         (pool_keeps_idle(device, pool) || (walk->is_request && tide__pool_is_guaranteed(pool)))) {
    pool = tide__pool_next(device, &walk->at);
  }
  return pool;
}

// Once for all pools, unless there are none: then nothing may be given back.
static void pools_retry(tide_device_cache* device, pool_walk walk) {
  if (pool_walk_next(device, &walk) != NULL) retry_refused(device);
}

// Forgets what is parked and not needed any more.
static void tidy(tide_device_cache* device) {
  if (device->policy->tidy != NULL) device->policy->tidy(device);
}

static tide_status reclaim(tide_device_cache* device, pool_walk walk, const tide__call_context* context) {
  tide__pool* pool = NULL;
  tide__gate_settle(device);
  tidy(device);
  pools_retry(device, walk);
  while ((pool = pool_walk_next(device, &walk)) != NULL) TIDE_TRY(pool_give(device, pool, context));
  tide__pool_drop_unused(device);
  return TIDE_OK;
}

tide_status tide__reclaim_all(tide_device_cache* device, const tide__call_context* context) {
  return reclaim(device, (pool_walk){ .has_default = true, .is_request = true }, context);
}

// ---------------------------------------------------------------------------------------------------
// All but some

static uint64_t segment_idle_bytes_locked(const tide__segment* segment) {
  uint64_t bytes = 0;
  if (segment->view != NULL) return 0;  // its memory is counted at home
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    const bool is_at_hand = block->state == TIDE__BLOCK_MAGAZINE && !tide__block_is_handed_out(block);
    if (block->state == TIDE__BLOCK_FREE || is_at_hand) bytes += block->bytes;
  }
  return bytes;
}

// The idle memory of a pool, including the blocks in thread caches.
static uint64_t pool_idle_bytes(tide_device_cache* device, tide__pool* pool) {
  uint64_t bytes = 0;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    TIDE_LIST_EACH(it, &lane->segments) {
      bytes += segment_idle_bytes_locked(TIDE_OWNER(it, tide__segment, link));
    }
    tide__mutex_unlock(&lane->lock);
  }
  return bytes;
}

static void pool_take_idle(tide_device_cache* device, tide__pool* pool, tide__block** list) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    lane_take_idle(device, lane, true, WALK_ALL, list);
    lane_take_idle(device, lane, false, WALK_ALL, list);
  }
}

static void pool_drop_unmapped(tide_device_cache* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) tide__segments_drop_unmapped(device, lane);
}

// Gives back idle memory until at least `bytes` less are reserved, from the largest idle block on. Each step
// gives back a whole segment, or as many handles of one block as are needed, and the one that reaches the
// goal is the last.
static tide_status reclaim_some(tide_device_cache* device, pool_walk pools, uint64_t bytes,
                                const tide__call_context* context) {
  tide__pool* pool = NULL;
  tide__block* list = NULL;
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  const uint64_t target = reserved - tide__min(reserved, bytes);
  pools_retry(device, pools);
  for (pool_walk walk = pools; (pool = pool_walk_next(device, &walk)) != NULL;) {
    TIDE_TRY(pool_let_go(device, pool));
  }
  for (pool_walk walk = pools; (pool = pool_walk_next(device, &walk)) != NULL;) {
    pool_take_idle(device, pool, &list);
  }
  const tide_status status = list_give(device, list_reverse(list_sort(list)), target, context);
  for (pool_walk walk = pools; (pool = pool_walk_next(device, &walk)) != NULL;) {
    pool_drop_unmapped(device, pool);
  }
  tide__pool_drop_unused(device);
  return status;
}

// Raw segments do not heed the floor of a pool.
tide_status tide__reclaim_pool_some(tide_device_cache* device, tide__pool* pool, uint64_t bytes,
                                    const tide__call_context* context) {
  tide__block* list = NULL;
  retry_refused(device);
  TIDE_TRY(pool_let_go(device, pool));
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  pool_take_idle(device, pool, &list);
  const tide_status status =
      list_give(device, list_reverse(list_sort(list)), reserved - tide__min(reserved, bytes), context);
  pool_drop_unmapped(device, pool);
  return status;
}

// Gives back idle memory until at most `keep_bytes` are left.
static tide_status reclaim_to(tide_device_cache* device, pool_walk pools, uint64_t keep_bytes,
                              const tide__call_context* context) {
  tide__pool* pool = NULL;
  uint64_t idle = 0;
  tide__gate_settle(device);
  tidy(device);
  for (pool_walk walk = pools; (pool = pool_walk_next(device, &walk)) != NULL;) {
    idle += pool_idle_bytes(device, pool);
  }
  return idle > keep_bytes ? reclaim_some(device, pools, idle - keep_bytes, context) : TIDE_OK;
}

tide_status tide__reclaim_some(tide_device_cache* device, uint64_t bytes, const tide__call_context* context) {
  tide__gate_settle(device);
  tidy(device);
  return reclaim_some(device, (pool_walk){ .has_default = true, .is_request = true }, bytes, context);
}

tide_status tide__reclaim_homes(tide_device_cache* device, uint64_t bytes,
                                const tide__call_context* context) {
  pool_walk walk = { .has_default = true, .is_request = true };
  tide__pool* pool = NULL;
  tide__block* list = NULL;
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  while ((pool = pool_walk_next(device, &walk)) != NULL) {
    if (pool != &device->default_pool && tide__pool_is_used(device, pool)) continue;
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
      lane_take_idle(device, lane, false, WALK_HOMES, &list);
    }
  }
  return list_give(device, list_reverse(list_sort(list)), reserved - tide__min(reserved, bytes), context);
}

// ---------------------------------------------------------------------------------------------------
// Enough for a request

// Splits a sorted list at the first block of at least `bytes`; *list keeps those before.
static tide__block* list_cut(tide__block** list, uint64_t bytes) {
  while (*list != NULL && (*list)->bytes < bytes) list = &(*list)->list_next;
  tide__block* const rest = *list;
  *list = NULL;
  return rest;
}

// Gives back from the front of a list until `bytes` are given.
static tide_status list_give_bytes(tide_device_cache* device, tide__block* list, uint64_t bytes,
                                   const tide__call_context* context, bool* out_enough) {
  const uint64_t before = tide__load_relaxed(&device->reserved_bytes);
  const tide_status status = list_give(device, list, before - tide__min(before, bytes), context);
  *out_enough = status == TIDE_OK && before - tide__load_relaxed(&device->reserved_bytes) >= bytes;
  return status;
}

// PyTorch looks at the first idle block of that size only: if it cannot be given back alone, it looks at
// none.
static bool lane_first_is_raw(const tide__request* request, uint64_t bytes) {
  tide__mutex_lock(&request->lane->lock);
  const tide__block* const block = tide__bins_peek(&request->lane->free_index[request->kind].bins, bytes);
  const bool is_raw = block != NULL && !block->segment->is_expandable;
  tide__mutex_unlock(&request->lane->lock);
  return is_raw;
}

// One idle segment that is large enough, or the largest ones until their sum is; only blocks that are never
// split, so only with max_split_bytes set.
tide_status tide__reclaim_available(const tide__request* request, bool* out_enough) {
  const uint64_t max_split = request->options->max_split_bytes;
  *out_enough = false;
  if (max_split == TIDE_NO_LIMIT) return TIDE_OK;
  const uint64_t wanted = tide__max(request->rounded, max_split);
  const bool takes_one = lane_first_is_raw(request, wanted);
  tide__block* below = lane_take_raw(request->device, request->lane, request->kind == TIDE__SMALL);
  tide__block* large = list_cut(&below, wanted);
  if (!takes_one) list_return(large);
  if (takes_one && large != NULL) {
    list_return(below);
    return list_give_bytes(request->device, large, large->bytes, &request->context, out_enough);
  }
  tide__block* const oversize = list_cut(&below, max_split);
  list_return(below);
  return list_give_bytes(request->device, list_reverse(oversize), wanted, &request->context, out_enough);
}

// ---------------------------------------------------------------------------------------------------
// What has been idle for long. The age of a block is the number of searches of its kind since it became idle.

typedef struct collection {
  tide_device_cache* device;
  const tide__call_context* context;
  tide__block* idle;  // whole segments, in the order of the policy
  uint64_t count;
  uint64_t total_age;
  uint64_t given;
} collection;

static uint64_t block_age(const tide__block* block) {
  const tide__pool* const pool = block->segment->lane->pool;
  return tide__load_relaxed(&pool->searches[block->is_small ? TIDE__SMALL : TIDE__LARGE]) - block->stamp;
}

static void collection_add(collection* c, tide__pool* pool, bool is_small, tide__block*** end) {
  tide__lane* lane = tide__lane_next(c->device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(c->device, pool, lane)) {
    **end = lane_take_raw(c->device, lane, is_small);
    for (; **end != NULL; *end = &(**end)->list_next) {
      c->count++;
      c->total_age += block_age(**end);
    }
  }
}

// Gives back every block that is at least as old as the average. Returns whether there was one.
static tide_status collection_pass(collection* c, bool* out_any) {
  const double average = (double)c->total_age / (double)c->count;
  tide__block** place = &c->idle;
  *out_any = false;
  while (*place != NULL) {
    tide__block* const block = *place;
    const uint64_t age = block_age(block);
    if ((double)age < average) {
      place = &block->list_next;
      continue;
    }
    *place = block->list_next;
    c->given += block->bytes;
    c->total_age -= age;
    c->count--;
    *out_any = true;
    TIDE_TRY(tide__segment_release(c->device, block->segment, c->context));
  }
  return TIDE_OK;
}

static void collection_gather(collection* c, bool is_everywhere) {
  tide__block** end = &c->idle;
  tide__pool* pool = NULL;
  pool_walk walk = { .has_default = true, .is_request = true };
  if (!is_everywhere) collection_add(c, &c->device->default_pool, false, &end);
  while (is_everywhere && (pool = pool_walk_next(c->device, &walk)) != NULL) {
    const bool is_small_first = pool != &c->device->default_pool;
    collection_add(c, pool, is_small_first, &end);
    collection_add(c, pool, !is_small_first, &end);
  }
}

tide_status tide__reclaim_by_age(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const double limit = (double)tide__load_relaxed(&device->limit);
  const uint64_t threshold = (uint64_t)(request->options->collect_threshold * limit);
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  if (reserved <= threshold) return TIDE_OK;
  collection c = { .device = device, .context = &request->context };
  collection_gather(&c, request->options->fixes);
  bool has_given = true;
  tide_status status = TIDE_OK;
  while (status == TIDE_OK && c.given < reserved - threshold && has_given && c.count > 0) {
    status = collection_pass(&c, &has_given);
  }
  list_return(c.idle);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Calls

static tide_status pool_trim_at_gate(tide_device_cache* device, tide_pool number, bool is_capturing,
                                     const tide__call_context* context) {
  tide__gate_settle(device);
  tidy(device);
  tide__pool* const pool = tide__pool_find(device, number);
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_HANDLE, "device_trim_pool: there is no pool %u", number);
  if (pool_keeps_idle(device, pool)) return TIDE_OK;
  if (!is_capturing) TIDE_TRY(tide__timeline_wait(device, pool, context));
  TIDE_TRY(tide__reclaim_pool(device, pool, context));
  tide__pool_drop_unused(device);
  return TIDE_OK;
}

// While a scope is open nothing is waited for, and nothing of the default pool is given back.
static tide_status trim_at_gate(tide_device_cache* device, tide_pool number, uint64_t keep_bytes,
                                const tide__call_context* context) {
  const bool is_capturing = tide__has_captures(device) && !tide__device_options(device)->captures_by_stream;
  if (number != TIDE_POOL_DEFAULT) return pool_trim_at_gate(device, number, is_capturing, context);
  const pool_walk pools = { .has_default = !is_capturing };
  if (!is_capturing) TIDE_TRY(tide__timeline_wait(device, NULL, context));
  const tide_status status = keep_bytes == 0 ? reclaim(device, pools, context)
                                             : reclaim_to(device, pools, keep_bytes, context);
  if (!is_capturing) tide__totals_forget_peak(device);
  return status;
}

static tide_status trim(tide_device_cache* device, tide_pool pool, uint64_t keep_bytes) {
  tide__call_context context = { 0 };
  TIDE__REQUIRE_OWN(device, "device_trim");
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  (void)tide__gate_enter(device);
  const tide_status status = trim_at_gate(device, pool, keep_bytes, &context);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return status;
}

// Gives back what is idle in a pool that lost its last user. Its graphs are gone, but the device may still
// run one of them, on any stream.
static tide_status unused_give(tide_device_cache* device, tide_pool number,
                               const tide__call_context* context) {
  tide__gate_settle(device);
  tide__pool* const pool = tide__pool_find(device, number);
  if (pool == NULL || tide__pool_is_used(device, pool) || tide__pool_is_away(pool)) return TIDE_OK;
  if (pool_idle_bytes(device, pool) == 0) return TIDE_OK;
  if (tide__load_relaxed(&pool->is_captured)) {
    TIDE_TRY(tide_machine_device_synchronize(device->machine, device->index));
  }
  TIDE_TRY(tide__timeline_poll(device, context));
  return tide__reclaim_pool(device, pool, context);
}

// While a stream may be captured nothing can be waited for; then the next trim gives it back.
static void give_if_unused(tide_device_cache* device, tide_pool pool) {
  const tide_error before = *tide_last_error();
  tide__call_context context = { 0 };
  if (!device->policy->gives_when_unused || tide__has_captures(device)) return;
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  (void)tide__gate_enter(device);
  if (unused_give(device, pool, &context) != TIDE_OK) tide__error_restore(&before);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
}

tide_status tide_device_pool_drop(tide_device_cache* device, tide_pool pool) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_pool_drop: no device");
  TIDE__REQUIRE_OWN(device, "device_pool_drop");
  TIDE_TRY(tide__pools_drop(&device->pools, pool, "device_pool_drop"));
  give_if_unused(device, pool);
  return TIDE_OK;
}

tide_status tide_device_trim(tide_device_cache* device, uint64_t keep_bytes) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_trim: no device");
  return trim(device, TIDE_POOL_DEFAULT, keep_bytes);
}

tide_status tide_device_trim_pool(tide_device_cache* device, tide_pool pool) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_trim_pool: no device");
  return trim(device, pool, 0);
}
