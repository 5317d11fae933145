// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What becomes of each value: which are managed, leaked, reset, borrowed or left alone, clause by clause, and
// the counters of them.
#include "graph/trial.h"

static tide_graph_options plain_options(void) {
  tide_graph_options options = trial_defaults();
  options.writes_out = false;
  options.shares = false;
  return options;
}

// The role of one value of a graph.
static void expect_role(const char* text, tide_graph_options options, const char* name,
                        tide_value_role role) {
  trial t;
  trial_open(&t, text, options);
  const tide_value_role found = trial_role(&t, name);
  if (found != role) T_FAIL("\"%s\": %s has role %d, not %d", text, name, (int)found, (int)role);
  trial_close(&t);
}

#define MANAGED TIDE_ROLE_MANAGED
#define UNMANAGED TIDE_ROLE_UNMANAGED

// ---------------------------------------------------------------------------------------------------
// Managed

T_TEST(test_graph_roles__tensors_of_nodes_that_write_out_are_managed) {
  const char text[] = "in x; y = write(x); z = plain(y); o = write(z); out o;";
  expect_role(text, trial_defaults(), "x", TIDE_ROLE_EXTERNAL);
  expect_role(text, trial_defaults(), "y", MANAGED);
  expect_role(text, trial_defaults(), "z", UNMANAGED);
  expect_role(text, trial_defaults(), "o", TIDE_ROLE_OUTPUT);
  expect_role(text, trial_original(), "y", MANAGED);
  expect_role(text, plain_options(), "y", UNMANAGED);
  expect_role(text, plain_options(), "o", TIDE_ROLE_OUTPUT);
}

T_TEST(test_graph_roles__all_outputs_of_a_node_are_looked_at) {
  const char text[] = "in x; y #n @t z = write(x); o = write(y z); out o;";
  expect_role(text, trial_defaults(), "y", MANAGED);
  expect_role(text, trial_defaults(), "z", MANAGED);
  expect_role(text, trial_defaults(), "@t", UNMANAGED);
  expect_role(text, trial_defaults(), "#n", TIDE_ROLE_SCALAR);
}

T_TEST(test_graph_roles__constants_are_not_ours) {
  expect_role("const k; o = write(k); out o;", trial_defaults(), "k", TIDE_ROLE_EXTERNAL);
}

// ---------------------------------------------------------------------------------------------------
// What is always alive: external aliases, by a forward scan

T_TEST(test_graph_roles__what_may_share_memory_with_an_input_is_not_managed) {
  expect_role("in x; y = write(x) x>y; o = write(y); out o;", trial_defaults(), "y", UNMANAGED);
  expect_role("in x; y = write+all(x); o = write(y); out o;", trial_defaults(), "y", UNMANAGED);
}

T_TEST(test_graph_roles__what_may_share_memory_with_a_constant_is_not_managed) {
  expect_role("const k; y = write(k) k>y; o = write(y); out o;", trial_defaults(), "y", UNMANAGED);
}

T_TEST(test_graph_roles__aliases_of_inputs_are_followed_forward) {
  const char text[] = "in x; v = plain(x) x>v; w = write(v) v>w; *l = write+all(w); y = write+all(*l);"
                      "z = write(y); o = write(z); out o;";
  expect_role(text, trial_defaults(), "w", UNMANAGED);
  expect_role(text, trial_defaults(), "*l", UNMANAGED);
  expect_role(text, trial_defaults(), "y", UNMANAGED);
  expect_role(text, trial_defaults(), "z", MANAGED);
}

T_TEST(test_graph_roles__escapes_and_what_shares_memory_with_them_are_not_managed) {
  const char text[] = "in x; y = write(x); v = write(y) y>v; z = write(v); o = write(z); escape y; out o;";
  expect_role(text, trial_defaults(), "y", UNMANAGED);
  expect_role(text, trial_defaults(), "v", UNMANAGED);
  expect_role(text, trial_defaults(), "z", MANAGED);
}

// Whoever holds the view holds the memory of what it shows.
T_TEST(test_graph_roles__the_source_of_an_escape_is_not_managed) {
  const char text[] = "in x; y = write(x); v = plain(y) y>v; z = write(v); o = write(z); escape v; out o;";
  expect_role(text, trial_defaults(), "y", UNMANAGED);
}

