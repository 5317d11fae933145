// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: profile, which records the requests of one run of a program, plans them into one arena, and
// serves later runs from that arena without asking anybody for memory.
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
// A run belongs to the thread that began it: requests of that thread between begin and end are part of it, in
// their order; they are numbered 0, 1, 2 ... Memory may be released on any thread, also after the run. A run
// that differs from the recorded one gets other memory, from the fallback, where the plan has none for it; it
// is never stopped, and no two live pieces of memory ever overlap. On device memory the arena is for work of
// one stream, or of streams that the program puts in the order of its requests and releases.
#ifndef TIDEMARK_PROFILE_H
#define TIDEMARK_PROFILE_H

#include "tidemark/base.h"
#include "tidemark/memory.h"
#include "tidemark/plan.h"

TIDE_BEGIN_DECLS

// ---------------------------------------------------------------------------------------------------
// Plans

#define TIDE_PROFILE_NEVER UINT64_MAX         // the lifetime of what is not released in its run
#define TIDE_PROFILE_MAX_REQUESTS (1u << 30)  // of a run
#define TIDE_PROFILE_MAX_ALIGNMENT (1u << 20)

// One request of a run. Time is the number of requests so far: request i lives from i until just before
// request `lifetime` is made, so that i < lifetime <= the number of requests, or NEVER.
typedef struct tide_profile_request {
  uint64_t bytes;      // not 0
  uint64_t alignment;  // a power of two; 0 is 1
  uint64_t lifetime;
  uint64_t offset;  // where it lies: in the arena, or, if its lifetime is NEVER, in the arena of those
} tide_profile_request;

// Who finds the offsets.
typedef enum tide_profile_planner {
  TIDE_PROFILE_SMALLEST,  // the smallest of the two below and of what tide_plan_solve() finds
  // In the order of time: the smallest hole that is large enough, from its low end, or else new space at the
  // top. So PyTorch's mobile profiler plans, when its faults are mended.
  TIDE_PROFILE_BEST_FIT,
  TIDE_PROFILE_TOP_FIT,  // the same, but a hole at the top is extended instead of left behind
} tide_profile_planner;

typedef struct tide_profile_plan_options {
  uint32_t size;  // set by TIDE_PROFILE_PLAN_OPTIONS_INIT
  tide_profile_planner planner;
  uint64_t nodes;         // placements that tide_plan_solve() may try; at least 10 for each request
  const tide_heap* heap;  // (optional) caller keeps until the plan is freed; NULL for malloc
} tide_profile_plan_options;
// clang-format off
#define TIDE_PROFILE_PLAN_OPTIONS_INIT                                                               \
  { TIDE_FIELD(size, sizeof(tide_profile_plan_options)), TIDE_FIELD(planner, TIDE_PROFILE_SMALLEST), \
    TIDE_FIELD(nodes, 2000000), TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_profile_plan tide_profile_plan;  // opaque; freed by tide_profile_plan_free()

// Plans requests; their offsets are ignored. The plan depends on the requests and the options alone, on every
// computer. Every plan has passed tide_profile_verify(). NULL options are the defaults.
// Errors:  TIDE_ERR_ARGUMENT for a request that makes no sense, which is named, or sums of
//          TIDE_PLAN_MAX_BYTES and more; TIDE_ERR_LIMIT for too many; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_new(const tide_profile_request* requests, size_t count,
                                                          const tide_profile_plan_options* options,
                                                          tide_profile_plan** out);
TIDE_API void tide_profile_plan_free(tide_profile_plan* plan);

typedef struct tide_profile_plan_info {
  size_t count;                  // of requests
  size_t managed;                // of these in the arena: those that are released in their run
  uint64_t bytes;                // of the arena
  uint64_t escape_bytes;         // of the arena of those that are not
  uint64_t lower_bound;          // no arena can be smaller: the most bytes that live at once
  uint64_t alignment;            // the largest of all
  uint64_t hash;                 // of sizes, alignments and lifetimes: equal for equal runs
  tide_profile_planner planner;  // that found the offsets; SMALLEST: tide_plan_solve()
} tide_profile_plan_info;

TIDE_API tide_profile_plan_info tide_profile_plan_describe(const tide_profile_plan* plan);
// One of its requests; all 0 for an index that is none.
TIDE_API tide_profile_request tide_profile_plan_request(const tide_profile_plan* plan, size_t index);

