// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch makes a segment if that leaves at most the limit reserved. So the run had at least what was
// reserved before its largest growth, and the segment. Under exactly that limit, every request grows the
// cache that grew it in the run. All others freed memory first or were refused, and give an upper bound
// (windows.c).
//
// Collection begins when a share of the limit is passed, and ends when what is reserved is below it. So the
// share lies between what was reserved before each collection and after it. Some values in between are tried.
//
// Cost: O(n) for n steps.
#include "replay/limit.h"

#include "base/arith.h"

#define LIMIT_MIB ((uint64_t)1 << 20)

// PyTorch's size of a segment for a rounded request.
static uint64_t segment_bytes(const tide_device_options* options, uint64_t rounded) {
  uint64_t bytes = 0;
  if (rounded <= LIMIT_MIB) return 2 * LIMIT_MIB;
  if (rounded < 10 * LIMIT_MIB) return options->large_segment_bytes;
  return tide__align_up(rounded, 2 * LIMIT_MIB, &bytes) ? bytes : rounded;
}

static bool rounds_coarsely(const tide_device_options* options) {
  for (size_t i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    if (options->roundup_divisions[i] > 1) return true;
  }
  return false;
}

// The size of a refused request is recorded as rounded; others at most double.
uint64_t tide__limit_segment_most(const tide_device_options* options, const tide__step* request) {
  const bool is_rounded = request->kind == TIDE__STEP_OOM || !rounds_coarsely(options);
  const uint64_t bytes = tide__request_bytes(request->bytes);
  return segment_bytes(options, is_rounded ? bytes : 2 * bytes);
}

// ---------------------------------------------------------------------------------------------------
// Following what is reserved

typedef struct limit_walk {
  const tide_device_options* options;  // borrowed during the walk
  uint64_t reserved;
  uint64_t low;
  bool is_shown;         // something was freed or refused
  uint64_t least_begin;  // what was reserved before memory was freed for a request: the least
  uint64_t most_end;     // and after that: the most
} limit_walk;

static void walk_move(limit_walk* walk, const tide__step* step) {
  const bool is_freed = step->kind == TIDE__STEP_SEGMENT_FREE || step->kind == TIDE__STEP_UNMAP;
  const bool is_new = step->kind >= TIDE__STEP_SEGMENT && !is_freed;
  if (is_freed) walk->reserved -= tide__min(walk->reserved, step->bytes);
  if (is_new && !tide__add(walk->reserved, step->bytes, &walk->reserved)) walk->reserved = UINT64_MAX;
}

// The growth of a window. More may be mapped than is compared with the limit: whole handles.
static void walk_grow(limit_walk* walk, const tide__step* steps, const tide__window* w) {
  uint64_t passed = 0;
  bool is_grown = false;
  for (size_t i = w->first; i < w->end; i++) {
    const uint8_t kind = steps[i].kind;
    const bool is_map = kind == TIDE__STEP_RESERVE || kind == TIDE__STEP_MAP;
    if ((is_map || kind == TIDE__STEP_SEGMENT) && !is_grown) {
      const uint64_t rounded = tide__request_bytes(steps[w->end].bytes);
      const uint64_t bytes = is_map ? segment_bytes(walk->options, rounded) : steps[i].bytes;
      is_grown = tide__add(walk->reserved, bytes, &passed);
    }
    walk_move(walk, &steps[i]);
  }
  if (is_grown && w->has_request) walk->low = tide__max(walk->low, passed);
}

static void walk_window(limit_walk* walk, const tide__step* steps, const tide__window* w) {
  const uint64_t begin = walk->reserved;
  uint64_t end = begin;
  for (size_t i = w->first; i < w->end; i++) {
    const bool is_freed = steps[i].kind == TIDE__STEP_SEGMENT_FREE || steps[i].kind == TIDE__STEP_UNMAP;
    if (is_freed) end -= tide__min(end, steps[i].bytes);
  }
  walk_grow(walk, steps, w);
  if (!w->has_request) return;
  if (steps[w->end].kind == TIDE__STEP_OOM || w->gives_back) walk->is_shown = true;
  if (!w->gives_back) return;
  walk->least_begin = tide__min(walk->least_begin, begin);
  walk->most_end = tide__max(walk->most_end, end);
}

// What was reserved before the recording. In reserves, less than a handle more than the limit.
static void walk_begin(limit_walk* walk, const tide__script* script) {
  bool has_reserves = false;
  for (size_t i = 0; i < script->old_count; i++) {
    walk->reserved += script->old_segments[i].bytes;
    has_reserves |= script->old_segments[i].is_expandable;
  }
  const uint64_t handle = has_reserves ? walk->options->large_segment_bytes : 0;
  walk->low = walk->reserved - tide__min(walk->reserved, handle);
}

static limit_walk walk_script(const tide__script* script, const tide_device_options* options) {
  limit_walk walk = { .options = options, .least_begin = UINT64_MAX };
  walk_begin(&walk, script);
  for (size_t i = script->first_step; i < script->step_count; i++) {
    const uint8_t kind = script->steps[i].kind;
    if (kind >= TIDE__STEP_FREE && kind < TIDE__STEP_DONE) continue;
    const tide__window window = tide__window_at(script->steps, script->step_count, i);
    walk_window(&walk, script->steps, &window);
    i = window.end;
  }
  return walk;
}

// ---------------------------------------------------------------------------------------------------
// Guesses

static void guesses_add(tide__limit_guesses* guesses, uint64_t limit) {
  limit = tide__max(limit, guesses->low);
  for (size_t i = 0; i < guesses->count; i++) {
    if (guesses->limits[i] == limit) return;
  }
  if (guesses->count < TIDE__LIMIT_GUESSES) guesses->limits[guesses->count++] = limit;
}

// Limits whose share lies between what was reserved before and after collections: the ends, and points
// between.
static void guesses_add_collecting(tide__limit_guesses* guesses, const limit_walk* walk) {
  const double share = walk->options->collect_threshold;
  const uint64_t top = tide__max(walk->least_begin, 1) - 1;
  const uint64_t bottom = tide__min(walk->most_end, top);
  const uint64_t thresholds[] = { top, bottom, top - (top - bottom) / 2, top - (top - bottom) / 4,
                                  bottom + (top - bottom) / 4 };
  for (size_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
    guesses_add(guesses, (uint64_t)((double)thresholds[i] / share));
  }
}

tide__limit_guesses tide__limit_guess(const tide__script* script, const tide_device_options* options) {
  const limit_walk walk = walk_script(script, options);
  tide__limit_guesses guesses = { .low = walk.low };
  const bool collects = options->collect_threshold > 0 && walk.least_begin != UINT64_MAX;
  if (walk.is_shown && collects) guesses_add_collecting(&guesses, &walk);
  if (walk.is_shown && guesses.low > 0) guesses_add(&guesses, guesses.low);
  guesses_add(&guesses, TIDE_NO_LIMIT);
  return guesses;
}
