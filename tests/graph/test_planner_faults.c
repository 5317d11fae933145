// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory and heaps that fail at any call: the call reports it, nothing leaks, no contents are damaged, and
// the planner remains usable.
#include "graph/trial.h"
#include "machine/counting_heap.h"

static const char busy[] =
    "in x; a = write(x); v = plain(a) a>v; b = write(v) v~b; c = plain(b); d = write(c b);"
    "e = write(d) { t = write(d); u = write(t) t~u; w = write(u); out w; }; y = write(e); z = write(e d);"
    "*l = write+all(y z); m = write+skip(z); s = borrow+all(z m); o = write(s); out *l o;";

typedef struct faulty {
  model m;
  table memory;
  counting_heap heap;
  tide_graph* graph;
  tide_planner* planner;
  bool has_failed;  // a call of the planner
  bool is_planned;  // b in the last run
} faulty;

// A call fails only if memory or heap has failed.
static bool went_well(faulty* f, tide_status status) {
  if (status == TIDE_OK) return true;
  T_CHECK(status == TIDE_ERR_NO_MEMORY || status == TABLE_FAILURE);
  f->has_failed = true;
  return false;
}

// Allocates and fills all tensors; false at the first that fails.
static bool fill_all(faulty* f, size_t bytes) {
  for (uint32_t i = 0; i < f->m.node_count; i++) {
    for (uint32_t k = 0; k < f->m.nodes[i].outputs.count; k++) {
      const uint32_t value = f->m.nodes[i].outputs.at[k];
      void* address = NULL;
      if (f->m.kinds[value] != TIDE_KIND_TENSOR) continue;
      if (!went_well(f, tide_planner_alloc(f->planner, value, bytes, &address))) return false;
      memset(address, (int)value, bytes);
    }
  }
  f->is_planned = tide_planner_storage(f->planner, model_id(&f->m, "b"))->is_planned;
  return true;
}

static void release_generation(faulty* f, uint64_t generation) {
  if (generation != 0) T_OK(tide_planner_drop_outputs(f->planner, generation));
}

// A run that is cancelled when it cannot be done.
static bool run_faultily(faulty* f, uint64_t shape, size_t bytes) {
  if (!went_well(f, tide_planner_begin(f->planner, shape))) {
    T_STATUS(tide_planner_end(f->planner), TIDE_ERR_STATE);
    return false;
  }
  if (!fill_all(f, bytes)) {
    (void)went_well(f, tide_planner_cancel(f->planner));
    return false;
  }
  const uint32_t o = model_id(&f->m, "o");
  (void)went_well(f, tide_planner_end(f->planner));
  T_FILLED(tide_planner_storage(f->planner, o)->address, (uint8_t)o, bytes);
  T_EQ(tide_planner_leak(f->planner), TIDE_GRAPH_NONE);
  return true;
}

// Everything that a planner does: learns, grows, shrinks, changes shapes, and hands out generations.
static void live_faultily(faulty* f) {
  static const size_t sizes[] = { 100, 100, 1000, 100, 100, 100, 3000, 3000 };
  uint64_t held = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const bool is_done = run_faultily(f, i % 3 / 2, sizes[i]);
    const uint64_t generation = is_done ? tide_planner_generation(f->planner) : 0;
    release_generation(f, held);
    held = generation;
  }
  release_generation(f, held);
}

static void faulty_open(faulty* f, bool has_audits) {
  tide_graph_options options = trial_managing(false);
  memset(f, 0, sizeof *f);
  table_init(&f->memory);
  counting_heap_init(&f->heap, SIZE_MAX, false);
  f->graph = model_graph(&f->m, busy);
  options.memory = f->memory.memory;
  options.heap = &f->heap.heap;
  options.has_audits = has_audits;
  options.remembers_runs = 2;
  options.plan_nodes = 100;
  options.max_layouts = 2;
  T_OK(tide_planner_new(f->graph, &options, &f->planner));
}

static void faulty_close(faulty* f) {
  tide_planner_free(f->planner);
  tide_graph_free(f->graph);
  table_fini(&f->memory);
  T_EQ(f->heap.outstanding, 0);
}

// After the failure, the planner works as before.
static void expect_recovery(faulty* f) {
  f->has_failed = false;
  f->memory.fail_at = SIZE_MAX;
  atomic_store(&f->heap.fail_at, SIZE_MAX);
  live_faultily(f);
  T_CHECK(!f->has_failed);
  T_CHECK(f->is_planned);
}

static const char* const endings[] = { "once", "for ever", NULL };

