// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ring of entries. Adding is one atomic addition, which returns the number of the entry, and stores to
// the slot of that number. A thread waits for another one only if that one stopped in the middle of an entry
// while a whole ring of others was added, or while the ring is closed.
//
// Reading does not disturb writers. It copies words as they are, and then checks `next` to find which of them
// may have been overwritten. That check is itself an atomic addition, of 0, so it is ordered among the draws
// of numbers: it sees the draws before it, and words of later draws are written after they were read.
//
// To clear or resize, entries are copied while others are added. Then the ring is closed, threads that have
// drawn a number finish, and their entries are copied too. The ring opens with the other of two memories; the
// number that a thread draws says which one. So every address that a thread uses depends on its addition, and
// no stronger order is needed. Numbers drawn from a closed ring are void: `next` is set when it opens.
//
// Cost: O(1) to add; O(n) to copy, to clear and to resize.
// Lock: TIDE__RANK_HISTORY, except to add. The heap is called without it.
#include "trace/ring.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"

void tide__ring_init(tide__ring* ring, const tide_heap* heap) {
  *ring = (tide__ring){ .heap = heap, .next = TIDE__RING_IS_OFF };
  tide__mutex_init(&ring->lock, TIDE__RANK_HISTORY);
}

static void memory_free(const tide__ring* ring, const tide__ring_memory* memory) {
  tide__heap_release(ring->heap, memory->slots, memory->mask + 1, sizeof *memory->slots);
}

void tide__ring_fini(tide__ring* ring) {
  memory_free(ring, &ring->memories[ring->side]);
  tide__mutex_fini(&ring->lock);
}

// ---------------------------------------------------------------------------------------------------
// Slots

// Waits until the entry with this number, or a later one in its slot, is complete.
static inline void slot_await(const tide__ring_slot* slot, uint64_t number) {
  // pairs with the release in tide__ring_add
  for (uint32_t i = 0; tide__load_acquire(&slot->turn) <= number; i++) tide__wait_a_moment(i);
}

static inline void slot_read(const tide__ring_slot* slot, tide_trace_entry* out) {
  const uint64_t origin = tide__load_relaxed(&slot->words[4]);
  const uint64_t rest = tide__load_relaxed(&slot->words[5]);
  *out = (tide_trace_entry){
    .time_ns = tide__load_relaxed(&slot->words[0]),
    .address = tide__load_relaxed(&slot->words[1]),
    .bytes = tide__load_relaxed(&slot->words[2]),
    .stream = tide__load_relaxed(&slot->words[3]),
    .stack = (uint32_t)origin,
    .note = (uint32_t)(origin >> 32),
    .pool = (uint32_t)rest,
    .action = (uint8_t)(rest >> 32),
    .device = (uint8_t)(rest >> 40),
    .absent = (uint16_t)(rest >> 48),
  };
}

// ---------------------------------------------------------------------------------------------------
// The rare cases of adding

static bool ring_is_closed(const tide__ring* ring) {
  return (tide__load_relaxed(&ring->next) & TIDE__RING_IS_CLOSED) != 0;
}

uint64_t tide__ring_draw_late(tide__ring* ring, uint64_t drawn) {
  while ((drawn & TIDE__RING_IS_CLOSED) != 0) {
    for (uint32_t i = 0; ring_is_closed(ring); i++) tide__wait_a_moment(i);
    drawn = tide__add_ordered(&ring->next, 1);  // pairs with the release in ring_open_locked
  }
  return tide__min(drawn, TIDE__RING_IS_OFF);
}

void tide__ring_await_turn(const tide__ring_memory* memory, uint64_t number) {
  if (number - memory->first <= memory->mask) return;
  slot_await(tide__slot_of(memory, number), number - memory->mask - 1);
}

// ---------------------------------------------------------------------------------------------------
// Reading