// Looks whether offsets are a plan of these requests in an arena of `bytes`; those that are never released
// are not looked at. It shares no code with the planners. `out` says what is wrong, and about which two
// requests.
// Errors:  TIDE_ERR_ARGUMENT for requests that tide_profile_plan_new() refuses, or an arena above
//          TIDE_PLAN_MAX_BYTES; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_verify(const tide_profile_request* requests, size_t count,
                                                        uint64_t bytes, const tide_heap* heap,
                                                        tide_plan_check* out);

// Writes a plan to a file, and reads one. The file has a version and a checksum: docs/profile.md.
// Errors (of read): TIDE_ERR_FORMAT for what is damaged, cut off, or no plan although its checksum is right,
//         and TIDE_ERR_UNSUPPORTED for a newer version; TIDE_ERR_NO_MEMORY; what the source returned.
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_write(const tide_profile_plan* plan,
                                                            const tide_sink* sink);
TIDE_API TIDE_NODISCARD tide_status tide_profile_plan_read(const tide_source* source, const tide_heap* heap,
                                                           tide_profile_plan** out);

// ---------------------------------------------------------------------------------------------------
// Profiles

typedef struct tide_profile_options {
  uint32_t size;  // set by TIDE_PROFILE_OPTIONS_INIT
  tide_profile_planner planner;
  // A replayed run must repeat the recorded one exactly: a request of another size or beyond the last one is
  // refused with TIDE_ERR_STATE, and so is a release at another time than recorded; what was not released so
  // can be released after the run.
  bool is_strict;
  // For memory with `is_host` only: others as the arenas are refused, and others as the fallback not filled.
  tide_fill fill;
  uint64_t alignment;  // of requests that name none; a power of two
  // Arenas kept for what is not released in its run: while one is still used, the next run takes another one
  // of them. 0: such memory comes from the fallback.
  uint32_t escape_arenas;
  uint32_t max_plans;  // kept at once; the one that was not used for longest goes
  // AUTO: a run deviates when more than `tolerance` of its requests came from the fallback or of the planned
  // ones were not made, or when anything survived that should not. After this many of a shape in a row the
  // next one is recorded again, and after that twice as many, up to 64 times; 0: never.
  uint32_t replan_after;
  double tolerance;
  uint32_t trim_after;    // an arena larger than the last so many runs needed is replaced; 0: never
  uint64_t plan_nodes;    // see tide_profile_plan_options
  tide_memory memory;     // of the arenas; all 0: the computer's own
  tide_memory fallback;   // all 0: the same
  const tide_heap* heap;  // (optional) caller keeps until the profile and all its memory are released; NULL
                          // for malloc
} tide_profile_options;
// clang-format off
#define TIDE_PROFILE_OPTIONS_INIT                                                                 \
  { TIDE_FIELD(size, sizeof(tide_profile_options)), TIDE_FIELD(planner, TIDE_PROFILE_SMALLEST),   \
    TIDE_FIELD(is_strict, false), TIDE_FIELD(fill, TIDE_FILL_NOTHING), TIDE_FIELD(alignment, 64), \
    TIDE_FIELD(escape_arenas, 4), TIDE_FIELD(max_plans, 16), TIDE_FIELD(replan_after, 3),         \
    TIDE_FIELD(tolerance, 0.01), TIDE_FIELD(trim_after, 16), TIDE_FIELD(plan_nodes, 2000000),     \
    TIDE_FIELD(memory, TIDE_MEMORY_NONE), TIDE_FIELD(fallback, TIDE_MEMORY_NONE),                 \
    TIDE_FIELD(heap, NULL) }
