// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The roles of values, rule by rule: which are managed, leaked, reset, borrowed or left alone; and their
// counters.
#include "graph/trial.h"

static tide_graph_options plain_options(void) {
  tide_graph_options options = trial_defaults();
  options.writes_out = false;
  options.shares = false;
  return options;
}

static tide_graph_options options_of(char letter) {
  tide_graph_options options = trial_defaults();
  switch (letter) {
    case 'a': options.nests = false; return options;
    case 'm': return trial_managing(false);
    case 'M': return trial_managing(true);
    case 'o': return trial_original();
    case 'p': return plain_options();
    default: return options;
  }
}

typedef struct roles_row {
  char
      options;  // d: defaults, a: blocks apart, m: managed outputs, M: and direct ones, o: original, p: plain
  const char* rule;
  const char* graph;
  const char* roles;  // "x:external y:managed"
} roles_row;

static const roles_row rows[] = {
  // Managed values
  { 'd', "tensors of nodes that write out are managed",
    "in x; y = write(x); z = plain(y); o = write(z); out o;", "x:external y:managed z:unmanaged o:output" },
  { 'o', "tensors of nodes that write out are managed",
    "in x; y = write(x); z = plain(y); o = write(z); out o;", "y:managed" },
  { 'p', "tensors of nodes that write out are managed",
    "in x; y = write(x); z = plain(y); o = write(z); out o;", "y:unmanaged o:output" },
  { 'd', "each output of a node has a role of its own", "in x; y #n @t z = write(x); o = write(y z); out o;",
    "y:managed z:managed @t:unmanaged #n:scalar" },
  { 'd', "constants are external", "const k; o = write(k); out o;", "k:external" },
  // Values that may share memory with inputs, constants and escapes, found by a forward scan
  { 'd', "an alias of an input", "in x; y = write(x) x>y; o = write(y); out o;", "y:unmanaged" },
  { 'd', "any output may alias any input", "in x; y = write+all(x); o = write(y); out o;", "y:unmanaged" },
  { 'd', "an alias of a constant", "const k; y = write(k) k>y; o = write(y); out o;", "y:unmanaged" },
  { 'd', "aliases of inputs are followed forward",
    "in x; v = plain(x) x>v; w = write(v) v>w; *l = write+all(w); y = write+all(*l); z = write(y); o = "
    "write(z); out o;",
    "w:unmanaged *l:unmanaged y:unmanaged z:managed" },
  { 'd', "an escape and its view",
    "in x; y = write(x); v = write(y) y>v; z = write(v); o = write(z); escape y; out o;",
    "y:unmanaged v:unmanaged z:managed" },
  { 'd', "the source of an escaping view",
    "in x; y = write(x); v = plain(y) y>v; z = write(v); o = write(z); escape v; out o;", "y:unmanaged" },
  { 'd', "an input of a block is external in it",
    "in x; y = write(x); b = write(y) { in i; t = write(i) i>t; u = write(t); w = write(u); out w; }; "
    "o = write(b); out o;",
    "i:external t:unmanaged u:managed y:managed" },
  // Values that may share memory with outputs, found by a backward scan
  { 'd', "the source of an output", "in x; y = write(x); o = plain(y) y>o; out o;", "y:unmanaged" },
  { 'm', "the source of an output", "in x; y = write(x); o = plain(y) y>o; out o;",
    "y:managed_output o:output" },
  { 'd', "an element of an output", "in x; y = write(x); *l = write+all(y); out *l;", "y:unmanaged" },
  { 'd', "aliases of outputs are followed backward",
    "in x; y = write(x); v = plain(y) y>v; *l = write+all(v); z = write(v); out *l z;",
    "y:unmanaged *l:output z:output" },
  { 'a', "an output of a block that is planned apart, as in the original",
    "in x; b = write(x) { t = write(x); u = write(t); v = plain(u) u>v; w = write(v); out w u; }; o = "
    "write(b); out o;",
    "t:managed u:unmanaged w:unmanaged" },
  { 'd', "an output of a branch lives as long as that of its node",
    "in x; b = write(x) { t = write(x); u = write(t); v = plain(u) u>v; out v; }; o = write(b); out o;",
    "t:managed u:managed v:unmanaged" },
  { 'd', "a loop may pass its output to the next iteration",
    "in x; b = write(x) { in i; t = write(i); u = write(t); out u; }; o = write(b); out o;",
    "t:managed u:unmanaged" },
  { 'd', "and so may a loop around the block",
    "in x; b = write(x) { in i; c = write(i) { t = write(i); u = write(t); out u; }; out c; }; o = "
    "write(b); out o;",
    "t:managed u:unmanaged" },
  { 'd', "a branch that passes its output to one of the graph",
    "in x; b = write(x) { t = write(x); u = write(t); out u; }; o = plain(b) b>o; out o;",
    "u:unmanaged b:unmanaged" },
  { 'd', "an output of the graph shares memory with its block",
    "in x; y = write(x); b = plain(x) { v = plain(y) y>v; out v; }; out b;", "y:unmanaged b:output" },
  // Managed outputs
  { 'm', "tensors inside an output", "in x; y = write(x); z = write(y); *l = write+all(y z); out *l;",
    "y:managed_output z:managed_output *l:output x:external" },
  { 'd', "tensors inside an output", "in x; y = write(x); z = write(y); *l = write+all(y z); out *l;",
    "y:unmanaged" },
  { 'm', "an output itself", "in x; y = write(x); o = write(y); out o;", "o:output" },
  { 'M', "an output itself", "in x; y = write(x); o = write(y); out o;", "o:managed_output y:managed" },
  { 'm', "an output that is also an element of one", "in x; y = write(x); *l = write+all(y); out *l y;",
    "y:output" },
  { 'm', "its node does not write out", "in x; y = plain(x); *l = write+all(y); out *l;", "y:unmanaged" },
  { 'M', "the node of the output does not write out", "in x; o = plain(x); out o;", "o:output" },
  { 'm', "an alias of an input is not a managed output", "in x; y = write(x) x>y; *l = write+all(y); out *l;",
    "y:unmanaged" },
  { 'm', "nor is an escape", "in x; y = write(x); *l = write+all(y); escape y; out *l;", "y:unmanaged" },
  { 'M', "nor a container or a scalar",
    "in x; y = write(x); *l = write+all(y); *p = write+all(*l); #n = write(x); out *p #n;",
    "*p:output *l:unmanaged #n:output" },
  { 'M', "nor an output of a block",
    "in x; b = write(x) { t = write(x); v = plain(t) t>v; out v; }; o = write(b); out o;",
    "t:managed v:unmanaged" },
  // Leaked containers
  { 'd', "a container of tensors that nodes write out",
    "in x; y = write(x); z = write(x); *l = write+all(y z); a = plain+all(*l); o = write(a); out o;",
    "*l:leaked" },
  { 'o', "a container of tensors that nodes write out",
    "in x; y = write(x); z = write(x); *l = write+all(y z); a = plain+all(*l); o = write(a); out o;",
    "*l:leaked" },
  { 'p', "a container of tensors that nodes write out",
    "in x; y = write(x); z = write(x); *l = write+all(y z); a = plain+all(*l); o = write(a); out o;",
    "*l:unmanaged" },
  { 'd', "a container in a leaked container",
    "in x; y = write(x); *l = write+all(y); *p = write+all(*l y); *q = plain+all(*p); o = write(y); "
    "out o;",
    "*l:leaked *p:leaked *q:unmanaged" },
  { 'd', "its node does not write out", "in x; y = write(x); *l = plain+all(y); o = write(y); out o;",
    "*l:unmanaged" },
  { 'd', "nor does the node of an element", "in x; y = plain(x); *l = write+all(y); o = write(y); out o;",
    "*l:unmanaged" },
  { 'd', "nor the node of one element",
    "in x; y = write(x); z = plain(x); *l = write+all(y z); o = write(y); out o;", "*l:unmanaged" },
  { 'd', "its node has two outputs", "in x; y = write(x); *l z = write+all(y); o = write(z); out o;",
    "*l:unmanaged" },
  { 'd', "it escapes", "in x; y = write(x); *l = write+all(y); escape *l; o = write(y); out o;",
    "*l:unmanaged" },
  { 'd', "it may be in an output", "in x; y = write(x); *l = write+all(y); *p = plain+all(*l); out *p;",
    "*l:unmanaged" },
  { 'd', "it is made of an input", "in x; *l = write(x); o = write(x); out o;", "*l:unmanaged" },
  { 'd', "it may hold an input", "in x; *l = write(x) x>*l; o = write(x); out o;", "*l:unmanaged" },
  { 'd', "an object is not leaked", "in x; y = write(x); @d = write+all(y); o = write(y); out o;",
    "@d:unmanaged" },
  // Unmanaged values
  { 'd', "borrowed references",
    "in x; y = write(x); z = write(x); s = borrow+all(y z); o = write(s); r = borrow+all(x); out o r;",
    "s:borrowed r:borrowed_output" },
  { 'p', "borrowed references",
    "in x; y = write(x); z = write(x); s = borrow+all(y z); o = write(s); r = borrow+all(x); out o r;",
    "s:borrowed" },
  { 'd', "scalars are never reset, strings are", "in x; #n $t = plain(x); o = write(x); out o;",
    "#n:scalar $t:unmanaged" },
  { 'd', "a borrowed scalar is a scalar", "in x; #n = borrow+all(x); o = write(x); out o;", "#n:scalar" },
};

