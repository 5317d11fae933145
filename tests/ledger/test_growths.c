// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Why memory was reserved: one recording for each cause, whose answer follows from how it was made; and for
// every recording, that the growths add up to what is reserved.
#include "ledger/recorded.h"

typedef struct explained {
  tide_growth growths[64];
  size_t count;
  uint64_t bytes;
} explained;

static bool keep_growth(void* user, const tide_growth* growth) {
  explained* const e = user;
  if (e->count < 64) e->growths[e->count] = *growth;
  e->count++;
  e->bytes += growth->bytes;
  return true;
}

static explained explain(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  explained e = { .count = 0 };
  T_OK(tide_ledger_new(trace, 0, &ledger));
  const tide_ledger_peak peak = tide_ledger_get_peaks(ledger).reserved;
  T_OK(tide_ledger_explain(ledger, peak.at, keep_growth, &e));
  T_EQ(e.bytes, peak.bytes);
  T_EQ(tide_ledger_get_totals(ledger).at, peak.at);
  tide_ledger_free(ledger);
  return e;
}

// Explains a recording by hand, and returns its youngest growth.
static tide_growth explain_last(tide_trace* trace) {
  const explained e = explain(trace);
  tide_trace_free(trace);
  T_LT(0, e.count);
  return e.growths[e.count - 1];
}

#define GROWTH_BASE ((uint64_t)1 << 40)
static tide_trace* made(const char* text) {
  tide_trace* const trace = trace_new();
  trace_add_from(trace, GROWTH_BASE, text);
  return trace;
}

T_TEST(test_growths__too_little_was_free) {
  const tide_growth g = explain_last(made("segment 0:30M alloc 0:20M segment 64M:12M alloc 64M:11M"));
  T_EQ(g.cause, TIDE_GROWTH_NEEDED);
  T_EQ(g.at, 2);
  T_EQ(g.request_at, 3);
  T_EQ(g.requested_bytes, 11 * MIB);
  T_EQ(g.place_bytes, 10 * MIB);
  T_EQ(g.place_largest, 10 * MIB);
  T_EQ(g.place_fitting, 0);
}

T_TEST(test_growths__no_hole_was_large_enough) {
  const tide_growth g = explain_last(made("segment 0:30M alloc 0:10M alloc 10M:10M alloc 20M:10M "
                                          "free 0:10M 20M:10M segment 64M:12M alloc 64M:12M"));
  T_EQ(g.cause, TIDE_GROWTH_HOLE);
  T_EQ(g.place_bytes, 20 * MIB);
  T_EQ(g.place_largest, 10 * MIB);
}

T_TEST(test_growths__a_release_still_waits) {
  const tide_growth g = explain_last(made("segment 0:30M alloc 0:30M request 0:30M "
                                          "segment 64M:12M alloc 64M:12M"));
  T_EQ(g.cause, TIDE_GROWTH_EVENT);
  T_EQ(g.place_waiting, 30 * MIB);
  T_EQ(g.place_bytes, 0);
}

// Free blocks on both sides of one that waits would have been one hole.
T_TEST(test_growths__a_block_that_waits_lies_between) {
  const tide_growth g = explain_last(made("segment 0:30M alloc 0:10M alloc 10M:10M alloc 20M:10M free 0:10M "
                                          "20M:10M request 10M:10M segment 64M:16M alloc 64M:16M"));
  T_EQ(g.cause, TIDE_GROWTH_EVENT);
  T_EQ(g.place_bytes, 20 * MIB);
}

T_TEST(test_growths__a_larger_block_is_kept_whole) {
  tide_trace* const trace = made("segment 0:60M alloc 0:60M free 0:60M segment 64M:12M alloc 64M:12M");
  trace_set_options(trace, "max_split_size_mb:40");
  const tide_growth g = explain_last(trace);
  T_EQ(g.cause, TIDE_GROWTH_SPLIT);
  T_EQ(g.place_fitting, 60 * MIB);
}

T_TEST(test_growths__a_block_was_free_but_not_used) {
  const tide_growth g = explain_last(made("segment 0:60M alloc 0:60M free 0:60M "
                                          "segment 64M:12M alloc 64M:12M"));
  T_EQ(g.cause, TIDE_GROWTH_PASSED);
}

T_TEST(test_growths__only_other_streams_had_enough) {
  tide_trace* const trace = made("segment 0:30M alloc 0:30M free 0:30M");
  trace_add_on(trace, TIDE_ACTION_SEGMENT_ALLOC, GROWTH_BASE + 64 * MIB, 12 * MIB, 7);
  trace_add_on(trace, TIDE_ACTION_ALLOC, GROWTH_BASE + 64 * MIB, 12 * MIB, 7);
  const tide_growth g = explain_last(trace);
  T_EQ(g.cause, TIDE_GROWTH_STREAM);
  T_EQ(g.stream, 7);
  T_EQ(g.other_streams, 30 * MIB);
}

static void add_in_pool(tide_trace* trace, tide_action action, uint64_t address, uint32_t pool) {
  const tide_trace_entry entry = {
    .address = address, .bytes = 12 * MIB, .pool = pool, .action = (uint8_t)action
  };
  T_OK(tide_trace_add_entry(trace, &entry));
}

