// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Conformance: what a capture refuses.
#include "conformance/check.h"

#include "conformance/captures.h"

CHECK_FILE(check_rules);

static void expect_broken(tide_machine* m, tide_stream stream) {
  T_EQ(state_of(m, stream), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, stream);
  expect_usable(m, stream);
}

// ---------------------------------------------------------------------------------------------------
// Calls on what is being captured

// A relaxed capture on p.a, with p.event in it, is invalidated by one call.
#define BREACH(name, call)              \
  CHECK(capture__is_broken_by_##name) { \
    const pair p = recorded_new(m);     \
    bool out = false;                   \
    (void)out;                          \
    T_STATUS(call, TIDE_ERR_CAPTURE);   \
    expect_broken(m, p.a);              \
  }

BREACH(a_query_of_its_stream, tide_machine_stream_query(m, 0, p.a, &out))
BREACH(synchronizing_its_stream, tide_machine_stream_synchronize(m, 0, p.a))
BREACH(a_query_of_its_event, tide_machine_event_query(m, p.event, &out))
BREACH(synchronizing_its_event, tide_machine_event_synchronize(m, p.event))
BREACH(synchronizing_its_device, tide_machine_device_synchronize(m, 0))
BREACH(the_legacy_stream, tide_machine_fill(m, 0, NULL, p.raw, 1, BYTES))

// Work outside of a capture runs, and the capture goes on.
static void expect_unbroken(tide_machine* m, tide_stream captured, tide_stream other) {
  uint8_t* const raw = raw_new(m, 0, BYTES);
  begin(m, captured, TIDE_CAPTURE_GLOBAL);

  fill(m, other, raw, 5);

  T_EQ(state_of(m, captured), TIDE_CAPTURE_ACTIVE);
  T_EQ(state_of(m, other), TIDE_CAPTURE_NONE);
  (void)end(m, captured);
  finish_filled(m, other, raw, 5);
}

CHECK(capture__of_a_non_blocking_stream_does_not_mind_the_legacy_one) {
  expect_unbroken(m, stream_new(m, 0, TIDE_STREAM_NON_BLOCKING), NULL);
}

CHECK(capture__does_not_mind_work_on_another_stream) {
  expect_unbroken(m, stream_new(m, 0, 0), stream_new(m, 0, 0));
}

CHECK(capture__when_broken_refuses_work_until_its_end) {
  const tide_event event = event_new(m, 0);
  const pair p = recorded_new(m);
  T_STATUS(tide_machine_stream_synchronize(m, 0, p.a), TIDE_ERR_CAPTURE);

  T_STATUS(tide_machine_fill(m, 0, p.a, p.raw, 1, BYTES), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_copy(m, 0, p.a, p.raw, p.raw + 1, 1), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_call(m, 0, p.a, call_slow, NULL), TIDE_ERR_CAPTURE);
  T_STATUS(tide_machine_event_record(m, 0, event, p.a), TIDE_ERR_CAPTURE);

  expect_broken(m, p.a);
}

CHECK(capture__when_broken_frees_every_stream_of_it) {
  const pair p = joined_new(m);
  T_EQ(state_of(m, p.b), TIDE_CAPTURE_ACTIVE);

  T_STATUS(tide_machine_stream_synchronize(m, 0, p.b), TIDE_ERR_CAPTURE);
  T_EQ(state_of(m, p.b), TIDE_CAPTURE_INVALIDATED);

  expect_broken(m, p.a);
  expect_usable(m, p.b);
}

// ---------------------------------------------------------------------------------------------------
// Modes and unsafe calls

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
  T_OK(tide_machine_capture_exchange(m, TIDE_CAPTURE_RELAXED, &before));

  on_a_thread(thread_expects_global, m);

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
  begin(m, stream, capture);

  if (is_own) (void)thread_intrudes(&i);
  else on_a_thread(thread_intrudes, &i);

  const bool refused = is_refused(thread_mode, capture, is_own);
  T_EQ(i.status, refused ? TIDE_ERR_CAPTURE : TIDE_OK);
  T_EQ(state_of(m, stream), refused ? TIDE_CAPTURE_INVALIDATED : TIDE_CAPTURE_ACTIVE);
  if (refused) end_broken(m, stream);
  else (void)end(m, stream);
  expect_usable(m, stream);
}

