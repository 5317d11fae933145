// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the pinned-host cache counts and shows: statistics with peaks and durations, segments and blocks, the
// history, snapshots, and what the machine refused at the end.
#define T_THREADS
#include "pinned/pinneds.h"

// ---------------------------------------------------------------------------------------------------
// Statistics

PINNED_TEST(test_pinned_stats__follow_the_life_of_blocks) {
  const tide_stream stream = side_new(m);
  const int64_t b = (int64_t)SINGLE;
  gate g;
  const tide_block first = take(p, SINGLE);
  const tide_block second = take(p, 2 * SINGLE);
  hold_up(&g, m, stream);
  announce(p, first, stream);
  give(p, first);
  give(p, second);

  const tide_pinned_stats waiting = stats_of(p);
  expect_stat(waiting, allocations, 2, 2, 2, 0);
  expect_stat(waiting, allocated_bytes, 3 * b, 3 * b, 3 * b, 0);
  expect_stat(waiting, active_requests, 1, 2, 2, 1);
  expect_stat(waiting, active_bytes, b, 3 * b, 3 * b, 2 * b);
  expect_stat(waiting, waiting, 1, 1, 1, 0);
  expect_stat(waiting, waiting_bytes, b, b, b, 0);
  expect_stat(waiting, segments, 2, 2, 2, 0);
  expect_stat(waiting, reserved_bytes, 3 * b, 3 * b, 3 * b, 0);

  let_go(&g);
  empty(p);
  const tide_pinned_stats end = stats_of(p);
  expect_stat(end, allocations, 0, 2, 2, 2);
  expect_stat(end, allocated_bytes, 0, 3 * b, 3 * b, 3 * b);
  expect_stat(end, active_requests, 0, 2, 2, 2);
  expect_stat(end, active_bytes, 0, 3 * b, 3 * b, 3 * b);
  expect_stat(end, waiting, 0, 1, 1, 1);
  expect_stat(end, waiting_bytes, 0, b, b, b);
  expect_stat(end, segments, 0, 2, 2, 2);
  expect_stat(end, reserved_bytes, 0, 3 * b, 3 * b, 3 * b);
}

PINNED_TEST(test_pinned_stats__count_calls) {
  (void)m;
  const tide_block first = take(p, SINGLE);
  give(p, first);
  give(p, take(p, SINGLE));
  give(p, take(p, 2 * SINGLE));
  empty(p);

  const tide_pinned_stats stats = stats_of(p);

  T_EQ(stats.num_host_alloc, 2);
  T_EQ(stats.num_host_free, 2);
  T_EQ(stats.num_misses, 2);
  T_EQ(stats.num_alloc_retries, 0);
  T_EQ(stats.num_ooms, 0);
  T_EQ(stats.host_alloc_time.count, 2);
  T_EQ(stats.host_free_time.count, 2);
}

static uint64_t time_of(const tide_machine* m, tide_call call, tide_call other) {
  return tide_machine_call_stats(m, call).ns + tide_machine_call_stats(m, other).ns;
}

// Only the cost of calls advances the clock of the dry machine.
PINNED_TEST_OVER(test_pinned_stats__durations_are_those_of_the_calls, machine_dry) {
  const uint64_t before[2] = { time_of(m, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_REGISTER),
                               time_of(m, TIDE_CALL_PINNED_RELEASE, TIDE_CALL_PINNED_UNREGISTER) };
  give(p, take(p, SINGLE));
  const uint64_t short_ns = time_of(m, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_REGISTER) - before[0];
  give(p, take(p, 8 * MIB));
  const uint64_t total_ns = time_of(m, TIDE_CALL_PINNED_ALLOC, TIDE_CALL_PINNED_REGISTER) - before[0];
  empty(p);
  const uint64_t free_ns = time_of(m, TIDE_CALL_PINNED_RELEASE, TIDE_CALL_PINNED_UNREGISTER) - before[1];

  const tide_pinned_stats stats = stats_of(p);

  T_EQ(stats.host_alloc_time.total_ns, total_ns);
  T_EQ(stats.host_alloc_time.min_ns, short_ns);
  T_EQ(stats.host_alloc_time.max_ns, total_ns - short_ns);
  T_EQ(stats.host_alloc_time.count, 2);
  T_EQ(stats.host_free_time.total_ns, free_ns);
  T_EQ(stats.host_free_time.count, 2);
}

