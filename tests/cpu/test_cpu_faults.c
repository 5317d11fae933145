// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Every call of the source, every record and every system call fails once, or all fail from one on. Requests
// fail with TIDE_ERR_NO_MEMORY at worst, contents stay, nothing leaks, and the cache works afterwards.
#define T_THREADS
#include <sys/syscall.h>

#include "blocks.h"

#define PLAY_BLOCKS 24
#define STEP (T_HAS_THREAD_SANITIZER ? 5 : 1)  // where it takes long, not every call

// ---------------------------------------------------------------------------------------------------
// A sequence of calls, each of which may fail

typedef struct play {
  tide_cpu_cache* cache;
  block blocks[PLAY_BLOCKS];
} play;

static bool is_shortage(tide_status status) { return status == TIDE_OK || status == TIDE_ERR_NO_MEMORY; }

static void play_take(play* p, size_t at, size_t bytes, size_t alignment) {
  block* const b = &p->blocks[at];
  if (b->address != NULL) return;
  void* address = &address;
  const tide_status status = alignment > 0 ? tide_cpu_alloc_aligned(p->cache, bytes, alignment, &address)
                                           : tide_cpu_alloc(p->cache, bytes, &address);
  T_CHECK(is_shortage(status));
  T_EQ(address == NULL, status != TIDE_OK);
  if (status != TIDE_OK) return;
  *b = (block){ address, bytes, at };
  pattern_write(b->address, b->seed, bytes);
}

static void play_take_zeros(play* p, size_t at, size_t bytes) {
  block* const b = &p->blocks[at];
  void* address = NULL;
  if (b->address != NULL) return;
  const tide_status status = tide_cpu_alloc_zeros(p->cache, bytes, &address);
  T_CHECK(is_shortage(status));
  if (status != TIDE_OK) return;
  expect_zeros(address, bytes);
  *b = (block){ address, bytes, at };
  pattern_write(b->address, b->seed, bytes);
}

// A release succeeds even if the source fails.
static void play_give(play* p, size_t at, bool is_forgotten) {
  block* const b = &p->blocks[at];
  if (b->address == NULL) return;
  pattern_expect(b->address, b->seed, b->bytes);
  T_OK(is_forgotten ? tide_cpu_forget(b->address) : tide_cpu_release(b->address));
  b->address = NULL;
}

static void play_resize(play* p, size_t at, size_t bytes) {
  block* const b = &p->blocks[at];
  void* address = NULL;
  if (b->address == NULL) return;
  const tide_status status = tide_cpu_resize(p->cache, b->address, bytes, &address);
  T_CHECK(is_shortage(status));
  if (status != TIDE_OK) {
    pattern_expect(b->address, b->seed, b->bytes);
    return;
  }
  const size_t common = bytes < b->bytes ? bytes : b->bytes;
  pattern_range(address, b->seed, 0, (common < PATTERN_SPAN ? common : PATTERN_SPAN) / 8 * 8, false);
  *b = (block){ address, bytes, at };
  pattern_write(b->address, b->seed, bytes);
}

static void play_there(void* user) {
  play* const p = user;
  play_take(p, 20, 3000, 0);
  play_take(p, 21, 300000, 0);
  play_give(p, 0, false);
  play_give(p, 20, false);
}

static void play_life(play* p) {
  for (size_t i = 0; i < 8; i++) play_take(p, i, 100 + i * i * i * 300, 0);
  play_take(p, 8, 5 * MIB, 0);
  play_take(p, 9, 700, 4096);
  play_take(p, 10, 70000, 65536);
  play_take_zeros(p, 11, 20000);
  on_other_thread(play_there, p);
  T_ANY(tide_cpu_trim(p->cache, MIB));
  for (size_t i = 0; i < 8; i += 2) play_give(p, i, i % 4 == 0);
  play_resize(p, 1, 50000);
  play_resize(p, 3, 10);
  play_resize(p, 8, 9 * MIB);
  play_give(p, 8, true);
  for (size_t i = 12; i < 20; i++) play_take(p, i, 33000 + i * 4096, 0);
  T_ANY(tide_cpu_poll(p->cache));
  play_give(p, 10, false);
  play_take_zeros(p, 8, 3 * MIB);
  T_ANY(tide_cpu_set_limits(p->cache, 2 * MIB, 40 * MIB));
  for (size_t i = 12; i < 20; i++) play_give(p, i, false);
  T_ANY(tide_cpu_trim(p->cache, 0));
  play_take(p, 0, 64, 0);
  T_ANY(tide_cpu_set_limits(p->cache, TIDE_NO_LIMIT, TIDE_NO_LIMIT));
}

