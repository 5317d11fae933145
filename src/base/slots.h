// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A table of objects that are named by handles instead of addresses. A handle is {generation, kind, index}.
// The objects never move and live as long as the table. So a handle that is stale, invented or of another
// kind is recognised without touching freed memory. A lookup takes no lock.
#ifndef TIDEMARK_SRC_BASE_SLOTS_H
#define TIDEMARK_SRC_BASE_SLOTS_H

#include "base/atomic.h"
#include "base/heap.h"
#include "base/lock.h"

// The first field of every object in a table.
typedef struct tide__slot {
  tide__atomic_u32 generation;  // odd: the object has a valid handle
  uint32_t index;
  struct tide__slot* next_free;  // borrowed; shared under the table's lock
} tide__slot;

#define TIDE__SLOT_CHUNKS 22  // so that an index has 28 bits

typedef struct tide__slots {
  const tide_heap* heap;  // borrowed until fini
  size_t item_bytes;
  uint32_t kind;                  // 0 to 15; in every handle
  void (*item_init)(void* item);  // (optional) called once for each new object
  void (*item_fini)(void* item);  // (optional) called before its memory is freed
  tide__mutex lock;
  tide__atomic_u32 count;                    // objects made so far; increased under lock
  tide__slot* first_free;                    // shared under lock
  _Atomic(char*) chunks[TIDE__SLOT_CHUNKS];  // owned; chunk k has 64 << k objects
} tide__slots;

#define TIDE__SLOT_FIRST_CHUNK 64u
#define TIDE__SLOT_FIRST_HANDLE 16u  // lower values are reserved for special handles
#define TIDE__SLOT_KIND_SHIFT 28u    // the lower bits are the index
#define TIDE__SLOT_INDEX_MASK ((1u << TIDE__SLOT_KIND_SHIFT) - 1)

void tide__slots_init(tide__slots* slots, const tide_heap* heap, uint32_t kind, size_t item_bytes,
                      void (*item_init)(void*), void (*item_fini)(void*));
void tide__slots_fini(tide__slots* slots);

// Returns an object without a handle, or NULL if there is no memory. Its fields keep their last values.
void* tide__slots_take(tide__slots* slots);
// Invalidates a handle and returns its object. NULL if the handle is not valid, or another thread was faster.
void* tide__slots_claim(tide__slots* slots, uint64_t handle);
// Like claim, for an object that has a valid handle. The caller holds a lock that guards the end of its
// handles.
static inline void tide__slots_end(void* item) {
  tide__slot* const slot = item;
  tide__store_release(&slot->generation,
                      tide__load_relaxed(&slot->generation) + 1);  // pairs with tide__slots_find
}
// Undoes a claim: the old handle, which is returned, is valid again. Only for the thread that claimed it, and
// if a failed lookup in the meantime does no harm.
uint64_t tide__slots_unclaim(const tide__slots* slots, void* item);
// Like claim, for the current handle of an object. Returns false if it has none.
bool tide__slots_retire(void* item);
// Returns an object without a handle to the table.
void tide__slots_give(tide__slots* slots, void* item);

// The number of objects ever made, and the object at an index below it, with or without a handle.
uint32_t tide__slots_count(const tide__slots* slots);
void* tide__slots_at(tide__slots* slots, uint32_t index);

// ---------------------------------------------------------------------------------------------------
// Inline functions: the work for every use of a handle

static inline uint32_t tide__slot_chunk(uint32_t index, uint32_t* out_place) {
  const uint32_t scaled = index / TIDE__SLOT_FIRST_CHUNK + 1;
  const uint32_t chunk = 31u - (uint32_t)__builtin_clz(scaled);
  *out_place = index - TIDE__SLOT_FIRST_CHUNK * ((1u << chunk) - 1);
  return chunk;
}

static inline void* tide__slots_place(tide__slots* slots, uint32_t index) {
  uint32_t place = 0;
  const uint32_t chunk = tide__slot_chunk(index, &place);
  if (chunk >= TIDE__SLOT_CHUNKS) return NULL;
  char* items = tide__load_ordered(&slots->chunks[chunk]);  // pairs with slots_make
  return items != NULL ? items + place * slots->item_bytes : NULL;
}

static inline uint64_t tide__slot_handle(const tide__slots* slots, const tide__slot* slot,
                                         uint32_t generation) {
  return (uint64_t)generation << 32 | slots->kind << TIDE__SLOT_KIND_SHIFT |
         (slot->index + TIDE__SLOT_FIRST_HANDLE);
}

// Gives an object a handle, which is at least 16.
static inline uint64_t tide__slots_publish(const tide__slots* slots, void* item) {
  tide__slot* slot = item;
  const uint32_t generation = tide__load_relaxed(&slot->generation) + 1;
  // pairs with tide__slots_find: a thread that sees the odd generation sees the initialised object
  tide__store_release(&slot->generation, generation);
  return tide__slot_handle(slots, slot, generation);
}

// The current handle of an object; 0: none.
static inline uint64_t tide__slots_handle(const tide__slots* slots, const void* item) {
  const tide__slot* slot = item;
  const uint32_t generation = tide__load_acquire(&slot->generation);  // pairs with _publish
  return (generation & 1u) != 0 ? tide__slot_handle(slots, slot, generation) : 0;
}

// The object that a handle refers to, of any generation; NULL if the handle is not of this table.
static inline void* tide__slots_named(tide__slots* slots, uint64_t handle) {
  const uint32_t low = (uint32_t)handle & TIDE__SLOT_INDEX_MASK;
  const bool is_ours = (uint32_t)handle >> TIDE__SLOT_KIND_SHIFT == slots->kind && (handle >> 32 & 1u) != 0;
  if (low < TIDE__SLOT_FIRST_HANDLE || !is_ours) return NULL;
  return tide__slots_place(slots, low - TIDE__SLOT_FIRST_HANDLE);
}

// The object of a handle, or NULL.
static inline void* tide__slots_find(tide__slots* slots, uint64_t handle) {
  tide__slot* slot = tide__slots_named(slots, handle);
  // pairs with _publish
  const bool is_live = slot != NULL && tide__load_acquire(&slot->generation) == (uint32_t)(handle >> 32);
  return is_live ? slot : NULL;
}

#endif
