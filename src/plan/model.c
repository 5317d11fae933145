// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A sweep over the sorted ends of all spans. A section ends at the first end after a beginning. So it is a
// maximal set of items that live together, and there are at most as many sections as items.
//
// Bounds: the boxes of one section must not overlap. If every offset is a multiple of a grain, each box
// except the topmost takes whole grains. O(n log n), and about 200 bytes per item.
#include "plan/model.h"

#include "base/arith.h"
#include "base/error.h"
#include "plan/paint.h"
#include "plan/radix.h"

__extension__ typedef unsigned __int128 model_sum;

typedef struct model_work {
  tide__scratch scratch;
  tide__keyed* starts;  // of scratch; spans by their first instant
  tide__keyed* ends;    // of scratch; by the instant after the last
  tide__keyed* spare;   // of scratch
  uint32_t* of_span;    // of scratch; the box of each span
  model_sum* whole;     // of scratch, (optional) grains of each section, in bytes
} model_work;

static tide_status model_no_memory(const tide__model* model) {
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a pool of %u buffers", (unsigned)model->count);
}

// ---------------------------------------------------------------------------------------------------
// Boxes

static int64_t model_offset(uint64_t offset) { return offset <= TIDE_PLAN_MAX_BYTES ? (int64_t)offset : -1; }

static void model_add_box(tide__model* model, model_work* work, const tide__items* items, uint32_t index) {
  const tide__item* const item = &items->items[index];
  tide__box box = { .span = model->span_count,
                    .span_count = item->piece_count,
                    .height = (int64_t)item->bytes,
                    .fixed = model_offset(item->offset),
                    .hint = model_offset(item->hint),
                    .alignment = item->alignment,
                    .duration = items->pieces[item->piece + item->piece_count - 1].upper -
                                items->pieces[item->piece].lower,
                    .item = index };
  for (uint32_t i = 0; i < item->piece_count; i++) {
    const tide__piece* const piece = &items->pieces[item->piece + i];
    const uint32_t span = model->span_count++;
    model->spans[span] = (tide__span){ .bottom = (int64_t)piece->first,
                                       .top = (int64_t)piece->last,
                                       .held = (int64_t)piece->held };
    work->of_span[span] = model->count;
    work->starts[span] = (tide__keyed){ piece->lower, span };
    work->ends[span] = (tide__keyed){ piece->upper, span };
    model->has_holes |= piece->held < piece->last;
  }
  // Ignore a hint that no plan can keep.
  if (box.hint > (int64_t)TIDE_PLAN_MAX_BYTES - box.height) box.hint = -1;
  model->has_fixed |= box.fixed >= 0;
  model->has_hints |= box.hint >= 0;
  model->has_gaps |= box.span_count > 1;
  model->grain = tide__gcd(model->grain, box.alignment);
  model->boxes[model->count++] = box;
}

