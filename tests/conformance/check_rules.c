// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: what a capture refuses.
#include "conformance/check.h"

#include "conformance/captures.h"

CHECK_FILE(check_rules);

static void expect_broken(tide_machine* m, const broken* b) {
  T_EQ(state_of(m, b->stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, b->stream);
  expect_usable(m, b->stream);
}

CHECK(capture__is_broken_by_a_query_of_its_stream) {
  const broken b = broken_new(m);
  bool is_idle = true;

  T_STATUS(tide_machine_stream_query(m, 0, b.stream, &is_idle), TIDE_ERR_CAPTURE);

  T_CHECK(!is_idle);
  expect_broken(m, &b);
}

CHECK(capture__is_broken_by_synchronizing_its_stream) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_stream_synchronize(m, 0, b.stream), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

CHECK(capture__is_broken_by_a_query_of_its_event) {
  const broken b = broken_new(m);
  bool is_done = true;

  T_STATUS(tide_machine_event_query(m, b.event, &is_done), TIDE_ERR_CAPTURE);

  T_CHECK(!is_done);
  expect_broken(m, &b);
}

CHECK(capture__is_broken_by_synchronizing_its_event) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_event_synchronize(m, b.event), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

CHECK(capture__is_broken_by_synchronizing_its_device) {
  const broken b = broken_new(m);

  T_STATUS(tide_machine_device_synchronize(m, 0), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

CHECK(capture__is_broken_by_the_legacy_stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const broken b = broken_new(m);

  T_STATUS(tide_machine_fill(m, 0, NULL, raw, 1, BYTES), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

CHECK(capture__of_a_non_blocking_stream_does_not_mind_the_legacy_one) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_fill(m, 0, NULL, raw, 5, BYTES));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
  stream_finish(m, 0, NULL);
  expect_filled(m, 0, raw, 5, BYTES);
}

CHECK(capture__does_not_mind_work_on_another_stream) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_stream captured = stream_new(m, 0, 0);
  const tide_stream other = stream_new(m, 0, 0);
  begin(m, captured, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_fill(m, 0, other, raw, 5, BYTES));

  T_EQ(state_of(m, captured), TIDE_CAPTURE_ACTIVE);
  T_EQ(state_of(m, other), TIDE_CAPTURE_NONE);
  (void)end(m, captured);
  stream_finish(m, 0, other);
  expect_filled(m, 0, raw, 5, BYTES);
}

CHECK(capture__when_broken_refuses_work_until_its_end) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  const tide_event event = event_new(m, 0);
  const broken b = broken_new(m);
  T_STATUS(tide_machine_stream_synchronize(m, 0, b.stream), TIDE_ERR_CAPTURE);

  T_STATUS(tide_machine_fill(m, 0, b.stream, raw, 1, BYTES), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_copy(m, 0, b.stream, raw, raw + 1, 1), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_call(m, 0, b.stream, call_slow, NULL), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_event_record(m, 0, event, b.stream), TIDE_ERR_CAPTURE);

  expect_broken(m, &b);
}

CHECK(capture__when_broken_frees_every_stream_of_it) {
  const tide_stream second = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  const broken b = broken_new(m);
  stream_follow(m, second, b.stream, event);
  T_EQ(state_of(m, second), TIDE_CAPTURE_ACTIVE);

  T_STATUS(tide_machine_stream_synchronize(m, 0, second), TIDE_ERR_CAPTURE);
  T_EQ(state_of(m, second), TIDE_CAPTURE_INVALIDATED);

  expect_broken(m, &b);
  expect_usable(m, second);
}

CHECK(event__recorded_in_a_capture_can_be_recorded_again_outside) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  (void)end(m, stream);

  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_event_synchronize(m, event));

  T_CHECK(event_is_done(m, event));
}

CHECK(capture_exchange__hands_out_the_mode_before) {
  need_captures(m);
  tide_capture_mode before = TIDE_CAPTURE_RELAXED;

  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &before));
  T_EQ(before, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_THREAD_LOCAL, &before));
  T_EQ(before, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_GLOBAL, &before));

  T_EQ(before, TIDE_CAPTURE_THREAD_LOCAL);
}

static void* thread_expects_global(void* user) {
  tide_machine* const m = user;
  tide_capture_mode before = TIDE_CAPTURE_RELAXED;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_THREAD_LOCAL, &before));
  T_EQ(before, TIDE_CAPTURE_GLOBAL);
  return NULL;
}

