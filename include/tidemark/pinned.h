// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: pinned, a cache of page-locked host memory. Locking pages is slow and stops the device, so memory
// that is released is kept; but copies that were queued may still read or write it, so it is handed out again
// only when the work of the streams that use it is done.
//
//   tide_pinned_cache* host = NULL;
//   tide_block block;
//   tide_status status = tide_pinned_new(machine, NULL, &host);
//   if (status == TIDE_OK) status = tide_pinned_alloc(host, 1 << 20, &block);
//   if (status == TIDE_OK) status = tide_pinned_copy(host, block, 0, stream, there, block.address, 1 << 20);
//   if (status == TIDE_OK) status = tide_pinned_release(host, block);   // no need to wait for the copy
//   tide_pinned_free(host, NULL);
//
// What holds for every call:
// - Any thread may call, also several at once, and release what another allocated.
// - No lock is held while the machine, a filter or a visitor is called.
// - Work that uses a block must be over when the block is released, or be announced: tide_pinned_record(),
//   tide_pinned_record_now(), or tide_pinned_copy(), which announces the copy it queues.
// - A call that names memory tells apart, by its status and in the error's text: memory that was released
//   already and is still idle or waiting (TIDE_ERR_STATE), a handle of an earlier life, whose memory is
//   handed out anew or gone (TIDE_ERR_HANDLE), and what this cache never handed out (TIDE_ERR_ARGUMENT).
// - A cache belongs to the process that made it, like its machine. In a child of fork() requests and
//   everything that changes it are TIDE_ERR_STATE at once, and releasing a block or freeing the cache does
//   nothing.
// - Sizes are rounded up to classes, see tide_pinned_round(), and addresses are aligned to at least 512.
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

// On which node of a computer with several new memory is placed, as far as the system allows; memory that is
// cached stays where it is.
typedef enum tide_numa {
  TIDE_NUMA_ANY = 0,     // wherever the machine puts it
  TIDE_NUMA_CALLER = 1,  // near the processor that asks
  TIDE_NUMA_DEVICE = 2   // near the device `numa_device`
} tide_numa;

typedef struct tide_pinned_options {
  uint32_t size;  // set by TIDE_PINNED_OPTIONS_INIT
  // Pages of our own are mapped, touched by several threads at once and registered, instead of asking the
  // machine for pinned memory. Mappings from 2 MiB on begin at a multiple of 2 MiB. Not on the dry machine,
  // which has no pages: there the addresses are only registered.
  bool uses_register;
  // A thread of this cache looks after the streams, so that requests need not. It sleeps while no block waits
  // and no memory can become too old.
  bool has_helper;
  // Sizes are powers of two, and every block is pinned on its own, as PyTorch does; for statistics that can
  // be compared. Otherwise classes have a slack of at most 12.5 %, and blocks below 32 KiB share chunks.
  bool powers_of_two;
  uint8_t numa;               // a tide_numa
  uint32_t register_threads;  // 1 to 128, a power of two; never more than processors or pages
  int32_t numa_device;        // for TIDE_NUMA_DEVICE
  // One piece that is pinned at the first request; smaller ones come out of it while it has room, and return
  // to it. 0: none. It is given back when the cache is freed.
  uint64_t reserve_bytes;
  uint64_t max_round_bytes;  // larger requests are rounded to whole pages only; TIDE_NO_LIMIT: none are
  uint64_t max_block_bytes;  // larger ones as well, and their blocks go back as soon as they are reusable
  // Idle memory of the default pool that could be given back never exceeds this; TIDE_NO_LIMIT: no limit.
  // Blocks below 32 KiB that threads keep at hand hold on to their chunks until the next look, see idle_ns.
  uint64_t max_cached_bytes;
  // Memory goes back that two looks, at least this long apart, both found unused since the first; 0: never.
  // Looks are taken by tide_pinned_poll(), by requests that find nothing cached and by the helper, at most
  // four in this time.
  uint64_t idle_ns;
  const tide_heap* heap;  // caller keeps until the cache is freed; NULL for malloc
} tide_pinned_options;
// clang-format off
#define TIDE_PINNED_OPTIONS_INIT                                                                      \
  { TIDE_FIELD(size, sizeof(tide_pinned_options)), TIDE_FIELD(uses_register, false),                  \
    TIDE_FIELD(has_helper, false), TIDE_FIELD(powers_of_two, false), TIDE_FIELD(numa, TIDE_NUMA_ANY), \
    TIDE_FIELD(register_threads, 1), TIDE_FIELD(numa_device, 0), TIDE_FIELD(reserve_bytes, 0),        \
    TIDE_FIELD(max_round_bytes, TIDE_NO_LIMIT), TIDE_FIELD(max_block_bytes, TIDE_NO_LIMIT),           \
    TIDE_FIELD(max_cached_bytes, TIDE_NO_LIMIT), TIDE_FIELD(idle_ns, 0), TIDE_FIELD(heap, NULL) }
