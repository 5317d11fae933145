// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A depth-first search over valleys. Each tile that is not yet placed has a floor, the lowest offset it can
// still have. In an arrangement whose tiles lie as low as they can, each tile lies on the ground or on
// another, so it is enough to place tiles at their floors.
//
// Tiles that no longer meet one another are solved group by group, the tightest first. States that failed are
// kept in the no-good table, keyed by the tiles that are left and their floors. A tile that no other tile can
// lie upon is placed without alternatives. A tile with a fixed offset has it as its floor from the start, and
// may not be lifted.
//
// The search keeps its own stack in one array, so that its depth does not depend on a thread's stack. A
// node costs about the sum of the sections of its tiles. Each of its children costs the number of its
// tiles, or that sum where no candidate is placed. All of this is counted as work. Work has a limit beside
// that of nodes, because a node among many tiles takes long.
#include "base/check.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/random.h"
#include "plan/search_state.h"

#define SEARCH_AUDIT_EVERY 4u                 // nodes
#define SEARCH_STACK_LEAST ((size_t)1 << 18)  // bytes
#define SEARCH_STACK_MOST ((size_t)1 << 27)   // bytes

typedef enum search_state { SEARCH_OPEN, SEARCH_SOLVED, SEARCH_FAILED, SEARCH_ENDED } search_state;

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
  for (size_t i = 0; i < TIDE__ROWS_COUNT; i++) {
    search->rows.rows[i] = tide__scratch_alloc(scratch, sections, sizeof(int64_t));
  }
  search->is_blocked = tide__scratch_alloc(scratch, sections, sizeof *search->is_blocked);
  search->starts = tide__scratch_alloc(scratch, sections, sizeof *search->starts);
  search->tops = tide__scratch_alloc(scratch, sections, sizeof *search->tops);
  search->raised = tide__scratch_alloc(scratch, tiles, sizeof *search->raised);
  search->raised_floors = tide__scratch_alloc(scratch, tiles, sizeof *search->raised_floors);
  // A branch has a frame for each tile that is placed, and for each time that no candidate is. Each frame
  // has a list of the tiles that are left, and the rows that changed. A full stack ends the run.
  const size_t frame = sizeof(tide__search_frame) + tiles * (sizeof(uint32_t) + sizeof(int64_t)) +
                       sections * TIDE__ROWS_COUNT * sizeof(int64_t) + 256;
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
// Nodes

static tide__search_frame* search_push(tide__search* search, const tide__search_job* job, char* saved) {
  const size_t mark = search->stack_used;
  tide__search_frame* const frame = tide__search_take(search, 1, sizeof *frame);
  if (frame == NULL) return NULL;
  *frame = (tide__search_frame){ .job = *job, .below = search->top, .mark = mark, .saved = saved };
  search->top = frame;
  return frame;
}

static void search_pop(tide__search* search) {
  const tide__search_frame* const frame = search->top;
  tide__rows_restore(&search->rows, frame->job.changed_first, frame->job.changed_last, frame->saved);
  search->stack_used = frame->mark;
  search->top = frame->below;
}

// A node visits its tiles and their sections, and all sections between them.
static uint64_t search_node_work(const tide__search* search, const tide__search_job* job) {
  const uint64_t area = search->puzzle->has_gaps ? 2 * job->area : job->area;
  return 2 * (uint64_t)job->count + area + (job->last - job->first);
}

static search_state search_refuse(tide__search* search) {
  search->failures--;
  return SEARCH_FAILED;
}

// Enters the node of a job: it is solved, it has failed, or its frame is on the stack.
static search_state search_enter(tide__search* search, const tide__search_job* job) {
  if (job->count == 0) return SEARCH_SOLVED;
  if (search->spent.nodes >= search->limit.nodes || search->failures == 0) return SEARCH_ENDED;
  if (!tide__search_may(search, search_node_work(search, job))) return SEARCH_ENDED;
  search->spent.nodes++;
  if (tide__nogoods_has(&search->nogoods, job->key)) return search_refuse(search);
  const uint32_t changed = job->changed_last - job->changed_first;
  char* const saved = tide__search_take(search, 1, tide__rows_bytes(&search->rows, changed));
  if (saved == NULL) return SEARCH_ENDED;
  tide__rows_save(&search->rows, job->changed_first, job->changed_last, saved);
  if (!tide__search_bound(search, job)) {
    tide__rows_restore(&search->rows, job->changed_first, job->changed_last, saved);
    tide__nogoods_add(&search->nogoods, job->key);
    return search_refuse(search);
  }
  tide__search_frame* const frame = search_push(search, job, saved);
  if (frame == NULL) return SEARCH_ENDED;
  tide__search_branch(search, frame);
  TIDE_AUDIT(search->spent.nodes % SEARCH_AUDIT_EVERY != 0 || tide__search_check(search, frame));
  return search->is_ended ? SEARCH_ENDED : SEARCH_OPEN;
}

