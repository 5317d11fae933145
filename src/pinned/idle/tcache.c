// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `idle`: the thread caches, with a magazine of idle blocks of the default pool for each class.
// Magazines are refilled from the depot and flushed to it (core/magazine.h), so that the lock of a class is
// taken once for many requests. A thread that finds nothing in the depot steals the magazine of another
// thread, once for each segment that was pinned. Calls records.c and the depot.
#include "pinned/idle/idle.h"

#define MAGAZINE_BYTES ((uint64_t)8 << 20)        // a magazine holds blocks of this size together, but
enum { MAGAZINE_LEAST = 4, MAGAZINE_MOST = 32 };  // at least and at most so many

void tide__pin_tcache_init(void* made, void* owner) {
  tide__pin_tcache* const tcache = made;
  const tide_pinned_cache* const pinned = owner;
  tcache->room_bytes = pinned->has_cap ? 0 : UINT64_MAX;
  for (uint32_t i = 0; i < TIDE__PIN_CLASSES; i++) {
    tide__magazine* const magazine = &tcache->magazines[i];
    const uint64_t bytes = tide__pin_class_bytes(i);
    tide__magazine_init(magazine, (uint32_t)tide__class_units(i), bytes, MAGAZINE_BYTES, MAGAZINE_LEAST,
                        MAGAZINE_MOST);
    if (bytes > TIDE__PIN_MAGAZINE_BYTES) magazine->limit = 0;
  }
}

// ---------------------------------------------------------------------------------------------------
// The share of max_cached_bytes

// Counts blocks that came into the thread cache; its share grows if it is too small.
static void room_use_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint64_t bytes) {
  tcache->idle_bytes += bytes;
  if (tcache->idle_bytes <= tcache->room_bytes) return;
  const uint64_t missing = tcache->idle_bytes - tcache->room_bytes;
  tcache->room_bytes += missing;
  (void)tide__add_relaxed(&pinned->room_left, -(int64_t)missing);
}

// Gives the unused part of the share back.
static void room_return_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache) {
  if (!pinned->has_cap || tcache->room_bytes == tcache->idle_bytes) return;
  (void)tide__add_relaxed(&pinned->room_left, (int64_t)(tcache->room_bytes - tcache->idle_bytes));
  tcache->room_bytes = tcache->idle_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Magazines

static void magazine_refill_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                   uint32_t class_index) {
  tide__magazine* const magazine = &tcache->magazines[class_index];
  const uint32_t wanted = tide__magazine_wanted(magazine);
  magazine->fill = (uint8_t)wanted;
  tide__pin* list = NULL;
  const uint32_t count = tide__pin_depot_take(pinned, pinned->default_pool, class_index, wanted, &list);
  tide__magazine_refill(magazine, list, count);
  if (count != 0 && tide__pin_is_capped(pinned, class_index)) {
    room_use_locked(pinned, tcache, count * tide__pin_class_bytes(class_index));
  }
}

tide__pin* tide__pin_tcache_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                        uint32_t class_index) {
  tide__magazine* const magazine = &tcache->magazines[class_index];
  if (magazine->count == 0) magazine_refill_locked(pinned, tcache, class_index);
  if (magazine->count == 0) return NULL;
  if (tide__pin_is_capped(pinned, class_index)) tcache->idle_bytes -= tide__pin_class_bytes(class_index);
  return tide__magazine_take(magazine, offsetof(tide__pin, next));
}

void tide__pin_tcache_put_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block) {
  const uint32_t class_index = block->class_index;
  tide__magazine* const magazine = &tcache->magazines[class_index];
  if (tide__pin_is_capped(pinned, class_index)) {
    room_use_locked(pinned, tcache, tide__pin_class_bytes(class_index));
  }
  tide__magazine_put(magazine, block, offsetof(tide__pin, next));
  if (magazine->count > magazine->limit) {
    tide__pin_tcache_flush_locked(pinned, tcache, class_index, magazine->limit / 2u);
  }
}

void tide__pin_tcache_flush_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t class_index,
                                   uint32_t keep) {
  tide__magazine* const magazine = &tcache->magazines[class_index];
  if (magazine->count <= keep) return;
  if (tide__pin_is_capped(pinned, class_index)) {
    tcache->idle_bytes -= (magazine->count - keep) * tide__pin_class_bytes(class_index);
    room_return_locked(pinned, tcache);
  }
  tide__pin* const list = tide__magazine_cut(magazine, keep, offsetof(tide__pin, next));
  tide__pin_spares_take_locked(pinned, tcache, list);
  tide__pin_depot_put(pinned, pinned->default_pool, class_index, list);
}

// ---------------------------------------------------------------------------------------------------
// Other threads

static void tcache_empty(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t first_class,
                         uint32_t end_class) {
  tide__thread_cache_take(&tcache->base);
  for (uint32_t i = first_class; i < end_class; i++) {
    tide__pin_tcache_flush_locked(pinned, tcache, i, 0);
    tcache->magazines[i].fill = 0;
  }
  room_return_locked(pinned, tcache);
  tide__thread_cache_give(&tcache->base);
}

void tide__pin_tcaches_flush(tide_pinned_cache* pinned) {
  tide__pin_tcache* tcache = tide__pin_tcache_first(pinned);
  for (; tcache != NULL; tcache = tide__pin_tcache_next(tcache)) {
    tcache_empty(pinned, tcache, 0, TIDE__PIN_CLASSES);
  }
}

bool tide__pin_tcaches_steal(tide_pinned_cache* pinned, uint32_t class_index, bool is_needed) {
  tide__pin_depot_class* const depot_class = &pinned->default_pool->depot.classes[class_index];
  if (!is_needed && tide__load_relaxed(&depot_class->steals_left) <= 0) return false;
  tide__pin_tcache* tcache = tide__pin_tcache_first(pinned);
  for (; tcache != NULL; tcache = tide__pin_tcache_next(tcache)) {
    if (tide__load_relaxed(&tcache->magazines[class_index].head) == NULL) continue;
    (void)tide__add_relaxed(&depot_class->steals_left, -1);
    tcache_empty(pinned, tcache, class_index, class_index + 1);
    return true;
  }
  return false;
}
