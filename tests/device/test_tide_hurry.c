// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` in a hurry: views have taken their share of the time, which is none here. Then idle small
// handles are given back for large ones. On a dry machine with much memory; prop_tide.c tests contents.
#define T_THREADS
#include "device/devices.h"

typedef struct rig {
  tide_machine* m;
  tide_device_cache* d;
  tide_stream side;
} rig;

static rig rig_new(const char* text) {
  rig r = { NULL, NULL, NULL };
  T_OK(tide_machine_new_dry(NULL, &r.m));
  r.d = device_with(r.m, text);
  r.side = side_new(r.m);
  return r;
}

static void rig_free(rig r) {
  device_expect_valid(r.d);
  tide_device_free(r.d);
  tide_machine_free(r.m);
}

// A slack of about 110 MiB for what the tests hold, so that new handles have 4 MiB; those before have 2.
#define HURRY "policy:tide,tide_idle_handles:0,tide_stitch_share:0,tide_most_slack:0.1,tide_most_handle_mb:2"
#define SMALL_BLOCKS 128
#define SMALL_BYTES (8 * MIB)
#define LARGE_BYTES (141 * SMALL_BYTES)

// Fills two homes with small handles, and makes the allocator hurried by a request that takes a view.
static void hurry_begin(rig r, tide_block* blocks) {
  for (size_t i = 0; i < SMALL_BLOCKS; ++i) blocks[i] = take(r.d, i % 2 == 0 ? NULL : r.side, SMALL_BYTES);
  for (size_t i = 0; i < SMALL_BLOCKS; i += 8) give(r.d, blocks[i]);
  for (size_t i = 1; i < SMALL_BLOCKS; i += 8) give(r.d, blocks[i]);
  T_OK(tide_machine_device_synchronize(r.m, 0));
  give(r.d, take(r.d, r.side, 30 * SMALL_BYTES));
  T_OK(tide_machine_device_synchronize(r.m, 0));
}

static void hurry_release(rig r, const tide_block* blocks) {
  for (size_t i = 0; i < SMALL_BLOCKS; ++i) {
    if (i % 8 > 1) give(r.d, blocks[i]);
  }
}

// Fills a device of 4 GiB in a hurry, at last with small requests; returns what is free when one is refused.
static uint64_t free_at_the_end(const char* text) {
  tide_block blocks[SMALL_BLOCKS];
  rig r = { dry_of(4096 * MIB), NULL, NULL };
  r.d = device_with(r.m, text);
  r.side = side_new(r.m);
  hurry_begin(r, blocks);
  hurry_release(r, blocks);
  T_OK(tide_machine_device_synchronize(r.m, 0));
  T_OK(tide_device_trim(r.d, 0));
  while (free_bytes(r.m, 0) > 500 * MIB) (void)take(r.d, NULL, 400 * MIB);
  while (try_take(r.d, NULL, 4 * MIB) == TIDE_OK) continue;
  const uint64_t left = free_bytes(r.m, 0);
  rig_free(r);
  return left;
}

// New memory comes in handles of 27 MiB then, as long as there is some.
T_TEST(test_tide_hurry__small_requests_get_the_last_memory) {
  T_LE(free_at_the_end(HURRY ",tide_stitch_share:1"), 2 * MIB);
  T_LE(free_at_the_end(HURRY), 2 * MIB);
}

// All is idle, but in two homes; and new memory for the request would be more than the slack.
T_TEST(test_tide_hurry__large_handles_replace_idle_small_ones) {
  tide_block blocks[SMALL_BLOCKS];
  const rig r = rig_new(HURRY);
  hurry_begin(r, blocks);
  const uint64_t given = calls(r.m, TIDE_CALL_PHYSICAL_FREE);
  const uint64_t made = calls(r.m, TIDE_CALL_PHYSICAL_NEW);
  hurry_release(r, blocks);
  T_OK(tide_machine_device_synchronize(r.m, 0));

  (void)take(r.d, r.side, LARGE_BYTES);

  T_LT(given + 100, calls(r.m, TIDE_CALL_PHYSICAL_FREE));
  T_LE(calls(r.m, TIDE_CALL_PHYSICAL_NEW), made + LARGE_BYTES / (4 * MIB) + 1);
  T_LE(current(r.d, reserved_bytes), (int64_t)(LARGE_BYTES + LARGE_BYTES / 10));
  rig_free(r);
}

