// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread caches of the policy `tide`: small blocks that a thread has at hand, so that most small requests
// and releases take no lock and meet no other thread. A thread cache has a lane cache for each of up to eight
// lanes of the default pool. A lane cache has a magazine for each size class up to 512 KiB. A magazine that
// is empty is refilled from the lane, which is its depot; one that is full is flushed to its half. A request
// also takes a block that is a little larger than its class before it asks the lane. The excess is cut off
// when memory is short.
//
// A block of a magazine stays in the chain of its home, in the map, and in the state MAGAZINE, whether it is
// handed out or not. It is handed out exactly if it has a handle, and whoever ends the handle by an atomic
// step owns it. So nothing changes that others look at under the lane's lock. Before small memory is made or
// given back, all magazines are flushed: then idle memory merges and serves whoever needs it.
//
// A stream is announced under the lane's lock, which a release does not take. So an announcement sets the
// block's word first and then looks whether the handle still holds. A release ends the handle first and then
// looks at the word. One of the two sees the other.
#include "device/tide/tcache.h"

#define MAGAZINE_BYTES ((uint64_t)2 << 20)        // that a magazine may have, and
enum { MAGAZINE_LEAST = 8, MAGAZINE_MOST = 32 };  // how many blocks at least and at most

// The last class that a block of so many bytes can serve.
static inline uint32_t class_within(uint64_t bytes) { return tide__class_to(bytes >> TIDE__GRAIN_SHIFT) - 1; }

static void tcache_init(void* it, void* device) {
  (void)device;
  tide__tcache* const tcache = it;
  tcache->newest = &tcache->lanes[0];
  for (uint32_t i = 0; i < TIDE__LANE_CACHES * TIDE__MAGAZINES; i++) {
    const uint64_t units = tide__class_units(i % TIDE__MAGAZINES);
    tide__magazine* const magazine = &tcache->lanes[i / TIDE__MAGAZINES].magazines[i % TIDE__MAGAZINES];
    tide__magazine_init(magazine, (uint32_t)units, units << TIDE__GRAIN_SHIFT, MAGAZINE_BYTES, MAGAZINE_LEAST,
                        MAGAZINE_MOST);
  }
}

