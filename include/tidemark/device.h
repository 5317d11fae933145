// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: device, a caching allocator for the memory of one device that knows about streams. Memory that is
// released is kept and handed out again on the stream it was allocated on, without waiting for the device.
//
//   tide_device_cache* device = NULL;
//   tide_block block;
//   tide_status status = tide_device_new(machine, 0, NULL, &device);
//   if (status == TIDE_OK) status = tide_device_alloc(device, stream, 1 << 20, &block);
//   if (status == TIDE_OK) status = tide_machine_fill(machine, 0, stream, block.address, 7, 1 << 20);
//   if (status == TIDE_OK) status = tide_device_release(device, block);   // no need to wait for the fill
//   tide_device_free(device);
//
// What holds for every call:
// - Any thread may call, also several at once, and release what another allocated.
// - No lock is held while the machine, an observer, a filter or a callback is called, so these may call the
//   allocator themselves, except where a comment says otherwise.
// - A block belongs to the stream it was allocated on. Work on other streams that uses it must either be over
//   when the block is released (in the order of the device), or be announced with tide_device_record().
// - A stream must exist until all blocks that were allocated on it are released, unless it was closed with
//   tide_device_close_stream(). After their release the stream may be destroyed.
// - Sizes are rounded to multiples of 512 bytes and addresses are aligned to at least that.
// - An allocator belongs to the process that made it, like its machine. In a child of fork() requests and
//   everything that changes it are TIDE_ERR_STATE at once, and releasing a block or freeing the allocator
//   does nothing: the memory is still the parent's. Walks over blocks and the history are not to be made
//   there.
#ifndef TIDEMARK_DEVICE_H
#define TIDEMARK_DEVICE_H

#include "tidemark/base.h"
#include "tidemark/cache.h"
#include "tidemark/machine.h"
#include "tidemark/trace.h"

TIDE_BEGIN_DECLS

typedef struct tide_device_cache tide_device_cache;  // opaque; freed by tide_device_free()

// ---------------------------------------------------------------------------------------------------
// Options

typedef enum tide_policy {
  TIDE_POLICY_TORCH = 0,  // decides as PyTorch 2.11 does
  TIDE_POLICY_TIDE = 1    // maps idle memory together until hardly more is reserved than is handed out
} tide_policy;

#define TIDE_ROUNDUP_SLOTS 16

// A share of a device's memory or a number of bytes, whichever is not 0.
typedef struct tide_reserve {
  double fraction;
  uint64_t bytes;
} tide_reserve;

