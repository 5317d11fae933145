// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A hash table of sums. What it gives out is sorted by values and keys, so that nothing depends on the hash.
#include "sums.h"

#include <stdbool.h>
#include <stdlib.h>

#include "tool.h"

#define HOLDER_SLOTS 64u

static size_t sum_hash(uint64_t key, uint64_t other) {
  uint64_t hash = (key ^ (other * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
  hash ^= hash >> 29;
  return (size_t)(hash * UINT64_C(0x94d049bb133111eb) >> 16);
}

// The slot of a sum, or the empty one where it belongs.
static size_t sum_slot(const tool_sums* sums, uint64_t key, uint64_t other) {
  size_t at = sum_hash(key, other) & (sums->slot_count - 1);
  while (sums->slots[at] != 0) {
    const tool_sum* const item = &sums->items[sums->slots[at] - 1];
    if (item->key == key && item->other == other) break;
    at = (at + 1) & (sums->slot_count - 1);
  }
  return at;
}

// At most half of the slots are in use.
static void sums_make_room(tool_sums* sums) {
  if (sums->count < sums->room) return;
  sums->room = sums->room == 0 ? HOLDER_SLOTS / 2 : 2 * sums->room;
  sums->items = tool_grow(sums->items, sums->room, sizeof *sums->items);
  free(sums->slots);
  sums->slot_count = 2 * sums->room;
  sums->slots = tool_alloc(sums->slot_count, sizeof *sums->slots);
  for (size_t i = 0; i < sums->count; i++) {
    const tool_sum* const item = &sums->items[i];
    sums->slots[sum_slot(sums, item->key, item->other)] = (uint32_t)(i + 1);
  }
}

void tool_sums_fini(tool_sums* sums) {
  free(sums->items);
  free(sums->slots);
  *sums = (tool_sums){ .items = NULL };
}

tool_sum* tool_sums_add(tool_sums* sums, uint64_t key, uint64_t other, uint64_t bytes) {
  sums_make_room(sums);
  const size_t slot = sum_slot(sums, key, other);
  if (sums->slots[slot] == 0) {
    sums->items[sums->count++] = (tool_sum){ .key = key, .other = other };
    sums->slots[slot] = (uint32_t)sums->count;
  }
  tool_sum* const item = &sums->items[sums->slots[slot] - 1];
  item->count++;
  item->bytes += bytes;
  if (bytes > item->largest) item->largest = bytes;
  return item;
}

const tool_sum* tool_sums_find(const tool_sums* sums, uint64_t key, uint64_t other) {
  if (sums->count == 0) return NULL;
  const size_t slot = sum_slot(sums, key, other);
  return sums->slots[slot] != 0 ? &sums->items[sums->slots[slot] - 1] : NULL;
}

static int sum_order_keys(const void* a, const void* b) {
  const tool_sum* const left = a;
  const tool_sum* const right = b;
  if (left->key != right->key) return left->key < right->key ? -1 : 1;
  if (left->other != right->other) return left->other < right->other ? -1 : 1;
  return 0;
}

static int sum_order_bytes(const void* a, const void* b) {
  const tool_sum* const left = a;
  const tool_sum* const right = b;
  if (left->bytes != right->bytes) return left->bytes > right->bytes ? -1 : 1;
  return sum_order_keys(a, b);
}

void tool_sums_sort_by_bytes(tool_sums* sums) {
  if (sums->count > 1) qsort(sums->items, sums->count, sizeof *sums->items, sum_order_bytes);
}

void tool_sums_sort_by_keys(tool_sums* sums) {
  if (sums->count > 1) qsort(sums->items, sums->count, sizeof *sums->items, sum_order_keys);
}
