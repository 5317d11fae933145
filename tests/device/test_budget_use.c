// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Uses of tags: what is away comes back, what does not change is copied once, and what comes next is
// fetched ahead.
#define T_THREADS
#include "device/budget.h"

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };
static const char* const tide_host[] = { "host tide", NULL };

enum { LAYERS = 6, LAYER_BLOCKS = 3 };

typedef struct network {
  tide_stream stream;
  char tags[LAYERS][16];
  tide_pool pools[LAYERS];
  known blocks[LAYERS][LAYER_BLOCKS];
} network;

// Layers of four units, of which the budget holds `fits`.
static void network_init(tide_machine* m, tide_device_cache* d, network* n, uint64_t fits, bool is_constant) {
  tide_budget budget = yielding(0);
  small_handles(d);
  n->stream = side_new(m);
  budget.limit = fits * 4 * UNIT;
  budget.is_constant = is_constant;
  budget_to(d, "net", budget);
  for (size_t i = 0; i < LAYERS; ++i) {
    (void)snprintf(n->tags[i], sizeof n->tags[i], "net/%zu", i);
    n->pools[i] = tagged(d, n->tags[i]);
    T_OK(tide_device_use(d, n->tags[i], n->stream));
    for (size_t k = 0; k < LAYER_BLOCKS; ++k) {
      n->blocks[i][k] =
          known_new(m, d, n->pools[i], n->stream, k == 0 ? 2 * UNIT : UNIT, i * LAYER_BLOCKS + k + 1);
    }
    T_OK(tide_device_done(d, n->tags[i], n->stream));
  }
}

// Work with a layer: its contents are compared by a copy that is queued on the stream.
static void layer_run(tide_machine* m, tide_device_cache* d, const network* n, size_t i) {
  T_OK(tide_device_use(d, n->tags[i], n->stream));
  T_CHECK(!is_parked(d, n->tags[i]));
  all_expect(m, n->blocks[i], LAYER_BLOCKS);
  T_OK(tide_device_done(d, n->tags[i], n->stream));
}

static void network_end(tide_device_cache* d, const network* n) {
  for (size_t i = 0; i < LAYERS; ++i) all_give(d, n->blocks[i], LAYER_BLOCKS);
  T_OK(tide_device_budget_set(d, "net", NULL));
}

// The event of a capture says nothing about the work of a graph that is launched later.
DEVICE_TEST_OVER(test_use__the_end_in_a_capture_leaves_no_event, tide_emulated) {
  network n;
  tide_launch launch = NULL;
  network_init(m, d, &n, LAYERS, false);
  for (size_t i = 0; i < LAYERS; ++i) {  // brought back by a use
    (void)park(d, n.tags[i], TIDE_BACKUP_PINNED);
    layer_run(m, d, &n, i);
  }
  T_OK(tide_machine_capture_begin(m, 0, n.stream, TIDE_CAPTURE_RELAXED));
  T_OK(tide_device_use(d, n.tags[0], n.stream));
  T_OK(tide_device_done(d, n.tags[0], n.stream));
  T_OK(tide_machine_capture_end(m, 0, n.stream, &launch));
  (void)park(d, n.tags[0], TIDE_BACKUP_PINNED);
  layer_run(m, d, &n, 0);
  T_OK(tide_machine_launch_free(m, launch));
  network_end(d, &n);
}

DEVICE_TEST_OVER(test_use__a_model_larger_than_its_budget_runs, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, false);
  for (size_t step = 0; step < 4; ++step) {
    for (size_t i = 0; i < LAYERS; ++i) {
      T_OK(tide_device_use(d, n.tags[i], n.stream));
      all_expect(m, n.blocks[i], LAYER_BLOCKS);
      known_write(m, &n.blocks[i][1], 100 * step + i);
      T_LE(reserved_under(d, "net"), 2 * 4 * UNIT);
      T_OK(tide_device_done(d, n.tags[i], n.stream));
    }
  }
  device_expect_valid(d);
  network_end(d, &n);
}