// How an allocator decides. The text form of each option stands in brackets: see tide_device_options_parse().
// All sizes are whole MiB.
typedef struct tide_device_options {
  uint32_t size;    // set by TIDE_DEVICE_OPTIONS_INIT
  uint32_t policy;  // a tide_policy
  // Blocks of this many bytes and more are not split, and smaller requests do not take them
  // [max_split_size_mb]; at least large_segment_bytes.
  uint64_t max_split_bytes;
  uint64_t large_segment_bytes;  // of segments for requests of 1 to 10 MiB [large_segment_size_mb]; > 10 MiB
  uint64_t non_split_excess_bytes;  // a request that may not split takes a block less than this larger
                                    // [max_non_split_rounding_mb]; 0: large_segment_bytes
  double collect_threshold;         // share of the limit above which idle segments are collected by age
                                    // [garbage_collection_threshold]; 0: never; else between 0 and 1
  double memory_fraction;           // share of the device that may be reserved [per_process_memory_fraction];
                                    // 0 to 1; 1: no limit
  // Rounding to steps of a power of two divided by this, by size: slot k is for [2^k, 2^(k+1)) MiB, the first
  // and the last take what is below and above [roundup_power2_divisions]. 0 or 1: none; else a power of two.
  uint32_t roundup_divisions[TIDE_ROUNDUP_SLOTS];
  bool expandable_segments;  // segments that grow by virtual memory [expandable_segments]
  // Reuse inside a capture what its graph proves to be free [graph_capture_record_stream_reuse].
  bool is_capture_reuse;
  bool releases_lock;  // accepted and reported; no lock is ever held [release_lock_on_cudamalloc]
  // Mends decisions of `torch` that lose memory: cached memory is searched again after every step that may
  // have found some, announced work is waited for one by one, and collection looks at all pools [fixes].
  bool fixes;
  // Checks all invariants after every allocation, release and record: slow, to find faults in programs of one
  // thread [audits].
  bool has_audits;
  // For the cache of pinned memory, and only reported here.
  bool pinned_uses_register;         // [pinned_use_cuda_host_register]
  bool pinned_uses_threads;          // [pinned_use_background_threads]
  uint32_t pinned_register_threads;  // a power of two up to 128 [pinned_num_register_threads]
  uint64_t pinned_reserve_bytes;     // [pinned_reserve_segment_size_mb]
  const tide_heap* heap;             // caller keeps until the allocator is freed; NULL for malloc
  // What PyTorch has since 2.11, each off by default.
  // Among blocks of equal size that of the oldest segment is taken, not that with the lowest address, so that
  // decisions do not depend on addresses; fixed when the allocator is made [ties_by_age].
  bool ties_by_age;
  // Requests that would reserve more than memory_fraction of the device fail at once, before anything is
  // given back for them; they are counted in num_oom_rejections [throw_on_cudamalloc_oom].
  bool rejects_early;
  // The allocator behaves as in a capture while the stream of a request is captured, not while any scope is
  // open; so a plain scope does not keep it from giving memory back [captures_by_stream].
  bool captures_by_stream;
  tide_reserve address_reserve;  // of an expandable segment [expandable_segments_reserve]
  // Of the policy `tide` (docs/tide.md), which of the options above takes memory_fraction, is_capture_reuse,
  // has_audits, captures_by_stream, address_reserve and, above 512 KiB, roundup_divisions.
  double tide_slack;  // what may be reserved above the highest use before idle memory is stitched, as a share
                      // of that [tide_slack]; 0 to 1
  uint64_t tide_least_handle_bytes;  // physical memory is made in pieces of at least [tide_least_handle_mb]
  uint64_t tide_most_handle_bytes;   //   and at most so many bytes [tide_most_handle_mb]
  // The share of the time that mapping idle memory together may take, in bursts of up to 20 s times this;
  // above it memory is made instead [tide_stitch_share]; 0 to 1; 1: no bound.
  double tide_stitch_share;
  uint64_t tide_floor_bytes;   // as much stays reserved when idle memory is given back [tide_floor_mb]
  uint32_t tide_idle_handles;  // as many of the smallest handles may lie idle for each stream before they
                               // share memory, where that is more than the slack [tide_idle_handles]; up to
                               // 65536
} tide_device_options;
// clang-format off
#define TIDE_DEVICE_OPTIONS_INIT                                                                     \
  { TIDE_FIELD(size, sizeof(tide_device_options)), TIDE_FIELD(policy, TIDE_POLICY_TORCH),            \
    TIDE_FIELD(max_split_bytes, TIDE_NO_LIMIT), TIDE_FIELD(large_segment_bytes, (uint64_t)20 << 20), \
    TIDE_FIELD(non_split_excess_bytes, 0), TIDE_FIELD(collect_threshold, 0.0),                       \
    TIDE_FIELD(memory_fraction, 1.0), TIDE_FIELD(roundup_divisions, { 0 }),                          \
    TIDE_FIELD(expandable_segments, false), TIDE_FIELD(is_capture_reuse, false),                     \
    TIDE_FIELD(releases_lock, false), TIDE_FIELD(fixes, false), TIDE_FIELD(has_audits, false),       \
    TIDE_FIELD(pinned_uses_register, false), TIDE_FIELD(pinned_uses_threads, false),                 \
    TIDE_FIELD(pinned_register_threads, 1), TIDE_FIELD(pinned_reserve_bytes, 0),                     \
    TIDE_FIELD(heap, NULL), TIDE_FIELD(ties_by_age, false), TIDE_FIELD(rejects_early, false),        \
    TIDE_FIELD(captures_by_stream, false), TIDE_FIELD(address_reserve, { 0.0, 0 }),                  \
    TIDE_FIELD(tide_slack, 0.005), TIDE_FIELD(tide_least_handle_bytes, (uint64_t)2 << 20),           \
    TIDE_FIELD(tide_most_handle_bytes, (uint64_t)128 << 20), TIDE_FIELD(tide_stitch_share, 0.05),    \
    TIDE_FIELD(tide_floor_bytes, 0), TIDE_FIELD(tide_idle_handles, 4) }
// clang-format on

// Reads a text in PyTorch's grammar, "key:value,key:value", into options; "=" is taken for the ":" behind a
// key as well, and "[k:v,k:v]" is a list. Like PyTorch, first puts max_split_bytes, collect_threshold,
// roundup_divisions and non_split_excess_bytes back to their defaults and leaves what is not named as it is;
// unlike PyTorch, changes nothing when the text is wrong and refuses what PyTorch lets pass (a wrong
// separator, rubbish behind a number).
// Errors: TIDE_ERR_ARGUMENT; the error's text names the key and what it wants.
TIDE_API TIDE_NODISCARD tide_status tide_device_options_parse(const char* text, tide_device_options* options);
// The same for the text of the first of PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF and TIDEMARK_CONF that is
// set; none changes nothing.
TIDE_API TIDE_NODISCARD tide_status tide_device_options_from_env(tide_device_options* options);
// Writes the text that makes these options from the defaults; returns the length it has, like snprintf.
TIDE_API size_t tide_device_options_print(const tide_device_options* options, char* text, size_t capacity);

