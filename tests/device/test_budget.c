// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Budgets: limits and guarantees of tags, one rule a test. test_budget_giving.c has the order in which
// others give way.
#define T_THREADS
#include "device/budget.h"

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };

// ---------------------------------------------------------------------------------------------------
// Limits

DEVICE_TEST_OVER(test_budget__a_request_beyond_the_limit_fails_and_names_the_tag, tide_emulated) {
  const tide_pool pool = tagged(d, "tenant/a");
  small_handles(d);
  budget_to(d, "tenant/a", limited(3 * UNIT));
  const tide_block held = take_tagged(d, pool, NULL, 2 * UNIT);

  expect_refused(d, pool, 2 * UNIT);

  const tide_oom* const oom = tide_device_last_oom();
  T_STR_EQ(oom->tag, "tenant/a");
  T_EQ(oom->tag_limit, 3 * UNIT);
  T_EQ(oom->tag_reserved_bytes, 2 * UNIT);
  T_STR_HAS(oom->text, "The tag \"tenant/a\" has 4.00 MiB of 6.00 MiB.");
  T_STR_HAS(oom->text, "idle memory of its tag: 0 bytes");
  T_STR_HAS(oom->text, "tags that yield: 0 bytes");
  give(d, take_tagged(d, pool, NULL, UNIT));
  give(d, held);
}

DEVICE_TEST_OVER(test_budget__a_tag_counts_in_those_above_it, tide_emulated) {
  const tide_pool a = tagged(d, "tenant/a");
  const tide_pool b = tagged(d, "tenant/b/c");
  const tide_pool other = tagged(d, "tenants");
  small_handles(d);
  budget_to(d, "tenant", limited(4 * UNIT));
  const tide_block held = take_tagged(d, a, NULL, 3 * UNIT);

  expect_refused(d, b, 2 * UNIT);

  T_STR_EQ(tide_device_last_oom()->tag, "tenant");
  give(d, take_tagged(d, b, NULL, UNIT));
  give(d, take_tagged(d, other, NULL, 8 * UNIT));
  give(d, take(d, NULL, 8 * UNIT));
  T_EQ(reserved_under(d, "tenant"), 4 * UNIT);
  T_EQ(reserved_under(d, "tenant/a"), 3 * UNIT);
  give(d, held);
}

DEVICE_TEST_OVER(test_budget__idle_memory_of_the_tag_goes_before_a_request_fails, tide_emulated) {
  const tide_pool pool = tagged(d, "t");
  small_handles(d);
  budget_to(d, "t", limited(5 * UNIT));
  const tide_block front = take_tagged(d, pool, NULL, 2 * UNIT);
  const tide_block held = take_tagged(d, pool, NULL, UNIT);
  give(d, front);

  const tide_block block = take_tagged(d, pool, NULL, 4 * UNIT);  // the hole before `held` is too small

  T_EQ(reserved_under(d, "t"), 5 * UNIT);
  give(d, held);
  give(d, block);
}

DEVICE_TEST_OVER(test_budget__lowering_a_limit_gives_idle_memory_back_and_keeps_blocks, tide_emulated) {
  const tide_pool pool = tagged(d, "t");
  small_handles(d);
  known k = known_new(m, d, pool, NULL, 2 * UNIT, 7);
  leave_idle(d, pool, 3 * UNIT);
  T_EQ(reserved_under(d, "t"), 5 * UNIT);

  budget_to(d, "t", limited(3 * UNIT));
  T_EQ(reserved_under(d, "t"), 3 * UNIT);
  budget_to(d, "t", limited(UNIT));
  T_EQ(reserved_under(d, "t"), 2 * UNIT);

  known_expect(m, &k);
  expect_refused(d, pool, UNIT);
  budget_to(d, "t", limited(4 * UNIT));
  give(d, take_tagged(d, pool, NULL, 2 * UNIT));
  T_OK(tide_device_budget_set(d, "t", NULL));
  give(d, take_tagged(d, pool, NULL, 9 * UNIT));
  give(d, k.block);
}

