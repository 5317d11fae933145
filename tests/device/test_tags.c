// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tags of pools, and scopes that are regions: those do not make the allocator behave as inside a capture.
#define T_THREADS
#define DEVICE_HAS_PLAIN
#include "device/devices.h"

#define MIB ((size_t)1 << 20)

static tide_pool tagged(tide_device_cache* d, const char* tag) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = tag;
  return pool_new(d, &options);
}

static tide_tag_stats stats_under(tide_device_cache* d, const char* tag) {
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  T_OK(tide_device_tag_stats(d, tag, &stats));
  return stats;
}

static void region_open(tide_device_cache* d, tide_pool pool, uint32_t kind, tide_stream stream) {
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = kind;
  scope.stream = stream;
  scope.is_region = true;
  T_OK(tide_device_pool_begin(d, pool, &scope));
}

static void region_close(tide_device_cache* d, tide_pool pool) { T_OK(tide_device_pool_end(d, pool)); }

// ---------------------------------------------------------------------------------------------------
// Names

DEVICE_TEST(test_device__the_newest_pool_with_a_tag_is_found) {
  tide_pool found = 9;
  const tide_pool old = tagged(d, "weights");
  const tide_pool young = tagged(d, "weights");
  const tide_pool below = tagged(d, "weights/actor");

  T_OK(tide_device_tag_find(d, "weights", &found));
  T_EQ(found, young);
  T_OK(tide_device_tag_find(d, "weights/actor", &found));
  T_EQ(found, below);
  T_OK(tide_device_pool_drop(d, young));
  T_OK(tide_device_tag_find(d, "weights", &found));
  T_EQ(found, old);  // without users a pool does not count
  T_STATUS(tide_device_tag_find(d, "weight", &found), TIDE_ERR_HANDLE);
  T_EQ(found, 0);
  T_STATUS(tide_device_tag_find(d, "", &found), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__a_tag_can_be_changed_and_taken_away) {
  tide_pool found = 0;
  char text[] = "kv";
  const tide_pool pool = pool_new(d, NULL);
  T_OK(tide_device_pool_set_tag(d, pool, text));
  text[0] = 'x';  // it was copied

  T_OK(tide_device_tag_find(d, "kv", &found));
  T_EQ(found, pool);
  T_OK(tide_device_pool_set_tag(d, pool, "other"));
  T_STATUS(tide_device_tag_find(d, "kv", &found), TIDE_ERR_HANDLE);
  T_OK(tide_device_pool_set_tag(d, pool, NULL));
  T_STATUS(tide_device_tag_find(d, "other", &found), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_pool_set_tag(d, 77, "kv"), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_pool_set_tag(d, TIDE_POOL_DEFAULT, "kv"), TIDE_ERR_HANDLE);
}

DEVICE_TEST(test_device__wrong_tags_are_refused) {
  char most[TIDE_TAG_MOST + 2];
  memset(most, 'a', sizeof most);
  most[TIDE_TAG_MOST + 1] = '\0';
  const char* const wrong[] = { "", "/", "/a", "a/", "a//b", "a\tb", "a/\x7f", most };
  const tide_pool pool = tagged(d, "good");
  tide_pool found = 0;

  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
    options.tag = wrong[i];
    T_STATUS(tide_device_pool_new(d, &options, &found), TIDE_ERR_ARGUMENT);
    T_EQ(found, 0);
    T_STATUS(tide_device_pool_set_tag(d, pool, wrong[i]), TIDE_ERR_ARGUMENT);
  }
  most[TIDE_TAG_MOST] = '\0';
  T_OK(tide_device_pool_set_tag(d, pool, most));
  T_OK(tide_device_pool_set_tag(d, pool, "two words/\xc3\xa4"));
}

typedef struct tag_list {
  size_t count;
  size_t most;
  char tags[8][TIDE_TAG_MOST + 1];
} tag_list;

static bool tag_add(void* user, const char* tag) {
  tag_list* const list = user;
  T_LT(list->count, 8);
  strcpy(list->tags[list->count++], tag);
  return list->count < list->most;
}

DEVICE_TEST(test_device__tags_are_visited_once_and_sorted) {
  tag_list list = { .most = 8 };
  (void)tagged(d, "weights");
  (void)tagged(d, "kv");
  (void)tagged(d, "weights/actor");
  (void)tagged(d, "weights");
  (void)pool_new(d, NULL);

  T_OK(tide_device_visit_tags(d, tag_add, &list));

  T_EQ(list.count, 3);
  T_STR_EQ(list.tags[0], "kv");
  T_STR_EQ(list.tags[1], "weights");
  T_STR_EQ(list.tags[2], "weights/actor");
  list = (tag_list){ .most = 1 };
  T_OK(tide_device_visit_tags(d, tag_add, &list));
  T_EQ(list.count, 1);
}

// ---------------------------------------------------------------------------------------------------
// Figures

