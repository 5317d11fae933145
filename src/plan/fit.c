// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Boxes are sorted by their first section, so those that meet a box are among those before some place, and a
// tree of the latest ends finds them: O(k + log n) for k of them, nearly.
#include "plan/fit.h"

#include "base/error.h"
#include "base/heap.h"

tide_status tide__fit_init(tide__fit* fit, const tide__model* model, const tide_heap* heap) {
  *fit = (tide__fit){ .model = model, .leaves = 1 };
  tide__pile_init(&fit->pile, heap);
  while (fit->leaves < model->count) fit->leaves *= 2;
  fit->offsets = tide__pile_alloc(&fit->pile, model->count, sizeof *fit->offsets);
  fit->latest = tide__pile_alloc(&fit->pile, (size_t)fit->leaves * 2, sizeof *fit->latest);
  if (fit->pile.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to fit %u buffers", (unsigned)model->count);
  }
  for (uint32_t i = 0; i < model->count; i++) fit->offsets[i] = -1;
  return TIDE_OK;
}

void tide__fit_fini(tide__fit* fit) {
  const tide_heap* const heap = fit->pile.heap;
  tide__heap_release(heap, fit->bars, fit->bar_capacity, sizeof *fit->bars);
  tide__heap_release(heap, fit->unsorted, fit->unsorted_capacity, sizeof *fit->unsorted);
  tide__heap_release(heap, fit->keys, fit->key_capacity, sizeof *fit->keys);
  tide__heap_release(heap, fit->spare, fit->key_capacity, sizeof *fit->spare);
  tide__pile_fini(&fit->pile);
}

static void fit_set(tide__fit* fit, uint32_t box, uint32_t last) {
  uint32_t node = fit->leaves + box;
  fit->latest[node] = last;
  for (node /= 2; node > 0; node /= 2) {
    const uint32_t left = fit->latest[2 * node];
    const uint32_t right = fit->latest[2 * node + 1];
    fit->latest[node] = left > right ? left : right;
  }
}

void tide__fit_put(tide__fit* fit, uint32_t box, int64_t offset) {
  fit->offsets[box] = offset;
  fit_set(fit, box, fit->model->boxes[box].last);
}

void tide__fit_take(tide__fit* fit, uint32_t box) {
  fit->offsets[box] = -1;
  fit_set(fit, box, 0);
}

// ---------------------------------------------------------------------------------------------------
// What bars a box

static bool fit_add_bar(tide__fit* fit, tide__bar bar) {
  const size_t need = fit->bar_count + 1;
  if (!tide__heap_grow(fit->pile.heap, (void**)&fit->unsorted, &fit->unsorted_capacity, need,
                       sizeof *fit->unsorted)) {
    return false;
  }
  fit->unsorted[fit->bar_count++] = bar;
  return true;
}

// The first span of a box that ends after `section`.
static uint32_t fit_first_span(const tide__model* model, const tide__box* box, uint32_t section) {
  uint32_t low = 0;
  uint32_t high = box->span_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (model->spans[box->span + middle].last <= section) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return box->span + low;
}

static bool fit_bar_by(tide__fit* fit, const tide__span* span, const tide__span* other, uint32_t box) {
  const int64_t offset = fit->offsets[box];
  const tide__bar bar = { .above = offset + other->bottom - span->top,
                          .below = offset + other->top - span->bottom,
                          .box = box };
  return fit_add_bar(fit, bar);
}

// Goes over the spans of the box with fewer of them, and looks for those of the other that they meet.
static bool fit_bar_with(tide__fit* fit, const tide__box* box, uint32_t other) {
  const tide__model* const model = fit->model;
  const tide__box* const there = &model->boxes[other];
  const bool is_fewer = box->span_count <= there->span_count;
  const tide__box* const few = is_fewer ? box : there;
  const tide__box* const many = is_fewer ? there : box;
  for (uint32_t i = few->span; i < few->span + few->span_count; i++) {
    const tide__span* const a = &model->spans[i];
    for (uint32_t j = fit_first_span(model, many, a->first); j < many->span + many->span_count; j++) {
      const tide__span* const b = &model->spans[j];
      if (b->first >= a->last) break;
      if (!fit_bar_by(fit, is_fewer ? a : b, is_fewer ? b : a, other)) return false;
    }
  }
  return true;
}

// Walks over the boxes below `node`, which are [low, high), that lie there, begin before the box ends and end
// after it begins.
static bool fit_visit(tide__fit* fit, const tide__box* box, uint32_t node, uint32_t low, uint32_t high) {
  if (fit->latest[node] <= box->first || low >= fit->model->count) return true;
  if (fit->model->boxes[low].first >= box->last) return true;
  if (node >= fit->leaves) return fit_bar_with(fit, box, low);
  const uint32_t middle = low + (high - low) / 2;
  return fit_visit(fit, box, 2 * node, low, middle) && fit_visit(fit, box, 2 * node + 1, middle, high);
}

static bool fit_sort(tide__fit* fit) {
  const tide_heap* const heap = fit->pile.heap;
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
    // The sign is turned round so that negative numbers come first.
    const uint64_t key = (uint64_t)fit->unsorted[i].above ^ (uint64_t)1 << 63;
    fit->keys[i] = (tide__keyed){ key, i };
  }
  tide__radix_sort(fit->keys, fit->spare, count);
  for (size_t i = 0; i < count; i++) fit->bars[i] = fit->unsorted[fit->keys[i].value];
  return true;
}

tide_status tide__fit_ask(tide__fit* fit, uint32_t box) {
  fit->bar_count = 0;
  if (!fit_visit(fit, &fit->model->boxes[box], 1, 0, fit->leaves) || !fit_sort(fit)) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to fit a buffer among %zu", fit->bar_count);
  }
  return TIDE_OK;
}

bool tide__fit_is_free(const tide__fit* fit, int64_t offset, uint32_t* out) {
  for (size_t i = 0; i < fit->bar_count && fit->bars[i].above < offset; i++) {
    if (offset >= fit->bars[i].below) continue;
    if (out != NULL) *out = fit->bars[i].box;
    return false;
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
