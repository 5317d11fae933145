// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Giving way: in which order idle memory and tags that yield make room for a request, and what never gives
// way.
#define T_THREADS
#include "device/budget.h"

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };
static const char* const tide_host[] = { "host tide", NULL };

// ---------------------------------------------------------------------------------------------------
// Idle memory

DEVICE_TEST_OVER(test_giving__its_own_idle_memory_goes_first, tide_emulated) {
  const tide_pool own = tagged(d, "own");
  const tide_pool other = tagged(d, "other");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "other", softly(0));
  const tide_block hole = take_tagged(d, own, NULL, 2 * UNIT);
  const tide_block held = take_tagged(d, own, NULL, UNIT);
  give(d, hole);
  leave_idle(d, other, 3 * UNIT);

  const tide_block block = take_tagged(d, own, NULL, 4 * UNIT);

  T_EQ(reserved_under(d, "own"), 5 * UNIT);
  T_EQ(reserved_under(d, "other"), 3 * UNIT);
  give(d, held);
  give(d, block);
}

DEVICE_TEST_OVER(test_giving__idle_memory_above_a_soft_limit_goes_before_that_of_others, tide_emulated) {
  const tide_pool soft = tagged(d, "soft/x");
  const tide_pool other = tagged(d, "other");
  const tide_pool asker = tagged(d, "asker");
  small_handles(d);
  limit_to(d, 12 * UNIT);
  budget_to(d, "soft", softly(2 * UNIT));
  leave_idle(d, soft, 5 * UNIT);
  leave_idle(d, other, 5 * UNIT);

  const tide_block first = take_tagged(d, asker, NULL, 4 * UNIT);
  T_EQ(reserved_under(d, "soft"), 3 * UNIT);  // as much as is needed
  T_EQ(reserved_under(d, "other"), 5 * UNIT);
  const tide_block second = take_tagged(d, asker, NULL, UNIT);
  T_EQ(reserved_under(d, "soft"), 2 * UNIT);
  T_EQ(reserved_under(d, "other"), 5 * UNIT);
  const tide_block third = take_tagged(d, asker, NULL, 7 * UNIT);  // all idle memory goes for it
  T_EQ(reserved_under(d, "soft") + reserved_under(d, "other"), 0);

  give(d, first);
  give(d, second);
  give(d, third);
}

// The limit of a tag is in the way: memory elsewhere would not help.
DEVICE_TEST_OVER(test_giving__only_memory_under_the_tag_in_the_way_goes, tide_emulated) {
  const tide_pool a = tagged(d, "tenant/a");
  const tide_pool b = tagged(d, "tenant/b");
  const tide_pool other = tagged(d, "other");
  small_handles(d);
  budget_to(d, "tenant", limited(6 * UNIT));
  budget_to(d, "other", softly(0));
  leave_idle(d, b, 4 * UNIT);
  leave_idle(d, other, 4 * UNIT);
  give(d, take(d, NULL, 4 * UNIT));
  configure(d, "tide_idle_handles:64");  // so that nothing makes way for other reasons

  const tide_block block = take_tagged(d, a, NULL, 5 * UNIT);

  T_EQ(reserved_under(d, "tenant/b"), UNIT);
  T_EQ(reserved_under(d, "other"), 4 * UNIT);
  T_EQ(current(d, reserved_bytes), (int64_t)(14 * UNIT));
  give(d, block);
}

// ---------------------------------------------------------------------------------------------------
// Parking

enum { PARTS = 4 };
static const char* const parts[PARTS] = { "model/0", "model/1", "model/2", "model/3" };

typedef struct model {
  tide_pool pools[PARTS];
  known blocks[PARTS];
} model;

// Four parts of two units each, used in their order.
static model model_new(tide_machine* m, tide_device_cache* d) {
  model w;
  small_handles(d);
  for (size_t i = 0; i < PARTS; ++i) {
    w.pools[i] = tagged(d, parts[i]);
    w.blocks[i] = known_new(m, d, w.pools[i], NULL, 2 * UNIT, i + 1);
    use(d, parts[i]);
    done(d, parts[i]);
  }
  return w;
}

