// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checkpoints of pools: which blocks a restore brings back, which it takes back, and
// tide_device_pool_check().
#define T_THREADS
#define DEVICE_HAS_PLAIN
#include "device/devices.h"

#define BYTES (96 * KIB)

static tide_checkpoint* save(tide_device_cache* d, tide_pool pool) {
  tide_checkpoint* checkpoint = NULL;
  T_OK(tide_device_checkpoint(d, pool, &checkpoint));
  T_CHECK(checkpoint != NULL);
  return checkpoint;
}

static tide_restore_delta restore(tide_device_cache* d, const tide_checkpoint* checkpoint) {
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  T_OK(tide_device_restore(d, checkpoint, &delta));
  return delta;
}

static void restore_end(tide_restore_delta* delta, tide_checkpoint* checkpoint) {
  tide_restore_delta_clear(delta);
  tide_checkpoint_free(checkpoint);
}

// Restores, frees what that needed, and returns how many blocks were created.
static size_t restore_and_end(tide_device_cache* d, tide_checkpoint* checkpoint) {
  tide_restore_delta delta = restore(d, checkpoint);
  const size_t count = delta.created_count;
  restore_end(&delta, checkpoint);
  return count;
}

static bool has_created(const tide_restore_delta* delta, const void* address) {
  for (size_t i = 0; i < delta->created_count; ++i) {
    if (delta->created[i].address == address) return true;
  }
  return false;
}

static bool has_released(const tide_restore_delta* delta, const void* address) {
  for (size_t i = 0; i < delta->released_count; ++i) {
    if (delta->released[i] == address) return true;
  }
  return false;
}

static size_t end_block(const seen* s, size_t segment) {
  return segment + 1 < s->segment_count ? s->first_block[segment + 1] : s->block_count;
}

static void expect_same_blocks(const seen* a, size_t i, const seen* b, size_t k) {
  const size_t count = end_block(a, i) - a->first_block[i];
  T_EQ(a->segments[i].bytes, b->segments[k].bytes);
  T_EQ(a->segments[i].allocated_bytes, b->segments[k].allocated_bytes);
  T_EQ(end_block(b, k) - b->first_block[k], count);
  for (size_t n = 0; n < count; ++n) {
    const tide_block_info* const x = &a->blocks[a->first_block[i] + n];
    const tide_block_info* const y = &b->blocks[b->first_block[k] + n];
    T_EQ(x->address, y->address);
    T_EQ(x->bytes, y->bytes);
    T_EQ(x->state, y->state);
  }
}

// The pool looks as before, block by block; segments that came since are idle.
static void expect_same(const seen* before, const seen* after) {
  size_t i = 0;
  for (size_t k = 0; k < after->segment_count; ++k) {
    const bool is_old = i < before->segment_count &&
                        before->segments[i].address == after->segments[k].address;
    if (is_old) expect_same_blocks(before, i++, after, k);
    else T_EQ(after->segments[k].active_bytes, 0);
  }
  T_EQ(i, before->segment_count);
}

// ---------------------------------------------------------------------------------------------------
// What comes back

DEVICE_TEST(test_device__restore_brings_a_dead_block_back) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take_in(d, pool, NULL, BYTES);
  device_fill(m, 0, bytes_of(block), 4, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);
  give(d, block);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.released_count, 0);
  T_EQ(delta.created_count, 1);
  T_PTR_EQ(delta.created[0].address, block.address);
  T_NE(delta.created[0].handle, block.handle);
  T_EQ(current(d, allocation), 1);
  expect_filled(m, 0, bytes_of(block), 4, BYTES);
  give(d, delta.created[0]);
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__blocks_that_live_through_a_restore_get_new_handles) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take_in(d, pool, NULL, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.released_count, 1);
  T_PTR_EQ(delta.released[0], block.address);
  T_PTR_EQ(delta.created[0].address, block.address);
  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);
  T_OK(tide_device_release_address(d, block.address));
  T_EQ(current(d, active), 0);
  restore_end(&delta, checkpoint);
}