// clang-format on

// Copies what the options of a device allocator say about pinned memory (the keys pinned_...) into options
// for a cache; the rest stays as it is.
// Errors: TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_options_from_device(const tide_device_options* from,
                                                                    tide_pinned_options* options);

// ---------------------------------------------------------------------------------------------------
// Caches

// Makes a cache of pinned memory for all devices of a machine; NULL options are the defaults. `machine` is
// borrowed until the cache is freed. Takes no memory of the machine yet.
// Errors: TIDE_ERR_ARGUMENT for options out of range, TIDE_ERR_DEVICE for numa_device, TIDE_ERR_NO_MEMORY,
//         TIDE_ERR_UNSUPPORTED if the helper could not be started.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_new(tide_machine* machine, const tide_pinned_options* options,
                                                    tide_pinned_cache** out);

// What was left when a cache was freed.
typedef struct tide_pinned_leaks {
  uint32_t size;            // set by TIDE_PINNED_LEAKS_INIT
  uint64_t blocks;          // still handed out; their memory is given back all the same
  uint64_t bytes;           // of these
  uint64_t refused_pieces;  // what stays with the machine: see tide_pinned_free()
  uint64_t refused_bytes;
} tide_pinned_leaks;
#define TIDE_PINNED_LEAKS_INIT TIDE_SIZED(tide_pinned_leaks)

// Ends the helper, waits for all work that was announced, gives all memory back to the machine, blocks
// still handed out included, and frees the cache. What the machine refuses to take back, twice, stays with
// it; and so does everything if it refuses to wait (a stream of the device is being captured, or the machine
// has failed), because work may still use it. `out` may be NULL.
// Threads: no other call may be under way or follow.
TIDE_API void tide_pinned_free(tide_pinned_cache* pinned, tide_pinned_leaks* out);

TIDE_API tide_machine* tide_pinned_machine(const tide_pinned_cache* pinned);
TIDE_API void tide_pinned_get_options(const tide_pinned_cache* pinned, tide_pinned_options* out);

// ---------------------------------------------------------------------------------------------------
// Memory

// Hands out at least `bytes`. 0 bytes is a block with a NULL address that need not be released.
// Errors:  TIDE_ERR_NO_MEMORY, or what the machine says when it refuses to pin, after every way to find
//          memory was tried: blocks whose work is done, cached memory given back, streams waited for, one
//          more try. TIDE_ERR_MACHINE and TIDE_ERR_LIMIT of the machine are want of memory here, too: drivers
//          have many words for it. TIDE_ERR_ARGUMENT for 2^60 bytes and more. The cache is as usable as
//          before.
// Cost:    O(1), no lock that another thread would wait for, when the thread has a cached block; a lock of
//          the size class when another thread had it; else calls of the machine.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_alloc(tide_pinned_cache* pinned, size_t bytes,
                                                      tide_block* out);
// The same for use on a stream: scopes decide by it which pool the memory comes from, and entries of the
// history show it. The use itself is not announced.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_alloc_on(tide_pinned_cache* pinned, int device,
                                                         tide_stream stream, size_t bytes, tide_block* out);

// Takes a block back. It is reusable at once, or when the work that was announced is done: for each stream
// that was announced an event is recorded now. Where that fails the block is kept and it is tried again at
// the next look. A block with a NULL address is nothing.
// Errors: TIDE_ERR_STATE, TIDE_ERR_HANDLE and TIDE_ERR_ARGUMENT, see above; TIDE_ERR_ARGUMENT also for an
//         address that is not the one handed out with the handle.
// Cost:   as tide_pinned_alloc(); one event record for each announced stream.
TIDE_API tide_status tide_pinned_release(tide_pinned_cache* pinned, tide_block block);
// The same by the address alone.
TIDE_API tide_status tide_pinned_release_address(tide_pinned_cache* pinned, void* address);

// The block that is handed out at exactly this address, with its handle.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_find(tide_pinned_cache* pinned, const void* address,
                                                     tide_block* out);

