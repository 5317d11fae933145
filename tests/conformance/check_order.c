// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: the order between streams: events, the default streams.
#include "conformance/check.h"

#include "conformance/streams.h"

CHECK_FILE(check_order);

// ---------------------------------------------------------------------------------------------------
// Races that a missing order would lose

typedef struct race {
  tide_stream first;
  tide_stream second;
  tide_stream third;
  tide_event event;
  uint8_t* memory;  // of device 0
  uint8_t* result;  // pinned
} race;

typedef void (*order_fn)(tide_machine* m, const race* r);

static void by_streams(tide_machine* m, const race* r) { (void)m, (void)r; }
static void by_event(tide_machine* m, const race* r) { stream_follow(m, r->second, r->first, r->event); }

static void by_third(tide_machine* m, const race* r) {
  stream_follow(m, r->third, r->first, r->event);
  stream_follow(m, r->second, r->third, r->event);
}

static void by_legacy_work(tide_machine* m, const race* r) {
  T_OK(tide_machine_fill(m, 0, NULL, r->memory + BYTES, 1, 1));
}

// The first stream fills slowly and the second copies. `order` puts the second behind the first.
static void race_run(tide_machine* m, tide_stream first, tide_stream second, order_fn order) {
  const race r = {
    first, second, stream_new(m, 0, 0), event_new(m, 0), raw_new(m, 0, 2 * BYTES), pinned_new(m, BYTES)
  };
  for (size_t i = 0; i < t_scaled(1000); ++i) {
    T_OK(tide_machine_call(m, 0, first, call_slow, NULL));
    fill(m, first, r.memory, (uint8_t)(i + 1));
    order(m, &r);
    T_OK(tide_machine_copy(m, 0, second, r.result, r.memory, BYTES));
    stream_finish(m, 0, second);
    if (machine_has_memory(m)) T_FILLED(r.result, (uint8_t)(i + 1), BYTES);
  }
}

#define BLOCKING stream_new(m, 0, 0)
#define NON_BLOCKING stream_new(m, 0, TIDE_STREAM_NON_BLOCKING)
#define LEGACY TIDE_STREAM_LEGACY
#define PER_THREAD TIDE_STREAM_PER_THREAD
#define RACE(name, first, second, order) \
  CHECK(name) { race_run(m, first, second, order); }

RACE(stream_wait__orders_two_streams, BLOCKING, BLOCKING, by_event)
RACE(stream_wait__orders_non_blocking_streams, NON_BLOCKING, NON_BLOCKING, by_event)
RACE(stream_wait__orders_a_non_blocking_stream_with_the_legacy_one, LEGACY, NON_BLOCKING, by_event)
RACE(stream_wait__orders_the_per_thread_stream, PER_THREAD, BLOCKING, by_event)
RACE(stream_wait__orders_through_a_third_stream, BLOCKING, BLOCKING, by_third)
RACE(legacy_stream__waits_for_blocking_streams, BLOCKING, LEGACY, by_streams)
RACE(legacy_stream__is_waited_for_by_blocking_streams, LEGACY, BLOCKING, by_streams)
RACE(legacy_stream__waits_for_the_per_thread_stream, PER_THREAD, NULL, by_streams)
RACE(legacy_stream__is_waited_for_by_the_per_thread_stream, NULL, PER_THREAD, by_streams)
RACE(legacy_stream__orders_two_blocking_streams_around_its_work, BLOCKING, BLOCKING, by_legacy_work)

// ---------------------------------------------------------------------------------------------------
// The default streams

CHECK(legacy_stream__is_what_null_names) {
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);
  fill(m, p.a, p.raw, 1);

  fill(m, NULL, p.raw, 2);

  T_CHECK(!stream_is_idle(m, 0, TIDE_STREAM_LEGACY));
  T_CHECK(!stream_is_idle(m, 0, NULL));
  gate_open(&held);
  finish_filled(m, TIDE_STREAM_LEGACY, p.raw, 2);
}

CHECK(non_blocking_stream__does_not_wait_for_the_legacy_one) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  hold_up(&held, m, NULL);

  fill(m, p.a, p.raw, 2);
  finish_filled(m, p.a, p.raw, 2);

  let_go(&held);
}

