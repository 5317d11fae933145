// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: problem, the planning problem in a trace: which buffers there were, from when to when, and how
// large. A problem in MiniMalloc's CSV that was read (format.h) comes out as it was; of any other recording
// every request is a buffer.
//
//   tide_problem* problem = NULL;
//   tide_plan* plan = NULL;
//   const tide_sink sink = tide_sink_file(1);   // standard output
//   tide_status status = tide_problem_new(trace, 0, NULL, &problem);
//   const tide_plan_problem view = tide_problem_plan(problem);
//   if (status == TIDE_OK) status = tide_plan_solve(&view, NULL, &plan);
//   if (status == TIDE_OK && tide_plan_offsets(plan) != NULL) {
//     status = tide_problem_write(problem, tide_plan_offsets(plan), &sink);
//   }
//   tide_plan_free(plan);
//   tide_problem_free(problem);
#ifndef TIDEMARK_PROBLEM_H
#define TIDEMARK_PROBLEM_H

#include "tidemark/format.h"
#include "tidemark/plan.h"

TIDE_BEGIN_DECLS

typedef struct tide_problem tide_problem;  // opaque; freed by tide_problem_free()

// Makes the problem of what was requested on one device. The trace is borrowed until the problem is freed and
// may not change. NULL for a heap is malloc.
//
// A trace of a planning problem, by whatever formats it came, gives its buffers in the order of its rows,
// with their alignment, hint, gaps and offset; an offset that is given is fixed. Elsewhere times are numbers
// of entries and sizes are rounded up to 512 bytes; what is never released ends after the last entry. What
// was there before the first entry is known from its release or from the trace's list of blocks at the end;
// if there is some, time 0 is the one before the first entry, otherwise the one after it.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for more than 2^32 requests, or for 2^63
//          bytes that are live at once.
// Cost:    O(n log n) for n requests; about 110 bytes each, twice that while it works.
TIDE_API TIDE_NODISCARD tide_status tide_problem_new(const tide_trace* trace, size_t device,
                                                     const tide_heap* heap, tide_problem** out);
TIDE_API void tide_problem_free(tide_problem* problem);

// The problem as it is planned and verified, in one pool without a limit; nothing for NULL. Lifetimes and
// gaps are as the trace has them, so that tide_plan_solve() may refuse them.
// Owner:   the problem.
TIDE_API tide_plan_problem tide_problem_plan(const tide_problem* problem);

// The name of the buffer at a position. In a recording that is the position in digits, unless the request
// has a name that no other has. It ends with a zero byte that its length does not count; NULL for a position
// that is none.
// Owner:   the problem.
TIDE_API const char* tide_problem_name(const tide_problem* problem, size_t position, size_t* out_bytes);

// Writes MiniMalloc's CSV: a row for each buffer, in the order of the problem, with the columns that it has
// and, in the last one, the offsets of a plan. NULL offsets: those that the problem has, if all buffers have
// one.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; what the sink returned.
TIDE_API TIDE_NODISCARD tide_status tide_problem_write(const tide_problem* problem, const uint64_t* offsets,
                                                       const tide_sink* sink);

TIDE_END_DECLS
#endif
