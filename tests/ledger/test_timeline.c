// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory over time in buckets, compared with a list of the totals after every entry.
#include "ledger/recorded.h"

#define BASE ((uint64_t)0x7f0000000000)

typedef struct curve {
  tide_ledger* ledger;
  tide_ledger_totals* totals;  // [0] before the first entry, [i + 1] after entry i
  uint64_t* times;             // of each entry, or the latest before it
  const tide_trace_entry* entries;
  size_t count;
} curve;

static curve curve_new(const tide_trace* trace) {
  curve c = { .ledger = NULL };
  T_OK(tide_ledger_new(trace, 0, &c.ledger));
  c.entries = tide_trace_entries(trace, 0, &c.count);
  c.totals = calloc(c.count + 1, sizeof *c.totals);
  c.times = calloc(c.count + 1, sizeof *c.times);
  for (size_t i = 0; i <= c.count; i++) {
    T_OK(tide_ledger_seek(c.ledger, (uint64_t)i - 1));
    c.totals[i] = tide_ledger_get_totals(c.ledger);
    if (i == c.count) break;
    c.times[i] = c.entries[i].time_ns;
    if (i > 0 && c.times[i - 1] > c.times[i]) c.times[i] = c.times[i - 1];
  }
  return c;
}

static void curve_free(curve* c) {
  tide_ledger_free(c->ledger);
  free(c->totals);
  free(c->times);
}

static void range_expect(const curve* c, size_t field, size_t from, size_t to,
                         const tide_timeline_range* got) {
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  uint64_t last = 0;
  for (size_t i = from; i <= to; i++) {
    memcpy(&last, (const char*)&c->totals[i] + field, sizeof last);
    least = last < least ? last : least;
    most = last > most ? last : most;
  }
  T_EQ(got->least, least);
  T_EQ(got->most, most);
  T_EQ(got->last, last);
}

// Checks one bucket, of which the totals [from, to] are expected.
static void bucket_expect(const curve* c, size_t from, size_t to, const tide_timeline_bucket* got) {
  range_expect(c, offsetof(tide_ledger_totals, live_bytes), from, to, &got->live);
  range_expect(c, offsetof(tide_ledger_totals, requested_bytes), from, to, &got->requested);
  range_expect(c, offsetof(tide_ledger_totals, allocated_bytes), from, to, &got->allocated);
  range_expect(c, offsetof(tide_ledger_totals, active_bytes), from, to, &got->active);
  range_expect(c, offsetof(tide_ledger_totals, reserved_bytes), from, to, &got->reserved);
}

static void curve_expect(const curve* c, uint32_t axis, size_t buckets) {
  tide_timeline_bucket* const got = calloc(buckets, sizeof *got);
  T_OK(tide_ledger_timeline(c->ledger, axis, buckets, got));
  const bool is_time = axis == TIDE_TIMELINE_TIME && c->count > 0;
  const uint64_t start = is_time ? c->times[0] : 0;
  const uint64_t width = is_time ? c->times[c->count - 1] - start : c->count;
  T_LT(width, UINT64_MAX / (buckets + 1));
  size_t next = 0;
  for (size_t b = 0; b < buckets; b++) {
    const uint64_t begin = start + width * b / buckets;
    const uint64_t end = start + width * (b + 1) / buckets;
    T_EQ(got[b].begin, begin);
    T_EQ(got[b].first, next);
    size_t count = 0;
    while (next + count < c->count) {
      const uint64_t at = is_time ? c->times[next + count] : next + count;
      if (at >= end && b + 1 < buckets) break;
      count++;
    }
    T_EQ(got[b].entry_count, count);
    const bool is_at_begin = b > 0 && count > 0 && (is_time ? c->times[next] : next) == begin;
    bucket_expect(c, next + (is_at_begin ? 1 : 0), next + count, &got[b]);
    next += count;
  }
  T_EQ(next, c->count);
  T_EQ(tide_ledger_get_totals(c->ledger).at, (uint64_t)c->count - 1);
  free(got);
}

