// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ledger on traces made by hand, one rule per test, and on recordings of PyTorch: it must follow each
// without a fault, end with the segments that the recording lists, and find PyTorch's own peaks.
#include "ledger/recorded.h"
#include "machine/counting_heap.h"

#define BASE ((uint64_t)0x7f0000000000)

// ---------------------------------------------------------------------------------------------------
// What a ledger shows

#define SHOWN 64

typedef struct shown {
  tide_ledger_segment segments[SHOWN];
  tide_ledger_block blocks[SHOWN];
  size_t segment_of[SHOWN];  // of each block
  size_t segment_count;
  size_t block_count;
} shown;

static bool show_segment(void* user, const tide_ledger_segment* segment) {
  shown* const s = user;
  T_LT(s->segment_count, SHOWN);
  s->segments[s->segment_count++] = *segment;
  return true;
}

static bool show_block(void* user, const tide_ledger_block* block) {
  shown* const s = user;
  T_LT(s->block_count, SHOWN);
  s->segment_of[s->block_count] = s->segment_count - 1;
  s->blocks[s->block_count++] = *block;
  return true;
}

static shown show(const tide_ledger* ledger) {
  shown s = { .segment_count = 0 };
  tide_ledger_visit(ledger, show_segment, show_block, &s);
  return s;
}

static void expect_block(const shown* s, size_t index, uint64_t address, uint64_t bytes, uint32_t state) {
  T_LT(index, s->block_count);
  T_EQ(s->blocks[index].address, address);
  T_EQ(s->blocks[index].bytes, bytes);
  T_EQ(s->blocks[index].state, state);
}

static tide_ledger* ledger_of(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  return ledger;
}

static void both_free(tide_ledger* ledger, tide_trace* trace) {
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static void expect_no_faults(const tide_ledger* ledger) {
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_EQ(faults.unknown_frees, 0);
  T_EQ(faults.homeless_allocs, 0);
  T_EQ(faults.overlaps, 0);
  T_EQ(faults.odd_segments, 0);
  T_EQ(faults.differences, 0);
}

// The trace's list: a segment, and then its blocks.
static void trace_list_segment(tide_trace* trace, uint64_t address, uint64_t bytes, uint32_t pool) {
  tide_trace_about about = tide_trace_get_about(trace);
  about.has_segments = true;
  tide_trace_set_about(trace, &about);
  const tide_trace_segment segment = {
    .address = address, .bytes = bytes, .pool = pool, .is_large = bytes > 2 * MIB
  };
  T_OK(tide_trace_add_segment(trace, &segment));
}

static void trace_list_block(tide_trace* trace, uint64_t address, uint64_t bytes, uint64_t requested,
                             tide_block_state state) {
  const tide_trace_block block = {
    .address = address, .bytes = bytes, .requested_bytes = requested, .state = (uint8_t)state
  };
  T_OK(tide_trace_add_block(trace, &block));
}

// ---------------------------------------------------------------------------------------------------
// Blocks

T_TEST(test_ledger__of_nothing_is_empty) {
  tide_trace* const trace = trace_new();

  tide_ledger* const ledger = ledger_of(trace);

  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  T_EQ(totals.at, TIDE_LEDGER_BEFORE);
  T_EQ(totals.reserved_bytes, 0);
  T_CHECK(tide_ledger_get_faults(ledger).is_from_start);
  T_EQ(tide_ledger_get_peaks(ledger).live.at, TIDE_LEDGER_BEFORE);
  T_EQ(show(ledger).block_count, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__counts_what_is_asked_for_and_what_is_given) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 20 * MIB);
  trace_add(trace, TIDE_ACTION_ALLOC, BASE, 19 * MIB + 100);  // a rest of less than 1 MiB stays with it

  tide_ledger* const ledger = ledger_of(trace);

  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  T_EQ(totals.at, 1);
  T_EQ(totals.requested_bytes, 19 * MIB + 100);
  T_EQ(totals.live_bytes, 19 * MIB + 512);
  T_EQ(totals.allocated_bytes, 20 * MIB);
  T_EQ(totals.active_bytes, 20 * MIB);
  T_EQ(totals.reserved_bytes, 20 * MIB);
  T_EQ(totals.live_count, 1);
  T_EQ(totals.segment_count, 1);
  both_free(ledger, trace);
}

