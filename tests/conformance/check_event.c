// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: events.
#include "conformance/check.h"

CHECK_FILE(check_event);

#define BYTES 4096u

// A stream of device 0 with work that waits behind a closed gate.
typedef struct held_stream {
  tide_stream stream;
  gate held;
} held_stream;

static void held_stream_open(held_stream* h, tide_machine* m, uint32_t flags) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  h->stream = stream_new(m, 0, flags);
  gate_close(&h->held, m, 0, h->stream);
  T_OK(tide_machine_fill(m, 0, h->stream, raw, 1, BYTES));
}

static void held_stream_finish(held_stream* h, tide_machine* m) {
  gate_open(&h->held);
  stream_finish(m, 0, h->stream);
}

CHECK(event__never_recorded_is_done) {
  const tide_event event = event_new(m, 0);

  T_CHECK(event_is_done(m, event));
  T_OK(tide_machine_event_synchronize(m, event));
}

CHECK(event_query__is_true_when_the_work_before_is_done) {
  const tide_event event = event_new(m, 0);
  held_stream slow;
  held_stream_open(&slow, m, 0);

  T_OK(tide_machine_event_record(m, 0, event, slow.stream));

  T_CHECK(!event_is_done(m, event));
  held_stream_finish(&slow, m);
  T_CHECK(event_is_done(m, event));
  T_CHECK(event_is_done(m, event));
}

CHECK(event_query__does_not_ask_about_later_work) {
  const tide_stream done = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_OK(tide_machine_fill(m, 0, done, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, event, done));
  stream_finish(m, 0, done);
  gate held;

  gate_close(&held, m, 0, done);
  T_OK(tide_machine_fill(m, 0, done, raw, 1, BYTES));

  T_CHECK(event_is_done(m, event));
  gate_open(&held);
  stream_finish(m, 0, done);
}

CHECK(event_synchronize__waits_for_the_work_before) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  for (int i = 1; i <= 200; ++i) {
    atomic_int done = 0;
    T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
    T_OK(tide_machine_call(m, 0, stream, call_count, &done));
    T_OK(tide_machine_event_record(m, 0, event, stream));

    T_OK(tide_machine_event_synchronize(m, event));

    T_EQ(atomic_load(&done), 1);
  }
}

CHECK(event_synchronize__does_not_wait_for_later_work) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  gate held;
  T_OK(tide_machine_fill(m, 0, stream, raw, 1, BYTES));
  T_OK(tide_machine_event_record(m, 0, event, stream));
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, raw, 2, BYTES));

  T_OK(tide_machine_event_synchronize(m, event));

  T_CHECK(!stream_is_idle(m, 0, stream));
  gate_open(&held);
  stream_finish(m, 0, stream);
}

CHECK(event_record__replaces_an_earlier_record_that_is_done) {
  const tide_event event = event_new(m, 0);
  const tide_stream idle = stream_new(m, 0, 0);
  T_OK(tide_machine_event_record(m, 0, event, idle));
  T_OK(tide_machine_event_synchronize(m, event));
  held_stream slow;
  held_stream_open(&slow, m, 0);

  T_OK(tide_machine_event_record(m, 0, event, slow.stream));

  T_CHECK(!event_is_done(m, event));
  held_stream_finish(&slow, m);
  T_CHECK(event_is_done(m, event));
}

CHECK(event_record__replaces_an_earlier_record_that_is_not_done) {
  const tide_event event = event_new(m, 0);
  const tide_stream idle = stream_new(m, 0, 0);
  held_stream slow;
  held_stream_open(&slow, m, 0);
  T_OK(tide_machine_event_record(m, 0, event, slow.stream));

  T_OK(tide_machine_event_record(m, 0, event, idle));
  T_OK(tide_machine_event_synchronize(m, event));

  T_CHECK(event_is_done(m, event));
  held_stream_finish(&slow, m);
}

