// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of a cache: the newest entries, in the order they were added. Entries are numbered from 0 for
// ever, and the ring keeps the last `capacity` of them. Threads add without a lock: each draws a number,
// which decides the order, and writes the slot of that number, a cache line that it owns until it is done.
// Readers copy slots while others write; resizing stops writers briefly.
#ifndef TIDEMARK_SRC_TRACE_RING_H
#define TIDEMARK_SRC_TRACE_RING_H

#include "base/heap.h"
#include "base/lock.h"
#include "tidemark/trace.h"

typedef struct tide__ring_slot {
  _Alignas(64) tide__atomic_u64 turn;  // the number of the last entry that is whole, plus 1; 0 before
  tide__atomic_u64 words[6];           // the entry
} tide__ring_slot;
_Static_assert(sizeof(tide__ring_slot) == 64, "a slot is a cache line");

// The memory of the entries. It never changes while a thread may add to it: see ring.c.
typedef struct tide__ring_memory {
  tide__ring_slot* slots;  // owned; NULL while nothing is kept
  uint64_t mask;           // the number of slots, a power of two, less 1
  uint64_t capacity;
  uint64_t first;  // the first number that is kept in it
} tide__ring_memory;

// [R1] kept are the entries from max(first, next - capacity) to below next
// [R2] the entry with number n is in slots[n & mask], and is whole when the slot's turn is n + 1
// [R3] entry n is written when the one before it in its slot is whole, or below `first`: never by two at once
typedef struct tide__ring {
  const tide_heap* heap;  // borrowed until fini
  tide__mutex lock;       // held to read, clear and resize, but not to add
  uint32_t side;          // which memory is in use; under lock
  tide__ring_memory memories[2];
  _Alignas(64) tide__atomic_u64 next;  // number of the next entry, and flags: see ring.c
} tide__ring;

void tide__ring_init(tide__ring* ring, const tide_heap* heap);
void tide__ring_fini(tide__ring* ring);

// Changes the capacity and keeps the newest entries. 0 releases the memory. The memory is 64 bytes per entry,
// with the capacity rounded up to a power of two. The heap is called with no lock held.
// Errors: TIDE_ERR_NO_MEMORY, with the ring as it was.
tide_status tide__ring_resize(tide__ring* ring, uint64_t capacity);
// Discards all entries; numbers continue.
void tide__ring_clear(tide__ring* ring);

// Adds an entry; does nothing if the capacity is 0. Entries are in the order of these calls, if they have
// one. May be called with any locks held.
static inline void tide__ring_add(tide__ring* ring, const tide_trace_entry* entry);

// The numbers of the oldest entry and of the one after the newest.
void tide__ring_range(tide__ring* ring, uint64_t* out_first, uint64_t* out_next);
// Copies up to `room` entries from number *number on, oldest first, and moves *number past them and over
// entries that are gone. Returns how many; 0 at `end`. One call copies consecutive numbers. Waits for entries
// before `end` that a thread is about to write.
size_t tide__ring_copy(tide__ring* ring, uint64_t* number, uint64_t end, tide_trace_entry* out, size_t room);
// Calls the function with the present entries, oldest first, in pieces, until it returns false. No lock is
// held meanwhile. An entry whose time is before that of an older one gets the latest time so far.
// Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__ring_visit(tide__ring* ring,
                             bool (*function)(void* user, const tide_trace_entry* entries, size_t count),
                             void* user);

// ---------------------------------------------------------------------------------------------------
// Adding. Inline, so that an entry goes from registers to its slot.

// Flags of `next`, above all numbers.
#define TIDE__RING_IS_CLOSED (UINT64_C(1) << 63)  // for a short time: threads that add must wait
#define TIDE__RING_IS_OFF (UINT64_C(1) << 62)     // no capacity: entries are discarded
#define TIDE__RING_SIDE_SHIFT 61u                 // which memory is in use
#define TIDE__RING_NUMBERS ((UINT64_C(1) << TIDE__RING_SIDE_SHIFT) - 1)

static inline tide__ring_slot* tide__slot_of(const tide__ring_memory* memory, uint64_t number) {
  return &memory->slots[number & memory->mask];
}

// Small fields share a word.
static inline void tide__slot_write(tide__ring_slot* slot, const tide_trace_entry* entry) {
  const uint64_t kind = (uint64_t)entry->action | (uint64_t)entry->device << 8;
  tide__store_relaxed(&slot->words[0], entry->time_ns);
  tide__store_relaxed(&slot->words[1], entry->address);
  tide__store_relaxed(&slot->words[2], entry->bytes);
  tide__store_relaxed(&slot->words[3], entry->stream);
  tide__store_relaxed(&slot->words[4], (uint64_t)entry->note << 32 | entry->stack);
  tide__store_relaxed(&slot->words[5], (uint64_t)entry->absent << 48 | kind << 32 | entry->pool);
}

// The rare cases of adding. The first draws again until the ring is open, and returns TIDE__RING_IS_OFF if it
// is off. The second waits until the previous entry in the slot is complete, if there is one.
uint64_t tide__ring_draw_late(tide__ring* ring, uint64_t drawn);
void tide__ring_await_turn(const tide__ring_memory* memory, uint64_t number);

static inline void tide__ring_add(tide__ring* ring, const tide_trace_entry* entry) {
  uint64_t drawn = tide__add_ordered(&ring->next, 1);  // pairs with the release in ring_open_locked
  if (drawn >= TIDE__RING_IS_OFF) {
    drawn = tide__ring_draw_late(ring, drawn);
    if (drawn == TIDE__RING_IS_OFF) return;
  }
  const tide__ring_memory* const memory = &ring->memories[drawn >> TIDE__RING_SIDE_SHIFT];
  const uint64_t number = drawn & TIDE__RING_NUMBERS;
  tide__ring_slot* const slot = tide__slot_of(memory, number);
  const uint64_t turn = number - memory->mask;
  // pairs with the release below
  if (tide__load_acquire(&slot->turn) < turn) tide__ring_await_turn(memory, number);
  tide__slot_write(slot, entry);
  tide__store_release(&slot->turn, number + 1);  // pairs with the acquires above and in slot_await
}

#endif
