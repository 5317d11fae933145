// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: device. The device cache, a stream-aware caching allocator for the memory of one device. Released
// memory stays in the cache and serves later requests on the same stream, without waiting for the device.
//
//   tide_device_cache* device = NULL;
//   tide_block block;
//   tide_status status = tide_device_new(machine, 0, NULL, &device);
//   if (status == TIDE_OK) status = tide_device_alloc(device, stream, 1 << 20, &block);
//   if (status == TIDE_OK) status = tide_machine_fill(machine, 0, stream, block.address, 7, 1 << 20);
//   if (status == TIDE_OK) status = tide_device_release(device, block);   // no need to wait for the fill
//   tide_device_free(device);
//
// Rules for every call:
// - Any thread may call, and several at once. A thread may release blocks that another one allocated.
// - The allocator holds no lock while it calls the machine, an observer, a filter or a callback. These may
//   call the allocator, except where a comment says otherwise.
// - A block belongs to the stream it was allocated on. If work on another stream uses the block, announce it
//   with tide_device_record(). This is not needed if, before the release, that work is done or the block's
//   own stream waits for it.
// - A stream must exist until all blocks that were allocated on it are released, unless it was closed with
//   tide_device_close_stream() or the blocks were allocated with tide_device_alloc_external(). After their
//   release the stream may be destroyed.
// - Sizes are rounded up to multiples of 512 bytes. Addresses are aligned to at least 512 bytes.
// - An allocator belongs to the process that made it, like its machine. In a child of fork(), requests and
//   other calls that change the allocator return TIDE_ERR_STATE. Releasing a block or freeing the allocator
//   does nothing there, because the memory is still the parent's. A child must not visit blocks or history.
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
  TIDE_POLICY_TORCH = 0,  // makes the same decisions as PyTorch 2.11
  TIDE_POLICY_TIDE = 1    // maps scattered idle memory together, to reserve little more than is handed out
} tide_policy;

#define TIDE_ROUNDUP_SLOTS 16

// A fraction of a device's memory, or a number of bytes, a multiple of 1 GiB: the one that is not 0. If both
// are 0, the default applies.
typedef struct tide_reserve {
  double fraction;
  uint64_t bytes;
} tide_reserve;

// Options of an allocator. Brackets hold the key of an option in text form, for tide_device_options_parse().
// Sizes are in bytes and multiples of 1 MiB.
typedef struct tide_device_options {
  uint32_t size;    // set by TIDE_DEVICE_OPTIONS_INIT
  uint32_t policy;  // a tide_policy
  // Blocks of at least this size are never split and never serve smaller requests [max_split_size_mb]; at
  // least large_segment_bytes.
  uint64_t max_split_bytes;
  // The size of segments for requests of 1 to 10 MiB [large_segment_size_mb]; above 10 MiB, up to 64 GiB.
  uint64_t large_segment_bytes;
  // A block that is not split serves a request only if the block is less than this much larger
  // [max_non_split_rounding_mb]; 0: large_segment_bytes.
  uint64_t non_split_excess_bytes;
  // Idle segments are collected by age above this fraction of the limit [garbage_collection_threshold];
  // 0: never; otherwise between 0 and 1.
  double collect_threshold;
  // The fraction of the device that may be reserved [per_process_memory_fraction]; 0 to 1; 1: no limit.
  double memory_fraction;
  // Sizes are rounded up to steps of a power of two divided by this number. Slot k is for [2^k, 2^(k+1)) MiB;
  // the first and the last slot also cover smaller and larger sizes [roundup_power2_divisions]. 0 or 1: no
  // rounding; otherwise a power of two.
  uint32_t roundup_divisions[TIDE_ROUNDUP_SLOTS];
  bool expandable_segments;  // segments grow by mapping virtual memory [expandable_segments]
  // Inside a capture, reuse blocks that its graph proves to be free [graph_capture_record_stream_reuse].
  bool is_capture_reuse;
  // Accepted and reported, without effect: no lock is held during machine calls [release_lock_on_cudamalloc].
  bool releases_lock;
  // Corrects decisions of `torch` that waste memory. The cache is searched again after every step that may
  // free some. The allocator waits for announced work block by block, and collects from all pools [fixes].
  bool fixes;
  // Checks all invariants after every allocation, release and record. Slow; for debugging single-threaded
  // programs [audits].
  bool has_audits;
  // Options of the pinned cache; the device allocator only reports them.
  bool pinned_uses_register;         // [pinned_use_cuda_host_register]
  bool pinned_uses_threads;          // [pinned_use_background_threads]
  uint32_t pinned_register_threads;  // a power of two up to 128 [pinned_num_register_threads]
  uint64_t pinned_reserve_bytes;     // [pinned_reserve_segment_size_mb]
  const tide_heap* heap;             // for records; borrowed until the allocator is freed; NULL: malloc
  // Behaviour that PyTorch added after 2.11, each option off by default.
  // Among blocks of equal size, takes the one of the oldest segment instead of the one with the lowest
  // address, so that no decision depends on addresses. Fixed when the allocator is made [ties_by_age].
  bool ties_by_age;
  // A request that would reserve more than memory_fraction of the device fails at once, before the allocator
  // gives memory back for it. It is counted in num_oom_rejections [throw_on_cudamalloc_oom].
  bool rejects_early;
  // The allocator behaves as inside a capture only while the stream of a request is captured, not while any
  // scope is open that is not a region. So an open scope alone does not keep it from giving memory back
  // [captures_by_stream].
  bool captures_by_stream;
  // The addresses that an expandable segment reserves [expandable_segments_reserve]; default and maximum: 9/8
  // of the device's memory.
  tide_reserve address_reserve;
  // Options of the policy `tide` (docs/tide.md). Of the options above, it uses memory_fraction,
  // is_capture_reuse, has_audits, captures_by_stream, address_reserve and, above 512 KiB, roundup_divisions.
  // How much may be reserved above the peak use before idle memory is stitched, as a fraction of the peak; up
  // to ten times as much while the peak grows steadily [tide_slack]; 0 to 1.
  double tide_slack;
  // The sizes of the smallest and of the largest handle of physical memory; multiples of 2 MiB. If sizes
  // never repeat, handles may be larger: see tide_most_slack.
  uint64_t tide_least_handle_bytes;  // [tide_least_handle_mb]
  uint64_t tide_most_handle_bytes;   // [tide_most_handle_mb]
  // The fraction of the time that stitching may take, in bursts of up to 20 s times this fraction. Beyond it,
  // tide_most_slack applies [tide_stitch_share]; 0 to 1; 1: no limit.
  double tide_stitch_share;
  uint64_t tide_floor_bytes;  // this much stays reserved when idle memory is given back [tide_floor_mb]
  // How many handles of the smallest size may be idle for each stream, at most 16 streams counted, before
  // streams share memory. If the slack is larger, it applies instead [tide_idle_handles]; up to 65536.
  uint32_t tide_idle_handles;
  // How much more than tide_slack may be reserved, as a fraction of the peak, before a stream waits for work
  // of another that has not passed [tide_wait_slack]; 0 to 1; 0: streams wait as soon as that saves memory.
  double tide_wait_slack;
  // Virtual memory, under both policies (docs/tide.md).
  // Where virtual memory does not work, the policy `torch` with `fixes` replaces `tide`, and expandable
  // segments are off; see tide_device_fallback_reason(). Otherwise that is an error [virtual_fallback].
  bool virtual_fallback;
  // Private pools that are made from now on have raw segments, as with is_plain of the pool [plain_pools].
  bool plain_pools;
  // Makes physical memory with TIDE_PHYSICAL_RDMA, or TIDE_PHYSICAL_FABRIC, where a probe says that it works.
  bool rdma_handles;    // [rdma_handles]
  bool fabric_handles;  // [fabric_handles]
  // Large pinned memory is registered pages where sizes need not be those of PyTorch. Otherwise it comes from
  // the machine; pinned_uses_register takes precedence. See uses_machine in pinned.h [pinned_pages].
  bool pinned_pages;
  // How much may be reserved above the peak use, as a fraction of the peak, once stitching has taken its
  // share of the time. If it takes half of the time even so, more is reserved [tide_most_slack]; 0 to 1.
  // A value of at most tide_slack removes the limit on the time of stitching.
  double tide_most_slack;
  // Options of the pinned cache, like those above: max_round_bytes and max_block_bytes of pinned.h, in whole
  // MiB. TIDE_NO_LIMIT: no limit.
  uint64_t pinned_round_bytes;  // [pinned_max_round_threshold_mb]
  uint64_t pinned_block_bytes;  // [pinned_max_cached_size_mb]
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
    TIDE_FIELD(tide_floor_bytes, 0), TIDE_FIELD(tide_idle_handles, 4),                               \
    TIDE_FIELD(tide_wait_slack, 0.005),                                                             \
    TIDE_FIELD(virtual_fallback, true), TIDE_FIELD(plain_pools, false),                              \
    TIDE_FIELD(rdma_handles, true), TIDE_FIELD(fabric_handles, true),                                \
    TIDE_FIELD(pinned_pages, true), TIDE_FIELD(tide_most_slack, 0.15),                                 \
    TIDE_FIELD(pinned_round_bytes, TIDE_NO_LIMIT), TIDE_FIELD(pinned_block_bytes, TIDE_NO_LIMIT) }
