// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A recording does not contain calls to empty_cache, retries or collections. It contains the segments that
// were given back. If a release follows them, or nothing, only empty_cache explains that. If a request
// follows, the comparison with a replay decides. Memory that is parked was given back too, but is no mark.
#include "marks.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "moment.h"
#include "tags.h"

#define RANGES_DEEPEST 64u  // deeper ranges are ignored

const char* tool_mark_key(tool_mark_kind kind) {
  static const char* const keys[] = { "oom", "flush", "empty_cache" };
  return keys[kind];
}

const char* tool_mark_label(tool_mark_kind kind) {
  static const char* const labels[] = { "out of memory", "flush", "empty_cache" };
  return labels[kind];
}

// ---------------------------------------------------------------------------------------------------
// Parking

// Entries that parked memory, in order. Only a recording with tags can have any.
typedef struct parked_entries {
  uint64_t* items;  // owned
  size_t count;
  size_t room;
} parked_entries;

static void on_parked(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  parked_entries* const parked = user;
  (void)range;
  if (event != TIDE_LEDGER_BEGINS || at == TIDE_LEDGER_BEFORE) return;
  if (parked->count == parked->room) {
    parked->room = 2 * parked->room + 16;
    parked->items = tool_grow(parked->items, parked->room, sizeof *parked->items);
  }
  parked->items[parked->count++] = at;
}

static parked_entries parked_find(const tide_trace* trace, size_t device) {
  parked_entries parked = { .items = NULL };
  tide_ledger* ledger = NULL;
  tide_ledger_watcher watcher = TIDE_LEDGER_WATCHER_INIT;
  tool_pool_tags tags;
  tool_pool_tags_find(trace, &tags);
  const bool has_tags = tags.has_any;
  tool_pool_tags_fini(&tags);
  if (!has_tags || tide_ledger_new(trace, device, &ledger) != TIDE_OK) return parked;
  watcher.on_parked = on_parked;
  watcher.user = &parked;
  if (tide_ledger_watch(ledger, &watcher) != TIDE_OK) parked.count = 0;
  tide_ledger_free(ledger);
  return parked;
}

// Is an entry from `first` to below `end` among them? Skips those before.
static bool parked_is_in(const parked_entries* parked, size_t* next, uint64_t first, uint64_t end) {
  while (*next < parked->count && parked->items[*next] < first) ++*next;
  return *next < parked->count && parked->items[*next] < end;
}

// ---------------------------------------------------------------------------------------------------
// Marks

// Memory that was given back between two calls of the program.
typedef struct given_back {
  uint64_t first;  // entry
  uint64_t end;    // the entry behind it
  uint64_t bytes;
  bool has_request;  // which is that entry
} given_back;

static bool entry_gives_back(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_SEGMENT_FREE || entry->action == TIDE_ACTION_SEGMENT_UNMAP;
}

static bool entry_is_request(const tide_trace_entry* entry) {
  return entry->action == TIDE_ACTION_ALLOC || entry->action == TIDE_ACTION_OOM;
}

static given_back given_back_at(const tide_trace_entry* entries, size_t count, size_t first) {
  given_back given = { .first = first, .end = first };
  for (; given.end < count; given.end++) {
    const tide_trace_entry* const entry = &entries[given.end];
    given.has_request = entry_is_request(entry);
    if (given.has_request || entry->action == TIDE_ACTION_FREE_REQUESTED) break;
    if (entry_gives_back(entry) && !tide__add(given.bytes, entry->bytes, &given.bytes))
      given.bytes = UINT64_MAX;
  }
  return given;
}

static void marks_add(tool_marks* marks, const tool_mark* mark) {
  if (marks->count == marks->room) {
    marks->room = marks->room == 0 ? 16 : 2 * marks->room;
    marks->items = tool_grow(marks->items, marks->room, sizeof *marks->items);
  }
  marks->items[marks->count++] = *mark;
  marks->counts[mark->kind]++;
}

static uint64_t* empties_of(const tide_replay* replay, size_t* out_count) {
  *out_count = tide_replay_empties(replay, NULL, 0);
  uint64_t* const empties = tool_alloc(*out_count, sizeof *empties);
  (void)tide_replay_empties(replay, empties, *out_count);
  return empties;
}

static tool_mark mark_of(const given_back* given, bool is_emptied, const tool_recording* r,
                         const tool_limit* limit) {
  const bool is_flush = given->has_request && !is_emptied;
  return (tool_mark){ .kind = is_flush ? TOOL_MARK_FLUSH : TOOL_MARK_EMPTY_CACHE,
                      .is_certain = is_flush ? r->is_repeated && limit->is_certain
                                             : !given->has_request || r->is_repeated,
                      .entry = given->first,
                      .bytes = given->bytes };
}

