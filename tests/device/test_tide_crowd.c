// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A handle of the policy `tide` that more streams use than it has places for: a crowd. Its memory must stay
// out of use until all of these streams have passed, also the one that found no place.
//
// Each stream takes the beginning of the same handle, less than the one before it, which so keeps the rest.
#define T_THREADS
#include "device/devices.h"

#include <sched.h>

#define HANDLE_BYTES (2 * MIB)  // the smallest handle
#define PART_BYTES (128 * KIB)
enum { PLACES = 4, CROWD = PLACES + 1, LAST = CROWD - 1 };

#define CROWD_TEST(function) DEVICE_TEST_OVER(function, device_tide)

typedef struct crowd {
  tide_stream home;
  tide_stream streams[CROWD];
  tide_block first;   // idle: all its memory is one handle
  tide_block second;  // keeps what follows in use
} crowd;

// A stream that the allocator knows: from the second one on, releases leave marks.
static tide_stream known_new(tide_machine* m, tide_device_cache* d) {
  const tide_stream stream = side_new(m);
  give(d, take(d, stream, 512));
  return stream;
}

static int64_t large_bytes(tide_device_cache* d) {
  return stats_of(d).reserved_bytes[TIDE_STAT_LARGE].current;
}

static void crowd_init(crowd* c, tide_machine* m, tide_device_cache* d) {
  c->home = known_new(m, d);
  for (int i = 0; i < CROWD; ++i) c->streams[i] = known_new(m, d);
  c->first = take(d, c->home, HANDLE_BYTES);
  c->second = take(d, c->home, HANDLE_BYTES);
  give(d, c->first);
  stream_finish(m, 0, c->home);
}

// The next stream uses a part of the handle and releases it at once. Its work waits for that of the others.
static void crowd_join(const crowd* c, tide_machine* m, tide_device_cache* d, int i) {
  const size_t bytes = HANDLE_BYTES - (size_t)i * PART_BYTES;
  const tide_block block = take(d, c->streams[i], bytes);
  paint(m, c->streams[i], block, 111, bytes);
  give(d, block);
  T_EQ(stats_of(d).num_stream_waits, i);
  T_EQ(large_bytes(d), 2 * HANDLE_BYTES);
}

// Forms the crowd, and lets all streams pass but the last, which is late.
static void crowd_form(const crowd* c, tide_machine* m, tide_device_cache* d,
                       void (*delay)(tide_machine*, tide_stream)) {
  gate g;
  hold_up(&g, m, c->streams[0]);
  for (int i = 0; i < LAST; ++i) crowd_join(c, m, d, i);
  delay(m, c->streams[LAST]);
  crowd_join(c, m, d, LAST);
  let_go(&g);
  for (int i = 0; i < LAST; ++i) stream_finish(m, 0, c->streams[i]);
}

// Takes as much as the handle has, and may neither get its memory nor wait for the late stream.
static tide_block expect_other_memory(const crowd* c, tide_machine* m, tide_device_cache* d,
                                      tide_stream stream) {
  const int64_t before = large_bytes(d);
  const tide_block block = take(d, stream, HANDLE_BYTES);
  T_EQ(large_bytes(d), before + (int64_t)HANDLE_BYTES);
  T_CHECK(block.address != c->first.address);
  paint(m, stream, block, 222, HANDLE_BYTES);
  stream_finish(m, 0, stream);
  T_CHECK(!stream_is_idle(m, 0, c->streams[LAST]));
  return block;
}

static gate late;

static void delay_by_gate(tide_machine* m, tide_stream stream) { hold_up(&late, m, stream); }

static void delay_by_work(tide_machine* m, tide_stream stream) {
  for (int i = 0; i < 100; ++i) work_slowly(m, stream);
}

CROWD_TEST(test_tide__memory_of_a_crowd_stays_out_until_all_have_passed) {
  crowd c;
  crowd_init(&c, m, d);
  crowd_form(&c, m, d, delay_by_gate);
  const tide_stream takers[] = { c.home, c.streams[0], known_new(m, d) };
  tide_block blocks[3];

  for (size_t i = 0; i < 3; ++i) blocks[i] = expect_other_memory(&c, m, d, takers[i]);
  let_go(&late);

  for (size_t i = 0; i < 3; ++i) expect_filled(m, 0, bytes_of(blocks[i]), 222, HANDLE_BYTES);
  const int64_t reserved = large_bytes(d);
  T_PTR_EQ(take(d, c.home, HANDLE_BYTES).address, c.first.address);
  T_EQ(large_bytes(d), reserved);
}