// After failures the cache works as any other.
static void expect_usable(play* p) {
  cache_expect_sound(p->cache);
  for (size_t i = 0; i < PLAY_BLOCKS; i++) play_give(p, i, false);
  cache_expect_live(p->cache, 0);
  cache_expect_sums(p->cache);
  block blocks[10];
  for (size_t i = 0; i < 10; i++) blocks[i] = block_take(p->cache, 1 + i * i * i * 1000, i);
  for (size_t i = 0; i < 10; i++) block_give(&blocks[i]);
  cache_expect_sound(p->cache);
}

// ---------------------------------------------------------------------------------------------------
// The source

static tide_cpu_options source_options(source* s) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  source_init(s);
  options.memory = s->memory;
  options.region_bytes = 2 * MIB;
  return options;
}

// Lets the n-th call fail, or all from it on. Returns whether there was one.
static bool source_round(size_t n, bool is_exhausted, bool spares_release) {
  static source s;
  const tide_cpu_options options = source_options(&s);
  play p = { .cache = cache_open(&options) };
  s.spares_release = spares_release;
  source_fail(&s, n, is_exhausted);

  play_life(&p);

  const bool has_failed = s.failures > 0;
  source_mend(&s);
  expect_usable(&p);
  cache_close(p.cache);
  if (spares_release) T_EQ(s.count, 0);
  source_drain(&s);
  source_fini(&s);
  return has_failed;
}

static const char* const fault_kinds[] = { "once", "for good", NULL };

T_TEST_OVER(test_cpu_faults__every_request_of_the_source, fault_kinds) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  size_t faults = 0;
  while (source_round(faults * STEP, is_exhausted, true)) faults++;
  T_LT(3 / STEP, faults);
}

// A source that refuses to take memory back: it may be offered again, and is never used twice.
T_TEST_OVER(test_cpu_faults__every_call_of_the_source, fault_kinds) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  size_t faults = 0;
  while (source_round(faults * STEP, is_exhausted, false)) faults++;
  T_LT(4 / STEP, faults);
}

// Another error of the source is an error of the request.
static tide_status odd_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  (void)memory;
  (void)bytes;
  (void)alignment;
  *out = NULL;
  return TIDE_ERR_DEVICE;
}

T_TEST(test_cpu_faults__a_source_with_an_error_of_its_own) {
  source s;
  tide_cpu_options options = source_options(&s);
  options.memory.alloc = odd_alloc;
  tide_cpu_cache* const cache = cache_open(&options);
  void* address = &address;

  const tide_status status = tide_cpu_alloc(cache, 1000, &address);

  T_CHECK(status == TIDE_ERR_DEVICE || status == TIDE_ERR_NO_MEMORY);
  T_PTR_EQ(address, NULL);
  cache_expect_live(cache, 0);
  cache_close(cache);
  source_fini(&s);
}

// ---------------------------------------------------------------------------------------------------
// Records

static bool heap_round(size_t n, bool is_exhausted) {
  static counting_heap heap;
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  counting_heap_init(&heap, SIZE_MAX, false);
  options.heap = &heap.heap;
  play p = { .cache = cache_open(&options) };
  heap.is_exhausted = is_exhausted;
  atomic_store(&heap.fail_at, atomic_load(&heap.allocs) + n);

  play_life(&p);

  const bool has_failed = atomic_load(&heap.has_failed);
  heap.is_exhausted = false;
  atomic_store(&heap.fail_at, SIZE_MAX);
  expect_usable(&p);
  cache_close(p.cache);
  T_EQ(atomic_load(&heap.outstanding), 0);
  return has_failed;
}