// Takes five blocks, keeps those of a mask, saves, changes everything, and restores.
static void expect_restored(tide_device_cache* d, unsigned kept, size_t bytes) {
  enum { COUNT = 5 };
  const tide_pool pool = pool_new(d, NULL);
  tide_block blocks[COUNT];
  for (size_t i = 0; i < COUNT; ++i) blocks[i] = take_in(d, pool, NULL, bytes);
  for (size_t i = 0; i < COUNT; ++i) {
    if ((kept >> i & 1) == 0) give(d, blocks[i]);
  }
  tide_checkpoint* const checkpoint = save(d, pool);
  const seen before = look_at_pool(d, pool);
  for (size_t i = 0; i < COUNT; ++i) {
    if ((kept >> i & 1) != 0) give(d, blocks[i]);
  }
  const tide_block later = take_in(d, pool, NULL, 2 * bytes);

  tide_restore_delta delta = restore(d, checkpoint);

  const seen after = look_at_pool(d, pool);
  expect_same(&before, &after);
  T_EQ(delta.released_count, 1);
  T_PTR_EQ(delta.released[0], later.address);
  T_EQ(delta.created_count, (size_t)__builtin_popcount(kept));
  for (size_t i = 0; i < COUNT; ++i) T_EQ(has_created(&delta, blocks[i].address), (kept >> i & 1) != 0);
  for (size_t i = 0; i < delta.created_count; ++i) give(d, delta.created[i]);
  restore_end(&delta, checkpoint);
}

static void expect_every_pattern_restored(tide_device_cache* d) {
  for (unsigned kept = 0; kept < 32; ++kept) expect_restored(d, kept, BYTES);
  for (unsigned kept = 2; kept < 32; kept += 4) expect_restored(d, kept, 3 * MIB);
}

DEVICE_TEST(test_device__restore_works_for_every_pattern) { expect_every_pattern_restored(d); }

DEVICE_TEST(test_device__restore_works_in_expandable_segments) {
  expand(m, d);
  expect_every_pattern_restored(d);
}

DEVICE_TEST(test_device__restore_takes_later_blocks_back) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block kept = take_in(d, pool, NULL, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);
  const tide_block later = take_in(d, pool, NULL, BYTES);
  const tide_block large = take_in(d, pool, NULL, 12 * MIB);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.released_count, 3);
  T_CHECK(has_released(&delta, later.address) && has_released(&delta, large.address));
  T_STATUS(tide_device_release(d, later), TIDE_ERR_HANDLE);
  T_EQ(current(d, allocation), 1);
  T_EQ(pool_reserved(d, pool), 14 * MIB);  // the new segment stays, idle
  T_PTR_EQ(take_in(d, pool, NULL, 12 * MIB).address, large.address);
  T_CHECK(has_created(&delta, kept.address));
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__an_expandable_segment_that_grew_is_restored) {
  const tide_pool pool = pool_new(d, NULL);
  expand(m, d);
  const tide_block kept = take_in(d, pool, NULL, 5 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  (void)take_in(d, pool, NULL, 40 * MIB);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.created_count, 1);
  T_PTR_EQ(delta.created[0].address, kept.address);
  T_EQ(current(d, allocated_bytes), 5 * MIB);
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__a_checkpoint_can_be_restored_again) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take_in(d, pool, NULL, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);
  uint64_t reserved = 0;

  for (uint8_t i = 1; i <= 5; ++i) {
    tide_restore_delta delta = restore(d, checkpoint);
    T_EQ(delta.created_count, 1);
    T_PTR_EQ(delta.created[0].address, block.address);
    device_fill(m, 0, bytes_of(delta.created[0]), i, BYTES);
    (void)take_in(d, pool, NULL, 3 * MIB);
    tide_restore_delta_clear(&delta);
    if (i == 1) reserved = pool_reserved(d, pool);
  }

  T_EQ(pool_reserved(d, pool), reserved);
  tide_checkpoint_free(checkpoint);
}

