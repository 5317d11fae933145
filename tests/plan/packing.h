// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Problems of any number of buffers whose smallest peak is known: a rectangle of time and bytes is cut into
// as many as wanted, so that the pieces fill it without a hole. Some may then be left out.
#ifndef TIDEMARK_TESTS_PLAN_PACKING_H
#define TIDEMARK_TESTS_PLAN_PACKING_H

#include "t.h"
#include "tidemark/plan.h"

typedef struct packing {
  tide_plan_problem problem;
  tide_plan_buffer* buffers;
  uint64_t* offsets;  // as they were cut
  uint64_t capacity;  // the height of the rectangle
} packing;

// Cuts a piece in two, along time or bytes, wherever it can be cut; false if it cannot.
static inline bool packing_cut(tide_plan_buffer* piece, uint64_t* offset, tide_plan_buffer* rest,
                               uint64_t* rest_offset, t_rng* rng) {
  const uint64_t instants = piece->upper - piece->lower;
  const bool along_time = piece->bytes < 2 || (instants > 1 && t_rng_below(rng, 2) == 0);
  if (along_time && instants < 2) return false;
  *rest = *piece;
  *rest_offset = *offset;
  if (along_time) {
    piece->upper = piece->lower + 1 + t_rng_below(rng, instants - 1);
    rest->lower = piece->upper;
  } else {
    piece->bytes = 1 + t_rng_below(rng, piece->bytes - 1);
    rest->bytes -= piece->bytes;
    *rest_offset += piece->bytes;
  }
  return true;
}

static inline void packing_new(packing* p, size_t count, uint64_t instants, uint64_t bytes, t_rng* rng) {
  p->buffers = calloc(count, sizeof *p->buffers);
  p->offsets = calloc(count, sizeof *p->offsets);
  T_CHECK(p->buffers != NULL && p->offsets != NULL);
  p->capacity = bytes;
  p->buffers[0] = (tide_plan_buffer){ .upper = instants, .bytes = bytes, TIDE_PLAN_FREELY };
  for (size_t made = 1; made < count;) {
    size_t largest = t_rng_below(rng, made);
    for (int tries = 0; tries < 3; tries++) {  // of a few, the one that lasts longest and is largest
      const size_t other = t_rng_below(rng, made);
      const tide_plan_buffer* const a = &p->buffers[largest];
      const tide_plan_buffer* const b = &p->buffers[other];
      if (a->bytes * (a->upper - a->lower) < b->bytes * (b->upper - b->lower)) largest = other;
    }
    made +=
        packing_cut(&p->buffers[largest], &p->offsets[largest], &p->buffers[made], &p->offsets[made], rng);
  }
  p->problem = (tide_plan_problem){ .buffers = p->buffers, .count = count };
}

static inline void packing_free(packing* p) {
  free(p->buffers);
  free(p->offsets);
}

// Leaves out one in `n`, but never all.
static inline void packing_drop(packing* p, size_t n, t_rng* rng) {
  size_t kept = 0;
  for (size_t i = 0; i < p->problem.count; i++) {
    if (i > 0 && t_rng_below(rng, n) == 0) continue;
    p->buffers[kept] = p->buffers[i];
    p->offsets[kept++] = p->offsets[i];
  }
  T_CHECK(kept > 0);
  p->problem.count = kept;
}

// A plan as the problem has it, valid and with the peak that is said of it.
static inline void packing_check(const tide_plan_problem* problem, const tide_plan* plan) {
  const tide_plan_outcome result = tide_plan_result(plan);
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  T_LE(result.verdict, TIDE_PLAN_FEASIBLE);
  T_OK(tide_plan_verify(problem, tide_plan_offsets(plan), tide_plan_pools(plan), NULL, &check));
  T_STR_EQ(check.text, "");
  if (problem->pools <= 1) T_EQ(check.peak, result.peak);
  T_LE(result.lower_bound, result.peak);
}

#endif
