// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The room `idle`: what thread caches hold, where a block goes when it becomes idle, and how idle memory goes
// back to the machine. It calls the rooms `segment` and `stats`.
//
// Inside the room: retire.c and shrink.c call tcache.c, which calls records.c.
#ifndef TIDEMARK_SRC_PINNED_IDLE_IDLE_H
#define TIDEMARK_SRC_PINNED_IDLE_IDLE_H

#include "pinned/segment/segment.h"
#include "pinned/stats/stats.h"

// ---------------------------------------------------------------------------------------------------
// records.c: wait records (core/stream_waits.h) that thread caches hold

// Takes a record for a stream, or makes one.
tide_status tide__pin_record_take(tide_pinned_cache* pinned, int device, tide_stream stream,
                                  tide__wait** out);
// Gives a list of records back.
void tide__pin_records_give(tide_pinned_cache* pinned, tide__wait* list);
// Takes the spare records off a list of blocks that leave the thread cache.
void tide__pin_spares_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* list);

// ---------------------------------------------------------------------------------------------------
// tcache.c

void tide__pin_tcache_init(void* tcache, void* pinned);
// Takes a block of a class, and refills the magazine from the depot if it is empty; NULL if both are.
tide__pin* tide__pin_tcache_take_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                        uint32_t class_index);
// Puts an idle block of the default pool into its magazine, and flushes half of a full magazine.
void tide__pin_tcache_put_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, tide__pin* block);
// Moves blocks of a class to the depot until `keep` are left.
void tide__pin_tcache_flush_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache, uint32_t class_index,
                                   uint32_t keep);
// Moves the blocks of all thread caches to the depot. The caller holds no thread cache.
void tide__pin_tcaches_flush(tide_pinned_cache* pinned);
// Moves the blocks of a class from one thread cache to the depot. False if none has any, or if no steals are
// left; `is_needed` ignores that limit. The caller holds no thread cache.
bool tide__pin_tcaches_steal(tide_pinned_cache* pinned, uint32_t class_index, bool is_needed);

// The fast path of a release: puts a block of the default pool into its magazine, if there is room.
static inline bool tide__pin_tcache_keep_locked(tide_pinned_cache* pinned, tide__pin_tcache* tcache,
                                                tide__pin* block) {
  tide__magazine* const magazine = &tcache->magazines[block->class_index];
  const uint64_t bytes = (uint64_t)magazine->units << TIDE__PIN_UNIT_SHIFT;
  const uint64_t idle = tide__pin_is_capped(pinned, block->class_index) ? bytes : 0;
  if (!tide__magazine_has_room(magazine) || tcache->room_bytes - tcache->idle_bytes < idle) return false;
  tide__magazine_put(magazine, block, offsetof(tide__pin, next));
  tcache->idle_bytes += idle;
  tide__pin_count_back_locked(pinned, tcache, bytes);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// retire.c

// A list of blocks that were counted as active becomes idle and goes into the thread cache or the depot.
// Segments that are not to be cached are added to `going` instead, wholly idle and in no depot.
void tide__pin_retire(tide_pinned_cache* pinned, tide__pin* list, tide__link* going);

// ---------------------------------------------------------------------------------------------------
// shrink.c

// Gives back the segments that a pick takes out of the default pool's depot. *out_count is how many went;
// the counter at an offset in the statistics, if that is not 0, counts them.
tide_status tide__pin_shrink(tide_pinned_cache* pinned, const tide__pin_pick* pick, size_t counter,
                             uint32_t* out_count);
// Gives memory back until at most max_cached_bytes are cached.
void tide__pin_enforce_cap(tide_pinned_cache* pinned);
static inline void tide__pin_keep_cap(tide_pinned_cache* pinned) {
  if (pinned->has_cap && tide__load_relaxed(&pinned->room_left) < 0) tide__pin_enforce_cap(pinned);
}

#endif
