// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parking: contents and addresses after unparking, what is copied, figures, requests and releases while
// parked, and what is refused.
#define T_THREADS
#include "device/park.h"

#define PARK_TEST(function) DEVICE_TEST_OVER(function, device_tide)

// ---------------------------------------------------------------------------------------------------
// Contents

PARK_TEST(test_park__contents_return_to_their_addresses) {
  const tide_pool pool = tagged(d, "weights");
  const tide_stream streams[] = { NULL, side_new(m) };
  known blocks[6];
  for (size_t i = 0; i < 6; ++i) {
    blocks[i] =
        known_new(m, d, pool, streams[i % 2], i % 3 == 0 ? 8192 * (i + 1) : 3 * MIB + 4096 * i, i + 1);
  }
  for (size_t how = 0; how < BACKUPS; ++how) {
    const uint64_t reserved = pool_reserved(d, pool);
    const size_t idle = free_bytes(m, 0);
    const tide_park_result gone = park(d, "weights", backups[how]);

    T_EQ(gone.pool_count, 1);
    T_EQ(gone.physical_bytes, reserved);
    T_LE(gone.block_bytes, gone.copied_bytes);
    T_EQ(pool_reserved(d, pool), 0);
    T_EQ(current(d, parked_bytes), reserved);
    if (!is_cuda(m)) T_EQ(free_bytes(m, 0), idle + reserved);
    device_expect_valid(d);
    const tide_park_result back = unpark(d, "weights");

    T_EQ(back.pool_count, 1);
    T_EQ(back.physical_bytes, reserved);
    T_EQ(back.block_bytes, gone.block_bytes);
    T_EQ(back.lost_bytes, 0);
    T_EQ(pool_reserved(d, pool), reserved);
    T_EQ(current(d, parked_bytes), 0);
    device_expect_valid(d);
    all_expect(m, blocks, 6);
    for (size_t i = 0; i < 6; ++i) known_write(m, &blocks[i], 100 * how + i);  // in flight at the next round
  }
  all_expect(m, blocks, 6);
  all_give(d, blocks, 6);
}

PARK_TEST(test_park__discarded_contents_are_not_copied) {
  const tide_pool pool = tagged(d, "kv");
  known k = known_new(m, d, pool, NULL, 6 * MIB, 1);

  const tide_park_result gone = park(d, "kv", TIDE_BACKUP_NONE);
  T_EQ(gone.copied_bytes, 0);
  T_EQ(gone.block_bytes, 6 * MIB);
  T_EQ(gone.backup, TIDE_BACKUP_NONE);
  T_STATUS(tide_device_read_parked(d, k.block.address, 16, NULL, NULL), TIDE_ERR_STATE);
  const tide_park_result back = unpark(d, "kv");
  T_EQ(back.copied_bytes, 0);
  T_EQ(back.physical_bytes, gone.physical_bytes);
  known_write(m, &k, 2);
  known_expect(m, &k);
  give(d, k.block);
}

// Of 8 blocks every other one is idle; blocks a few KiB apart are copied as one.
PARK_TEST(test_park__idle_bytes_are_not_copied) {
  const tide_pool pool = tagged(d, "weights");
  known blocks[8];
  for (size_t i = 0; i < 8; ++i) blocks[i] = known_new(m, d, pool, NULL, 1 * MIB, i);
  for (size_t i = 1; i < 8; i += 2) give(d, blocks[i].block);

  T_EQ(park(d, "weights", TIDE_BACKUP_PINNED).copied_bytes, 4 * MIB);
  T_EQ(unpark(d, "weights").copied_bytes, 4 * MIB);
  for (size_t i = 0; i < 8; i += 2) known_expect(m, &blocks[i]);
  for (size_t i = 0; i < 8; i += 2) give(d, blocks[i].block);
}

