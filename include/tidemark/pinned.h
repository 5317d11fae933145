// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: pinned. A cache of page-locked host memory. Locking pages is slow and unlocking stalls the
// device, so the cache keeps released memory. Queued copies may still use a released block. The cache hands
// the block out again only when the streams that use it have finished that work.
//
//   tide_pinned_cache* host = NULL;
//   tide_block block;
//   tide_status status = tide_pinned_new(machine, NULL, &host);
//   if (status == TIDE_OK) status = tide_pinned_alloc(host, 1 << 20, &block);
//   if (status == TIDE_OK) status = tide_pinned_copy(host, block, 0, stream, there, block.address, 1 << 20);
//   if (status == TIDE_OK) status = tide_pinned_release(host, block);   // no need to wait for the copy
//   tide_pinned_free(host, NULL);
//
// Rules for every call:
// - Any thread may make any call at any time, unless its comment says otherwise. A thread may release what
//   another thread allocated.
// - No lock is held while the machine, a filter or a visitor is called.
// - Before a block is released, work that uses it must be finished or announced: by tide_pinned_record(), by
//   tide_pinned_record_now(), or by tide_pinned_copy(), which announces the copy it queues.
// - A call that takes a block or an address distinguishes three mistakes by its status and its error text.
//   TIDE_ERR_STATE: the block was released already, and is idle or waiting. TIDE_ERR_HANDLE: the handle is
//   stale, because its memory was handed out again or given back. TIDE_ERR_ARGUMENT: the cache never handed
//   out this memory.
// - A cache belongs to the process that made it, like its machine. In a child of fork(), requests and calls
//   that change the cache return TIDE_ERR_STATE. Releasing a block and freeing the cache do nothing there.
// - Sizes are rounded up to classes, see tide_pinned_round(). Addresses are multiples of 512.
#ifndef TIDEMARK_PINNED_H
#define TIDEMARK_PINNED_H

#include "tidemark/base.h"
#include "tidemark/cache.h"
#include "tidemark/device.h"
#include "tidemark/machine.h"
#include "tidemark/memory.h"
#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

typedef struct tide_pinned_cache tide_pinned_cache;  // opaque; freed by tide_pinned_free()

// ---------------------------------------------------------------------------------------------------
// Options

// The NUMA node on which new memory is placed, as far as the system allows. Cached memory stays where it is.
typedef enum tide_numa {
  TIDE_NUMA_ANY = 0,     // wherever the machine puts it
  TIDE_NUMA_CALLER = 1,  // near the processor that makes the request
  TIDE_NUMA_DEVICE = 2   // near the device `numa_device`
} tide_numa;

typedef struct tide_pinned_options {
  uint32_t size;  // set by TIDE_PINNED_OPTIONS_INIT
  // Segments of 2 MiB and more are pages that the cache maps, touches with several threads and registers with
  // the machine. That is much faster than memory of a driver. They begin at a multiple of 2 MiB, and the
  // cache requests huge pages for them. Smaller segments, and with powers_of_two or uses_machine all, are
  // pinned memory of the machine. If the machine refuses to register pages but pins memory itself, it pins
  // all further memory: see tide_pinned_fallback_reason(). With uses_register, pages of all sizes are
  // registered, and a refusal is an error. A child of fork() gets a copy of the pages whose blocks are handed
  // out, and not the others; before Linux 5.9 it gets none.
  bool uses_register;
  // A helper thread polls the streams, so that requests need not. It sleeps while no block waits and no
  // memory can become too old.
  bool has_helper;
  // Sizes are powers of two, and the machine pins every block on its own, as in PyTorch. Use it to compare
  // statistics with PyTorch. Otherwise classes have a slack of at most 12.5 %, and blocks below 32 KiB share
  // chunks.
  bool powers_of_two;
  uint8_t numa;  // a tide_numa
  // How many threads touch the pages of one segment, the calling one included: a power of two up to 128; 0:
  // up to 16. Never more than processors, nor more than one for each 8 MiB.
  uint32_t register_threads;
  int32_t numa_device;  // for TIDE_NUMA_DEVICE
  // The size of a reserve that is pinned at the first request; 0: none. Requests up to this size are served
  // from it while it has room, and return to it. The machine gets it back when the cache is freed.
  uint64_t reserve_bytes;
  uint64_t max_round_bytes;  // larger requests are only rounded up to whole pages; TIDE_NO_LIMIT: none are
  // The same, and their blocks are given back as soon as they are reusable. With powers_of_two, so are blocks
  // that are larger than this only because they were rounded.
  uint64_t max_block_bytes;
  // How much idle memory the default pool keeps at most; TIDE_NO_LIMIT: no limit. Memory that cannot be given
  // back does not count. A chunk of which a thread has a small block (below 32 KiB) in its cache counts from
  // the next tide_pinned_poll() on.
  uint64_t max_cached_bytes;
  // Memory is given back if it was not used between two sweeps that are at least this long apart; 0: never.
  // Sweeps run in tide_pinned_poll(), in requests that find nothing cached, and in the helper, at most four
  // times in this period.
  uint64_t idle_ns;
  const tide_heap* heap;  // borrowed until the cache is freed; NULL: malloc
  // All memory comes from tide_machine_pinned_alloc(). Not together with uses_register.
  bool uses_machine;
} tide_pinned_options;
// clang-format off
#define TIDE_PINNED_OPTIONS_INIT                                                                      \
  { TIDE_FIELD(size, sizeof(tide_pinned_options)), TIDE_FIELD(uses_register, false),                  \
    TIDE_FIELD(has_helper, false), TIDE_FIELD(powers_of_two, false), TIDE_FIELD(numa, TIDE_NUMA_ANY), \
    TIDE_FIELD(register_threads, 0), TIDE_FIELD(numa_device, 0), TIDE_FIELD(reserve_bytes, 0),        \
    TIDE_FIELD(max_round_bytes, TIDE_NO_LIMIT), TIDE_FIELD(max_block_bytes, TIDE_NO_LIMIT),           \
    TIDE_FIELD(max_cached_bytes, TIDE_NO_LIMIT), TIDE_FIELD(idle_ns, 0), TIDE_FIELD(heap, NULL),      \
    TIDE_FIELD(uses_machine, false) }
