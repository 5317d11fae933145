// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Faults on every kind of call, and that nothing leaks wherever a run breaks.
#include "machine/trip.h"

// ---------------------------------------------------------------------------------------------------
// Every kind of call

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
  fault_put(t->m, &fault);

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

EMULATED_TEST(test_fault__changes_nothing) {
  tide_fault fault = fault_of(TIDE_CALL_RAW_ALLOC, TIDE_ERR_NO_MEMORY);
  fault.count = UINT64_MAX;
  uint8_t* const block = raw_new(m, 0, MIB);
  const size_t before = free_bytes(m, 0);
  const tide_fault release = fault_of(TIDE_CALL_RAW_RELEASE, TIDE_ERR_MACHINE);
  fault_put(m, &fault);
  fault_put(m, &release);

  T_STATUS(raw_try(m, MIB), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_machine_raw_release(m, 0, block), TIDE_ERR_MACHINE);

  T_EQ(free_bytes(m, 0), before);
  T_EQ(pointer_info(m, block).kind, TIDE_MEMORY_RAW);
  T_OK(tide_machine_raw_release(m, 0, block));
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
  fault_put(m, &fault);

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