static void trace_expect(const tide_trace* trace) {
  static const size_t buckets[] = { 1, 2, 7, 100, 5000 };
  curve c = curve_new(trace);
  for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++) {
    curve_expect(&c, TIDE_TIMELINE_ENTRIES, buckets[i]);
    curve_expect(&c, TIDE_TIMELINE_TIME, buckets[i]);
  }
  curve_free(&c);
}

static const char* const small_names[] = { "after_oom",     "events", "expand_limit", "graphs", "pools",
                                           "resnet_stacks", NULL };

T_TEST_OVER(test_timeline__has_the_values_after_every_entry, small_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);
  trace_expect(trace);
  tide_trace_free(trace);
}

T_TEST_OVER(test_timeline__of_a_recording_without_its_beginning, small_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 40, NULL);
  trace_expect(trace);
  tide_trace_free(trace);
}

static void trace_add_at(tide_trace* trace, uint64_t time_ns, uint64_t index) {
  const tide_trace_entry entry = { .time_ns = time_ns,
                                   .address = BASE + index * KIB,
                                   .bytes = 700,
                                   .action = TIDE_ACTION_ALLOC,
                                   .absent = TIDE_ENTRY_POOL };
  T_OK(tide_trace_add_entry(trace, &entry));
}

T_TEST(test_timeline__times_may_go_back_and_be_far_apart) {
  static const uint64_t times[] = { 5, 9, 3, 9, 1000, 0, 1001, 1001, 1, (uint64_t)1 << 50 };
  tide_trace* const trace = trace_new();
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) trace_add_at(trace, times[i], i);
  trace_expect(trace);
  tide_trace_free(trace);
}

T_TEST(test_timeline__buckets_do_not_overflow) {
  tide_trace* const trace = trace_new();
  trace_add_at(trace, 0, 0);
  trace_add_at(trace, UINT64_MAX, 1);
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  tide_timeline_bucket got[3];
  T_OK(tide_ledger_timeline(ledger, TIDE_TIMELINE_TIME, 3, got));
  T_EQ(got[1].begin, UINT64_MAX / 3);
  T_EQ(got[2].begin, UINT64_MAX / 3 * 2);
  T_EQ(got[1].requested.most, 700);
  T_EQ(got[2].requested.least, 700);
  T_EQ(got[2].requested.last, 1400);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

T_TEST(test_timeline__all_entries_at_one_time_are_in_the_last_bucket) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 5; i++) trace_add_at(trace, 77, i);
  trace_expect(trace);
  tide_trace_free(trace);
}

T_TEST(test_timeline__the_largest_value_is_the_peak) {
  tide_trace* const trace = recorded_trace("graphs", 500, NULL);
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  for (uint32_t axis = 0; axis < 2; axis++) {
    tide_timeline_bucket got[33];
    uint64_t live = 0;
    uint64_t reserved = 0;
    T_OK(tide_ledger_timeline(ledger, axis, 33, got));
    for (size_t i = 0; i < 33; i++) live = got[i].live.most > live ? got[i].live.most : live;
    for (size_t i = 0; i < 33; i++)
      reserved = got[i].reserved.most > reserved ? got[i].reserved.most : reserved;
    T_EQ(live, peaks.live.bytes);
    T_EQ(reserved, peaks.reserved.bytes);
  }
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

T_TEST(test_timeline__without_entries_has_what_is_listed) {
  tide_trace* const trace = trace_new();
  tide_trace_about about = { .has_segments = true };
  tide_trace_set_about(trace, &about);
  const tide_trace_segment segment = { .address = BASE, .bytes = 2 * MIB };
  const tide_trace_block block = {
    .address = BASE, .bytes = 2 * MIB, .requested_bytes = 2 * MIB - 1, .state = TIDE_BLOCK_ALLOCATED
  };
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &block));
  trace_expect(trace);
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  tide_timeline_bucket got[2];
  T_OK(tide_ledger_timeline(ledger, TIDE_TIMELINE_TIME, 2, got));
  T_EQ(got[1].reserved.least, 2 * MIB);
  T_EQ(got[1].entry_count, 0);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static void line_fill(const curve* c, const uint64_t* positions, tide_timeline* line) {
  tide_timeline_start(line, &c->totals[0]);
  for (size_t i = 0; i < c->count; i++) tide_timeline_add(line, positions[i], &c->totals[i + 1]);
  tide_timeline_finish(line);
}

