// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// libtidemark_preload.so: malloc and its relatives for an unmodified program (LD_PRELOAD). One CPU cache
// serves requests above a threshold, the next allocator all others. Requests that the cache cannot serve also
// go to the next allocator, so that refusals and errno are the C library's.
//
// Until the constructor has run, the threshold is the largest size, so everything is passed on without a
// check of its own. The cache is never freed: blocks may be used and released until the process ends.
//
// free() of a small block is the most common call. Blocks of the cache that are not small begin at pages, so
// most other blocks are recognised by their address alone; only addresses of pages are looked up.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "next.h"
#include "settings.h"
#include "tidemark/cpu.h"

// Not declared by every C library.
TIDE_API void cfree(void* address);
TIDE_API void free_sized(void* address, size_t bytes);
TIDE_API void free_aligned_sized(void* address, size_t alignment, size_t bytes);
#ifndef __GLIBC__
TIDE_API void* pvalloc(size_t bytes);
#endif

#define EASY_ALIGNMENT ((size_t)64)  // of every block of the cache
#define MAX_BYTES ((size_t)TIDE_CPU_MAX_BYTES)
#define MAX_ALIGNMENT ((size_t)TIDE_CPU_MAX_ALIGNMENT)

// Set once, by the constructor.
static tide_cpu_cache* cache;  // owned, never freed
static size_t threshold = SIZE_MAX;
static uintptr_t alignment_mask = PRELOAD_PAGE_BYTES - 1;  // bits that no address of a block has
static bool has_stats;

// The thread is in a call of the cache. Requests of that call, or of a signal handler during it, go to the
// next allocator.
static _Thread_local bool is_inside;

static inline bool is_large(size_t bytes) { return bytes > threshold && bytes <= MAX_BYTES; }

// ---------------------------------------------------------------------------------------------------
// Calls of the cache. They preserve errno, and return NULL for a request that the cache does not serve.

typedef struct visit {
  int errno_before;
  bool was_inside;
} visit;

static inline visit visit_begin(void) {
  const visit before = { errno, is_inside };
  is_inside = true;
  return before;
}

static inline void visit_end(visit before) {
  errno = before.errno_before;
  is_inside = before.was_inside;
}

static void* cache_alloc(size_t bytes, size_t alignment) {
  if (is_inside) return NULL;
  const visit before = visit_begin();
  void* address = NULL;
  const tide_status status = alignment <= EASY_ALIGNMENT
                                 ? tide_cpu_alloc(cache, bytes, &address)
                                 : tide_cpu_alloc_aligned(cache, bytes, alignment, &address);
  visit_end(before);
  return status == TIDE_OK ? address : NULL;
}

static void* cache_alloc_zeros(size_t bytes) {
  if (is_inside) return NULL;
  const visit before = visit_begin();
  void* address = NULL;
  const tide_status status = tide_cpu_alloc_zeros(cache, bytes, &address);
  visit_end(before);
  return status == TIDE_OK ? address : NULL;
}

static void* cache_resize(void* address, size_t bytes) {
  if (is_inside) return NULL;
  const visit before = visit_begin();
  void* moved = NULL;
  const tide_status status = tide_cpu_resize(cache, address, bytes, &moved);
  visit_end(before);
  return status == TIDE_OK ? moved : NULL;
}

// Releasing a block twice, or an address inside a block, is a fault of the program. It aborts, as the C
// library does.
static void cache_release(void* address) {
  const visit before = visit_begin();
  if (tide_cpu_release(address) != TIDE_OK) {
    preload_say("free(%p): %s", address, tide_last_error()->text);
    abort();
  }
  visit_end(before);
}

// ---------------------------------------------------------------------------------------------------
// The owner of a block

typedef enum owner { OWNER_NEXT, OWNER_CACHE, OWNER_PAGES } owner;

