// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a machine counts while many threads call it: calls, failures, and virtual time.
#define T_THREADS
#include "machine/machines.h"

enum { THREADS = 40, CALLS = 500, STEP_NS = 7 };

static void run_all(tide_machine* m, void* (*function)(void*)) {
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; ++i) t_thread_start(&threads[i], function, m);
  for (size_t i = 0; i < THREADS; ++i) t_thread_join(threads[i]);
}

// Every fifth call is refused.
static void* call_often(void* m) {
  for (int i = 0; i < CALLS; ++i) {
    bool is_captured = false;
    uint64_t number = 0;
    const tide_status status = tide_machine_stream_info(m, i % 5 == 0 ? -1 : 0, NULL, &is_captured, &number);
    T_EQ(status == TIDE_OK, i % 5 != 0);
  }
  return NULL;
}

EMULATED_TEST(test_counts__calls_of_many_threads_add_up) {
  const tide_call_stats before = tide_machine_call_stats(m, TIDE_CALL_STREAM_INFO);
  const tide_call_stats all_before = tide_machine_call_stats(m, TIDE_CALL_ANY);

  run_all(m, call_often);

  const tide_call_stats after = tide_machine_call_stats(m, TIDE_CALL_STREAM_INFO);
  const tide_call_stats all_after = tide_machine_call_stats(m, TIDE_CALL_ANY);
  T_EQ(after.calls - before.calls, THREADS * CALLS);
  T_EQ(after.failures - before.failures, THREADS * CALLS / 5);
  T_EQ(all_after.calls - all_before.calls, THREADS * CALLS);
  T_EQ(all_after.failures - all_before.failures, THREADS * CALLS / 5);
}

static uint64_t now(tide_machine* m) {
  uint64_t ns = 0;
  T_OK(tide_machine_clock(m, &ns));
  return ns;
}

// The clock never runs backwards for a thread that reads it, whoever advances it.
static void* advance_often(void* m) {
  uint64_t last = now(m);
  for (int i = 0; i < CALLS; ++i) {
    T_OK(tide_dry_advance(m, STEP_NS));
    const uint64_t later = now(m);
    T_LE(last + STEP_NS, later);
    last = later;
  }
  return NULL;
}

DRY_TEST(test_counts__time_of_many_threads_adds_up) {
  const uint64_t before = now(m);

  run_all(m, advance_often);

  T_EQ(now(m) - before, (uint64_t)THREADS * CALLS * STEP_NS);
}

static void* advance_to_the_end(void* m) {
  T_OK(tide_dry_advance(m, UINT64_MAX - 1));
  return NULL;
}

DRY_TEST(test_counts__time_stops_at_the_end_for_all_threads) {
  run_all(m, advance_to_the_end);
  T_EQ(now(m), UINT64_MAX);
  T_OK(tide_dry_advance(m, 1));
  T_EQ(now(m), UINT64_MAX);
}
