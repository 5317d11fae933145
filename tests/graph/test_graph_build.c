// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Building graphs: what is accepted and what is refused, very deep and very long graphs on a small stack,
// and a heap that fails at any call.
#define T_THREADS
#include "graph/model.h"
#include "machine/counting_heap.h"

static tide_graph* new_graph(void) {
  tide_graph* graph = NULL;
  T_OK(tide_graph_new(NULL, &graph));
  return graph;
}

static uint32_t add_tensor(tide_graph* graph) {
  uint32_t value = TIDE_GRAPH_NONE;
  T_OK(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &value));
  return value;
}

static uint32_t add_node(tide_graph* graph, uint32_t block, uint32_t input, uint32_t output) {
  const tide_graph_node node = { .size = sizeof(tide_graph_node),
                                 .inputs = &input,
                                 .input_count = 1,
                                 .outputs = &output,
                                 .output_count = 1,
                                 .flags = TIDE_NODE_WRITES_OUT };
  uint32_t number = TIDE_GRAPH_NONE;
  T_OK(tide_graph_add_node(graph, block, &node, &number));
  return number;
}

static uint32_t add_block(tide_graph* graph, uint32_t node) {
  uint32_t block = TIDE_GRAPH_NONE;
  T_OK(tide_graph_add_block(graph, node, &block));
  return block;
}

// ---------------------------------------------------------------------------------------------------
// Numbers and arguments

T_TEST(test_graph_build__parts_are_numbered_in_the_order_of_their_adding) {
  tide_graph* const graph = new_graph();

  T_EQ(add_tensor(graph), 0);
  T_EQ(add_tensor(graph), 1);
  T_EQ(add_tensor(graph), 2);
  T_EQ(add_node(graph, TIDE_GRAPH_ROOT, 0, 1), 0);
  T_EQ(add_block(graph, 0), 1);
  T_EQ(add_node(graph, 1, 0, 2), 1);
  T_EQ(add_block(graph, 0), 2);
  tide_graph_free(graph);
}

T_TEST(test_graph_build__numbers_that_are_not_there_are_refused) {
  tide_graph* const graph = new_graph();
  const uint32_t there = add_tensor(graph);
  const uint32_t missing = 1;
  uint32_t number = 0;
  const tide_graph_node of_nothing = { .size = sizeof(tide_graph_node), .flags = 0 };
  const tide_graph_node reads = { .size = sizeof(tide_graph_node), .inputs = &missing, .input_count = 1 };
  const tide_graph_node makes = { .size = sizeof(tide_graph_node), .outputs = &missing, .output_count = 1 };

  T_STATUS(tide_graph_add_node(graph, 1, &of_nothing, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_NONE, &of_nothing, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &reads, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &makes, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_block(graph, 0, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_input(graph, 1, there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, missing), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_output(graph, 1, there), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_output(graph, TIDE_GRAPH_ROOT, TIDE_GRAPH_NONE), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_constant(graph, missing), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_escape(graph, missing), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_value(graph, (tide_graph_kind)(TIDE_KIND_SCALAR + 1), &number), TIDE_ERR_ARGUMENT);

  T_EQ(add_node(graph, TIDE_GRAPH_ROOT, there, add_tensor(graph)), 0);
  tide_graph_free(graph);
}

T_TEST(test_graph_build__pairs_that_are_no_pairs_are_refused) {
  tide_graph* const graph = new_graph();
  const uint32_t x = add_tensor(graph);
  const uint32_t y = add_tensor(graph);
  const uint32_t other = add_tensor(graph);
  const tide_graph_pair pairs[] = { { y, x },     { x, x },  { y, y }, { other, y },
                                    { x, other }, { x, 99 }, { 99, y } };

  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    uint32_t number = 0;
    tide_graph_node node = {
      .size = sizeof(tide_graph_node), .inputs = &x, .input_count = 1, .outputs = &y, .output_count = 1
    };
    node.aliases = &pairs[i];
    node.alias_count = 1;
    T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number), TIDE_ERR_ARGUMENT);
    node.in_place = &pairs[i];
    node.in_place_count = 1;
    node.alias_count = 0;
    T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number), TIDE_ERR_ARGUMENT);
  }
  T_EQ(add_node(graph, TIDE_GRAPH_ROOT, x, y), 0);
  tide_graph_free(graph);
}

