// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checks the invariants of a cache against its segments, thread caches and queues. docs/pinned.md lists them.
// Calls poller.c and the rooms `segment` and `stats`.
#include "pinned/calls.h"
#include "pinned/segment/segment.h"
#include "pinned/stats/stats.h"

// What the check has counted so far.
typedef struct pinned_audit {
  tide_pinned_cache* pinned;
  uint8_t* seen;     // owned; for each record, how often it is idle
  uint32_t* events;  // owned; for each record, how many of its events are in queues
  size_t records;
  uint64_t waiting;        // blocks
  uint64_t reserve_bytes;  // that segments have of the reserve
  uint64_t room;           // of max_cached_bytes, used by thread caches and the depot
  tide_pinned_stats sum;
  int64_t class_blocks[TIDE__PIN_KINDS];
} pinned_audit;

// Reports a broken invariant and evaluates to its number.
#define BROKEN(number, ...) \
  ((void)tide_error_set(TIDE_ERR_STATE, 0, __FILE__, __LINE__, __VA_ARGS__), (number))
#define AUDIT(call)                               \
  do {                                            \
    const int audit_broken_ = (call);             \
    if (audit_broken_ != 0) return audit_broken_; \
  } while (0)

// ---------------------------------------------------------------------------------------------------
// Idle blocks

static int idle_check(pinned_audit* a, const tide__pin* block, const char* where) {
  const uint32_t state = tide__load_relaxed(&block->state);
  if (tide__pin_is_live(block) || state != TIDE__PIN_IDLE) {
    return BROKEN(2, "the block %u in %s is handed out or in state %u", block->slot.index, where, state);
  }
  if (tide__load_relaxed(&block->uses) != NULL) {
    return BROKEN(8, "the idle block %u has uses", block->slot.index);
  }
  if (++a->seen[block->slot.index] != 1) return BROKEN(2, "the block %u is idle twice", block->slot.index);
  return 0;
}

static int tcache_check(pinned_audit* a, tide__pin_tcache* tcache) {
  uint64_t idle_bytes = 0;
  for (uint32_t i = 0; i < TIDE__PIN_KINDS; i++) {
    uint32_t count = 0;
    for (const tide__pin* block = tide__load_relaxed(&tcache->magazines[i].head); block != NULL;
         block = block->next, count++) {
      AUDIT(idle_check(a, block, "a thread cache"));
      if (block->class_index != i || !block->is_plain) {
        return BROKEN(2, "the block %u is in the magazine of class %u", block->slot.index, i);
      }
      if (tide__pin_is_capped(a->pinned, i)) idle_bytes += tide__pin_bytes(block);
    }
    if (count != tcache->magazines[i].count) {
      return BROKEN(2, "a thread cache has %u blocks of class %u and says %u", count, i,
                    tcache->magazines[i].count);
    }
  }
  if (a->pinned->has_cap && (idle_bytes != tcache->idle_bytes || idle_bytes > tcache->room_bytes)) {
    return BROKEN(5, "a thread cache has %llu idle bytes, says %llu and has room for %llu",
                  (unsigned long long)idle_bytes, (unsigned long long)tcache->idle_bytes,
                  (unsigned long long)tcache->room_bytes);
  }
  if (a->pinned->has_cap) a->room += tcache->room_bytes;
  return 0;
}

static int tcaches_check(pinned_audit* a) {
  int broken = 0;
  tide__pin_tcache* tcache = tide__pin_tcache_first(a->pinned);
  for (; tcache != NULL && broken == 0; tcache = tide__pin_tcache_next(tcache)) {
    tide__thread_cache_take(&tcache->base);
    broken = tcache_check(a, tcache);
    tide__thread_cache_give(&tcache->base);
  }
  return broken;
}

// ---------------------------------------------------------------------------------------------------
// Waiting blocks