T_TEST(test_growths__only_other_pools_had_enough) {
  tide_trace* const trace = made("segment 0:30M alloc 0:30M free 0:30M");
  uint32_t pool = 0;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ 0, 1 }, &pool));
  add_in_pool(trace, TIDE_ACTION_SEGMENT_ALLOC, GROWTH_BASE + 64 * MIB, pool);
  add_in_pool(trace, TIDE_ACTION_ALLOC, GROWTH_BASE + 64 * MIB, pool);
  const tide_growth g = explain_last(trace);
  T_EQ(g.cause, TIDE_GROWTH_POOL);
  T_EQ(g.pool, pool);
  T_CHECK(g.is_pool_known);
  T_EQ(g.other_pools, 30 * MIB);
}

T_TEST(test_growths__only_the_other_class_had_enough) {
  const tide_growth g =
      explain_last(made("segment 0:20M alloc 0:2M free 0:2M segment 64M:2M alloc 64M:1000"));
  T_EQ(g.cause, TIDE_GROWTH_CLASS);
  T_EQ(g.rounded_bytes, 1024);
  T_CHECK(!g.is_large);
  T_EQ(g.other_class, 20 * MIB);
}

T_TEST(test_growths__without_a_request_the_cause_is_unknown) {
  T_EQ(explain_last(made("segment 0:20M")).cause, TIDE_GROWTH_UNKNOWN);
}

T_TEST(test_growths__what_is_older_than_the_recording_has_no_cause) {
  tide_trace* const trace = made("done 0:10M segment 64M:12M alloc 64M:12M");
  const tide_trace_segment old = { .address = GROWTH_BASE, .bytes = 20 * MIB, .is_large = true };
  const tide_trace_segment young = { .address = GROWTH_BASE + 64 * MIB, .bytes = 12 * MIB, .is_large = true };
  const tide_trace_block free_block = { .address = GROWTH_BASE, .bytes = 20 * MIB };
  const tide_trace_block block = { .address = GROWTH_BASE + 64 * MIB,
                                   .bytes = 12 * MIB,
                                   .requested_bytes = 12 * MIB,
                                   .state = TIDE_BLOCK_ALLOCATED };
  T_OK(tide_trace_add_segment(trace, &old));
  T_OK(tide_trace_add_block(trace, &free_block));
  T_OK(tide_trace_add_segment(trace, &young));
  T_OK(tide_trace_add_block(trace, &block));

  const explained e = explain(trace);

  T_EQ(e.count, 2);
  T_EQ(e.growths[0].cause, TIDE_GROWTH_BEFORE);
  T_EQ(e.growths[0].at, TIDE_LEDGER_BEFORE);
  T_EQ(e.growths[0].bytes, 20 * MIB);
  T_EQ(e.growths[1].at, 1);
  tide_trace_free(trace);
}

// Two ranges are mapped for one request, and the first does not count as free for the second. Of the first,
// one handle is unmapped later and mapped again for another request.
T_TEST(test_growths__ranges_of_an_expandable_segment_are_explained_one_by_one) {
  tide_trace* const trace = made("map 0:40M 40M:20M alloc 0:50M free 0:50M unmap 20M:20M "
                                 "alloc 0:20M map 20M:20M alloc 20M:20M map 60M:20M alloc 60M:20M");
  const explained e = explain(trace);

  T_EQ(e.count, 4);
  T_EQ(e.growths[0].at, 0);
  T_EQ(e.growths[0].bytes, 20 * MIB);  // what is left
  T_EQ(e.growths[1].at, 1);
  T_EQ(e.growths[1].request_at, 2);
  T_EQ(e.growths[1].cause, TIDE_GROWTH_NEEDED);
  T_EQ(e.growths[1].place_bytes, 0);
  T_EQ(e.growths[2].at, 7);
  T_EQ(e.growths[2].address, GROWTH_BASE + 20 * MIB);
  tide_trace_free(trace);
}

T_TEST_OVER(test_growths__add_up_to_what_is_reserved, recorded_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);
  tide_trace* const rest = recorded_trace(t_variant(), 300, NULL);

  T_LT(0, explain(trace).count);  // explain() compares the sum
  T_LT(0, explain(rest).count);

  tide_trace_free(trace);
  tide_trace_free(rest);
}

// ---------------------------------------------------------------------------------------------------
// Against a visit of the whole ledger before each growth

typedef struct counted {
  const tide_growth* growth;
  tide_ledger_segment segment;
  uint64_t place_bytes;
  uint64_t place_largest;
  uint64_t place_waiting;
  uint64_t other_streams;
  uint64_t other_pools;
  uint64_t other_class;
} counted;

static bool count_segment(void* user, const tide_ledger_segment* segment) {
  ((counted*)user)->segment = *segment;
  return true;
}