// Says that work on a stream uses the block: all work queued on that stream until the block is released must
// be done before the block is handed out again. The stream must live until then. Which block is meant: that
// of the handle, and then the address may be any inside it (a view); or, with any other handle, the one
// handed out at exactly this address. TIDE_STREAM_PER_THREAD is the calling thread's, and only covers work
// queued so far.
// Errors: TIDE_ERR_STATE, TIDE_ERR_HANDLE and TIDE_ERR_ARGUMENT, see above (an address inside a block with
//         a handle that is not the block's is TIDE_ERR_ARGUMENT); TIDE_ERR_DEVICE; TIDE_ERR_NO_MEMORY for
//         the note of it. A stream that is not there is found out at the release.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_record(tide_pinned_cache* pinned, tide_block block,
                                                       int device, tide_stream stream);
// The same for work that is queued already: an event is recorded now, and what is queued later on the stream
// is not waited for, unless tide_pinned_record() says so as well. The stream may be freed afterwards.
// Errors: also those of the machine's event record; the block is then as it was. In a capture of the stream
//         it is the same as tide_pinned_record().
TIDE_API TIDE_NODISCARD tide_status tide_pinned_record_now(tide_pinned_cache* pinned, tide_block block,
                                                           int device, tide_stream stream);

// Queues a copy on a stream and announces that it uses the block, in which the destination or the source must
// lie.
// Errors: as tide_pinned_record() and tide_machine_copy(); TIDE_ERR_ARGUMENT if neither end lies in the
//         block. A copy that was refused may leave the stream announced.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_copy(tide_pinned_cache* pinned, tide_block block, int device,
                                                     tide_stream stream, void* destination,
                                                     const void* source, size_t bytes);

// Copies between ordinary host memory and a device, and returns when all bytes are there: to the device, or
// from it. The bytes go in pieces of up to 4 MiB through two blocks of the cache, so that the device copies
// one piece while the processor moves the next. The copy has its place in the order of the stream: it comes
// after the work queued there before. Work of other streams is not waited for. 0 bytes is nothing.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_DEVICE; TIDE_ERR_CAPTURE for a stream that is captured; as
//         tide_pinned_alloc() where there is no block at all; those of the machine. After an error of the
//         machine a part may have been copied.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_upload(tide_pinned_cache* pinned, int device,
                                                       tide_stream stream, void* destination,
                                                       const void* source, size_t bytes);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_download(tide_pinned_cache* pinned, int device,
                                                         tide_stream stream, void* destination,
                                                         const void* source, size_t bytes);

// The cache as a source of arenas.
TIDE_API tide_memory tide_pinned_memory(tide_pinned_cache* pinned);

// The bytes of the block that a request gets: multiples of 512 up to 4 KiB, then eight classes in each
// doubling up to 64 MiB, then whole pages of 2 MiB; larger than max_round_bytes or max_block_bytes, whole
// pages of the system. 0 for 0, and for 2^60 and more.
TIDE_API size_t tide_pinned_round(const tide_pinned_cache* pinned, size_t bytes);

// Looks which announced work is done and makes the blocks that waited for it reusable. Requests that find
// nothing cached do this by themselves. Each stream is asked about its oldest work first, and no further if
// that is not done; a stream that is stuck holds back nothing but its own blocks. Does not wait for work.
// Errors: the first of the machine; what could not be asked or recorded stays and is tried again.
TIDE_API tide_status tide_pinned_poll(tide_pinned_cache* pinned);

