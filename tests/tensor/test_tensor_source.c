// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A source of the program's own in force on a thread: who serves, what goes back where, and what is refused.
#define T_THREADS
#include "tensor/tensors.h"

static uint8_t* tensor_fill(size_t bytes) {
  uint8_t* const address = tensor_take(bytes);
  pattern_write(address, bytes, bytes);
  return address;
}

static void tensor_give(uint8_t* address, size_t bytes) {
  pattern_expect(address, bytes, bytes);
  T_OK(tide_tensor_release(address));
}

T_TEST(test_tensor_source__serves_and_takes_back) {
  table own;
  table_init(&own);
  T_PTR_EQ(tide_tensor_source(), NULL);
  T_OK(tide_tensor_enter_source(&own.memory));
  T_PTR_EQ(tide_tensor_source(), &own.memory);
  T_PTR_EQ(tide_tensor_cache(), NULL);

  uint8_t* const small = tensor_fill(1);
  uint8_t* const large = tensor_fill(3 * MIB);

  T_EQ(own.count, 2);
  T_EQ(own.bytes, 1 + 3 * MIB + 2 * (TIDE_TENSOR_FRONT_BYTES + TIDE_TENSOR_GUARD_BYTES));
  tensor_give(small, 1);
  T_EQ(own.count, 1);
  T_OK(tide_tensor_leave_source(&own.memory));
  T_PTR_EQ(tide_tensor_source(), NULL);
  tensor_give(large, 3 * MIB);
  T_STATUS(tide_tensor_release(large), TIDE_ERR_ARGUMENT);
  T_EQ(own.releases, 2);
  table_fini(&own);
}

T_TEST(test_tensor_source__the_innermost_counts) {
  table own;
  table_init(&own);
  tide_cpu_cache* const cache = cache_open(NULL);

  T_OK(tide_tensor_enter_source(&own.memory));
  T_OK(tide_tensor_enter(cache));
  T_PTR_EQ(tide_tensor_source(), NULL);
  uint8_t* const cached = tensor_fill(1000);
  T_OK(tide_tensor_enter_source(&own.memory));
  T_PTR_EQ(tide_tensor_cache(), NULL);
  T_EQ(tide_tensor_depth(), 3);
  uint8_t* const owned = tensor_fill(1000);
  T_OK(tide_tensor_enter(NULL));
  uint8_t* const raw = tensor_fill(1000);

  T_PTR_EQ(tide_cpu_find(cached).cache, cache);
  T_EQ(own.count, 1);
  tensor_give(raw, 1000);
  tensor_give(owned, 1000);
  tensor_give(cached, 1000);
  T_EQ(own.count, 0);
  T_OK(tide_tensor_leave(NULL));
  T_OK(tide_tensor_leave_source(&own.memory));
  T_OK(tide_tensor_leave(cache));
  T_OK(tide_tensor_leave_source(&own.memory));
  cache_close(cache);
  table_fini(&own);
}

// A source comes before a run of a profile, as a cache does.
T_TEST(test_tensor_source__nothing_is_recorded_under_it) {
  table own;
  tide_profile* profile = NULL;
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  table_init(&own);
  T_OK(tide_profile_new(NULL, &profile));
  T_OK(tide_profile_begin(profile, TIDE_PROFILE_RECORD, 0));

  T_OK(tide_tensor_enter_source(&own.memory));
  tensor_give(tensor_fill(1000), 1000);
  T_OK(tide_tensor_leave_source(&own.memory));

  T_OK(tide_profile_end(profile, &report));
  T_EQ(report.requests, 0);
  T_EQ(own.allocs, 1);
  tide_profile_free(profile);
  table_fini(&own);
}

// The table of another cache, of which the tensors are known by their records and not by the cache.
CACHE_TEST(test_tensor_source__may_be_a_cache_of_ours) {
  const tide_memory memory = tide_cpu_memory(cache);
  T_OK(tide_tensor_enter_source(&memory));
  uint8_t* const first = tensor_fill(1000);
  uint8_t* const large = tensor_fill(1000000);
  T_OK(tide_tensor_leave_source(&memory));
  cache_expect_live(cache, 2);

  tensor_give(first, 1000);
  tensor_give(large, 1000000);

  cache_expect_live(cache, 0);
  T_CHECK(tide_tensor_release(first) != TIDE_OK);
  T_CHECK(tide_tensor_release(large) != TIDE_OK);
}