PARK_TEST(test_park__small_gaps_are_copied_with_their_neighbours) {
  const tide_pool pool = tagged(d, "weights");
  known blocks[3];
  for (size_t i = 0; i < 3; ++i) blocks[i] = known_new(m, d, pool, NULL, 32 * KIB, i);
  const uint64_t from = (uint64_t)(uintptr_t)blocks[0].block.address;
  const uint64_t to = (uint64_t)(uintptr_t)blocks[2].block.address + 32 * KIB;
  give(d, blocks[1].block);

  const tide_park_result gone = park(d, "weights", TIDE_BACKUP_PINNED);
  T_EQ(gone.block_bytes, 64 * KIB);
  T_EQ(gone.copied_bytes, to - from);
  (void)unpark(d, "weights");
  known_expect(m, &blocks[0]);
  known_expect(m, &blocks[2]);
  give(d, blocks[0].block);
  give(d, blocks[2].block);
}

// Wholly idle handles go and do not come back, unless a graph may use them.
PARK_TEST(test_park__idle_handles_do_not_return) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 4 * MIB, 7);
  give(d, take_tagged(d, pool, NULL, 32 * MIB));
  const uint64_t reserved = pool_reserved(d, pool);

  const tide_park_result gone = park(d, "weights", TIDE_BACKUP_PINNED);
  T_EQ(gone.physical_bytes, reserved);
  T_LT(current(d, parked_bytes), 32 * MIB);
  T_LT(unpark(d, "weights").physical_bytes, 32 * MIB);
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__a_captured_pool_returns_whole_and_its_graph_replays) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = tagged(d, "graph");
  capture_open(m, d, stream, pool);
  const tide_block in = take(d, stream, 2 * MIB);
  const tide_block middle = take(d, stream, 8 * MIB);
  const tide_block out = take(d, stream, 2 * MIB);
  T_OK(tide_machine_copy(m, 0, stream, middle.address, in.address, 2 * MIB));
  T_OK(tide_machine_fill(m, 0, stream, bytes_of(middle) + MIB, 9, 512));
  T_OK(tide_machine_copy(m, 0, stream, out.address, middle.address, 2 * MIB));
  give(d, middle);  // idle for the allocator, and not for the graph
  const tide_launch graph = capture_close(m, d, stream, pool);
  const uint64_t reserved = pool_reserved(d, pool);
  known k = { .block = in, .bytes = 2 * MIB, .stream = stream };
  for (size_t how = 0; how < BACKUPS; ++how) {
    known_write(m, &k, how + 5);
    T_EQ(park(d, "graph", backups[how]).physical_bytes, reserved);
    T_EQ(unpark(d, "graph").physical_bytes, reserved);
    T_OK(tide_machine_launch(m, 0, graph, stream));
    T_OK(tide_machine_stream_synchronize(m, 0, stream));
    known_expect(m, &k);
    if (is_dry(m) || is_cuda(m)) continue;
    T_CHECK(memcmp(out.address, in.address, MIB) == 0);
    T_EQ(bytes_of(out)[MIB], 9);
    T_EQ(bytes_of(out)[2 * MIB - 1], k.values[3]);
  }
  T_OK(tide_machine_launch_free(m, graph));
  give(d, in);
  give(d, out);
}

// ---------------------------------------------------------------------------------------------------
// Others use the memory

static const char* const tide_emulated[] = { "host tide", "dry tide", NULL };

// Nearly all of the device is parked; another allocator takes it, and as long as it holds it, nothing
// returns.
DEVICE_TEST_OVER(test_park__another_allocator_uses_the_memory_meanwhile, tide_emulated) {
  const tide_pool pool = tagged(d, "weights");
  known blocks[4];
  for (size_t i = 0; i < 4; ++i) blocks[i] = known_new(m, d, pool, NULL, 50 * MIB, i);
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  tide_device_cache* const other = device_new(m, 0, NULL);
  const tide_block theirs = take(other, NULL, 180 * MIB);
  paint(m, NULL, theirs, 77, 180 * MIB);

  T_STATUS(tide_device_unpark(d, "weights", NULL, NULL), TIDE_ERR_NO_MEMORY);
  device_expect_valid(d);
  T_EQ(stats_under(d, "weights").parked_pool_count, 1);
  give(other, theirs);
  trim(other);
  (void)unpark(d, "weights");
  all_expect(m, blocks, 4);
  all_give(d, blocks, 4);
  tide_device_free(other);
}

