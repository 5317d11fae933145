// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Managed outputs: from the second run on, in generations that stay until they are dropped, one or several
// at a time; and what happens when their management is disabled.
#include "graph/trial.h"

static const char listed[] = "in x; a = write(x); y = write(a); z = write(a y); *l = write+all(y z); out *l;";

static tide_graph_options generations(uint32_t count) {
  tide_graph_options options = trial_managing(false);
  options.output_generations = count;
  return options;
}

static void fill_value(trial* t, const char* name, size_t bytes, int fill) {
  void* const address = trial_alloc(t, name, bytes);
  if (bytes != 0) memset(address, fill, bytes);
}

// Runs and fills the outputs with a number.
static void run_filling(trial* t, int fill) {
  trial_begin(t, 0);
  fill_value(t, "a", 100, 99);
  fill_value(t, "y", 100, fill);
  fill_value(t, "z", 200, fill);
  trial_end(t);
}

static void expect_outputs(void* const* at, int fill) {
  T_FILLED(at[0], (uint8_t)fill, 100);
  T_FILLED(at[1], (uint8_t)fill, 200);
}

static void* output_of(const trial* t, const char* name) { return t->at[trial_id(t, name)]; }

static uint64_t generation_of(const trial* t) { return tide_planner_generation(t->planner); }

// ---------------------------------------------------------------------------------------------------
// Which and when

TRIAL_TEST(test_planner_outputs__outputs_are_managed_from_the_second_run_on, listed, generations(1)) {
  run_filling(t, 1);
  T_EQ(generation_of(t), 0);
  T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "y")));
  run_filling(t, 2);

  T_EQ(generation_of(t), 1);
  T_CHECK(tide_planner_is_managed_output(t->planner, output_of(t, "y")));
  T_CHECK(tide_planner_is_managed_output(t->planner, output_of(t, "z")));
  T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "a")));
  T_CHECK(!tide_planner_is_managed_output(t->planner, t));
  T_CHECK(!tide_planner_is_managed_output(t->planner, NULL));
  T_EQ(trial_stats(t).output_bytes, 128 + 256);
  T_EQ(trial_stats(t).generations, 1);
}

TRIAL_TEST(test_planner_outputs__the_outputs_of_the_first_run_are_right_too, listed, generations(1)) {
  run_filling(t, 7);

  T_FILLED(output_of(t, "y"), 7, 100);
  T_FILLED(output_of(t, "z"), 7, 200);
}

TRIAL_TEST(test_planner_outputs__inputs_and_containers_are_never_managed_outputs, listed, generations(1)) {
  uint8_t input[64];
  for (int run = 0; run < 3; run++) {
    trial_begin(t, 0);
    trial_adopt(t, "x", input, 64);
    fill_value(t, "y", 100, 1);
    fill_value(t, "z", 100, 1);
    fill_value(t, "*l", 16, 1);
    trial_end(t);
    T_CHECK(!tide_planner_is_managed_output(t->planner, input));
    T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "*l")));
    if (run > 0) T_OK(tide_planner_drop_outputs(t->planner, generation_of(t)));
  }
}

// All may be in use when the run is over, whenever each was read last.
TRIAL_TEST(test_planner_outputs__managed_outputs_share_nothing,
           "in x; a = write(x); b = write(x); c = write(x); *l = write+all(a b c); out *l;", generations(1)) {
  trial_run(t);
  trial_run(t);

  const uint8_t* const a = output_of(t, "a");
  const uint8_t* const b = output_of(t, "b");
  const uint8_t* const c = output_of(t, "c");
  T_CHECK(a + 64 <= b || b + 64 <= a);
  T_CHECK(a + 64 <= c || c + 64 <= a);
  T_CHECK(b + 64 <= c || c + 64 <= b);
  T_EQ(tide_graph_layout_describe(tide_planner_layout(t->planner)).outputs, 3);
  T_EQ(tide_graph_layout_describe(tide_planner_layout(t->planner)).output_bytes, 192);
}

TRIAL_TEST(test_planner_outputs__an_output_itself_can_be_managed, "in x; y = write(x); o = write(y); out o;",
           trial_managing(true)) {
  void* address = NULL;
  trial_run(t);
  trial_run(t);

  T_CHECK(tide_planner_is_managed_output(t->planner, output_of(t, "o")));
  T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "y")));
  T_STATUS(tide_planner_take(t->planner, trial_id(t, "o"), &address), TIDE_ERR_HANDLE);
  T_FILLED(output_of(t, "o"), (uint8_t)trial_id(t, "o"), 64);
}

