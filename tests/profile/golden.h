// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs with known arenas: by best fit, by best fit that extends the top, the lower bound, the smallest, and
// the smallest with offsets that are multiples of 64.
#ifndef TIDEMARK_TESTS_PROFILE_GOLDEN_H
#define TIDEMARK_TESTS_PROFILE_GOLDEN_H

#include "oracle.h"

#define GOLDEN_MOST 10

typedef struct golden {
  const char* name;
  size_t count;
  uint64_t sizes[GOLDEN_MOST];
  uint64_t lifetimes[GOLDEN_MOST];
  uint64_t best_fit;
  uint64_t top_fit;
  uint64_t lower_bound;
  uint64_t smallest;
  uint64_t smallest_at_64;
} golden;

#define GOLDEN_CHAIN 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

// clang-format off
static const golden golden_rows[] = {
  { "one after the other", 2, { 64, 64 }, { 1, 2 }, 64, 64, 64, 64, 64 },
  { "equal holes", 3, { 64, 128, 64 }, { 3, 2, 3 }, 192, 192, 192, 192, 192 },
  { "four of one size", 4, { 64, 64, 64, 64 }, { 3, 4, 3, 4 }, 192, 192, 192, 192, 192 },
  { "one more", 2, { 10, 11 }, { 1, 2 }, 21, 11, 11, 11, 11 },
  { "two that both live", 2, { 10, 64 }, { 2, 2 }, 74, 74, 74, 74, 74 },
  { "doubling", 6, { 1, 2, 4, 8, 16, 32 }, { GOLDEN_CHAIN }, 63, 32, 32, 32, 32 },
  { "looking ahead", 3, { 4, 1, 5 }, { 2, 3, 3 }, 10, 10, 6, 6, 65 },
  { "looking ahead and up", 4, { 1, 1, 2, 3 }, { 2, 4, 3, 4 }, 7, 5, 4, 4, 65 },
  { "small ones that stay", 5, { 100, 10, 100, 10, 100 }, { 2, 5, 4, 5, 5 }, 120, 120, 120, 120, 202 },
  { "a puzzle", 6, { 3, 5, 2, 7, 4, 6 }, { 2, 4, 4, 5, 6, 6 }, 15, 15, 14, 14, 130 },
  { "a wall of single bytes", 5, { 256, 1, 256, 1, 256 }, { 1, 5, 3, 5, 5 }, 512, 258, 258, 258, 321 },
  { "growing", 5, { 40, 20, 60, 20, 80 }, { 2, 3, 4, 5, 5 }, 120, 120, 100, 100, 144 },
  { "a chain of 7", 7, { 100, 100, 100, 100, 100, 100, 100 }, { GOLDEN_CHAIN }, 100, 100, 100, 100, 100 },
  { "a chain of 10", 10, { 100, 100, 100, 100, 100, 100, 100, 100, 100, 100 }, { GOLDEN_CHAIN },
    100, 100, 100, 100, 100 },
};

static const char* const golden_names[] = {
  "one after the other", "equal holes", "four of one size", "one more", "two that both live", "doubling",
  "looking ahead", "looking ahead and up", "small ones that stay", "a puzzle", "a wall of single bytes",
  "growing", "a chain of 7", "a chain of 10", NULL
};
// clang-format on

static inline const golden* golden_of_variant(void) {
  for (size_t i = 0; i < sizeof golden_rows / sizeof *golden_rows; i++) {
    if (strcmp(golden_rows[i].name, t_variant()) == 0) return &golden_rows[i];
  }
  T_FAIL("no row %s", t_variant());
}

static inline void golden_requests(const golden* row, uint64_t alignment, tide_profile_request* out) {
  for (size_t i = 0; i < row->count; i++) {
    out[i] = (tide_profile_request){ row->sizes[i], alignment, row->lifetimes[i], 0 };
  }
}

#endif
