// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A trace as a container: additions appear in order, and a failing heap loses nothing.
#include "machine/counting_heap.h"
#include "tidemark/trace.h"
#include "trace/limit.h"

static tide_trace* trace_new(const tide_heap* heap) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(heap, &trace));
  return trace;
}

// The entry, segment and block of a number are known from it.
static tide_trace_entry entry_of(uint64_t n, uint8_t device) {
  return (tide_trace_entry){ .time_ns = n,
                             .address = 512 * n,
                             .bytes = n ^ 5,
                             .stream = n % 3,
                             .stack = (uint32_t)n,
                             .action = (uint8_t)(n % TIDE_ACTION_COUNT),
                             .device = device };
}

static tide_trace_segment segment_of(uint64_t n) {
  return (tide_trace_segment){ .address = n << 21, .bytes = n, .device = (uint8_t)n, .is_large = n % 2 == 0 };
}

static tide_trace_block block_of(uint64_t n) {
  return (tide_trace_block){ .address = n, .bytes = n + 1, .state = (uint8_t)(n % 3) };
}

static void expect_entries(const tide_trace* trace, uint8_t device, size_t count) {
  size_t got = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &got);
  T_EQ(got, count);
  for (size_t i = 0; i < count; i++) {
    const tide_trace_entry wanted = entry_of(i, device);
    T_EQ(memcmp(&entries[i], &wanted, sizeof wanted), 0);
  }
}

// ---------------------------------------------------------------------------------------------------
// Adding and looking

T_TEST(test_trace__is_empty_at_first) {
  tide_trace* const trace = trace_new(NULL);
  size_t count = 7;

  T_EQ(tide_trace_device_count(trace), 0);
  T_PTR_EQ(tide_trace_entries(trace, 0, &count), NULL);
  T_EQ(count, 0);
  count = 7;
  T_PTR_EQ(tide_trace_segments(trace, &count), NULL);
  T_EQ(count, 0);
  count = 7;
  T_PTR_EQ(tide_trace_blocks(trace, &count), NULL);
  T_EQ(count, 0);
  T_EQ(tide_trace_pool_count(trace), 1);
  T_EQ(tide_intern_counts_of(tide_trace_names(trace)).texts, 0);
  const tide_trace_about about = tide_trace_get_about(trace);
  T_EQ(about.settings + about.annotations + about.extra, 0);
  T_CHECK(!about.has_segments && !about.has_entries && !about.is_segments_only);
  T_CHECK(!about.is_cut && !about.has_steps);
  tide_trace_free(trace);
}

T_TEST(test_trace__keeps_the_entries_of_each_device_in_order) {
  enum { COUNT = 10000 };
  tide_trace* const trace = trace_new(NULL);

  for (uint64_t i = 0; i < COUNT; i++) {
    for (uint8_t device = 0; device < 3; device++) {
      const tide_trace_entry entry = entry_of(i, device);
      if (i % (device + 1u) == 0 || device == 0) T_OK(tide_trace_add_entry(trace, &entry));
    }
  }

  T_EQ(tide_trace_device_count(trace), 3);
  expect_entries(trace, 0, COUNT);
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 2, &count);
  T_EQ(count, (COUNT + 2) / 3);
  for (size_t i = 0; i < count; i++) T_EQ(entries[i].time_ns, 3 * i);
  tide_trace_free(trace);
}

T_TEST(test_trace__an_entry_has_48_bytes) { T_EQ(sizeof(tide_trace_entry), 48); }

T_TEST(test_trace__devices_may_be_idle) {
  tide_trace* const trace = trace_new(NULL);
  size_t count = 7;

  T_OK(tide_trace_add_device(trace, 5));
  T_OK(tide_trace_add_device(trace, 2));
  T_OK(tide_trace_add_entry(trace, &(tide_trace_entry){ .device = 7 }));

  T_EQ(tide_trace_device_count(trace), 8);
  for (size_t device = 0; device < 8; device++) {
    (void)tide_trace_entries(trace, device, &count);
    T_EQ(count, device == 7);
  }
  T_PTR_EQ(tide_trace_entries(trace, 8, &count), NULL);
  T_EQ(count, 0);
  T_PTR_EQ(tide_trace_entries(trace, SIZE_MAX, &count), NULL);
  tide_trace_free(trace);
}