// Both streams have used the small handles, also that of the request.
T_TEST(test_tide_hurry__handles_go_that_the_own_stream_has_used) {
  tide_block small[12];
  tide_block large[12];
  const rig r = rig_new(HURRY);
  for (size_t i = 0; i < 12; ++i) {
    small[i] = take(r.d, i % 2 == 0 ? NULL : r.side, 22 * MIB);
    large[i] = take(r.d, i % 2 == 0 ? NULL : r.side, 66 * MIB);
  }
  for (size_t i = 0; i < 12; ++i) give(r.d, small[i]);
  T_OK(tide_machine_device_synchronize(r.m, 0));
  give(r.d, take(r.d, r.side, 240 * MIB));
  T_OK(tide_machine_device_synchronize(r.m, 0));
  const uint64_t given = calls(r.m, TIDE_CALL_PHYSICAL_FREE);
  for (size_t i = 0; i < 12; ++i) give(r.d, large[i]);
  T_OK(tide_machine_device_synchronize(r.m, 0));

  (void)take(r.d, r.side, 1128 * MIB);

  T_LT(given + 100, calls(r.m, TIDE_CALL_PHYSICAL_FREE));
  rig_free(r);
}

// Queued work may still use what is idle for the allocator.
T_TEST(test_tide_hurry__handles_stay_while_work_uses_them) {
  tide_block blocks[SMALL_BLOCKS];
  const rig r = rig_new(HURRY);
  const tide_stream other = side_new(r.m);
  hurry_begin(r, blocks);
  const uint64_t given = calls(r.m, TIDE_CALL_PHYSICAL_FREE);
  work_slowly(r.m, NULL);
  work_slowly(r.m, r.side);
  hurry_release(r, blocks);

  (void)take(r.d, other, LARGE_BYTES);

  T_EQ(calls(r.m, TIDE_CALL_PHYSICAL_FREE), given);
  rig_free(r);
}

// ---------------------------------------------------------------------------------------------------
// One stream

#define HOLE_BYTES (7 * SMALL_BYTES)

// Leaves 16 holes of small handles, 896 MiB, and makes the allocator hurried by a request that takes a view.
static void lone_hurry_begin(rig r) {
  tide_block blocks[SMALL_BLOCKS];
  for (size_t i = 0; i < SMALL_BLOCKS; ++i) blocks[i] = take(r.d, NULL, SMALL_BYTES);
  for (size_t i = 0; i < SMALL_BLOCKS; ++i) {
    if (i % 8 != 0) give(r.d, blocks[i]);
  }
  give(r.d, take(r.d, NULL, 2 * HOLE_BYTES));
}

// Uses some holes, each by work that takes a while.
static void lone_use(rig r, size_t holes) {
  tide_block blocks[16];
  for (size_t i = 0; i < holes; ++i) blocks[i] = take(r.d, NULL, HOLE_BYTES);
  work_slowly(r.m, NULL);
  for (size_t i = 0; i < holes; ++i) give(r.d, blocks[i]);
}

static uint64_t lone_given(rig r, size_t bytes) {
  const uint64_t before = calls(r.m, TIDE_CALL_PHYSICAL_FREE);
  (void)take(r.d, NULL, bytes);
  return calls(r.m, TIDE_CALL_PHYSICAL_FREE) - before;
}

// The request that looks for small handles makes one, behind work that is under way.
T_TEST(test_tide_hurry__releases_on_one_stream_make_no_marks) {
  const rig r = rig_new(HURRY);
  lone_hurry_begin(r);
  lone_use(r, 2);
  (void)take(r.d, NULL, 400 * MIB);
  const uint64_t records = calls(r.m, TIDE_CALL_EVENT_RECORD);

  for (size_t i = 0; i < 8; ++i) lone_use(r, 4);

  T_EQ(records, 1);
  T_EQ(calls(r.m, TIDE_CALL_EVENT_RECORD), records);
  rig_free(r);
}

// A request has made a mark, which has passed. Work that is under way uses some holes since.
static rig lone_rig_with_mark(size_t holes) {
  const rig r = rig_new(HURRY);
  lone_hurry_begin(r);
  lone_use(r, 2);
  T_EQ(lone_given(r, 400 * MIB), 0);
  T_OK(tide_dry_advance(r.m, 2000000));
  lone_use(r, holes);
  return r;
}

