// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A graph that is run: what was learnt about each shape, the memory of the run that is open, and the outputs
// of runs that are still in use. One thread at a time; no locks.
#ifndef TIDEMARK_SRC_GRAPH_PLANNER_H
#define TIDEMARK_SRC_GRAPH_PLANNER_H

#include "base/list.h"
#include "base/tree.h"
#include "graph/graph_layout.h"
#include "memory/arena.h"

#define TIDE__PLANNER_WINDOW 64u  // runs that the sizes of arenas depend on, at most

// What one value holds beside its place. [V1] own != NULL == own_bytes != 0
typedef struct tide__holding {
  void* own;  // owned: memory of its own
  uint64_t own_bytes;
  void* previous;  // owned: its own memory of the turn before, in a block that may run in turns
  uint64_t previous_bytes;
  uint64_t largest;    // bytes asked for at once in this run
  uint64_t
      stamp;  // when it was last allocated or adopted, in the count of all such calls; 0: not in this run
  const void* stored;      // where its storage was put last, and
  uint64_t stored_bytes;   // its size there: another one is the program's
  bool was_allocated;      // by the planner, and not adopted
  bool is_droppable;       // it has memory of its own that goes back when the value is dead
  tide__tree_node by_end;  // while it is; key: the last instant of the value, tie: its number
} tide__holding;

// What was learnt about runs of one shape.
typedef struct tide__learnt {
  uint64_t shape;
  uint64_t last_run;
  uint64_t runs;
  uint64_t* largest;  // owned; by value: the most of the last runs
  uint64_t* recent;   // owned; `remembers_runs` rows of one number for each value; NULL: all are remembered
  tide_graph_layout* layout;  // owned; NULL: none yet
  double laid_out;            // bytes that all values needed when it was made
} tide__learnt;

// The outputs of one run.
typedef struct tide__generation {
  tide__link link;  // in use, or idle
  tide__arena_memory memory;
  uint64_t number;
  uint64_t references;
} tide__generation;

struct tide_planner {
  const tide_graph* graph;     // borrowed until the planner is freed
  tide_graph_options options;  // complete
  const tide_heap* heap;       // borrowed
  tide_value_role* roles;      // owned; by value
  tide_storage* storages;      // owned; by value
  tide__holding* holdings;     // owned; by value
  tide__tree droppable;        // values with memory of their own that may go back before the run has ended
  bool* is_marked;             // owned; by node: the guard has found it once
  tide__learnt* learnt;        // owned; max_layouts of them
  size_t learnt_count;
  // The run that is open, or the last one
  bool is_open;
  bool is_decided;        // decides_once: the first run has shown which values are made
  tide__learnt* current;  // borrowed; NULL: no run yet
  tide__arena_memory arena;
  tide__recent_max needs;                    // bytes that the last runs needed of the arena,
  tide__recent_max output_needs;             // of an arena for outputs,
  tide__recent_max output_counts;            // and how many generations were in use
  uint64_t window[3][TIDE__PLANNER_WINDOW];  // the numbers of these
  tide__link generations;
  tide__link idle_generations;
  tide__generation* generation;  // borrowed; of this run; NULL: none
  uint64_t generation_count;     // made so far
  uint64_t stamp;
  uint64_t run_number;
  tide_planner_stats stats;
};

// The storage of a value is put somewhere by us.
static inline void tide__planner_store(tide_planner* planner, uint32_t value, tide_storage storage) {
  planner->storages[value] = storage;
  planner->holdings[value].stored = storage.address;
  planner->holdings[value].stored_bytes = storage.bytes;
}

// planner_memory.c: all that calls the memory.

// The arena has room for a layout: a larger one if need be, a smaller one when the last runs needed less.
tide_status tide__planner_fit_arena(tide_planner* planner, uint64_t bytes);
tide_status tide__planner_begin_generation(tide_planner* planner, uint64_t bytes);
// A generation has one reference less; the last one makes it idle.
void tide__planner_drop_generation(tide_planner* planner, tide__generation* generation);
tide__generation* tide__planner_find_generation(const tide_planner* planner, uint64_t number);
// Memory of a value's own; others that are dead when the value is made lose theirs.
tide_status tide__planner_own(tide_planner* planner, uint32_t value, uint64_t bytes, void** out);
void tide__planner_disown(tide_planner* planner, uint32_t value);
// The value lies elsewhere or nowhere now; what the next turn of its block may read stays until it is asked
// for.
void tide__planner_let_go(tide_planner* planner, uint32_t value);
void tide__planner_free_memory(tide_planner* planner);

// planner_learn.c: sizes and layouts.

// The record of a shape, or NULL.
tide__learnt* tide__planner_find(tide_planner* planner, uint64_t shape);
// A new one, which is then kept, in place of the one that was not used for longest if need be, or not.
tide_status tide__planner_prepare(tide_planner* planner, uint64_t shape, tide__learnt* out);
tide__learnt* tide__planner_keep(tide_planner* planner, const tide__learnt* learnt);
void tide__planner_unprepare(tide_planner* planner, tide__learnt* learnt);
// Notes the sizes of a run and makes a new layout if the old one does not do.
tide_status tide__planner_learn(tide_planner* planner, tide__learnt* learnt);
// Notes sizes that are known without a run.
void tide__planner_note_sizes(tide_planner* planner, tide__learnt* learnt, const uint64_t* bytes);
// Makes a layout for sizes, `learnt` keeps it; where that fails, nothing has changed.
tide_status tide__planner_lay_out(tide_planner* planner, tide__learnt* learnt, const uint64_t* sizes);
void tide__planner_forget_all(tide_planner* planner);

#endif
