// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests as buffers of a planning problem. Buffers and requests have the same numbers: a request that
// does not end in its run is a buffer without a lifetime.
#include "profile/requests.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"

#define REQUESTS_MIN_NODES 1u  // per request: one pass

static tide_status request_check(const tide_profile_request* request, size_t index, size_t count) {
  TIDE_REQUIRE(request->bytes != 0, TIDE_ERR_ARGUMENT, "request %zu has 0 bytes", index);
  const uint64_t alignment = tide__request_alignment(request);
  TIDE_REQUIRE(tide__is_power_of_two(alignment) && alignment <= TIDE_PROFILE_MAX_ALIGNMENT, TIDE_ERR_ARGUMENT,
               "request %zu has the alignment %llu, which is not a power of two up to 2^20", index,
               (unsigned long long)alignment);
  const bool is_alive = request->lifetime > index && request->lifetime <= count;
  TIDE_REQUIRE(is_alive || !tide__request_is_managed(request), TIDE_ERR_ARGUMENT,
               "request %zu of %zu has the lifetime %llu", index, count,
               (unsigned long long)request->lifetime);
  return TIDE_OK;
}

tide_status tide__requests_check(const tide_profile_request* requests, size_t count) {
  TIDE_REQUIRE(requests != NULL || count == 0, TIDE_ERR_ARGUMENT, "the requests are NULL");
  TIDE_REQUIRE(count <= TIDE_PROFILE_MAX_REQUESTS, TIDE_ERR_LIMIT, "%zu requests are more than 2^30", count);
  for (size_t i = 0; i < count; i++) TIDE_TRY(request_check(&requests[i], i, count));
  const uint64_t padding = tide__requests_alignment(requests, count) - 1;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t bytes = 0;
    const bool is_small = tide__add(requests[i].bytes, padding, &bytes) && tide__add(sum, bytes, &sum) &&
                          sum < TIDE_PLAN_MAX_BYTES;
    TIDE_REQUIRE(
        is_small, TIDE_ERR_ARGUMENT,
        "the requests up to number %zu, rounded up to the largest alignment, have 2^62 bytes or more", i);
  }
  return TIDE_OK;
}

uint64_t tide__requests_alignment(const tide_profile_request* requests, size_t count) {
  uint64_t largest = 1;
  for (size_t i = 0; i < count; i++) largest = tide__max(largest, tide__request_alignment(&requests[i]));
  return largest;
}

tide_status tide__requests_load(const tide_profile_request* requests, size_t count, const tide_heap* heap,
                                uint64_t* out) {
  uint64_t* const ended = tide__heap_alloc(heap, count + 1, sizeof *ended);
  TIDE_REQUIRE(ended != NULL, TIDE_ERR_NO_MEMORY, "no memory to add up %zu requests", count);
  uint64_t live = 0;
  *out = 0;
  for (size_t i = 0; i < count; i++) {
    live -= ended[i];
    if (!tide__request_is_managed(&requests[i])) continue;
    live += requests[i].bytes;
    ended[requests[i].lifetime] += requests[i].bytes;
    *out = tide__max(*out, live);
  }
  tide__heap_release(heap, ended, count + 1, sizeof *ended);
  return TIDE_OK;
}

uint64_t tide__requests_bytes(const tide_profile_request* requests, size_t count) {
  uint64_t end = 0;
  for (size_t i = 0; i < count; i++) {
    if (tide__request_is_managed(&requests[i])) end = tide__max(end, requests[i].offset + requests[i].bytes);
  }
  return end;
}

void tide__requests_endings(const tide_profile_request* requests, size_t count, uint32_t* first,
                            uint32_t* ended) {
  memset(first, 0, (count + 2) * sizeof *first);
  for (size_t i = 0; i < count; i++) {
    if (tide__request_is_managed(&requests[i])) first[requests[i].lifetime + 1]++;
  }
  for (size_t time = 1; time < count + 2; time++) first[time] += first[time - 1];
  for (size_t i = 0; i < count; i++) {
    if (tide__request_is_managed(&requests[i])) ended[first[requests[i].lifetime]++] = (uint32_t)i;
  }
  // Each beginning has moved to that of the next time.
  memmove(&first[1], &first[0], (count + 1) * sizeof *first);
  first[0] = 0;
}

