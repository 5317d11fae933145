// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance of machines: injected faults, counters of calls, and that nothing leaks wherever a run breaks.
#include "machine/trip.h"

static tide_fault fault_of(tide_call call, tide_status status) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = (uint32_t)call;
  fault.status = (uint32_t)status;
  return fault;
}

static void add(tide_machine* m, const tide_fault* fault) { T_OK(tide_machine_fault_add(m, fault)); }

static tide_status try_alloc(tide_machine* m, size_t bytes) {
  void* memory = NULL;
  return tide_machine_raw_alloc(m, 0, bytes, &memory);
}

// ---------------------------------------------------------------------------------------------------
// Every kind of call

MACHINE_TEST(test_call_name__is_that_of_the_function) {
  static const char* const names[] = {
#define CALL_NAME(upper, lower) #lower,
    TIDE_CALL_MAP(CALL_NAME)
#undef CALL_NAME
  };

  for (size_t i = 0; i < TIDE_CALL_COUNT; ++i) T_STR_EQ(tide_call_name((tide_call)i), names[i]);

  T_STR_EQ(tide_call_name(TIDE_CALL_ANY), "any");
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).calls, 0);
}

// The steps that must go before a step; TIDE_CALL_ANY ends the list.
#define BEFORE_MAX 6
static const struct {
  tide_call call;
  tide_call before[BEFORE_MAX];
} needs[] = {
#define NEEDS(upper, ...) { TIDE_CALL_##upper, { __VA_ARGS__, TIDE_CALL_ANY } },
#define C(upper) TIDE_CALL_##upper
  NEEDS(RAW_RELEASE, C(RAW_ALLOC)) NEEDS(PINNED_RELEASE, C(PINNED_ALLOC)) NEEDS(PINNED_UNREGISTER,
                                                                                C(PINNED_REGISTER))
      NEEDS(ADDRESS_RELEASE, C(ADDRESS_RESERVE)) NEEDS(PHYSICAL_FREE, C(PHYSICAL_NEW)) NEEDS(
          MAP, C(ADDRESS_RESERVE), C(PHYSICAL_NEW)) NEEDS(UNMAP, C(ADDRESS_RESERVE), C(PHYSICAL_NEW), C(MAP))
          NEEDS(SET_ACCESS, C(ADDRESS_RESERVE), C(PHYSICAL_NEW), C(MAP)) NEEDS(STREAM_FREE, C(STREAM_NEW))
              NEEDS(STREAM_QUERY, C(STREAM_NEW)) NEEDS(STREAM_SYNCHRONIZE, C(STREAM_NEW)) NEEDS(
                  STREAM_WAIT, C(STREAM_NEW), C(EVENT_NEW)) NEEDS(EVENT_FREE, C(EVENT_NEW))
                  NEEDS(EVENT_RECORD, C(STREAM_NEW), C(EVENT_NEW)) NEEDS(EVENT_QUERY, C(EVENT_NEW)) NEEDS(
                      EVENT_SYNCHRONIZE, C(EVENT_NEW)) NEEDS(COPY, C(STREAM_NEW), C(RAW_ALLOC))
                      NEEDS(FILL, C(STREAM_NEW), C(RAW_ALLOC)) NEEDS(CALL, C(STREAM_NEW)) NEEDS(
                          CAPTURE_BEGIN, C(STREAM_NEW)) NEEDS(CAPTURE_END, C(STREAM_NEW), C(CAPTURE_BEGIN))
                          NEEDS(CAPTURE_INFO, C(STREAM_NEW), C(CAPTURE_BEGIN))
                              NEEDS(STREAM_INFO, C(STREAM_NEW)) NEEDS(CAPTURE_TERMINALS, C(STREAM_NEW),
                                                                      C(RAW_ALLOC), C(CAPTURE_BEGIN), C(FILL))
                                  NEEDS(NODE_DEPENDENCIES, C(STREAM_NEW), C(RAW_ALLOC), C(CAPTURE_BEGIN),
                                        C(FILL), C(CAPTURE_TERMINALS)) NEEDS(LAUNCH, C(STREAM_NEW),
                                                                             C(CAPTURE_BEGIN), C(CAPTURE_END))
                                      NEEDS(LAUNCH_FREE, C(STREAM_NEW), C(CAPTURE_BEGIN), C(CAPTURE_END))
                                          NEEDS(PEER_DISABLE, C(PEER_ENABLE)) NEEDS(RAW_EXPORT, C(RAW_ALLOC))
                                              NEEDS(RAW_UNIMPORT, C(RAW_IMPORT))
                                                  NEEDS(PHYSICAL_EXPORT, C(PHYSICAL_NEW))
#undef C
#undef NEEDS
};