T_TEST(test_ledger__cuts_a_large_block_above_a_rest_of_one_mebibyte) {
  tide_trace* const trace = trace_from(BASE, "segment 0:20M alloc 0:19M segment 64M:20M alloc 64M:19M-512");
  tide_ledger* const ledger = ledger_of(trace);

  const shown s = show(ledger);
  T_EQ(s.block_count, 3);
  expect_block(&s, 0, BASE, 20 * MIB, TIDE_BLOCK_ALLOCATED);
  expect_block(&s, 1, BASE + 64 * MIB, 19 * MIB - 512, TIDE_BLOCK_ALLOCATED);
  expect_block(&s, 2, BASE + 83 * MIB - 512, MIB + 512, TIDE_BLOCK_INACTIVE);
  both_free(ledger, trace);
}

T_TEST(test_ledger__cuts_a_small_block_above_any_rest) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:1M 1M:1M-512");
  tide_ledger* const ledger = ledger_of(trace);

  const shown s = show(ledger);
  T_EQ(s.block_count, 3);
  expect_block(&s, 2, BASE + 2 * MIB - 512, 512, TIDE_BLOCK_INACTIVE);
  T_CHECK(!s.segments[0].is_large);
  T_EQ(s.segments[0].active_bytes, 2 * MIB - 512);
  T_EQ(s.segments[0].block_count, 3);
  both_free(ledger, trace);
}

T_TEST(test_ledger__obeys_the_settings_of_the_trace) {
  tide_trace* const trace = trace_new();
  trace_set_options(trace, "max_split_size_mb:64,roundup_power2_divisions:4");
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 80 * MIB);
  trace_add(trace, TIDE_ACTION_ALLOC, BASE, 64 * MIB);  // not cut
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 128 * MIB, 40 * MIB);
  trace_add(trace, TIDE_ACTION_ALLOC, BASE + 128 * MIB, 17 * MIB);  // the next step above 16 MiB is 20 MiB

  tide_ledger* const ledger = ledger_of(trace);

  const shown s = show(ledger);
  T_EQ(s.block_count, 3);
  expect_block(&s, 0, BASE, 80 * MIB, TIDE_BLOCK_ALLOCATED);
  expect_block(&s, 1, BASE + 128 * MIB, 20 * MIB, TIDE_BLOCK_ALLOCATED);
  both_free(ledger, trace);
}

T_TEST(test_ledger__ignores_settings_that_make_no_sense) {
  tide_trace* const trace = trace_new();
  const uint64_t slots[] = { trace_pair(trace, "1", trace_number(7)),
                             trace_pair(trace, "2", trace_number(-8)),
                             trace_pair(trace, "4", trace_number(INT64_MAX)) };
  const tide_value roundup = { .kind = TIDE_VALUE_DICT, .items = slots, .count = 3 };
  const uint64_t items[] = { trace_pair(trace, "roundup_power2_divisions", roundup),
                             trace_pair(trace, "max_split_size", (tide_value){ .kind = TIDE_VALUE_NONE }) };
  trace_set_settings(trace, items, 2);
  trace_add_from(trace, BASE, "segment 0:20M alloc 0:3M+1");

  tide_ledger* const ledger = ledger_of(trace);

  const shown s = show(ledger);
  expect_block(&s, 0, BASE, 3 * MIB + 512, TIDE_BLOCK_ALLOCATED);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_block_waits_from_its_release_to_its_completion) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:1000 free 0:1000");
  tide_ledger* const ledger = ledger_of(trace);

  T_OK(tide_ledger_seek(ledger, 2));

  const tide_ledger_totals waiting = tide_ledger_get_totals(ledger);
  T_EQ(waiting.allocated_bytes, 0);
  T_EQ(waiting.active_bytes, 1024);
  T_EQ(waiting.live_bytes, 1024);
  T_EQ(waiting.requested_bytes, 1000);
  const shown s = show(ledger);
  expect_block(&s, 0, BASE, 1024, TIDE_BLOCK_PENDING);
  T_EQ(s.blocks[0].made_at, 1);

  T_OK(tide_ledger_seek(ledger, 3));
  T_EQ(tide_ledger_get_totals(ledger).live_bytes, 0);
  both_free(ledger, trace);
}

