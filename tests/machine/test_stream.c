// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance of machines: streams, their order among each other, host callbacks, work that comes too late.
//
// Order is proved by data: the first stream is slow and then writes a value, the second copies it away. A
// wrong order loses that race, and every test runs it a thousand times.
#include "machine/machines.h"

#define BYTES 4096u

// ---------------------------------------------------------------------------------------------------
// One stream

MACHINE_TEST(test_stream_new__gives_handles_of_its_own) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);

  T_CHECK(a != b);
  T_CHECK(a != TIDE_STREAM_LEGACY && a != TIDE_STREAM_PER_THREAD);
  T_OK(tide_machine_stream_free(m, 0, a));
  T_OK(tide_machine_stream_free(m, 0, b));
}

MACHINE_TEST(test_stream_new__clamps_the_priority) {
  static const int priorities[] = { -1000, 0, 1000, INT32_MIN, INT32_MAX };
  for (size_t i = 0; i < sizeof priorities / sizeof *priorities; ++i) {
    tide_stream stream = NULL;

    T_OK(tide_machine_stream_new(m, 0, 0, priorities[i], &stream));

    T_OK(tide_machine_stream_free(m, 0, stream));
  }
}

MACHINE_TEST(test_stream_new__makes_many) {
  enum { COUNT = 64 };
  tide_stream streams[COUNT];
  atomic_int done = 0;
  for (size_t i = 0; i < COUNT; ++i) streams[i] = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);

  for (size_t i = 0; i < COUNT; ++i) T_OK(tide_machine_call(m, 0, streams[i], call_count, &done));
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&done), COUNT);
}

typedef struct journal {
  atomic_int count;
  int values[256];
} journal;

typedef struct entry {
  journal* to;
  int value;
} entry;

static void call_note(void* user) {
  const entry* const e = user;
  const int at = atomic_fetch_add(&e->to->count, 1);
  e->to->values[at] = e->value;
}

MACHINE_TEST(test_stream__runs_in_order) {
  const tide_stream stream = stream_new(m, 0, 0);
  static journal notes;
  static entry entries[256];

  for (int i = 0; i < 256; ++i) {
    entries[i] = (entry){ &notes, i };
    T_OK(tide_machine_call(m, 0, stream, call_note, &entries[i]));
  }
  stream_finish(m, 0, stream);

  T_EQ(atomic_load(&notes.count), 256);
  for (int i = 0; i < 256; ++i) T_EQ(notes.values[i], i);
}

MACHINE_TEST(test_stream__work_waits_for_the_callback_before_it) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  device_fill(m, 0, raw, 1, BYTES);
  gate held;
  gate_close(&held, m, 0, stream);

  T_OK(tide_machine_fill(m, 0, stream, raw, 2, BYTES));
  expect_filled(m, 0, raw, 1, BYTES);
  gate_open(&held);
  stream_finish(m, 0, stream);

  expect_filled(m, 0, raw, 2, BYTES);
}

static uint64_t stream_number(tide_machine* m, tide_stream stream) {
  bool is_captured = true;
  uint64_t number = 0;
  T_OK(tide_machine_stream_info(m, 0, stream, &is_captured, &number));
  T_CHECK(!is_captured);
  return number;
}

// A driver that is too old tells none.
MACHINE_TEST(test_stream_info__gives_every_stream_a_number_of_its_own) {
  enum { STREAMS = 100 };
  uint64_t numbers[STREAMS + 1] = { stream_number(m, NULL) };
  if (numbers[0] == 0) t_skip("the driver has no numbers for streams");
  for (size_t i = 1; i <= STREAMS; i++) {
    tide_stream stream = NULL;
    T_OK(tide_machine_stream_new(m, 0, 0, 0, &stream));
    numbers[i] = stream_number(m, stream);
    T_EQ(stream_number(m, stream), numbers[i]);
    T_OK(tide_machine_stream_free(m, 0, stream));  // the next may have its handle
    for (size_t j = 0; j < i; j++) T_CHECK(numbers[j] != numbers[i]);
  }
}

MACHINE_TEST(test_stream_info__tells_whether_the_stream_is_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  tide_launch graph = NULL;
  bool is_captured = false;
  uint64_t number = 0;
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_RELAXED));
  T_OK(tide_machine_stream_info(m, 0, stream, &is_captured, &number));
  T_CHECK(is_captured);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));
  T_CHECK(number == 0 || number == stream_number(m, stream));
  T_OK(tide_machine_launch_free(m, graph));
}

