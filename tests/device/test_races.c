// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Former races of the device allocator. Slow machine calls (faults with a latency) and a slow heap widen the
// windows in which they happened; the thread sanitizer sees the rest. See test_regressions.c for bugs that
// need only one thread.
#define T_THREADS
#include "device/devices.h"

#define CREW 12

// ---------------------------------------------------------------------------------------------------
// Threads and slow calls

typedef struct crew {
  tide_machine* m;
  tide_device_cache* d;
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

// Slow by up to 300 us, each time by another amount.
static void* slow_alloc(void* user, size_t bytes, size_t alignment) {
  static atomic_uint calls;
  t_sleep_us(atomic_fetch_add(&calls, 1) * 97 % 300);
  return counting_alloc(user, bytes, alignment);
}

// Time for another thread to come to a call that takes SLOW_MS.
#define SLOW_MS 150
static void let_another_begin(void) { t_sleep_us(40000); }

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
  for (size_t round = 0; round < t_scaled(2); ++round) {
    counting_heap records;
    counting_heap_init(&records, SIZE_MAX, false);
    crew c = { .m = m, .d = device_new(m, 0, &records.heap), .streams = streams, .stream_count = STREAMS };
    if (is_slow) records.heap.alloc = slow_alloc;  // so that all are at it together
    crew_start(&c, threads, take_on_new_streams);
    crew_end(&c);
    T_EQ(current(c.d, allocation), STREAMS);
    T_EQ(current(c.d, reserved_bytes), STREAMS * 2 * MIB);
    device_expect_valid(c.d);
    tide_device_free(c.d);
    T_EQ(atomic_load(&records.outstanding), 0);
  }
}

DEVICE_TEST_OVER(test_device__many_threads_meet_new_streams_at_once, device_emulated) {
  run_new_streams(m, CREW, true);
  run_new_streams(m, 6, false);
}

// ---------------------------------------------------------------------------------------------------
// Pools that go

static void* take_and_give(void* user) {
  crew* const c = user;
  const tide_stream stream = c->streams[atomic_fetch_add(&c->next, 1)];
  while (!atomic_load(&c->is_over)) give(c->d, take(c->d, stream, 512));
  return NULL;
}

DEVICE_TEST_OVER(test_device__a_pool_dropped_under_a_request_of_another_thread_loses_nothing,
                 device_emulated) {
  tide_stream streams[2] = { side_new(m), side_new(m) };
  crew c = { .m = m, .d = d, .streams = streams };
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_ALL;
  crew_start(&c, 2, take_and_give);
  for (size_t i = 0; i < t_scaled(300); ++i) {
    const tide_pool pool = pool_new(d, NULL);
    T_OK(pool_begin_kept(d, pool, &scope));
    if (i % 4 == 0) t_sleep_us(100);
    scope_close(d, pool);
    T_OK(tide_device_pool_drop(d, pool));
    trim(d);
  }
  crew_end(&c);
  trim(d);

  T_EQ(current(d, allocation), 0);
  T_EQ(current(d, reserved_bytes), 0);
}

// ---------------------------------------------------------------------------------------------------
// Blocks in the hands of another thread

static bool wait_for_trim(void* user, tide_device_cache* device) {
  (void)device;
  wait_for(user, 1);
  return false;
}

typedef struct failing_trim {
  tide_device_cache* d;
  tide_status status;
  atomic_int is_done;
} failing_trim;

static void* trim_in_vain(void* user) {
  failing_trim* const f = user;
  f->status = tide_device_trim(f->d, 0);
  atomic_store(&f->is_done, 1);
  return NULL;
}

