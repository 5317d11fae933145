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
    const uint64_t bytes = tide__pin_class_bytes(i);
    const uint64_t many = tide__max(FRONT_LEAST, tide__min(FRONT_MOST, FRONT_CLASS_BYTES / bytes));
    f->shelves[i].limit = bytes <= TIDE__PIN_FRONT_BYTES ? (uint8_t)many : 0;
    f->shelves[i].units = (uint32_t)tide__class_units(i);
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

static void shelf_fill_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index) {
  tide__pin_shelf* const shelf = &front->shelves[class_index];
  const uint64_t wanted = tide__max(1, tide__min((uint64_t)shelf->fill * 2, shelf->limit / 2u));
  shelf->fill = (uint8_t)wanted;
  tide__pin* list = NULL;
  shelf->count =
      (uint8_t)tide__pin_depot_take(pinned, pinned->default_pool, class_index, (uint32_t)wanted, &list);
  tide__store_relaxed(&shelf->head, list);
  if (shelf->count != 0 && tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, front, shelf->count * tide__pin_class_bytes(class_index));
  }
}

tide__pin* tide__pin_front_take_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index) {
  tide__pin_shelf* const shelf = &front->shelves[class_index];
  if (tide__load_relaxed(&shelf->head) == NULL) shelf_fill_locked(pinned, front, class_index);
  tide__pin* const block = tide__load_relaxed(&shelf->head);
  if (block == NULL) return NULL;
  tide__store_relaxed(&shelf->head, block->next);
  shelf->count--;
  if (tide__pin_is_capped(pinned, class_index)) front->idle_bytes -= tide__pin_class_bytes(class_index);
  return block;
}

void tide__pin_front_put_locked(tide_pinned* pinned, tide__pin_front* front, tide__pin* block) {
  const uint32_t class_index = block->class_index;
  tide__pin_shelf* const shelf = &front->shelves[class_index];
  if (tide__pin_is_capped(pinned, class_index)) {
    room_come_locked(pinned, front, tide__pin_class_bytes(class_index));
  }
  block->next = tide__load_relaxed(&shelf->head);
  tide__store_relaxed(&shelf->head, block);
  if (++shelf->count > shelf->limit) {
    tide__pin_front_flush_locked(pinned, front, class_index, shelf->limit / 2u);
  }
}

// Cuts the list behind the newest blocks and returns the others.
static tide__pin* shelf_cut(tide__pin_shelf* shelf, uint32_t keep) {
  tide__pin* list = tide__load_relaxed(&shelf->head);
  tide__pin* last = NULL;
  for (uint32_t i = 0; i < keep; i++) {
    last = list;
    list = list->next;
  }
  if (last != NULL) last->next = NULL;
  else tide__store_relaxed(&shelf->head, NULL);
  return list;
}

void tide__pin_front_flush_locked(tide_pinned* pinned, tide__pin_front* front, uint32_t class_index,
                                  uint32_t keep) {
  tide__pin_shelf* const shelf = &front->shelves[class_index];
  if (shelf->count <= keep) return;
  tide__pin* const list = shelf_cut(shelf, keep);
  if (tide__pin_is_capped(pinned, class_index)) {
    front->idle_bytes -= (shelf->count - keep) * tide__pin_class_bytes(class_index);
    room_spare_locked(pinned, front);
  }
  shelf->count = (uint8_t)keep;
  tide__pin_spares_take_locked(pinned, front, list);
  tide__pin_depot_put(pinned, pinned->default_pool, class_index, list);
}

// Takes a front and moves classes of it to the depot.
static void front_rob(tide_pinned* pinned, tide__front* front, uint32_t first_class, uint32_t end_class) {
  tide__pin_front* const f = (tide__pin_front*)(void*)front;
  tide__front_take(front);
  for (uint32_t i = first_class; i < end_class; i++) {
    tide__pin_front_flush_locked(pinned, f, i, 0);
    f->shelves[i].fill = 0;
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
    if (tide__load_relaxed(&f->shelves[class_index].head) == NULL) continue;
    (void)tide__add_relaxed(&rack->robberies, -1);
    front_rob(pinned, front, class_index, class_index + 1);
    return true;
  }
  return false;
}
