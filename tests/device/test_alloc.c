// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Allocating and releasing: by handle, by address, from other threads, without caching; and which calls are
// refused.
#define T_THREADS
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Handing out

DEVICE_TEST(test_device__blocks_do_not_overlap) {
  enum { COUNT = 24 };
  static const size_t sizes[] = { 512, 3000, 200 * KIB, MIB, 3 * MIB, 11 * MIB };
  tide_block blocks[COUNT];
  for (size_t i = 0; i < COUNT; ++i) {
    blocks[i] = take(d, NULL, sizes[i % 6]);
    device_fill(m, 0, bytes_of(blocks[i]), (uint8_t)(i + 1), sizes[i % 6]);
  }

  for (size_t i = 0; i < COUNT; ++i) {
    expect_filled(m, 0, bytes_of(blocks[i]), (uint8_t)(i + 1), sizes[i % 6]);
  }
}

DEVICE_TEST(test_device__released_memory_is_handed_out_again) {
  const tide_block first = take(d, NULL, 4 * MIB);
  give(d, first);

  const tide_block second = take(d, NULL, 4 * MIB);

  T_PTR_EQ(second.address, first.address);
  T_NE(second.handle, first.handle);
  T_EQ(counter(d, num_device_alloc), 1);
}

DEVICE_TEST(test_device__zero_bytes_is_a_null_block_that_need_not_be_released) {
  tide_block block = { (void*)1, 1 };

  T_OK(tide_device_alloc(d, NULL, 0, &block));

  T_PTR_EQ(block.address, NULL);
  T_EQ(current(d, active), 0);
  give(d, block);
  T_OK(tide_device_release_address(d, NULL));
  announce(d, block, TIDE_STREAM_PER_THREAD);
}

DEVICE_TEST(test_device__an_exbibyte_is_refused_with_the_words_of_torch) {
  tide_block block = { (void*)1, 1 };

  T_STATUS(tide_device_alloc(d, NULL, (size_t)1 << 60, &block), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "Tried to allocate more than 1EB memory");
  T_PTR_EQ(block.address, NULL);
  T_STATUS(try_take(d, NULL, SIZE_MAX), TIDE_ERR_ARGUMENT);
  T_EQ(counter(d, num_ooms), 0);
  expect_oom(d, NULL, ((size_t)1 << 60) - 1);

  T_EQ(counter(d, num_ooms), 1);
  give(d, take(d, NULL, MIB));
}

// ---------------------------------------------------------------------------------------------------
// Handles and addresses

DEVICE_TEST(test_device__stale_and_made_up_handles_are_refused) {
  static const uint64_t handles[] = { 0, 1, 12345, UINT64_MAX, UINT64_MAX / 2 };
  const tide_block old = take(d, NULL, 4096);
  const tide_block other = take(d, NULL, 4096);
  give(d, old);

  T_STATUS(tide_device_release(d, old), TIDE_ERR_HANDLE);
  T_EQ(current(d, allocation), 1);
  const tide_block young = take(d, NULL, 4096);
  T_PTR_EQ(young.address, old.address);
  T_STATUS(tide_device_release(d, old), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_record(d, old, TIDE_STREAM_PER_THREAD), TIDE_ERR_HANDLE);
  for (size_t i = 0; i < sizeof handles / sizeof handles[0]; ++i) {
    const tide_block wrong = { young.address, handles[i] };
    T_STATUS(tide_device_release(d, wrong), TIDE_ERR_HANDLE);
  }

  give(d, young);
  give(d, other);
}

DEVICE_TEST(test_device__handles_of_another_allocator_are_refused) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  const tide_block block = take(other, NULL, 4096);

  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, block.address), TIDE_ERR_HANDLE);

  give(other, block);
  tide_device_free(other);
}