// Gives idle memory of the default pool back to the machine until at most `keep_bytes` of it are left; large
// pieces first, of a class the one that was idle longest. Looks after the streams first, but does not wait.
// A chunk of small blocks goes when all of it is idle. What was pinned for a request that then got no memory
// for its records, and was not taken back either, is tried again.
// Errors: TIDE_ERR_CAPTURE or TIDE_ERR_MACHINE from the machine; what it would not take stays cached.
TIDE_API tide_status tide_pinned_trim(tide_pinned_cache* pinned, uint64_t keep_bytes);
// Gives all of it back, also what is idle in pools without users, which are gone when nothing of them is
// handed out any more.
TIDE_API tide_status tide_pinned_empty(tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// Pools: memory apart from the default pool, for captures
//
// What a graph was captured with must stay as it is for as long as the graph can be launched. A scope sends
// requests to a pool. A block that was handed out through a scope and was announced to a stream is not handed
// out again when it is released, but kept until the pool is gone.

// Makes a pool with one user, the caller; one user more or less. A pool is kept by its users, by an open
// scope, and by blocks of it that are handed out. Without all three it gives its memory back at the next
// tide_pinned_empty(), and is gone. A graph that uses memory of its capture later is a user:
// tide_pinned_pool_retain(). What was kept for graphs waits for the streams it was announced to, so launches
// elsewhere must be over by then.
// Errors: TIDE_ERR_HANDLE for a pool that is not there; TIDE_ERR_STATE for one without users, or for taking
//         away the last user while its scope is open; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_new(tide_pinned_cache* pinned, tide_pool* out);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_retain(tide_pinned_cache* pinned, tide_pool pool);
TIDE_API tide_status tide_pinned_pool_drop(tide_pinned_cache* pinned, tide_pool pool);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_users(tide_pinned_cache* pinned, tide_pool pool,
                                                           uint32_t* out);

// Which requests a scope takes: see tide_scope_kind. Requests of tide_pinned_alloc() are for no stream: ALL
// and THREAD take them, and a filter is asked with device -1.
typedef struct tide_pinned_scope {
  uint32_t size;  // set by TIDE_PINNED_SCOPE_INIT
  uint32_t kind;  // a tide_scope_kind
  int32_t device;
  // tide_pinned_copy() in a capture notes a hash of the bytes that the copy will read, and
  // tide_pinned_pool_end() fails if the program wrote there meanwhile. Not on the dry machine.
  bool checks_copies;
  tide_stream stream;
  // Closing the scope waits for requests that are just then asking, so not with a lock held that the filter
  // takes; inside a filter it does not wait.
  bool (*filter)(void* user, int device, tide_stream stream);
  void* user;  // borrowed until the scope is closed
} tide_pinned_scope;
// clang-format off
#define TIDE_PINNED_SCOPE_INIT                                                         \
  { TIDE_FIELD(size, sizeof(tide_pinned_scope)), TIDE_FIELD(kind, TIDE_SCOPE_THREAD),  \
    TIDE_FIELD(device, 0), TIDE_FIELD(checks_copies, false), TIDE_FIELD(stream, NULL), \
    TIDE_FIELD(filter, NULL), TIDE_FIELD(user, NULL) }
// clang-format on

// Opens a scope on a pool, NULL is TIDE_PINNED_SCOPE_INIT, and closes it. The newest open scope that takes a
// request decides. An open scope keeps its pool, but is no user of it.
// Errors: TIDE_ERR_STATE if the pool has an open scope already, or none to close; TIDE_ERR_LIMIT above 64
//         open scopes. Of the end: TIDE_ERR_STATE with the scope closed if bytes that a captured copy reads
//         were changed, and the text says which.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_begin(tide_pinned_cache* pinned, tide_pool pool,
                                                           const tide_pinned_scope* scope);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_end(tide_pinned_cache* pinned, tide_pool pool);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Every statistic.
#define TIDE_PINNED_STAT_MAP(X)                                             \
  X(allocations)     /* blocks: handed out, waiting or idle */              \
  X(allocated_bytes) /* their bytes */                                      \
  X(active_requests) /* handed out, waiting, or kept for a pool's graphs */ \
  X(active_bytes)                                                           \
  X(waiting) /* blocks that were released and wait */                       \
  X(waiting_bytes)                                                          \
  X(segments)       /* pieces: single blocks, chunks of small ones */       \
  X(reserved_bytes) /* their bytes; of the reserve, what is taken of it */

// Every plain counter.
#define TIDE_PINNED_COUNTER_MAP(X)                                                     \
  X(num_host_alloc)      /* pieces taken from the machine, the reserve included */     \
  X(num_host_free)       /* pieces given back to it */                                 \
  X(num_misses)          /* requests that found nothing cached */                      \
  X(num_alloc_retries)   /* requests tried again after cached memory was given back */ \
  X(num_ooms)            /* requests that failed for want of memory */                 \
  X(num_record_failures) /* events that could not be recorded at once */               \
  X(num_query_failures)  /* events that could not be asked about */                    \
  X(num_aged)            /* pieces given back because of idle_ns */                    \
  X(num_capped)          /* pieces given back because of max_cached_bytes */

typedef struct tide_pinned_stats {
  uint32_t size;  // set by TIDE_PINNED_STATS_INIT
#define TIDE_PINNED_STAT_FIELD(name) tide_stat name;
  TIDE_PINNED_STAT_MAP(TIDE_PINNED_STAT_FIELD)
#undef TIDE_PINNED_STAT_FIELD
  tide_duration host_alloc_time;  // pinning: of registered memory, mapping and touching it included
  tide_duration host_free_time;
#define TIDE_PINNED_COUNTER_FIELD(name) int64_t name;
  TIDE_PINNED_COUNTER_MAP(TIDE_PINNED_COUNTER_FIELD)
#undef TIDE_PINNED_COUNTER_FIELD
} tide_pinned_stats;
#define TIDE_PINNED_STATS_INIT TIDE_SIZED(tide_pinned_stats)