CHECK(capture_exchange__is_for_the_calling_thread) {
  need_captures(m);
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  pthread_t thread;
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &before));

  t_thread_start(&thread, thread_expects_global, m);
  t_thread_join(thread);

  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_GLOBAL, &before));
  T_EQ(before, TIDE_CAPTURE_RELAXED);
}

// An unsafe call on a thread in a mode.
typedef struct intruder {
  tide_machine* m;
  tide_capture_mode mode;
  tide_status status;
} intruder;

static void* thread_intrudes(void* user) {
  intruder* const i = user;
  tide_capture_mode before = TIDE_CAPTURE_GLOBAL;
  void* memory = NULL;
  T_OK(tide_machine_capture_exchange(i->m, i->mode, &before));
  i->status = tide_machine_raw_alloc(i->m, 0, BYTES, &memory);
  T_EQ(memory == NULL, i->status != TIDE_OK);
  T_OK(tide_machine_capture_exchange(i->m, before, &before));
  return NULL;
}

// The rule of the contract, as it stands there.
static bool is_refused(tide_capture_mode thread, tide_capture_mode capture, bool is_own) {
  if (thread == TIDE_CAPTURE_RELAXED) return false;
  if (is_own && capture != TIDE_CAPTURE_RELAXED) return true;
  return thread == TIDE_CAPTURE_GLOBAL && capture == TIDE_CAPTURE_GLOBAL;
}

static void expect_mode(tide_machine* m, tide_capture_mode thread_mode, tide_capture_mode capture,
                        bool is_own) {
  const tide_stream stream = stream_new(m, 0, 0);
  intruder i = { m, thread_mode, TIDE_OK };
  pthread_t thread;
  begin(m, stream, capture);

  if (is_own) {
    (void)thread_intrudes(&i);
  } else {
    t_thread_start(&thread, thread_intrudes, &i);
    t_thread_join(thread);
  }

  const bool refused = is_refused(thread_mode, capture, is_own);
  T_EQ(i.status, refused ? TIDE_ERR_CAPTURE : TIDE_OK);
  T_EQ(state_of(m, stream), refused ? TIDE_CAPTURE_INVALIDATED : TIDE_CAPTURE_ACTIVE);
  if (refused) end_broken(m, stream);
  else (void)end(m, stream);
  expect_usable(m, stream);
}

static void expect_modes(tide_machine* m, tide_capture_mode capture, bool is_own) {
  expect_mode(m, TIDE_CAPTURE_GLOBAL, capture, is_own);
  expect_mode(m, TIDE_CAPTURE_THREAD_LOCAL, capture, is_own);
  expect_mode(m, TIDE_CAPTURE_RELAXED, capture, is_own);
}

CHECK(capture__global_and_unsafe_calls_of_the_same_thread) { expect_modes(m, TIDE_CAPTURE_GLOBAL, true); }

CHECK(capture__global_and_unsafe_calls_of_another_thread) { expect_modes(m, TIDE_CAPTURE_GLOBAL, false); }

CHECK(capture__thread_local_and_unsafe_calls_of_the_same_thread) {
  expect_modes(m, TIDE_CAPTURE_THREAD_LOCAL, true);
}

CHECK(capture__thread_local_and_unsafe_calls_of_another_thread) {
  expect_modes(m, TIDE_CAPTURE_THREAD_LOCAL, false);
}

CHECK(capture__relaxed_and_unsafe_calls_of_the_same_thread) { expect_modes(m, TIDE_CAPTURE_RELAXED, true); }

CHECK(capture__relaxed_and_unsafe_calls_of_another_thread) { expect_modes(m, TIDE_CAPTURE_RELAXED, false); }

static tide_launch graph_of_nothing(tide_machine* m, tide_stream stream) {
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  return end(m, stream);
}

// Everything that an unsafe call needs, made before the capture.
typedef struct kit {
  tide_machine* m;
  tide_stream stream;
  tide_event event;
  tide_physical physical;
  size_t unit;
  uint8_t* raw;
  uint8_t* pinned;
  uint8_t* buffer;      // not registered
  uint8_t* registered;  // the second half of `buffer`
  uint8_t* range;       // reserved; mapped in its first unit
} kit;

static kit kit_new(tide_machine* m) {
  kit k = { .m = m, .unit = granularity(m) };
  void* buffer = NULL;
  T_EQ(posix_memalign(&buffer, 65536, 131072), 0);
  k.stream = stream_new(m, 0, 0);
  k.event = event_new(m, 0);
  k.physical = physical_new(m, 0, k.unit);
  k.raw = raw_new(m, 0, BYTES);
  k.pinned = pinned_new(m, BYTES);
  k.buffer = buffer;
  k.registered = k.buffer + 65536;
  k.range = reserve(m, 0, 2 * k.unit);
  map_new(m, 0, k.range, k.unit);
  T_OK(tide_machine_pinned_register(m, k.registered, 65536));
  return k;
}