DEVICE_TEST(test_device__finds_and_releases_by_the_address_of_a_block_only) {
  int local = 0;
  const tide_block block = take(d, NULL, 1000);
  void* const wrong[] = { bytes_of(block) + 512, bytes_of(block) + 1, &local, (void*)UINTPTR_MAX };
  tide_block found = { NULL, 0 };

  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    T_STATUS(tide_device_release_address(d, wrong[i]), TIDE_ERR_HANDLE);
    T_STATUS(tide_device_find(d, wrong[i], &found), TIDE_ERR_HANDLE);
    T_EQ(tide_device_bytes(d, wrong[i]), 0);
  }
  T_OK(tide_device_find(d, block.address, &found));
  T_PTR_EQ(found.address, block.address);
  T_EQ(found.handle, block.handle);
  T_EQ(tide_device_bytes(d, block.address), 1024);
  T_EQ(current(d, active), 1);
  T_OK(tide_device_release_address(d, block.address));

  T_EQ(current(d, active), 0);
  T_STATUS(tide_device_release_address(d, block.address), TIDE_ERR_HANDLE);
  T_STR_HAS(tide_last_error()->text, "invalid device pointer");
  T_STATUS(tide_device_find(d, block.address, &found), TIDE_ERR_HANDLE);
  T_PTR_EQ(found.address, NULL);
  T_EQ(tide_device_bytes(d, block.address), 0);
}

static void* release_it(void* user) {
  const tide_block* const block = user;
  give(tide_device_default(0), *block);
  return NULL;
}

DEVICE_TEST(test_device__another_thread_may_release) {
  tide_block block = take(d, NULL, 4 * MIB);
  T_OK(tide_device_set_default(0, d));

  run_threads(1, release_it, &block);

  T_EQ(current(d, active), 0);
  T_PTR_EQ(take(d, NULL, 4 * MIB).address, block.address);
}

// ---------------------------------------------------------------------------------------------------
// Without a cache

DEVICE_TEST(test_device__without_caching_statistics_stay_unchanged) {
  const tide_call_stats before = tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC);
  tide_device_set_caching(d, false);
  T_CHECK(!tide_device_is_caching(d));

  const tide_block block = take(d, NULL, 3 * MIB);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_ALLOC).calls, before.calls + 1);
  T_EQ(current(d, allocated_bytes), 0);
  T_EQ(current(d, reserved_bytes), 0);
  device_fill(m, 0, bytes_of(block), 7, 3 * MIB);
  expect_filled(m, 0, bytes_of(block), 7, 3 * MIB);
  give(d, block);

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_RAW_RELEASE).calls, 1);
  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__caching_can_change_while_blocks_are_out) {
  const tide_block cached = take(d, NULL, 4096);
  tide_device_set_caching(d, false);
  const tide_block plain = take(d, NULL, 4096);
  const tide_block second = take(d, NULL, 100);

  give(d, cached);
  tide_device_set_caching(d, true);
  give(d, plain);
  T_OK(tide_device_release_address(d, second.address));

  T_EQ(current(d, allocated_bytes), 0);
  T_EQ(current(d, reserved_bytes), 2 * MIB);
  T_PTR_EQ(take(d, NULL, 4096).address, cached.address);
}

DEVICE_TEST(test_device__uncached_memory_left_behind_is_freed_with_the_allocator) {
  tide_device_set_caching(d, false);

  (void)take(d, NULL, 3 * MIB);  // the end of every test compares the free memory
}

DEVICE_TEST(test_device__uncached_memory_waits_for_all_work_when_it_is_released) {
  const tide_stream side = side_new(m);
  tide_device_set_caching(d, false);
  const tide_block block = take(d, NULL, 3 * MIB);
  work_slowly(m, side);
  paint(m, side, block, 4, 3 * MIB);

  give_announced(d, block, side);

  T_OK(tide_machine_device_synchronize(m, 0));  // would report work that came too late
}

DEVICE_TEST(test_device__uncached_out_of_memory_is_an_ordinary_error) {
  tide_device_set_caching(d, false);

  T_STATUS(try_take(d, NULL, (size_t)1 << 50), TIDE_ERR_NO_MEMORY);

  give(d, take(d, NULL, 512));
}

// ---------------------------------------------------------------------------------------------------
// At an address

DEVICE_TEST(test_device__hands_out_idle_memory_at_an_address) {
  (void)m;
  const tide_block whole = take(d, NULL, 512 * KIB);
  tide_block block = { NULL, 0 };
  give(d, whole);

  T_OK(tide_device_alloc_at(d, NULL, 1000, bytes_of(whole) + 4096, &block));

  T_PTR_EQ(block.address, bytes_of(whole) + 4096);
  T_EQ(current(d, allocated_bytes), 1024);
  T_EQ(current(d, inactive_split), is_tide() ? 0 : 2);   // of segments that do not grow
  T_PTR_EQ(take(d, NULL, 4096).address, whole.address);  // what lies before it stayed idle
}

