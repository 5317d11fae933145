// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: cpu. A caching allocator for the memory of CPU tensors. Released memory stays with the process,
// ready for the next run of a model, until it has been idle for a while.
//
//   tide_cpu_cache* cache = NULL;
//   void* tensor = NULL;
//   tide_status status = tide_cpu_new(NULL, &cache);
//   if (status == TIDE_OK) status = tide_cpu_alloc(cache, 1 << 20, &tensor);
//   if (status == TIDE_OK) status = tide_cpu_release(tensor);   // on any thread, at any time
//   tide_cpu_free(cache, NULL);
//
// Rules for every call:
// - Any number of threads may call at once, and a thread may release what another one allocated. Each thread
//   works in memory of its own, so that threads do not wait for one another.
// - No lock is held while the system, the source of memory or a callback is called.
// - Addresses are multiples of 64. A request of up to 64 KiB is rounded up to a multiple of 64 (up to 1 KiB),
//   or by at most an eighth. A larger one is aligned and rounded up to pages of 4 KiB.
// - A cache can be the source of another cache's memory.
// - Memory that is handed out is not read, and is written only to fill it: all records lie elsewhere.
// - A request of 0 bytes returns NULL, which need not be released. Releasing NULL has no effect.
#ifndef TIDEMARK_CPU_H
#define TIDEMARK_CPU_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

typedef struct tide_cpu_cache tide_cpu_cache;  // opaque; freed by tide_cpu_free()

#define TIDE_CPU_SMALL_BYTES ((uint64_t)64 << 10)   // larger blocks are whole pages
#define TIDE_CPU_MAX_BYTES ((uint64_t)1 << 43)      // of one block
#define TIDE_CPU_MAX_ALIGNMENT ((uint64_t)1 << 30)  // of one block

// ---------------------------------------------------------------------------------------------------
// Caches

typedef struct tide_cpu_options {
  uint32_t size;    // set by TIDE_CPU_OPTIONS_INIT
  tide_fill fill;   // what memory holds when it is handed out, whether new or used before
  bool huge_pages;  // asks the system for huge pages for blocks above 64 KiB
  // A thread of the cache gives idle memory back in time, even while the program makes no calls.
  bool has_helper;
  // tide_cpu_release_any() passes foreign memory to `memory`, or to free() if there is none, instead of
  // refusing it. Then the second release of a block whose memory went back to the system is not detected.
  bool frees_foreign;
  // The most idle memory to keep. The limit holds when a call returns; blocks that were released by another
  // thread than the one that allocated them may exceed it by a sixteenth per thread. Idle memory that cannot
  // go back does not count: among live small blocks in a page, or in a region of another source.
  uint64_t max_cached_bytes;
  uint64_t max_block_bytes;  // memory of larger blocks is never kept; >= 64 KiB
  uint64_t max_bytes;        // the most memory to take from the system; above it, requests find no memory
  // Memory that was idle for this long goes back to the system: with a helper, after at most twice this time;
  // otherwise when a later call detects it. 0: memory never goes back because of its age.
  uint64_t idle_ns;
  // The smallest amount to take from the source at once, a multiple of 2 MiB. 0: a large range of addresses,
  // of which only the part that is used has memory.
  uint64_t region_bytes;
  // Where memory comes from; all 0: pages of the system. Memory of another source goes back a region at a
  // time, when all of it is idle.
  tide_memory memory;
  // (optional) Called with the bytes wanted before a request fails. It may release memory, and returns
  // whether it did.
  bool (*on_pressure)(void* user, uint64_t bytes);
  void* user;             // borrowed until the cache is freed
  const tide_heap* heap;  // caller keeps until the last block of the cache is released; NULL for malloc
} tide_cpu_options;
// clang-format off
#define TIDE_CPU_OPTIONS_INIT                                                                         \
  { TIDE_FIELD(size, sizeof(tide_cpu_options)), TIDE_FIELD(fill, TIDE_FILL_NOTHING),                  \
    TIDE_FIELD(huge_pages, true), TIDE_FIELD(has_helper, false), TIDE_FIELD(frees_foreign, false),    \
    TIDE_FIELD(max_cached_bytes, TIDE_NO_LIMIT), TIDE_FIELD(max_block_bytes, TIDE_NO_LIMIT),          \
    TIDE_FIELD(max_bytes, TIDE_NO_LIMIT), TIDE_FIELD(idle_ns, (uint64_t)10000000000),                 \
    TIDE_FIELD(region_bytes, 0), TIDE_FIELD(memory, TIDE_MEMORY_NONE), TIDE_FIELD(on_pressure, NULL), \
    TIDE_FIELD(user, NULL), TIDE_FIELD(heap, NULL) }