DEVICE_TEST_OVER(test_park__idle_memory_of_other_pools_goes_back_first, tide_emulated) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 100 * MIB, 3);
  for (int is_limited = 0; is_limited < 2; ++is_limited) {
    (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
    give(d, take(d, NULL, 200 * MIB));
    if (is_limited) limit_to(d, 220 * MIB);
    T_EQ(unpark(d, "weights").pool_count, 1);
    known_expect(m, &k);
    T_LE(current(d, reserved_bytes), 110 * MIB);
  }
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  limit_to(d, 50 * MIB);
  T_STATUS(tide_device_unpark(d, "weights", NULL, NULL), TIDE_ERR_NO_MEMORY);
  limit_to(d, TIDE_NO_LIMIT);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

// Parked memory leaves no room above the peak that could be filled without stitching.
DEVICE_TEST_OVER(test_park__the_default_pool_reserves_no_more_while_others_are_parked, tide_emulated) {
  const tide_pool pool = tagged(d, "weights");
  const tide_block parked = take_tagged(d, pool, NULL, 64 * MIB);
  tide_block blocks[16];
  for (size_t i = 0; i < 16; ++i) blocks[i] = take(d, NULL, 4 * MIB);
  (void)park(d, "weights", TIDE_BACKUP_NONE);
  for (size_t i = 0; i < 16; i += 2) give(d, blocks[i]);
  const int64_t before = current(d, reserved_bytes);
  const tide_block stitched = take(d, NULL, 30 * MIB);

  T_EQ(current(d, reserved_bytes), before);
  give(d, stitched);
  for (size_t i = 1; i < 16; i += 2) give(d, blocks[i]);
  give(d, parked);
}

// ---------------------------------------------------------------------------------------------------
// Requests and releases while parked

PARK_TEST(test_park__a_request_unparks_its_pool) {
  const tide_pool pool = tagged(d, "weights");
  const tide_stream side = side_new(m);
  known k = known_new(m, d, pool, NULL, 3 * MIB, 5);
  give(d, take_tagged(d, pool, NULL, 512 * KIB));
  for (size_t i = 0; i < 3; ++i) {
    (void)park(d, "weights", backups[i]);
    T_EQ(stats_under(d, "weights").parked_pool_count, 1);
    const tide_stream stream = i == 1 ? side : NULL;  // of which the pool knows nothing at first
    const tide_block more = take_tagged(d, pool, stream, i == 0 ? 4096 : 5 * MIB);
    T_EQ(stats_under(d, "weights").parked_pool_count, 0);
    paint(m, stream, more, 1, 4096);
    known_expect(m, &k);
    give(d, more);
  }
  give(d, k.block);
}

PARK_TEST(test_park__a_request_in_a_parked_pool_fails_where_it_should) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 1 * MIB, 5);
  tide_park_options options = park_how(TIDE_BACKUP_PAGEABLE);
  options.unparks_on_request = false;
  T_OK(tide_device_park(d, "weights", &options, NULL));
  region_open(d, pool);
  T_STATUS(try_take(d, NULL, 4096), TIDE_ERR_STATE);
  T_STATUS(try_take(d, NULL, 512 * KIB), TIDE_ERR_STATE);
  T_STATUS(try_take(d, NULL, 16 * MIB), TIDE_ERR_STATE);
  region_close(d, pool);
  give(d, take(d, NULL, 16 * MIB));  // others are not concerned
  device_expect_valid(d);

  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, take_tagged(d, pool, NULL, 4096));
  give(d, k.block);
}

PARK_TEST(test_park__blocks_are_released_while_parked) {
  const tide_pool pool = tagged(d, "weights");
  known blocks[6];
  for (size_t i = 0; i < 6; ++i) blocks[i] = known_new(m, d, pool, NULL, 8 * MIB, i);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  for (size_t i = 0; i < 4; ++i) give(d, blocks[i].block);
  device_expect_valid(d);
  T_EQ(stats_under(d, "weights").allocation_count, 2);

  const tide_park_result back = unpark(d, "weights");
  T_EQ(back.copied_bytes, 16 * MIB);
  T_LE(back.physical_bytes, 20 * MIB);
  all_expect(m, &blocks[4], 2);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  all_give(d, &blocks[4], 2);
  const tide_park_result none = unpark(d, "weights");
  T_EQ(none.pool_count, 1);
  T_EQ(none.physical_bytes, 0);
  T_EQ(pool_reserved(d, pool), 0);
  give(d, take_tagged(d, pool, NULL, MIB));
}

