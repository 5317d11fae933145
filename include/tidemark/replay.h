// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: replay. It runs the requests of a recording through a device cache on the dry machine. It
// shows what another setting would have done, or checks that the same setting does the same.
//
//   tide_replay* replay = NULL;
//   tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
//   tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
//   tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
//   tide_status status = tide_replay_new(trace, 0, NULL, &replay);
//   if (status == TIDE_OK) status = tide_device_options_parse("expandable_segments:True", &device);
//   options.device = &device;
//   if (status == TIDE_OK) status = tide_replay_run(replay, &options, &result);
//   if (status == TIDE_OK) printf("%llu bytes\n", (unsigned long long)result.peak_reserved);
//   tide_replay_free(replay);
//
// A replay takes requests and releases from the recording. With `checks` it also takes the addresses of new
// segments, but never those of allocations. A request lives from its ALLOC to its FREE_COMPLETED. If the
// completion does not follow a release at once, the block waits for work that ends at the entry of the
// completion. Time is the number of the entry. See docs/replay.md.
#ifndef TIDEMARK_REPLAY_H
#define TIDEMARK_REPLAY_H

#include "tidemark/budget.h"

TIDE_BEGIN_DECLS

typedef struct tide_replay tide_replay;  // opaque; freed by tide_replay_free()

// One parking of a run: at once after it, the memory is unparked again. All sizes and times are results.
typedef struct tide_replay_park {
  uint64_t entry;           // set by the caller: the number of the entry before which the memory is parked
  uint64_t block_bytes;     // of blocks that were handed out, as the policy counts them
  uint64_t physical_bytes;  // given back to the device, with idle memory
  uint64_t taken_bytes;     // taken again from the device, without handles that were wholly idle
  uint64_t copied_bytes;    // each way: handed out blocks, and gaps below 64 KiB between them
  uint64_t backup_bytes;    // of host memory, or of the file
  uint64_t park_ns;         // time of the dry machine, until the memory was given back
  uint64_t unpark_ns;       // until the contents were back
} tide_replay_park;

// A tag of a run under budgets. `name` and `budget` are set by the caller; the others are results, of the tag
// and of those below it.
typedef struct tide_replay_tag {
  const char* name;           // borrowed during the call
  const tide_budget* budget;  // borrowed during the call; NULL: none
  uint64_t peak_allocated;    // peak of live requests, each rounded up to 512 bytes, parked or not
  uint64_t peak_reserved;     // peak of physical memory: what its limits compare with
  uint64_t refused;       // requests, and parked memory that should have come back, that its limit refused
  uint64_t parked_count;  // as in tide_budget_stats
  uint64_t fetched_count;
  uint64_t sent_bytes;     // over the bus, to backups
  uint64_t fetched_bytes;  // and back
  uint64_t bus_ns;         // of both, by the cost model of the dry machine
} tide_replay_tag;

// The program uses memory of a tag just before an entry.
typedef struct tide_replay_use {
  uint64_t entry;  // its number; that of all entries means the end
  uint32_t tag;    // the place of the tag in `tags`
} tide_replay_use;