static tide_status do_raw_alloc(kit* k) {
  void* out = NULL;
  return tide_machine_raw_alloc(k->m, 0, BYTES, &out);
}
static tide_status do_raw_release(kit* k) { return tide_machine_raw_release(k->m, 0, k->raw); }
static tide_status do_pinned_alloc(kit* k) {
  void* out = NULL;
  return tide_machine_pinned_alloc(k->m, BYTES, &out);
}
static tide_status do_pinned_release(kit* k) { return tide_machine_pinned_release(k->m, k->pinned); }
static tide_status do_pinned_register(kit* k) { return tide_machine_pinned_register(k->m, k->buffer, 4096); }
static tide_status do_pinned_unregister(kit* k) {
  return tide_machine_pinned_unregister(k->m, k->registered);
}
static tide_status do_physical_new(kit* k) {
  tide_physical out = NULL;
  return tide_machine_physical_new(k->m, 0, k->unit, 0, &out);
}
static tide_status do_physical_free(kit* k) { return tide_machine_physical_free(k->m, k->physical); }
static tide_status do_map(kit* k) { return tide_machine_map(k->m, k->range + k->unit, k->physical); }
static tide_status do_unmap(kit* k) { return tide_machine_unmap(k->m, k->range, k->unit); }
static tide_status do_set_access(kit* k) {
  return tide_machine_set_access(k->m, k->range, k->unit, 0, TIDE_ACCESS_READ);
}
static tide_status do_event_query(kit* k) {
  bool out = false;
  return tide_machine_event_query(k->m, k->event, &out);
}
static tide_status do_event_synchronize(kit* k) { return tide_machine_event_synchronize(k->m, k->event); }
static tide_status do_stream_query(kit* k) {
  bool out = false;
  return tide_machine_stream_query(k->m, 0, k->stream, &out);
}
static tide_status do_stream_synchronize(kit* k) {
  return tide_machine_stream_synchronize(k->m, 0, k->stream);
}
static tide_status do_device_synchronize(kit* k) {
  return tide_machine_device_synchronize(k->m, tide_machine_device_count(k->m) - 1);
}

CHECK(capture__is_broken_by_every_unsafe_call) {
  static tide_status (*const calls[])(kit*) = {
    do_raw_alloc,       do_raw_release,        do_pinned_alloc,       do_pinned_release,
    do_pinned_register, do_pinned_unregister,  do_event_query,        do_event_synchronize,
    do_stream_query,    do_stream_synchronize, do_device_synchronize,
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    kit k = kit_new(m);
    const tide_stream stream = stream_new(m, 0, 0);
    const size_t before = free_bytes(m, 0);
    begin(m, stream, TIDE_CAPTURE_GLOBAL);

    const tide_status refused = calls[i](&k);
    if (refused != TIDE_ERR_CAPTURE) T_FAIL("call %zu of the table is %s", i, tide_status_name(refused));

    T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
    end_broken(m, stream);
    T_EQ(free_bytes(m, 0), before);
    T_OK(calls[i](&k));
    if (calls[i] != do_pinned_unregister) T_OK(do_pinned_unregister(&k));
    if (calls[i] == do_pinned_register) T_OK(tide_machine_pinned_unregister(m, k.buffer));
    free(k.buffer);
  }
}

CHECK(capture__does_not_mind_safe_calls) {
  kit k = kit_new(m);
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_launch graph = graph_of_nothing(m, stream);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  (void)device_info(m, 0);
  (void)clock_ns(m);
  (void)pointer_info(m, k.raw);
  (void)free_bytes(m, 0);
  T_OK(do_map(&k));
  T_OK(do_set_access(&k));
  T_OK(do_unmap(&k));
  T_OK(do_physical_free(&k));
  T_OK(do_physical_new(&k));
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_machine_event_record(m, 0, k.event, k.stream));
  T_OK(tide_machine_event_free(m, event_new(m, 0)));
  T_OK(tide_machine_stream_free(m, 0, stream_new(m, 0, 0)));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
  T_OK(tide_machine_pinned_unregister(m, k.registered));
  free(k.buffer);
}

CHECK(capture__is_over_when_its_stream_is_freed) {
  const tide_stream gone = stream_new(m, 0, 0);
  const tide_stream stream = stream_new(m, 0, 0);
  begin(m, gone, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_stream_free(m, 0, gone));

  expect_usable(m, stream);
}

