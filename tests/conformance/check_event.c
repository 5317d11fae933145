// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: events.
#include "conformance/check.h"

#include "conformance/streams.h"

CHECK_FILE(check_event);

CHECK(event__never_recorded_is_done) {
  const tide_event event = event_new(m, 0);

  T_CHECK(event_is_done(m, event));
  T_OK(tide_machine_event_synchronize(m, event));
}

CHECK(event_query__is_true_when_the_work_before_is_done) {
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_record(m, 0, p.event, p.a));

  T_CHECK(!event_is_done(m, p.event));
  let_go(&held);
  T_CHECK(event_is_done(m, p.event));
  T_CHECK(event_is_done(m, p.event));
}

CHECK(event_synchronize__waits_for_the_work_before) {
  const pair p = pair_new(m, 0);
  for (int i = 1; i <= 200; ++i) {
    atomic_int done = 0;
    T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
    T_OK(tide_machine_call(m, 0, p.a, call_count, &done));
    T_OK(tide_machine_event_record(m, 0, p.event, p.a));

    T_OK(tide_machine_event_synchronize(m, p.event));

    T_EQ(atomic_load(&done), 1);
  }
}

CHECK(event__does_not_depend_on_later_work) {
  const pair p = pair_new(m, 0);
  gate held;
  fill(m, p.a, p.raw, 1);
  T_OK(tide_machine_event_record(m, 0, p.event, p.a));
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_synchronize(m, p.event));

  T_CHECK(event_is_done(m, p.event));
  T_CHECK(!stream_is_idle(m, 0, p.a));
  let_go(&held);
}

CHECK(event_record__replaces_an_earlier_record) {
  const pair p = pair_new(m, 0);
  gate held;
  T_OK(tide_machine_event_record(m, 0, p.event, p.b));
  T_OK(tide_machine_event_synchronize(m, p.event));
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_record(m, 0, p.event, p.a));
  T_CHECK(!event_is_done(m, p.event));
  T_OK(tide_machine_event_record(m, 0, p.event, p.b));
  T_OK(tide_machine_event_synchronize(m, p.event));

  T_CHECK(event_is_done(m, p.event));
  let_go(&held);
}

CHECK(event_record__on_the_legacy_stream_marks_the_blocking_streams_too) {
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_record(m, 0, p.event, TIDE_STREAM_LEGACY));

  T_CHECK(!event_is_done(m, p.event));
  let_go(&held);
  T_OK(tide_machine_event_synchronize(m, p.event));
}

CHECK(event_record__on_the_legacy_stream_leaves_non_blocking_streams_out) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_record(m, 0, p.event, TIDE_STREAM_LEGACY));
  T_OK(tide_machine_event_synchronize(m, p.event));

  T_CHECK(event_is_done(m, p.event));
  let_go(&held);
}

static void record_all(tide_machine* m, tide_event event) {
  const tide_status status = tide_machine_event_record_all(m, 0, event);
  if (status == TIDE_ERR_UNSUPPORTED) t_skip("%s", tide_last_error()->text);
  T_OK(status);
}

CHECK(event_record_all__marks_every_stream_of_the_device) {
  for (uint32_t flags = 0; flags <= TIDE_STREAM_NON_BLOCKING; flags += TIDE_STREAM_NON_BLOCKING) {
    const pair p = pair_new(m, flags);
    for (size_t i = 0; i < 2; ++i) {
      gate held;
      hold_up(&held, m, i == 0 ? p.a : p.b);

      record_all(m, p.event);

      T_CHECK(!event_is_done(m, p.event));
      let_go(&held);
      T_OK(tide_machine_event_synchronize(m, p.event));
      T_CHECK(event_is_done(m, p.event));
    }
  }
}

CHECK(event_record_all__does_not_depend_on_later_work) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  fill(m, p.a, p.raw, 1);
  record_all(m, p.event);
  hold_up(&held, m, p.a);

  T_OK(tide_machine_event_synchronize(m, p.event));

  T_CHECK(event_is_done(m, p.event));
  let_go(&held);
}

CHECK(event_record_all__marks_the_work_of_a_stream_that_is_freed) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  hold_up(&held, m, p.b);
  T_OK(tide_machine_event_record(m, 0, p.event, p.b));
  T_OK(tide_machine_stream_wait(m, 0, p.a, p.event));
  fill(m, p.a, p.raw, 1);
  T_OK(tide_machine_stream_free(m, 0, p.a));

  record_all(m, p.event);

  T_CHECK(!event_is_done(m, p.event));
  let_go(&held);
  T_OK(tide_machine_event_synchronize(m, p.event));
}

// A later record on one stream replaces that of all.
CHECK(event_record_all__is_replaced_by_a_record_of_one_stream) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  gate held;
  hold_up(&held, m, p.a);
  record_all(m, p.event);

  T_OK(tide_machine_event_record(m, 0, p.event, p.b));

  T_OK(tide_machine_event_synchronize(m, p.event));
  let_go(&held);
}

CHECK(event_record_all__is_refused_in_a_capture_and_does_not_harm_it) {
  const pair p = pair_new(m, 0);
  tide_launch graph = NULL;
  record_all(m, p.event);  // can it?
  T_OK(tide_machine_capture_begin(m, 0, p.a, TIDE_CAPTURE_GLOBAL));

  T_STATUS(tide_machine_event_record_all(m, 0, p.event), TIDE_ERR_CAPTURE);

  T_OK(tide_machine_capture_end(m, 0, p.a, &graph));
  T_OK(tide_machine_launch_free(m, graph));
  T_CHECK(event_is_done(m, p.event));
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
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);
  T_OK(tide_machine_event_record(m, 0, p.event, p.a));

  T_OK(tide_machine_event_free(m, p.event));

  let_go(&held);
}

CHECK(event__outlives_its_stream) {
  const pair p = pair_new(m, 0);
  atomic_int done = 0;
  T_OK(tide_machine_call(m, 0, p.a, call_slow, NULL));
  T_OK(tide_machine_call(m, 0, p.a, call_count, &done));
  T_OK(tide_machine_event_record(m, 0, p.event, p.a));

  T_OK(tide_machine_stream_free(m, 0, p.a));
  T_OK(tide_machine_event_synchronize(m, p.event));

  T_EQ(atomic_load(&done), 1);
  T_CHECK(event_is_done(m, p.event));
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
  const tide_stream stream = stream_new(m, 0, 0);
  pthread_t threads[4];
  gate held;
  hold_up(&held, m, stream);
  T_OK(tide_machine_event_record(m, 0, w.event, stream));

  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_waits, &w);
  t_sleep_us(20000);
  T_EQ(atomic_load(&w.done), 0);
  let_go(&held);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_EQ(atomic_load(&w.done), 4);
}
