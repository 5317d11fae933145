// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_device_trim() with memory to keep: how much goes, what goes first, and what stays after a fault. What
// is idle before and after is counted from a visit and from the statistics, not from the call.
#define T_THREADS
#include "device/devices.h"

static void trim_to(tide_device_cache* d, uint64_t keep) { T_OK(tide_device_trim(d, keep)); }

static uint64_t idle_bytes(tide_device_cache* d) {
  const tide_device_stats stats = stats_of(d);
  return (uint64_t)(stats.reserved_bytes[TIDE_STAT_ALL].current - stats.active_bytes[TIDE_STAT_ALL].current);
}

// ---------------------------------------------------------------------------------------------------
// What goes first

// Whole segments of torch, in the order in which they are asked for; a handed out one is negative.
typedef struct row {
  const char* name;
  int mib[6];
  uint64_t keep_mib;
  uint64_t left_mib;  // idle
} row;

static const row rows[] = {
  { "nothing is too much", { 12, 30, 20 }, 62, 62 },
  { "more may be kept than there is", { 12, 30, 20 }, 1000, 62 },
  { "the largest goes first", { 12, 30, 20 }, 61, 32 },
  { "and the next", { 12, 30, 20 }, 31, 12 },
  { "and the last", { 12, 30, 20 }, 11, 0 },
  { "the last that goes reaches the goal", { 12, 30, 20 }, 32, 32 },
  { "what is handed out does not count", { 12, -30, 20 }, 31, 12 },
  { "nor does it go", { 12, -30, -20 }, 1, 0 },
  { "of equal ones as few as possible", { 14, 14, 14, 14 }, 29, 28 },
  { "small and large ones", { 1, 12, 30 }, 15, 14 },
};

static void row_run(tide_device_cache* d, tide_stream side, const row* r) {
  tide_block blocks[6];
  for (size_t i = 0; i < 6 && r->mib[i] != 0; ++i) {
    blocks[i] = take(d, i % 2 == 0 ? NULL : side, (size_t)abs(r->mib[i]) * MIB);
  }
  for (size_t i = 0; i < 6 && r->mib[i] != 0; ++i) {
    if (r->mib[i] > 0) give(d, blocks[i]);
  }

  trim_to(d, r->keep_mib * MIB);

  if (idle_bytes(d) != r->left_mib * MIB)
    T_FAIL("%s: %llu are left", r->name, (unsigned long long)idle_bytes(d));
  device_expect_valid(d);
  for (size_t i = 0; i < 6 && r->mib[i] != 0; ++i) {
    if (r->mib[i] < 0) give(d, blocks[i]);
  }
  trim(d);
  T_EQ(current(d, reserved_bytes), 0);
}

TORCH_TEST(test_trim__the_largest_segments_go_first) {
  const tide_stream side = side_new(m);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) row_run(d, side, &rows[i]);
}

// An idle block in virtual memory goes handle by handle, from its end.
DEVICE_TEST(test_trim__virtual_memory_goes_in_handles) {
  enum { HANDLE_MIB = 20 };  // of torch; tide takes 2 MiB for so little memory
  if (!is_tide()) expand(m, d);
  const uint64_t handle = is_tide() ? 2 * MIB : HANDLE_MIB * MIB;
  give(d, take(d, NULL, 100 * MIB));

  trim_to(d, 50 * MIB);

  T_EQ(current(d, reserved_bytes), 50 * MIB / handle * handle);
  const int64_t before = counter(d, num_device_alloc);
  const size_t left = (size_t)current(d, reserved_bytes);
  give(d, take(d, NULL, left));
  T_EQ(counter(d, num_device_alloc), before);  // what was kept is of use
}

DEVICE_TEST(test_trim__small_blocks_at_hand_count_as_idle) {
  tide_block blocks[64];
  for (size_t i = 0; i < 64; ++i) blocks[i] = take(d, NULL, 64 * KIB);
  for (size_t i = 0; i < 64; ++i) give(d, blocks[i]);
  const int64_t reserved = current(d, reserved_bytes);

  trim_to(d, (uint64_t)reserved);
  T_EQ(current(d, reserved_bytes), reserved);
  trim_to(d, (uint64_t)reserved - 1);
  T_EQ(current(d, reserved_bytes), reserved - 2 * (int64_t)MIB);
}

// ---------------------------------------------------------------------------------------------------
// Pools

DEVICE_TEST(test_trim__memory_of_pools_in_use_neither_counts_nor_goes) {
  const tide_pool used = pool_new(d, NULL);
  const tide_pool left = pool_new(d, NULL);
  give(d, take_in(d, used, NULL, 30 * MIB));
  const tide_block block = take_in(d, left, NULL, 20 * MIB);
  give(d, take(d, NULL, 12 * MIB));
  T_OK(tide_device_pool_drop(d, left));
  give(d, block);

  trim_to(d, 32 * MIB);
  T_EQ(current(d, reserved_bytes), 62 * MIB);
  trim_to(d, 12 * MIB);

  T_EQ(pool_reserved(d, used), 30 * MIB);
  T_EQ(current(d, reserved_bytes), 42 * MIB);
  uint32_t users = 0;
  T_STATUS(tide_device_pool_users(d, left, &users), TIDE_ERR_HANDLE);  // it went with its memory
  T_OK(tide_device_pool_drop(d, used));
}

// ---------------------------------------------------------------------------------------------------
// Waiting and faults

