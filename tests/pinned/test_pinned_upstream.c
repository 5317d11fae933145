// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What PyTorch's own tests ask of its caching host allocator, asked of ours: with the same numbers where
// sizes are powers of two, and with those of our classes otherwise.
#define T_THREADS
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
// The helper

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

// ---------------------------------------------------------------------------------------------------
// Thresholds

// A request under two limits: what it takes, and what stays cached after its release.
typedef struct threshold {
  uint64_t max_round_bytes;
  uint64_t max_block_bytes;
  size_t bytes;
  uint64_t taken;
  uint64_t cached;
} threshold;

T_TEST(test_pinned_upstream__thresholds) {
  static const threshold rows[] = { { 64 * MB, TIDE_NO_LIMIT, 80 * MB, 80 * MB, 80 * MB },
                                    { 64 * MB, TIDE_NO_LIMIT, 10 * MB, 16 * MB, 16 * MB },
                                    { TIDE_NO_LIMIT, 64 * MB, 80 * MB, 80 * MB, 0 },
                                    { TIDE_NO_LIMIT, 64 * MB, 10 * MB, 16 * MB, 16 * MB },
                                    { TIDE_NO_LIMIT, 12 * MB, 10 * MB, 16 * MB, 0 },
                                    { TIDE_NO_LIMIT, 600 * KIB, 520 * KIB, 1 * MB, 0 },
                                    { 0, TIDE_NO_LIMIT, 10 * MB + 1, 10 * MB + 4096, 10 * MB + 4096 },
                                    { TIDE_NO_LIMIT, 0, 10 * MB, 10 * MB, 0 },
                                    { 256 * MB, 64 * MB, 80 * MB, 80 * MB, 0 },
                                    { 256 * MB, 128 * MB, 130 * MB, 130 * MB, 0 } };
  const tide_dry_options machine = TIDE_DRY_OPTIONS_INIT;
  tide_machine* m = NULL;
  T_OK(tide_machine_new_dry(&machine, &m));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
    options.powers_of_two = true;
    options.max_round_bytes = rows[i].max_round_bytes;
    options.max_block_bytes = rows[i].max_block_bytes;
    tide_pinned_cache* const p = pinned_open(m, &options);
    const tide_block block = take(p, rows[i].bytes);
    T_EQ(current(p, allocated_bytes), rows[i].taken);
    give(p, block);
    T_EQ(current(p, allocated_bytes), rows[i].cached);
    T_EQ(current(p, active_bytes), 0);
    tide_pinned_free(p, NULL);
  }
  tide_machine_free(m);
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
