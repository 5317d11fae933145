// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Behaviour that PyTorch added after 2.11, each an option that is off by default: ties by the age of
// segments, early rejection, captures by stream, and smaller reserves of addresses.
#define T_THREADS
#include "device/devices.h"

#define BYTES (64 * KIB)

// ---------------------------------------------------------------------------------------------------
// Ties by age

// Where the next segments will be: one GiB apart from each other, in the order of these numbers.
static void dictate(tide_machine* m, tide_call call, const uint8_t* order, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    void* const address = (void*)(uintptr_t)(((uint64_t)1 << 44) + order[i] * (uint64_t)GIB);
    T_OK(tide_dry_dictate(m, 0, call, address));
  }
}

// Makes two idle segments of equal size, the second below the first, and asks for one of them.
static bool takes_the_older(tide_machine* m, const char* text, size_t bytes) {
  static const uint8_t falling[] = { 2, 1 };
  tide_device_cache* const d = device_with(m, text);
  dictate(m, TIDE_CALL_RAW_ALLOC, falling, 2);
  const tide_block older = take(d, NULL, bytes);
  const tide_block younger = take(d, NULL, bytes);
  T_CHECK((uintptr_t)younger.address < (uintptr_t)older.address);
  give(d, younger);
  give(d, older);

  const tide_block again = take(d, NULL, bytes);

  T_CHECK(again.address == older.address || again.address == younger.address);
  device_expect_valid(d);
  tide_device_free(d);
  return again.address == older.address;
}

DRY_TEST(test_device__of_equal_blocks_the_older_segment_wins_by_age_and_the_lower_without) {
  T_CHECK(takes_the_older(m, "ties_by_age:on", 12 * MIB));
  T_CHECK(!takes_the_older(m, "", 12 * MIB));
}

// Small segments hold two blocks of 1 MiB: idle ones are whole, of 2 MiB; a busy half leaves 1 MiB.
DRY_TEST(test_device__of_equal_small_blocks_the_older_segment_wins_by_age) {
  static const uint8_t falling[] = { 2, 1 };
  tide_device_cache* const d = device_with(m, "ties_by_age:on");
  tide_block blocks[4];
  dictate(m, TIDE_CALL_RAW_ALLOC, falling, 2);
  for (size_t i = 0; i < 4; ++i) blocks[i] = take(d, NULL, MIB);
  give(d, blocks[3]);
  give(d, blocks[1]);

  T_PTR_EQ(take(d, NULL, MIB).address, blocks[1].address);
  T_PTR_EQ(take(d, NULL, MIB).address, blocks[3].address);

  tide_device_free(d);
}

#define SEGMENTS 64
#define LIVE 24
#define STEPS 400

// Where a block is, whatever the addresses: the number of its segment and the offset there.
typedef struct place {
  uint64_t ordinal;
  uint64_t offset;
} place;

static place place_of(tide_device_cache* d, tide_block block) {
  const seen s = look(d);
  const tide_segment_info* const segment = seen_around(&s, block.address);
  T_CHECK(segment != NULL);
  return (place){ segment->ordinal, (uint64_t)(uintptr_t)block.address - segment->address };
}

// The same random requests and releases for every order of addresses.
static void play(tide_machine* m, const char* text, tide_call call, const uint8_t* order, place* out) {
  static const size_t sizes[] = { 512, 300 * KIB, MIB, MIB + MIB / 2, 5 * MIB, 12 * MIB };
  tide_device_cache* const d = device_with(m, text);
  tide_block live[LIVE] = { { NULL, 0 } };
  t_rng rng = t_rng_new(7);
  dictate(m, call, order, SEGMENTS);
  for (size_t i = 0; i < STEPS; ++i) {
    if (t_rng_below(&rng, 20) == 0) trim(d);
    tide_block* const block = &live[t_rng_below(&rng, LIVE)];
    const size_t bytes = sizes[t_rng_below(&rng, 6)];
    out[i] = (place){ UINT64_MAX, 0 };
    if (block->address != NULL) {
      give(d, *block);
      block->address = NULL;
    } else if (tide_device_alloc(d, NULL, bytes, block) == TIDE_OK) {
      out[i] = place_of(d, *block);
    }
  }
  device_expect_valid(d);
  tide_device_free(d);
}

// Up, down, and mixed. Behind the last of them the machine chooses.
static void order_make(size_t kind, uint8_t* order) {
  t_rng rng = t_rng_new(8);
  for (size_t i = 0; i < SEGMENTS; ++i) order[i] = (uint8_t)(kind == 1 ? SEGMENTS - i : i + 1);
  for (size_t i = SEGMENTS; kind == 2 && i > 1; --i) {
    const size_t k = t_rng_below(&rng, i);
    const uint8_t last = order[i - 1];
    order[i - 1] = order[k];
    order[k] = last;
  }
}

