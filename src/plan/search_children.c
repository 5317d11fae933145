// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The jobs of a node's children. Placing a tile lifts the floors of all tiles that meet it. Each job is
// known by a key over its tiles and floors, in which twins count as one.
#include "plan/search_state.h"

#include "base/random.h"

// The floor of a tile changes.
static void search_note_change(tide__search_job* job, const tide__tile* tile) {
  if (tile->first < job->changed_first) job->changed_first = tile->first;
  if (tile->last > job->changed_last) job->changed_last = tile->last;
}

// A job with room for `count` tiles; false if the stack is full.
static bool search_job_take(tide__search* search, uint32_t count, tide__search_job* out) {
  out->tiles = tide__search_take(search, count, sizeof *out->tiles);
  out->floors = tide__search_take(search, count, sizeof *out->floors);
  out->count = 0;
  return out->tiles != NULL && out->floors != NULL;
}

// ---------------------------------------------------------------------------------------------------
// Keys of states

static void search_key_add(tide__key* key, uint32_t twin, int64_t floor, bool is_added) {
  const uint64_t seed = tide__random_mix((uint64_t)floor * UINT64_C(0x9e3779b97f4a7c15) + twin + 1);
  const uint64_t low = tide__random_mix(seed ^ UINT64_C(0x243f6a8885a308d3));
  const uint64_t high = tide__random_mix(seed + ((uint64_t)twin << 40) + (uint64_t)floor);
  key->low += is_added ? low : 0 - low;
  key->high += is_added ? high : 0 - high;
}

static void search_key_of(const tide__search* search, tide__search_job* job) {
  job->key = (tide__key){ 0 };
  for (uint32_t i = 0; i < job->count; i++) {
    search_key_add(&job->key, search->puzzle->tiles[job->tiles[i]].twin, job->floors[i], true);
  }
}

// ---------------------------------------------------------------------------------------------------
// Lists by falling floor

// Inserts a tile into the list of raised ones.
static void search_raise(tide__search* search, uint32_t count, uint32_t tile, int64_t floor) {
  uint32_t at = count;
  for (; at > 0 && search->raised_floors[at - 1] < floor; at--) {
    search->raised[at] = search->raised[at - 1];
    search->raised_floors[at] = search->raised_floors[at - 1];
  }
  search->raised[at] = tile;
  search->raised_floors[at] = floor;
  tide__search_count_work(search, count - at);
}

// Merges the raised tiles into the job, which has room for them.
static void search_merge(const tide__search* search, tide__search_job* job, uint32_t raised) {
  uint32_t kept = job->count;
  job->count += raised;
  for (uint32_t at = job->count; raised > 0;) {
    at--;
    if (kept > 0 && job->floors[kept - 1] < search->raised_floors[raised - 1]) {
      kept--;
      job->tiles[at] = job->tiles[kept];
      job->floors[at] = job->floors[kept];
    } else {
      raised--;
      job->tiles[at] = search->raised[raised];
      job->floors[at] = search->raised_floors[raised];
    }
  }
}