// clang-format on

// Copies the options of a device allocator that concern pinned memory (the keys pinned_...). The other fields
// of `options` stay as they are. So does register_threads, if the device's option has its default, 1, and
// pinned_uses_register is off.
// Errors: TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_options_from_device(const tide_device_options* from,
                                                                    tide_pinned_options* options);

// ---------------------------------------------------------------------------------------------------
// Caches

// Makes a cache of pinned memory for all devices of a machine. NULL options mean the defaults. `machine` is
// borrowed until the cache is freed. The call takes no memory of the machine.
// Errors: TIDE_ERR_ARGUMENT for options out of range, TIDE_ERR_DEVICE for numa_device, TIDE_ERR_NO_MEMORY,
//         TIDE_ERR_UNSUPPORTED if the helper could not be started.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_new(tide_machine* machine, const tide_pinned_options* options,
                                                    tide_pinned_cache** out);

// What was left over when a cache was freed.
typedef struct tide_pinned_leaks {
  uint32_t size;            // set by TIDE_PINNED_LEAKS_INIT
  uint64_t blocks;          // still handed out; their memory was given back as well
  uint64_t bytes;           // of these blocks
  uint64_t refused_pieces;  // ranges that the machine did not take back: see tide_pinned_free()
  uint64_t refused_bytes;
} tide_pinned_leaks;
#define TIDE_PINNED_LEAKS_INIT TIDE_SIZED(tide_pinned_leaks)

// Ends the helper, waits for all announced work, gives all memory back to the machine and frees the cache.
// This includes blocks that are still handed out. Memory that the machine refuses twice is leaked. If the
// machine cannot wait, because a stream is being captured or the machine has failed, all memory is leaked:
// work may still use it. `out` may be NULL.
// Threads: no other call may run at the same time or later.
TIDE_API void tide_pinned_free(tide_pinned_cache* pinned, tide_pinned_leaks* out);

TIDE_API tide_machine* tide_pinned_machine(const tide_pinned_cache* pinned);
TIDE_API void tide_pinned_get_options(const tide_pinned_cache* pinned, tide_pinned_options* out);
// Why large segments are memory of the machine, although registered pages are the default: the error of the
// machine that refused to register them. "" if it did not. The string lives as long as the cache.
TIDE_API const char* tide_pinned_fallback_reason(const tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// Memory

// Hands out at least `bytes`. A request of 0 bytes gives a block with a NULL address, which need not be
// released.
// Errors:  TIDE_ERR_NO_MEMORY, TIDE_ERR_MACHINE or TIDE_ERR_LIMIT if the machine refuses to pin memory:
//          drivers report a lack of memory by all three. Before it fails, the call polls, gives cached memory
//          back, waits for streams, and tries again after each step. The cache stays usable.
//          TIDE_ERR_ARGUMENT for 2^60 bytes and more.
// Cost:    O(1) without a contended lock if the thread has a cached block; a lock of the size class if the
//          block comes from the depot; otherwise calls of the machine.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_alloc(tide_pinned_cache* pinned, size_t bytes,
                                                      tide_block* out);
