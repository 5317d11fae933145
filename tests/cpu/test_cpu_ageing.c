// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory that has been idle for a while goes back to the system: by a poll, by later calls, or by the helper
// thread alone. Tests wait at least the idle time, and for very long where something must happen.
#define T_THREADS
#include "blocks.h"

#define IDLE_NS ((uint64_t)20000000)  // 20 ms
#define PATIENCE_NS ((uint64_t)200000000000)

static tide_cpu_cache* ageing_open(uint64_t idle_ns, bool has_helper) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.idle_ns = idle_ns;
  options.has_helper = has_helper;
  return cache_open(&options);
}

static void* leave_one_idle(tide_cpu_cache* cache, size_t bytes) {
  void* const address = cache_take(cache, bytes);
  memset(address, 1, bytes);
  T_OK(tide_cpu_release(address));
  return address;
}

static void wait_ns(uint64_t ns) { t_sleep_us(ns / 1000 + 1); }

T_TEST(test_cpu_ageing__poll_gives_back_what_was_idle_too_long) {
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, false);
  void* const address = leave_one_idle(cache, 8 * MIB);
  T_EQ(resident_bytes(address, 8 * MIB), 8 * MIB);

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(resident_bytes(address, 8 * MIB), 0);
  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  T_EQ(cache_stats(cache).cached_bytes, 0);
  T_LE(1, cache_stats(cache).num_evictions);
  T_LE(8 * MIB, cache_stats(cache).evicted_bytes);
  cache_close(cache);
}

T_TEST(test_cpu_ageing__small_blocks_age_too) {
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, false);
  for (size_t bytes = 64; bytes <= 64 * KIB; bytes *= 2) cache_leave_idle(cache, bytes, 60);

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  cache_close(cache);
}

// The resident size of the process falls by what the statistics report.
T_TEST(test_cpu_ageing__the_resident_size_falls) {
  if (T_HAS_SANITIZER) t_skip("a sanitizer has memory of its own for ours");
  enum { COUNT = 20000 };
  static void* blocks[COUNT];
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, false);
  for (size_t i = 0; i < COUNT; i++) {
    blocks[i] = cache_take(cache, 1000 + i % 50 * 20);
    memset(blocks[i], 1, 1000);
  }
  const size_t before = process_bytes(true);
  const size_t taken = (size_t)cache_stats(cache).reserved_bytes.current;
  for (size_t i = 0; i < COUNT; i++) T_OK(tide_cpu_release(blocks[i]));

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  T_LE(20 * MIB, taken);
  T_LE(process_bytes(true) + taken / 10 * 9, before);
  cache_close(cache);
}

T_TEST(test_cpu_ageing__poll_keeps_what_is_young) {
  tide_cpu_cache* const cache = ageing_open(PATIENCE_NS * 100, false);
  void* const address = leave_one_idle(cache, 8 * MIB);

  T_OK(tide_cpu_poll(cache));

  T_EQ(resident_bytes(address, 8 * MIB), 8 * MIB);
  T_EQ(cache_stats(cache).cached_bytes, 8 * MIB);
  cache_close(cache);
}

// A block that was live for long becomes idle when it is released, not before.
T_TEST(test_cpu_ageing__long_use_is_no_idle_time) {
  tide_cpu_cache* const cache = ageing_open(10 * IDLE_NS, false);
  for (size_t i = 0; i < 2; i++) {
    void* const address = cache_take(cache, 8 * MIB);
    memset(address, 1, 8 * MIB);
    wait_ns(20 * IDLE_NS);
    const uint64_t begin = t_now_ns();
    T_OK(tide_cpu_release(address));
    T_OK(tide_cpu_poll(cache));
    if (t_now_ns() - begin < 5 * IDLE_NS) T_EQ(resident_bytes(address, 8 * MIB), 8 * MIB);
  }
  cache_close(cache);
}

T_TEST(test_cpu_ageing__without_an_age_nothing_goes) {
  tide_cpu_cache* const cache = ageing_open(0, true);
  void* const address = leave_one_idle(cache, 8 * MIB);

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(resident_bytes(address, 8 * MIB), 8 * MIB);
  T_EQ(cache_stats(cache).num_evictions, 0);
  cache_close(cache);
}

// Live memory does not age.
T_TEST(test_cpu_ageing__live_memory_does_not_age) {
  tide_cpu_cache* const cache = ageing_open(IDLE_NS / 10, true);
  block blocks[40];
  for (size_t i = 0; i < 40; i++) blocks[i] = block_take(cache, 1 + i * i * 300, i);
  for (size_t i = 0; i < 40; i += 2) block_give(&blocks[i]);

  for (size_t i = 0; i < 10; i++) {
    wait_ns(IDLE_NS / 2);
    T_OK(tide_cpu_poll(cache));
  }

  for (size_t i = 1; i < 40; i += 2) block_give(&blocks[i]);
  cache_close(cache);
}

// Memory that is used again and again stays, and only the rest goes back, once.
T_TEST(test_cpu_ageing__what_is_used_stays) {
  tide_cpu_cache* const cache = ageing_open(10 * IDLE_NS, false);
  void* const idle = cache_take(cache, 4 * MIB);
  void* const used = cache_take(cache, 2 * MIB);
  memset(idle, 1, 4 * MIB);
  memset(used, 1, 2 * MIB);
  T_OK(tide_cpu_release(idle));
  T_OK(tide_cpu_release(used));
  const uint64_t begin = t_now_ns();
  uint64_t longest = 0;  // between two uses

  for (uint64_t now = begin; now - begin < 30 * IDLE_NS;) {
    (void)leave_one_idle(cache, 2 * MIB);
    T_OK(tide_cpu_poll(cache));
    wait_ns(IDLE_NS / 10);
    const uint64_t next = t_now_ns();
    longest = next - now > longest ? next - now : longest;
    now = next;
  }

  T_LE(resident_bytes(idle, 4 * MIB) + resident_bytes(used, 2 * MIB), 2 * MIB);
  if (longest < 5 * IDLE_NS) T_LE(2 * MIB, cache_stats(cache).cached_bytes);
  if (longest < 5 * IDLE_NS) T_LE(cache_stats(cache).evicted_bytes, 6 * MIB);  // each of them once
  cache_close(cache);
}