// clang-format on

// Reads a text in PyTorch's grammar, "key:value,key:value", into options. It knows all keys of PyTorch up to
// 2.15; those that mean nothing here have no effect. "=" may stand for the ":" after a key, and "[k:v,k:v]"
// is a list. Like PyTorch, it first resets max_split_bytes, collect_threshold,
// roundup_divisions and non_split_excess_bytes to their defaults; other options that the text does not name
// keep their values. Unlike PyTorch, it rejects wrong separators and trailing characters after a number.
// Errors: TIDE_ERR_ARGUMENT, with the key and the expected value in the error text; the options are
//         unchanged.
TIDE_API TIDE_NODISCARD tide_status tide_device_options_parse(const char* text, tide_device_options* options);
// Parses the first of the environment variables PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF and TIDEMARK_CONF
// that is set. If none is set, the options stay as they are.
TIDE_API TIDE_NODISCARD tide_status tide_device_options_from_env(tide_device_options* options);
// Writes the text that turns the defaults into these options. Returns its length, like snprintf().
TIDE_API size_t tide_device_options_print(const tide_device_options* options, char* text, size_t capacity);

// ---------------------------------------------------------------------------------------------------
// Allocators

// Makes an allocator for a device of a machine. NULL options mean the defaults. Several allocators may share
// a device. `machine` is borrowed until the allocator is freed. The policy `tide` and expandable segments
// need virtual memory, which a probe tries first (tide_machine_probe()). Where it does not work, the options
// fall back: see virtual_fallback.
// Errors: TIDE_ERR_DEVICE, TIDE_ERR_ARGUMENT for options out of range, TIDE_ERR_UNSUPPORTED where virtual
//         memory is needed, does not work, and virtual_fallback is off; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_new(tide_machine* machine, int index,
                                                    const tide_device_options* options,
                                                    tide_device_cache** out);

// Frees the allocator. First waits for all work of the device, and of other devices whose streams were
// announced. Then gives all memory back to the machine, including blocks that are still handed out. If the
// machine refuses to wait (a stream of the device is being captured, or the machine has failed), work may
// still use the memory. Then all of it stays with the machine, which frees it when the machine (host, dry) or
// the process (cuda) ends. In this case functions of pools are not called, and tide_last_error() says how
// many bytes were left. NULL is a no-op. Observers that are still attached hear of the end of all memory that
// goes back.
// Threads: no other call may be in progress or follow.
TIDE_API void tide_device_free(tide_device_cache* device);

TIDE_API tide_machine* tide_device_machine(const tide_device_cache* device);
TIDE_API int tide_device_index(const tide_device_cache* device);
// The name of the policy in force: "torch" or "tide"; "" for NULL. The string is static.
TIDE_API const char* tide_device_name(const tide_device_cache* device);
// Why the options in force are not those that were asked for: one sentence that names the failed call and the
// machine's error. "" if they are. tide_device_get_options() shows what is in force. The reason may also come
// with the first request: if the probe succeeded, and then the first use of virtual memory fails with an
// error of the machine, the policy `tide` falls back too. The string lives as long as the allocator.
TIDE_API const char* tide_device_fallback_reason(const tide_device_cache* device);
// The flags with which the allocator makes physical memory: TIDE_PHYSICAL_SHAREABLE, TIDE_PHYSICAL_RDMA and
// TIDE_PHYSICAL_FABRIC, as far as a probe says that they work and the options allow them. 0 if it uses no
// virtual memory.
TIDE_API uint32_t tide_device_physical_flags(tide_device_cache* device);

// Registers an allocator as the default one for a device index, for programs with one allocator per device.
// NULL removes the entry, and so does freeing the allocator. tide_device_default() returns NULL if there is
// none.
// Errors: TIDE_ERR_DEVICE for an index outside 0 to TIDE_DEVICE_MAX - 1.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_default(int index, tide_device_cache* device);
TIDE_API tide_device_cache* tide_device_default(int index);

// Changes the options of an allocator, and reads those in force. `heap`, `policy`, `ties_by_age` and
// `memory_fraction` only have an effect when an allocator is made; tide_device_configure() ignores them. An
// allocator that fell back to the policy `torch` keeps `fixes`.
TIDE_API TIDE_NODISCARD tide_status tide_device_configure(tide_device_cache* device,
                                                          const tide_device_options* options);
TIDE_API void tide_device_get_options(tide_device_cache* device, tide_device_options* out);

// ---------------------------------------------------------------------------------------------------
// Memory

// Allocates at least `bytes` for use on `stream`. For 0 bytes, returns a block with a NULL address, which
// need not be released.
// Errors:  TIDE_ERR_NO_MEMORY when no step of recovery found memory: see tide_device_last_oom();
//          TIDE_ERR_ARGUMENT for 2^60 bytes and more; TIDE_ERR_MACHINE or TIDE_ERR_CAPTURE from the machine.
//          The allocator remains usable after any error.
// Cost:    if a cached block fits, O(1) below 2 MiB and O(log n) above, with n idle blocks; otherwise machine
//          calls.
TIDE_API TIDE_NODISCARD tide_status tide_device_alloc(tide_device_cache* device, tide_stream stream,
                                                      size_t bytes, tide_block* out);