TRIAL_TEST(test_planner_outputs__an_output_that_outgrows_its_place_is_right_all_the_same, listed,
           generations(1)) {
  run_filling(t, 1);

  trial_begin(t, 0);
  fill_value(t, "a", 100, 1);
  fill_value(t, "y", 1000, 2);
  fill_value(t, "z", 200, 3);
  trial_end(t);

  T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "y")));
  T_CHECK(tide_planner_is_managed_output(t->planner, output_of(t, "z")));
  T_FILLED(output_of(t, "y"), 2, 1000);
  T_FILLED(output_of(t, "z"), 3, 200);
  T_OK(tide_planner_drop_outputs(t->planner, generation_of(t)));
  trial_size_all(t, 1000);
  trial_run(t);
  T_CHECK(tide_planner_is_managed_output(t->planner, output_of(t, "y")));
}

// ---------------------------------------------------------------------------------------------------
// Generations

TRIAL_TEST(test_planner_outputs__with_one_generation_outputs_must_be_released_before_the_next_run, listed,
           generations(1)) {
  run_filling(t, 1);
  run_filling(t, 2);
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };

  T_STATUS(tide_planner_begin(t->planner, 0), TIDE_ERR_STATE);
  T_STATUS(tide_planner_end(t->planner), TIDE_ERR_STATE);
  expect_outputs(outputs, 2);
  T_OK(tide_planner_drop_outputs(t->planner, generation_of(t)));
  T_EQ(trial_stats(t).generations, 0);
  T_CHECK(!tide_planner_is_managed_output(t->planner, outputs[0]));
  run_filling(t, 3);

  T_EQ(generation_of(t), 2);
}

TRIAL_TEST(test_planner_outputs__a_generation_is_released_once, listed, generations(0)) {
  T_STATUS(tide_planner_drop_outputs(t->planner, 0), TIDE_ERR_HANDLE);
  T_STATUS(tide_planner_drop_outputs(t->planner, 1), TIDE_ERR_HANDLE);
  run_filling(t, 1);
  run_filling(t, 2);

  T_STATUS(tide_planner_drop_outputs(t->planner, 2), TIDE_ERR_HANDLE);
  T_STATUS(tide_planner_retain_outputs(t->planner, 2), TIDE_ERR_HANDLE);
  T_OK(tide_planner_drop_outputs(t->planner, 1));
  T_STATUS(tide_planner_drop_outputs(t->planner, 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_planner_retain_outputs(t->planner, 1), TIDE_ERR_HANDLE);
}

TRIAL_TEST(test_planner_outputs__the_generation_of_an_open_run_cannot_be_given_up, listed, generations(0)) {
  run_filling(t, 1);
  trial_begin(t, 0);
  const uint64_t generation = generation_of(t);

  T_STATUS(tide_planner_drop_outputs(t->planner, generation), TIDE_ERR_STATE);
  T_OK(tide_planner_retain_outputs(t->planner, generation));
  T_OK(tide_planner_drop_outputs(t->planner, generation));
  fill_value(t, "y", 100, 5);
  trial_end(t);

  T_FILLED(output_of(t, "y"), 5, 100);
  T_OK(tide_planner_drop_outputs(t->planner, generation));
}

TRIAL_TEST(test_planner_outputs__a_retained_generation_stays_until_all_have_released_it, listed,
           generations(1)) {
  run_filling(t, 1);
  run_filling(t, 2);
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };
  T_OK(tide_planner_retain_outputs(t->planner, 1));
  T_OK(tide_planner_retain_outputs(t->planner, 1));

  for (int i = 0; i < 2; i++) {
    T_OK(tide_planner_drop_outputs(t->planner, 1));
    T_STATUS(tide_planner_begin(t->planner, 0), TIDE_ERR_STATE);
    expect_outputs(outputs, 2);
  }
  T_OK(tide_planner_drop_outputs(t->planner, 1));

  run_filling(t, 3);
}

// In the original there is one generation, and a second run destroys the outputs of the first.
TRIAL_TEST(test_planner_outputs__any_number_of_generations_keep_their_contents, listed, generations(0)) {
  void* outputs[8][2];
  run_filling(t, 1);
  for (int run = 0; run < 8; run++) {
    run_filling(t, 10 + run);
    T_EQ(generation_of(t), (uint64_t)run + 1);
    outputs[run][0] = output_of(t, "y");
    outputs[run][1] = output_of(t, "z");
    T_EQ(trial_stats(t).generations, (uint64_t)run + 1);
  }
  for (int run = 0; run < 8; run++) {
    expect_outputs(outputs[run], 10 + run);
    T_CHECK(tide_planner_is_managed_output(t->planner, outputs[run][0]));
  }

  for (uint64_t generation = 8; generation > 0; generation -= 2)
    T_OK(tide_planner_drop_outputs(t->planner, generation));
  run_filling(t, 50);
  run_filling(t, 51);

  for (int run = 0; run < 8; run += 2) expect_outputs(outputs[run], 10 + run);
  T_EQ(trial_stats(t).generations, 6);
}