PARK_TEST(test_park__announced_work_is_waited_for) {
  const tide_pool pool = tagged(d, "weights");
  const tide_stream side = side_new(m);
  known k = known_new(m, d, pool, NULL, 2 * MIB, 1);
  const tide_block released = take_tagged(d, pool, NULL, 16 * MIB);
  work_slowly(m, side);
  paint(m, side, released, 3, 16 * MIB);
  give_announced(d, released, side);

  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_LT(current(d, parked_bytes), 16 * MIB);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__a_pool_dropped_while_parked_ends_with_its_last_block) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 4 * MIB, 1);
  uint32_t users = 0;
  (void)park(d, "weights", TIDE_BACKUP_PAGEABLE);
  T_OK(tide_device_pool_drop(d, pool));
  trim(d);
  T_OK(tide_device_pool_users(d, pool, &users));
  T_EQ(current(d, parked_bytes), pool_reserved(d, pool) + stats_under(d, "weights").parked_bytes);
  give(d, k.block);
  T_OK(tide_device_trim_pool(d, TIDE_POOL_DEFAULT));

  T_STATUS(tide_device_pool_users(d, pool, &users), TIDE_ERR_HANDLE);
  T_EQ(current(d, parked_bytes), 0);
}

PARK_TEST(test_park__the_allocator_ends_with_parked_memory) {
  for (size_t how = 0; how < BACKUPS; ++how) {
    tide_device_cache* const other = device_new(m, 0, NULL);
    const tide_pool pool = tagged(other, "weights");
    (void)known_new(m, other, pool, NULL, 4 * MIB, 1);
    (void)known_new(m, other, tagged(other, "kv"), NULL, 4 * MIB, 1);
    (void)park(other, NULL, backups[how]);
    (void)unpark(other, "kv");
    tide_device_free(other);
  }
}

PARK_TEST(test_park__trims_leave_parked_memory_alone) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, 3 * MIB, 1);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  const int64_t parked = current(d, parked_bytes);
  give(d, take(d, NULL, 32 * MIB));
  T_OK(tide_device_trim(d, 16 * MIB));
  T_LE(current(d, reserved_bytes), 16 * MIB);
  T_OK(tide_device_trim_pool(d, pool));
  expect_trimmed(d, 0);
  T_EQ(current(d, parked_bytes), parked);
  size_t largest = 1;
  T_OK(tide_device_largest(d, &largest));
  T_EQ(largest, 1);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

// ---------------------------------------------------------------------------------------------------
// Tags

