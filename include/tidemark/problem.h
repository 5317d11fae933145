// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: problem. A planning problem is a list of buffers with lifetimes and sizes. A problem is read from
// MiniMalloc's CSV, or made from a trace, in which every request is a buffer.
//
//   tide_problem* problem = NULL;
//   tide_plan* plan = NULL;
//   const tide_source source = tide_source_file(0);   // standard input
//   const tide_sink sink = tide_sink_file(1);         // standard output
//   tide_status status = tide_problem_read(&source, NULL, &problem);
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

// Reads MiniMalloc's CSV to the end of the source. NULL options are the defaults; their format is MINIMALLOC
// or TIDE_FORMAT_COUNT. The problem has the buffers in the order of the rows, with their alignment, hint and
// gaps. An offset that the file gives is fixed.
// Errors:  TIDE_ERR_FORMAT with line and byte; TIDE_ERR_LIMIT when the problem would need more memory than
//          the options allow, or has 2^31 buffers; TIDE_ERR_NO_MEMORY; TIDE_ERR_ARGUMENT; what the source
//          returned.
// Cost:    one pass; about 120 bytes for a buffer and 32 for a gap, up to 2.5 times that while it reads.
TIDE_API TIDE_NODISCARD tide_status tide_problem_read(const tide_source* source,
                                                      const tide_read_options* options, tide_problem** out);

// Makes a problem from the requests on one device of a trace. A NULL heap means malloc.
//
// If all requests came from a planning problem, through whatever formats, the result is that problem, as
// tide_problem_read() returns it. For any other trace, times are positions of entries, and sizes are
// rounded up to 512 bytes. A buffer that is never released ends after the last entry. A buffer that existed
// before the first entry is known from its release, or from the list of blocks at the end of the trace. If
// there is such a buffer, time 0 is before the first entry, otherwise after it.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; TIDE_ERR_LIMIT for more than 2^32 requests, or for 2^63
//          bytes that are live at once.
// Cost:    O(n log n) for n requests; about 120 bytes each, twice that while it works.
TIDE_API TIDE_NODISCARD tide_status tide_problem_new(const tide_trace* trace, size_t device,
                                                     const tide_heap* heap, tide_problem** out);
TIDE_API void tide_problem_free(tide_problem* problem);

// Returns the problem in the form that tide_plan_solve() takes, in one pool without a limit; empty for
// NULL. Lifetimes and gaps are not checked here: tide_plan_solve() may refuse them.
// Owner:   the problem.
TIDE_API tide_plan_problem tide_problem_plan(const tide_problem* problem);

// Returns the name of the buffer at a position; NULL if the position is out of range. In a recording the
// name is the position in digits, unless the request has a name of its own that no other request has. A
// zero byte follows the name; its length does not count it.
// Owner:   the problem.
TIDE_API const char* tide_problem_name(const tide_problem* problem, size_t position, size_t* out_bytes);

// Writes MiniMalloc's CSV: a row for each buffer, in the order of the problem, with the columns that the
// problem has. The last column has the offsets of a plan. If `offsets` is NULL, it has the offsets of the
// problem, if all buffers have one.
// Errors:  TIDE_ERR_ARGUMENT; TIDE_ERR_NO_MEMORY; what the sink returned.
TIDE_API TIDE_NODISCARD tide_status tide_problem_write(const tide_problem* problem, const uint64_t* offsets,
                                                       const tide_sink* sink);

TIDE_END_DECLS
#endif
