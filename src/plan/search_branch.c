// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One node of the exact search: its bound, its groups, and the section that it branches on.
//
// Bound: for each section and height t, t + the heights of all tiles with floors at or above t must fit. One
// walk over the tiles by falling floor finds all these sums, and at its end the lowest floor of each section.
// Branching: in a valley, a range of sections with one lowest floor between higher ones, all tiles with that
// floor lie wholly inside. In one section of the valley, either one of these tiles is placed at its floor, or
// none is. Then each must lie on some other tile, which is impossible where the section has no room to spare.
// Any valley may be chosen; the rule prefers few children and sections that broke the bound before.
//
// With several spans, a section counts as a valley only if its lowest tiles are nowhere above the lowest
// floor.
#include "plan/search_state.h"

// ---------------------------------------------------------------------------------------------------
// Bounds

// Sections that broke the bound are preferred from now on.
static void search_blame(tide__search* search, const tide__puzzle_span* span, int64_t floor) {
  for (uint32_t i = span->first; i < span->last; i++) {
    if (floor + tide__rows_sum(&search->rows, i) > search->capacity) search->weights[i] += 1;
  }
}

static tide__puzzle_span search_clip(const tide__puzzle_span* span, uint32_t first, uint32_t last) {
  return (tide__puzzle_span){ span->first > first ? span->first : first,
                              span->last < last ? span->last : last, span->height };
}

bool tide__search_bound(tide__search* search, const tide__search_job* job) {
  const tide__search_job here = *job;
  const tide__puzzle puzzle = *search->puzzle;
  const int64_t capacity = search->capacity;
  tide__rows rows = search->rows;
  tide__rows_clear(&rows, here.changed_first, here.changed_last);
  for (uint32_t i = 0; i < here.count; i++) {
    const tide__tile* const tile = &puzzle.tiles[here.tiles[i]];
    if (tile->last <= here.changed_first || tile->first >= here.changed_last) continue;
    const int64_t floor = here.floors[i];
    const uint32_t last_span = tile->span + tile->span_count;
    for (uint32_t j = tile->span; j < last_span; j++) {
      const tide__puzzle_span span = search_clip(&puzzle.spans[j], here.changed_first, here.changed_last);
      if (span.first >= span.last) continue;
      if (tide__rows_stack(&rows, span.first, span.last, span.height, floor, capacity - floor)) continue;
      search_blame(search, &span, floor);
      return false;
    }
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Groups

static bool search_group_is_before(const tide__search_group* a, const tide__search_group* b) {
  return a->room != b->room ? a->room < b->room : a->count < b->count;
}

static void search_group_insert(tide__search* search, tide__search_frame* frame, tide__search_group group) {
  uint32_t at = frame->group_count;
  for (; at > 0 && search_group_is_before(&group, &frame->groups[at - 1]); at--) {
    frame->groups[at] = frame->groups[at - 1];
  }
  frame->groups[at] = group;
  tide__search_count_work(search, frame->group_count++ - at);
}

// Counts the tiles that begin in each section.
static void search_count_starts(tide__search* search, const tide__search_job* job) {
  memset(&search->starts[job->first], 0, (job->last - job->first) * sizeof *search->starts);
  for (uint32_t i = 0; i < job->count; i++) search->starts[search->puzzle->tiles[job->tiles[i]].first]++;
}

static tide__search_group search_group_at(const tide__search* search, uint32_t first, uint32_t last) {
  tide__search_group group = { .room = INT64_MAX, .first = first, .last = last };
  for (uint32_t i = first; i < last; i++) {
    const int64_t room = search->capacity - tide__rows_low(&search->rows, i) -
                         tide__rows_sum(&search->rows, i);
    if (tide__rows_sum(&search->rows, i) > 0 && room < group.room) group.room = room;
    group.count += search->starts[i];
  }
  return group;
}

// Finds the groups of the frame's job; a single group is not listed.
static void search_find_groups(tide__search* search, tide__search_frame* frame) {
  const tide__search_job* const job = &frame->job;
  uint32_t count = 0;
  for (uint32_t i = job->first; i < job->last; i++) {
    count += tide__rows_sum(&search->rows, i) > 0 &&
             (i == job->first || tide__rows_crossing(&search->rows, i) == 0);
  }
  if (count <= 1) return;
  search_count_starts(search, job);
  frame->groups = tide__search_take(search, count, sizeof *frame->groups);
  for (uint32_t first = job->first; first < job->last && frame->groups != NULL;) {
    uint32_t last = first + 1;
    while (last < job->last && tide__rows_crossing(&search->rows, last) != 0) last++;
    const tide__search_group group = search_group_at(search, first, last);
    if (group.room < INT64_MAX) search_group_insert(search, frame, group);
    first = last;
  }
}

// ---------------------------------------------------------------------------------------------------
// Valleys

// A tile with several spans may be lowest here and above others elsewhere.
static void search_block(tide__search* search, const tide__search_job* job) {
  memset(&search->is_blocked[job->first], 0, (size_t)(job->last - job->first) * sizeof *search->is_blocked);
  for (uint32_t i = 0; i < job->count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[job->tiles[i]];
    if (tile->span_count == 1) continue;
    const tide__puzzle_span* const spans = &search->puzzle->spans[tile->span];
    bool is_above = false;
    for (uint32_t j = 0; j < tile->span_count; j++) {
      for (uint32_t s = spans[j].first; s < spans[j].last; s++)
        is_above |= tide__rows_low(&search->rows, s) < job->floors[i];
    }
    for (uint32_t j = 0; is_above && j < tile->span_count; j++) {
      for (uint32_t s = spans[j].first; s < spans[j].last; s++) {
        if (tide__rows_low(&search->rows, s) == job->floors[i]) search->is_blocked[s] = true;
      }
    }
  }
}

// The cost of branching on a section: the lowest is taken.
static double search_cost(const tide__search* search, uint32_t section) {
  const int64_t room = search->capacity - tide__rows_low(&search->rows, section) -
                       tide__rows_sum(&search->rows, section);
  const double children = (double)(tide__rows_count(&search->rows, section) + (room > 0));
  switch (search->rule) {
    case TIDE__SEARCH_WEIGHED: return children / (double)search->weights[section];
    case TIDE__SEARCH_FEWEST: return children + 1 / (1 + (double)search->weights[section]);
    case TIDE__SEARCH_TIGHTEST: return children + (double)room / (double)(search->capacity + 1);
    case TIDE__SEARCH_LOWEST:
      return children + (double)tide__rows_low(&search->rows, section) / (double)(search->capacity + 1);
  }
  return children;
}

static bool search_is_higher(const tide__search* search, uint32_t section, int64_t low) {
  return tide__rows_sum(&search->rows, section) == 0 || tide__rows_low(&search->rows, section) > low;
}

// The section to branch on. The lowest of all is always in a valley, so there is one.
static uint32_t search_find_section(tide__search* search, const tide__search_job* job) {
  if (search->puzzle->has_gaps) search_block(search, job);
  uint32_t best = job->first;
  double least = 1e300;
  for (uint32_t first = job->first; first < job->last;) {
    const int64_t low = tide__rows_low(&search->rows, first);
    uint32_t last = first + 1;
    if (tide__rows_sum(&search->rows, first) == 0) {
      first = last;
      continue;
    }
    while (last < job->last && tide__rows_sum(&search->rows, last) > 0 &&
           tide__rows_low(&search->rows, last) == low)
      last++;
    if ((first == job->first || search_is_higher(search, first - 1, low)) &&
        (last == job->last || search_is_higher(search, last, low))) {
      for (uint32_t i = first; i < last; i++) {
        if (search->puzzle->has_gaps && search->is_blocked[i]) continue;
        const double cost = search_cost(search, i);
        if (cost >= least) continue;
        least = cost;
        best = i;
      }
    }
    first = last;
  }
  return best;
}
// Adds a candidate by falling priority. Of twins only the first is added; a fixed tile excludes all others.
static void search_add_candidate(tide__search* search, tide__search_frame* frame, uint32_t place) {
  const tide__tile* const tiles = search->puzzle->tiles;
  const uint32_t tile = frame->job.tiles[place];
  uint32_t at = frame->candidate_count;
  if (at > 0 && tiles[frame->job.tiles[frame->candidates[0]]].fixed >= 0) return;
  if (tiles[tile].fixed >= 0) {
    frame->candidates[0] = place;
    frame->candidate_count = 1;
    frame->has_room = false;
    return;
  }
  tide__search_count_work(search, at);
  for (uint32_t i = 0; i < at; i++) {
    if (tiles[frame->job.tiles[frame->candidates[i]]].twin == tiles[tile].twin) return;
  }
  const float priority = search->priorities[tile];
  for (; at > 0 && search->priorities[frame->job.tiles[frame->candidates[at - 1]]] < priority; at--) {
    frame->candidates[at] = frame->candidates[at - 1];
  }
  frame->candidates[at] = place;
  frame->candidate_count++;
}

// The floors fall, so the lowest tiles of a section are near the end of the list.
static void search_find_candidates(tide__search* search, tide__search_frame* frame) {
  const uint32_t section = search_find_section(search, &frame->job);
  frame->section = section;
  frame->floor = tide__rows_low(&search->rows, section);
  frame->has_room =
      search->capacity - tide__rows_low(&search->rows, section) - tide__rows_sum(&search->rows, section) > 0;
  frame->candidates =
      tide__search_take(search, (size_t)tide__rows_count(&search->rows, section), sizeof *frame->candidates);
  if (frame->candidates == NULL) return;
  for (uint32_t i = frame->job.count; i-- > 0 && frame->job.floors[i] <= frame->floor;) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[i]];
    if (frame->job.floors[i] == frame->floor && tide__search_tile_has(search, tile, section)) {
      search_add_candidate(search, frame, i);
    }
  }
}