// Does the same on a stream that may be destroyed at any time after this call, without notice: one that
// belongs to another library. The stream must exist during the call. The allocator calls it only then, and at
// a release where tide_device_record() announced it.
// With the policy `tide`, released memory serves the same stream at once. It serves others when all work that
// was queued on the device until then has passed, and they never wait for it. A new stream with the handle of
// one that is gone is recognised if the machine numbers its streams: see tide_machine_stream_info(). Where
// the machine lacks event_record_all, or captures are open, memory may lie idle until a request would fail
// without it, or until the allocator is trimmed: then the host waits for the device.
// With the policy `torch`, in private pools, and on a default stream, memory is used as that of
// tide_device_alloc(): a stream is known by its handle.
// Errors: also TIDE_ERR_HANDLE for a stream that does not exist (cuda cannot tell).
TIDE_API TIDE_NODISCARD tide_status tide_device_alloc_external(tide_device_cache* device, tide_stream stream,
                                                               size_t bytes, tide_block* out);

// The same as tide_device_alloc() at an address, a multiple of 512, if that is idle in the cache of this
// stream and pool. For PyTorch's allocateWithAddress(). The policy `tide` finds memory at home only, not in
// views.
// Errors: TIDE_ERR_NO_MEMORY if it is not idle; TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_device_alloc_at(tide_device_cache* device, tide_stream stream,
                                                         size_t bytes, void* address, tide_block* out);

// Releases a block. Later requests on its own stream may use the memory at once. If tide_device_record()
// announced work on other streams, the block is not used again before that work is done. Releasing a block
// with a NULL address is a no-op.
// Errors: TIDE_ERR_HANDLE for a block that is not handed out: already released, or never allocated.
TIDE_API tide_status tide_device_release(tide_device_cache* device, tide_block block);
// Releases the block at an address.
TIDE_API tide_status tide_device_release_address(tide_device_cache* device, void* address);

// Finds the block that is handed out at an address. Takes no lock.
// Errors: TIDE_ERR_HANDLE if there is none.
TIDE_API TIDE_NODISCARD tide_status tide_device_find(tide_device_cache* device, const void* address,
                                                     tide_block* out);

// The rounded size of the block that is handed out at an address; 0 if there is none, without an error. Use
// it to ask whether an address belongs to this allocator. Takes no lock.
TIDE_API size_t tide_device_bytes(tide_device_cache* device, const void* address);

// The stack that the history gathered for the block that is handed out at an address; 0 if there is no such
// block or no stack. Takes no lock.
TIDE_API uint32_t tide_device_stack(tide_device_cache* device, const void* address);

// Announces that work on another stream uses the block. When the block is released, it waits for all work
// queued on that stream until then before it is used again. The stream must exist until the release.
// Recording the block's own stream has no effect.
// Errors: TIDE_ERR_HANDLE for a block that is not handed out or a stream that does not exist (cuda cannot
//         tell); TIDE_ERR_DEVICE for a stream of another device; TIDE_ERR_NO_MEMORY for the record of it.
TIDE_API TIDE_NODISCARD tide_status tide_device_record(tide_device_cache* device, tide_block block,
                                                       tide_stream stream);
// Records a stream of the device with that index, which may be another device with access to the memory.
TIDE_API TIDE_NODISCARD tide_status tide_device_record_on(tide_device_cache* device, tide_block block,
                                                          int index, tide_stream stream);

// Tells the allocator that a stream was destroyed, or will be, and gets no more work. This call is needed if
// blocks that were allocated on the stream are still handed out; release them as usual afterwards. It is
// also needed if work of the stream may still run when a new stream gets the same handle. Otherwise a stream
// may be destroyed without it. Blocks that were announced to the stream with tide_device_record() must be
// released before the stream is destroyed, with or without this call.
// A new stream with the same handle counts as another stream. Idle memory of the closed stream may stay
// unused until the allocator is trimmed, or until a request would fail without it.
// A stream that the allocator never saw is not an error.
// Errors: TIDE_ERR_ARGUMENT for a default stream, which cannot be destroyed.
TIDE_API TIDE_NODISCARD tide_status tide_device_close_stream(tide_device_cache* device, tide_stream stream);

// The allocator as a source of memory for arenas, on one stream.
TIDE_API tide_memory tide_device_memory(tide_device_cache* device, tide_stream stream);

// Checks which announced work is done, and frees the blocks that waited for it. Allocating polls by itself.
// Does nothing while a scope is open that is not a region, unless captures_by_stream is on.
TIDE_API tide_status tide_device_poll(tide_device_cache* device);

// Gives idle memory back to the machine until at most `keep_bytes` of it are left, after waiting for
// announced work; 0 gives back everything that can go. Idle is what is reserved and not handed out, in the
// default pool, in private pools without users, and in pools with a tag that no capture has used. Other pools
// are not touched and do not count.
// With `keep_bytes`, the largest idle blocks go first: a whole segment at a time, or whole handles where
// memory is virtual. So it gives back less than one segment, or one handle, more than necessary. More than
// `keep_bytes` may be left: a raw segment or handle that is partly in use cannot be given back, and
// tide_floor_bytes stay reserved.
// Errors: TIDE_ERR_CAPTURE or TIDE_ERR_MACHINE from the machine; what could not be given back stays cached.
TIDE_API tide_status tide_device_trim(tide_device_cache* device, uint64_t keep_bytes);
// Gives back all idle memory of one private pool, unless it has users, and no tag or a capture has used it.
// TIDE_POOL_DEFAULT: of all pools, as tide_device_trim() does.
// Errors: TIDE_ERR_HANDLE for a pool that does not exist, and those of tide_device_trim().
TIDE_API tide_status tide_device_trim_pool(tide_device_cache* device, tide_pool pool);

// Reserves so many bytes more and leaves them idle, so that requests on the stream need not wait for the
// machine. They are for large blocks of the default pool: those above 512 KiB with the policy `tide`, and
// above 1 MiB with `torch`. It costs what the machine takes for new memory, and is best called when a program
// begins, in a thread of its own. What is reserved is idle memory like any other: it goes at a trim, except
// for tide_floor_bytes, and when memory is short. No peak of what is in use rises.
//
// With `tide`, it is made in handles of one size: the square root of `bytes` times 8 KiB, rounded up to the
// smallest handle, as far as the options allow. `bytes` are rounded up to the smallest handle, too. All of it
// lies in one piece, if nobody takes of it meanwhile, and serves requests of other streams as well.
// With `torch`, it is what a request of `bytes` and its release leave, if no idle block is large enough: one
// segment, with the bytes rounded up to 2 MiB. An expandable segment grows until its end has so many idle
// bytes. With max_split_bytes, a segment of that size serves requests of that size alone.
//
// Threads: all other calls may be made meanwhile. With `tide` the memory is made a few handles at a time, and
// requests that need new memory too come first; with `torch` they wait until the segment is there.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_STATE after a fork; TIDE_ERR_NO_MEMORY where the limit, budgets of
//         tags, a ledger or the device allow no more: then nobody is asked to give memory; TIDE_ERR_CAPTURE
//         or TIDE_ERR_MACHINE from the machine. What was reserved until then stays, and the text of the
//         error says how much it is.
TIDE_API TIDE_NODISCARD tide_status tide_device_reserve(tide_device_cache* device, tide_stream stream,
                                                        uint64_t bytes);

// How much of the device's memory may be reserved, as a fraction of its total: 0 to 1; 1 means no limit.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_fraction(tide_device_cache* device, double fraction);
TIDE_API double tide_device_fraction(tide_device_cache* device);
// The same limit in bytes; TIDE_NO_LIMIT means none.
TIDE_API TIDE_NODISCARD tide_status tide_device_set_limit(tide_device_cache* device, uint64_t bytes);
TIDE_API uint64_t tide_device_limit(tide_device_cache* device);

