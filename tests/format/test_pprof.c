// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The profile for pprof, read back with a small decoder of protocol buffers: sums, stacks, names, labels, and
// that every number in it leads somewhere.
#include "base/heap.h"
#include "format/others.h"
#include "memory.h"

// ---------------------------------------------------------------------------------------------------
// Protocol buffers

typedef struct piece {
  const uint8_t* at;
  size_t bytes;
} piece;

typedef struct field {
  uint64_t number;
  uint64_t value;  // of a number
  piece part;      // of bytes
  bool is_bytes;
} field;

static uint64_t take_varint(piece* p) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    T_CHECK(p->bytes > 0 && shift < 64);
    const uint8_t byte = *p->at++;
    p->bytes--;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

static bool take_field(piece* p, field* out) {
  if (p->bytes == 0) return false;
  const uint64_t tag = take_varint(p);
  *out = (field){ .number = tag >> 3, .is_bytes = (tag & 7) == 2 };
  T_CHECK((tag & 7) == 0 || (tag & 7) == 2);
  out->value = take_varint(p);
  if (!out->is_bytes) return true;
  T_LE(out->value, p->bytes);
  out->part = (piece){ p->at, out->value };
  p->at += out->value;
  p->bytes -= out->value;
  return true;
}

// The value of a number in a message, 0 when it is not there.
static uint64_t number_of(piece message, uint64_t number) {
  uint64_t value = 0;
  for (field f; take_field(&message, &f);) {
    if (f.number == number) value = f.value;
  }
  return value;
}

// The n-th part of a message with a number; fails unless it is there.
static piece part_of(piece message, uint64_t number, size_t n) {
  for (field f; take_field(&message, &f);) {
    if (f.number == number && f.is_bytes && n-- == 0) return f.part;
  }
  T_FAIL("no part %" PRIu64, number);
}

static size_t count_of(piece message, uint64_t number) {
  size_t count = 0;
  for (field f; take_field(&message, &f);) count += f.number == number;
  return count;
}

// ---------------------------------------------------------------------------------------------------
// A profile

enum {
  SAMPLE_TYPE = 1,
  SAMPLE = 2,
  LOCATION = 4,
  FUNCTION = 5,
  STRING = 6,
  TIME = 9,
  DURATION = 10,
  DEFAULT = 14
};

typedef struct profile {
  memory_sink sink;
  piece all;
} profile;

static profile profile_of(const tide_trace* trace) {
  profile p = { .sink = { NULL, 0, SIZE_MAX } };
  T_OK(memory_write(tide__pprof_write, trace, &tide__system_heap, &p.sink));
  p.all = (piece){ (const uint8_t*)p.sink.data, p.sink.bytes };
  return p;
}

static void expect_string(const profile* p, uint64_t number, const char* want) {
  const piece text = part_of(p->all, STRING, number);
  T_EQ(text.bytes, strlen(want));
  T_EQ(memcmp(text.at, want, text.bytes), 0);
}

// The location or function with a number; there must be one.
static piece message_with_id(const profile* p, uint64_t kind, uint64_t id) {
  piece rest = p->all;
  size_t found = 0;
  piece message = { NULL, 0 };
  for (field f; take_field(&rest, &f);) {
    if (f.number != kind || number_of(f.part, 1) != id) continue;
    message = f.part;
    found++;
  }
  T_EQ(found, 1);
  return message;
}

typedef struct wanted_frame {
  const char* name;
  const char* system_name;
  const char* file;
  int64_t line;
} wanted_frame;

// A sample has these frames (innermost first), values and labels.
static void expect_sample(const profile* p, size_t n, const wanted_frame* frames, size_t count,
                          const uint64_t values[4], const char* device, const char* stream) {
  const piece sample = part_of(p->all, SAMPLE, n);
  piece locations = part_of(sample, 1, 0);
  for (size_t i = 0; i < count; i++) {
    const piece location = message_with_id(p, LOCATION, take_varint(&locations));
    const piece line = part_of(location, 4, 0);
    const piece function = message_with_id(p, FUNCTION, number_of(line, 1));
    expect_string(p, number_of(function, 2), frames[i].name);
    expect_string(p, number_of(function, 3), frames[i].system_name);
    expect_string(p, number_of(function, 4), frames[i].file);
    T_EQ(number_of(line, 2), (uint64_t)frames[i].line);
  }
  T_EQ(locations.bytes, 0);
  piece numbers = part_of(sample, 2, 0);
  for (size_t i = 0; i < 4; i++) T_EQ(take_varint(&numbers), values[i]);
  T_EQ(numbers.bytes, 0);
  expect_string(p, number_of(part_of(sample, 3, 0), 1), "device");
  expect_string(p, number_of(part_of(sample, 3, 0), 2), device);
  expect_string(p, number_of(part_of(sample, 3, 1), 1), "stream");
  expect_string(p, number_of(part_of(sample, 3, 1), 2), stream);
}