// ---------------------------------------------------------------------------------------------------
// Segments

T_TEST(test_ledger__unmapping_leaves_a_segment_on_either_side) {
  tide_trace* const trace = trace_from(BASE, "map 0:60M alloc 0:2M unmap 20M:20M");
  tide_ledger* const ledger = ledger_of(trace);

  const shown s = show(ledger);
  expect_no_faults(ledger);
  T_EQ(s.segment_count, 2);
  T_EQ(s.segments[0].bytes, 20 * MIB);
  T_EQ(s.segments[1].address, BASE + 40 * MIB);
  expect_block(&s, 1, BASE + 2 * MIB, 18 * MIB, TIDE_BLOCK_INACTIVE);
  expect_block(&s, 2, BASE + 40 * MIB, 20 * MIB, TIDE_BLOCK_INACTIVE);
  T_EQ(tide_ledger_get_totals(ledger).reserved_bytes, 40 * MIB);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.bytes, 60 * MIB);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.at, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__the_list_names_the_pool_of_a_segment_that_lasts) {
  tide_trace* const trace = trace_new();
  uint32_t pool = 0;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 3 }, &pool));
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);  // freed later: of the default pool
  trace_add_from(trace, BASE, "give 0:2M segment 0:2M");
  trace_list_segment(trace, BASE, 2 * MIB, pool);
  trace_list_block(trace, BASE, 2 * MIB, 0, TIDE_BLOCK_INACTIVE);
  tide_ledger* const ledger = ledger_of(trace);
  expect_no_faults(ledger);

  T_OK(tide_ledger_seek(ledger, 0));
  T_EQ(show(ledger).segments[0].pool, 0);
  T_OK(tide_ledger_seek(ledger, 2));
  T_EQ(show(ledger).segments[0].pool, pool);
  both_free(ledger, trace);
}

T_TEST(test_ledger__an_entry_that_names_its_pool_is_believed) {
  tide_trace* const trace = trace_new();
  const tide_trace_entry entry = {
    .address = BASE, .bytes = 2 * MIB, .pool = 5, .action = TIDE_ACTION_SEGMENT_ALLOC
  };
  T_OK(tide_trace_add_entry(trace, &entry));

  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(show(ledger).segments[0].pool, 5);
  both_free(ledger, trace);
}

// ---------------------------------------------------------------------------------------------------
// Recordings that begin in the middle

T_TEST(test_ledger__finds_blocks_that_were_there_before) {
  tide_trace* const trace = trace_new();
  trace_add_free(trace, BASE + KIB, 700);                                 // released, never asked for
  trace_add(trace, TIDE_ACTION_FREE_COMPLETED, BASE + 4 * KIB, 512);      // waits since before
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, BASE + 32 * MIB, 20 * MIB);  // never made
  trace_list_segment(trace, BASE, 2 * MIB, 0);
  trace_list_block(trace, BASE, KIB, 900, TIDE_BLOCK_ALLOCATED);  // still there
  trace_list_block(trace, BASE + KIB, 2 * MIB - KIB, 0, TIDE_BLOCK_INACTIVE);

  tide_ledger* const ledger = ledger_of(trace);

  expect_no_faults(ledger);
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_CHECK(!faults.is_from_start);
  T_EQ(faults.blocks_before, 3);
  T_EQ(faults.bytes_before, 1024 + 1024 + 512);
  T_EQ(faults.segments_before, 2);
  T_OK(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));
  const shown s = show(ledger);
  T_EQ(s.block_count, 6);
  expect_block(&s, 0, BASE, KIB, TIDE_BLOCK_ALLOCATED);
  T_EQ(s.blocks[0].made_at, TIDE_LEDGER_BEFORE);
  T_EQ(s.blocks[0].requested_bytes, 900);
  expect_block(&s, 1, BASE + KIB, KIB, TIDE_BLOCK_ALLOCATED);
  expect_block(&s, 3, BASE + 4 * KIB, 512, TIDE_BLOCK_PENDING);
  expect_block(&s, 5, BASE + 32 * MIB, 20 * MIB, TIDE_BLOCK_INACTIVE);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.at, TIDE_LEDGER_BEFORE);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.bytes, 22 * MIB);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_block_from_before_has_the_rest_that_pytorch_would_not_cut_off) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_ALLOC, BASE + 10 * MIB,
            10 * MIB);  // begins 1 MiB behind the first block's end
  trace_add_from(trace, BASE, "free 10M:10M 0:9M");
  trace_list_segment(trace, BASE, 20 * MIB, 0);
  trace_list_block(trace, BASE, 20 * MIB, 0, TIDE_BLOCK_INACTIVE);
  tide_ledger* const ledger = ledger_of(trace);
  expect_no_faults(ledger);

  T_OK(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));

  const shown s = show(ledger);
  T_EQ(s.block_count, 2);
  expect_block(&s, 0, BASE, 10 * MIB, TIDE_BLOCK_ALLOCATED);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_list_alone_is_what_there_is) {
  tide_trace* const trace = trace_new();
  trace_list_segment(trace, BASE, 2 * MIB, 0);
  trace_list_block(trace, BASE, KIB, 900, TIDE_BLOCK_ALLOCATED);
  trace_list_block(trace, BASE + KIB, 2 * MIB - KIB, 0, TIDE_BLOCK_INACTIVE);

  tide_ledger* const ledger = ledger_of(trace);

  expect_no_faults(ledger);
  T_EQ(tide_ledger_get_totals(ledger).allocated_bytes, KIB);
  T_EQ(tide_ledger_get_peaks(ledger).requested.bytes, 900);
  both_free(ledger, trace);
}