// Turns caching off or on. Without caching, each request and each release goes to the machine and is not
// counted. Blocks allocated in one mode may be released in the other.
TIDE_API void tide_device_set_caching(tide_device_cache* device, bool is_on);
TIDE_API bool tide_device_is_caching(const tide_device_cache* device);

// The start and the size of the segment around an address. With the policy `tide`, a block lies in one or
// more handles of physical memory, mapped without a gap. The result is then the range of these handles, which
// is also what tide_device_share() shares. `out_bytes` may be NULL.
// Errors: TIDE_ERR_HANDLE for an address that is not handed out; TIDE_ERR_UNSUPPORTED for an expandable
//         segment of the policy `torch`.
TIDE_API TIDE_NODISCARD tide_status tide_device_base(tide_device_cache* device, const void* address,
                                                     void** out_base, size_t* out_bytes);

// Sets `*bytes` to the size of the largest idle block, if that is larger. If `*bytes` is 0, it starts from
// the free memory of the device.
TIDE_API TIDE_NODISCARD tide_status tide_device_largest(tide_device_cache* device, size_t* bytes);

// Formats a size for people: "512 bytes", "1.50 KiB", "20.00 MiB", "139.80 GiB". Returns `text`.
#define TIDE_SIZE_TEXT 32
TIDE_API char* tide_size_text(uint64_t bytes, char text[TIDE_SIZE_TEXT]);

// ---------------------------------------------------------------------------------------------------
// Pools: memory apart from the default pool
//
// A pool exists while it has a user, an open scope, or blocks that are handed out. When it has none of
// these, the next trim removes it. So tide_device_pool_new(), _begin(), _end(), _drop() and
// tide_device_trim() leave nothing behind. A graph that will use memory of its capture is a user: call
// tide_device_pool_retain(). With the policy tide, a pool gives its idle memory back when its last user goes:
// unless a scope is open that is not a region, tide_device_pool_drop() waits for the work that may use it.
//
// A scope sends requests to a pool. While any scope of an allocator is open that is not a region, the
// allocator behaves as inside a capture: it does not poll, does not give memory back to find some, and
// released blocks with announced work wait until the last such scope is closed. There is one exception: with
// the policy tide, idle memory of the default pool makes way for a private pool that grows, unless the stream
// of the request is captured or such a scope is open on another pool.

// Where the contents of a pool go when it is parked: see tide_device_park().
typedef enum tide_backup {
  TIDE_BACKUP_NONE = 0,      // nowhere: after unparking, the contents are undefined
  TIDE_BACKUP_PINNED = 1,    // page-locked host memory, the fastest; pageable where it cannot be locked
  TIDE_BACKUP_PAGEABLE = 2,  // ordinary host memory
  TIDE_BACKUP_FILE = 3,      // a file without a name
  TIDE_BACKUP_OF_POOL = 4    // for tide_device_park(): what the options of each pool say
} tide_backup;

typedef struct tide_pool_options {
  uint32_t size;    // set by TIDE_POOL_OPTIONS_INIT
  bool no_split;    // every block is a whole segment
  bool use_on_oom;  // requests of the default pool that found no memory may use its idle blocks
  // The pool's name in a snapshot. { 0, 0 } means none; such a pool is shown as { 0, its number }. Pools with
  // equal labels are shown as one.
  uint64_t label[2];
  // (optional) Allocates segments instead of the machine: returns memory of the device, or NULL. Called with
  // no lock held; must not call this allocator. Such a pool has no expandable segments.
  void* (*segment_alloc)(void* user, size_t bytes, int device, tide_stream stream);
  void (*segment_release)(void* user, void* address, size_t bytes, int device, tide_stream stream);
  void* user;  // borrowed until the pool is gone
  // (optional) Called once, after the pool and all of its segments are gone, like the functions above.
  void (*closed)(void* user);
  // The pool has raw segments, placed by the policy `torch`, whatever the policy of the allocator. Memory of
  // such segments can be shared by cudaIpcGetMemHandle(). See also plain_pools in the device's options.
  bool is_plain;
  const char* tag;  // its tag, copied; NULL: none. See tide_device_pool_set_tag()
  uint32_t backup;  // a tide_backup: where its contents go when it is parked
} tide_pool_options;
// clang-format off
#define TIDE_POOL_OPTIONS_INIT                                                                   \
  { TIDE_FIELD(size, sizeof(tide_pool_options)), TIDE_FIELD(no_split, false),                    \
    TIDE_FIELD(use_on_oom, false), TIDE_FIELD(label, { 0, 0 }), TIDE_FIELD(segment_alloc, NULL), \
    TIDE_FIELD(segment_release, NULL), TIDE_FIELD(user, NULL), TIDE_FIELD(closed, NULL),         \
    TIDE_FIELD(is_plain, false), TIDE_FIELD(tag, NULL), TIDE_FIELD(backup, TIDE_BACKUP_PINNED) }
// clang-format on

// tide_device_pool_new() makes a pool with one user, the caller. The others add a user, remove one, and count
// them.
// Errors: TIDE_ERR_HANDLE for a pool that does not exist; TIDE_ERR_STATE for one without users, and for
//         removing the last user while a scope is open; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_new(tide_device_cache* device,
                                                         const tide_pool_options* options, tide_pool* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_retain(tide_device_cache* device, tide_pool pool);
TIDE_API tide_status tide_device_pool_drop(tide_device_cache* device, tide_pool pool);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_users(tide_device_cache* device, tide_pool pool,
                                                           uint32_t* out);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_use_on_oom(tide_device_cache* device, tide_pool pool,
                                                                    bool is_on);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_no_split(tide_device_cache* device, tide_pool pool);
// Where its contents go when it is parked the next time.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_backup(tide_device_cache* device, tide_pool pool,
                                                                tide_backup backup);
// Finds the newest pool with a label, with or without users.
// Errors: TIDE_ERR_HANDLE if there is no such pool; TIDE_ERR_ARGUMENT for { 0, 0 }, which is not a label.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_find(tide_device_cache* device, const uint64_t label[2],
                                                          tide_pool* out);

// Which requests go to the pool of a scope: see tide_scope_kind in memory.h.
typedef struct tide_scope {
  uint32_t size;  // set by TIDE_SCOPE_INIT
  uint32_t kind;  // a tide_scope_kind
  tide_stream stream;
  // Called with no lock held, on the thread that makes the request. Closing the scope waits until no other
  // thread is inside the filter, so do not hold a lock that the filter takes. Inside a filter it does not
  // wait.
  bool (*filter)(void* user, tide_stream stream);
  void* user;  // borrowed until the scope is closed
  // Requests are served as those of the default pool are: this scope does not make the allocator behave as
  // inside a capture. For scopes that are open for long, such as while a model is loaded.
  bool is_region;
} tide_scope;
// clang-format off
#define TIDE_SCOPE_INIT                                                          \
  { TIDE_FIELD(size, sizeof(tide_scope)), TIDE_FIELD(kind, TIDE_SCOPE_THREAD),   \
    TIDE_FIELD(stream, NULL), TIDE_FIELD(filter, NULL), TIDE_FIELD(user, NULL),  \
    TIDE_FIELD(is_region, false) }
// clang-format on