// The oldest kept entry, if `next` is the one after the newest.
static uint64_t memory_oldest(const tide__ring_memory* memory, uint64_t next) {
  return next - tide__min(next - memory->first, memory->capacity);
}

static uint64_t ring_next_locked(const tide__ring* ring) TIDE_REQUIRES(&ring->lock) {
  const tide__ring_memory* const memory = &ring->memories[ring->side];
  return memory->capacity != 0 ? tide__load_relaxed(&ring->next) & TIDE__RING_NUMBERS : memory->first;
}

void tide__ring_range(tide__ring* ring, uint64_t* out_first, uint64_t* out_next) {
  tide__mutex_lock(&ring->lock);
  *out_next = ring_next_locked(ring);
  *out_first = memory_oldest(&ring->memories[ring->side], *out_next);
  tide__mutex_unlock(&ring->lock);
}

// Copies kept entries. Returns how many of the first ones may have been overwritten by later entries.
static uint64_t ring_read_locked(tide__ring* ring, uint64_t number, tide_trace_entry* out, uint64_t count)
    TIDE_REQUIRES(&ring->lock) {
  const tide__ring_memory* const memory = &ring->memories[ring->side];
  if (count == 0) return 0;
  for (uint64_t i = 0; i < count; i++) {
    tide__ring_slot* const slot = tide__slot_of(memory, number + i);
    slot_await(slot, number + i);
    slot_read(slot, &out[i]);
  }
  // pairs with the ordered addition in tide__ring_add
  const uint64_t next = tide__add_release(&ring->next, 0) & TIDE__RING_NUMBERS;
  const uint64_t oldest = memory_oldest(memory, next);
  return oldest > number ? tide__min(oldest - number, count) : 0;
}

size_t tide__ring_copy(tide__ring* ring, uint64_t* number, uint64_t end, tide_trace_entry* out, size_t room) {
  uint64_t count = 0;
  uint64_t lost = 0;
  tide__mutex_lock(&ring->lock);
  do {
    const uint64_t next = ring_next_locked(ring);
    const uint64_t from = tide__max(*number, memory_oldest(&ring->memories[ring->side], next));
    const uint64_t to = tide__min(end, next);
    count = from < to ? tide__min(to - from, room) : 0;
    lost = ring_read_locked(ring, from, out, count);
    *number = from + count;
  } while (count != 0 && lost == count);
  tide__mutex_unlock(&ring->lock);
  if (lost != 0) memmove(out, out + lost, (count - lost) * sizeof *out);
  return count - lost;
}

// Threads read the clock before they draw a number. Putting times right here costs writers nothing.
static uint64_t entries_order(tide_trace_entry* entries, size_t count, uint64_t latest_ns) {
  for (size_t i = 0; i < count; i++) {
    latest_ns = tide__max(latest_ns, entries[i].time_ns);
    entries[i].time_ns = latest_ns;
  }
  return latest_ns;
}

