// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The spans of all boxes are sorted by first section. Those that overlap a span begin before its end, and a
// tree of the latest ends finds them: nearly O(k + log n) for k of them.
#include "plan/fit.h"

#include "base/error.h"
#include "base/heap.h"

static tide_status fit_no_memory(const tide__fit* fit) {
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to fit %u buffers", (unsigned)fit->model->count);
}

static tide_status fit_sort_spans(tide__fit* fit) {
  const tide__model* const model = fit->model;
  tide__scratch work;
  tide__scratch_init(&work, fit->scratch.heap);
  tide__keyed* const keys = tide__scratch_alloc(&work, model->span_count, sizeof *keys);
  tide__keyed* const spare = tide__scratch_alloc(&work, model->span_count, sizeof *spare);
  const bool is_short = work.is_short;
  for (uint32_t i = 0; !is_short && i < model->span_count; i++)
    keys[i] = (tide__keyed){ model->spans[i].first, i };
  if (!is_short) tide__radix_sort(keys, spare, model->span_count);
  for (uint32_t i = 0; !is_short && i < model->span_count; i++) {
    fit->order[i] = keys[i].value;
    fit->place[keys[i].value] = i;
  }
  tide__scratch_fini(&work);
  return is_short ? fit_no_memory(fit) : TIDE_OK;
}

tide_status tide__fit_init(tide__fit* fit, const tide__model* model, const tide_heap* heap) {
  *fit = (tide__fit){ .model = model, .leaves = 1 };
  tide__scratch_init(&fit->scratch, heap);
  while (fit->leaves < model->span_count) fit->leaves *= 2;
  fit->offsets = tide__scratch_alloc(&fit->scratch, model->count, sizeof *fit->offsets);
  fit->order = tide__scratch_alloc(&fit->scratch, model->span_count, sizeof *fit->order);
  fit->place = tide__scratch_alloc(&fit->scratch, model->span_count, sizeof *fit->place);
  fit->owner = tide__scratch_alloc(&fit->scratch, model->span_count, sizeof *fit->owner);
  fit->latest = tide__scratch_alloc(&fit->scratch, 2 * (size_t)fit->leaves, sizeof *fit->latest);
  if (fit->scratch.is_short) return fit_no_memory(fit);
  for (uint32_t i = 0; i < model->count; i++) {
    fit->offsets[i] = -1;
    const tide__box* const box = &model->boxes[i];
    for (uint32_t j = box->span; j < box->span + box->span_count; j++) fit->owner[j] = i;
  }
  return fit_sort_spans(fit);
}

void tide__fit_fini(tide__fit* fit) {
  const tide_heap* const heap = fit->scratch.heap;
  tide__heap_release(heap, fit->bars, fit->bar_capacity, sizeof *fit->bars);
  tide__heap_release(heap, fit->unsorted, fit->unsorted_capacity, sizeof *fit->unsorted);
  tide__heap_release(heap, fit->keys, fit->key_capacity, sizeof *fit->keys);
  tide__heap_release(heap, fit->spare, fit->key_capacity, sizeof *fit->spare);
  tide__scratch_fini(&fit->scratch);
}

static void fit_set(tide__fit* fit, uint32_t span, uint32_t last) {
  uint32_t node = fit->leaves + fit->place[span];
  fit->latest[node] = last;
  for (node /= 2; node > 0; node /= 2) {
    const uint32_t* const children = &fit->latest[(size_t)2 * node];
    fit->latest[node] = children[0] > children[1] ? children[0] : children[1];
  }
}

void tide__fit_put(tide__fit* fit, uint32_t box, int64_t offset) {
  const tide__box* const put = &fit->model->boxes[box];
  fit->offsets[box] = offset;
  for (uint32_t i = put->span; i < put->span + put->span_count; i++)
    fit_set(fit, i, fit->model->spans[i].last);
}

void tide__fit_take(tide__fit* fit, uint32_t box) {
  const tide__box* const taken = &fit->model->boxes[box];
  fit->offsets[box] = -1;
  for (uint32_t i = taken->span; i < taken->span + taken->span_count; i++) fit_set(fit, i, 0);
}

// ---------------------------------------------------------------------------------------------------
// Bars of a box