// ---------------------------------------------------------------------------------------------------
// Tests

static void add_entry(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes,
                      uint64_t stream, uint32_t stack) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = 5000 + 1000 * count,
                                   .address = address,
                                   .bytes = bytes,
                                   .stream = stream,
                                   .stack = stack,
                                   .action = (uint8_t)action };
  memory_add(trace, &entry);
}

T_TEST(test_pprof__names_its_values) {
  tide_trace* const trace = memory_trace_new();
  static const char* const names[] = { "alloc_objects", "alloc_space", "inuse_objects", "inuse_space" };
  static const char* const units[] = { "count", "bytes", "count", "bytes" };

  profile p = profile_of(trace);

  T_EQ(count_of(p.all, SAMPLE_TYPE), 4);
  for (size_t i = 0; i < 4; i++) {
    expect_string(&p, number_of(part_of(p.all, SAMPLE_TYPE, i), 1), names[i]);
    expect_string(&p, number_of(part_of(p.all, SAMPLE_TYPE, i), 2), units[i]);
  }
  expect_string(&p, number_of(p.all, DEFAULT), "inuse_space");
  expect_string(&p, 0, "");
  T_EQ(count_of(p.all, SAMPLE), 0);
  T_EQ(number_of(p.all, TIME), 0);
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__sums_up_the_recording_and_its_peak) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t frames[] = { memory_add_frame(trace, "/x/net.py", 20, "leaf"),
                              memory_add_frame(trace, "/x/main.py", 1, "root") };
  const uint32_t deep = memory_add_stack(trace, frames, 2);
  const uint32_t flat = memory_add_stack(trace, &frames[1], 1);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x100, 10, 0, deep);
  add_entry(trace, TIDE_ACTION_FREE_COMPLETED, 0x100, 10, 0, flat);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x200, 30, 0, deep);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x300, 5, 0, flat);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x400, 7, 0x55, deep);  // the peak: 42
  memory_add_segment(trace, 1, 0x900, 100, flat);

  profile p = profile_of(trace);

  const wanted_frame want[] = { { "net.py:leaf", "leaf", "/x/net.py", 20 },
                                { "main.py:root", "root", "/x/main.py", 1 } };
  T_EQ(count_of(p.all, SAMPLE), 4);
  expect_sample(&p, 0, want, 2, (const uint64_t[]){ 2, 40, 1, 30 }, "0", "0x0");
  expect_sample(&p, 1, want + 1, 1, (const uint64_t[]){ 1, 5, 1, 5 }, "0", "0x0");
  expect_sample(&p, 2, want, 2, (const uint64_t[]){ 1, 7, 1, 7 }, "0", "0x55");
  expect_sample(&p, 3, want + 1, 1, (const uint64_t[]){ 0, 0, 1, 99 }, "1", "0x0");
  T_EQ(number_of(p.all, TIME), 5000);
  T_EQ(number_of(p.all, DURATION), 4000);
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__has_a_function_for_each_name_in_a_file) {
  tide_trace* const trace = memory_trace_new();
  (void)memory_add_frame(trace, "net.py", 20, "f");
  (void)memory_add_frame(trace, "net.py", 10, "g");
  (void)memory_add_frame(trace, "net.py", 30, "f");
  (void)memory_add_frame(trace, "other.py", 30, "f");
  (void)memory_add_frame(trace, "other.py", 30, "PyEval_EvalCode");  // not shown

  profile p = profile_of(trace);

  T_EQ(count_of(p.all, LOCATION), 4 + 1);  // and one for what has no stack
  T_EQ(count_of(p.all, FUNCTION), 3 + 1);
  free(p.sink.data);
  tide_trace_free(trace);
}