static const char* const role_names[] = {
  [TIDE_ROLE_EXTERNAL] = "external",
  [TIDE_ROLE_MANAGED] = "managed",
  [TIDE_ROLE_MANAGED_OUTPUT] = "managed_output",
  [TIDE_ROLE_LEAKED] = "leaked",
  [TIDE_ROLE_UNMANAGED] = "unmanaged",
  [TIDE_ROLE_BORROWED] = "borrowed",
  [TIDE_ROLE_SCALAR] = "scalar",
  [TIDE_ROLE_OUTPUT] = "output",
  [TIDE_ROLE_BORROWED_OUTPUT] = "borrowed_output",
};

T_TEST(test_graph_roles__follow_the_table) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    trial t;
    char name[MODEL_NAME];
    char role[20];
    int length = 0;
    trial_open(&t, rows[i].graph, options_of(rows[i].options));
    for (const char* at = rows[i].roles; *at != '\0'; at += length) {
      T_EQ(sscanf(at, " %11[^:]:%19s%n", name, role, &length), 2);
      const char* const found = role_names[trial_role(&t, name)];
      if (strcmp(found, role) != 0)
        T_FAIL("%s (%c): %s is %s, not %s", rows[i].rule, rows[i].options, name, found, role);
    }
    trial_close(&t);
  }
}

