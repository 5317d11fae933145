// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The heap that machines keep their records in, and what happens when it runs out.
#define T_THREADS
#include "machine/trip.h"

T_TEST_OVER(test_heap__does_not_grow_when_a_run_repeats, machine_emulated) {
  counting_heap h;
  trip t;
  size_t after_ten = 0;
  counting_heap_init(&h, SIZE_MAX, false);
  tide_machine* const m = machine_open(t_variant(), &h.heap);

  for (size_t round = 0; round < 100; ++round) {
    trip_init(&t, m, NULL);
    for (size_t i = 0; i < TRIP_LENGTH; ++i) {
      if (!trip_is_shared(trip_run[i])) trip_make(&t, trip_run[i]);
    }
    if (round == 10) after_ten = atomic_load(&h.outstanding);
  }

  T_LT(0, after_ten);
  T_LE(atomic_load(&h.outstanding), after_ten + after_ten / 4);
  tide_machine_free(m);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// A run in which one allocation fails. The step that needed it can be made again.
static bool run_with_one_failure(trip_source* source, size_t fail_at) {
  counting_heap h;
  trip t;
  tide_machine* m = NULL;
  counting_heap_init(&h, fail_at, false);
  tide_status status = machine_new(t_variant(), &h.heap, &m);
  if (status != TIDE_OK) {
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    T_PTR_EQ(m, NULL);
    T_EQ(atomic_load(&h.outstanding), 0);
    T_OK(machine_new(t_variant(), &h.heap, &m));
  }
  trip_init(&t, m, source);
  for (size_t i = 0; i < TRIP_LENGTH; ++i) {
    status = trip_steps[trip_run[i]](&t);
    if (trip_is_fine(&t, trip_run[i], status)) continue;
    if (status != TIDE_ERR_NO_MEMORY) {
      T_FAIL("alloc %zu, %s: %s", fail_at, tide_call_name(trip_run[i]), tide_last_error()->text);
    }
    trip_make(&t, trip_run[i]);
  }
  T_EQ(atomic_load(&t.calls), 3);
  trip_undo(&t, trip_must_work);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  tide_machine_free(m);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

// A run in which every allocation fails from one on. Everything can still be given back.
static bool run_until_exhausted(trip_source* source, size_t fail_at) {
  counting_heap h;
  trip t;
  tide_machine* m = NULL;
  counting_heap_init(&h, fail_at, true);
  const tide_status status = machine_new(t_variant(), &h.heap, &m);
  if (status == TIDE_OK) {
    trip_init(&t, m, source);
    for (size_t i = 0; i < TRIP_LENGTH; ++i) {
      const tide_status made = trip_steps[trip_run[i]](&t);
      if (trip_is_fine(&t, trip_run[i], made)) continue;
      T_STATUS(made, TIDE_ERR_NO_MEMORY);
      break;
    }
    trip_undo(&t, trip_may_fail);
  }
  tide_machine_free(m);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

// Repeats a run with each allocation failing in turn, until none fails.
static void fail_at_every_alloc(bool (*run)(trip_source* source, size_t fail_at)) {
  trip_source space;
  trip_source* const source = trip_source_new(&space, t_variant());
  const size_t descriptors = t_count_descriptors();
  size_t fail_at = 0;

  while (run(source, fail_at)) {
    T_EQ(t_count_descriptors(), descriptors);
    ++fail_at;
  }

  T_LT(0, fail_at);
  trip_source_end(source);
}

T_TEST_OVER(test_heap__may_fail_at_any_alloc, machine_emulated) { fail_at_every_alloc(run_with_one_failure); }

T_TEST_OVER(test_heap__may_be_exhausted_at_any_alloc, machine_emulated) {
  fail_at_every_alloc(run_until_exhausted);
}

// Giving back needs no memory.
T_TEST_OVER(test_heap__is_not_needed_to_give_back, machine_emulated) {
  static const tide_call made[] = {
    TIDE_CALL_STREAM_NEW,      TIDE_CALL_EVENT_NEW,         TIDE_CALL_RAW_ALLOC,    TIDE_CALL_PINNED_ALLOC,
    TIDE_CALL_PINNED_REGISTER, TIDE_CALL_ADDRESS_RESERVE,   TIDE_CALL_PHYSICAL_NEW, TIDE_CALL_MAP,
    TIDE_CALL_SET_ACCESS,      TIDE_CALL_CAPTURE_BEGIN,     TIDE_CALL_FILL,         TIDE_CALL_CAPTURE_END,
    TIDE_CALL_LAUNCH,          TIDE_CALL_STREAM_SYNCHRONIZE
  };
  counting_heap h;
  trip t;
  counting_heap_init(&h, SIZE_MAX, true);
  tide_machine* const m = machine_open(t_variant(), &h.heap);
  trip_init(&t, m, NULL);
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) trip_make(&t, made[i]);

  atomic_store(&h.fail_at, atomic_load(&h.allocs));
  trip_undo(&t, trip_must_work);

  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  tide_machine_free(m);
  T_EQ(atomic_load(&h.outstanding), 0);
}