// ---------------------------------------------------------------------------------------------------
// Faults

T_TEST(test_ledger__a_release_that_comes_twice_is_a_fault) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:1K free 0:1K 0:1K");
  tide_ledger* const ledger = ledger_of(trace);

  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_EQ(faults.unknown_frees, 2);
  T_EQ(faults.blocks_before, 0);
  T_CHECK(faults.is_from_start);
  T_EQ(tide_ledger_get_totals(ledger).live_bytes, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__an_allocation_outside_of_segments_has_one_made_up) {
  tide_trace* const trace = trace_from(BASE, "alloc 100:1000 8K:1000 free 100:1000");
  const tide_trace_about about = { .has_segments = true };  // none is left
  tide_trace_set_about(trace, &about);

  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).homeless_allocs, 2);
  T_EQ(tide_ledger_get_faults(ledger).differences, 0);
  T_EQ(tide_ledger_get_peaks(ledger).live.bytes, 2048);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.bytes, 2048);
  const shown s = show(ledger);
  T_EQ(s.segment_count, 1);
  T_EQ(s.segments[0].address, BASE + 8 * KIB);
  both_free(ledger, trace);
}

T_TEST(test_ledger__blocks_of_another_allocator_may_lie_closer) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_ALLOC, BASE + 256, 100);  // without segments
  trace_add_from(trace, BASE, "alloc 0:200 512:256 segment 4M:2M");
  for (uint64_t i = 0; i < 4; i++) trace_add(trace, TIDE_ACTION_ALLOC, BASE + 4 * MIB + 100 * i, 100);

  tide_ledger* const ledger = ledger_of(trace);

  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_EQ(faults.overlaps, 0);
  T_EQ(faults.odd_segments, 0);
  T_EQ(faults.homeless_allocs, 3);
  T_EQ(tide_ledger_get_totals(ledger).live_count, 7);
  T_EQ(tide_ledger_get_totals(ledger).requested_bytes, 556 + 400);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_made_up_segment_gives_way_to_the_next_allocation) {
  tide_trace* const trace = trace_from(BASE, "alloc 0:512 1K:512 0:4K");
  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).overlaps, 1);
  T_EQ(tide_ledger_get_totals(ledger).live_bytes, 4 * KIB);
  T_EQ(tide_ledger_get_totals(ledger).segment_count, 1);
  both_free(ledger, trace);
}

T_TEST(test_ledger__an_allocation_over_another_drops_it) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);
  for (uint64_t i = 0; i < 3; i++) trace_add(trace, TIDE_ACTION_ALLOC, BASE + i * KIB, KIB);
  trace_add(trace, TIDE_ACTION_ALLOC, BASE + 512, 2 * KIB);  // over all three

  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).overlaps, 1);
  const shown s = show(ledger);
  T_EQ(s.block_count, 3);
  expect_block(&s, 0, BASE, 512, TIDE_BLOCK_INACTIVE);
  expect_block(&s, 1, BASE + 512, 2 * KIB, TIDE_BLOCK_ALLOCATED);
  T_EQ(tide_ledger_get_totals(ledger).live_count, 1);
  both_free(ledger, trace);
}