bool tide__search_first_job(tide__search* search, tide__search_job* out) {
  const tide__puzzle* const puzzle = search->puzzle;
  if (!search_job_take(search, puzzle->count, out)) return false;
  out->last = out->changed_last = puzzle->sections;
  tide__rows_clear_crossings(&search->rows, puzzle->sections);
  uint32_t raised = 0;
  for (uint32_t i = 0; i < puzzle->count; i++) {
    const int64_t floor = tide__search_ground(&puzzle->tiles[i]);
    out->area += puzzle->tiles[i].area;
    (void)tide__rows_cross(&search->rows, puzzle->tiles[i].first, puzzle->tiles[i].last, 1);
    if (floor > 0) {
      search_raise(search, raised++, i, floor);
    } else {
      out->tiles[out->count] = i;
      out->floors[out->count++] = 0;
    }
  }
  search_merge(search, out, raised);
  search_key_of(search, out);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// A tile at its floor

// The greatest height of `lower` in the sections that both use; -1 if they share none.
static int64_t search_meet(const tide__search* search, const tide__tile* lower, const tide__tile* upper) {
  const tide__puzzle_span* const spans = search->puzzle->spans;
  if (lower->first >= upper->last || upper->first >= lower->last) return -1;
  if (lower->span_count == 1 && upper->span_count == 1) return spans[lower->span].height;
  // Both lists are sorted by section: a merge finds the spans that meet.
  int64_t height = -1;
  for (uint32_t i = 0, j = 0; i < lower->span_count && j < upper->span_count;) {
    const tide__puzzle_span* const a = &spans[lower->span + i];
    const tide__puzzle_span* const b = &spans[upper->span + j];
    if (a->first < b->last && b->first < a->last && a->height > height) height = a->height;
    if (a->last <= b->last) {
      i++;
    } else {
      j++;
    }
  }
  return height;
}

static int64_t search_height(const tide__search* search, const tide__tile* tile) {
  const tide__puzzle_span* const spans = &search->puzzle->spans[tile->span];
  int64_t height = 0;
  for (uint32_t i = 0; i < tile->span_count; i++) {
    if (spans[i].height > height) height = spans[i].height;
  }
  return height;
}

// Copies the tiles of a job that are at `top` or above, and returns their number.
static uint32_t search_copy_high(const tide__search_job* job, int64_t top, tide__search_job* out) {
  uint32_t count = 0;
  while (count < job->count && job->floors[count] >= top) count++;
  memcpy(out->tiles, job->tiles, count * sizeof *out->tiles);
  memcpy(out->floors, job->floors, count * sizeof *out->floors);
  out->count = count;
  return count;
}

static bool search_meets_any(const tide__search* search, const tide__tile* tile,
                             const tide__search_job* job) {
  for (uint32_t i = 0; i < job->count; i++) {
    if (search_meet(search, tile, &search->puzzle->tiles[job->tiles[i]]) >= 0) return true;
  }
  return false;
}

bool tide__search_place(tide__search* search, tide__search_frame* frame, uint32_t place,
                        tide__search_job* out) {
  const tide__search_job* const job = &frame->job;
  const tide__tile* const tiles = search->puzzle->tiles;
  const tide__tile* const placed = &tiles[job->tiles[place]];
  // With several spans, each tile's spans are merged with those of the placed one.
  const uint64_t spans = search->puzzle->has_gaps ? job->area : 0;
  if (!tide__search_may(search, (uint64_t)job->count * placed->span_count + spans)) return false;
  if (!search_job_take(search, job->count, out)) return false;
  out->first = job->first;
  out->last = job->last;
  out->area = job->area - placed->area;
  out->key = job->key;
  out->placed = placed;
  out->changed_first = placed->first;
  out->changed_last = placed->last;
  search_key_add(&out->key, placed->twin, frame->floor, false);
  uint32_t raised = 0;
  bool fits = true;
  for (uint32_t i = search_copy_high(job, frame->floor + search_height(search, placed), out); i < job->count;
       i++) {
    const uint32_t index = job->tiles[i];
    if (i == place) continue;
    const int64_t height = search_meet(search, placed, &tiles[index]);
    if (height < 0 || job->floors[i] >= frame->floor + height) {
      out->tiles[out->count] = index;
      out->floors[out->count++] = job->floors[i];
      continue;
    }
    const int64_t floor = tide__search_align(&tiles[index], frame->floor + height);
    fits &= floor <= search->limits[index];
    search_note_change(out, &tiles[index]);
    search_raise(search, raised++, index, floor);
    search_key_add(&out->key, tiles[index].twin, job->floors[i], false);
    search_key_add(&out->key, tiles[index].twin, floor, true);
  }
  frame->is_forced = raised == 0 && !search_meets_any(search, placed, out);
  search_merge(search, out, raised);
  return fits;
}

// ---------------------------------------------------------------------------------------------------
// No candidate at its floor

// Is the tile at a place of the job a candidate, or the twin of one?
static bool search_is_lowest(const tide__search* search, const tide__search_frame* frame, uint32_t place) {
  const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[place]];
  return frame->job.floors[place] == frame->floor && tide__search_tile_has(search, tile, frame->section);
}

// The sections of all candidates. A tile that is lowest and not listed is the twin of one that is.
static tide__puzzle_span search_find_range(const tide__search* search, const tide__search_frame* frame) {
  tide__puzzle_span range = { frame->section, frame->section + 1, 0 };
  for (uint32_t i = 0; i < frame->candidate_count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[frame->candidates[i]]];
    if (tile->first < range.first) range.first = tile->first;
    if (tile->last > range.last) range.last = tile->last;
  }
  return range;
}