static void make_what_is_needed(trip* t, tide_call call) {
  for (size_t i = 0; i < sizeof needs / sizeof *needs; ++i) {
    if (needs[i].call != call) continue;
    for (const tide_call* step = needs[i].before; *step != TIDE_CALL_ANY; ++step) {
      if (!trip_is_fine(t, *step, trip_steps[*step](t))) {
        T_FAIL("%s before %s: %s", tide_call_name(*step), tide_call_name(call), tide_last_error()->text);
      }
    }
  }
}

static void expect_fault(trip* t, tide_call call, tide_status chosen) {
  const tide_fault fault = fault_of(call, chosen);
  make_what_is_needed(t, call);
  const tide_call_stats before = tide_machine_call_stats(t->m, call);
  add(t->m, &fault);

  const tide_status hit = trip_steps[call](t);
  if (hit != chosen) T_FAIL("%s is %s", tide_call_name(call), tide_status_name(hit));
  T_EQ(tide_last_error()->status, chosen);
  T_STR_HAS(tide_last_error()->text, tide_call_name(call));
  const tide_status next = trip_steps[call](t);
  if (!trip_is_fine(t, call, next)) T_FAIL("%s then is %s", tide_call_name(call), tide_last_error()->text);

  T_EQ(tide_machine_call_stats(t->m, call).calls, before.calls + 2);
  T_EQ(tide_machine_call_stats(t->m, call).failures, before.failures + 1 + (next != TIDE_OK));
}

static void expect_all_free(tide_machine* m) {
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

EMULATED_TEST(test_fault__hits_every_kind_of_call_once) {
  static const tide_status statuses[] = { TIDE_ERR_NO_MEMORY, TIDE_ERR_MACHINE, TIDE_ERR_LIMIT,
                                          TIDE_ERR_DEVICE };
  trip_source space;
  trip_source* const source = trip_source_new(&space, t_variant());
  for (int call = 0; call < TIDE_CALL_COUNT; ++call) {
    trip t;
    trip_init(&t, m, source);

    expect_fault(&t, (tide_call)call, statuses[call % 4]);

    trip_undo(&t, trip_must_work);
    expect_all_free(m);
    tide_machine_fault_clear(m);
  }
  trip_source_end(source);
}

// ---------------------------------------------------------------------------------------------------
// What a fault says

MACHINE_TEST(test_fault__leaves_other_kinds_alone) {
  const tide_fault fault = fault_of(TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY);
  add(m, &fault);

  T_OK(try_alloc(m, MIB));

  void* memory = NULL;
  T_STATUS(tide_machine_pinned_alloc(m, 4096, &memory), TIDE_ERR_NO_MEMORY);
}

MACHINE_TEST(test_fault__skips_and_counts) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.skip = 2;
  fault.count = 3;
  add(m, &fault);

  for (int i = 0; i < 8; ++i) {
    T_STATUS(try_alloc(m, 4096), i >= 2 && i < 5 ? TIDE_ERR_NO_MEMORY : TIDE_OK);
  }
}