T_TEST(test_ledger__an_allocation_that_reaches_out_of_its_segment_is_cut) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 1M:3M");
  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).homeless_allocs, 1);
  T_EQ(tide_ledger_get_totals(ledger).requested_bytes, MIB);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_segment_over_another_takes_its_place) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:2K segment 0:20M");
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, BASE + MIB, MIB);  // none begins here
  trace_add(trace, TIDE_ACTION_SEGMENT_FREE, BASE, MIB);        // of another size

  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).odd_segments, 3);
  T_OK(tide_ledger_seek(ledger, 2));
  T_EQ(tide_ledger_get_totals(ledger).reserved_bytes, 20 * MIB);
  T_EQ(tide_ledger_get_totals(ledger).live_count, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__a_segment_given_back_with_a_block_in_use_is_a_fault) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:2K give 0:2M");
  tide_ledger* const ledger = ledger_of(trace);

  T_EQ(tide_ledger_get_faults(ledger).odd_segments, 1);
  T_EQ(tide_ledger_get_totals(ledger).live_bytes, 0);
  T_EQ(tide_ledger_get_totals(ledger).reserved_bytes, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__absurd_ranges_are_faults) {
  static const uint64_t ranges[][2] = {
    { UINT64_MAX, 1 },
    { UINT64_MAX - 511, 512 },
    { 4096, UINT64_MAX },
    { 4096, UINT64_MAX - 4000 },
    { 0, UINT64_MAX >> 1 },
    { (uint64_t)1 << 63, 64 },
    { 0, (uint64_t)1 << 62 | 1 },
    { UINT64_MAX, UINT64_MAX },
  };
  static const tide_action actions[] = { TIDE_ACTION_ALLOC,        TIDE_ACTION_SEGMENT_ALLOC,
                                         TIDE_ACTION_SEGMENT_MAP,  TIDE_ACTION_SEGMENT_UNMAP,
                                         TIDE_ACTION_SEGMENT_FREE, TIDE_ACTION_FREE_COMPLETED };
  tide_trace* const trace = trace_new();
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    for (size_t k = 0; k < sizeof actions / sizeof actions[0]; k++) {
      trace_add(trace, actions[k], ranges[i][0], ranges[i][1]);
    }
  }

  tide_ledger* const ledger = ledger_of(trace);

  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_EQ(faults.homeless_allocs, 8);
  T_EQ(faults.odd_segments, 32);
  T_EQ(faults.unknown_frees, 8);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.bytes, 0);
  both_free(ledger, trace);
}

T_TEST(test_ledger__says_where_the_list_differs) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:1K");
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE + 2 * MIB, 2 * MIB);  // not in the list
  trace_list_segment(trace, BASE, 2 * MIB, 0);
  trace_list_block(trace, BASE, 2 * KIB, KIB, TIDE_BLOCK_ALLOCATED);  // larger than the rules give
  trace_list_block(trace, BASE + 2 * KIB, 2 * MIB - 2 * KIB, 0, TIDE_BLOCK_INACTIVE);

  tide_ledger* const ledger = ledger_of(trace);

  // The block; the rest, once at its place and once where the list has it; the segment.
  T_EQ(tide_ledger_get_faults(ledger).differences, 4);
  both_free(ledger, trace);
}

// ---------------------------------------------------------------------------------------------------
// Moving, and what may go wrong

T_TEST(test_ledger__seeks_in_both_directions) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);
  for (uint64_t i = 0; i < 20; i++) trace_add(trace, TIDE_ACTION_ALLOC, BASE + i * KIB, KIB);
  tide_ledger* const ledger = ledger_of(trace);

  for (uint64_t i = 0; i < 60; i++) {
    const uint64_t at = i * 7 % 21;
    T_OK(tide_ledger_seek(ledger, at));
    T_EQ(tide_ledger_get_totals(ledger).at, at);
    T_EQ(tide_ledger_get_totals(ledger).live_count, at);
  }
  T_OK(tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE));
  T_EQ(tide_ledger_get_totals(ledger).reserved_bytes, 0);
  both_free(ledger, trace);
}

