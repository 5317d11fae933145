// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What PyTorch's own tests ask of its caching host allocator, asked of ours: with the same numbers where
// sizes are powers of two, and with those of our classes otherwise.
#include "pinned/pinneds.h"

#define MB MIB  // as PyTorch's options count

// ---------------------------------------------------------------------------------------------------
// Views, other wrappers, other memory

PINNED_TEST(test_pinned_upstream__alias_and_slice) {
  const tide_stream stream = side_new(m);
  const tide_block tensor = take(p, 1024 * sizeof(float));
  const tide_block alias = { tensor.address, 0 };  // the same memory, wrapped by somebody else
  const tide_block slice = { bytes_of(tensor) + 64, tensor.handle };
  const tide_block foreign_slice = { bytes_of(tensor) + 64, 0 };

  T_OK(tide_pinned_record(p, tensor, 0, stream));
  T_OK(tide_pinned_record(p, alias, 0, stream));
  T_OK(tide_pinned_record(p, slice, 0, stream));
  T_STATUS(tide_pinned_record(p, foreign_slice, 0, stream), TIDE_ERR_ARGUMENT);
}

PINNED_TEST(test_pinned_upstream__raw_allocation_is_recordable_by_pointer) {
  const tide_stream stream = side_new(m);
  const tide_memory memory = tide_pinned_memory(p);
  void* address = NULL;
  T_OK(memory.alloc(&memory, 5000, 64, &address));
  T_EQ((uintptr_t)address % 64, 0);
  T_EQ(memory.is_host, machine_has_memory(m));

  T_OK(tide_pinned_record(p, (tide_block){ address, 0 }, 0, stream));

  T_OK(memory.release(&memory, address));
  stream_finish(m, 0, stream);
  poll_all(p);
  T_EQ(current(p, active_requests), 0);
}

PINNED_TEST(test_pinned_upstream__pageable_memory_is_not_recordable) {
  float* const tensor = malloc(1024 * sizeof *tensor);
  T_CHECK(tensor != NULL);

  T_STATUS(tide_pinned_record(p, (tide_block){ tensor, 0 }, 0, side_new(m)), TIDE_ERR_ARGUMENT);

  free(tensor);
}

PINNED_TEST(test_pinned_upstream__nothing_is_recordable_after_emptying) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, SINGLE);
  give(p, block);
  empty(p);

  T_STATUS(tide_pinned_record(p, block, 0, stream), TIDE_ERR_HANDLE);
}

PINNED_TEST(test_pinned_upstream__the_same_size_gets_the_same_memory) {
  (void)m;
  for (size_t bytes = 100; bytes < 4 * MB; bytes *= 5) {
    const tide_block block = take(p, bytes);
    give(p, block);
    const tide_block again = take(p, bytes);
    T_PTR_EQ(again.address, block.address);
    T_NE(again.handle, block.handle);  // unlike PyTorch's context, which cannot tell them apart
  }
}

// ---------------------------------------------------------------------------------------------------
// Registration and the helper

static void expect_pinned(tide_machine* m, tide_block block, size_t bytes, uint8_t value) {
  const tide_pointer_info info = pointer_info(m, block.address);
  T_EQ(info.kind, TIDE_MEMORY_PINNED);
  T_LE(bytes, pinned_room(m, block.address));
  paint(m, block, value, bytes);
  expect_painted(m, block.address, value, bytes);
}

PINNED_TEST_WITH(test_pinned_upstream__registration_with_eight_threads, machine_names, with_register) {
  const tide_block small = take(p, 8 * MB);
  const tide_block large = take(p, 64 * MB);

  expect_pinned(m, small, 8 * MB, 1);
  expect_pinned(m, large, 64 * MB, 2);
  if (!is_dry(m)) T_EQ((uintptr_t)large.address % (2 * MIB), 0);
}

typedef struct registrar {
  tide_machine* m;
  tide_pinned_cache* p;
  uint8_t number;
} registrar;

static void* register_one(void* user) {
  const registrar* const r = user;
  const tide_block block = take(r->p, 8 * MB);
  expect_pinned(r->m, block, 8 * MB, r->number);
  give(r->p, block);
  return NULL;
}

PINNED_TEST_WITH(test_pinned_upstream__registration_from_four_threads_at_once, machine_names, with_register) {
  pthread_t threads[4];
  registrar users[4];
  for (uint8_t i = 0; i < 4; ++i) {
    users[i] = (registrar){ m, p, (uint8_t)(i + 1) };
    t_thread_start(&threads[i], register_one, &users[i]);
  }
  for (size_t i = 0; i < 4; ++i) t_thread_join(threads[i]);

  T_EQ(current(p, active_requests), 0);
  empty(p);
  expect_nothing_left(p);
}

