// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Learning sizes: from runs, from announcements, with and without forgetting; layouts for several shapes;
// and an arena that is kept from run to run.
#include "graph/trial.h"

// y and z live together, w lies where y was; nothing is handed out.
static const char closed[] = "in x; y = write(x); z = write(y); w = write(z); = plain(w);";

static tide_graph_options forgetting(uint32_t runs, double waste) {
  tide_graph_options options = trial_defaults();
  options.remembers_runs = runs;
  options.waste = waste;
  return options;
}

static void run_batch(trial* t, uint64_t batch) {
  trial_size_all(t, 64 * batch);
  trial_run(t);
}

// ---------------------------------------------------------------------------------------------------
// Sizes

TRIAL_TEST(test_planner_sizes__batches_of_8_8_24_8_only_grow_when_nothing_is_forgotten, closed,
           trial_original()) {
  run_batch(t, 8);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 8);
  run_batch(t, 8);
  T_EQ(trial_stats(t).planned, 3);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 8);
  run_batch(t, 24);
  T_EQ(trial_stats(t).planned, 3);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 24);
  run_batch(t, 8);

  T_EQ(trial_stats(t).planned, 6);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 24);
  T_EQ(trial_stats(t).layouts, 2);
}

TRIAL_TEST(test_planner_sizes__the_total_never_shrinks_when_nothing_is_forgotten, closed, trial_original()) {
  uint64_t before = 0;
  t_rng rng = t_rng_new(0);
  for (int run = 0; run < 200; run++) {
    for (uint32_t i = 0; i < t->m.value_count; i++) t->bytes[i] = 1 + t_rng_below(&rng, 5000);
    trial_run(t);
    T_LE(before, trial_stats(t).managed_bytes);
    before = trial_stats(t).managed_bytes;
  }
}

// In the original, one large batch fixes the size of the buffer forever.
TRIAL_TEST(test_planner_sizes__a_large_batch_is_forgotten_after_some_runs, closed, forgetting(3, 0.25)) {
  run_batch(t, 8);
  run_batch(t, 1000);
  const uint64_t held = trial_stats(t).arena_bytes;
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 1000);
  run_batch(t, 8);
  run_batch(t, 8);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 1000);

  run_batch(t, 8);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 8);
  for (int run = 0; run < 5; run++) run_batch(t, 8);

  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 8);
  T_LE(trial_stats(t).arena_bytes, 2 * 64 * 8);
  T_LE(trial_stats(t).arena_bytes, held);
  T_EQ(trial_stats(t).unplanned, 2 * 3);
}

TRIAL_TEST(test_planner_sizes__a_little_waste_is_no_reason_for_a_new_layout, closed, forgetting(2, 0.25)) {
  run_batch(t, 100);
  for (int run = 0; run < 5; run++) run_batch(t, 85);
  T_EQ(trial_stats(t).layouts, 1);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 100);

  for (int run = 0; run < 5; run++) run_batch(t, 70);

  T_EQ(trial_stats(t).layouts, 2);
  T_EQ(trial_stats(t).managed_bytes, 2 * 64 * 70);
}

// A value that varies keeps the largest of the runs that are remembered, so that it always fits.
TRIAL_TEST(test_planner_sizes__sizes_that_come_back_in_time_are_remembered, closed, forgetting(8, 0.25)) {
  for (int run = 0; run < 40; run++) run_batch(t, run % 4 == 0 ? 50 : 10);

  T_EQ(trial_stats(t).unplanned, 3);
  T_EQ(trial_stats(t).layouts, 1);
}

T_TEST(test_planner_sizes__the_maxima_of_different_runs_are_those_of_their_values) {
  trial t;
  tide_graph_options options = forgetting(0, 0.25);
  options.shares = false;
  trial_open(&t, closed, options);
  trial_size(&t, "y", 640);
  trial_run(&t);
  trial_size(&t, "y", 64);
  trial_size(&t, "w", 1280);
  trial_run(&t);

  T_EQ(trial_stats(&t).managed_bytes, 640 + 64 + 1280);
  trial_close(&t);
}

// A loop may ask for more in one turn than in the others.
TRIAL_TEST(test_planner_sizes__the_largest_request_of_a_run_is_learnt,
           "in x; b = write(x) { t = write(x); u = write(t); = plain(u); }; = plain(b);", trial_defaults()) {
  for (int run = 0; run < 2; run++) {
    const size_t turns[] = { 100, 5000, 100 };
    trial_begin(t, 0);
    for (size_t i = 0; i < 3; i++) {
      memset(trial_alloc(t, "t", turns[i]), 1, turns[i]);
      memset(trial_alloc(t, "u", turns[i]), 2, turns[i]);
      T_EQ(trial_was_planned(t, "t"), run > 0);
      T_EQ(trial_was_planned(t, "u"), run > 0);
    }
    trial_end(t);
  }
}

TRIAL_TEST(test_planner_sizes__steady_runs_make_no_new_layout, closed, trial_defaults()) {
  for (int run = 0; run < 100; run++) run_batch(t, 10);

  T_EQ(trial_stats(t).layouts, 1);
  T_EQ(trial_stats(t).unplanned, 3);
  T_EQ(trial_stats(t).planned, 297);
  T_EQ(trial_stats(t).runs, 100);
}

