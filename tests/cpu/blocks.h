// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Helpers for tests of the CPU cache: caches that are checked when they are closed, blocks that are filled
// when they are allocated and compared when they are released, and the resident memory of the process.
//
// A pattern is a sequence of words that depends on a seed. It tells apart bytes of another block, of another
// offset in the same block, and stale bytes. Blocks above 128 KiB have it at both ends, and one word in every
// 64 KiB between.
#ifndef TIDEMARK_TESTS_CPU_BLOCKS_H
#define TIDEMARK_TESTS_CPU_BLOCKS_H

#include <sys/mman.h>

#include "machine/counting_heap.h"
#include "source.h"
#include "tidemark/cpu.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

// Which pages of a range are in memory; POSIX does not declare it.
int mincore(void* address, size_t bytes, unsigned char* out);

// ---------------------------------------------------------------------------------------------------
// Patterns

#define PATTERN_SPAN ((size_t)64 << 10)

static inline void pattern_range(uint8_t* memory, uint64_t seed, size_t from, size_t to, bool writes) {
  for (size_t i = from; i < to; i += 8) {
    const uint64_t word = (seed + i) * 0x9e3779b97f4a7c15u;
    const size_t bytes = to - i < 8 ? to - i : 8;
    if (writes) memcpy(memory + i, &word, bytes);
    else if (memcmp(memory + i, &word, bytes) != 0)
      T_FAIL("bytes at %zu (of %zu) of the block at %p are not those written", i, to, (void*)memory);
  }
}

static inline void pattern_pass(uint8_t* memory, uint64_t seed, size_t bytes, bool writes) {
  if (bytes <= 2 * PATTERN_SPAN) {
    pattern_range(memory, seed, 0, bytes, writes);
    return;
  }
  const size_t tail = (bytes - PATTERN_SPAN) / 8 * 8;
  pattern_range(memory, seed, 0, PATTERN_SPAN, writes);
  for (size_t i = PATTERN_SPAN; i + 8 <= tail; i += PATTERN_SPAN)
    pattern_range(memory, seed, i, i + 8, writes);
  pattern_range(memory, seed, tail, bytes, writes);
}

static inline void pattern_write(void* memory, uint64_t seed, size_t bytes) {
  if (bytes > 0) pattern_pass(memory, seed, bytes, true);
}

static inline void pattern_expect(void* memory, uint64_t seed, size_t bytes) {
  if (bytes > 0) pattern_pass(memory, seed, bytes, false);
}

static inline void expect_zeros(const void* memory, size_t bytes) { T_FILLED(memory, 0, bytes); }

static inline void expect_junk(const void* memory, size_t bytes) {
  static const uint8_t junk[] = { 0xef, 0xbe, 0xed, 0x7f };
  const uint8_t* const p = memory;
  for (size_t i = 0; i < bytes; i++) {
    if (p[i] != junk[i % 4]) T_FAIL("byte %zu of %zu is 0x%02x, which is not junk", i, bytes, p[i]);
  }
}

// ---------------------------------------------------------------------------------------------------
// Caches

static inline tide_cpu_cache* cache_open(const tide_cpu_options* options) {
  tide_cpu_cache* cache = NULL;
  T_OK(tide_cpu_new(options, &cache));
  T_CHECK(cache != NULL);
  return cache;
}

static inline tide_cpu_stats cache_stats(tide_cpu_cache* cache) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  T_OK(tide_cpu_get_stats(cache, &stats));
  return stats;
}

static inline void cache_expect_sound(tide_cpu_cache* cache) {
  const int broken = tide_cpu_check(cache);
  if (broken != 0) T_FAIL("invariant %d: %s", broken, tide_last_error()->text);
}

// Active and cached bytes are parts of the reserved bytes.
static inline void cache_expect_sums(tide_cpu_cache* cache) {
  const tide_cpu_stats stats = cache_stats(cache);
  T_LE(stats.cached_bytes, stats.reserved_bytes.current - stats.active_bytes.current);
  T_LE(0, stats.active.current);
  T_LE(stats.active_bytes.current, stats.active_bytes.peak);
  T_LE(stats.reserved_bytes.current, stats.reserved_bytes.peak);
  T_LE(stats.active.current, stats.active.peak);
}

static inline void cache_expect_live(tide_cpu_cache* cache, size_t count) {
  T_EQ(cache_stats(cache).active.current, count);
}

// Checks and frees a cache of which `orphans` blocks are handed out.
static inline void cache_close_with(tide_cpu_cache* cache, uint64_t orphans) {
  uint64_t found = UINT64_MAX;
  cache_expect_sound(cache);
  cache_expect_sums(cache);
  tide_cpu_free(cache, &found);
  T_EQ(found, orphans);
}

static inline void cache_close(tide_cpu_cache* cache) { cache_close_with(cache, 0); }