// Fills the tops of the range.
static void search_find_tops(tide__search* search, const tide__search_frame* frame, tide__puzzle_span range) {
  int64_t* const tops = search->tops;
  for (uint32_t i = range.first; i < range.last; i++) tops[i] = INT64_MAX;
  for (uint32_t i = 0; i < frame->job.count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[i]];
    if (tile->last <= range.first || tile->first >= range.last) continue;
    if (search_is_lowest(search, frame, i)) continue;
    for (uint32_t j = 0; j < tile->span_count; j++) {
      const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + j];
      const uint32_t first = span->first > range.first ? span->first : range.first;
      const uint32_t last = span->last < range.last ? span->last : range.last;
      const int64_t top = frame->job.floors[i] + span->height;
      for (uint32_t s = first; s < last; s++) tops[s] = top < tops[s] ? top : tops[s];
    }
  }
}

// The lowest offset of a candidate upon a tile that is not one; INT64_MAX if it meets none.
static int64_t search_lift_alone(const tide__search* search, const tide__tile* tile) {
  int64_t lowest = INT64_MAX;
  for (uint32_t i = 0; i < tile->span_count; i++) {
    const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + i];
    for (uint32_t s = span->first; s < span->last; s++) {
      if (search->tops[s] < lowest) lowest = search->tops[s];
    }
  }
  return lowest == INT64_MAX ? lowest : tide__search_align(tile, lowest);
}

static int64_t search_height_at(const tide__search* search, const tide__tile* tile, uint32_t section) {
  const tide__puzzle_span* span = &search->puzzle->spans[tile->span];
  while (section >= span->last) span++;
  return span->height;
}

// The lowest end that a candidate can have if none lies at its floor. All candidates meet in the section,
// so the lowest of them lies upon a tile that is not a candidate.
static int64_t search_lowest_end(const tide__search* search, const tide__search_frame* frame) {
  int64_t lowest = INT64_MAX;
  for (uint32_t i = 0; i < frame->candidate_count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[frame->candidates[i]]];
    const int64_t floor = search_lift_alone(search, tile);
    if (floor == INT64_MAX) continue;
    const int64_t end = floor + search_height_at(search, tile, frame->section);
    if (end < lowest) lowest = end;
  }
  return lowest;
}

bool tide__search_place_none(tide__search* search, const tide__search_frame* frame, tide__search_job* out) {
  const tide__search_job* const job = &frame->job;
  if (!tide__search_may(search, 2 * (uint64_t)job->count + 2 * job->area)) return false;
  if (!search_job_take(search, job->count, out)) return false;
  out->first = job->first;
  out->last = job->last;
  out->area = job->area;
  out->key = job->key;
  out->changed_first = job->last;
  out->changed_last = job->first;
  search_find_tops(search, frame, search_find_range(search, frame));
  const int64_t end = search_lowest_end(search, frame);
  uint32_t raised = 0;
  for (uint32_t i = 0; i < job->count; i++) {
    const uint32_t index = job->tiles[i];
    if (!search_is_lowest(search, frame, i)) {
      out->tiles[out->count] = index;
      out->floors[out->count++] = job->floors[i];
      continue;
    }
    const tide__tile* const tile = &search->puzzle->tiles[index];
    const int64_t upon = end == INT64_MAX ? end : tide__search_align(tile, end);
    const int64_t alone = search_lift_alone(search, tile);
    const int64_t floor = alone < upon ? alone : upon;
    if (floor > search->limits[index]) return false;
    search_note_change(out, tile);
    search_raise(search, raised++, index, floor);
    search_key_add(&out->key, tile->twin, frame->floor, false);
    search_key_add(&out->key, tile->twin, floor, true);
  }
  search_merge(search, out, raised);
  return true;
}

bool tide__search_take_group(tide__search* search, const tide__search_frame* frame,
                             const tide__search_group* group, tide__search_job* out) {
  if (!tide__search_may(search, frame->job.count)) return false;
  if (!search_job_take(search, group->count, out)) return false;
  out->first = out->changed_first = group->first;
  out->last = group->last;
  out->changed_last = group->first;
  out->area = 0;
  for (uint32_t i = 0; i < frame->job.count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[i]];
    if (tile->first < group->first || tile->first >= group->last) continue;
    out->tiles[out->count] = frame->job.tiles[i];
    out->floors[out->count++] = frame->job.floors[i];
    out->area += tile->area;
  }
  search_key_of(search, out);
  return true;
}
