// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trace with a memory limit, for readers of files.
#ifndef TIDEMARK_SRC_TRACE_LIMIT_H
#define TIDEMARK_SRC_TRACE_LIMIT_H

#include "base/limited_heap.h"
#include "tidemark/trace.h"

// Makes an empty trace that may take `limit` bytes of the heap, not counting its own record.
tide_status tide__trace_new_limited(const tide_heap* heap, uint64_t limit, tide_trace** out);

// The heap of the trace. What a reader allocates from it counts as well, and must be released before the
// trace is freed.
const tide_heap* tide__trace_heap(const tide_trace* trace);

// The same heap, to change its limit.
tide__limited_heap* tide__trace_limited_heap(tide_trace* trace);

#endif