static bool fit_add_bar(tide__fit* fit, tide__bar bar) {
  const size_t need = fit->bar_count + 1;
  if (!tide__heap_grow(fit->scratch.heap, (void**)&fit->unsorted, &fit->unsorted_capacity, need,
                       sizeof *fit->unsorted)) {
    return false;
  }
  fit->unsorted[fit->bar_count++] = bar;
  return true;
}

static bool fit_bar_by(tide__fit* fit, const tide__span* span, uint32_t other) {
  const tide__span* const there = &fit->model->spans[other];
  const uint32_t box = fit->owner[other];
  const int64_t offset = fit->offsets[box];
  const tide__bar bar = { .above = offset + there->bottom - span->top,
                          .below = offset + there->top - span->bottom,
                          .box = box };
  return fit_add_bar(fit, bar);
}

// Visits the placed spans below `node`, at [low, high) of the order, that overlap the span in time.
static bool fit_visit(tide__fit* fit, const tide__span* span, uint32_t node, uint32_t low, uint32_t high) {
  fit->work++;
  if (fit->latest[node] <= span->first || low >= fit->model->span_count) return true;
  if (fit->model->spans[fit->order[low]].first >= span->last) return true;
  if (node >= fit->leaves) return fit_bar_by(fit, span, fit->order[low]);
  const uint32_t middle = low + (high - low) / 2;
  return fit_visit(fit, span, 2 * node, low, middle) && fit_visit(fit, span, 2 * node + 1, middle, high);
}

static bool fit_sort(tide__fit* fit) {
  const tide_heap* const heap = fit->scratch.heap;
  const size_t count = fit->bar_count;
  if (count > fit->key_capacity) {
    tide__heap_release(heap, fit->keys, fit->key_capacity, sizeof *fit->keys);
    tide__heap_release(heap, fit->spare, fit->key_capacity, sizeof *fit->spare);
    fit->key_capacity = 2 * count;
    fit->keys = tide__heap_alloc(heap, fit->key_capacity, sizeof *fit->keys);
    fit->spare = tide__heap_alloc(heap, fit->key_capacity, sizeof *fit->spare);
    if (fit->keys == NULL || fit->spare == NULL) {
      tide__heap_release(heap, fit->keys, fit->key_capacity, sizeof *fit->keys);
      tide__heap_release(heap, fit->spare, fit->key_capacity, sizeof *fit->spare);
      fit->keys = fit->spare = NULL;
      fit->key_capacity = 0;
      return false;
    }
  }
  if (!tide__heap_grow(heap, (void**)&fit->bars, &fit->bar_capacity, count, sizeof *fit->bars)) return false;
  for (uint32_t i = 0; i < count; i++) {
    // Flip the sign bit so that negative numbers sort first.
    const uint64_t key = (uint64_t)fit->unsorted[i].above ^ (uint64_t)1 << 63;
    fit->keys[i] = (tide__keyed){ key, i };
  }
  tide__radix_sort(fit->keys, fit->spare, count);
  for (size_t i = 0; i < count; i++) fit->bars[i] = fit->unsorted[fit->keys[i].value];
  return true;
}

tide_status tide__fit_ask(tide__fit* fit, uint32_t box) {
  const tide__box* const asked = &fit->model->boxes[box];
  bool is_good = true;
  fit->bar_count = 0;
  for (uint32_t i = 0; is_good && i < asked->span_count; i++) {
    is_good = fit_visit(fit, &fit->model->spans[asked->span + i], 1, 0, fit->leaves);
  }
  fit->work += tide__radix_work(fit->bar_count);
  if (is_good && fit_sort(fit)) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to fit a buffer among %zu", fit->bar_count);
}

bool tide__fit_is_free(const tide__fit* fit, int64_t offset) {
  for (size_t i = 0; i < fit->bar_count && fit->bars[i].above < offset; i++) {
    if (offset < fit->bars[i].below) return false;
  }
  return true;
}

int64_t tide__fit_lowest(const tide__fit* fit, uint32_t box) {
  const uint64_t alignment = fit->model->boxes[box].alignment;
  int64_t offset = 0;
  for (size_t i = 0; i < fit->bar_count && fit->bars[i].above < offset; i++) {
    if (offset < fit->bars[i].below) offset = tide__align_height(fit->bars[i].below, alignment);
    if (offset == INT64_MAX) return INT64_MAX;
  }
  return offset;
}
