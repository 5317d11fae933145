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

// Offsets and heights are at most 2^63 - 1, so the ends of a bar may not fit; then it bars all above.
static bool fit_bar_with(tide__fit* fit, const tide__box* box, uint32_t other) {
  const tide__box* const there = &fit->model->boxes[other];
  for (uint32_t i = 0; i < box->span_count; i++) {
    const tide__span* const a = &fit->model->spans[box->span + i];
    for (uint32_t j = 0; j < there->span_count; j++) {
      const tide__span* const b = &fit->model->spans[there->span + j];
      if (a->first >= b->last || b->first >= a->last) continue;
      tide__bar bar = { .above = fit->offsets[other] - a->top + b->bottom, .box = other };
      if (__builtin_add_overflow(fit->offsets[other] - a->bottom, b->top, &bar.below)) bar.below = INT64_MAX;
      if (!fit_add_bar(fit, bar)) return false;
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