// 112 MiB of 496 were used by work that is under way, and the request lacks about 300 MiB. What was used
// before the mark of an earlier request goes as soon as that has passed.
T_TEST(test_tide_hurry__handles_of_one_stream_go_while_work_uses_others) {
  const rig r = lone_rig_with_mark(2);

  T_LT(100, lone_given(r, 410 * MIB));
  rig_free(r);
}

// As before, but work uses 336 MiB.
T_TEST(test_tide_hurry__handles_of_one_stream_stay_while_work_uses_them) {
  const rig r = lone_rig_with_mark(6);
  const tide_block kept = take(r.d, NULL, 410 * MIB);

  T_EQ(calls(r.m, TIDE_CALL_PHYSICAL_FREE), 0);
  give(r.d, kept);
  T_OK(tide_machine_device_synchronize(r.m, 0));
  T_LT(100, lone_given(r, 420 * MIB));
  rig_free(r);
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct crowd {
  tide_machine* m;
  tide_device_cache* d;
  _Atomic(uint32_t) next;
} crowd;

static void* crowd_work(void* user) {
  crowd* const c = user;
  const tide_stream stream = side_new(c->m);
  uint64_t random = atomic_fetch_add(&c->next, 1) + 1;
  tide_block blocks[8] = { { NULL, 0 } };
  for (size_t k = 0; k < 1000; ++k) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const size_t i = random >> 33 & 7;
    if (blocks[i].address != NULL) give(c->d, blocks[i]);
    blocks[i] = take(c->d, stream, (1 + (random >> 40 & 127)) * MIB + (random >> 50 << 9));
  }
  for (size_t i = 0; i < 8; ++i) {
    if (blocks[i].address != NULL) give(c->d, blocks[i]);
  }
  return NULL;
}

T_TEST(test_tide_hurry__threads_share_what_is_recast) {
  const rig r = rig_new("policy:tide,tide_stitch_share:0,tide_most_slack:0.1");
  crowd c = { .m = r.m, .d = r.d };

  run_threads(4, crowd_work, &c);

  T_LT(0, calls(r.m, TIDE_CALL_PHYSICAL_FREE));
  rig_free(r);
}

// ---------------------------------------------------------------------------------------------------
// Statistics

// On the dry machine, only calls of the driver take time.
static uint64_t time_of(rig r, size_t bytes) {
  const uint64_t begin_ns = clock_of(r.m);
  give(r.d, take(r.d, NULL, bytes));
  return clock_of(r.m) - begin_ns;
}

T_TEST(test_tide_hurry__the_time_of_views_is_counted) {
  const rig r = rig_new("policy:tide,tide_slack:0,tide_wait_slack:0,tide_idle_handles:0");
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(r.d, NULL, 32 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(r.d, blocks[i]);
  T_EQ(counter(r.d, stitch_ns), 0);

  const uint64_t first_ns = time_of(r, 128 * MIB);
  T_LT(0, first_ns);
  T_EQ(counter(r.d, stitch_ns), first_ns);
  T_EQ(time_of(r, 128 * MIB), 0);  // the same view
  T_EQ(counter(r.d, stitch_ns), first_ns);

  give(r.d, blocks[1]);
  const uint64_t second_ns = time_of(r, 160 * MIB);
  T_LT(0, second_ns);
  T_EQ(counter(r.d, stitch_ns), first_ns + second_ns);
  T_EQ(counter(r.d, num_hurries), 0);
  tide_device_reset_accumulated(r.d);
  T_EQ(counter(r.d, stitch_ns), 0);
  rig_free(r);
}

T_TEST(test_tide_hurry__views_without_a_share_are_not_timed) {
  const rig r = rig_new("policy:tide,tide_slack:0,tide_idle_handles:0,tide_stitch_share:1");
  tide_block blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = take(r.d, NULL, 32 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(r.d, blocks[i]);
  T_LT(0, time_of(r, 128 * MIB));
  T_EQ(counter(r.d, stitch_ns), 0);
  rig_free(r);
}

T_TEST(test_tide_hurry__hurries_are_counted) {
  tide_block blocks[SMALL_BLOCKS];
  const rig r = rig_new(HURRY);
  T_EQ(counter(r.d, num_hurries), 0);
  hurry_begin(r, blocks);
  T_EQ(counter(r.d, num_hurries), 1);
  hurry_release(r, blocks);
  (void)take(r.d, r.side, LARGE_BYTES);
  T_EQ(counter(r.d, num_hurries), 1);  // the same one
  tide_device_reset_accumulated(r.d);
  T_EQ(counter(r.d, num_hurries), 0);
  rig_free(r);
}