DEVICE_TEST_OVER(test_budget__small_requests_count_in_whole_handles, tide_emulated) {
  const tide_pool pool = tagged(d, "t");
  small_handles(d);
  budget_to(d, "t", limited(UNIT + 512));
  const tide_block small = take_tagged(d, pool, NULL, 512);

  expect_refused(d, pool, MIB);  // large blocks have a home of their own
  give(d, take_tagged(d, pool, NULL, 4096));

  give(d, small);
}

DEVICE_TEST_OVER(test_budget__limits_hold_for_all_policies_and_plain_pools, device_emulated) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "raw";
  options.is_plain = true;
  const tide_pool pool = pool_new(d, &options);
  budget_to(d, "raw", limited(24 * MIB));
  const tide_block held = take_tagged(d, pool, NULL, 12 * MIB);
  leave_idle(d, pool, 11 * MIB);

  expect_refused(d, pool, 14 * MIB);
  T_STR_EQ(tide_device_last_oom()->tag, "raw");
  give(d, take_tagged(d, pool, NULL, 12 * MIB));  // the idle segment goes for it

  T_LE(reserved_under(d, "raw"), 24 * MIB);
  give(d, held);
}

// ---------------------------------------------------------------------------------------------------
// Guarantees

DEVICE_TEST_OVER(test_budget__requests_of_others_leave_room_for_a_guarantee, tide_emulated) {
  const tide_pool a = tagged(d, "a");
  const tide_pool b = tagged(d, "b");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "a", guaranteed(4 * UNIT));
  const tide_block of_a = take_tagged(d, a, NULL, UNIT);
  const tide_block of_b = take_tagged(d, b, NULL, 3 * UNIT);

  expect_refused(d, b, 2 * UNIT);
  T_STR_EQ(tide_device_last_oom()->tag, "");
  T_EQ(tide_device_last_oom()->guaranteed_bytes, 3 * UNIT);
  T_STR_HAS(tide_device_last_oom()->text, "6.00 MiB are kept for guarantees.");
  T_STATUS(try_take(d, NULL, 2 * UNIT), TIDE_ERR_NO_MEMORY);

  const tide_block more = take(d, NULL, UNIT);
  const tide_block rest = take_tagged(d, a, NULL, 3 * UNIT);  // its guarantee is there
  expect_refused(d, a, UNIT);
  give(d, rest);
  give(d, more);
  give(d, of_b);
  give(d, of_a);
}

DEVICE_TEST_OVER(test_budget__a_guarantee_holds_under_the_limit_of_the_tag_above, tide_emulated) {
  const tide_pool a = tagged(d, "tenant/a");
  const tide_pool b = tagged(d, "tenant/b");
  small_handles(d);
  budget_to(d, "tenant", limited(6 * UNIT));
  budget_to(d, "tenant/a", guaranteed(4 * UNIT));

  expect_refused(d, b, 3 * UNIT);
  T_STR_EQ(tide_device_last_oom()->tag, "tenant");
  const tide_block of_b = take_tagged(d, b, NULL, 2 * UNIT);
  const tide_block of_a = take_tagged(d, a, NULL, 4 * UNIT);

  T_EQ(budget_stats(d, "tenant").claimed_bytes, 6 * UNIT);
  give(d, of_a);
  give(d, of_b);
}

// The guarantee of a tag serves those below it. It is not counted twice.
DEVICE_TEST_OVER(test_budget__a_guarantee_includes_those_below, tide_emulated) {
  const tide_pool a = tagged(d, "tenant/a");
  const tide_pool b = tagged(d, "tenant/b");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "tenant", guaranteed(6 * UNIT));
  budget_to(d, "tenant/a", guaranteed(4 * UNIT));

  T_STATUS(try_take(d, NULL, 3 * UNIT), TIDE_ERR_NO_MEMORY);
  const tide_block other = take(d, NULL, 2 * UNIT);
  expect_refused(d, b, 3 * UNIT);
  const tide_block of_b = take_tagged(d, b, NULL, 2 * UNIT);
  const tide_block of_a = take_tagged(d, a, NULL, 4 * UNIT);

  give(d, of_a);
  give(d, of_b);
  give(d, other);
}

