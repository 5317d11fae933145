// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of the pinned-host cache: notes of threads are kept, and reach files.
#define T_THREADS
#include "format/traces.h"
#include "pinned/pinneds.h"

static void history_on(tide_pinned_cache* p) {
  const tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  T_OK(tide_pinned_history(p, &options));
}

// A snapshot, written in a format and read again.
static tide_trace* snapshot_through(tide_pinned_cache* p, tide_format format) {
  memory_file file = { 0 };
  tide_trace* trace = NULL;
  tide_trace* again = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_pinned_snapshot(p, NULL, 0, trace));
  const tide_sink sink = memory_file_sink(&file);
  T_OK(tide_trace_write(trace, format, &sink));
  const tide_source source = memory_file_source(&file);
  T_OK(tide_trace_read(&source, NULL, &again));
  memory_file_fini(&file);
  tide_trace_free(trace);
  return again;
}

static tide_note note_of(const tide_trace* trace, tide_action action) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].action == action) return tide_intern_note(tide_trace_names(trace), entries[i].note);
  }
  T_FAIL("there is no %s", tide_action_name(action));
}

static void expect_words(const tide_trace* trace, tide_action action, const char* metadata,
                         const char* context) {
  const tide_intern* const names = tide_trace_names(trace);
  const tide_note note = note_of(trace, action);
  const char* const words = tide_intern_text(names, note.metadata, NULL);
  T_STR_EQ(words != NULL ? words : "", metadata);
  T_STR_EQ(tide_intern_text(names, note.compile_context, NULL), context);
}

static const tide_format formats[] = { TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON, TIDE_FORMAT_NATIVE };

// Once only the device allocator kept the notes of threads.
PINNED_TEST(test_pinned_history__entries_have_the_words_of_their_thread) {
  (void)m;
  history_on(p);
  T_OK(tide_thread_set_metadata("epoch 3"));
  T_OK(tide_thread_push_context("0/1"));
  const tide_block block = take(p, SINGLE);
  T_OK(tide_thread_set_metadata("epoch 4"));
  T_OK(tide_thread_pop_context());
  give(p, block);
  T_OK(tide_thread_set_metadata(NULL));
  empty(p);

  for (size_t i = 0; i < 3; ++i) {
    tide_trace* const again = snapshot_through(p, formats[i]);
    expect_words(again, TIDE_ACTION_SEGMENT_ALLOC, "epoch 3", "0/1");
    expect_words(again, TIDE_ACTION_ALLOC, "epoch 3", "0/1");
    expect_words(again, TIDE_ACTION_FREE_COMPLETED, "epoch 4", "N/A");
    expect_words(again, TIDE_ACTION_SEGMENT_FREE, "", "N/A");
    tide_trace_free(again);
  }
}

// A thread caches the number of its note, which differs from one table of names to the next.
PINNED_TEST(test_pinned_history__two_caches_have_their_own_notes) {
  tide_pinned_cache* other = NULL;
  T_OK(tide_pinned_new(m, NULL, &other));
  history_on(p);
  history_on(other);
  for (int i = 0; i < 20; ++i) {
    char text[32];
    (void)snprintf(text, sizeof text, "step %d", i);
    if (i % 3 == 0) give(other, take(other, SINGLE));
    T_OK(tide_thread_set_metadata(text));
    give(p, take(p, SINGLE));
    give(other, take(other, SINGLE));
  }
  T_OK(tide_thread_set_metadata(NULL));

  tide_history_options clear = TIDE_HISTORY_OPTIONS_INIT;
  clear.clears = true;
  T_OK(tide_pinned_history(p, &clear));
  T_OK(tide_pinned_history(other, &clear));
  T_OK(tide_thread_set_metadata("last"));
  give(p, take(p, SINGLE));
  give(other, take(other, SINGLE));
  give(p, take(p, SINGLE));
  T_OK(tide_thread_set_metadata(NULL));

  tide_pinned_cache* const caches[2] = { p, other };
  for (size_t i = 0; i < 2; ++i) {
    tide_trace* const again = snapshot_through(caches[i], TIDE_FORMAT_NATIVE);
    expect_words(again, TIDE_ACTION_FREE_COMPLETED, "last", "N/A");
    tide_trace_free(again);
  }
  tide_pinned_free(other, NULL);
}

