// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: plan, which gives every buffer with a known lifetime its place in one arena, so that the arena is
// as small as can be, and says how far from the smallest it may still be.
//
//   const tide_plan_buffer buffers[] = { { .lower = 0, .upper = 3, .bytes = 4096, TIDE_PLAN_FREELY },
//                                        { .lower = 2, .upper = 5, .bytes = 1024, TIDE_PLAN_FREELY } };
//   const tide_plan_problem problem = { .buffers = buffers, .count = 2 };
//   tide_plan* plan = NULL;
//   if (tide_plan_solve(&problem, NULL, &plan) == TIDE_OK) {
//     printf("%llu bytes\n", (unsigned long long)tide_plan_result(plan).peak);
//   }
//   tide_plan_free(plan);
//
// Two buffers may hold the same bytes of a pool unless there is an instant at which both live. Lifetimes are
// half open: a buffer that ends where another begins does not meet it. A buffer whose offset is 0 must lie
// there: one that may lie anywhere says so, with TIDE_PLAN_FREELY or TIDE_PLAN_ANYWHERE. See docs/plan.md.
#ifndef TIDEMARK_PLAN_H
#define TIDEMARK_PLAN_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

#define TIDE_PLAN_ANYWHERE UINT64_MAX            // no offset: the solver chooses
#define TIDE_PLAN_ANY_POOL UINT32_MAX            // no pool: the solver chooses
#define TIDE_PLAN_MAX_BYTES ((uint64_t)1 << 62)  // of a buffer, an offset, a capacity

// A part of a buffer's lifetime in which it holds only its bytes [first, last); none when both are equal.
typedef struct tide_plan_gap {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;
  uint64_t last;
} tide_plan_gap;

typedef struct tide_plan_buffer {
  uint64_t lower;  // the first instant of its life
  uint64_t upper;  // the instant after the last; a buffer with lower == upper never holds anything
  uint64_t bytes;
  uint64_t alignment;         // the offset is a multiple of it; 0 is 1, and it need not be a power of two
  uint64_t offset;            // where it must lie, or TIDE_PLAN_ANYWHERE
  uint64_t hint;              // where it should rather lie, or TIDE_PLAN_ANYWHERE; see `keeps_hints`
  const tide_plan_gap* gaps;  // within the lifetime, not overlapping, in any order; borrowed during a call
  size_t gap_count;
  uint32_t alias;  // buffers of one number other than 0 share their storage: they have the same offset and
                   // pool, and may overlap one another
  uint32_t pool;   // the number of a pool, or TIDE_PLAN_ANY_POOL
} tide_plan_buffer;
// The fields of a buffer that may lie anywhere in the first pool.
#define TIDE_PLAN_FREELY .offset = TIDE_PLAN_ANYWHERE, .hint = TIDE_PLAN_ANYWHERE

typedef struct tide_plan_problem {
  const tide_plan_buffer* buffers;  // borrowed during a call
  size_t count;
  const uint64_t* capacities;  // bytes of each pool, in the order of preference; borrowed during a call
  size_t pools;                // 0: one pool without a limit
} tide_plan_problem;

typedef enum tide_plan_goal {
  TIDE_PLAN_PEAK,  // the smallest peak of each pool, within its capacity, for the buffers that are in it
  TIDE_PLAN_FIT,   // any plan within the capacities
} tide_plan_goal;

// What is known of a plan.
typedef enum tide_plan_verdict {
  TIDE_PLAN_OPTIMAL,     // its peak is the lower bound
  TIDE_PLAN_FEASIBLE,    // it fits; a smaller one may exist
  TIDE_PLAN_INFEASIBLE,  // there is none, and `proof` says why
  TIDE_PLAN_UNKNOWN,     // none was found before a limit was reached
} tide_plan_verdict;

// Why the lower bound holds, or why there is no plan.
typedef enum tide_plan_reason {
  TIDE_PLAN_NO_REASON,
  TIDE_PLAN_LOAD,    // what lives at `instant` needs that much: tide_plan_live_set()
  TIDE_PLAN_SEARCH,  // no arrangement below it was left to try
  // With those that share its storage,
  TIDE_PLAN_BUFFER,  // `buffer` alone needs that much, or cannot lie where it must
  TIDE_PLAN_PAIR,    // `buffer` and `other` must lie where they overlap, or share storage and cannot
} tide_plan_reason;