static int queues_check(pinned_audit* a) {
  for (const tide__wait_queue* queue = a->pinned->waits.queues; queue != NULL; queue = queue->next) {
    for (const tide__wait* use = queue->first; use != NULL; use = use->next) {
      const tide__pin* const block = TIDE_OWNER(use->waiter, tide__pin, waiter);
      if (tide__load_relaxed(&block->state) != TIDE__PIN_WAITING) {
        return BROKEN(4, "the block %u is in a queue and does not wait", block->slot.index);
      }
      if (use->stream != queue->stream || use->device != queue->device || !use->is_recorded) {
        return BROKEN(4, "the block %u is in the queue of another stream", block->slot.index);
      }
      if (use->next == NULL && queue->last != use) return BROKEN(4, "a queue has another end");
      a->events[block->slot.index]++;
    }
  }
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Segments

static void block_sum(pinned_audit* a, const tide__pin_segment* segment, bool is_idle, bool is_waiting) {
  const int64_t bytes = (int64_t)segment->block_bytes;
  tide_pinned_stats* const sum = &a->sum;
  sum->allocations.current++;
  sum->allocated_bytes.current += bytes;
  sum->active_requests.current += is_idle ? 0 : 1;
  sum->active_bytes.current += is_idle ? 0 : bytes;
  sum->waiting.current += is_waiting ? 1 : 0;
  sum->waiting_bytes.current += is_waiting ? bytes : 0;
  a->class_blocks[segment->class_index]++;
}

static int block_check(pinned_audit* a, const tide__pin_segment* segment, const tide__pin* block) {
  const uint32_t index = block->slot.index;
  const uint32_t state = tide__load_relaxed(&block->state);
  const bool is_live = tide__pin_is_live(block);
  const bool is_idle = !is_live && state == TIDE__PIN_IDLE;
  if (block->segment != segment || tide__pin_bytes(block) != segment->block_bytes ||
      block->class_index != segment->class_index ||
      block->is_plain != (segment->pool == a->pinned->default_pool)) {
    return BROKEN(1, "the block %u is not one of its segment", index);
  }
  if (a->seen[index] != (is_idle ? 1 : 0)) return BROKEN(2, "the block %u is idle and in no list", index);
  if (is_live && tide__load_relaxed(&block->requested_bytes) > segment->block_bytes) {
    return BROKEN(1, "the block %u is smaller than what was asked for", index);
  }
  const bool is_waiting = !is_live && state == TIDE__PIN_WAITING;
  if (is_waiting) a->waiting++;
  if (a->events[index] != (is_waiting ? block->waiter.event_count : 0)) {
    return BROKEN(4, "the block %u waits for %u events, %u are in queues", index, block->waiter.event_count,
                  a->events[index]);
  }
  block_sum(a, segment, is_idle, is_waiting);
  return 0;
}

static int segment_check(pinned_audit* a, const tide__pin_segment* segment, uint64_t* whole_bytes) {
  uint32_t count = 0;
  for (const tide__pin* block = segment->idle; block != NULL; block = block->next, count++) {
    AUDIT(idle_check(a, block, "a segment"));
  }
  if (count != segment->idle_count) {
    return BROKEN(3, "a segment has %u idle blocks and says %u", count, segment->idle_count);
  }
  if (tide__list_is_empty(&segment->link) != (count == 0)) return BROKEN(3, "a segment is in the wrong list");
  if (count == segment->capacity) *whole_bytes += segment->memory.bytes;
  if (segment->capacity * segment->block_bytes > segment->memory.bytes) {
    return BROKEN(1, "a segment of %llu bytes has more blocks than that",
                  (unsigned long long)segment->memory.bytes);
  }
  if (segment->memory.source == TIDE__PIN_FROM_RESERVE) {
    a->reserve_bytes += tide__pin_whole_pages(a->pinned, segment->memory.bytes);
  }
  a->sum.segments.current++;
  a->sum.reserved_bytes.current += (int64_t)segment->memory.bytes;
  return 0;
}

static int segment_check_blocks(pinned_audit* a, const tide__pin_segment* segment) {
  for (uint32_t i = 0; i < segment->capacity; i++) {
    const uint64_t address = segment->memory.address + i * segment->block_bytes;
    uint32_t record = 0;
    const bool is_found = tide__map_find(&a->pinned->map, address, &record);
    const tide__pin* const block = is_found ? tide__slots_at(&a->pinned->blocks, record) : NULL;
    if (block == NULL || tide__pin_address(block) != address) {
      return BROKEN(1, "the map does not know block %u of a segment", i);
    }
    AUDIT(block_check(a, segment, block));
  }
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Statistics

static int totals_check(const tide_pinned_stats* stats, const tide_pinned_stats* sum) {
#define CHECK_STAT(name)                                                                                     \
  if (stats->name.current != sum->name.current || stats->name.peak < stats->name.current) {                  \
    return BROKEN(6, "%s is %lld with a peak of %lld; counted: %lld", #name, (long long)stats->name.current, \
                  (long long)stats->name.peak, (long long)sum->name.current);                                \
  }
  TIDE_PINNED_STAT_MAP(CHECK_STAT)
#undef CHECK_STAT
  return 0;
}

static int pool_check(pinned_audit* a, const tide__pin_pool* pool) {
  uint64_t whole_bytes = 0;
  TIDE_LIST_EACH(it, &pool->segments) {
    AUDIT(segment_check(a, TIDE_OWNER(it, tide__pin_segment, all), &whole_bytes));
  }
  TIDE_LIST_EACH(it, &pool->segments) {
    AUDIT(segment_check_blocks(a, TIDE_OWNER(it, tide__pin_segment, all)));
  }
  if (whole_bytes != tide__load_relaxed(&pool->depot.idle_bytes)) {
    return BROKEN(5, "the depot of pool %u has %llu bytes wholly idle and says otherwise", pool->base.number,
                  (unsigned long long)whole_bytes);
  }
  if (pool == a->pinned->default_pool) a->room += whole_bytes;
  return 0;
}

static int cap_check(const pinned_audit* a) {
  const tide_pinned_cache* const pinned = a->pinned;
  if (!pinned->has_cap) return 0;
  const int64_t left = (int64_t)pinned->options.max_cached_bytes - (int64_t)a->room;
  const int64_t said = tide__load_relaxed(&pinned->room_left);
  if (left == said) return 0;
  return BROKEN(5, "%lld bytes of room are left, not %lld", (long long)left, (long long)said);
}

static int classes_check(const pinned_audit* a) {
  for (uint32_t i = 0; i < TIDE__PIN_KINDS; i++) {
    if (a->class_blocks[i] != a->pinned->class_blocks[i]) {
      return BROKEN(7, "class %u has %lld blocks, not %lld", i, (long long)a->class_blocks[i],
                    (long long)a->pinned->class_blocks[i]);
    }
  }
  return 0;
}

// Segments and free ranges make up the whole reserve, and no two free ranges touch.
static int reserve_check(const pinned_audit* a) {
  const tide_pinned_cache* const pinned = a->pinned;
  uint64_t bytes = a->reserve_bytes;
  if (!pinned->has_reserve) return 0;
  if (tide__range_check(&pinned->ranges) != 0)
    return BROKEN(9, "the free ranges of the reserve overlap or touch");
  const tide__free_range* range = tide__free_range_first(&pinned->ranges);
  for (; range != NULL; range = tide__free_range_next(range)) {
    const uint64_t begin = tide__free_range_offset(range) - pinned->reserve.address;
    if (begin > pinned->reserve.bytes || tide__free_range_bytes(range) > pinned->reserve.bytes - begin) {
      return BROKEN(9, "a free range lies outside of the reserve");
    }
    bytes += tide__free_range_bytes(range);
  }
  if (bytes != pinned->reserve.bytes) return BROKEN(9, "the reserve has lost or gained bytes");
  return 0;
}

static int audit_run(pinned_audit* a) {
  tide_pinned_cache* const pinned = a->pinned;
  tide__pin_totals_settle(pinned);
  AUDIT(tcaches_check(a));
  AUDIT(queues_check(a));
  // Idle blocks are counted in the thread caches first, then in all segments of a pool, then each is checked.
  AUDIT(pool_check(a, pinned->default_pool));
  tide__pool_base* pool = tide__pools_first_locked(&pinned->pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) AUDIT(pool_check(a, tide__pin_pool_at(pool)));
  AUDIT(totals_check(&pinned->totals, &a->sum));
  AUDIT(classes_check(a));
  AUDIT(cap_check(a));
  if (a->waiting != tide__load_relaxed(&pinned->waits.waiting)) {
    return BROKEN(4, "%llu blocks wait, and another number is counted", (unsigned long long)a->waiting);
  }
  return reserve_check(a);
}

int tide_pinned_check(tide_pinned_cache* pinned) {
  pinned_audit a = { .pinned = pinned };
  if (pinned == NULL) return BROKEN(1, "pinned_check: no cache");
  a.records = (size_t)tide__slots_count(&pinned->blocks) + 1;
  a.seen = tide__heap_alloc(pinned->heap, a.records, sizeof *a.seen);
  a.events = tide__heap_alloc(pinned->heap, a.records, sizeof *a.events);
  tide__pin_helper_pause(pinned);
  const bool has_memory = a.seen != NULL && a.events != NULL;
  const int broken = has_memory ? audit_run(&a) : BROKEN(99, "pinned_check: no memory");
  tide__pin_helper_resume(pinned);
  tide__heap_release(pinned->heap, a.seen, a.records, sizeof *a.seen);
  tide__heap_release(pinned->heap, a.events, a.records, sizeof *a.events);
  return broken;
}