DEVICE_TEST_OVER(test_use__what_does_not_change_is_copied_once, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, true);
  for (size_t i = 0; i < LAYERS; ++i) layer_run(m, d, &n, i);
  const uint64_t sent = budget_stats(d, "net").sent_bytes;
  T_EQ(sent, LAYERS * 4 * UNIT);
  const uint64_t parked = budget_stats(d, "net").parked_count;

  for (size_t step = 0; step < 10; ++step) {
    for (size_t i = 0; i < LAYERS; ++i) layer_run(m, d, &n, i);
  }

  T_EQ(budget_stats(d, "net").sent_bytes, sent);
  T_LT(parked + 10, budget_stats(d, "net").parked_count);
  device_expect_valid(d);
  network_end(d, &n);
}

// A block that was allocated meanwhile is copied, also if it lies where another one was.
DEVICE_TEST_OVER(test_use__a_new_block_in_memory_that_does_not_change_is_copied, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, true);
  for (size_t i = 0; i < LAYERS; ++i) layer_run(m, d, &n, i);
  for (size_t step = 0; step < 5; ++step) {
    known* const k = &n.blocks[step][2];
    const void* const before = k->block.address;
    T_OK(tide_device_use(d, n.tags[step], n.stream));
    give(d, k->block);
    *k = known_new(m, d, n.pools[step], n.stream, UNIT, 900 + step);
    T_PTR_EQ(k->block.address, before);
    T_OK(tide_device_done(d, n.tags[step], n.stream));
    for (size_t i = 0; i < 2 * LAYERS; ++i) layer_run(m, d, &n, i % LAYERS);
  }
  network_end(d, &n);
}

DEVICE_TEST_OVER(test_use__a_released_block_does_not_come_back, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, true);
  for (size_t i = 0; i < 2 * LAYERS; ++i) layer_run(m, d, &n, i % LAYERS);
  T_CHECK(is_parked(d, n.tags[2]));
  give(d, n.blocks[2][0].block);
  for (size_t i = 0; i < 2 * LAYERS; ++i) {
    T_OK(tide_device_use(d, n.tags[i % LAYERS], n.stream));
    all_expect(m, &n.blocks[i % LAYERS][1], LAYER_BLOCKS - 1);
    if (i % LAYERS == 2) T_EQ(reserved_under(d, n.tags[2]), 2 * UNIT);
    T_OK(tide_device_done(d, n.tags[i % LAYERS], n.stream));
  }
  T_OK(tide_device_use(d, n.tags[2], n.stream));
  n.blocks[2][0] = known_new(m, d, n.pools[2], n.stream, 2 * UNIT, 3);
  T_OK(tide_device_done(d, n.tags[2], n.stream));
  network_end(d, &n);
}

// Contents that move to other addresses, and change their size, leave no backups behind.
DEVICE_TEST_OVER(test_use__backups_do_not_become_more_and_more, tide_emulated) {
  const size_t steps = t_scaled_alone(40);
  t_rng rng = t_rng_new(17);
  network n;
  network_init(m, d, &n, 2, false);
  for (size_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < LAYERS; ++i) {
      known* const blocks = n.blocks[i];
      T_OK(tide_device_use(d, n.tags[i], n.stream));
      all_give(d, blocks, LAYER_BLOCKS);
      T_OK(tide_device_trim(d, 0));
      for (size_t k = 0; k < LAYER_BLOCKS; ++k) {
        const size_t units = k == 0 ? 1 + t_rng_below(&rng, 2) : 1;
        blocks[k] = known_new(m, d, n.pools[i], n.stream, units * UNIT, step + k);
      }
      T_OK(tide_device_done(d, n.tags[i], n.stream));
    }
    T_LE(stats_under(d, "net").backup_bytes, 3 * LAYERS * 4 * UNIT);
  }
  network_end(d, &n);
}

// ---------------------------------------------------------------------------------------------------
// Counting and errors