T_TEST(test_graph_build__arguments_of_nothing_are_refused) {
  tide_graph* const graph = new_graph();
  const uint32_t x = add_tensor(graph);
  const tide_graph_node empty = { .size = sizeof(tide_graph_node), .flags = 0 };
  const tide_graph_node no_inputs = { .size = sizeof(tide_graph_node), .input_count = 1 };
  const tide_graph_node no_outputs = { .size = sizeof(tide_graph_node), .output_count = 1 };
  const tide_graph_node no_aliases = { .size = sizeof(tide_graph_node), .alias_count = 1 };
  const tide_graph_node no_pairs = { .size = sizeof(tide_graph_node), .in_place_count = 1 };
  uint32_t number = 0;

  T_STATUS(tide_graph_new(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_value(NULL, TIDE_KIND_TENSOR, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(NULL, TIDE_GRAPH_ROOT, &empty, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, NULL, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &no_inputs, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &no_outputs, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &no_aliases, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &no_pairs, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_block(NULL, 0, &number), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_input(NULL, TIDE_GRAPH_ROOT, x), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_output(NULL, TIDE_GRAPH_ROOT, x), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_constant(NULL, x), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_add_escape(NULL, x), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_graph_seal(NULL), TIDE_ERR_ARGUMENT);

  tide_graph_free(graph);
  tide_graph_free(NULL);
}

T_TEST(test_graph_build__queries_of_what_is_not_there_find_nothing) {
  model m;
  tide_graph* const graph = model_graph(&m, "in x; y = write(x); out y;");

  T_CHECK(!tide_graph_get_lifetime(graph, 2).is_tracked);
  T_CHECK(!tide_graph_get_lifetime(graph, TIDE_GRAPH_NONE).is_tracked);
  T_CHECK(!tide_graph_get_lifetime(NULL, 0).is_tracked);

  tide_graph_free(graph);
}

T_TEST(test_graph_build__a_sealed_graph_takes_nothing_more) {
  model m;
  tide_graph* const graph = model_graph(&m, "in x; y = write(x); out y;");
  const tide_graph_node empty = { .size = sizeof(tide_graph_node), .flags = 0 };
  uint32_t number = 0;

  T_STATUS(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &number), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &empty, &number), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_block(graph, 0, &number), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, 0), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_output(graph, TIDE_GRAPH_ROOT, 1), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_constant(graph, 0), TIDE_ERR_STATE);
  T_STATUS(tide_graph_add_escape(graph, 1), TIDE_ERR_STATE);

  tide_graph_free(graph);
}

T_TEST(test_graph_build__more_parts_than_the_limit_are_refused) {
  const size_t count = (size_t)TIDE_GRAPH_MAX_PARTS + 1;
  uint32_t* const zeros = calloc(count, sizeof *zeros);
  tide_graph* const graph = new_graph();
  uint32_t number = 0;
  if (zeros == NULL) t_skip("no gigabyte of address space");
  (void)add_tensor(graph);
  const tide_graph_node node = { .size = sizeof(tide_graph_node), .inputs = zeros, .input_count = count };
  const tide_graph_node endless = { .size = sizeof(tide_graph_node),
                                    .inputs = zeros,
                                    .input_count = SIZE_MAX };

  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number), TIDE_ERR_LIMIT);
  T_STATUS(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &endless, &number), TIDE_ERR_LIMIT);

  tide_graph_free(graph);
  free(zeros);
}

// ---------------------------------------------------------------------------------------------------
// Rules of a graph