// Opens and closes a scope on a pool. NULL means TIDE_SCOPE_INIT. A request goes to the newest open scope
// that accepts it. An open scope keeps its pool alive but does not count as a user: see above.
// Errors: TIDE_ERR_STATE if the pool already has an open scope, or has none to close; TIDE_ERR_LIMIT above 64
//         open scopes.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_begin(tide_device_cache* device, tide_pool pool,
                                                           const tide_scope* scope);
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_end(tide_device_cache* device, tide_pool pool);

// Tells whether exactly these addresses are handed out from the pool.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_check(tide_device_cache* device, tide_pool pool,
                                                           const void* const* addresses, size_t count,
                                                           bool* out);

// The state of a pool, to be restored later: where its blocks are, and which of them are handed out. Memory
// that the pool lent to requests of the default pool (use_on_oom) belongs to them and counts as idle.
typedef struct tide_checkpoint tide_checkpoint;  // opaque; freed by tide_checkpoint_free()

// Errors: TIDE_ERR_HANDLE; TIDE_ERR_STATE for a pool without users or with blocks that wait for work;
//         TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_checkpoint(tide_device_cache* device, tide_pool pool,
                                                           tide_checkpoint** out);
TIDE_API void tide_checkpoint_free(tide_checkpoint* checkpoint);

// What a restore did. The delta owns the arrays; tide_restore_delta_clear() frees them.
typedef struct tide_restore_delta {
  uint32_t size;    // set by TIDE_RESTORE_DELTA_INIT
  void** released;  // addresses that were handed out before the restore and were taken back
  size_t released_count;
  tide_block* created;  // blocks that are handed out now; the caller releases them
  size_t created_count;
  const tide_heap* heap;  // the heap of the arrays, and their capacities
  size_t released_capacity;
  size_t created_capacity;
} tide_restore_delta;
#define TIDE_RESTORE_DELTA_INIT TIDE_SIZED(tide_restore_delta)

// Restores a pool: takes back everything that is handed out, then hands out the blocks of the checkpoint at
// their addresses. Segments made since the checkpoint stay and are idle. Memory that the pool lent to
// requests of the default pool stays with them. A checkpoint may be restored any number of times.
// Errors:  as tide_device_checkpoint(), also for blocks with announced work; TIDE_ERR_STATE if a segment of
//          the checkpoint is gone, or if lent memory is in the place of one of its blocks. After an error
//          nothing has changed.
// Threads: no other thread may use the pool meanwhile.
TIDE_API TIDE_NODISCARD tide_status tide_device_restore(tide_device_cache* device,
                                                        const tide_checkpoint* checkpoint,
                                                        tide_restore_delta* out);
TIDE_API void tide_restore_delta_clear(tide_restore_delta* delta);

// ---------------------------------------------------------------------------------------------------
// Tags and parking (docs/park.md)
//
// A tag is the name of one or more private pools. Names are paths: "weights" in a call means the pools with
// this tag and with tags below it, such as "weights/actor". NULL means all pools that have a tag.
//
// Parking gives the physical memory of a tag back to the machine and keeps its addresses. So pointers and
// captured graphs are valid again when the tag is unparked. The contents of blocks that are handed out are
// copied to a backup, unless they are to be discarded. Idle memory is never copied. Parked memory does not
// count as reserved. Its blocks may be released. Work that uses them before they are unparked is an error of
// the program.
//
// Only the policy `tide` can park, in pools that it serves: not in plain pools, those without splits, and
// those with functions of their own.

#define TIDE_TAG_MOST 255  // bytes of a tag

// Gives a pool a tag, or another one; NULL takes it away. A tag consists of parts between "/", none of them
// empty, without control characters.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE; TIDE_ERR_STATE while the pool is parked; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_set_tag(tide_device_cache* device, tide_pool pool,
                                                             const char* tag);
// The newest pool with exactly this tag that has users.
// Errors: TIDE_ERR_HANDLE if there is none.
TIDE_API TIDE_NODISCARD tide_status tide_device_tag_find(tide_device_cache* device, const char* tag,
                                                         tide_pool* out);

typedef struct tide_tag_stats {
  uint32_t size;  // set by TIDE_TAG_STATS_INIT
  uint32_t pool_count;
  uint32_t parked_pool_count;
  uint64_t allocation_count;  // blocks that are handed out, parked or not
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;  // without parked memory
  uint64_t parked_bytes;    // physical memory that was given back and comes back when the tag is unparked
  uint64_t backup_bytes;    // of backups, in host memory or files, in use or kept
} tide_tag_stats;
#define TIDE_TAG_STATS_INIT TIDE_SIZED(tide_tag_stats)

// What the pools of a tag hold together.
// Errors: TIDE_ERR_HANDLE if there is no such pool.
TIDE_API TIDE_NODISCARD tide_status tide_device_tag_stats(tide_device_cache* device, const char* tag,
                                                          tide_tag_stats* out);
// Visits all tags that pools have, each once, sorted. The visitor returns false to end the visit.
TIDE_API TIDE_NODISCARD tide_status tide_device_visit_tags(tide_device_cache* device,
                                                           bool (*function)(void* user, const char* tag),
                                                           void* user);

typedef struct tide_park_options {
  uint32_t size;    // set by TIDE_PARK_OPTIONS_INIT
  uint32_t backup;  // a tide_backup
  // What a request in a parked pool does: unpark the pool first, or fail with TIDE_ERR_STATE. Inside a
  // capture it fails in any case, with TIDE_ERR_CAPTURE.
  bool unparks_on_request;
  const char* folder;  // for a file; copied; NULL: $TMPDIR, or else /tmp
} tide_park_options;
// clang-format off
#define TIDE_PARK_OPTIONS_INIT                                                                      \
  { TIDE_FIELD(size, sizeof(tide_park_options)), TIDE_FIELD(backup, TIDE_BACKUP_OF_POOL), \
    TIDE_FIELD(unparks_on_request, true), TIDE_FIELD(folder, NULL) }
// clang-format on

// What parking or unparking did.
typedef struct tide_park_result {
  uint32_t size;            // set by TIDE_PARK_RESULT_INIT
  uint32_t pool_count;      // pools that changed
  uint64_t physical_bytes;  // given back to the machine, or taken from it
  uint64_t block_bytes;     // of the blocks that are handed out in them
  uint64_t copied_bytes;    // over the bus: block_bytes, and gaps below 64 KiB between blocks
  uint64_t lost_bytes;      // of blocks whose backup could not be read
  uint32_t backup;          // a tide_backup: where contents are, or were; pageable if memory cannot be locked
} tide_park_result;
#define TIDE_PARK_RESULT_INIT TIDE_SIZED(tide_park_result)

// Parks all pools of a tag that are not parked. NULL options mean the defaults; `out` may be NULL.
// The copies and the release of memory are queued behind all work that was queued on the device before. The
// call returns when the memory was given back. Wholly idle memory of a pool goes back, too, and does not
// return when the pool is unparked, unless a capture has used the pool.
// Errors: TIDE_ERR_HANDLE if no pool has the tag; TIDE_ERR_UNSUPPORTED for a pool that cannot be parked;
//         TIDE_ERR_STATE for memory that is shared with other processes or lent to the default pool
//         (use_on_oom), while a scope of one of the pools is open that is not a region, and inside an
//         observer that hears of the parking of the same pool; TIDE_ERR_CAPTURE while a scope is open that
//         is not a region, or a stream is captured that uses the allocator's memory; TIDE_ERR_NO_MEMORY for
//         the backup; TIDE_ERR_MACHINE.
//         After an error everything is as it was; only idle memory may have gone, and contents that were to
//         be discarded. If memory had gone that cannot be taken again, the pools stay parked with their
//         backup, and the error says so: nothing is lost.
TIDE_API TIDE_NODISCARD tide_status tide_device_park(tide_device_cache* device, const char* tag,
                                                     const tide_park_options* options, tide_park_result* out);