// ---------------------------------------------------------------------------------------------------
// Allocators

// Makes an allocator for a device of a machine; NULL options are the defaults. Several may share a device.
// `machine` is borrowed until the allocator is freed.
// Errors: TIDE_ERR_DEVICE, TIDE_ERR_ARGUMENT for options out of range, TIDE_ERR_UNSUPPORTED for the policy
//         `tide` and for expandable segments on a device without virtual memory, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_new(tide_machine* machine, int index,
                                                    const tide_device_options* options,
                                                    tide_device_cache** out);

// Waits for all work of the device and of those that were announced, gives all memory back to the machine,
// blocks still handed out included, and frees the allocator. If the machine refuses to wait (a stream of the
// device is being captured, or the machine has failed), work may still use the memory: then all of it stays
// with the machine, which gives it back in its own end (host, dry) or that of the process (cuda); functions
// of pools are not called for it, and tide_last_error() says how much it was.
// Threads: no other call may be under way or follow.
TIDE_API void tide_device_free(tide_device_cache* device);

TIDE_API tide_machine* tide_device_machine(const tide_device_cache* device);
TIDE_API int tide_device_index(const tide_device_cache* device);
// What the allocator is called: the name of its policy, "torch" or "tide". "" for NULL. Never freed.
TIDE_API const char* tide_device_name(const tide_device_cache* device);

// The allocator that is kept for an index as a convenience for programs with one for each device, or NULL.
// Freeing an allocator takes it out.
// Errors: TIDE_ERR_DEVICE for an index outside 0 to TIDE_DEVICE_MAX - 1.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_default(int index, tide_device_cache* device);
TIDE_API tide_device_cache* tide_device_default(int index);

// Changes how the allocator decides from now on; `heap`, `policy` and `memory_fraction`, which are for the
// beginning, stay. And the options in force.
TIDE_API TIDE_NODISCARD tide_status tide_device_configure(tide_device_cache* device,
                                                          const tide_device_options* options);
TIDE_API void tide_device_get_options(tide_device_cache* device, tide_device_options* out);

// ---------------------------------------------------------------------------------------------------
// Memory

// Hands out at least `bytes` for use on `stream`. 0 bytes is a block with a NULL address that need not be
// released.
// Errors:  TIDE_ERR_NO_MEMORY after every way to find memory was tried: see tide_device_last_oom();
//          TIDE_ERR_ARGUMENT for 2^60 bytes and more; TIDE_ERR_MACHINE or TIDE_ERR_CAPTURE from the machine.
//          After any of them the allocator is as usable as before.
// Cost:    when cached memory fits, O(1) below 2 MiB and O(log n) of n idle blocks above; else calls of the
//          machine.
TIDE_API TIDE_NODISCARD tide_status tide_device_alloc(tide_device_cache* device, tide_stream stream,
                                                      size_t bytes, tide_block* out);

// Takes a block back. It is used again at once for later work of its own stream, and by nobody before the
// work that tide_device_record() announced is done. A block with a NULL address is nothing.
// Errors: TIDE_ERR_HANDLE for a block that is not handed out: released before, or never given out.
TIDE_API tide_status tide_device_release(tide_device_cache* device, tide_block block);
// The same by the address alone.
TIDE_API tide_status tide_device_release_address(tide_device_cache* device, void* address);

// The block that was handed out at an address. Takes no lock.
// Errors: TIDE_ERR_HANDLE if there is none.
TIDE_API TIDE_NODISCARD tide_status tide_device_find(tide_device_cache* device, const void* address,
                                                     tide_block* out);

// The bytes of the block that is handed out at an address, as rounded; 0 if there is none, which is no error:
// to find out whose memory it is. Takes no lock.
TIDE_API size_t tide_device_bytes(tide_device_cache* device, const void* address);

// Says that work on another stream uses the block: when it is released, all work queued on that stream until
// then must be done before it is used again. The block's own stream is nothing new. The stream must live
// until then.
// Errors: TIDE_ERR_HANDLE for a block that is not handed out or a stream that is not there (cuda cannot
//         tell); TIDE_ERR_DEVICE for a stream of another device; TIDE_ERR_NO_MEMORY for the note of it.
TIDE_API TIDE_NODISCARD tide_status tide_device_record(tide_device_cache* device, tide_block block,
                                                       tide_stream stream);