CHECK(event_record__on_the_legacy_stream_marks_the_blocking_streams_too) {
  const tide_event event = event_new(m, 0);
  held_stream slow;
  held_stream_open(&slow, m, 0);

  T_OK(tide_machine_event_record(m, 0, event, TIDE_STREAM_LEGACY));

  T_CHECK(!event_is_done(m, event));
  held_stream_finish(&slow, m);
  T_OK(tide_machine_event_synchronize(m, event));
}

CHECK(event_record__on_the_legacy_stream_leaves_non_blocking_streams_out) {
  const tide_event event = event_new(m, 0);
  held_stream slow;
  held_stream_open(&slow, m, TIDE_STREAM_NON_BLOCKING);

  T_OK(tide_machine_event_record(m, 0, event, TIDE_STREAM_LEGACY));
  T_OK(tide_machine_event_synchronize(m, event));

  T_CHECK(event_is_done(m, event));
  held_stream_finish(&slow, m);
}

CHECK(event__is_done_in_the_order_of_its_stream) {
  enum { COUNT = 100 };
  const tide_stream stream = stream_new(m, 0, 0);
  tide_event events[COUNT];
  for (size_t i = 0; i < COUNT; ++i) {
    events[i] = event_new(m, 0);
    T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
    T_OK(tide_machine_event_record(m, 0, events[i], stream));
  }

  for (size_t i = COUNT; i-- > 1;) {
    if (event_is_done(m, events[i])) T_CHECK(event_is_done(m, events[i - 1]));
  }

  stream_finish(m, 0, stream);
  for (size_t i = 0; i < COUNT; ++i) T_CHECK(event_is_done(m, events[i]));
}

CHECK(event_free__while_its_record_is_pending) {
  const tide_event event = event_new(m, 0);
  held_stream slow;
  held_stream_open(&slow, m, 0);
  T_OK(tide_machine_event_record(m, 0, event, slow.stream));

  T_OK(tide_machine_event_free(m, event));

  held_stream_finish(&slow, m);
}

CHECK(event__outlives_its_stream) {
  const tide_event event = event_new(m, 0);
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));
  T_OK(tide_machine_event_record(m, 0, event, stream));

  T_OK(tide_machine_stream_free(m, 0, stream));
  T_OK(tide_machine_event_synchronize(m, event));

  T_EQ(atomic_load(&done), 1);
  T_CHECK(event_is_done(m, event));
}

CHECK(event_record__on_the_per_thread_stream) {
  const tide_event event = event_new(m, 0);
  atomic_int done = 0;
  T_OK(tide_machine_call(m, 0, TIDE_STREAM_PER_THREAD, call_slow, NULL));
  T_OK(tide_machine_call(m, 0, TIDE_STREAM_PER_THREAD, call_count, &done));
  T_OK(tide_machine_event_record(m, 0, event, TIDE_STREAM_PER_THREAD));

  T_OK(tide_machine_event_synchronize(m, event));

  T_EQ(atomic_load(&done), 1);
}

CHECK(event_record__refuses_a_stream_of_another_device) {
  need_two_devices(m);
  const tide_event event = event_new(m, 0);
  const tide_stream other = stream_new(m, 1, 0);

  T_STATUS(tide_machine_event_record(m, 1, event, other), TIDE_ERR_DEVICE);

  T_CHECK(event_is_done(m, event));
  T_STR_HAS(tide_last_error()->text, "event_record");
}

typedef struct waiter {
  tide_machine* m;
  tide_event event;
  atomic_int done;
} waiter;

static void* thread_waits(void* user) {
  waiter* const w = user;
  T_OK(tide_machine_event_synchronize(w->m, w->event));
  atomic_fetch_add(&w->done, 1);
  return NULL;
}

CHECK_REAL(event_synchronize__lets_several_threads_wait) {
  waiter w = { m, event_new(m, 0), 0 };
  pthread_t threads[4];
  held_stream slow;
  held_stream_open(&slow, m, 0);
  T_OK(tide_machine_event_record(m, 0, w.event, slow.stream));

  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_waits, &w);
  t_sleep_us(20000);
  T_EQ(atomic_load(&w.done), 0);
  held_stream_finish(&slow, m);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_EQ(atomic_load(&w.done), 4);
}
