// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Thread caches of the policy `tide`: small blocks that threads cache must not cause an out-of-memory error,
// and statistics and snapshots must not show them.
#define T_THREADS
#include "device/devices.h"

#define TIDE_TEST(function) DEVICE_TEST_OVER(function, device_tide)

enum { MANY = 200 };

// A thread of its own takes `count` blocks of a stream and releases them, and so has some at hand when it
// ends.
typedef struct hoarder {
  tide_device_cache* d;
  tide_stream stream;
  size_t bytes;
  size_t count;
} hoarder;

static void* hoard(void* user) {
  const hoarder* const h = user;
  tide_block blocks[MANY];
  for (size_t i = 0; i < h->count; ++i) blocks[i] = take(h->d, h->stream, h->bytes);
  for (size_t i = 0; i < h->count; ++i) give(h->d, blocks[i]);
  return NULL;
}

static void hoard_elsewhere(tide_device_cache* d, tide_stream stream, size_t bytes, size_t count) {
  hoarder h = { d, stream, bytes, count };
  run_threads(1, hoard, &h);
}

static uint64_t reserved(tide_device_cache* d) { return (uint64_t)current(d, reserved_bytes); }

// ---------------------------------------------------------------------------------------------------
// Memory

TIDE_TEST(test_tcache__what_another_thread_has_at_hand_is_found_before_memory_is_made) {
  hoard_elsewhere(d, NULL, 64 * KIB, 32);
  const uint64_t before = reserved(d);

  for (size_t i = 0; i < before / (512 * KIB); ++i) (void)take(d, NULL, 512 * KIB);

  T_EQ(reserved(d), before);
}

TIDE_TEST(test_tcache__nothing_at_hand_is_a_reason_to_be_out_of_memory) {
  for (size_t bytes = 512; bytes <= 512 * KIB; bytes *= 2) hoard_elsewhere(d, NULL, bytes, 4);
  const uint64_t all = reserved(d);
  T_OK(tide_device_set_limit(d, all));

  for (size_t i = 0; i < all / 512; ++i) (void)take(d, NULL, 512);
  expect_oom(d, NULL, 512);
}

TIDE_TEST(test_tcache__what_blocks_have_too_much_is_given_back_when_memory_is_short) {
  T_OK(tide_device_set_limit(d, 2 * MIB));
  for (size_t i = 0; i < 4; ++i) (void)take(d, NULL, 449 * KIB);  // each of a class of 480 KiB

  for (size_t i = 0; i < 4; ++i) (void)take(d, NULL, 31 * KIB);
  for (size_t i = 0; i < 128; ++i) (void)take(d, NULL, KIB);

  T_EQ(reserved(d), 2 * MIB);
  T_EQ(current(d, allocated_bytes), 2 * MIB);
}

TIDE_TEST(test_tcache__a_trim_gives_back_what_threads_have_at_hand) {
  hoard_elsewhere(d, NULL, 10 * KIB, MANY);
  give(d, take(d, NULL, 10 * KIB));

  T_OK(tide_device_trim(d, 0));

  T_EQ(reserved(d), 0);
}

TIDE_TEST(test_tcache__many_streams_share_the_cache_of_a_thread) {
  enum { STREAMS = 20 };
  tide_stream streams[STREAMS];
  tide_block blocks[STREAMS][4];
  for (size_t i = 0; i < STREAMS; ++i) streams[i] = side_new(m);
  for (size_t round = 0; round < 5; ++round) {
    for (size_t k = 0; k < 4; ++k) {
      for (size_t i = 0; i < STREAMS; ++i) blocks[i][k] = take(d, streams[i], 700 * (k + 1));
    }
    for (size_t i = 0; i < STREAMS; ++i) {
      for (size_t k = 0; k < 4; ++k) give(d, blocks[i][k]);
    }
    device_expect_valid(d);
  }
  T_EQ(reserved(d), STREAMS * 2 * MIB);
}

TIDE_TEST(test_tcache__a_loop_makes_no_call_and_no_memory) {
  tide_block blocks[MANY];
  for (size_t i = 0; i < MANY; ++i) blocks[i] = take(d, NULL, 512 + 700 * i);
  for (size_t i = 0; i < MANY; ++i) give(d, blocks[i]);
  for (size_t i = 0; i < MANY; ++i) blocks[i] = take(d, NULL, 512 + 700 * i);
  const uint64_t before = tide_machine_call_stats(m, TIDE_CALL_ANY).calls;

  for (size_t round = 0; round < 50; ++round) {
    for (size_t i = 0; i < MANY; ++i) give(d, blocks[i]);
    for (size_t i = 0; i < MANY; ++i) blocks[i] = take(d, NULL, 512 + 700 * i);
  }

  T_EQ(tide_machine_call_stats(m, TIDE_CALL_ANY).calls, before);
}

// ---------------------------------------------------------------------------------------------------
// What is shown

TIDE_TEST(test_tcache__statistics_count_what_was_asked_for_in_units_of_512) {
  int64_t bytes = 0;
  int64_t requested = 0;
  for (size_t i = 0; i < MANY; ++i) {
    const size_t wanted = 1 + 2609 * i;
    (void)take(d, NULL, wanted);
    requested += (int64_t)wanted;
    bytes += (int64_t)((wanted + 511) / 512 * 512);
  }
  T_EQ(current(d, allocated_bytes), bytes);
  T_EQ(current(d, requested_bytes), requested);
  T_EQ(current(d, allocation), MANY);
}