// The graph is refused while it is built or when it is sealed, and then cannot be used.
static void expect_refused(const char* text) {
  model m;
  tide_graph* graph = NULL;
  tide_graph_layout* layout = NULL;
  const uint64_t bytes[MODEL_VALUES] = { 0 };
  model_read(&m, text);
  T_OK(tide_graph_new(NULL, &graph));

  const tide_status status = model_put(&m, graph);

  if (status != TIDE_ERR_ARGUMENT) T_FAIL("\"%s\": %s", text, tide_status_name(status));
  T_STATUS(tide_graph_layout_new(graph, NULL, bytes, m.value_count, &layout), TIDE_ERR_STATE);
  tide_graph_free(graph);
}

T_TEST(test_graph_build__values_defined_twice_are_refused) {
  expect_refused("in x; y = write(x); y = write(x);");
  expect_refused("in x; y y = write(x);");
  expect_refused("in x; x = write();");
  expect_refused("in x x;");
  expect_refused("const k; k = write();");
  expect_refused("in x; const x;");
  expect_refused("in x; y = write(x) { in x; out x; };");
  expect_refused("in x; y = write(x) { in i; out i; } { in i; out i; };");
  expect_refused("in x; y = write(x) { t = write(x); out t; } { t = write(x); out t; };");
  expect_refused("in x; y = write(x) { y = write(x); out y; };");
}

T_TEST(test_graph_build__values_used_before_they_are_defined_are_refused) {
  expect_refused("in x; y = write(z); z = write(x);");
  expect_refused("in x; y = write(x z);");
  expect_refused("in x; y = write(y);");
  expect_refused("in x; out y;");
  expect_refused("in x; y = write(x) { t = write(z); out t; }; z = write(x);");
  expect_refused("in x; y = write(x) { t = write(y); out t; };");
  expect_refused("in x; y = write(x) { out y; };");
  expect_refused("in x; y = write(x) { t = write(u); u = write(x); out t; };");
}

T_TEST(test_graph_build__values_used_where_they_are_not_seen_are_refused) {
  expect_refused("in x; y = write(x) { t = write(x); out t; }; z = write(t);");
  expect_refused("in x; y = write(x) { in i; out i; }; z = write(i);");
  expect_refused("in x; y = write(x) { t = write(x); out t; } { u = write(t); out u; };");
  expect_refused("in x; y = write(x) { t = write(x); out t; } { out t; };");
  expect_refused("in x; y = write(x) { t = write(x); }; out t;");
  expect_refused("in x; y = write(x) { t = write(x); }; z = write(x) { u = write(t); };");
}

T_TEST(test_graph_build__values_around_a_block_are_seen_in_it) {
  static const char* const accepted[] = {
    "in x; const k; y = write(x); z = write(y) { t = write(y k x); out t; } { out y; }; out z;",
    "in x; z = write(x) { a = write(x) { b = write(x) { c = write(x); out c; }; out b; }; out a; };",
    "in x; out x;",
    "const k; out k;",
    "in x; y = write(x x x); out y;",
    "in x; = plain(x);",
    "",
  };
  model m;
  for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
    tide_graph_free(model_graph(&m, accepted[i]));
}

T_TEST(test_graph_build__a_refusal_names_the_value_and_the_node) {
  tide_graph* const graph = new_graph();
  for (int i = 0; i < 78; i++) (void)add_tensor(graph);
  T_OK(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, 0));
  for (uint32_t i = 0; i < 43; i++) (void)add_node(graph, TIDE_GRAPH_ROOT, i, i + 1);

  (void)add_node(graph, TIDE_GRAPH_ROOT, 77, 50);

  T_STATUS(tide_graph_seal(graph), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "77");
  T_STR_HAS(tide_last_error()->text, "43");
  tide_graph_free(graph);
}

// The order of nodes follows their blocks, not the order of adding.
T_TEST(test_graph_build__blocks_may_be_filled_after_what_follows_them) {
  tide_graph* const graph = new_graph();
  for (int i = 0; i < 5; i++) (void)add_tensor(graph);
  T_OK(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, 0));
  (void)add_node(graph, TIDE_GRAPH_ROOT, 0, 1);
  const uint32_t branch = add_node(graph, TIDE_GRAPH_ROOT, 0, 2);
  (void)add_node(graph, TIDE_GRAPH_ROOT, 2, 3);
  const uint32_t inside = add_block(graph, branch);
  (void)add_node(graph, inside, 1, 4);
  T_OK(tide_graph_add_output(graph, inside, 4));

  T_OK(tide_graph_seal(graph));

  T_EQ(tide_graph_get_lifetime(graph, 1).last, 1);
  T_EQ(tide_graph_get_lifetime(graph, 4).block, inside);
  T_EQ(tide_graph_get_lifetime(graph, 4).first, 0);
  T_EQ(tide_graph_get_lifetime(graph, 4).last, 1);
  tide_graph_free(graph);
}

