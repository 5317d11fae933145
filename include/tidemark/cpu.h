// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: cpu, a cache of ordinary memory for CPU tensors. What is released stays with the process, ready
// for the next run of a model, until it has been idle for a while.
//
//   tide_cpu_cache* cache = NULL;
//   void* tensor = NULL;
//   tide_status status = tide_cpu_new(NULL, &cache);
//   if (status == TIDE_OK) status = tide_cpu_alloc(cache, 1 << 20, &tensor);
//   if (status == TIDE_OK) status = tide_cpu_release(tensor);   // any thread, any time
//   tide_cpu_free(cache, NULL);
//
// What holds for every call:
// - Any thread may call, also several at once, and release what another allocated. Each thread works in
//   memory of its own, so that threads do not wait for one another.
// - No lock is held while the system, the source of memory or a callback is called.
// - Addresses are multiples of 64. Up to 64 KiB a request is rounded up to a multiple of 64 (to 1 KiB) or by
//   at most an eighth; above, to whole pages of 4 KiB, at which it begins.
// - A cache can be the source of another one's memory.
// - The memory itself is never read or written but to fill it: all records lie elsewhere.
// - Sizes of 0 are memory at NULL, which need not be released; releasing NULL does nothing.
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
  tide_fill fill;   // what memory holds when it is handed out, new or used before
  bool huge_pages;  // asks the system for huge pages where blocks above 64 KiB lie
  // A thread of the cache's own looks after idle memory, so that it goes back in time also while the program
  // makes no calls.
  bool has_helper;
  // tide_cpu_release_any(): memory of no cache is given to `memory`, or without one to free(), instead of
  // being refused. Then a block that went back to the system, and is released once more, cannot be told from
  // that.
  bool frees_foreign;
  // Of idle memory that is kept. Not exceeded when a call has returned, but for a sixteenth that threads
  // have released of one another's memory. What lies idle between live blocks, in pages of small ones or in a
  // region of another source, is not kept: it cannot go back.
  uint64_t max_cached_bytes;
  uint64_t max_block_bytes;  // larger blocks are not kept: their memory comes and goes with them; >= 64 KiB
  uint64_t max_bytes;        // of all memory taken from the system; then it is as if it had no more
  // Memory that was idle for this long goes back to the system, at most twice as long after it was last used
  // with a helper, and else at the next call that finds out; 0: never.
  uint64_t idle_ns;
  // Asked of the memory at once, at least: a multiple of 2 MiB; 0: as many addresses as make sense, of which
  // only what is used has memory.
  uint64_t region_bytes;
  // Where memory comes from; all 0: pages of the system. Memory of another source goes back a region at a
  // time, when all of it is idle.
  tide_memory memory;
  // (optional) Called before memory is given up for want of it, with how many bytes are wanted: whoever has
  // something to release may do so. Returns whether it did.
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

// Makes a cache; NULL options are the defaults. There may be any number.
// Errors: TIDE_ERR_ARGUMENT for options out of range; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_new(const tide_cpu_options* options, tide_cpu_cache** out);

// Gives all idle memory back and frees the cache. Blocks still handed out stay as they are: they are orphans,
// and the memory of each goes back when it is released. `out_orphans` (optional) is how many there are.
// Threads: no other call with this cache may be under way or follow; blocks may be released at any time.
TIDE_API void tide_cpu_free(tide_cpu_cache* cache, uint64_t* out_orphans);

// The cache of the process: one for all, with the default options, made when it is first asked for. It lives
// as long as the process; tide_cpu_free() does nothing with it. The child of a fork has a copy, as of every
// cache.
// Errors: TIDE_ERR_NO_MEMORY; the next call tries again.
// Cost:   a load, once it is there.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_default(tide_cpu_cache** out);

// ---------------------------------------------------------------------------------------------------
// Memory

// Hands out at least `bytes`, the second at a multiple of `alignment`, a power of two.
// Errors: TIDE_ERR_NO_MEMORY after every way to find memory was tried: what this cache has idle in the same
//         thread, in all threads, on_pressure, then what all other caches have idle, the oldest cache first;
//         TIDE_ERR_ARGUMENT for sizes and alignments above the largest.
// Cost:   O(1), when idle memory fits.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc(tide_cpu_cache* cache, size_t bytes, void** out);
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc_aligned(tide_cpu_cache* cache, size_t bytes,
                                                           size_t alignment, void** out);
// The same filled with zeros, which new memory of the system has already.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_alloc_zeros(tide_cpu_cache* cache, size_t bytes, void** out);

// Takes a block back into the cache it came from, whichever that is.
// Errors: TIDE_ERR_STATE for a block that was released already, unless two threads release it at the very
//         same moment; TIDE_ERR_ARGUMENT for an address at which no cache has a block. Nothing is changed.
TIDE_API tide_status tide_cpu_release(void* address);

// The same, but the memory is not kept: as far as it fills pages it goes back to the system at once. For what
// will not be needed again, such as weights in a form that was replaced.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_forget(void* address);

// A release for a program that does not know whether memory came from a cache: a block of any cache goes back
// there, and what lies in no cache goes where the option `frees_foreign` of this one says. With the option
// that must be memory that the source, or malloc(), handed out.
// Errors: those of tide_cpu_release(); what the source returned.
TIDE_API tide_status tide_cpu_release_any(tide_cpu_cache* cache, void* address);

