// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Steps and leaks of traces: loops made by hand, and recordings of PyTorch, also without their beginning.
#include "ledger/recorded.h"
#include "machine/counting_heap.h"
#include "tidemark/steps.h"

#define BASE (UINT64_C(1) << 40)

typedef struct both {
  tide_ledger* ledger;
  tide_steps* steps;
} both;

static both steps_of(const tide_trace* trace, const tide_steps_options* options) {
  both b = { NULL, NULL };
  T_OK(tide_ledger_new(trace, 0, &b.ledger));
  T_OK(tide_steps_find(trace, 0, b.ledger, options, &b.steps));
  return b;
}

static void all_free(both b, tide_trace* trace) {
  tide_steps_free(b.steps);
  tide_ledger_free(b.ledger);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// A loop: four blocks of changing sizes in each step, freed in another order; and perhaps one that is kept

static uint64_t block_at(uint32_t i) { return BASE + i * MIB; }

static void loop_add_step(tide_trace* trace, uint32_t step) {
  static const uint32_t frees[] = { 1, 4, 0, 3, 2, 5 };
  for (uint32_t i = 0; i < 6; i++)
    trace_add(trace, TIDE_ACTION_ALLOC, block_at(i), 1000 * (step % 7 + 1) + i);
  for (uint32_t i = 0; i < 6; i++) {
    trace_add_free(trace, block_at(frees[i]), 1000 * (step % 7 + 1) + frees[i]);
    if (i == 2) trace_add(trace, TIDE_ACTION_ALLOC, block_at(7), 512);
  }
  trace_add_free(trace, block_at(7), 512);
}

static tide_trace* loop_new(uint32_t steps, uint32_t period, const tide_heap* heap) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(heap, &trace));
  T_OK(tide_trace_add_device(trace, 0));
  trace_add(trace, TIDE_ACTION_SEGMENT_ALLOC, BASE, 1024 * MIB);
  for (uint32_t step = 0; step < steps; step++) {
    if (period > 0 && step % period == 0) trace_add(trace, TIDE_ACTION_ALLOC, block_at(16 + step), 5000);
    loop_add_step(trace, step);
  }
  return trace;
}

T_TEST(test_run_steps__finds_a_loop) {
  tide_trace* const trace = loop_new(20, 0, NULL);
  const both b = steps_of(trace, NULL);
  size_t count = 0;
  const tide_step* const items = tide_steps_items(b.steps, &count);
  T_CHECK(tide_steps_get_source(b.steps) == TIDE_STEPS_SEQUENCE ||
          tide_steps_get_source(b.steps) == TIDE_STEPS_LEVEL);
  T_LE(17, tide_steps_whole(b.steps));  // a sequence is longer than a step here, so the last are not seen
  T_LE(tide_steps_whole(b.steps), 20);
  for (size_t i = 0; i < count; i++) {
    if (items[i].is_whole) T_EQ(items[i].end - items[i].first, 21);
    if (i > 0) T_EQ(items[i].first, items[i - 1].end);
  }
  T_EQ(items[0].first, 0);
  T_CHECK(tide_steps_name(b.steps) == NULL);
  all_free(b, trace);
}

T_TEST(test_run_steps__finds_what_a_loop_keeps) {
  for (uint32_t period = 1; period <= 3; period += 2) {
    tide_trace* const trace = loop_new(60, period, NULL);
    tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
    options.entries = period == 1 ? 22 : 64;  // three steps have one block more
    const both b = steps_of(trace, &options);
    size_t count = 0;
    const tide_leak* const leaks = tide_steps_leaks(b.steps, &count);
    T_EQ(tide_steps_get_source(b.steps), TIDE_STEPS_ENTRIES);
    T_EQ(count, 1);
    T_EQ(leaks[0].smallest, 5000);
    T_EQ(leaks[0].largest, 5000);
    T_EQ(leaks[0].bytes, 5120 * leaks[0].blocks);
    T_CHECK(leaks[0].blocks_per_step > 0.99 && leaks[0].blocks_per_step < 1.01);
    T_EQ(leaks[0].site, 0);
    all_free(b, trace);
  }
}

T_TEST(test_run_steps__finds_no_leak_in_few_steps) {
  for (uint32_t steps = 1; steps < 20; steps++) {
    tide_trace* const trace = loop_new(steps, 1, NULL);
    tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
    options.entries = 22;
    const both b = steps_of(trace, &options);
    size_t count = 0;
    (void)tide_steps_leaks(b.steps, &count);
    T_EQ(tide_steps_whole(b.steps), steps);
    T_EQ(count, steps >= TIDE_LEAK_STEPS ? 1 : 0);
    all_free(b, trace);
  }
}

static uint64_t site_of_all(void* user, uint32_t stack) {
  ++*(size_t*)user;
  return stack + UINT64_C(100);
}