MACHINE_TEST(test_stream_query__tells_whether_work_is_left) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_CHECK(stream_is_idle(m, 0, stream));
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 2, BYTES));

  T_CHECK(!stream_is_idle(m, 0, stream));
  gate_open(&held);
  stream_finish(m, 0, stream);

  T_CHECK(stream_is_idle(m, 0, stream));
}

// A query that waited would come back when the gate gives up, and find the stream idle.
REAL_TEST(test_stream_query__does_not_wait) {
  const tide_stream stream = stream_new(m, 0, 0);
  gate held;
  gate_close(&held, m, 0, stream);

  for (int i = 0; i < 100; ++i) T_CHECK(!stream_is_idle(m, 0, stream));

  gate_open(&held);
  stream_finish(m, 0, stream);
}

MACHINE_TEST(test_stream__queueing_does_not_wait) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  atomic_int done = 0;
  gate held;
  gate_close(&held, m, 0, stream);

  for (int i = 0; i < 20; ++i) {
    T_OK(tide_machine_fill(m, 0, stream, raw, 1, BYTES));
    T_OK(tide_machine_copy(m, 0, stream, raw + BYTES, raw, BYTES));
    T_OK(tide_machine_event_record(m, 0, event, stream));
    T_OK(tide_machine_stream_wait(m, 0, stream, event));
    T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  }

  T_EQ(atomic_load(&done), 0);
  gate_open(&held);
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 20);
}

MACHINE_TEST(test_stream_free__lets_queued_work_run) {
  const tide_stream slow = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  device_fill(m, 0, raw, 1, BYTES);
  gate held;
  gate_close(&held, m, 0, slow);
  T_OK(tide_machine_fill(m, 0, slow, raw, 2, BYTES));
  stream_follow(m, stream, slow, event);
  T_OK(tide_machine_fill(m, 0, stream, raw, 3, BYTES));

  T_OK(tide_machine_stream_free(m, 0, stream));
  gate_open(&held);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, raw, 3, BYTES);
}

MACHINE_TEST(test_stream_free__refuses_the_default_streams) {
  T_STATUS(tide_machine_stream_free(m, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_LEGACY), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_PER_THREAD), TIDE_ERR_ARGUMENT);

  stream_finish(m, 0, NULL);
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);
}

// ---------------------------------------------------------------------------------------------------
// Streams beside each other

typedef struct meeting {
  atomic_int here;
  atomic_int met;  // of those that were there at the same time as another
} meeting;

static void call_meet(void* user) {
  meeting* const place = user;
  atomic_fetch_add(&place->here, 1);
  for (int i = 0; i < 100000 && atomic_load(&place->here) < 2; ++i) t_sleep_us(100);
  if (atomic_load(&place->here) == 2) atomic_fetch_add(&place->met, 1);
}

HOST_TEST(test_stream__two_run_at_the_same_time) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  meeting place = { 0, 0 };

  T_OK(tide_machine_call(m, 0, a, call_meet, &place));
  T_OK(tide_machine_call(m, 0, b, call_meet, &place));
  stream_finish(m, 0, a);
  stream_finish(m, 0, b);

  T_EQ(atomic_load(&place.met), 2);
}

MACHINE_TEST(test_stream__one_that_stands_still_holds_up_no_other) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, 2 * BYTES);
  gate held;
  gate_close(&held, m, 0, a);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));

  T_OK(tide_machine_fill(m, 0, b, raw + BYTES, 2, BYTES));
  stream_finish(m, 0, b);

  T_CHECK(!stream_is_idle(m, 0, a));
  expect_filled(m, 0, raw + BYTES, 2, BYTES);
  gate_open(&held);
  stream_finish(m, 0, a);
}

MACHINE_TEST(test_device_synchronize__waits_for_every_stream) {
  const tide_stream streams[3] = { stream_new(m, 0, 0), stream_new(m, 0, TIDE_STREAM_NON_BLOCKING), NULL };
  atomic_int done = 0;
  for (int i = 0; i < 3; ++i) {
    T_OK(tide_machine_call(m, 0, streams[i], call_slow, NULL));
    T_OK(tide_machine_call(m, 0, streams[i], call_count, &done));
  }

  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&done), 3);
}

