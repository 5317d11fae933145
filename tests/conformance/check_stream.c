// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: streams: making, running, waiting, threads.
#include "conformance/check.h"

#include "conformance/captures.h"

CHECK_FILE(check_stream);

CHECK(stream_new__gives_handles_of_its_own) {
  const tide_stream a = stream_new(m, 0, 0);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);

  T_CHECK(a != b);
  T_CHECK(a != TIDE_STREAM_LEGACY && a != TIDE_STREAM_PER_THREAD);
  T_OK(tide_machine_stream_free(m, 0, a));
  T_OK(tide_machine_stream_free(m, 0, b));
}

CHECK(stream_new__clamps_the_priority) {
  static const int priorities[] = { -1000, 0, 1000, INT32_MIN, INT32_MAX };
  for (size_t i = 0; i < sizeof priorities / sizeof *priorities; ++i) {
    tide_stream stream = NULL;
    T_OK(tide_machine_stream_new(m, 0, 0, priorities[i], &stream));
    T_OK(tide_machine_stream_free(m, 0, stream));
  }
}

CHECK(stream_new__makes_many) {
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

CHECK(stream__runs_in_order) {
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

CHECK(stream__work_waits_for_the_callback_before_it) {
  const pair p = pair_new(m, 0);
  device_fill(m, 0, p.raw, 1, BYTES);
  gate held;
  hold_up(&held, m, p.a);

  fill(m, p.a, p.raw, 2);
  expect_filled(m, 0, p.raw, 1, BYTES);
  gate_open(&held);

  finish_filled(m, p.a, p.raw, 2);
}

static uint64_t stream_number(tide_machine* m, tide_stream stream) {
  bool is_captured = true;
  uint64_t number = 0;
  T_OK(tide_machine_stream_info(m, 0, stream, &is_captured, &number));
  T_CHECK(!is_captured);
  return number;
}

// An old driver reports no numbers.
CHECK(stream_info__gives_every_stream_a_number_of_its_own) {
  enum { STREAMS = 100 };
  uint64_t numbers[STREAMS + 1] = { stream_number(m, NULL) };
  if (numbers[0] == 0) t_skip("the driver has no numbers for streams");
  for (size_t i = 1; i <= STREAMS; i++) {
    const tide_stream stream = stream_new(m, 0, 0);
    numbers[i] = stream_number(m, stream);
    T_EQ(stream_number(m, stream), numbers[i]);
    T_OK(tide_machine_stream_free(m, 0, stream));  // the next may have its handle
    for (size_t j = 0; j < i; j++) T_CHECK(numbers[j] != numbers[i]);
  }
}

CHECK(stream_info__tells_whether_the_stream_is_captured) {
  const tide_stream stream = stream_new(m, 0, 0);
  bool is_captured = false;
  uint64_t number = 0;
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_stream_info(m, 0, stream, &is_captured, &number));
  T_CHECK(is_captured);
  (void)end(m, stream);
  T_CHECK(number == 0 || number == stream_number(m, stream));
}

// A query that waited would return when the gate gives up, and find the stream idle.
CHECK(stream_query__tells_whether_work_is_left) {
  const tide_stream stream = stream_new(m, 0, 0);
  T_CHECK(stream_is_idle(m, 0, stream));
  gate held;
  hold_up(&held, m, stream);

  for (int i = 0; i < 100; ++i) T_CHECK(!stream_is_idle(m, 0, stream));
  let_go(&held);

  T_CHECK(stream_is_idle(m, 0, stream));
}

CHECK(stream__queueing_does_not_wait) {
  const pair p = pair_new(m, 0);
  atomic_int done = 0;
  gate held;
  hold_up(&held, m, p.a);

  for (int i = 0; i < 20; ++i) {
    fill(m, p.a, p.raw, 1);
    T_OK(tide_machine_copy(m, 0, p.a, p.raw + BYTES, p.raw, BYTES));
    stream_follow(m, p.a, p.a, p.event);
    T_OK(tide_machine_call(m, 0, p.a, call_count, &done));
  }

  T_EQ(atomic_load(&done), 0);
  let_go(&held);
  T_EQ(atomic_load(&done), 20);
}

CHECK(stream_free__lets_queued_work_run) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  device_fill(m, 0, p.raw, 1, BYTES);
  gate held;
  hold_up(&held, m, p.a);
  fill(m, p.a, p.raw, 2);
  stream_follow(m, p.b, p.a, p.event);
  fill(m, p.b, p.raw, 3);

  T_OK(tide_machine_stream_free(m, 0, p.b));
  gate_open(&held);
  T_OK(tide_machine_device_synchronize(m, 0));

  expect_filled(m, 0, p.raw, 3, BYTES);
}

