// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Private pools: users, scopes, routing of requests, user functions for segments, and when a pool is removed.
#define T_THREADS
#define DEVICE_HAS_PLAIN
#include "device/devices.h"

static void release_pool(tide_device_cache* d, tide_pool pool) { T_OK(tide_device_pool_drop(d, pool)); }

static bool is_in_pool(tide_device_cache* d, tide_block block, tide_pool pool) {
  const seen s = look_at_pool(d, pool);
  return seen_around(&s, block.address) != NULL;
}

// ---------------------------------------------------------------------------------------------------
// Numbers and users

DEVICE_TEST(test_device__pool_numbers_rise_and_are_not_used_again) {
  const tide_pool a = pool_new(d, NULL);
  const tide_pool b = pool_new(d, NULL);
  release_pool(d, b);
  trim(d);

  const tide_pool c = pool_new(d, NULL);

  T_LT(a, b);
  T_LT(b, c);
}

enum { POOL_THREADS = 4, POOLS_EACH = 50 };

typedef struct pool_maker {
  tide_device_cache* device;
  atomic_bool is_used[POOL_THREADS * POOLS_EACH + 1];  // by the number of a pool
} pool_maker;

static void* make_pools(void* user) {
  pool_maker* const maker = user;
  for (size_t i = 0; i < POOLS_EACH; ++i) {
    const tide_pool pool = pool_new(maker->device, NULL);
    T_LE(pool, POOL_THREADS * POOLS_EACH);
    T_CHECK(!atomic_exchange(&maker->is_used[pool], true));
  }
  return NULL;
}

DEVICE_TEST(test_device__pool_numbers_differ_across_threads) {
  pool_maker maker = { .device = d };
  run_threads(POOL_THREADS, make_pools, &maker);
}

DEVICE_TEST(test_device__users_of_a_pool_are_counted) {
  const tide_pool pool = pool_new(d, NULL);
  T_EQ(pool_users(d, pool), 1);

  T_OK(tide_device_pool_retain(d, pool));
  T_EQ(pool_users(d, pool), 2);
  release_pool(d, pool);
  T_EQ(pool_users(d, pool), 1);
  release_pool(d, pool);

  T_EQ(pool_users(d, pool), 0);
  T_STATUS(tide_device_pool_retain(d, pool), TIDE_ERR_STATE);
  T_STATUS(tide_device_pool_drop(d, pool), TIDE_ERR_STATE);
  T_STATUS(tide_device_pool_begin(d, pool, NULL), TIDE_ERR_STATE);
}

DEVICE_TEST(test_device__pools_that_are_not_there_are_refused) {
  uint32_t users = 1;
  const tide_scope scope = TIDE_SCOPE_INIT;

  T_STATUS(tide_device_pool_users(d, 77, &users), TIDE_ERR_HANDLE);
  T_EQ(users, 0);
  T_STATUS(tide_device_pool_retain(d, 77), TIDE_ERR_HANDLE);
  T_STATUS(pool_begin_kept(d, TIDE_POOL_DEFAULT, &scope), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_pool_end(d, 77), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_trim_pool(d, 77), TIDE_ERR_HANDLE);
}

// ---------------------------------------------------------------------------------------------------
// Labels

static tide_pool labelled_pool(tide_device_cache* d, uint64_t first, uint64_t second) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = first;
  options.label[1] = second;
  return pool_new(d, &options);
}

static tide_pool pool_with_label(tide_device_cache* d, uint64_t first, uint64_t second) {
  tide_pool found = 0;
  T_OK(tide_device_pool_find(d, (uint64_t[2]){ first, second }, &found));
  return found;
}

DEVICE_TEST(test_device__pools_are_found_by_their_label) {
  const tide_pool graph = labelled_pool(d, 7, 0);
  const tide_pool user = labelled_pool(d, 0, 7);

  T_EQ(pool_with_label(d, 7, 0), graph);
  T_EQ(pool_with_label(d, 0, 7), user);
  release_pool(d, graph);
  T_EQ(pool_with_label(d, 7, 0), graph);  // without users as well
  const tide_pool young = labelled_pool(d, 7, 0);

  T_EQ(pool_with_label(d, 7, 0), young);  // the newest
}