static bool stop_at_once(void* user, const tide_ledger_block* block) {
  (void)block;
  *(int*)user += 1;
  return false;
}

T_TEST(test_ledger__a_visit_ends_when_it_is_told) {
  tide_trace* const trace = trace_from(BASE, "segment 0:2M alloc 0:1K");
  tide_ledger* const ledger = ledger_of(trace);
  int calls = 0;

  tide_ledger_visit(ledger, NULL, stop_at_once, &calls);

  T_EQ(calls, 1);
  both_free(ledger, trace);
}

T_TEST(test_ledger__refuses_bad_arguments) {
  tide_trace* const trace = trace_new();
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 2 * MIB);
  tide_ledger* ledger = NULL;

  T_STATUS(tide_ledger_new(NULL, 0, &ledger), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_new(trace, 0, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_seek(NULL, 0), TIDE_ERR_ARGUMENT);
  T_OK(tide_ledger_new(trace, 99, &ledger));
  T_STATUS(tide_ledger_seek(ledger, 0), TIDE_ERR_ARGUMENT);
  tide_ledger_free(ledger);
  ledger = ledger_of(trace);
  T_STATUS(tide_ledger_seek(ledger, 1), TIDE_ERR_ARGUMENT);
  tide_ledger_visit(NULL, NULL, NULL, NULL);
  T_EQ(tide_ledger_get_totals(NULL).at, TIDE_LEDGER_BEFORE);
  T_EQ(tide_ledger_get_peaks(NULL).live.bytes, 0);
  T_EQ(tide_ledger_get_faults(NULL).differences, 0);
  tide_ledger_free(NULL);
  both_free(ledger, trace);
}

// Makes a ledger, goes to the beginning and to the end; any of it may lack memory.
static tide_status ledger_trip(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  tide_status status = tide_ledger_new(trace, 0, &ledger);
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  if (status == TIDE_OK) status = tide_ledger_seek(ledger, TIDE_LEDGER_BEFORE);
  if (status == TIDE_OK) status = tide_ledger_seek(ledger, count - 1);
  tide_ledger_free(ledger);
  return status;
}

T_TEST(test_ledger__survives_the_failure_of_every_allocation) { survives_every_failure(ledger_trip); }

T_TEST(test_ledger__is_whole_again_after_a_seek_without_memory) {
  tide_trace* trace = NULL;
  counting_heap heap;
  counting_heap_init(&heap, SIZE_MAX, false);
  T_OK(tide_trace_new(&heap.heap, &trace));
  trace_list_segment(trace, BASE, 2 * MIB, 0);
  trace_list_block(trace, BASE, KIB, 900, TIDE_BLOCK_ALLOCATED);
  trace_add_from(trace, BASE, "alloc 1K:1K free 1K:1K");
  tide_ledger* const ledger = ledger_of(trace);

  heap.fail_at = heap.allocs;
  T_STATUS(tide_ledger_seek(ledger, 0), TIDE_ERR_NO_MEMORY);
  T_OK(tide_ledger_seek(ledger, 0));

  T_EQ(tide_ledger_get_totals(ledger).live_count, 2);
  both_free(ledger, trace);
}

// ---------------------------------------------------------------------------------------------------
// Recordings of PyTorch

typedef struct known {
  const char* name;
  uint64_t peak_allocated;  // as PyTorch counted; 0: it was not noted
  uint64_t peak_reserved;
} known;

static const known known_small[] = {
  { "after_oom", 0, 727711744 },
  { "events", 0, 425721856 },
  { "expand", 0, 834666496 },
  { "expand_limit", 0, 633339904 },
  { "expand_split", 0, 855638016 },
  { "gc_mix", 0, 1556086784 },
  { "gnn_gc_split", 9229751296, 15695085568 },
  { "gnn_retry", 9229527040, 14115930112 },
  { "graphs", 1494370304, 2334130176 },
  { "limit_edge", 0, 260046848 },
  { "oversize", 0, 1306525696 },
  { "pools", 0, 939524096 },
  { "release_available", 0, 1073741824 },
  { "research", 0, 419430400 },
  { "resnet_stacks", 2480891392, 3527409664 },
  { "roundup", 0, 1625292800 },
};

