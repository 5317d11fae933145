// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Painting a row of cells range by range, where paint that is there stays: the ranges in falling order of
// a value leave each cell with the greatest value that covers it. O(n + c) for n ranges and c cells, nearly.
#ifndef TIDEMARK_SRC_PLAN_PAINT_H
#define TIDEMARK_SRC_PLAN_PAINT_H

#include <stddef.h>
#include <stdint.h>

// Makes `next` (cells + 1 of them) a row without paint.
static inline void tide__paint_clear(uint32_t* next, size_t cells) {
  for (size_t i = 0; i <= cells; i++) next[i] = (uint32_t)i;
}

// The first cell from `cell` on that has no paint; `cells` if there is none.
static inline uint32_t tide__paint_next(uint32_t* next, uint32_t cell) {
  while (next[cell] != cell) {
    next[cell] = next[next[cell]];
    cell = next[cell];
  }
  return cell;
}

// Gives `value` to the cells of [first, last) without paint.
static inline void tide__paint(uint32_t* next, uint64_t* values, uint32_t first, uint32_t last,
                               uint64_t value) {
  for (uint32_t cell = tide__paint_next(next, first); cell < last; cell = tide__paint_next(next, cell)) {
    values[cell] = value;
    next[cell] = cell + 1;
  }
}

#endif