DEVICE_TEST(test_trim__announced_work_is_waited_for) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, 30 * MIB);
  work_slowly(m, side);
  announce(d, block, side);
  give(d, block);

  trim_to(d, 1);

  T_EQ(current(d, reserved_bytes), 0);
}

DEVICE_TEST_OVER(test_trim__what_the_machine_refuses_stays_idle, device_emulated) {
  const tide_stream side = side_new(m);
  const tide_block blocks[2] = { take(d, NULL, 30 * MIB), take(d, side, 20 * MIB) };
  for (size_t i = 0; i < 2; ++i) give(d, blocks[i]);
  break_calls(m, shrink_call(), TIDE_ERR_MACHINE, 1);

  T_STATUS(tide_device_trim(d, 25 * MIB), TIDE_ERR_MACHINE);
  T_EQ(current(d, reserved_bytes), 50 * MIB);
  device_expect_valid(d);

  trim_to(d, 25 * MIB);
  T_LE(current(d, reserved_bytes), 25 * MIB);
  T_LT(0, current(d, reserved_bytes));
}

// ---------------------------------------------------------------------------------------------------
// Whatever happened before

enum { LIVE = 12, STEPS = 60 };

// The most that one step gives back: the largest idle segment, or a handle.
static uint64_t step_most(tide_device_cache* d, bool is_virtual) {
  uint64_t most = 0;
  if (is_virtual) return is_tide() ? 2 * MIB : 20 * MIB;
  const seen s = look(d);
  for (size_t i = 0; i < s.block_count; ++i) {
    if (s.blocks[i].state == TIDE_BLOCK_INACTIVE && s.blocks[i].bytes > most) most = s.blocks[i].bytes;
  }
  return most;
}

static void expect_trimmed_to(tide_device_cache* d, uint64_t keep, bool is_virtual) {
  const uint64_t before = idle_bytes(d);
  const uint64_t step = step_most(d, is_virtual);
  trim_to(d, keep);
  const uint64_t after = idle_bytes(d);
  device_expect_valid(d);
  if (before <= keep) {
    T_EQ(after, before);
  } else if (after > keep) {  // nothing more can go
    const int64_t reserved = current(d, reserved_bytes);
    trim(d);
    T_EQ(current(d, reserved_bytes), reserved);
  } else {
    T_LT(keep - after, step);
  }
}

// Requests and releases of large blocks on two streams, and trims; all bytes that are handed out stay.
static void run_random(tide_machine* m, tide_device_cache* d, bool is_virtual) {
  const tide_stream streams[2] = { NULL, side_new(m) };
  tide_block live[LIVE] = { { NULL, 0 } };
  t_rng rng = t_rng_new(is_virtual);
  for (size_t i = 0; i < t_scaled(STEPS); ++i) {
    const size_t slot = t_rng_below(&rng, LIVE);
    if (live[slot].address != NULL) give(d, live[slot]);
    live[slot] = block_none;
    if (t_rng_below(&rng, 3) != 0) {
      live[slot] = take(d, streams[slot % 2], (1 + (size_t)t_rng_below(&rng, 14)) * MIB);
      paint(m, streams[slot % 2], live[slot], (uint8_t)slot, MIB);
    }
    if (t_rng_below(&rng, 4) == 0) expect_trimmed_to(d, t_rng_below(&rng, 80) * MIB, is_virtual);
  }
  for (size_t slot = 0; slot < LIVE && !is_dry(m); ++slot) {
    uint8_t value = 0;
    if (live[slot].address == NULL) continue;
    T_OK(tide_machine_copy(m, 0, streams[slot % 2], &value, live[slot].address, 1));
    stream_finish(m, 0, streams[slot % 2]);
    T_EQ(value, slot);
  }
}

DEVICE_TEST(test_trim__keeps_as_much_as_it_may) { run_random(m, d, is_tide()); }

TORCH_TEST(test_trim__keeps_as_much_of_expandable_segments_as_it_may) {
  expand(m, d);
  run_random(m, d, true);
}

// Trims as well, in the middle of a trim.
static void trim_once_more(void* user, const tide_trace_entry* entry) {
  tide_device_cache* const d = user;
  if (entry->action == shrink_action()) trim(d);
}

// The walk of the inner trim saw nothing, because the outer one had taken it. What that put back then was
// skipped by later walks.
DEVICE_TEST(test_trim__what_a_trim_puts_back_is_found_by_the_next) {
  const tide_block blocks[2] = { take(d, NULL, 30 * MIB), take(d, NULL, 30 * MIB) };
  for (size_t i = 0; i < 2; ++i) give(d, blocks[i]);
  const tide_observer observer = observe_trace(d, trim_once_more, d);
  T_OK(tide_device_trim(d, 30 * MIB));
  T_EQ(current(d, reserved_bytes), 30 * MIB);
  T_OK(tide_device_detach(d, observer));
  expect_trimmed(d, 0);
}

// The machine refuses what the outer trim had in hand. It was skipped by later walks, too.
DEVICE_TEST_OVER(test_trim__what_the_machine_refuses_inside_a_trim_is_found_by_the_next, device_emulated) {
  give(d, take(d, NULL, 30 * MIB));
  const tide_observer observer = observe_trace(d, trim_once_more, d);
  break_calls(m, shrink_call(), TIDE_ERR_MACHINE, 1);
  T_ANY(tide_device_trim(d, 0));
  tide_machine_fault_clear(m);
  T_OK(tide_device_detach(d, observer));
  expect_trimmed(d, 0);
}
