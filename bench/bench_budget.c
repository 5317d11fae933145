// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What budgets cost, on the dry machine.
//   pairs  a release and an allocation in the pools of 50 tags in turn, without budgets and with one for
//          each tag. For scripts/count-instructions, TIDE_BENCH_BUDGETS (0 or 1) and TIDE_BENCH_PAIRS run
//          only these.
//   paces  rounds over 40 layers of 60 GiB under a limit of 24 GiB, with the prices of an H200: their time
//          over a bound, which is the larger of the work and of the copies of what does not fit. Contents
//          that change are copied away as well.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/budget.h"
#include "tidemark/device.h"

static const uint64_t mib = (uint64_t)1 << 20;
static const uint64_t gib = (uint64_t)1 << 30;

static void row(bench* run, const char* what, double value, const char* unit) {
  bench_row(run, "budget", what, value, unit);
}

typedef struct rig {
  tide_machine* machine;
  tide_device_cache* device;
} rig;

static rig rig_new(void) {
  rig r = { NULL, NULL };
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = TIDE_POLICY_TIDE;
  bench_require(tide_machine_new_dry(NULL, &r.machine), "machine_new_dry");
  bench_require(tide_device_new(r.machine, 0, &options, &r.device), "device_new");
  return r;
}

static void rig_free(rig r) {
  tide_device_free(r.device);
  tide_machine_free(r.machine);
}

static void budget_set(rig r, const char* tag, const tide_budget* budget) {
  bench_require(tide_device_budget_set(r.device, tag, budget), "budget_set");
}

static tide_pool pool_new(rig r, const char* tag) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_pool pool = 0;
  options.tag = tag;
  bench_require(tide_device_pool_new(r.device, &options, &pool), "pool_new");
  return pool;
}

static void region_begin(rig r, tide_pool pool) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.is_region = true;
  bench_require(tide_device_pool_begin(r.device, pool, &scope), "pool_begin");
}

// ---------------------------------------------------------------------------------------------------
// Pairs

enum { TAGS = 50, LIVE = 16, PAIRS = 4000, SEED = 25 };  // blocks and pairs of each tag
static const uint64_t all_pairs = (uint64_t)PAIRS * TAGS;

typedef struct tagged_pairs {
  rig rig;
  tide_pool pools[TAGS];
  tide_block blocks[TAGS][LIVE];
  uint32_t sizes[PAIRS];
  uint32_t picks[PAIRS];
} tagged_pairs;

// The pairs of one tag after another; a region lasts for the pairs of a tag, so it costs next to nothing.
static void pairs_work(void* user, uint64_t count) {
  tagged_pairs* const p = user;
  for (size_t t = 0; t < TAGS; t++) {
    region_begin(p->rig, p->pools[t]);
    for (size_t i = 0; i < count / TAGS; i++) {
      tide_block* const block = &p->blocks[t][p->picks[i]];
      if (tide_device_release(p->rig.device, *block) != TIDE_OK) abort();
      if (tide_device_alloc(p->rig.device, NULL, p->sizes[i], block) != TIDE_OK) abort();
    }
    bench_require(tide_device_pool_end(p->rig.device, p->pools[t]), "pool_end");
  }
}

static tagged_pairs* pairs_new(bool has_budgets) {
  tagged_pairs* const p = bench_alloc(1, sizeof *p);
  uint64_t state = SEED;
  p->rig = rig_new();
  for (size_t i = 0; i < PAIRS; i++) {
    p->sizes[i] = 512 + (uint32_t)(bench_random(&state) % mib);
    p->picks[i] = (uint32_t)(bench_random(&state) % LIVE);
  }
  for (size_t t = 0; t < TAGS; t++) {
    char tag[32];
    tide_budget budget = TIDE_BUDGET_INIT;
    (void)snprintf(tag, sizeof tag, "job%zu/part%zu", t / 10, t);
    budget.limit = gib;
    budget.guarantee = 64 * mib;
    budget.yields = true;
    if (has_budgets) budget_set(p->rig, tag, &budget);
    p->pools[t] = pool_new(p->rig, tag);
    region_begin(p->rig, p->pools[t]);
    for (size_t i = 0; i < LIVE; i++) {
      bench_require(tide_device_alloc(p->rig.device, NULL, p->sizes[i], &p->blocks[t][i]), "alloc");
    }
    bench_require(tide_device_pool_end(p->rig.device, p->pools[t]), "pool_end");
  }
  pairs_work(p, all_pairs);  // pools grow to what they need
  return p;
}

