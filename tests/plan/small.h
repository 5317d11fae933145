// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Problems small enough to check instant by instant and byte by byte: a word with one bit per byte says
// what a buffer uses at an instant. Also random problems, and printing one that failed.
#ifndef TIDEMARK_TESTS_PLAN_SMALL_H
#define TIDEMARK_TESTS_PLAN_SMALL_H

#include "t.h"
#include "tidemark/plan.h"

#define SMALL_BUFFERS 10
#define SMALL_GAPS 3
#define SMALL_POOLS 3
#define SMALL_INSTANTS 12  // all lifetimes end there or before
#define SMALL_BYTES 64     // all plans that matter end there or before

typedef struct small_problem {
  tide_plan_problem problem;
  tide_plan_buffer buffers[SMALL_BUFFERS];
  tide_plan_gap gaps[SMALL_BUFFERS][SMALL_GAPS];
  uint64_t capacities[SMALL_POOLS];
} small_problem;

// Which kinds of problem a random one may be.
typedef struct small_kind {
  size_t buffers;   // from 1 to so many
  size_t instants;  // at most SMALL_INSTANTS
  uint64_t bytes;   // of a buffer, from 1 to so many; with `has_empty` from 0
  bool has_alignment;
  bool has_fixed;
  bool has_gaps;
  bool has_windows;
  bool has_high_windows;  // that do not begin with the first byte
  bool has_aliases;
  bool has_empty;
  size_t pools;  // 0: none, and no capacity
  uint64_t capacity;
} small_kind;

static inline bool small_one_in(t_rng* rng, uint64_t n) { return t_rng_below(rng, n) == 0; }

// The bytes that a buffer holds at an instant, counted from its own beginning.
static inline uint64_t small_held(const tide_plan_buffer* buffer, uint64_t instant) {
  if (instant < buffer->lower || instant >= buffer->upper) return 0;
  uint64_t first = 0;
  uint64_t last = buffer->bytes;
  for (size_t i = 0; i < buffer->gap_count; i++) {
    if (instant < buffer->gaps[i].lower || instant >= buffer->gaps[i].upper) continue;
    first = buffer->gaps[i].first;
    last = buffer->gaps[i].last;
  }
  T_LT(last, SMALL_BYTES);
  return ((UINT64_C(1) << last) - 1) & ~((UINT64_C(1) << first) - 1);
}

static inline bool small_holds(const tide_plan_buffer* buffer) {
  for (uint64_t t = 0; t < SMALL_INSTANTS; t++) {
    if (small_held(buffer, t) != 0) return true;
  }
  return false;
}

// The first buffer that shares the storage of buffer `index`.
static inline size_t small_holder(const small_problem* p, size_t index) {
  for (size_t i = 0; i < index; i++) {
    if (p->buffers[i].alias != 0 && p->buffers[i].alias == p->buffers[index].alias) return i;
  }
  return index;
}

static inline uint64_t small_alignment(const tide_plan_buffer* buffer) {
  return buffer->alignment == 0 ? 1 : buffer->alignment;
}

static inline void small_link(small_problem* p, size_t count, size_t pools) {
  for (size_t i = 0; i < count; i++) p->buffers[i].gaps = p->gaps[i];
  p->problem = (tide_plan_problem){ p->buffers, count, pools == 0 ? NULL : p->capacities, pools };
}

// Copies a problem so that the copy does not point into the original.
static inline void small_copy(small_problem* to, const small_problem* from) {
  *to = *from;
  small_link(to, from->problem.count, from->problem.pools);
}

static inline void small_print(const small_problem* p) {
  for (size_t i = 0; i < p->problem.count; i++) {
    const tide_plan_buffer* const b = &p->buffers[i];
    (void)dprintf(STDERR_FILENO, "{ .lower = %d, .upper = %d, .bytes = %d, .alignment = %d, .alias = %d",
                  (int)b->lower, (int)b->upper, (int)b->bytes, (int)b->alignment, (int)b->alias);
    (void)dprintf(STDERR_FILENO, ", .pool = %d, .offset = %d, .hint = %d, .gap_count = %d", (int)b->pool,
                  (int)b->offset, (int)b->hint, (int)b->gap_count);
    for (size_t k = 0; k < b->gap_count; k++) {
      const tide_plan_gap* const gap = &b->gaps[k];
      (void)dprintf(STDERR_FILENO, "%s{ %d, %d, %d, %d }", k == 0 ? ", .gaps = (tide_plan_gap[]){ " : ", ",
                    (int)gap->lower, (int)gap->upper, (int)gap->first, (int)gap->last);
    }
    (void)dprintf(STDERR_FILENO, b->gap_count == 0 ? " },\n" : " } },\n");
  }
  for (size_t i = 0; i < p->problem.pools; i++) {
    (void)dprintf(STDERR_FILENO, "// capacity of pool %d: %d\n", (int)i, (int)p->capacities[i]);
  }
}

static inline void small_random_gaps(small_problem* p, size_t index, const small_kind* kind, t_rng* rng) {
  tide_plan_buffer* const b = &p->buffers[index];
  uint64_t instant = b->lower;
  while (b->gap_count < SMALL_GAPS && small_one_in(rng, 2)) {
    tide_plan_gap* const gap = &p->gaps[index][b->gap_count++];
    gap->lower = instant + t_rng_below(rng, b->upper - instant + 1);
    gap->upper = gap->lower + t_rng_below(rng, b->upper - gap->lower + 1);
    gap->last = kind->has_windows ? t_rng_below(rng, b->bytes + 1) : 0;
    gap->first = kind->has_high_windows ? t_rng_below(rng, gap->last + 1) : 0;
    instant = gap->upper;
  }
}

static inline void small_random_buffer(small_problem* p, size_t index, const small_kind* kind, t_rng* rng) {
  const uint64_t least = kind->has_empty && small_one_in(rng, 6) ? 0 : 1;
  tide_plan_buffer* const b = &p->buffers[index];
  *b = (tide_plan_buffer){ .offset = TIDE_PLAN_ANYWHERE, .hint = TIDE_PLAN_ANYWHERE };
  b->bytes = least + t_rng_below(rng, kind->bytes);
  b->lower = t_rng_below(rng, kind->instants - least + 1);
  b->upper = b->lower + least + t_rng_below(rng, kind->instants - b->lower - least + 1);
  if (kind->has_alignment && small_one_in(rng, 2)) b->alignment = t_rng_below(rng, 5);
  if (kind->has_fixed && small_one_in(rng, 4)) b->offset = t_rng_below(rng, 6);
  if (kind->has_aliases && small_one_in(rng, 2)) b->alias = (uint32_t)(1 + t_rng_below(rng, 2)) * 1000003;
  if (kind->has_gaps) small_random_gaps(p, index, kind, rng);
  if (kind->pools > 1) {
    const uint64_t pool = t_rng_below(rng, kind->pools + 1);
    b->pool = pool < kind->pools ? (uint32_t)pool : TIDE_PLAN_ANY_POOL;
  }
}

static inline void small_random(small_problem* p, const small_kind* kind, t_rng* rng) {
  const size_t count = 1 + t_rng_below(rng, kind->buffers);
  memset(p, 0, sizeof *p);
  small_link(p, count, kind->pools);
  for (size_t i = 0; i < count; i++) small_random_buffer(p, i, kind, rng);
  for (size_t i = 0; i < kind->pools; i++) {
    p->capacities[i] = small_one_in(rng, 8) ? UINT64_MAX : t_rng_below(rng, kind->capacity + 1);
  }
  small_link(p, count, kind->pools);
}

#endif