typedef struct tide_replay_options {
  uint32_t size;  // set by TIDE_REPLAY_OPTIONS_INIT
  // Compares the run with the recording: every address, every segment in order, every refusal, and the state
  // at the end. New segments then get the recorded addresses. Where memory was given back and neither the
  // policy nor the limit explains it, the replay assumes that the cache was emptied.
  bool checks;
  bool stops_at_oom;  // ends the run at the first request that is refused
  // Empties the cache where the last run with `checks` found that it was emptied, or where nothing else
  // explains the recording. Set by _INIT.
  bool empties;
  uint64_t limit;                     // most bytes that the cache may reserve; TIDE_NO_LIMIT
  uint64_t capacity;                  // bytes of the device, to which memory_fraction applies; 0: 1 TiB
  const tide_device_options* device;  // of the cache; borrowed during the call; NULL: the defaults
  // (optional) Called from time to time with the number of entries replayed. Returning false cancels the run
  // with TIDE_ERR_STATE.
  bool (*on_progress)(void* user, uint64_t done, uint64_t count);
  void* user;  // passed to on_progress
  // Multiplies the sizes of requests, rounded down to at least 1 byte: an approximation of larger batches.
  // Blocks that live for more than half of the entries keep their size: they belong to no step that the
  // recording has twice, but are weights and the like. Above 0 and at most 1024; must be 1 with `checks`.
  // Set by _INIT.
  double scale;
  bool scales_all;  // multiplies the sizes of these blocks, too
  // With `checks`: `limit` is ignored. The run is compared under limits that the recording permits, and
  // without one, until it is repeated. The result says which limit that was, and what is known about it.
  bool infers_limit;
  // What another program would do with the same requests; none of these is possible with `checks`.
  bool has_one_stream;  // all requests are made on one stream; releases wait as recorded
  bool has_one_pool;    // all private pools are one, which keeps its memory to the end
  bool never_waits;     // a release is complete at once
  // Ends the run soon after it has reserved more bytes than this; TIDE_NO_LIMIT: never. The result's
  // peak_reserved is above it if, and only if, that of the whole run is. Not possible with `checks`.
  uint64_t stops_above;
  // (optional) Gets reserved memory over time: curve[i] is the most that was reserved at an entry from
  // i * entries / curve_count on and before that of i + 1. Not possible with `checks`.
  uint64_t* curve;
  size_t curve_count;
  // (optional) What would parking cost? All requests are made in one pool with a tag, and the tag is parked
  // before each of these entries, which ascend; the number of all entries means the end. Work that released
  // blocks wait for ends first. Backups are kept for the next time, as tide_device_unpark() can do. The
  // figures of driver calls include those of parking. Needs the policy `tide`; not possible with `checks`.
  tide_replay_park* parks;
  size_t park_count;
  uint32_t park_backup;  // a tide_backup: where contents go; set by _INIT to TIDE_BACKUP_PINNED
  // (optional) What would budgets do? Each of these tags has a pool, whose backup is pinned. The request of a
  // stack goes to the pool of its tag. The others go to the pool of a tag whose name the recording gives to
  // their own pool, or else where they go without budgets.
  //
  // A recording does not say when memory is read and written. So a tag that yields is in use during each of
  // its requests and releases, without the releases behind the last request of the run, and at each of
  // `uses` if it has live blocks. If it is away, it comes back then. If it cannot come back, that counts as a
  // refused request. Not possible with `checks` or `parks`.
  tide_replay_tag* tags;        // each name once
  size_t tag_count;             // at most TIDE_REPLAY_TAGS
  const uint16_t* stack_tags;   // by the number of a stack: 1 + the place of its tag in `tags`; 0: none
  size_t stack_count;           // stacks with higher numbers have no tag
  const tide_replay_use* uses;  // by entry, ascending; those before one entry are made in their order
  size_t use_count;
  // Before the first request, so much is reserved for the default stream, as far as the limit allows: see
  // tide_device_reserve(). Not possible with `checks`.
  uint64_t reserve_bytes;
} tide_replay_options;
// clang-format off
#define TIDE_REPLAY_OPTIONS_INIT                                                                  \
  { TIDE_FIELD(size, sizeof(tide_replay_options)), TIDE_FIELD(checks, false),                     \
    TIDE_FIELD(stops_at_oom, false), TIDE_FIELD(empties, true), TIDE_FIELD(limit, TIDE_NO_LIMIT), \
    TIDE_FIELD(capacity, 0), TIDE_FIELD(device, NULL),                                            \
    TIDE_FIELD(on_progress, NULL), TIDE_FIELD(user, NULL), TIDE_FIELD(scale, 1), \
    TIDE_FIELD(scales_all, false), TIDE_FIELD(infers_limit, false), \
    TIDE_FIELD(has_one_stream, false), TIDE_FIELD(has_one_pool, false), \
    TIDE_FIELD(never_waits, false), TIDE_FIELD(stops_above, TIDE_NO_LIMIT), \
    TIDE_FIELD(curve, NULL), TIDE_FIELD(curve_count, 0), TIDE_FIELD(parks, NULL), \
    TIDE_FIELD(park_count, 0), TIDE_FIELD(park_backup, TIDE_BACKUP_PINNED), \
    TIDE_FIELD(tags, NULL), TIDE_FIELD(tag_count, 0), TIDE_FIELD(stack_tags, NULL), \
    TIDE_FIELD(stack_count, 0), TIDE_FIELD(uses, NULL), TIDE_FIELD(use_count, 0), \
    TIDE_FIELD(reserve_bytes, 0) }
// clang-format on

#define TIDE_REPLAY_TENTHS 10
#define TIDE_REPLAY_TAGS 1024

