// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One table of interned byte strings, numbered densely from 1 in the order they were added. tide_intern has
// one for each kind of value.
#ifndef TIDEMARK_SRC_TRACE_INTERN_TABLE_H
#define TIDEMARK_SRC_TRACE_INTERN_TABLE_H

#include "base/atomic.h"
#include "base/lock.h"
#include "tidemark/trace.h"

#define TIDE__INTERN_FIRST_CHUNK 64u  // pointers in chunk 0
#define TIDE__INTERN_CHUNKS 26u       // so that every number has 32 bits

typedef struct tide__intern_value {
  uint64_t hash;
  uint64_t bytes;   // of the data, without the zero byte after a text
  uint64_t data[];  // aligned for frames; texts and notes lie here as well
} tide__intern_value;

typedef _Atomic(const tide__intern_value*)
    tide__intern_entry;  // borrowed from a block; NULL: not given out yet

// [V1] used <= bytes; after used all bytes are 0
typedef struct tide__intern_block {
  struct tide__intern_block* next;  // owned
  size_t bytes;                     // of the block, this header included
  size_t used;                      // likewise
} tide__intern_block;

typedef struct tide__intern_slot {
  uint32_t tag;     // the upper half of the hash, which rules out most other values
  uint32_t number;  // 0: empty
} tide__intern_slot;

// [I1] slot_count is 0 or a power of two; count <= slot_count / 4 * 3
// [I2] tide__intern_chunk_of(n - 1) leads to the value with number n, for 1 <= n <= count, and above to NULL
// [I3] the slots name each number from 1 to count once, and a search by the value's own hash meets it
// [I4] memory == bytes of the slots, the chunks and the blocks
typedef struct tide__intern_table {
  tide__mutex lock;
  tide__intern_slot* slots;    // owned; shared under lock
  size_t slot_count;           // shared under lock
  tide__intern_block* blocks;  // owned; shared under lock; the first is the one with most room
  tide__atomic_u32 count;      // of values; rises under lock
  tide__atomic_u64 memory;
  _Atomic(tide__intern_entry*)
      chunks[TIDE__INTERN_CHUNKS];  // owned; chunk k has TIDE__INTERN_FIRST_CHUNK << k pointers
} tide__intern_table;

void tide__intern_table_init(tide__intern_table* table);
void tide__intern_table_fini(tide__intern_table* table, const tide_heap* heap);

// Adds `bytes` bytes, at least one, with `zeros` zero bytes after them; or finds them.
// Errors: TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT when the table is full.
tide_status tide__intern_table_add(tide__intern_table* table, const tide_heap* heap, const void* data,
                                   size_t bytes, size_t zeros, uint32_t* out);

// The number of the first invariant that does not hold, 0 if all do. O(n), with the lock held.
int tide__intern_table_check(tide__intern_table* table);

// The chunk of an index, and the place in it.
static inline uint32_t tide__intern_chunk_of(uint32_t index, uint32_t* out_place) {
  const uint32_t scaled = index / TIDE__INTERN_FIRST_CHUNK + 1;
  const uint32_t chunk = 31u - (uint32_t)__builtin_clz(scaled);
  *out_place = index - TIDE__INTERN_FIRST_CHUNK * ((1u << chunk) - 1);
  return chunk;
}

// The value with a number, or NULL. Takes no lock.
static inline const tide__intern_value* tide__intern_at(const tide__intern_table* table, uint32_t number) {
  uint32_t place = 0;
  if (number == 0) return NULL;
  const uint32_t chunk = tide__intern_chunk_of(number - 1, &place);
  if (chunk >= TIDE__INTERN_CHUNKS) return NULL;
  // The chunk pairs with intern_chunk_ready_locked, the value with intern_publish_locked.
  tide__intern_entry* const entries = tide__load_acquire(&table->chunks[chunk]);
  return entries != NULL ? tide__load_acquire(&entries[place]) : NULL;
}

#endif
