// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: the order between streams: events, the default streams.
#include "conformance/check.h"

CHECK_FILE(check_order);

#define BYTES 4096u

// A race between two streams. `between` orders the second behind the first, or is NULL where the streams
// themselves do.
typedef struct race {
  tide_stream first;
  tide_stream second;
  tide_stream third;
  tide_event event;
  uint8_t* memory;  // of device 0
  uint8_t* result;  // pinned
} race;

static race race_new(tide_machine* m, tide_stream first, tide_stream second) {
  race r = { first, second, NULL, event_new(m, 0), raw_new(m, 0, 2 * BYTES), pinned_new(m, BYTES) };
  return r;
}

static void race_round(tide_machine* m, const race* r, uint8_t value,
                       void (*between)(tide_machine*, const race*)) {
  T_OK(tide_machine_call(m, 0, r->first, call_slow, NULL));
  T_OK(tide_machine_fill(m, 0, r->first, r->memory, value, BYTES));
  if (between != NULL) between(m, r);
  T_OK(tide_machine_copy(m, 0, r->second, r->result, r->memory, BYTES));
  stream_finish(m, 0, r->second);

  if (machine_has_memory(m)) T_FILLED(r->result, value, BYTES);
}

static void race_run(tide_machine* m, const race* r, void (*between)(tide_machine*, const race*)) {
  for (size_t i = 0; i < t_scaled(1000); ++i) race_round(m, r, (uint8_t)(i + 1), between);
}

static void between_event(tide_machine* m, const race* r) { stream_follow(m, r->second, r->first, r->event); }

CHECK(stream_wait__orders_two_streams) {
  const race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));

  race_run(m, &r, between_event);
}

CHECK(stream_wait__orders_non_blocking_streams) {
  const race r =
      race_new(m, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING), stream_new(m, 0, TIDE_STREAM_NON_BLOCKING));

  race_run(m, &r, between_event);
}

CHECK(stream_wait__orders_a_non_blocking_stream_with_the_legacy_one) {
  const race r = race_new(m, TIDE_STREAM_LEGACY, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING));

  race_run(m, &r, between_event);
}

CHECK(stream_wait__orders_the_per_thread_stream) {
  const race r = race_new(m, TIDE_STREAM_PER_THREAD, stream_new(m, 0, 0));

  race_run(m, &r, between_event);
}

static void between_third(tide_machine* m, const race* r) {
  stream_follow(m, r->third, r->first, r->event);
  stream_follow(m, r->second, r->third, r->event);
}

CHECK(stream_wait__orders_through_a_third_stream) {
  race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));
  r.third = stream_new(m, 0, 0);

  race_run(m, &r, between_third);
}

CHECK(legacy_stream__waits_for_blocking_streams) {
  const race r = race_new(m, stream_new(m, 0, 0), TIDE_STREAM_LEGACY);

  race_run(m, &r, NULL);
}

CHECK(legacy_stream__is_waited_for_by_blocking_streams) {
  const race r = race_new(m, TIDE_STREAM_LEGACY, stream_new(m, 0, 0));

  race_run(m, &r, NULL);
}

CHECK(legacy_stream__waits_for_the_per_thread_stream) {
  const race r = race_new(m, TIDE_STREAM_PER_THREAD, NULL);

  race_run(m, &r, NULL);
}

CHECK(legacy_stream__is_waited_for_by_the_per_thread_stream) {
  const race r = race_new(m, NULL, TIDE_STREAM_PER_THREAD);

  race_run(m, &r, NULL);
}

static void between_legacy_work(tide_machine* m, const race* r) {
  T_OK(tide_machine_fill(m, 0, NULL, r->memory + BYTES, 1, 1));
}

CHECK(legacy_stream__orders_two_blocking_streams_around_its_work) {
  const race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));

  race_run(m, &r, between_legacy_work);
}