static size_t count_differences(const char* text, tide_call call) {
  static place places[3][STEPS];
  size_t differences = 0;
  for (size_t k = 0; k < 3; ++k) {
    // A machine of its own: dictated addresses that were not used would stay for the next.
    tide_machine* const own = machine_open("dry", NULL);
    uint8_t order[SEGMENTS];
    order_make(k, order);
    play(own, text, call, order, places[k]);
    tide_machine_free(own);
    for (size_t i = 0; i < STEPS; ++i) {
      differences += places[k][i].ordinal != places[0][i].ordinal ||
                     places[k][i].offset != places[0][i].offset;
    }
  }
  return differences;
}

T_TEST(test_device__by_age_no_decision_depends_on_addresses) {
  T_EQ(count_differences("ties_by_age:on", TIDE_CALL_RAW_ALLOC), 0);
  T_LT(0, count_differences("", TIDE_CALL_RAW_ALLOC));  // as the test would see
}

// A reserve of 60 MiB, three large handles, so that there are many expandable segments.
T_TEST(test_device__by_age_no_decision_depends_on_addresses_of_expandable_segments) {
  const char* const text = "ties_by_age:on,expandable_segments:True,expandable_segments_reserve:0.234375";
  T_EQ(count_differences(text, TIDE_CALL_ADDRESS_RESERVE), 0);
}

// Two expandable segments with room for 40 MiB each behind their first 20: the older grows.
DRY_TEST(test_device__by_age_the_older_expandable_segment_grows) {
  static const uint8_t falling[] = { 2, 1 };
  tide_device_cache* const d =
      device_with(m, "ties_by_age:on,expandable_segments:True,expandable_segments_reserve:0.234375");
  tide_block backs[2];
  dictate(m, TIDE_CALL_ADDRESS_RESERVE, falling, 2);
  for (size_t i = 0; i < 2; ++i) {
    (void)take(d, NULL, 20 * MIB);
    backs[i] = take(d, NULL, 40 * MIB);
  }
  T_CHECK((uintptr_t)backs[1].address < (uintptr_t)backs[0].address);
  give(d, backs[0]);
  give(d, backs[1]);
  trim(d);

  T_PTR_EQ(take(d, NULL, 40 * MIB).address, backs[0].address);

  tide_device_free(d);
}

DEVICE_TEST(test_device__ties_are_fixed_when_the_allocator_is_made) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  configure(d, "ties_by_age:on");

  tide_device_get_options(d, &options);

  T_CHECK(!options.ties_by_age);
}

// ---------------------------------------------------------------------------------------------------
// Early rejection

typedef struct oom_note {
  int calls;
  bool is_rejected;
} oom_note;

static void note_oom(void* user, const tide_oom* oom) {
  oom_note* const note = user;
  note->calls++;
  note->is_rejected = oom->is_rejected;
}

// 20 MiB are idle, and could be given back for a request that does not fit into half of the device.
static void expect_rejection(tide_machine* m, const char* text, bool is_early) {
  tide_device_cache* const d = device_with(m, text);
  const size_t half = (size_t)device_info(m, 0).total_bytes / 2;
  oom_note note = { 0, false };
  history_on(d);
  observe_oom(d, note_oom, &note);
  give(d, take(d, NULL, 20 * MIB));

  expect_oom(d, NULL, half + (is_early ? 0 : 2 * MIB));

  const story s = read_story(d);
  T_EQ(current(d, reserved_bytes), is_early ? 20 * MIB : 0);
  T_EQ(counter(d, num_oom_rejections), is_early);
  T_EQ(counter(d, num_ooms), !is_early);
  T_EQ(counter(d, num_alloc_retries), !is_early);
  T_EQ(story_times(&s, TIDE_ACTION_OOM), !is_early);
  T_EQ(note.calls, 1);
  T_EQ(note.is_rejected, is_early);
  T_EQ(tide_device_last_oom()->is_rejected, is_early);
  (void)take(d, NULL, 12 * MIB);  // what is cached is not rejected
  tide_device_free(d);
}

MACHINE_TEST(test_device__early_rejection_gives_nothing_back) {
  expect_rejection(m, "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True", true);
  expect_rejection(m, "per_process_memory_fraction:0.5", false);
}

// A limit set by hand is another matter: there the ladder is climbed.
DEVICE_TEST(test_device__early_rejection_minds_the_fraction_and_not_the_limit) {
  configure(d, "throw_on_cudamalloc_oom:True");
  limit_to(d, 20 * MIB);
  give(d, take(d, NULL, 20 * MIB));

  (void)take(d, NULL, 12 * MIB);
  expect_oom(d, NULL, 30 * MIB);

  T_EQ(counter(d, num_oom_rejections), 0);
  T_EQ(counter(d, num_ooms), 1);
}

// ---------------------------------------------------------------------------------------------------
// Captures by stream

// A block that waits for work that is done, beside others that are active.
static void leave_waiting(tide_machine* m, tide_device_cache* d, int64_t others) {
  const tide_stream side = side_new(m);
  const tide_block block = take(d, NULL, BYTES);
  give_announced(d, block, side);
  stream_finish(m, 0, side);
  T_EQ(current(d, active), 1 + others);
}