T_TEST(test_graph_roles__inputs_of_a_block_are_external_in_it) {
  const char text[] =
      "in x; y = write(x); b = write(y) { in i; t = write(i) i>t; u = write(t); w = write(u); out w; };"
      "o = write(b); out o;";
  expect_role(text, trial_defaults(), "i", TIDE_ROLE_EXTERNAL);
  expect_role(text, trial_defaults(), "t", UNMANAGED);
  expect_role(text, trial_defaults(), "u", MANAGED);
  expect_role(text, trial_defaults(), "y", MANAGED);
}

// ---------------------------------------------------------------------------------------------------
// What is always alive: output aliases, by a backward scan

T_TEST(test_graph_roles__what_an_output_may_share_memory_with_is_not_managed) {
  expect_role("in x; y = write(x); o = plain(y) y>o; out o;", trial_defaults(), "y", UNMANAGED);
  expect_role("in x; y = write(x); *l = write+all(y); out *l;", trial_defaults(), "y", UNMANAGED);
}

T_TEST(test_graph_roles__aliases_of_outputs_are_followed_backward) {
  const char text[] = "in x; y = write(x); v = plain(y) y>v; *l = write+all(v); z = write(v); out *l z;";
  expect_role(text, trial_defaults(), "y", UNMANAGED);
  expect_role(text, trial_defaults(), "*l", TIDE_ROLE_OUTPUT);
  expect_role(text, trial_defaults(), "z", TIDE_ROLE_OUTPUT);
}

static tide_graph_options without_nesting(void) {
  tide_graph_options options = trial_defaults();
  options.nests = false;
  return options;
}

// As the original has it.
T_TEST(test_graph_roles__what_a_block_hands_out_is_not_managed_when_it_is_planned_apart) {
  const char text[] =
      "in x; b = write(x) { t = write(x); u = write(t); v = plain(u) u>v; w = write(v); out w u; };"
      "o = write(b); out o;";
  expect_role(text, without_nesting(), "t", MANAGED);
  expect_role(text, without_nesting(), "u", UNMANAGED);
  expect_role(text, without_nesting(), "w", UNMANAGED);
}

// It lives as long as what the node makes of it, and that is known.
T_TEST(test_graph_roles__what_a_branch_hands_out_is_managed_when_it_is_planned_with_what_is_around) {
  const char text[] =
      "in x; b = write(x) { t = write(x); u = write(t); v = plain(u) u>v; out v; }; o = write(b); out o;";
  expect_role(text, trial_defaults(), "t", MANAGED);
  expect_role(text, trial_defaults(), "u", MANAGED);
  expect_role(text, trial_defaults(), "v", UNMANAGED);
}

// A block with inputs may hand it to its next turn, and so may one around it.
T_TEST(test_graph_roles__what_a_loop_hands_out_is_not_managed) {
  const char loop[] = "in x; b = write(x) { in i; t = write(i); u = write(t); out u; }; o = write(b); out o;";
  const char inside[] =
      "in x; b = write(x) { in i; c = write(i) { t = write(i); u = write(t); out u; }; out c; };"
      "o = write(b); out o;";
  expect_role(loop, trial_defaults(), "t", MANAGED);
  expect_role(loop, trial_defaults(), "u", UNMANAGED);
  expect_role(inside, trial_defaults(), "t", MANAGED);
  expect_role(inside, trial_defaults(), "u", UNMANAGED);
}

T_TEST(test_graph_roles__what_a_branch_hands_to_an_output_of_the_graph_is_not_managed) {
  const char text[] = "in x; b = write(x) { t = write(x); u = write(t); out u; }; o = plain(b) b>o; out o;";
  expect_role(text, trial_defaults(), "u", UNMANAGED);
  expect_role(text, trial_defaults(), "b", UNMANAGED);
}

T_TEST(test_graph_roles__what_the_output_of_a_node_shares_with_its_block_is_an_output_alias) {
  const char text[] = "in x; y = write(x); b = plain(x) { v = plain(y) y>v; out v; }; out b;";
  expect_role(text, trial_defaults(), "y", UNMANAGED);
  expect_role(text, trial_defaults(), "b", TIDE_ROLE_OUTPUT);
}

// ---------------------------------------------------------------------------------------------------
// Managed outputs