PINNED_TEST(test_pinned_upstream__emptying_unpins) {
  const holdings before = holdings_of(m);
  give(p, take(p, 100 * KIB));

  empty(p);

  T_EQ(holdings_of(m).pinned, before.pinned);
  T_EQ(current(p, reserved_bytes), 0);
}

PINNED_TEST_WITH(test_pinned_upstream__emptying_unregisters, machine_names, with_register) {
  const holdings before = holdings_of(m);
  give(p, take(p, 100 * KIB));
  T_EQ(holdings_of(m).registered, before.registered + 1);

  empty(p);

  T_EQ(holdings_of(m).registered, before.registered);
  T_EQ(current(p, reserved_bytes), 0);
}

PINNED_TEST_WITH(test_pinned_upstream__a_cache_with_a_helper_ends_cleanly, machine_names, with_helper) {
  const tide_stream stream = side_new(m);
  for (int i = 0; i < 20; ++i) {
    const tide_block block = take(p, SINGLE);
    announce(p, block, stream);
    give(p, block);
  }
}

// ---------------------------------------------------------------------------------------------------
// Statistics

// Requests of 40 and 80 KiB, and what each adds.
static void expect_counts(tide_pinned_cache* p, const tide_pinned_stats* before, int64_t bytes,
                          int64_t requests) {
  const tide_pinned_stats after = stats_of(p);
  T_EQ(after.allocations.current - before->allocations.current, requests);
  T_EQ(after.allocations.peak - before->allocations.peak, requests);
  T_EQ(after.allocations.allocated - before->allocations.allocated, requests);
  T_EQ(after.allocated_bytes.current - before->allocated_bytes.current, bytes);
  T_EQ(after.allocated_bytes.peak - before->allocated_bytes.peak, bytes);
  T_EQ(after.active_requests.current - before->active_requests.current, requests);
  T_EQ(after.active_bytes.current - before->active_bytes.current, bytes);
  T_EQ(after.num_host_alloc - before->num_host_alloc, requests);
  T_EQ(after.host_alloc_time.count - before->host_alloc_time.count, requests);
  T_EQ(after.num_host_free, before->num_host_free);
  T_EQ(after.host_free_time.count, before->host_free_time.count);
}

static void count_two_requests(tide_pinned_cache* p, int64_t first_bytes, int64_t second_bytes) {
  const tide_pinned_stats start = stats_of(p);
  const tide_block first = take(p, 40 * KIB);
  expect_counts(p, &start, first_bytes, 1);

  const tide_pinned_stats between = stats_of(p);
  const tide_block second = take(p, 80 * KIB);
  expect_counts(p, &between, second_bytes, 1);

  empty(p);  // changes nothing while both live
  expect_counts(p, &start, first_bytes + second_bytes, 2);
  give(p, first);
  give(p, second);
  T_EQ(current(p, active_bytes), 0);
  T_EQ(current(p, allocated_bytes), first_bytes + second_bytes);
  empty(p);
  const tide_pinned_stats end = stats_of(p);
  T_EQ(end.allocated_bytes.current, 0);
  T_EQ(end.allocations.freed, 2);
  T_EQ(end.num_host_free, 2);
  T_EQ(end.host_free_time.count, 2);
}

PINNED_TEST_WITH(test_pinned_upstream__statistics_in_powers_of_two, machine_names, with_powers) {
  (void)m;
  count_two_requests(p, 64 * (int64_t)KIB, 128 * (int64_t)KIB);
}

PINNED_TEST(test_pinned_upstream__statistics_in_our_classes) {
  (void)m;
  count_two_requests(p, 40 * (int64_t)KIB, 80 * (int64_t)KIB);
}

