// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Undeclared aliases: the guard for nodes that promise none, and the audit that finds a value whose memory
// was reused. Swapped storages.
#include "graph/trial.h"

// ---------------------------------------------------------------------------------------------------
// The guard

static const char guarded[] = "in x; y = write(x); g = write+guard(x y); o = write(g y); out o;";
#define GUARDED_NODE 1

typedef struct guarded_run {
  trial t;
  uint8_t input[64];
} guarded_run;

// One run with `g` in its place (i), over y, over x, or elsewhere (e). Returns how many outputs the guard
// reports.
static size_t guard_run(guarded_run* r, uint64_t shape, char where) {
  static uint8_t other[16];
  trial* const t = &r->t;
  uint32_t values[4] = { TIDE_GRAPH_NONE };
  size_t count = 99;
  trial_begin(t, shape);
  trial_adopt(t, "x", r->input, sizeof r->input);
  uint8_t* const y = trial_alloc(t, "y", 64);
  if (where == 'i') (void)trial_alloc(t, "g", 64);
  else trial_adopt(t, "g", where == 'y' ? y + 48 : where == 'x' ? r->input : other, 16);
  T_OK(tide_planner_guard(t->planner, GUARDED_NODE, values, 4, &count));
  if (count > 0) T_EQ(values[0], trial_id(t, "g"));
  (void)trial_alloc(t, "o", 64);
  trial_end(t);
  return count;
}

// Runs of the form "0y1": the shape, where g lies, and how many outputs the guard reports.
static void expect_guard(const char* runs) {
  static guarded_run r;
  trial_open(&r.t, guarded, trial_defaults());
  for (const char* at = runs; *at != '\0'; at += at[3] == ' ' ? 4 : 3)
    T_EQ(guard_run(&r, (uint64_t)(at[0] - '0'), at[1]), (size_t)(at[2] - '0'));
  trial_close(&r.t);
}

T_TEST(test_planner_checks__the_first_run_of_a_shape_compares_all_values) { expect_guard("0y1 1x1 2e0 3i0"); }

T_TEST(test_planner_checks__later_runs_only_look_for_outputs_in_the_arena) {
  expect_guard("0i0 0i0 0e0 0x0 0y1");
}

T_TEST(test_planner_checks__a_node_that_was_reported_is_compared_ever_after) {
  expect_guard("0i0 0y1 0x1 0e0 0x1");
}

TRIAL_TEST(test_planner_checks__the_guard_tells_how_many_there_are_even_without_room,
           "in x; a b c = write+guard(x); o = write(a b c); out o;", trial_defaults()) {
  uint8_t input[64];
  uint32_t values[3] = { 77, 77, 77 };
  size_t count = 0;
  trial_begin(t, 0);
  trial_adopt(t, "x", input, 64);
  trial_adopt(t, "a", input, 8);
  (void)trial_alloc(t, "b", 64);
  trial_adopt(t, "c", input + 63, 1);

  T_OK(tide_planner_guard(t->planner, 0, NULL, 0, &count));
  T_EQ(count, 2);
  T_OK(tide_planner_guard(t->planner, 0, values, 1, &count));
  T_EQ(count, 2);
  T_EQ(values[0], trial_id(t, "a"));
  T_EQ(values[1], 77);
  T_OK(tide_planner_guard(t->planner, 0, values, 3, &count));
  T_EQ(values[1], trial_id(t, "c"));
  T_EQ(values[2], 77);

  trial_end(t);
}

// Memory that only touches is not shared.
TRIAL_TEST(test_planner_checks__neighbours_are_no_aliases, "in x; a = write+guard(x); out a;",
           trial_defaults()) {
  uint8_t memory[64];
  size_t count = 99;
  trial_begin(t, 0);
  trial_adopt(t, "x", memory, 32);
  trial_adopt(t, "a", memory + 32, 32);

  T_OK(tide_planner_guard(t->planner, 0, NULL, 0, &count));

  T_EQ(count, 0);
  trial_end(t);
}

TRIAL_TEST(test_planner_checks__the_guard_refuses_what_is_no_node, guarded, trial_defaults()) {
  size_t count = 0;
  trial_begin(t, 0);

  T_STATUS(tide_planner_guard(t->planner, 3, NULL, 0, &count), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_planner_guard(t->planner, TIDE_GRAPH_NONE, NULL, 0, &count), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_planner_guard(t->planner, 1, NULL, 4, &count), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_planner_guard(t->planner, 1, NULL, 0, NULL), TIDE_ERR_ARGUMENT);

  trial_end(t);
}