TRIAL_TEST(test_planner_outputs__no_more_generations_are_in_use_than_asked_for, listed, generations(3)) {
  for (int run = 0; run < 4; run++) run_filling(t, run);
  T_EQ(trial_stats(t).generations, 3);

  T_STATUS(tide_planner_begin(t->planner, 0), TIDE_ERR_STATE);
  T_OK(tide_planner_drop_outputs(t->planner, 2));
  run_filling(t, 5);
  T_STATUS(tide_planner_begin(t->planner, 0), TIDE_ERR_STATE);

  T_EQ(trial_stats(t).generations, 3);
}

TRIAL_TEST(test_planner_outputs__released_arenas_are_used_again, listed, generations(0)) {
  run_filling(t, 0);
  for (int run = 0; run < 50; run++) {
    run_filling(t, run);
    if (run >= 2) T_OK(tide_planner_drop_outputs(t->planner, generation_of(t) - 2));
  }

  T_LE(trial_stats(t).arena_allocs, 1 + 3);
  T_LE(t->memory.count, 1 + 3);
}

TRIAL_TEST(test_planner_outputs__a_cancelled_run_leaves_no_generation, listed, generations(1)) {
  run_filling(t, 1);

  for (int i = 0; i < 3; i++) {
    trial_begin(t, 0);
    fill_value(t, "y", 100, 5);
    T_OK(tide_planner_cancel(t->planner));
    T_EQ(trial_stats(t).generations, 0);
    T_EQ(generation_of(t), 0);
  }
  run_filling(t, 2);

  T_EQ(trial_stats(t).generations, 1);
}

TRIAL_TEST(test_planner_outputs__a_new_layout_does_not_touch_generations_in_use, listed, generations(0)) {
  run_filling(t, 1);
  run_filling(t, 2);
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };

  for (uint64_t run = 0; run < 5; run++) {
    trial_size_all(t, 1000 * (run + 1));
    trial_run_shape(t, run % 2);
    expect_outputs(outputs, 2);
  }

  T_OK(tide_planner_drop_outputs(t->planner, 1));
}

// ---------------------------------------------------------------------------------------------------
// Disabling

TRIAL_TEST(test_planner_outputs__disabling_keeps_what_is_in_use_and_switches_back, listed, generations(1)) {
  run_filling(t, 1);
  run_filling(t, 2);
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };

  T_OK(tide_planner_disable_outputs(t->planner));
  expect_outputs(outputs, 2);
  T_EQ(trial_role(t, "y"), TIDE_ROLE_UNMANAGED);
  T_EQ(trial_stats(t).managed_outputs, 0);
  T_OK(tide_planner_drop_outputs(t->planner, 1));

  for (int run = 0; run < 3; run++) {
    run_filling(t, 10 + run);
    T_EQ(generation_of(t), 0);
    T_CHECK(!tide_planner_is_managed_output(t->planner, output_of(t, "y")));
    T_EQ(trial_was_planned(t, "a"), run > 0);
    T_FILLED(output_of(t, "y"), (uint8_t)(10 + run), 100);
  }
}

TRIAL_TEST(test_planner_outputs__disabling_before_any_run_is_enough, listed, generations(1)) {
  T_OK(tide_planner_disable_outputs(t->planner));
  for (int run = 0; run < 3; run++) run_filling(t, run);
  T_EQ(trial_stats(t).generations, 0);
}

TRIAL_TEST(test_planner_outputs__nothing_is_disabled_in_a_run, listed, generations(1)) {
  trial_begin(t, 0);

  T_STATUS(tide_planner_disable_outputs(t->planner), TIDE_ERR_STATE);

  trial_end(t);
}

// A generation that stays in use does not hold up runs that need none.
TRIAL_TEST(test_planner_outputs__disabling_frees_the_runs_from_generations, listed, generations(1)) {
  run_filling(t, 1);
  run_filling(t, 2);
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };
  T_OK(tide_planner_disable_outputs(t->planner));

  for (int run = 0; run < 3; run++) run_filling(t, 10 + run);

  expect_outputs(outputs, 2);
  T_OK(tide_planner_drop_outputs(t->planner, 1));
}

// ---------------------------------------------------------------------------------------------------
// Trimming

TRIAL_TEST(test_planner_outputs__a_trim_leaves_outputs_that_are_in_use, listed, generations(2)) {
  for (int run = 1; run <= 3; run++) run_filling(t, run);  // the last two have a generation
  void* const outputs[] = { output_of(t, "y"), output_of(t, "z") };
  T_OK(tide_planner_drop_outputs(t->planner, 1));
  T_EQ(trial_stats(t).generations, 1);

  T_OK(tide_planner_trim(t->planner));

  expect_outputs(outputs, 3);
  T_EQ(t->memory.count, 1);
  T_EQ(trial_stats(t).arena_bytes, 128 + 256);
  run_filling(t, 4);
  expect_outputs(outputs, 3);
  T_EQ(trial_stats(t).generations, 2);
}
