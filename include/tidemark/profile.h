// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: profile. It records the memory requests of one run of a program, plans them into one arena, and
// serves later runs from that arena without allocating memory.
//
//   tide_profile* profile = NULL;
//   tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
//   tide_status status = tide_profile_new(NULL, &profile);
//   for (int step = 0; step < 100 && status == TIDE_OK; step++) {
//     status = tide_profile_begin(profile, TIDE_PROFILE_AUTO, shape);   // the first run is recorded
//     if (status == TIDE_OK) step_of_the_program(profile);              // tide_profile_alloc(), _release()
//     if (status == TIDE_OK) status = tide_profile_end(profile, &report);
//   }
//   tide_profile_free(profile);
//
// A run belongs to the thread that began it. The requests of that thread between begin and end are numbered
// 0, 1, 2 ... in their order. Memory may be released on any thread, also after the run. A run may differ
// from the recorded one: requests that the plan has no memory for are served by the fallback. Two live
// blocks never overlap. On device memory, an arena serves one stream, or streams that the program orders
// like its requests and releases.
#ifndef TIDEMARK_PROFILE_H
#define TIDEMARK_PROFILE_H

#include "tidemark/base.h"
#include "tidemark/memory.h"
#include "tidemark/plan.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Plans

#define TIDE_PROFILE_NEVER UINT64_MAX         // the lifetime of a request that is not released in its run
#define TIDE_PROFILE_MAX_REQUESTS (1u << 30)  // per run
#define TIDE_PROFILE_MAX_ALIGNMENT (1u << 20)

// One request of a run. Time counts requests: request i lives from i until just before request `lifetime`. So
// i < lifetime <= the number of requests, or the lifetime is NEVER.
typedef struct tide_profile_request {
  uint64_t bytes;      // not 0
  uint64_t alignment;  // a power of two; 0 means 1
  uint64_t lifetime;
  uint64_t offset;  // in the arena; if the lifetime is NEVER, in the escape arena
} tide_profile_request;

// The algorithm that finds the offsets.
typedef enum tide_profile_planner {
  // The smallest result of the two below and of tide_plan_solve(), which takes most of the time: see
  // TIDE_PROFILE_QUICK_NODES.
  TIDE_PROFILE_SMALLEST,
  // In the order of time: the low end of the smallest hole that is large enough, or else new space at the
  // top. This is what PyTorch's mobile profiler does, without its bugs.
  TIDE_PROFILE_BEST_FIT,
  TIDE_PROFILE_TOP_FIT,  // the same, but a hole at the top is extended
} tide_profile_planner;

// Node limits of tide_plan_solve(). They bound the time without reading a clock, so equal requests have equal
// plans on every computer, however busy it is. At least one node per request is used, for one pass over all.
// A node takes some microseconds, at most about ten. On one core of a busy computer, planning took:
//
//   requests   best fit   QUICK    THOROUGH
//        100     0.1 ms     1 ms   up to 8 s, until a plan is proved to be the smallest
//      1,000     1 ms       5 ms   up to 8 s
//      3,000     3 ms      12 ms   up to 8 s
//     30,000    40 ms     150 ms   1.4 s
//    500,000   0.5 s      1.8 s    2.5 s
//
// Arenas of random requests exceeded the lower bound by 5 to 20 % with best fit, by 0.3 to 3 % with QUICK,
// and by 0.3 to 1.3 % with THOROUGH; those of recorded training by 13 to 24 %, 0 and 0. See
// docs/results/profile.md.
#define TIDE_PROFILE_QUICK_NODES 2000
#define TIDE_PROFILE_THOROUGH_NODES 2000000