DEVICE_TEST(test_device__a_tag_has_the_sums_of_the_pools_below_it) {
  const tide_pool actor = tagged(d, "weights/actor");
  const tide_pool critic = tagged(d, "weights/critic");
  (void)tagged(d, "weightsmall");
  const tide_block a = take_in(d, actor, NULL, 4 * MIB);
  const tide_block b = take_in(d, critic, NULL, 1000);
  const tide_block c = take_in(d, critic, NULL, 3 * MIB);
  const tide_block outside = take(d, NULL, 8 * MIB);

  tide_tag_stats stats = stats_under(d, "weights");
  T_EQ(stats.pool_count, 2);
  T_EQ(stats.parked_pool_count, 0);
  T_EQ(stats.allocation_count, 3);
  T_EQ(stats.allocated_bytes, 7 * MIB + 1024);
  T_EQ(stats.reserved_bytes, pool_reserved(d, actor) + pool_reserved(d, critic));
  T_EQ(stats.parked_bytes, 0);
  T_EQ(stats.backup_bytes, 0);
  give(d, b);
  stats = stats_under(d, "weights/critic");
  T_EQ(stats.pool_count, 1);
  T_EQ(stats.allocation_count, 1);
  T_EQ(stats_under(d, NULL).pool_count, 3);
  T_STATUS(tide_device_tag_stats(d, "weights/act", &stats), TIDE_ERR_HANDLE);
  T_EQ(stats.pool_count, 0);
  give(d, a);
  give(d, c);
  give(d, outside);
}

static const char* tag_around(tide_device_cache* d, tide_block block) {
  const seen s = look(d);
  return seen_around(&s, block.address)->tag;
}

DEVICE_TEST(test_device__segments_show_the_tag_of_their_pool) {
  const tide_block tagged_block = take_in(d, tagged(d, "weights"), NULL, MIB);
  const tide_block plain = take_in(d, pool_new(d, NULL), NULL, MIB);
  const tide_block common = take(d, NULL, MIB);

  T_STR_EQ(tag_around(d, tagged_block), "weights");
  T_STR_EQ(tag_around(d, plain), "");
  T_STR_EQ(tag_around(d, common), "");
  give(d, tagged_block);
  give(d, plain);
  give(d, common);
}

// ---------------------------------------------------------------------------------------------------
// Regions

DEVICE_TEST(test_device__a_region_takes_requests_as_other_scopes_do) {
  const tide_pool pool = tagged(d, "weights");
  region_open(d, pool, TIDE_SCOPE_THREAD, NULL);
  const tide_block inside = take(d, NULL, MIB);
  region_close(d, pool);
  const tide_block outside = take(d, NULL, MIB);

  T_STR_EQ(tag_around(d, inside), "weights");
  T_STR_EQ(tag_around(d, outside), "");
  give(d, inside);
  give(d, outside);
}

// Announced work is polled for inside a region, and a scope that is not one puts that off until its end.
DEVICE_TEST(test_device__a_region_does_not_stop_polling) {
  const tide_stream side = side_new(m);
  const tide_pool pool = tagged(d, "weights");
  const tide_pool other = tagged(d, "graph");
  region_open(d, pool, TIDE_SCOPE_THREAD, NULL);
  give_announced(d, take(d, NULL, MIB), side);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_polled(d, 0);

  scope_open(d, other);
  give_announced(d, take(d, NULL, MIB), side);
  T_OK(tide_machine_device_synchronize(m, 0));
  expect_polled(d, 1);
  scope_close(d, other);

  expect_polled(d, 0);  // the region is still open
  region_close(d, pool);
}

DEVICE_TEST(test_device__memory_is_given_back_inside_a_region) {
  const tide_pool pool = tagged(d, "weights");
  give(d, take(d, NULL, 32 * MIB));
  region_open(d, pool, TIDE_SCOPE_STREAM, side_new(m));
  T_LT(0, current(d, reserved_bytes));

  expect_trimmed(d, 0);
  region_close(d, pool);
}

// Idle memory of a pool with a tag serves others, with its region open and after that.
DEVICE_TEST(test_device__idle_memory_of_a_region_goes_back) {
  const tide_pool pool = tagged(d, "weights");
  region_open(d, pool, TIDE_SCOPE_ALL, NULL);
  const tide_block kept = take(d, NULL, 20 * MIB);
  give(d, take(d, NULL, 40 * MIB));
  T_LE(60 * MIB, stats_under(d, "weights").reserved_bytes);
  trim(d);
  T_LT(stats_under(d, "weights").reserved_bytes, 60 * MIB);
  give(d, take(d, NULL, 40 * MIB));
  region_close(d, pool);

  T_OK(tide_device_set_limit(d, 70 * MIB));
  give(d, take(d, NULL, 40 * MIB));
  T_OK(tide_device_set_limit(d, TIDE_NO_LIMIT));
  give(d, kept);
}

DEVICE_TEST(test_device__idle_memory_stays_where_a_capture_used_it) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = tagged(d, "graph");
  capture_open(m, d, stream, pool);
  give(d, take(d, stream, 8 * MIB));
  const tide_launch launch = capture_close(m, d, stream, pool);
  const uint64_t reserved = stats_under(d, "graph").reserved_bytes;
  trim(d);
  T_OK(tide_device_trim_pool(d, pool));
  T_EQ(stats_under(d, "graph").reserved_bytes, reserved);
  T_OK(tide_machine_launch_free(m, launch));
}

