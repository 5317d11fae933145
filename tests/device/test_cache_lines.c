// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Threads on streams of their own share nothing that is written often. The compiler calls a function before
// every access of the library to memory, for the thread sanitizer. Here these functions count the accesses of
// each thread to each line of the processor's cache. So the result does not depend on time. This file itself
// is compiled without the sanitizer.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Counting accesses

enum { THREADS = 4, LINE_BITS = 16, LINE_BYTES = 64 };

typedef struct line {
  _Atomic uint64_t number;  // of the line, plus 1; 0: the place is empty
  uint32_t reads[THREADS];  // each is written by its thread
  uint32_t writes[THREADS];
} line;

static line lines[1 << LINE_BITS];
static _Thread_local int own_number = -1;  // of a thread whose accesses count

static line* line_of(uintptr_t address) {
  const uint64_t number = address / LINE_BYTES + 1;
  const uint64_t first = number * UINT64_C(0x9E3779B97F4A7C15) >> (64 - LINE_BITS);
  for (uint64_t i = 0; i < 1 << LINE_BITS; i++) {
    line* const place = &lines[(first + i) % (1 << LINE_BITS)];
    uint64_t now = 0;
    if (atomic_compare_exchange_strong(&place->number, &now, number) || now == number) return place;
  }
  abort();  // the table is too small
}

static void count_read(const volatile void* address) {
  if (own_number >= 0) line_of((uintptr_t)address)->reads[own_number]++;
}

static void count_write(const volatile void* address) {
  if (own_number >= 0) line_of((uintptr_t)address)->writes[own_number]++;
}

// What the compiler calls: these take the place of the sanitizer's functions. Every order is the strictest.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define PLAIN_ACCESSES(bytes)                                     \
  void __tsan_read##bytes(void* address) { count_read(address); } \
  void __tsan_write##bytes(void* address) { count_write(address); }
PLAIN_ACCESSES(1)
PLAIN_ACCESSES(2)
PLAIN_ACCESSES(4)
PLAIN_ACCESSES(8)
PLAIN_ACCESSES(16)

#define ATOMIC_CHANGE(type, bits, verb)                                        \
  type __tsan_atomic##bits##_##verb(_Atomic type* it, type value, int order) { \
    (void)order;                                                               \
    count_write(it);                                                           \
    return atomic_##verb(it, value);                                           \
  }
#define ATOMIC_COMPARE(type, bits, how)                                                                     \
  int __tsan_atomic##bits##_compare_exchange_##how(_Atomic type* it, type* expected, type value, int order, \
                                                   int order_of_failure) {                                  \
    (void)order, (void)order_of_failure;                                                                    \
    count_write(it);                                                                                        \
    return atomic_compare_exchange_##how(it, expected, value);                                              \
  }
#define ATOMIC_ACCESSES(type, bits)                                           \
  type __tsan_atomic##bits##_load(_Atomic type* it, int order) {              \
    (void)order;                                                              \
    count_read(it);                                                           \
    return atomic_load(it);                                                   \
  }                                                                           \
  void __tsan_atomic##bits##_store(_Atomic type* it, type value, int order) { \
    (void)order;                                                              \
    count_write(it);                                                          \
    atomic_store(it, value);                                                  \
  }                                                                           \
  ATOMIC_CHANGE(type, bits, exchange)                                         \
  ATOMIC_CHANGE(type, bits, fetch_add)                                        \
  ATOMIC_CHANGE(type, bits, fetch_sub)                                        \
  ATOMIC_CHANGE(type, bits, fetch_or)                                         \
  ATOMIC_CHANGE(type, bits, fetch_and)                                        \
  ATOMIC_COMPARE(type, bits, strong)                                          \
  ATOMIC_COMPARE(type, bits, weak)
ATOMIC_ACCESSES(uint8_t, 8)
ATOMIC_ACCESSES(uint32_t, 32)
ATOMIC_ACCESSES(uint64_t, 64)

// The sanitizer does not see these accesses, so it cannot know what is a race.
const char* __tsan_default_options(void) { return "report_bugs=0"; }
#pragma GCC diagnostic pop
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

// ---------------------------------------------------------------------------------------------------
// Threads that request and release

enum { LIVE = 16, WARM_UP = 500, PAIRS = 4000 };

typedef struct worker {
  _Alignas(LINE_BYTES) tide_device_cache* d;
  tide_stream stream;
  tide_block blocks[LIVE];
  t_rng rng;
} worker;

static struct {
  worker workers[THREADS];
  _Atomic int started;
  pthread_barrier_t is_warm;
} crew;

// Half of the blocks are large. Each has a size of its own, so that what was released fits again.
static size_t block_bytes(size_t index) {
  return index % 2 == 0 ? MIB + index * 64 * KIB : (index + 1) * KIB;
}

static void work(worker* w, size_t pairs) {
  for (size_t i = 0; i < pairs; i++) {
    const size_t index = (size_t)t_rng_below(&w->rng, LIVE);
    T_OK(tide_device_release(w->d, w->blocks[index]));
    T_OK(tide_device_alloc(w->d, w->stream, block_bytes(index), &w->blocks[index]));
  }
}

static void* worker_run(void* unused) {
  (void)unused;
  const int number = atomic_fetch_add(&crew.started, 1);
  worker* const w = &crew.workers[number];
  work(w, WARM_UP);
  (void)pthread_barrier_wait(&crew.is_warm);
  own_number = number;
  work(w, PAIRS);
  own_number = -1;
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// The contract

// How often two threads have accessed a line that at least one of them writes, the busiest pair of threads:
// the accesses of the one that has fewer.
static uint32_t line_sharing(const line* l) {
  uint32_t most = 0;
  for (int writer = 0; writer < THREADS; writer++) {
    for (int other = 0; other < THREADS; other++) {
      if (other == writer) continue;
      const uint32_t accesses = l->reads[other] + l->writes[other];
      const uint32_t fewer = l->writes[writer] < accesses ? l->writes[writer] : accesses;
      if (fewer > most) most = fewer;
    }
  }
  return most;
}

// A thread adds what it has counted to the statistics of all once in 512 changes, which are six accesses to
// each line of them. Everything else is done when memory grows or marks are polled, which is as rare.
DEVICE_TEST_OVER(test_cache_lines__threads_on_own_streams_share_none, device_emulated) {
  tide_device_cache* const shared = device_with(m, is_tide() ? "policy:tide" : "policy:torch");
  uint64_t accesses = 0;
  (void)pthread_barrier_init(&crew.is_warm, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) {
    crew.workers[i] = (worker){ .d = shared, .rng = t_rng_new((uint64_t)i) };
    T_OK(tide_machine_stream_new(m, 0, 0, 0, &crew.workers[i].stream));
  }

  run_threads(THREADS, worker_run, NULL);

  for (size_t i = 0; i < 1 << LINE_BITS; i++) {
    T_LE(line_sharing(&lines[i]), PAIRS / 20);
    for (int k = 0; k < THREADS; k++) accesses += lines[i].reads[k] + lines[i].writes[k];
  }
  T_LE(PAIRS * THREADS * 100, accesses);  // they were counted
  (void)pthread_barrier_destroy(&crew.is_warm);
  tide_device_free(shared);
}
