// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Streams and events of our machines, beyond the conformance suite: callbacks, threads that end, and work
// whose memory was freed before it ran.
#define T_THREADS
#include "machine/machines.h"

#include "conformance/streams.h"

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

// ---------------------------------------------------------------------------------------------------
// Order

EMULATED_TEST(test_per_thread_stream__of_many_short_threads_leaves_nothing) {
  const size_t threads = t_count_threads();
  late_work w = { m, raw_new(m, 0, BYTES) };
  for (int i = 0; i < 200; ++i) on_a_thread(thread_queues_and_ends, &w);
  T_OK(tide_machine_device_synchronize(m, 0));

  T_LE(t_count_threads(), threads + 64);
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

  T_OK(tide_machine_call(m, 0, NULL, call_other_machine, &l.done));
  stream_finish(m, 0, NULL);
  on_a_thread(thread_leaves_a_callback, &l);
  T_OK(tide_machine_device_synchronize(m, 0));

  T_EQ(atomic_load(&l.done), 2);
}

// ---------------------------------------------------------------------------------------------------
// Memory that is freed before its work ran

// The work is skipped and reported once. It touches neither its other end nor memory that came later.
HOST_TEST(test_raw_release__before_its_work_ran_is_reported_by_the_next_synchronize) {
  const tide_stream stream = stream_new(m, 0, TIDE_STREAM_NON_BLOCKING);
  uint8_t* const kept = raw_new(m, 0, BYTES);
  device_fill(m, 0, kept, 0x0b, BYTES);
  for (int i = 0; i < 3; ++i) {
    uint8_t* const freed = raw_new(m, 0, BYTES);
    gate held;
    gate_close(&held, m, 0, stream);
    if (i == 0) T_OK(tide_machine_copy(m, 0, stream, kept, freed, BYTES));
    else fill(m, stream, freed, 0xee);

    T_OK(tide_machine_raw_release(m, 0, freed));
    uint8_t* const next = raw_new(m, 0, BYTES);
    device_fill(m, 0, next, 0x11, BYTES);
    gate_open(&held);

    if (i == 2) T_STATUS(tide_machine_device_synchronize(m, 0), TIDE_ERR_MACHINE);
    else T_STATUS(tide_machine_stream_synchronize(m, 0, stream), TIDE_ERR_MACHINE);
    T_STR_HAS(tide_last_error()->text, i == 0 ? "copy" : "fill");
    finish_filled(m, stream, kept, 0x0b);
    finish_filled(m, stream, next, 0x11);
    T_OK(tide_machine_device_synchronize(m, 1));
  }
}

HOST_TEST(test_unmap_and_pinned_release__before_their_work_ran_do_no_harm) {
  const size_t unit = granularity(m);
  const tide_stream stream = stream_new(m, 0, 0);
  uint8_t* const range = reserve(m, 0, unit);
  uint8_t* const raw = raw_new(m, 0, MIB);
  uint8_t* const pinned = pinned_new(m, MIB);
  map_new(m, 0, range, unit);
  gate held;
  gate_close(&held, m, 0, stream);
  T_OK(tide_machine_fill(m, 0, stream, range, 0xee, unit));
  T_OK(tide_machine_copy(m, 0, stream, pinned, raw, MIB));

  T_OK(tide_machine_unmap(m, range, unit));
  T_OK(tide_machine_pinned_release(m, pinned));
  gate_open(&held);

  const tide_status status = tide_machine_stream_synchronize(m, 0, stream);
  T_CHECK(status == TIDE_OK || status == TIDE_ERR_MACHINE);
  T_EQ(free_bytes(m, 0), MACHINE_CAPACITY - MIB);
}

// ---------------------------------------------------------------------------------------------------
// Events

// Two threads use one event: one records it, inside and outside of a capture, and the other waits for it.
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

EMULATED_TEST(test_event__many_can_be_made_and_freed) {
  enum { COUNT = 5000 };
  static tide_event events[COUNT];

  for (size_t i = 0; i < COUNT; ++i) {
    events[i] = event_new(m, 0);
    T_OK(tide_machine_event_record(m, 0, events[i], NULL));
  }
  for (size_t i = 0; i < COUNT; ++i) T_OK(tide_machine_event_free(m, events[i * 3001 % COUNT]));

  for (size_t i = 0; i < COUNT; ++i) {
    bool is_done = true;
    T_STATUS(tide_machine_event_query(m, events[i], &is_done), TIDE_ERR_HANDLE);
  }
}