DEVICE_TEST(test_device__unknown_labels_are_not_found) {
  tide_pool found = 9;
  const tide_pool gone = labelled_pool(d, 5, 0);
  (void)pool_new(d, NULL);
  release_pool(d, gone);
  trim(d);

  T_STATUS(tide_device_pool_find(d, (uint64_t[2]){ 5, 0 }, &found), TIDE_ERR_HANDLE);
  T_EQ(found, 0);
  T_STATUS(tide_device_pool_find(d, (uint64_t[2]){ 0, 0 }, &found), TIDE_ERR_ARGUMENT);
}

// ---------------------------------------------------------------------------------------------------
// Where requests go

TORCH_TEST(test_device__two_of_1_mib_share_a_segment_of_a_pool) {
  const tide_pool pool = pool_new(d, NULL);

  (void)take_in(d, pool, NULL, MIB);
  (void)take_in(d, pool, NULL, MIB);
  T_EQ(current(d, segment), 1);
  (void)take_in(d, pool, NULL, MIB);

  T_EQ(current(d, segment), 2);
  T_EQ(pool_reserved(d, pool), 4 * MIB);
}

DEVICE_TEST(test_device__memory_of_a_pool_stays_in_it) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block inside = take_in(d, pool, NULL, 12 * MIB);
  give(d, inside);

  const tide_block outside = take(d, NULL, 12 * MIB);

  T_CHECK(outside.address != inside.address);
  T_PTR_EQ(take_in(d, pool, NULL, 12 * MIB).address, inside.address);
  give(d, outside);
  T_CHECK(take_in(d, pool, NULL, 12 * MIB).address != outside.address);
}

DEVICE_TEST(test_device__the_newest_open_scope_wins) {
  const tide_pool first = pool_new(d, NULL);
  const tide_pool second = pool_new(d, NULL);

  scope_open(d, first);
  T_CHECK(is_in_pool(d, take(d, NULL, 4096), first));
  scope_open(d, second);
  T_CHECK(is_in_pool(d, take(d, NULL, 4096), second));
  scope_close(d, second);
  T_CHECK(is_in_pool(d, take(d, NULL, 4096), first));
  scope_open(d, second);
  scope_close(d, first);  // in any order
  T_CHECK(is_in_pool(d, take(d, NULL, 4096), second));
  scope_close(d, second);

  T_CHECK(is_in_pool(d, take(d, NULL, 4096), TIDE_POOL_DEFAULT));
}

typedef struct taker {
  tide_device_cache* device;
  tide_block block;
} taker;

static void* take_it(void* user) {
  taker* const t = user;
  t->block = take(t->device, NULL, 4096);
  return NULL;
}

// What a request of another thread gets.
static tide_block take_elsewhere(tide_device_cache* d) {
  taker t = { d, { NULL, 0 } };
  run_threads(1, take_it, &t);
  return t.block;
}

static bool is_wanted_stream(void* user, tide_stream stream) { return *(tide_stream*)user == stream; }

// Which requests a scope takes: of this thread, of this thread on its stream, and of another thread.
static const struct {
  uint32_t kind;
  bool has_thread;
  bool has_stream;
  bool has_other_thread;
} scope_cases[] = {
  { TIDE_SCOPE_THREAD, true, true, false },
  { TIDE_SCOPE_ALL, true, true, true },
  { TIDE_SCOPE_STREAM, false, true, false },
  { TIDE_SCOPE_FILTER, false, true, false },
};

DEVICE_TEST(test_device__a_scope_takes_the_requests_of_its_kind) {
  tide_stream stream = side_new(m);
  for (size_t i = 0; i < sizeof scope_cases / sizeof scope_cases[0]; ++i) {
    const tide_pool pool = pool_new(d, NULL);
    const tide_scope scope = { sizeof scope, scope_cases[i].kind, stream, is_wanted_stream, &stream, false };
    T_OK(pool_begin_kept(d, pool, &scope));
    const tide_block here = take(d, NULL, 4096);
    const tide_block on_stream = take(d, stream, 4096);
    const tide_block elsewhere = take_elsewhere(d);
    scope_close(d, pool);
    T_CHECK(is_in_pool(d, here, scope_cases[i].has_thread ? pool : TIDE_POOL_DEFAULT));
    T_CHECK(is_in_pool(d, on_stream, scope_cases[i].has_stream ? pool : TIDE_POOL_DEFAULT));
    T_CHECK(is_in_pool(d, elsewhere, scope_cases[i].has_other_thread ? pool : TIDE_POOL_DEFAULT));
  }
}

