// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The requests of a run as a planning problem: validation, lifetimes and offsets.
#ifndef TIDEMARK_SRC_PROFILE_REQUESTS_H
#define TIDEMARK_SRC_PROFILE_REQUESTS_H

#include "tidemark/profile.h"

// Does a request end in its run, and so lie in the arena?
static inline bool tide__request_is_managed(const tide_profile_request* request) {
  return request->lifetime != TIDE_PROFILE_NEVER;
}

static inline uint64_t tide__request_alignment(const tide_profile_request* request) {
  return request->alignment == 0 ? 1 : request->alignment;
}

// Errors: TIDE_ERR_ARGUMENT, which names the request; TIDE_ERR_LIMIT.
tide_status tide__requests_check(const tide_profile_request* requests, size_t count);

// The largest alignment, and the most bytes that live at once, of valid requests.
uint64_t tide__requests_alignment(const tide_profile_request* requests, size_t count);
tide_status tide__requests_load(const tide_profile_request* requests, size_t count, const tide_heap* heap,
                                uint64_t* out);

// The end of the highest managed request.
uint64_t tide__requests_bytes(const tide_profile_request* requests, size_t count);

// Lists the managed requests in `ended`, by the time of their end and then by number. `first` (count + 2
// elements) has the position in `ended` at which each time begins.
void tide__requests_endings(const tide_profile_request* requests, size_t count, uint32_t* first,
                            uint32_t* ended);

// Sets the offsets of the managed requests with tide_plan_solve(). Errors: TIDE_ERR_NO_MEMORY.
tide_status tide__requests_solve(tide_profile_request* requests, size_t count, uint64_t nodes,
                                 const tide_heap* heap);

// Sets them by best fit in the order of time, with sizes rounded up to the largest alignment. With
// `extends_top`, a hole at the top is extended if no hole is large enough. [holes.c] Cost: O(n log n).
tide_status tide__holes_fit(tide_profile_request* requests, size_t count, bool extends_top,
                            const tide_heap* heap);

// Sets the offsets of the other requests, end to end; returns the end of the last.
uint64_t tide__requests_line_up(tide_profile_request* requests, size_t count);

#endif