// pprof merges functions by their names. If the name and the system name are the same, it takes them for C++
// and removes what is in angle brackets.
T_TEST(test_pprof__has_names_that_pprof_keeps_apart) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t frames[] = {
    memory_add_frame(trace, "??", 0, "at::empty<long>(long)"),
    memory_add_frame(trace, "/v/lib/python3.12/site-packages/torch/nn/conv.py", 5, "forward"),
    memory_add_frame(trace, "/v/lib/python3.12/site-packages/vision/resnet.py", 12, "forward"),
    memory_add_frame(trace, "/home/me/nets/a/net.py", 7, "forward"),
    memory_add_frame(trace, "/home/me/nets/b/net.py", 9, "forward"),
    memory_add_frame(trace, "/home/me/train.py", 99, "<module>"),
  };
  add_entry(trace, TIDE_ACTION_ALLOC, 0x100, 10, 0, memory_add_stack(trace, frames, 6));

  profile p = profile_of(trace);

  const wanted_frame want[] = {
    { "at::empty<long>(long)", "at::empty<long>(long)", "??", 0 },
    { "torch/nn/conv.py:forward", "forward", "/v/lib/python3.12/site-packages/torch/nn/conv.py", 5 },
    { "vision/resnet.py:forward", "forward", "/v/lib/python3.12/site-packages/vision/resnet.py", 12 },
    { "nets/a/net.py:forward", "forward", "/home/me/nets/a/net.py", 7 },
    { "nets/b/net.py:forward", "forward", "/home/me/nets/b/net.py", 9 },
    { "train.py:<module>", "<module>", "/home/me/train.py", 99 },
  };
  expect_sample(&p, 0, want, 6, (const uint64_t[]){ 1, 10, 1, 10 }, "0", "0x0");
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__has_a_place_for_what_has_no_stack) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t hidden = memory_add_frame(trace, "x", 1, "PyObject_Call");
  const uint64_t address = 0x7f0000001234;
  add_entry(trace, TIDE_ACTION_ALLOC, 0x100, 10, 0, 0);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x200, 20, 0, memory_add_stack(trace, &hidden, 1));
  add_entry(trace, TIDE_ACTION_ALLOC, 0x300, 30, 0, memory_add_stack(trace, &address, 1));

  profile p = profile_of(trace);

  const wanted_frame want = { "<no-context>", "", "", 0 };
  for (uint64_t i = 0; i < 3; i++) {
    expect_sample(&p, i, &want, 1, (const uint64_t[]){ 1, 10 * (i + 1), 1, 10 * (i + 1) }, "0", "0x0");
  }
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__repairs_text_and_keeps_odd_lines) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t frame = memory_add_frame(trace, "\xff.py", -1, "f\xc3\xa9\n\xc3");
  add_entry(trace, TIDE_ACTION_ALLOC, 0x100, 1, 0, memory_add_stack(trace, &frame, 1));

  profile p = profile_of(trace);

  const wanted_frame want = { "\xef\xbf\xbd.py:f\xc3\xa9 \xef\xbf\xbd", "f\xc3\xa9\n\xef\xbf\xbd",
                              "\xef\xbf\xbd.py", -1 };
  expect_sample(&p, 0, &want, 1, (const uint64_t[]){ 1, 1, 1, 1 }, "0", "0x0");
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__has_no_time_of_steps) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_about about = { .has_steps = true };
  tide_trace_set_about(trace, &about);
  add_entry(trace, TIDE_ACTION_ALLOC, 0x100, 1, 0, 0);

  profile p = profile_of(trace);

  T_EQ(count_of(p.all, TIME), 0);
  T_EQ(count_of(p.all, DURATION), 0);
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__refuses_more_than_all_bytes) {
  tide_trace* const trace = memory_trace_new();
  memory_sink sink = { NULL, 0, SIZE_MAX };
  for (size_t i = 0; i < 3; i++) {
    add_entry(trace, TIDE_ACTION_ALLOC, 0x100, INT64_MAX, 0, 0);
    add_entry(trace, TIDE_ACTION_FREE_COMPLETED, 0x100, INT64_MAX, 0, 0);
  }
  T_STATUS(memory_write(tide__pprof_write, trace, &tide__system_heap, &sink), TIDE_ERR_LIMIT);
  free(sink.data);
  tide_trace_free(trace);
}

// Large enough that every buffer has to grow.
static tide_trace* trace_of_many_stacks(void) {
  tide_trace* const trace = memory_trace_new();
  uint64_t frames[40];
  for (uint64_t i = 0; i < 200; i++) {
    frames[i % 40] = memory_add_frame(trace, "file.py", (int64_t)(i % 50), i % 3 == 0 ? "f" : "g");
    const size_t count = i < 40 ? i + 1 : 40;
    add_entry(trace, TIDE_ACTION_ALLOC, i << 9, 100 + i, i % 7, memory_add_stack(trace, frames, count));
  }
  return trace;
}

T_TEST(test_pprof__leads_everywhere) {
  tide_trace* const trace = trace_of_many_stacks();

  profile p = profile_of(trace);

  const size_t strings = count_of(p.all, STRING);
  uint64_t bytes = 0;
  for (size_t i = 0; i < count_of(p.all, SAMPLE); i++) {
    const piece sample = part_of(p.all, SAMPLE, i);
    for (piece rest = part_of(sample, 1, 0); rest.bytes > 0;) {
      const piece location = message_with_id(&p, LOCATION, take_varint(&rest));
      const piece function = message_with_id(&p, FUNCTION, number_of(part_of(location, 4, 0), 1));
      T_LT(number_of(function, 2), strings);
      T_LT(number_of(function, 4), strings);
    }
    piece values = part_of(sample, 2, 0);
    (void)take_varint(&values);
    bytes += take_varint(&values);
  }
  T_EQ(bytes, 200 * 100 + 199 * 100);
  free(p.sink.data);
  tide_trace_free(trace);
}

T_TEST(test_pprof__fails_cleanly) {
  tide_trace* const trace = trace_of_many_stacks();
  memory_fail_writes(tide__pprof_write, trace);
  memory_fail_sinks(tide__pprof_write, trace);
  tide_trace_free(trace);
}