T_TEST(test_run_steps__asks_for_call_sites) {
  tide_trace* const trace = trace_new();
  const uint64_t frame = 1;
  uint32_t stack = 0;
  size_t calls = 0;
  T_OK(tide_intern_add_stack(tide_trace_names(trace), &frame, 1, &stack));
  for (uint64_t i = 0; i < 40; i++) {
    const tide_trace_entry entry = { .address = BASE + i * MIB, .bytes = 100 + i * 5000, .stack = stack };
    T_OK(tide_trace_add_entry(trace, &entry));
  }
  tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
  options.entries = 2;
  options.site = site_of_all;
  options.user = &calls;
  const both b = steps_of(trace, &options);
  size_t count = 0;
  const tide_leak* const leaks = tide_steps_leaks(b.steps, &count);
  T_EQ(count, 1);
  T_EQ(leaks[0].site, stack + 100);
  T_EQ(leaks[0].stack, stack);
  T_CHECK(leaks[0].smallest < leaks[0].largest);
  T_EQ(calls, 40);
  all_free(b, trace);
}

T_TEST(test_run_steps__blocks_that_wait_are_freed) {
  tide_trace* const trace = trace_new();
  for (uint64_t i = 0; i < 40; i++) {
    trace_add(trace, TIDE_ACTION_ALLOC, BASE + i * MIB, 4096);
    trace_add(trace, TIDE_ACTION_FREE_REQUESTED, BASE + i * MIB, 4096);  // and never completed
  }
  tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
  options.entries = 2;
  const both b = steps_of(trace, &options);
  size_t count = 0;
  size_t leaks = 0;
  const tide_step* const items = tide_steps_items(b.steps, &count);
  (void)tide_steps_leaks(b.steps, &leaks);
  T_EQ(count, 40);
  T_EQ(leaks, 0);
  T_EQ(items[39].live_bytes, 40 * 4096);
  all_free(b, trace);
}

// ---------------------------------------------------------------------------------------------------
// Recordings

// The highest step is the peak of the ledger, and the last row ends as the recording does.
static void expect_as_ledger(const both* b, const tide_trace* trace) {
  size_t count = 0;
  size_t entries = 0;
  const tide_step* const items = tide_steps_items(b->steps, &count);
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(b->ledger);
  uint64_t live = 0;
  uint64_t reserved = 0;
  (void)tide_trace_entries(trace, 0, &entries);
  for (size_t i = 0; i < count; i++) {
    live = items[i].peak_bytes > live ? items[i].peak_bytes : live;
    reserved = items[i].reserved_bytes > reserved ? items[i].reserved_bytes : reserved;
  }
  T_LT(0, count);
  if (peaks.live.at != TIDE_LEDGER_BEFORE) T_EQ(live, peaks.live.bytes);
  if (peaks.reserved.at != TIDE_LEDGER_BEFORE) T_EQ(reserved, peaks.reserved.bytes);
  T_EQ(items[count - 1].end, entries);
  for (size_t i = 0; i < count; i += 1 + count / 20) {
    T_OK(tide_ledger_seek(b->ledger, items[i].end - 1));
    T_EQ(items[i].live_bytes, tide_ledger_get_totals(b->ledger).live_bytes);
    T_OK(tide_ledger_seek(b->ledger, items[i].peak_at));
    T_EQ(items[i].peak_bytes, tide_ledger_get_totals(b->ledger).live_bytes);
  }
}

T_TEST_OVER(test_run_steps__agree_with_the_ledger, recorded_names) {
  size_t count = 0;
  tide_trace* const whole = recorded_trace(t_variant(), 0, NULL);
  (void)tide_trace_entries(whole, 0, &count);
  tide_trace_free(whole);
  for (size_t skip = 0; skip < count; skip += count / 5 + 1) {
    tide_trace* const trace = recorded_trace(t_variant(), skip, NULL);
    tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
    options.entries = 1 + (count - skip) / 40;
    const both b = steps_of(trace, &options);
    expect_as_ledger(&b, trace);
    all_free(b, trace);
  }
}

T_TEST_OVER(test_run_steps__no_recording_leaks, recorded_names) {
  tide_trace* const trace = trace_of_test(t_variant());
  const both b = steps_of(trace, NULL);
  size_t leaks = 0;
  (void)tide_steps_leaks(b.steps, &leaks);
  T_EQ(leaks, 0);
  const bool is_annotated = strncmp(t_variant(), "gnn_", 4) == 0;
  T_EQ(tide_steps_get_source(b.steps) == TIDE_STEPS_ANNOTATION, is_annotated);
  if (is_annotated) {
    T_EQ(tide_steps_whole(b.steps), 14);
    T_EQ(strcmp(tide_steps_name(b.steps), "Optimizer.step#Adam.step"), 0);
  }
  all_free(b, trace);
}

