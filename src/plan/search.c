// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A depth-first search over valleys. Each tile that is not yet placed has a floor, the lowest offset it can
// still have; they stand by falling floor. In an arrangement whose tiles lie as low as they can, each tile
// lies on the ground or on another, so it is enough to place tiles at their floors.
//
// Bound: for each section and height t, t + the heights of all tiles with floors at or above t must fit. One
// walk over the tiles by falling floor finds all these sums, and at its end the lowest floor of each section.
// Branching: in a valley, a range of sections with one lowest floor between higher ones, all tiles with
// that floor lie wholly inside. Of one of its sections, one of these tiles is placed there, or none of them:
// then each must lie on some other tile, and where the section has no room to spare that cannot be. Any
// valley may be chosen, and the choice decides: few children, and sections that failed before.
// Placing a tile lifts the floors of all that meet it. Tiles that no longer meet one another are solved one
// group after the other, the tightest first. States that failed are remembered, by what is left to place and
// the floors, twins counting as one. A tile that nothing can lie upon is placed without alternatives.
//
// A tile with a fixed offset has it as its floor from the start, and may not be lifted. With several spans, a
// section counts as a valley only if its lowest tiles are nowhere above the lowest floor.
//
// The search keeps its own stack in one array, so that its depth does not depend on a thread's stack.
// A node costs about the sum of the sections of its tiles, and each of its children the number of its tiles,
// or that sum where none of the lowest is placed. All of it is counted as work, and that has a limit of its
// own: nodes among many tiles are long.
#include "plan/search.h"

#include <string.h>

#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"
#include "plan/nogoods.h"
#include "plan/rows.h"

#define SEARCH_POLL ((uint64_t)1 << 17)        // work between two questions for the budget
#define SEARCH_STACK_LEAST ((size_t)1 << 18)   // bytes
#define SEARCH_STACK_MOST ((size_t)1 << 26)    // bytes
#define SEARCH_HEIGHT_MOST ((int64_t)1 << 60)  // units, so that sums of two do not overflow

typedef enum search_state { SEARCH_OPEN, SEARCH_SOLVED, SEARCH_FAILED, SEARCH_ENDED } search_state;

// Tiles that are to be placed between two sections, by falling floor.
typedef struct search_job {
  uint32_t* tiles;
  int64_t* floors;
  uint32_t count;
  uint32_t first;
  uint32_t last;
  uint64_t area;  // of its tiles
  tide__key key;
} search_job;

typedef struct search_group {
  int64_t room;  // the least of its sections
  uint32_t first;
  uint32_t last;
  uint32_t count;
} search_group;

// A node of the search. It has either groups, all of which must be solved, or candidates, one of which.
typedef struct search_frame {
  search_job job;
  struct search_frame* below;  // in the stack
  size_t mark;                 // what the stack held before
  size_t end;                  // and with this frame and its lists
  search_group* groups;
  uint32_t* candidates;  // places in the job
  uint32_t group_count;
  uint32_t candidate_count;
  uint32_t next;     // the group or candidate to be tried next; one more than candidates: without any
  uint32_t section;  // that the candidates share
  int64_t floor;     // of the candidates
  bool has_room;     // none of the candidates may be a way, too
  bool is_forced;    // the candidate being tried has no alternatives
} search_frame;

struct tide__search {
  tide__scratch scratch;
  const tide__puzzle* puzzle;  // borrowed
  tide__nogoods nogoods;
  uint64_t random;
  int64_t bytes;       // of the height that the failed states are known for
  int64_t capacity;    // the same in units
  int64_t* limits;     // of scratch; the highest offset of each tile
  int64_t* offsets;    // of scratch; units
  float* weights;      // of scratch; by section
  float* priorities;   // of scratch; by tile
  tide__rows rows;     // of the node that is looked at
  int32_t* crossings;  // of scratch; by section: tiles that go on from the section before
  uint32_t* starts;    // of scratch; by section: tiles that begin there
  int64_t* tops;       // of scratch; by section: where the lowest of what may be lain upon ends
  bool* is_blocked;    // (has_gaps) a lowest tile of the section is above the lowest floor elsewhere
  // Lists of a node's tiles while its child is made
  uint32_t* raised;
  int64_t* raised_floors;
  // The stack
  char* stack;  // owned
  size_t stack_bytes;
  size_t stack_used;
  search_frame* top;  // in the stack; NULL at the beginning
  // Of one run
  tide__search_rule rule;
  tide__effort spent;
  tide__effort limit;
  uint64_t next_poll;  // the work at which the budget is asked again
  const tide__watch* watch;
  bool is_ended;
};

