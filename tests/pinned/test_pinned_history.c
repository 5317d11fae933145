// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of the pinned-host cache: what threads and users say is kept, and reaches files.
#include "format/traces.h"
#include "pinned/pinneds.h"

static void history_on(tide_pinned* p) {
  const tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  T_OK(tide_pinned_history(p, &options));
}

// What is read of a snapshot that was written in a format.
static tide_trace* snapshot_through(tide_pinned* p, tide_format format) {
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

// An annotation made the native writer fail, and no other had its text.
PINNED_TEST(test_pinned_history__annotations_reach_every_file) {
  (void)m;
  history_on(p);
  T_OK(tide_pinned_annotate(p, "my remark"));

  for (size_t i = 0; i < 3; ++i) {
    tide_trace* const again = snapshot_through(p, formats[i]);
    expect_words(again, TIDE_ACTION_USER_DEFINED, "my remark", "N/A");
    tide_trace_free(again);
  }
}

// Only the device allocator asked the thread.
PINNED_TEST(test_pinned_history__entries_have_the_words_of_their_thread) {
  (void)m;
  history_on(p);
  T_OK(tide_thread_set_metadata("epoch 3"));
  T_OK(tide_thread_push_context("0/1"));
  const tide_block block = take(p, SINGLE);
  T_OK(tide_pinned_annotate(p, "my remark"));
  T_OK(tide_thread_set_metadata("epoch 4"));
  T_OK(tide_thread_pop_context());
  give(p, block);
  T_OK(tide_thread_set_metadata(NULL));
  empty(p);

  for (size_t i = 0; i < 3; ++i) {
    tide_trace* const again = snapshot_through(p, formats[i]);
    expect_words(again, TIDE_ACTION_SEGMENT_ALLOC, "epoch 3", "0/1");
    expect_words(again, TIDE_ACTION_ALLOC, "epoch 3", "0/1");
    expect_words(again, TIDE_ACTION_USER_DEFINED, "my remark", "0/1");
    expect_words(again, TIDE_ACTION_FREE_COMPLETED, "epoch 4", "N/A");
    expect_words(again, TIDE_ACTION_SEGMENT_FREE, "", "N/A");
    tide_trace_free(again);
  }
}

// The thread remembers the note that its words have in a table: it must be that of this table.
PINNED_TEST(test_pinned_history__two_caches_have_their_own_notes) {
  tide_pinned* other = NULL;
  T_OK(tide_pinned_new(m, NULL, &other));
  history_on(p);
  history_on(other);
  for (int i = 0; i < 20; ++i) {
    char text[32];
    (void)snprintf(text, sizeof text, "step %d", i);
    if (i % 3 == 0) T_OK(tide_pinned_annotate(other, text));
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

  tide_pinned* const caches[2] = { p, other };
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

// The device allocator took 0 for 1 and this cache refused it.
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
