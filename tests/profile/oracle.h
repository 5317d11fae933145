// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Naive versions of the planners: best fit in the order of time, with and without growth at the top, the
// lower bound, the smallest arena of tiny runs, and a comparison of all pairs. They ignore requests that
// are not released in their run.
//
// The holes are an unordered list with linear search; of holes of one size the lowest is taken. With an
// alignment every block occupies its bytes rounded up to it, so that all offsets are multiples.
#ifndef TIDEMARK_TESTS_PROFILE_ORACLE_H
#define TIDEMARK_TESTS_PROFILE_ORACLE_H

#include "plan/smallest.h"
#include "tidemark/profile.h"

// ---------------------------------------------------------------------------------------------------
// Runs

static inline bool oracle_is_managed(const tide_profile_request* r) {
  return r->lifetime != TIDE_PROFILE_NEVER;
}

static inline uint64_t oracle_round(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Do two requests, by their positions, live at one moment?
static inline bool oracle_meet(const tide_profile_request* requests, size_t a, size_t b) {
  const size_t first = a < b ? a : b;
  const size_t second = a < b ? b : a;
  return oracle_is_managed(&requests[a]) && oracle_is_managed(&requests[b]) &&
         requests[first].lifetime > second;
}

// Sets the alignment of all, and returns them.
static inline tide_profile_request* oracle_align(tide_profile_request* requests, size_t count,
                                                 uint64_t alignment) {
  for (size_t i = 0; i < count; i++) requests[i].alignment = alignment;
  return requests;
}

// The most bytes that live at once.
static inline uint64_t oracle_lower_bound(const tide_profile_request* requests, size_t count) {
  uint64_t* const released = calloc(count + 1, sizeof *released);  // just before each request
  T_CHECK(released != NULL);
  uint64_t live = 0;
  uint64_t most = 0;
  for (size_t t = 0; t < count; t++) {
    live -= released[t];
    if (oracle_is_managed(&requests[t])) {
      live += requests[t].bytes;
      released[requests[t].lifetime] += requests[t].bytes;
    }
    if (live > most) most = live;
  }
  free(released);
  return most;
}

// ---------------------------------------------------------------------------------------------------
// Best fit

typedef struct oracle_hole {
  uint64_t begin;
  uint64_t end;
} oracle_hole;

typedef struct oracle_fit {
  oracle_hole* holes;  // owned
  size_t count;
  uint64_t top;  // the end of all space so far
  bool extends_top;
} oracle_fit;

static inline void oracle_drop_hole(oracle_fit* f, size_t at) { f->holes[at] = f->holes[--f->count]; }

// The smallest hole of at least `bytes`, the lowest of these; f->count: none.
static inline size_t oracle_find_hole(const oracle_fit* f, uint64_t bytes) {
  size_t best = f->count;
  for (size_t i = 0; i < f->count; i++) {
    const uint64_t room = f->holes[i].end - f->holes[i].begin;
    if (room < bytes) continue;
    const uint64_t least = best < f->count ? f->holes[best].end - f->holes[best].begin : UINT64_MAX;
    if (room < least || (room == least && f->holes[i].begin < f->holes[best].begin)) best = i;
  }
  return best;
}

// New space; with `extends_top` it begins in a hole that ends at the top.
static inline uint64_t oracle_take_top(oracle_fit* f, uint64_t bytes) {
  uint64_t begin = f->top;
  for (size_t i = 0; f->extends_top && i < f->count; i++) {
    if (f->holes[i].end != f->top) continue;
    begin = f->holes[i].begin;
    oracle_drop_hole(f, i);
    break;
  }
  f->top = begin + bytes;
  return begin;
}

static inline uint64_t oracle_take(oracle_fit* f, uint64_t bytes) {
  const size_t at = oracle_find_hole(f, bytes);
  if (at == f->count) return oracle_take_top(f, bytes);
  const uint64_t begin = f->holes[at].begin;
  f->holes[at].begin += bytes;
  if (f->holes[at].begin == f->holes[at].end) oracle_drop_hole(f, at);
  return begin;
}

static inline void oracle_give(oracle_fit* f, uint64_t begin, uint64_t end) {
  for (size_t i = f->count; i-- > 0;) {
    const oracle_hole hole = f->holes[i];
    if (hole.end != begin && hole.begin != end) continue;
    if (hole.end == begin) begin = hole.begin;
    else end = hole.end;
    oracle_drop_hole(f, i);
  }
  f->holes[f->count++] = (oracle_hole){ begin, end };
}

// Plans, puts the offsets into the requests, and returns the bytes of the arena.
static inline uint64_t oracle_best_fit(tide_profile_request* requests, size_t count, uint64_t alignment,
                                       bool extends_top) {
  oracle_fit f = { .holes = calloc(count + 1, sizeof *f.holes), .extends_top = extends_top };
  size_t* const due = calloc(count + 1, sizeof *due);    // the first that is released then, plus 1
  size_t* const next = calloc(count + 1, sizeof *next);  // the next that is released with it, plus 1
  T_CHECK(f.holes != NULL && due != NULL && next != NULL);
  uint64_t bytes = 0;
  for (size_t t = 0; t < count; t++) {
    for (size_t i = due[t]; i != 0; i = next[i - 1]) {
      const tide_profile_request* const r = &requests[i - 1];
      oracle_give(&f, r->offset, r->offset + oracle_round(r->bytes, alignment));
    }
    if (!oracle_is_managed(&requests[t])) continue;
    requests[t].offset = oracle_take(&f, oracle_round(requests[t].bytes, alignment));
    if (requests[t].offset + requests[t].bytes > bytes) bytes = requests[t].offset + requests[t].bytes;
    next[t] = due[requests[t].lifetime];
    due[requests[t].lifetime] = t + 1;
  }
  free(next);
  free(due);
  free(f.holes);
  return bytes;
}

// ---------------------------------------------------------------------------------------------------
// All pairs

// Two positions whose bytes overlap while both live; false: there are none.
static inline bool oracle_find_overlap(const tide_profile_request* requests, size_t count, size_t* out_a,
                                       size_t* out_b) {
  for (size_t a = 0; a < count; a++) {
    for (size_t b = a + 1; b < count; b++) {
      if (!oracle_meet(requests, a, b)) continue;
      const bool is_below = requests[a].offset + requests[a].bytes <= requests[b].offset;
      const bool is_above = requests[b].offset + requests[b].bytes <= requests[a].offset;
      if (is_below || is_above) continue;
      *out_a = a;
      *out_b = b;
      return true;
    }
  }
  return false;
}

// Checks a plan independently: no overlap, all within the arena, all aligned.
static inline void oracle_expect_sound(const tide_profile_request* requests, size_t count, uint64_t bytes) {
  size_t a = 0;
  size_t b = 0;
  if (oracle_find_overlap(requests, count, &a, &b)) T_FAIL("requests %zu and %zu overlap", a, b);
  for (size_t i = 0; i < count; i++) {
    if (!oracle_is_managed(&requests[i])) continue;
    T_LE(requests[i].offset + requests[i].bytes, bytes);
    if (requests[i].alignment > 0) T_EQ(requests[i].offset % requests[i].alignment, 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// The smallest arena

static inline bool oracle_do_meet(const void* requests, size_t a, size_t b) {
  return oracle_meet(requests, a, b);
}

// All must be released in their run.
static inline uint64_t oracle_smallest(const tide_profile_request* requests, size_t count,
                                       uint64_t alignment) {
  uint64_t bytes[SMALLEST_MOST] = { 0 };
  smallest_problem s = {
    .count = count, .bytes = bytes, .alignment = alignment, .meet = oracle_do_meet, .user = requests
  };
  T_LE(count, SMALLEST_MOST);
  for (size_t i = 0; i < count; i++) bytes[i] = requests[i].bytes;
  return smallest_arena(&s);
}

#endif
