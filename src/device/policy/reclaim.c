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

// Makes the blocks of a list idle again, with the age they had.
static void list_return(tide__block* list) {
  while (list != NULL) {
    tide__block* const next = list->list_next;
    tide__lane* const lane = list->segment->lane;
    tide__mutex_lock(&lane->lock);
    tide__block_return_locked(list, false);
    tide__mutex_unlock(&lane->lock);
    list = next;
  }
}

// The block of a raw segment that is idle as a whole, or NULL.
static tide__block* segment_idle_block(const tide__segment* segment, bool is_small) {
  tide__block* const block = segment->head;
  const bool is_idle = !segment->is_expandable && segment->is_small == is_small &&
                       block->state == TIDE__BLOCK_FREE && tide__block_is_whole(block);
  return is_idle ? block : NULL;
}

// Is it known that a lane has nothing of a kind to give back? So it is after a walk that gave back all it
// could, until something becomes idle: one refusal after the other costs no walk over all segments.
static bool lane_is_barren_locked(const tide__lane* lane, bool is_small) {
  return lane->barren_puts[is_small] == lane->puts + 1;
}

static bool lane_is_barren(tide__lane* lane, bool is_small) {
  tide__mutex_lock(&lane->lock);
  const bool is_barren = lane_is_barren_locked(lane, is_small);
  tide__mutex_unlock(&lane->lock);
  return is_barren;
}

// Takes the idle raw segments of one kind out of a lane, sorted.
static tide__block* lane_take_idle(tide__lane* lane, bool is_small) {
  tide__block* list = NULL;
  tide__mutex_lock(&lane->lock);
  lane->walk_puts[is_small] = lane->puts;
  TIDE_LIST_EACH(it, &lane->segments) {
    if (lane_is_barren_locked(lane, is_small)) break;
    tide__block* const block = segment_idle_block(TIDE_OWNER(it, tide__segment, link), is_small);
    if (block == NULL) continue;
    tide__free_index_take_locked(block);
    list_push(&list, block);
  }
  tide__mutex_unlock(&lane->lock);
  return list_sort(list);
}

// Takes the idle blocks of the expandable segments of one kind, sorted.
static tide__block* lane_take_mapped(tide__lane* lane, bool is_small) {
  tide__block* list = NULL;
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (!segment->is_expandable || segment->home != NULL || segment->view != NULL) continue;
    if (segment->is_small != is_small) continue;
    if (tide__bins_peek(&lane->free_index[is_small].bins, segment->handle_bytes) == NULL) continue;
    for (tide__block* block = segment->head; block != NULL; block = block->next) {
      if (block->state != TIDE__BLOCK_FREE) continue;
      tide__free_index_take_locked(block);
      list_push(&list, block);
    }
  }
  tide__mutex_unlock(&lane->lock);
  return list_sort(list);
}

typedef tide_status (*give_fn)(tide_device_cache* device, tide__block* block,
                               const tide__call_context* moment);

static tide_status block_release_segment(tide_device_cache* device, tide__block* block,
                                         const tide__call_context* moment) {
  return tide__segment_release(device, block->segment, moment);
}

// Gives the blocks of a list back; after a failure the rest is idle again.
static tide_status list_give(tide_device_cache* device, tide__block* list, give_fn give,
                             const tide__call_context* moment) {
  while (list != NULL) {
    tide__block* const next = list->list_next;
    const tide_status status = give(device, list, moment);
    if (status != TIDE_OK) {
      list_return(next);
      return status;
    }
    list = next;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Everything

// What is idle now could not be given back. What is idle at homes may be later without anything becoming
// idle, and is looked at each time.
static void lanes_note_walk(tide_device_cache* device, tide__pool* pool, bool is_small) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    lane->barren_puts[is_small] = lane->walk_puts[is_small] + 1;
    tide__mutex_unlock(&lane->lock);
  }
}

// Gives back what is idle of one kind: raw segments of all lanes by rising stream, then expandable ones.
static tide_status pool_give_kind(tide_device_cache* device, tide__pool* pool, bool is_small,
                                  const tide__call_context* moment) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_TRY(list_give(device, lane_take_idle(lane, is_small), block_release_segment, moment));
  }
  lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    if (lane_is_barren(lane, is_small)) continue;
    TIDE_TRY(list_give(device, lane_take_mapped(lane, is_small), tide__expand_shrink, moment));
    tide__expand_drop_unmapped(device, lane);
  }
  if (device->policy->trim != NULL) TIDE_TRY(device->policy->trim(device, pool, is_small, moment));
  lanes_note_walk(device, pool, is_small);
  return TIDE_OK;
}

// PyTorch's order: of the default pool large blocks come first, of private pools small ones.
tide_status tide__reclaim_pool(tide_device_cache* device, tide__pool* pool,
                               const tide__call_context* moment) {
  const bool is_small_first = pool != &device->default_pool;
  tide__orphans_retry(device);
  tide__stuck_retry(device);
  tide__strays_retry(device);
  if (device->policy->let_go != NULL) TIDE_TRY(device->policy->let_go(device, pool));
  TIDE_TRY(pool_give_kind(device, pool, is_small_first, moment));
  return pool_give_kind(device, pool, !is_small_first, moment);
}

