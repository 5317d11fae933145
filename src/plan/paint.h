// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Paints a row of cells range by range; a painted cell keeps its paint. If ranges come by falling value,
// each cell ends up with the greatest value that covers it. Nearly O(n + c) for n ranges and c cells.
#ifndef TIDEMARK_SRC_PLAN_PAINT_H
#define TIDEMARK_SRC_PLAN_PAINT_H

#include <stddef.h>
#include <stdint.h>

// Clears the row; `next` has cells + 1 elements.
static inline void tide__paint_clear(uint32_t* next, size_t cells) {
  for (size_t i = 0; i <= cells; i++) next[i] = (uint32_t)i;
}

// The first unpainted cell from `cell` on; `cells` if there is none.
static inline uint32_t tide__paint_next(uint32_t* next, uint32_t cell) {
  while (next[cell] != cell) {
    next[cell] = next[next[cell]];
    cell = next[cell];
  }
  return cell;
}

// Gives `value` to the unpainted cells of [first, last).
static inline void tide__paint(uint32_t* next, uint64_t* values, uint32_t first, uint32_t last,
                               uint64_t value) {
  for (uint32_t cell = tide__paint_next(next, first); cell < last; cell = tide__paint_next(next, cell)) {
    values[cell] = value;
    next[cell] = cell + 1;
  }
}

#endif
