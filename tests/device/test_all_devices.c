// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What concerns all allocators of a process: names, one call for all devices, and callbacks that every
// allocator asks when it finds no memory; and where a block lies, with both policies.
#include "device/devices.h"

// ---------------------------------------------------------------------------------------------------
// Names

DEVICE_TEST(test_all_devices__an_allocator_is_named_after_its_policy) {
  (void)m;
  T_STR_EQ(tide_device_name(d), is_tide() ? "tide" : "torch");
  T_STR_EQ(tide_device_name(NULL), "");
}

// ---------------------------------------------------------------------------------------------------
// One call for all

static void set_default(int index, tide_device_cache* d) { T_OK(tide_device_set_default(index, d)); }

DEVICE_TEST_OVER(test_all_devices__one_trace_has_all, device_emulated) {
  need_two_devices(m);
  tide_device_cache* const other = device_new(m, 1, NULL);
  tide_device_cache* const all[2] = { d, other };
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  for (int i = 0; i < 2; ++i) {
    set_default(i, all[i]);
    history_on(all[i]);
    (void)take(all[i], NULL, (size_t)(i + 1) * 4096);
  }

  T_OK(tide_device_snapshot_all(NULL, trace));

  size_t count = 0;
  T_EQ(tide_trace_device_count(trace), 2);
  for (size_t i = 0; i < 2; ++i) {
    const tide_trace_entry* const entries = tide_trace_entries(trace, i, &count);
    T_EQ(count, 2);
    T_EQ(entries[1].action, TIDE_ACTION_ALLOC);
    T_EQ(entries[1].bytes, (i + 1) * 4096);
    T_EQ(entries[1].device, i);
  }
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  T_EQ(count, 2);
  T_EQ(segments[0].device + segments[1].device, 1);
  T_STATUS(tide_device_snapshot_all(NULL, NULL), TIDE_ERR_ARGUMENT);
  tide_trace_free(trace);
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks of the process

typedef struct asked {
  int order;  // of the last call among all
  int times;
  tide_device_cache* device;
  tide_block held;  // given up when it is asked
} asked;

static int asked_in_all;

static bool answer(void* user, tide_device_cache* device) {
  asked* const a = user;
  a->order = ++asked_in_all;
  a->times++;
  a->device = device;
  if (a->held.address == NULL) return false;
  give(device, a->held);
  a->held = block_none;
  return true;
}

static void reclaim_register(const char* name, asked* a) { T_OK(tide_reclaim_register(name, answer, a)); }

DEVICE_TEST(test_all_devices__every_allocator_asks_the_callbacks_of_the_process) {
  asked first = { 0 };
  asked second = { 0 };
  reclaim_register("first", &first);
  (void)take(d, NULL, 12 * MIB);
  T_EQ(first.times, 1);
  T_PTR_EQ(first.device, d);
  reclaim_register("second", &second);
  tide_device_cache* const later = device_new(m, 0, NULL);

  (void)take(later, NULL, 12 * MIB);

  T_EQ(first.times, 2);
  T_EQ(second.times, 1);
  T_LT(first.order, second.order);
  T_PTR_EQ(second.device, later);
  tide_device_free(later);
}

DEVICE_TEST(test_all_devices__what_a_callback_gives_up_serves_the_request) {
  (void)m;
  asked a = { .held = take(d, NULL, 12 * MIB) };
  limit_to(d, 14 * MIB);
  reclaim_register("cache of weights", &a);

  (void)take(d, NULL, 12 * MIB);

  T_EQ(a.times, 1);
  T_EQ(current(d, allocation), 1);
}

DEVICE_TEST(test_all_devices__a_name_has_one_callback_and_keeps_its_place) {
  (void)m;
  asked a = { 0 };
  asked b = { 0 };
  asked instead = { 0 };
  reclaim_register("a", &a);
  reclaim_register("b", &b);

  reclaim_register("a", &instead);
  (void)take(d, NULL, 12 * MIB);
  T_EQ(a.times, 0);
  T_EQ(instead.times, 1);
  T_LT(instead.order, b.order);

  T_OK(tide_reclaim_unregister("a"));
  T_STATUS(tide_reclaim_unregister("a"), TIDE_ERR_HANDLE);
  (void)take(d, NULL, 12 * MIB);
  T_EQ(instead.times, 1);
  T_EQ(b.times, 2);
}

static bool leave(void* user, tide_device_cache* device) {
  (void)device;
  ++*(int*)user;
  T_OK(tide_reclaim_unregister("leaving"));
  return false;
}

DEVICE_TEST(test_all_devices__a_callback_may_take_itself_out) {
  (void)m;
  int times = 0;
  T_OK(tide_reclaim_register("leaving", leave, &times));

  (void)take(d, NULL, 12 * MIB);
  (void)take(d, NULL, 12 * MIB);

  T_EQ(times, 1);
}

T_TEST(test_all_devices__names_have_limits) {
  static char name[TIDE_RECLAIM_NAME + 2];
  asked a = { 0 };
  memset(name, 'x', sizeof name - 1);
  T_STATUS(tide_reclaim_register(NULL, answer, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_register("name", NULL, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_register("", answer, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_register(name, answer, &a), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_unregister(NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_reclaim_unregister(name), TIDE_ERR_HANDLE);
  name[TIDE_RECLAIM_NAME] = '\0';
  for (int i = 0; i < 32; ++i) {
    name[0] = (char)('A' + i);
    reclaim_register(name, &a);
  }
  T_STATUS(tide_reclaim_register("one more", answer, &a), TIDE_ERR_LIMIT);
  reclaim_register(name, &a);
  T_OK(tide_reclaim_unregister(name));
  reclaim_register("one more", &a);
}

// Names come and go while allocators ask.
static atomic_bool is_over;
static atomic_int asked_at_once;

static bool count_asked(void* user, tide_device_cache* device) {
  (void)device;
  atomic_fetch_add((atomic_int*)user, 1);
  return false;
}

static void* come_and_go(void* user) {
  const char* const name = user;
  while (!atomic_load(&is_over)) {
    T_OK(tide_reclaim_register(name, count_asked, &asked_at_once));
    T_OK(tide_reclaim_unregister(name));
  }
  return NULL;
}

static void* grow_again_and_again(void* user) {
  for (int i = 0; i < 200; ++i) {
    give(user, take(user, NULL, 12 * MIB));
    trim(user);
  }
  return NULL;
}

DEVICE_TEST_OVER(test_all_devices__callbacks_come_and_go_while_they_are_asked, device_emulated) {
  static char names[2][2] = { "x", "y" };
  tide_device_cache* const other = device_new(m, 0, NULL);
  tide_device_cache* const growing[2] = { d, other };
  pthread_t threads[4];
  T_OK(tide_reclaim_register("stays", count_asked, &asked_at_once));
  for (size_t i = 0; i < 2; ++i) {
    t_thread_start(&threads[i], come_and_go, names[i]);
    t_thread_start(&threads[2 + i], grow_again_and_again, growing[i]);
  }

  for (size_t i = 2; i < 4; ++i) t_thread_join(threads[i]);
  atomic_store(&is_over, true);
  for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);

  T_LE(400, atomic_load(&asked_at_once));
  tide_device_free(other);
}

// ---------------------------------------------------------------------------------------------------
// Where a block lies

static void expect_base_around(tide_machine* m, tide_device_cache* d, tide_block block, size_t bytes) {
  void* base = NULL;
  size_t length = 0;
  T_OK(tide_device_base(d, block.address, &base, &length));
  T_LE((uintptr_t)base, (uintptr_t)block.address);
  T_LE((uintptr_t)block.address + bytes, (uintptr_t)base + length);
  if (is_tide()) T_EQ(length % granularity(m), 0);
  // All of it is there: the machine copies from its first and its last byte.
  uint8_t ends[2];
  T_OK(tide_machine_copy(m, 0, NULL, &ends[0], base, 1));
  T_OK(tide_machine_copy(m, 0, NULL, &ends[1], (uint8_t*)base + length - 1, 1));
  stream_finish(m, 0, NULL);
}

// With the policy tide it was refused.
DEVICE_TEST(test_all_devices__the_base_lies_around_a_block) {
  const size_t sizes[] = { 1, 700, 300 * KIB, MIB, 3 * MIB, 21 * MIB, 70 * MIB };
  tide_block blocks[7];
  for (size_t i = 0; i < 7; ++i) blocks[i] = take(d, NULL, sizes[i]);

  for (size_t i = 0; i < 7; ++i) expect_base_around(m, d, blocks[i], sizes[i]);

  void* base = NULL;
  T_STATUS(tide_device_base(d, bytes_of(blocks[2]) + 512, &base, NULL), TIDE_ERR_HANDLE);
  for (size_t i = 0; i < 7; ++i) give(d, blocks[i]);
  T_STATUS(tide_device_base(d, blocks[3].address, &base, NULL), TIDE_ERR_HANDLE);
  T_PTR_EQ(base, NULL);
}

// Idle handles of another stream are stitched: the block lies in a view, and its base there.
DEVICE_TEST(test_all_devices__the_base_lies_around_a_stitched_block) {
  const tide_stream side = side_new(m);
  tide_block comb[8];
  for (size_t i = 0; i < 8; ++i) comb[i] = take(d, NULL, 4 * MIB);
  for (size_t i = 0; i < 8; i += 2) give(d, comb[i]);
  stream_finish(m, 0, NULL);
  const tide_block here = take(d, NULL, 14 * MIB);
  expect_base_around(m, d, here, 14 * MIB);
  give(d, here);
  const tide_block there = take(d, side, 10 * MIB);

  expect_base_around(m, d, there, 10 * MIB);
}

DEVICE_TEST(test_all_devices__the_base_of_uncached_memory_is_its_own) {
  (void)m;
  void* base = NULL;
  size_t bytes = 0;
  tide_device_set_caching(d, false);
  const tide_block block = take(d, NULL, 3000);

  T_OK(tide_device_base(d, block.address, &base, &bytes));

  T_PTR_EQ(base, block.address);
  T_EQ(bytes, 3000);
  give(d, block);
}

// What is shared begins at the base.
DEVICE_TEST_OVER(test_all_devices__a_share_begins_at_the_base, device_emulated) {
  if (!device_info(m, 0).has_physical_sharing) t_skip("no physical sharing");
  enum { PARTS = 64 };
  tide_physical_share parts[PARTS];
  tide_share share = TIDE_SHARE_INIT;
  void* base = NULL;
  (void)take(d, NULL, 5000);
  const tide_block block = take(d, NULL, 5000);

  T_OK(tide_device_base(d, block.address, &base, NULL));
  T_OK(tide_device_share(d, block.address, &share, parts, PARTS));

  T_EQ(share.offset, (uintptr_t)block.address - (uintptr_t)base);
  for (uint32_t i = 0; i < share.part_count; ++i) T_EQ(close(parts[i].descriptor), 0);
}