MACHINE_TEST(test_fault__skips_and_then_hits_for_ever) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.skip = 2;
  fault.count = UINT64_MAX;
  add(m, &fault);

  for (int i = 0; i < 20; ++i) T_STATUS(try_alloc(m, 4096), i < 2 ? TIDE_OK : TIDE_ERR_NO_MEMORY);
}

MACHINE_TEST(test_fault__hits_for_ever_until_cleared) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  add(m, &fault);

  for (int i = 0; i < 100; ++i) T_STATUS(try_alloc(m, 4096), TIDE_ERR_NO_MEMORY);
  tide_machine_fault_clear(m);

  T_OK(try_alloc(m, 4096));
}

MACHINE_TEST(test_fault__any_hits_the_next_call_whatever_it_is) {
  const tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  uint64_t ns = 1;
  add(m, &fault);

  T_STATUS(tide_machine_clock(m, &ns), TIDE_ERR_MACHINE);

  T_EQ(ns, 0);
  T_STR_HAS(tide_last_error()->text, "clock");
  T_OK(tide_machine_clock(m, &ns));
}

MACHINE_TEST(test_fault__any_counts_calls_of_all_kinds) {
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  fault.skip = 3;
  add(m, &fault);

  (void)clock_ns(m);
  T_OK(try_alloc(m, 4096));
  (void)device_info(m, 0);

  T_STATUS(try_alloc(m, 4096), TIDE_ERR_MACHINE);
  T_OK(try_alloc(m, 4096));
}

MACHINE_TEST(test_fault__byte_budget_lets_that_many_bytes_pass) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.byte_budget = MIB;
  fault.count = UINT64_MAX;
  add(m, &fault);

  T_OK(try_alloc(m, MIB / 2));
  T_OK(try_alloc(m, MIB / 2));

  T_STATUS(try_alloc(m, 1), TIDE_ERR_NO_MEMORY);
  T_STATUS(try_alloc(m, MIB), TIDE_ERR_NO_MEMORY);
}

MACHINE_TEST(test_fault__byte_budget_is_not_spent_by_a_call_that_was_hit) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.byte_budget = MIB;
  fault.count = UINT64_MAX;
  add(m, &fault);

  T_STATUS(try_alloc(m, 4 * MIB), TIDE_ERR_NO_MEMORY);

  T_OK(try_alloc(m, MIB));
  T_STATUS(try_alloc(m, 1), TIDE_ERR_NO_MEMORY);
}

MACHINE_TEST(test_fault__byte_budget_comes_before_skip_and_count) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.byte_budget = MIB;
  fault.skip = 1;
  add(m, &fault);

  T_OK(try_alloc(m, MIB));
  T_OK(try_alloc(m, 4096));

  T_STATUS(try_alloc(m, 4096), TIDE_ERR_NO_MEMORY);
  T_OK(try_alloc(m, 4096));
}

MACHINE_TEST(test_fault__byte_budget_of_any_adds_all_kinds_up) {
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_NO_MEMORY);
  void* pinned = NULL;
  fault.byte_budget = MIB;
  add(m, &fault);

  T_OK(try_alloc(m, MIB / 2));
  T_OK(tide_machine_pinned_alloc(m, MIB / 2, &pinned));

  T_STATUS(try_alloc(m, 1), TIDE_ERR_NO_MEMORY);
}

REAL_TEST(test_fault__latency_holds_a_call_up) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_OK);
  fault.latency_ns = 30000000;
  add(m, &fault);
  const uint64_t start = t_now_ns();

  T_OK(try_alloc(m, 4096));

  T_LE(start + 30000000, t_now_ns());
}

REAL_TEST(test_fault__latency_comes_before_a_failure_too) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.latency_ns = 30000000;
  add(m, &fault);
  const uint64_t start = t_now_ns();

  T_STATUS(try_alloc(m, 4096), TIDE_ERR_NO_MEMORY);

  T_LE(start + 30000000, t_now_ns());
}

