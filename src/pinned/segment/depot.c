// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `segment`: the depot of a pool, with the idle blocks that are in no thread cache. They lie in their
// segments. Segments that are partly in use serve requests first, so that the others can be given back. Of
// wholly idle segments the newest serves the next request, and the oldest is given back first.
//
// Calls no other file of the cache. Cost: O(1) for a block of a class, O(log n) for a size without one.
// Lock: that of the class.
#include "pinned/segment/segment.h"

void tide__pin_depot_init(tide__pin_depot* depot) {
  for (uint32_t i = 0; i < TIDE__PIN_KINDS; i++) {
    tide__mutex_init(&depot->classes[i].lock, TIDE__RANK_DEPOT);
    tide__list_init(&depot->classes[i].parts);
    tide__list_init(&depot->classes[i].wholes);
  }
}

static tide__pin_segment* segment_at(tide__link* link) { return TIDE_OWNER(link, tide__pin_segment, link); }

static void list_prepend(tide__link* list, tide__link* link) { tide__list_append(list->next, link); }

// Counts a segment that becomes wholly idle (sign +1), or no longer is (-1).
static void whole_count(tide_pinned_cache* pinned, const tide__pin_segment* segment, int64_t sign) {
  const int64_t bytes = sign * (int64_t)segment->memory.bytes;
  (void)tide__add_relaxed(&segment->pool->depot.idle_bytes, (uint64_t)bytes);
  if (pinned->has_cap && segment->pool == pinned->default_pool) {
    (void)tide__add_relaxed(&pinned->room_left, -bytes);
  }
}

static void whole_enter_locked(tide_pinned_cache* pinned, tide__pin_depot_class* depot_class,
                               tide__pin_segment* segment) TIDE_REQUIRES(&depot_class->lock) {
  list_prepend(&depot_class->wholes, &segment->link);
  if (segment->class_index == TIDE__PIN_SIZED) {
    segment->by_bytes = (tide__tree_node){ .key = segment->block_bytes, .tie = segment->ordinal };
    (void)tide__tree_insert(&depot_class->by_bytes, &segment->by_bytes);
  }
  whole_count(pinned, segment, 1);
}

