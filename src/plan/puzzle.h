// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Some boxes of a model, in the form that the exact search uses: sections counted from 0, heights in units
// that divide all of them. Searches only read it, so threads share it.
#ifndef TIDEMARK_SRC_PLAN_PUZZLE_H
#define TIDEMARK_SRC_PLAN_PUZZLE_H

#include "plan/model.h"

// The sections [first, last) in which a tile is `height` high. Space that a box leaves free below its span
// counts as used.
typedef struct tide__puzzle_span {
  uint32_t first;
  uint32_t last;
  int64_t height;
} tide__puzzle_span;

typedef struct tide__tile {
  uint32_t first;
  uint32_t last;  // not included
  uint32_t span;
  uint32_t span_count;
  uint32_t area;      // sections of its spans
  int64_t alignment;  // units, 1 for any
  int64_t fixed;      // units, -1 for none
  int64_t ground;     // units; the lowest allowed offset
  int64_t bytes;      // from its offset to its end, also where its spans are lower
  uint32_t twin;      // the first identical tile
  uint32_t box;       // in the model
  float log_duration;
  float log_sections;
  float log_bytes;
} tide__tile;

typedef struct tide__puzzle {
  tide__scratch scratch;
  tide__tile* tiles;         // of scratch
  tide__puzzle_span* spans;  // of scratch
  uint32_t count;
  uint32_t sections;
  int64_t unit;    // bytes
  int64_t unused;  // the most bytes that a span or a tile leaves of its last unit
  bool has_gaps;   // a tile has several spans
  bool is_exact;   // an arrangement of the tiles exists if and only if one of the boxes does
} tide__puzzle;

// The boxes of a puzzle.
typedef struct tide__puzzle_choice {
  const uint32_t* boxes;   // by their numbers in the model
  const int64_t* fixed;    // fixed offset of each, in bytes, or -1; NULL: those of the boxes
  const int64_t* grounds;  // by section of the puzzle: bytes below which nothing may lie; NULL: 0
  int64_t ceiling;         // bytes; fixed boxes above it are left out; INT64_MAX: none is
  uint32_t count;
  uint32_t first;  // the sections to which boxes are clipped
  uint32_t last;   // not included
} tide__puzzle_choice;

// Fixed offsets with small divisors make the unit small.
tide_status tide__puzzle_init(tide__puzzle* puzzle, const tide__model* model,
                              const tide__puzzle_choice* choice, const tide_heap* heap);
void tide__puzzle_fini(tide__puzzle* puzzle);

#endif
