// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` and private pools: a pool that grows takes what is idle elsewhere, and a pool that nobody
// uses any more gives its memory back at once. The memory of a graph stays where it was captured.
#define T_THREADS
#include "device/park.h"

#define POOL_TEST(function) DEVICE_TEST_OVER(function, device_tide)

// What a stream may leave idle in a small program: tide_idle_handles of 2 MiB.
#define IDLE_BYTES (8 * MIB)

// ---------------------------------------------------------------------------------------------------
// A compiled model: graphs of three shapes in one pool, between eager blocks

enum { SHAPES = 3, LAYERS = 4 };
#define WORKSPACE_BYTES (32 * MIB)

typedef struct compiled {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream eager;
  tide_stream side;  // of the graphs
  tide_pool pool;
  tide_launch graphs[SHAPES];
  bool is_warm[SHAPES];
} compiled;

// The weights are made with four bytes each, and then converted one by one.
static void weights_make(const compiled* c) {
  tide_block wide[2 * LAYERS];
  for (size_t i = 0; i < 2 * LAYERS; i++) wide[i] = take(c->d, c->eager, 64 * MIB);
  for (size_t i = 0; i < 2 * LAYERS; i++) {
    (void)take(c->d, c->eager, 32 * MIB);
    give(c->d, wide[i]);
  }
}

// What the kernels of a shape ask for: a workspace, the input, and two buffers of each layer.
static void layers_run(const compiled* c, size_t shape) {
  const uint64_t unit = 4 * MIB * (shape + 1);
  const tide_block workspace = take(c->d, c->side, WORKSPACE_BYTES);
  tide_block tokens = take(c->d, c->side, unit);
  for (size_t i = 0; i < LAYERS; i++) {
    const tide_block inner = take(c->d, c->side, 4 * unit);
    const tide_block next = take(c->d, c->side, unit);
    give(c->d, inner);
    give(c->d, tokens);
    tokens = next;
  }
  give(c->d, tokens);
  give(c->d, workspace);
}

// The most that layers_run() has at once, of all shapes.
#define GRAPH_BYTES (WORKSPACE_BYTES + 6 * SHAPES * (4 * MIB))

// The first time a shape runs eagerly in the pool; the second time its graph is captured.
static void graph_run(compiled* c, size_t shape) {
  if (!c->is_warm[shape]) {
    scope_open(c->d, c->pool);
    layers_run(c, shape);
    scope_close(c->d, c->pool);
    c->is_warm[shape] = true;
  } else if (c->graphs[shape] == NULL) {
    trim(c->d);
    capture_open(c->m, c->d, c->side, c->pool);
    layers_run(c, shape);
    c->graphs[shape] = capture_close(c->m, c->d, c->side, c->pool);
  } else {
    T_OK(tide_machine_launch(c->m, 0, c->graphs[shape], c->side));
  }
}

// Runs the program, and returns the most that it had outside of the pool at once.
static uint64_t compiled_run(compiled* c, uint64_t eager_most) {
  uint64_t most = 0;
  t_rng rng = t_rng_new(1);
  const int64_t weights = current(c->d, active_bytes);
  for (size_t step = 0; step < 40; step++) {
    const uint64_t tokens_bytes = 4 * MIB * (1 + step % SHAPES);
    const tide_block tokens = take(c->d, c->eager, tokens_bytes);
    graph_run(c, step % SHAPES);
    for (size_t i = 0; i < 8; i++) {
      const uint64_t bytes = MIB + t_rng_below(&rng, eager_most - MIB);
      give(c->d, take(c->d, c->eager, bytes));
      if ((uint64_t)weights + tokens_bytes + bytes > most) most = (uint64_t)weights + tokens_bytes + bytes;
    }
    give(c->d, tokens);
  }
  return most;
}