// What found the plan.
typedef enum tide_plan_stage {
  TIDE_PLAN_STAGE_NONE,           // nothing had to be placed, or nothing was found
  TIDE_PLAN_STAGE_HINTS,          // buffers stayed where their hints are
  TIDE_PLAN_STAGE_GREEDY,         // one pass of the valley heuristic
  TIDE_PLAN_STAGE_WHEEL,          // passes that learn which buffers end too high
  TIDE_PLAN_STAGE_SEARCH,         // the exact search
  TIDE_PLAN_STAGE_NEIGHBOURHOOD,  // the exact search on a part of an earlier plan
} tide_plan_stage;

typedef struct tide_plan_proof {
  tide_plan_reason reason;
  uint32_t pool;     // that it is about; TIDE_PLAN_ANY_POOL: all of them together
  uint64_t instant;  // LOAD
  size_t buffer;     // BUFFER, PAIR: positions in the problem
  size_t other;      // PAIR
} tide_plan_proof;

typedef struct tide_plan_outcome {
  tide_plan_verdict verdict;
  tide_plan_stage stage;
  uint64_t peak;         // of the plan; if there is none, the smallest found that does not fit, or 0
  uint64_t lower_bound;  // no plan has a smaller peak; of a pool: no plan of the buffers that it was given
  double gap;            // (peak - lower_bound) / lower_bound; 0 if there is no plan
  uint64_t nodes;        // placements tried, each counted as often as its work is worth; see the options
  double seconds;
  size_t moved;  // buffers that do not lie at their hint
  tide_plan_proof proof;
} tide_plan_outcome;

typedef struct tide_plan_progress {
  tide_plan_stage stage;  // that is at work
  uint32_t pool;          // it works on
  uint64_t peak;          // the smallest of this pool so far; UINT64_MAX: none
  uint64_t lower_bound;
  uint64_t nodes;
  double seconds;
} tide_plan_progress;