// ---------------------------------------------------------------------------------------------------
// Lifetime

static void search_alloc(tide__search* search) {
  const size_t tiles = search->puzzle->count;
  const size_t sections = (size_t)search->puzzle->sections + TIDE__ROWS_PADDING;
  tide__scratch* const scratch = &search->scratch;
  search->limits = tide__scratch_alloc(scratch, tiles, sizeof *search->limits);
  search->offsets = tide__scratch_alloc(scratch, tiles, sizeof *search->offsets);
  search->weights = tide__scratch_alloc(scratch, sections, sizeof *search->weights);
  search->priorities = tide__scratch_alloc(scratch, tiles, sizeof *search->priorities);
  search->rows.sums = tide__scratch_alloc(scratch, sections, sizeof(int64_t));
  search->rows.lows = tide__scratch_alloc(scratch, sections, sizeof(int64_t));
  search->rows.counts = tide__scratch_alloc(scratch, sections, sizeof(int64_t));
  search->crossings = tide__scratch_alloc(scratch, sections, sizeof *search->crossings);
  search->is_blocked = tide__scratch_alloc(scratch, sections, sizeof *search->is_blocked);
  search->starts = tide__scratch_alloc(scratch, sections, sizeof *search->starts);
  search->tops = tide__scratch_alloc(scratch, sections, sizeof *search->tops);
  search->raised = tide__scratch_alloc(scratch, tiles, sizeof *search->raised);
  search->raised_floors = tide__scratch_alloc(scratch, tiles, sizeof *search->raised_floors);
  // A branch has a frame for each tile that is placed, and for each time that none of some is; each has a
  // list of those that are left. A run whose stack is full has ended.
  const size_t frame = sizeof(search_frame) + tiles * (sizeof(uint32_t) + sizeof(int64_t)) + 256;
  size_t bytes = tiles < SEARCH_STACK_MOST / frame ? frame * (tiles / 2 + 64) : SEARCH_STACK_MOST;
  if (bytes < SEARCH_STACK_LEAST) bytes = SEARCH_STACK_LEAST;
  if (bytes > SEARCH_STACK_MOST) bytes = SEARCH_STACK_MOST;
  if (scratch->is_short) return;
  search->stack = scratch->heap->alloc(scratch->heap->user, bytes, 64);
  search->stack_bytes = bytes;
}