CHECK(legacy_stream__is_what_null_names) {
  const tide_stream blocking = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  gate held;
  gate_close(&held, m, 0, blocking);
  T_OK(tide_machine_fill(m, 0, blocking, raw, 1, BYTES));

  T_OK(tide_machine_fill(m, 0, NULL, raw, 2, BYTES));

  T_CHECK(!stream_is_idle(m, 0, TIDE_STREAM_LEGACY));
  T_CHECK(!stream_is_idle(m, 0, NULL));
  gate_open(&held);
  stream_finish(m, 0, TIDE_STREAM_LEGACY);
  expect_filled(m, 0, raw, 2, BYTES);
}

CHECK(non_blocking_stream__does_not_wait_for_the_legacy_one) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  gate held;
  gate_close(&held, m, 0, NULL);
  T_OK(tide_machine_fill(m, 0, NULL, raw, 1, BYTES));

  T_OK(tide_machine_fill(m, 0, stream, raw + BYTES, 2, BYTES));
  stream_finish(m, 0, stream);

  expect_filled(m, 0, raw + BYTES, 2, BYTES);
  gate_open(&held);
  stream_finish(m, 0, NULL);
}

CHECK(non_blocking_stream__is_not_waited_for_by_the_legacy_one) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, BYTES));

  T_OK(tide_machine_fill(m, 0, NULL, raw + BYTES, 2, BYTES));
  stream_finish(m, 0, NULL);

  T_CHECK(!stream_is_idle(m, 0, stream));
  gate_open(&held);
  stream_finish(m, 0, stream);
}

CHECK(legacy_stream__is_another_on_each_device) {
  need_two_devices(m);
  const tide_stream other = stream_new(m, 1, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  uint8_t* const there = raw_new(m, 1, BYTES);
  gate held;
  gate_close(&held, m, 0, NULL);
  T_OK(tide_machine_fill(m, 0, NULL, raw, 1, BYTES));

  T_OK(tide_machine_fill(m, 1, NULL, there, 2, BYTES));
  T_OK(tide_machine_fill(m, 1, other, there, 3, BYTES));
  stream_finish(m, 1, other);

  T_CHECK(!stream_is_idle(m, 0, NULL));
  gate_open(&held);
  stream_finish(m, 0, NULL);
}

static void* thread_sees_idle_stream(void* user) {
  tide_machine* const m = user;
  T_CHECK(stream_is_idle(m, 0, TIDE_STREAM_PER_THREAD));
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);
  return NULL;
}

CHECK(per_thread_stream__is_another_on_each_thread) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  pthread_t thread;
  gate held;
  gate_close(&held, m, 0, TIDE_STREAM_PER_THREAD);
  T_OK(tide_machine_fill(m, 0, TIDE_STREAM_PER_THREAD, raw, 1, BYTES));

  t_thread_start(&thread, thread_sees_idle_stream, m);
  t_thread_join(thread);

  T_CHECK(!stream_is_idle(m, 0, TIDE_STREAM_PER_THREAD));
  gate_open(&held);
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);
}

typedef struct late_work {
  tide_machine* m;
  uint8_t* memory;
} late_work;

static void* thread_queues_and_ends(void* user) {
  const late_work* const w = user;
  T_OK(tide_machine_call(w->m, 0, TIDE_STREAM_PER_THREAD, call_slow, NULL));
  T_OK(tide_machine_fill(w->m, 0, TIDE_STREAM_PER_THREAD, w->memory, 9, BYTES));
  return NULL;
}

CHECK(per_thread_stream__runs_its_work_after_the_thread_ended) {
  late_work w = { m, raw_new(m, 0, BYTES) };
  pthread_t thread;
  device_fill(m, 0, w.memory, 1, BYTES);

  t_thread_start(&thread, thread_queues_and_ends, &w);
  t_thread_join(thread);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, w.memory, 9, BYTES);
}

CHECK(stream_wait__of_an_event_never_recorded_is_no_wait) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);

  T_OK(tide_machine_stream_wait(m, 0, stream, event_new(m, 0)));
  T_OK(tide_machine_fill(m, 0, stream, raw, 5, BYTES));
  stream_finish(m, 0, stream);

  expect_filled(m, 0, raw, 5, BYTES);
}

