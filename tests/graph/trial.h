// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A graph with a planner and counted memory. Values are named as in the text of the graph. When a trial is
// closed, all memory must have been released.
#ifndef TIDEMARK_TESTS_GRAPH_TRIAL_H
#define TIDEMARK_TESTS_GRAPH_TRIAL_H

#include "memory/memory_table.h"
#include "graph/model.h"
#include "stats.h"

#define TRIAL_RESETS 256

typedef struct trial {
  model m;
  table memory;
  tide_graph_options options;
  tide_graph* graph;
  tide_planner* planner;
  uint64_t bytes[MODEL_VALUES];   // of each value in runs of trial_run()
  void* at[MODEL_VALUES];         // where each was put by trial_alloc()
  bool is_planned[MODEL_VALUES];  // and whether that was its place
  struct trial_reset {
    uint32_t value;
    tide_graph_reset reset;
  } resets[TRIAL_RESETS];  // of the last run
  uint32_t reset_count;
} trial;

static inline tide_graph_options trial_defaults(void) {
  const tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  return options;
}

static inline tide_graph_options trial_original(void) {
  const tide_graph_options options = TIDE_GRAPH_OPTIONS_ORIGINAL;
  return options;
}

static inline tide_graph_options trial_managing(bool has_direct) {
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  options.manages_outputs = true;
  options.manages_direct_outputs = has_direct;
  return options;
}

static inline tide_graph_options trial_with(tide_graph_algorithm algorithm, uint64_t alignment) {
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  options.algorithm = algorithm;
  options.in_place = false;
  options.alignment = alignment;
  return options;
}

static inline void trial_on_reset(void* user, uint32_t value, tide_graph_reset reset) {
  trial* const t = user;
  T_LT(t->reset_count, TRIAL_RESETS);
  t->resets[t->reset_count].value = value;
  t->resets[t->reset_count++].reset = reset;
}

static inline void trial_open(trial* t, const char* text, tide_graph_options options) {
  memset(t, 0, sizeof *t);
  table_init(&t->memory);
  t->graph = model_graph(&t->m, text);
  t->options = options;
  t->options.memory = t->memory.memory;
  t->options.on_reset = trial_on_reset;
  t->options.user = t;
  for (uint32_t i = 0; i < t->m.value_count; i++) t->bytes[i] = 64;
  T_OK(tide_planner_new(t->graph, &t->options, &t->planner));
}

// All memory was released except `taken` blocks.
static inline void trial_close_but(trial* t, size_t taken) {
  tide_planner_free(t->planner);
  tide_graph_free(t->graph);
  T_EQ(t->memory.count, taken);
}

static inline void trial_close(trial* t) { trial_close_but(t, 0); }

// A test of one trial `t`, which is opened before and closed after it.
#define TRIAL_TEST(function, text, options) \
  static void function##_in(trial* t);      \
  T_TEST(function) {                        \
    static trial opened;                    \
    trial_open(&opened, text, options);     \
    function##_in(&opened);                 \
    trial_close(&opened);                   \
  }                                         \
  static void function##_in(trial* t)

static inline uint32_t trial_id(const trial* t, const char* name) { return model_id(&t->m, name); }

static inline void trial_size(trial* t, const char* name, uint64_t bytes) {
  t->bytes[trial_id(t, name)] = bytes;
}

static inline void trial_size_all(trial* t, uint64_t bytes) {
  for (uint32_t i = 0; i < t->m.value_count; i++) t->bytes[i] = bytes;
}

static inline void trial_begin(trial* t, uint64_t shape) {
  t->reset_count = 0;
  memset(t->at, 0, sizeof t->at);
  memset(t->is_planned, 0, sizeof t->is_planned);
  T_OK(tide_planner_begin(t->planner, shape));
}

static inline void trial_end(trial* t) {
  T_OK(tide_planner_end(t->planner));
  T_EQ(tide_planner_leak(t->planner), TIDE_GRAPH_NONE);
}

static inline void* trial_alloc_value(trial* t, uint32_t value, size_t bytes) {
  T_OK(tide_planner_alloc(t->planner, value, bytes, &t->at[value]));
  T_EQ(t->at[value] == NULL, bytes == 0);
  t->is_planned[value] = tide_planner_storage(t->planner, value)->is_planned;
  return t->at[value];
}

static inline void* trial_alloc(trial* t, const char* name, size_t bytes) {
  return trial_alloc_value(t, trial_id(t, name), bytes);
}

static inline void trial_adopt(trial* t, const char* name, void* address, size_t bytes) {
  T_OK(tide_planner_adopt(t->planner, trial_id(t, name), address, bytes));
}

// Did a value lie in its place in the last run?
static inline bool trial_was_planned(const trial* t, const char* name) {
  return t->is_planned[trial_id(t, name)];
}

static inline const tide_storage* trial_storage(const trial* t, const char* name) {
  return tide_planner_storage(t->planner, trial_id(t, name));
}

static inline tide_value_role trial_role(const trial* t, const char* name) {
  return tide_planner_role(t->planner, trial_id(t, name));
}

static inline tide_planner_stats trial_stats(const trial* t) { return planner_stats(t->planner); }

// Allocates all tensors that nodes make, and fills each with its number.
static inline void trial_fill(trial* t) {
  for (uint32_t i = 0; i < t->m.node_count; i++) {
    const model_ports* const outputs = &t->m.nodes[i].outputs;
    for (uint32_t k = 0; k < outputs->count; k++) {
      const uint32_t value = outputs->at[k];
      if (t->m.kinds[value] != TIDE_KIND_TENSOR) continue;
      void* const address = trial_alloc_value(t, value, t->bytes[value]);
      if (address != NULL) memset(address, (int)value, t->bytes[value]);
    }
  }
}

// A whole run with the current sizes.
static inline void trial_run_shape(trial* t, uint64_t shape) {
  trial_begin(t, shape);
  trial_fill(t);
  trial_end(t);
}

static inline void trial_run(trial* t) { trial_run_shape(t, 0); }

#endif