DEVICE_TEST(test_device__scopes_are_refused_twice_and_without_a_beginning) {
  const tide_pool pool = pool_new(d, NULL);
  tide_scope scope = TIDE_SCOPE_INIT;

  T_STATUS(tide_device_pool_end(d, pool), TIDE_ERR_STATE);
  scope_open(d, pool);
  T_STATUS(pool_begin_kept(d, pool, &scope), TIDE_ERR_STATE);
  T_EQ(pool_users(d, pool), 2);
  scope_close(d, pool);
  scope.kind = TIDE_SCOPE_FILTER;
  T_STATUS(pool_begin_kept(d, pool, &scope), TIDE_ERR_ARGUMENT);
}

DEVICE_TEST(test_device__at_most_64_scopes_are_open) {
  const tide_scope scope = TIDE_SCOPE_INIT;
  for (int i = 0; i < 64; ++i) scope_open(d, pool_new(d, NULL));
  const tide_pool one_more = pool_new(d, NULL);

  T_STATUS(pool_begin_kept(d, one_more, &scope), TIDE_ERR_LIMIT);

  T_EQ(pool_users(d, one_more), 1);
}

// ---------------------------------------------------------------------------------------------------
// Pressure

DEVICE_TEST(test_device__inside_a_scope_an_oom_gives_nothing_back) {
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 40 * MIB);
  give(d, take(d, NULL, 30 * MIB));

  scope_open(d, pool);
  expect_oom(d, NULL, 20 * MIB);
  scope_close(d, pool);

  T_EQ(current(d, reserved_bytes), 30 * MIB);
  T_EQ(counter(d, num_alloc_retries), 0);
}

DEVICE_TEST(test_device__use_on_oom_serves_the_default_pool_from_idle_blocks) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.use_on_oom = true;
  const tide_pool pool = pool_new(d, &options);
  limit_to(d, 40 * MIB);
  const tide_block inside = take_in(d, pool, NULL, 30 * MIB);
  expect_oom(d, NULL, 20 * MIB);
  give(d, inside);

  const tide_block borrowed = take(d, NULL, 30 * MIB);

  T_PTR_EQ(borrowed.address, inside.address);
  T_EQ(current(d, reserved_bytes), 30 * MIB);
  give(d, borrowed);
  T_PTR_EQ(take_in(d, pool, NULL, 30 * MIB).address, inside.address);  // it went back to the pool
}

// Whoever borrows decides as the pool does.
DEVICE_TEST(test_device__use_on_oom_does_not_split_what_may_not_be_split) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.use_on_oom = true;
  options.no_split = true;
  const tide_pool pool = pool_new(d, &options);
  limit_to(d, 40 * MIB);
  give(d, take_in(d, pool, NULL, 30 * MIB));

  const tide_block borrowed = take(d, NULL, 20 * MIB);

  T_EQ(current(d, allocated_bytes), 30 * MIB);
  give(d, borrowed);
}

DEVICE_TEST(test_device__use_on_oom_lends_only_what_is_offered_and_only_to_the_default_pool) {
  const tide_pool closed = pool_new(d, NULL);
  const tide_pool open = pool_new(d, NULL);
  limit_to(d, 48 * MIB);
  give(d, take_in(d, closed, NULL, 24 * MIB));
  const tide_block offered = take_in(d, open, NULL, 24 * MIB);
  give(d, offered);
  expect_oom(d, NULL, 24 * MIB);

  T_OK(tide_device_pool_set_use_on_oom(d, open, true));
  const tide_block borrowed = take(d, NULL, 24 * MIB);
  T_PTR_EQ(borrowed.address, offered.address);
  expect_oom(d, NULL, 24 * MIB);
  give(d, borrowed);
  const tide_pool other = pool_new(d, NULL);
  scope_open(d, other);
  expect_oom(d, NULL, 24 * MIB);
  scope_close(d, other);
  T_OK(tide_device_pool_set_use_on_oom(d, open, false));

  expect_oom(d, NULL, 24 * MIB);
}

// ---------------------------------------------------------------------------------------------------
// Trimming and the end

