// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The log of RMM: what its rows mean, that they come back as they were, and what happens to logs that are
// wrong or cut.
#include "format/others.h"
#include "base/heap.h"
#include "memory.h"

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"
#define SMALL                                                   \
  HEADER "17,10:00:00.000001,allocate,0x7f00,100,0\n"           \
         "17,10:00:00.000002,allocate failure,(nil),9999,0x2\n" \
         "18,10:00:00.000003,allocate,0x8f00,0,0x55d0\n"        \
         "17,10:00:00.000004,free,0x7f00,100,0\n"

#define HOUR_NS ((uint64_t)3600 * 1000000000u)

static const tide_trace_entry* entries_of(const tide_trace* trace, size_t count) {
  size_t there = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &there);
  T_EQ(there, count);
  return entries;
}

static void expect_entry(const tide_trace_entry* entry, tide_action action, uint64_t address, uint64_t bytes,
                         uint64_t stream) {
  T_EQ(entry->action, action);
  T_EQ(entry->address, address);
  T_EQ(entry->bytes, bytes);
  T_EQ(entry->stream, stream);
  T_EQ(entry->device, 0);
  T_CHECK((entry->absent & TIDE_ENTRY_STACK) != 0 && (entry->absent & TIDE_ENTRY_POOL) != 0);
}

T_TEST(test_rmm__reads_every_action) {
  tide_trace* const trace = memory_trace_of(tide__rmm_read, SMALL);

  const tide_trace_entry* const e = entries_of(trace, 5);
  expect_entry(&e[0], TIDE_ACTION_ALLOC, 0x7f00, 100, 0);
  expect_entry(&e[1], TIDE_ACTION_OOM, 0, 9999, 2);
  T_CHECK((e[1].absent & TIDE_ENTRY_ADDRESS) != 0);
  expect_entry(&e[2], TIDE_ACTION_ALLOC, 0x8f00, 0, 0x55d0);
  expect_entry(&e[3], TIDE_ACTION_FREE_REQUESTED, 0x7f00, 100, 0);
  expect_entry(&e[4], TIDE_ACTION_FREE_COMPLETED, 0x7f00, 100, 0);
  T_EQ(e[0].time_ns, 10 * HOUR_NS + 1000);
  T_EQ(e[4].time_ns, 10 * HOUR_NS + 4000);
  const tide_trace_about about = tide_trace_get_about(trace);
  T_CHECK(!about.has_entries && !about.has_segments);  // it is no snapshot of PyTorch
  T_CHECK(!about.is_cut && !about.has_steps);
  tide_trace_free(trace);
}

T_TEST(test_rmm__keeps_the_thread) {
  tide_trace* const trace = memory_trace_of(tide__rmm_read, SMALL);
  const tide_intern* const names = tide_trace_names(trace);

  const uint32_t extra = tide_intern_note(names, entries_of(trace, 5)[2].note).extra;

  const tide_value thread = tide_intern_value(names, tide_intern_value_find(names, extra, "thread"));
  T_EQ(thread.kind, TIDE_VALUE_INT);
  T_EQ(thread.integer, 18);
  tide_trace_free(trace);
}

T_TEST(test_rmm__gives_the_same_rows) {
  static const char* const rows[] = {
    "",
    "17,10:00:00.000001,allocate,0x7f00,100,0\n",
    "0017,00:00:00.000000,allocate,0x7f00,100,0x1\n",
    "main thread,23:59:59.999999,free,0xfdffffffffffffff,144115188075855871,0xffffffffffffffff\n",
    ",10:00:00.000000,free,(nil),0,0\n",
    // As other versions of RMM spell them, and as nobody does.
    "1,10:00:00.000000,allocate,7f00,1,a0\n1,10:00:00.000001,free,7F00,1,12\n",
    "1,10:00:00.000000,allocate failure,0x0,1,0x0\n1,10:00:00.000000,allocate failure,0,1,(nil)\n",
    "1,10:00:00,allocate,0X7f,007,0\n1,10:00:00.5,free,0x07f,7,00\n1,10:00:00.123456789,free,0x1,7,0\n",
    "1,10:00:00.000005,allocate,0x1,1,0\n2,10:00:00.000004,allocate,0x2,1,0\n",
    "1,23:59:59.000000,allocate,0x1,1,0\n1,00:00:01.000000,free,0x1,1,0\n",
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char text[512];
    (void)snprintf(text, sizeof text, "%s%s", HEADER, rows[i]);
    memory_expect_rewritten(tide__rmm_read, tide__rmm_write, text, text);
  }
}

