// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The front of a thread: short lists of idle blocks of the default pool, one for each class. A list that
// runs dry is filled from the depot, with one block at first and then with twice as many each time up to
// its half; one that runs over is emptied to its half. So the lock of a class is taken once for many
// requests, and who needs few blocks keeps few from ageing. A thread that finds nothing takes from one that
// has some, once for each segment that was pinned. Blocks pinned one by one count against
// max_cached_bytes while they lie here; those of chunks do not, because their chunk cannot go while they
// do.
#include "pinned/pinned_cache.h"

#define FRONT_CLASS_BYTES ((uint64_t)8 << 20)  // of one class that a front may have, and
enum { FRONT_LEAST = 4, FRONT_MOST = 32 };     // how many blocks at least and at most

void tide__pin_front_init(void* front, void* pinned) {
  tide__pin_front* const f = front;
  const tide_pinned* const p = pinned;
  f->tally.pool = p->default_pool;
  f->room_bytes = p->has_cap ? 0 : UINT64_MAX;
  for (uint32_t i = 0; i < TIDE__PIN_CLASSES; i++) {
    tide__magazine* const magazine = &f->magazines[i].magazine;
    const uint64_t bytes = tide__pin_class_bytes(i);
    tide__magazine_init(magazine, (uint32_t)tide__class_units(i), bytes, FRONT_CLASS_BYTES, FRONT_LEAST,
                        FRONT_MOST);
    if (bytes > TIDE__PIN_FRONT_BYTES) magazine->limit = 0;
  }
}

void tide__pin_settle_locked(tide_pinned* pinned, tide__pin_front* front) {
  if (front->tally.changes != 0) tide__pin_totals_add(pinned, &front->tally);
}

// ---------------------------------------------------------------------------------------------------
// Room under max_cached_bytes

static void room_come_locked(tide_pinned* pinned, tide__pin_front* front, uint64_t bytes) {
  front->idle_bytes += bytes;
  if (front->idle_bytes <= front->room_bytes) return;
  const uint64_t missing = front->idle_bytes - front->room_bytes;
  front->room_bytes += missing;
  (void)tide__add_relaxed(&pinned->room_left, -(int64_t)missing);
}

// What the front does not need goes back to all.
static void room_spare_locked(tide_pinned* pinned, tide__pin_front* front) {
  if (!pinned->has_cap || front->room_bytes == front->idle_bytes) return;
  (void)tide__add_relaxed(&pinned->room_left, (int64_t)(front->room_bytes - front->idle_bytes));
  front->room_bytes = front->idle_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Lists

static void magazine_fill_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index) {
  tide__magazine* const magazine = &front->magazines[class_index].magazine;
  const uint32_t wanted = tide__magazine_wanted(magazine);
  magazine->fill = (uint8_t)wanted;
  tide__pin* list = NULL;
  const uint32_t count = tide__pin_depot_take(pinned, pinned->default_pool, class_index, wanted, &list);
  tide__magazine_refill(magazine, list, count);
  if (count != 0 && tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, front, count * tide__pin_class_bytes(class_index));
  }
}

tide__pin* tide__pin_front_take_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index) {
  tide__magazine* const magazine = &front->magazines[class_index].magazine;
  if (magazine->count == 0) magazine_fill_locked(pinned, front, class_index);
  if (magazine->count == 0) return NULL;
  if (tide__pin_is_capped(pinned, class_index)) front->idle_bytes -= tide__pin_class_bytes(class_index);
  return tide__magazine_take(magazine, offsetof(tide__pin, next));
}

void tide__pin_front_put_locked(tide_pinned* pinned, tide__pin_front* front, tide__pin* block) {
  const uint32_t class_index = block->class_index;
  tide__magazine* const magazine = &front->magazines[class_index].magazine;
  if (tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, front, tide__pin_class_bytes(class_index));
  }
  tide__magazine_put(magazine, block, offsetof(tide__pin, next));
  if (magazine->count > magazine->limit) {
    tide__pin_front_flush_locked(pinned, front, class_index, magazine->limit / 2u);
  }
}

void tide__pin_front_flush_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index,
                                  uint32_t keep) {
  tide__magazine* const magazine = &front->magazines[class_index].magazine;
  if (magazine->count <= keep) return;
  if (tide__pin_is_capped(pinned, class_index)) {
    front->idle_bytes -= (magazine->count - keep) * tide__pin_class_bytes(class_index);
    room_spare_locked(pinned, front);
  }
  tide__pin* const list = tide__magazine_cut(magazine, keep, offsetof(tide__pin, next));
  tide__pin_spares_take_locked(pinned, front, list);
  tide__pin_depot_put(pinned, pinned->default_pool, class_index, list);
}

// Takes a front and moves classes of it to the depot.
static void front_rob(tide_pinned* pinned, tide__front* front, uint32_t first_class, uint32_t end_class) {
  tide__pin_front* const f = (tide__pin_front*)(void*)front;
  tide__front_take(front);
  for (uint32_t i = first_class; i < end_class; i++) {
    tide__pin_front_flush_locked(pinned, f, i, 0);
    f->magazines[i].magazine.fill = 0;
  }
  room_spare_locked(pinned, f);
  tide__front_give(front);
}

void tide__pin_fronts_flush(tide_pinned* pinned) {
  tide__front* front = tide__fronts_first(&pinned->fronts);
  for (; front != NULL; front = front->next) front_rob(pinned, front, 0, TIDE__PIN_CLASSES);
}

bool tide__pin_fronts_rob(tide_pinned* pinned, uint32_t class_index, bool is_needed) {
  tide__pin_rack* const rack = &pinned->default_pool->depot.racks[class_index];
  if (!is_needed && tide__load_relaxed(&rack->robberies) <= 0) return false;
  tide__front* front = tide__fronts_first(&pinned->fronts);
  for (; front != NULL; front = front->next) {
    tide__pin_front* const f = (tide__pin_front*)(void*)front;
    if (tide__load_relaxed(&f->magazines[class_index].magazine.head) == NULL) continue;
    (void)tide__add_relaxed(&rack->robberies, -1);
    front_rob(pinned, front, class_index, class_index + 1);
    return true;
  }
  return false;
}