uint64_t tide__requests_line_up(tide_profile_request* requests, size_t count) {
  uint64_t end = 0;
  for (size_t i = 0; i < count; i++) {
    if (tide__request_is_managed(&requests[i])) continue;
    const uint64_t alignment = tide__request_alignment(&requests[i]);
    requests[i].offset = (end + alignment - 1) & ~(alignment - 1);
    end = requests[i].offset + requests[i].bytes;
  }
  return end;
}

// ---------------------------------------------------------------------------------------------------
// The problem

static tide_plan_buffer request_buffer(const tide_profile_request* request, size_t index) {
  return (tide_plan_buffer){ .lower = index,
                             .upper = tide__request_is_managed(request) ? request->lifetime : index,
                             .bytes = request->bytes,
                             .alignment = tide__request_alignment(request),
                             TIDE_PLAN_FREELY };
}

// The buffers of `count` requests (not 0), or NULL.
static tide_plan_buffer* requests_buffers(const tide_profile_request* requests, size_t count,
                                          const tide_heap* heap) {
  tide_plan_buffer* const buffers = tide__heap_alloc(heap, count, sizeof *buffers);
  for (size_t i = 0; buffers != NULL && i < count; i++) buffers[i] = request_buffer(&requests[i], i);
  return buffers;
}

tide_status tide__requests_solve(tide_profile_request* requests, size_t count, uint64_t nodes,
                                 const tide_heap* heap) {
  if (count == 0) return TIDE_OK;
  tide_plan_buffer* const buffers = requests_buffers(requests, count, heap);
  TIDE_REQUIRE(buffers != NULL, TIDE_ERR_NO_MEMORY, "no memory to plan %zu requests", count);
  const tide_plan_problem problem = { .buffers = buffers, .count = count };
  // A time limit would make the plan depend on the computer.
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  options.seconds = 0;
  options.nodes = tide__max(nodes, REQUESTS_MIN_NODES * (uint64_t)count);
  options.heap = heap;
  tide_plan* plan = NULL;
  const tide_status status = tide_plan_solve(&problem, &options, &plan);
  const uint64_t* const offsets = status == TIDE_OK ? tide_plan_offsets(plan) : NULL;
  for (size_t i = 0; offsets != NULL && i < count; i++) {
    if (tide__request_is_managed(&requests[i])) requests[i].offset = offsets[i];
  }
  tide_plan_free(plan);
  tide__heap_release(heap, buffers, count, sizeof *buffers);
  return status;
}

static tide_status requests_verify(const tide_profile_request* requests, size_t count, uint64_t bytes,
                                   const tide_heap* heap, tide_plan_check* out) {
  tide_plan_buffer* const buffers = requests_buffers(requests, count, heap);
  uint64_t* const offsets = tide__heap_alloc(heap, count, sizeof *offsets);
  tide_status status = TIDE_OK;
  if (buffers == NULL || offsets == NULL) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to verify %zu requests", count);
  } else {
    for (size_t i = 0; i < count; i++) {
      if (tide__request_is_managed(&requests[i])) offsets[i] = requests[i].offset;
    }
    const tide_plan_problem problem = { buffers, count, &bytes, 1 };
    status = tide_plan_verify(&problem, offsets, NULL, heap, out);
  }
  tide__heap_release(heap, offsets, count, sizeof *offsets);
  tide__heap_release(heap, buffers, count, sizeof *buffers);
  return status;
}

tide_status tide_profile_verify(const tide_profile_request* requests, size_t count, uint64_t bytes,
                                const tide_heap* heap, tide_plan_check* out) {
  TIDE_TRY(tide__sized_check("profile_verify", out, sizeof *out));
  tide__sized_clear(out);
  TIDE_REQUIRE(tide__heap_is_valid(heap), TIDE_ERR_ARGUMENT, "verify: the heap lacks a function");
  TIDE_REQUIRE(bytes <= TIDE_PLAN_MAX_BYTES, TIDE_ERR_ARGUMENT, "verify: an arena of %llu bytes",
               (unsigned long long)bytes);
  TIDE_TRY(tide__requests_check(requests, count));
  if (count == 0) return TIDE_OK;
  return requests_verify(requests, count, bytes, tide__heap_or_system(heap), out);
}