typedef struct tide_unpark_options {
  uint32_t size;  // set by TIDE_UNPARK_OPTIONS_INIT
  bool waits;     // the call returns only when the contents are back
  // The backup stays, with what it has, so that the next parking of the same tag is faster: see
  // tide_device_trim_backups() and tide_device_read_parked().
  bool keeps_backup;
  // Streams that use the memory and on which no block of the allocator is handed out. Those on which one is,
  // those announced for one by tide_device_record(), and the default stream always wait for the contents.
  // Others may be destroyed, and are not called; each waits at its next request. The same holds for closed
  // and external streams. Borrowed during the call.
  const tide_stream* streams;
  size_t stream_count;
  // (optional) Called for each block that is handed out and whose contents are lost, because its backup could
  // not be read.
  void (*lost)(void* user, uint64_t address, uint64_t bytes);
  void* user;
} tide_unpark_options;
// clang-format off
#define TIDE_UNPARK_OPTIONS_INIT                                                          \
  { TIDE_FIELD(size, sizeof(tide_unpark_options)), TIDE_FIELD(waits, false),              \
    TIDE_FIELD(keeps_backup, false), TIDE_FIELD(streams, NULL),                           \
    TIDE_FIELD(stream_count, 0), TIDE_FIELD(lost, NULL), TIDE_FIELD(user, NULL) }
// clang-format on

// Unparks all parked pools of a tag: takes memory from the machine, maps it where it was, and copies the
// contents back. With a pinned backup, the streams wait for the copies on the device, and the host does not
// wait unless `waits`. Idle memory of other pools goes back first where the device or the limit requires it.
// A tag without a parked pool is not an error.
// Errors: TIDE_ERR_HANDLE if no pool has the tag; TIDE_ERR_NO_MEMORY; TIDE_ERR_CAPTURE and TIDE_ERR_STATE as
//         for tide_device_park(); TIDE_ERR_MACHINE. After an error the pools are parked as before. If only a
//         backup could not be read, the result is TIDE_OK with `lost_bytes`.
TIDE_API TIDE_NODISCARD tide_status tide_device_unpark(tide_device_cache* device, const char* tag,
                                                       const tide_unpark_options* options,
                                                       tide_park_result* out);

// Makes the backup for a tag ahead, in another thread, as large as what is handed out there now. The next
// tide_device_park() with the same tag and kind of backup uses it, and waits for it if it is not ready.
// Errors: TIDE_ERR_HANDLE; TIDE_ERR_ARGUMENT for TIDE_BACKUP_NONE; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_prepare_backup(tide_device_cache* device, const char* tag,
                                                               const tide_park_options* options);
// Gives back the backups of a tag that hold nothing: those that were kept, or made ahead.
TIDE_API tide_status tide_device_trim_backups(tide_device_cache* device, const char* tag);

// Copies contents of a block that is handed out from its backup to host memory: those that it had when its
// pool was parked. The pool is parked, or its backup was kept. If the backup is in host memory, *out_data is
// its address there, valid until the pool is unparked, or the backup used again or trimmed; else it is NULL.
// `destination` and `out_data` may be NULL. Reading 0 bytes is a no-op, whatever the addresses are.
// Errors: TIDE_ERR_HANDLE if the range does not lie in such a block; TIDE_ERR_STATE if its contents were
//         discarded; TIDE_ERR_MACHINE if the backup cannot be read.
TIDE_API TIDE_NODISCARD tide_status tide_device_read_parked(tide_device_cache* device, const void* address,
                                                            size_t bytes, void* destination,
                                                            const void** out_data);

// ---------------------------------------------------------------------------------------------------
// Ranges that grow
//
// A range has addresses for the most that it may ever need, and memory for the parts that are committed. Use
// it for key-value caches, and for arenas that other libraries register. Memory comes from idle memory of the
// allocator's default pool where that is possible, and returns to it: one limit and one count of reserved
// bytes hold for both. It needs virtual memory. With the policy `tide`, idle memory of all streams serves a
// commit, and decommitted memory serves all requests. With the policy `torch`, decommitted memory serves
// later commits, and goes back to the machine before a request fails.
//
// Committed memory counts as handed out: one block for each handle, in statistics, snapshots and the history.
// It is no block for tide_device_release(), tide_device_find() and tide_device_share(), which refuse it.
// Observers hear of SEGMENT_MAP after a part got its memory, and of SEGMENT_UNMAP before it loses it.
//
// Threads: all calls are safe at the same time, except that nothing may use a range while it is freed.

typedef struct tide_range tide_range;  // opaque; freed by tide_device_range_free()

// Reserves addresses for `most_bytes`, rounded up to the unit of the range.
// Errors: TIDE_ERR_ARGUMENT for 0 bytes; TIDE_ERR_UNSUPPORTED without virtual memory; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_range_new(tide_device_cache* device, uint64_t most_bytes,
                                                          tide_range** out);
// Where the range begins, how many bytes of addresses it has, and its unit: offsets and sizes of commits are
// rounded outwards to it. It is the smallest handle, tide_least_handle_bytes when the range was made.
TIDE_API void* tide_range_address(const tide_range* range);
TIDE_API uint64_t tide_range_bytes(const tide_range* range);
TIDE_API uint64_t tide_range_unit(const tide_range* range);
TIDE_API uint64_t tide_range_committed(tide_range* range);  // bytes that have memory

// Gives memory to a part of the range, except where it has some. The contents of new memory are undefined.
// `stream` waits on the device for work that still uses the memory; other streams must wait for it.
// The memory comes in whole handles, the largest idle ones that fit first, then new ones of up to
// tide_most_handle_bytes. None is larger than the part, so parts that are committed one by one can be
// decommitted one by one. If the limit is reached or the device is full, the call waits for work and gives
// idle memory back, like any request. In a capture it takes new memory only, and waits for nothing.
// Errors: TIDE_ERR_ARGUMENT outside of the range; TIDE_ERR_NO_MEMORY with the report of
//         tide_device_last_oom(); TIDE_ERR_MACHINE. After an error nothing has changed.
TIDE_API TIDE_NODISCARD tide_status tide_device_range_commit(tide_device_cache* device, tide_range* range,
                                                             tide_stream stream, uint64_t offset,
                                                             uint64_t bytes);
// Takes memory away from a part of the range, rounded inwards to whole handles: tide_range_committed() tells
// how much is left. The memory serves other requests. The call waits on the host for all work that was queued
// on the device and on its peers.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_CAPTURE while a scope is open that is not a region; TIDE_ERR_MACHINE.
//         After an error nothing has changed; but if the part has gaps, the stretches before the one that
//         failed are gone.
TIDE_API TIDE_NODISCARD tide_status tide_device_range_decommit(tide_device_cache* device, tide_range* range,
                                                               uint64_t offset, uint64_t bytes);
