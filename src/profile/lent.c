// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Linear probing; an entry that goes is filled by those behind it. 8 bytes an address, at least twice.
#include "profile/lent.h"

#include "base/heap.h"

static size_t lent_slot(uint64_t address, uint32_t log) {
  return (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - log));
}

// The slot of an address, or the free one where it would be.
static size_t lent_find(const uint64_t* slots, uint32_t log, uint64_t address) {
  const size_t mask = ((size_t)1 << log) - 1;
  size_t slot = lent_slot(address, log);
  while (slots[slot] != 0 && slots[slot] != address) slot = (slot + 1) & mask;
  return slot;
}

uint64_t* tide__lent_new_slots(const tide_heap* heap, uint32_t log) {
  return tide__heap_alloc(heap, (size_t)1 << log, sizeof(uint64_t));
}

void tide__lent_free_slots(const tide_heap* heap, uint64_t* slots, uint32_t log) {
  tide__heap_release(heap, slots, (size_t)1 << log, sizeof *slots);
}

void tide__lent_fini(tide__lent* lent, const tide_heap* heap) {
  tide__lent_free_slots(heap, lent->slots, lent->log);
  *lent = (tide__lent){ 0 };
}

void tide__lent_grow(tide__lent* lent, uint64_t** slots, uint32_t* log) {
  const tide__lent old = *lent;
  if (*log <= old.log) return;  // another thread was first
  for (size_t i = 0; old.slots != NULL && i < (size_t)1 << old.log; i++) {
    if (old.slots[i] != 0) (*slots)[lent_find(*slots, *log, old.slots[i])] = old.slots[i];
  }
  lent->slots = *slots;
  lent->log = *log;
  *slots = old.slots;
  *log = old.log;
}

bool tide__lent_add(tide__lent* lent, uint64_t address) {
  if (lent->slots == NULL || 2 * (lent->count + 1) > (size_t)1 << lent->log) return false;
  uint64_t* const slot = &lent->slots[lent_find(lent->slots, lent->log, address)];
  lent->count += *slot == 0;
  *slot = address;
  return true;
}

bool tide__lent_remove(tide__lent* lent, uint64_t address) {
  if (lent->count == 0) return false;
  const size_t mask = ((size_t)1 << lent->log) - 1;
  size_t hole = lent_find(lent->slots, lent->log, address);
  if (lent->slots[hole] == 0) return false;
  for (size_t slot = (hole + 1) & mask; lent->slots[slot] != 0; slot = (slot + 1) & mask) {
    const size_t home = lent_slot(lent->slots[slot], lent->log);
    // It may move back to the hole if that is not before its home.
    if (((slot - home) & mask) < ((slot - hole) & mask)) continue;
    lent->slots[hole] = lent->slots[slot];
    hole = slot;
  }
  lent->slots[hole] = 0;
  lent->count--;
  return true;
}