void tool_marks_find(tool_marks* marks, const tool_recording* r, const tool_limit* limit,
                     const tool_axis* axis) {
  size_t count = 0;
  size_t empty_count = 0;
  size_t next = 0;  // call of empty_cache
  size_t next_parked = 0;
  parked_entries parked = parked_find(r->trace, r->device);
  const tide_trace_entry* const entries = tide_trace_entries(r->trace, r->device, &count);
  uint64_t* const empties = empties_of(r->replay, &empty_count);
  *marks = (tool_marks){ .count = 0 };
  for (size_t i = 0; i < count; i++) {
    tool_mark mark = { TOOL_MARK_OOM, true, i, 0, entries[i].bytes };
    if (entry_gives_back(&entries[i])) {
      const given_back given = given_back_at(entries, count, i);
      while (next < empty_count && empties[next] < i) next++;
      mark = mark_of(&given, next < empty_count && empties[next] < given.end, r, limit);
      i = given.end - 1;
      if (parked_is_in(&parked, &next_parked, given.first, given.end)) continue;
    } else if (entries[i].action != TIDE_ACTION_OOM) {
      continue;
    }
    mark.place = tool_axis_place(axis, mark.entry);
    marks_add(marks, &mark);
  }
  free(empties);
  free(parked.items);
}

void tool_marks_fini(tool_marks* marks) { free(marks->items); }

// ---------------------------------------------------------------------------------------------------
// Bands

static void bands_add(tool_bands* bands, const tool_band* band) {
  if (bands->count == bands->room) {
    bands->room = bands->room == 0 ? 64 : 2 * bands->room;
    bands->items = tool_grow(bands->items, bands->room, sizeof *bands->items);
  }
  bands->items[bands->count++] = *band;
}

static void bands_add_steps(tool_bands* bands, const tool_steps* steps, const tool_axis* axis) {
  size_t count = 0;
  const tide_step* const items = tide_steps_items(steps->steps, &count);
  for (size_t i = 0; i < count; i++) {
    if (!items[i].is_whole) continue;
    const bool is_last = items[i].end >= axis->entry_count;
    bands_add(bands, &(tool_band){ .first = tool_axis_place(axis, items[i].first),
                                   .end = is_last ? axis->length : tool_axis_place(axis, items[i].end),
                                   .step = ++bands->step_count });
  }
}

// A range that is open.
typedef struct open_band {
  const char* name;
  uint64_t first;
} open_band;

typedef struct band_finder {
  tool_bands* bands;
  open_band open[RANGES_DEEPEST];
  size_t open_count;
} band_finder;

static void finder_close(band_finder* f, size_t which, uint64_t end) {
  const open_band* const range = &f->open[which];
  tool_band band = { .first = range->first, .end = end, .depth = which };
  band.name = tool_alloc(strlen(range->name) + 1, 1);
  memcpy(band.name, range->name, strlen(range->name));
  bands_add(f->bands, &band);
  f->bands->depth_count = tide__max(f->bands->depth_count, which + 1);
  for (size_t i = which + 1; i < f->open_count; i++) f->open[i - 1] = f->open[i];
  f->open_count--;
}

static void finder_take(band_finder* f, const tool_annotation* next, uint64_t place) {
  if (next->is_start) {
    if (f->open_count < RANGES_DEEPEST) f->open[f->open_count++] = (open_band){ next->name, place };
    return;
  }
  for (size_t i = f->open_count; i-- > 0;) {
    if (strcmp(f->open[i].name, next->name) != 0) continue;
    finder_close(f, i, tide__max(place, f->open[i].first));
    return;
  }
}

void tool_bands_find(tool_bands* bands, const tool_steps* steps, const tool_axis* axis) {
  const tide_trace_entry* const entries = tide_trace_entries(steps->trace, steps->device, NULL);
  *bands = (tool_bands){ .count = 0 };
  bands_add_steps(bands, steps, axis);
  if (axis->entry_count == 0) return;
  band_finder finder = { .bands = bands };
  tool_annotation next;
  for (size_t at = 0; tool_annotation_next(steps->trace, steps->device, &at, &next);) {
    uint64_t time_ns = 0;
    if (!tide__mul(next.time_us, 1000, &time_ns)) time_ns = UINT64_MAX;
    finder_take(&finder, &next, tool_axis_place_of_time(axis, entries, time_ns));
  }
  while (finder.open_count > 0) finder_close(&finder, finder.open_count - 1, axis->length);
}

void tool_bands_fini(tool_bands* bands) {
  for (size_t i = 0; i < bands->count; i++) free(bands->items[i].name);
  free(bands->items);
}
