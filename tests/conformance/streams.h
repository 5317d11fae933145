// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Helpers for checks and tests of streams. Include it after check.h or t.h.
#ifndef TIDEMARK_CONFORMANCE_STREAMS_H
#define TIDEMARK_CONFORMANCE_STREAMS_H

#include "conformance/tools.h"

#define BYTES 4096u

// Two streams of device 0, an event, and memory for three buffers of BYTES.
typedef struct pair {
  tide_stream a;
  tide_stream b;
  tide_event event;
  uint8_t* raw;
} pair;

static inline pair pair_new(tide_machine* m, uint32_t flags) {
  return (pair){ stream_new(m, 0, flags), stream_new(m, 0, flags), event_new(m, 0),
                 raw_new(m, 0, 3 * BYTES) };
}

// Queues a fill of one buffer on a stream of device 0.
static inline void fill(tide_machine* m, tide_stream stream, uint8_t* buffer, uint8_t value) {
  T_OK(tide_machine_fill(m, 0, stream, buffer, value, BYTES));
}

// Waits for a stream of device 0, then compares one buffer.
static inline void finish_filled(tide_machine* m, tide_stream stream, const uint8_t* buffer, uint8_t value) {
  stream_finish(m, 0, stream);
  expect_filled(m, 0, buffer, value, BYTES);
}

// A thread that queues a slow callback and a fill on its own default stream, then ends.
typedef struct late_work {
  tide_machine* m;
  uint8_t* memory;
} late_work;

static inline void* thread_queues_and_ends(void* user) {
  const late_work* const w = user;
  T_OK(tide_machine_call(w->m, 0, TIDE_STREAM_PER_THREAD, call_slow, NULL));
  fill(w->m, TIDE_STREAM_PER_THREAD, w->memory, 9);
  return NULL;
}

// Runs a function on another thread, to its end.
static inline void on_a_thread(void* (*function)(void*), void* user) {
  pthread_t thread;
  t_thread_start(&thread, function, user);
  t_thread_join(thread);
}

// Runs a function on four threads at once. The users are `count` objects of `bytes` bytes, dealt in turn.
static inline void on_four_threads(void* (*function)(void*), void* users, size_t count, size_t bytes) {
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], function, (char*)users + i % count * bytes);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);
}

#endif