T_TEST(test_rmm__takes_carriage_returns_and_empty_lines) {
  memory_expect_rewritten(tide__rmm_read, tide__rmm_write,
                          "Thread,Time,Action,Pointer,Size,Stream\r\n\r\n"
                          "1,10:00:00.000000,allocate,0x1,1,0\r\n\n",
                          HEADER "1,10:00:00.000000,allocate,0x1,1,0\n");
}

T_TEST(test_rmm__reads_streams_of_all_spellings) {
  static const struct {
    const char* text;
    uint64_t stream;
  } cases[] = { { "0", 0 }, { "0x1", 1 }, { "10", 10 }, { "0x10", 16 }, { "1a", 26 }, { "(nil)", 0 } };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char text[128];
    (void)snprintf(text, sizeof text, HEADER "1,10:00:00.000000,allocate,0x1,1,%s\n", cases[i].text);
    tide_trace* const trace = memory_trace_of(tide__rmm_read, text);
    T_EQ(entries_of(trace, 1)->stream, cases[i].stream);
    tide_trace_free(trace);
  }
}

// The times of day of a log and the times in the trace, in hours since the first midnight.
static void expect_hours(const char* const* times, const double* hours, size_t count) {
  char text[1024] = HEADER;
  for (size_t i = 0; i < count; i++) {
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "1,%s,allocate,0x%zx,1,0\n", times[i],
                   i + 1);
  }
  tide_trace* const trace = memory_trace_of(tide__rmm_read, text);
  const tide_trace_entry* const entries = entries_of(trace, count);
  for (size_t i = 0; i < count; i++) {
    T_EQ(entries[i].time_ns / 1000000000u, (uint64_t)(hours[i] * 3600 + 0.5));
  }
  memory_expect_text(tide__rmm_write, trace, text);
  tide_trace_free(trace);
}

T_TEST(test_rmm__goes_on_after_midnight) {
  static const char* const times[] = { "18:00:00.000000", "23:00:00.000000", "01:00:00.000000",
                                       "20:00:00.000000", "02:00:00.000000" };
  static const double hours[] = { 18, 23, 25, 44, 50 };
  expect_hours(times, hours, 5);
}

T_TEST(test_rmm__takes_a_small_step_back_as_no_time) {
  static const char* const times[] = { "10:00:00.000000", "09:00:00.000000", "10:30:00.000000" };
  static const double hours[] = { 10, 10, 10.5 };
  expect_hours(times, hours, 3);
}

T_TEST(test_rmm__takes_a_late_row_of_before_midnight_as_no_time) {
  static const char* const times[] = { "23:59:00.000000", "00:00:00.000000", "23:59:59.000000",
                                       "01:00:00.000000" };
  static const double hours[] = { 23 + 59.0 / 60, 24, 24, 25 };
  expect_hours(times, hours, 4);
}

T_TEST(test_rmm__knows_its_header) {
  static const char header[] = HEADER;
  T_CHECK(tide__rmm_is(header, sizeof header - 1));
  T_CHECK(tide__rmm_is(header, sizeof header - 2));
  T_CHECK(!tide__rmm_is(header, sizeof header - 3));
  T_CHECK(!tide__rmm_is(header, 0));
  T_CHECK(!tide__rmm_is("id,lower,upper,size\n0,1,2,3\n4,5,6,7\n8,9,10,11\n", 45));
}

T_TEST(test_rmm__refuses_what_is_wrong) {
  static const memory_case cases[] = {
    { "", "line 1, byte 0" },
    { "Thread,Time\n", "line 1, byte 0" },
    { "Thread,Time,Action,Pointer,Size,Stream,More\n", "line 1, byte 0" },
    { HEADER "1,10:00:00.000000,allocate,0x1,1\n", "line 2, byte 39: not six fields" },
    { HEADER "1,10:00:00.000000,allocate,0x1,1,0,0\n", "line 2, byte 39: not six fields" },
    { HEADER "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17\n", "line 2, byte 39: too many fields" },
    { HEADER "1,10:00,allocate,0x1,1,0\n", "line 2, byte 41: not a time" },
    { HEADER "1,24:00:00.000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:60:00.000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:00:60.000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10-00:00.000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:00:00.,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:00:00.0000000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:00:00:000000,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,1634567890.123456,allocate,0x1,1,0\n", "not a time" },
    { HEADER "1,10:00:00.000000,alloc,0x1,1,0\n", "line 2, byte 57: not an action" },
    { HEADER "1,10:00:00.000000,,0x1,1,0\n", "not an action" },
    { HEADER "1,10:00:00.000000,free,,1,0\n", "line 2, byte 62: not a pointer" },
    { HEADER "1,10:00:00.000000,free,0x,1,0\n", "not a pointer" },
    { HEADER "1,10:00:00.000000,free,-1,1,0\n", "not a pointer" },
    { HEADER "1,10:00:00.000000,free,0x1ffffffffffffffff,1,0\n", "not a pointer" },
    { HEADER "1,10:00:00.000000,free,0x1,-1,0\n", "line 2, byte 66: not a size" },
    { HEADER "1,10:00:00.000000,free,0x1,9223372036854775808,0\n", "not a size" },
    { HEADER "1,10:00:00.000000,free,0x1,144115188075855872,0\n", "a size that is too large" },
    { HEADER "1,10:00:00.000000,allocate failure,(nil),4611686018427387904,0\n", "a size that is too large" },
    { HEADER "1,10:00:00.000000,allocate,0xffffffffffffffff,1,0\n", "the range ends above 2^64" },
    { HEADER "1,10:00:00.000000,free,0x1,99999999999999999999,0\n", "not a size" },
    { HEADER "1,10:00:00.000000,free,0x1,1,\n", "line 2, byte 68: not a stream" },
    { HEADER "1,10:00:00.000000,free,0x1,1,0x1 \n", "not a stream" },
    { HEADER "1,10:00:00.000000,free,0x1,1,0\n1,x,free,0x1,1,0\n", "line 3, byte 72: not a time" },
  };
  memory_expect_refused(tide__rmm_read, cases, sizeof cases / sizeof cases[0]);
}