// Decommits all of a range, and frees it. NULL is a no-op. Ranges that are left end with the allocator.
// Errors: as tide_device_range_decommit(). After an error the range still exists.
TIDE_API tide_status tide_device_range_free(tide_device_cache* device, tide_range* range);

// ---------------------------------------------------------------------------------------------------
// Statistics

// Statistics that are kept three times: for all requests, for small ones (up to 1 MiB) and for large ones.
#define TIDE_DEVICE_STAT_MAP(X)                                             \
  X(allocation)      /* blocks handed out */                                \
  X(allocated_bytes) /* their bytes */                                      \
  X(active)          /* blocks handed out, or waiting for announced work */ \
  X(active_bytes)                                                           \
  X(requested_bytes) /* bytes that active blocks were requested with */     \
  X(inactive_split)  /* idle parts of segments that are in use */           \
  X(inactive_split_bytes)                                                   \
  X(segment)        /* segments, without expandable ones */                 \
  X(reserved_bytes) /* memory taken from the machine */

// Plain counters.
#define TIDE_DEVICE_COUNTER_MAP(X)                                                    \
  X(num_alloc_retries)    /* requests retried after all idle memory was given back */ \
  X(num_ooms)             /* requests that failed with TIDE_ERR_NO_MEMORY */          \
  X(num_sync_all_streams) /* waits for all announced work */                          \
  X(num_device_alloc)     /* segments made, and mappings */                           \
  X(num_device_free)      /* segments given back, and unmappings */                   \
  X(num_oom_rejections)   /* requests that failed at once: see rejects_early */       \
  X(num_stream_waits)     /* waits of a stream for the last use of memory it takes */ \
  X(stream_wait_bytes)    /* bytes of the blocks whose stream waits so */             \
  X(num_waits_avoided)    /* requests that got new memory instead: tide_wait_slack */ \
  X(host_wait_ns)         /* time that calls waited for work of the device */

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
  // Physical memory of parked pools that was given back and comes back: not reserved, but in use.
  tide_stat parked_bytes[TIDE_STAT_KINDS];
  // Time in which requests made views of idle memory, or gave it back for larger handles or private pools. 0
  // if tide_stitch_share is 1.
  int64_t stitch_ns;
  int64_t num_hurries;  // how often that was more than its share, so that tide_most_slack applied
} tide_device_stats;
#define TIDE_DEVICE_STATS_INIT TIDE_SIZED(tide_device_stats)

// How long a stream waits on the device is not known: the allocator's events have no times. host_wait_ns is
// in the machine's time. It counts waits for announced work and for external streams, in requests and trims.

// Current values are exact. With several threads, peaks are approximate: a thread adds its changes in groups
// of up to 1024 calls or, for large blocks of the policy `tide`, of up to 4 MiB. With that policy, allocated
// and active bytes of small requests are the requested bytes, rounded up to 512. The rest of their blocks
// counts as idle.
TIDE_API TIDE_NODISCARD tide_status tide_device_get_stats(tide_device_cache* device, tide_device_stats* out);
// Sets `allocated`, `freed` and the counters to 0; sets `peak` to `current`.
TIDE_API void tide_device_reset_accumulated(tide_device_cache* device);
TIDE_API void tide_device_reset_peaks(tide_device_cache* device);

// The bytes that a pool has reserved from the machine.
TIDE_API TIDE_NODISCARD tide_status tide_device_pool_reserved(tide_device_cache* device, tide_pool pool,
                                                              uint64_t* out);

// Checks all invariants of the allocator. Returns 0, or the number of a broken invariant (docs/device.md),
// with the details in tide_last_error(). Waits for threads of the allocator itself, which give memory to
// other processes.
// Threads: no other call may be in progress.
TIDE_API int tide_device_check(tide_device_cache* device);

// ---------------------------------------------------------------------------------------------------
// Looking inside

// Visits every segment, or those of one pool. If blocks are visited, too, it adds a SNAPSHOT entry to the
// history. The visitor is called with no lock held, and no lock is held for long. So while other threads
// work, each segment is shown as it is when its turn comes, in parts of up to 256 blocks.
TIDE_API TIDE_NODISCARD tide_status tide_device_visit(tide_device_cache* device,
                                                      const tide_device_visitor* visitor);
TIDE_API TIDE_NODISCARD tide_status tide_device_visit_pool(tide_device_cache* device, tide_pool pool,
                                                           const tide_device_visitor* visitor);

// ---------------------------------------------------------------------------------------------------
// History

// Turns the history on or off, or changes its options. A stack keeps at most 64 frames.
// Errors: TIDE_ERR_ARGUMENT for a level without `gather` or `number`, or with both; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_history(tide_device_cache* device,
                                                        const tide_history_options* options);
TIDE_API bool tide_device_has_history(const tide_device_cache* device);

// Visits the present entries, oldest first. Errors: TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_device_history_visit(tide_device_cache* device,
                                                              tide_history_fn function, void* user);

// Visits the stack of every block, segment and entry, in no fixed order and most of them several times. A
// stack that moves from a block to an entry meanwhile is shown with at least one of them. Adds no entry to
// the history.
TIDE_API TIDE_NODISCARD tide_status tide_device_visit_stacks(tide_device_cache* device,
                                                             void (*function)(void* user, uint32_t stack),
                                                             void* user);

// The texts, stacks and notes that entries and blocks refer to. Owned by the allocator.
TIDE_API tide_intern* tide_device_names(tide_device_cache* device);

// Adds an entry USER_DEFINED to the history and reports it to the observers of traces. Without either, does
// nothing. The text becomes the metadata of the entry's note, instead of the thread's own metadata.
TIDE_API TIDE_NODISCARD tide_status tide_device_annotate(tide_device_cache* device, const char* text);

// Takes a memory snapshot: adds the history and the segments of the allocator to a trace, and its options as
// the trace's settings. Write the trace with tide_trace_write(). NULL options mean the defaults. One trace
// may hold several allocators, each of a different device. The history is copied first, so while other
// threads work the segments may be newer than the history.
// Errors: TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE if there is no such pool, and TIDE_ERR_NO_MEMORY, which leave a
//         part of the snapshot in the trace.
TIDE_API TIDE_NODISCARD tide_status tide_device_snapshot(tide_device_cache* device,
                                                         const tide_snapshot_options* options,
                                                         tide_trace* trace);

// ---------------------------------------------------------------------------------------------------
// Observers and callbacks

#define TIDE_OOM_RUNGS 8
#define TIDE_OOM_PINS 8

// A step that was tried to find memory, and how many bytes it made idle or gave back to the machine.
typedef struct tide_oom_rung {
  const char* name;
  uint64_t yielded_bytes;
} tide_oom_rung;

// Blocks that are handed out or wait, and the idle memory that they keep from larger requests: that of their
// segment, or of their handle with the policy `tide`.
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
  uint64_t segment_bytes;  // requested from the machine
  uint64_t device_free;    // 0 if the machine did not say
  uint64_t device_total;
  uint64_t limit;            // TIDE_NO_LIMIT: none
  uint64_t allocated_bytes;  // of all pools
  uint64_t reserved_bytes;
  uint64_t pending_bytes;       // waiting for announced work
  uint64_t private_idle_bytes;  // idle in private pools
  uint64_t largest_idle_bytes;  // the largest idle block of the request's stream and pool
  tide_pool pool;
  bool is_rejected;            // the request failed at once: see rejects_early
  char text[TIDE_ERROR_TEXT];  // the report as text; also the text of tide_last_error()
  uint32_t rung_count;
  uint32_t pin_count;
  tide_oom_rung rungs[TIDE_OOM_RUNGS];  // in the order they were tried
  tide_oom_pin pins[TIDE_OOM_PINS];     // of the request's pool, the one with the most idle memory first
  uint64_t parked_bytes;                // physical memory of parked pools, which is not reserved
  // Budgets (budget.h): the tag whose limit is in the way, or "", and its figures; and what is kept free
  // because it is guaranteed to others.
  uint64_t tag_limit;
  uint64_t tag_reserved_bytes;
  uint64_t guaranteed_bytes;
  char tag[TIDE_TAG_MOST + 1];
} tide_oom;

