// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The ledger on recordings in which live memory is unmapped and mapped again: reserved bytes fall and rise,
// and the blocks stay. Recordings are made by hand, and by an allocator that parks, also from their middle
// on.
#include "device/park.h"
#include "tidemark/ledger.h"

#define BASE ((uint64_t)0x7f0000000000)

static void add(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes) {
  const tide_trace_entry entry = { .address = BASE + address, .bytes = bytes, .action = (uint8_t)action };
  T_OK(tide_trace_add_entry(trace, &entry));
}

static tide_ledger* ledger_of(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  return ledger;
}

static void expect_no_faults(const tide_ledger* ledger) {
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  T_EQ(faults.unknown_frees, 0);
  T_EQ(faults.homeless_allocs, 0);
  T_EQ(faults.overlaps, 0);
  T_EQ(faults.odd_segments, 0);
  T_EQ(faults.differences, 0);
}

static void expect_at(tide_ledger* ledger, uint64_t at, uint64_t reserved, uint64_t active) {
  T_OK(tide_ledger_seek(ledger, at));
  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  T_EQ(totals.reserved_bytes, reserved);
  T_EQ(totals.active_bytes, active);
}

typedef struct parts {
  size_t segments;
  size_t parked;
} parts;

static bool count_segment(void* user, const tide_ledger_segment* segment) {
  parts* const p = user;
  p->segments++;
  p->parked += segment->is_parked;
  return true;
}

// A home of 8 MiB with two blocks is parked. One block is released, and the first half comes back.
T_TEST(test_ledger__blocks_stay_while_their_memory_is_unmapped) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  add(trace, TIDE_ACTION_SEGMENT_MAP, 0, 8 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 0, 2 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 4 * MIB, 2 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_UNMAP, 0, 8 * MIB);
  add(trace, TIDE_ACTION_FREE_REQUESTED, 4 * MIB, 2 * MIB);
  add(trace, TIDE_ACTION_FREE_COMPLETED, 4 * MIB, 2 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_MAP, 0, 4 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_MAP, 4 * MIB, 2 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 2 * MIB, 3 * MIB);
  tide_ledger* const ledger = ledger_of(trace);

  expect_no_faults(ledger);
  expect_at(ledger, 2, 8 * MIB, 4 * MIB);
  expect_at(ledger, 3, 0, 4 * MIB);
  parts p = { 0 };
  tide_ledger_visit(ledger, count_segment, NULL, &p);
  T_EQ(p.segments, 1);
  T_EQ(p.parked, 1);
  expect_at(ledger, 5, 0, 2 * MIB);
  expect_at(ledger, 6, 4 * MIB, 2 * MIB);
  expect_at(ledger, 8, 6 * MIB, 5 * MIB);
  T_EQ(tide_ledger_get_peaks(ledger).reserved.bytes, 8 * MIB);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

// Everything that is told about parked memory, as text.
typedef struct told {
  char text[512];
  size_t length;
} told;

static void tell(told* t, const char* word, tide_ledger_event event, uint64_t at,
                 const tide_ledger_range* range) {
  const char* const cause = tide_growth_cause_name(range->cause);
  const int added = snprintf(t->text + t->length, sizeof t->text - t->length, "%s%s %llu: %llu+%llu %s\n",
                             event == TIDE_LEDGER_BEGINS ? "+" : "-", word, (unsigned long long)at,
                             (unsigned long long)((range->address - BASE) / MIB),
                             (unsigned long long)(range->bytes / MIB), cause);
  T_LT(0, added);
  t->length += (size_t)added;
}

static void tell_range(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  tell(user, "reserved", event, at, range);
}

static void tell_parked(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  tell(user, "parked", event, at, range);
}

// A home is parked and comes back, at first half of it; then new memory is mapped for a request.
static tide_trace* parked_and_back(void) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  add(trace, TIDE_ACTION_SEGMENT_MAP, 0, 8 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 0, 2 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 4 * MIB, 4 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_UNMAP, 0, 8 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_MAP, 0, 4 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_MAP, 4 * MIB, 4 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_MAP, 8 * MIB, 4 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 8 * MIB, 4 * MIB);
  return trace;
}