static void pairs_free(tagged_pairs* p) {
  rig_free(p->rig);
  free(p);
}

static void reference_work(void* user, uint64_t count) {
  (void)user;
  while (count-- > 0) {
    void* volatile memory = malloc(64);
    free(memory);
  }
}

// Both are measured in turns, because what else runs on the computer changes.
static void measure_pairs(bench* run) {
  enum { TURNS = 7 };
  tagged_pairs* const pairs[2] = { pairs_new(false), pairs_new(true) };
  double ns[2][TURNS];
  double more[TURNS];
  const bench_job reference = { .work = reference_work, .count = 1000000 };
  row(run, "reference: malloc and free of 64 B", bench_ns(&reference), "ns");
  for (size_t i = 0; i < TURNS; i++) {
    for (size_t k = 0; k < 2; k++) {
      const bench_job job = { .work = pairs_work, .user = pairs[k], .count = all_pairs };
      ns[k][i] = bench_ns(&job);
    }
    more[i] = ns[1][i] - ns[0][i];
  }
  row(run, "pair in pools of 50 tags, no budgets", bench_median(ns[0], TURNS), "ns");
  row(run, "pair in pools of 50 tags, a budget each", bench_median(ns[1], TURNS), "ns");
  row(run, "the same, difference", bench_median(more, TURNS), "ns");
  pairs_free(pairs[0]);
  pairs_free(pairs[1]);
}

static void count_pairs(bool has_budgets, uint64_t pairs) {
  bench_verify(pairs <= all_pairs, "there are no so many pairs");
  tagged_pairs* const p = pairs_new(has_budgets);
  pairs_work(p, pairs);
  (void)printf("%llu pairs with%s budgets\n", (unsigned long long)pairs, has_budgets ? "" : "out");
  pairs_free(p);
}

// ---------------------------------------------------------------------------------------------------
// Paces

enum { LAYERS = 40, WARM_ROUNDS = 5, ROUNDS = 6 };

typedef struct pace_case {
  const char* name;
  bool has_sizes;  // layers have half of 1.5 GiB to three halves, at random
  bool goes_back;  // each round goes through the layers there and back
  bool is_constant;
} pace_case;

typedef struct model {
  rig rig;
  pace_case kind;
  tide_stream stream;
  char tags[LAYERS][16];
  uint64_t total_bytes;
} model;

static const uint64_t model_limit = (uint64_t)24 << 30;

static model model_new(pace_case kind) {
  model m = { .rig = rig_new(), .kind = kind };
  tide_budget budget = TIDE_BUDGET_INIT;
  uint64_t state = SEED;
  budget.limit = model_limit;
  budget.yields = true;
  budget.is_constant = kind.is_constant;
  budget_set(m.rig, "model", &budget);
  bench_require(tide_machine_stream_new(m.rig.machine, 0, 0, 0, &m.stream), "stream_new");
  for (size_t i = 0; i < LAYERS; i++) {
    const uint64_t random = 3 * gib / 4 + bench_random(&state) % (3 * gib / 2 / (2 * mib)) * (2 * mib);
    const uint64_t bytes = kind.has_sizes ? random : 3 * gib / 2;
    tide_block block = { NULL, 0 };
    (void)snprintf(m.tags[i], sizeof m.tags[i], "model/%zu", i);
    const tide_pool pool = pool_new(m.rig, m.tags[i]);
    bench_require(tide_device_use(m.rig.device, m.tags[i], m.stream), "use");
    region_begin(m.rig, pool);
    bench_require(tide_device_alloc(m.rig.device, m.stream, bytes, &block), "alloc");
    bench_require(tide_device_pool_end(m.rig.device, pool), "pool_end");
    bench_require(tide_device_done(m.rig.device, m.tags[i], m.stream), "done");
    m.total_bytes += bytes;
  }
  return m;
}