T_TEST(test_graph_build__a_block_filled_late_does_not_see_what_follows_it) {
  tide_graph* const graph = new_graph();
  for (int i = 0; i < 4; i++) (void)add_tensor(graph);
  T_OK(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, 0));
  const uint32_t branch = add_node(graph, TIDE_GRAPH_ROOT, 0, 1);
  (void)add_node(graph, TIDE_GRAPH_ROOT, 0, 2);
  const uint32_t inside = add_block(graph, branch);

  (void)add_node(graph, inside, 2, 3);

  T_STATUS(tide_graph_seal(graph), TIDE_ERR_ARGUMENT);
  tide_graph_free(graph);
}

// ---------------------------------------------------------------------------------------------------
// Deep and long graphs, on a stack that is too small for recursion

static void on_a_small_stack(void* (*function)(void*)) {
  pthread_attr_t attributes;
  pthread_t thread;
  T_EQ(pthread_attr_init(&attributes), 0);
  T_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  T_EQ(pthread_create(&thread, &attributes, function, NULL), 0);
  t_thread_join(thread);
  (void)pthread_attr_destroy(&attributes);
}

static void plan_and_run(const tide_graph* graph, uint32_t count) {
  uint64_t* const bytes = malloc(count * sizeof *bytes);
  tide_graph_options options = TIDE_GRAPH_OPTIONS_INIT;
  tide_graph_layout* layout = NULL;
  tide_planner* planner = NULL;
  void* address = NULL;
  T_CHECK(bytes != NULL);
  for (uint32_t i = 0; i < count; i++) bytes[i] = 64;
  options.plan_nodes = 1000;

  T_OK(tide_graph_layout_new(graph, &options, bytes, count, &layout));
  T_OK(tide_planner_new(graph, &options, &planner));
  T_OK(tide_planner_presize(planner, 0, bytes, count));
  T_OK(tide_planner_begin(planner, 0));
  for (uint32_t i = 1; i < count; i++) {
    if (tide_planner_role(planner, i) == TIDE_ROLE_MANAGED)
      T_OK(tide_planner_alloc(planner, i, 64, &address));
  }
  T_OK(tide_planner_end(planner));

  tide_planner_free(planner);
  tide_graph_layout_free(layout);
  free(bytes);
}

#define DEEP 5000u

// Each node holds a block with the next; what the first makes is read by the innermost.
static void* nest_deeply(void* user) {
  tide_graph* const graph = new_graph();
  uint32_t block = TIDE_GRAPH_ROOT;
  T_OK(tide_graph_add_input(graph, block, add_tensor(graph)));
  const uint32_t y = add_tensor(graph);
  (void)add_node(graph, block, 0, y);
  for (uint32_t i = 0; i < DEEP; i++) {
    const uint32_t output = add_tensor(graph);
    const uint32_t node = add_node(graph, block, y, output);
    T_OK(tide_graph_add_output(graph, block, output));
    block = add_block(graph, node);
  }
  const uint32_t innermost = add_tensor(graph);
  (void)add_node(graph, block, y, innermost);
  T_OK(tide_graph_add_output(graph, block, innermost));

  T_OK(tide_graph_seal(graph));

  T_EQ(tide_graph_get_lifetime(graph, y).last, 1);
  plan_and_run(graph, innermost + 1);
  tide_graph_free(graph);
  return user;
}

T_TEST(test_graph_build__blocks_may_nest_as_deep_as_they_like) { on_a_small_stack(nest_deeply); }

#define LONG 70000u  // more than sixteen bits count