static void model_end(tide_machine* m, tide_device_cache* d, const model* w) {
  limit_to(d, TIDE_NO_LIMIT);
  (void)unpark(d, "model");
  all_expect(m, w->blocks, PARTS);
  all_give(d, w->blocks, PARTS);
}

// Which parts are parked, as bits.
static unsigned parked_parts(tide_device_cache* d) {
  unsigned bits = 0;
  for (unsigned i = 0; i < PARTS; ++i) bits |= (unsigned)is_parked(d, parts[i]) << i;
  return bits;
}

DEVICE_TEST_OVER(test_giving__the_longest_unused_part_is_parked_first, tide_emulated) {
  const model w = model_new(m, d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(0));
  use(d, parts[0]);
  done(d, parts[0]);

  const tide_block first = take(d, NULL, UNIT);
  T_EQ(parked_parts(d), 2);
  const tide_block second = take(d, NULL, 3 * UNIT);
  T_EQ(parked_parts(d), 2 | 4);
  const tide_block third = take(d, NULL, 4 * UNIT);
  T_EQ(parked_parts(d), 15);

  T_EQ(budget_stats(d, "model").parked_count, 4);
  give(d, first);
  give(d, second);
  give(d, third);
  model_end(m, d, &w);
}

DEVICE_TEST_OVER(test_giving__the_lowest_priority_is_parked_first, tide_emulated) {
  const model w = model_new(m, d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(3));
  budget_to(d, "model/2", yielding(-1));
  budget_to(d, "model/3", yielding(2));

  const tide_block first = take(d, NULL, 2 * UNIT);
  T_EQ(parked_parts(d), 4);
  const tide_block second = take(d, NULL, 2 * UNIT);
  T_EQ(parked_parts(d), 4 | 8);

  give(d, first);
  give(d, second);
  model_end(m, d, &w);
}

DEVICE_TEST_OVER(test_giving__what_exceeds_its_soft_limit_is_parked_first, tide_emulated) {
  const model w = model_new(m, d);
  tide_budget budget = yielding(5);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(0));
  budget.soft_limit = UNIT;
  budget_to(d, "model/3", budget);

  const tide_block block = take(d, NULL, UNIT);

  T_EQ(parked_parts(d), 8);
  give(d, block);
  model_end(m, d, &w);
}

DEVICE_TEST_OVER(test_giving__what_is_in_use_or_does_not_yield_or_is_guaranteed_stays, tide_emulated) {
  const model w = model_new(m, d);
  tide_budget budget = yielding(0);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(0));
  budget_to(d, "model/1", budget_none());
  budget.guarantee = UNIT;
  budget_to(d, "model/2", budget);
  use(d, "model/0");

  T_STATUS(try_take(d, NULL, 3 * UNIT), TIDE_ERR_NO_MEMORY);
  T_EQ(parked_parts(d), 0);  // nothing is parked in vain
  const tide_block block = take(d, NULL, 2 * UNIT);
  T_EQ(parked_parts(d), 8);
  use(d, "model/0");  // uses are counted
  done(d, "model/0");
  T_STATUS(try_take(d, NULL, UNIT), TIDE_ERR_NO_MEMORY);
  done(d, "model/0");
  const tide_block more = take(d, NULL, UNIT);

  T_EQ(parked_parts(d), 8 | 1);
  give(d, block);
  give(d, more);
  model_end(m, d, &w);
}

// A use of a tag holds all tags below it.
DEVICE_TEST_OVER(test_giving__a_use_holds_those_below, tide_emulated) {
  const model w = model_new(m, d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(0));
  use(d, "model");
  T_STATUS(try_take(d, NULL, UNIT), TIDE_ERR_NO_MEMORY);
  T_EQ(parked_parts(d), 0);
  done(d, "model");
  const tide_block block = take(d, NULL, UNIT);
  give(d, block);
  model_end(m, d, &w);
}

DEVICE_TEST_OVER(test_giving__idle_memory_goes_before_anything_is_parked, tide_emulated) {
  const model w = model_new(m, d);
  const tide_pool other = tagged(d, "other");
  limit_to(d, 12 * UNIT);
  budget_to(d, "model", yielding(0));
  leave_idle(d, other, 2 * UNIT);
  give(d, take(d, NULL, 2 * UNIT));

  const tide_block block = take_tagged(d, w.pools[0], NULL, 4 * UNIT);
  T_EQ(parked_parts(d), 0);
  T_EQ(reserved_under(d, "other"), 0);

  give(d, block);
  model_end(m, d, &w);
}

