// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads and makes planning problems. Random numbers come from splitmix64. A perfect packing keeps its
// pieces in a binary heap by area; O(n log n) for n buffers, the others O(n).
#include "plan_problems.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "tidemark/problem.h"

enum { SAMPLE_BUFFERS_OF_LAYER = 6, SAMPLE_STEPS_OF_LAYER = 4 };
#define SAMPLE_ROUND UINT64_C(256)
#define SAMPLE_UNIT UINT64_C(512)

// ---------------------------------------------------------------------------------------------------
// Random numbers

static uint64_t sample_next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A number below `limit`; 0 if that is 0.
static uint64_t sample_below(uint64_t* state, uint64_t limit) {
  return limit > 0 ? sample_next(state) % limit : 0;
}

static uint64_t bits_of(uint64_t number) {
  uint64_t bits = 0;
  for (; number > 0; number >>= 1) bits++;
  return bits;
}

// A number from `first` to below `limit`, a multiple, with a chance in proportion to 1 / number: as often
// in one doubling as in another. Any doubling, any number of it, of which up to half of the larger ones are
// not taken.
static uint64_t sample_scaled(uint64_t* state, uint64_t first, uint64_t limit) {
  for (;;) {
    const uint64_t power = first << sample_below(state, bits_of(limit / first - 1));
    const uint64_t number = power + sample_below(state, power);
    if (number < limit && sample_below(state, number) < power) return number;
  }
}

// The same from 1 to below `limit`, as if fractions were dropped.
static uint64_t sample_scaled_from_1(uint64_t* state, uint64_t limit) {
  const uint64_t fractions = 256;
  return sample_scaled(state, fractions, limit * fractions) / fractions;
}

static plan_sample sample_new(size_t room) {
  return (plan_sample){ .buffers = bench_alloc(room, sizeof(tide_plan_buffer)) };
}

void plan_sample_free(plan_sample* sample) {
  free(sample->buffers);
  *sample = (plan_sample){ NULL, 0, 0 };
}

static void sample_add(plan_sample* sample, uint64_t lower, uint64_t upper, uint64_t bytes) {
  sample->buffers[sample->count++] =
      (tide_plan_buffer){ .lower = lower, .upper = upper, .bytes = bytes, TIDE_PLAN_FREELY };
}

// ---------------------------------------------------------------------------------------------------
// Training

static void train_add_layer(plan_sample* sample, size_t layer, size_t layers, uint64_t* state) {
  const uint64_t turn = (uint64_t)layers * SAMPLE_STEPS_OF_LAYER;
  const uint64_t forward = (uint64_t)layer * SAMPLE_STEPS_OF_LAYER;
  const uint64_t backward = 2 * turn - SAMPLE_STEPS_OF_LAYER - forward;
  const uint64_t bytes = SAMPLE_UNIT * (1 + sample_scaled_from_1(state, 1100));
  const uint64_t skip_end = forward + 3 + sample_below(state, 64) * SAMPLE_STEPS_OF_LAYER;
  const uint64_t skip_bytes = SAMPLE_UNIT * (1 + sample_scaled_from_1(state, 400));
  sample_add(sample, forward, backward + 3, bytes);
  sample_add(sample, forward + 1, forward + 3, bytes * (1 + sample_below(state, 4)));
  sample_add(sample, forward, forward + 6, bytes * 2);
  sample_add(sample, backward, backward + 6, bytes * 2);
  sample_add(sample, backward + 1, backward + 2, bytes * (1 + sample_below(state, 3)));
  sample_add(sample, forward + 2, skip_end < 2 * turn ? skip_end : 2 * turn, skip_bytes);
}

plan_sample plan_sample_train(size_t count, uint64_t seed) {
  plan_sample sample = sample_new(count);
  const size_t layers = count / SAMPLE_BUFFERS_OF_LAYER;
  for (size_t i = 0; i < layers; i++) train_add_layer(&sample, i, layers, &seed);
  for (uint64_t i = 0; sample.count < count; i++) sample_add(&sample, i, i + 1, SAMPLE_UNIT);
  return sample;
}

// ---------------------------------------------------------------------------------------------------
// Random