typedef struct tide_profile_plan_options {
  uint32_t size;  // set by TIDE_PROFILE_PLAN_OPTIONS_INIT
  tide_profile_planner planner;
  uint64_t nodes;         // see TIDE_PROFILE_QUICK_NODES; not 0
  const tide_heap* heap;  // (optional) caller keeps until the plan is freed; NULL for malloc
} tide_profile_plan_options;
// clang-format off
#define TIDE_PROFILE_PLAN_OPTIONS_INIT                                                               \
  { TIDE_FIELD(size, sizeof(tide_profile_plan_options)), TIDE_FIELD(planner, TIDE_PROFILE_SMALLEST), \
    TIDE_FIELD(nodes, TIDE_PROFILE_QUICK_NODES), TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_profile_plan tide_profile_plan;  // opaque; freed by tide_profile_plan_free()

// Plans requests; their offsets are ignored. The plan depends only on the requests and the options. Every
// plan has passed tide_profile_verify(). NULL options mean the defaults.
// Errors:  TIDE_ERR_ARGUMENT for an invalid request, which the text names, or for a sum of
//          TIDE_PLAN_MAX_BYTES or more; TIDE_ERR_LIMIT for too many requests; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_new(const tide_profile_request* requests, size_t count,
                                                          const tide_profile_plan_options* options,
                                                          tide_profile_plan** out);
TIDE_API void tide_profile_plan_free(tide_profile_plan* plan);

typedef struct tide_profile_plan_info {
  size_t count;                  // of requests
  size_t managed;                // requests in the arena: those that are released in their run
  uint64_t bytes;                // of the arena
  uint64_t escape_bytes;         // of the escape arena, for all other requests
  uint64_t lower_bound;          // the most bytes that live at once; no arena can be smaller
  uint64_t alignment;            // the largest of all requests
  uint64_t hash;                 // of sizes, alignments and lifetimes: equal for equal runs
  tide_profile_planner planner;  // that found the offsets; SMALLEST means tide_plan_solve()
} tide_profile_plan_info;

TIDE_API tide_profile_plan_info tide_profile_plan_describe(const tide_profile_plan* plan);
// Returns a request with its offset; all 0 if the index is out of range.
TIDE_API tide_profile_request tide_profile_plan_request(const tide_profile_plan* plan, size_t index);

// Checks whether the offsets are a valid plan in an arena of `bytes`. Requests that are never released are
// skipped. The check shares no code with the planners. `out` describes the fault and names the requests.
// Errors:  TIDE_ERR_ARGUMENT for requests that tide_profile_plan_new() refuses, or an arena above
//          TIDE_PLAN_MAX_BYTES; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_verify(const tide_profile_request* requests, size_t count,
                                                        uint64_t bytes, const tide_heap* heap,
                                                        tide_plan_check* out);