static void release_there(void* user) { T_OK(tide_tensor_release(user)); }

static void expect_no_source(void* user) {
  (void)user;
  T_PTR_EQ(tide_tensor_source(), NULL);
  tensor_give(tensor_fill(100), 100);
}

T_TEST(test_tensor_source__is_of_one_thread_and_its_tensors_of_all) {
  table own;
  table_init(&own);
  T_OK(tide_tensor_enter_source(&own.memory));
  on_other_thread(expect_no_source, NULL);
  T_EQ(own.allocs, 0);

  uint8_t* const address = tensor_fill(1000);
  on_other_thread(release_there, address);

  T_EQ(own.count, 0);
  T_OK(tide_tensor_leave_source(&own.memory));
  table_fini(&own);
}

// The table itself may be gone when the tensor is released.
T_TEST(test_tensor_source__tensors_outlive_the_table) {
  table own;
  table_init(&own);
  tide_memory copy = own.memory;
  T_OK(tide_tensor_enter_source(&copy));
  uint8_t* const address = tensor_fill(1000);
  T_OK(tide_tensor_leave_source(&copy));
  copy = (tide_memory)TIDE_MEMORY_NONE;

  tensor_give(address, 1000);

  T_EQ(own.count, 0);
  table_fini(&own);
}

static tide_status stubborn_release(const tide_memory* memory, void* address) {
  size_t* const refusals = memory->user;
  if (*refusals == 0) {
    free(address);
    return TIDE_OK;
  }
  --*refusals;
  return TIDE_ERR_STATE;
}

// What the source says is said, and after a refusal all is as it was.
T_TEST(test_tensor_source__its_failures_are_passed_on) {
  table own;
  size_t refusals = 2;
  void* address = &address;
  const tide_memory stubborn = { tide_memory_cpu().alloc, stubborn_release, &refusals, 0, true };
  table_init(&own);
  own.fail_at = 0;
  T_OK(tide_tensor_enter_source(&own.memory));
  T_STATUS(tide_tensor_alloc(1000, &address), TABLE_FAILURE);
  T_PTR_EQ(address, NULL);
  T_OK(tide_tensor_leave_source(&own.memory));

  T_OK(tide_tensor_enter_source(&stubborn));
  uint8_t* const tensor = tensor_fill(1000);
  T_OK(tide_tensor_leave_source(&stubborn));
  T_STATUS(tide_tensor_release(tensor), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_release(tensor), TIDE_ERR_STATE);
  tensor_give(tensor, 1000);
  T_STATUS(tide_tensor_release(tensor), TIDE_ERR_ARGUMENT);
  table_fini(&own);
}

T_TEST(test_tensor_source__wrong_tables_and_wrong_orders_are_refused) {
  table own;
  table_init(&own);
  tide_cpu_cache* const cache = cache_open(NULL);
  tide_memory half = own.memory;
  tide_memory far = own.memory;
  half.release = NULL;
  far.is_host = false;

  T_STATUS(tide_tensor_enter_source(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_enter_source(&half), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_tensor_enter_source(&far), TIDE_ERR_ARGUMENT);
  T_EQ(tide_tensor_depth(), 0);
  T_STATUS(tide_tensor_leave_source(&own.memory), TIDE_ERR_STATE);
  T_OK(tide_tensor_enter_source(&own.memory));
  T_STATUS(tide_tensor_leave(NULL), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_leave(cache), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_leave_source(&half), TIDE_ERR_STATE);
  T_STATUS(tide_tensor_leave_source(NULL), TIDE_ERR_ARGUMENT);
  T_OK(tide_tensor_enter(NULL));
  T_STATUS(tide_tensor_leave_source(&own.memory), TIDE_ERR_STATE);
  T_OK(tide_tensor_leave(NULL));
  for (uint32_t i = 1; i < TIDE_TENSOR_DEPTH; i++) T_OK(tide_tensor_enter_source(&own.memory));
  T_STATUS(tide_tensor_enter_source(&own.memory), TIDE_ERR_LIMIT);
  for (uint32_t i = 0; i < TIDE_TENSOR_DEPTH; i++) T_OK(tide_tensor_leave_source(&own.memory));
  T_EQ(tide_tensor_depth(), 0);
  cache_close(cache);
  table_fini(&own);
}