DEVICE_TEST_OVER(test_giving__a_lowered_limit_parks_what_yields, tide_emulated) {
  const model w = model_new(m, d);
  tide_budget budget = yielding(0);
  budget.limit = 5 * UNIT;
  use(d, parts[0]);
  budget_to(d, "model", budget);
  T_EQ(parked_parts(d), 2 | 4);
  T_EQ(reserved_under(d, "model"), 4 * UNIT);
  done(d, parts[0]);
  T_OK(tide_device_budget_set(d, "model", NULL));
  model_end(m, d, &w);
}

// Pools that cannot be parked, or must not be, are passed over.
DEVICE_TEST_OVER(test_giving__pools_that_cannot_be_parked_do_not_yield, tide_host) {
  const model w = model_new(m, d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "model", yielding(0));
  T_OK(tide_device_pool_set_backup(d, w.pools[0], TIDE_BACKUP_NONE));
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_STREAM;
  scope.stream = side_new(m);
  scope.is_region = true;
  T_OK(tide_device_pool_begin(d, w.pools[1], &scope));
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share memory[8];
  T_OK(tide_device_share_kept(d, w.blocks[2].block.address, &share, memory, 8));

  use(d, parts[3]);

  T_STATUS(try_take(d, NULL, UNIT), TIDE_ERR_NO_MEMORY);
  T_EQ(parked_parts(d), 0);

  done(d, parts[3]);
  region_close(d, w.pools[1]);
  model_end(m, d, &w);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks

typedef struct helper {
  tide_block block;
  int calls;
  uint64_t wanted;
  char tag[32];
  char limited[32];
  tide_status inner;
} helper;

static void help(void* user, tide_device_cache* d, const tide_pressure* pressure) {
  helper* const h = user;
  h->calls++;
  h->wanted = pressure->wanted_bytes;
  (void)snprintf(h->tag, sizeof h->tag, "%s", pressure->tag);
  (void)snprintf(h->limited, sizeof h->limited, "%s", pressure->limited_tag);
  h->inner = try_take(d, NULL, 64 * UNIT);  // a request inside fails, and calls nobody
  if (h->block.address != NULL) give(d, h->block);
  h->block = (tide_block){ NULL, 0 };
}

DEVICE_TEST_OVER(test_giving__callbacks_are_the_last_step, tide_emulated) {
  const tide_pool pool = tagged(d, "t");
  tide_observer observer = 0;
  helper h = { .calls = 0 };
  small_handles(d);
  limit_to(d, 32 * UNIT);
  budget_to(d, "t", limited(4 * UNIT));
  h.block = take_tagged(d, pool, NULL, 3 * UNIT);
  T_OK(tide_device_observe_pressure(d, help, &h, &observer));

  const tide_block block = take_tagged(d, pool, NULL, 2 * UNIT);

  T_EQ(h.calls, 1);
  T_EQ(h.wanted, 2 * UNIT);
  T_STR_EQ(h.tag, "t");
  T_STR_EQ(h.limited, "t");
  T_STATUS(h.inner, TIDE_ERR_NO_MEMORY);
  expect_refused(d, pool, 3 * UNIT);
  T_EQ(h.calls, 2);
  T_STR_HAS(tide_device_last_oom()->text, "callbacks: 0 bytes");
  T_STR_HAS(tide_device_last_oom()->text, "idle memory of its tag: 2.00 MiB");
  T_OK(tide_device_detach(d, observer));
  give(d, block);
}

DEVICE_TEST_OVER(test_giving__callbacks_are_called_without_budgets_and_for_all_policies, device_emulated) {
  helper h = { .calls = 0 };
  tide_observer observer = 0;
  limit_to(d, 40 * MIB);
  h.block = take(d, NULL, 30 * MIB);
  T_OK(tide_device_observe_pressure(d, help, &h, &observer));

  const tide_block block = take(d, NULL, 30 * MIB);

  T_EQ(h.calls, 1);
  T_STR_EQ(h.limited, "");
  T_STR_EQ(h.tag, "");
  T_OK(tide_device_detach(d, observer));
  give(d, block);
}