T_TEST(test_trace__has_256_devices_at_most) {
  tide_trace* const trace = trace_new(NULL);

  T_OK(tide_trace_add_device(trace, 255));
  T_STATUS(tide_trace_add_device(trace, 256), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_device(trace, SIZE_MAX), TIDE_ERR_ARGUMENT);

  T_EQ(tide_trace_device_count(trace), 256);
  tide_trace_free(trace);
}

T_TEST(test_trace__blocks_belong_to_the_segment_before_them) {
  enum { SEGMENTS = 300 };
  tide_trace* const trace = trace_new(NULL);
  uint64_t blocks_added = 0;

  for (uint64_t i = 0; i < SEGMENTS; i++) {
    tide_trace_segment segment = segment_of(i);
    segment.first_block = 12345;  // which is not its matter
    segment.block_count = 6789;
    T_OK(tide_trace_add_segment(trace, &segment));
    for (uint64_t k = 0; k < i % 7; k++, blocks_added++) {
      const tide_trace_block block = block_of(blocks_added);
      T_OK(tide_trace_add_block(trace, &block));
    }
  }

  size_t count = 0;
  size_t block_count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  const tide_trace_block* const blocks = tide_trace_blocks(trace, &block_count);
  uint64_t first = 0;
  T_EQ(count, SEGMENTS);
  T_EQ(block_count, blocks_added);
  for (uint64_t i = 0; i < count; i++) {
    T_EQ(segments[i].address, i << 21);
    T_EQ(segments[i].first_block, first);
    T_EQ(segments[i].block_count, i % 7);
    first += i % 7;
  }
  for (uint64_t i = 0; i < block_count; i++) T_EQ(blocks[i].bytes, i + 1);
  tide_trace_free(trace);
}