// The same for a stream of the device with that index, which may be another one that has access to the
// memory.
TIDE_API TIDE_NODISCARD tide_status tide_device_record_on(tide_device_cache* device, tide_block block,
                                                          int index, tide_stream stream);

// Tells the allocator that a stream was destroyed, or will be, and gets no more work. This call is needed if
// blocks that were allocated on the stream are still handed out; release them as usual afterwards. It is
// also needed if work of the stream may still run when a new stream gets the same handle. In all other cases
// a stream may be destroyed without it. Blocks that were announced to the stream with tide_device_record()
// must be released before the stream is destroyed, with or without this call.
// A new stream with the same handle counts as another stream. Idle memory of the closed stream may stay
// unused until the allocator is trimmed, or until a request would fail without it.
// A stream that the allocator never saw is not an error.
// Errors: TIDE_ERR_ARGUMENT for a default stream, which cannot be destroyed.
TIDE_API TIDE_NODISCARD tide_status tide_device_close_stream(tide_device_cache* device, tide_stream stream);

// The cache, for use on one stream, as a source of arenas.
TIDE_API tide_memory tide_device_memory(tide_device_cache* device, tide_stream stream);

// Looks which announced work is done and makes the blocks that waited for it free. Allocating does this by
// itself. Does nothing while a scope is open, unless captures_by_stream.
TIDE_API tide_status tide_device_poll(tide_device_cache* device);

// Gives idle memory back to the machine until at most `keep_bytes` of it are left, after waiting for
// announced work; 0 gives back everything that can go. Idle is what is reserved and not handed out, in the
// default pool and in private pools without users. Other pools are not touched and do not count.
// With `keep_bytes`, the largest idle blocks go first: a whole segment at a time, or whole handles where
// memory is virtual. So it gives back less than one segment, or one handle, more than necessary. More than
// `keep_bytes` may be left: nothing of a raw segment or a handle in use can go, nor what tide_floor_bytes
// keeps.
// Errors: TIDE_ERR_CAPTURE or TIDE_ERR_MACHINE from the machine; what could not be given back stays cached.
TIDE_API tide_status tide_device_trim(tide_device_cache* device, uint64_t keep_bytes);
// Gives back all idle memory of one private pool, unless it has users. TIDE_POOL_DEFAULT: of all pools, as
// tide_device_trim() does.
// Errors: TIDE_ERR_HANDLE for a pool that is not there, and those of tide_device_trim().
TIDE_API tide_status tide_device_trim_pool(tide_device_cache* device, tide_pool pool);

// How much of the device's memory may be reserved, as a share of its total: 0 to 1, 1 is no limit.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_fraction(tide_device_cache* device, double fraction);
TIDE_API double tide_device_fraction(tide_device_cache* device);
// The same in bytes; TIDE_NO_LIMIT is none.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_limit(tide_device_cache* device, uint64_t bytes);
TIDE_API uint64_t tide_device_limit(tide_device_cache* device);

// Switches caching off or on: without it each request goes to the machine and back, uncounted. What was
// handed out in one mode may be released in the other.
TIDE_API void tide_device_set_caching(tide_device_cache* device, bool is_on);
TIDE_API bool tide_device_is_caching(const tide_device_cache* device);

// Where the segment around an address begins and how long it is. With the policy `tide`, where a block lies
// in handles of physical memory, at home or stitched: these handles, from the first to the last under the
// block, which are mapped without a gap and are what tide_device_share() shares. `out_bytes` may be NULL.
// Errors: TIDE_ERR_HANDLE for an address that is not handed out; TIDE_ERR_UNSUPPORTED for an expandable
//         segment of the policy `torch`.
TIDE_API TIDE_NODISCARD tide_status tide_device_base(tide_device_cache* device, const void* address,
                                                     void** out_base, size_t* out_bytes);

// The largest idle block, and at least `*bytes`; when that is 0, at least the free memory of the device.
TIDE_API TIDE_NODISCARD tide_status tide_device_largest(tide_device_cache* device, size_t* bytes);

// Bytes as people read them: "512 bytes", "1.50 KiB", "20.00 MiB", "139.80 GiB". Returns `text`.
#define TIDE_SIZE_TEXT 32
TIDE_API char* tide_size_text(uint64_t bytes, char text[TIDE_SIZE_TEXT]);

// ---------------------------------------------------------------------------------------------------
// Pools: memory apart from the default pool
//
// A pool is kept by its users, by an open scope, and by blocks of it that are handed out. Without all three
// it goes with the next trim. So tide_device_pool_new(), _begin(), _end(), _release() and tide_device_trim()
// leave nothing behind. A graph that uses memory of its capture later is a user: tide_device_pool_retain().
//
// A scope sends requests to a pool; while any scope of an allocator is open, the allocator behaves as inside
// a capture: it polls nothing, gives nothing back to find memory, and frees of announced blocks wait for the
// last scope to close.

