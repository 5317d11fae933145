// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Best fit in the order of time, as PyTorch's mobile profiler intends it. A request takes the low end of
// the smallest hole that is large enough, the lowest of equal ones, or else new space at the top. A request
// that ends becomes a hole and merges with its neighbours. At each time, releases come first.
//
// Sizes are rounded up to the largest alignment, so that every offset is aligned. Cost: O(n log n).
#include "base/error.h"
#include "base/range_allocator.h"
#include "base/scratch.h"
#include "profile/requests.h"

typedef struct holes {
  tide__range_allocator ranges;
  tide__free_range* records;  // one for each request
  uint32_t* first;            // see tide__requests_endings()
  uint32_t* ended;
  uint64_t unit;  // all sizes are multiples of it
  bool extends_top;
} holes;

static uint64_t holes_rounded(const holes* h, uint64_t bytes) {
  return (bytes + h->unit - 1) & ~(h->unit - 1);
}

// Taking new space cannot fail: all requests together are below 2^62 bytes.
static void holes_take(holes* h, tide_profile_request* request, tide__free_range* record) {
  const uint64_t bytes = holes_rounded(h, request->bytes);
  if (tide__range_take(&h->ranges, record, bytes, &request->offset)) return;
  (void)tide__range_take_end(&h->ranges, record, bytes, h->extends_top, &request->offset);
}

static void holes_play(holes* h, tide_profile_request* requests, size_t count) {
  for (size_t time = 0; time < count; time++) {
    for (uint32_t i = h->first[time]; i < h->first[time + 1]; i++) {
      const tide_profile_request* const old = &requests[h->ended[i]];
      (void)tide__range_give(&h->ranges, old->offset, holes_rounded(h, old->bytes));
    }
    if (tide__request_is_managed(&requests[time])) holes_take(h, &requests[time], &h->records[time]);
  }
}

tide_status tide__holes_fit(tide_profile_request* requests, size_t count, bool extends_top,
                            const tide_heap* heap) {
  holes h = { .extends_top = extends_top };
  tide__scratch scratch;
  tide__scratch_init(&scratch, heap);
  h.records = tide__scratch_alloc(&scratch, count + 1, sizeof *h.records);
  h.first = tide__scratch_alloc(&scratch, count + 2, sizeof *h.first);
  h.ended = tide__scratch_alloc(&scratch, count + 1, sizeof *h.ended);
  const bool has_room = !scratch.is_short;
  if (has_room) {
    tide__requests_endings(requests, count, h.first, h.ended);
    h.unit = tide__requests_alignment(requests, count);
    holes_play(&h, requests, count);
  }
  tide__scratch_fini(&scratch);
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "no memory to place %zu requests", count);
  return TIDE_OK;
}