typedef struct tide_replay_result {
  uint32_t size;           // set by TIDE_REPLAY_RESULT_INIT
  uint64_t entries;        // entries replayed
  uint64_t allocations;    // requests served
  uint64_t skipped;        // releases of blocks that the recording does not know
  uint64_t blocks_before;  // blocks that existed before the recording, or before its first whole request
  uint64_t bytes_before;   // their requested bytes in the recording
  uint64_t mismatched_addresses;  // with checks: allocations at another address
  uint64_t mismatched_segments;   // with checks: any other difference
  // Peak of live requests, each rounded up to 512 bytes, whatever the policy does. It includes requests that
  // the recording refused and this run served.
  uint64_t peak_allocated;
  uint64_t peak_reserved;  // peak of physical memory taken from the machine
  uint64_t peak_blocks;    // peak of bytes in blocks that are handed out, as the policy counts them
  uint64_t driver_allocs;
  uint64_t driver_frees;
  uint64_t retries;
  uint64_t ooms;
  uint64_t first_oom;             // number of the entry of the first refusal; UINT64_MAX: none
  uint64_t oom_bytes;             // size of that request
  uint64_t inferred_empty_cache;  // how often the cache was emptied
  uint64_t driver_calls;          // calls of all kinds that manage memory
  uint64_t driver_ns;             // their cost by the cost model of the dry machine
  uint64_t span_ns;               // recorded time from the first entry to the last
  uint64_t run_ns;                // real time of this run, without tide_replay_new()
  // By tenths of the entries. Remapping is unmapping, mapping and setting access of existing memory.
  uint64_t driver_calls_by_tenth[TIDE_REPLAY_TENTHS];
  uint64_t driver_ns_by_tenth[TIDE_REPLAY_TENTHS];
  uint64_t remap_ns_by_tenth[TIDE_REPLAY_TENTHS];
  char mismatch[400];  // describes the first mismatch; empty: none
  // With a scale: blocks that kept their size, and their requested bytes, which were all live at once.
  uint64_t unscaled_blocks;
  uint64_t unscaled_bytes;
  // With checks: the limit of the run that was compared; TIDE_NO_LIMIT: none. With infers_limit, a limit
  // shows when cached memory was freed so that a request could be served (a retry, garbage collection), or
  // when a request was refused. If it shows, the recorded run had at least limit_low bytes, and fewer than
  // limit_high. That is certain, unless only retries show it: calls to empty_cache would look the same. If
  // nothing shows it, or no limit repeats the recording, the bounds are 0 and TIDE_NO_LIMIT.
  uint64_t limit;
  uint64_t limit_low;
  uint64_t limit_high;
  bool is_limit_certain;
  // The recording begins in the middle, and the run began with the segments and blocks that existed then.
  bool is_in_place;
  uint64_t parks;  // how many of the options' `parks` the run reached
  // With `tags`: what was refused first. The tag of that request, or of the memory that could not come back;
  // the tag whose limit was in the way; and what was kept free because it is guaranteed to others. A text is
  // "" if there is none: a limit that is not of a tag is that of the device.
  char oom_tag[TIDE_TAG_MOST + 1];
  char oom_limited_tag[TIDE_TAG_MOST + 1];
  uint64_t oom_guaranteed_bytes;
  bool is_oom_return;  // it was not a request: parked memory could not come back
  // With `tags`: of all of them together, as in tide_replay_tag.
  uint64_t sent_bytes;
  uint64_t fetched_bytes;
  uint64_t bus_ns;
  uint64_t reserve_ns;  // the cost of the calls for reserve_bytes, which are not among driver_calls
} tide_replay_result;
#define TIDE_REPLAY_RESULT_INIT TIDE_SIZED(tide_replay_result)

// Prepares the entries of one device: which release belongs to which request, which pool each request went
// to, and when releases complete. For a device without entries, a run replays nothing. If the recording
// begins in the middle, what existed before is inferred (see ledger.h). With the policy `torch`, a run begins
// with these segments and their blocks, in their places. With other policies or scales, or if the recording
// contradicts itself, these blocks are requested first, in the order of their addresses. The trace and
// `heap` are borrowed until the replay is freed; the trace must not change. A NULL heap is malloc.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_LIMIT for 2^27 or more entries, or more than 1024 streams;
//          TIDE_ERR_NO_MEMORY.
// Cost:    O(n); 24 bytes per request and release.
TIDE_API TIDE_NODISCARD tide_status tide_replay_new(const tide_trace* trace, size_t device,
                                                    const tide_heap* heap, tide_replay** out);
TIDE_API void tide_replay_free(tide_replay* replay);

// The settings of the recording, which PyTorch writes into a snapshot. What is not recorded has its default.
TIDE_API tide_device_options tide_replay_recorded_options(const tide_replay* replay);

// Where the last run with `checks` found that the cache was emptied; before such a run, where nothing else
// explains the recording. Stores the numbers of the entries before which it was emptied, ascending, as far as
// `capacity` allows, and returns how many there are. After the last entry the number is that of all entries.
TIDE_API size_t tide_replay_empties(const tide_replay* replay, uint64_t* out, size_t capacity);

// Replays once. The cache is empty at first, unless the recording begins in the middle. Then the figures are
// those from there on; of the run before, nothing is known. NULL options are the defaults. A replay can be
// run any number of times. A mismatch is not an error: all other figures are then those of a run without
// checks.
// Errors:  TIDE_ERR_ARGUMENT, also for a name that is not a tag, and a guarantee above its limit;
//          TIDE_ERR_UNSUPPORTED for `parks` with a policy that cannot park;
//          TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE if on_progress cancelled the run; any error of the cache other
//          than running out of device memory.
// Threads: several threads may run one replay at once, unless one of them checks.
// Cost:    about 50 ns per entry, 120 ns with checks; the latter again for each wrong guess.
TIDE_API TIDE_NODISCARD tide_status tide_replay_run(tide_replay* replay, const tide_replay_options* options,
                                                    tide_replay_result* out);

TIDE_END_DECLS
#endif