CHECK(stream_wait__is_for_the_record_of_that_moment) {
  const tide_stream done = stream_new(m, 0, 0);
  const tide_stream waiting = stream_new(m, 0, 0);
  const tide_stream slow = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  gate held;
  stream_follow(m, waiting, done, event);

  gate_close(&held, m, 0, slow);
  T_OK(tide_machine_fill(m, 0, slow, raw, 1, 1));
  T_OK(tide_machine_event_record(m, 0, event, slow));
  stream_finish(m, 0, waiting);

  T_CHECK(!stream_is_idle(m, 0, slow));
  gate_open(&held);
  stream_finish(m, 0, slow);
}

CHECK(stream_wait__holds_when_the_event_is_recorded_elsewhere_or_freed) {
  const tide_stream slow = stream_new(m, 0, 0);
  const tide_stream idle = stream_new(m, 0, 0);
  const tide_stream waiting = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  gate held;
  gate_close(&held, m, 0, slow);
  T_OK(tide_machine_fill(m, 0, slow, raw, 1, BYTES));
  stream_follow(m, waiting, slow, event);
  T_OK(tide_machine_fill(m, 0, waiting, raw, 2, BYTES));

  T_OK(tide_machine_event_record(m, 0, event, idle));
  T_OK(tide_machine_event_free(m, event));

  T_CHECK(!stream_is_idle(m, 0, waiting));
  gate_open(&held);
  stream_finish(m, 0, waiting);
  expect_filled(m, 0, raw, 2, BYTES);
}

CHECK(stream_wait__orders_streams_of_two_devices) {
  need_two_devices(m);
  const tide_stream first = stream_new(m, 0, 0);
  const tide_stream second = stream_new(m, 1, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const shared = pinned_new(m, BYTES);
  uint8_t* const result = pinned_new(m, BYTES);
  uint8_t* const raw = raw_new(m, 0, BYTES);

  for (size_t i = 0; i < t_scaled(300); ++i) {
    T_OK(tide_machine_call(m, 0, first, call_slow, NULL));
    T_OK(tide_machine_fill(m, 0, first, raw, (uint8_t)i, BYTES));
    T_OK(tide_machine_copy(m, 0, first, shared, raw, BYTES));
    T_OK(tide_machine_event_record(m, 0, event, first));
    T_OK(tide_machine_stream_wait(m, 1, second, event));
    T_OK(tide_machine_copy(m, 1, second, result, shared, BYTES));
    stream_finish(m, 1, second);
    if (machine_has_memory(m)) T_FILLED(result, (uint8_t)i, BYTES);
  }
}

CHECK(stream_wait__joins_many_streams_in_one) {
  enum { COUNT = 8 };
  tide_stream streams[COUNT];
  const tide_stream last = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, COUNT * BYTES);
  uint8_t* const result = pinned_new(m, COUNT * BYTES);
  for (size_t i = 0; i < COUNT; ++i) streams[i] = stream_new(m, 0, 0);

  for (size_t round = 0; round < t_scaled(100); ++round) {
    for (size_t i = 0; i < COUNT; ++i) {
      T_OK(tide_machine_call(m, 0, streams[i], call_slow, NULL));
      T_OK(tide_machine_fill(m, 0, streams[i], raw + i * BYTES, (uint8_t)(round + i), BYTES));
      stream_follow(m, last, streams[i], event);
    }
    T_OK(tide_machine_copy(m, 0, last, result, raw, COUNT * BYTES));
    stream_finish(m, 0, last);
    for (size_t i = 0; i < COUNT && machine_has_memory(m); ++i) {
      T_FILLED(result + i * BYTES, (uint8_t)(round + i), BYTES);
    }
  }
}

CHECK_REAL(legacy_stream__waits_for_what_is_left_of_a_freed_stream) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 5, BYTES));
  T_OK(tide_machine_stream_free(m, 0, stream));

  T_OK(tide_machine_copy(m, 0, NULL, raw + BYTES, raw, BYTES));
  t_sleep_us(2000);
  gate_open(&held);
  stream_finish(m, 0, NULL);

  expect_filled(m, 0, raw + BYTES, 5, BYTES);
}
