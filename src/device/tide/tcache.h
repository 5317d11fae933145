// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The fast paths through the thread cache (tcache.c): a small request that finds a block in a magazine, and a
// release that puts one back. They take no lock; everything else takes the slow path.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_TCACHE_H
#define TIDEMARK_SRC_DEVICE_TIDE_TCACHE_H

#include "core/classes.h"
#include "device/tide/tide.h"

enum { TIDE__CLASSES_ABOVE = 4 };  // how many classes larger a block may be than its request: about a half

// What a request counts for.
static inline uint64_t tide__tcache_rounded(uint64_t bytes) {
  return (bytes + TIDE__GRAIN - 1) / TIDE__GRAIN * TIDE__GRAIN;
}

// The class in which all blocks have at least this many bytes.
static inline uint32_t tide__tcache_class_for(uint64_t bytes) {
  return tide__class_to((bytes - 1) >> TIDE__GRAIN_SHIFT);
}

// The place of a stream's cache.
static inline tide__lane_cache* tide__lane_cache_at(tide__tcache* tcache, tide_stream stream) {
  const uint64_t hash = (uint64_t)(uintptr_t)stream * UINT64_C(0x9E3779B97F4A7C15);
  return &tcache->lanes[hash >> 61];
}

// `magazine` is that of the class.
static inline void tide__lane_cache_put(tide__lane_cache* cache, tide__magazine* magazine,
                                        uint32_t class_index, tide__block* block) {
  tide__magazine_put(magazine, block, offsetof(tide__block, heap_next));
  cache->filled |= (uint64_t)1 << class_index;
}

static inline tide__block* tide__lane_cache_pop(tide__lane_cache* cache, uint32_t class_index) {
  tide__magazine* const magazine = &cache->magazines[class_index];
  tide__block* const block = tide__magazine_take(magazine, offsetof(tide__block, heap_next));
  // Without a branch, because it could not be predicted.
  cache->filled &= ~((uint64_t)(magazine->count == 0) << class_index);
  return block;
}

// A block of a class, or a little larger; NULL if there is none.
static inline tide__block* tide__lane_cache_take(tide__lane_cache* cache, uint32_t class_index) {
  const uint64_t filled = cache->filled >> class_index;
  if (filled == 0) return NULL;
  const uint32_t above = (uint32_t)__builtin_ctzll(filled);
  return above <= TIDE__CLASSES_ABOVE ? tide__lane_cache_pop(cache, class_index + above) : NULL;
}

static inline void tide__tcache_hand_out(tide_device_cache* device, tide__tcache* tcache, tide__block* block,
                                         uint64_t bytes, uint32_t stack, tide_block* out) {
  tide__store_relaxed(&block->requested_bytes, bytes);
  tide__store_relaxed(&block->stack, stack);
  tide__tally_hand_out(&tcache->tally, true, tide__tcache_rounded(bytes), bytes);
  TIDE__TALLY_CHANGED(device, &tcache->tally);
  out->address = (void*)(uintptr_t)block->address;
  out->handle = tide__slots_publish(&device->blocks, block);
}

// Puts an idle block, claimed by this thread, into a cache of its lane that has room for it.
static inline void tide__tcache_take_back(tide_device_cache* device, tide__tcache* tcache,
                                          tide__lane_cache* cache, tide__magazine* magazine,
                                          uint32_t class_index, tide__block* block) {
  const uint64_t bytes = tide__load_relaxed(&block->requested_bytes);
  tide__tally_take_back(&tcache->tally, true, tide__tcache_rounded(bytes), bytes);
  TIDE__TALLY_CHANGED(device, &tcache->tally);
  tide__lane_cache_put(cache, magazine, class_index, block);
}

// The fast path of a request: false if no magazine has a block.
static inline bool tide__tcache_alloc(tide_device_cache* device, tide_stream stream, uint64_t bytes,
                                      tide_block* out) {
  tide__tcache* const tcache = tide__thread_caches_enter_fast(device->tcaches.id);
  if (tcache == NULL) return false;
  tide__lane_cache* cache = tcache->newest;
  tide__block* block = NULL;
  if (cache->stream != stream) cache = tcache->newest = tide__lane_cache_at(tcache, stream);
  if (cache->stream == stream) block = tide__lane_cache_take(cache, tide__tcache_class_for(bytes));
  if (block != NULL) tide__tcache_hand_out(device, tcache, block, bytes, 0, out);
  tide__thread_cache_leave_fast(tcache);
  return block != NULL;
}

// The fast path of a release: of a block from a magazine whose handle the caller ended.
static inline bool tide__tcache_release(tide_device_cache* device, tide__block* block) {
  tide__tcache* const tcache = tide__thread_caches_enter_fast(device->tcaches.id);
  if (tcache == NULL) return false;
  const tide__lane* const lane = tide__load_relaxed(&block->lane);
  tide__lane_cache* cache = tcache->newest;
  if (tide__load_relaxed(&cache->lane) != lane) cache = tide__lane_cache_at(tcache, lane->stream);
  const uint32_t class_index = tide__load_relaxed(&block->magazine) - 1;
  tide__magazine* magazine = &cache->magazines[class_index];
  TIDE__MAGAZINE_IN_REGISTER(magazine);
  const bool is_done = tide__load_relaxed(&cache->lane) == lane && magazine->count < magazine->limit;
  if (is_done) tide__tcache_take_back(device, tcache, cache, magazine, class_index, block);
  tide__thread_cache_leave_fast(tcache);
  return is_done;
}

#endif