static inline void* cache_take(tide_cpu_cache* cache, size_t bytes) {
  void* address = NULL;
  T_OK(tide_cpu_alloc(cache, bytes, &address));
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % 64, 0);
  return address;
}

static inline void* cache_take_aligned(tide_cpu_cache* cache, size_t bytes, size_t alignment) {
  void* address = NULL;
  T_OK(tide_cpu_alloc_aligned(cache, bytes, alignment, &address));
  T_CHECK(address != NULL);
  T_EQ((uintptr_t)address % alignment, 0);
  return address;
}

static inline void* cache_take_zeros(tide_cpu_cache* cache, size_t bytes) {
  void* address = NULL;
  T_OK(tide_cpu_alloc_zeros(cache, bytes, &address));
  T_CHECK(address != NULL);
  expect_zeros(address, bytes);
  return address;
}

// A call that fails sets its result to NULL.
#define EXPECT_REFUSED(call, result, status) \
  do {                                       \
    (result) = (void*)&(result);             \
    T_STATUS(call, status);                  \
    T_PTR_EQ(result, NULL);                  \
  } while (false)

static inline void cache_expect_refused(tide_cpu_cache* cache, size_t bytes, tide_status status) {
  void* address = NULL;
  EXPECT_REFUSED(tide_cpu_alloc(cache, bytes, &address), address, status);
}

// Allocates, writes and releases `count` blocks, so that their memory is idle.
static inline void cache_leave_idle(tide_cpu_cache* cache, size_t bytes, size_t count) {
  void* blocks[64];
  T_LE(count, 64);
  for (size_t i = 0; i < count; i++) {
    blocks[i] = cache_take(cache, bytes);
    memset(blocks[i], 0xa5, bytes);
  }
  for (size_t i = 0; i < count; i++) T_OK(tide_cpu_release(blocks[i]));
}

// ---------------------------------------------------------------------------------------------------
// Blocks

typedef struct block {
  uint8_t* address;
  size_t bytes;  // asked for
  uint64_t seed;
} block;

static inline block block_take(tide_cpu_cache* cache, size_t bytes, uint64_t seed) {
  const block b = { cache_take(cache, bytes), bytes, seed };
  pattern_write(b.address, seed, bytes);
  return b;
}

static inline void block_give(const block* b) {
  pattern_expect(b->address, b->seed, b->bytes);
  T_OK(tide_cpu_release(b->address));
}

// 0 bytes to some MiB: each power of two is equally likely, and half of the sizes are next to one.
static inline size_t random_bytes(t_rng* rng, unsigned powers) {
  const size_t power = (size_t)1 << t_rng_below(rng, powers);
  switch (t_rng_below(rng, 4)) {
    case 0: return power - 1 + t_rng_below(rng, 3);
    case 1: return power / 64 * 64 + 64 * t_rng_below(rng, 3);
    default: return power + t_rng_below(rng, power);
  }
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct errand {
  void (*run)(void* user);
  void* user;
} errand;

static inline void* errand_run(void* user) {
  const errand* const e = user;
  e->run(e->user);
  return NULL;
}

// Runs a function on a thread that ends with it.
static inline void on_other_thread(void (*run)(void* user), void* user) {
  pthread_t thread;
  errand e = { run, user };
  t_thread_start(&thread, errand_run, &e);
  t_thread_join(thread);
}

// Runs a function on several threads at once, with one of an array of arguments each; size 0: the same.
static inline void on_threads(size_t count, void* (*run)(void* user), void* users, size_t size) {
  pthread_t threads[16];
  T_LE(count, 16);
  for (size_t i = 0; i < count; i++) t_thread_start(&threads[i], run, (uint8_t*)users + i * size);
  for (size_t i = 0; i < count; i++) t_thread_join(threads[i]);
}

// ---------------------------------------------------------------------------------------------------
// Resident memory

// The bytes of a range that are in memory, in whole pages; unmapped addresses are not.
static inline size_t resident_bytes(const void* address, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const uintptr_t from = ((uintptr_t)address + page - 1) / page * page;
  const uintptr_t to = ((uintptr_t)address + bytes) / page * page;
  size_t count = 0;
  for (uintptr_t at = from; at < to; at += page) {
    unsigned char is_here = 0;
    if (mincore((void*)at, page, &is_here) == 0) count += is_here & 1u;
  }
  return count * page;
}

// The resident size of the whole process, or its addresses.
static inline size_t process_bytes(bool is_resident) {
  size_t pages[2] = { 0 };
  FILE* const file = fopen("/proc/self/statm", "r");
  T_CHECK(file != NULL);
  T_EQ(fscanf(file, "%zu %zu", &pages[0], &pages[1]), 2);
  const int closed = fclose(file);
  T_EQ(closed, 0);
  return pages[is_resident] * (size_t)sysconf(_SC_PAGESIZE);
}

#endif