// clang-format on

// Makes a cache; NULL options mean the defaults. There may be any number of caches. A child of fork() has a
// working copy of each.
// Errors: TIDE_ERR_ARGUMENT for options out of range; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_new(const tide_cpu_options* options, tide_cpu_cache** out);

// Gives all idle memory back and frees the cache. Blocks that are still handed out become orphans: they stay
// valid, and the memory of each goes back when it is released. `out_orphans` (optional) is their number.
// Threads: no other call with this cache may be in progress or follow; blocks may be released at any time.
TIDE_API void tide_cpu_free(tide_cpu_cache* cache, uint64_t* out_orphans);

// ---------------------------------------------------------------------------------------------------
// Memory

// Hand out at least `bytes`; tide_cpu_alloc_aligned() at a multiple of `alignment`, a power of two.
// Errors: TIDE_ERR_NO_MEMORY if each of these steps was tried and did not help: giving back idle memory of
//         this thread, of all threads, calling on_pressure, and giving back idle memory of all other caches,
//         the oldest cache first; TIDE_ERR_ARGUMENT for sizes and alignments above the largest.
// Cost:   O(1) if idle memory fits.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc(tide_cpu_cache* cache, size_t bytes, void** out);
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc_aligned(tide_cpu_cache* cache, size_t bytes,
                                                           size_t alignment, void** out);
// The same, filled with zeros. New memory of the system needs no filling.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc_zeros(tide_cpu_cache* cache, size_t bytes, void** out);

// Returns a block to the cache that it came from.
// Errors: TIDE_ERR_STATE for a block that was released already, unless two threads release it at the same
//         time; TIDE_ERR_ARGUMENT for an address at which no block of a cache begins. Neither changes
//         anything.
TIDE_API tide_status tide_cpu_release(void* address);

// The same, but the memory is not kept: the pages that it fills go back to the system at once. For memory
// that will not be needed again, such as weights that were converted to another form.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_forget(void* address);

// Releases memory that may or may not have come from a cache. A block of any cache goes back to its cache.
// Other memory is refused, unless this cache has the option `frees_foreign`; then it must have come from the
// cache's source, or from malloc() if the cache has none.
// Errors: those of tide_cpu_release(); what the source returned.
TIDE_API tide_status tide_cpu_release_any(tide_cpu_cache* cache, void* address);

// Makes a block larger or smaller, in place or at another address. The bytes that both sizes have in common
// are kept; what lies beyond the bytes that tide_cpu_find() reported before is filled like new memory. `*out`
// is the address from now on. If the call fails, `*out` is NULL and the block is unchanged. A NULL `address`
// allocates, and 0 `bytes` release. A block that moves gets its memory from `cache`.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_resize(tide_cpu_cache* cache, void* address, size_t bytes,
                                                    void** out);

// What is at an address.
typedef struct tide_cpu_info {
  tide_cpu_cache* cache;  // NULL: not memory of a cache, or its cache was freed
  void* address;          // where the block begins
  uint64_t bytes;         // that may be used
  bool is_live;           // it is handed out
  bool is_ours;           // the address lies in memory of a cache, possibly of one that was freed
} tide_cpu_info;