TRIAL_TEST(test_planner_sizes__a_graph_without_bytes_runs_without_memory, closed, trial_defaults()) {
  for (int run = 0; run < 3; run++) run_batch(t, 0);
  T_EQ(t->memory.allocs, 0);
  T_EQ(trial_stats(t).managed_bytes, 0);
  run_batch(t, 1);
  run_batch(t, 1);
  T_CHECK(trial_was_planned(t, "y"));
}

// ---------------------------------------------------------------------------------------------------
// Sizes that are known before

TRIAL_TEST(test_planner_sizes__with_known_sizes_the_first_run_is_planned, closed, trial_defaults()) {
  trial_size_all(t, 640);
  T_OK(tide_planner_presize(t->planner, 0, t->bytes, t->m.value_count));

  trial_run(t);

  T_EQ(trial_stats(t).planned, 3);
  T_EQ(trial_stats(t).unplanned, 0);
  T_EQ(trial_stats(t).managed_bytes, 1280);
  T_CHECK(trial_was_planned(t, "w"));
}

TRIAL_TEST(test_planner_sizes__unknown_sizes_are_learnt_as_ever, closed, trial_defaults()) {
  uint64_t bytes[MODEL_VALUES] = { 0 };
  bytes[trial_id(t, "y")] = 64;
  T_OK(tide_planner_presize(t->planner, 0, bytes, t->m.value_count));

  trial_run(t);
  T_EQ(trial_stats(t).planned, 1);
  T_EQ(trial_stats(t).unplanned, 2);
  trial_run(t);

  T_EQ(trial_stats(t).planned, 4);
}

TRIAL_TEST(test_planner_sizes__known_sizes_are_those_of_one_shape, closed, trial_defaults()) {
  T_OK(tide_planner_presize(t->planner, 7, t->bytes, t->m.value_count));

  trial_run_shape(t, 6);
  T_EQ(trial_stats(t).unplanned, 3);
  trial_run_shape(t, 7);

  T_EQ(trial_stats(t).unplanned, 3);
  T_EQ(trial_stats(t).planned, 3);
}

TRIAL_TEST(test_planner_sizes__known_sizes_that_were_too_small_are_learnt_anew, closed, trial_defaults()) {
  T_OK(tide_planner_presize(t->planner, 0, t->bytes, t->m.value_count));
  run_batch(t, 10);
  T_EQ(trial_stats(t).unplanned, 3);

  run_batch(t, 10);

  T_EQ(trial_stats(t).unplanned, 3);
}

TRIAL_TEST(test_planner_sizes__known_sizes_that_make_no_sense_are_refused, closed, trial_defaults()) {
  const uint32_t count = t->m.value_count;

  T_STATUS(tide_planner_presize(t->planner, 0, NULL, count), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_planner_presize(t->planner, 0, t->bytes, count - 1), TIDE_ERR_ARGUMENT);
  trial_size_all(t, (uint64_t)1 << 61);
  T_STATUS(tide_planner_presize(t->planner, 0, t->bytes, count), TIDE_ERR_ARGUMENT);
  trial_size_all(t, UINT64_MAX);
  T_STATUS(tide_planner_presize(t->planner, 0, t->bytes, count), TIDE_ERR_ARGUMENT);

  trial_size_all(t, 64);
  trial_run(t);
}

// ---------------------------------------------------------------------------------------------------
// Shapes

TRIAL_TEST(test_planner_sizes__each_shape_has_sizes_and_a_layout_of_its_own, closed, trial_defaults()) {
  for (int run = 0; run < 6; run++) {
    for (uint64_t shape = 1; shape <= 3; shape++) {
      trial_size_all(t, 64 * shape);
      trial_run_shape(t, shape * 1000);
      T_EQ(trial_stats(t).managed_bytes, 2 * 64 * shape);
    }
  }

  T_EQ(trial_stats(t).layouts, 3);
  T_EQ(trial_stats(t).unplanned, 9);
}

T_TEST(test_planner_sizes__the_shape_that_was_not_used_for_longest_is_forgotten) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.max_layouts = 2;
  trial_open(&t, closed, options);
  trial_run_shape(&t, 1);
  trial_run_shape(&t, 2);
  trial_run_shape(&t, 1);
  T_EQ(trial_stats(&t).unplanned, 6);

  trial_run_shape(&t, 3);
  T_EQ(trial_stats(&t).unplanned, 9);
  trial_run_shape(&t, 1);
  trial_run_shape(&t, 3);
  T_EQ(trial_stats(&t).unplanned, 9);
  trial_run_shape(&t, 2);

  T_EQ(trial_stats(&t).unplanned, 12);
  trial_close(&t);
}

TRIAL_TEST(test_planner_sizes__many_shapes_take_no_more_memory_than_a_few, closed, trial_defaults()) {
  for (uint64_t shape = 0; shape < 500; shape++) trial_run_shape(t, shape);

  T_LE(t->memory.most, 16 * 64 * 8);
}