static void layer_run(const model* m, size_t layer, uint64_t work_ns) {
  bench_require(tide_device_use(m->rig.device, m->tags[layer], m->stream), "use");
  bench_require(tide_dry_work(m->rig.machine, 0, m->stream, work_ns), "work");
  bench_require(tide_device_done(m->rig.device, m->tags[layer], m->stream), "done");
}

static void rounds_run(const model* m, size_t rounds, uint64_t work_ns) {
  for (size_t r = 0; r < rounds; r++) {
    for (size_t i = 0; i < LAYERS; i++) layer_run(m, i, work_ns);
    for (size_t i = LAYERS; i-- > 0 && m->kind.goes_back;) layer_run(m, i, work_ns);
  }
  bench_require(tide_machine_device_synchronize(m->rig.machine, 0), "synchronize");
}

static uint64_t clock_ns(const model* m) {
  uint64_t ns = 0;
  bench_require(tide_machine_clock(m->rig.machine, &ns), "clock");
  return ns;
}

static uint64_t bound_ns(const model* m, uint64_t work_ns) {
  const tide_dry_costs costs = TIDE_DRY_COSTS_INIT;
  const uint64_t passes = m->kind.goes_back ? 2 : 1;
  const uint64_t ways = m->kind.is_constant ? 1 : 2;
  const uint64_t bus_ns = passes * ways * ((m->total_bytes - model_limit) / mib) * costs.copy_per_mib;
  const uint64_t all_ns = passes * LAYERS * work_ns;
  return bus_ns > all_ns ? bus_ns : all_ns;
}

static void measure_pace(bench* run, pace_case kind, uint64_t work_us) {
  const model m = model_new(kind);
  char what[80];
  rounds_run(&m, WARM_ROUNDS, work_us * 1000);
  const uint64_t begin_ns = clock_ns(&m);
  rounds_run(&m, ROUNDS, work_us * 1000);
  const uint64_t took_ns = clock_ns(&m) - begin_ns;
  (void)snprintf(what, sizeof what, "%s, work of %.1f ms", kind.name, (double)work_us / 1e3);
  row(run, what, (double)took_ns / (double)(ROUNDS * bound_ns(&m, work_us * 1000)), "of the bound");
  rig_free(m.rig);
}

static void measure_paces(bench* run) {
  static const uint64_t works_us[] = { 300, 1000, 5000, 10000, 15000, 20000, 30000, 60000 };
  static const pace_case cases[] = {
    { "40 layers", false, false, true },
    { "40 layers of different sizes", true, false, true },
    { "40 layers there and back", false, true, true },
    { "different sizes there and back", true, true, true },
    { "40 layers that change", false, false, false },
    { "40 layers that change, there and back", false, true, false },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t k = 0; k < sizeof works_us / sizeof *works_us; k++) measure_pace(run, cases[i], works_us[k]);
  }
}

void bench_budget(bench* run) {
  const char* const budgets = getenv("TIDE_BENCH_BUDGETS");
  const char* const pairs = getenv("TIDE_BENCH_PAIRS");
  if (budgets != NULL) {
    count_pairs(strcmp(budgets, "1") == 0, pairs != NULL ? strtoul(pairs, NULL, 10) : all_pairs);
    return;
  }
  measure_pairs(run);
  measure_paces(run);
}
