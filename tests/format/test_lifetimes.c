// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lifetimes, compared with a slow model that searches: requests that are older than the recording, never
// released, or displaced; and the offsets that an arena hands out.
#include "format/lifetimes.h"
#include "base/heap.h"
#include "memory.h"

static tide__lifetimes lifetimes_of(const tide_trace* trace, tide__lifetimes_kind kind) {
  tide__lifetimes lifetimes;
  T_OK(tide__lifetimes_init(&lifetimes, trace, 0, kind, &tide__system_heap));
  return lifetimes;
}

static void expect_lifetime(const tide__lifetime* lifetime, uint64_t begin, uint64_t end, uint64_t bytes) {
  T_EQ(lifetime->begin, begin);
  T_EQ(lifetime->end, end);
  T_EQ(lifetime->bytes, bytes);
}

T_TEST(test_lifetimes__go_from_alloc_to_free_completed) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_FREE_REQUESTED, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x200, 20);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x100, 10);

  tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_REQUESTS);

  T_EQ(all.count, 2);
  expect_lifetime(&all.items[0], 1, 4, 10);
  expect_lifetime(&all.items[1], 3, TIDE__INSTANT_NEVER, 20);
  T_EQ(all.peak_bytes, 30);
  T_EQ(all.peak_instant, 3);
  T_PTR_EQ(tide__lifetimes_begun_by(&all, 2), &all.items[1]);
  T_PTR_EQ(tide__lifetimes_ended_by(&all, 2), NULL);
  T_PTR_EQ(tide__lifetimes_begun_by(&all, 1), NULL);
  T_PTR_EQ(tide__lifetimes_ended_by(&all, 3), &all.items[0]);
  tide__lifetimes_fini(&all);
  tide_trace_free(trace);
}

T_TEST(test_lifetimes__know_what_was_there_before) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x200, 20);  // was there
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x100, 10);  // was not: it had just been released
  memory_add_segment(trace, 0, 0x300, 41, 0);                      // was there
  memory_add_segment(trace, 0, 0x100, 51, 0);                      // nobody knows since when
  memory_add_segment(trace, 1, 0x400, 61, 0);                      // of another device

  tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_REQUESTS);

  T_EQ(all.count, 3);
  expect_lifetime(&all.items[0], 1, 3, 10);
  expect_lifetime(&all.items[1], 0, 2, 20);
  expect_lifetime(&all.items[2], 0, TIDE__INSTANT_NEVER, 40);
  T_EQ(all.first_bytes, 60);
  T_EQ(all.peak_bytes, 70);
  T_EQ(all.peak_instant, 1);
  T_EQ(tide__lifetimes_device_count(trace), 2);
  tide__lifetimes_fini(&all);
  tide_trace_free(trace);
}

T_TEST(test_lifetimes__end_where_another_request_begins) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, 30);

  tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_REQUESTS);

  expect_lifetime(&all.items[0], 1, 2, 10);
  expect_lifetime(&all.items[1], 2, TIDE__INSTANT_NEVER, 30);
  T_PTR_EQ(tide__lifetimes_ended_by(&all, 1), &all.items[0]);
  T_EQ(all.peak_bytes, 30);
  tide__lifetimes_fini(&all);
  tide_trace_free(trace);
}

T_TEST(test_lifetimes__follow_segments) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_ALLOC, 0x100, 10);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, 5);
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_MAP, 0x900, 7);
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_FREE, 0x100, 10);
  memory_add_segment(trace, 0, 0x300, 40, 0);
  const tide_trace_segment expandable = { .address = 0x900, .bytes = 7, .is_expandable = true };
  T_OK(tide_trace_add_segment(trace, &expandable));

  tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_SEGMENTS);

  T_EQ(all.count, 2);
  expect_lifetime(&all.items[0], 1, 4, 10);
  expect_lifetime(&all.items[1], 0, TIDE__INSTANT_NEVER, 40);
  tide__lifetimes_fini(&all);
  tide_trace_free(trace);
}

T_TEST(test_lifetimes__of_nothing_are_none) {
  tide_trace* const trace = memory_trace_new();
  tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_REQUESTS);
  T_EQ(all.count, 0);
  T_EQ(all.peak_bytes, 0);
  T_EQ(tide__lifetimes_device_count(trace), 0);
  tide__lifetimes_fini(&all);
  tide_trace_free(trace);
}

T_TEST(test_lifetimes__refuse_more_than_all_bytes) {
  static const uint64_t sizes[][2] = { { UINT64_MAX, 0 }, { INT64_MAX, 1 }, { INT64_MAX, INT64_MAX } };
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    tide_trace* const trace = memory_trace_new();
    tide__lifetimes all;
    memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x100, sizes[i][0]);
    memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x200, sizes[i][1]);
    T_STATUS(tide__lifetimes_init(&all, trace, 0, TIDE__LIFETIMES_OF_REQUESTS, &tide__system_heap),
             TIDE_ERR_LIMIT);
    tide_trace_free(trace);
  }
}

// The entry that ends the request of entry `at`, found by looking.
static uint64_t model_end(const tide_trace_entry* entries, size_t count, size_t at) {
  for (size_t i = at + 1; i < count; i++) {
    const bool is_end = entries[i].action == TIDE_ACTION_ALLOC ||
                        entries[i].action == TIDE_ACTION_FREE_COMPLETED;
    if (is_end && entries[i].address == entries[at].address) return i + 1;
  }
  return TIDE__INSTANT_NEVER;
}

T_TEST(test_lifetimes__are_those_of_the_model) {
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(50); round++) {
    tide_trace* const trace = memory_trace_new();
    const uint64_t addresses = 1 + t_rng_below(&rng, 300);
    for (size_t i = 0; i < 600; i++) {
      static const tide_action actions[] = { TIDE_ACTION_ALLOC, TIDE_ACTION_FREE_COMPLETED, TIDE_ACTION_OOM };
      memory_add_plain(trace, actions[t_rng_below(&rng, 3)], t_rng_below(&rng, addresses) << 30,
                       t_rng_below(&rng, 100));
    }
    tide__lifetimes all = lifetimes_of(trace, TIDE__LIFETIMES_OF_REQUESTS);
    size_t at = 0;
    for (size_t i = 0; i < all.entry_count; i++) {
      if (all.entries[i].action != TIDE_ACTION_ALLOC) continue;
      while (all.items[at].begin == 0) at++;
      expect_lifetime(&all.items[at], i + 1, model_end(all.entries, all.entry_count, i),
                      all.entries[i].bytes);
      T_PTR_EQ(tide__lifetimes_begun_by(&all, i), &all.items[at]);
      at++;
    }
    uint64_t peak = 0;
    for (uint64_t instant = 0; instant <= all.entry_count; instant++) {
      uint64_t live = 0;
      for (size_t i = 0; i < all.count; i++) {
        if (tide__lifetime_is_live(&all.items[i], instant)) live += all.items[i].bytes;
      }
      if (instant == all.peak_instant) T_EQ(live, all.peak_bytes);
      if (instant < all.peak_instant) T_LT(live, all.peak_bytes);
      if (live > peak) peak = live;
    }
    T_EQ(peak, all.peak_bytes);
    tide__lifetimes_fini(&all);
    tide_trace_free(trace);
  }
}