static bool count_block(void* user, const tide_ledger_block* block) {
  counted* const c = user;
  const tide_growth* const g = c->growth;
  const bool is_free = block->state == TIDE_BLOCK_INACTIVE;
  if (c->segment.is_large != g->is_large) {
    c->other_class += is_free ? block->bytes : 0;
  } else if (c->segment.pool != g->pool) {
    c->other_pools += is_free ? block->bytes : 0;
  } else if (c->segment.stream != g->stream) {
    c->other_streams += is_free ? block->bytes : 0;
  } else {
    c->place_bytes += is_free ? block->bytes : 0;
    c->place_waiting += block->state == TIDE_BLOCK_PENDING ? block->bytes : 0;
    if (is_free && block->bytes > c->place_largest) c->place_largest = block->bytes;
  }
  return true;
}

static bool compare_growth(void* user, const tide_growth* growth) {
  tide_ledger* const other = user;
  counted c = { .growth = growth };
  if (growth->at == TIDE_LEDGER_BEFORE || growth->is_expandable) return true;
  T_OK(tide_ledger_seek(other, growth->at - 1));
  tide_ledger_visit(other, count_segment, count_block, &c);
  T_EQ(growth->place_bytes, c.place_bytes);
  T_EQ(growth->place_largest, c.place_largest);
  T_EQ(growth->place_waiting, c.place_waiting);
  T_EQ(growth->other_streams, c.other_streams);
  T_EQ(growth->other_pools, c.other_pools);
  T_EQ(growth->other_class, c.other_class);
  return true;
}

static void expect_sums(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  tide_ledger* other = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  T_OK(tide_ledger_new(trace, 0, &other));
  T_OK(tide_ledger_explain(ledger, tide_ledger_get_peaks(ledger).reserved.at, compare_growth, other));
  tide_ledger_free(ledger);
  tide_ledger_free(other);
}

// Segments of several streams are filled with small blocks. Some of these are released, and some of those
// wait.
static tide_trace* trace_of_small_blocks(t_rng* rng, size_t segments) {
  tide_trace* const trace = trace_new();
  for (size_t i = 0; i < segments; i++) {
    const uint64_t stream = t_rng_below(rng, 3);
    const uint64_t address = GROWTH_BASE + i * 4 * MIB;
    trace_add_on(trace, TIDE_ACTION_SEGMENT_ALLOC, address, 2 * MIB, stream);
    for (uint64_t at = 0; at < 2 * MIB; at += 128 * KIB)
      trace_add_on(trace, TIDE_ACTION_ALLOC, address + at, 128 * KIB, stream);
    for (size_t k = t_rng_below(rng, 4); k > 0; k--) {
      const uint64_t block = GROWTH_BASE + t_rng_below(rng, i + 1) * 4 * MIB +
                             128 * KIB * t_rng_below(rng, 16);
      trace_add(trace, TIDE_ACTION_FREE_REQUESTED, block, 128 * KIB);
      if (t_rng_below(rng, 3) > 0) trace_add(trace, TIDE_ACTION_FREE_COMPLETED, block, 128 * KIB);
    }
  }
  return trace;
}

T_TEST(test_growths__find_the_same_as_a_visit) {
  t_rng rng = t_rng_new(1);
  tide_trace* const trace = trace_of_small_blocks(&rng, 100);

  expect_sums(trace);

  tide_trace_free(trace);
}

T_TEST_OVER(test_growths__of_a_recording_find_the_same_as_a_visit, recorded_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);
  tide_trace* const rest = recorded_trace(t_variant(), 300, NULL);

  expect_sums(trace);
  expect_sums(rest);

  tide_trace_free(trace);
  tide_trace_free(rest);
}

static bool stop_at_once(void* user, const tide_growth* growth) {
  (void)growth;
  ++*(int*)user;
  return false;
}

T_TEST(test_growths__a_visit_ends_when_it_is_told) {
  tide_trace* const trace = made("segment 0:30M alloc 0:20M segment 64M:12M alloc 64M:11M");
  tide_ledger* ledger = NULL;
  int calls = 0;
  T_OK(tide_ledger_new(trace, 0, &ledger));

  T_OK(tide_ledger_explain(ledger, 3, stop_at_once, &calls));
  T_EQ(calls, 1);
  T_EQ(tide_ledger_explain(ledger, 3, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_EQ(tide_ledger_explain(NULL, 3, stop_at_once, &calls), TIDE_ERR_ARGUMENT);
  T_EQ(tide_ledger_explain(ledger, 4, stop_at_once, &calls), TIDE_ERR_ARGUMENT);
  T_STR_EQ(tide_growth_cause_name(TIDE_GROWTH_HOLE), "hole");
  T_CHECK(tide_growth_cause_name(TIDE_GROWTH_COUNT) == NULL);
  T_EQ(calls, 1);

  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static tide_status growths_trip(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  explained e = { .count = 0 };
  tide_status status = tide_ledger_new(trace, 0, &ledger);
  if (status == TIDE_OK)
    status = tide_ledger_explain(ledger, tide_ledger_get_peaks(ledger).reserved.at, keep_growth, &e);
  tide_ledger_free(ledger);
  return status;
}

T_TEST(test_growths__survive_the_failure_of_every_allocation) { survives_every_failure(growths_trip); }
