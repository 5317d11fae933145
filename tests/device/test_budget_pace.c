// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The time of a model larger than its budget, on the clock of the dry machine, with the prices of an H200.
// A round takes at least as long as its work, and as the copies of what does not fit: at the beginning of a
// pass over all layers, no more than the limit is in place. Rounds come close to the larger of the two.
#include "device/budget.h"

enum { LAYERS = 40, WARM_ROUNDS = 5, ROUNDS = 6, MOST_PERCENT = 115 };
static const uint64_t limit = 24 * GIB;

typedef enum layer_sizes { EQUAL, DIFFERENT } layer_sizes;
typedef enum layer_order { FORWARD, THERE_AND_BACK } layer_order;

typedef struct big_model {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream stream;
  layer_order order;
  char tags[LAYERS][16];
  uint64_t total_bytes;
} big_model;

// 1.5 GiB, or half of that to three halves.
static uint64_t layer_bytes(layer_sizes sizes, t_rng* rng) {
  return sizes == EQUAL ? 3 * GIB / 2 : 3 * GIB / 4 + t_rng_below(rng, 3 * GIB / 2 / UNIT) * UNIT;
}

static void model_init(big_model* b, layer_sizes sizes, layer_order order, const tide_dry_costs* costs) {
  tide_dry_options machine = TIDE_DRY_OPTIONS_INIT;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_budget budget = yielding(0);
  t_rng rng = t_rng_new(40);
  *b = (big_model){ .order = order };
  options.policy = TIDE_POLICY_TIDE;
  budget.limit = limit;
  budget.is_constant = true;
  machine.costs = costs;
  T_OK(tide_machine_new_dry(&machine, &b->m));
  T_OK(tide_device_new(b->m, 0, &options, &b->d));
  T_OK(tide_machine_stream_new(b->m, 0, 0, 0, &b->stream));
  budget_to(b->d, "model", budget);
  for (size_t i = 0; i < LAYERS; ++i) {
    const uint64_t bytes = layer_bytes(sizes, &rng);
    (void)snprintf(b->tags[i], sizeof b->tags[i], "model/%zu", i);
    const tide_pool pool = tagged(b->d, b->tags[i]);
    T_OK(tide_device_use(b->d, b->tags[i], b->stream));
    (void)take_tagged(b->d, pool, b->stream, bytes);
    T_OK(tide_device_done(b->d, b->tags[i], b->stream));
    b->total_bytes += bytes;
  }
}

static void model_fini(const big_model* b) {
  tide_device_free(b->d);
  tide_machine_free(b->m);
}

static void layer_run(const big_model* b, size_t layer, uint64_t work_ns) {
  T_OK(tide_device_use(b->d, b->tags[layer], b->stream));
  T_OK(tide_dry_work(b->m, 0, b->stream, work_ns));
  T_OK(tide_device_done(b->d, b->tags[layer], b->stream));
}

static void model_round(const big_model* b, uint64_t work_ns) {
  for (size_t i = 0; i < LAYERS; ++i) layer_run(b, i, work_ns);
  for (size_t i = LAYERS; i-- > 0 && b->order == THERE_AND_BACK;) layer_run(b, i, work_ns);
}

static uint64_t machine_ns(tide_machine* m) {
  uint64_t now_ns = 0;
  T_OK(tide_machine_device_synchronize(m, 0));
  T_OK(tide_machine_clock(m, &now_ns));
  return now_ns;
}

static uint64_t bound_ns(const big_model* b, uint64_t work_ns) {
  const tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  const uint64_t passes = b->order == THERE_AND_BACK ? 2 : 1;
  const uint64_t bus_ns = passes * ((b->total_bytes - limit) / MIB) * costs.copy_per_mib;
  return bus_ns > passes * LAYERS * work_ns ? bus_ns : passes * LAYERS * work_ns;
}

// Percent of the bound.
static uint64_t model_pace(layer_sizes sizes, layer_order order, const tide_dry_costs* costs,
                           uint64_t work_ns) {
  big_model b;
  model_init(&b, sizes, order, costs);
  for (size_t i = 0; i < WARM_ROUNDS; ++i) model_round(&b, work_ns);
  const uint64_t begin_ns = machine_ns(b.m);
  for (size_t i = 0; i < ROUNDS; ++i) model_round(&b, work_ns);
  const uint64_t took_ns = machine_ns(b.m) - begin_ns;
  const uint64_t percent = took_ns * 100 / (ROUNDS * bound_ns(&b, work_ns));
  T_LE(100, percent);  // the bound is one
  model_fini(&b);
  return percent;
}

// In microseconds: from hardly any work to twice the time of a copy.
static const uint64_t works[] = { 300, 1000, 5000, 10000, 15000, 20000, 30000, 60000 };

static void paces_expect(layer_sizes sizes, layer_order order, const tide_dry_costs* costs) {
  for (size_t i = 0; i < sizeof works / sizeof works[0]; ++i) {
    const uint64_t percent = model_pace(sizes, order, costs, works[i] * 1000);
    if (percent > MOST_PERCENT) {
      T_FAIL("work of %llu us: %llu %% of the bound", (unsigned long long)works[i],
             (unsigned long long)percent);
    }
  }
}

T_TEST(test_pace__equal_layers) { paces_expect(EQUAL, FORWARD, NULL); }
T_TEST(test_pace__layers_of_different_sizes) {
  t_only_thorough();
  paces_expect(DIFFERENT, FORWARD, NULL);
}
T_TEST(test_pace__equal_layers_there_and_back) {
  t_only_thorough();
  paces_expect(EQUAL, THERE_AND_BACK, NULL);
}
T_TEST(test_pace__layers_of_different_sizes_there_and_back) {
  t_only_thorough();
  paces_expect(DIFFERENT, THERE_AND_BACK, NULL);
}

// The layer that comes takes over the memory of the one that goes: a device clears new memory, which holds up
// copies.
T_TEST(test_pace__memory_passes_from_layer_to_layer) {
  t_only_thorough();
  tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  costs.physical_new = costs.physical_free = 100000000;
  paces_expect(EQUAL, FORWARD, &costs);
}
