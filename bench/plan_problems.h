// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planning problems: from files, and from generators, for what no recording has: as many buffers as wanted,
// and answers that are known. The same count and seed give the same problem on every computer: no floating
// point is used.
//
//   plan_sample sample = plan_sample_perfect(300, 7);
//   const tide_plan_problem problem = { .buffers = sample.buffers, .count = sample.count };
//   ... no plan has a smaller peak than sample.peak, and one has this peak ...
//   plan_sample_free(&sample);
#ifndef TIDEMARK_BENCH_PLAN_PROBLEMS_H
#define TIDEMARK_BENCH_PLAN_PROBLEMS_H

#include "tidemark/plan.h"

typedef struct plan_sample {
  tide_plan_buffer* buffers;  // owned
  size_t count;
  uint64_t peak;  // of the smallest plan, or one that some plan has; 0: not known
} plan_sample;

// A step of training: layer after layer forward and then backward again. Every layer has an activation that
// lives from its forward to its backward step, so that these nest; temporaries and what it hands to its
// neighbour in both directions; and a skip connection to a layer up to 63 further on.
plan_sample plan_sample_train(size_t count, uint64_t seed);

// Births at any time, lifetimes and sizes as often in one doubling as in another. The load is the same
// everywhere, so that no plan has much room anywhere.
plan_sample plan_sample_random(size_t count, uint64_t seed);

// A rectangle of time and memory, cut in two again and again, always the largest piece: the pieces fill it
// without a hole, so `peak` is the smallest.
plan_sample plan_sample_perfect(size_t count, uint64_t seed);

// Takes a share of the buffers away; a plan of that peak is left.
void plan_sample_drop(plan_sample* sample, size_t percent, uint64_t seed);

// The buffers of a file in any format; they may have no gaps. False if there is no such file.
bool plan_sample_read(const char* path, plan_sample* out);

void plan_sample_free(plan_sample* sample);

#endif