T_TEST(test_rmm__shows_no_control_characters_in_errors) {
  tide_trace* trace = NULL;
  static const char text[] = HEADER "1,10:00:00.000000,\x1b[31m\xff\0free,0x1,1,0\n";
  memory_source source = memory_source_of(text, sizeof text - 1);
  T_STATUS(memory_read(tide__rmm_read, &source, &tide__system_heap, &trace), TIDE_ERR_FORMAT);
  T_STR_HAS(tide_last_error()->text, "\"?[31m??free\"");
}

T_TEST(test_rmm__refuses_a_line_without_end) {
  const size_t bytes = (size_t)8 << 20;
  char* const text = malloc(bytes);
  T_CHECK(text != NULL);
  memset(text, 'x', bytes);
  for (size_t i = 0; i < strlen(HEADER); i++) text[i] = HEADER[i];
  tide_trace* trace = NULL;
  memory_source source = memory_source_of(text, bytes);

  T_STATUS(memory_read(tide__rmm_read, &source, &tide__system_heap, &trace), TIDE_ERR_FORMAT);

  T_STR_HAS(tide_last_error()->text, "line 2, byte 39: longer than");
  T_LE(source.at, (size_t)4 << 20);
  free(text);
}

T_TEST(test_rmm__of_a_cut_log_is_the_rows_before) {
  tide_trace* const whole = memory_trace_of(tide__rmm_read, SMALL);
  size_t whole_count = 0;
  const tide_trace_entry* const wanted = tide_trace_entries(whole, 0, &whole_count);
  for (size_t cut = 0; cut <= strlen(SMALL); cut++) {
    tide_trace* trace = NULL;
    size_t count = 0;
    memory_source source = memory_source_of(SMALL, cut);
    const tide_status status = memory_read(tide__rmm_read, &source, &tide__system_heap, &trace);
    T_STATUS(status, cut < strlen(HEADER) - 1 ? TIDE_ERR_FORMAT : TIDE_OK);
    const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
    T_LE(count, whole_count);
    for (size_t i = 0; i < count; i++) {
      T_EQ(entries[i].time_ns, wanted[i].time_ns);
      T_EQ(entries[i].address, wanted[i].address);
      T_EQ(entries[i].bytes, wanted[i].bytes);
      T_EQ(entries[i].stream, wanted[i].stream);
      T_EQ(entries[i].action, wanted[i].action);
    }
    const bool is_line_end = cut > 0 && SMALL[cut - 1] == '\n';
    if (status == TIDE_OK) T_EQ(tide_trace_get_about(trace).is_cut, !is_line_end);
    if (cut == strlen(SMALL)) T_EQ(count, whole_count);
    tide_trace_free(trace);
  }
  tide_trace_free(whole);
}

T_TEST(test_rmm__does_not_depend_on_the_pieces_of_a_source) {
  for (size_t piece = 1; piece < 50; piece++) {
    tide_trace* trace = NULL;
    memory_source source = memory_source_of(SMALL, strlen(SMALL));
    source.piece = piece;
    T_OK(memory_read(tide__rmm_read, &source, &tide__system_heap, &trace));
    memory_expect_text(tide__rmm_write, trace, SMALL);
    tide_trace_free(trace);
  }
}