typedef struct tide_pool_options {
  uint32_t size;    // set by TIDE_POOL_OPTIONS_INIT
  bool no_split;    // every block is a whole segment
  bool use_on_oom;  // requests of the default pool that found no memory may use its idle blocks
  // By which a snapshot shows the pool; { 0, 0 }: none, and then it is shown as { 0, its number }. Pools with
  // equal labels are shown as one.
  uint64_t label[2];
  // (optional) Where segments come from instead of the machine: returns memory of the device, or NULL. Called
  // with no lock held; may not call this allocator. Such a pool has no expandable segments.
  void* (*segment_alloc)(void* user, size_t bytes, int device, tide_stream stream);
  void (*segment_release)(void* user, void* address, size_t bytes, int device, tide_stream stream);
  void* user;  // borrowed until the pool is gone
  // (optional) Called once, when the pool is gone with all of its segments; as the functions above.
  void (*closed)(void* user);
} tide_pool_options;
// clang-format off
#define TIDE_POOL_OPTIONS_INIT                                                                   \
  { TIDE_FIELD(size, sizeof(tide_pool_options)), TIDE_FIELD(no_split, false),                    \
    TIDE_FIELD(use_on_oom, false), TIDE_FIELD(label, { 0, 0 }), TIDE_FIELD(segment_alloc, NULL), \
    TIDE_FIELD(segment_release, NULL), TIDE_FIELD(user, NULL), TIDE_FIELD(closed, NULL) }
// clang-format on

// Makes a pool with one user, the caller; one user more or less; and how many there are.
// Errors: TIDE_ERR_HANDLE for a pool that is not there; TIDE_ERR_STATE for one without users, and for taking
//         away the last user while a scope is open; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_new(tide_device_cache* device,
                                                         const tide_pool_options* options, tide_pool* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_retain(tide_device_cache* device, tide_pool pool);
TIDE_API tide_status tide_device_pool_drop(tide_device_cache* device, tide_pool pool);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_users(tide_device_cache* device, tide_pool pool,
                                                           uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_use_on_oom(tide_device_cache* device, tide_pool pool,
                                                                    bool is_on);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_no_split(tide_device_cache* device, tide_pool pool);
// The newest pool with a label, with users or without.
// Errors: TIDE_ERR_HANDLE if there is none; TIDE_ERR_ARGUMENT for the label { 0, 0 }, which is no label.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_find(tide_device_cache* device, const uint64_t label[2],
                                                          tide_pool* out);

// Which requests a scope takes: see tide_scope_kind in memory.h.
typedef struct tide_scope {
  uint32_t size;  // set by TIDE_SCOPE_INIT
  uint32_t kind;  // a tide_scope_kind
  tide_stream stream;
  // Called with no lock held, on the thread that makes the request. Closing the scope waits for requests that
  // are just then asking, so not with a lock held that the filter takes; inside a filter it does not wait.
  bool (*filter)(void* user, tide_stream stream);
  void* user;  // borrowed until the scope is closed
} tide_scope;
// clang-format off
#define TIDE_SCOPE_INIT                                                          \
  { TIDE_FIELD(size, sizeof(tide_scope)), TIDE_FIELD(kind, TIDE_SCOPE_THREAD),   \
    TIDE_FIELD(stream, NULL), TIDE_FIELD(filter, NULL), TIDE_FIELD(user, NULL) }
// clang-format on

// Opens a scope on a pool, NULL is TIDE_SCOPE_INIT, and closes it. The newest open scope that takes a request
// decides. An open scope keeps its pool, but is no user of it: see above.
// Errors: TIDE_ERR_STATE if the pool has an open scope already, or none to close; TIDE_ERR_LIMIT above 64
//         open scopes.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_begin(tide_device_cache* device, tide_pool pool,
                                                           const tide_scope* scope);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_end(tide_device_cache* device, tide_pool pool);

// Are exactly these addresses handed out from the pool?
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_check(tide_device_cache* device, tide_pool pool,
                                                           const void* const* addresses, size_t count,
                                                           bool* out);

// The state of a pool, to be put back later: which blocks are where and which of them are handed out. What
// the pool lent to requests of the default pool (use_on_oom) is theirs: it counts as idle.
typedef struct tide_checkpoint tide_checkpoint;  // opaque; freed by tide_checkpoint_free()

// Errors: TIDE_ERR_HANDLE; TIDE_ERR_STATE for a pool without users or with blocks that wait for work;
//         TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_checkpoint(tide_device_cache* device, tide_pool pool,
                                                           tide_checkpoint** out);
