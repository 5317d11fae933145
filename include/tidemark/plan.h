// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: plan. It places buffers with known lifetimes in one arena, makes the arena as small as
// possible, and says how far from the optimum it may still be.
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
// Two buffers may share bytes of a pool unless there is an instant at which both live. Lifetimes are
// half-open: a buffer that ends where another begins does not overlap it. A buffer with the offset 0 is
// fixed at 0; use TIDE_PLAN_FREELY or TIDE_PLAN_ANYWHERE for a free one. See docs/plan.md.
#ifndef TIDEMARK_PLAN_H
#define TIDEMARK_PLAN_H

#include "tidemark/base.h"

TIDE_BEGIN_DECLS

#define TIDE_PLAN_ANYWHERE UINT64_MAX            // the solver chooses the offset
#define TIDE_PLAN_ANY_POOL UINT32_MAX            // the solver chooses the pool
#define TIDE_PLAN_MAX_BYTES ((uint64_t)1 << 62)  // of a buffer, an offset, a capacity

// A part of a buffer's lifetime in which it uses only its bytes [first, last), or none if both are equal.
typedef struct tide_plan_gap {
  uint64_t lower;
  uint64_t upper;
  uint64_t first;
  uint64_t last;
} tide_plan_gap;

typedef struct tide_plan_buffer {
  uint64_t lower;  // the first instant of its life
  uint64_t upper;  // the instant after the last; a buffer with lower == upper never uses any bytes
  uint64_t bytes;
  uint64_t alignment;         // of the offset; need not be a power of two; 0 means 1
  uint64_t offset;            // fixed, or TIDE_PLAN_ANYWHERE
  uint64_t hint;              // the preferred offset, or TIDE_PLAN_ANYWHERE; see `keeps_hints`
  const tide_plan_gap* gaps;  // within the lifetime, not overlapping, in any order; borrowed during a call
  size_t gap_count;
  // Buffers with the same number, other than 0, share storage: they get one offset and one pool, and may
  // overlap.
  uint32_t alias;
  uint32_t pool;  // the number of a pool, or TIDE_PLAN_ANY_POOL
} tide_plan_buffer;
// Initialises the fields of a buffer that may lie anywhere in the first pool.
#define TIDE_PLAN_FREELY .offset = TIDE_PLAN_ANYWHERE, .hint = TIDE_PLAN_ANYWHERE

typedef struct tide_plan_problem {
  const tide_plan_buffer* buffers;  // borrowed during a call
  size_t count;
  const uint64_t* capacities;  // bytes of each pool, in order of preference; borrowed during a call
  size_t pools;                // 0: one pool without a limit
} tide_plan_problem;

typedef enum tide_plan_goal {
  TIDE_PLAN_PEAK,  // the smallest peak of each pool, within its capacity, for the buffers assigned to it
  TIDE_PLAN_FIT,   // any plan within the capacities
} tide_plan_goal;

typedef enum tide_plan_verdict {
  TIDE_PLAN_OPTIMAL,     // the peak equals the lower bound
  TIDE_PLAN_FEASIBLE,    // the plan fits; a smaller one may exist
  TIDE_PLAN_INFEASIBLE,  // no plan exists, and `proof` says why
  TIDE_PLAN_UNKNOWN,     // no plan was found before a limit was reached
} tide_plan_verdict;

// Why the lower bound holds, or why there is no plan.
typedef enum tide_plan_reason {
  TIDE_PLAN_NO_REASON,
  TIDE_PLAN_LOAD,    // the buffers that live at `instant` need that much: tide_plan_live_set()
  TIDE_PLAN_SEARCH,  // the search tried all arrangements below it
  // These two include the buffers that share storage with the named ones.
  TIDE_PLAN_BUFFER,  // `buffer` alone needs that much, or its fixed offset does not fit
  TIDE_PLAN_PAIR,    // `buffer` and `other` overlap at their fixed offsets, or cannot share storage as asked
} tide_plan_reason;