// The report of the calling thread's last request that ran out of memory; its `size` is 0 if there was none.
TIDE_API const tide_oom* tide_device_last_oom(void);

// Called when a request runs out of memory, on the thread that made it, before the call returns.
typedef void (*tide_oom_fn)(void* user, const tide_oom* oom);
// Called when no cached memory fits, before the machine is asked. Returns whether it released something.
typedef bool (*tide_reclaim_fn)(void* user, tide_device_cache* device);

// Attaches an observer. `user` is borrowed until it is detached. Errors: TIDE_ERR_LIMIT above 32 of a kind.
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
// Detaches an observer and waits until no other thread is inside it, so that its data may be freed. Do not
// hold a lock that the observer takes. Called inside an observer, of any allocator, it does not wait; then
// another thread may still be inside. Errors: TIDE_ERR_HANDLE if it is not attached.
TIDE_API tide_status tide_device_detach(tide_device_cache* device, tide_observer observer);

// Adds a function that releases memory for all device caches, also for those that are made later. There need
// not be one yet, so a library may call this when it is loaded, and the second call when it is unloaded. For
// each cache, the functions are called as by tide_device_observe_reclaim(): after those of the cache, in the
// order in which they came. `name` and `user` are borrowed until the function is removed. Removing it waits
// until no other thread is inside a registered function, unless the calling thread is inside an observer. In
// a child of fork() the functions stay registered, and both calls work.
// Errors: TIDE_ERR_ARGUMENT for NULL or an empty name; TIDE_ERR_STATE if the name is registered already;
//         TIDE_ERR_LIMIT above 32 functions; TIDE_ERR_HANDLE for removing a name that is not registered.
// Threads: any, also inside such a function.
TIDE_API TIDE_NODISCARD tide_status tide_reclaim_register(const char* name, tide_reclaim_fn function,
                                                          void* user);
TIDE_API tide_status tide_reclaim_unregister(const char* name);

// ---------------------------------------------------------------------------------------------------
// Other devices and other processes

// Lets another device of the machine access the memory of this allocator, present and future.
// Errors: TIDE_ERR_DEVICE; TIDE_ERR_ACCESS where the machine does not allow it.
TIDE_API TIDE_NODISCARD tide_status tide_device_enable_peer(tide_device_cache* device, int peer);

// Memory for another process. `raw` describes a raw segment completely. An expandable segment, or memory of
// the policy `tide`, is `part_count` parts in a row. Each part has its own size and a file descriptor, to be
// sent over a Unix socket.
typedef struct tide_share {
  uint32_t size;        // set by TIDE_SHARE_INIT
  uint32_t part_count;  // 0: a raw segment
  uint64_t offset;      // of the block in the shared memory
  uint64_t bytes;       // of the block
  tide_raw_share raw;
  uint64_t part_bytes;  // of each part; 0: they have several sizes, or there are none. Import ignores it
} tide_share;
#define TIDE_SHARE_INIT TIDE_SIZED(tide_share)

// Exports the memory around an address that is handed out. Writes up to `capacity` parts, whose descriptors
// the caller closes; `out->part_count` is their number. The block must stay handed out while it is shared.
// The other process can access whole segments or handles, including other blocks in them. With the policy
// `tide`, exported handles serve no other streams meanwhile: see docs/tide.md.
// Errors: TIDE_ERR_HANDLE; TIDE_ERR_LIMIT if there are more than `capacity` parts: then part_count is their
//         number, and none is written; TIDE_ERR_UNSUPPORTED where the machine cannot share.
TIDE_API TIDE_NODISCARD tide_status tide_device_share(tide_device_cache* device, const void* address,
                                                      tide_share* out, tide_physical_share* parts,
                                                      size_t capacity);
// The same for a process that copies descriptors out of this one, as Linux allows between processes of one
// user (pidfd_getfd). The descriptors belong to the allocator. A handle has one, however often it is shared,
// which stays open until the memory of the handle goes back to the machine. The offsets of parts are 0.
TIDE_API TIDE_NODISCARD tide_status tide_device_share_kept(tide_device_cache* device, const void* address,
                                                           tide_share* out, tide_physical_share* parts,
                                                           size_t capacity);
// Opens a share in another process; `*out` is the address of the block there. The caller keeps the
// descriptors. A raw segment that is already open is not opened again. The share is not trusted: it is
// checked against what the machine knows of the memory. A damaged one is TIDE_ERR_ARGUMENT or TIDE_ERR_STATE.
// But the caller must make sure that `parts` has `part_count` elements.
TIDE_API TIDE_NODISCARD tide_status tide_device_import(tide_device_cache* device, const tide_share* share,
                                                       const tide_physical_share* parts, void** out);
// The same with parts whose descriptors are those of another process, which are copied.
// Errors: as tide_device_import(); TIDE_ERR_ACCESS if the system does not let this process trace that one;
//         TIDE_ERR_STATE if the process or a descriptor is gone; TIDE_ERR_UNSUPPORTED before Linux 5.6.
TIDE_API TIDE_NODISCARD tide_status tide_device_import_from(tide_device_cache* device, int process,
                                                            const tide_share* share,
                                                            const tide_physical_share* parts, void** out);
// Closes an import, by the address that tide_device_import() returned; call it once for each import. First
// waits for all work of the device. The next trim tries again to free parts that the machine did not take.
// Errors: TIDE_ERR_HANDLE for an address that was not imported; errors of the machine, which leave it open.
TIDE_API tide_status tide_device_unimport(tide_device_cache* device, void* address);

// A share as plain bytes, for channels that cannot carry descriptors. The accepting process fetches the
// descriptors over a socket from the process that offers; both must have the same user. A thread of the
// allocator serves the socket and sleeps otherwise. Blocks in the same shared memory have equal offers.
typedef struct tide_offer {
  unsigned char bytes[128];
} tide_offer;

// Offers the memory around an address that is handed out. The block begins at `*out_offset` in it, and must
// stay handed out while it is shared.
// Errors: as tide_device_share(); TIDE_ERR_UNSUPPORTED if the system refuses a socket or a thread.
TIDE_API TIDE_NODISCARD tide_status tide_device_offer(tide_device_cache* device, const void* address,
                                                      tide_offer* out, uint64_t* out_offset);
// Opens an offer; `*out` is where the shared memory begins. Close it by tide_device_unimport() with this
// address.
// Errors: as tide_device_import(); TIDE_ERR_ARGUMENT for bytes that are not an offer; TIDE_ERR_STATE if the
//         process that offered it is gone or does not answer; TIDE_ERR_HANDLE if the block was released.
TIDE_API TIDE_NODISCARD tide_status tide_device_accept(tide_device_cache* device, const tide_offer* offer,
                                                       void** out);

TIDE_END_DECLS
#endif
