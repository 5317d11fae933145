// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What went wrong once in the device allocator between threads. Slow calls, of the machine by faults with a
// latency and of the heap by a wrapper, make the moments long in which it went wrong; the thread sanitizer
// sees the rest. See test_regressions.c for what needs one thread.
#include "device/devices.h"

#define CREW 12

// ---------------------------------------------------------------------------------------------------
// Threads and slow calls

typedef struct crew {
  tide_machine* m;
  tide_device* d;
  tide_stream* streams;  // borrowed
  size_t stream_count;
  pthread_barrier_t start;
  atomic_size_t next;  // who comes gets a number
  atomic_bool is_over;
  pthread_t threads[CREW];
  size_t count;
} crew;

static void crew_start(crew* c, size_t count, void* (*function)(void*)) {
  c->count = count;
  atomic_store(&c->next, 0);
  atomic_store(&c->is_over, false);
  T_EQ(pthread_barrier_init(&c->start, NULL, (unsigned)count), 0);
  for (size_t i = 0; i < count; ++i) t_thread_start(&c->threads[i], function, c);
}

static void crew_end(crew* c) {
  atomic_store(&c->is_over, true);
  for (size_t i = 0; i < c->count; ++i) t_thread_join(c->threads[i]);
  T_EQ(pthread_barrier_destroy(&c->start), 0);
}

// Holds up all calls of a kind, which fail or not.
static void slow_down(tide_machine* m, tide_call call, tide_status status, uint64_t ms) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = call;
  fault.status = (uint32_t)status;
  fault.count = UINT64_MAX;
  fault.latency_ns = ms * 1000000;
  T_OK(tide_machine_fault_add(m, &fault));
}

static void* slow_alloc(void* user, size_t bytes, size_t alignment) {
  t_sleep_us(200);
  return counting_alloc(user, bytes, alignment);
}

// Waits until a call of a kind is under way or done.
static void wait_for_call(tide_machine* m, tide_call call, uint64_t calls) {
  for (int i = 0; i < 10000 && tide_machine_call_stats(m, call).calls <= calls; ++i) t_sleep_us(100);
}

static void* trim_once(void* user) {
  trim(((crew*)user)->d);
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// Lanes

#define STREAMS 72

static void* take_on_new_streams(void* user) {
  crew* const c = user;
  const size_t self = atomic_fetch_add(&c->next, 1);
  for (size_t i = self; i < c->stream_count; i += c->count) {
    (void)pthread_barrier_wait(&c->start);
    (void)take(c->d, c->streams[i], 512);
  }
  return NULL;
}

// Every stream of a fresh allocator is met for the first time, by up to 12 threads at once.
static void run_new_streams(tide_machine* m, size_t threads, bool is_slow) {
  tide_stream streams[STREAMS];
  for (size_t i = 0; i < STREAMS; ++i) streams[i] = side_new(m);
  for (size_t round = 0; round < t_scaled(4); ++round) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, false);
    crew c = { .m = m, .d = device_new(m, 0, &records.heap), .streams = streams, .stream_count = STREAMS };
    if (is_slow) records.heap.alloc = slow_alloc;  // so that all are at it together
    crew_start(&c, threads, take_on_new_streams);
    crew_end(&c);
    T_EQ(current(c.d, allocation), STREAMS);
    T_EQ(count_segments(c.d) >= 64, 1);
    device_expect_valid(c.d);
    tide_device_free(c.d);
    T_EQ(atomic_load(&records.outstanding), 0);
  }
}