#define MODES(name, capture, is_own)                            \
  CHECK(capture__##name) {                                      \
    expect_mode(m, TIDE_CAPTURE_GLOBAL, capture, is_own);       \
    expect_mode(m, TIDE_CAPTURE_THREAD_LOCAL, capture, is_own); \
    expect_mode(m, TIDE_CAPTURE_RELAXED, capture, is_own);      \
  }

MODES(global_and_unsafe_calls_of_the_same_thread, TIDE_CAPTURE_GLOBAL, true)
MODES(global_and_unsafe_calls_of_another_thread, TIDE_CAPTURE_GLOBAL, false)
MODES(thread_local_and_unsafe_calls_of_the_same_thread, TIDE_CAPTURE_THREAD_LOCAL, true)
MODES(thread_local_and_unsafe_calls_of_another_thread, TIDE_CAPTURE_THREAD_LOCAL, false)
MODES(relaxed_and_unsafe_calls_of_the_same_thread, TIDE_CAPTURE_RELAXED, true)
MODES(relaxed_and_unsafe_calls_of_another_thread, TIDE_CAPTURE_RELAXED, false)

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
  k.stream = stream_new(m, 0, 0);
  k.event = event_new(m, 0);
  k.physical = physical_new(m, 0, k.unit);
  k.raw = raw_new(m, 0, BYTES);
  k.pinned = pinned_new(m, BYTES);
  k.buffer = buffer_new(131072);
  k.registered = k.buffer + 65536;
  k.range = reserve(m, 0, 2 * k.unit);
  map_new(m, 0, k.range, k.unit);
  T_OK(tide_machine_pinned_register(m, k.registered, 65536));
  return k;
}

// The unsafe calls: name and arguments. `address` and `is_true` are places for results.
#define UNSAFE_MAP(X)                     \
  X(raw_alloc, 0, BYTES, &address)        \
  X(raw_release, 0, k->raw)               \
  X(pinned_alloc, BYTES, &address)        \
  X(pinned_release, k->pinned)            \
  X(pinned_register, k->buffer, 4096)     \
  X(pinned_unregister, k->registered)     \
  X(event_query, k->event, &is_true)      \
  X(event_synchronize, k->event)          \
  X(stream_query, 0, k->stream, &is_true) \
  X(stream_synchronize, 0, k->stream)     \
  X(device_synchronize, tide_machine_device_count(k->m) - 1)

#define UNSAFE_CALL(name, ...)                     \
  static tide_status do_##name(kit* k) {           \
    void* address = NULL;                          \
    bool is_true = false;                          \
    (void)address, (void)is_true;                  \
    return tide_machine_##name(k->m, __VA_ARGS__); \
  }
UNSAFE_MAP(UNSAFE_CALL)

CHECK(capture__is_broken_by_every_unsafe_call) {
#define UNSAFE_NAME(name, ...) do_##name,
  static tide_status (*const calls[])(kit*) = { UNSAFE_MAP(UNSAFE_NAME) };
#undef UNSAFE_NAME
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
  tide_physical other = NULL;
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  const tide_launch graph = end(m, stream);
  begin(m, stream, TIDE_CAPTURE_GLOBAL);

  (void)device_info(m, 0);
  (void)clock_ns(m);
  (void)pointer_info(m, k.raw);
  (void)free_bytes(m, 0);
  T_OK(tide_machine_map(m, k.range + k.unit, k.physical));
  T_OK(tide_machine_set_access(m, k.range, k.unit, 0, TIDE_ACCESS_READ));
  T_OK(tide_machine_unmap(m, k.range, k.unit));
  T_OK(tide_machine_physical_free(m, k.physical));
  T_OK(tide_machine_physical_new(m, 0, k.unit, 0, &other));
  T_OK(tide_machine_launch_free(m, graph));
  T_OK(tide_machine_event_record(m, 0, k.event, k.stream));
  T_OK(tide_machine_event_free(m, event_new(m, 0)));
  T_OK(tide_machine_stream_free(m, 0, stream_new(m, 0, 0)));

  T_EQ(state_of(m, stream), TIDE_CAPTURE_ACTIVE);
  (void)end(m, stream);
  T_OK(tide_machine_pinned_unregister(m, k.registered));
  free(k.buffer);
}

