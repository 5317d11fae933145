// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Digits of eleven bits from the lowest up, or of eight where keys are few; a digit that all keys share is
// skipped. O(n), and faster than comparison sorts from some hundred elements on; few elements are sorted by
// insertion.
#include "plan/radix.h"

#include <string.h>

#define RADIX_BITS 11u
#define RADIX_SMALL 64u  // elements up to which they are sorted by insertion
#define RADIX_FEW 2048u  // and up to which digits are short, so that few places are cleared
#define RADIX_FEW_BITS 8u

static void radix_insert(tide__keyed* items, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const tide__keyed moved = items[i];
    size_t at = i;
    for (; at > 0 && items[at - 1].key > moved.key; at--) items[at] = items[at - 1];
    items[at] = moved;
  }
}

// One pass over the digit at `shift`, from `from` to `to`.
static void radix_pass(const tide__keyed* from, tide__keyed* to, size_t count, unsigned shift,
                       unsigned bits) {
  size_t places[(size_t)1 << RADIX_BITS];
  const size_t size = (size_t)1 << bits;
  memset(places, 0, size * sizeof *places);
  for (size_t i = 0; i < count; i++) places[(from[i].key >> shift) & (size - 1)]++;
  size_t place = 0;
  for (size_t digit = 0; digit < size; digit++) {
    const size_t here = places[digit];
    places[digit] = place;
    place += here;
  }
  for (size_t i = 0; i < count; i++) to[places[(from[i].key >> shift) & (size - 1)]++] = from[i];
}

uint64_t tide__radix_work(size_t count) { return 16 * (uint64_t)count; }

void tide__radix_sort(tide__keyed* items, tide__keyed* spare, size_t count) {
  if (count <= RADIX_SMALL) {
    radix_insert(items, count);
    return;
  }
  const unsigned bits = count <= RADIX_FEW ? RADIX_FEW_BITS : RADIX_BITS;
  uint64_t varied = 0;  // bits that not all keys share
  for (size_t i = 1; i < count; i++) varied |= items[i].key ^ items[0].key;
  tide__keyed* from = items;
  tide__keyed* to = spare;
  for (unsigned shift = 0; shift < 64; shift += bits) {
    if ((varied >> shift & (((uint64_t)1 << bits) - 1)) == 0) continue;
    radix_pass(from, to, count, shift, bits);
    tide__keyed* const sorted = to;
    to = from;
    from = sorted;
  }
  if (from != items) memcpy(items, from, count * sizeof *items);
}