T_TEST(test_ledger__tells_when_memory_is_parked) {
  tide_trace* const trace = parked_and_back();
  tide_ledger* const ledger = ledger_of(trace);
  tide_ledger_watcher watcher = TIDE_LEDGER_WATCHER_INIT;
  told t = { .length = 0 };
  watcher.on_range = tell_range;
  watcher.on_parked = tell_parked;
  watcher.user = &t;
  T_OK(tide_ledger_watch(ledger, &watcher));
  T_STR_EQ(t.text, "+reserved 0: 0+8 needed\n"
                   "-reserved 3: 0+8 unknown\n"
                   "+parked 3: 0+8 unknown\n"
                   "-parked 4: 0+4 unknown\n"
                   "+reserved 4: 0+4 unparked\n"
                   "-parked 5: 4+4 unknown\n"
                   "+reserved 5: 4+4 unparked\n"
                   "+reserved 6: 8+4 needed\n");
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static bool tell_growth(void* user, const tide_growth* growth) {
  const tide_ledger_range range = { .address = growth->address,
                                    .bytes = growth->bytes,
                                    .cause = growth->cause };
  const bool is_unparked = growth->cause == TIDE_GROWTH_UNPARKED;
  tell(user, "reserved", TIDE_LEDGER_BEGINS, growth->at, &range);
  T_EQ(growth->request_at == TIDE_LEDGER_BEFORE, is_unparked);
  T_EQ(growth->requested_bytes, is_unparked ? 0 : 4 * MIB);
  return true;
}

// Memory that came back has no request, although one follows.
T_TEST(test_ledger__explains_memory_that_came_back) {
  tide_trace* const trace = parked_and_back();
  tide_ledger* const ledger = ledger_of(trace);
  told t = { .length = 0 };
  T_OK(tide_ledger_explain(ledger, 7, tell_growth, &t));
  T_STR_EQ(t.text, "+reserved 4: 0+4 unparked\n"
                   "+reserved 5: 4+4 unparked\n"
                   "+reserved 6: 8+4 needed\n");
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

// What is unmapped without blocks is gone, as before, and new memory may come there.
T_TEST(test_ledger__idle_memory_that_is_unmapped_is_gone) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  add(trace, TIDE_ACTION_SEGMENT_MAP, 0, 8 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 0, 2 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_UNMAP, 4 * MIB, 4 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_UNMAP, 0, 4 * MIB);  // parked
  add(trace, TIDE_ACTION_FREE_REQUESTED, 0, 2 * MIB);
  add(trace, TIDE_ACTION_FREE_COMPLETED, 0, 2 * MIB);
  add(trace, TIDE_ACTION_SEGMENT_ALLOC, 0, 2 * MIB);  // something else has the addresses now
  tide_ledger* const ledger = ledger_of(trace);
  expect_no_faults(ledger);
  expect_at(ledger, 6, 2 * MIB, 0);
  T_EQ(tide_ledger_get_totals(ledger).segment_count, 1);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Recordings of an allocator

typedef struct recorder {
  tide_device_cache* d;
  t_rng rng;
  tide_stream streams[3];
  tide_pool pools[2];
  tide_block blocks[40];
  size_t count;
} recorder;

static void recorder_step(recorder* r) {
  static const char* const tags[] = { "a", "b", NULL };
  switch (t_rng_below(&r->rng, 10)) {
    case 0: T_OK(tide_device_park(r->d, tags[t_rng_below(&r->rng, 3)], NULL, NULL)); break;
    case 1: (void)unpark(r->d, tags[t_rng_below(&r->rng, 3)]); break;
    case 2:
    case 3:
    case 4:
    case 5:
      if (r->count > 0) {
        const size_t i = t_rng_below(&r->rng, r->count);
        give(r->d, r->blocks[i]);
        r->blocks[i] = r->blocks[--r->count];
      }
      break;
    default:
      if (r->count < 40) {
        r->blocks[r->count++] = take_tagged(r->d, r->pools[t_rng_below(&r->rng, 2)],
                                            r->streams[t_rng_below(&r->rng, 3)],
                                            512 * (1 + t_rng_below(&r->rng, 4096)));
      }
  }
}

// The ledger of a snapshot ends with what the allocator says. In one that does not begin at the start, blocks
// may be released of which nothing else is known: those of handles that were parked before and did not come
// back.
static void expect_same(tide_device_cache* d, bool is_whole) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_device_snapshot(d, NULL, trace));
  tide_ledger* const ledger = ledger_of(trace);
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
  if (is_whole) T_EQ(faults.unknown_frees, 0);
  T_EQ(faults.homeless_allocs + faults.overlaps, 0);
  T_EQ(faults.odd_segments, 0);
  T_EQ(faults.differences, 0);
  T_EQ(totals.reserved_bytes, current(d, reserved_bytes));
  T_EQ(totals.requested_bytes, current(d, requested_bytes));
  T_EQ(totals.live_count, current(d, active));
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

static const char* const tide_dry[] = { "dry tide", NULL };

static recorder recorder_new(tide_machine* m, tide_device_cache* d, uint64_t number) {
  recorder r = { .d = d, .rng = t_rng_new(number), .streams = { NULL, side_new(m), side_new(m) } };
  r.pools[0] = tagged(d, "a");
  r.pools[1] = tagged(d, "b");
  return r;
}

DEVICE_TEST_OVER(test_ledger__follows_an_allocator_that_parks, tide_dry) {
  recorder r = recorder_new(m, d, 1);
  history_on(d);
  for (int i = 0; i < 400; ++i) {
    recorder_step(&r);
    if (i % 10 == 0) expect_same(d, true);
  }
  expect_same(d, true);
}

// The history keeps the last entries only, so that what was before follows from the end.
DEVICE_TEST_OVER(test_ledger__follows_an_allocator_that_parks_from_the_middle, tide_dry) {
  recorder r = recorder_new(m, d, 2);
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = 64;
  T_OK(tide_device_history(d, &options));
  for (int i = 0; i < 600; ++i) {
    recorder_step(&r);
    if (i % 7 == 0) expect_same(d, false);
  }
  expect_same(d, false);
}