// ---------------------------------------------------------------------------------------------------
// Streams, events and threads that leave

CHECK(capture__is_over_when_its_stream_is_freed) {
  const pair p = pair_new(m, 0);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);

  T_OK(tide_machine_stream_free(m, 0, p.a));

  expect_usable(m, p.b);
}

CHECK(capture__goes_on_when_a_stream_that_joined_is_freed) {
  const pair p = joined_new(m);

  T_OK(tide_machine_stream_free(m, 0, p.b));

  T_EQ(state_of(m, p.a), TIDE_CAPTURE_ACTIVE);
  (void)end(m, p.a);
}

CHECK(capture__is_broken_by_ending_it_on_a_stream_that_joined) {
  const pair p = joined_new(m);

  end_broken(m, p.b);

  T_EQ(state_of(m, p.a), TIDE_CAPTURE_INVALIDATED);
  end_broken(m, p.a);
}

CHECK(capture__two_at_once_on_one_thread) {
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  begin(m, p.a, TIDE_CAPTURE_GLOBAL);
  begin(m, p.b, TIDE_CAPTURE_GLOBAL);
  T_NE(id_of(m, p.a), id_of(m, p.b));

  T_OK(tide_machine_launch_free(m, end(m, p.a)));

  T_EQ(state_of(m, p.b), TIDE_CAPTURE_ACTIVE);
  T_OK(tide_machine_launch_free(m, end(m, p.b)));
}

CHECK(event__of_a_capture_that_has_ended_must_be_recorded_again) {
  const pair p = recorded_new(m);
  bool is_done = false;
  (void)end(m, p.a);

  T_STATUS(tide_machine_event_query(m, p.event, &is_done), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_event_synchronize(m, p.event), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_machine_stream_wait(m, 0, p.a, p.event), TIDE_ERR_ARGUMENT);

  T_OK(tide_machine_event_record(m, 0, p.event, p.a));
  T_OK(tide_machine_event_synchronize(m, p.event));
  T_CHECK(event_is_done(m, p.event));
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
  on_a_thread(thread_ends_capture, &e);
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
    (void)end_any(m, stream);
  }
}

CHECK(capture_end__of_a_relaxed_capture_may_come_from_any_thread) {
  const tide_stream stream = stream_new(m, 0, 0);
  atomic_int done = 0;
  begin(m, stream, TIDE_CAPTURE_RELAXED);
  T_OK(tide_machine_call(m, 0, stream, call_count, &done));

  const ender e = end_on_a_thread(m, stream);

  T_EQ(e.status, TIDE_OK);
  launch(m, e.graph, stream);
  stream_finish(m, 0, stream);
  T_EQ(atomic_load(&done), 1);
}

static void* thread_captures(void* user) {
  tide_machine* const m = user;
  const pair p = pair_new(m, TIDE_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < t_scaled(50); ++i) {
    begin(m, p.a, TIDE_CAPTURE_THREAD_LOCAL);
    fill(m, p.a, p.raw, 1);
    stream_follow(m, p.b, p.a, p.event);
    fill(m, p.b, p.raw, 2);
    stream_follow(m, p.a, p.b, p.event);
    const tide_launch graph = end(m, p.a);
    launch(m, graph, p.a);
    T_OK(tide_machine_launch_free(m, graph));
    stream_finish(m, 0, p.a);
  }
  return NULL;
}

CHECK(capture__on_four_threads_at_once) {
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) t_thread_start(&threads[i], thread_captures, m);
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_OK(tide_machine_device_synchronize(m, 0));
}
