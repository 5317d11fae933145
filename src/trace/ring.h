// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of an allocator: the newest entries, in the order they were added. Entries are numbered from 0
// for ever; the ring keeps the last `capacity` of them. The lock is held for one entry, or for a piece of a
// copy.
#ifndef TIDEMARK_SRC_TRACE_RING_H
#define TIDEMARK_SRC_TRACE_RING_H

#include "base/heap.h"
#include "base/lock.h"
#include "tidemark/trace.h"

// [R1] count <= next; count <= capacity
// [R2] the entry with number n, next - count <= n < next, is entries[n % capacity]
typedef struct tide__ring {
  const tide_heap* heap;  // borrowed until fini
  tide__mutex lock;
  tide_trace_entry* entries;  // owned; NULL while capacity is 0; shared under lock, like all below
  uint64_t capacity;
  uint64_t next;   // number of the next entry
  uint64_t count;  // entries kept
} tide__ring;

void tide__ring_init(tide__ring* ring, const tide_heap* heap);
void tide__ring_fini(tide__ring* ring);

// Changes how many entries are kept; the newest stay. 0 gives the memory back. Memory is taken and given with
// no lock held. Errors: TIDE_ERR_NO_MEMORY, with the ring as it was.
tide_status tide__ring_resize(tide__ring* ring, uint64_t capacity);
// Forgets all entries; numbers go on.
void tide__ring_clear(tide__ring* ring);

// Adds one entry; nothing when the capacity is 0. May be called with locks below TIDE__RANK_HISTORY held.
void tide__ring_add(tide__ring* ring, const tide_trace_entry* entry);

// The numbers of the oldest entry and of the one after the newest.
void tide__ring_range(tide__ring* ring, uint64_t* out_first, uint64_t* out_next);
// Copies up to `room` entries from number *number on, oldest first; moves *number behind the last one copied,
// and over entries that are gone already. Returns how many; 0 at `end`. What one call copies has consecutive
// numbers.
size_t tide__ring_copy(tide__ring* ring, uint64_t* number, uint64_t end, tide_trace_entry* out, size_t room);

#endif