PINNED_TEST_WITH(test_pinned_stats__durations_of_registered_memory_count_too, machine_names, with_register) {
  (void)m;
  give(p, take(p, 1 * MIB));
  empty(p);

  const tide_pinned_stats stats = stats_of(p);

  T_EQ(stats.host_alloc_time.count, 1);
  T_EQ(stats.host_free_time.count, 1);
  T_LT(0, stats.host_alloc_time.total_ns);
  T_EQ(stats.host_alloc_time.max_ns, stats.host_alloc_time.total_ns);
  T_EQ(stats.host_alloc_time.min_ns, stats.host_alloc_time.total_ns);
}

PINNED_TEST(test_pinned_stats__sums_can_be_reset) {
  (void)m;
  const int64_t b = (int64_t)SINGLE;
  const tide_block block = take(p, SINGLE);
  give(p, take(p, SINGLE));

  tide_pinned_reset_accumulated(p);

  const tide_pinned_stats stats = stats_of(p);
  expect_stat(stats, allocations, 2, 2, 0, 0);
  expect_stat(stats, active_requests, 1, 2, 0, 0);
  expect_stat(stats, active_bytes, b, 2 * b, 0, 0);
  T_EQ(stats.num_host_alloc, 0);
  T_EQ(stats.num_misses, 0);
  T_EQ(stats.host_alloc_time.total_ns, 0);
  T_EQ(stats.host_alloc_time.count, 0);
  T_LT(0, stats.host_alloc_time.max_ns);
  give(p, block);
  expect_stat(stats_of(p), active_requests, 0, 2, 0, 1);
}

PINNED_TEST(test_pinned_stats__peaks_can_be_reset) {
  (void)m;
  const tide_block block = take(p, SINGLE);
  give(p, take(p, 3 * SINGLE));

  tide_pinned_reset_peaks(p);

  const tide_pinned_stats stats = stats_of(p);
  T_EQ(stats.active_bytes.peak, SINGLE);
  T_EQ(stats.active_requests.peak, 1);
  T_EQ(stats.allocated_bytes.peak, 4 * SINGLE);
  T_EQ(stats.host_alloc_time.max_ns, 0);
  T_EQ(stats.host_alloc_time.min_ns, 0);
  T_EQ(stats.host_alloc_time.count, 2);
  give(p, block);
  empty(p);
  tide_pinned_reset_peaks(p);
  T_EQ(stats_of(p).allocated_bytes.peak, 0);
}

// The peak of one thread is exact however many calls are counted in groups.
PINNED_TEST_OVER(test_pinned_stats__a_peak_is_exact, machine_emulated) {
  enum { COUNT = 300 };
  static tide_block blocks[COUNT];
  (void)m;
  for (size_t i = 0; i < COUNT; ++i) blocks[i] = take(p, 512);
  for (size_t i = 0; i < COUNT; ++i) give(p, blocks[i]);
  for (size_t i = 0; i < COUNT / 2; ++i) blocks[i] = take(p, 512);

  const tide_pinned_stats stats = stats_of(p);

  T_EQ(stats.active_requests.peak, COUNT);
  T_EQ(stats.active_bytes.peak, 512 * COUNT);
  T_EQ(stats.active_requests.current, COUNT / 2);
  T_EQ(stats.active_requests.allocated, COUNT + COUNT / 2);
}

// ---------------------------------------------------------------------------------------------------
// Looking inside

PINNED_TEST(test_pinned_stats__a_visit_shows_every_block_once) {
  const tide_stream stream = side_new(m);
  const tide_pool pool = pool_new(p);
  gate g;
  const tide_block handed = take(p, SINGLE - 100);
  const tide_block small = take(p, 700);
  const tide_block waits = take(p, SINGLE);
  const tide_block idle = take(p, SINGLE);
  const tide_block pooled = take_in(p, pool, SINGLE);
  hold_up(&g, m, stream);
  announce(p, waits, stream);
  give(p, waits);
  give(p, idle);

  const seen* const s = look(p);

  T_EQ(seen_at(s, handed.address)->state, TIDE_BLOCK_ALLOCATED);
  T_EQ(seen_at(s, handed.address)->bytes, SINGLE);
  T_EQ(seen_at(s, handed.address)->requested_bytes, SINGLE - 100);
  T_EQ(seen_at(s, small.address)->bytes, 1024);
  T_EQ(seen_at(s, waits.address)->state, TIDE_BLOCK_PENDING);
  T_EQ(seen_at(s, idle.address)->state, TIDE_BLOCK_INACTIVE);
  T_EQ(seen_at(s, pooled.address)->state, TIDE_BLOCK_ALLOCATED);
  T_EQ(s->segment_count, current(p, segments));
  T_EQ(s->block_count, current(p, allocations));
  let_go(&g);
}