DEVICE_TEST_OVER(test_use__uses_are_counted, device_emulated) {
  T_STATUS(tide_device_done(d, "t", NULL), TIDE_ERR_STATE);
  use(d, "t");
  use(d, "t");
  T_EQ(budget_stats(d, "t").use_count, 2);
  done(d, "t");
  done(d, "t");
  T_STATUS(tide_device_done(d, "t", NULL), TIDE_ERR_STATE);
  T_STATUS(tide_device_use(d, "", NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_use(d, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_done(NULL, "t", NULL), TIDE_ERR_ARGUMENT);
}

DEVICE_TEST_OVER(test_use__without_room_the_error_names_the_tag, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, false);
  T_OK(tide_device_use(d, n.tags[0], n.stream));
  T_OK(tide_device_use(d, n.tags[1], n.stream));

  T_STATUS(tide_device_use(d, n.tags[2], n.stream), TIDE_ERR_NO_MEMORY);

  T_STR_HAS(tide_last_error()->text, "the limit of the tag \"net\"");
  T_EQ(budget_stats(d, n.tags[2]).use_count, 0);
  T_CHECK(is_parked(d, n.tags[2]));
  T_OK(tide_device_done(d, n.tags[1], n.stream));
  layer_run(m, d, &n, 2);
  T_OK(tide_device_done(d, n.tags[0], n.stream));
  network_end(d, &n);
}

typedef struct ender {
  const char* tag;
  tide_stream stream;
  uint64_t wanted;
} ender;

static void end_use(void* user, tide_device_cache* d, const tide_pressure* pressure) {
  ender* const e = user;
  e->wanted = pressure->wanted_bytes;
  T_STR_EQ(pressure->limited_tag, "net");
  T_OK(tide_device_done(d, e->tag, e->stream));
}

DEVICE_TEST_OVER(test_use__callbacks_may_end_a_use_to_make_room, tide_emulated) {
  network n;
  network_init(m, d, &n, 1, false);
  ender e = { n.tags[0], n.stream, 0 };
  tide_observer observer = 0;
  T_OK(tide_device_use(d, n.tags[0], n.stream));
  T_OK(tide_device_observe_pressure(d, end_use, &e, &observer));
  layer_run(m, d, &n, 1);
  T_EQ(e.wanted, 4 * UNIT);
  T_OK(tide_device_detach(d, observer));
  network_end(d, &n);
}

// A stream that does not use the memory does not wait for it, and one that asks for memory in the pool does.
DEVICE_TEST_OVER(test_use__requests_in_the_pool_wait_for_its_contents, tide_host) {
  network n;
  network_init(m, d, &n, 2, true);
  const tide_stream other = side_new(m);
  for (size_t i = 0; i < 3 * LAYERS; ++i) {
    const size_t layer = i % LAYERS;
    T_OK(tide_device_use(d, n.tags[layer], n.stream));
    known k = known_new(m, d, n.pools[layer], other, 4096, i);
    known_expect(m, &k);
    give(d, k.block);
    all_expect(m, n.blocks[layer], LAYER_BLOCKS);
    T_OK(tide_device_done(d, n.tags[layer], n.stream));
    T_OK(tide_device_trim(d, 0));
  }
  T_OK(tide_device_unpark(d, n.tags[0], NULL, NULL));
  all_expect(m, n.blocks[0], LAYER_BLOCKS);
  network_end(d, &n);
}

// ---------------------------------------------------------------------------------------------------
// Fetching ahead

DEVICE_TEST_OVER(test_use__what_comes_next_is_fetched_ahead, tide_emulated) {
  network n;
  network_init(m, d, &n, 3, true);
  for (size_t i = 0; i < LAYERS; ++i) layer_run(m, d, &n, i);
  T_EQ(budget_stats(d, "net").ahead_count, 0);  // loading was the first round, this was the second
  const uint64_t fetched = budget_stats(d, "net").fetched_count;

  for (size_t i = 0; i < 10 * LAYERS; ++i) {
    const size_t layer = i % LAYERS;
    T_OK(tide_device_use(d, n.tags[layer], n.stream));
    T_CHECK(!is_parked(d, n.tags[(layer + 1) % LAYERS]));
    all_expect(m, n.blocks[layer], LAYER_BLOCKS);
    T_OK(tide_device_done(d, n.tags[layer], n.stream));
  }

  const tide_budget_stats stats = budget_stats(d, "net");
  T_LE(stats.fetched_count - fetched, 10 * LAYERS * (LAYERS - 1) / LAYERS + LAYERS);  // one layer stays
  T_LT(8 * LAYERS * (LAYERS - 2) / LAYERS, stats.ahead_count);
  network_end(d, &n);
}

// Wrong guesses cost time, and nothing else.
DEVICE_TEST_OVER(test_use__a_wrong_guess_breaks_nothing, tide_emulated) {
  const size_t rounds = t_scaled_alone(60);
  t_rng rng = t_rng_new(11);
  network n;
  network_init(m, d, &n, 3, true);
  for (size_t i = 0; i < 3 * LAYERS; ++i) layer_run(m, d, &n, i % LAYERS);
  for (size_t i = 0; i < rounds; ++i) {
    const size_t layer = t_rng_below(&rng, 3) == 0 ? t_rng_below(&rng, LAYERS) : i % LAYERS;
    layer_run(m, d, &n, layer);
    T_LE(reserved_under(d, "net"), 3 * 4 * UNIT);
  }
  device_expect_valid(d);
  network_end(d, &n);
}

DEVICE_TEST_OVER(test_use__nothing_in_use_gives_way_for_what_comes_next, tide_emulated) {
  network n;
  network_init(m, d, &n, 2, true);
  for (size_t i = 0; i < 3 * LAYERS; ++i) layer_run(m, d, &n, i % LAYERS);
  T_OK(tide_device_use(d, n.tags[0], n.stream));
  T_OK(tide_device_use(d, n.tags[1], n.stream));
  T_CHECK(!is_parked(d, n.tags[0]) && !is_parked(d, n.tags[1]) && is_parked(d, n.tags[2]));
  all_expect(m, n.blocks[0], LAYER_BLOCKS);
  T_OK(tide_device_done(d, n.tags[0], n.stream));
  T_OK(tide_device_done(d, n.tags[1], n.stream));
  network_end(d, &n);
}

// ---------------------------------------------------------------------------------------------------
// An order that was learnt

static void rounds_run(tide_machine* m, tide_device_cache* d, const network* n, size_t rounds) {
  for (size_t i = 0; i < rounds * LAYERS; ++i) layer_run(m, d, n, i % LAYERS);
}

// How often each layer is parked in some rounds.
static void rounds_count(tide_machine* m, tide_device_cache* d, const network* n, size_t rounds,
                         uint64_t parked[LAYERS]) {
  for (size_t i = 0; i < LAYERS; ++i) parked[i] = budget_stats(d, n->tags[i]).parked_count;
  rounds_run(m, d, n, rounds);
  for (size_t i = 0; i < LAYERS; ++i) parked[i] = budget_stats(d, n->tags[i]).parked_count - parked[i];
}

// Beside two layers that come and go, two stay. They are as far apart as the round allows.
DEVICE_TEST_OVER(test_use__layers_that_stay_are_spread_evenly, tide_emulated) {
  uint64_t parked[LAYERS];
  size_t kept[LAYERS];
  size_t count = 0;
  network n;
  network_init(m, d, &n, 4, true);
  rounds_run(m, d, &n, 4);
  rounds_count(m, d, &n, 5, parked);
  for (size_t i = 0; i < LAYERS; ++i) {
    if (parked[i] == 0) kept[count++] = i;
    else T_LE(parked[i], 5);
  }
  T_EQ(count, 2);
  T_EQ(kept[1] - kept[0], LAYERS / 2);
  network_end(d, &n);
}

static void limit_layers(tide_device_cache* d, uint64_t units) {
  tide_budget budget = yielding(0);
  budget.limit = units * UNIT;
  budget.is_constant = true;
  budget_to(d, "net", budget);
}

// With 15 units one layer stays. When the limit is lowered to that again, another layer goes, although the
// next use of this one is the furthest away.
DEVICE_TEST_OVER(test_use__a_layer_that_stays_gives_way_last, tide_emulated) {
  uint64_t parked[LAYERS];
  size_t kept = 0;
  network n;
  network_init(m, d, &n, 4, true);
  limit_layers(d, 15);
  rounds_run(m, d, &n, 4);
  rounds_count(m, d, &n, 5, parked);
  while (kept < LAYERS && parked[kept] > 0) ++kept;
  T_LT(kept, LAYERS);
  limit_layers(d, 16);
  rounds_run(m, d, &n, 2);
  for (size_t i = 0; i <= kept; ++i) layer_run(m, d, &n, i);
  T_EQ(reserved_under(d, "net"), 16 * UNIT);

  limit_layers(d, 15);

  T_LE(reserved_under(d, "net"), 15 * UNIT);
  T_CHECK(!is_parked(d, n.tags[kept]));
  network_end(d, &n);
}

DEVICE_TEST_OVER(test_use__priorities_decide_who_stays, tide_emulated) {
  uint64_t parked[LAYERS];
  network n;
  network_init(m, d, &n, 4, true);
  tide_budget low = yielding(-1);
  tide_budget high = yielding(1);
  low.is_constant = high.is_constant = true;
  budget_to(d, n.tags[1], high);
  budget_to(d, n.tags[2], high);
  rounds_run(m, d, &n, 4);
  rounds_count(m, d, &n, 5, parked);
  for (size_t i = 0; i < LAYERS; ++i) T_EQ(parked[i] == 0, i == 1 || i == 2);

  budget_to(d, n.tags[1], low);
  budget_to(d, n.tags[2], low);
  rounds_run(m, d, &n, 2);
  rounds_count(m, d, &n, 5, parked);
  T_LE(5, parked[1]);
  T_LE(5, parked[2]);
  network_end(d, &n);
}

// As in training: each layer has two places in a round, and another neighbour follows each time.
DEVICE_TEST_OVER(test_use__an_order_there_and_back_is_learnt, tide_emulated) {
  network n;
  network_init(m, d, &n, 3, true);
  for (size_t step = 0; step < 6; ++step) {
    const uint64_t ahead = budget_stats(d, "net").ahead_count;
    for (size_t i = 0; i < LAYERS; ++i) layer_run(m, d, &n, i);
    for (size_t i = LAYERS; i-- > 0;) layer_run(m, d, &n, i);
    if (step == 1) T_EQ(ahead, 0);
    if (step >= 3) T_LE(ahead + 4, budget_stats(d, "net").ahead_count);
  }
  network_end(d, &n);
}

// Three times the new order, and it is learnt; a tag that is left out does not end it.
DEVICE_TEST_OVER(test_use__another_order_is_learnt, tide_emulated) {
  network n;
  network_init(m, d, &n, 3, true);
  rounds_run(m, d, &n, 4);
  for (size_t i = 3 * LAYERS; i-- > 0;) layer_run(m, d, &n, i % LAYERS);
  uint64_t ahead = budget_stats(d, "net").ahead_count;
  for (size_t i = LAYERS; i-- > 0;) layer_run(m, d, &n, i);
  T_LE(ahead + LAYERS / 2, budget_stats(d, "net").ahead_count);

  layer_run(m, d, &n, 5);  // without 4
  ahead = budget_stats(d, "net").ahead_count;
  for (size_t i = 4; i-- > 0;) layer_run(m, d, &n, i);
  T_LT(ahead, budget_stats(d, "net").ahead_count);
  network_end(d, &n);
}
