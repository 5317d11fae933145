// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The policy `tide` in a hurry: views have taken their share of the time, which is none here. Then idle small
// handles are given back for large ones. On a dry machine with much memory; prop_tide.c tests contents.
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

// A slack of about 110 MiB for what the tests hold, so that new handles have 4 MiB.
#define HURRY "policy:tide,tide_idle_handles:0,tide_stitch_share:0,tide_most_slack:0.1"
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
