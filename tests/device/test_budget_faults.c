// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Budgets when things go wrong, and with threads: faults at every call of the machine, no memory for records,
// and eight threads with a tag each.
#define T_THREADS
#include "device/budget.h"

static const char* const tide_host[] = { "host tide", NULL };

enum { PROBE = 4096 };  // bytes

// ---------------------------------------------------------------------------------------------------
// Faults

// Each round starts threads, which the thread sanitizer makes slow.
enum { LAYERS = 3 };

typedef struct layer_stage {
  tide_pool pools[LAYERS];
  known blocks[LAYERS];
  tide_stream stream;
} layer_stage;

static const char* const layers[LAYERS] = { "net/0", "net/1", "net/2" };

// Three layers, of which two fit.
static layer_stage stage_new(tide_machine* m, tide_device_cache* d, bool is_constant) {
  layer_stage s = { .stream = side_new(m) };
  tide_budget budget = yielding(0);
  small_handles(d);
  budget.limit = 6 * UNIT;
  budget.is_constant = is_constant;
  budget_to(d, "net", budget);
  for (size_t i = 0; i < LAYERS; ++i) {
    s.pools[i] = tagged(d, layers[i]);
    T_OK(tide_device_use(d, layers[i], s.stream));
    s.blocks[i] = known_new(m, d, s.pools[i], s.stream, 3 * UNIT, i + 1);
    T_OK(tide_device_done(d, layers[i], s.stream));
  }
  return s;
}

static void stage_run(tide_machine* m, tide_device_cache* d, const layer_stage* s) {
  for (size_t i = 0; i < LAYERS; ++i) {
    T_OK(tide_device_use(d, layers[i], s->stream));
    known_expect(m, &s->blocks[i]);
    T_OK(tide_device_done(d, layers[i], s->stream));
    T_LE(reserved_under(d, "net"), 6 * UNIT);
  }
}

static uint64_t failures(const tide_machine* m) { return tide_machine_call_stats(m, TIDE_CALL_ANY).failures; }

static void fault_set(tide_machine* m, uint64_t skip, uint64_t count) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.status = (uint32_t)(skip % 3 == 2 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE);
  fault.skip = skip;
  fault.count = count;
  T_OK(tide_machine_fault_add(m, &fault));
}

// One call fails, or all from one on until the end of the use.
static void faults_in_use(tide_machine* m, tide_device_cache* d, bool is_constant, uint64_t count) {
  const layer_stage s = stage_new(m, d, is_constant);
  bool has_failed = true;
  stage_run(m, d, &s);
  for (uint64_t skip = t_sample_first(); has_failed; skip += t_sample_step()) {
    const char* const tag = layers[skip % LAYERS];
    T_LT(skip, 10000);
    const uint64_t before = failures(m);
    fault_set(m, skip, count);
    const tide_status status = tide_device_use(d, tag, s.stream);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status == TIDE_OK) T_OK(tide_device_done(d, tag, s.stream));
    T_EQ(budget_stats(d, "net").use_count, 0);
    device_expect_valid(d);
    stage_run(m, d, &s);
  }
  all_give(d, s.blocks, LAYERS);
}

DEVICE_TEST_OVER(test_budget__a_fault_at_any_call_of_a_use_loses_nothing, tide_host) {
  faults_in_use(m, d, false, 1);
}

DEVICE_TEST_OVER(test_budget__a_fault_while_nothing_is_copied_loses_nothing, tide_host) {
  faults_in_use(m, d, true, 1);
}

DEVICE_TEST_OVER(test_budget__a_machine_that_fails_for_good_in_a_use_loses_nothing, tide_host) {
  faults_in_use(m, d, true, UINT64_MAX);
}

// A request that makes others give way meets the same faults.
DEVICE_TEST_OVER(test_budget__a_fault_in_a_request_that_others_give_way_to_loses_nothing, tide_host) {
  const layer_stage s = stage_new(m, d, false);
  bool has_failed = true;
  limit_to(d, 7 * UNIT);
  for (uint64_t skip = t_sample_first(); has_failed; skip += t_sample_step()) {
    tide_block block = { NULL, 0 };
    T_LT(skip, 10000);
    stage_run(m, d, &s);
    const uint64_t before = failures(m);
    fault_set(m, skip, 1);
    const tide_status status = tide_device_alloc(d, NULL, 4 * UNIT, &block);
    has_failed = failures(m) != before;
    tide_machine_fault_clear(m);
    if (!has_failed) T_STATUS(status, TIDE_OK);
    if (status == TIDE_OK) give(d, block);
    device_expect_valid(d);
  }
  stage_run(m, d, &s);
  all_give(d, s.blocks, LAYERS);
}