CHECK(non_blocking_stream__is_not_waited_for_by_the_legacy_one) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  hold_up(&held, m, p.a);

  fill(m, NULL, p.raw, 2);
  stream_finish(m, 0, NULL);

  T_CHECK(!stream_is_idle(m, 0, p.a));
  let_go(&held);
}

CHECK(legacy_stream__is_another_on_each_device) {
  need_two_devices(m);
  const tide_stream other = stream_new(m, 1, 0);
  uint8_t* const there = raw_new(m, 1, BYTES);
  gate held;
  hold_up(&held, m, NULL);

  T_OK(tide_machine_fill(m, 1, NULL, there, 2, BYTES));
  T_OK(tide_machine_fill(m, 1, other, there, 3, BYTES));
  stream_finish(m, 1, other);

  T_CHECK(!stream_is_idle(m, 0, NULL));
  let_go(&held);
}

static void* thread_sees_idle_stream(void* user) {
  tide_machine* const m = user;
  T_CHECK(stream_is_idle(m, 0, TIDE_STREAM_PER_THREAD));
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);
  return NULL;
}

CHECK(per_thread_stream__is_another_on_each_thread) {
  gate held;
  hold_up(&held, m, TIDE_STREAM_PER_THREAD);

  on_a_thread(thread_sees_idle_stream, m);

  T_CHECK(!stream_is_idle(m, 0, TIDE_STREAM_PER_THREAD));
  let_go(&held);
}

CHECK(per_thread_stream__runs_its_work_after_the_thread_ended) {
  late_work w = { m, raw_new(m, 0, BYTES) };
  device_fill(m, 0, w.memory, 1, BYTES);

  on_a_thread(thread_queues_and_ends, &w);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, w.memory, 9, BYTES);
}

// ---------------------------------------------------------------------------------------------------
// Waits for events

CHECK(stream_wait__of_an_event_never_recorded_is_no_wait) {
  const pair p = pair_new(m, 0);

  T_OK(tide_machine_stream_wait(m, 0, p.a, p.event));
  fill(m, p.a, p.raw, 5);

  finish_filled(m, p.a, p.raw, 5);
}

CHECK(stream_wait__is_for_the_record_of_that_moment) {
  const pair p = pair_new(m, 0);
  const tide_stream slow = stream_new(m, 0, 0);
  gate held;
  stream_follow(m, p.b, p.a, p.event);

  hold_up(&held, m, slow);
  T_OK(tide_machine_event_record(m, 0, p.event, slow));
  stream_finish(m, 0, p.b);

  T_CHECK(!stream_is_idle(m, 0, slow));
  let_go(&held);
}

CHECK(stream_wait__holds_when_the_event_is_recorded_elsewhere_or_freed) {
  const pair p = pair_new(m, 0);
  const tide_stream idle = stream_new(m, 0, 0);
  gate held;
  hold_up(&held, m, p.a);
  fill(m, p.a, p.raw, 1);
  stream_follow(m, p.b, p.a, p.event);
  fill(m, p.b, p.raw, 2);

  T_OK(tide_machine_event_record(m, 0, p.event, idle));
  T_OK(tide_machine_event_free(m, p.event));

  T_CHECK(!stream_is_idle(m, 0, p.b));
  gate_open(&held);
  finish_filled(m, p.b, p.raw, 2);
}

CHECK(stream_wait__orders_streams_of_two_devices) {
  need_two_devices(m);
  const pair p = pair_new(m, 0);
  const tide_stream second = stream_new(m, 1, 0);
  uint8_t* const shared = pinned_new(m, BYTES);
  uint8_t* const result = pinned_new(m, BYTES);

  for (size_t i = 0; i < t_scaled(300); ++i) {
    T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
    fill(m, p.a, p.raw, (uint8_t)i);
    T_OK(tide_machine_copy(m, 0, p.a, shared, p.raw, BYTES));
    T_OK(tide_machine_event_record(m, 0, p.event, p.a));
    T_OK(tide_machine_stream_wait(m, 1, second, p.event));
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
      fill(m, streams[i], raw + i * BYTES, (uint8_t)(round + i));
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
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);
  fill(m, p.a, p.raw, 5);
  T_OK(tide_machine_stream_free(m, 0, p.a));

  T_OK(tide_machine_copy(m, 0, NULL, p.raw + BYTES, p.raw, BYTES));
  t_sleep_us(2000);
  gate_open(&held);

  finish_filled(m, NULL, p.raw + BYTES, 5);
}
