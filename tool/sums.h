// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sums over blocks by two keys, such as call site, size or stream.
#ifndef TIDEMARK_TOOL_SUMS_H
#define TIDEMARK_TOOL_SUMS_H

#include "base/hash_map.h"

typedef struct tool_sum {
  uint64_t key;
  uint64_t other;  // second key
  uint64_t count;  // number of additions
  uint64_t bytes;
  uint64_t largest;
  uint32_t stack;  // of the first addition
} tool_sum;

typedef struct tool_sums {
  tool_sum* items;  // owned; in the order of their first addition, until they are sorted
  size_t count;
  size_t room;
  tide__hash_map numbers;  // from a hash of the keys to the index of the item + 1
} tool_sums;

void tool_sums_fini(tool_sums* sums);

// Adds bytes to the sum with these keys. The pointer is valid until the next call.
tool_sum* tool_sums_add(tool_sums* sums, uint64_t key, uint64_t other, uint64_t bytes);
// NULL if there is none.
const tool_sum* tool_sums_find(const tool_sums* sums, uint64_t key, uint64_t other);

// By bytes, most first, or by keys, smallest first. Nothing can be added or found afterwards.
void tool_sums_sort_by_bytes(tool_sums* sums);
void tool_sums_sort_by_keys(tool_sums* sums);

#endif