// A request that would fail gives idle memory of other sizes back first, inside a region as without.
DEVICE_TEST(test_device__a_request_in_a_region_finds_memory_as_in_the_default_pool) {
  const tide_pool pool = tagged(d, "weights");
  limit_to(d, 64 * MIB);
  give(d, take(d, NULL, 48 * MIB));
  region_open(d, pool, TIDE_SCOPE_THREAD, NULL);
  const tide_block block = take(d, NULL, 40 * MIB);
  T_STR_EQ(tag_around(d, block), "weights");
  region_close(d, pool);
  give(d, block);

  T_OK(tide_device_pool_drop(d, pool));
  const tide_pool graph = tagged(d, "graph");
  trim(d);
  give(d, take(d, NULL, 48 * MIB));
  scope_open(d, graph);
  expect_oom(d, NULL, 40 * MIB);  // as inside a capture
  scope_close(d, graph);
}

// Stitching in the default pool goes on while a region of another stream is open.
static const char* const tide_host_dry[] = { "host tide", "dry tide", NULL };

DEVICE_TEST_OVER(test_device__the_default_pool_stitches_beside_a_region, tide_host_dry) {
  const tide_pool pool = tagged(d, "weights");
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(d, NULL, 4 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(d, blocks[i]);
  const int64_t before = current(d, reserved_bytes);
  region_open(d, pool, TIDE_SCOPE_STREAM, side_new(m));
  const tide_block stitched = take(d, NULL, 16 * MIB);

  T_EQ(current(d, reserved_bytes), before);
  region_close(d, pool);
  give(d, stitched);
  for (size_t i = 1; i < 8; i += 2) give(d, blocks[i]);
}

typedef struct other_thread {
  tide_device_cache* device;
  tide_stream stream;
  atomic_int state;  // 1: it has filled its cache; 2: a region is open; 3: it is done
} other_thread;

static void* small_again(void* user) {
  other_thread* const o = user;
  for (int i = 0; i < 64; ++i) give(o->device, take(o->device, o->stream, 4096));
  atomic_store(&o->state, 1);
  while (atomic_load(&o->state) != 2) continue;
  for (int i = 0; i < 64; ++i) give(o->device, take(o->device, o->stream, 4096));
  atomic_store(&o->state, 3);
  return NULL;
}

// Small requests of other threads are served without growing, from what they had before.
DEVICE_TEST(test_device__other_threads_keep_their_caches_beside_a_region) {
  other_thread o = { .device = d, .stream = side_new(m) };
  pthread_t thread;
  const tide_pool pool = tagged(d, "weights");
  t_thread_start(&thread, small_again, &o);
  while (atomic_load(&o.state) != 1) continue;
  const int64_t before = counter(d, num_device_alloc);
  region_open(d, pool, TIDE_SCOPE_THREAD, NULL);
  atomic_store(&o.state, 2);
  t_thread_join(thread);

  T_EQ(counter(d, num_device_alloc), before);
  region_close(d, pool);
}

static void* take_and_give(void* user) {
  other_thread* const o = user;
  for (size_t i = 0; i < 200; ++i) {
    const tide_block large = take(o->device, o->stream, (i % 7 + 1) * 2 * MIB);
    const tide_block small = take(o->device, o->stream, 4096);
    give(o->device, large);
    give(o->device, small);
  }
  atomic_store(&o->state, 3);
  return NULL;
}

// Idle memory of a region goes back while other threads make requests in it.
DEVICE_TEST(test_device__requests_in_a_region_go_on_while_idle_memory_goes) {
  other_thread others[2] = { { .device = d, .stream = side_new(m) }, { .device = d, .stream = side_new(m) } };
  pthread_t threads[2];
  const tide_pool pool = tagged(d, "weights");
  region_open(d, pool, TIDE_SCOPE_ALL, NULL);
  for (size_t i = 0; i < 2; ++i) t_thread_start(&threads[i], take_and_give, &others[i]);
  while (atomic_load(&others[0].state) != 3 || atomic_load(&others[1].state) != 3) trim(d);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);
  region_close(d, pool);
  trim(d);
  T_EQ(stats_under(d, "weights").reserved_bytes, 0);
  device_expect_valid(d);
}

// A capture inside a region behaves as ever: its scope is not a region.
DEVICE_TEST(test_device__a_capture_beside_a_region_defers_as_before) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  const tide_pool pool = tagged(d, "weights");
  const tide_pool graph = tagged(d, "graph");
  region_open(d, pool, TIDE_SCOPE_THREAD, NULL);
  capture_open(m, d, stream, graph);
  const tide_block block = take(d, stream, MIB);
  T_STR_EQ(tag_around(d, block), "graph");
  give_announced(d, block, other);
  expect_polled(d, 1);
  const tide_launch launch = capture_close(m, d, stream, graph);
  expect_polled(d, 0);
  region_close(d, pool);
  T_OK(tide_machine_launch_free(m, launch));
}