tide_status tide__search_new(const tide__puzzle* puzzle, uint64_t seed, const tide_heap* heap,
                             tide__search** out) {
  *out = NULL;
  tide__search* const search = tide__heap_alloc(heap, 1, sizeof *search);
  if (search == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for a search");
  *search = (tide__search){ .puzzle = puzzle };
  tide__scratch_init(&search->scratch, heap);
  tide__nogoods_init(&search->nogoods, heap);
  search_alloc(search);
  if (search->stack == NULL) {
    tide__search_free(search);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory to search among %u buffers", (unsigned)puzzle->count);
  }
  tide__search_reset(search, seed);
  *out = search;
  return TIDE_OK;
}

void tide__search_free(tide__search* search) {
  if (search == NULL) return;
  const tide_heap* const heap = search->scratch.heap;
  if (search->stack != NULL) heap->release(heap->user, search->stack, search->stack_bytes);
  tide__nogoods_fini(&search->nogoods);
  tide__scratch_fini(&search->scratch);
  tide__heap_release(heap, search, 1, sizeof *search);
}

void tide__search_reset(tide__search* search, uint64_t seed) {
  for (uint32_t i = 0; i < search->puzzle->sections; i++) search->weights[i] = 1;
  tide__nogoods_clear(&search->nogoods);
  search->random = seed;
}

int64_t tide__search_offset(const tide__search* search, uint32_t tile) {
  return search->offsets[tile] * search->puzzle->unit;
}

// ---------------------------------------------------------------------------------------------------
// Limits

// To be asked before some work is done; false if it may not be.
static bool search_may(tide__search* search, uint64_t work) {
  if (work > search->limit.work - search->spent.work) search->is_ended = true;
  if (search->is_ended) return false;
  search->spent.work += work;
  if (search->spent.work < search->next_poll) return true;
  search->next_poll = search->spent.work + SEARCH_POLL;
  search->is_ended = tide__watch_is_over(search->watch);
  return !search->is_ended;
}

// Counts work that could not be foreseen.
static void search_count_work(tide__search* search, uint64_t work) {
  const uint64_t left = search->limit.work - search->spent.work;
  search->spent.work += work < left ? work : left;
}

// ---------------------------------------------------------------------------------------------------
// The stack

static void* search_take(tide__search* search, size_t count, size_t bytes) {
  const size_t total = (count * bytes + 15) & ~(size_t)15;
  if (total > search->stack_bytes - search->stack_used) {
    search->is_ended = true;
    return NULL;
  }
  void* const taken = search->stack + search->stack_used;
  search->stack_used += total;
  return taken;
}

// A job with room for `count` tiles; false if the stack is full.
static bool search_job_take(tide__search* search, uint32_t count, search_job* out) {
  out->tiles = search_take(search, count, sizeof *out->tiles);
  out->floors = search_take(search, count, sizeof *out->floors);
  out->count = 0;
  return out->tiles != NULL && out->floors != NULL;
}

static search_frame* search_push(tide__search* search, const search_job* job) {
  const size_t mark = search->stack_used;
  search_frame* const frame = search_take(search, 1, sizeof *frame);
  if (frame == NULL) return NULL;
  *frame = (search_frame){ .job = *job, .below = search->top, .mark = mark };
  search->top = frame;
  return frame;
}

static void search_pop(tide__search* search) {
  search->stack_used = search->top->mark;
  search->top = search->top->below;
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

static void search_key_of(const tide__search* search, search_job* job) {
  job->key = (tide__key){ 0 };
  for (uint32_t i = 0; i < job->count; i++) {
    search_key_add(&job->key, search->puzzle->tiles[job->tiles[i]].twin, job->floors[i], true);
  }
}

// ---------------------------------------------------------------------------------------------------
// Bounds

// Sections that broke the bound are looked at earlier from now on.
static void search_blame(tide__search* search, const tide__puzzle_span* span, int64_t floor) {
  for (uint32_t i = span->first; i < span->last; i++) {
    if (floor + tide__rows_sum(&search->rows, i) > search->capacity) search->weights[i] += 1;
  }
}

// Fills the sums and lows; false if the job cannot be done.
static bool search_bound(tide__search* search, const search_job* job) {
  tide__rows_clear(&search->rows, job->first, job->last);
  for (uint32_t i = 0; i < job->count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[job->tiles[i]];
    const int64_t floor = job->floors[i];
    const int64_t most = search->capacity - floor;
    for (uint32_t j = 0; j < tile->span_count; j++) {
      const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + j];
      if (tide__rows_stack(&search->rows, span->first, span->last, span->height, floor, most)) continue;
      search_blame(search, span, floor);
      return false;
    }
  }
  return true;
}

// Fills the counts of valleys. A tile that is lowest in a valley lies wholly in it, so it is lowest at both
// its ends; others need no look.
static void search_count_lowest(tide__search* search, const search_job* job) {
  for (uint32_t i = 0; i < job->count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[job->tiles[i]];
    const int64_t floor = job->floors[i];
    for (uint32_t j = 0; j < tile->span_count; j++) {
      const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + j];
      if (tide__rows_low(&search->rows, span->first) != floor) continue;
      if (tide__rows_low(&search->rows, span->last - 1) != floor) continue;
      tide__rows_add(&search->rows, span->first, span->last, floor);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Groups of tiles that meet no tile of another

static bool search_group_is_before(const search_group* a, const search_group* b) {
  return a->room != b->room ? a->room < b->room : a->count < b->count;
}

static void search_group_insert(tide__search* search, search_frame* frame, search_group group) {
  uint32_t at = frame->group_count;
  for (; at > 0 && search_group_is_before(&group, &frame->groups[at - 1]); at--) {
    frame->groups[at] = frame->groups[at - 1];
  }
  frame->groups[at] = group;
  search_count_work(search, frame->group_count++ - at);
}

// Counts the tiles that live in a section and in the one before, and those that begin in it.
static void search_count_crossings(tide__search* search, const search_job* job) {
  int32_t* const crossings = search->crossings;
  const size_t sections = job->last - job->first;
  memset(&crossings[job->first], 0, (sections + 1) * sizeof *crossings);
  memset(&search->starts[job->first], 0, sections * sizeof *search->starts);
  for (uint32_t i = 0; i < job->count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[job->tiles[i]];
    crossings[tile->first + 1]++;
    crossings[tile->last]--;
    search->starts[tile->first]++;
  }
  for (uint32_t i = job->first + 1; i <= job->last; i++) crossings[i] += crossings[i - 1];
}

static search_group search_group_at(const tide__search* search, uint32_t first, uint32_t last) {
  search_group group = { .room = INT64_MAX, .first = first, .last = last };
  for (uint32_t i = first; i < last; i++) {
    const int64_t room = search->capacity - tide__rows_low(&search->rows, i) -
                         tide__rows_sum(&search->rows, i);
    if (tide__rows_sum(&search->rows, i) > 0 && room < group.room) group.room = room;
    group.count += search->starts[i];
  }
  return group;
}

// Finds the groups of the frame's job; one group is no reason to make groups.
static void search_find_groups(tide__search* search, search_frame* frame) {
  const search_job* const job = &frame->job;
  search_count_crossings(search, job);
  uint32_t count = 0;
  for (uint32_t i = job->first; i < job->last; i++) {
    count += tide__rows_sum(&search->rows, i) > 0 && (i == job->first || search->crossings[i] == 0);
  }
  if (count <= 1) return;
  frame->groups = search_take(search, count, sizeof *frame->groups);
  for (uint32_t first = job->first; first < job->last && frame->groups != NULL;) {
    uint32_t last = first + 1;
    while (last < job->last && search->crossings[last] != 0) last++;
    const search_group group = search_group_at(search, first, last);
    if (group.room < INT64_MAX) search_group_insert(search, frame, group);
    first = last;
  }
}

// ---------------------------------------------------------------------------------------------------
// Valleys

// A tile with several spans may be lowest here and above others elsewhere.
static void search_block(tide__search* search, const search_job* job) {
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

// How much a section is worth branching on: the lowest value is taken.
static double search_value(const tide__search* search, uint32_t section) {
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
static uint32_t search_find_section(tide__search* search, const search_job* job) {
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
        const double value = search_value(search, i);
        if (value >= least) continue;
        least = value;
        best = i;
      }
    }
    first = last;
  }
  return best;
}

static bool search_tile_has(const tide__search* search, const tide__tile* tile, uint32_t section) {
  if (section < tile->first || section >= tile->last) return false;
  if (tile->span_count == 1) return true;
  for (uint32_t i = 0; i < tile->span_count; i++) {
    const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + i];
    if (section >= span->first && section < span->last) return true;
  }
  return false;
}

// Twins are tried once, a fixed tile alone.
static void search_add_candidate(tide__search* search, search_frame* frame, uint32_t place) {
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
  search_count_work(search, at);
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
static void search_find_candidates(tide__search* search, search_frame* frame) {
  const uint32_t section = search_find_section(search, &frame->job);
  frame->section = section;
  frame->floor = tide__rows_low(&search->rows, section);
  frame->has_room =
      search->capacity - tide__rows_low(&search->rows, section) - tide__rows_sum(&search->rows, section) > 0;
  frame->candidates =
      search_take(search, (size_t)tide__rows_count(&search->rows, section), sizeof *frame->candidates);
  if (frame->candidates == NULL) return;
  for (uint32_t i = frame->job.count; i-- > 0 && frame->job.floors[i] <= frame->floor;) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[i]];
    if (frame->job.floors[i] == frame->floor && search_tile_has(search, tile, section)) {
      search_add_candidate(search, frame, i);
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Children

// How high `lower` is where both have sections; -1 if they do not meet.
static int64_t search_meet(const tide__search* search, const tide__tile* lower, const tide__tile* upper) {
  const tide__puzzle_span* const spans = search->puzzle->spans;
  if (lower->first >= upper->last || upper->first >= lower->last) return -1;
  if (lower->span_count == 1 && upper->span_count == 1) return spans[lower->span].height;
  // Both lists rise, so they are walked side by side.
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

// Offsets above all limits are as good as one another.
static int64_t search_align(const tide__tile* tile, int64_t height) {
  const int64_t rest = tile->alignment == 1 ? 0 : height % tile->alignment;
  if (rest == 0) return height;
  const uint64_t aligned = (uint64_t)height + (uint64_t)(tile->alignment - rest);
  return aligned < (uint64_t)SEARCH_HEIGHT_MOST * 2 ? (int64_t)aligned : SEARCH_HEIGHT_MOST * 2;
}

// Puts a tile among those that were lifted, by falling floor.
static void search_raise(tide__search* search, uint32_t count, uint32_t tile, int64_t floor) {
  uint32_t at = count;
  for (; at > 0 && search->raised_floors[at - 1] < floor; at--) {
    search->raised[at] = search->raised[at - 1];
    search->raised_floors[at] = search->raised_floors[at - 1];
  }
  search->raised[at] = tile;
  search->raised_floors[at] = floor;
  search_count_work(search, count - at);
}

// Merges what was kept, which is in the job, with what was lifted. The job has room for both.
static void search_merge(const tide__search* search, search_job* job, uint32_t raised) {
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

// The job that is left when the candidate lies at its floor; false if some tile then has no place. Sets
// is_forced if nothing lies above the candidate.
static bool search_place(tide__search* search, search_frame* frame, uint32_t place, search_job* out) {
  const search_job* const job = &frame->job;
  const tide__tile* const tiles = search->puzzle->tiles;
  const tide__tile* const placed = &tiles[job->tiles[place]];
  // With several spans, those of each are walked beside those of the placed one.
  const uint64_t spans = search->puzzle->has_gaps ? job->area : 0;
  if (!search_may(search, (uint64_t)job->count * placed->span_count + spans)) return false;
  if (!search_job_take(search, job->count, out)) return false;
  out->first = job->first;
  out->last = job->last;
  out->area = job->area - placed->area;
  out->key = job->key;
  search_key_add(&out->key, placed->twin, frame->floor, false);
  uint32_t raised = 0;
  bool fits = true;
  frame->is_forced = true;
  for (uint32_t i = 0; i < job->count; i++) {
    const uint32_t index = job->tiles[i];
    if (i == place) continue;
    const int64_t height = search_meet(search, placed, &tiles[index]);
    frame->is_forced &= height < 0;
    if (height < 0 || job->floors[i] >= frame->floor + height) {
      out->tiles[out->count] = index;
      out->floors[out->count++] = job->floors[i];
      continue;
    }
    const int64_t floor = search_align(&tiles[index], frame->floor + height);
    fits &= floor <= search->limits[index];
    search_raise(search, raised++, index, floor);
    search_key_add(&out->key, tiles[index].twin, job->floors[i], false);
    search_key_add(&out->key, tiles[index].twin, floor, true);
  }
  search_merge(search, out, raised);
  return fits;
}

// Is the tile at a place of the job one of the lowest of the frame's section?
static bool search_is_lowest(const tide__search* search, const search_frame* frame, uint32_t place) {
  const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[place]];
  return frame->job.floors[place] == frame->floor && search_tile_has(search, tile, frame->section);
}

// The sections of all lowest tiles of the frame's section, each of which has its like among the candidates.
static tide__puzzle_span search_find_range(const tide__search* search, const search_frame* frame) {
  tide__puzzle_span range = { frame->section, frame->section + 1, 0 };
  for (uint32_t i = 0; i < frame->candidate_count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[frame->job.tiles[frame->candidates[i]]];
    if (tile->first < range.first) range.first = tile->first;
    if (tile->last > range.last) range.last = tile->last;
  }
  return range;
}

// Fills the tops of the range: by section, the lowest end of a tile that is none of the lowest.
static void search_find_tops(tide__search* search, const search_frame* frame, tide__puzzle_span range) {
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

// The lowest that a tile can lie upon one of those whose tops are known; INT64_MAX: it meets none.
static int64_t search_lift_alone(const tide__search* search, const tide__tile* tile) {
  int64_t lowest = INT64_MAX;
  for (uint32_t i = 0; i < tile->span_count; i++) {
    const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + i];
    for (uint32_t s = span->first; s < span->last; s++) {
      if (search->tops[s] < lowest) lowest = search->tops[s];
    }
  }
  return lowest == INT64_MAX ? lowest : search_align(tile, lowest);
}

static int64_t search_height_at(const tide__search* search, const tide__tile* tile, uint32_t section) {
  const tide__puzzle_span* span = &search->puzzle->spans[tile->span];
  while (section >= span->last) span++;
  return span->height;
}

// The lowest end that one of the lowest tiles can have, if none of them lies at its floor. That one lies upon
// a tile that is none of them, since all of them meet in the section.
static int64_t search_lowest_end(const tide__search* search, const search_frame* frame) {
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

// The job in which none of the lowest tiles of the frame's section lies at its floor: each lies upon a tile
// that is none of them, or upon one of them where that lies then. False if one must lie at its floor.
static bool search_place_none(tide__search* search, const search_frame* frame, search_job* out) {
  const search_job* const job = &frame->job;
  if (!search_may(search, 2 * (uint64_t)job->count + 2 * job->area)) return false;
  if (!search_job_take(search, job->count, out)) return false;
  out->first = job->first;
  out->last = job->last;
  out->area = job->area;
  out->key = job->key;
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
    const int64_t upon = end == INT64_MAX ? end : search_align(tile, end);
    const int64_t alone = search_lift_alone(search, tile);
    const int64_t floor = alone < upon ? alone : upon;
    if (floor > search->limits[index]) return false;
    search_raise(search, raised++, index, floor);
    search_key_add(&out->key, tile->twin, frame->floor, false);
    search_key_add(&out->key, tile->twin, floor, true);
  }
  search_merge(search, out, raised);
  return true;
}

static bool search_take_group(tide__search* search, const search_frame* frame, const search_group* group,
                              search_job* out) {
  if (!search_may(search, frame->job.count)) return false;
  if (!search_job_take(search, group->count, out)) return false;
  out->first = group->first;
  out->last = group->last;
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

// ---------------------------------------------------------------------------------------------------
// Nodes

// What a node looks at: its tiles and their sections, and all sections between them.
static uint64_t search_node_work(const tide__search* search, const search_job* job) {
  const uint64_t area = search->puzzle->has_gaps ? 2 * job->area : job->area;
  return 2 * (uint64_t)job->count + area + (job->last - job->first);
}

// Looks at a job: it is done, it cannot be done, or a frame for it is on the stack.
static search_state search_enter(tide__search* search, const search_job* job) {
  if (job->count == 0) return SEARCH_SOLVED;
  if (search->spent.nodes >= search->limit.nodes) return SEARCH_ENDED;
  if (!search_may(search, search_node_work(search, job))) return SEARCH_ENDED;
  search->spent.nodes++;
  if (tide__nogoods_has(&search->nogoods, job->key)) return SEARCH_FAILED;
  if (!search_bound(search, job)) {
    tide__nogoods_add(&search->nogoods, job->key);
    return SEARCH_FAILED;
  }
  search_frame* const frame = search_push(search, job);
  if (frame == NULL) return SEARCH_ENDED;
  search_find_groups(search, frame);
  if (frame->group_count == 0) {
    search_count_lowest(search, job);
    search_find_candidates(search, frame);
  }
  return search->is_ended ? SEARCH_ENDED : SEARCH_OPEN;
}

static search_state search_fail(tide__search* search) {
  tide__nogoods_add(&search->nogoods, search->top->job.key);
  search_pop(search);
  return SEARCH_FAILED;
}

static search_state search_next_group(tide__search* search) {
  search_frame* const frame = search->top;
  if (frame->next == frame->group_count) {
    search_pop(search);
    return SEARCH_SOLVED;
  }
  search_job job = { 0 };
  if (!search_take_group(search, frame, &frame->groups[frame->next++], &job)) return SEARCH_ENDED;
  return search_enter(search, &job);
}

static search_state search_next_candidate(tide__search* search) {
  search_frame* const frame = search->top;
  const size_t mark = search->stack_used;
  while (frame->next < frame->candidate_count) {
    const uint32_t place = frame->candidates[frame->next++];
    search_job job = { 0 };
    const bool fits = search_place(search, frame, place, &job);
    if (search->is_ended) return SEARCH_ENDED;
    if (fits) {
      search->offsets[frame->job.tiles[place]] = frame->floor;
      return search_enter(search, &job);
    }
    if (frame->is_forced) return search_fail(search);
    search->stack_used = mark;
  }
  if (frame->next++ == frame->candidate_count && frame->has_room) {
    search_job job = { 0 };
    const bool fits = search_place_none(search, frame, &job);
    if (search->is_ended) return SEARCH_ENDED;
    frame->is_forced = true;  // nothing is left to try behind it
    if (fits) return search_enter(search, &job);
  }
  return search_fail(search);
}

// Goes on at the top frame, whose last child had this state.
static search_state search_go_on(tide__search* search, search_state child) {
  search_frame* const frame = search->top;
  const bool has_groups = frame->group_count > 0;
  // What the child left on the stack lies behind what the frame holds.
  search->stack_used = frame->end;
  if (child == SEARCH_SOLVED && !has_groups) {
    search_pop(search);
    return SEARCH_SOLVED;
  }
  if (child == SEARCH_FAILED && (has_groups || frame->is_forced)) return search_fail(search);
  return has_groups ? search_next_group(search) : search_next_candidate(search);
}

static search_state search_walk(tide__search* search, const search_job* job) {
  search_state state = search_enter(search, job);
  while (state != SEARCH_ENDED && search->top != NULL) {
    if (state == SEARCH_OPEN) search->top->end = search->stack_used;
    state = search_go_on(search, state);
  }
  return state;
}

// ---------------------------------------------------------------------------------------------------
// Runs

static void search_set_priorities(tide__search* search, const tide__search_order* order) {
  for (uint32_t i = 0; i < search->puzzle->count; i++) {
    const tide__tile* const tile = &search->puzzle->tiles[i];
    const float chance = tide__random_fraction(&search->random);
    search->priorities[i] = order->duration * tile->log_duration + order->sections * tile->log_sections +
                            order->bytes * tile->log_bytes + order->noise * chance;
  }
}

// The lowest offset of a tile at the beginning.
static int64_t search_ground(const tide__tile* tile) {
  return tile->fixed >= 0 ? tile->fixed : search_align(tile, tile->ground);
}

// Sets the height to be kept; false if a tile is too high for it. What failed at a height fails below, too.
static bool search_set_height(tide__search* search, int64_t bytes) {
  const tide__puzzle* const puzzle = search->puzzle;
  if (bytes > search->bytes) tide__nogoods_clear(&search->nogoods);
  search->bytes = bytes;
  search->rows.is_narrow = bytes / puzzle->unit < TIDE__ROWS_NARROW - 1;
  search->capacity = bytes / puzzle->unit;
  if (bytes % puzzle->unit + puzzle->unused >= puzzle->unit) search->capacity++;
  for (uint32_t i = 0; i < puzzle->count; i++) {
    const tide__tile* const tile = &puzzle->tiles[i];
    if (tile->bytes > bytes) return false;
    search->limits[i] = (bytes - tile->bytes) / puzzle->unit;
    if (tile->fixed > search->limits[i] || search_ground(tile) > search->limits[i]) return false;
    if (tile->fixed >= 0) search->limits[i] = tile->fixed;
  }
  return true;
}

// All tiles, each on its ground or at its fixed offset.
static bool search_first_job(tide__search* search, search_job* out) {
  const tide__puzzle* const puzzle = search->puzzle;
  if (!search_job_take(search, puzzle->count, out)) return false;
  out->last = puzzle->sections;
  uint32_t raised = 0;
  for (uint32_t i = 0; i < puzzle->count; i++) {
    const int64_t floor = search_ground(&puzzle->tiles[i]);
    out->area += puzzle->tiles[i].area;
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

tide__search_answer tide__search_run(tide__search* search, int64_t height, tide__search_rule rule,
                                     const tide__search_order* order, tide__effort limit,
                                     const tide__watch* watch, tide__effort* out_spent) {
  *out_spent = (tide__effort){ 0 };
  if (height / search->puzzle->unit >= SEARCH_HEIGHT_MOST) return TIDE__SEARCH_STOPPED;
  if (!search_set_height(search, height)) return TIDE__SEARCH_FITS_NOT;
  search_set_priorities(search, order);
  search->rule = rule;
  search->spent = (tide__effort){ 0 };
  search->limit = limit;
  search->next_poll = 0;
  search->watch = watch;
  search->is_ended = false;
  search->stack_used = 0;
  search->top = NULL;
  search_job job = { 0 };
  const search_state state = search_first_job(search, &job) ? search_walk(search, &job) : SEARCH_ENDED;
  *out_spent = search->spent;
  if (state == SEARCH_SOLVED) return TIDE__SEARCH_FITS;
  return state == SEARCH_FAILED ? TIDE__SEARCH_FITS_NOT : TIDE__SEARCH_STOPPED;
}