void tide__search_branch(tide__search* search, tide__search_frame* frame) {
  const tide__tile* const placed = frame->job.placed;
  const bool is_split = placed != NULL && tide__rows_cross(&search->rows, placed->first, placed->last, -1);
  if (is_split || frame->below == NULL) search_find_groups(search, frame);
  if (frame->group_count == 0) search_find_candidates(search, frame);
}

static bool search_check_section(const tide__search* search, const tide__search_job* job, uint32_t section) {
  int64_t sum = 0;
  int64_t low = -1;
  int64_t count = 0;
  int64_t crossing = 0;
  for (uint32_t i = job->count; i-- > 0;) {
    const tide__tile* const tile = &search->puzzle->tiles[job->tiles[i]];
    crossing += tile->first < section && section < tile->last;
    if (!tide__search_tile_has(search, tile, section)) continue;
    const tide__puzzle_span* span = &search->puzzle->spans[tile->span];
    while (section >= span->last) span++;
    sum += span->height;
    if (low < 0) low = job->floors[i];
    count += job->floors[i] == low;
  }
  const tide__rows* const rows = &search->rows;
  return tide__rows_sum(rows, section) == sum && tide__rows_low(rows, section) == low &&
         tide__rows_count(rows, section) == count && tide__rows_crossing(rows, section) == crossing;
}

bool tide__search_check(const tide__search* search, const tide__search_frame* frame) {
  for (uint32_t i = frame->job.first; i < frame->job.last; i++) {
    if (!search_check_section(search, &frame->job, i)) return false;
  }
  return true;
}