MACHINE_TEST(test_device_synchronize__waits_for_one_device_alone) {
  need_two_devices(m);
  const tide_stream other = stream_new(m, 1, 0);
  uint8_t* const raw = raw_new(m, 1, BYTES);
  gate held;
  gate_close(&held, m, 1, other);
  T_OK(tide_machine_fill(m, 1, other, raw, 1, BYTES));

  T_OK(tide_machine_device_synchronize(m, 0));

  T_CHECK(!stream_is_idle(m, 1, other));
  gate_open(&held);
  stream_finish(m, 1, other);
}

// ---------------------------------------------------------------------------------------------------
// Order

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

MACHINE_TEST(test_stream_wait__orders_two_streams) {
  const race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));

  race_run(m, &r, between_event);
}

MACHINE_TEST(test_stream_wait__orders_non_blocking_streams) {
  const race r =
      race_new(m, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING), stream_new(m, 0, TIDE_STREAM_NON_BLOCKING));

  race_run(m, &r, between_event);
}

MACHINE_TEST(test_stream_wait__orders_a_non_blocking_stream_with_the_legacy_one) {
  const race r = race_new(m, TIDE_STREAM_LEGACY, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING));

  race_run(m, &r, between_event);
}

MACHINE_TEST(test_stream_wait__orders_the_per_thread_stream) {
  const race r = race_new(m, TIDE_STREAM_PER_THREAD, stream_new(m, 0, 0));

  race_run(m, &r, between_event);
}

static void between_third(tide_machine* m, const race* r) {
  stream_follow(m, r->third, r->first, r->event);
  stream_follow(m, r->second, r->third, r->event);
}

MACHINE_TEST(test_stream_wait__orders_through_a_third_stream) {
  race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));
  r.third = stream_new(m, 0, 0);

  race_run(m, &r, between_third);
}

MACHINE_TEST(test_legacy_stream__waits_for_blocking_streams) {
  const race r = race_new(m, stream_new(m, 0, 0), TIDE_STREAM_LEGACY);

  race_run(m, &r, NULL);
}

MACHINE_TEST(test_legacy_stream__is_waited_for_by_blocking_streams) {
  const race r = race_new(m, TIDE_STREAM_LEGACY, stream_new(m, 0, 0));

  race_run(m, &r, NULL);
}

MACHINE_TEST(test_legacy_stream__waits_for_the_per_thread_stream) {
  const race r = race_new(m, TIDE_STREAM_PER_THREAD, NULL);

  race_run(m, &r, NULL);
}

MACHINE_TEST(test_legacy_stream__is_waited_for_by_the_per_thread_stream) {
  const race r = race_new(m, NULL, TIDE_STREAM_PER_THREAD);

  race_run(m, &r, NULL);
}

static void between_legacy_work(tide_machine* m, const race* r) {
  T_OK(tide_machine_fill(m, 0, NULL, r->memory + BYTES, 1, 1));
}

MACHINE_TEST(test_legacy_stream__orders_two_blocking_streams_around_its_work) {
  const race r = race_new(m, stream_new(m, 0, 0), stream_new(m, 0, 0));

  race_run(m, &r, between_legacy_work);
}