// The same for use on a stream, which scopes use to choose the pool, and which history entries show. The call
// does not announce the use.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_alloc_on(tide_pinned_cache* pinned, int device,
                                                         tide_stream stream, size_t bytes, tide_block* out);

// Takes a block back. It is reusable at once, or when its announced work is done. The call records an event
// on each announced stream. If that fails, the block waits, and every later poll tries again. Releasing a
// block with a NULL address is a no-op.
// Errors: TIDE_ERR_STATE, TIDE_ERR_HANDLE and TIDE_ERR_ARGUMENT, see above; TIDE_ERR_ARGUMENT also if the
//         address is not the one that was handed out with the handle.
// Cost:   as tide_pinned_alloc(), and one event record for each announced stream.
TIDE_API tide_status tide_pinned_release(tide_pinned_cache* pinned, tide_block block);
// The same by the address alone.
TIDE_API tide_status tide_pinned_release_address(tide_pinned_cache* pinned, void* address);

// Announces that work on a stream uses the block. All work queued on that stream before the block is released
// must finish before the block is handed out again. The stream must exist until the release. If the handle is
// valid, the address may be any inside the block (a view). Otherwise the address must be the one that was
// handed out. For TIDE_STREAM_PER_THREAD, the stream of the calling thread, only work that is queued already
// is covered.
// Errors: TIDE_ERR_STATE, TIDE_ERR_HANDLE and TIDE_ERR_ARGUMENT, see above; TIDE_ERR_ARGUMENT also for an
//         address inside a block with a handle that is not the block's; TIDE_ERR_DEVICE; TIDE_ERR_NO_MEMORY
//         for the record. Whether the stream exists is only checked at the release.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_record(tide_pinned_cache* pinned, tide_block block,
                                                       int device, tide_stream stream);
// The same for work that is queued already: the call records an event now, and does not cover work that is
// queued later. The stream may be freed afterwards. While the stream is captured, this call is the same as
// tide_pinned_record().
// Errors: also those of tide_machine_event_record(); the block is then as it was.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_record_now(tide_pinned_cache* pinned, tide_block block,
                                                           int device, tide_stream stream);

// Queues a copy on a stream and announces that it uses the block. The destination or the source must lie in
// the block. Copying 0 bytes is a no-op, whatever the block and the addresses are.
// Errors: as tide_pinned_record() and tide_machine_copy(); TIDE_ERR_ARGUMENT if neither end lies in the
//         block. If the machine refuses the copy, the stream may stay announced.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_copy(tide_pinned_cache* pinned, tide_block block, int device,
                                                     tide_stream stream, void* destination,
                                                     const void* source, size_t bytes);

// Copies ordinary host memory to a device, or from it, and returns when all bytes have arrived. The bytes go
// in pieces of up to 4 MiB through two blocks of the cache: the device copies one piece while the processor
// moves the next. The copy runs after the work that the stream has already. The call does not wait for other
// streams. Copying 0 bytes is a no-op, whatever the addresses and the stream are.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_DEVICE; TIDE_ERR_CAPTURE if the stream is captured; as
//         tide_pinned_alloc() if the cache has no block; those of the machine. After an error of the machine
//         a part may have been copied.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_upload(tide_pinned_cache* pinned, int device,
                                                       tide_stream stream, void* destination,
                                                       const void* source, size_t bytes);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_download(tide_pinned_cache* pinned, int device,
                                                         tide_stream stream, void* destination,
                                                         const void* source, size_t bytes);

// The cache as a source of memory for arenas: see memory.h. The cache must outlive the arenas.
TIDE_API tide_memory tide_pinned_memory(tide_pinned_cache* pinned);

// The size of the block that a request gets: a multiple of 512 up to 8 KiB, then one of eight classes in each
// doubling up to 64 MiB, then a multiple of 2 MiB. Requests above max_round_bytes or max_block_bytes get
// whole pages of the system. Returns 0 for 0, and for 2^60 and more.
TIDE_API size_t tide_pinned_round(const tide_pinned_cache* pinned, size_t bytes);

// Makes blocks reusable whose announced work is done, and sweeps: see idle_ns. Requests that find nothing
// cached do this by themselves. The call queries the oldest event of each stream, then the next one while
// they are done. So a stream that is stuck delays only its own blocks. The call does not wait for work.
// Errors: the first error of the machine. Events that could not be queried or recorded are tried again later.
TIDE_API tide_status tide_pinned_poll(tide_pinned_cache* pinned);