T_TEST_OVER(test_planner_faults__memory_that_fails_at_any_call_is_reported_and_survived, endings) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  size_t reported = 0;
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    static faulty f;
    faulty_open(&f, false);
    f.memory.fail_at = fail_at;
    f.memory.is_exhausted = is_exhausted;

    live_faultily(&f);

    // A failure to make an arena smaller is not reported: the old one stays.
    has_failed = f.memory.allocs > fail_at;
    T_CHECK(has_failed || !f.has_failed);
    reported += f.has_failed;
    expect_recovery(&f);
    faulty_close(&f);
  }
  T_LT(50, reported);
}

T_TEST_OVER(test_planner_faults__a_heap_that_fails_at_any_call_is_reported_and_survived, endings) {
  const bool is_exhausted = strcmp(t_variant(), "once") != 0;
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    static faulty f;
    faulty_open(&f, true);
    atomic_store(&f.heap.fail_at, atomic_load(&f.heap.allocs) + fail_at);
    f.heap.is_exhausted = is_exhausted;

    live_faultily(&f);

    has_failed = atomic_load(&f.heap.has_failed);
    f.heap.is_exhausted = false;
    expect_recovery(&f);
    faulty_close(&f);
  }
}

T_TEST(test_planner_faults__a_heap_that_fails_while_a_planner_is_made_leaves_nothing) {
  model m;
  tide_graph* const graph = model_graph(&m, busy);
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    counting_heap heap;
    tide_planner* planner = NULL;
    tide_graph_options options = trial_managing(true);
    counting_heap_init(&heap, fail_at, false);
    options.heap = &heap.heap;
    options.has_audits = true;
    const tide_status status = tide_planner_new(graph, &options, &planner);
    has_failed = heap.has_failed;
    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(planner == NULL, has_failed);
    tide_planner_free(planner);
    T_EQ(heap.outstanding, 0);
  }
  tide_graph_free(graph);
}

T_TEST(test_planner_faults__a_heap_that_fails_while_sizes_are_told_changes_nothing) {
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    static faulty f;
    uint64_t bytes[MODEL_VALUES];
    for (uint32_t i = 0; i < MODEL_VALUES; i++) bytes[i] = 100;
    faulty_open(&f, false);
    atomic_store(&f.heap.fail_at, atomic_load(&f.heap.allocs) + fail_at);

    const tide_status status = tide_planner_presize(f.planner, 0, bytes, f.m.value_count);

    has_failed = atomic_load(&f.heap.has_failed);
    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    expect_recovery(&f);
    faulty_close(&f);
  }
}

// ---------------------------------------------------------------------------------------------------
// Other failures of the memory

static tide_status refuse(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  (void)bytes;
  (void)alignment;
  *out = NULL;
  return (tide_status)memory->detail;
}

TRIAL_TEST(test_planner_faults__what_the_memory_returned_is_returned,
           "in x; y = write(x); o = write(y); out o;", trial_defaults()) {
  void* address = t;
  tide_planner_free(t->planner);
  t->options.memory.alloc = refuse;
  t->options.memory.detail = TIDE_ERR_MACHINE;
  T_OK(tide_planner_new(t->graph, &t->options, &t->planner));
  T_OK(tide_planner_presize(t->planner, 1, t->bytes, t->m.value_count));

  T_OK(tide_planner_begin(t->planner, 0));
  T_STATUS(tide_planner_alloc(t->planner, 1, 64, &address), TIDE_ERR_MACHINE);
  T_PTR_EQ(address, NULL);
  T_OK(tide_planner_cancel(t->planner));
  T_STATUS(tide_planner_begin(t->planner, 1), TIDE_ERR_MACHINE);
  T_STATUS(tide_planner_cancel(t->planner), TIDE_ERR_STATE);
}

// A piece too large for any memory is refused like every other, and the run goes on.
T_TEST(test_planner_faults__a_size_beyond_all_memory_is_refused) {
  trial t;
  void* address = &t;
  trial_open(&t, "in x; y = write(x); o = write(y); out o;", trial_defaults());
  tide_planner_free(t.planner);
  memset(&t.options.memory, 0, sizeof t.options.memory);
  T_OK(tide_planner_new(t.graph, &t.options, &t.planner));
  for (int run = 0; run < 3; run++) {
    trial_begin(&t, 0);
    T_CHECK(tide_planner_alloc(t.planner, 1, SIZE_MAX, &address) != TIDE_OK);
    if (!T_HAS_SANITIZER) T_CHECK(tide_planner_alloc(t.planner, 2, PTRDIFF_MAX, &address) != TIDE_OK);
    T_CHECK(tide_planner_alloc(t.planner, 1, SIZE_MAX - 8, &address) != TIDE_OK);
    trial_fill(&t);
    trial_end(&t);
  }
  trial_close(&t);
}