// Does an address lie in memory of a cache, possibly of one that was freed? This is a table lookup.
TIDE_API bool tide_cpu_owns(const void* address);

// Describes any address, also one inside a block; the memory there is not read. Exact for a block that
// nobody releases meanwhile.
TIDE_API tide_cpu_info tide_cpu_find(const void* address);

// The cache as a source of memory for arenas (memory.h). It releases as tide_cpu_release_any() does.
TIDE_API tide_memory tide_cpu_memory(tide_cpu_cache* cache);

// ---------------------------------------------------------------------------------------------------
// Upkeep

// Gives idle memory of all threads back to the system until at most `keep_bytes` of it are left; the memory
// that was idle longest first. Adjacent idle blocks are joined, and have the age of the largest.
// Errors: TIDE_ERR_ARGUMENT.
TIDE_API tide_status tide_cpu_trim(tide_cpu_cache* cache, uint64_t keep_bytes);

// Gives back memory that was idle for `idle_ns`. Requests and releases do this by themselves now and then.
TIDE_API tide_status tide_cpu_poll(tide_cpu_cache* cache);

// Changes the options of these names. Idle memory above the new limits goes back to the system.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_set_limits(tide_cpu_cache* cache, uint64_t max_cached_bytes,
                                                        uint64_t max_bytes);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Every statistic.
#define TIDE_CPU_STAT_MAP(X)                      \
  X(active)         /* blocks handed out */       \
  X(active_bytes)   /* their bytes, rounded up */ \
  X(reserved_bytes) /* memory taken from the system: active, cached, or lost between active blocks */

// Every plain counter.
#define TIDE_CPU_COUNTER_MAP(X)                                                         \
  X(num_hits)            /* requests served from idle memory */                         \
  X(num_misses)          /* requests for which memory was taken from the system */      \
  X(num_uncached)        /* requests above max_block_bytes */                           \
  X(num_evictions)       /* pieces of idle memory given back, for age or for a limit */ \
  X(evicted_bytes)       /* their bytes */                                              \
  X(num_alloc_retries)   /* requests tried again after idle memory was given back */    \
  X(num_ooms)            /* requests that failed for lack of memory */                  \
  X(num_double_releases) /* releases of blocks that were released already */            \
  X(num_foreign)         /* releases of memory of no cache that was passed on */

typedef struct tide_cpu_stats {
  uint32_t size;     // set by TIDE_CPU_STATS_INIT
  uint32_t threads;  // with memory of their own in the cache; an ended one counts until it is replaced
#define TIDE_CPU_STAT_FIELD(name) tide_stat name;
  TIDE_CPU_STAT_MAP(TIDE_CPU_STAT_FIELD)
#undef TIDE_CPU_STAT_FIELD
  uint64_t cached_bytes;   // idle memory that is kept for later requests, and could go back
  uint64_t address_bytes;  // addresses reserved
#define TIDE_CPU_COUNTER_FIELD(name) int64_t name;
  TIDE_CPU_COUNTER_MAP(TIDE_CPU_COUNTER_FIELD)
#undef TIDE_CPU_COUNTER_FIELD
} tide_cpu_stats;
#define TIDE_CPU_STATS_INIT TIDE_SIZED(tide_cpu_stats)

// Exact while no other call is in progress, except for the peaks of active blocks. Small blocks are counted
// once in about a thousand calls, so such a peak may be too low by a few MiB per thread.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_get_stats(tide_cpu_cache* cache, tide_cpu_stats* out);
// Sets `allocated`, `freed` and the counters to 0; sets `peak` to `current`.
TIDE_API void tide_cpu_reset_accumulated(tide_cpu_cache* cache);
TIDE_API void tide_cpu_reset_peaks(tide_cpu_cache* cache);

// Checks the invariants of the cache. Returns 0, or the number of one that does not hold, with details in
// tide_last_error(): see docs/cpu.md.
// Threads: no other call may be in progress.
TIDE_API int tide_cpu_check(tide_cpu_cache* cache);

TIDE_END_DECLS
#endif