// Gives idle memory of the default pool back to the machine until at most `keep_bytes` of it are left. Polls
// first, but does not wait: blocks that are handed out or waiting stay. Takes idle blocks out of the caches
// of all threads. Larger sizes go first; of one size class, the memory that was idle longest. A chunk of
// small blocks goes, and counts as idle, only if all its blocks are idle. Memory from the reserve returns to
// the reserve. Memory of an earlier failed request that the machine did not take back is tried again.
// Errors: TIDE_ERR_ARGUMENT; otherwise the first error of the machine, such as TIDE_ERR_CAPTURE or
//         TIDE_ERR_MACHINE. Memory that the machine refuses stays cached, and the call goes on with the rest.
TIDE_API tide_status tide_pinned_trim(tide_pinned_cache* pinned, uint64_t keep_bytes);
// The same with 0 bytes to keep; it also gives back idle memory of pools without users. Such a pool is
// dropped when none of its memory is left.
TIDE_API tide_status tide_pinned_empty(tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// Pools: memory apart from the default pool, for captures
//
// The memory that a graph was captured with must not change as long as the graph can be launched. A scope
// sends requests to a pool. A block that was handed out through a scope and announced to a stream is kept
// after its release, and not handed out again until the pool is gone.

// new: makes a pool with one user, the caller. retain, drop: add and remove a user. users: counts them.
// A pool exists while it has a user, an open scope, or blocks that are handed out. When it has none of these,
// the next tide_pinned_empty() gives its memory back and drops it. A graph that uses memory of its capture
// must be a user of the pool. Blocks that were kept for graphs then wait for the streams they were announced
// to, so launches on other streams must be over.
// Errors: TIDE_ERR_HANDLE if there is no such pool; TIDE_ERR_STATE if it has no users, or if its last user is
//         to be removed while its scope is open; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_new(tide_pinned_cache* pinned, tide_pool* out);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_retain(tide_pinned_cache* pinned, tide_pool pool);
TIDE_API tide_status tide_pinned_pool_drop(tide_pinned_cache* pinned, tide_pool pool);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_users(tide_pinned_cache* pinned, tide_pool pool,
                                                           uint32_t* out);

// Which requests a scope accepts: see tide_scope_kind. tide_pinned_alloc() has no stream: the kinds ALL and
// THREAD accept its requests, and a filter gets device -1.
typedef struct tide_pinned_scope {
  uint32_t size;  // set by TIDE_PINNED_SCOPE_INIT
  uint32_t kind;  // a tide_scope_kind
  int32_t device;
  // tide_pinned_copy() in a capture keeps a hash of the bytes that the copy will read, and
  // tide_pinned_pool_end() fails if they have changed. Not on the dry machine.
  bool checks_copies;
  tide_stream stream;
  // Closing the scope waits until no other thread is inside the filter, so do not hold a lock that the filter
  // takes. Inside a filter it does not wait.
  bool (*filter)(void* user, int device, tide_stream stream);
  void* user;  // borrowed until the scope is closed
} tide_pinned_scope;
// clang-format off
#define TIDE_PINNED_SCOPE_INIT                                                         \
  { TIDE_FIELD(size, sizeof(tide_pinned_scope)), TIDE_FIELD(kind, TIDE_SCOPE_THREAD),  \
    TIDE_FIELD(device, 0), TIDE_FIELD(checks_copies, false), TIDE_FIELD(stream, NULL), \
    TIDE_FIELD(filter, NULL), TIDE_FIELD(user, NULL) }
// clang-format on

// Opens and closes a scope on a pool. NULL means TIDE_PINNED_SCOPE_INIT. A request goes to the newest open
// scope that accepts it. An open scope keeps its pool alive but does not count as a user.
// Errors: TIDE_ERR_STATE if the pool has an open scope already, or none to close; TIDE_ERR_LIMIT above 64
//         open scopes. tide_pinned_pool_end() returns TIDE_ERR_STATE, with the scope closed, if bytes that a
//         captured copy will read have changed. The text says which.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_begin(tide_pinned_cache* pinned, tide_pool pool,
                                                           const tide_pinned_scope* scope);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_end(tide_pinned_cache* pinned, tide_pool pool);

// ---------------------------------------------------------------------------------------------------
// Statistics

// All statistics.
#define TIDE_PINNED_STAT_MAP(X)                                             \
  X(allocations)     /* blocks: handed out, waiting or idle */              \
  X(allocated_bytes) /* their bytes */                                      \
  X(active_requests) /* handed out, waiting, or kept for a pool's graphs */ \
  X(active_bytes)                                                           \
  X(waiting) /* blocks that were released and wait */                       \
  X(waiting_bytes)                                                          \
  X(segments)       /* single blocks, and chunks of small ones */           \
  X(reserved_bytes) /* their bytes; of the reserve, the part in use */