// Can a block of the cache begin there?
static inline bool is_candidate(const void* address) {
  return ((uintptr_t)address & alignment_mask) == 0 && address != NULL;
}

static owner owner_of(const void* address) {
  if (!is_candidate(address)) return OWNER_NEXT;
  if (preload_page_owns(address)) return OWNER_PAGES;
  return tide_cpu_owns(address) ? OWNER_CACHE : OWNER_NEXT;
}

static size_t usable_bytes(void* address, owner whose) {
  if (whose == OWNER_PAGES) return PRELOAD_PAGE_BYTES;
  return whose == OWNER_CACHE ? (size_t)tide_cpu_find(address).bytes
                              : preload_next.malloc_usable_size(address);
}

// ---------------------------------------------------------------------------------------------------
// The work of the functions below. They call one another by these names, since their own may resolve to
// another library. Rare paths are not inlined, so that a small request is two instructions and a jump.

__attribute__((noinline)) static void* large_alloc(size_t bytes) {
  void* const address = cache_alloc(bytes, 1);
  return address != NULL ? address : preload_next.malloc(bytes);
}

static inline void* any_alloc(size_t bytes) {
  return is_large(bytes) ? large_alloc(bytes) : preload_next.malloc(bytes);
}

// NULL for requests that the cache does not serve, such as invalid alignments.
static void* large_aligned(size_t alignment, size_t bytes) {
  const bool is_power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
  const bool is_served = is_large(bytes) && is_power_of_two && alignment <= MAX_ALIGNMENT;
  return is_served ? cache_alloc(bytes, alignment) : NULL;
}

static void* any_memalign(size_t alignment, size_t bytes) {
  void* const address = large_aligned(alignment, bytes);
  return address != NULL ? address : preload_next.memalign(alignment, bytes);
}

__attribute__((noinline)) static void candidate_free(void* address) {
  const owner whose = owner_of(address);
  if (whose == OWNER_CACHE) cache_release(address);
  else if (whose == OWNER_NEXT) preload_next.free(address);
}

static inline void any_free(void* address) {
  if (is_candidate(address)) candidate_free(address);
  else preload_next.free(address);
}

// The result of realloc(address, 0) is the C library's choice, so it is asked with a block of its own.
static void* realloc_to_nothing(void* address) {
  void* const block = preload_next.malloc(1);
  if (block == NULL) return NULL;
  void* const result = preload_next.realloc(block, 0);
  any_free(address);
  return result;
}

// Moves a block to the other allocator.
static void* realloc_move(void* address, size_t old_bytes, size_t bytes) {
  void* const moved = any_alloc(bytes);
  if (moved == NULL) return NULL;
  memcpy(moved, address, old_bytes < bytes ? old_bytes : bytes);
  any_free(address);
  return moved;
}

static void* any_realloc(void* address, size_t bytes) {
  if (address == NULL) return any_alloc(bytes);
  const owner whose = owner_of(address);
  if (whose == OWNER_NEXT && !is_large(bytes)) return preload_next.realloc(address, bytes);
  if (bytes == 0) return realloc_to_nothing(address);
  void* const resized = whose == OWNER_CACHE && is_large(bytes) ? cache_resize(address, bytes) : NULL;
  return resized != NULL ? resized : realloc_move(address, usable_bytes(address, whose), bytes);
}

// ---------------------------------------------------------------------------------------------------
// What a program calls

TIDE_API void* malloc(size_t bytes) { return any_alloc(bytes); }

TIDE_API void free(void* address) { any_free(address); }

TIDE_API void cfree(void* address) { any_free(address); }

TIDE_API void free_sized(void* address, size_t bytes) {
  (void)bytes;
  any_free(address);
}

TIDE_API void free_aligned_sized(void* address, size_t alignment, size_t bytes) {
  (void)alignment;
  (void)bytes;
  any_free(address);
}