// ---------------------------------------------------------------------------------------------------
// The arena

// The original allocates and frees its buffer in every run.
TRIAL_TEST(test_planner_sizes__steady_runs_do_not_call_for_memory, closed, trial_defaults()) {
  for (int run = 0; run < 3; run++) run_batch(t, 10);
  const size_t calls = table_calls(&t->memory);
  const uint64_t arenas = trial_stats(t).arena_allocs;

  for (int run = 0; run < 50; run++) run_batch(t, 10);
  for (int run = 0; run < 5; run++) run_batch(t, 9);

  T_EQ(table_calls(&t->memory), calls);
  T_EQ(trial_stats(t).arena_allocs, arenas);
  T_EQ(trial_stats(t).arena_bytes, 2 * 64 * 10);
  T_EQ(t->memory.count, 1);
}

TRIAL_TEST(test_planner_sizes__steady_runs_of_several_shapes_do_not_call_for_memory, closed,
           trial_defaults()) {
  for (uint64_t run = 0; run < 12; run++) trial_run_shape(t, run % 4);
  const size_t calls = table_calls(&t->memory);

  for (uint64_t run = 0; run < 40; run++) trial_run_shape(t, run % 4);

  T_EQ(table_calls(&t->memory), calls);
}

TRIAL_TEST(test_planner_sizes__steady_runs_with_managed_outputs_do_not_call_for_memory,
           "in x; y = write(x); z = write(y); *l = write+all(y z); out *l;", trial_managing(false)) {
  for (int run = 0; run < 3; run++) {
    trial_run(t);
    if (run > 0) T_OK(tide_planner_drop_outputs(t->planner, tide_planner_generation(t->planner)));
  }
  const size_t calls = table_calls(&t->memory);

  for (int run = 0; run < 20; run++) {
    trial_run(t);
    T_OK(tide_planner_drop_outputs(t->planner, tide_planner_generation(t->planner)));
  }

  T_EQ(table_calls(&t->memory), calls);
}

// What the arena holds is counted, and it is asked for with the alignment of the options.
static size_t last_alignment;

static tide_status aligned_alloc_seen(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  last_alignment = alignment;
  return table_alloc(memory, bytes, alignment, out);
}

T_TEST(test_planner_sizes__places_have_the_alignment_that_was_asked_for) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.alignment = 4096;
  trial_open(&t, closed, options);
  tide_planner_free(t.planner);
  t.options.memory.alloc = aligned_alloc_seen;
  T_OK(tide_planner_new(t.graph, &t.options, &t.planner));
  trial_size_all(&t, 100);

  for (int run = 0; run < 3; run++) trial_run(&t);

  T_LE(4096, last_alignment);
  for (uint32_t i = 1; i <= 3; i++) T_EQ((uintptr_t)t.at[i] % 4096, 0);
  T_EQ(trial_stats(&t).managed_bytes, 2 * 4096);
  trial_close(&t);
}

// The memory of all planners together with their generations is what the table has handed out.
TRIAL_TEST(test_planner_sizes__the_bytes_of_arenas_are_those_of_the_memory, closed, forgetting(4, 0.25)) {
  t_rng rng = t_rng_new(0);
  for (uint64_t run = 0; run < 200; run++) {
    for (uint32_t i = 0; i < t->m.value_count; i++)
      t->bytes[i] = 1 + t_rng_below(&rng, run % 50 == 0 ? 50000 : 5000);
    trial_run_shape(t, run % 3);
    T_EQ(trial_stats(t).arena_bytes, t->memory.bytes);
  }
}

// ---------------------------------------------------------------------------------------------------
// Trimming

TRIAL_TEST(test_planner_sizes__a_trim_releases_the_arena_until_the_next_run, closed, trial_defaults()) {
  for (int run = 0; run < 2; run++) run_batch(t, 8);
  const tide_planner_stats before = trial_stats(t);
  T_LT(0, before.arena_bytes);
  T_EQ(t->memory.count, 1);

  for (int trim = 0; trim < 2; trim++) {
    T_OK(tide_planner_trim(t->planner));
    T_EQ(trial_stats(t).arena_bytes, 0);
    T_EQ(t->memory.count, 0);
  }

  run_batch(t, 8);
  T_EQ(trial_stats(t).planned, before.planned + 3);
  T_EQ(trial_stats(t).layouts, before.layouts);
  T_EQ(trial_stats(t).arena_bytes, before.arena_bytes);
  T_EQ(trial_stats(t).arena_allocs, before.arena_allocs + 1);
}

TRIAL_TEST(test_planner_sizes__nothing_is_trimmed_while_a_run_is_open, closed, trial_defaults()) {
  T_OK(tide_planner_trim(t->planner));  // before the first run
  run_batch(t, 8);
  trial_begin(t, 0);
  memset(trial_alloc(t, "y", 64), 5, 64);

  T_STATUS(tide_planner_trim(t->planner), TIDE_ERR_STATE);

  T_FILLED(trial_storage(t, "y")->address, 5, 64);
  trial_end(t);
  T_STATUS(tide_planner_trim(NULL), TIDE_ERR_ARGUMENT);
}