T_TEST(test_rmm__survives_any_damage) {
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < t_scaled(20000); i++) {
    char text[] = SMALL;
    tide_trace* trace = NULL;
    for (uint64_t k = t_rng_below(&rng, 4) + 1; k > 0; k--) {
      text[t_rng_below(&rng, sizeof text - 1)] = (char)t_rng_next(&rng);
    }
    memory_source source = memory_source_of(text, sizeof text - 1);
    const tide_status status = memory_read(tide__rmm_read, &source, &tide__system_heap, &trace);
    if (status == TIDE_OK) free(memory_text_of(tide__rmm_write, trace));
    else T_STATUS(status, TIDE_ERR_FORMAT);
    tide_trace_free(trace);
  }
}

T_TEST(test_rmm__of_other_traces_has_allocations_failures_and_releases) {
  tide_trace* const trace = memory_trace_new();
  for (size_t i = 0; i < TIDE_ACTION_COUNT; i++) memory_add_plain(trace, (tide_action)i, 0x1000 * i, 10 * i);

  memory_expect_text(tide__rmm_write, trace,
                     HEADER "0,00:00:00.000000,allocate,(nil),0,0\n"
                            "0,00:00:00.000002,free,0x2000,20,0\n"
                            "0,00:00:00.000008,allocate failure,(nil),80,0\n");
  tide_trace_free(trace);
}

T_TEST(test_rmm__puts_devices_together_by_time) {
  tide_trace* const trace = memory_trace_new();
  T_OK(tide_trace_add_device(trace, 3));
  static const struct {
    uint8_t device;
    uint64_t us;
  } order[] = { { 2, 1 }, { 2, 5 }, { 0, 1 }, { 0, 4 }, { 3, 5 }, { 0, 6 } };
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    const tide_trace_entry entry = { .time_ns = order[i].us * 1000,
                                     .address = i + 1,
                                     .device = order[i].device };
    memory_add(trace, &entry);
  }

  memory_expect_text(tide__rmm_write, trace,
                     HEADER "0,00:00:00.000001,allocate,0x3,0,0\n"
                            "0,00:00:00.000001,allocate,0x1,0,0\n"
                            "0,00:00:00.000004,allocate,0x4,0,0\n"
                            "0,00:00:00.000005,allocate,0x2,0,0\n"
                            "0,00:00:00.000005,allocate,0x5,0,0\n"
                            "0,00:00:00.000006,allocate,0x6,0,0\n");
  tide_trace_free(trace);
}

// What another file kept under our keys may be anything.
static void expect_thread(const char* key, const tide_value* value, const char* want) {
  char text[128];
  tide_trace* const trace = memory_trace_new();
  const uint32_t extra = memory_add_dict(trace, key, value);
  const tide_trace_entry entry = { .address = 1, .note = memory_add_note(trace, "", extra) };
  memory_add(trace, &entry);
  (void)snprintf(text, sizeof text, HEADER "%s,00:00:00.000000,allocate,0x1,0,0\n", want);
  memory_expect_text(tide__rmm_write, trace, text);
  tide_trace_free(trace);
}

T_TEST(test_rmm__writes_no_row_that_is_none) {
  static const char* const texts[] = { "1,2\n3", "1,2", "", "a,10:00:00.000000,free,0x1,1,0\nx" };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    tide_trace* const trace = memory_trace_new();
    tide_value value = { .kind = TIDE_VALUE_TEXT, .text = memory_add_text(trace, texts[i]) };
    const uint32_t extra = memory_add_dict(trace, "rmm_row", &value);
    const tide_trace_entry entry = { .address = 1, .note = memory_add_note(trace, "", extra) };
    memory_add(trace, &entry);
    memory_expect_text(tide__rmm_write, trace, HEADER "0,00:00:00.000000,allocate,0x1,0,0\n");
    tide_trace_free(trace);
  }
  const tide_value negative = { .kind = TIDE_VALUE_INT, .integer = -5 };
  const tide_value large = { .kind = TIDE_VALUE_UINT, .integer = -1 };
  const tide_value number = { .kind = TIDE_VALUE_FLOAT, .number = 1.5 };
  expect_thread("thread", &negative, "-5");
  expect_thread("thread", &large, "18446744073709551615");
  expect_thread("thread", &number, "0");
  expect_thread("rmm_row", &number, "0");
}

T_TEST(test_rmm__fails_cleanly) {
  tide_trace* const trace = memory_trace_of(tide__rmm_read, SMALL);
  memory_fail_reads(tide__rmm_read, SMALL);
  memory_fail_sources(tide__rmm_read, SMALL);
  memory_fail_writes(tide__rmm_write, trace);
  memory_fail_sinks(tide__rmm_write, trace);
  tide_trace_free(trace);
}
