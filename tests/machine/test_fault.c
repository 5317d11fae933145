// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Faults on every kind of call, and no leak at whatever call a run breaks.
#define T_THREADS
#include "machine/trip.h"

static void expect_all_free(tide_machine* m) {
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

DRY_TEST(test_fault__latency_is_virtual_on_the_dry_machine) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_OK);
  fault.latency_ns = 3600 * (uint64_t)1000000000;
  fault_put(m, &fault);
  const uint64_t start = clock_ns(m);

  T_OK(raw_try(m, 4096));

  T_EQ(clock_ns(m), start + fault.latency_ns + 3000);
}

EMULATED_TEST(test_fault__is_for_one_machine) {
  tide_machine* const other = machine_open(t_variant(), NULL);
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  fault.count = UINT64_MAX;
  fault_put(m, &fault);

  T_OK(raw_try(other, 4096));
  T_STATUS(raw_try(m, 4096), TIDE_ERR_MACHINE);

  tide_machine_free(other);
}

// ---------------------------------------------------------------------------------------------------
// A run that breaks at every call

// One step fails by a fault on its kind of call, and changes nothing but the counters.
static void expect_fault(trip* t, tide_call call, tide_status chosen) {
  const tide_fault fault = fault_of(call, chosen);
  const tide_call_stats before = tide_machine_call_stats(t->m, call);
  const size_t free_before = free_bytes(t->m, 0);
  fault_put(t->m, &fault);

  const tide_status status = trip_steps[call](t);

  if (status != chosen) T_FAIL("%s is %s", tide_call_name(call), tide_status_name(status));
  T_EQ(tide_last_error()->status, chosen);
  T_STR_HAS(tide_last_error()->text, tide_call_name(call));
  T_EQ(tide_machine_call_stats(t->m, call).calls, before.calls + 1 + (call == TIDE_CALL_MEMORY_INFO));
  T_EQ(tide_machine_call_stats(t->m, call).failures, before.failures + 1);
  T_EQ(free_bytes(t->m, 0), free_before);
}

// Runs with a fault at the call number `broken`. The call is then repeated, or everything is undone.
static void run_broken(trip_source* source, size_t broken, bool is_repeated) {
  static const tide_status statuses[] = { TIDE_ERR_NO_MEMORY, TIDE_ERR_MACHINE, TIDE_ERR_LIMIT,
                                          TIDE_ERR_DEVICE };
  tide_machine* const m = machine_open(t_variant(), NULL);
  trip t;
  trip_init(&t, m, source);

  for (size_t i = 0; i < TRIP_LENGTH && (is_repeated || i <= broken); ++i) {
    if (i == broken) expect_fault(&t, trip_run[i], statuses[i % 4]);
    if (i != broken || is_repeated) trip_make(&t, trip_run[i]);
  }

  if (is_repeated && t.stream == NULL) T_EQ(atomic_load(&t.calls), 3);
  trip_undo(&t, trip_must_work);
  expect_all_free(m);
  tide_machine_free(m);
}

static void run_undone(trip_source* source, size_t broken) { run_broken(source, broken, false); }
static void run_repeated(trip_source* source, size_t broken) { run_broken(source, broken, true); }

// Leaves everything that the first steps made to tide_machine_free().
static void run_abandoned(trip_source* source, size_t count) {
  tide_machine* const m = machine_open(t_variant(), NULL);
  trip t;
  trip_init(&t, m, source);
  for (size_t i = 0; i < count; ++i) trip_make(&t, trip_run[i]);
  tide_machine_free(m);
}

static void expect_no_leak(void (*run)(trip_source* source, size_t at)) {
  trip_source space;
  trip_source* const source = trip_source_new(&space, t_variant());
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  size_t mappings = 0;

  for (size_t i = 0; i < TRIP_LENGTH; ++i) {
    run(source, i);
    T_EQ(t_count_descriptors(), descriptors);
    machine_expect_threads(threads);
    if (i == TRIP_LENGTH / 4) mappings = t_count_mappings();
  }

  // The C library keeps a few mappings for stacks and heaps of threads; a leak in each run would be more.
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 12);
  trip_source_end(source);
}

T_TEST(test_fault__runs_make_every_kind_of_call) {
  for (int call = 0; call < TIDE_CALL_COUNT; ++call) {
    size_t count = 0;
    for (size_t i = 0; i < TRIP_LENGTH; ++i) count += trip_run[i] == (tide_call)call;
    if (count == 0) T_FAIL("%s is not in the run", tide_call_name((tide_call)call));
  }
}

T_TEST_OVER(test_fault__at_every_call_of_a_run_leaks_nothing, machine_emulated) {
  expect_no_leak(run_undone);
}

T_TEST_OVER(test_fault__at_every_call_of_a_run_lets_the_call_be_made_again, machine_emulated) {
  expect_no_leak(run_repeated);
}

T_TEST_OVER(test_machine_free__at_every_call_of_a_run_leaves_nothing, machine_emulated) {
  expect_no_leak(run_abandoned);
}