T_TEST(test_graph_roles__tensors_inside_outputs_are_managed_outputs_when_asked_for) {
  const char text[] = "in x; y = write(x); z = write(y); *l = write+all(y z); out *l;";
  expect_role(text, trial_managing(false), "y", TIDE_ROLE_MANAGED_OUTPUT);
  expect_role(text, trial_managing(false), "z", TIDE_ROLE_MANAGED_OUTPUT);
  expect_role(text, trial_managing(false), "*l", TIDE_ROLE_OUTPUT);
  expect_role(text, trial_managing(false), "x", TIDE_ROLE_EXTERNAL);
  expect_role(text, trial_defaults(), "y", UNMANAGED);
}

T_TEST(test_graph_roles__an_output_itself_is_managed_only_when_asked_for_too) {
  const char text[] = "in x; y = write(x); o = write(y); out o;";
  expect_role(text, trial_managing(false), "o", TIDE_ROLE_OUTPUT);
  expect_role(text, trial_managing(true), "o", TIDE_ROLE_MANAGED_OUTPUT);
  expect_role(text, trial_managing(true), "y", MANAGED);
}

// It is an output itself, and stays one, in whatever it lies beside.
T_TEST(test_graph_roles__an_output_that_is_also_in_a_container_is_an_output) {
  const char text[] = "in x; y = write(x); *l = write+all(y); out *l y;";
  expect_role(text, trial_managing(false), "y", TIDE_ROLE_OUTPUT);
}

T_TEST(test_graph_roles__the_source_of_a_view_that_is_an_output_is_a_managed_output) {
  const char text[] = "in x; y = write(x); o = plain(y) y>o; out o;";
  expect_role(text, trial_managing(false), "y", TIDE_ROLE_MANAGED_OUTPUT);
  expect_role(text, trial_managing(false), "o", TIDE_ROLE_OUTPUT);
}

T_TEST(test_graph_roles__only_nodes_that_write_out_make_managed_outputs) {
  const char text[] = "in x; y = plain(x); *l = write+all(y); out *l;";
  expect_role(text, trial_managing(false), "y", UNMANAGED);
  expect_role("in x; o = plain(x); out o;", trial_managing(true), "o", TIDE_ROLE_OUTPUT);
}

// Its memory may be the input's, or stay with whoever holds it, when the generation is long gone.
T_TEST(test_graph_roles__what_may_share_memory_with_an_input_or_escape_is_no_managed_output) {
  expect_role("in x; y = write(x) x>y; *l = write+all(y); out *l;", trial_managing(false), "y", UNMANAGED);
  expect_role("in x; y = write(x); *l = write+all(y); escape y; out *l;", trial_managing(false), "y",
              UNMANAGED);
}

T_TEST(test_graph_roles__containers_and_scalars_are_never_managed_outputs) {
  const char text[] = "in x; y = write(x); *l = write+all(y); *p = write+all(*l); #n = write(x); out *p #n;";
  expect_role(text, trial_managing(true), "*p", TIDE_ROLE_OUTPUT);
  trial t;
  trial_open(&t, text, trial_managing(true));
  T_CHECK(trial_role(&t, "*l") != TIDE_ROLE_MANAGED_OUTPUT);
  T_CHECK(trial_role(&t, "#n") != TIDE_ROLE_MANAGED_OUTPUT);
  trial_close(&t);
}

T_TEST(test_graph_roles__outputs_of_blocks_are_never_managed_outputs) {
  trial t;
  trial_open(&t, "in x; b = write(x) { t = write(x); v = plain(t) t>v; out v; }; o = write(b); out o;",
             trial_managing(true));
  T_CHECK(trial_role(&t, "t") != TIDE_ROLE_MANAGED_OUTPUT);
  T_CHECK(trial_role(&t, "v") != TIDE_ROLE_MANAGED_OUTPUT);
  trial_close(&t);
}

// ---------------------------------------------------------------------------------------------------
// Leaked containers

T_TEST(test_graph_roles__a_container_of_what_nodes_write_out_is_leaked) {
  const char text[] =
      "in x; y = write(x); z = write(x); *l = write+all(y z); a = plain+all(*l); o = write(a); out o;";
  expect_role(text, trial_defaults(), "*l", TIDE_ROLE_LEAKED);
  expect_role(text, trial_original(), "*l", TIDE_ROLE_LEAKED);
  expect_role(text, plain_options(), "*l", UNMANAGED);
}