// The stream that found no place polls its own marks. Otherwise the crowd would never be over for it.
CROWD_TEST(test_tide__a_crowd_is_over_for_the_stream_without_a_place) {
  crowd c;
  crowd_init(&c, m, d);
  crowd_form(&c, m, d, delay_by_gate);
  let_go(&late);
  stream_finish(m, 0, c.streams[LAST]);

  const int64_t reserved = large_bytes(d);
  (void)take(d, c.streams[LAST], HANDLE_BYTES);
  T_EQ(large_bytes(d), reserved);
}

CROWD_TEST(test_tide__a_trim_waits_for_a_crowd) {
  crowd c;
  crowd_init(&c, m, d);
  crowd_form(&c, m, d, delay_by_work);
  give(d, take(d, c.home, HANDLE_BYTES));  // sees that the others have passed
  give(d, c.second);

  trim(d);

  T_EQ(current(d, reserved_bytes), 0);
  for (int i = 0; i < CROWD; ++i) stream_finish(m, 0, c.streams[i]);  // would tell of work that came too late
}

// A stream seldom asks whether its own marks have passed. So uses of it that are over may have all places of
// a handle. They share a place when another stream needs one, and the rest of the handle serves on.
CROWD_TEST(test_tide__many_uses_of_one_stream_are_no_crowd) {
  enum { HALF = 8, BLOCKS = 2 * HALF };  // a handle has the first half
  const size_t bytes = 4 * MIB;
  const int64_t reserved = BLOCKS * (int64_t)bytes;
  configure(d, "tide_least_handle_mb:32,tide_slack:0,tide_wait_slack:0");
  const tide_stream first = known_new(m, d);
  const tide_stream second = known_new(m, d);
  tide_block blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; ++i) blocks[i] = take(d, first, bytes);
  give(d, blocks[HALF - 1]);
  give(d, blocks[HALF]);
  stream_finish(m, 0, first);
  const tide_block other = take(d, second, 2 * bytes);
  T_EQ(large_bytes(d), reserved);

  for (int i = 0; i < PLACES; ++i) give(d, blocks[2 * i]);
  stream_finish(m, 0, first);
  hold_up(&late, m, second);
  paint(m, second, other, 111, 2 * bytes);
  give(d, other);

  for (int i = 0; i < PLACES; ++i) {
    blocks[2 * i] = take(d, first, bytes);
    paint(m, first, blocks[2 * i], 222, bytes);
  }
  stream_finish(m, 0, first);
  let_go(&late);
  stream_finish(m, 0, second);
  for (int i = 0; i < PLACES; ++i) expect_filled(m, 0, bytes_of(blocks[2 * i]), 222, bytes);
  T_EQ(large_bytes(d), reserved);
  T_EQ(stats_of(d).num_stream_waits, 0);
}

// ---------------------------------------------------------------------------------------------------
// Options

typedef struct settings {
  tide_device_cache* d;
  atomic_bool is_over;
} settings;

static void* settings_run(void* user) {
  settings* const s = user;
  while (!atomic_load(&s->is_over)) {
    configure(s->d, "tide_least_handle_mb:2");
    configure(s->d, "tide_least_handle_mb:6");
  }
  return NULL;
}

// Lets another thread go on whenever a request makes a record.
static void* yielding_alloc(void* user, size_t bytes, size_t alignment) {
  (void)sched_yield();
  return counting_alloc(user, bytes, alignment);
}

static void settings_work(tide_machine* m, tide_device_cache* d) {
  enum { BLOCKS = 12 };
  tide_block blocks[BLOCKS] = { 0 };
  t_rng rng = t_rng_new(0);
  const tide_stream streams[2] = { NULL, side_new(m) };
  for (size_t i = 0; i < t_scaled_least(20000, 4000); ++i) {
    tide_block* const block = &blocks[t_rng_below(&rng, BLOCKS)];
    give(d, *block);
    *block = take(d, streams[t_rng_below(&rng, 2)], (1 + t_rng_below(&rng, 20)) * MIB / 2);
  }
  for (size_t i = 0; i < BLOCKS; ++i) give(d, blocks[i]);
}

// The smallest size of handles was read twice for a request, and changed in between.
DEVICE_TEST_OVER(test_tide__the_smallest_handle_changes_during_requests, device_tide_emulated) {
  (void)d;
  counting_heap records;
  pthread_t thread;
  counting_heap_init(&records, SIZE_MAX, false);
  records.heap.alloc = yielding_alloc;
  settings s = { .d = device_new(m, 0, &records.heap) };
  t_thread_start(&thread, settings_run, &s);
  settings_work(m, s.d);
  atomic_store(&s.is_over, true);
  t_thread_join(thread);
  device_expect_valid(s.d);
  tide_device_free(s.d);
}