// A trim has the only idle block and cannot give it back, while a request comes.
static void expect_memory_found_beside_a_trim(tide_machine* m, tide_device_cache* d, bool has_callback) {
  failing_trim f = { .d = d, .status = TIDE_OK };
  give(d, take(d, NULL, 20 * MIB));
  limit_to(d, 20 * MIB);
  slow_down(m, shrink_call(), TIDE_ERR_MACHINE, UINT64_MAX, SLOW_MS);
  if (has_callback) observe_reclaim(d, wait_for_trim, &f.is_done);
  // A trim that comes after the request finds nothing to give back, and succeeds: once more then.
  for (int i = 0; i < 1000 && f.status == TIDE_OK; ++i) {
    pthread_t thread;
    atomic_store(&f.is_done, 0);
    t_thread_start(&thread, trim_in_vain, &f);
    let_another_begin();
    const tide_block block = take(d, NULL, 15 * MIB);
    t_thread_join(thread);
    give(d, block);
  }
  T_EQ(f.status, TIDE_ERR_MACHINE);
  tide_machine_fault_clear(m);
}

// The trim leaves the gate before the request comes there.
DEVICE_TEST_OVER(test_device__a_request_finds_memory_that_another_thread_had_in_hand, device_host) {
  expect_memory_found_beside_a_trim(m, d, true);
}

// The request comes to the gate while the trim has it.
DEVICE_TEST_OVER(test_device__a_request_at_the_gate_finds_memory_that_was_put_back, device_host) {
  expect_memory_found_beside_a_trim(m, d, false);
}

// Of 30 to 100 MiB, idle, a trim unmaps whole handles, 40 to 100; meanwhile 0 to 30 is released. The policy
// tide has smaller handles, so that all of the idle ones go.
DEVICE_TEST_OVER(test_device__neighbours_released_during_a_slow_unmap_are_joined, device_host) {
  crew c = { .m = m, .d = d };
  expand(m, d);
  const tide_block front = take(d, NULL, 30 * MIB);
  give(d, take(d, NULL, 60 * MIB));
  slow_down(m, TIDE_CALL_UNMAP, TIDE_OK, UINT64_MAX, SLOW_MS);
  crew_start(&c, 1, trim_once);
  let_another_begin();
  give(d, front);
  crew_end(&c);
  tide_machine_fault_clear(m);

  device_expect_valid(d);
  T_EQ(current(d, reserved_bytes), (is_tide() ? 30 : 40) * MIB);
  expect_trimmed(d, 0);
}

// ---------------------------------------------------------------------------------------------------
// Waiting while others add

static void* keep_announcing(void* user) {
  crew* const c = user;
  while (!atomic_load(&c->is_over)) {
    const tide_block block = take(c->d, NULL, 512);
    announce(c->d, block, c->streams[0]);
    work_slowly(c->m, c->streams[0]);
    give(c->d, block);
    while (current(c->d, active) > 64 && !atomic_load(&c->is_over)) t_sleep_us(10);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_device__a_trim_ends_although_others_keep_adding, device_host) {
  tide_stream side = side_new(m);
  crew c = { .m = m, .d = d, .streams = &side };
  crew_start(&c, 2, keep_announcing);
  while (current(d, active) < 16) t_sleep_us(100);

  for (int i = 0; i < 5; ++i) trim(d);

  crew_end(&c);
  stream_finish(m, 0, side);
}

// ---------------------------------------------------------------------------------------------------
// Without a cache

static void* take_uncached(void* user) {
  crew* const c = user;
  for (size_t i = 0; i < t_scaled(3000); ++i) {
    const tide_block block = take(c->d, NULL, 64 * KIB);
    tide_block found = { NULL, 0 };
    T_OK(tide_device_find(c->d, block.address, &found));
    T_EQ(found.handle, block.handle);
    T_OK(tide_device_release_address(c->d, block.address));
  }
  return NULL;
}

DEVICE_TEST_OVER(test_device__uncached_memory_of_several_threads_is_found_by_address, device_emulated) {
  crew c = { .m = m, .d = d };
  tide_device_set_caching(d, false);

  crew_start(&c, 4, take_uncached);
  crew_end(&c);

  tide_device_set_caching(d, true);
}
