// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Digits of eleven bits from the lowest up; a digit that all keys share costs only its count. O(n), and
// faster than comparing from some hundred elements on; fewer are sorted by insertion.
#include "plan/radix.h"

#include <stdbool.h>
#include <string.h>

#define RADIX_BITS 11u
#define RADIX_SIZE ((size_t)1 << RADIX_BITS)
#define RADIX_SMALL 64u

static void radix_insert(tide__keyed* items, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const tide__keyed moved = items[i];
    size_t at = i;
    for (; at > 0 && items[at - 1].key > moved.key; at--) items[at] = items[at - 1];
    items[at] = moved;
  }
}

static size_t radix_digit(uint64_t key, unsigned shift) { return (key >> shift) & (RADIX_SIZE - 1); }

// One pass from `from` to `to`; false, and nothing done, if all have the same digit.
static bool radix_pass(const tide__keyed* from, tide__keyed* to, size_t count, unsigned shift) {
  size_t places[RADIX_SIZE] = { 0 };
  for (size_t i = 0; i < count; i++) places[radix_digit(from[i].key, shift)]++;
  if (places[radix_digit(from[0].key, shift)] == count) return false;
  size_t place = 0;
  for (size_t digit = 0; digit < RADIX_SIZE; digit++) {
    const size_t here = places[digit];
    places[digit] = place;
    place += here;
  }
  for (size_t i = 0; i < count; i++) to[places[radix_digit(from[i].key, shift)]++] = from[i];
  return true;
}

void tide__radix_sort(tide__keyed* items, tide__keyed* spare, size_t count) {
  if (count <= RADIX_SMALL) {
    radix_insert(items, count);
    return;
  }
  tide__keyed* from = items;
  tide__keyed* to = spare;
  for (unsigned shift = 0; shift < 64; shift += RADIX_BITS) {
    if (!radix_pass(from, to, count, shift)) continue;
    tide__keyed* const sorted = to;
    to = from;
    from = sorted;
  }
  if (from != items) memcpy(items, from, count * sizeof *items);
}
