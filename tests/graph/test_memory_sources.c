// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planners whose arenas come from a machine's device memory, from page-locked memory and from the cache of
// a device. A planner never touches the memory that it hands out, so it also works on the dry machine,
// which has addresses but no memory.
#define T_THREADS
#include "graph/trial.h"
#include "machine/machines.h"
#include "tidemark/device.h"

static const char net[] =
    "in x; a = write(x); b = write(a) a~b; y = write(b); z = write(a y); *l = write+all(y z);"
    "o = write(z); out *l o;";

typedef struct sourced {
  model m;
  tide_graph* graph;
  tide_planner* planner;
  tide_memory memory;
  void* at[MODEL_VALUES];
} sourced;

static void sourced_open(sourced* s, tide_memory memory) {
  tide_graph_options options = trial_managing(false);
  memset(s, 0, sizeof *s);
  s->memory = memory;
  options.memory = memory;
  s->graph = model_graph(&s->m, net);
  T_OK(tide_planner_new(s->graph, &options, &s->planner));
}

static void sourced_run(sourced* s, size_t bytes) {
  T_OK(tide_planner_begin(s->planner, 0));
  for (uint32_t i = 0; i < s->m.node_count; i++) {
    const uint32_t value = s->m.nodes[i].outputs.at[0];
    if (s->m.kinds[value] != TIDE_KIND_TENSOR) continue;
    T_OK(tide_planner_alloc(s->planner, value, bytes, &s->at[value]));
    if (s->memory.is_host) memset(s->at[value], (int)value, bytes);
  }
  T_OK(tide_planner_end(s->planner));
}

static void expect_held(const sourced* s, const char* name, size_t bytes) {
  const uint32_t value = model_id(&s->m, name);
  T_CHECK(s->at[value] != NULL);
  if (s->memory.is_host) T_FILLED(s->at[value], (uint8_t)value, bytes);
}

// Runs of several sizes, with outputs of two generations in use and one taken.
static void expect_runs(tide_memory memory) {
  sourced s;
  void* taken = NULL;
  sourced_open(&s, memory);
  sourced_run(&s, 1000);
  sourced_run(&s, 1000);
  T_CHECK(tide_planner_is_managed_output(s.planner, s.at[model_id(&s.m, "y")]));
  const sourced earlier = s;

  sourced_run(&s, 500);
  expect_held(&earlier, "y", 1000);
  expect_held(&earlier, "z", 1000);
  expect_held(&s, "y", 500);
  expect_held(&s, "o", 500);
  T_OK(tide_planner_drop_outputs(s.planner, 1));
  sourced_run(&s, 100000);
  T_OK(tide_planner_take(s.planner, model_id(&s.m, "o"), &taken));
  sourced_run(&s, 100000);

  tide_planner_free(s.planner);
  tide_graph_free(s.graph);
  T_OK(memory.release(&memory, taken));
}

EMULATED_TEST(test_memory_sources__a_planner_works_on_the_memory_of_a_device) {
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  T_OK(tide_machine_memory_info(m, 1, &before, &total));

  expect_runs(tide_machine_memory(m, 1));

  T_OK(tide_machine_memory_info(m, 1, &after, &total));
  T_EQ(after, before);
}

EMULATED_TEST(test_memory_sources__a_planner_works_on_page_locked_memory) {
  expect_runs(tide_machine_pinned_memory(m, 0));
}

EMULATED_TEST(test_memory_sources__a_planner_works_on_the_cache_of_a_device) {
  tide_device_cache* device = NULL;
  tide_stream stream;
  T_OK(tide_machine_stream_new(m, 0, 0, 0, &stream));
  T_OK(tide_device_new(m, 0, NULL, &device));

  expect_runs(tide_device_memory(device, stream));

  T_EQ(tide_device_check(device), 0);
  tide_device_free(device);
}

EMULATED_TEST(test_memory_sources__what_a_full_device_says_is_said) {
  sourced s;
  void* address = NULL;
  sourced_open(&s, tide_machine_memory(m, 0));
  T_OK(tide_planner_begin(s.planner, 0));

  T_STATUS(tide_planner_alloc(s.planner, model_id(&s.m, "a"), 2 * MACHINE_CAPACITY, &address),
           TIDE_ERR_NO_MEMORY);

  T_OK(tide_planner_cancel(s.planner));
  sourced_run(&s, 1000);
  tide_planner_free(s.planner);
  tide_graph_free(s.graph);
}