// ---------------------------------------------------------------------------------------------------
// The audit

static tide_graph_options auditing(void) {
  tide_graph_options options = trial_defaults();
  options.has_audits = true;
  return options;
}

// Runs y, a view of it, z, and a reader of both; what the audit says before the reader. If it says that all
// is well, the bytes of the view are still there.
static tide_status audited_run(trial* t) {
  trial_begin(t, 0);
  trial_adopt(t, "x", &t->m, 64);
  T_OK(tide_planner_check(t->planner, 0));
  uint8_t* const y = trial_alloc(t, "y", 64);
  T_OK(tide_planner_check(t->planner, 1));
  memset(y, 17, 64);
  trial_adopt(t, "v", y, 64);
  T_OK(tide_planner_check(t->planner, 2));
  memset(trial_alloc(t, "z", 64), 34, 64);
  const tide_status status = tide_planner_check(t->planner, 3);
  if (status == TIDE_OK) T_FILLED(y, 17, 64);
  (void)trial_alloc(t, "o", 64);
  trial_end(t);
  return status;
}

// A node hides an alias, so z gets the place of y while v shows it.
T_TEST(test_planner_checks__an_alias_that_nobody_told_of_is_found) {
  trial t;
  char name[16];
  trial_open(&t, "in x; y = write(x); v = plain(y); z = write(x); o = write(v z); out o;", auditing());
  t.memory.keeps = true;
  T_ANY(audited_run(&t));  // without a layout it may be well, if the memory of y does not go back early

  T_STATUS(audited_run(&t), TIDE_ERR_STATE);

  (void)snprintf(name, sizeof name, "%u", trial_id(&t, "v"));
  T_STR_HAS(tide_last_error()->text, name);
  (void)snprintf(name, sizeof name, "%u", trial_id(&t, "z"));
  T_STR_HAS(tide_last_error()->text, name);
  T_STATUS(audited_run(&t), TIDE_ERR_STATE);
  trial_close(&t);
  table_fini(&t.memory);
}

TRIAL_TEST(test_planner_checks__an_alias_that_was_told_of_is_no_fault,
           "in x; y = write(x); v = plain(y) y>v; z = write(x); o = write(v z); out o;", auditing()) {
  for (int run = 0; run < 4; run++) T_OK(audited_run(t));
}

TRIAL_TEST(test_planner_checks__outputs_over_inputs_are_no_fault,
           "in x; a = write(x); b = write(a) a~b; c = write(b) b~c; o = write(c); out o;", auditing()) {
  for (int run = 0; run < 3; run++) {
    trial_begin(t, 0);
    for (uint32_t i = 0; i < t->m.node_count; i++) {
      T_OK(tide_planner_check(t->planner, i));
      (void)trial_alloc_value(t, t->m.nodes[i].outputs.at[0], 64);
    }
    trial_end(t);
  }
  T_PTR_EQ(t->at[trial_id(t, "a")], t->at[trial_id(t, "c")]);
}

TRIAL_TEST(test_planner_checks__the_audit_refuses_what_is_no_node, guarded, auditing()) {
  trial_begin(t, 0);

  T_STATUS(tide_planner_check(t->planner, 3), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_planner_check(t->planner, TIDE_GRAPH_NONE), TIDE_ERR_ARGUMENT);

  trial_end(t);
}

// ---------------------------------------------------------------------------------------------------
// Storages

#define SWAP_TEXT "in x; a = write(x); b = write(a); c = write(b); out c;"

// The program swaps the storage of a managed value without a call.
TRIAL_TEST(test_planner_checks__storage_that_was_swapped_is_noticed_at_the_end, SWAP_TEXT, trial_defaults()) {
  static uint8_t elsewhere[5000];
  trial_run(t);
  trial_begin(t, 0);
  trial_fill(t);
  T_CHECK(trial_was_planned(t, "a"));
  tide_storage* const storage = tide_planner_storage(t->planner, trial_id(t, "a"));
  storage->address = elsewhere;
  storage->bytes = sizeof elsewhere;

  trial_end(t);

  T_EQ(trial_stats(t).swapped, 1);
  trial_size(t, "a", sizeof elsewhere);
  trial_run(t);  // the place has become large enough
  T_CHECK(trial_was_planned(t, "a"));
  T_EQ(trial_stats(t).swapped, 1);
}