static bool count_entries(void* user, const tide_trace_entry* entries, size_t count) {
  (void)entries;
  *(size_t*)user += count;
  return true;
}

// Once the device allocator took 0 for 1, and this cache refused it.
PINNED_TEST(test_pinned_history__at_least_one_entry_is_kept) {
  (void)m;
  size_t count = 0;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = 0;
  T_OK(tide_pinned_history(p, &options));

  give(p, take(p, SINGLE));

  T_OK(tide_pinned_history_visit(p, count_entries, &count));
  T_EQ(count, 1);
}

// ---------------------------------------------------------------------------------------------------
// Numbers instead of stacks, and pools without labels, as in the device allocator

static uint32_t number_next(void* user) { return ++*(uint32_t*)user; }

static bool note_alloc_stack(void* user, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].action == TIDE_ACTION_ALLOC) *(uint32_t*)user = entries[i].stack;
  }
  return true;
}

// Once the device allocator took numbers, and this cache refused them.
PINNED_TEST(test_pinned_history__numbers_stand_for_stacks) {
  (void)m;
  uint32_t last = 40;
  uint32_t stack = 0;
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.level = TIDE_HISTORY_ALL;
  options.number = number_next;
  options.user = &last;
  T_OK(tide_pinned_history(p, &options));

  const tide_block block = take(p, SINGLE);

  T_OK(tide_pinned_history_visit(p, note_alloc_stack, &stack));
  T_EQ(stack, 41);
  T_EQ(tide_intern_counts_of(tide_pinned_names(p)).stacks, 0);
  tide_trace* trace = NULL;
  size_t count = 0;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_pinned_snapshot(p, NULL, 0, trace));
  const tide_trace_block* const blocks = tide_trace_blocks(trace, &count);
  T_EQ(count, 1);
  const tide_intern* const names = tide_trace_names(trace);
  const uint64_t* const frames = tide_intern_stack(names, blocks[0].stack, &count);
  T_EQ(count, 1);
  T_STR_EQ(tide_intern_text(names, tide_intern_frame(names, (uint32_t)frames[0]).name, NULL), "0x29");
  tide_trace_free(trace);
  give(p, block);
  const tide_history_options off = { .size = sizeof off };
  T_OK(tide_pinned_history(p, &off));
}

PINNED_TEST(test_pinned_history__a_snapshot_of_one_pool_has_nothing_of_others) {
  (void)m;
  tide_snapshot_options options = TIDE_SNAPSHOT_OPTIONS_INIT;
  tide_pool pool = pool_new(p);
  tide_trace* trace = NULL;
  size_t count = 0;
  const tide_history_options on = TIDE_HISTORY_OPTIONS_INIT;
  T_OK(tide_pinned_history(p, &on));
  (void)take(p, SINGLE);
  options.pool = &pool;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_pinned_snapshot(p, &options, 0, trace));
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 0);
  (void)tide_trace_entries(trace, 0, &count);
  T_EQ(count, 0);
  pool++;
  T_STATUS(tide_pinned_snapshot(p, &options, 0, trace), TIDE_ERR_HANDLE);
  pool = TIDE_POOL_DEFAULT;
  T_OK(tide_pinned_snapshot(p, &options, 1, trace));
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 1);
  tide_trace_free(trace);
}

static bool expect_no_label(void* user, const tide_segment_info* segment) {
  T_EQ(segment->pool_label[0], 0);
  T_EQ(segment->pool_label[1], 0);
  *(tide_pool*)user = segment->pool;
  return true;
}

PINNED_TEST(test_pinned_history__a_visit_shows_pools_without_labels) {
  (void)m;
  tide_pool pool = 0;
  tide_pool shown = 0;
  tide_pinned_scope scope = TIDE_PINNED_SCOPE_INIT;
  T_OK(tide_pinned_pool_new(p, &pool));
  T_OK(tide_pinned_pool_begin(p, pool, &scope));
  const tide_block block = take(p, SINGLE);
  T_OK(tide_pinned_pool_end(p, pool));

  const tide_device_visitor visitor = { expect_no_label, NULL, &shown };
  T_OK(tide_pinned_visit(p, &visitor));

  T_EQ(shown, pool);
  give(p, block);
  T_OK(tide_pinned_pool_drop(p, pool));
}
