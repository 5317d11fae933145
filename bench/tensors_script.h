// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What one step of a network asks for, as a list of events: see tensors_script.c.
#ifndef TIDEMARK_BENCH_TENSORS_SCRIPT_H
#define TIDEMARK_BENCH_TENSORS_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct script_event {
  uint32_t tensor;
  bool is_release;
  size_t bytes;
} script_event;

typedef struct script {
  script_event* events;  // owned
  size_t event_count;
  size_t tensors;  // each has an allocation and, later, a release
} script;

// From 0 to 1, without the 1.
double script_chance(uint64_t* state);
// The size of a tensor in one run, when sizes differ by `jitter`: the same states give the same sizes.
size_t script_bytes(size_t bytes, double jitter, uint64_t* state);

// The same seed and bounds give the same script.
script script_new(uint64_t seed, double low_bytes, double high_bytes);
void script_free(script* s);

// The most bytes live at once in `runs` runs of the script from a state of chance; and in an endless run in
// which each tensor is released so many allocations later.
uint64_t script_peak_bytes(const script* s, double jitter, uint64_t state, uint64_t runs);
uint64_t script_peak_in_flight(const script* s, size_t in_flight);

// Where each tensor lies in an arena so that those live at once do not overlap: owned by the caller.
size_t* script_plan(const script* s, size_t* out_arena_bytes);

#endif
