// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sums in a hash map. Results are sorted by values and keys, so nothing depends on the hash.
#include "sums.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/heap.h"
#include "base/random.h"
#include "tool.h"

#define FIRST_ITEMS 32u

static uint64_t sum_hash(uint64_t key, uint64_t other) {
  return tide__random_mix(key ^ tide__random_mix(other + 1));
}

// The sum with these keys; or NULL, and in `*out_at` the number that it would get in the map.
static tool_sum* sum_find(const tool_sums* sums, uint64_t key, uint64_t other, uint64_t* out_at) {
  for (*out_at = sum_hash(key, other);; ++*out_at) {
    const uint64_t found = tide__hash_map_find(&sums->numbers, *out_at);
    if (found == 0) return NULL;
    tool_sum* const item = &sums->items[found - 1];
    if (item->key == key && item->other == other) return item;
  }
}

static tool_sum* sum_new(tool_sums* sums, uint64_t key, uint64_t other, uint64_t at) {
  if (sums->numbers.heap == NULL) tide__hash_map_init(&sums->numbers, &tide__system_heap);
  if (!tide__hash_map_reserve(&sums->numbers, sums->count + 1)) tool_out_of_memory();
  if (sums->count == sums->room) {
    sums->room = sums->room == 0 ? FIRST_ITEMS : 2 * sums->room;
    sums->items = tool_grow(sums->items, sums->room, sizeof *sums->items);
  }
  sums->items[sums->count++] = (tool_sum){ .key = key, .other = other };
  (void)tide__hash_map_put(&sums->numbers, at, sums->count);
  return &sums->items[sums->count - 1];
}

void tool_sums_fini(tool_sums* sums) {
  free(sums->items);
  tide__hash_map_fini(&sums->numbers);
  *sums = (tool_sums){ .items = NULL };
}

tool_sum* tool_sums_add(tool_sums* sums, uint64_t key, uint64_t other, uint64_t bytes) {
  uint64_t at = 0;
  tool_sum* item = sum_find(sums, key, other, &at);
  if (item == NULL) item = sum_new(sums, key, other, at);
  item->count++;
  item->bytes += bytes;
  if (bytes > item->largest) item->largest = bytes;
  return item;
}

const tool_sum* tool_sums_find(const tool_sums* sums, uint64_t key, uint64_t other) {
  uint64_t at = 0;
  return sum_find(sums, key, other, &at);
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