// A value of the first run has memory of its own. That is released although the program has swapped the
// storage.
TRIAL_TEST(test_planner_checks__memory_of_a_value_that_was_swapped_goes_back, SWAP_TEXT, trial_defaults()) {
  static uint8_t elsewhere[64];
  trial_begin(t, 0);
  trial_fill(t);
  tide_planner_storage(t->planner, trial_id(t, "b"))->address = elsewhere;

  trial_end(t);

  T_EQ(trial_stats(t).swapped, 1);
  T_EQ(trial_stats(t).own_bytes, 64);  // of the output
}

TRIAL_TEST(test_planner_checks__a_guard_sees_a_storage_that_was_swapped,
           "in x; a = write(x); g = write+guard(a); o = write(g a); out o;", trial_defaults()) {
  uint32_t found = TIDE_GRAPH_NONE;
  size_t count = 0;
  trial_begin(t, 0);
  void* const a = trial_alloc(t, "a", 64);
  (void)trial_alloc(t, "g", 64);
  T_OK(tide_planner_guard(t->planner, 1, &found, 1, &count));
  T_EQ(count, 0);

  tide_planner_storage(t->planner, trial_id(t, "g"))->address = a;

  T_OK(tide_planner_guard(t->planner, 1, &found, 1, &count));
  T_EQ(count, 1);
  T_EQ(found, trial_id(t, "g"));
  trial_end(t);
}

// A layout of one's own that is wrong is refused when the run ends, and the one before stays.
static tide_status lay_out_all_at_0(void* user, const tide_graph_lodging* values, size_t count,
                                    uint64_t* offsets) {
  (void)user;
  for (size_t i = 0; i < count; i++) offsets[i] = values[0].bytes > 64 ? 0 : 64 * i;
  return TIDE_OK;
}

T_TEST(test_planner_checks__a_wrong_layout_of_one_s_own_is_never_used) {
  static trial t;
  tide_graph_options options = trial_defaults();
  options.on_layout = lay_out_all_at_0;
  trial_open(&t, SWAP_TEXT, options);
  trial_run(&t);
  trial_size_all(&t, 100);
  trial_begin(&t, 0);
  trial_fill(&t);

  T_STATUS(tide_planner_end(t.planner), TIDE_ERR_ARGUMENT);

  T_CHECK(strstr(tide_last_error()->text, "overlap") != NULL);
  trial_size_all(&t, 64);
  trial_begin(&t, 0);
  trial_fill(&t);
  T_CHECK(trial_was_planned(&t, "a"));
  T_CHECK(trial_was_planned(&t, "b"));
  T_CHECK(t.at[trial_id(&t, "a")] != t.at[trial_id(&t, "b")]);
  T_OK(tide_planner_cancel(t.planner));
  trial_close(&t);
}

// ---------------------------------------------------------------------------------------------------
// Storage records

TRIAL_TEST(test_planner_checks__every_storage_record_is_known_and_nothing_else_is, SWAP_TEXT,
           trial_defaults()) {
  const size_t count = tide_planner_storage_count(t->planner);
  T_EQ(count, t->m.value_count);
  for (uint32_t i = 0; i < count; i++) {
    const tide_storage* const storage = tide_planner_storage(t->planner, i);
    T_CHECK(tide_planner_is_storage(t->planner, storage));
    T_CHECK(tide_planner_is_storage(t->planner, &storage->bytes));
    T_CHECK(!tide_planner_is_storage(NULL, storage));
  }
  T_PTR_EQ(tide_planner_storage(t->planner, (uint32_t)count), NULL);
  const tide_storage* const first = tide_planner_storage(t->planner, 0);
  T_CHECK(!tide_planner_is_storage(t->planner, first + count));
  T_CHECK(!tide_planner_is_storage(t->planner, (const char*)first - 1));
  T_CHECK(!tide_planner_is_storage(t->planner, t));
  T_CHECK(!tide_planner_is_storage(t->planner, NULL));
  T_EQ(tide_planner_storage_count(NULL), 0);
}