PARK_TEST(test_park__the_pools_of_a_tag_go_together_and_return_in_parts) {
  const tide_pool actor = tagged(d, "weights/actor");
  const tide_pool critic = tagged(d, "weights/critic");
  const tide_pool cache = tagged(d, "kv");
  known a = known_new(m, d, actor, NULL, 3 * MIB, 1);
  known b = known_new(m, d, critic, side_new(m), 5 * MIB, 2);
  known c = known_new(m, d, cache, NULL, 7 * MIB, 3);

  T_EQ(park(d, "weights", TIDE_BACKUP_PAGEABLE).pool_count, 2);
  T_EQ(park(d, NULL, TIDE_BACKUP_FILE).pool_count, 1);
  T_EQ(park(d, NULL, TIDE_BACKUP_FILE).pool_count, 0);
  T_EQ(stats_under(d, NULL).parked_pool_count, 3);
  T_LE(8 * MIB, stats_under(d, "weights").backup_bytes);
  T_LE(3 * MIB, stats_under(d, "weights/actor").backup_bytes);
  T_EQ(unpark(d, "weights/critic").pool_count, 1);
  known_expect(m, &b);
  T_EQ(stats_under(d, "weights").parked_pool_count, 1);
  T_EQ(unpark(d, NULL).pool_count, 2);
  T_EQ(unpark(d, NULL).pool_count, 0);
  T_EQ(stats_under(d, NULL).parked_pool_count, 0);
  T_OK(tide_machine_device_synchronize(m, 0));
  (void)unpark(d, NULL);
  T_EQ(stats_under(d, NULL).backup_bytes, 0);
  known_expect(m, &a);
  known_expect(m, &c);
  T_STATUS(tide_device_park(d, "weight", NULL, NULL), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_unpark(d, "weight", NULL, NULL), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_park(d, "/", NULL, NULL), TIDE_ERR_ARGUMENT);
  give(d, a.block);
  give(d, b.block);
  give(d, c.block);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

static const char* const torch_emulated[] = { "host", "dry", NULL };

DEVICE_TEST_OVER(test_park__the_policy_torch_cannot_park, torch_emulated) {
  const tide_pool pool = tagged(d, "weights");
  const tide_block block = take_tagged(d, pool, NULL, MIB);
  T_STATUS(tide_device_park(d, "weights", NULL, NULL), TIDE_ERR_UNSUPPORTED);
  T_OK(tide_device_unpark(d, "weights", NULL, NULL));
  give(d, block);
}

PARK_TEST(test_park__pools_that_tide_does_not_serve_are_refused) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "plain/a";
  options.is_plain = true;
  (void)pool_new(d, &options);
  options = (tide_pool_options)TIDE_POOL_OPTIONS_INIT;
  options.tag = "plain/b";
  options.no_split = true;
  (void)pool_new(d, &options);
  known k = known_new(m, d, tagged(d, "plain/c"), NULL, MIB, 1);

  T_STATUS(tide_device_park(d, "plain/a", NULL, NULL), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_device_park(d, "plain/b", NULL, NULL), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide_device_park(d, "plain", NULL, NULL), TIDE_ERR_UNSUPPORTED);  // all or nothing
  T_EQ(stats_under(d, "plain").parked_pool_count, 0);
  known_expect(m, &k);
  give(d, k.block);
}

// Its next request unparks it.
PARK_TEST(test_park__a_pool_is_parked_while_its_region_is_open) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, side_new(m), MIB, 1);
  region_open(d, pool);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_EQ(stats_under(d, "weights").parked_pool_count, 1);
  const tide_block more = take(d, k.stream, MIB);
  T_EQ(stats_under(d, "weights").parked_pool_count, 0);
  region_close(d, pool);
  known_expect(m, &k);
  give(d, more);
  give(d, k.block);
}

PARK_TEST(test_park__open_scopes_and_captures_are_refused) {
  const tide_pool pool = tagged(d, "weights");
  const tide_pool graph = tagged(d, "graph");
  const tide_stream stream = side_new(m);
  known k = known_new(m, d, pool, stream, MIB, 1);
  scope_open(d, graph);
  T_STATUS(tide_device_park(d, "weights", NULL, NULL), TIDE_ERR_CAPTURE);
  scope_close(d, graph);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_RELAXED));
  T_STATUS(tide_device_park(d, "weights", NULL, NULL), TIDE_ERR_CAPTURE);
  tide_launch launch = NULL;
  T_OK(tide_machine_capture_end(m, 0, stream, &launch));  // it was not broken
  T_OK(tide_machine_launch_free(m, launch));

  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  T_OK(tide_machine_capture_begin(m, 0, stream, TIDE_CAPTURE_RELAXED));
  T_STATUS(tide_device_unpark(d, "weights", NULL, NULL), TIDE_ERR_CAPTURE);
  T_OK(tide_machine_capture_end(m, 0, stream, &launch));
  T_OK(tide_machine_launch_free(m, launch));
  capture_open(m, d, stream, pool);
  T_STATUS(try_take(d, stream, 4096), TIDE_ERR_CAPTURE);
  T_OK(tide_machine_launch_free(m, capture_close(m, d, stream, pool)));
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__what_cannot_be_done_with_a_parked_pool) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, MIB, 1);
  tide_checkpoint* checkpoint = NULL;
  tide_checkpoint* early = NULL;
  tide_restore_delta delta = TIDE_RESTORE_DELTA_INIT;
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[8];
  tide_block found = { NULL, 0 };
  void* base = NULL;
  size_t bytes = 0;
  T_OK(tide_device_checkpoint(d, pool, &early));
  (void)park(d, "weights", TIDE_BACKUP_PINNED);

  T_STATUS(tide_device_checkpoint(d, pool, &checkpoint), TIDE_ERR_STATE);
  T_STATUS(tide_device_restore(d, early, &delta), TIDE_ERR_STATE);
  T_STATUS(tide_device_pool_set_tag(d, pool, "other"), TIDE_ERR_STATE);
  T_STATUS(tide_device_pool_set_no_split(d, pool), TIDE_ERR_STATE);
  if (!is_cuda(m)) T_CHECK(tide_device_share(d, k.block.address, &share, parts, 8) != TIDE_OK);
  T_OK(tide_device_find(d, k.block.address, &found));  // addresses stay known
  T_EQ(found.handle, k.block.handle);
  T_EQ(tide_device_bytes(d, k.block.address), MIB);
  T_OK(tide_device_base(d, k.block.address, &base, &bytes));
  T_LE((uintptr_t)base, (uintptr_t)k.block.address);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  tide_checkpoint_free(early);
  give(d, k.block);
}