// Each view keeps the one before alive, so that the first value lives as long as the last view.
static void* chain_views(void* user) {
  tide_graph* const graph = new_graph();
  T_OK(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, add_tensor(graph)));
  (void)add_node(graph, TIDE_GRAPH_ROOT, 0, add_tensor(graph));
  for (uint32_t i = 1; i < LONG; i++) {
    const uint32_t output = add_tensor(graph);
    const tide_graph_pair pair = { i, output };
    uint32_t number = 0;
    const tide_graph_node node = { .size = sizeof(tide_graph_node),
                                   .inputs = &i,
                                   .input_count = 1,
                                   .outputs = &output,
                                   .output_count = 1,
                                   .aliases = &pair,
                                   .alias_count = 1 };
    T_OK(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number));
  }
  (void)add_node(graph, TIDE_GRAPH_ROOT, LONG, add_tensor(graph));

  T_OK(tide_graph_seal(graph));

  T_EQ(tide_graph_get_lifetime(graph, 1).last, LONG);
  T_EQ(tide_graph_get_lifetime(graph, LONG / 2).last, LONG);
  plan_and_run(graph, LONG + 2);
  tide_graph_free(graph);
  return user;
}

T_TEST(test_graph_build__chains_of_views_may_be_as_long_as_they_like) { on_a_small_stack(chain_views); }

// ---------------------------------------------------------------------------------------------------
// A heap that fails

static const char everything[] =
    "in x y; const k; a = write(x k); v = plain(a) a>v; *l = write+all(a v); b c = write(v y) v~b;"
    "o = write(b) { in i; t = write(i a); u = write(t) t~u; out u; } { w = plain+all(*l); out w; };"
    "escape c; #n = plain(o); d = write+guard(o c); m = write+skip(d); s = borrow+all(d m); out s o;";

T_TEST(test_graph_build__a_heap_that_fails_at_any_call_leaves_nothing) {
  model m;
  bool has_failed = true;
  model_read(&m, everything);

  for (size_t fail_at = 0; has_failed; fail_at++) {
    counting_heap heap;
    tide_graph* graph = NULL;
    counting_heap_init(&heap, fail_at, false);
    tide_status status = tide_graph_new(&heap.heap, &graph);
    if (status == TIDE_OK) status = model_put(&m, graph);
    has_failed = heap.has_failed;
    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    tide_graph_free(graph);
    T_EQ(heap.outstanding, 0);
  }
}

// A call that failed can be repeated, and has left nothing behind.
#define AGAIN(call) T_OK((call) == TIDE_OK ? TIDE_OK : (call))

static void add_link(tide_graph* graph, uint32_t input) {
  const uint32_t output = input + 1;
  const tide_graph_node node = {
    .size = sizeof(tide_graph_node), .inputs = &input, .input_count = 1, .outputs = &output, .output_count = 1
  };
  uint32_t number = 0;
  AGAIN(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &number));
  T_EQ(number, output);
  AGAIN(tide_graph_add_node(graph, TIDE_GRAPH_ROOT, &node, &number));
  T_EQ(number, input);
  AGAIN(tide_graph_add_block(graph, input, &number));
  T_EQ(number, input + 1);
}

T_TEST(test_graph_build__what_failed_can_be_done_again) {
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    counting_heap heap;
    tide_graph* graph = NULL;
    uint32_t x = 0;
    counting_heap_init(&heap, fail_at, false);
    AGAIN(tide_graph_new(&heap.heap, &graph));

    AGAIN(tide_graph_add_value(graph, TIDE_KIND_TENSOR, &x));
    for (uint32_t i = 0; i < 100; i++) add_link(graph, i);
    AGAIN(tide_graph_add_input(graph, TIDE_GRAPH_ROOT, x));
    AGAIN(tide_graph_seal(graph));

    for (uint32_t i = 1; i < 100; i++) T_EQ(tide_graph_get_lifetime(graph, i).last, i);
    has_failed = heap.has_failed;
    tide_graph_free(graph);
    T_EQ(heap.outstanding, 0);
  }
}