tide_status tide__tcache_init(tide_device_cache* device) {
  device->has_tcaches =
      tide__thread_caches_init(&device->tcaches, device->heap, sizeof(tide__tcache), tcache_init, device);
  TIDE_REQUIRE(device->has_tcaches, TIDE_ERR_NO_MEMORY, "device_new: no memory for thread caches");
  tide__detour(device, TIDE__HAS_NO_TCACHES, false);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// One cache

static tide__lane* cache_lane(tide__lane_cache* cache) { return tide__load_relaxed(&cache->lane); }

// Gives a block back to its lane, as one that is just idle.
static void block_uncache_locked(tide_device_cache* device, tide__block* block) {
  tide__store_relaxed(&block->magazine, 0);
  tide__map_clear(&device->map, block->address, true);
  block->state = TIDE__BLOCK_BUSY;
  tide__block_return_locked(block, true);
}

// Gives blocks of a magazine back until `keep` are left; the lane is locked.
static void magazine_flush_locked(tide_device_cache* device, tide__lane_cache* cache, uint32_t class_index,
                                  uint32_t keep) {
  while (cache->magazines[class_index].count > keep) {
    block_uncache_locked(device, tide__lane_cache_pop(cache, class_index));
  }
}

// False if there was nothing in it.
static bool cache_empty(tide_device_cache* device, tide__lane_cache* cache) {
  if (cache->filled == 0) return false;
  tide__mutex_lock(&cache_lane(cache)->lock);
  for (uint32_t i = 0; i < TIDE__MAGAZINES; i++) {
    magazine_flush_locked(device, cache, i, 0);
    cache->magazines[i].fill = 0;
  }
  tide__mutex_unlock(&cache_lane(cache)->lock);
  return true;
}

// The thread's cache for a lane. If another lane has its place, that goes, unless `is_polite`: then NULL. A
// lane whose stream is closed has none: another stream may have the same handle.
static tide__lane_cache* cache_for(tide_device_cache* device, tide__tcache* tcache, tide__lane* lane,
                                   bool is_polite) {
  tide__lane_cache* const cache = tide__lane_cache_at(tcache, lane->stream);
  if (is_polite && tide__load_relaxed(&lane->is_closed)) return NULL;
  if (cache_lane(cache) != NULL && cache_lane(cache) != lane) {
    if (is_polite) return NULL;
    (void)cache_empty(device, cache);
  }
  tide__store_relaxed(&cache->lane, lane);
  cache->stream = lane->stream;
  tcache->newest = cache;
  return cache;
}

// ---------------------------------------------------------------------------------------------------
// Filling

static bool lane_has_spares(const tide__lane* lane) {
  return lane->spares != NULL && lane->spares->heap_next != NULL;
}

static void block_cache_locked(tide_device_cache* device, tide__lane_cache* cache, tide__block* block) {
  const uint32_t class_index = class_within(block->bytes);
  block->state = TIDE__BLOCK_MAGAZINE;
  block->is_public = true;
  tide__store_relaxed(&block->magazine, class_index + 1);
  tide__map_set(&device->map, block->address, true, block->slot.index);
  tide__lane_cache_put(cache, &cache->magazines[class_index], class_index, block);
}

// Cuts up to `count` blocks of `bytes` off an idle block and puts them into the cache.
static void hole_cut_locked(tide_device_cache* device, tide__lane_cache* cache, tide__block* hole,
                            uint64_t bytes, uint32_t count) {
  tide__free_index_take_locked(hole);
  for (; count > 1 && hole->bytes >= 2 * bytes && lane_has_spares(cache_lane(cache)); count--) {
    block_cache_locked(device, cache, tide__block_cut_front_locked(cache_lane(cache), hole, bytes));
  }
  if (hole->bytes == bytes) {
    block_cache_locked(device, cache, hole);
    return;
  }
  block_cache_locked(device, cache, tide__block_cut_front_locked(cache_lane(cache), hole, bytes));
  tide__free_index_put_locked(hole, true);
}

// Takes a block for a request out of the lane, and puts more of its class into the cache; if the lane has
// none of its class, one that is just large enough. NULL: the lane has no memory.
static tide__block* cache_fill_locked(const tide__request* request, tide__lane_cache* cache,
                                      uint32_t class_index) {
  tide__magazine* const magazine = &cache->magazines[class_index];
  const uint32_t wanted = tide__magazine_wanted(magazine);
  uint64_t bytes = (uint64_t)magazine->units << TIDE__GRAIN_SHIFT;
  tide__block* hole = tide__bins_peek(&cache_lane(cache)->free_index[TIDE__SMALL].bins, bytes);
  if (hole == NULL) {
    bytes = request->rounded;
    hole = tide__bins_peek(&cache_lane(cache)->free_index[TIDE__SMALL].bins, bytes);
  }
  if (hole == NULL || hole->segment->home == NULL) return NULL;  // raw, if the policy fell back meanwhile
  if (!tide__home_is_ready_locked(hole, hole->bytes)) return NULL;
  hole_cut_locked(request->device, cache, hole, bytes, wanted);
  magazine->fill = (uint8_t)wanted;
  return tide__lane_cache_pop(cache, class_within(bytes));
}

static tide__block* tcache_find(tide__request* request, tide__tcache* tcache, tide_status* out_status) {
  tide__lane_cache* const cache = cache_for(request->device, tcache, request->lane, false);
  const uint32_t class_index = tide__tcache_class_for(request->bytes);
  tide__block* block = tide__lane_cache_take(cache, class_index);
  if (block != NULL) return block;
  if (!tide__lane_lock_with_spares(request->device, request->lane)) {
    *out_status = TIDE_ERR_NO_MEMORY;
    return NULL;
  }
  block = cache_fill_locked(request, cache, class_index);
  tide__mutex_unlock(&request->lane->lock);
  return block;
}

tide_status tide__tcache_search(tide__request* request, tide_block* out, bool* out_found) {
  tide_device_cache* const device = request->device;
  tide_status status = TIDE_OK;
  tide__tcache* const tcache = tide__thread_caches_enter(&device->tcaches);
  tide__block* const block = tcache_find(request, tcache, &status);
  *out_found = block != NULL;
  if (block != NULL) {
    if (tide__is_recording(device)) {
      tide__entry_add(device, TIDE_ACTION_ALLOC, &request->context, request->context.stack, request->lane,
                      block->address, request->bytes);
    }
    tide__tcache_hand_out(device, tcache, block, request->bytes, request->context.stack, out);
  }
  tide__thread_caches_leave(tcache);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Taking back

// Makes room for a block in the thread's cache, with its lane locked. NULL: it goes back to the lane instead.
static tide__lane_cache* release_find_place_locked(tide_device_cache* device, tide__lane_cache* cache,
                                                   tide__block* block) {
  const uint32_t class_index = tide__load_relaxed(&block->magazine) - 1;
  if (cache == NULL || block->uses != NULL) return NULL;
  tide__store_relaxed(&block->use_word, 0);
  const tide__magazine* const magazine = &cache->magazines[class_index];
  if (!tide__magazine_has_room(magazine)) {
    magazine_flush_locked(device, cache, class_index, magazine->limit / 2u);
  }
  return cache;
}

// True if the block must wait for other streams.
static bool release_inside(tide_device_cache* device, tide__tcache* tcache, tide__block* block,
                           const tide__call_context* context) {
  tide__lane* const lane = tide__block_lane(block);
  bool must_wait = false;
  tide__lane_cache* cache = cache_for(device, tcache, lane, true);
  tide__mutex_lock(&lane->lock);
  cache = release_find_place_locked(device, cache, block);
  if (cache == NULL) {
    tide__store_relaxed(&block->magazine, 0);
    must_wait = tide__block_end_locked(device, block, context, &tcache->tally);
  }
  tide__mutex_unlock(&lane->lock);
  if (cache == NULL) return must_wait;
  if (tide__is_recording(device)) {
    tide__block_record_free(device, TIDE_ACTION_FREE_REQUESTED, block, context);
    tide__block_record_free(device, TIDE_ACTION_FREE_COMPLETED, block, context);
  }
  const uint32_t class_index = tide__load_relaxed(&block->magazine) - 1;
  tide__tcache_take_back(device, tcache, cache, &cache->magazines[class_index], class_index, block);
  return false;
}

void tide__tcache_release_slow(tide_device_cache* device, tide__block* block) {
  tide__call_context context = { 0 };
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  tide__tcache* const tcache = tide__thread_caches_enter(&device->tcaches);
  const bool must_wait = release_inside(device, tcache, block, &context);
  tide__thread_caches_leave(tcache);
  if (must_wait) tide__timeline_add(device, block, &context);
}

// ---------------------------------------------------------------------------------------------------
// All threads

static tide__lane_cache* tcache_find_lane(tide__tcache* tcache, const tide__lane* lane) {
  for (int i = 0; i < TIDE__LANE_CACHES; i++) {
    if (cache_lane(&tcache->lanes[i]) == lane) return &tcache->lanes[i];
  }
  return NULL;
}

// Only threads that have a cache for the lane are disturbed; the calling one first, which costs no barrier.
bool tide__tcache_flush_lane(tide_device_cache* device, const tide__lane* lane) {
  tide__tcache* const own = tide__thread_caches_enter(&device->tcaches);
  tide__lane_cache* cache = tcache_find_lane(own, lane);
  bool is_any = cache != NULL && cache_empty(device, cache);
  tide__thread_caches_leave(own);
  for (tide__thread_cache* it = tide__thread_caches_first(&device->tcaches); it != NULL; it = it->next) {
    tide__tcache* const tcache = (tide__tcache*)(void*)it;
    if (tcache == own || tcache_find_lane(tcache, lane) == NULL) continue;
    tide__thread_cache_take(it);
    cache = tcache_find_lane(tcache, lane);
    is_any = (cache != NULL && cache_empty(device, cache)) || is_any;
    tide__thread_cache_give(it);
  }
  return is_any;
}

void tide__tcache_flush(tide_device_cache* device) {
  if (!device->has_tcaches) return;
  tide__thread_cache* const first = tide__thread_caches_take_all(&device->tcaches);
  for (tide__thread_cache* it = first; it != NULL; it = it->next) {
    for (int i = 0; i < TIDE__LANE_CACHES; i++)
      (void)cache_empty(device, &((tide__tcache*)(void*)it)->lanes[i]);
  }
  tide__thread_caches_give_all(first);
}

void tide__tcache_forget_closed(tide_device_cache* device) {
  if (!device->has_tcaches) return;
  tide__thread_cache* const first = tide__thread_caches_take_all(&device->tcaches);
  for (tide__thread_cache* it = first; it != NULL; it = it->next) {
    for (int i = 0; i < TIDE__LANE_CACHES; i++) {
      tide__lane_cache* const cache = &((tide__tcache*)(void*)it)->lanes[i];
      if (cache_lane(cache) == NULL || !tide__load_relaxed(&cache_lane(cache)->is_closed)) continue;
      (void)cache_empty(device, cache);
      tide__store_relaxed(&cache->lane, NULL);
      cache->stream = NULL;
    }
  }
  tide__thread_caches_give_all(first);
}

// Cuts off what the blocks of a lane that are handed out have beyond their requests, as far as there are
// records for it. No thread is in its cache, so none reads the class of a block.
static void lane_trim_slack_locked(tide__lane* lane) {
  TIDE_LIST_EACH(it, &lane->segments) {
    tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL && lane_has_spares(lane); block = block->next) {
      if (block->state != TIDE__BLOCK_MAGAZINE || !tide__block_is_handed_out(block)) continue;
      const uint64_t bytes = tide__block_counted_bytes(block);
      if (bytes == block->bytes) continue;
      tide__store_relaxed(&block->magazine, class_within(bytes) + 1);
      tide__block_return_locked(tide__block_cut_back_locked(lane, block, block->bytes - bytes), true);
    }
  }
}

static size_t lane_count_cached(tide__lane* lane) {
  size_t count = 0;
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) count += block->state == TIDE__BLOCK_MAGAZINE;
  }
  tide__mutex_unlock(&lane->lock);
  return count;
}