// Of the whole cache, or of one pool. Exact when no other call is under way; while several threads work, a
// peak is that of their calls in groups of up to 2048. Does not look after the streams.
// allocated_bytes - active_bytes is what is cached.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE for a pool that is not there.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_get_stats(tide_pinned_cache* pinned, tide_pinned_stats* out);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_pool_stats(tide_pinned_cache* pinned, tide_pool pool,
                                                           tide_pinned_stats* out);
// Sets `allocated`, `freed`, the counters, and `total_ns` and `count` of durations to 0, of the cache, of all
// pools and classes; sets `peak` to `current`, and `max_ns` and `min_ns` to 0.
TIDE_API void tide_pinned_reset_accumulated(tide_pinned_cache* pinned);
TIDE_API void tide_pinned_reset_peaks(tide_pinned_cache* pinned);

// The statistics of one size class, over all pools.
typedef struct tide_pinned_class {
  uint32_t size;       // set by TIDE_PINNED_CLASS_INIT
  uint64_t bytes;      // of its blocks; 0: of all sizes that have no class
  int64_t blocks;      // handed out, waiting or idle
  int64_t active;      // of these, handed out or waiting
  int64_t made;        // blocks made since the last reset
  int64_t handed_out;  // requests served since the last reset
} tide_pinned_class;
#define TIDE_PINNED_CLASS_INIT TIDE_SIZED(tide_pinned_class)

// How many classes there are, and one of them: by rising size, the last is for sizes that have no class.
TIDE_API uint32_t tide_pinned_class_count(const tide_pinned_cache* pinned);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_get_class(tide_pinned_cache* pinned, uint32_t index,
                                                          tide_pinned_class* out);

// Checks that everything in the cache is as it must be. Returns 0, or the number of an invariant that does
// not hold with the details in tide_last_error(): see docs/pinned.md.
// Threads: no other call may be under way.
TIDE_API int tide_pinned_check(tide_pinned_cache* pinned);

// ---------------------------------------------------------------------------------------------------
// Looking inside

// Shows every segment and its blocks, in the order of addresses: see tide_device_visit(). `device` is -1 and
// `stream` NULL; `is_large` are those with one block; the blocks of a segment have equal sizes, and what is
// left behind the last belongs to the segment only. Also puts a SNAPSHOT entry into the history.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_visit(tide_pinned_cache* pinned,
                                                      const tide_device_visitor* visitor);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_visit_pool(tide_pinned_cache* pinned, tide_pool pool,
                                                           const tide_device_visitor* visitor);

// Switches the history on or off, or changes it, and shows it: see tide_device_history(). Entries are ALLOC,
// FREE_REQUESTED when a block is released, FREE_COMPLETED when it is reusable, SEGMENT_ALLOC and SEGMENT_FREE
// for pieces, OOM with `address` 0, SNAPSHOT and USER_DEFINED. Their device is that of the request, 0 when it
// names none. They are noted with what the calling thread says: see tide_thread_set_metadata().
TIDE_API TIDE_NODISCARD tide_status tide_pinned_history(tide_pinned_cache* pinned,
                                                        const tide_history_options* options);
TIDE_API bool tide_pinned_has_history(const tide_pinned_cache* pinned);
TIDE_API TIDE_NODISCARD tide_status tide_pinned_history_visit(tide_pinned_cache* pinned,
                                                              tide_history_fn function, void* user);
TIDE_API tide_intern* tide_pinned_names(tide_pinned_cache* pinned);
// Puts a remark of the user's into the history: see tide_device_annotate().
TIDE_API TIDE_NODISCARD tide_status tide_pinned_annotate(tide_pinned_cache* pinned, const char* text);

// Adds the history and the segments to a trace, all of them under the number `device`, which no allocator of
// that trace may have: see tide_device_snapshot().
// Errors: TIDE_ERR_ARGUMENT, also for a device outside 0 to 255; TIDE_ERR_NO_MEMORY, and then the trace has
//         a part of it.
TIDE_API TIDE_NODISCARD tide_status tide_pinned_snapshot(tide_pinned_cache* pinned,
                                                         const tide_snapshot_options* options, int device,
                                                         tide_trace* trace);

TIDE_END_DECLS
#endif
