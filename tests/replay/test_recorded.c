// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The settings in a recording, in PyTorch's forms and in wrong ones.
#include "replay/recorded.h"

#include "replay/by_hand.h"

#define MIB ((int64_t)1 << 20)

typedef struct settings {
  tide_trace* trace;
  uint64_t items[32];
  size_t count;
} settings;

static uint64_t settings_pair(tide_trace* trace, const char* key, tide_value value) {
  uint32_t key_id = 0;
  uint32_t value_id = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), key, strlen(key), &key_id));
  T_OK(tide_intern_add_value(tide_trace_names(trace), &value, &value_id));
  return (uint64_t)key_id << 32 | value_id;
}

static void settings_add(settings* s, const char* key, tide_value value) {
  s->items[s->count++] = settings_pair(s->trace, key, value);
}

static tide_value value_int(int64_t n) { return (tide_value){ .kind = TIDE_VALUE_INT, .integer = n }; }
static tide_value value_real(double n) { return (tide_value){ .kind = TIDE_VALUE_FLOAT, .number = n }; }
static tide_value value_bool(bool is_on) { return (tide_value){ .kind = TIDE_VALUE_BOOL, .integer = is_on }; }

static tide_value value_text(tide_trace* trace, const char* text) {
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  T_OK(tide_intern_add_text(tide_trace_names(trace), text, strlen(text), &value.text));
  return value;
}

static void expect_options(settings* s, const char* want) {
  char text[512];
  tide_trace_about about = { .has_entries = true };
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = s->items, .count = s->count };
  T_OK(tide_intern_add_value(tide_trace_names(s->trace), &dict, &about.settings));
  tide_trace_set_about(s->trace, &about);
  const tide_device_options options = tide__recorded_options(s->trace);
  (void)tide_device_options_print(&options, text, sizeof text);
  T_STR_EQ(text, want);
  tide_trace_free(s->trace);
}

T_TEST(test_recorded__settings_are_read_one_by_one) {
  settings s = { .trace = trace_new() };
  const uint64_t slots[] = { settings_pair(s.trace, "1", value_int(4)),
                             settings_pair(s.trace, "32768", value_int(8)) };
  settings_add(&s, "max_split_size", value_int(128 * MIB));
  settings_add(&s, "garbage_collection_threshold", value_real(0.25));
  settings_add(&s, "expandable_segments", value_bool(true));
  settings_add(&s, "release_lock_on_cudamalloc", value_bool(true));
  settings_add(&s, "graph_capture_record_stream_reuse", value_bool(true));
  settings_add(&s, "roundup_power2_divisions",
               (tide_value){ .kind = TIDE_VALUE_DICT, .items = slots, .count = 2 });

  expect_options(&s, "max_split_size_mb:128,garbage_collection_threshold:0.25,"
                     "roundup_power2_divisions:[1:4,16384:0,>:8],expandable_segments:True,"
                     "graph_capture_record_stream_reuse:True,release_lock_on_cudamalloc:True");
}

T_TEST(test_recorded__text_adds_what_the_list_lacks) {
  settings s = { .trace = trace_new() };
  settings_add(
      &s, "PYTORCH_CUDA_ALLOC_CONF",
      value_text(s.trace, "large_segment_size_mb:40,max_split_size_mb:100,expandable_segments:True"));
  settings_add(&s, "max_split_size", value_int(-1));
  settings_add(&s, "expandable_segments", value_bool(false));

  expect_options(&s, "large_segment_size_mb:40");
}

T_TEST(test_recorded__settings_that_are_wrong_are_left_alone) {
  settings s = { .trace = trace_new() };
  const uint64_t slots[] = { settings_pair(s.trace, "1", value_int(3)),
                             settings_pair(s.trace, "2", value_int(-4)),
                             settings_pair(s.trace, "4", value_int(INT64_MAX)),
                             settings_pair(s.trace, "7", value_int(2)) };
  settings_add(&s, "PYTORCH_CUDA_ALLOC_CONF", value_text(s.trace, "expandable_segments:maybe"));
  settings_add(&s, "max_split_size", value_int(5 * MIB));
  settings_add(&s, "garbage_collection_threshold", value_real(1.5));
  settings_add(&s, "expandable_segments", value_int(1));
  settings_add(&s, "roundup_power2_divisions",
               (tide_value){ .kind = TIDE_VALUE_DICT, .items = slots, .count = 4 });

  expect_options(&s, "");
}

T_TEST(test_recorded__settings_that_are_missing_are_the_defaults) {
  settings s = { .trace = trace_new() };
  expect_options(&s, "");
}