void tide__tcache_squeeze(tide_device_cache* device, tide__lane* lane) {
  if (!device->has_tcaches) return;
  (void)tide__tcache_flush_lane(device, lane);
  tide__ignore(tide__lane_add_spares(device, lane, lane_count_cached(lane) + 2));
  tide__thread_cache* const first = tide__thread_caches_take_all(&device->tcaches);
  tide__mutex_lock(&lane->lock);
  lane_trim_slack_locked(lane);
  tide__mutex_unlock(&lane->lock);
  tide__thread_caches_give_all(first);
}

void tide__tcache_settle_own(tide_device_cache* device) {
  if (!device->has_tcaches) return;
  tide__tcache* const tcache = tide__thread_caches_enter(&device->tcaches);
  tide__tally_settle(device, &tcache->tally);
  tide__thread_caches_leave(tcache);
}

void tide__tcache_settle(tide_device_cache* device) {
  if (!device->has_tcaches) return;
  tide__thread_cache* const first = tide__thread_caches_take_all(&device->tcaches);
  for (tide__thread_cache* it = first; it != NULL; it = it->next) {
    tide__tally_settle(device, &((tide__tcache*)(void*)it)->tally);
  }
  tide__thread_caches_give_all(first);
}

uint64_t tide__tcache_count(tide_device_cache* device) {
  uint64_t count = 0;
  if (!device->has_tcaches) return 0;
  tide__thread_cache* const first = tide__thread_caches_take_all(&device->tcaches);
  for (tide__thread_cache* it = first; it != NULL; it = it->next) {
    const tide__tcache* const tcache = (const tide__tcache*)(const void*)it;
    for (size_t i = 0; i < (size_t)TIDE__LANE_CACHES * TIDE__MAGAZINES; i++) {
      count += tcache->lanes[i / TIDE__MAGAZINES].magazines[i % TIDE__MAGAZINES].count;
    }
  }
  tide__thread_caches_give_all(first);
  return count;
}