T_TEST(test_graph_roles__a_container_in_a_leaked_container_is_leaked_too) {
  const char text[] = "in x; y = write(x); *l = write+all(y); *p = write+all(*l y); *q = plain+all(*p);"
                      "o = write(y); out o;";
  expect_role(text, trial_defaults(), "*l", TIDE_ROLE_LEAKED);
  expect_role(text, trial_defaults(), "*p", TIDE_ROLE_LEAKED);
  expect_role(text, trial_defaults(), "*q", UNMANAGED);
}

T_TEST(test_graph_roles__a_container_is_not_leaked_unless_all_conditions_hold) {
  const char* const rows[] = {
    "in x; y = write(x); *l = plain+all(y); o = write(y); out o;",  // its node does not write out
    "in x; y = plain(x); *l = write+all(y); o = write(y); out o;",  // nor does the maker of an element
    "in x; y = write(x); z = plain(x); *l = write+all(y z); o = write(y); out o;",
    "in x; y = write(x); *l z = write+all(y); o = write(z); out o;",           // its node makes two things
    "in x; y = write(x); *l = write+all(y); escape *l; o = write(y); out o;",  // others may hold it
    "in x; y = write(x); *l = write+all(y); *p = plain+all(*l); out *p;",      // it may be in an output
    "in x; *l = write(x); o = write(x); out o;",                               // it is made of an input
    "in x; *l = write(x) x>*l; o = write(x); out o;",                          // it may hold an input
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_role(rows[i], trial_defaults(), "*l", UNMANAGED);
}

// Only lists of tensors, and tuples that hold one, are worth it.
T_TEST(test_graph_roles__an_object_is_not_leaked) {
  expect_role("in x; y = write(x); @d = write+all(y); o = write(y); out o;", trial_defaults(), "@d",
              UNMANAGED);
}

// ---------------------------------------------------------------------------------------------------
// What is not managed

T_TEST(test_graph_roles__borrowed_references_are_dropped_and_borrowed_outputs_become_owning) {
  const char text[] =
      "in x; y = write(x); z = write(x); s = borrow+all(y z); o = write(s); r = borrow+all(x); out o r;";
  expect_role(text, trial_defaults(), "s", TIDE_ROLE_BORROWED);
  expect_role(text, trial_defaults(), "r", TIDE_ROLE_BORROWED_OUTPUT);
  expect_role(text, plain_options(), "s", TIDE_ROLE_BORROWED);
}

T_TEST(test_graph_roles__scalars_are_never_reset_and_other_constants_are) {
  const char text[] = "in x; #n $t = plain(x); o = write(x); out o;";
  expect_role(text, trial_defaults(), "#n", TIDE_ROLE_SCALAR);
  expect_role(text, trial_defaults(), "$t", UNMANAGED);
}

T_TEST(test_graph_roles__a_borrowed_scalar_is_a_scalar) {
  expect_role("in x; #n = borrow+all(x); o = write(x); out o;", trial_defaults(), "#n", TIDE_ROLE_SCALAR);
}

// ---------------------------------------------------------------------------------------------------
// Counters

static const char counted[] =
    "in x; const k; a = write(x); b = write(a); *l = write+all(a b); c = plain(x); s = borrow+all(a b);"
    "#n #m = plain(x); @t = plain(x); d = write(x); *p = write+all(d); r = borrow+all(k); out *p r;";

T_TEST(test_graph_roles__counters_tell_how_many_there_are_of_each) {
  trial t;
  trial_open(&t, counted, trial_managing(false));

  const tide_planner_stats stats = trial_stats(&t);

  T_EQ(stats.managed, 2);           // a b
  T_EQ(stats.managed_outputs, 1);   // d
  T_EQ(stats.leaked, 1);            // *l
  T_EQ(stats.unmanaged, 3);         // c @t s
  T_EQ(stats.borrowed, 1);          // s
  T_EQ(stats.borrowed_outputs, 1);  // r
  T_EQ(stats.scalars, 2);           // #n #m
  T_EQ(stats.total_unmanaged, 5);
  trial_close(&t);
}

T_TEST(test_graph_roles__without_managed_outputs_their_tensors_are_reset) {
  trial t;
  trial_open(&t, counted, trial_defaults());

  const tide_planner_stats stats = trial_stats(&t);

  T_EQ(stats.managed, 2);
  T_EQ(stats.managed_outputs, 0);
  T_EQ(stats.unmanaged, 4);  // c @t s d
  T_EQ(stats.total_unmanaged, 6);
  trial_close(&t);
}

T_TEST(test_graph_roles__without_nodes_that_write_out_all_is_reset) {
  trial t;
  trial_open(&t, counted, plain_options());

  const tide_planner_stats stats = trial_stats(&t);

  T_EQ(stats.managed, 0);
  T_EQ(stats.leaked, 0);
  T_EQ(stats.unmanaged, 7);  // a b *l c @t s d
  T_EQ(stats.borrowed, 1);
  T_EQ(stats.total_unmanaged, 9);
  trial_close(&t);
}

T_TEST(test_graph_roles__numbers_that_are_no_values_have_no_role_of_ours) {
  trial t;
  trial_open(&t, counted, trial_defaults());

  T_EQ(tide_planner_role(t.planner, TIDE_GRAPH_NONE), TIDE_ROLE_EXTERNAL);
  T_EQ(tide_planner_role(t.planner, t.m.value_count), TIDE_ROLE_EXTERNAL);
  T_EQ(tide_planner_role(NULL, 0), TIDE_ROLE_EXTERNAL);

  trial_close(&t);
}

// ---------------------------------------------------------------------------------------------------
// Nodes that may skip

static const char skipping[] =
    "in x; y = write(x); m = write+skip(y); s = borrow+all(y m); z = write(s); o = write(z); out o;";

static void run_skipping(trial* t, bool skips) {
  trial_begin(t, 0);
  (void)trial_alloc(t, "y", 64);
  if (!skips) (void)trial_alloc(t, "m", 64);
  trial_adopt(t, "s", t->at[trial_id(t, skips ? "y" : "m")], 64);
  (void)trial_alloc(t, "z", 64);
  (void)trial_alloc(t, "o", 64);
  trial_end(t);
}

// As in the original: what the first run did not make is never managed again.
T_TEST(test_graph_roles__what_the_first_run_skipped_is_decided_once) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.decides_once = true;
  trial_open(&t, skipping, options);
  T_EQ(trial_role(&t, "m"), MANAGED);

  run_skipping(&t, true);
  T_EQ(trial_role(&t, "m"), UNMANAGED);
  T_EQ(trial_stats(&t).managed, 2);
  for (int i = 0; i < 4; i++) run_skipping(&t, false);

  T_EQ(trial_role(&t, "m"), UNMANAGED);
  T_CHECK(!trial_was_planned(&t, "m"));
  T_EQ(tide_graph_layout_place(tide_planner_layout(t.planner), trial_id(&t, "m")).group, TIDE_GRAPH_NONE);
  trial_close(&t);
}