static search_state search_fail(tide__search* search) {
  tide__nogoods_add(&search->nogoods, search->top->job.key);
  search_pop(search);
  return SEARCH_FAILED;
}

static search_state search_next_group(tide__search* search) {
  tide__search_frame* const frame = search->top;
  if (frame->next == frame->group_count) {
    search_pop(search);
    return SEARCH_SOLVED;
  }
  tide__search_job job = { 0 };
  if (!tide__search_take_group(search, frame, &frame->groups[frame->next++], &job)) return SEARCH_ENDED;
  return search_enter(search, &job);
}

static search_state search_next_candidate(tide__search* search) {
  tide__search_frame* const frame = search->top;
  const size_t mark = search->stack_used;
  while (frame->next < frame->candidate_count) {
    const uint32_t place = frame->candidates[frame->next++];
    tide__search_job job = { 0 };
    const bool fits = tide__search_place(search, frame, place, &job);
    if (search->is_ended) return SEARCH_ENDED;
    if (fits) {
      search->offsets[frame->job.tiles[place]] = frame->floor;
      return search_enter(search, &job);
    }
    if (frame->is_forced) return search_fail(search);
    search->stack_used = mark;
  }
  if (frame->next++ == frame->candidate_count && frame->has_room) {
    tide__search_job job = { 0 };
    const bool fits = tide__search_place_none(search, frame, &job);
    if (search->is_ended) return SEARCH_ENDED;
    frame->is_forced = true;  // it is the last alternative
    if (fits) return search_enter(search, &job);
  }
  return search_fail(search);
}

// Continues at the top frame, whose last child ended in this state.
static search_state search_go_on(tide__search* search, search_state child) {
  tide__search_frame* const frame = search->top;
  const bool has_groups = frame->group_count > 0;
  // Drop what the child left on the stack.
  search->stack_used = frame->end;
  if (child == SEARCH_SOLVED && !has_groups) {
    search_pop(search);
    return SEARCH_SOLVED;
  }
  if (child == SEARCH_FAILED && (has_groups || frame->is_forced)) return search_fail(search);
  return has_groups ? search_next_group(search) : search_next_candidate(search);
}

static search_state search_walk(tide__search* search, const tide__search_job* job) {
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

// Sets the height; false if a tile is too high for it. A state that failed at one height fails below it, too.
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
    if (tile->fixed > search->limits[i] || tide__search_ground(tile) > search->limits[i]) return false;
    if (tile->fixed >= 0) search->limits[i] = tile->fixed;
  }
  return true;
}

tide__search_answer tide__search_run(tide__search* search, int64_t height, tide__search_rule rule,
                                     const tide__search_order* order, const tide__search_limit* limit,
                                     const tide__watch* watch, tide__effort* out_spent) {
  *out_spent = (tide__effort){ 0 };
  if (height / search->puzzle->unit >= TIDE__SEARCH_HEIGHT_MOST) return TIDE__SEARCH_STOPPED;
  if (!search_set_height(search, height)) return TIDE__SEARCH_FITS_NOT;
  search_set_priorities(search, order);
  search->rule = rule;
  search->spent = (tide__effort){ 0 };
  search->limit = limit->effort;
  search->failures = limit->failures;
  search->next_poll = 0;
  search->watch = watch;
  search->is_ended = false;
  search->stack_used = 0;
  search->top = NULL;
  tide__search_job job = { 0 };
  const search_state state = tide__search_first_job(search, &job) ? search_walk(search, &job) : SEARCH_ENDED;
  *out_spent = search->spent;
  if (state == SEARCH_SOLVED) return TIDE__SEARCH_FITS;
  return state == SEARCH_FAILED ? TIDE__SEARCH_FITS_NOT : TIDE__SEARCH_STOPPED;
}