CHECK(capture__goes_on_when_a_stream_that_joined_is_freed) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_stream joined = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_stream_wait(m, 0, joined, event));

  T_OK(tide_machine_stream_free(m, 0, joined));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
}

CHECK(capture__is_broken_by_ending_it_on_a_stream_that_joined) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_stream joined = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_stream_wait(m, 0, joined, event));

  end_broken(m, joined);

  T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, stream);
}

CHECK(capture__two_at_once_on_one_thread) {
  const tide_stream first = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream second = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  begin(m, first, TIDE_CAPTURE_GLOBAL);
  begin(m, second, TIDE_CAPTURE_GLOBAL);
  T_NE(id_of(m, first), id_of(m, second));

  T_OK(tide_machine_launch_free(m, end(m, first)));

  T_EQ(state_of(m, second), TIDE_CAPTURE_ACTIVE);
  T_OK(tide_machine_launch_free(m, end(m, second)));
}

CHECK(event__of_a_capture_that_has_ended_must_be_recorded_again) {
  const tide_stream stream = stream_new(m, 0, 0);
  const tide_event event = event_new(m, 0);
  bool is_done = false;
  begin(m, stream, TIDE_CAPTURE_GLOBAL);
  T_OK(tide_machine_event_record(m, 0, event, stream));
  (void)end(m, stream);

  T_STATUS(tide_machine_event_query(m, event, &is_done), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_event_synchronize(m, event), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_wait(m, 0, stream, event), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_event_record(m, 0, event, stream));
  T_OK(tide_machine_event_synchronize(m, event));
}

typedef struct ender {
  tide_machine* m;
  tide_stream stream;
  tide_status status;
  tide_launch graph;
} ender;

static void* thread_ends_capture(void* user) {
  ender* const e = user;
  e->status = tide_machine_capture_end(e->m, 0, e->stream, &e->graph);
  return NULL;
}

static ender end_on_a_thread(tide_machine* m, tide_stream stream) {
  ender e = { m, stream, TIDE_OK, NULL };
  pthread_t thread;
  t_thread_start(&thread, thread_ends_capture, &e);
  t_thread_join(thread);
  return e;
}

CHECK(capture_end__belongs_to_the_thread_that_began) {
  static const tide_capture_mode modes[] = { TIDE_CAPTURE_GLOBAL, TIDE_CAPTURE_THREAD_LOCAL };
  for (size_t i = 0; i < 2; ++i) {
    const tide_stream stream = stream_new(m, 0, 0);
    begin(m, stream, modes[i]);

    const ender e = end_on_a_thread(m, stream);

    T_EQ(e.status, TIDE_ERR_CAPTURE);
    T_PTR_EQ(e.graph, NULL);
    tide_launch graph = NULL;
    const tide_status ended = tide_machine_capture_end(m, 0, stream, &graph);
    T_CHECK(ended == TIDE_OK || ended == TIDE_ERR_CAPTURE);
    expect_usable(m, stream);
  }
}

CHECK(capture_end__of_a_relaxed_capture_may_come_from_any_thread) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  const ender e = end_on_a_thread(m, stream);

  T_EQ(e.status, TIDE_OK);
  T_OK(tide_machine_launch(m, 0, e.graph, stream));
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 1);
}

static void capture_round(tide_machine* m, tide_stream a, tide_stream b, tide_event event, uint8_t* raw) {
  begin(m, a, TIDE_CAPTURE_THREAD_LOCAL);
  T_OK(tide_machine_fill(m, 0, a, raw, 1, BYTES));
  stream_follow(m, b, a, event);
  T_OK(tide_machine_fill(m, 0, b, raw, 2, BYTES));
  stream_follow(m, a, b, event);
  const tide_launch graph = end(m, a);
  T_OK(tide_machine_launch(m, 0, graph, a));
  T_OK(tide_machine_launch_free(m, graph));
  stream_finish(m, 0, a);
}

static void* thread_captures(void* user) {
  tide_machine* const m = user;
  const tide_stream a = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_stream b = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  const tide_event event = event_new(m, 0);
  uint8_t* const raw = raw_new(m, 0, BYTES);
  for (size_t i = 0; i < t_scaled(50); ++i) capture_round(m, a, b, event, raw);
  return NULL;
}

CHECK(capture__on_four_threads_at_once) {
  pthread_t threads[4];

  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_captures, m);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_OK(tide_machine_device_synchronize(m, 0));
}