TIDE_API void* calloc(size_t count, size_t bytes) {
  size_t total = 0;
  const bool has_overflow = __builtin_mul_overflow(count, bytes, &total);
  void* const address = !has_overflow && is_large(total) ? cache_alloc_zeros(total) : NULL;
  return address != NULL ? address : preload_next.calloc(count, bytes);
}

TIDE_API void* realloc(void* address, size_t bytes) { return any_realloc(address, bytes); }

TIDE_API void* reallocarray(void* address, size_t count, size_t bytes) {
  size_t total = 0;
  if (!__builtin_mul_overflow(count, bytes, &total)) return any_realloc(address, total);
  errno = ENOMEM;
  return NULL;
}

TIDE_API int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* const address = alignment % sizeof(void*) == 0 ? large_aligned(alignment, bytes) : NULL;
  if (address == NULL) return preload_next.posix_memalign(out, alignment, bytes);
  *out = address;
  return 0;
}

TIDE_API void* aligned_alloc(size_t alignment, size_t bytes) {
  void* const address = large_aligned(alignment, bytes);
  return address != NULL ? address : preload_next.aligned_alloc(alignment, bytes);
}

TIDE_API void* memalign(size_t alignment, size_t bytes) { return any_memalign(alignment, bytes); }

TIDE_API void* valloc(size_t bytes) { return any_memalign((size_t)sysconf(_SC_PAGESIZE), bytes); }

TIDE_API void* pvalloc(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t end = 0;
  if (!__builtin_add_overflow(bytes, page - 1, &end)) return any_memalign(page, end / page * page);
  errno = ENOMEM;
  return NULL;
}

TIDE_API size_t malloc_usable_size(void* address) {
  return address == NULL ? 0 : usable_bytes(address, owner_of(address));
}

// ---------------------------------------------------------------------------------------------------
// Beginning and end

static void* records_alloc(void* user, size_t bytes, size_t alignment) {
  (void)user;
  void* address = NULL;
  return preload_next.posix_memalign(&address, alignment, bytes) == 0 ? address : NULL;
}

static void records_release(void* user, void* address, size_t bytes) {
  (void)user;
  (void)bytes;
  preload_next.free(address);
}

static const tide_heap records = { records_alloc, records_release, NULL };

__attribute__((constructor)) static void preload_begin(void) {
  const preload_settings settings = preload_settings_read(getenv("TIDEMARK_PRELOAD"));
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  options.huge_pages = settings.huge_pages;
  options.has_helper = settings.helper;
  options.max_cached_bytes = settings.cached;
  options.idle_ns = settings.idle;
  options.heap = &records;
  const visit before = visit_begin();
  if (tide_cpu_new(&options, &cache) != TIDE_OK) {
    preload_say("all requests are passed on: %s", tide_last_error()->text);
  } else {
    has_stats = settings.stats;
    if (settings.threshold < TIDE_CPU_SMALL_BYTES) alignment_mask = EASY_ALIGNMENT - 1;
    threshold = settings.threshold;
  }
  visit_end(before);
}

__attribute__((destructor)) static void preload_end(void) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  if (!has_stats || tide_cpu_get_stats(cache, &stats) != TIDE_OK) return;
  if (stats.num_hits + stats.num_misses + stats.num_uncached + stats.num_ooms == 0) return;
#define STATS_FORM(name) " " #name " %lld"
#define STATS_VALUE(name) , (long long)stats.name
  preload_say("%s[%ld]: threshold %zu active_peak_bytes %lld reserved_peak_bytes %lld cached_bytes "
              "%llu" TIDE_CPU_COUNTER_MAP(STATS_FORM),
              program_invocation_short_name, (long)getpid(), threshold, (long long)stats.active_bytes.peak,
              (long long)stats.reserved_bytes.peak,
              (unsigned long long)stats.cached_bytes TIDE_CPU_COUNTER_MAP(STATS_VALUE));
#undef STATS_VALUE
#undef STATS_FORM
}