T_TEST_OVER(test_cpu_faults__every_record, fault_kinds) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  size_t faults = 0;
  while (heap_round(faults * STEP, is_exhausted)) faults++;
  T_LT(0, faults);
}

T_TEST(test_cpu_faults__every_record_of_a_new_cache) {
  size_t faults = 0;
  bool has_failed = true;
  for (size_t n = 0; has_failed; n++) {
    counting_heap heap;
    tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
    counting_heap_init(&heap, n, true);
    options.heap = &heap.heap;
    options.has_helper = n % 2 == 1;
    tide_cpu_cache* cache = (tide_cpu_cache*)&cache;

    const tide_status status = tide_cpu_new(&options, &cache);

    has_failed = atomic_load(&heap.has_failed);
    faults += has_failed ? 1 : 0;
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    if (has_failed) T_PTR_EQ(cache, NULL);
    tide_cpu_free(cache, NULL);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
  T_LT(0, faults);
}

// ---------------------------------------------------------------------------------------------------
// System calls: these replace the C library's functions

#if !T_HAS_SANITIZER
long syscall(long number, ...);
int madvise(void* address, size_t bytes, int advice);

static struct {
  atomic_bool is_armed;
  atomic_bool is_exhausted;
  atomic_size_t calls;
  atomic_size_t fail_at;
  atomic_size_t failures;
} system_faults;

static bool system_fails(void) {
  if (!atomic_load(&system_faults.is_armed)) return false;
  const size_t at = atomic_fetch_add(&system_faults.calls, 1);
  const size_t fail_at = atomic_load(&system_faults.fail_at);
  if (at != fail_at && !(atomic_load(&system_faults.is_exhausted) && at > fail_at)) return false;
  atomic_fetch_add(&system_faults.failures, 1);
  errno = ENOMEM;
  return true;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (system_fails()) return MAP_FAILED;
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
}

int munmap(void* address, size_t bytes) {
  return system_fails() ? -1 : (int)syscall(SYS_munmap, address, bytes);
}

int mprotect(void* address, size_t bytes, int protection) {
  return system_fails() ? -1 : (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void* address, size_t bytes, int advice) {
  return system_fails() ? -1 : (int)syscall(SYS_madvise, address, bytes, advice);
}

static bool system_round(size_t n, bool is_exhausted) {
  play p = { .cache = cache_open(NULL) };
  atomic_store(&system_faults.failures, 0);
  atomic_store(&system_faults.calls, 0);
  atomic_store(&system_faults.fail_at, n);
  atomic_store(&system_faults.is_exhausted, is_exhausted);
  atomic_store(&system_faults.is_armed, true);

  play_life(&p);

  atomic_store(&system_faults.is_armed, false);
  expect_usable(&p);
  cache_close(p.cache);
  return atomic_load(&system_faults.failures) > 0;
}

T_TEST_OVER(test_cpu_faults__every_system_call, fault_kinds) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  size_t faults = 0;
  while (system_round(faults, is_exhausted)) faults++;
  T_LT(5, faults);
}

// A cache is freed even if system calls fail.
T_TEST(test_cpu_faults__every_system_call_of_the_end) {
  for (size_t n = 0; n < 20; n++) {
    tide_cpu_cache* const cache = cache_open(NULL);
    const block orphan = block_take(cache, 100000, n);
    cache_leave_idle(cache, 200000, 5);
    atomic_store(&system_faults.calls, 0);
    atomic_store(&system_faults.fail_at, n);
    atomic_store(&system_faults.is_exhausted, false);
    atomic_store(&system_faults.is_armed, true);

    uint64_t orphans = 0;
    tide_cpu_free(cache, &orphans);
    T_EQ(orphans, 1);
    block_give(&orphan);

    atomic_store(&system_faults.is_armed, false);
  }
}
#endif