static tide_status model_add_boxes(tide__model* model, model_work* work, const tide__items* items,
                                   const uint32_t* list, size_t count) {
  size_t boxes = 0;
  size_t spans = 0;
  for (size_t i = 0; i < count; i++) {
    boxes += items->items[list[i]].piece_count > 0;
    spans += items->items[list[i]].piece_count;
  }
  model->boxes = tide__scratch_alloc(&model->scratch, boxes, sizeof *model->boxes);
  model->spans = tide__scratch_alloc(&model->scratch, spans, sizeof *model->spans);
  work->starts = tide__scratch_alloc(&work->scratch, spans, sizeof *work->starts);
  work->ends = tide__scratch_alloc(&work->scratch, spans, sizeof *work->ends);
  work->spare = tide__scratch_alloc(&work->scratch, spans, sizeof *work->spare);
  work->of_span = tide__scratch_alloc(&work->scratch, spans, sizeof *work->of_span);
  if (model->scratch.is_short || work->scratch.is_short) return model_no_memory(model);
  for (size_t i = 0; i < count; i++) {
    if (items->items[list[i]].piece_count > 0) model_add_box(model, work, items, list[i]);
  }
  if (model->grain == 0) model->grain = 1;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Sections

static int64_t model_saturate(model_sum sum) { return sum < INT64_MAX ? (int64_t)sum : INT64_MAX; }

static uint64_t model_grains(const tide__model* model, const tide__span* span) {
  const uint64_t rest = (uint64_t)span->top % model->grain;
  return (uint64_t)span->top + (rest > 0 ? model->grain - rest : 0);
}

// Visits starts and ends by time, ends first, and closes a section at an end that follows a start.
static void model_sweep(tide__model* model, model_work* work) {
  model_sum bytes = 0;
  model_sum whole = 0;
  uint32_t start = 0;
  bool is_open = false;
  for (uint32_t end = 0; end < model->span_count;) {
    if (start < model->span_count && work->starts[start].key < work->ends[end].key) {
      tide__span* const span = &model->spans[work->starts[start].value];
      span->first = model->sections;
      bytes += (uint64_t)span->held;
      whole += model_grains(model, span);
      model->instants[model->sections] = work->starts[start++].key;
      is_open = true;
      continue;
    }
    if (is_open) {
      model->loads[model->sections] = model_saturate(bytes);
      if (model->loads[model->sections] > model->held) {
        model->held = model->loads[model->sections];
        model->held_at = model->instants[model->sections];
      }
      if (work->whole != NULL) work->whole[model->sections] = whole;
      model->sections++;
      is_open = false;
    }
    tide__span* const span = &model->spans[work->ends[end++].value];
    span->last = model->sections;
    bytes -= (uint64_t)span->held;
    whole -= model_grains(model, span);
  }
}

static tide_status model_find_sections(tide__model* model, model_work* work) {
  tide__radix_sort(work->starts, work->spare, model->span_count);
  tide__radix_sort(work->ends, work->spare, model->span_count);
  model->instants = tide__scratch_alloc(&model->scratch, model->span_count, sizeof *model->instants);
  model->loads = tide__scratch_alloc(&model->scratch, model->span_count, sizeof *model->loads);
  if (model->grain > 1 && !model->has_holes) {
    work->whole = tide__scratch_alloc(&work->scratch, model->span_count, sizeof *work->whole);
  }
  if (model->scratch.is_short || work->scratch.is_short) return model_no_memory(model);
  model_sweep(model, work);
  for (uint32_t i = 0; i < model->count; i++) {
    tide__box* const box = &model->boxes[i];
    box->first = model->spans[box->span].first;
    box->last = model->spans[box->span + box->span_count - 1].last;
  }
  return TIDE_OK;
}

static tide_status model_sort_boxes(tide__model* model, model_work* work) {
  tide__box* const sorted = tide__scratch_alloc(&model->scratch, model->count, sizeof *sorted);
  if (model->scratch.is_short) return model_no_memory(model);
  for (uint32_t i = 0; i < model->count; i++) {
    work->starts[i] = (tide__keyed){ (uint64_t)model->boxes[i].first << 32 | model->boxes[i].last, i };
  }
  tide__radix_sort(work->starts, work->spare, model->count);
  for (uint32_t i = 0; i < model->count; i++) sorted[i] = model->boxes[work->starts[i].value];
  model->boxes = sorted;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Bounds

// Replaces each load by the whole grains of the section, minus the most unused bytes that any box leaves in
// its last grain: that box may be on top.
static tide_status model_bound_by_grains(tide__model* model, model_work* work) {
  uint64_t* const unused = tide__scratch_alloc(&work->scratch, model->sections, sizeof *unused);
  uint32_t* const next = tide__scratch_alloc(&work->scratch, (size_t)model->sections + 1, sizeof *next);
  if (work->scratch.is_short) return model_no_memory(model);
  for (uint32_t i = 0; i < model->span_count; i++) {
    const uint64_t rest = model_grains(model, &model->spans[i]) - (uint64_t)model->spans[i].top;
    work->ends[i] = (tide__keyed){ ~rest, i };
  }
  tide__radix_sort(work->ends, work->spare, model->span_count);
  tide__paint_clear(next, model->sections);
  for (uint32_t i = 0; i < model->span_count; i++) {
    const tide__span* const span = &model->spans[work->ends[i].value];
    tide__paint(next, unused, span->first, span->last, ~work->ends[i].key);
  }
  for (uint32_t i = 0; i < model->sections; i++) {
    model->loads[i] = model_saturate(work->whole[i] - unused[i]);
  }
  return TIDE_OK;
}

static void model_raise(tide__model* model, tide__part* part, int64_t bound, tide_plan_proof proof) {
  if (bound > part->lower_bound) part->lower_bound = bound;
  if (bound <= model->lower_bound) return;
  model->lower_bound = bound;
  model->proof = proof;
}

static void model_bound_part(tide__model* model, tide__part* part, const tide__items* items) {
  for (uint32_t i = part->first_section; i < part->last_section; i++) {
    model_raise(model, part, model->loads[i],
                (tide_plan_proof){ .reason = TIDE_PLAN_LOAD, .instant = model->instants[i] });
  }
  for (uint32_t i = part->first_box; i < part->last_box; i++) {
    const tide__box* const box = &model->boxes[i];
    const uint64_t offset = box->fixed > 0 ? (uint64_t)box->fixed : 0;
    const int64_t end = model_saturate((model_sum)offset + (uint64_t)box->height);
    model_raise(model, part, end,
                (tide_plan_proof){ .reason = TIDE_PLAN_BUFFER, .buffer = items->items[box->item].buffer });
  }
}

// ---------------------------------------------------------------------------------------------------
// Parts

static tide_status model_find_parts(tide__model* model, const tide__items* items) {
  for (int pass = 0; pass < 2; pass++) {  // the first only counts
    uint32_t parts = 0;
    for (uint32_t i = 0; i < model->count;) {
      tide__part part = { .first_box = i, .first_section = model->boxes[i].first };
      while (i < model->count && (i == part.first_box || model->boxes[i].first < part.last_section)) {
        if (model->boxes[i].last > part.last_section) part.last_section = model->boxes[i].last;
        i++;
      }
      part.last_box = i;
      if (pass == 1) {
        model_bound_part(model, &part, items);
        model->parts[parts] = part;
      }
      parts++;
    }
    if (pass == 1) break;
    model->part_count = parts;
    model->parts = tide__scratch_alloc(&model->scratch, parts, sizeof *model->parts);
    if (model->scratch.is_short) return model_no_memory(model);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------

static tide_status model_build(tide__model* model, model_work* work, const tide__items* items,
                               const uint32_t* list, size_t count) {
  TIDE_TRY(model_add_boxes(model, work, items, list, count));
  TIDE_TRY(model_find_sections(model, work));
  TIDE_TRY(model_sort_boxes(model, work));
  if (work->whole != NULL) TIDE_TRY(model_bound_by_grains(model, work));
  return model_find_parts(model, items);
}

tide_status tide__model_init(tide__model* model, const tide__items* items, const uint32_t* list, size_t count,
                             const tide_heap* heap) {
  *model = (tide__model){ .count = 0 };
  tide__scratch_init(&model->scratch, heap);
  model_work work = { .starts = NULL };
  tide__scratch_init(&work.scratch, heap);
  const tide_status status = model_build(model, &work, items, list, count);
  tide__scratch_fini(&work.scratch);
  return status;
}

void tide__model_fini(tide__model* model) { tide__scratch_fini(&model->scratch); }