TIDE_API void tide_checkpoint_free(tide_checkpoint* checkpoint);

// What a restore did. The arrays are owned by the delta, which tide_restore_delta_clear() empties.
typedef struct tide_restore_delta {
  uint32_t size;    // set by TIDE_RESTORE_DELTA_INIT
  void** released;  // addresses that were handed out before and were taken back
  size_t released_count;
  tide_block* created;  // blocks that are handed out now, the caller's to release
  size_t created_count;
  const tide_heap* heap;  // where the arrays are, with this room
  size_t released_capacity;
  size_t created_capacity;
} tide_restore_delta;
#define TIDE_RESTORE_DELTA_INIT TIDE_SIZED(tide_restore_delta)

// Puts a pool back: everything handed out is taken back, then the blocks of the checkpoint are handed out at
// their addresses. Segments made since stay, idle. What the pool lent to requests of the default pool stays
// with them. A checkpoint may be restored any number of times.
// Errors:  as tide_device_checkpoint(), also for blocks that are announced to streams; TIDE_ERR_STATE if a
//          segment of the checkpoint is gone, or if what is lent has the place of one of its blocks; then
//          nothing has changed.
// Threads: nobody else may use the pool meanwhile.
TIDE_API TIDE_NODISCARD tide_status tide_device_restore(tide_device_cache* device,
                                                        const tide_checkpoint* checkpoint,
                                                        tide_restore_delta* out);
TIDE_API void tide_restore_delta_clear(tide_restore_delta* delta);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Every statistic that is kept for all requests, the small ones (up to 1 MiB) and the large ones.
#define TIDE_DEVICE_STAT_MAP(X)                                             \
  X(allocation)      /* blocks handed out */                                \
  X(allocated_bytes) /* their bytes */                                      \
  X(active)          /* blocks handed out, or waiting for announced work */ \
  X(active_bytes)                                                           \
  X(requested_bytes) /* what was asked for, of active blocks */             \
  X(inactive_split)  /* idle parts of segments that are in use */           \
  X(inactive_split_bytes)                                                   \
  X(segment)        /* segments, expandable ones not counted */             \
  X(reserved_bytes) /* memory taken from the machine */

// Every plain counter.
#define TIDE_DEVICE_COUNTER_MAP(X)                                                   \
  X(num_alloc_retries)    /* requests tried again after everything was given back */ \
  X(num_ooms)             /* requests that failed for want of memory */              \
  X(num_sync_all_streams) /* waits for all announced work */                         \
  X(num_device_alloc)     /* segments made, and mappings */                          \
  X(num_device_free)      /* segments given back, and unmappings */                  \
  X(num_oom_rejections)   /* requests that failed at once: see rejects_early */      \
  X(num_stream_waits)     /* waits of a stream for another whose memory it took */

typedef struct tide_device_stats {
  uint32_t size;  // set by TIDE_DEVICE_STATS_INIT
#define TIDE_STAT_FIELD(name) tide_stat name[TIDE_STAT_KINDS];
  TIDE_DEVICE_STAT_MAP(TIDE_STAT_FIELD)
#undef TIDE_STAT_FIELD
  tide_stat oversize_allocations;  // of max_split_bytes and more
  tide_stat oversize_segments;
#define TIDE_COUNTER_FIELD(name) int64_t name;
  TIDE_DEVICE_COUNTER_MAP(TIDE_COUNTER_FIELD)
#undef TIDE_COUNTER_FIELD
  uint64_t max_split_bytes;  // when the allocator was made
} tide_device_stats;
#define TIDE_DEVICE_STATS_INIT TIDE_SIZED(tide_device_stats)

// Exact; but where several threads work at once, a peak is that of their calls in groups of up to 1024, or of
// large blocks with the policy tide, of up to 4 MiB. With that policy allocated and active bytes of small
// requests are what was asked for in units of 512 bytes; what blocks have beyond that counts as idle.
TIDE_API TIDE_NODISCARD tide_status tide_device_get_stats(tide_device_cache* device, tide_device_stats* out);
// Sets `allocated`, `freed` and the counters to 0; sets `peak` to `current`.
TIDE_API void tide_device_reset_accumulated(tide_device_cache* device);
TIDE_API void tide_device_reset_peaks(tide_device_cache* device);

// Bytes a pool has from the machine.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_reserved(tide_device_cache* device, tide_pool pool,
                                                              uint64_t* out);