T_TEST(test_graph_roles__what_the_first_run_skipped_can_be_managed_later) {
  trial t;
  trial_open(&t, skipping, trial_defaults());

  run_skipping(&t, true);
  T_EQ(trial_role(&t, "m"), MANAGED);
  T_EQ(trial_stats(&t).managed, 3);
  run_skipping(&t, false);
  run_skipping(&t, false);

  T_CHECK(trial_was_planned(&t, "m"));
  trial_close(&t);
}

T_TEST(test_graph_roles__what_the_first_run_made_stays_managed_when_it_is_skipped_later) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.decides_once = true;
  trial_open(&t, skipping, options);

  run_skipping(&t, false);
  run_skipping(&t, true);
  run_skipping(&t, false);

  T_EQ(trial_role(&t, "m"), MANAGED);
  T_CHECK(trial_was_planned(&t, "m"));
  trial_close(&t);
}

// A node that may not skip is not looked at: its value was not asked for, and is managed all the same.
T_TEST(test_graph_roles__only_nodes_that_may_skip_are_decided_once) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.decides_once = true;
  trial_open(&t, "in x; y = write(x); z = write(x); o = write(y z); out o;", options);

  trial_begin(&t, 0);
  (void)trial_alloc(&t, "y", 64);
  trial_end(&t);

  T_EQ(trial_role(&t, "z"), MANAGED);
  trial_close(&t);
}