MACHINE_TEST(test_legacy_stream__is_what_null_names) {
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

MACHINE_TEST(test_non_blocking_stream__does_not_wait_for_the_legacy_one) {
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

MACHINE_TEST(test_non_blocking_stream__is_not_waited_for_by_the_legacy_one) {
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

MACHINE_TEST(test_legacy_stream__is_another_on_each_device) {
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

MACHINE_TEST(test_per_thread_stream__is_another_on_each_thread) {
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

MACHINE_TEST(test_per_thread_stream__runs_its_work_after_the_thread_ended) {
  late_work w = { m, raw_new(m, 0, BYTES) };
  pthread_t thread;
  device_fill(m, 0, w.memory, 1, BYTES);

  t_thread_start(&thread, thread_queues_and_ends, &w);
  t_thread_join(thread);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, w.memory, 9, BYTES);
}

EMULATED_TEST(test_per_thread_stream__of_many_short_threads_leaves_nothing) {
  const size_t threads = t_count_threads();
  late_work w = { m, raw_new(m, 0, BYTES) };
  for (int i = 0; i < 200; ++i) {
    pthread_t thread;
    t_thread_start(&thread, thread_queues_and_ends, &w);
    t_thread_join(thread);
  }
  T_OK(tide_machine_device_synchronize(m, 0));

  T_LE(t_count_threads(), threads + 64);
}

MACHINE_TEST(test_stream_wait__of_an_event_never_recorded_is_no_wait) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);

  T_OK(tide_machine_stream_wait(m, 0, stream, event_new(m, 0)));
  T_OK(tide_machine_fill(m, 0, stream, raw, 5, BYTES));
  stream_finish(m, 0, stream);

  expect_filled(m, 0, raw, 5, BYTES);
}

MACHINE_TEST(test_stream_wait__is_for_the_record_of_that_moment) {
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

MACHINE_TEST(test_stream_wait__holds_when_the_event_is_recorded_elsewhere_or_freed) {
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

MACHINE_TEST(test_stream_wait__orders_streams_of_two_devices) {
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

MACHINE_TEST(test_stream_wait__joins_many_streams_in_one) {
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

// ---------------------------------------------------------------------------------------------------
// Callbacks

typedef struct nested {
  tide_machine* m;
  tide_stream stream;
  tide_event event;
  void* memory;
  tide_status statuses[6];
} nested;

static void call_nested(void* user) {
  nested* const n = user;
  void* memory = NULL;
  uint64_t ns = 0;
  n->statuses[0] = tide_machine_raw_alloc(n->m, 0, 4096, &memory);
  n->statuses[1] = tide_machine_raw_release(n->m, 0, n->memory);
  n->statuses[2] = tide_machine_stream_synchronize(n->m, 0, n->stream);
  n->statuses[3] = tide_machine_event_record(n->m, 0, n->event, n->stream);
  n->statuses[4] = tide_machine_fill(n->m, 0, n->stream, n->memory, 1, 1);
  n->statuses[5] = tide_machine_clock(n->m, &ns);
}

EMULATED_TEST(test_call__the_function_may_not_call_the_machine) {
  nested n = { m, stream_new(m, 0, 0), event_new(m, 0), raw_new(m, 0, 4096), { TIDE_OK } };
  const size_t before = free_bytes(m, 0);

  T_OK(tide_machine_call(m, 0, n.stream, call_nested, &n));
  stream_finish(m, 0, n.stream);

  for (size_t i = 0; i < 6; ++i) T_EQ(n.statuses[i], TIDE_ERR_STATE);
  T_EQ(free_bytes(m, 0), before);
  T_OK(tide_machine_raw_release(m, 0, n.memory));
}

static void call_other_machine(void* user) {
  tide_machine* other = NULL;
  T_OK(tide_machine_new_dry(NULL, &other));
  tide_machine_free(other);
  call_count(user);
}

typedef struct leaver {
  tide_machine* m;
  atomic_int done;
} leaver;

static void* thread_leaves_a_callback(void* user) {
  leaver* const l = user;
  T_OK(tide_machine_call(l->m, 0, TIDE_STREAM_PER_THREAD, call_other_machine, &l->done));
  return NULL;
}

EMULATED_TEST(test_call__the_function_may_use_another_machine) {
  leaver l = { m, 0 };
  pthread_t thread;

  T_OK(tide_machine_call(m, 0, NULL, call_other_machine, &l.done));
  stream_finish(m, 0, NULL);
  t_thread_start(&thread, thread_leaves_a_callback, &l);
  t_thread_join(thread);
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&l.done), 2);
}

MACHINE_TEST(test_call__from_many_threads_all_run) {
  enum { COUNT = 4 };
  static late_work w[COUNT];
  pthread_t threads[COUNT];
  for (size_t i = 0; i < COUNT; ++i) w[i] = (late_work){ m, raw_new(m, 0, BYTES) };

  for (size_t i = 0; i < COUNT; ++i) t_thread_start(&threads[i], thread_queues_and_ends, &w[i]);
  for (size_t i = 0; i < COUNT; ++i) t_thread_join(threads[i]);
  T_OK(tide_machine_device_synchronize(m, 0));

  for (size_t i = 0; i < COUNT; ++i) expect_filled(m, 0, w[i].memory, 9, BYTES);
}

typedef struct pusher {
  tide_machine* m;
  tide_stream stream;
  atomic_int* done;
} pusher;

static void* thread_pushes(void* user) {
  const pusher* const p = user;
  for (int i = 0; i < 100; ++i) T_OK(tide_machine_call(p->m, 0, p->stream, call_count, p->done));
  return NULL;
}

MACHINE_TEST(test_stream__takes_work_from_several_threads) {
  atomic_int done = 0;
  pusher p = { m, stream_new(m, 0, 0), &done };
  pthread_t threads[4];

  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_pushes, &p);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);
  stream_finish(m, 0, p.stream);

  T_EQ(atomic_load(&done), 400);
}

// ---------------------------------------------------------------------------------------------------
// Many threads on one machine

static void hammer_round(tide_machine* m, int device, tide_stream shared, t_rng* rng) {
  const size_t bytes = 1 + t_rng_below(rng, 64 * KIB);
  const tide_stream stream = stream_new(m, device, t_rng_below(rng, 2) != 0 ? TIDE_STREAM_NON_BLOCKING : 0);
  const tide_event event = event_new(m, device);
  uint8_t* const raw = raw_new(m, device, bytes);
  uint8_t* const pinned = pinned_new(m, bytes);
  const uint8_t value = (uint8_t)t_rng_next(rng);

  T_OK(tide_machine_fill(m, device, stream, raw, value, bytes));
  T_OK(tide_machine_event_record(m, device, event, stream));
  T_OK(tide_machine_stream_wait(m, device, shared, event));
  T_OK(tide_machine_copy(m, device, shared, pinned, raw, bytes));
  T_OK(tide_machine_event_record(m, device, event, shared));
  (void)event_is_done(m, event);
  T_OK(tide_machine_event_synchronize(m, event));
  if (machine_has_memory(m)) T_FILLED(pinned, value, bytes);

  T_EQ(pointer_info(m, raw).kind, TIDE_MEMORY_RAW);
  T_OK(tide_machine_raw_release(m, device, raw));
  T_OK(tide_machine_pinned_release(m, pinned));
  T_OK(tide_machine_event_free(m, event));
  T_OK(tide_machine_stream_free(m, device, stream));
}

typedef struct hammer {
  tide_machine* m;
  tide_stream shared[2];
  uint64_t index;
} hammer;

static void* thread_hammers(void* user) {
  const hammer* const h = user;
  t_rng rng = t_rng_new(h->index);
  for (size_t i = 0; i < t_scaled(100); ++i) {
    const int device = (int)t_rng_below(&rng, 2) % tide_machine_device_count(h->m);
    hammer_round(h->m, device, h->shared[device], &rng);
  }
  return NULL;
}

MACHINE_TEST(test_machine__serves_four_threads_at_once) {
  hammer h[4];
  pthread_t threads[4];
  const tide_stream shared[2] = { stream_new(m, 0, 0), stream_new(m, tide_machine_device_count(m) - 1, 0) };

  for (size_t i = 0; i < 4; ++i) {
    h[i] = (hammer){ m, { shared[0], shared[1] }, i };
    t_thread_start(&threads[i], thread_hammers, &h[i]);
  }
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
  if (!is_cuda(m)) T_EQ(free_bytes(m, 1), MACHINE_CAPACITY);
}

// ---------------------------------------------------------------------------------------------------
// Work that comes too late

HOST_TEST(test_raw_release__before_its_work_ran_is_reported_by_the_next_synchronize) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const a = raw_new(m, 0, BYTES);
  uint8_t* const b = raw_new(m, 0, BYTES);
  device_fill(m, 0, b, 0x0b, BYTES);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_copy(m, 0, stream, b, a, BYTES));

  T_OK(tide_machine_raw_release(m, 0, a));
  gate_open(&held);

  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_MACHINE);
  T_OK(tide_machine_stream_synchronize(m, 0, stream));
  expect_filled(m, 0, b, 0x0b, BYTES);
}

