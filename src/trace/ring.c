// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ring of entries. An entry's number says where it lies, so adding is one store of 48 bytes and copying
// at most two runs. A ring that changes its size is moved in pieces while entries go on being added: the
// thread that resizes fills the new memory up to the newest entry and then puts it in place, all of it by
// numbers, so that whatever else happens between two pieces (entries, a clear, another resize) is seen.
//
// Cost: O(1) to add; O(n) to copy and to resize, with the lock held for a piece at a time.
// Lock: TIDE__RANK_HISTORY. The heap is called without it.
#include "trace/ring.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"

#define RING_PIECE 256u  // entries moved at a time: 12 KiB, a few hundred ns

void tide__ring_init(tide__ring* ring, const tide_heap* heap) {
  *ring = (tide__ring){ .heap = heap };
  tide__mutex_init(&ring->lock, TIDE__RANK_HISTORY);
}

void tide__ring_fini(tide__ring* ring) {
  tide__heap_release(ring->heap, ring->entries, ring->capacity, sizeof *ring->entries);
  tide__mutex_fini(&ring->lock);
}

void tide__ring_add(tide__ring* ring, const tide_trace_entry* entry) {
  tide__mutex_lock(&ring->lock);
  if (ring->capacity != 0) {
    ring->entries[ring->next++ % ring->capacity] = *entry;
    if (ring->count < ring->capacity) ring->count++;
  }
  tide__mutex_unlock(&ring->lock);
}

void tide__ring_clear(tide__ring* ring) {
  tide__mutex_lock(&ring->lock);
  ring->count = 0;
  tide__mutex_unlock(&ring->lock);
}

void tide__ring_range(tide__ring* ring, uint64_t* out_first, uint64_t* out_next) {
  tide__mutex_lock(&ring->lock);
  *out_first = ring->next - ring->count;
  *out_next = ring->next;
  tide__mutex_unlock(&ring->lock);
}

// Copies the entries from `number` on, all of them kept.
static void ring_copy_locked(const tide__ring* ring, uint64_t number, tide_trace_entry* out, uint64_t count)
    TIDE_REQUIRES(&ring->lock) {
  const uint64_t place = number % ring->capacity;
  const uint64_t run = tide__min(count, ring->capacity - place);
  memcpy(out, ring->entries + place, run * sizeof *out);
  memcpy(out + run, ring->entries, (count - run) * sizeof *out);
}

size_t tide__ring_copy(tide__ring* ring, uint64_t* number, uint64_t end, tide_trace_entry* out, size_t room) {
  tide__mutex_lock(&ring->lock);
  const uint64_t from = tide__max(*number, ring->next - ring->count);
  const uint64_t to = tide__min(end, ring->next);
  const uint64_t count = from < to ? tide__min(to - from, room) : 0;
  if (count != 0) ring_copy_locked(ring, from, out, count);
  tide__mutex_unlock(&ring->lock);
  *number = from + count;
  return count;
}

// New memory of a ring, with the entries below `number` in it, as far as they are still wanted.
typedef struct ring_move {
  tide_trace_entry* entries;  // owned; the ring's old memory when the move is done
  uint64_t capacity;
  uint64_t number;
} ring_move;

static void ring_swap_locked(tide__ring* ring, ring_move* move) TIDE_REQUIRES(&ring->lock) {
  const ring_move old = { ring->entries, ring->capacity, 0 };
  ring->entries = move->entries;
  ring->capacity = move->capacity;
  ring->count = tide__min(ring->count, ring->capacity);
  *move = old;
}

// Moves one piece, and swaps the memory when all is there; then it returns true.
static bool ring_move_locked(tide__ring* ring, ring_move* move) TIDE_REQUIRES(&ring->lock) {
  const uint64_t kept = tide__min(ring->count, move->capacity);
  move->number = tide__max(move->number, ring->next - kept);
  const uint64_t left = ring->next - move->number;
  if (left != 0) {
    const uint64_t place = move->number % move->capacity;
    const uint64_t piece = tide__min(tide__min(left, RING_PIECE), move->capacity - place);
    ring_copy_locked(ring, move->number, move->entries + place, piece);
    move->number += piece;
  }
  if (move->number != ring->next) return false;
  ring_swap_locked(ring, move);
  return true;
}

static bool ring_has_capacity(tide__ring* ring, uint64_t capacity) {
  tide__mutex_lock(&ring->lock);
  const bool is_same = ring->capacity == capacity;
  tide__mutex_unlock(&ring->lock);
  return is_same;
}

tide_status tide__ring_resize(tide__ring* ring, uint64_t capacity) {
  TIDE_ASSERT_UNLOCKED();
  if (ring_has_capacity(ring, capacity)) return TIDE_OK;
  ring_move move = { NULL, capacity, 0 };
  if (capacity != 0) move.entries = tide__heap_alloc(ring->heap, capacity, sizeof *move.entries);
  if (capacity != 0 && move.entries == NULL) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "history: no memory for %llu entries", (unsigned long long)capacity);
  }
  for (bool is_done = false; !is_done;) {
    tide__mutex_lock(&ring->lock);
    is_done = ring_move_locked(ring, &move);
    tide__mutex_unlock(&ring->lock);
  }
  tide__heap_release(ring->heap, move.entries, move.capacity, sizeof *move.entries);
  return TIDE_OK;
}