static void whole_leave_locked(tide_pinned_cache* pinned, tide__pin_depot_class* depot_class,
                               tide__pin_segment* segment) TIDE_REQUIRES(&depot_class->lock) {
  tide__list_unlink(&segment->link);
  if (segment->class_index == TIDE__PIN_SIZED) tide__tree_remove(&depot_class->by_bytes, &segment->by_bytes);
  segment->seen_ns = 0;
  whole_count(pinned, segment, -1);
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static tide__pin* segment_take_locked(tide_pinned_cache* pinned, tide__pin_depot_class* depot_class,
                                      tide__pin_segment* segment) TIDE_REQUIRES(&depot_class->lock) {
  const bool was_whole = segment->idle_count == segment->capacity;
  if (was_whole) whole_leave_locked(pinned, depot_class, segment);
  tide__pin* const block = segment->idle;
  segment->idle = block->next;
  segment->idle_count--;
  if (was_whole && segment->idle_count != 0) list_prepend(&depot_class->parts, &segment->link);
  if (!was_whole && segment->idle_count == 0) tide__list_unlink(&segment->link);
  return block;
}

static void segment_put_locked(tide_pinned_cache* pinned, tide__pin_depot_class* depot_class,
                               tide__pin* block) TIDE_REQUIRES(&depot_class->lock) {
  tide__pin_segment* const segment = block->segment;
  block->next = segment->idle;
  segment->idle = block;
  const bool was_empty = segment->idle_count++ == 0;
  if (segment->idle_count == segment->capacity) {
    if (!was_empty) tide__list_unlink(&segment->link);
    whole_enter_locked(pinned, depot_class, segment);
  } else if (was_empty) {
    list_prepend(&depot_class->parts, &segment->link);
  }
}

uint32_t tide__pin_depot_take(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                              uint32_t count, tide__pin** out) {
  tide__pin_depot_class* const depot_class = &pool->depot.classes[class_index];
  uint32_t taken = 0;
  *out = NULL;
  tide__mutex_lock(&depot_class->lock);
  for (; taken < count; taken++) {
    tide__link* const list = tide__list_is_empty(&depot_class->parts) ? &depot_class->wholes
                                                                      : &depot_class->parts;
    if (tide__list_is_empty(list)) break;
    tide__pin* const block = segment_take_locked(pinned, depot_class, segment_at(list->next));
    block->next = *out;
    *out = block;
  }
  tide__mutex_unlock(&depot_class->lock);
  return taken;
}

tide__pin* tide__pin_depot_take_sized(tide_pinned_cache* pinned, tide__pin_pool* pool, uint64_t bytes) {
  tide__pin_depot_class* const depot_class = &pool->depot.classes[TIDE__PIN_SIZED];
  tide__pin* block = NULL;
  tide__mutex_lock(&depot_class->lock);
  tide__tree_node* const node = tide__tree_ceiling(&depot_class->by_bytes, bytes);
  if (node != NULL && node->key <= bytes + bytes / 8) {
    block = segment_take_locked(pinned, depot_class, TIDE_OWNER(node, tide__pin_segment, by_bytes));
  }
  tide__mutex_unlock(&depot_class->lock);
  return block;
}

void tide__pin_depot_put(tide_pinned_cache* pinned, tide__pin_pool* pool, uint32_t class_index,
                         tide__pin* list) {
  tide__pin_depot_class* const depot_class = &pool->depot.classes[class_index];
  tide__mutex_lock(&depot_class->lock);
  while (list != NULL) {
    tide__pin* const block = list;
    list = block->next;
    segment_put_locked(pinned, depot_class, block);
  }
  tide__mutex_unlock(&depot_class->lock);
}

// ---------------------------------------------------------------------------------------------------
// Whole segments

static bool pick_takes(tide__pin_segment* segment, const tide__pin_pick* pick) {
  if (pick->now_ns == 0) return true;
  if (segment->seen_ns != 0) return segment->seen_ns <= pick->seen_before;
  segment->seen_ns = pick->now_ns;
  return false;
}

static uint32_t class_pick(tide_pinned_cache* pinned, tide__pin_pool* pool,
                           tide__pin_depot_class* depot_class, const tide__pin_pick* pick, tide__link* out) {
  uint32_t count = 0;
  tide__mutex_lock(&depot_class->lock);
  tide__link* link = depot_class->wholes.prev;
  while (link != &depot_class->wholes && tide__load_relaxed(&pool->depot.idle_bytes) > pick->keep_bytes) {
    tide__pin_segment* const segment = segment_at(link);
    link = link->prev;
    if (segment->block_bytes < pick->least_bytes || !pick_takes(segment, pick)) continue;
    whole_leave_locked(pinned, depot_class, segment);
    tide__list_append(out, &segment->link);
    count++;
  }
  tide__mutex_unlock(&depot_class->lock);
  return count;
}

uint32_t tide__pin_depot_pick(tide_pinned_cache* pinned, tide__pin_pool* pool, const tide__pin_pick* pick,
                              tide__link* out) {
  uint32_t count = 0;
  for (uint32_t i = TIDE__PIN_KINDS; i-- > 0;) {
    const bool is_small = i != TIDE__PIN_SIZED && tide__pin_class_bytes(i) < pick->least_bytes;
    if (!is_small) count += class_pick(pinned, pool, &pool->depot.classes[i], pick, out);
  }
  return count;
}

void tide__pin_depot_restore(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  tide__pin_depot_class* const depot_class = &segment->pool->depot.classes[segment->class_index];
  tide__mutex_lock(&depot_class->lock);
  whole_enter_locked(pinned, depot_class, segment);
  tide__mutex_unlock(&depot_class->lock);
}
