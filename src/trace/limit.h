// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trace that takes no more memory than it may: what readers of files need beyond the public interface.
#ifndef TIDEMARK_SRC_TRACE_LIMIT_H
#define TIDEMARK_SRC_TRACE_LIMIT_H

#include "tidemark/trace.h"

// Makes an empty trace that may take `limit` bytes of the heap, its own record left out.
tide_status tide__trace_new_limited(const tide_heap* heap, uint64_t limit, tide_trace** out);

// The heap that everything of the trace comes from. What a reader takes beside it counts as well, and must be
// given back before the trace is freed.
const tide_heap* tide__trace_heap(const tide_trace* trace);

// It may take more from now on, if `limit` is more than it may.
void tide__trace_raise_limit(tide_trace* trace, uint64_t limit);

// From now on it may take all there is.
void tide__trace_lift_limit(tide_trace* trace);

// Was memory refused because of the limit?
bool tide__trace_is_limited(const tide_trace* trace);

#endif