DEVICE_TEST(test_device__trim_gives_back_and_drops_pools_without_users) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_pool other = pool_new(d, NULL);
  uint32_t users = 0;
  const tide_block own = take(d, NULL, 10 * MIB);
  const tide_block block = take_in(d, pool, NULL, 12 * MIB);
  const tide_block beside = take_in(d, other, NULL, 14 * MIB);
  give(d, own);

  T_OK(tide_device_trim_pool(d, pool));
  T_EQ(pool_reserved(d, pool), 12 * MIB);
  release_pool(d, pool);
  release_pool(d, other);
  give(d, block);
  give(d, beside);
  T_EQ(pool_reserved(d, pool), 12 * MIB);
  T_OK(tide_device_trim_pool(d, pool));  // that one only
  T_EQ(current(d, reserved_bytes), 24 * MIB);
  T_EQ(pool_reserved(d, other), 14 * MIB);

  expect_trimmed(d, 0);
  T_STATUS(tide_device_pool_users(d, pool, &users), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_pool_users(d, other, &users), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__trim_inside_a_scope_touches_neither_the_pool_nor_the_default) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take(d, NULL, 10 * MIB);
  scope_open(d, pool);
  give(d, take(d, NULL, 12 * MIB));
  give(d, block);

  trim(d);

  T_EQ(pool_reserved(d, pool), 12 * MIB);
  T_EQ(current(d, reserved_bytes), 22 * MIB);
  scope_close(d, pool);
  trim(d);
  T_EQ(current(d, reserved_bytes), 12 * MIB);  // the pool still has a user
}

DEVICE_TEST(test_device__blocks_outlive_their_pool) {
  const tide_pool pool = pool_new(d, NULL);
  const tide_block block = take_in(d, pool, NULL, 12 * MIB);
  device_fill(m, 0, bytes_of(block), 3, 12 * MIB);

  release_pool(d, pool);
  trim(d);
  expect_filled(m, 0, bytes_of(block), 3, 12 * MIB);
  T_EQ(current(d, reserved_bytes), 12 * MIB);
  give(d, block);

  expect_trimmed(d, 0);
}

DEVICE_TEST(test_device__trim_pool_waits_for_the_blocks_of_that_pool_only) {
  if (is_cuda(m)) t_skip("releasing memory waits for all work of the device, and one stream is held up");
  const tide_stream slow = side_new(m);
  const tide_stream fast = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  gate g;
  const tide_block outside = take(d, NULL, 512);
  const tide_block inside = take_in(d, pool, NULL, 512);
  work_slowly(m, fast);
  give_announced(d, inside, fast);
  hold_up(&g, m, slow);
  give_announced(d, outside, slow);
  release_pool(d, pool);

  T_OK(tide_device_trim_pool(d, pool));

  T_EQ(current(d, active), 1);
  T_EQ(current(d, reserved_bytes), 2 * MIB);
  let_go(&g);
}

DEVICE_TEST(test_device__borrowed_blocks_are_counted_once) {
  const tide_pool pool = pool_new(d, NULL);
  limit_to(d, 40 * MIB);
  give(d, take_in(d, pool, NULL, 30 * MIB));
  T_OK(tide_device_pool_set_use_on_oom(d, pool, true));

  const tide_block borrowed = take(d, NULL, 12 * MIB);

  T_EQ(current(d, allocated_bytes), 12 * MIB);
  if (!is_tide()) T_EQ(current(d, inactive_split_bytes), 18 * MIB);
  T_EQ(pool_reserved(d, pool), 30 * MIB);
  give(d, borrowed);
  T_EQ(current(d, allocated_bytes), 0);
  T_EQ(current(d, inactive_split_bytes), 0);
}

DEVICE_TEST(test_device__visit_shows_number_and_label_of_a_pool) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = 0;
  options.label[1] = 42;
  const tide_pool pool = pool_new(d, &options);
  (void)take(d, NULL, 512);
  (void)take_in(d, pool, NULL, 512);

  seen s = look_at_pool(d, pool);
  T_EQ(s.segment_count, 1);
  T_EQ(s.segments[0].pool, pool);
  T_EQ(s.segments[0].pool_label[1], 42);
  s = look(d);
  T_EQ(s.segment_count, 2);

  const tide_device_visitor visitor = { seen_segment, NULL, &s };
  T_STATUS(tide_device_visit_pool(d, 77, &visitor), TIDE_ERR_HANDLE);
}