// clang-format on
// As PyTorch's mobile profiler does it: best fit, exact replay, what escapes is not planned.
// clang-format off
#define TIDE_PROFILE_OPTIONS_ORIGINAL                                                            \
  { TIDE_FIELD(size, sizeof(tide_profile_options)), TIDE_FIELD(planner, TIDE_PROFILE_BEST_FIT),  \
    TIDE_FIELD(is_strict, true), TIDE_FIELD(fill, TIDE_FILL_NOTHING), TIDE_FIELD(alignment, 64), \
    TIDE_FIELD(escape_arenas, 0), TIDE_FIELD(max_plans, 16), TIDE_FIELD(replan_after, 0),        \
    TIDE_FIELD(tolerance, 0.01), TIDE_FIELD(trim_after, 0), TIDE_FIELD(plan_nodes, 2000000),     \
    TIDE_FIELD(memory, TIDE_MEMORY_NONE), TIDE_FIELD(fallback, TIDE_MEMORY_NONE),                \
    TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_profile tide_profile;  // opaque; freed by tide_profile_free()

// Makes a profile without plans; NULL options are the defaults.
// Errors:  TIDE_ERR_ARGUMENT for options out of range; TIDE_ERR_UNSUPPORTED for a fill of memory that the
//          processor cannot write; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_profile_new(const tide_profile_options* options, tide_profile** out);
// Frees the profile and gives back all arenas in which nothing lies; a run that is open on this thread is
// cancelled. What is still handed out, from an arena or from the fallback, stays as it is: it is released
// with tide_profile_release() of this profile as before, an arena goes with the last that lies in it, and
// what the profile needs for that goes with the last of all. Until then the memory, the fallback and the heap
// of the options stay in use.
// Threads: no other call may be under way, and none but these releases, on any thread, may follow; no run may
//          be open on another thread.
TIDE_API void tide_profile_free(tide_profile* profile);

// The plan for a shape, a number that the program chooses: a plan to be used from now on (the profile takes a
// share in it: free yours whenever you like), and the one in use (yours is to be freed).
// Errors:  TIDE_ERR_ARGUMENT; for get: TIDE_ERR_HANDLE if there is none.
TIDE_API TIDE_NODISCARD tide_status tide_profile_set_plan(tide_profile* profile, uint64_t shape,
                                                          tide_profile_plan* plan);
TIDE_API TIDE_NODISCARD tide_status tide_profile_get_plan(tide_profile* profile, uint64_t shape,
                                                          tide_profile_plan** out);
// Forgets the plan of a shape: AUTO records the next run of it. A run that is open, and what survived one,
// keep what they use of it; its arena goes when it is idle: tide_profile_trim().
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_HANDLE if there is none.
TIDE_API TIDE_NODISCARD tide_status tide_profile_clear_plan(tide_profile* profile, uint64_t shape);
// One number for several, such as the extents of all inputs; their order counts.
TIDE_API uint64_t tide_profile_shape(const uint64_t* numbers, size_t count);

// ---------------------------------------------------------------------------------------------------
// Runs

typedef enum tide_profile_mode {
  TIDE_PROFILE_NONE,    // no run
  TIDE_PROFILE_AUTO,    // replays the plan of the shape, or records one where there is none or it is worn out
  TIDE_PROFILE_RECORD,  // serves from the fallback; its end plans
  TIDE_PROFILE_VALIDATE,  // serves from the fallback and compares with the plan
  TIDE_PROFILE_REPLAY,    // serves from the arena
} tide_profile_mode;

// How a run went. Requests of 0 bytes are not counted.
typedef struct tide_profile_report {
  uint32_t size;           // set by TIDE_PROFILE_REPORT_INIT
  tide_profile_mode mode;  // RECORD, VALIDATE or REPLAY
  uint64_t requests;       // replayed: those that the fallback refused included
  uint64_t hits;           // served from an arena, or, validating, as planned; 0 when recording
  uint64_t fallbacks;      // the others: requests == hits + fallbacks; 0 when recording, too
  uint64_t refused;        // requests and releases that a strict run refused; not counted elsewhere
  uint64_t escaped;  // fallbacks: never released in the plan, and there is no arena for it; no deviation
  // Requests that did not go as planned
  uint64_t smaller;  // of fewer bytes than planned; mostly hits
  uint64_t larger;   // fallbacks: more bytes than planned, or a larger alignment
  uint64_t surplus;  // fallbacks: not in the plan at this point
  uint64_t blocked;  // fallbacks: something that was to be released before still lies there
  uint64_t missing;  // planned and never requested
  // Releases that did not go as planned
  uint64_t early;
  uint64_t late;       // released in the run, but after the request that they should have preceded
  uint64_t survivors;  // in the arena, to be released in the run, and not released at its end
  uint64_t first;      // where it deviates first: how many of the planned requests were made or passed
                       // by then; UINT64_MAX: nowhere
  // Validating: does the run pass by the rules of PyTorch's mobile profiler, which asks neither for the
  // planned requests that are missing nor for what is not released?
  bool passes_original;
  bool is_same;         // nothing deviates
  uint64_t plan_bytes;  // of the arena of the plan that was used or made
  uint64_t lower_bound;
  // Bytes of the first request that is not the planned one, as planned (0: the plan has no more) and as asked
  // for; both 0: there is none.
  uint64_t first_planned;
  uint64_t first_actual;
} tide_profile_report;
#define TIDE_PROFILE_REPORT_INIT TIDE_SIZED(tide_profile_report)

// Begins a run on this thread. It may lie inside one of another profile that validates or replays, but not
// inside one that records: requests that are served by the innermost run (tensor.h) would be missing there,
// and nothing would say so.
// Errors:  TIDE_ERR_STATE if this thread has a run of this profile already, or one of another that records;
//          TIDE_ERR_HANDLE for VALIDATE or REPLAY of a shape without a plan; TIDE_ERR_NO_MEMORY, or what the
//          memory returned. After a failure no run is open, and requests are served by the fallback.
TIDE_API TIDE_NODISCARD tide_status tide_profile_begin(tide_profile* profile, tide_profile_mode mode,
                                                       uint64_t shape);
// Ends it. Recording, plans; where that fails, an earlier plan of the shape stays. The run is over in any
// case. `out` may be NULL.
// Errors:  TIDE_ERR_STATE if this thread has no run of this profile; what tide_profile_plan_new() returns.
TIDE_API TIDE_NODISCARD tide_status tide_profile_end(tide_profile* profile, tide_profile_report* out);
// Ends it without making a plan or counting deviations: the program has failed in the middle of it.
TIDE_API tide_status tide_profile_cancel(tide_profile* profile);
// What this thread is doing in this profile, and how many runs, of any profile, it has open.
TIDE_API tide_profile_mode tide_profile_current(const tide_profile* profile);
TIDE_API uint32_t tide_profile_depth(void);
// The profile of the innermost run that is open on the calling thread, or NULL.
TIDE_API tide_profile* tide_profile_innermost(void);

// Hands out memory: in a replayed run from the arena, otherwise from the fallback. 0 bytes are NULL and
// TIDE_OK, and need not be released. `alignment` is a power of two, or 0 for that of the options.
// Errors:  TIDE_ERR_ARGUMENT; what the fallback returned; TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE in a strict run.
// Cost:    O(1) from the arena, without a lock or an atomic instruction.
TIDE_API TIDE_NODISCARD tide_status tide_profile_alloc(tide_profile* profile, size_t bytes, size_t alignment,
                                                       void** out);
// Takes memory back, on any thread, in a run or not, and also after tide_profile_free(). What lies in no
// arena goes to the fallback, whoever got it there. NULL is nothing.
// Errors:  TIDE_ERR_HANDLE for an address in an arena where nothing begins or that was released already; what
//          the fallback returned; TIDE_ERR_STATE in a strict run.
TIDE_API tide_status tide_profile_release(tide_profile* profile, void* address);

// For programs that keep their own allocator while recording or validating: tell what was requested and
// released. Outside such a run they do nothing.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY for the note, which makes the end of the run fail.
TIDE_API TIDE_NODISCARD tide_status tide_profile_note_alloc(tide_profile* profile, const void* address,
                                                            size_t bytes, size_t alignment);
TIDE_API tide_status tide_profile_note_release(tide_profile* profile, const void* address);

// ---------------------------------------------------------------------------------------------------
// Queries

typedef struct tide_profile_stats {
  uint32_t size;      // set by TIDE_PROFILE_STATS_INIT
  uint64_t recorded;  // runs that ended
  uint64_t validated;
  uint64_t replayed;
  uint64_t differing;  // of the replayed: not the same as recorded
  uint64_t replanned;  // shapes that AUTO recorded again
  uint64_t hits;       // of replayed runs
  uint64_t fallbacks;
  uint64_t survivors;         // alive now, of runs that have ended
  uint64_t bad_releases;      // refused with TIDE_ERR_HANDLE
  uint64_t unknown_releases;  // while recording or validating: of what was not requested in the run
  uint64_t plans;
  uint64_t arenas;  // there are now, and their bytes
  uint64_t arena_bytes;
  uint64_t arena_bytes_peak;
  uint64_t arena_allocs;  // times that the memory was asked for one
} tide_profile_stats;
#define TIDE_PROFILE_STATS_INIT TIDE_SIZED(tide_profile_stats)

// Exact when no other thread is in a call.
TIDE_API TIDE_NODISCARD tide_status tide_profile_get_stats(tide_profile* profile, tide_profile_stats* out);
// Does an address lie in an arena of this profile?
TIDE_API bool tide_profile_owns(tide_profile* profile, const void* address);
// Gives back arenas that no run and no survivor uses.
TIDE_API tide_status tide_profile_trim(tide_profile* profile);

TIDE_END_DECLS
#endif