tide_status tide__reclaim_all(tide_device_cache* device, const tide__call_context* moment) {
  TIDE_TRY(tide__reclaim_pool(device, &device->default_pool, moment));
  return tide__reclaim_unused(device, moment);
}

tide_status tide__reclaim_unused(tide_device_cache* device, const tide__call_context* moment) {
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) {
    if (!tide__pool_is_used(device, pool)) TIDE_TRY(tide__reclaim_pool(device, pool, moment));
  }
  tide__pool_drop_unused(device);
  return TIDE_OK;
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

static tide__block* list_reverse(tide__block* list) {
  tide__block* reversed = NULL;
  while (list != NULL) {
    tide__block* const next = list->list_next;
    list_push(&reversed, list);
    list = next;
  }
  return reversed;
}

// Gives back from the front of a list until `bytes` are given.
static tide_status list_give_bytes(tide_device_cache* device, tide__block* list, uint64_t bytes,
                                   const tide__call_context* moment, bool* out_enough) {
  uint64_t given = 0;
  while (list != NULL && given < bytes) {
    tide__block* const next = list->list_next;
    given += list->bytes;
    const tide_status status = tide__segment_release(device, list->segment, moment);
    if (status != TIDE_OK) {
      list_return(next);
      return status;
    }
    list = next;
  }
  list_return(list);
  *out_enough = given >= bytes;
  return TIDE_OK;
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
  tide__block* below = lane_take_idle(request->lane, request->kind == TIDE__SMALL);
  tide__block* large = list_cut(&below, wanted);
  if (!takes_one) list_return(large);
  if (takes_one && large != NULL) {
    list_return(below);
    return list_give_bytes(request->device, large, large->bytes, &request->moment, out_enough);
  }
  tide__block* const oversize = list_cut(&below, max_split);
  list_return(below);
  return list_give_bytes(request->device, list_reverse(oversize), wanted, &request->moment, out_enough);
}

// ---------------------------------------------------------------------------------------------------
// What has been idle for long. The age of a block is the number of searches of its kind since it became idle.

typedef struct collection {
  tide_device_cache* device;
  const tide__call_context* moment;
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
    **end = lane_take_idle(lane, is_small);
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
    TIDE_TRY(tide__segment_release(c->device, block->segment, c->moment));
  }
  return TIDE_OK;
}

static void collection_gather(collection* c, bool is_everywhere) {
  tide__block** end = &c->idle;
  collection_add(c, &c->device->default_pool, false, &end);
  if (!is_everywhere) return;
  collection_add(c, &c->device->default_pool, true, &end);
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(c->device, &at);
  for (; pool != NULL; pool = tide__pool_next(c->device, &at)) {
    if (tide__pool_is_used(c->device, pool)) continue;  // a pool in use never loses memory
    collection_add(c, pool, true, &end);
    collection_add(c, pool, false, &end);
  }
}

tide_status tide__reclaim_by_age(const tide__request* request) {
  tide_device_cache* const device = request->device;
  const double limit = (double)tide__load_relaxed(&device->limit);
  const uint64_t threshold = (uint64_t)(request->options->collect_threshold * limit);
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  if (reserved <= threshold) return TIDE_OK;
  collection c = { .device = device, .moment = &request->moment };
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

// What a trim does at the gate. While a scope is open nothing is waited for, and of the default pool nothing
// is given back.
static tide_status trim_at_gate(tide_device_cache* device, tide_pool number,
                                const tide__call_context* moment) {
  const bool is_capturing = tide__has_scopes(device) && !tide__device_options(device)->captures_by_stream;
  if (number != TIDE_POOL_DEFAULT) {
    tide__pool* const pool = tide__pool_find(device, number);
    TIDE_REQUIRE(pool != NULL, TIDE_ERR_HANDLE, "device_trim_pool: there is no pool %u", number);
    if (tide__pool_is_used(device, pool)) return TIDE_OK;
    if (!is_capturing) TIDE_TRY(tide__timeline_wait(device, pool, moment));
    TIDE_TRY(tide__reclaim_pool(device, pool, moment));
    tide__pool_drop_unused(device);
    return TIDE_OK;
  }
  if (is_capturing) return tide__reclaim_unused(device, moment);
  TIDE_TRY(tide__timeline_wait(device, NULL, moment));
  const tide_status status = tide__reclaim_all(device, moment);
  tide__totals_forget_peak(device);
  return status;
}

static tide_status trim(tide_device_cache* device, tide_pool pool) {
  tide__call_context moment = { 0 };
  TIDE__REQUIRE_OWN(device, "device_trim");
  if (tide__is_recording(device)) moment = tide__context_now(device, TIDE_HISTORY_ALL);
  (void)tide__gate_enter(device);
  const tide_status status = trim_at_gate(device, pool, &moment);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return status;
}

tide_status tide_device_trim(tide_device_cache* device) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_trim: no device");
  return trim(device, TIDE_POOL_DEFAULT);
}

tide_status tide_device_trim_pool(tide_device_cache* device, tide_pool pool) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_trim_pool: no device");
  return trim(device, pool);
}
