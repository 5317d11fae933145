// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Captures of the host and dry machines, beyond the conformance suite: machines, threads and memory that go
// during a capture.
#define T_THREADS
#include "machine/machines.h"

#include "conformance/captures.h"

EMULATED_TEST(test_machine_free__while_a_capture_is_open) {
  const pair p = joined_new(m);
  fill(m, p.b, p.raw, 3);
  T_EQ(state_of(m, p.b), TIDE_CAPTURE_ACTIVE);
}

HOST_TEST(test_launch__after_its_memory_was_given_back_does_no_harm) {
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const raw = raw_new(m, 0, MIB);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_fill(m, 0, stream, raw, 7, MIB));
  const tide_launch graph = end(m, stream);
  T_OK(tide_machine_raw_release(m, 0, raw));

  const tide_status launched = tide_machine_launch(m, 0, graph, stream);
  const tide_status finished = tide_machine_stream_synchronize(m, 0, stream);

  T_CHECK(launched != TIDE_OK || finished == TIDE_ERR_MACHINE);
  expect_usable(m, stream);
}

// The default stream of a thread ends with the thread, here in the middle of a capture.
static void* thread_leaves_a_capture(void* user) {
  tide_machine* const m = user;
  uint8_t* const raw = raw_new(m, 0, BYTES);
  T_OK(tide_machine_capture_begin(m, 0, TIDE_STREAM_PER_THREAD, TIDE_CAPTURE_RELAXED));
  T_OK(tide_machine_fill(m, 0, TIDE_STREAM_PER_THREAD, raw, 1, BYTES));
  return NULL;
}

EMULATED_TEST(test_capture__of_a_thread_that_ended_does_no_harm) {
  for (int i = 0; i < 5; ++i) {
    on_a_thread(thread_leaves_a_capture, m);
    const tide_stream next = stream_new(m, 0, 0);
    begin(m, next, TIDE_CAPTURE_RELAXED);
    T_EQ(state_of(m, next), TIDE_CAPTURE_ACTIVE);
    (void)end(m, next);
    expect_usable(m, next);
  }
}

typedef struct recorder {
  tide_machine* m;
  tide_event event;
  atomic_bool is_over;
} recorder;

static void* thread_records(void* user) {
  recorder* const r = user;
  const tide_stream stream = stream_new(r->m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const raw = raw_new(r->m, 0, BYTES);
  while (!atomic_load(&r->is_over)) {
    T_OK(tide_machine_fill(r->m, 0, stream, raw, 1, BYTES));
    T_OK(tide_machine_event_record(r->m, 0, r->event, stream));
  }
  return NULL;
}

EMULATED_TEST(test_capture__waits_for_an_event_that_another_thread_records) {
  recorder r = { m, event_new(m, 0), false };
  pthread_t thread;
  t_thread_start(&thread, thread_records, &r);

  for (size_t i = 0; i < t_scaled(200); ++i) {
    const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
    tide_launch graph = NULL;
    begin(m, stream, TIDE_CAPTURE_RELAXED);
    T_ANY(tide_machine_stream_wait(m, 0, stream, r.event));
    T_ANY(tide_machine_capture_end(m, 0, stream, &graph));
    T_OK(tide_machine_stream_free(m, 0, stream));
  }

  atomic_store(&r.is_over, true);
  t_thread_join(thread);
}