HOST_TEST(test_raw_release__before_its_work_ran_does_not_touch_the_next_block) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const a = raw_new(m, 0, BYTES);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, a, 0xee, BYTES));

  T_OK(tide_machine_raw_release(m, 0, a));
  uint8_t* const next = raw_new(m, 0, BYTES);
  device_fill(m, 0, next, 0x11, BYTES);
  gate_open(&held);

  T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_MACHINE);
  expect_filled(m, 0, next, 0x11, BYTES);
}

HOST_TEST(test_raw_release__before_its_work_ran_is_reported_by_the_device_too) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const a = raw_new(m, 0, BYTES);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, a, 0xee, BYTES));

  T_OK(tide_machine_raw_release(m, 0, a));
  gate_open(&held);

  T_STATUS(tide_machine_device_synchronize(m, 0), TIDE_ERR_MACHINE);
  T_OK(tide_machine_device_synchronize(m, 0));
  T_OK(tide_machine_device_synchronize(m, 1));
}

HOST_TEST(test_unmap__before_its_work_ran_does_no_harm) {
  const size_t unit = granularity(m);
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const range = reserve(m, 0, unit);
  map_new(m, 0, range, unit);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, range, 0xee, unit));

  T_OK(tide_machine_unmap(m, range, unit));
  gate_open(&held);

  const tide_status status = tide_machine_stream_synchronize(m, 0, stream);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_MACHINE);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY);
}