// All plain counters.
#define TIDE_PINNED_COUNTER_MAP(X)                                                   \
  X(num_host_alloc)        /* ranges taken from the machine, the reserve included */ \
  X(num_host_free)         /* ranges given back to it */                             \
  X(num_misses)            /* requests that found nothing cached */                  \
  X(num_alloc_retries)     /* requests that the machine refused at first */          \
  X(num_ooms)              /* requests that failed for lack of memory */             \
  X(num_record_failures)   /* events that could not be recorded at once */           \
  X(num_query_failures)    /* events that could not be queried */                    \
  X(num_aged)              /* segments given back because of idle_ns */              \
  X(num_capped)            /* segments given back because of max_cached_bytes */     \
  X(num_registered)        /* of num_host_alloc: pages that were registered */       \
  X(num_register_refusals) /* registrations that the machine refused */

typedef struct tide_pinned_stats {
  uint32_t size;  // set by TIDE_PINNED_STATS_INIT
#define TIDE_PINNED_STAT_FIELD(name) tide_stat name;
  TIDE_PINNED_STAT_MAP(TIDE_PINNED_STAT_FIELD)
#undef TIDE_PINNED_STAT_FIELD
  tide_duration host_alloc_time;  // of pinning; for registered memory, mapping and touching it included
  tide_duration host_free_time;
#define TIDE_PINNED_COUNTER_FIELD(name) int64_t name;
  TIDE_PINNED_COUNTER_MAP(TIDE_PINNED_COUNTER_FIELD)
#undef TIDE_PINNED_COUNTER_FIELD
} tide_pinned_stats;
#define TIDE_PINNED_STATS_INIT TIDE_SIZED(tide_pinned_stats)

// The statistics of the cache. They are exact while no other call is running. While several threads work, a
// peak may be off by what threads have counted and not added yet, up to 2048 calls each. The call does not
// poll. The size of the cached blocks is allocated_bytes - active_bytes.
// Errors: TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_get_stats(tide_pinned_cache* pinned, tide_pinned_stats* out);
// reset_accumulated: sets `allocated`, `freed`, the counters, and `total_ns` and `count` of durations to 0.
// reset_peaks: sets `peak` to `current`, and `max_ns` and `min_ns` of durations to 0.
TIDE_API void tide_pinned_reset_accumulated(tide_pinned_cache* pinned);
TIDE_API void tide_pinned_reset_peaks(tide_pinned_cache* pinned);

// Checks the invariants of the cache: see docs/pinned.md. Returns 0, or the number of one that does not hold,
// with the details in tide_last_error(). For tests and debugging: the cost is linear in the number of blocks.
// Threads: no other call may run at the same time.
TIDE_API int tide_pinned_check(tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// Looking inside

// Shows every segment and its blocks by rising address: see tide_device_visit(). `device` is -1 and `stream`
// is NULL. `is_large` is set for segments with one block. All blocks of a segment have the same size; bytes
// after the last block belong to no block. Also adds a SNAPSHOT entry to the history if blocks are visited.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_visit(tide_pinned_cache* pinned,
                                                      const tide_device_visitor* visitor);

// Turns the history on or off, or changes its options; and visits it: see tide_device_history(). Entries
// are ALLOC, FREE_REQUESTED when a block is released, FREE_COMPLETED when it is reusable, SEGMENT_ALLOC and
// SEGMENT_FREE, OOM with `address` 0, and SNAPSHOT. Their device is that of the request, or 0 if it names
// none. Each has the note of its thread: see tide_thread_set_metadata().
TIDE_API TIDE_NODISCARD tide_status tide_pinned_history(tide_pinned_cache* pinned,
                                                        const tide_history_options* options);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_history_visit(tide_pinned_cache* pinned,
                                                              tide_history_fn function, void* user);
// The texts, stacks and notes that entries and blocks refer to. Owned by the cache.
TIDE_API tide_intern* tide_pinned_names(tide_pinned_cache* pinned);

// Adds the history and the segments to a trace under the device number `device`, which no other allocator of
// that trace may have: see tide_device_snapshot().
// Errors: TIDE_ERR_ARGUMENT, also for a device outside 0 to 255; TIDE_ERR_HANDLE if there is no such pool,
//         and TIDE_ERR_NO_MEMORY, which leave a part of the snapshot in the trace.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_snapshot(tide_pinned_cache* pinned,
                                                         const tide_snapshot_options* options, int device,
                                                         tide_trace* trace);

TIDE_END_DECLS
#endif