// Memory for records runs out at every allocation in turn.
DEVICE_TEST_OVER(test_budget__without_memory_for_records_nothing_is_lost, tide_host) {
  counting_heap records;
  counting_heap_init(&records, SIZE_MAX, true);
  tide_device_cache* const own = device_new(m, 0, &records.heap);
  const layer_stage s = stage_new(m, own, true);
  bool is_done = false;
  stage_run(m, own, &s);
  for (size_t allowed = t_sample_first(); !is_done; allowed += t_sample_step()) {
    const char* const tag = layers[allowed % LAYERS];
    T_LT(allowed, 10000);
    atomic_store(&records.has_failed, false);
    atomic_store(&records.fail_at, atomic_load(&records.allocs) + allowed);
    const tide_status status = tide_device_use(own, tag, s.stream);
    is_done = !atomic_load(&records.has_failed);
    atomic_store(&records.fail_at, SIZE_MAX);
    if (is_done || status == TIDE_OK) T_STATUS(status, TIDE_OK);
    else T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (status == TIDE_OK) T_OK(tide_device_done(own, tag, s.stream));
    device_expect_valid(own);
    stage_run(m, own, &s);
  }
  all_give(own, s.blocks, LAYERS);
  tide_device_free(own);
  T_EQ(atomic_load(&records.outstanding), 0);
  (void)d;
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { THREADS = 8 };

typedef struct budget_crowd {
  tide_machine* m;
  tide_device_cache* d;
  atomic_int next;
  atomic_size_t used;
} budget_crowd;

// Each thread has a tag of its own, all of them under one limit, and allocates in the default pool as well.
static void* crowd_work(void* user) {
  budget_crowd* const c = user;
  const int number = atomic_fetch_add(&c->next, 1);
  const size_t rounds = t_scaled(40);
  const tide_stream stream = side_new(c->m);
  t_rng rng = t_rng_new(300 + (uint64_t)number);
  char tag[16];
  (void)snprintf(tag, sizeof tag, "net/%d", number);
  const tide_pool pool = tagged(c->d, tag);
  known k = { .block = { NULL, 0 } };
  for (size_t i = 0; i < rounds; ++i) {
    tide_block other = { NULL, 0 };
    if (number == 0 && i % 8 == 0) {
      tide_budget budget = yielding((int32_t)i % 3);
      budget.limit = (6 + t_rng_below(&rng, 6)) * UNIT;
      budget.is_constant = i % 16 == 0;
      budget_to(c->d, "net", budget);
    }
    tide_status status = tide_device_use(c->d, tag, stream);
    if (status == TIDE_OK) {
      tide_block block = { NULL, 0 };
      if (k.block.address == NULL && try_tagged(c->d, pool, stream, UNIT, &block) == TIDE_OK) {
        k = (known){ .block = block, .bytes = PROBE, .stream = stream };
        known_write(c->m, &k, i + 1);
      }
      if (k.block.address != NULL) known_expect(c->m, &k);
      T_OK(tide_device_done(c->d, tag, stream));
      (void)atomic_fetch_add(&c->used, 1);
    } else {
      T_STATUS(status, TIDE_ERR_NO_MEMORY);
    }
    status = tide_device_alloc(c->d, stream, (1 + t_rng_below(&rng, 3)) * UNIT, &other);
    if (status == TIDE_OK) give(c->d, other);
    else T_STATUS(status, TIDE_ERR_NO_MEMORY);
    if (k.block.address != NULL && t_rng_below(&rng, 4) == 0) {
      give(c->d, k.block);
      k.block.address = NULL;
    }
  }
  if (k.block.address != NULL) give(c->d, k.block);
  return NULL;
}

DEVICE_TEST_OVER(test_budget__threads_use_their_tags_under_one_limit, tide_host) {
  budget_crowd c = { .m = m, .d = d };
  small_handles(d);
  limit_to(d, 16 * UNIT);
  budget_to(d, "net", yielding(0));
  run_threads(THREADS, crowd_work, &c);
  T_LT(0, atomic_load(&c.used));
  T_OK(tide_device_budget_set(d, "net", NULL));
}