tide_status tide__ring_visit(tide__ring* ring,
                             bool (*function)(void* user, const tide_trace_entry* entries, size_t count),
                             void* user) {
  enum { PIECE = 512 };
  tide_trace_entry* const piece = tide__heap_alloc(ring->heap, PIECE, sizeof *piece);
  TIDE_REQUIRE(piece != NULL, TIDE_ERR_NO_MEMORY, "history_visit: no memory for a piece");
  uint64_t number = 0;
  uint64_t end = 0;
  uint64_t latest_ns = 0;
  tide__ring_range(ring, &number, &end);
  for (;;) {
    const size_t count = tide__ring_copy(ring, &number, end, piece, PIECE);
    latest_ns = entries_order(piece, count, latest_ns);
    if (count == 0 || !function(user, piece, count)) break;
  }
  tide__heap_release(ring->heap, piece, PIECE, sizeof *piece);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Clearing and resizing

// Waits for entries, and copies them unless they are discarded. Some may be overwritten meanwhile: these are
// too old to be kept.
static void memory_carry(const tide__ring_memory* from, const tide__ring_memory* to, uint64_t number,
                         uint64_t end) {
  for (; number < end; number++) {
    tide__ring_slot* const slot = tide__slot_of(from, number);
    tide_trace_entry entry;
    slot_await(slot, number);
    if (to->capacity == 0) continue;
    slot_read(slot, &entry);
    tide__slot_write(tide__slot_of(to, number), &entry);
    tide__store_relaxed(&tide__slot_of(to, number)->turn, number + 1);
  }
}

// Copies the entries, and closes the ring when few are left. Afterwards no thread adds to its memory: all
// that drew a number have written, also those before the oldest entry, because later ones waited for them.
// Returns the number of the next entry.
static uint64_t ring_close_locked(tide__ring* ring, const tide__ring_memory* to) TIDE_REQUIRES(&ring->lock) {
  const tide__ring_memory* const from = &ring->memories[ring->side];
  const uint64_t next = ring_next_locked(ring);
  if (from->capacity == 0) return next;
  memory_carry(from, to, next - tide__min(next - from->first, from->mask + 1), next);
  const uint64_t end = atomic_fetch_or_explicit(&ring->next, TIDE__RING_IS_CLOSED, memory_order_relaxed) &
                       TIDE__RING_NUMBERS;
  memory_carry(from, to, next, end);
  return end;
}

static void ring_open_locked(tide__ring* ring, const tide__ring_memory* memory, uint64_t next)
    TIDE_REQUIRES(&ring->lock) {
  ring->side = 1 - ring->side;
  ring->memories[ring->side] = *memory;
  const uint64_t side = (uint64_t)ring->side << TIDE__RING_SIDE_SHIFT;
  // pairs with the ordered addition in tide__ring_add
  tide__store_release(&ring->next, memory->capacity != 0 ? side | next : TIDE__RING_IS_OFF);
}

void tide__ring_clear(tide__ring* ring) {
  const tide__ring_memory nothing = { .slots = NULL };
  tide__mutex_lock(&ring->lock);
  tide__ring_memory memory = ring->memories[ring->side];
  memory.first = ring_close_locked(ring, &nothing);
  ring_open_locked(ring, &memory, memory.first);
  tide__mutex_unlock(&ring->lock);
}

// Moves the ring to other memory; returns the old one.
static tide__ring_memory ring_move(tide__ring* ring, tide__ring_memory memory) {
  tide__mutex_lock(&ring->lock);
  const uint64_t next = ring_close_locked(ring, &memory);
  const tide__ring_memory old = ring->memories[ring->side];
  memory.first = tide__max(memory_oldest(&old, next), next - tide__min(next, memory.capacity));
  ring_open_locked(ring, &memory, next);
  tide__mutex_unlock(&ring->lock);
  return old;
}

static bool ring_has_capacity(tide__ring* ring, uint64_t capacity) {
  tide__mutex_lock(&ring->lock);
  const bool is_same = ring->memories[ring->side].capacity == capacity;
  tide__mutex_unlock(&ring->lock);
  return is_same;
}

// The next power of two; 0 if there is none.
static uint64_t slots_for(uint64_t capacity) {
  uint64_t count = 1;
  while (count < capacity && count != 0) count *= 2;
  return count;
}

tide_status tide__ring_resize(tide__ring* ring, uint64_t capacity) {
  TIDE_ASSERT_UNLOCKED();
  if (ring_has_capacity(ring, capacity)) return TIDE_OK;
  tide__ring_memory memory = { .capacity = capacity, .mask = slots_for(capacity) - 1 };
  if (capacity != 0) memory.slots = tide__heap_alloc(ring->heap, memory.mask + 1, sizeof *memory.slots);
  if (capacity != 0 && memory.slots == NULL) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "history: no memory for %llu entries", (unsigned long long)capacity);
  }
  const tide__ring_memory old = ring_move(ring, memory);
  memory_free(ring, &old);
  return TIDE_OK;
}