// ---------------------------------------------------------------------------------------------------
// Counters

static const char counted[] =
    "in x; const k; a = write(x); b = write(a); *l = write+all(a b); c = plain(x); s = borrow+all(a b);"
    "#n #m = plain(x); @t = plain(x); d = write(x); *p = write+all(d); r = borrow+all(k); out *p r;";

TRIAL_TEST(test_graph_roles__counters_tell_how_many_there_are_of_each, counted, trial_managing(false)) {
  const tide_planner_stats stats = trial_stats(t);

  T_EQ(stats.managed, 2);           // a b
  T_EQ(stats.managed_outputs, 1);   // d
  T_EQ(stats.leaked, 1);            // *l
  T_EQ(stats.unmanaged, 3);         // c @t s
  T_EQ(stats.borrowed, 1);          // s
  T_EQ(stats.borrowed_outputs, 1);  // r
  T_EQ(stats.scalars, 2);           // #n #m
  T_EQ(stats.total_unmanaged, 5);
}

TRIAL_TEST(test_graph_roles__without_managed_outputs_their_tensors_are_reset, counted, trial_defaults()) {
  const tide_planner_stats stats = trial_stats(t);

  T_EQ(stats.managed, 2);
  T_EQ(stats.managed_outputs, 0);
  T_EQ(stats.unmanaged, 4);  // c @t s d
  T_EQ(stats.total_unmanaged, 6);
}

TRIAL_TEST(test_graph_roles__without_nodes_that_write_out_all_is_reset, counted, plain_options()) {
  const tide_planner_stats stats = trial_stats(t);

  T_EQ(stats.managed, 0);
  T_EQ(stats.leaked, 0);
  T_EQ(stats.unmanaged, 7);  // a b *l c @t s d
  T_EQ(stats.borrowed, 1);
  T_EQ(stats.total_unmanaged, 9);
}

TRIAL_TEST(test_graph_roles__numbers_that_are_no_values_have_no_role_of_ours, counted, trial_defaults()) {
  T_EQ(tide_planner_role(t->planner, TIDE_GRAPH_NONE), TIDE_ROLE_EXTERNAL);
  T_EQ(tide_planner_role(t->planner, t->m.value_count), TIDE_ROLE_EXTERNAL);
  T_EQ(tide_planner_role(NULL, 0), TIDE_ROLE_EXTERNAL);
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
  T_EQ(trial_role(&t, "m"), TIDE_ROLE_MANAGED);

  run_skipping(&t, true);
  T_EQ(trial_role(&t, "m"), TIDE_ROLE_UNMANAGED);
  T_EQ(trial_stats(&t).managed, 2);
  for (int i = 0; i < 4; i++) run_skipping(&t, false);

  T_EQ(trial_role(&t, "m"), TIDE_ROLE_UNMANAGED);
  T_CHECK(!trial_was_planned(&t, "m"));
  T_EQ(tide_graph_layout_place(tide_planner_layout(t.planner), trial_id(&t, "m")).group, TIDE_GRAPH_NONE);
  trial_close(&t);
}

TRIAL_TEST(test_graph_roles__what_the_first_run_skipped_can_be_managed_later, skipping, trial_defaults()) {
  run_skipping(t, true);
  T_EQ(trial_role(t, "m"), TIDE_ROLE_MANAGED);
  T_EQ(trial_stats(t).managed, 3);
  run_skipping(t, false);
  run_skipping(t, false);

  T_CHECK(trial_was_planned(t, "m"));
}

T_TEST(test_graph_roles__what_the_first_run_made_stays_managed_when_it_is_skipped_later) {
  trial t;
  tide_graph_options options = trial_defaults();
  options.decides_once = true;
  trial_open(&t, skipping, options);

  run_skipping(&t, false);
  run_skipping(&t, true);
  run_skipping(&t, false);

  T_EQ(trial_role(&t, "m"), TIDE_ROLE_MANAGED);
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

  T_EQ(trial_role(&t, "z"), TIDE_ROLE_MANAGED);
  trial_close(&t);
}