DRY_TEST(test_fault__latency_is_virtual_on_the_dry_machine) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_OK);
  fault.latency_ns = 3600 * (uint64_t)1000000000;
  add(m, &fault);
  const uint64_t start = clock_ns(m);

  T_OK(try_alloc(m, 4096));

  T_EQ(clock_ns(m), start + fault.latency_ns + 3000);
}

MACHINE_TEST(test_fault__the_first_that_hits_decides) {
  tide_fault first = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_LIMIT);
  const tide_fault second = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  first.skip = 1;
  add(m, &first);
  add(m, &second);

  T_STATUS(try_alloc(m, 4096), TIDE_ERR_MACHINE);
  T_STATUS(try_alloc(m, 4096), TIDE_ERR_LIMIT);

  T_OK(try_alloc(m, 4096));
}

MACHINE_TEST(test_fault_add__takes_sixteen) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  for (int i = 0; i < 16; ++i) add(m, &fault);

  T_STATUS(tide_machine_fault_add(m, &fault), TIDE_ERR_LIMIT);
  tide_machine_fault_clear(m);

  T_OK(try_alloc(m, 4096));
  add(m, &fault);
}

MACHINE_TEST(test_fault_add__refuses_what_makes_no_sense) {
  tide_fault no_call = fault_of((tide_call)(TIDE_CALL_ANY + 1), TIDE_ERR_MACHINE);
  tide_fault no_status = fault_of(TIDE_CALL_CLOCK, (tide_status)7);
  tide_fault no_size = fault_of(TIDE_CALL_CLOCK, TIDE_ERR_MACHINE);
  no_size.size = 0;

  T_STATUS(tide_machine_fault_add(m, &no_call), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, &no_status), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, &no_size), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_fault_add(m, NULL), TIDE_ERR_ARGUMENT);

  (void)clock_ns(m);
}

EMULATED_TEST(test_fault__is_for_one_machine) {
  tide_machine* const other = machine_open(t_variant(), NULL);
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_MACHINE);
  fault.count = UINT64_MAX;
  add(m, &fault);

  T_OK(try_alloc(other, 4096));
  T_STATUS(try_alloc(m, 4096), TIDE_ERR_MACHINE);

  tide_machine_free(other);
}

EMULATED_TEST(test_fault__changes_nothing) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  uint8_t* const block = raw_new(m, 0, MIB);
  const size_t before = free_bytes(m, 0);
  const tide_fault release = fault_of(TIDE_CALL_RAW_RELEASE, TIDE_ERR_MACHINE);
  add(m, &fault);
  add(m, &release);

  T_STATUS(try_alloc(m, MIB), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_machine_raw_release(m, 0, block), TIDE_ERR_MACHINE);

  T_EQ(free_bytes(m, 0), before);
  T_EQ(pointer_info(m, block).kind, TIDE_MEMORY_RAW);
  T_OK(tide_machine_raw_release(m, 0, block));
}

MACHINE_TEST(test_fault__in_a_capture_does_not_break_it) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, 4096);
  const tide_fault fault = fault_of(TIDE_CALL_FILL, TIDE_ERR_NO_MEMORY);
  tide_launch graph = NULL;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  add(m, &fault);

  T_STATUS(tide_machine_fill(m, 0, stream, raw, 1, 4096), TIDE_ERR_NO_MEMORY);
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, 4096));

  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
}

// ---------------------------------------------------------------------------------------------------
// Counters

MACHINE_TEST(test_call_stats__count_calls_and_failures) {
  T_OK(try_alloc(m, 4096));
  T_OK(try_alloc(m, 4096));
  T_STATUS(try_alloc(m, 0), TIDE_ERR_ARGUMENT);

  const tide_call_stats stats = tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC);

  T_EQ(stats.calls, 3);
  T_EQ(stats.failures, 1);
}

