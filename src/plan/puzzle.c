// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The unit. All offsets are multiples of the model's grain, so heights may be rounded up to it. Below that,
// if boxes lie as low as they can, every offset is a sum of heights, rounded up to alignments: it is a
// multiple of what divides all heights, all fixed offsets and those alignments that do not themselves divide
// it.
#include "plan/puzzle.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/random.h"
#include "plan/logarithm.h"
#include "plan/radix.h"

static int64_t puzzle_divisor(int64_t a, int64_t b) { return (int64_t)tide__gcd((uint64_t)a, (uint64_t)b); }

static int64_t puzzle_round_up(int64_t n, int64_t unit) { return n / unit + (n % unit != 0); }

// The sections of a span within the puzzle; empty if there are none.
static tide__puzzle_span puzzle_cut(const tide__span* span, uint32_t first, uint32_t last) {
  const uint32_t from = span->first > first ? span->first : first;
  const uint32_t to = span->last < last ? span->last : last;
  if (from >= to) return (tide__puzzle_span){ 0 };
  return (tide__puzzle_span){ from - first, to - first, span->top };
}

static int64_t puzzle_highest(const int64_t* grounds, const tide__puzzle_span* span, int64_t highest) {
  for (uint32_t i = span->first; i < span->last && grounds != NULL; i++) {
    highest = grounds[i] > highest ? grounds[i] : highest;
  }
  return highest;
}

// Heights are bytes until the unit is known.
static void puzzle_add(tide__puzzle* puzzle, const tide__model* model, const tide__puzzle_choice* choice,
                       uint32_t number, uint32_t* spans) {
  const uint32_t index = choice->boxes[number];
  const tide__box* const box = &model->boxes[index];
  const int64_t fixed = choice->fixed != NULL ? choice->fixed[number] : box->fixed;
  tide__tile tile = {
    .span = *spans, .alignment = (int64_t)box->alignment, .fixed = fixed, .bytes = box->height, .box = index
  };
  const int64_t room = fixed >= 0 ? choice->ceiling - fixed : INT64_MAX;
  if (room <= 0) return;
  if (tile.bytes > room) tile.bytes = room;
  for (uint32_t i = 0; i < box->span_count; i++) {
    tide__puzzle_span span = puzzle_cut(&model->spans[box->span + i], choice->first, choice->last);
    if (span.first == span.last) continue;
    if (span.height > room) span.height = room;
    puzzle->is_exact &= model->spans[box->span + i].held == model->spans[box->span + i].top;
    if (tile.span_count == 0) tile.first = span.first;
    tile.last = span.last;
    tile.area += span.last - span.first;
    tile.ground = puzzle_highest(choice->grounds, &span, tile.ground);
    puzzle->spans[(*spans)++] = span;
    tile.span_count++;
  }
  if (tile.span_count == 0) return;
  puzzle->has_gaps |= tile.span_count > 1;
  tile.log_duration = tide__log(box->duration);
  tile.log_sections = tide__log(box->last - box->first);
  tile.log_bytes = tide__log((uint64_t)tile.bytes);
  puzzle->tiles[puzzle->count++] = tile;
}

static int64_t puzzle_unit(const tide__puzzle* puzzle, int64_t grain) {
  int64_t unit = 0;
  for (uint32_t i = 0; i < puzzle->count; i++) {
    const tide__tile* const tile = &puzzle->tiles[i];
    for (uint32_t j = 0; j < tile->span_count; j++) {
      unit = puzzle_divisor(unit, puzzle_round_up(puzzle->spans[tile->span + j].height, grain));
    }
    if (tile->fixed > 0) unit = puzzle_divisor(unit, tile->fixed / grain);
  }
  if (unit == 0) unit = 1;
  for (int64_t before = 0; before != unit;) {
    before = unit;
    for (uint32_t i = 0; i < puzzle->count; i++) {
      const int64_t alignment = puzzle->tiles[i].alignment / grain;
      if (unit % alignment != 0) unit = puzzle_divisor(unit, alignment);
    }
  }
  return unit * grain;
}

