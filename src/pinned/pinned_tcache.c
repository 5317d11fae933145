// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread caches of the pinned cache: magazines of idle blocks of the default pool, one for each class.
// They are refilled from the depot and flushed to it by core/magazine.h, so that the lock of a class is taken
// once for many requests. A thread that finds nothing there takes the magazine of another thread, once for
// each segment that was pinned. Blocks pinned one by one count against max_cached_bytes while they are in a
// magazine. Blocks of chunks do not, because their chunk cannot go meanwhile.
#include "pinned/pinned_cache.h"

#define MAGAZINE_BYTES ((uint64_t)8 << 20)        // that a magazine may hold, and
enum { MAGAZINE_LEAST = 4, MAGAZINE_MOST = 32 };  // how many blocks at least and at most

void tide__pin_tcache_init(void* made, void* pinned) {
  tide__pin_tcache* const tcache = made;
  const tide_pinned_cache* const p = pinned;
  tcache->tally.pool = p->default_pool;
  tcache->room_bytes = p->has_cap ? 0 : UINT64_MAX;
  for (uint32_t i = 0; i < TIDE__PIN_CLASSES; i++) {
    tide__magazine* const magazine = &tcache->magazines[i].magazine;
    const uint64_t bytes = tide__pin_class_bytes(i);
    tide__magazine_init(magazine, (uint32_t)tide__class_units(i), bytes, MAGAZINE_BYTES, MAGAZINE_LEAST,
                        MAGAZINE_MOST);
    if (bytes > TIDE__PIN_MAGAZINE_BYTES) magazine->limit = 0;
  }
}

void tide__pin_settle_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache) {
  if (tcache->tally.changes != 0) tide__pin_totals_add(pinned, &tcache->tally);
}

// ---------------------------------------------------------------------------------------------------
// Room under max_cached_bytes

static void room_come_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint64_t bytes) {
  tcache->idle_bytes += bytes;
  if (tcache->idle_bytes <= tcache->room_bytes) return;
  const uint64_t missing = tcache->idle_bytes - tcache->room_bytes;
  tcache->room_bytes += missing;
  (void)tide__add_relaxed(&pinned->room_left, -(int64_t)missing);
}

// What the thread cache does not need goes back to all.
static void room_spare_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache) {
  if (!pinned->has_cap || tcache->room_bytes == tcache->idle_bytes) return;
  (void)tide__add_relaxed(&pinned->room_left, (int64_t)(tcache->room_bytes - tcache->idle_bytes));
  tcache->room_bytes = tcache->idle_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Lists

static void magazine_fill_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t class_index) {
  tide__magazine* const magazine = &tcache->magazines[class_index].magazine;
  const uint32_t wanted = tide__magazine_wanted(magazine);
  magazine->fill = (uint8_t)wanted;
  tide__pin* list = NULL;
  const uint32_t count = tide__pin_depot_take(pinned, pinned->default_pool, class_index, wanted, &list);
  tide__magazine_refill(magazine, list, count);
  if (count != 0 && tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, tcache, count * tide__pin_class_bytes(class_index));
  }
}

tide__pin* tide__pin_tcache_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                        uint32_t class_index) {
  tide__magazine* const magazine = &tcache->magazines[class_index].magazine;
  if (magazine->count == 0) magazine_fill_locked(pinned, tcache, class_index);
  if (magazine->count == 0) return NULL;
  if (tide__pin_is_capped(pinned, class_index)) tcache->idle_bytes -= tide__pin_class_bytes(class_index);
  return tide__magazine_take(magazine, offsetof(tide__pin, next));
}

void tide__pin_tcache_put_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block) {
  const uint32_t class_index = block->class_index;
  tide__magazine* const magazine = &tcache->magazines[class_index].magazine;
  if (tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, tcache, tide__pin_class_bytes(class_index));
  }
  tide__magazine_put(magazine, block, offsetof(tide__pin, next));
  if (magazine->count > magazine->limit) {
    tide__pin_tcache_flush_locked(pinned, tcache, class_index, magazine->limit / 2u);
  }
}

void tide__pin_tcache_flush_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t class_index,
                                   uint32_t keep) {
  tide__magazine* const magazine = &tcache->magazines[class_index].magazine;
  if (magazine->count <= keep) return;
  if (tide__pin_is_capped(pinned, class_index)) {
    tcache->idle_bytes -= (magazine->count - keep) * tide__pin_class_bytes(class_index);
    room_spare_locked(pinned, tcache);
  }
  tide__pin* const list = tide__magazine_cut(magazine, keep, offsetof(tide__pin, next));
  tide__pin_spares_take_locked(pinned, tcache, list);
  tide__pin_depot_put(pinned, pinned->default_pool, class_index, list);
}

// Takes a thread cache and moves classes of it to the depot.
static void tcache_rob(tide_pinned_cache* pinned, tide__thread_cache* tcache, uint32_t first_class,
                       uint32_t end_class) {
  tide__pin_tcache* const f = (tide__pin_tcache*)(void*)tcache;
  tide__thread_cache_take(tcache);
  for (uint32_t i = first_class; i < end_class; i++) {
    tide__pin_tcache_flush_locked(pinned, f, i, 0);
    f->magazines[i].magazine.fill = 0;
  }
  room_spare_locked(pinned, f);
  tide__thread_cache_give(tcache);
}

void tide__pin_tcaches_flush(tide_pinned_cache* pinned) {
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) tcache_rob(pinned, tcache, 0, TIDE__PIN_CLASSES);
}

bool tide__pin_tcaches_rob(tide_pinned_cache* pinned, uint32_t class_index, bool is_needed) {
  tide__pin_depot_class* const depot_class = &pinned->default_pool->depot.classes[class_index];
  if (!is_needed && tide__load_relaxed(&depot_class->robberies) <= 0) return false;
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) {
    tide__pin_tcache* const f = (tide__pin_tcache*)(void*)tcache;
    if (tide__load_relaxed(&f->magazines[class_index].magazine.head) == NULL) continue;
    (void)tide__add_relaxed(&depot_class->robberies, -1);
    tcache_rob(pinned, tcache, class_index, class_index + 1);
    return true;
  }
  return false;
}
