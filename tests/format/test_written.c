// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Readers accept everything that writers write, and writers refuse what no reader would accept. Random traces
// have sizes at the edges, unknown actions, and extras with the keys of records. Traces that once failed are
// kept here.
#include "format/random_trace.h"
#include "format/traces.h"

static const uint32_t readable[] = { TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON, TIDE_FORMAT_NATIVE,
                                     TIDE_FORMAT_RMM, TIDE_FORMAT_MINIMALLOC };
#define READABLE (sizeof readable / sizeof readable[0])

// Writes in a format, and reads that; false when the writer refuses.
static bool written_is_read(const tide_trace* trace, uint32_t format) {
  memory_file file = { 0 };
  tide_trace* again = NULL;
  const tide_sink sink = memory_file_sink(&file);
  const tide_status status = tide_trace_write(trace, format, &sink);
  if (status == TIDE_OK) {
    tide_read_options options = TIDE_READ_OPTIONS_INIT;
    options.format = format;
    const tide_source source = memory_file_source(&file);
    T_OK(tide_trace_read(&source, &options, &again));
  } else {
    T_STATUS(status, TIDE_ERR_LIMIT);
  }
  tide_trace_free(again);
  memory_file_fini(&file);
  return status == TIDE_OK;
}

static void expect_refused_everywhere(tide_trace* trace) {
  for (size_t i = 0; i < READABLE; i++) {
    const bool is_read = written_is_read(trace, readable[i]);
    T_CHECK(!is_read || readable[i] == TIDE_FORMAT_MINIMALLOC);  // which is about numbers
  }
  tide_trace_free(trace);
}

static tide_trace* trace_of(const tide_trace_entry* entry) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_trace_add_entry(trace, entry));
  return trace;
}

T_TEST(test_written__random_traces_are_read_back) {
  size_t written = 0;
  for (size_t i = 0; i < t_scaled(300); i++) {
    tide_trace* const trace = random_trace(NULL, t_rng_new(i), 1 + i % 60);
    for (size_t k = 0; k < READABLE; k++) written += written_is_read(trace, readable[k]);
    tide_trace_free(trace);
  }
  T_LT(t_scaled(300) * 2, written);  // most of them hold what all formats can
}

// An extra that has the key of a record, with any value: each key of the reader's comes up.
T_TEST(test_written__extras_with_keys_of_records_are_read_back) {
  static const char* const keys[] = { "action", "addr",   "device_free", "size",    "stream",
                                      "frames", "blocks", "time_us",     "pool_id", "compile_context" };
  t_rng rng = t_rng_new(0);
  size_t written = 0;
  for (size_t i = 0; i < t_scaled(2000); i++) {
    trace_maker maker = { .rng = t_rng_new(i) };
    T_OK(tide_trace_new(NULL, &maker.trace));
    maker.names = tide_trace_names(maker.trace);
    maker_add_names(&maker, 10);
    tide_value value = { .kind = (uint32_t)t_rng_below(&rng, TIDE_VALUE_TEXT) };
    value.integer = value.kind == TIDE_VALUE_BOOL ? 1 : (int64_t)maker_number(&maker);
    tide_trace_entry entry = { .address = 512, .bytes = 512, .action = (uint8_t)t_rng_below(&rng, 11) };
    entry.note = maker_note_with(&maker, keys[t_rng_below(&rng, 10)], value);
    entry.absent = (uint16_t)t_rng_below(&rng, 512);
    T_OK(tide_trace_add_entry(maker.trace, &entry));
    for (size_t k = 0; k < READABLE; k++) written += written_is_read(maker.trace, readable[k]);
    tide_trace_free(maker.trace);
  }
  T_LT(t_scaled(2000), written);
}

T_TEST(test_written__sizes_of_2_to_the_63_were_written_and_not_read) {
  const tide_trace_entry whole = { .bytes = (uint64_t)1 << 63, .action = TIDE_ACTION_ALLOC };
  const tide_trace_entry first = { .bytes = TIDE_FORMAT_BYTES, .action = TIDE_ACTION_ALLOC };
  const tide_trace_entry above = { .address = UINT64_MAX, .bytes = 1, .action = TIDE_ACTION_ALLOC };
  const tide_trace_entry refused = { .bytes = TIDE_FORMAT_REQUEST, .action = TIDE_ACTION_OOM };
  expect_refused_everywhere(trace_of(&whole));
  expect_refused_everywhere(trace_of(&first));
  expect_refused_everywhere(trace_of(&above));
  expect_refused_everywhere(trace_of(&refused));
}

T_TEST(test_written__a_refused_request_may_be_larger_than_memory) {
  const tide_trace_entry entry = { .bytes = TIDE_FORMAT_REQUEST - 1, .action = TIDE_ACTION_OOM };
  tide_trace* const trace = trace_of(&entry);

  for (size_t i = 0; i < READABLE; i++) T_CHECK(written_is_read(trace, readable[i]));

  tide_trace_free(trace);
}

T_TEST(test_written__an_entry_without_an_action_was_written_and_not_read) {
  const tide_trace_entry entry = { .bytes = 512, .absent = TIDE_ENTRY_ACTION };
  expect_refused_everywhere(trace_of(&entry));
}

T_TEST(test_written__a_segment_without_an_address_was_written_and_not_read) {
  const tide_trace_entry entry = { .bytes = 512 };
  tide_trace* const trace = trace_of(&entry);
  T_OK(tide_trace_add_segment(trace, &(tide_trace_segment){ .bytes = 512, .absent = TIDE_SEGMENT_ADDRESS }));
  expect_refused_everywhere(trace);
}

// A row of a log, and one of a planning problem, has a name of any length.
T_TEST(test_written__rows_of_a_mebibyte_were_written_and_not_read) {
  static char name[(1 << 20) + 1];
  memset(name, 'x', sizeof name);
  trace_maker maker = { .rng = t_rng_new(0) };
  T_OK(tide_trace_new(NULL, &maker.trace));
  maker.names = tide_trace_names(maker.trace);
  tide_value value = { .kind = TIDE_VALUE_TEXT };
  T_OK(tide_intern_add_text(maker.names, name, sizeof name, &value.text));
  tide_trace_entry entry = { .address = 512, .bytes = 512, .note = maker_note_with(&maker, "thread", value) };
  T_OK(tide_trace_add_entry(maker.trace, &entry));
  T_CHECK(!written_is_read(maker.trace, TIDE_FORMAT_RMM));

  T_OK(tide_intern_add_note(maker.names, (tide_note){ .metadata = value.text }, &entry.note));
  entry.address = 1024;
  T_OK(tide_trace_add_entry(maker.trace, &entry));
  T_CHECK(!written_is_read(maker.trace, TIDE_FORMAT_MINIMALLOC));
  T_CHECK(written_is_read(maker.trace, TIDE_FORMAT_PICKLE));

  tide_trace_free(maker.trace);
}
