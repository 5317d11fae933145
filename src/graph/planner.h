// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The state of a planner: what it has learned about each shape, the memory of the open run, and the outputs
// that are still in use. One thread at a time; no locks.
#ifndef TIDEMARK_SRC_GRAPH_PLANNER_H
#define TIDEMARK_SRC_GRAPH_PLANNER_H

#include "base/list.h"
#include "base/scratch.h"
#include "base/tree.h"
#include "graph/graph_layout.h"
#include "memory/arena.h"

#define TIDE__PLANNER_WINDOW 64u  // the most runs that the sizes of arenas depend on

// The memory of one value besides its place. [V1] own != NULL == own_bytes != 0
typedef struct tide__holding {
  void* own;  // owned: memory of its own
  uint64_t own_bytes;
  void* previous;  // owned: its memory of the previous iteration, in a block that may repeat
  uint64_t previous_bytes;
  uint64_t largest;  // the largest request in this run
  uint64_t
      stamp;  // when it was last allocated or adopted, in the count of all such calls; 0: not in this run
  const void* stored;      // the storage as the planner last set it; the
  uint64_t stored_bytes;   // program has swapped it if it differs now
  bool was_allocated;      // by the planner, and not adopted
  bool is_droppable;       // it has memory of its own that is released when the value is dead
  tide__tree_node by_end;  // while is_droppable; key: its last instant, tie: its number
} tide__holding;

// What runs of one shape have taught.
typedef struct tide__learnt {
  uint64_t shape;
  uint64_t last_run;
  uint64_t runs;
  uint64_t* largest;  // owned; by value: the most of the last runs
  uint64_t* recent;   // owned; `remembers_runs` rows of one number for each value; NULL: all are remembered
  tide_graph_layout* layout;  // owned; NULL: none yet
  double laid_out;            // sum of the bytes of all values when it was made
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
  tide__scratch tables;        // memory of the next five
  tide_value_role* roles;      // of tables; by value
  tide_storage* storages;      // of tables; by value
  tide__holding* holdings;     // of tables; by value
  tide__tree droppable;        // values with memory of their own that may be released during the run
  bool* is_marked;             // of tables; by node: the guard has found it once
  tide__learnt* learnt;        // of tables; max_layouts of them
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

// Sets the storage of a value.
static inline void tide__planner_store(tide_planner* planner, uint32_t value, tide_storage storage) {
  planner->storages[value] = storage;
  planner->holdings[value].stored = storage.address;
  planner->holdings[value].stored_bytes = storage.bytes;
}

// planner_memory.c: all that calls the memory.

// Makes the arena large enough for a layout, and smaller if the last runs needed less.
tide_status tide__planner_fit_arena(tide_planner* planner, uint64_t bytes);
tide_status tide__planner_begin_generation(tide_planner* planner, uint64_t bytes);
// Drops a reference; the last one makes the generation idle.
void tide__planner_drop_generation(tide_planner* planner, tide__generation* generation);
tide__generation* tide__planner_find_generation(const tide_planner* planner, uint64_t number);
// Gives a value memory of its own, and releases that of values that are dead when it is made.
tide_status tide__planner_own(tide_planner* planner, uint32_t value, uint64_t bytes, void** out);
void tide__planner_disown(tide_planner* planner, uint32_t value);
// The value lies elsewhere or nowhere now. Memory that the next iteration may read stays.
void tide__planner_let_go(tide_planner* planner, uint32_t value);
// Releases what no value of a past run and no output lies in.
void tide__planner_free_idle(tide_planner* planner);
void tide__planner_free_memory(tide_planner* planner);

// planner_learn.c: sizes and layouts.

// The record of a shape, or NULL.
tide__learnt* tide__planner_find(tide_planner* planner, uint64_t shape);
// Makes a new record. Then either keep it, which may replace the least recently used one, or unprepare it.
tide_status tide__planner_prepare(tide_planner* planner, uint64_t shape, tide__learnt* out);
tide__learnt* tide__planner_keep(tide_planner* planner, const tide__learnt* learnt);
void tide__planner_unprepare(tide_planner* planner, tide__learnt* learnt);
// Records the sizes of a run, and makes a new layout if the old one does not fit.
tide_status tide__planner_learn(tide_planner* planner, tide__learnt* learnt);
// Records announced sizes.
void tide__planner_note_sizes(tide_planner* planner, tide__learnt* learnt, const uint64_t* bytes);
// Makes a layout for sizes and stores it in `learnt`. A failure changes nothing.
tide_status tide__planner_lay_out(tide_planner* planner, tide__learnt* learnt, const uint64_t* sizes);
void tide__planner_forget_all(tide_planner* planner);

#endif