// Write a plan to a file, and read one. docs/profile.md describes the format, which has a version and a
// checksum.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; an error from the sink or the source. Reading also returns
//          TIDE_ERR_FORMAT if the file is damaged or truncated, or if it is not a valid plan although its
//          checksum is right, and TIDE_ERR_UNSUPPORTED for a newer version.
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_write(const tide_profile_plan* plan,
                                                            const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_read(const tide_source* source, const tide_heap* heap,
                                                           tide_profile_plan** out);

// ---------------------------------------------------------------------------------------------------
// Profiles

typedef struct tide_profile_options {
  uint32_t size;  // set by TIDE_PROFILE_OPTIONS_INIT
  tide_profile_planner planner;
  // A replayed run must repeat the recorded one exactly. A request of another size, a request beyond the
  // last one, and a release at another time are refused with TIDE_ERR_STATE. A block whose release was
  // refused can be released after the run.
  bool is_strict;
  // Applies to memory with `is_host` only. Arenas of other memory are refused; a fallback of other memory
  // is not filled.
  tide_fill fill;
  uint64_t alignment;  // of requests that name none; a power of two
  // How many escape arenas there may be, for requests that are not released in their run. While one is in
  // use, the next run takes another. 0: such requests are served by the fallback.
  uint32_t escape_arenas;
  uint32_t max_plans;  // kept at once; the least recently used one is dropped
  // AUTO: a run deviates if the fallback served more than `tolerance` of its requests, if more than that
  // part of the planned requests was not made, or if a block survived that should not. After `replan_after`
  // such runs of a shape in a row, the next one is recorded again. The number then doubles each time, up to
  // 64 times the first. 0: never.
  uint32_t replan_after;
  double tolerance;
  uint32_t trim_after;   // an arena larger than the last `trim_after` runs needed is replaced; 0: never
  uint64_t plan_nodes;   // see TIDE_PROFILE_QUICK_NODES; not 0
  tide_memory memory;    // for the arenas; all 0: the C library's memory
  tide_memory fallback;  // all 0: the same as `memory`
  // (optional) Caller keeps it until the profile and all its memory are released. NULL for malloc.
  const tide_heap* heap;
} tide_profile_options;
// clang-format off
#define TIDE_PROFILE_OPTIONS_INIT                                                                 \
  { TIDE_FIELD(size, sizeof(tide_profile_options)), TIDE_FIELD(planner, TIDE_PROFILE_SMALLEST),   \
    TIDE_FIELD(is_strict, false), TIDE_FIELD(fill, TIDE_FILL_NOTHING), TIDE_FIELD(alignment, 64), \
    TIDE_FIELD(escape_arenas, 4), TIDE_FIELD(max_plans, 16), TIDE_FIELD(replan_after, 3),         \
    TIDE_FIELD(tolerance, 0.01), TIDE_FIELD(trim_after, 16),                                      \
    TIDE_FIELD(plan_nodes, TIDE_PROFILE_QUICK_NODES), TIDE_FIELD(memory, TIDE_MEMORY_NONE),       \
    TIDE_FIELD(fallback, TIDE_MEMORY_NONE), TIDE_FIELD(heap, NULL) }
// The behaviour of PyTorch's mobile profiler: best fit, exact replay, no plan for requests that escape the
// run.
#define TIDE_PROFILE_OPTIONS_ORIGINAL                                                            \
  { TIDE_FIELD(size, sizeof(tide_profile_options)), TIDE_FIELD(planner, TIDE_PROFILE_BEST_FIT),  \
    TIDE_FIELD(is_strict, true), TIDE_FIELD(fill, TIDE_FILL_NOTHING), TIDE_FIELD(alignment, 64), \
    TIDE_FIELD(escape_arenas, 0), TIDE_FIELD(max_plans, 16), TIDE_FIELD(replan_after, 0),        \
    TIDE_FIELD(tolerance, 0.01), TIDE_FIELD(trim_after, 0),                                      \
    TIDE_FIELD(plan_nodes, TIDE_PROFILE_QUICK_NODES), TIDE_FIELD(memory, TIDE_MEMORY_NONE),      \
    TIDE_FIELD(fallback, TIDE_MEMORY_NONE), TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_profile tide_profile;  // opaque; freed by tide_profile_free()

// Creates a profile without plans. NULL options mean the defaults.
// Errors:  TIDE_ERR_ARGUMENT for options out of range; TIDE_ERR_UNSUPPORTED for a fill of memory that the
//          processor cannot write; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_new(const tide_profile_options* options, tide_profile** out);
// Frees the profile and its empty arenas. Cancels a run that is open on this thread. Blocks that are still
// handed out, from an arena or from the fallback, stay valid and are released with tide_profile_release()
// as before. The last release of an arena frees it, and the last release of all frees the remaining
// records. Until then the memory, the fallback and the heap of the options stay in use.
// Threads: no other call may be in progress, no run may be open on another thread, and only such releases,
//          on any thread, may follow.
TIDE_API void tide_profile_free(tide_profile* profile);

// Set and get the plan for a shape, a number that the program chooses. Both share the plan with the caller,
// who frees their own reference with tide_profile_plan_free().
// Errors:  TIDE_ERR_ARGUMENT; get: TIDE_ERR_HANDLE if the shape has no plan.
TIDE_API TIDE_NODISCARD tide_status tide_profile_set_plan(tide_profile* profile, uint64_t shape,
                                                          tide_profile_plan* plan);
TIDE_API TIDE_NODISCARD tide_status tide_profile_get_plan(tide_profile* profile, uint64_t shape,
                                                          tide_profile_plan** out);
// Forgets the plan of a shape, so that AUTO records its next run. Open runs and blocks that survived one
// are not affected. The arena stays until it is trimmed.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE if the shape has no plan.
TIDE_API TIDE_NODISCARD tide_status tide_profile_clear_plan(tide_profile* profile, uint64_t shape);
// Combines several numbers, such as the extents of all inputs, into a shape. The order matters.
TIDE_API uint64_t tide_profile_shape(const uint64_t* numbers, size_t count);

// ---------------------------------------------------------------------------------------------------
// Runs

typedef enum tide_profile_mode {
  TIDE_PROFILE_NONE,      // no run
  TIDE_PROFILE_AUTO,      // REPLAY, or RECORD if the shape has no plan or too many runs deviated from it
  TIDE_PROFILE_RECORD,    // serves from the fallback, and plans at the end
  TIDE_PROFILE_VALIDATE,  // serves from the fallback, and compares with the plan
  TIDE_PROFILE_REPLAY,    // serves from the arena
} tide_profile_mode;

// The result of a run. Requests of 0 bytes are not counted.
typedef struct tide_profile_report {
  uint32_t size;           // set by TIDE_PROFILE_REPORT_INIT
  tide_profile_mode mode;  // RECORD, VALIDATE or REPLAY
  uint64_t requests;       // REPLAY: including those that the fallback refused
  uint64_t hits;           // served from an arena or, when validating, as planned; 0 when recording
  uint64_t fallbacks;      // requests - hits; 0 when recording
  uint64_t refused;        // requests and releases that a strict run refused; not counted elsewhere
  uint64_t escaped;        // fallbacks without a deviation: NEVER released in the plan, and no escape arena
  // Requests that deviate
  uint64_t smaller;  // fewer bytes than planned; mostly hits
  uint64_t larger;   // fallbacks: more bytes than planned, or a larger alignment
  uint64_t surplus;  // fallbacks: not in the plan at this point
  uint64_t blocked;  // fallbacks: a block that should have been released still occupies the place
  uint64_t missing;  // planned and never requested
  // Releases that deviate
  uint64_t early;
  uint64_t late;       // released in the run, but after the request that they should precede
  uint64_t survivors;  // blocks in the arena that should have been released by the end of the run
  uint64_t first;      // planned requests made or skipped before the first deviation; UINT64_MAX: none
  // VALIDATE: the run passes by the rules of PyTorch's mobile profiler, which ignores missing requests and
  // blocks that are not released.
  bool passes_original;
  bool is_same;         // nothing deviates
  uint64_t plan_bytes;  // of the arena of the plan that was used or made
  uint64_t lower_bound;
  // Bytes of the first request that differs: as planned (0: the plan has no more) and as requested. Both
  // are 0 if none differs.
  uint64_t first_planned;
  uint64_t first_actual;
} tide_profile_report;
#define TIDE_PROFILE_REPORT_INIT TIDE_SIZED(tide_profile_report)

// Begins a run on this thread. It may nest inside a run of another profile that validates or replays, but
// not inside one that records: the innermost run serves the requests (tensor.h), so the recording would
// lack them.
// Errors:  TIDE_ERR_STATE if this thread has an open run of this profile, or a recording run of another;
//          TIDE_ERR_HANDLE for VALIDATE or REPLAY of a shape without a plan; TIDE_ERR_NO_MEMORY; an error
//          from the memory. After a failure no run is open, and the fallback serves requests.
TIDE_API TIDE_NODISCARD tide_status tide_profile_begin(tide_profile* profile, tide_profile_mode mode,
                                                       uint64_t shape);
// Ends the run. A recording run makes a plan; if that fails, an earlier plan of the shape stays. The run is
// over in any case. `out` may be NULL.
// Errors:  TIDE_ERR_STATE if this thread has no run of this profile; errors of tide_profile_plan_new();
//          TIDE_ERR_ARGUMENT for a report of a wrong size, which is not written.
// Cost:    a recording run is planned on this thread: see TIDE_PROFILE_QUICK_NODES. Others O(1), or O(n) with
//          n requests if blocks were not released as planned.
TIDE_API TIDE_NODISCARD tide_status tide_profile_end(tide_profile* profile, tide_profile_report* out);
// Ends a run that failed, without making a plan or counting deviations.
TIDE_API tide_status tide_profile_cancel(tide_profile* profile);
// Returns the mode of this thread's run of this profile.
TIDE_API tide_profile_mode tide_profile_current(const tide_profile* profile);
// Returns the profile of the innermost open run of this thread, or NULL.
TIDE_API tide_profile* tide_profile_innermost(void);

// Allocates memory: in a replayed run from the arena, otherwise from the fallback. 0 bytes yield NULL and
// TIDE_OK, and need no release. `alignment` is a power of two, or 0 for that of the options.
// Errors:  TIDE_ERR_ARGUMENT; an error from the fallback; TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE in a strict run.
// Cost:    O(1) from the arena, without a lock or an atomic instruction.
TIDE_API TIDE_NODISCARD tide_status tide_profile_alloc(tide_profile* profile, size_t bytes, size_t alignment,
                                                       void** out);
// Releases memory, on any thread, inside or outside a run, and also after tide_profile_free(). An address
// outside all arenas goes to the fallback, even if it was allocated there directly. Releasing NULL is a
// no-op.
// Errors:  TIDE_ERR_HANDLE for an address in an arena at which no live block begins; an error from the
//          fallback; TIDE_ERR_STATE in a strict run.
TIDE_API tide_status tide_profile_release(tide_profile* profile, void* address);

// Report requests and releases, for programs that keep their own allocator while recording or validating.
// Outside such a run they have no effect.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY, after which the end of the run fails.
TIDE_API TIDE_NODISCARD tide_status tide_profile_note_alloc(tide_profile* profile, const void* address,
                                                            size_t bytes, size_t alignment);
TIDE_API tide_status tide_profile_note_release(tide_profile* profile, const void* address);

// ---------------------------------------------------------------------------------------------------
// Queries

typedef struct tide_profile_stats {
  uint32_t size;      // set by TIDE_PROFILE_STATS_INIT
  uint64_t recorded;  // runs that ended, by mode
  uint64_t validated;
  uint64_t replayed;
  uint64_t differing;  // replayed runs that deviated
  uint64_t replanned;  // shapes that AUTO recorded again
  uint64_t hits;       // of replayed runs
  uint64_t fallbacks;
  uint64_t survivors;         // blocks alive now, of runs that have ended
  uint64_t bad_releases;      // refused with TIDE_ERR_HANDLE
  uint64_t unknown_releases;  // while recording or validating: of blocks that the run did not request
  uint64_t plans;
  uint64_t arenas;  // held now
  uint64_t arena_bytes;
  uint64_t arena_bytes_peak;
  uint64_t arena_allocs;  // arenas allocated so far
} tide_profile_stats;
#define TIDE_PROFILE_STATS_INIT TIDE_SIZED(tide_profile_stats)

// Exact when no other thread is in a call.
TIDE_API TIDE_NODISCARD tide_status tide_profile_get_stats(tide_profile* profile, tide_profile_stats* out);
// Does an address lie in an arena of this profile?
TIDE_API bool tide_profile_owns(tide_profile* profile, const void* address);
// Releases arenas that no run and no surviving block uses.
TIDE_API tide_status tide_profile_trim(tide_profile* profile);

TIDE_END_DECLS
#endif
