// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A sweep over the sections. Spans that are live are in a tree by their lower end; each new one is compared
// with its two neighbours. O(n log n) for n spans.
#include "plan/fixed.h"

#include "base/error.h"
#include "base/list.h"
#include "base/tree.h"
#include "plan/radix.h"

typedef struct fixed_span {
  tide__tree_node node;  // its key is where the span begins
  int64_t end;
  uint32_t box;
} fixed_span;

typedef struct fixed_sweep {
  tide__scratch scratch;
  fixed_span* spans;    // of scratch
  tide__keyed* events;  // of scratch; ends before beginnings, by section
  tide__keyed* spare;   // of scratch
  size_t count;         // of spans
} fixed_sweep;

static tide_status fixed_alloc(fixed_sweep* sweep, const tide__model* model, const tide_heap* heap) {
  tide__scratch_init(&sweep->scratch, heap);
  size_t spans = 0;
  for (uint32_t i = 0; i < model->count; i++) {
    if (model->boxes[i].fixed >= 0) spans += model->boxes[i].span_count;
  }
  sweep->spans = tide__scratch_alloc(&sweep->scratch, spans, sizeof *sweep->spans);
  sweep->events = tide__scratch_alloc(&sweep->scratch, 2 * spans, sizeof *sweep->events);
  sweep->spare = tide__scratch_alloc(&sweep->scratch, 2 * spans, sizeof *sweep->spare);
  if (!sweep->scratch.is_short) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %zu fixed buffers", spans);
}

static void fixed_list(fixed_sweep* sweep, const tide__model* model) {
  for (uint32_t i = 0; i < model->count; i++) {
    const tide__box* const box = &model->boxes[i];
    for (uint32_t j = 0; box->fixed >= 0 && j < box->span_count; j++) {
      const tide__span* const span = &model->spans[box->span + j];
      const uint32_t index = (uint32_t)sweep->count++;
      sweep->spans[index] = (fixed_span){ .node.key = (uint64_t)(box->fixed + span->bottom),
                                          .node.tie = index,
                                          .end = box->fixed + span->top,
                                          .box = i };
      tide__keyed* const events = &sweep->events[(size_t)2 * index];
      events[0] = (tide__keyed){ (uint64_t)span->first << 1 | 1, index };
      events[1] = (tide__keyed){ (uint64_t)span->last << 1, index };
    }
  }
  tide__radix_sort(sweep->events, sweep->spare, 2 * sweep->count);
}

// One of the spans in the tree that overlap this one; NULL if none does.
static const fixed_span* fixed_meet(const tide__tree* tree, const fixed_span* span) {
  const tide__tree_node* const before = tide__tree_floor(tree, span->node.key);
  if (before != NULL && TIDE_OWNER_CONST(before, fixed_span, node)->end > (int64_t)span->node.key) {
    return TIDE_OWNER_CONST(before, fixed_span, node);
  }
  const tide__tree_node* const after = tide__tree_ceiling(tree, span->node.key);
  return after != NULL && (int64_t)after->key < span->end ? TIDE_OWNER_CONST(after, fixed_span, node) : NULL;
}

tide_status tide__fixed_find_pair(const tide__model* model, const tide_heap* heap, uint32_t* out_box,
                                  uint32_t* out_other) {
  *out_box = *out_other = model->count;
  if (!model->has_fixed) return TIDE_OK;
  fixed_sweep sweep = { .count = 0 };
  tide__tree tree = { NULL };
  const tide_status status = fixed_alloc(&sweep, model, heap);
  if (status == TIDE_OK) fixed_list(&sweep, model);
  for (size_t i = 0; i < 2 * sweep.count; i++) {
    fixed_span* const span = &sweep.spans[sweep.events[i].value];
    if (sweep.events[i].key % 2 == 0) {
      tide__tree_remove(&tree, &span->node);
      continue;
    }
    const fixed_span* const met = fixed_meet(&tree, span);
    if (met != NULL) {
      *out_box = met->box;
      *out_other = span->box;
      break;
    }
    tide__tree_insert(&tree, &span->node);
  }
  tide__scratch_fini(&sweep.scratch);
  return status;
}