PARK_TEST(test_park__shared_memory_is_refused) {
  const tide_pool pool = tagged(d, "weights");
  known k = known_new(m, d, pool, NULL, MIB, 1);
  tide_share share = TIDE_SHARE_INIT;
  tide_physical_share parts[8];
  if (tide_device_share(d, k.block.address, &share, parts, 8) != TIDE_OK) {
    give(d, k.block);
    t_skip("memory cannot be shared here");
  }
  T_STATUS(tide_device_park(d, "weights", NULL, NULL), TIDE_ERR_STATE);
  known_expect(m, &k);
  for (size_t i = 0; i < share.part_count; ++i) close(parts[i].descriptor);
  give(d, k.block);
  T_EQ(park(d, "weights", TIDE_BACKUP_PINNED).copied_bytes, 0);
  (void)unpark(d, "weights");
}

// A pool whose idle memory serves the default pool has blocks that are not its own.
DEVICE_TEST_OVER(test_park__lent_memory_is_refused, tide_emulated) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.tag = "weights";
  options.use_on_oom = true;
  const tide_pool pool = pool_new(d, &options);
  known k = known_new(m, d, pool, NULL, MIB, 1);
  give(d, take_tagged(d, pool, NULL, 100 * MIB));
  limit_to(d, 110 * MIB);
  const tide_block lent = take(d, NULL, 90 * MIB);
  T_STATUS(tide_device_park(d, "weights", NULL, NULL), TIDE_ERR_STATE);
  give(d, lent);
  (void)park(d, "weights", TIDE_BACKUP_PINNED);
  give(d, take(d, NULL, 90 * MIB));  // not from the parked pool
  T_EQ(stats_under(d, "weights").parked_pool_count, 1);
  (void)unpark(d, "weights");
  known_expect(m, &k);
  give(d, k.block);
}

PARK_TEST(test_park__wrong_arguments_are_refused) {
  tide_park_options options = park_how((tide_backup)9);
  tide_unpark_options back = TIDE_UNPARK_OPTIONS_INIT;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  (void)tagged(d, "weights");
  T_STATUS(tide_device_park(NULL, "weights", NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_unpark(NULL, "weights", NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_park(d, "weights", &options, NULL), TIDE_ERR_ARGUMENT);
  options.size = 3;
  T_STATUS(tide_device_park(d, "weights", &options, NULL), TIDE_ERR_ARGUMENT);
  back.stream_count = 1;
  T_STATUS(tide_device_unpark(d, "weights", &back, NULL), TIDE_ERR_ARGUMENT);
  result.size = 2;
  T_STATUS(tide_device_park(d, "weights", NULL, &result), TIDE_ERR_ARGUMENT);
  options = park_how(TIDE_BACKUP_NONE);
  T_STATUS(tide_device_prepare_backup(d, "weights", &options), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_device_read_parked(d, &result, 4, NULL, NULL), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_read_parked(d, NULL, 4, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_OK(tide_device_read_parked(d, NULL, 0, NULL, NULL));
}