// What found the plan.
typedef enum tide_plan_stage {
  TIDE_PLAN_STAGE_NONE,           // there was nothing to place, or no plan was found
  TIDE_PLAN_STAGE_HINTS,          // buffers stayed at their hints
  TIDE_PLAN_STAGE_GREEDY,         // one pass of the valley heuristic
  TIDE_PLAN_STAGE_WHEEL,          // squeaky-wheel passes, which learn which buffers end too high
  TIDE_PLAN_STAGE_SEARCH,         // the exact search
  TIDE_PLAN_STAGE_NEIGHBOURHOOD,  // the exact search on a part of an earlier plan
} tide_plan_stage;

typedef struct tide_plan_proof {
  tide_plan_reason reason;
  uint32_t pool;     // the pool in question; TIDE_PLAN_ANY_POOL: all pools together
  uint64_t instant;  // LOAD
  size_t buffer;     // BUFFER, PAIR: positions in the problem
  size_t other;      // PAIR
} tide_plan_proof;

typedef struct tide_plan_outcome {
  tide_plan_verdict verdict;
  tide_plan_stage stage;
  uint64_t peak;         // of the plan; without one, the smallest peak found that does not fit, or 0
  uint64_t lower_bound;  // no plan has a smaller peak; for a pool: no plan of the buffers assigned to it
  double gap;            // (peak - lower_bound) / lower_bound; 0 if there is no plan
  uint64_t nodes;        // spent; see the options
  double seconds;
  size_t moved;  // buffers that do not lie at their hints
  tide_plan_proof proof;
} tide_plan_outcome;

typedef struct tide_plan_progress {
  tide_plan_stage stage;  // running now
  uint32_t pool;          // being planned
  uint64_t peak;          // the smallest of this pool so far; UINT64_MAX: none
  uint64_t lower_bound;
  uint64_t nodes;
  double seconds;
} tide_plan_progress;

