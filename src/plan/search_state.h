// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the files of the exact search share: its records, its stack and its limits.
//   search.c           the walk through the tree: runs, nodes, what was learned
//   search_branch.c    a node: the bound, groups, and the section to branch on
//   search_children.c  the jobs of a node's children
#ifndef TIDEMARK_SRC_PLAN_SEARCH_STATE_H
#define TIDEMARK_SRC_PLAN_SEARCH_STATE_H

#include "plan/nogoods.h"
#include "plan/rows.h"
#include "plan/search.h"

#define TIDE__SEARCH_POLL ((uint64_t)1 << 17)        // work between two looks at the budget
#define TIDE__SEARCH_HEIGHT_MOST ((int64_t)1 << 60)  // units, so that sums of two do not overflow

// Tiles that are still to be placed, by falling floor, and the sections [first, last) that they use.
typedef struct tide__search_job {
  uint32_t* tiles;  // in the stack, like the floors
  int64_t* floors;
  uint32_t count;
  uint32_t first;
  uint32_t last;
  uint64_t area;  // sections of all its tiles, summed
  tide__key key;
  // Sections outside [changed_first, changed_last) have the same tiles and floors as in the node above.
  uint32_t changed_first;
  uint32_t changed_last;
  const tide__tile* placed;  // the tile that is in the node above and not here; NULL: none
} tide__search_job;

// Tiles that share no section with the other tiles of a job.
typedef struct tide__search_group {
  int64_t room;  // the least room that any of its sections has
  uint32_t first;
  uint32_t last;
  uint32_t count;
} tide__search_group;

// A node of the search. It has either groups, which must all be solved, or candidates, one of which must lie
// at its floor unless has_room.
typedef struct tide__search_frame {
  tide__search_job job;
  struct tide__search_frame* below;  // in the stack
  size_t mark;                       // bytes of the stack in use before this frame
  size_t end;                        // and with this frame and its lists
  char* saved;                       // the changed rows of the node above
  tide__search_group* groups;
  uint32_t* candidates;  // places in the job
  uint32_t group_count;
  uint32_t candidate_count;
  uint32_t next;     // the group or candidate to try next; candidate_count: place none of them
  uint32_t section;  // that the candidates share
  int64_t floor;     // of the candidates
  bool has_room;     // there may be an arrangement with none of the candidates at its floor
  bool is_forced;    // the child being tried has no alternatives
} tide__search_frame;

struct tide__search {
  tide__scratch scratch;
  const tide__puzzle* puzzle;  // borrowed
  tide__nogoods nogoods;
  uint64_t random;
  int64_t bytes;      // the height for which the no-good table holds
  int64_t capacity;   // the same in units
  int64_t* limits;    // of scratch; by tile: its highest offset
  int64_t* offsets;   // of scratch; by tile, units
  float* weights;     // of scratch; by section: raised when it breaks the bound
  float* priorities;  // of scratch; by tile
  tide__rows rows;    // of scratch; of the frame at the top
  uint32_t* starts;   // of scratch; by section: tiles that begin there, of a job with groups
  int64_t* tops;      // of scratch; by section: the lowest end of a tile that is not a candidate
  bool* is_blocked;   // of scratch; (has_gaps) a lowest tile here is above the lowest floor elsewhere
  // Tiles whose floors rise while a child is made
  uint32_t* raised;
  int64_t* raised_floors;
  // The stack
  char* stack;  // owned
  size_t stack_bytes;
  size_t stack_used;
  tide__search_frame* top;  // in the stack; NULL at the beginning
  // Of one run
  tide__search_rule rule;
  tide__effort spent;
  tide__effort limit;
  uint64_t failures;   // that are left
  uint64_t next_poll;  // the work at which to look at the budget again
  const tide__watch* watch;
  bool is_ended;  // by a limit, the budget, or a full stack
};

// ---------------------------------------------------------------------------------------------------
// Limits

// Reserves work before it is done; false ends the run.
static inline bool tide__search_may(tide__search* search, uint64_t work) {
  if (work > search->limit.work - search->spent.work) search->is_ended = true;
  if (search->is_ended) return false;
  search->spent.work += work;
  if (search->spent.work < search->next_poll) return true;
  search->next_poll = search->spent.work + TIDE__SEARCH_POLL;
  search->is_ended = tide__watch_is_over(search->watch);
  return !search->is_ended;
}

// Counts work whose extent was not known in advance.
static inline void tide__search_count_work(tide__search* search, uint64_t work) {
  const uint64_t left = search->limit.work - search->spent.work;
  search->spent.work += work < left ? work : left;
}

// ---------------------------------------------------------------------------------------------------
// The stack

// Takes memory from the stack; if it is full, ends the run and returns NULL.
static inline void* tide__search_take(tide__search* search, size_t count, size_t bytes) {
  const size_t total = (count * bytes + 15) & ~(size_t)15;
  if (total > search->stack_bytes - search->stack_used) {
    search->is_ended = true;
    return NULL;
  }
  void* const taken = search->stack + search->stack_used;
  search->stack_used += total;
  return taken;
}

// ---------------------------------------------------------------------------------------------------
// Tiles

// Heights above all limits need not be told apart.
static inline int64_t tide__search_align(const tide__tile* tile, int64_t height) {
  const int64_t rest = tile->alignment == 1 ? 0 : height % tile->alignment;
  if (rest == 0) return height;
  const uint64_t aligned = (uint64_t)height + (uint64_t)(tile->alignment - rest);
  return aligned < (uint64_t)TIDE__SEARCH_HEIGHT_MOST * 2 ? (int64_t)aligned : TIDE__SEARCH_HEIGHT_MOST * 2;
}

// The lowest offset of a tile at the beginning.
static inline int64_t tide__search_ground(const tide__tile* tile) {
  return tile->fixed >= 0 ? tile->fixed : tide__search_align(tile, tile->ground);
}

static inline bool tide__search_tile_has(const tide__search* search, const tide__tile* tile,
                                         uint32_t section) {
  if (section < tile->first || section >= tile->last) return false;
  if (tile->span_count == 1) return true;
  for (uint32_t i = 0; i < tile->span_count; i++) {
    const tide__puzzle_span* const span = &search->puzzle->spans[tile->span + i];
    if (section >= span->first && section < span->last) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------

// Fills the changed rows, apart from crossings; false if the job breaks the bound. Then the sections that
// broke it gain weight.
bool tide__search_bound(tide__search* search, const tide__search_job* job);
// After the bound: updates the crossings, and gives the frame its groups or, if all tiles form one group,
// its candidates.
void tide__search_branch(tide__search* search, tide__search_frame* frame);

// Are the rows of the frame's sections what its tiles make them?
bool tide__search_check(const tide__search* search, const tide__search_frame* frame);

// The job of all tiles, each on its ground or at its fixed offset; false if the stack is full.
bool tide__search_first_job(tide__search* search, tide__search_job* out);
// The job of one group. False ends the run.
bool tide__search_take_group(tide__search* search, const tide__search_frame* frame,
                             const tide__search_group* group, tide__search_job* out);
// The job that is left when a candidate lies at its floor. Sets is_forced if no other tile meets the
// candidate. False if some tile then has no place, or the run has ended.
bool tide__search_place(tide__search* search, tide__search_frame* frame, uint32_t place,
                        tide__search_job* out);
// The job in which no candidate lies at its floor: each lies upon a tile that is not a candidate, or upon a
// candidate that does. False if one must lie at its floor, or the run has ended.
bool tide__search_place_none(tide__search* search, const tide__search_frame* frame, tide__search_job* out);

#endif
