// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests and releases: by handle, by address, at an address, from other threads, without a cache; and what
// is refused.
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Handing out

DEVICE_TEST(test_device__one_byte_raises_allocated_bytes_and_release_restores_them) {
  (void)m;
  const int64_t before = current(d, allocated_bytes);

  const tide_block block = take(d, NULL, 1);
  T_LT(before, current(d, allocated_bytes));
  give(d, block);

  T_EQ(current(d, allocated_bytes), before);
}

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
  (void)m;
  const tide_block first = take(d, NULL, 4 * MIB);
  give(d, first);

  const tide_block second = take(d, NULL, 4 * MIB);

  T_PTR_EQ(second.address, first.address);
  T_NE(second.handle, first.handle);
  T_EQ(counter(d, num_device_alloc), 1);
}

DEVICE_TEST(test_device__zero_bytes_is_a_null_block_that_need_not_be_released) {
  (void)m;
  tide_block block = { (void*)1, 1 };

  T_OK(tide_device_alloc(d, NULL, 0, &block));

  T_PTR_EQ(block.address, NULL);
  T_EQ(current(d, active), 0);
  give(d, block);
  T_OK(tide_device_release_address(d, NULL));
  announce(d, block, TIDE_STREAM_PER_THREAD);
}

DEVICE_TEST(test_device__an_exbibyte_is_refused_with_the_words_of_torch) {
  (void)m;
  tide_block block = { (void*)1, 1 };

  T_STATUS(tide_device_alloc(d, NULL, (size_t)1 << 60, &block), TIDE_ERR_ARGUMENT);

  T_STR_HAS(tide_last_error()->text, "Tried to allocate more than 1EB memory");
  T_PTR_EQ(block.address, NULL);
  T_STATUS(try_take(d, NULL, SIZE_MAX), TIDE_ERR_ARGUMENT);
  T_EQ(counter(d, num_ooms), 0);
}

DEVICE_TEST(test_device__a_little_below_an_exbibyte_is_out_of_memory) {
  (void)m;
  expect_oom(d, NULL, ((size_t)1 << 60) - 1);

  T_EQ(counter(d, num_ooms), 1);
  give(d, take(d, NULL, MIB));
}

// ---------------------------------------------------------------------------------------------------
// Handles and addresses

DEVICE_TEST(test_device__a_second_release_is_refused_and_changes_nothing) {
  (void)m;
  const tide_block block = take(d, NULL, 4096);
  const tide_block other = take(d, NULL, 4096);
  give(d, block);

  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);

  T_EQ(current(d, allocation), 1);
  give(d, other);
}

DEVICE_TEST(test_device__a_stale_handle_does_not_release_the_next_owner) {
  (void)m;
  const tide_block old = take(d, NULL, 4096);
  give(d, old);
  const tide_block young = take(d, NULL, 4096);
  T_PTR_EQ(young.address, old.address);

  T_STATUS(tide_device_release(d, old), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_record(d, old, TIDE_STREAM_PER_THREAD), TIDE_ERR_HANDLE);

  give(d, young);
}

DEVICE_TEST(test_device__handles_of_another_allocator_are_refused) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  const tide_block block = take(other, NULL, 4096);

  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, block.address), TIDE_ERR_HANDLE);

  give(other, block);
  tide_device_free(other);
}

DEVICE_TEST(test_device__made_up_handles_are_refused) {
  (void)m;
  const tide_block block = take(d, NULL, 4096);
  static const uint64_t handles[] = { 0, 1, 12345, UINT64_MAX, UINT64_MAX / 2 };

  for (size_t i = 0; i < sizeof handles / sizeof handles[0]; ++i) {
    const tide_block wrong = { block.address, handles[i] };
    T_STATUS(tide_device_release(d, wrong), TIDE_ERR_HANDLE);
  }

  give(d, block);
}

DEVICE_TEST(test_device__releases_by_address) {
  (void)m;
  const tide_block block = take(d, NULL, 4096);

  T_OK(tide_device_release_address(d, block.address));

  T_EQ(current(d, active), 0);
  T_STATUS(tide_device_release_address(d, block.address), TIDE_ERR_HANDLE);
  T_STR_HAS(tide_last_error()->text, "invalid device pointer");
}

DEVICE_TEST(test_device__addresses_inside_a_block_or_of_nobody_are_refused) {
  (void)m;
  int local = 0;
  const tide_block block = take(d, NULL, 4096);

  T_STATUS(tide_device_release_address(d, bytes_of(block) + 512), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, bytes_of(block) + 1), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, &local), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, (void*)UINTPTR_MAX), TIDE_ERR_HANDLE);

  T_EQ(current(d, active), 1);
}

DEVICE_TEST(test_device__finds_the_block_at_an_address) {
  (void)m;
  const tide_block block = take(d, NULL, 5 * MIB);
  tide_block found = { NULL, 0 };

  T_OK(tide_device_find(d, block.address, &found));
  T_PTR_EQ(found.address, block.address);
  T_EQ(found.handle, block.handle);

  give(d, found);
  T_STATUS(tide_device_find(d, block.address, &found), TIDE_ERR_HANDLE);
  T_PTR_EQ(found.address, NULL);
}

DEVICE_TEST(test_device__tells_the_bytes_of_the_block_at_an_address) {
  (void)m;
  const tide_block block = take(d, NULL, 1000);
  const char* const inside = (const char*)block.address + 512;
  T_EQ(tide_device_bytes(d, block.address), 1024);
  T_EQ(tide_device_bytes(d, inside), 0);

  give(d, block);

  T_EQ(tide_device_bytes(d, block.address), 0);
  T_EQ(tide_device_bytes(d, NULL), 0);
  T_EQ(tide_device_bytes(NULL, block.address), 0);
}