CHECK(stream_free__refuses_the_default_streams) {
  T_STATUS(tide_machine_stream_free(m, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_LEGACY), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_free(m, 0, TIDE_STREAM_PER_THREAD), TIDE_ERR_ARGUMENT);

  stream_finish(m, 0, NULL);
  stream_finish(m, 0, TIDE_STREAM_PER_THREAD);
}

CHECK(stream__one_that_stands_still_holds_up_no_other) {
  const pair p = pair_new(m, 0);
  gate held;
  hold_up(&held, m, p.a);

  fill(m, p.b, p.raw, 2);
  finish_filled(m, p.b, p.raw, 2);

  T_CHECK(!stream_is_idle(m, 0, p.a));
  let_go(&held);
}

CHECK(device_synchronize__waits_for_every_stream) {
  const tide_stream streams[3] = { stream_new(m, 0, 0), stream_new(m, 0, TIDE_STREAM_NON_BLOCKING), NULL };
  atomic_int done = 0;
  for (int i = 0; i < 3; ++i) {
    T_OK(tide_machine_call(m, 0, streams[i], call_slow, NULL));
    T_OK(tide_machine_call(m, 0, streams[i], call_count, &done));
  }

  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&done), 3);
}

CHECK(device_synchronize__waits_for_one_device_alone) {
  need_two_devices(m);
  const tide_stream other = stream_new(m, 1, 0);
  uint8_t* const raw = raw_new(m, 1, BYTES);
  gate held;
  gate_close(&held, m, 1, other);
  T_OK(tide_machine_fill(m, 1, other, raw, 1, BYTES));

  T_OK(tide_machine_device_synchronize(m, 0));

  T_CHECK(!stream_is_idle(m, 1, other));
  let_go(&held);
}

// ---------------------------------------------------------------------------------------------------
// Threads

CHECK(call__from_many_threads_all_run) {
  late_work w[4];
  for (size_t i = 0; i < 4; ++i) w[i] = (late_work){ m, raw_new(m, 0, BYTES) };

  on_four_threads(thread_queues_and_ends, w, 4, sizeof *w);
  T_OK(tide_machine_device_synchronize(m, 0));

  for (size_t i = 0; i < 4; ++i) expect_filled(m, 0, w[i].memory, 9, BYTES);
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

CHECK(stream__takes_work_from_several_threads) {
  atomic_int done = 0;
  pusher p = { m, stream_new(m, 0, 0), &done };

  on_four_threads(thread_pushes, &p, 1, sizeof p);
  stream_finish(m, 0, p.stream);

  T_EQ(atomic_load(&done), 400);
}

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

CHECK(machine__serves_four_threads_at_once) {
  hammer h[4];
  const int last = tide_machine_device_count(m) - 1;
  const tide_stream shared[2] = { stream_new(m, 0, 0), stream_new(m, last, 0) };
  const size_t before = free_bytes(m, 0) + free_bytes(m, last);
  for (size_t i = 0; i < 4; ++i) h[i] = (hammer){ m, { shared[0], shared[1] }, i };

  on_four_threads(thread_hammers, h, 4, sizeof *h);

  if (is_emulated(m)) T_EQ(free_bytes(m, 0) + free_bytes(m, last), before);
}
