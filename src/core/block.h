// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A block: a range of addresses inside one segment. The blocks of a segment are a chain in the order of
// addresses without a gap. Records live in a table of handles (base/slots.h) and are freed only with the
// allocator, so that looking one up needs no lock.
#ifndef TIDEMARK_SRC_CORE_BLOCK_H
#define TIDEMARK_SRC_CORE_BLOCK_H

#include "base/slots.h"
#include "base/tree.h"
#include "core/stream_waits.h"

#define TIDE__GRAIN_SHIFT 9  // addresses and sizes of blocks are multiples of 512
#define TIDE__GRAIN ((uint64_t)1 << TIDE__GRAIN_SHIFT)

typedef enum tide__block_state {
  TIDE__BLOCK_SPARE,      // a record without memory
  TIDE__BLOCK_FREE,       // idle; in the free index of its lane
  TIDE__BLOCK_ALLOCATED,  // handed out; in the map
  TIDE__BLOCK_MAGAZINE,   // in the map; handed out if it has a handle, else in a magazine of a thread
  TIDE__BLOCK_PENDING,    // taken back, waiting for work on other streams
  TIDE__BLOCK_UNMAPPED,   // addresses without memory, of an expandable segment or a home
  TIDE__BLOCK_LENT,       // at home: its memory is a piece of a block in a view or a range
  TIDE__BLOCK_VACANT,     // in a view or a range: addresses that no block uses
  TIDE__BLOCK_COMMITTED,  // in a range: handed out, but not in the map
  TIDE__BLOCK_BUSY        // claimed by one thread that grows or shrinks the segment
} tide__block_state;

struct tide__segment;
struct tide__lane;
struct tide__use;
struct tide__markers;

// Do these addresses have memory? Memory that is lent belongs to the addresses of the view or range.
static inline bool tide__state_has_memory(uint8_t state) {
  return state != TIDE__BLOCK_UNMAPPED && state != TIDE__BLOCK_LENT && state != TIDE__BLOCK_VACANT;
}

// [B1] next->address == address + bytes; next->prev == the block
// [B2] address and bytes are multiples of TIDE__GRAIN; bytes > 0
// [B3] prev and next are never in the same state FREE, UNMAPPED or VACANT as the block itself
typedef struct tide__block {
  // The first cache line: what a walk along the chain touches.
  _Alignas(64) tide__slot slot;
  uint64_t address;
  uint64_t bytes;
  struct tide__block* prev;  // borrowed, shared under the lane's lock, like every pointer here
  struct tide__block* next;
  uint64_t tie;   // orders free blocks of equal size: the address, or the age of the segment
  uint8_t state;  // a tide__block_state
  bool is_small;
  bool is_scoped;          // it was released inside a scope and waits for its end
  bool is_public;          // it has a handle and can be found by its address; otherwise it is only counted
  bool is_borrowed;        // of a private pool, handed out to a request of the default one
  uint16_t note;           // its place among the noted blocks of its home plus 1; 0: it is not noted
  tide__atomic_u32 stack;  // of the request
  // The second cache line: a heap of blocks of one size (bins.c) or a list of spare records, and fields that
  // only its own call touches.
  struct tide__block* heap_child;
  struct tide__block* heap_next;
  struct tide__block* heap_prev;     // the parent, for a first child
  struct tide__segment* segment;     // NULL: a record without memory, or uncached memory
  _Atomic(struct tide__lane*) lane;  // the segment's; NULL for uncached memory. A stale handle may read it
  tide__atomic_u64 requested_bytes;  // of the last request that had it
  struct tide__use* uses;            // streams that were announced
  tide__atomic_u32 use_word;         // 0: no use is announced or about to be: see device/tide/tcache.c
  tide__atomic_u32 magazine;         // of a block for magazines: its class plus 1; 0 for all others
  // Rarely used fields.
  uint64_t stamp;                 // searches of its free index when it became idle
  uint64_t last_use;              // its lane's stamp when it was released; 0: none: see device/stream/marks.c
  struct tide__markers* markers;  // owned; where its streams stood in a capture: see device/stream/capture.c
  tide__waiter waiter;            // while it is PENDING
  tide__tree_node tree;           // in the bins, when it is too large for a heap; or among the unmapped ones
  struct tide__block* list_next;  // in a list made for one purpose
  struct tide__block* pieces;     // of a block in a view or a range: what it is made of, by heap_next
} tide__block;

// Is the block handed out to a user of the library?
static inline bool tide__block_is_handed_out(const tide__block* block) {
  if (block->state != TIDE__BLOCK_MAGAZINE)
    return block->state == TIDE__BLOCK_ALLOCATED || block->state == TIDE__BLOCK_COMMITTED;
  return (tide__load_acquire(&block->slot.generation) & 1u) != 0;  // pairs with tide__slots_publish
}

static inline struct tide__lane* tide__block_lane(const tide__block* block) {
  return tide__load_relaxed(&block->lane);
}

static inline uint64_t tide__block_end(const tide__block* block) { return block->address + block->bytes; }

#endif