// Checks that everything in the allocator is as it must be. Returns 0, or the number of an invariant that
// does not hold with the details in tide_last_error(): see docs/device.md.
// Threads: no other call may be under way.
TIDE_API int tide_device_check(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// Looking inside

// Shows every segment, or those of one pool. Also puts a SNAPSHOT entry into the history. No lock is held
// while the visitor is called and none for long: while other threads work, each segment is shown as it is
// when its turn comes, in pieces of up to 256 blocks.
TIDE_API TIDE_NODISCARD tide_status tide_device_visit(tide_device_cache* device,
                                                      const tide_device_visitor* visitor);
TIDE_API TIDE_NODISCARD tide_status tide_device_visit_pool(tide_device_cache* device, tide_pool pool,
                                                           const tide_device_visitor* visitor);

// ---------------------------------------------------------------------------------------------------
// History

// Switches the history on or off, or changes it. Frames gathered are cut at 64.
// Errors: TIDE_ERR_ARGUMENT for a level without `gather` and `number`, or with both; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_history(tide_device_cache* device,
                                                        const tide_history_options* options);
TIDE_API bool tide_device_has_history(const tide_device_cache* device);

// Shows the entries that are there now, oldest first. Errors: TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_history_visit(tide_device_cache* device,
                                                              tide_history_fn function, void* user);

// Shows the stack of every block, segment and entry, in no order and most of them several times. What came to
// an entry from a block meanwhile was shown with one of them. Puts no entry into the history.
TIDE_API TIDE_NODISCARD tide_status tide_device_visit_stacks(tide_device_cache* device,
                                                             void (*function)(void* user, uint32_t stack),
                                                             void* user);

// The texts, stacks and notes that entries and blocks name.
TIDE_API tide_intern* tide_device_names(tide_device_cache* device);

// Puts a remark of the user's into the history and tells the observers of traces; nothing when there is
// neither. It is an entry USER_DEFINED, and the text is the metadata of its note, in the place of the
// thread's.
TIDE_API TIDE_NODISCARD tide_status tide_device_annotate(tide_device_cache* device, const char* text);

// Adds the history and the segments of the allocator to a trace, as those of its device, and its options as
// the trace's settings: a memory snapshot, to be written with tide_trace_write(). NULL options are the
// defaults. Several allocators can be added to one trace, each of a device of its own. The history comes
// first, so while other threads work the segments may be newer than it.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY, and then the trace has a part of it.
TIDE_API TIDE_NODISCARD tide_status tide_device_snapshot(tide_device_cache* device,
                                                         const tide_snapshot_options* options,
                                                         tide_trace* trace);

// ---------------------------------------------------------------------------------------------------
// Observers and callbacks

#define TIDE_OOM_RUNGS 8
#define TIDE_OOM_PINS 8

// A step that was tried to find memory, and how many bytes became idle or went back to the machine by it.
typedef struct tide_oom_rung {
  const char* name;
  uint64_t yielded_bytes;
} tide_oom_rung;

// Blocks that are handed out, or wait, and idle memory that they keep from being used for something larger:
// that of their segment, or with the policy `tide` of their handle.
typedef struct tide_oom_pin {
  uint64_t address;  // of the first of the blocks
  uint64_t block_count;
  uint64_t block_bytes;
  uint64_t idle_bytes;
} tide_oom_pin;

// Why a request could not be served.
typedef struct tide_oom {
  uint32_t size;
  int32_t device;
  tide_stream stream;
  uint64_t requested_bytes;
  uint64_t rounded_bytes;
  uint64_t segment_bytes;  // what was asked of the machine
  uint64_t device_free;    // 0 when the machine did not say
  uint64_t device_total;
  uint64_t limit;            // TIDE_NO_LIMIT: none
  uint64_t allocated_bytes;  // by all pools
  uint64_t reserved_bytes;
  uint64_t pending_bytes;       // waiting for announced work
  uint64_t private_idle_bytes;  // idle in private pools
  uint64_t largest_idle_bytes;  // the largest idle block of the request's stream and pool
  tide_pool pool;
  bool is_rejected;            // at once: see rejects_early
  char text[TIDE_ERROR_TEXT];  // all of this in words; also the text of tide_last_error()
  uint32_t rung_count;
  uint32_t pin_count;
  tide_oom_rung rungs[TIDE_OOM_RUNGS];  // in the order they were tried
  tide_oom_pin pins[TIDE_OOM_PINS];     // of the request's pool: those with the most idle memory, first
} tide_oom;

// The last request of the calling thread that failed for want of memory; its size is 0 if there was none.
TIDE_API const tide_oom* tide_device_last_oom(void);

// Called when a request failed for want of memory, on the thread that made it, before the call returns.
typedef void (*tide_oom_fn)(void* user, const tide_oom* oom);
// Called when no cached memory fits, before the machine is asked; returns whether it released something.
typedef bool (*tide_reclaim_fn)(void* user, tide_device_cache* device);