// ---------------------------------------------------------------------------------------------------
// Memory of the user's own

typedef struct supplier {
  tide_machine* machine;
  int allocs;
  int releases;
  size_t bytes;  // of the last segment made
  tide_stream stream;
  int closes;
  bool is_empty;
} supplier;

static void* supply(void* user, size_t bytes, int device, tide_stream stream) {
  supplier* const s = user;
  void* address = NULL;
  if (s->is_empty) return NULL;
  T_OK(tide_machine_raw_alloc(s->machine, device, bytes, &address));
  ++s->allocs;
  s->bytes = bytes;
  s->stream = stream;
  return address;
}

static void take_back(void* user, void* address, size_t bytes, int device, tide_stream stream) {
  supplier* const s = user;
  T_EQ(bytes, s->bytes);
  T_PTR_EQ(stream, s->stream);
  T_OK(tide_machine_raw_release(s->machine, device, address));
  ++s->releases;
}

static void supply_ends(void* user) {
  supplier* const s = user;
  T_EQ(s->releases, s->allocs);
  ++s->closes;
}

// Lives as long as the allocator, which frees through it at the end.
static supplier* supplier_new(tide_machine* m) {
  static supplier s;
  s = (supplier){ .machine = m };
  return &s;
}

static tide_pool supplied_pool(tide_device_cache* d, supplier* s) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.segment_alloc = supply;
  options.segment_release = take_back;
  options.user = s;
  options.closed = supply_ends;
  return pool_new(d, &options);
}

DEVICE_TEST(test_device__segments_come_from_the_functions_of_the_pool) {
  const tide_stream stream = side_new(m);
  supplier* const s = supplier_new(m);
  const tide_pool pool = supplied_pool(d, s);

  const tide_block blocks[2] = { take_in(d, pool, stream, MIB), take_in(d, pool, stream, MIB) };
  T_EQ(s->allocs, 1);
  T_EQ(s->bytes, 2 * MIB);
  T_PTR_EQ(s->stream, stream);
  T_EQ(pool_reserved(d, pool), 2 * MIB);
  device_fill(m, 0, bytes_of(blocks[0]), 8, MIB);
  expect_filled(m, 0, bytes_of(blocks[0]), 8, MIB);
  release_pool(d, pool);
  give(d, blocks[0]);
  trim(d);
  T_EQ(s->releases, 0);  // a block is still out
  give(d, blocks[1]);
  T_EQ(s->releases + s->closes, 0);

  for (int i = 0; i < 2; ++i) {
    trim(d);
    T_EQ(s->releases, 1);
    T_EQ(s->closes, 1);
  }
}

DEVICE_TEST(test_device__use_on_oom_finds_blocks_of_pools_with_functions) {
  supplier* const s = supplier_new(m);
  const tide_pool pool = supplied_pool(d, s);
  T_OK(tide_device_pool_set_use_on_oom(d, pool, true));
  const tide_block inside = take_in(d, pool, NULL, MIB);
  (void)take_in(d, pool, NULL, MIB);  // so that the segment stays
  limit_to(d, 2 * MIB);
  give(d, inside);

  T_PTR_EQ(take(d, NULL, 768 * KIB).address, inside.address);
}

DEVICE_TEST(test_device__pool_functions_without_memory_are_out_of_memory) {
  supplier* const s = supplier_new(m);
  s->is_empty = true;
  const tide_pool pool = supplied_pool(d, s);

  scope_open(d, pool);
  expect_oom(d, NULL, MIB);
  s->is_empty = false;
  (void)take(d, NULL, MIB);
  scope_close(d, pool);

  T_EQ(s->allocs, 1);
}

// A capture forbids its thread to make memory, unless that is said to be safe.
DEVICE_TEST(test_device__pool_functions_make_memory_during_a_capture) {
  supplier* const s = supplier_new(m);
  const tide_pool pool = supplied_pool(d, s);
  const tide_stream stream = side_new(m);
  tide_launch graph = NULL;

  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_GLOBAL));
  const tide_block block = take_in(d, pool, stream, MIB);
  T_OK(tide_machine_capture_end(m, 0, stream, &graph));

  T_EQ(s->allocs, 1);
  give(d, block);
  T_OK(tide_machine_launch_free(m, graph));
}