plan_sample plan_sample_random(size_t count, uint64_t seed) {
  plan_sample sample = sample_new(count);
  while (sample.count < count) {
    const uint64_t lower = sample_below(&seed, count);
    const uint64_t upper = lower + 1 + sample_scaled_from_1(&seed, count / 20 + 2);
    const uint64_t bytes = sample_scaled(&seed, SAMPLE_UNIT, 4096 * SAMPLE_UNIT);
    sample_add(&sample, lower, upper, bytes / SAMPLE_ROUND * SAMPLE_ROUND + SAMPLE_ROUND);
  }
  return sample;
}

// ---------------------------------------------------------------------------------------------------
// Perfect packings: the buffers are the heap, the largest area at its top

static uint64_t piece_area(const tide_plan_buffer* piece) {
  return (piece->upper - piece->lower) * piece->bytes;
}

static void pieces_swap(tide_plan_buffer* pieces, size_t a, size_t b) {
  const tide_plan_buffer piece = pieces[a];
  pieces[a] = pieces[b];
  pieces[b] = piece;
}

static void pieces_raise(tide_plan_buffer* pieces, size_t at) {
  for (size_t above = (at - 1) / 2; at > 0 && piece_area(&pieces[above]) < piece_area(&pieces[at]);
       at = above, above = (at - 1) / 2) {
    pieces_swap(pieces, above, at);
  }
}

static void pieces_lower(tide_plan_buffer* pieces, size_t count, size_t at) {
  for (size_t below = 2 * at + 1; below < count; at = below, below = 2 * at + 1) {
    if (below + 1 < count && piece_area(&pieces[below]) < piece_area(&pieces[below + 1])) below++;
    if (piece_area(&pieces[below]) <= piece_area(&pieces[at])) return;
    pieces_swap(pieces, at, below);
  }
}

// Somewhere between a tenth and nine tenths of an extent, which is at least 2.
static uint64_t piece_cut(uint64_t extent, uint64_t* state) {
  return 1 + (extent - 2) * (100 + sample_below(state, 801)) / 1000;
}

// Cuts the largest piece in two, four times of five across its longer side in the shape of the whole.
static void pieces_cut_largest(plan_sample* sample, uint64_t instants, uint64_t* state) {
  tide_plan_buffer* const largest = &sample->buffers[0];
  const uint64_t width = largest->upper - largest->lower;
  const bool is_wide = width * sample->peak > largest->bytes * instants;
  const bool is_usual = sample_below(state, 5) > 0;
  tide_plan_buffer rest = *largest;
  if (width >= 2 && (is_wide == is_usual || largest->bytes < 2)) {
    rest.lower = largest->upper = largest->lower + piece_cut(width, state);
  } else {
    largest->bytes = piece_cut(largest->bytes, state);
    rest.bytes -= largest->bytes;
  }
  pieces_lower(sample->buffers, sample->count, 0);
  sample->buffers[sample->count] = rest;
  pieces_raise(sample->buffers, sample->count);
  sample->count++;
}

plan_sample plan_sample_perfect(size_t count, uint64_t seed) {
  const uint64_t instants = 16 * (uint64_t)count;
  plan_sample sample = sample_new(count);
  if (count == 0) return sample;
  sample.peak = 4096 * (uint64_t)count;
  sample_add(&sample, 0, instants, sample.peak);
  while (sample.count < count) pieces_cut_largest(&sample, instants, &seed);
  return sample;
}

void plan_sample_drop(plan_sample* sample, size_t percent, uint64_t seed) {
  size_t kept = 0;
  for (size_t i = 0; i < sample->count; i++) {
    if (sample_below(&seed, 100) >= percent) sample->buffers[kept++] = sample->buffers[i];
  }
  sample->count = kept;
}

// ---------------------------------------------------------------------------------------------------
// Files

static tide_status sample_source_read(void* user, void* out, size_t room, size_t* out_bytes) {
  *out_bytes = fread(out, 1, room, user);
  return TIDE_OK;
}

bool plan_sample_read(const char* path, plan_sample* out) {
  *out = (plan_sample){ NULL, 0, 0 };
  FILE* const file = fopen(path, "rb");
  if (file == NULL) return false;
  const tide_source source = { sample_source_read, file };
  tide_problem* problem = NULL;
  bench_require(tide_problem_read(&source, NULL, &problem), path);
  const tide_plan_problem read = tide_problem_plan(problem);
  *out = sample_new(read.count);
  for (; out->count < read.count; out->count++) {
    out->buffers[out->count] = read.buffers[out->count];
    bench_verify(read.buffers[out->count].gap_count == 0, path);  // gaps go with the problem
  }
  tide_problem_free(problem);
  (void)fclose(file);
  return true;
}