// Attaches; `user` is borrowed until it is detached. Errors: TIDE_ERR_LIMIT above 32 of a kind.
TIDE_API TIDE_NODISCARD tide_status tide_device_observe_oom(tide_device_cache* device, tide_oom_fn function,
                                                            void* user, tide_observer* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_observe_trace(tide_device_cache* device,
                                                              tide_trace_fn function, void* user,
                                                              tide_observer* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_observe_entries(tide_device_cache* device,
                                                                tide_entry_fn function, void* user,
                                                                tide_observer* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_observe_reclaim(tide_device_cache* device,
                                                                tide_reclaim_fn function, void* user,
                                                                tide_observer* out);
// Detaches, and waits until no other thread is inside the observer, so that its data may go afterwards. Do
// not hold a lock that the observer takes. Inside an observer, of any allocator, it does not wait: then a
// call on another thread may still be under way. Errors: TIDE_ERR_HANDLE if it is not attached.
TIDE_API tide_status tide_device_detach(tide_device_cache* device, tide_observer observer);

// ---------------------------------------------------------------------------------------------------
// Other devices and other processes

// Lets another device of the machine use the memory of this one, what comes later included.
// Errors: TIDE_ERR_DEVICE; TIDE_ERR_ACCESS where the machine does not allow it.
TIDE_API TIDE_NODISCARD tide_status tide_device_enable_peer(tide_device_cache* device, int peer);

// Memory for another process. For a raw segment all is in `raw`; an expandable one, and memory of the policy
// `tide`, goes as `part_count` parts that follow each other, each with its own size and a file descriptor to
// be sent over a Unix socket.
typedef struct tide_share {
  uint32_t size;        // set by TIDE_SHARE_INIT
  uint32_t part_count;  // 0: a raw segment
  uint64_t offset;      // of the block in what is shared
  uint64_t bytes;       // of the block
  tide_raw_share raw;
} tide_share;
#define TIDE_SHARE_INIT TIDE_SIZED(tide_share)

// Exports the memory around an address that is handed out. Writes up to `capacity` parts, whose descriptors
// are the caller's to close; `out->part_count` is how many there are. The block must stay handed out while it
// is shared. The other process gets whole segments or handles, with what else lies there. With the policy
// `tide` these lend nothing to other streams meanwhile: see docs/tide.md.
// Errors: TIDE_ERR_HANDLE; TIDE_ERR_LIMIT if there are more than `capacity` parts: then part_count says how
//         many, and none is written; TIDE_ERR_UNSUPPORTED where the machine cannot share.
TIDE_API TIDE_NODISCARD tide_status tide_device_share(tide_device_cache* device, const void* address,
                                                      tide_share* out, tide_physical_share* parts,
                                                      size_t capacity);
// Opens it in another process; the address is that of the block there. The descriptors stay the caller's. A
// raw segment that is open already is not opened again. A share is not believed: it is checked against what
// the machine says of the memory, and one that is damaged is TIDE_ERR_ARGUMENT or TIDE_ERR_STATE. Only that
// there are `part_count` parts is the caller's to know.
TIDE_API TIDE_NODISCARD tide_status tide_device_import(tide_device_cache* device, const tide_share* share,
                                                       const tide_physical_share* parts, void** out);
// Closes it, by the address that import returned; once for each import. Waits for all work of the device
// first. Parts that the machine will not take back are tried again with the next trim.
// Errors: TIDE_ERR_HANDLE for an address that was not imported; what the machine says, and then it is open.
TIDE_API tide_status tide_device_unimport(tide_device_cache* device, void* address);

// The same where only bytes can be sent. What needs descriptors is fetched from the process that offers it,
// over a socket, by processes of the same user; a thread of the allocator, which sleeps until it is asked,
// answers them. Blocks that are shared as one have equal bytes.
typedef struct tide_offer {
  unsigned char bytes[128];
} tide_offer;

// Offers the memory around an address that is handed out; the block is `*out_offset` behind where it begins.
// The block must stay handed out while it is shared.
// Errors: as tide_device_share(); TIDE_ERR_UNSUPPORTED if the system gives no socket or thread.
TIDE_API TIDE_NODISCARD tide_status tide_device_offer(tide_device_cache* device, const void* address,
                                                      tide_offer* out, uint64_t* out_offset);
// Opens it: where it begins. Ended by tide_device_unimport() with that address.
// Errors: as tide_device_import(); TIDE_ERR_ARGUMENT for bytes that are no offer; TIDE_ERR_STATE if the
//         process that offered it is gone, or does not answer; TIDE_ERR_HANDLE if the block was released.
TIDE_API TIDE_NODISCARD tide_status tide_device_accept(tide_device_cache* device, const tide_offer* offer,
                                                       void** out);

TIDE_END_DECLS
#endif