// ---------------------------------------------------------------------------------------------------
// Arguments and memory

// The frames of a live trace are addresses. Here one has the lower half of the number of a frame.
T_TEST(test_run_steps__an_address_is_no_frame) {
  tide_trace* const trace = loop_new(0, 0, NULL);
  tide_intern* const names = tide_trace_names(trace);
  tide_frame frame = { .line = 1 };
  uint32_t number = 0;
  uint32_t stack = 0;
  T_OK(tide_intern_add_text(names, "Optimizer.step", 14, &frame.name));
  T_OK(tide_intern_add_frame(names, &frame, &number));
  const uint64_t address = UINT64_C(0x7f00000000) << 8 | number;
  T_OK(tide_intern_add_stack(names, &address, 1, &stack));
  for (uint32_t i = 0; i < 20; i++) {
    const tide_trace_entry entry = { .address = block_at(1), .bytes = 512, .stack = stack };
    T_OK(tide_trace_add_entry(trace, &entry));
    trace_add_free(trace, block_at(1), 512);
    loop_add_step(trace, i);
  }
  const both b = steps_of(trace, NULL);
  T_EQ(tide_steps_get_source(b.steps), TIDE_STEPS_SEQUENCE);
  all_free(b, trace);
}

T_TEST(test_run_steps__a_request_for_nothing_counts_as_in_the_ledger) {
  tide_trace* const trace = loop_new(0, 0, NULL);
  trace_add(trace, TIDE_ACTION_ALLOC, block_at(20), 0);
  for (uint32_t i = 0; i < 20; i++) loop_add_step(trace, i);
  const both b = steps_of(trace, NULL);
  size_t count = 0;
  uint64_t peak = 0;
  const tide_step* const items = tide_steps_items(b.steps, &count);
  for (size_t i = 0; i < count; i++) peak = items[i].peak_bytes > peak ? items[i].peak_bytes : peak;
  T_LT(0, count);
  T_EQ(peak, tide_ledger_get_peaks(b.ledger).live.bytes);
  all_free(b, trace);
}

T_TEST(test_run_steps__of_nothing) {
  tide_trace* const trace = trace_new();
  const both b = steps_of(trace, NULL);
  size_t count = 1;
  (void)tide_steps_items(b.steps, &count);
  T_EQ(count, 0);
  T_EQ(tide_steps_get_source(b.steps), TIDE_STEPS_NONE);
  T_EQ(tide_steps_get_source(NULL), TIDE_STEPS_NONE);
  T_EQ(tide_steps_whole(NULL), 0);
  T_CHECK(tide_steps_items(NULL, NULL) == NULL && tide_steps_leaks(NULL, NULL) == NULL);
  T_CHECK(tide_steps_name(NULL) == NULL && tide_steps_source_name(99) == NULL);
  T_EQ(strcmp(tide_steps_source_name(TIDE_STEPS_LEVEL), "level"), 0);
  tide_steps_free(NULL);
  all_free(b, trace);
}

T_TEST(test_run_steps__refuses_bad_arguments) {
  tide_trace* const trace = trace_new();
  tide_ledger* ledger = NULL;
  tide_steps* steps = NULL;
  tide_steps_options options = TIDE_STEPS_OPTIONS_INIT;
  T_OK(tide_ledger_new(trace, 0, &ledger));
  T_STATUS(tide_steps_find(NULL, 0, ledger, NULL, &steps), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_steps_find(trace, 0, NULL, NULL, &steps), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_steps_find(trace, 0, ledger, NULL, NULL), TIDE_ERR_ARGUMENT);
  options.size = 4096;
  T_STATUS(tide_steps_find(trace, 0, ledger, &options, &steps), TIDE_ERR_ARGUMENT);
  T_CHECK(steps == NULL);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}

T_TEST(test_run_steps__survive_the_failure_of_every_allocation) {
  counting_heap heap;
  tide_ledger* ledger = NULL;
  counting_heap_init(&heap, SIZE_MAX, false);
  tide_trace* const trace = loop_new(80, 1, &heap.heap);
  T_OK(tide_ledger_new(trace, 0, &ledger));
  const size_t outstanding = heap.outstanding;
  size_t failures = 0;
  for (bool is_done = false; !is_done;) {
    tide_steps* steps = NULL;
    heap.fail_at = heap.allocs + failures;
    heap.has_failed = false;
    const tide_status status = tide_steps_find(trace, 0, ledger, NULL, &steps);
    is_done = !heap.has_failed;
    T_STATUS(status, is_done ? TIDE_OK : TIDE_ERR_NO_MEMORY);
    T_EQ(steps != NULL, is_done);
    tide_steps_free(steps);
    T_EQ(heap.outstanding, outstanding);
    failures += !is_done;
  }
  T_LT(10, failures);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
}