// The blocks of a segment have equal sizes, are adjacent, and lie inside the segment.
static void expect_tiled(const seen* s, size_t segment) {
  const tide_segment_info* const info = &s->segments[segment];
  const size_t first = s->first_block[segment];
  const size_t end = segment + 1 < s->segment_count ? s->first_block[segment + 1] : s->block_count;
  T_LT(first, end);
  T_EQ(info->is_large, end - first == 1);
  T_EQ(info->device, -1);
  T_PTR_EQ(info->stream, NULL);
  uint64_t allocated = 0;
  for (size_t i = first; i < end; ++i) {
    T_EQ(s->blocks[i].bytes, s->blocks[first].bytes);
    T_EQ(s->blocks[i].address, info->address + (i - first) * s->blocks[first].bytes);
    if (s->blocks[i].state == TIDE_BLOCK_ALLOCATED) allocated += s->blocks[i].bytes;
  }
  T_LE((end - first) * s->blocks[first].bytes, info->bytes);
  T_EQ(info->allocated_bytes, allocated);
}

PINNED_TEST_OVER(test_pinned_stats__segments_are_tiled_with_blocks, machine_emulated) {
  t_rng rng = t_rng_new(6);
  (void)m;
  for (size_t i = 0; i < 150; ++i) {
    const tide_block block = take(p, 1 + t_rng_below(&rng, (size_t)1 << (9 + i % 9)));
    if (i % 3 == 0) give(p, block);
  }

  const seen* const s = look(p);

  uint64_t bytes = 0;
  for (size_t i = 0; i < s->segment_count; ++i) {
    expect_tiled(s, i);
    if (i > 0) T_LT(s->segments[i - 1].address, s->segments[i].address);
    bytes += s->segments[i].bytes;
  }
  T_EQ(bytes, current(p, reserved_bytes));
}

// ---------------------------------------------------------------------------------------------------
// History

#define STORY_ENTRIES 512

typedef struct story {
  size_t count;
  tide_trace_entry entries[STORY_ENTRIES];
} story;

static bool story_add(void* user, const tide_trace_entry* entries, size_t count) {
  story* const s = user;
  T_LE(s->count + count, STORY_ENTRIES);
  memcpy(&s->entries[s->count], entries, count * sizeof *entries);
  s->count += count;
  return true;
}

static void read_story(tide_pinned_cache* p, story* out) {
  memset(out, 0, sizeof *out);
  T_OK(tide_pinned_history_visit(p, story_add, out));
}

static void history_on(tide_pinned_cache* p, uint64_t max_entries) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = max_entries;
  T_OK(tide_pinned_history(p, &options));
}

PINNED_TEST(test_pinned_stats__history_tells_the_life_of_a_block) {
  static const uint8_t wanted[] = { TIDE_ACTION_SEGMENT_ALLOC, TIDE_ACTION_ALLOC, TIDE_ACTION_FREE_REQUESTED,
                                    TIDE_ACTION_FREE_COMPLETED, TIDE_ACTION_SEGMENT_FREE };
  story s;
  (void)m;
  history_on(p, 100);

  const tide_block block = take(p, SINGLE - 5);
  give(p, block);
  empty(p);

  read_story(p, &s);
  T_EQ(s.count, 5);
  for (size_t i = 0; i < 5; ++i) {
    const tide_trace_entry* const e = &s.entries[i];
    T_EQ(e->action, wanted[i]);
    T_EQ(e->address, (uintptr_t)block.address);
    T_EQ(e->bytes, i == 0 || i == 4 ? SINGLE : SINGLE - 5);
    T_EQ(e->device, 0);
    T_EQ(e->pool, 0);
    if (i > 0) T_LE(s.entries[i - 1].time_ns, e->time_ns);
  }
}

PINNED_TEST(test_pinned_stats__history_shows_when_a_block_is_reusable) {
  const tide_stream stream = side_new(m);
  gate g;
  story s;
  history_on(p, 100);
  tide_block block = block_none;
  T_OK(tide_pinned_alloc_on(p, 0, stream, SINGLE, &block));
  hold_up(&g, m, stream);
  announce(p, block, stream);
  give(p, block);
  poll_all(p);
  read_story(p, &s);
  T_EQ(s.count, 3);
  T_EQ(s.entries[2].action, TIDE_ACTION_FREE_REQUESTED);
  T_EQ(s.entries[1].stream, (uintptr_t)stream);

  let_go(&g);
  poll_all(p);

  read_story(p, &s);
  T_EQ(s.count, 4);
  T_EQ(s.entries[3].action, TIDE_ACTION_FREE_COMPLETED);
  T_EQ(s.entries[3].address, (uintptr_t)block.address);
}