DEVICE_TEST(test_device__by_stream_a_plain_scope_polls_and_gives_memory_back) {
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "captures_by_stream:on");
  limit_to(d, 40 * MIB);
  give(d, take(d, NULL, 30 * MIB));
  const tide_block block = take(d, NULL, BYTES);
  announce(d, block, side);
  leave_waiting(m, d, 1);

  scope_open(d, pool);
  (void)take(d, NULL, 512);
  T_EQ(current(d, active), 2);  // the new one and the announced one
  give(d, block);
  stream_finish(m, 0, side);
  expect_polled(d, 1);
  (void)take(d, NULL, 36 * MIB);
  scope_close(d, pool);

  T_EQ(pool_reserved(d, pool), 38 * MIB);
  T_EQ(counter(d, num_alloc_retries), 1);
}

DEVICE_TEST(test_device__by_stream_a_capture_neither_polls_nor_gives_back) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "captures_by_stream:on,max_split_size_mb:20");
  limit_to(d, 42 * MIB);
  give(d, take(d, NULL, 30 * MIB));
  leave_waiting(m, d, 0);

  capture_open(m, d, stream, pool);
  expect_oom(d, stream, 40 * MIB);
  T_EQ(current(d, active), 1);
  T_EQ(current(d, reserved_bytes), 32 * MIB);
  give(d, take(d, stream, 10 * MIB));
  expect_oom(d, stream, 40 * MIB);  // nor by targeted release, which would break the capture
  (void)capture_close(m, d, stream, pool);

  T_EQ(pool_reserved(d, pool), 10 * MIB);
}

DEVICE_TEST(test_device__by_stream_polling_during_a_capture_does_not_break_it) {
  const tide_stream stream = side_new(m);
  const tide_stream other = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "captures_by_stream:on");
  give(d, take(d, other, 512));
  for (int polls = 0; polls < 2; ++polls) {
    leave_waiting(m, d, 0);
    capture_open(m, d, stream, pool);
    if (polls) T_OK(tide_device_poll(d));
    else give(d, take(d, other, 512));  // which polls by itself
    T_EQ(current(d, active), 0);
    (void)capture_close(m, d, stream, pool);
  }
}

DEVICE_TEST(test_device__by_stream_a_release_in_a_capture_waits_for_its_end) {
  const tide_stream stream = side_new(m);
  const tide_stream side = side_new(m);
  const tide_pool pool = pool_new(d, NULL);
  configure(d, "captures_by_stream:on");
  capture_open(m, d, stream, pool);
  const tide_block block = take(d, stream, BYTES);
  announce(d, block, side);
  const uint64_t events = tide_machine_call_stats(m, TIDE_CALL_EVENT_RECORD).calls;

  give(d, block);
  T_EQ(tide_machine_call_stats(m, TIDE_CALL_EVENT_RECORD).calls, events);
  (void)capture_close(m, d, stream, pool);
  T_EQ(current(d, active), 1);

  expect_polled(d, 0);
}

// ---------------------------------------------------------------------------------------------------
// Reserves of addresses

// Three requests that do not fit into one reserve of `reserve` bytes together, and one that does not alone.
static void expect_reserves(tide_device_cache* d, size_t reserve) {
  tide_block blocks[3];
  for (size_t i = 0; i < 3; ++i) blocks[i] = take(d, NULL, reserve / 8 * 5);
  const seen s = look(d);
  T_EQ(s.segment_count, 3);
  for (size_t i = 0; i < 3; ++i) T_CHECK(s.segments[i].is_expandable);
  for (size_t i = 0; i < 3; ++i) give(d, blocks[i]);

  expect_oom(d, NULL, reserve + 20 * MIB);

  T_EQ(counter(d, num_ooms), 1);
  T_EQ(counter(d, num_alloc_retries), 1);  // the normal path to its end
  T_EQ(tide_device_last_oom()->requested_bytes, reserve + 20 * MIB);
  (void)take(d, NULL, reserve / 8 * 5);
}

DRY_TEST(test_device__a_reserve_can_be_a_share_of_the_device) {
  tide_device_cache* const d = device_with(m, "expandable_segments:True,expandable_segments_reserve:0.3125");
  expect_reserves(d, 80 * MIB);
  device_expect_valid(d);
  tide_device_free(d);
}

T_TEST(test_device__a_reserve_can_be_a_number_of_bytes) {
  tide_machine* const m = dry_of(16 * GIB);
  tide_device_cache* const d = device_with(m, "expandable_segments:True,expandable_segments_reserve:5G");
  expect_reserves(d, 5 * GIB);
  device_expect_valid(d);
  tide_device_free(d);
  tide_machine_free(m);
}

DEVICE_TEST(test_device__a_reserve_above_the_device_is_the_usual_one) {
  expand(m, d);
  configure(d, "expandable_segments:True,expandable_segments_reserve:1000");
  const uint64_t usual = device_info(m, 0).total_bytes / 8 * 9;
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_ADDRESS_RESERVE;
  fault.byte_budget = usual + 40 * MIB;
  T_OK(tide_machine_fault_add(m, &fault));

  (void)take(d, NULL, 12 * MIB);
}