PINNED_TEST(test_pinned_upstream__active_counters_return_to_nothing) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  for (int i = 0; i < 2; ++i) {
    give(p, take(p, SINGLE));
    T_EQ(current(p, active_requests), 0);
    T_EQ(current(p, active_bytes), 0);

    const tide_block block = take(p, SINGLE);
    T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, SINGLE));
    give(p, block);
    stream_finish(m, 0, stream);
    empty(p);

    const tide_pinned_stats stats = stats_of(p);
    T_EQ(stats.active_requests.current, 0);
    T_EQ(stats.active_bytes.current, 0);
    T_EQ(stats.active_requests.freed, 2 * (i + 1));
    T_EQ(stats.active_bytes.freed, 2 * (i + 1) * (int64_t)SINGLE);
    T_EQ(stats.allocated_bytes.current, 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Thresholds

static void with_round_64(tide_pinned_options* options) {
  options->powers_of_two = true;
  options->max_round_bytes = 64 * MB;
}

PINNED_TEST_WITH(test_pinned_upstream__80_mb_over_a_round_limit_of_64_stay_80, machine_dry, with_round_64) {
  (void)m;
  (void)take(p, 80 * MB);
  T_EQ(current(p, allocated_bytes), 80 * MB);

  (void)take(p, 10 * MB);
  T_EQ(current(p, allocated_bytes), 96 * MB);
}

static void with_block_64(tide_pinned_options* options) {
  options->powers_of_two = true;
  options->max_block_bytes = 64 * MB;
}

PINNED_TEST_WITH(test_pinned_upstream__over_the_cached_limit_memory_goes_back_at_once, machine_dry,
                 with_block_64) {
  (void)m;
  const tide_block block = take(p, 80 * MB);
  T_EQ(current(p, allocated_bytes), 80 * MB);

  give(p, block);

  T_EQ(current(p, allocated_bytes), 0);
  T_EQ(current(p, active_bytes), 0);
  give(p, take(p, 10 * MB));
  T_EQ(current(p, allocated_bytes), 16 * MB);
}

static void with_round_256_block_64(tide_pinned_options* options) {
  options->powers_of_two = true;
  options->max_round_bytes = 256 * MB;
  options->max_block_bytes = 64 * MB;
}

PINNED_TEST_WITH(test_pinned_upstream__the_smaller_limit_wins, machine_dry, with_round_256_block_64) {
  (void)m;
  give(p, take(p, 80 * MB));
  T_EQ(stats_of(p).allocated_bytes.peak, 80 * MB);
  T_EQ(current(p, allocated_bytes), 0);
}

static void with_round_256_block_128(tide_pinned_options* options) {
  options->powers_of_two = true;
  options->max_round_bytes = 256 * MB;
  options->max_block_bytes = 128 * MB;
}

PINNED_TEST_WITH(test_pinned_upstream__130_mb_with_limits_of_256_and_128_stay_130, machine_dry,
                 with_round_256_block_128) {
  (void)m;
  (void)take(p, 130 * MB);
  T_EQ(current(p, allocated_bytes), 130 * MB);
}

// ---------------------------------------------------------------------------------------------------
// Copies

PINNED_TEST(test_pinned_upstream__copies_both_ways_do_not_block) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  const tide_block from = take(p, SINGLE);
  const tide_block to = take(p, SINGLE);
  gate g;
  paint(m, from, 0x21, SINGLE);
  paint(m, to, 0, SINGLE);
  hold_up(&g, m, stream);

  T_OK(tide_pinned_copy(p, from, 0, stream, device, from.address, SINGLE));
  T_OK(tide_pinned_copy(p, to, 0, stream, to.address, device, SINGLE));

  if (machine_has_memory(m)) T_EQ(*bytes_of(to), 0);
  let_go(&g);
  expect_painted(m, to.address, 0x21, SINGLE);
}

PINNED_TEST(test_pinned_upstream__a_slice_is_copied_by_its_own_pointer) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  const tide_block block = take(p, SINGLE);
  const tide_block slice = { bytes_of(block) + 1000, block.handle };
  paint(m, block, 0x10, 1000);
  paint(m, slice, 0x20, SINGLE - 1000);
  gate g;
  hold_up(&g, m, stream);

  T_OK(tide_pinned_copy(p, slice, 0, stream, device, slice.address, SINGLE - 1000));
  give(p, block);
  const tide_block other = take(p, SINGLE);
  paint(m, other, 0x30, SINGLE);

  let_go(&g);
  expect_filled(m, 0, device, 0x20, SINGLE - 1000);
}

PINNED_TEST(test_pinned_upstream__a_buffer_is_not_used_again_while_a_delayed_stream_reads_it) {
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  gate g;
  const tide_block block = take(p, SINGLE);
  paint(m, block, 0x01, SINGLE);
  hold_up(&g, m, stream);
  T_OK(tide_machine_copy(m, 0, stream, device, block.address, SINGLE));
  announce(p, block, stream);
  give(p, block);

  const tide_block next = take(p, SINGLE);
  paint(m, next, 0x02, SINGLE);
  T_CHECK(!is_same_memory(next, block));

  let_go(&g);
  expect_filled(m, 0, device, 0x01, SINGLE);
  give(p, next);
}