// Without a poll, later calls of other sizes give the memory back.
T_TEST(test_cpu_ageing__later_calls_find_it_out) {
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, false);
  void* const address = leave_one_idle(cache, 8 * MIB);
  const uint64_t begin = t_now_ns();

  while (resident_bytes(address, 8 * MIB) > 0) {
    for (size_t i = 0; i < 1000; i++) (void)leave_one_idle(cache, 1000);
    T_LT(t_now_ns() - begin, PATIENCE_NS);
  }

  T_LE(8 * MIB, cache_stats(cache).evicted_bytes);
  cache_close(cache);
}

static void do_nothing(void* user) { (void)user; }

// Some sanitizers start a thread of their own with the first thread.
static size_t count_threads_for_good(void) {
  on_other_thread(do_nothing, NULL);
  return t_count_threads();
}

// Without any call, the helper gives the memory back.
T_TEST(test_cpu_ageing__the_helper_works_alone) {
  const size_t threads = count_threads_for_good();
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, true);
  T_EQ(t_count_threads(), threads + 1);
  void* const large = leave_one_idle(cache, 8 * MIB);
  cache_leave_idle(cache, 5000, 50);
  const uint64_t begin = t_now_ns();

  while (resident_bytes(large, 8 * MIB) > 0) {
    wait_ns(IDLE_NS / 4);
    T_LT(t_now_ns() - begin, PATIENCE_NS);
  }
  while (cache_stats(cache).reserved_bytes.current > 0) {
    wait_ns(IDLE_NS / 4);
    T_LT(t_now_ns() - begin, PATIENCE_NS);
  }

  cache_close(cache);
  T_WAIT(t_count_threads() == threads);
}

static void leave_idle_here(void* cache) { (void)leave_one_idle(cache, 8 * MIB); }

// Memory of threads that have ended ages like any other.
T_TEST(test_cpu_ageing__memory_of_ended_threads_ages) {
  tide_cpu_cache* const cache = ageing_open(IDLE_NS, false);
  for (size_t i = 0; i < 3; i++) on_other_thread(leave_idle_here, cache);
  T_LE(8 * MIB, cache_stats(cache).cached_bytes);

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(cache_stats(cache).cached_bytes, 0);
  cache_close(cache);
}

// The idle memory of a sleeping thread goes back.
typedef struct sleeper {
  tide_cpu_cache* cache;
  void* address;
  atomic_bool has_left;
  atomic_bool is_over;
} sleeper;

static void* sleeper_run(void* user) {
  sleeper* const s = user;
  s->address = leave_one_idle(s->cache, 8 * MIB);
  cache_leave_idle(s->cache, 1000, 20);
  atomic_store(&s->has_left, true);
  while (!atomic_load(&s->is_over)) t_sleep_us(1000);
  return NULL;
}

T_TEST(test_cpu_ageing__memory_of_a_sleeping_thread_ages) {
  sleeper s = { .cache = ageing_open(IDLE_NS, true) };
  pthread_t thread;
  t_thread_start(&thread, sleeper_run, &s);
  while (!atomic_load(&s.has_left)) t_sleep_us(1000);
  const uint64_t begin = t_now_ns();

  while (cache_stats(s.cache).reserved_bytes.current > 0) {
    wait_ns(IDLE_NS / 4);
    T_LT(t_now_ns() - begin, PATIENCE_NS);
  }

  T_EQ(resident_bytes(s.address, 8 * MIB), 0);
  atomic_store(&s.is_over, true);
  t_thread_join(thread);
  cache_close(s.cache);
}

// Regions of a source go back when all of a region is idle.
T_TEST(test_cpu_ageing__regions_of_a_source_go_back_whole) {
  source s;
  source_init(&s);
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.idle_ns = IDLE_NS;
  options.memory = s.memory;
  options.region_bytes = 2 * MIB;
  tide_cpu_cache* const cache = cache_open(&options);
  cache_leave_idle(cache, 3 * MIB, 3);
  cache_leave_idle(cache, 1000, 30);
  T_LT(0, source_bytes(&s));

  wait_ns(3 * IDLE_NS);
  T_OK(tide_cpu_poll(cache));

  T_EQ(source_bytes(&s), 0);
  T_EQ(cache_stats(cache).reserved_bytes.current, 0);
  cache_close(cache);
  source_fini(&s);
}

// Helpers of many caches come and go while they work.
T_TEST(test_cpu_ageing__helpers_end_with_their_caches) {
  const size_t threads = count_threads_for_good();
  for (size_t i = 0; i < 30; i++) {
    tide_cpu_cache* const cache = ageing_open(1000, true);
    const block orphan = block_take(cache, 100000, i);
    cache_leave_idle(cache, 50000, 8);
    if (i % 3 == 0) t_sleep_us(2000);
    uint64_t orphans = 0;
    tide_cpu_free(cache, &orphans);
    T_EQ(orphans, 1);
    block_give(&orphan);
  }
  T_WAIT(t_count_threads() == threads);
}