typedef struct tide_plan_options {
  uint32_t size;  // set by TIDE_PLAN_OPTIONS_INIT
  tide_plan_goal goal;
  // The search ends when either is reached. With no limit in time, the plan depends on the problem, the nodes
  // and the seed alone, whatever the threads. With neither it ends when it has a proof, which may be never.
  // A node is a placement, and bounds work: one that looks at more than 16,384 buffers and instants counts as
  // several. A first plan is made in any case, for about two nodes a buffer.
  double seconds;    // 0: no limit; _INIT sets 10
  uint64_t nodes;    // 0: no limit
  uint32_t threads;  // 0: as many as there are processors; _INIT sets 1; more than 4 are of no use
  uint64_t seed;
  // The hints are an earlier plan. Looked for is first a plan that moves few of them, and stays below the
  // capacity (FIT), or below the highest hinted buffer where the lower bound permits it (PEAK). When there
  // is none within the limits, hints only serve as the first plan to improve on.
  bool keeps_hints;
  // (optional) Called now and then, on the calling thread; false ends the search with the best plan so far.
  bool (*on_progress)(void* user, const tide_plan_progress* progress);
  void* user;             // caller keeps
  const tide_heap* heap;  // (optional) caller keeps, until the plan is freed; NULL for malloc
} tide_plan_options;
// clang-format off
#define TIDE_PLAN_OPTIONS_INIT                                                                    \
  { TIDE_FIELD(size, sizeof(tide_plan_options)), TIDE_FIELD(goal, TIDE_PLAN_PEAK),                \
    TIDE_FIELD(seconds, 10.0), TIDE_FIELD(nodes, 0), TIDE_FIELD(threads, 1), TIDE_FIELD(seed, 0), \
    TIDE_FIELD(keeps_hints, false), TIDE_FIELD(on_progress, NULL), TIDE_FIELD(user, NULL),        \
    TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_plan tide_plan;  // opaque; freed by tide_plan_free()

// Plans; NULL options are the defaults. That there is no plan is no error: the verdict says so. Every plan
// has passed tide_plan_verify(). Buffers that may lie in any pool go to the first that they fit into.
// Errors:  TIDE_ERR_ARGUMENT for options or a problem that make no sense: a lifetime or a gap that ends
//          before it begins, gaps outside the lifetime or over one another, more than TIDE_PLAN_MAX_BYTES, a
//          pool that is not there; TIDE_ERR_LIMIT for 2^30 buffers and gaps together, or above 2^16 pools;
//          TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE if a plan does not pass the verifier, which is our fault.
// Threads: any number of calls at once.
// Cost:    one pass over n buffers is O(n log n), about a second for a million, and is made even if the time
//          is over; what follows takes the limits: O(n log n + nodes) in all. About 550 bytes a buffer, and
//          up to 200 MB for searches.
TIDE_API TIDE_NODISCARD tide_status tide_plan_solve(const tide_plan_problem* problem,
                                                    const tide_plan_options* options, tide_plan** out);
TIDE_API void tide_plan_free(tide_plan* plan);

// How it went: over all pools (the worst verdict, the sum of peaks, a bound for that sum), and for one pool.
// The stage and the proof over all pools are those of the first pool with the worst verdict, or of all
// together.
TIDE_API tide_plan_outcome tide_plan_result(const tide_plan* plan);
TIDE_API tide_plan_outcome tide_plan_pool_result(const tide_plan* plan, uint32_t pool);

// Where each buffer lies, by its position in the problem, and in which pool; NULL if there is no plan.
// Owner:   the plan.
TIDE_API const uint64_t* tide_plan_offsets(const tide_plan* plan);
TIDE_API const uint32_t* tide_plan_pools(const tide_plan* plan);

// The positions of the buffers that hold memory at the instant of a pool's LOAD proof, rising; none, and
// NULL, without such a proof. TIDE_PLAN_ANY_POOL: of the proof over all pools.
// Owner:   the plan.
TIDE_API const size_t* tide_plan_live_set(const tide_plan* plan, uint32_t pool, size_t* out_count);

// "optimal", "feasible", "infeasible", "unknown"; "greedy" and so on. Never NULL.
TIDE_API const char* tide_plan_verdict_name(tide_plan_verdict verdict);
TIDE_API const char* tide_plan_stage_name(tide_plan_stage stage);

// ---------------------------------------------------------------------------------------------------
// The verifier

// What can be wrong with offsets.
typedef enum tide_plan_fault {
  TIDE_PLAN_NO_FAULT,
  TIDE_PLAN_FAULT_OVERLAP,    // `buffer` and `other` hold the same bytes at `instant`
  TIDE_PLAN_FAULT_CAPACITY,   // `buffer` ends beyond its pool, or beyond TIDE_PLAN_MAX_BYTES
  TIDE_PLAN_FAULT_ALIGNMENT,  // the offset is no multiple of the alignment
  TIDE_PLAN_FAULT_FIXED,      // `buffer` has an offset or a pool of its own, and lies elsewhere
  TIDE_PLAN_FAULT_ALIAS,      // `buffer` and `other` share storage, and do not lie at one offset of one pool
} tide_plan_fault;

typedef struct tide_plan_check {
  uint32_t size;          // set by TIDE_PLAN_CHECK_INIT
  tide_plan_fault fault;  // the first that was found
  size_t buffer;
  size_t other;
  uint64_t instant;
  uint64_t peak;   // the highest end of a buffer that holds memory; 0 with a fault
  char text[200];  // the fault in words; empty: none
} tide_plan_check;
#define TIDE_PLAN_CHECK_INIT TIDE_SIZED(tide_plan_check)

// Looks whether offsets are a plan of a problem; it shares no code with the solver. A buffer that never
// holds anything may lie anywhere below TIDE_PLAN_MAX_BYTES. `pools` says where buffers lie that may lie in
// any; NULL: in the first.
// Errors:  TIDE_ERR_ARGUMENT for a problem that tide_plan_solve() refuses, or buffers without offsets;
//          TIDE_ERR_NO_MEMORY.
// Cost:    O((n + g) log n) for n buffers with g gaps.
TIDE_API TIDE_NODISCARD tide_status tide_plan_verify(const tide_plan_problem* problem,
                                                     const uint64_t* offsets, const uint32_t* pools,
                                                     const tide_heap* heap, tide_plan_check* out);

TIDE_END_DECLS
#endif
