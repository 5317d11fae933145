// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The benchmark harness. Each bench_<name>.c has one function `bench_<name>`, listed in BENCH_MAP below,
// which measures and writes rows. A value is the median of BENCH_RUNS runs after one that is thrown away.
//
//   static void work(void* user, uint64_t count) { while (count-- > 0) free(malloc(64)); }
//   const bench_job job = { .work = work, .count = 1000 };
//   bench_row(run, "heap", "malloc and free", bench_ns(&job), "ns");
#ifndef TIDEMARK_BENCH_H
#define TIDEMARK_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidemark/base.h"

#define BENCH_RUNS 7

// Every benchmark, in the order they run.
// clang-format off
#define BENCH_MAP(X)                                                                                      \
  X(machine) X(device) X(chaos) X(budget) X(range) X(pinned) X(pages) X(locks) X(format) X(plan)          \
  X(profile) X(graph) X(tensors)
// clang-format on

typedef struct bench bench;  // one run of the program: what was asked for and how rows are written

#define BENCH_DECLARE(name) void bench_##name(bench* run);
BENCH_MAP(BENCH_DECLARE)
#undef BENCH_DECLARE

enum { BENCH_MAX_THREADS = 16 };

typedef struct bench_job {
  void (*work)(void* user, uint64_t count);  // does `count` operations; this is timed
  void (*before)(void* user);                // (optional) not timed
  void (*after)(void* user);                 // (optional) not timed: waits, checks, cleans up
  void* user;                                // borrowed during the job
  uint64_t count;
} bench_job;

// Nanoseconds of one operation.
double bench_ns(const bench_job* job);

// Runs a job on several threads at once, `repeats` times each with one of the users. Returns the ns from the
// first begin to the last end. The caller only waits, and so takes no processor from them.
uint64_t bench_team_ns(const bench_job* job, void* const* users, size_t threads, int repeats);

// The system's clock and the processor time of the process in ns, and the median of some values (which are
// sorted in place).
uint64_t bench_now(void);
uint64_t bench_processor_now(void);
double bench_median(double* values, size_t count);

// Writes a result; `peer` names whose it is when it is not ours.
void bench_row(bench* run, const char* name, const char* what, double value, const char* unit);
void bench_row_peer(bench* run, const char* name, const char* what, const char* peer, double value,
                    const char* unit);
// Says that something was not measured, and why.
void bench_skip(bench* run, const char* name, const char* what, const char* why);

// Ends the program when a call failed or a result is wrong: there is nothing to measure then.
void bench_require(tide_status status, const char* what);
// Zeroed memory; ends the program when there is none.
void* bench_alloc(size_t count, size_t bytes) __attribute__((returns_nonnull));
void bench_verify(bool is_right, const char* what);

// The next number of a sequence whose state is not 0: xorshift64 (Marsaglia), which adds little to what is
// measured. The workloads behind published figures are made of it, so it never changes.
static inline uint64_t bench_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

#endif