DEVICE_TEST_OVER(test_budget__idle_memory_of_others_goes_down_to_their_guarantee, tide_emulated) {
  const tide_pool a = tagged(d, "a");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "a", guaranteed(3 * UNIT));
  leave_idle(d, a, 6 * UNIT);

  T_STATUS(try_take(d, NULL, 6 * UNIT), TIDE_ERR_NO_MEMORY);
  T_EQ(reserved_under(d, "a"), 3 * UNIT);
  const tide_block block = take(d, NULL, 5 * UNIT);

  T_EQ(reserved_under(d, "a"), 3 * UNIT);
  give(d, block);
}

DEVICE_TEST_OVER(test_budget__ranges_leave_room_for_guarantees, tide_emulated) {
  tide_range* range = NULL;
  const tide_pool a = tagged(d, "a");
  small_handles(d);
  limit_to(d, 8 * UNIT);
  budget_to(d, "a", guaranteed(3 * UNIT));
  leave_idle(d, a, 5 * UNIT);
  T_OK(tide_device_range_new(d, 16 * UNIT, &range));

  T_STATUS(tide_device_range_commit(d, range, NULL, 0, 6 * UNIT), TIDE_ERR_NO_MEMORY);
  T_OK(tide_device_range_commit(d, range, NULL, 0, 5 * UNIT));

  T_EQ(reserved_under(d, "a"), 3 * UNIT);
  T_OK(tide_device_range_free(d, range));
}

// ---------------------------------------------------------------------------------------------------
// Calls

DEVICE_TEST_OVER(test_budget__what_was_set_is_read, device_emulated) {
  tide_budget budget = TIDE_BUDGET_INIT;
  budget.limit = 5;
  budget.soft_limit = 4;
  budget.guarantee = 3;
  budget.priority = -2;
  budget.yields = true;
  budget.is_constant = true;
  budget_to(d, "a/b", budget);
  tide_budget read = TIDE_BUDGET_INIT;
  T_OK(tide_device_budget_get(d, "a/b", &read));
  T_EQ(read.limit, 5);
  T_EQ(read.soft_limit, 4);
  T_EQ(read.guarantee, 3);
  T_EQ(read.priority, -2);
  T_CHECK(read.yields && read.is_constant);

  T_OK(tide_device_budget_get(d, "a", &read));
  T_EQ(read.limit, TIDE_NO_LIMIT);
  T_OK(tide_device_budget_set(d, "a/b", NULL));
  T_OK(tide_device_budget_get(d, "a/b", &read));
  T_EQ(read.limit, TIDE_NO_LIMIT);
  T_EQ(read.guarantee, 0);
}

DEVICE_TEST_OVER(test_budget__wrong_arguments_are_refused, device_emulated) {
  tide_budget budget = limited(4);
  budget.guarantee = 5;
  T_STATUS(tide_device_budget_set(d, "a", &budget), TIDE_ERR_ARGUMENT);
  budget = limited(4);
  T_STATUS(tide_device_budget_set(NULL, "a", &budget), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_budget_set(d, NULL, &budget), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_budget_set(d, "a//b", &budget), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_budget_get(d, "/", &budget), TIDE_ERR_ARGUMENT);
  budget.size = 1;
  T_STATUS(tide_device_budget_set(d, "a", &budget), TIDE_ERR_ARGUMENT);
}

DEVICE_TEST_OVER(test_budget__a_pool_with_another_tag_counts_there, tide_emulated) {
  const tide_pool pool = tagged(d, "a");
  const tide_block block = take_tagged(d, pool, NULL, 2 * UNIT);
  T_OK(tide_device_pool_set_tag(d, pool, "b/c"));
  budget_to(d, "b", limited(4 * UNIT));

  T_EQ(reserved_under(d, "a"), 0);
  T_EQ(reserved_under(d, "b"), 2 * UNIT);
  expect_refused(d, pool, 3 * UNIT);
  T_OK(tide_device_pool_set_tag(d, pool, NULL));
  give(d, take_tagged(d, pool, NULL, 3 * UNIT));

  give(d, block);
}