typedef struct tide_plan_options {
  uint32_t size;  // set by TIDE_PLAN_OPTIONS_INIT
  tide_plan_goal goal;
  // The search ends at the first of the two limits. Without either, it ends when it has a proof, which may
  // take forever. Without a time limit, the plan depends only on the problem, the node limit and the seed,
  // not on the threads. A node is one placement; a placement that visits more than 16,384 buffers and
  // instants counts as several nodes. A first plan is made in any case, for about two nodes per buffer.
  double seconds;    // 0: no limit; _INIT sets 10
  uint64_t nodes;    // 0: no limit
  uint32_t threads;  // 0: one per processor; _INIT sets 1; more than 4 do not help
  uint64_t seed;
  // Treats the hints as an earlier plan. The solver first looks for a plan that moves few buffers and stays
  // below the capacity (FIT), or below the highest hinted buffer if the lower bound permits it (PEAK). If
  // it finds none within the limits, the hints only serve as a first plan to improve.
  bool keeps_hints;
  // (optional) Called from time to time on the calling thread; false ends the search with the best plan so
  // far.
  bool (*on_progress)(void* user, const tide_plan_progress* progress);
  void* user;             // caller keeps
  const tide_heap* heap;  // (optional) caller keeps until the plan is freed; NULL for malloc
} tide_plan_options;
// clang-format off
#define TIDE_PLAN_OPTIONS_INIT                                                                    \
  { TIDE_FIELD(size, sizeof(tide_plan_options)), TIDE_FIELD(goal, TIDE_PLAN_PEAK),                \
    TIDE_FIELD(seconds, 10.0), TIDE_FIELD(nodes, 0), TIDE_FIELD(threads, 1), TIDE_FIELD(seed, 0), \
    TIDE_FIELD(keeps_hints, false), TIDE_FIELD(on_progress, NULL), TIDE_FIELD(user, NULL),        \
    TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_plan tide_plan;  // opaque; freed by tide_plan_free()

// Solves a problem. NULL options mean the defaults. An infeasible problem is not an error: see the verdict.
// Every plan has passed tide_plan_verify(). A buffer with TIDE_PLAN_ANY_POOL goes to the first pool that it
// fits into.
// Errors:  TIDE_ERR_ARGUMENT for invalid options or an invalid problem: a lifetime or gap that ends before
//          it begins, gaps that overlap or leave the lifetime, more than TIDE_PLAN_MAX_BYTES, an unknown
//          pool; TIDE_ERR_LIMIT for 2^30 buffers and gaps together, or more than 2^16 pools;
//          TIDE_ERR_NO_MEMORY; TIDE_ERR_STATE if a plan fails verification, which is a bug.
// Threads: any number of calls at once.
// Cost:    O(n log n + nodes) for n buffers. The first pass, O(n log n), takes about a second for a million
//          buffers and is finished even after the time limit. About 550 bytes per buffer, and up to 200 MB
//          for searches.
TIDE_API TIDE_NODISCARD tide_status tide_plan_solve(const tide_plan_problem* problem,
                                                    const tide_plan_options* options, tide_plan** out);
TIDE_API void tide_plan_free(tide_plan* plan);

// Return the outcome for all pools (the worst verdict, the sum of peaks and its lower bound), and for one
// pool. The stage and the proof for all pools are those of the first pool with the worst verdict, or of all
// pools together.
TIDE_API tide_plan_outcome tide_plan_result(const tide_plan* plan);
TIDE_API tide_plan_outcome tide_plan_pool_result(const tide_plan* plan, uint32_t pool);

// Return the offset and the pool of each buffer, by its position in the problem; NULL if there is no plan.
// Owner:   the plan.
TIDE_API const uint64_t* tide_plan_offsets(const tide_plan* plan);
TIDE_API const uint32_t* tide_plan_pools(const tide_plan* plan);

// Returns the positions, in rising order, of the buffers that live at the instant of a pool's LOAD proof;
// NULL and a count of 0 without such a proof. TIDE_PLAN_ANY_POOL names the proof for all pools.
// Owner:   the plan.
TIDE_API const size_t* tide_plan_live_set(const tide_plan* plan, uint32_t pool, size_t* out_count);

// "optimal", "feasible", "infeasible", "unknown"; "greedy" and so on. Never NULL.
TIDE_API const char* tide_plan_verdict_name(tide_plan_verdict verdict);
TIDE_API const char* tide_plan_stage_name(tide_plan_stage stage);

// ---------------------------------------------------------------------------------------------------
// The verifier

typedef enum tide_plan_fault {
  TIDE_PLAN_NO_FAULT,
  TIDE_PLAN_FAULT_OVERLAP,    // `buffer` and `other` use the same bytes at `instant`
  TIDE_PLAN_FAULT_CAPACITY,   // `buffer` ends beyond its pool, or beyond TIDE_PLAN_MAX_BYTES
  TIDE_PLAN_FAULT_ALIGNMENT,  // the offset of `buffer` is not a multiple of its alignment
  TIDE_PLAN_FAULT_FIXED,      // `buffer` does not lie at its fixed offset or in its pool
  TIDE_PLAN_FAULT_ALIAS,      // `buffer` and `other` share storage, but differ in offset or pool
} tide_plan_fault;

typedef struct tide_plan_check {
  uint32_t size;          // set by TIDE_PLAN_CHECK_INIT
  tide_plan_fault fault;  // the first one found
  size_t buffer;
  size_t other;
  uint64_t instant;
  uint64_t peak;   // the highest end of a buffer; 0 if there is a fault
  char text[200];  // describes the fault; empty if there is none
} tide_plan_check;
#define TIDE_PLAN_CHECK_INIT TIDE_SIZED(tide_plan_check)

// Checks whether offsets are a valid plan of a problem. It shares no code with the solver. A buffer that
// never uses any bytes may lie anywhere below TIDE_PLAN_MAX_BYTES. `pools` has the pool of each buffer;
// NULL: buffers with TIDE_PLAN_ANY_POOL lie in the first.
// Errors:  TIDE_ERR_ARGUMENT for a problem that tide_plan_solve() refuses, or for NULL offsets;
//          TIDE_ERR_NO_MEMORY.
// Cost:    O((n + g) log n) for n buffers with g gaps.
TIDE_API TIDE_NODISCARD tide_status tide_plan_verify(const tide_plan_problem* problem,
                                                     const uint64_t* offsets, const uint32_t* pools,
                                                     const tide_heap* heap, tide_plan_check* out);

TIDE_END_DECLS
#endif