static void* release_it(void* user) {
  const tide_block* const block = user;
  give(tide_device_default(0), *block);
  return NULL;
}

DEVICE_TEST(test_device__another_thread_may_release) {
  (void)m;
  tide_block block = take(d, NULL, 4 * MIB);
  pthread_t thread;
  T_OK(tide_device_set_default(0, d));

  t_thread_start(&thread, release_it, &block);
  t_thread_join(thread);

  T_EQ(current(d, active), 0);
  T_PTR_EQ(take(d, NULL, 4 * MIB).address, block.address);
}

DEVICE_TEST(test_device__blocks_left_behind_are_freed_with_the_allocator) {
  const size_t before = free_bytes(m, 0);
  tide_device_cache* const other = device_new(m, 0, NULL);
  (void)take(other, NULL, 3 * MIB);
  (void)take(other, NULL, 30 * MIB);
  (void)d;

  tide_device_free(other);

  if (!is_cuda(m)) T_EQ(free_bytes(m, 0), before);
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
  (void)m;
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
  (void)m;
  tide_device_set_caching(d, false);

  (void)take(d, NULL, 3 * MIB);  // the end of every test compares the free memory
}

DEVICE_TEST(test_device__uncached_memory_waits_for_all_work_when_it_is_released) {
  const tide_stream side = side_new(m);
  tide_device_set_caching(d, false);
  const tide_block block = take(d, NULL, 3 * MIB);
  work_slowly(m, side);
  paint(m, side, block, 4, 3 * MIB);
  announce(d, block, side);

  give(d, block);

  T_OK(tide_machine_device_synchronize(m, 0));  // would report work that came too late
}

DEVICE_TEST(test_device__uncached_out_of_memory_is_an_ordinary_error) {
  (void)m;
  tide_device_set_caching(d, false);

  T_STATUS(try_take(d, NULL, (size_t)1 << 50), TIDE_ERR_NO_MEMORY);

  give(d, take(d, NULL, 512));
}

// ---------------------------------------------------------------------------------------------------
// Questions

TORCH_TEST(test_device__base_is_where_the_segment_begins) {
  (void)m;
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
  (void)m;
  const tide_pool pool = pool_new(d, NULL);
  give(d, take(d, NULL, 12 * MIB));
  give(d, take_in(d, pool, NULL, 30 * MIB));
  size_t bytes = 1;
  size_t more = 50 * MIB;

  T_OK(tide_device_largest(d, &bytes));
  T_OK(tide_device_largest(d, &more));

  T_EQ(bytes, 30 * MIB);
  T_EQ(more, 50 * MIB);
}

DEVICE_TEST(test_device__largest_is_at_least_what_is_free_on_the_device) {
  size_t bytes = 0;

  T_OK(tide_device_largest(d, &bytes));

  T_LT(0, bytes);
  if (!is_cuda(m)) T_EQ(bytes, free_bytes(m, 0));
}

DEVICE_TEST(test_device__knows_its_machine_and_index) {
  T_PTR_EQ(tide_device_machine(d), m);
  T_EQ(tide_device_index(d), 0);
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

// ---------------------------------------------------------------------------------------------------
// Anything in any order

typedef struct live {
  tide_block block;
  uint32_t bytes;
  uint8_t value;
} live;

static size_t random_bytes(t_rng* rng) {
  const uint64_t power = t_rng_below(rng, 23);
  return (size_t)(1 + t_rng_below(rng, (uint64_t)1 << power));
}

// Only the ends are written: that shows overlaps just as well.
static void live_mark(tide_machine* m, const live* l) {
  const size_t part = l->bytes < 64 ? l->bytes : 64;
  device_fill(m, 0, bytes_of(l->block), l->value, part);
  device_fill(m, 0, bytes_of(l->block) + l->bytes - part, l->value, part);
}

static void live_check(tide_machine* m, const live* l) {
  const size_t part = l->bytes < 64 ? l->bytes : 64;
  expect_filled(m, 0, bytes_of(l->block), l->value, part);
  expect_filled(m, 0, bytes_of(l->block) + l->bytes - part, l->value, part);
}

static void run_randomly(tide_machine* m, tide_device_cache* d, size_t steps) {
  enum { LIVE = 40 };
  live lives[LIVE] = { 0 };
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < steps; ++i) {
    live* const l = &lives[t_rng_below(&rng, LIVE)];
    if (t_rng_below(&rng, 500) == 0) trim(d);
    if (l->bytes != 0) {
      live_check(m, l);
      give(d, l->block);
      l->bytes = 0;
      continue;
    }
    l->bytes = (uint32_t)random_bytes(&rng);
    l->value = (uint8_t)i;
    l->block = take(d, NULL, l->bytes);
    live_mark(m, l);
  }
  for (size_t i = 0; i < LIVE; ++i) {
    if (lives[i].bytes != 0) give(d, lives[i].block);
  }
}

DEVICE_TEST(test_device__keeps_contents_through_random_requests_releases_and_trims) {
  run_randomly(m, d, t_scaled(10000));

  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
  T_EQ(current(d, active), 0);
}

DEVICE_TEST(test_device__keeps_contents_through_random_use_of_expandable_segments) {
  expand(m, d);

  run_randomly(m, d, t_scaled(4000));

  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

DEVICE_TEST(test_device__audits_check_every_call) {
  tide_device_options options = device_defaults();
  options.has_audits = true;
  T_OK(tide_device_configure(d, &options));

  run_randomly(m, d, t_scaled(200));
}