T_TEST(test_trace__a_block_needs_a_segment) {
  tide_trace* const trace = trace_new(NULL);
  const tide_trace_block block = block_of(1);
  T_STATUS(tide_trace_add_block(trace, &block), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(tide_trace_blocks(trace, NULL), NULL);
  tide_trace_free(trace);
}

T_TEST(test_trace__keeps_what_is_said_of_it) {
  tide_trace* const trace = trace_new(NULL);
  const tide_trace_about about = {
    .settings = 3, .annotations = 4, .extra = 5, .has_segments = true, .is_cut = true
  };

  tide_trace_set_about(trace, &about);
  tide_trace_set_about(trace, NULL);

  const tide_trace_about got = tide_trace_get_about(trace);
  T_EQ(got.settings, 3);
  T_EQ(got.annotations, 4);
  T_EQ(got.extra, 5);
  T_CHECK(got.has_segments && got.is_cut && !got.has_entries);
  tide_trace_free(trace);
}

T_TEST(test_trace__names_of_states_go_both_ways) {
  for (uint32_t state = 0; state <= TIDE_BLOCK_PENDING; state++)
    T_EQ(tide_block_state_from_name(tide_block_state_name(state)), (int)state);
  T_STR_EQ(tide_block_state_name(TIDE_BLOCK_ALLOCATED), "active_allocated");
  T_EQ(tide_block_state_from_name("active_awaiting_free"), TIDE_BLOCK_PENDING);
  T_EQ(tide_block_state_from_name("active"), -1);
  T_EQ(tide_block_state_from_name(""), -1);
  T_EQ(tide_block_state_from_name(NULL), -1);
  T_PTR_EQ(tide_block_state_name(3), NULL);
  T_PTR_EQ(tide_block_state_name(UINT32_MAX), NULL);
}

// ---------------------------------------------------------------------------------------------------
// Pools

static uint32_t pool_add(tide_trace* trace, uint64_t first, uint64_t second) {
  uint32_t number = UINT32_MAX;
  T_OK(tide_trace_add_pool(trace, (tide_pool_label){ first, second }, &number));
  return number;
}

T_TEST(test_trace__pools_are_numbered_as_they_come) {
  tide_trace* const trace = trace_new(NULL);

  for (int round = 0; round < 2; round++) {
    T_EQ(pool_add(trace, 0, 0), 0);
    T_EQ(pool_add(trace, 0, 5), 1);
    T_EQ(pool_add(trace, 5, 0), 2);
    T_EQ(pool_add(trace, UINT64_MAX, UINT64_MAX), 3);
  }

  T_EQ(tide_trace_pool_count(trace), 4);
  T_EQ(tide_trace_pool(trace, 2).first, 5);
  T_EQ(tide_trace_pool(trace, 3).second, UINT64_MAX);
  for (uint32_t number = 4; number != 0; number *= 2) {
    T_EQ(tide_trace_pool(trace, number).first, 0);
    T_EQ(tide_trace_pool(trace, number).second, 0);
  }
  T_EQ(tide_trace_pool(trace, 0).first, 0);
  tide_trace_free(trace);
}

T_TEST(test_trace__has_a_limit_of_pools) {
  tide_trace* const trace = trace_new(NULL);
  uint32_t number = 0;
  tide_status status = TIDE_OK;
  uint64_t added = 0;

  while (status == TIDE_OK && added < 100000) {
    status = tide_trace_add_pool(trace, (tide_pool_label){ 1, added }, &number);
    if (status == TIDE_OK) T_EQ(number, ++added);
  }

  T_STATUS(status, TIDE_ERR_LIMIT);
  T_EQ(number, 0);
  T_EQ(tide_trace_pool_count(trace), added + 1);
  T_EQ(added, 16384);
  T_EQ(pool_add(trace, 1, 77), 78);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Bad input

T_TEST(test_trace__no_trace_is_an_empty_one) {
  size_t count = 7;
  const tide_trace_about about = { .extra = 1 };
  tide_trace_free(NULL);
  tide_trace_set_about(NULL, &about);
  T_EQ(tide_trace_get_about(NULL).extra, 0);
  T_PTR_EQ(tide_trace_names(NULL), NULL);
  T_EQ(tide_trace_device_count(NULL), 0);
  T_PTR_EQ(tide_trace_entries(NULL, 0, &count), NULL);
  T_EQ(count, 0);
  T_PTR_EQ(tide_trace_segments(NULL, NULL), NULL);
  T_PTR_EQ(tide_trace_blocks(NULL, NULL), NULL);
  T_EQ(tide_trace_pool_count(NULL), 0);
  T_EQ(tide_trace_pool(NULL, 1).first, 0);
}

T_TEST(test_trace__refuses_bad_input) {
  const tide_heap half = { NULL, counting_release, NULL };
  tide_trace* trace = (tide_trace*)&trace;
  uint32_t number = 5;
  const tide_trace_entry entry = { 0 };
  const tide_trace_segment segment = { 0 };
  const tide_trace_block block = { 0 };

  T_STATUS(tide_trace_new(&half, &trace), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(trace, NULL);
  T_STATUS(tide_trace_new(NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_device(NULL, 0), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_entry(NULL, &entry), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_segment(NULL, &segment), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_block(NULL, &block), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_pool(NULL, (tide_pool_label){ 1, 1 }, &number), TIDE_ERR_ARGUMENT);
  T_EQ(number, 0);
  trace = trace_new(NULL);
  T_STATUS(tide_trace_add_entry(trace, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_segment(trace, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_block(trace, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_pool(trace, (tide_pool_label){ 1, 1 }, NULL), TIDE_ERR_ARGUMENT);
  T_EQ(tide_trace_device_count(trace), 0);
  T_EQ(tide_trace_pool_count(trace), 1);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Memory

typedef struct trace_counts {
  size_t devices;
  size_t entries;
  size_t segments;
  size_t blocks;
  size_t pools;
} trace_counts;

static trace_counts counts_of(const tide_trace* trace) {
  trace_counts counts = { .devices = tide_trace_device_count(trace), .pools = tide_trace_pool_count(trace) };
  for (size_t device = 0; device < counts.devices; device++) {
    size_t count = 0;
    (void)tide_trace_entries(trace, device, &count);
    counts.entries += count;
  }
  (void)tide_trace_segments(trace, &counts.segments);
  (void)tide_trace_blocks(trace, &counts.blocks);
  return counts;
}

// One of the ways to add, by its number; the same call can be made again.
static tide_status add_one(tide_trace* trace, uint64_t n) {
  uint32_t number = 0;
  const tide_trace_entry entry = entry_of(n / 5, (uint8_t)(n % 4));
  const tide_trace_segment segment = segment_of(n);
  const tide_trace_block block = block_of(n);
  switch (n % 5) {
    case 0: return tide_trace_add_segment(trace, &segment);
    case 1: return tide_trace_add_block(trace, &block);
    case 2: return tide_trace_add_pool(trace, (tide_pool_label){ n, 1 }, &number);
    case 3: return tide_trace_add_device(trace, n % 251);
    default: return tide_trace_add_entry(trace, &entry);
  }
}

// A call that fails changes nothing, and can be repeated.
static void add_all(tide_trace* trace, const counting_heap* h, uint64_t count) {
  for (uint64_t n = 0; n < count; n++) {
    const trace_counts before = counts_of(trace);
    const tide_status status = add_one(trace, n);
    if (status == TIDE_OK) continue;
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    T_CHECK(atomic_load(&h->has_failed));
    const trace_counts after = counts_of(trace);
    T_EQ(memcmp(&before, &after, sizeof before), 0);
    T_OK(add_one(trace, n));
  }
}

static bool run_with_failure_at(size_t fail_at, const trace_counts* wanted, trace_counts* out) {
  counting_heap h;
  tide_trace* trace = NULL;
  counting_heap_init(&h, fail_at, false);
  if (tide_trace_new(&h.heap, &trace) != TIDE_OK) {
    T_PTR_EQ(trace, NULL);
    T_OK(tide_trace_new(&h.heap, &trace));
  }
  add_all(trace, &h, 1500);
  *out = counts_of(trace);
  if (wanted != NULL) T_EQ(memcmp(out, wanted, sizeof *out), 0);
  tide_trace_free(trace);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

T_TEST(test_trace__may_fail_at_any_alloc) {
  trace_counts wanted;
  trace_counts got;
  size_t fail_at = 0;
  T_CHECK(!run_with_failure_at(SIZE_MAX, NULL, &wanted));
  T_EQ(wanted.segments, 300);

  while (run_with_failure_at(fail_at, &wanted, &got)) fail_at++;

  T_LT(20, fail_at);
}

T_TEST(test_trace__grows_by_a_quarter) {
  enum { COUNT = 200000 };
  counting_heap h;
  counting_heap_init(&h, SIZE_MAX, false);
  tide_trace* const trace = trace_new(&h.heap);
  const size_t empty = atomic_load(&h.outstanding);

  for (size_t i = 1; i <= COUNT; i++) {
    const tide_trace_entry entry = entry_of(i, 0);
    T_OK(tide_trace_add_entry(trace, &entry));
    T_LE(atomic_load(&h.outstanding) - empty, i * sizeof entry / 4 * 5 + 8192);
  }

  T_LT(atomic_load(&h.allocs), 100);
  tide_trace_free(trace);
}

T_TEST(test_trace__takes_no_more_than_its_limit) {
  size_t fitted = 0;
  for (uint64_t limit = 0; limit < 1 << 20; limit += 1 + limit / 4) {
    counting_heap h;
    tide_trace* trace = NULL;
    counting_heap_init(&h, SIZE_MAX, false);
    const tide_status status = tide__trace_new_limited(&h.heap, limit, &trace);
    if (status != TIDE_OK) {
      T_STATUS(status, TIDE_ERR_LIMIT);
      T_PTR_EQ(trace, NULL);
      T_EQ(atomic_load(&h.outstanding), 0);
      continue;
    }
    size_t n = 0;
    while (add_one(trace, n) == TIDE_OK && n < 100000) {
      T_LE(atomic_load(&h.outstanding), limit + 4096);  // its own record is left out
      n++;
    }
    T_EQ(tide__limited_heap_has_refused(tide__trace_limited_heap(trace)), n < 100000);
    T_LE(fitted, n);
    fitted = n;
    tide__limited_heap_raise(tide__trace_limited_heap(trace), UINT64_MAX);
    T_OK(add_one(trace, n));
    tide_trace_free(trace);
    T_EQ(atomic_load(&h.outstanding), 0);
  }
  T_LT(500, fitted);
}