DEVICE_TEST(test_device__an_empty_checkpoint_empties_the_pool_and_no_other) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_pool other = pool_new(d, NULL);
  tide_checkpoint* const checkpoint = save(d, pool);
  (void)take_in(d, pool, NULL, BYTES);
  const tide_block outside = take(d, NULL, BYTES);
  const tide_block elsewhere = take_in(d, other, NULL, BYTES);

  T_EQ(restore_and_end(d, checkpoint), 0);

  T_EQ(current(d, active), 2);
  give(d, outside);
  give(d, elsewhere);
}

DEVICE_TEST(test_device__restore_covers_all_streams_of_a_pool) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  const tide_block a = take_in(d, pool, NULL, BYTES);
  const tide_block b = take_in(d, pool, side, 3 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  give(d, a);
  give(d, b);

  tide_restore_delta delta = restore(d, checkpoint);

  T_CHECK(has_created(&delta, a.address) && has_created(&delta, b.address));
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__restoring_counts_as_requests_and_releases) {
  const tide_pool pool = pool_new(d, NULL);
  (void)take_in(d, pool, NULL, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);
  const tide_device_stats before = stats_of(d);

  T_EQ(restore_and_end(d, checkpoint), 1);

  const tide_device_stats after = stats_of(d);
  T_EQ(after.allocation[0].current, 1);
  T_LT(before.allocation[0].allocated, after.allocation[0].allocated);
  T_LT(before.allocation[0].freed, after.allocation[0].freed);
  T_EQ(after.segment[0].allocated, before.segment[0].allocated);
}

static void count_entry(void* user, const tide_trace_entry* entry) { ++((size_t*)user)[entry->action]; }

DEVICE_TEST(test_device__trace_observers_hear_every_step_of_a_restore) {
  enum { COUNT = 100 };
  const tide_pool pool = pool_new(d, NULL);
  size_t times[TIDE_ACTION_COUNT] = { 0 };
  tide_checkpoint* const checkpoint = save(d, pool);
  for (size_t i = 0; i < COUNT; ++i) (void)take_in(d, pool, NULL, BYTES);
  const tide_observer observer = observe_trace(d, count_entry, times);

  T_EQ(restore_and_end(d, checkpoint), 0);

  T_EQ(times[TIDE_ACTION_FREE_REQUESTED], COUNT);
  T_EQ(times[TIDE_ACTION_FREE_COMPLETED], COUNT);
  T_OK(tide_device_detach(d, observer));
}

// ---------------------------------------------------------------------------------------------------
// What the pool lent to the default pool

// A pool that lends, with room for `bytes`, under a limit that makes the default pool borrow.
static tide_pool lender_new(tide_device_cache* d, size_t bytes) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.use_on_oom = true;
  const tide_pool pool = pool_new(d, &options);
  limit_to(d, bytes);
  give(d, take_in(d, pool, NULL, bytes));
  return pool;
}