HOST_TEST(test_pinned_release__before_its_work_ran_does_no_harm) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, MIB);
  uint8_t* const pinned = pinned_new(m, MIB);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_copy(m, 0, stream, pinned, raw, MIB));

  T_OK(tide_machine_pinned_release(m, pinned));
  gate_open(&held);

  const tide_status status = tide_machine_stream_synchronize(m, 0, stream);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_MACHINE);
}

// ---------------------------------------------------------------------------------------------------
// What is left of streams that were freed

REAL_TEST(test_legacy_stream__waits_for_what_is_left_of_a_freed_stream) {
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

// Two threads that use one event: one records it, in a capture and outside, the other waits for it.
typedef struct wait_race {
  tide_machine* m;
  tide_event event;
  tide_stream waiting;
  atomic_int round;     // that the waiting thread may begin
  atomic_int finished;  // that it has finished
  atomic_bool is_done;  // the work before the record
  atomic_int lost;
} wait_race;

static void race_work(void* user) {
  t_sleep_us(200);
  atomic_store(&((wait_race*)user)->is_done, true);
}

static void race_check(void* user) {
  wait_race* const wr = user;
  if (!atomic_load(&wr->is_done)) atomic_fetch_add(&wr->lost, 1);
}

static void* thread_waits_in_race(void* user) {
  wait_race* const wr = user;
  for (int round = 1; round <= (int)t_scaled(300); ++round) {
    while (atomic_load(&wr->round) < round) {}
    while (tide_machine_stream_wait(wr->m, 0, wr->waiting, wr->event) != TIDE_OK) {}
    T_OK(tide_machine_call(wr->m, 0, wr->waiting, race_check, wr));
    stream_finish(wr->m, 0, wr->waiting);
    atomic_store(&wr->finished, round);
  }
  return NULL;
}

HOST_TEST(test_stream_wait__is_not_lost_when_the_event_leaves_a_capture) {
  wait_race wr = { .m = m, .event = event_new(m, 0), .waiting = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING) };
  const tide_stream working = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream captured = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  pthread_t thread;
  t_thread_start(&thread, thread_waits_in_race, &wr);

  for (int round = 1; round <= (int)t_scaled(300); ++round) {
    tide_launch graph = NULL;
    T_OK(tide_machine_capture_begin(m, 0, captured, TIDE_CAPTURE_RELAXED));
    T_OK(tide_machine_event_record(m, 0, wr.event, captured));
    T_OK(tide_machine_capture_end(m, 0, captured, &graph));
    T_OK(tide_machine_launch_free(m, graph));
    atomic_store(&wr.is_done, false);
    T_OK(tide_machine_call(m, 0, working, race_work, &wr));
    atomic_store(&wr.round, round);
    for (volatile int k = 0; k < round % 300 * 4; ++k) {}
    T_OK(tide_machine_event_record(m, 0, wr.event, working));
    while (atomic_load(&wr.finished) < round) t_sleep_us(20);
    stream_finish(m, 0, working);
  }

  t_thread_join(thread);
  T_EQ(atomic_load(&wr.lost), 0);
}