// On a dry machine that has memory enough.
static void compiled_expect(uint64_t eager_most, bool has_weights) {
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(NULL, &m));
  tide_device_cache* const d = device_with(m, "policy:tide");
  compiled c = { .m = m, .d = d, .eager = side_new(m), .side = side_new(m), .pool = pool_new(d, NULL) };
  if (has_weights) weights_make(&c);
  const uint64_t most = compiled_run(&c, eager_most);

  // Memory of graphs stays, whatever is idle in it.
  const tide_device_stats stats = stats_of(d);
  const uint64_t needed = most + GRAPH_BYTES;
  const uint64_t peak = (uint64_t)stats.active_bytes[0].peak;
  T_EQ(pool_reserved(d, c.pool), GRAPH_BYTES);
  T_CHECK((double)stats.reserved_bytes[0].peak * 0.985 <= (double)(peak > needed ? peak : needed));
  tide_device_free(d);
  tide_machine_free(m);
}

// The weights leave more idle memory than the graphs need.
T_TEST(test_tide__graphs_between_eager_blocks_reserve_what_is_used_at_once) {
  compiled_expect(50 * MIB, true);
}

T_TEST(test_tide__graphs_and_large_eager_blocks_reserve_the_sum_of_both) {
  compiled_expect(200 * MIB, false);
}

// ---------------------------------------------------------------------------------------------------
// Making way

POOL_TEST(test_tide__idle_memory_makes_way_for_a_pool_that_grows) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block kept = take(d, stream, 8 * MIB);
  paint(m, stream, kept, 7, 8 * MIB);
  give(d, take(d, stream, 40 * MIB));

  const tide_block block = take_in(d, pool, stream, 32 * MIB);
  paint(m, stream, block, 9, 32 * MIB);

  T_EQ(pool_reserved(d, pool), 32 * MIB);
  T_LE(current(d, reserved_bytes), 48 * MIB + IDLE_BYTES);
  stream_finish(m, 0, stream);
  expect_filled(m, 0, bytes_of(kept), 7, 8 * MIB);
  expect_filled(m, 0, bytes_of(block), 9, 32 * MIB);
}

POOL_TEST(test_tide__nothing_makes_way_while_a_stream_is_captured) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_pool other = pool_new(d, NULL);
  give(d, take(d, NULL, 40 * MIB));

  capture_open(m, d, stream, pool);
  (void)take(d, stream, 32 * MIB);
  (void)take_in(d, other, NULL, 32 * MIB);  // of a stream that is not captured, while another is
  const tide_launch graph = capture_close(m, d, stream, pool);

  T_EQ(pool_reserved(d, TIDE_POOL_DEFAULT), 40 * MIB);
  T_OK(tide_machine_launch_free(m, graph));
}

POOL_TEST(test_tide__nothing_makes_way_for_what_a_limit_forbids) {
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 48 * MIB);
  give(d, take(d, NULL, 40 * MIB));

  scope_open(d, pool);
  expect_oom(d, NULL, 32 * MIB);
  scope_close(d, pool);

  T_EQ(pool_reserved(d, TIDE_POOL_DEFAULT), 40 * MIB);
}

// A thread that takes what has just made way for another pool.
typedef struct rival {
  tide_device_cache* d;
  tide_pool pool;
  pthread_t thread;
  bool is_started;
} rival;

static void* rival_run(void* user) {
  rival* const r = user;
  region_open(r->d, r->pool);
  (void)take(r->d, NULL, 40 * MIB);
  region_close(r->d, r->pool);
  return NULL;
}

static void rival_hear(void* user, const tide_trace_entry* entry) {
  rival* const r = user;
  if (entry->action != TIDE_ACTION_SEGMENT_UNMAP || r->is_started) return;
  r->is_started = true;
  t_thread_start(&r->thread, rival_run, r);
  T_WAIT(pool_reserved(r->d, r->pool) > 0);
}