DEVICE_TEST(test_device__restore_takes_back_nothing_that_the_default_pool_borrowed) {
  const tide_pool pool = lender_new(d, 30 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  const tide_block borrowed = take(d, NULL, 30 * MIB);
  device_fill(m, 0, bytes_of(borrowed), 7, 30 * MIB);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.released_count, 0);
  T_EQ(delta.created_count, 0);
  scope_open(d, pool);
  expect_oom(d, NULL, 30 * MIB);  // not a second time
  scope_close(d, pool);
  expect_filled(m, 0, bytes_of(borrowed), 7, 30 * MIB);
  give(d, borrowed);
  T_PTR_EQ(take_in(d, pool, NULL, 30 * MIB).address, borrowed.address);
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__what_is_borrowed_when_a_pool_is_saved_counts_as_idle) {
  const tide_pool pool = lender_new(d, 30 * MIB);
  const tide_block borrowed = take(d, NULL, 12 * MIB);
  const tide_block own = take_in(d, pool, NULL, 6 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  give(d, own);

  tide_restore_delta delta = restore(d, checkpoint);

  T_EQ(delta.released_count, 0);
  T_EQ(delta.created_count, 1);
  T_PTR_EQ(delta.created[0].address, own.address);
  T_EQ(current(d, allocated_bytes), 18 * MIB);
  give(d, borrowed);
  tide_restore_delta again = restore(d, checkpoint);
  T_EQ(again.released_count, 1);
  T_EQ(again.created_count, 1);
  T_EQ(current(d, allocated_bytes), 6 * MIB);
  tide_restore_delta_clear(&again);
  restore_end(&delta, checkpoint);
}

DEVICE_TEST(test_device__restore_refuses_where_a_borrowed_block_is_in_the_way) {
  const tide_pool pool = lender_new(d, 30 * MIB);
  const tide_block first = take_in(d, pool, NULL, 12 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  give(d, first);
  const tide_block borrowed = take(d, NULL, 6 * MIB);
  const tide_block later = take_in(d, pool, NULL, 6 * MIB);
  T_PTR_EQ(borrowed.address, first.address);
  device_fill(m, 0, bytes_of(borrowed), 9, 6 * MIB);
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;

  T_STATUS(tide_device_restore(d, checkpoint, &delta), TIDE_ERR_STATE);

  T_EQ(delta.released_count, 0);
  T_EQ(current(d, allocated_bytes), 12 * MIB);
  expect_filled(m, 0, bytes_of(borrowed), 9, 6 * MIB);
  give(d, borrowed);
  delta = restore(d, checkpoint);
  T_CHECK(has_released(&delta, later.address) && has_created(&delta, first.address));
  restore_end(&delta, checkpoint);
}

// ---------------------------------------------------------------------------------------------------
// What is refused

DEVICE_TEST(test_device__checkpoints_need_a_pool_with_users) {
  const tide_pool pool = pool_new(d, NULL);
  (void)take_in(d, pool, NULL, BYTES);
  tide_checkpoint* const checkpoint = save(d, pool);
  tide_checkpoint* none = (tide_checkpoint*)1;
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  T_STATUS(tide_device_checkpoint(d, 77, &none), TIDE_ERR_HANDLE);
  T_PTR_EQ(none, NULL);
  T_STATUS(tide_device_checkpoint(d, TIDE_POOL_DEFAULT, &none), TIDE_ERR_HANDLE);

  T_OK(tide_device_pool_drop(d, pool));

  T_STATUS(tide_device_checkpoint(d, pool, &none), TIDE_ERR_STATE);
  T_STATUS(tide_device_restore(d, checkpoint, &delta), TIDE_ERR_STATE);
  T_EQ(delta.created_count, 0);
  T_EQ(current(d, allocation), 1);
  tide_checkpoint_free(checkpoint);
}

DEVICE_TEST(test_device__checkpoints_refuse_blocks_that_wait) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  tide_checkpoint* checkpoint = NULL;
  gate g;
  const tide_block block = take_in(d, pool, NULL, BYTES);
  hold_up(&g, m, side);
  give_announced(d, block, side);

  T_STATUS(tide_device_checkpoint(d, pool, &checkpoint), TIDE_ERR_STATE);
  let_go(&g);
  T_OK(tide_device_checkpoint(d, pool, &checkpoint));

  tide_checkpoint_free(checkpoint);
}

TORCH_TEST(test_device__restore_refuses_when_a_segment_is_gone_and_changes_nothing) {
  const tide_pool pool = pool_new(d, NULL);
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  configure(d, "max_split_size_mb:20");
  limit_to(d, 60 * MIB);
  const tide_block block = take_in(d, pool, NULL, 24 * MIB);
  tide_checkpoint* const checkpoint = save(d, pool);
  give(d, block);
  scope_open(d, pool);
  give(d, take(d, NULL, 30 * MIB));
  const tide_block later = take(d, NULL, 50 * MIB);  // the segments of 24 and 30 MiB are given back for it
  scope_close(d, pool);

  T_STATUS(tide_device_restore(d, checkpoint, &delta), TIDE_ERR_STATE);

  T_EQ(delta.released_count, 0);
  T_EQ(current(d, allocation), 1);
  give(d, later);
  tide_checkpoint_free(checkpoint);
}

DEVICE_TEST(test_device__checkpoints_of_another_allocator_are_refused) {
  tide_device_cache* const other = device_new(m, 0, NULL);
  tide_checkpoint* const checkpoint = save(other, pool_new(other, NULL));
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  (void)pool_new(d, NULL);

  T_STATUS(tide_device_restore(d, checkpoint, &delta), TIDE_ERR_ARGUMENT);

  tide_checkpoint_free(checkpoint);
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// Which blocks are out

static bool are_exactly(tide_device_cache* d, tide_pool pool, const void* const* addresses, size_t count) {
  bool is_so = false;
  T_OK(tide_device_pool_check(d, pool, addresses, count, &is_so));
  return is_so;
}

DEVICE_TEST(test_device__pool_check_knows_exactly_what_is_out) {
  int local = 0;
  const tide_pool pool = pool_new(d, NULL);
  T_CHECK(are_exactly(d, pool, NULL, 0));
  const tide_block a = take_in(d, pool, NULL, BYTES);
  const tide_block b = take_in(d, pool, NULL, 3 * MIB);
  const void* const addresses[] = { b.address, a.address, &local };

  T_CHECK(are_exactly(d, pool, addresses, 2));
  T_CHECK(!are_exactly(d, pool, addresses, 3));      // one too many
  T_CHECK(!are_exactly(d, pool, addresses, 1));      // one is missing
  T_CHECK(!are_exactly(d, pool, addresses + 1, 2));  // another one
  T_CHECK(!are_exactly(d, pool, NULL, 0));
  give(d, b);

  bool is_so = true;
  T_CHECK(are_exactly(d, pool, addresses + 1, 1));
  T_STATUS(tide_device_pool_check(d, 77, NULL, 0, &is_so), TIDE_ERR_HANDLE);
  T_CHECK(!is_so);
}

// ---------------------------------------------------------------------------------------------------
// Threads that use a pool, and one that does not

typedef struct pool_user {
  tide_device_cache* device;
  tide_pool pool;
} pool_user;

static void take_three(tide_device_cache* d) {
  tide_block blocks[3];
  for (size_t i = 0; i < 3; ++i) blocks[i] = take(d, NULL, 20 * MIB);
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);
}

static void* use_the_pool(void* user) {
  const pool_user* const u = user;
  scope_open(u->device, u->pool);
  for (int i = 0; i < 10; ++i) take_three(u->device);
  scope_close(u->device, u->pool);
  take_three(u->device);
  return NULL;
}

static void* use_no_pool(void* user) {
  const pool_user* const u = user;
  for (int i = 0; i < 10; ++i) {
    const tide_block a = take(u->device, NULL, 20 * MIB);
    const tide_block b = take(u->device, NULL, 20 * MIB);
    give(u->device, a);
    give(u->device, b);
  }
  return NULL;
}

static size_t segments_after_use_by_threads(tide_device_cache* d) {
  pool_user u = { d, pool_new(d, NULL) };
  pthread_t threads[2];
  (void)take_in(d, u.pool, NULL, BYTES);
  t_thread_start(&threads[0], use_the_pool, &u);
  t_thread_start(&threads[1], use_no_pool, &u);
  t_thread_join(threads[0]);
  t_thread_join(threads[1]);
  const seen s = look_at_pool(d, u.pool);
  return s.segment_count;
}

TORCH_TEST(test_device__threads_allocate_to_a_pool_in_4_segments) {
  T_EQ(segments_after_use_by_threads(d), 4);
}

DEVICE_TEST(test_device__threads_allocate_to_a_pool_in_2_expandable_segments) {
  expand(m, d);
  T_EQ(segments_after_use_by_threads(d), has_plain_pools() ? 4 : 2);
}
