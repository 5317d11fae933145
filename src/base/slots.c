// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Chunks double in size and never move, so a reader needs no lock: it finds the chunk by the index and
// compares the generation. A generation is increased when a handle begins, and again when it ends.
#include "base/slots.h"

#include "base/arith.h"

static size_t chunk_items(uint32_t chunk) { return (size_t)TIDE__SLOT_FIRST_CHUNK << chunk; }

void tide__slots_init(tide__slots* slots, const tide_heap* heap, uint32_t kind, size_t item_bytes,
                      void (*item_init)(void*), void (*item_fini)(void*)) {
  *slots = (tide__slots){ .heap = heap, .kind = kind, .item_init = item_init, .item_fini = item_fini };
  slots->item_bytes = (item_bytes + 63) / 64 * 64;
  tide__mutex_init(&slots->lock, TIDE__RANK_LEAF);
}

void* tide__slots_at(tide__slots* slots, uint32_t index) { return tide__slots_place(slots, index); }

void tide__slots_fini(tide__slots* slots) {
  for (uint32_t i = 0; slots->item_fini != NULL && i < tide__load_relaxed(&slots->count); i++)
    slots->item_fini(tide__slots_at(slots, i));
  for (uint32_t k = 0; k < TIDE__SLOT_CHUNKS; k++) {
    tide__heap_release(slots->heap, tide__load_relaxed(&slots->chunks[k]), chunk_items(k), slots->item_bytes);
  }
  tide__mutex_fini(&slots->lock);
}

// Takes a free object or the next unused one. Returns NULL, with *out_chunk set, if that chunk must be made
// first.
static tide__slot* slots_take_locked(tide__slots* slots, uint32_t* out_chunk) {
  tide__slot* slot = slots->first_free;
  if (slot != NULL) {
    slots->first_free = slot->next_free;
    return slot;
  }
  const uint32_t index = tide__load_relaxed(&slots->count);
  uint32_t place = 0;
  *out_chunk = tide__slot_chunk(index, &place);
  slot = tide__slots_at(slots, index);
  if (slot == NULL) return NULL;
  slot->index = index;
  if (slots->item_init != NULL) slots->item_init(slot);
  tide__store_release(&slots->count, index + 1);  // pairs with tide__slots_count
  return slot;
}

// Makes a chunk, unless another thread was faster. The heap is called without the lock.
static bool slots_make(tide__slots* slots, uint32_t chunk) {
  if (chunk >= TIDE__SLOT_CHUNKS) return false;
  char* items = tide__heap_alloc(slots->heap, chunk_items(chunk), slots->item_bytes);
  if (items == NULL) return false;
  tide__mutex_lock(&slots->lock);
  const bool is_first = tide__load_relaxed(&slots->chunks[chunk]) == NULL;
  if (is_first) tide__store_release(&slots->chunks[chunk], items);  // pairs with tide__slots_at
  tide__mutex_unlock(&slots->lock);
  if (!is_first) tide__heap_release(slots->heap, items, chunk_items(chunk), slots->item_bytes);
  return true;
}

void* tide__slots_take(tide__slots* slots) {
  for (;;) {
    uint32_t missing = 0;
    tide__mutex_lock(&slots->lock);
    tide__slot* slot = slots_take_locked(slots, &missing);
    tide__mutex_unlock(&slots->lock);
    if (slot != NULL) return slot;
    if (!slots_make(slots, missing)) return NULL;
  }
}

uint64_t tide__slots_unclaim(const tide__slots* slots, void* item) {
  tide__slot* slot = item;
  const uint32_t generation = tide__load_relaxed(&slot->generation) - 1;
  tide__store_release(&slot->generation, generation);  // pairs with tide__slots_find
  return tide__slot_handle(slots, slot, generation);
}

uint32_t tide__slots_count(const tide__slots* slots) { return tide__load_acquire(&slots->count); }

// Ends one generation of an object. Returns false if the object has another generation by now.
static bool slot_end(tide__slot* slot, uint32_t generation) {
  return (generation & 1u) != 0 &&
         atomic_compare_exchange_strong(&slot->generation, &generation, generation + 1);
}

void* tide__slots_claim(tide__slots* slots, uint64_t handle) {
  tide__slot* slot = tide__slots_find(slots, handle);
  return slot != NULL && slot_end(slot, (uint32_t)(handle >> 32)) ? slot : NULL;
}

bool tide__slots_retire(void* item) {
  tide__slot* slot = item;
  return slot_end(slot, tide__load_relaxed(&slot->generation));
}

void tide__slots_give(tide__slots* slots, void* item) {
  tide__slot* slot = item;
  tide__mutex_lock(&slots->lock);
  slot->next_free = slots->first_free;
  slots->first_free = slot;
  tide__mutex_unlock(&slots->lock);
}