static const known known_large[] = {
  { "gnn_empty", 9230163968, 11922309120 },           { "gnn_varsize", 9229527040, 27097300992 },
  { "llama_ckpt_varlen", 17167164928, 38002491392 },  { "llama_generate", 3580571136, 4267704320 },
  { "llama_train_fixed", 9807073280, 11060379648 },   { "llama_train_varlen", 17559414272, 28485615616 },
  { "multistream_expand", 5232139264, 6069157888 },   { "multistream_prefetch", 5237382144, 6278873088 },
  { "resnet_infer_varsize", 2480891392, 3527409664 }, { "varlen_expand", 17538442752, 18618515456 },
  { "varlen_oom", 14319730688, 17710448640 },         { "varlen_round", 18342580224, 24542969856 },
  { "varlen_split", 17572075008, 70107791360 },
};

static const char* const large_names[] = { "gnn_empty",
                                           "gnn_varsize",
                                           "llama_ckpt_varlen",
                                           "llama_generate",
                                           "llama_train_fixed",
                                           "llama_train_varlen",
                                           "multistream_expand",
                                           "multistream_prefetch",
                                           "resnet_infer_varsize",
                                           "varlen_expand",
                                           "varlen_oom",
                                           "varlen_round",
                                           "varlen_split",
                                           NULL };

static void expect_known(const tide_ledger* ledger, const known* list, size_t count) {
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(list[i].name, t_variant()) != 0) continue;
    if (list[i].peak_allocated != 0) T_EQ(peaks.allocated.bytes, list[i].peak_allocated);
    T_EQ(peaks.reserved.bytes, list[i].peak_reserved);
    return;
  }
  T_FAIL("%s is not known", t_variant());
}

T_TEST_OVER(test_ledger__follows_a_recording, recorded_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);

  tide_ledger* const ledger = ledger_of(trace);

  expect_no_faults(ledger);
  T_CHECK(tide_ledger_get_faults(ledger).is_from_start);
  expect_known(ledger, known_small, sizeof known_small / sizeof known_small[0]);
  both_free(ledger, trace);
}

T_TEST_OVER(test_ledger__follows_a_large_recording, large_names) {
  tide_trace* const trace = recorded_large_trace(t_variant());

  tide_ledger* const ledger = ledger_of(trace);

  expect_no_faults(ledger);
  expect_known(ledger, known_large, sizeof known_large / sizeof known_large[0]);
  both_free(ledger, trace);
}

// A digest of all segments and active blocks.
static bool digest_segment(void* user, const tide_ledger_segment* segment) {
  uint64_t* const digest = user;
  *digest = (*digest ^ segment->address) * 0x100000001b3u;
  *digest = (*digest ^ segment->bytes ^ segment->stream << 48) * 0x100000001b3u;
  return true;
}

static bool digest_block(void* user, const tide_ledger_block* block) {
  uint64_t* const digest = user;
  if (block->state == TIDE_BLOCK_INACTIVE) return true;
  *digest = (*digest ^ block->address) * 0x100000001b3u;
  *digest = (*digest ^ block->bytes) * 0x100000001b3u;
  *digest = (*digest ^ block->requested_bytes ^ (uint64_t)block->state << 62) * 0x100000001b3u;
  return true;
}

static uint64_t digest_of(const tide_ledger* ledger) {
  uint64_t digest = 0xcbf29ce484222325u;
  tide_ledger_visit(ledger, digest_segment, digest_block, &digest);
  return digest;
}

T_TEST_OVER(test_ledger__finds_what_was_before_a_recording, recorded_names) {
  tide_trace* const whole = recorded_trace(t_variant(), 0, NULL);
  tide_ledger* const full = ledger_of(whole);
  size_t count = 0;
  (void)tide_trace_entries(whole, 0, &count);

  for (size_t skip = count / 7; skip < count; skip += count / 7 + 1) {
    tide_trace* const trace = recorded_trace(t_variant(), skip, NULL);
    tide_ledger* const ledger = ledger_of(trace);
    expect_no_faults(ledger);
    for (size_t at = skip; at < count; at += 1 + (count - skip) / 5) {
      T_OK(tide_ledger_seek(full, at));
      T_OK(tide_ledger_seek(ledger, at - skip));
      T_EQ(digest_of(ledger), digest_of(full));
    }
    both_free(ledger, trace);
  }
  both_free(full, whole);
}