TIDE_TEST(test_tcache__peaks_of_one_thread_are_exact_for_small_and_large_together) {
  const tide_block large = take(d, NULL, 3 * MIB);
  for (size_t i = 0; i < MANY; ++i) give(d, take(d, NULL, 100 * KIB));
  const tide_block small = take(d, NULL, 200 * KIB);
  give(d, large);
  give(d, small);

  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_ALL].peak, 3 * MIB + 200 * KIB);
  T_EQ(stats_of(d).allocated_bytes[TIDE_STAT_SMALL].peak, 200 * KIB);
  T_EQ(stats_of(d).allocation[TIDE_STAT_ALL].peak, 2);
}

TIDE_TEST(test_tcache__a_visit_adds_up_to_the_statistics) {
  uint64_t bytes[2] = { 0, 0 };  // of segments, and of blocks
  uint64_t allocated[2] = { 0, 0 };
  for (size_t i = 0; i < MANY; ++i) {
    const tide_block block = take(d, NULL, 1 + 2609 * i);
    if (i % 3 == 0) give(d, block);
  }

  const seen s = look(d);

  for (size_t i = 0; i < s.segment_count; ++i) {
    bytes[0] += s.segments[i].bytes;
    allocated[0] += s.segments[i].allocated_bytes;
  }
  for (size_t i = 0; i < s.block_count; ++i) {
    bytes[1] += s.blocks[i].bytes;
    if (s.blocks[i].state == TIDE_BLOCK_ALLOCATED) allocated[1] += s.blocks[i].bytes;
  }
  for (size_t i = 0; i < 2; ++i) {
    T_EQ(bytes[i], reserved(d));
    T_EQ(allocated[i], (uint64_t)current(d, allocated_bytes));
  }
}

static size_t gather_one(void* user, uint64_t* frames, size_t capacity) {
  (void)user;
  T_LT(0, capacity);
  frames[0] = 7;
  return 1;
}

TIDE_TEST(test_tcache__what_was_at_hand_shows_no_stack) {
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  history.level = TIDE_HISTORY_STATE;
  history.gather = gather_one;
  (void)take(d, NULL, 1000);  // the segment is there, and remembers no stack
  T_OK(tide_device_history(d, &history));

  give(d, take(d, NULL, 1000));

  const seen inside = look(d);
  T_EQ(inside.segments[0].stack, 0);
  for (size_t i = 0; i < inside.block_count; ++i) T_EQ(inside.blocks[i].stack, 0);
}

// ---------------------------------------------------------------------------------------------------
// Releases

TIDE_TEST(test_tcache__a_block_at_hand_is_nobodys) {
  tide_block found;
  const tide_block block = take(d, NULL, 1000);
  give(d, block);

  T_STATUS(tide_device_release(d, block), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_release_address(d, block.address), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_find(d, block.address, &found), TIDE_ERR_HANDLE);
  T_STATUS(tide_device_record(d, block, NULL), TIDE_ERR_HANDLE);
  T_EQ(current(d, allocation), 0);
}

typedef struct rival {
  tide_device_cache* d;
  const tide_block* blocks;
  size_t released;
} rival;

static void* release_all(void* user) {
  rival* const r = user;
  for (size_t i = 0; i < MANY; ++i) r->released += tide_device_release(r->d, r->blocks[i]) == TIDE_OK;
  return NULL;
}

typedef struct announcer {
  tide_device_cache* d;
  tide_stream side;
  const tide_block* blocks;
} announcer;

static void* announce_all(void* user) {
  const announcer* const a = user;
  for (size_t i = 0; i < MANY; ++i) {
    const tide_status status = tide_device_record(a->d, a->blocks[i], a->side);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_HANDLE);
  }
  return NULL;
}

// A stream is announced while the block is released: either it is waited for, or it comes too late.
TIDE_TEST(test_tcache__an_announcement_and_a_release_at_once_lose_nothing) {
  tide_block blocks[MANY];
  pthread_t threads[2];
  announcer a = { d, side_new(m), blocks };
  rival r = { d, blocks, 0 };
  for (size_t round = 0; round < 5; ++round) {
    for (size_t i = 0; i < MANY; ++i) blocks[i] = take(d, NULL, 512 * (1 + i % 40));
    t_thread_start(&threads[0], announce_all, &a);
    t_thread_start(&threads[1], release_all, &r);
    for (size_t i = 0; i < 2; ++i) t_thread_join(threads[i]);
    stream_finish(m, 0, a.side);
    T_OK(tide_device_poll(d));
    T_EQ(current(d, active), 0);
    device_expect_valid(d);
  }
}

// ---------------------------------------------------------------------------------------------------
// Idle memory of streams

// Two streams in turn hold what fills their homes, and then blocks that need other holes.
static uint64_t reserved_by_two_streams(tide_machine* m, tide_device_cache* d) {
  const tide_stream streams[2] = { side_new(m), side_new(m) };
  for (size_t i = 0; i < 2; ++i) {
    tide_block blocks[4];
    for (size_t k = 0; k < 4; ++k) blocks[k] = take(d, streams[i], 2 * MIB);
    give(d, blocks[0]);
    give(d, blocks[2]);
    (void)take(d, streams[i], 4 * MIB);
  }
  return reserved(d);
}

TIDE_TEST(test_tcache__a_small_program_may_leave_handles_idle_instead_of_stitching) {
  tide_device_options options = device_defaults();
  T_EQ(reserved_by_two_streams(m, d), 16 * MIB);

  options.tide_idle_handles = 4;
  T_OK(tide_device_configure(d, &options));

  T_EQ(reserved_by_two_streams(m, d), 16 * MIB + 24 * MIB);
}