DEVICE_TEST(test_device__pool_functions_come_in_pairs) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_pool pool = 1;
  options.segment_alloc = supply;
  T_STATUS(tide_device_pool_new(d, &options, &pool), TIDE_ERR_ARGUMENT);
  T_EQ(pool, 0);
}

MACHINE_TEST_OVER(test_device__freeing_the_allocator_frees_through_the_functions_of_pools, device_names) {
  supplier* const s = supplier_new(m);
  tide_device_cache* const d = device_new(m, 0, NULL);
  (void)take_in(d, supplied_pool(d, s), NULL, MIB);

  tide_device_free(d);

  T_EQ(s->allocs, 1);
  T_EQ(s->releases, 1);
  T_EQ(s->closes, 1);
}

DEVICE_TEST(test_device__expandable_segments_are_ignored_for_pools_with_functions) {
  supplier* const s = supplier_new(m);
  const tide_pool pool = supplied_pool(d, s);
  expand(m, d);

  (void)take_in(d, pool, NULL, 3 * MIB);

  const seen inside = look_at_pool(d, pool);
  T_EQ(s->allocs, 1);
  T_EQ(s->bytes, 20 * MIB);
  T_CHECK(!inside.segments[0].is_expandable);
}

TORCH_TEST(test_device__pools_have_expandable_segments) {
  const tide_pool pool = pool_new(d, NULL);
  expand(m, d);

  (void)take_in(d, pool, NULL, 3 * MIB);

  const seen inside = look_at_pool(d, pool);
  T_EQ(inside.segment_count, 1);
  T_CHECK(inside.segments[0].is_expandable);
  T_EQ(pool_reserved(d, pool), 20 * MIB);
}

DEVICE_TEST(test_device__expandable_pools_without_users_are_dropped) {
  const tide_pool pool = pool_new(d, NULL);
  uint32_t users = 0;
  expand(m, d);
  const tide_block first = take_in(d, pool, NULL, 30 * MIB);
  const tide_block second = take_in(d, pool, NULL, 30 * MIB);
  give(d, first);
  give(d, second);
  release_pool(d, pool);

  expect_trimmed(d, 0);
  T_STATUS(tide_device_pool_users(d, pool, &users), TIDE_ERR_HANDLE);
}

static void note_given_back(void* user, const tide_trace_entry* entry) {
  uint64_t* given = user;
  while (*given != 0) given++;
  if (entry->action == TIDE_ACTION_SEGMENT_FREE) *given = entry->bytes;
}

// As PyTorch was seen to do: docs/torch-2.11.md.
TORCH_TEST(test_device__pools_without_users_are_given_back_in_the_order_of_torch) {
  static const uint64_t order[] = { 32, 36, 30, 34 };
  uint64_t given[8] = { 0 };
  for (size_t i = 0; i < 4; i++) {
    const tide_pool pool = pool_new(d, NULL);
    give(d, take_in(d, pool, NULL, (30 + 2 * i) * MIB));
    T_OK(tide_device_pool_drop(d, pool));
  }
  observe_trace(d, note_given_back, given);

  trim(d);

  for (size_t i = 0; i < 4; i++) T_EQ(given[i], order[i] * MIB);
}

// ---------------------------------------------------------------------------------------------------
// What keeps a pool

// Closing a scope left a user behind, so that the pool stayed for ever.
DEVICE_TEST(test_device__an_open_scope_keeps_its_pool_and_is_no_user) {
  const tide_pool pool = pool_new(d, NULL);
  uint32_t users = 7;
  T_OK(tide_device_pool_begin(d, pool, NULL));
  T_EQ(pool_users(d, pool), 1);
  give(d, take(d, NULL, MIB));
  T_STATUS(tide_device_pool_drop(d, pool), TIDE_ERR_STATE);
  T_OK(tide_device_pool_end(d, pool));
  T_EQ(pool_users(d, pool), 1);

  T_OK(tide_device_pool_drop(d, pool));
  trim(d);

  T_STATUS(tide_device_pool_users(d, pool, &users), TIDE_ERR_HANDLE);
  T_EQ(current(d, reserved_bytes), 0);
}