DEVICE_TEST(test_device__address_that_is_not_idle_is_out_of_memory) {
  const tide_stream side = stream_new(m, 0, 0);
  const tide_block used = take(d, NULL, 4096);
  const tide_block idle = take(d, NULL, 4096);
  tide_block block = { NULL, 0 };
  give(d, idle);

  T_STATUS(tide_device_alloc_at(d, NULL, 512, used.address, &block), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_device_alloc_at(d, side, 512, idle.address, &block), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_device_alloc_at(d, NULL, MIB + 1, idle.address, &block), TIDE_ERR_NO_MEMORY);
  T_STATUS(tide_device_alloc_at(d, NULL, 512, bytes_of(idle) + 1, &block), TIDE_ERR_ARGUMENT);

  T_PTR_EQ(block.address, NULL);
  T_EQ(current(d, active), 1);
}

DEVICE_TEST(test_device__same_sequence_at_the_same_addresses) {
  (void)m;
  static const size_t sizes[] = { 4096, 512, 100 * KIB, 8192 };
  tide_block before[4];
  for (size_t i = 0; i < 4; ++i) before[i] = take(d, NULL, sizes[i]);
  for (size_t i = 0; i < 4; ++i) give(d, before[i]);

  for (size_t i = 4; i-- > 0;) {
    tide_block block = { NULL, 0 };
    T_OK(tide_device_alloc_at(d, NULL, sizes[i], before[i].address, &block));
    T_PTR_EQ(block.address, before[i].address);
  }

  T_EQ(current(d, active), 4);
}

// ---------------------------------------------------------------------------------------------------
// Questions

TORCH_TEST(test_device__base_is_where_the_segment_begins) {
  const tide_block first = take(d, NULL, 3 * MIB);
  const tide_block second = take(d, NULL, 3 * MIB);
  void* base = NULL;
  size_t bytes = 0;

  T_OK(tide_device_base(d, second.address, &base, &bytes));

  T_PTR_EQ(base, first.address);
  T_EQ(bytes, 20 * MIB);
  give(d, second);
  T_STATUS(tide_device_base(d, second.address, &base, &bytes), TIDE_ERR_HANDLE);
  T_PTR_EQ(base, NULL);
}

TORCH_TEST(test_device__base_of_an_expandable_segment_is_unsupported) {
  expand(m, d);
  const tide_block block = take(d, NULL, 3 * MIB);
  void* base = NULL;
  size_t bytes = 0;

  T_STATUS(tide_device_base(d, block.address, &base, &bytes), TIDE_ERR_UNSUPPORTED);
}

DEVICE_TEST(test_device__largest_is_the_largest_idle_block_of_all_pools) {
  const tide_pool pool = pool_new(d, NULL);
  size_t least[] = { 0, 1, 50 * MIB };
  T_OK(tide_device_largest(d, &least[0]));
  T_LT(0, least[0]);
  if (!is_cuda(m)) T_EQ(least[0], free_bytes(m, 0));
  give(d, take(d, NULL, 12 * MIB));
  give(d, take_in(d, pool, NULL, 30 * MIB));

  for (size_t i = 1; i < 3; ++i) T_OK(tide_device_largest(d, &least[i]));

  T_EQ(least[1], 30 * MIB);
  T_EQ(least[2], 50 * MIB);
}

MACHINE_TEST(test_device__new_refuses_devices_and_options_that_are_not_there) {
  tide_device_cache* d = (tide_device_cache*)1;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.memory_fraction = 1.5;

  T_STATUS(tide_device_new(m, tide_machine_device_count(m), NULL, &d), TIDE_ERR_DEVICE);
  T_PTR_EQ(d, NULL);
  T_STATUS(tide_device_new(m, -1, NULL, &d), TIDE_ERR_DEVICE);
  T_STATUS(tide_device_new(m, 0, &options, &d), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_new(NULL, 0, NULL, &d), TIDE_ERR_ARGUMENT);
  tide_device_free(NULL);
}