// Hands the content of a block over to the C library, for code that knows no cache and calls free(): `*out`
// has the bytes of the block, as many as tide_cpu_find() says, at a multiple of 64, and is the caller's, who
// gives it to free() or lets others do so. The block goes back to its cache. On failure `*out` is NULL and
// the block as it was. NULL is NULL.
// Errors: those of tide_cpu_release(); TIDE_ERR_NO_MEMORY.
// Cost:   a copy.
TIDE_API tide_status tide_cpu_detach(void* address, void** out);

// Makes a block larger or smaller, where it is or elsewhere; the bytes that both sizes have stay. The new
// part, behind what tide_cpu_find() called its bytes, is filled as new memory is. `*out` is the address from
// now on; NULL when it fails, and then the block is as it was. NULL is allocated, 0 bytes release. `cache`
// is where the memory comes from if it moves.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_resize(tide_cpu_cache* cache, void* address, size_t bytes,
                                                    void** out);

// What is at an address.
typedef struct tide_cpu_info {
  tide_cpu_cache* cache;  // NULL: nothing of ours, or a cache that was freed
  void* address;          // where the block begins
  uint64_t bytes;         // that may be used
  bool is_live;           // it is handed out
  bool is_ours;           // the address lies in memory of a cache, or of one that was freed
} tide_cpu_info;

// Does an address lie in memory of a cache, or of one that was freed? A look into a table.
TIDE_API bool tide_cpu_owns(const void* address);

// Looks at any address, also inside a block; it is never read through. Exact for a block that nobody releases
// meanwhile.
TIDE_API tide_cpu_info tide_cpu_find(const void* address);

// The cache as a source of arenas. It takes back what tide_cpu_release_any() does.
TIDE_API tide_memory tide_cpu_memory(tide_cpu_cache* cache);

// ---------------------------------------------------------------------------------------------------
// Upkeep

// Gives idle memory back until at most `bytes` are left, that of other threads included, the longest idle
// first (neighbours are one piece, as old as the larger); the second of all caches, the oldest cache first.
TIDE_API tide_status tide_cpu_trim(tide_cpu_cache* cache, uint64_t bytes);
TIDE_API tide_status tide_cpu_trim_all(uint64_t bytes);
// Gives back what has been idle for too long. Allocating and releasing do this by themselves now and then.
TIDE_API tide_status tide_cpu_poll(tide_cpu_cache* cache);

// Changes limits from now on: those of TIDE_CPU_OPTIONS_INIT with these names. Idle memory above goes back.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_set_limits(tide_cpu_cache* cache, uint64_t max_cached_bytes,
                                                        uint64_t max_bytes);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Every plain counter.
#define TIDE_CPU_COUNTER_MAP(X)                                                     \
  X(hits)            /* requests served from idle memory */                         \
  X(misses)          /* requests for which memory was taken from the system */      \
  X(uncached)        /* requests above max_block_bytes */                           \
  X(evictions)       /* pieces of idle memory given back, for age or for a limit */ \
  X(evicted_bytes)   /* and their bytes */                                          \
  X(retries)         /* requests tried again after memory was given up for them */  \
  X(failures)        /* requests that failed for want of memory */                  \
  X(double_releases) /* of blocks that were released already */                     \
  X(detached)        /* blocks whose content was handed over */                     \
  X(foreign)         /* releases of memory of no cache that was given elsewhere */

typedef struct tide_cpu_stats {
  uint32_t size;           // set by TIDE_CPU_STATS_INIT
  uint32_t threads;        // that have memory of their own here, ended ones included until others take over
  tide_stat live;          // blocks handed out
  tide_stat live_bytes;    // their bytes, rounded up
  tide_stat system_bytes;  // memory taken from the system: what is live, cached, or lost between live blocks
  uint64_t cached_bytes;   // idle memory that is kept for later requests, and could go back
  uint64_t address_bytes;  // of addresses reserved
#define TIDE_CPU_COUNTER_FIELD(name) uint64_t name;
  TIDE_CPU_COUNTER_MAP(TIDE_CPU_COUNTER_FIELD)
#undef TIDE_CPU_COUNTER_FIELD
} tide_cpu_stats;
#define TIDE_CPU_STATS_INIT TIDE_SIZED(tide_cpu_stats)

// Exact when no other call is under way, but for the peaks of what is live: small blocks are looked at a
// thousand calls at a time, so that these may be short by what lies idle in magazines, a few MiB a thread.
TIDE_API TIDE_NODISCARD tide_status tide_cpu_get_stats(tide_cpu_cache* cache, tide_cpu_stats* out);
// Sets `allocated`, `freed` and the counters to 0; sets `peak` to `current`.
TIDE_API void tide_cpu_reset_accumulated(tide_cpu_cache* cache);
TIDE_API void tide_cpu_reset_peaks(tide_cpu_cache* cache);

// Checks that everything in the cache is as it must be. Returns 0, or the number of an invariant that does
// not hold with the details in tide_last_error(): see docs/cpu.md.
// Threads: no other call may be under way.
TIDE_API int tide_cpu_check(tide_cpu_cache* cache);

TIDE_END_DECLS
#endif