MACHINE_TEST(test_call_stats__any_is_the_sum) {
  trip t;
  trip_init(&t, m, NULL);
  T_OK(step_stream_new(&t));
  T_OK(step_raw_alloc(&t));
  T_OK(step_fill(&t));
  T_OK(step_stream_synchronize(&t));
  T_STATUS(try_alloc(m, 0), TIDE_ERR_ARGUMENT);
  tide_call_stats sum = { 0, 0, 0 };

  for (int call = 0; call < TIDE_CALL_COUNT; ++call) {
    const tide_call_stats stats = tide_machine_call_stats(m, (tide_call)call);
    sum.calls += stats.calls;
    sum.failures += stats.failures;
    sum.ns += stats.ns;
  }
  const tide_call_stats any = tide_machine_call_stats(m, TIDE_CALL_ANY);

  T_EQ(any.calls, sum.calls);
  T_EQ(any.failures, sum.failures);
  T_EQ(any.ns, sum.ns);
  T_EQ(any.failures, 1);
}

// ---------------------------------------------------------------------------------------------------
// A run that breaks at every call

static void expect_step(trip* t, tide_call call) {
  const tide_status status = trip_steps[call](t);
  if (trip_is_fine(t, call, status)) return;
  T_FAIL("%s is %s: %s", tide_call_name(call), tide_status_name(status), tide_last_error()->text);
}

// Makes the run with the call at `broken` failing once; it is then made again, or everything is undone.
static void run_broken(trip_source* source, size_t broken, bool is_repeated) {
  tide_machine* const m = machine_open(t_variant(), NULL);
  tide_fault fault = fault_of(TIDE_CALL_ANY, TIDE_ERR_NO_MEMORY);
  fault.skip = broken;
  trip t;
  trip_init(&t, m, source);
  add(m, &fault);

  for (size_t i = 0; i < TRIP_LENGTH && (is_repeated || i <= broken); ++i) {
    if (i == broken) T_STATUS(trip_steps[trip_run[i]](&t), TIDE_ERR_NO_MEMORY);
    if (i != broken || is_repeated) expect_step(&t, trip_run[i]);
  }

  if (is_repeated && t.stream == NULL) T_EQ(atomic_load(&t.calls), 3);
  trip_undo(&t, trip_must_work);
  expect_all_free(m);
  tide_machine_free(m);
}

static void expect_no_leak(bool is_repeated) {
  trip_source space;
  trip_source* const source = trip_source_new(&space, t_variant());
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  size_t mappings = 0;

  for (size_t i = 0; i < TRIP_LENGTH; ++i) {
    run_broken(source, i, is_repeated);
    T_EQ(t_count_descriptors(), descriptors);
    machine_expect_threads(threads);
    if (i == TRIP_LENGTH / 4) mappings = t_count_mappings();
  }

  // The C library keeps a few mappings for stacks and heaps of threads; a leak in each run would be more.
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 12);
  trip_source_end(source);
}

T_TEST_OVER(test_fault__at_every_call_of_a_run_leaks_nothing, machine_emulated) { expect_no_leak(false); }

T_TEST_OVER(test_fault__at_every_call_of_a_run_lets_the_call_be_made_again, machine_emulated) {
  expect_no_leak(true);
}

// The same, but everything that was made is left to tide_machine_free().
T_TEST_OVER(test_machine_free__at_every_call_of_a_run_leaves_nothing, machine_emulated) {
  trip_source space;
  trip_source* const source = trip_source_new(&space, t_variant());
  const size_t descriptors = t_count_descriptors();
  const size_t threads = t_count_threads();
  size_t mappings = 0;
  for (size_t stop = 0; stop < TRIP_LENGTH; ++stop) {
    tide_machine* const m = machine_open(t_variant(), NULL);
    trip t;
    trip_init(&t, m, source);

    for (size_t i = 0; i < stop; ++i) expect_step(&t, trip_run[i]);
    tide_machine_free(m);

    T_EQ(t_count_descriptors(), descriptors);
    machine_expect_threads(threads);
    if (stop == TRIP_LENGTH / 4) mappings = t_count_mappings();
  }
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 12);
  trip_source_end(source);
}
