// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_ledger_watch() on recordings and on random entries that contradict each other: what exists by its
// events adds up to the totals after every entry, and is what a visit shows at the end.
#include "base/random.h"
#include "ledger/recorded.h"
#include "tidemark/ledger.h"
#include "traces.h"

#define WATCHED 65536u  // things that exist at once, at most
#define UNIT 512u

typedef struct watched {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested;
  uint32_t state;
} watched;

typedef struct watching {
  watched blocks[WATCHED];
  size_t block_count;
  watched ranges[WATCHED];
  size_t range_count;
  uint64_t states;  // number of calls of on_entry
  uint64_t causes;  // ranges with a known cause
} watching;

static watching w;

static watched* find(watched* items, size_t count, uint64_t address) {
  for (size_t i = count; i-- > 0;) {
    if (items[i].address == address) return &items[i];
  }
  return NULL;
}

static void watch_block(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_block* block) {
  watched* const known = find(w.blocks, w.block_count, block->address);
  (void)user;
  (void)at;
  T_EQ(known == NULL, event == TIDE_LEDGER_BEGINS);
  if (event == TIDE_LEDGER_BEGINS) {
    T_LT(w.block_count, WATCHED);
    w.blocks[w.block_count++] =
        (watched){ block->address, block->bytes, block->requested_bytes, block->state };
  } else if (event == TIDE_LEDGER_ENDS) {
    T_EQ(known->bytes, block->bytes);
    *known = w.blocks[--w.block_count];
  } else if (event == TIDE_LEDGER_WAITS) {
    T_EQ(known->state, TIDE_BLOCK_ALLOCATED);
    known->state = TIDE_BLOCK_PENDING;
  } else {
    T_CHECK(known->bytes != block->bytes);
    known->bytes = block->bytes;
  }
}

// Removes [from, to) from all ranges.
static void ranges_cut(uint64_t from, uint64_t to) {
  for (size_t i = 0; i < w.range_count;) {
    watched* const range = &w.ranges[i];
    const uint64_t end = range->address + range->bytes;
    if (end <= from || range->address >= to) {
      i++;
      continue;
    }
    if (to < end) w.ranges[w.range_count++] = (watched){ to, end - to, 0, 0 };
    if (range->address < from) w.ranges[i].bytes = from - range->address;
    else w.ranges[i] = w.ranges[--w.range_count];
  }
}

static void watch_range(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  (void)user;
  T_CHECK(event == TIDE_LEDGER_BEGINS || event == TIDE_LEDGER_ENDS);
  if (event == TIDE_LEDGER_ENDS) {
    ranges_cut(range->address, range->address + range->bytes);
    return;
  }
  T_LT(w.range_count + 1, WATCHED);
  T_EQ(range->cause == TIDE_GROWTH_BEFORE, at == TIDE_LEDGER_BEFORE);
  w.causes += range->cause != TIDE_GROWTH_UNKNOWN;
  w.ranges[w.range_count++] = (watched){ range->address, range->bytes, 0, 0 };
}

static void watch_entry(void* user, const tide_ledger_totals* totals) {
  tide_ledger_totals sums = { .at = totals->at, .segment_count = totals->segment_count };
  (void)user;
  T_EQ(totals->at, w.states++ - 1);
  for (size_t i = 0; i < w.range_count; i++) sums.reserved_bytes += w.ranges[i].bytes;
  for (size_t i = 0; i < w.block_count; i++) {
    const watched* const block = &w.blocks[i];
    sums.live_count++;
    sums.active_bytes += block->bytes;
    sums.allocated_bytes += block->state == TIDE_BLOCK_ALLOCATED ? block->bytes : 0;
    sums.requested_bytes += block->requested;
    sums.live_bytes += (block->requested + UNIT - 1) / UNIT * UNIT;
  }
  T_EQ(memcmp(&sums, totals, sizeof sums), 0);
}

static bool block_is_watched(void* user, const tide_ledger_block* block) {
  size_t* const count = user;
  if (block->state == TIDE_BLOCK_INACTIVE) return true;
  const watched* const known = find(w.blocks, w.block_count, block->address);
  T_CHECK(known != NULL);
  T_EQ(known->bytes, block->bytes);
  T_EQ(known->state, block->state);
  ++*count;
  return true;
}

static void watch_trace(const tide_trace* trace) {
  tide_ledger* ledger = NULL;
  tide_ledger_watcher watcher = TIDE_LEDGER_WATCHER_INIT;
  size_t count = 0;
  size_t seen = 0;
  watcher.on_block = watch_block;
  watcher.on_range = watch_range;
  watcher.on_entry = watch_entry;
  (void)tide_trace_entries(trace, 0, &count);
  T_OK(tide_ledger_new(trace, 0, &ledger));
  w.block_count = w.range_count = w.states = w.causes = 0;
  T_OK(tide_ledger_watch(ledger, &watcher));
  T_EQ(w.states, count + 1);
  T_EQ(tide_ledger_get_totals(ledger).at, count - 1);
  tide_ledger_visit(ledger, NULL, block_is_watched, &seen);
  T_EQ(seen, w.block_count);
  tide_ledger_free(ledger);
}

static const char* const files[] = {
  "after_oom", "events",  "expand",        "expand_split", "gnn_retry",    "graphs",     "gc_mix",
  "pools",     "roundup", "resnet_stacks", "limit_edge",   "expand_limit", "tags/turns", NULL
};

T_TEST_OVER(test_watch__events_add_up_to_the_totals, files) {
  tide_trace* const trace = trace_of_test(t_variant());
  watch_trace(trace);
  T_LT(0, w.causes);
  tide_trace_free(trace);
}

// Random entries at few addresses, so that most contradict others.
static tide_trace* trace_of_noise(uint64_t seed) {
  uint64_t random = seed;
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  for (size_t i = 0; i < 400; i++) {
    const uint64_t unit = seed % 3 == 0 ? 100 : UNIT;
    const tide_trace_entry entry = {
      .address = 4096 + unit * (tide__random_next(&random) % 64),
      .bytes = unit * (1 + tide__random_next(&random) % 12) - tide__random_next(&random) % 2,
      .action = (uint8_t)(tide__random_next(&random) % TIDE_ACTION_SNAPSHOT),
    };
    T_OK(tide_trace_add_entry(trace, &entry));
  }
  return trace;
}

T_TEST(test_watch__contradictions_add_up_too) {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    tide_trace* const trace = trace_of_noise(seed);
    watch_trace(trace);
    tide_trace_free(trace);
  }
}

T_TEST(test_watch__needs_a_ledger_and_a_watcher) {
  tide_trace* const trace = trace_of_test("expand");
  const tide_ledger_watcher nobody = TIDE_LEDGER_WATCHER_INIT;
  tide_ledger* ledger = NULL;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  T_EQ(tide_ledger_watch(NULL, &nobody), TIDE_ERR_ARGUMENT);
  T_EQ(tide_ledger_watch(ledger, NULL), TIDE_ERR_ARGUMENT);
  T_OK(tide_ledger_watch(ledger, &nobody));
  T_OK(tide_ledger_seek(ledger, 0));  // nobody is told any more
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}