static void puzzle_scale(tide__puzzle* puzzle) {
  const int64_t unit = puzzle->unit;
  for (uint32_t i = 0; i < puzzle->count; i++) {
    tide__tile* const tile = &puzzle->tiles[i];
    for (uint32_t j = 0; j < tile->span_count; j++) {
      tide__puzzle_span* const span = &puzzle->spans[tile->span + j];
      const int64_t unused = unit - 1 - (span->height - 1) % unit;
      if (unused > puzzle->unused) puzzle->unused = unused;
      span->height = puzzle_round_up(span->height, unit);
    }
    const int64_t unused = unit - 1 - (tile->bytes - 1) % unit;
    if (unused > puzzle->unused) puzzle->unused = unused;
    tile->ground = puzzle_round_up(tile->ground, unit);
    if (tile->fixed >= 0) tile->fixed /= unit;
    tile->alignment = unit % tile->alignment == 0 ? 1 : tile->alignment / unit;
  }
}

static bool puzzle_is_twin(const tide__puzzle* puzzle, const tide__tile* a, const tide__tile* b) {
  if (a->first != b->first || a->last != b->last || a->bytes != b->bytes || a->alignment != b->alignment ||
      a->ground != b->ground || a->fixed >= 0 || b->fixed >= 0 || a->span_count != b->span_count) {
    return false;
  }
  for (uint32_t i = 0; i < a->span_count; i++) {
    const tide__puzzle_span* const x = &puzzle->spans[a->span + i];
    const tide__puzzle_span* const y = &puzzle->spans[b->span + i];
    if (x->first != y->first || x->last != y->last || x->height != y->height) return false;
  }
  return true;
}

// A hash of the properties that twins share. Fixed tiles have no twins.
static uint64_t puzzle_twin_key(const tide__tile* tile, uint32_t index) {
  if (tile->fixed >= 0) return tide__random_mix(index);
  const uint64_t facts[] = {
    (uint64_t)tile->bytes,  tile->first,     tile->last, tile->area, (uint64_t)tile->alignment,
    (uint64_t)tile->ground, tile->span_count
  };
  uint64_t key = 0;
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) key = tide__random_mix(key + facts[i]);
  return key;
}

// Sorting by the hash puts twins next to each other.
static tide_status puzzle_find_twins(tide__puzzle* puzzle, const tide_heap* heap) {
  tide__scratch work;
  tide__scratch_init(&work, heap);
  tide__keyed* const keys = tide__scratch_alloc(&work, puzzle->count, sizeof *keys);
  tide__keyed* const spare = tide__scratch_alloc(&work, puzzle->count, sizeof *spare);
  if (work.is_short) {
    tide__scratch_fini(&work);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)puzzle->count);
  }
  for (uint32_t i = 0; i < puzzle->count; i++) {
    keys[i] = (tide__keyed){ puzzle_twin_key(&puzzle->tiles[i], i), i };
  }
  tide__radix_sort(keys, spare, puzzle->count);
  for (uint32_t i = 0; i < puzzle->count; i++) {
    tide__tile* const tile = &puzzle->tiles[keys[i].value];
    tile->twin = keys[i].value;
    for (uint32_t j = i; j-- > 0 && keys[j].key == keys[i].key;) {
      const tide__tile* const other = &puzzle->tiles[keys[j].value];
      if (!puzzle_is_twin(puzzle, tile, other)) continue;
      tile->twin = other->twin;
      break;
    }
  }
  tide__scratch_fini(&work);
  return TIDE_OK;
}

tide_status tide__puzzle_init(tide__puzzle* puzzle, const tide__model* model,
                              const tide__puzzle_choice* choice, const tide_heap* heap) {
  *puzzle = (tide__puzzle){ .sections = choice->last - choice->first, .is_exact = choice->grounds == NULL };
  tide__scratch_init(&puzzle->scratch, heap);
  size_t most = 0;
  for (uint32_t i = 0; i < choice->count; i++) most += model->boxes[choice->boxes[i]].span_count;
  puzzle->tiles = tide__scratch_alloc(&puzzle->scratch, choice->count, sizeof *puzzle->tiles);
  puzzle->spans = tide__scratch_alloc(&puzzle->scratch, most, sizeof *puzzle->spans);
  if (puzzle->scratch.is_short) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u buffers", (unsigned)choice->count);
  }
  uint32_t spans = 0;
  for (uint32_t i = 0; i < choice->count; i++) puzzle_add(puzzle, model, choice, i, &spans);
  puzzle->unit = puzzle_unit(puzzle, (int64_t)model->grain);
  puzzle_scale(puzzle);
  return puzzle_find_twins(puzzle, heap);
}

void tide__puzzle_fini(tide__puzzle* puzzle) { tide__scratch_fini(&puzzle->scratch); }
