// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Best fit in the order of time, as PyTorch's mobile profiler intends it: a request takes the low end of the
// smallest hole that is large enough, of equal ones the lowest, or else new space at the top; what ends
// becomes a hole again and grows together with its neighbours. At each time what ends makes room first.
//
// Sizes are rounded up to the largest alignment, so that every offset is right. Holes are in two trees, by
// size and by offset, and so are never mistaken for one another when their sizes are equal. [H1] holes are
// disjoint, do not touch, and lie below the top. Cost: O(n log n).
#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/tree.h"
#include "profile/requests.h"

typedef struct hole {
  tide__tree_node by_size;    // key: bytes, tie: offset
  tide__tree_node by_offset;  // key: offset
  struct hole* next_spare;    // borrowed
} hole;

typedef struct holes {
  tide__tree sizes;
  tide__tree offsets;
  hole* spare;    // borrowed from `all`
  uint64_t top;   // the highest end so far
  uint64_t unit;  // all sizes are multiples of it
  bool extends_top;
} holes;

static void holes_insert(holes* h, uint64_t offset, uint64_t bytes) {
  hole* const new_hole = h->spare;
  h->spare = new_hole->next_spare;
  new_hole->by_size = (tide__tree_node){ .key = bytes, .tie = offset };
  new_hole->by_offset = (tide__tree_node){ .key = offset };
  tide__tree_insert(&h->sizes, &new_hole->by_size);
  tide__tree_insert(&h->offsets, &new_hole->by_offset);
}

static void holes_remove(holes* h, hole* old) {
  tide__tree_remove(&h->sizes, &old->by_size);
  tide__tree_remove(&h->offsets, &old->by_offset);
  old->next_spare = h->spare;
  h->spare = old;
}

static uint64_t hole_end(const hole* h) { return h->by_offset.key + h->by_size.key; }

// The hole that begins at or below an offset, or NULL.
static hole* holes_at(const holes* h, uint64_t offset) {
  tide__tree_node* const node = tide__tree_floor(&h->offsets, offset);
  return node != NULL ? TIDE_OWNER(node, hole, by_offset) : NULL;
}

static uint64_t holes_take_top(holes* h, uint64_t bytes) {
  hole* const last = h->extends_top && h->top != 0 ? holes_at(h, h->top - 1) : NULL;
  uint64_t offset = h->top;
  if (last != NULL && hole_end(last) == h->top) {
    offset = last->by_offset.key;
    holes_remove(h, last);
  }
  h->top = offset + bytes;
  return offset;
}

static uint64_t holes_take(holes* h, uint64_t bytes) {
  tide__tree_node* const node = tide__tree_ceiling(&h->sizes, bytes);
  if (node == NULL) return holes_take_top(h, bytes);
  hole* const fitting = TIDE_OWNER(node, hole, by_size);
  const uint64_t offset = fitting->by_offset.key;
  const uint64_t rest = fitting->by_size.key - bytes;
  holes_remove(h, fitting);
  if (rest != 0) holes_insert(h, offset + bytes, rest);
  return offset;
}

static void holes_give(holes* h, uint64_t offset, uint64_t bytes) {
  hole* const right = holes_at(h, offset + bytes);
  if (right != NULL && right->by_offset.key == offset + bytes) {
    bytes += right->by_size.key;
    holes_remove(h, right);
  }
  hole* const left = holes_at(h, offset);
  if (left != NULL && hole_end(left) == offset) {
    offset = left->by_offset.key;
    bytes += left->by_size.key;
    holes_remove(h, left);
  }
  holes_insert(h, offset, bytes);
}

static uint64_t holes_rounded(const holes* h, uint64_t bytes) {
  return (bytes + h->unit - 1) & ~(h->unit - 1);
}

static void holes_play(holes* h, tide_profile_request* requests, size_t count, const uint32_t* first,
                       const uint32_t* ended) {
  for (size_t time = 0; time < count; time++) {
    for (uint32_t i = first[time]; i < first[time + 1]; i++) {
      const tide_profile_request* const old = &requests[ended[i]];
      holes_give(h, old->offset, holes_rounded(h, old->bytes));
    }
    tide_profile_request* const request = &requests[time];
    if (tide__request_is_managed(request)) request->offset = holes_take(h, holes_rounded(h, request->bytes));
  }
}

tide_status tide__holes_fit(tide_profile_request* requests, size_t count, bool extends_top,
                            const tide_heap* heap) {
  // Between n live requests there are at most n holes; one more is there for a moment.
  hole* const all = tide__heap_alloc(heap, count + 1, sizeof *all);
  uint32_t* const first = tide__heap_alloc(heap, count + 2, sizeof *first);
  uint32_t* const ended = tide__heap_alloc(heap, count + 1, sizeof *ended);
  tide_status status = TIDE_OK;
  if (all == NULL || first == NULL || ended == NULL) {
    status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to place %zu requests", count);
  } else {
    for (size_t i = 0; i < count; i++) all[i].next_spare = &all[i + 1];
    tide__requests_endings(requests, count, first, ended);
    holes h = { .spare = all, .unit = tide__requests_alignment(requests, count), .extends_top = extends_top };
    holes_play(&h, requests, count, first, ended);
  }
  tide__heap_release(heap, ended, count + 1, sizeof *ended);
  tide__heap_release(heap, first, count + 2, sizeof *first);
  tide__heap_release(heap, all, count + 1, sizeof *all);
  return status;
}