// A bucket has the totals after its entries, and the one before them unless the first is at its beginning.
static void line_expect(const curve* c, const uint64_t* positions, const uint64_t* begins, size_t count,
                        bool is_joined) {
  tide_timeline_bucket* const got = calloc(count, sizeof *got);
  for (size_t b = 0; b < count; b++) got[b] = (tide_timeline_bucket){ .begin = begins[b], .first = 77 };
  tide_timeline line = { .buckets = got, .count = count, .is_joined = is_joined };
  line_fill(c, positions, &line);
  size_t next = 0;
  uint64_t latest = 0;
  for (size_t b = 0; b < count; b++) {
    size_t end = next;
    bool is_at_begin = false;
    for (; end < c->count; end++) {
      const uint64_t position = positions[end] > latest ? positions[end] : latest;
      if (b + 1 < count && position >= begins[b + 1]) break;
      if (end == next) is_at_begin = b > 0 && position == begins[b];
      latest = position;
    }
    T_EQ(got[b].begin, begins[b]);
    T_EQ(got[b].first, next);
    T_EQ(got[b].entry_count, end - next);
    bucket_expect(c, next + (is_at_begin && !is_joined ? 1 : 0), end, &got[b]);
    next = end;
  }
  T_EQ(next, c->count);
  free(got);
}

T_TEST_OVER(test_timeline__of_any_axis_and_buckets_of_any_width, small_names) {
  tide_trace* const trace = recorded_trace(t_variant(), 0, NULL);
  curve c = curve_new(trace);
  const uint64_t begins[] = { 3, 4, 4, 64, 65, c.count - 1, c.count, UINT64_MAX };
  uint64_t* const axes[] = { calloc(c.count, 8), calloc(c.count, 8), calloc(c.count, 8) };
  for (size_t i = 0; i < c.count; i++) {
    axes[0][i] = i;
    axes[1][i] = i * i / 100;  // crowded at the beginning
    axes[2][i] = i ^ 5;        // goes back
  }
  for (size_t count = 1; count <= sizeof begins / sizeof *begins; count++) {
    for (size_t k = 0; k < 6; k++) line_expect(&c, axes[k / 2], begins, count, k % 2 == 0);
  }
  for (size_t k = 0; k < 3; k++) free(axes[k]);
  curve_free(&c);
  tide_trace_free(trace);
}

T_TEST(test_timeline__refuses_bad_arguments) {
  tide_trace* const trace = trace_new();
  tide_ledger* ledger = NULL;
  tide_timeline_bucket got[1];
  T_OK(tide_ledger_new(trace, 0, &ledger));
  T_STATUS(tide_ledger_timeline(NULL, 0, 1, got), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_timeline(ledger, 0, 1, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_timeline(ledger, 2, 1, got), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_timeline(ledger, 0, 0, got), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_ledger_timeline(ledger, 0, (size_t)UINT32_MAX + 1, got), TIDE_ERR_ARGUMENT);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static tide_status timeline_trip(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  tide_timeline_bucket got[9] = { { .begin = 1 } };
  tide_status status = tide_ledger_new(trace, 0, &ledger);
  if (status == TIDE_OK) {
    status = tide_ledger_timeline(ledger, TIDE_TIMELINE_TIME, 9, got);
    if (status != TIDE_OK) T_EQ(got[0].begin, 0);
  }
  tide_ledger_free(ledger);
  return status;
}

T_TEST(test_timeline__survives_the_failure_of_every_allocation) { survives_every_failure(timeline_trip); }