PINNED_TEST_OVER(test_pinned_stats__history_tells_of_failures_and_visits, machine_emulated) {
  story s;
  history_on(p, 100);
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);
  expect_oom(p, SINGLE);
  tide_machine_fault_clear(m);
  (void)look(p);

  read_story(p, &s);

  T_EQ(s.count, 2);
  T_EQ(s.entries[0].action, TIDE_ACTION_OOM);
  T_EQ(s.entries[0].address, 0);
  T_EQ(s.entries[0].bytes, SINGLE);
  T_EQ(s.entries[1].action, TIDE_ACTION_SNAPSHOT);
}

static size_t gather_two(void* user, uint64_t* frames, size_t capacity) {
  T_LT(1, capacity);
  frames[0] = *(const uint64_t*)user;
  frames[1] = 99;
  return 2;
}

PINNED_TEST(test_pinned_stats__history_has_stacks) {
  uint64_t where = 7;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  story s;
  size_t count = 0;
  (void)m;
  options.level = TIDE_HISTORY_ALL;
  options.gather = gather_two;
  options.user = &where;
  T_OK(tide_pinned_history(p, &options));
  const tide_block block = take(p, SINGLE);
  where = 8;
  give(p, block);

  read_story(p, &s);

  const tide_intern* const names = tide_pinned_names(p);
  T_EQ(s.count, 4);
  T_EQ(tide_intern_stack(names, s.entries[1].stack, &count)[0], 7);
  T_EQ(count, 2);
  T_EQ(tide_intern_stack(names, s.entries[2].stack, &count)[0], 8);
  const tide_history_options off = { .size = sizeof off, .max_entries = 1 };
  T_OK(tide_pinned_history(p, &off));
}

// ---------------------------------------------------------------------------------------------------
// Snapshots

PINNED_TEST(test_pinned_stats__a_snapshot_has_history_and_segments) {
  tide_trace* trace = NULL;
  size_t count = 0;
  (void)m;
  T_OK(tide_trace_new(NULL, &trace));
  history_on(p, 100);
  const tide_block block = take(p, SINGLE);
  give(p, take(p, 512));

  T_OK(tide_pinned_snapshot(p, NULL, 3, trace));

  T_EQ(tide_trace_device_count(trace), 4);
  const tide_trace_entry* const entries = tide_trace_entries(trace, 3, &count);
  T_LE(6, count);
  T_EQ(entries[1].action, TIDE_ACTION_ALLOC);
  T_EQ(entries[1].address, (uintptr_t)block.address);
  T_EQ(entries[1].device, 3);
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  T_EQ(count, 2);
  for (size_t i = 0; i < count; ++i) T_EQ(segments[i].device, 3);
  (void)tide_trace_blocks(trace, &count);
  T_EQ(count, current(p, allocations));
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// The end

EMULATED_TEST(test_pinned_stats__pieces_that_are_refused_twice_are_told) {
  for (uint64_t refusals = 1; refusals <= 2; ++refusals) {
    tide_pinned_cache* const p = pinned_open(m, NULL);
    tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
    give(p, take(p, SINGLE));
    break_calls(m, TIDE_CALL_PINNED_RELEASE, TIDE_ERR_MACHINE, refusals == 1 ? 1 : UINT64_MAX);

    tide_pinned_free(p, &leaks);

    tide_machine_fault_clear(m);
    T_EQ(leaks.refused_pieces, refusals - 1);
    T_EQ(leaks.refused_bytes, (refusals - 1) * SINGLE);
  }
}

// Freeing the cache waits for the streams of waiting blocks, so a late copy reads the right bytes.
MACHINE_TEST(test_pinned_stats__the_end_waits_for_streams) {
  tide_pinned_cache* const p = pinned_open(m, NULL);
  const tide_stream stream = side_new(m);
  uint8_t* const device = raw_new(m, 0, SINGLE);
  const tide_block block = take(p, SINGLE);
  paint(m, block, 0x2b, SINGLE);
  if (is_dry(m)) T_OK(tide_dry_work(m, 0, stream, 1000000));
  else T_OK(tide_machine_call(m, 0, stream, call_slow, NULL));
  T_OK(tide_pinned_copy(p, block, 0, stream, device, block.address, SINGLE));
  give(p, block);

  tide_pinned_free(p, NULL);

  stream_finish(m, 0, stream);
  expect_filled(m, 0, device, 0x2b, SINGLE);
}