// Observers hear what makes way, and meanwhile another pool grows. Not all that is idle has to go.
MACHINE_TEST_OVER(test_tide__a_limit_holds_while_idle_memory_makes_way, machine_dry) {
  tide_device_cache* const d = device_with(m, "policy:tide,tide_idle_handles:0,tide_slack:0.3,"
                                              "tide_stitch_share:1,tide_most_handle_mb:2");
  const tide_pool pool = pool_new(d, NULL);
  rival r = { .d = d, .pool = pool_new(d, NULL) };
  const tide_block idle = take(d, NULL, 40 * MIB);
  (void)take(d, NULL, 20 * MIB);
  give(d, idle);
  T_OK(tide_machine_device_synchronize(m, 0));
  limit_to(d, 100 * MIB);
  const tide_observer observer = observe_trace(d, rival_hear, &r);

  region_open(d, pool);
  T_ANY(try_take(d, NULL, 40 * MIB));
  region_close(d, pool);

  T_CHECK(r.is_started);
  t_thread_join(r.thread);
  T_OK(tide_device_detach(d, observer));
  T_LE(stats_of(d).reserved_bytes[TIDE_STAT_ALL].peak, 100 * MIB);
  device_expect_valid(d);
  tide_device_free(d);
}

POOL_TEST(test_tide__the_memory_of_a_graph_makes_way_for_nobody) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_pool other = pool_new(d, NULL);
  const tide_block result = take(d, stream, MIB);
  capture_open(m, d, stream, pool);
  const tide_block scratch = take(d, stream, 32 * MIB);
  paint(m, stream, scratch, 5, 32 * MIB);
  T_OK(tide_machine_copy(m, 0, stream, result.address, scratch.address, MIB));
  give(d, scratch);
  const tide_launch graph = capture_close(m, d, stream, pool);

  const tide_block block = take_in(d, other, stream, 32 * MIB);
  paint(m, stream, block, 6, 32 * MIB);
  T_OK(tide_machine_launch(m, 0, graph, stream));
  stream_finish(m, 0, stream);

  T_EQ(pool_reserved(d, pool), 32 * MIB);
  expect_filled(m, 0, bytes_of(result), 5, MIB);
  expect_filled(m, 0, bytes_of(block), 6, 32 * MIB);
  T_OK(tide_machine_launch_free(m, graph));
}

// ---------------------------------------------------------------------------------------------------
// The end of a pool

POOL_TEST(test_tide__a_pool_whose_graph_is_gone_gives_back_at_once) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  capture_open(m, d, stream, pool);
  tide_block blocks[3];
  for (size_t i = 0; i < 3; i++) blocks[i] = take(d, stream, 16 * MIB);
  const tide_block small = take(d, stream, 512);
  paint(m, stream, blocks[1], 3, 16 * MIB);
  for (size_t i = 0; i < 3; i += 2) give(d, blocks[i]);
  give(d, small);
  const tide_launch graph = capture_close(m, d, stream, pool);
  T_OK(tide_machine_launch(m, 0, graph, stream));
  T_OK(tide_machine_launch_free(m, graph));
  T_EQ(current(d, reserved_bytes), 50 * MIB);

  T_OK(tide_device_pool_drop(d, pool));

  T_EQ(current(d, reserved_bytes), 16 * MIB);  // what is still handed out
  expect_filled(m, 0, bytes_of(blocks[1]), 3, 16 * MIB);
  give(d, blocks[1]);
  expect_trimmed(d, 0);
}

// A user of two.
POOL_TEST(test_tide__a_pool_with_users_gives_nothing_back) {
  const tide_pool pool = pool_new(d, NULL);
  give(d, take_in(d, pool, NULL, 16 * MIB));
  T_OK(tide_device_pool_retain(d, pool));

  T_OK(tide_device_pool_drop(d, pool));

  T_EQ(current(d, reserved_bytes), 16 * MIB);
}

POOL_TEST(test_tide__a_pool_that_ends_in_a_capture_waits_for_the_next_trim) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_pool captured = pool_new(d, NULL);
  give(d, take_in(d, pool, NULL, 16 * MIB));
  capture_open(m, d, stream, captured);

  T_OK(tide_device_pool_drop(d, pool));

  T_EQ(current(d, reserved_bytes), 16 * MIB);
  T_OK(tide_machine_launch_free(m, capture_close(m, d, stream, captured)));
  expect_trimmed(d, 0);
}
