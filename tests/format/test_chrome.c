// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The timeline: what its events say, that slices begin and end, and that whatever a trace holds, it is JSON.
#include "base/heap.h"
#include "format/decode.h"
#include "format/others.h"
#include "memory.h"

#define HEAD "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["
#define DEVICE_0                                                                                        \
  "\n{\"ph\":\"M\",\"pid\":5000000,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"memory of " \
  "device 0\"}}"
#define TAIL "\n]}\n"

// One event behind another. The names of all events here need no escapes.
#define EVENT(phase, name, rest) \
  ",\n{\"ph\":\"" phase "\",\"pid\":5000000,\"tid\":0,\"name\":\"" name "\"," rest "}"
#define COUNTER(name, ts, bytes) EVENT("C", name, "\"ts\":" ts ",\"args\":{\"bytes\":" bytes "}")
#define BEGIN(cat, name, ts, id, bytes) \
  EVENT("b", name, "\"ts\":" ts ",\"cat\":\"" cat "\",\"id\":" id ",\"args\":{\"bytes\":" bytes "}")
#define END(cat, name, ts, id) EVENT("e", name, "\"ts\":" ts ",\"cat\":\"" cat "\",\"id\":" id)

T_TEST(test_chrome__has_slices_and_counters) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_ALLOC, 0x1000, 4096);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 10);
  memory_add_plain(trace, TIDE_ACTION_FREE_REQUESTED, 0x1000, 10);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x1000, 10);
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_FREE, 0x1000, 4096);

  memory_expect_text(tide__chrome_write, trace,
                     HEAD DEVICE_0                                      //
                         BEGIN("segment", "segment", "0", "2", "4096")  //
                     COUNTER("reserved", "0", "4096")                   //
                     BEGIN("alloc", "alloc", "1", "1", "10")            //
                     COUNTER("allocated", "1", "10")                    //
                     END("alloc", "alloc", "3", "1")                    //
                     COUNTER("allocated", "3", "0")                     //
                     END("segment", "segment", "4", "2")                //
                     COUNTER("reserved", "4", "0") TAIL);
  tide_trace_free(trace);
}

T_TEST(test_chrome__has_what_is_older_and_what_stays) {
  tide_trace* const trace = memory_trace_new();
  memory_add_segment(trace, 0, 0x9000, 100, 0);
  memory_add_plain(trace, TIDE_ACTION_SNAPSHOT, 0, 0);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 10);

  memory_expect_text(tide__chrome_write, trace,
                     HEAD DEVICE_0                                 //
                         COUNTER("allocated", "0", "99")           //
                     COUNTER("reserved", "0", "100")               //
                     BEGIN("segment", "segment", "0", "3", "100")  //
                     BEGIN("alloc", "alloc", "0", "2", "99")       //
                     BEGIN("alloc", "alloc", "1", "1", "10")       //
                     COUNTER("allocated", "1", "109")              //
                     END("alloc", "alloc", "1", "1")               //
                     END("alloc", "alloc", "1", "2")               //
                     END("segment", "segment", "1", "3") TAIL);
  tide_trace_free(trace);
}

T_TEST(test_chrome__counts_once_a_microsecond) {
  static const uint64_t times[] = { 7000, 7100, 7999, 8000, 9500 };
  tide_trace* const trace = memory_trace_new();
  for (size_t i = 0; i < 5; i++) {
    const tide_trace_entry entry = { .time_ns = times[i], .address = i, .bytes = 1 };
    memory_add(trace, &entry);
  }

  char* const text = memory_text_of(tide__chrome_write, trace);

  size_t counters = 0;
  for (const char* at = text; (at = strstr(at, "\"ph\":\"C\"")) != NULL; at++) counters++;
  T_EQ(counters, 3);
  T_STR_HAS(text, "\"name\":\"allocated\",\"ts\":7.999,\"args\":{\"bytes\":3}");
  T_STR_HAS(text, "\"name\":\"allocated\",\"ts\":8,\"args\":{\"bytes\":4}");
  T_STR_HAS(text, "\"name\":\"allocated\",\"ts\":9.500,\"args\":{\"bytes\":5}");
  free(text);
  tide_trace_free(trace);
}

T_TEST(test_chrome__marks_running_out_of_memory_and_maps) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_MAP, 0x1000, 300);
  memory_add_plain(trace, TIDE_ACTION_OOM, 0, 700);
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_UNMAP, 0x1000, 100);

  memory_expect_text(tide__chrome_write, trace,
                     HEAD DEVICE_0                                                                 //
                         EVENT("i", "map", "\"ts\":0,\"s\":\"p\",\"args\":{\"bytes\":300}")        //
                     COUNTER("reserved", "0", "300")                                               //
                     EVENT("i", "out of memory", "\"ts\":1,\"s\":\"p\",\"args\":{\"bytes\":700}")  //
                     EVENT("i", "unmap", "\"ts\":2,\"s\":\"p\",\"args\":{\"bytes\":100}")          //
                     COUNTER("reserved", "2", "200") TAIL);
  tide_trace_free(trace);
}

static void expect_name(tide_trace* trace, uint32_t stack, uint32_t note, const char* want) {
  const tide_trace_entry entry = { .address = 1, .stack = stack, .note = note };
  memory_add(trace, &entry);
  char* const text = memory_text_of(tide__chrome_write, trace);
  T_STR_HAS(text, want);
  free(text);
  tide_trace_free(trace);
}

// A stack of a program that calls an installed package, which calls PyTorch; the innermost frame is hidden.
static uint32_t add_deep_stack(tide_trace* trace) {
  const uint64_t frames[] = {
    memory_add_frame(trace, "??", 0, "unwind::unwind()"),
    memory_add_frame(trace, "/v/lib/python3.12/site-packages/torch/nn/conv.py", 5, "forward"),
    memory_add_frame(trace, "/v/lib/python3.12/site-packages/vision/resnet.py", 12, "forward"),
    memory_add_frame(trace, "/a/net.py", 3, "forward"),
    memory_add_frame(trace, "/a/main.py", 1, "<module>"),
  };
  return memory_add_stack(trace, frames, 5);
}

T_TEST(test_chrome__names_a_request_by_its_innermost_line_outside_of_torch) {
  tide_trace* const trace = memory_trace_new();
  expect_name(trace, add_deep_stack(trace), memory_add_note(trace, "said", 0),
              "\"name\":\"vision/resnet.py:12:forward\",\"ts\":0,\"cat\":\"alloc\",\"id\":1,\"sf\":4,"
              "\"args\":{\"bytes\":0,\"from\":\"net.py:3:forward\"}}");
}

T_TEST(test_chrome__has_stacks) {
  tide_trace* const trace = memory_trace_new();
  expect_name(trace, add_deep_stack(trace), 0,
              "\n],\"stackFrames\":{\n"
              "\"1\":{\"category\":\"program\",\"name\":\"main.py:1:<module>\"},\n"
              "\"2\":{\"category\":\"program\",\"name\":\"net.py:3:forward\",\"parent\":\"1\"},\n"
              "\"3\":{\"category\":\"package\",\"name\":\"vision/resnet.py:12:forward\",\"parent\":\"2\"},\n"
              "\"4\":{\"category\":\"torch\",\"name\":\"torch/nn/conv.py:5:forward\",\"parent\":\"3\"}\n"
              "}}\n");
}

T_TEST(test_chrome__shares_the_frames_of_stacks) {
  tide_trace* const trace = memory_trace_new();
  const uint64_t main_frame = memory_add_frame(trace, "main.py", 1, "main");
  const uint64_t a[] = { memory_add_frame(trace, "main.py", 2, "a"), main_frame };
  const uint64_t b[] = { memory_add_frame(trace, "main.py", 3, "b"), main_frame };
  const uint32_t stacks[] = { memory_add_stack(trace, a, 2), memory_add_stack(trace, b, 2) };
  for (uint64_t i = 0; i < 6; i++) {
    const tide_trace_entry entry = { .address = i, .stack = stacks[i % 2] };
    memory_add(trace, &entry);
  }

  char* const text = memory_text_of(tide__chrome_write, trace);

  T_STR_HAS(text, "\"id\":5,\"sf\":2,");
  T_STR_HAS(text, "\"id\":6,\"sf\":3,");
  T_STR_HAS(text, "\"3\":{\"category\":\"program\",\"name\":\"main.py:3:b\",\"parent\":\"1\"}\n}}");
  free(text);
  tide_trace_free(trace);
}

T_TEST(test_chrome__has_the_stacks_of_segments_and_instants) {
  tide_trace* const trace = memory_trace_new();
  const uint32_t stack = add_deep_stack(trace);
  const tide_trace_entry segment = { .address = 1, .stack = stack, .action = TIDE_ACTION_SEGMENT_ALLOC };
  const tide_trace_entry refused = { .bytes = 9, .stack = stack, .action = TIDE_ACTION_OOM };
  memory_add(trace, &segment);
  memory_add(trace, &refused);

  char* const text = memory_text_of(tide__chrome_write, trace);

  T_STR_HAS(text, "\"name\":\"segment\",\"ts\":0,\"cat\":\"segment\",\"id\":1,\"sf\":4,");
  T_STR_HAS(text, "\"name\":\"out of memory\",\"ts\":0,\"sf\":4,\"s\":\"p\",\"args\":{\"bytes\":9}}");
  free(text);
  tide_trace_free(trace);
}

// The base is a whole number of periods of 7,889,238 s since 1970, as in the profiler.
T_TEST(test_chrome__has_times_since_the_base_of_the_profiler) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_entry entry = { .time_ns = UINT64_C(1794703438710999000), .address = 1 };
  memory_add(trace, &entry);

  char* const text = memory_text_of(tide__chrome_write, trace);

  T_EQ(UINT64_C(1790857026000000000) % UINT64_C(7889238000000000), 0);
  T_STR_HAS(text,
            "{\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":1790857026000000000,\"traceEvents\":[");
  T_STR_HAS(text, "\"ts\":3846412710999,");
  free(text);
  tide_trace_free(trace);
}

T_TEST(test_chrome__names_a_request_by_what_was_said_of_it) {
  tide_trace* const trace = memory_trace_new();
  expect_name(trace, 0, memory_add_note(trace, "layer \"1\"\n", 0), "\"name\":\"layer \\\"1\\\" \"");
}

T_TEST(test_chrome__cuts_names) {
  tide_trace* const trace = memory_trace_new();
  char name[500] = "";
  memset(name, 'x', sizeof name - 1);
  expect_name(
      trace, 0, memory_add_note(trace, name, 0),
      "\"name\":"
      "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"");
}

T_TEST(test_chrome__has_a_process_for_each_device_with_something) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_entry entry = { .time_ns = 8000, .address = 1, .bytes = 5, .device = 2 };
  memory_add(trace, &entry);
  memory_add_plain(trace, TIDE_ACTION_SNAPSHOT, 0, 0);

  char* const text = memory_text_of(tide__chrome_write, trace);

  T_STR_HAS(text, "\"memory of device 0\"");
  T_STR_HAS(text, "{\"ph\":\"b\",\"pid\":5000002,\"tid\":0,\"name\":\"alloc\",\"ts\":8,");
  T_PTR_EQ(strstr(text, "device 1"), NULL);
  free(text);
  tide_trace_free(trace);
}

// Adds an annotation of plain data to a list.
static uint64_t annotation(tide_trace* trace, const char* name, const char* stage, int64_t device,
                           int64_t time_us) {
  tide_intern* const names = tide_trace_names(trace);
  const tide_value values[] = { { .kind = TIDE_VALUE_TEXT, .text = memory_add_text(trace, name) },
                                { .kind = TIDE_VALUE_TEXT, .text = memory_add_text(trace, stage) },
                                { .kind = TIDE_VALUE_INT, .integer = device },
                                { .kind = TIDE_VALUE_INT, .integer = time_us } };
  static const char* const keys[] = { "name", "stage", "device", "time_us" };
  uint64_t items[4];
  uint32_t number = 0;
  for (size_t i = 0; i < 4; i++) {
    T_OK(tide_intern_add_value(names, &values[i], &number));
    items[i] = (uint64_t)memory_add_text(trace, keys[i]) << 32 | number;
  }
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items, .count = 4 };
  T_OK(tide_intern_add_value(names, &dict, &number));
  return number;
}

static void set_annotations(tide_trace* trace, const uint64_t* items, size_t count) {
  tide_trace_about about = tide_trace_get_about(trace);
  const tide_value list = { .kind = TIDE_VALUE_LIST, .items = items, .count = count };
  T_OK(tide_intern_add_value(tide_trace_names(trace), &list, &about.annotations));
  tide_trace_set_about(trace, &about);
}

T_TEST(test_chrome__has_annotations) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_entry entry = { .time_ns = 5000, .action = TIDE_ACTION_SNAPSHOT };
  memory_add(trace, &entry);
  uint32_t none = 0;
  T_OK(tide_intern_add_value(tide_trace_names(trace), &(tide_value){ .kind = TIDE_VALUE_NONE }, &none));
  const uint64_t items[] = {
    annotation(trace, "step", "START", 0, 3),   // before the first entry
    annotation(trace, "step", "END", 1, 9),     //
    annotation(trace, "step", "MIDDLE", 0, 9),  // not known
    none,
  };
  set_annotations(trace, items, 4);
  const uint32_t id = memory_add_text(trace, "step");

  char want[256];
  char* const text = memory_text_of(tide__chrome_write, trace);

  (void)snprintf(want, sizeof want,
                 "{\"ph\":\"b\",\"pid\":5000000,\"tid\":0,\"name\":\"step\",\"ts\":3,\"cat\":\"annotation\","
                 "\"id\":%u},\n"
                 "{\"ph\":\"e\",\"pid\":5000001,\"tid\":0,\"name\":\"step\",\"ts\":9,\"cat\":\"annotation\","
                 "\"id\":%u}\n]}",
                 id, id);
  T_STR_HAS(text, want);
  free(text);
  tide_trace_free(trace);
}

T_TEST(test_chrome__of_nothing_has_no_events) {
  tide_trace* const trace = memory_trace_new();
  memory_expect_text(tide__chrome_write, trace, HEAD TAIL);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Whatever a trace holds

static uint32_t random_note(tide_trace* trace, t_rng* rng) {
  char text[20];
  tide_note note = { 0 };
  uint32_t number = 0;
  const size_t bytes = t_rng_below(rng, sizeof text);
  for (size_t i = 0; i < bytes; i++) text[i] = (char)t_rng_next(rng);
  T_OK(tide_intern_add_text(tide_trace_names(trace), text, bytes, &note.metadata));
  T_OK(tide_intern_add_note(tide_trace_names(trace), note, &number));
  return number;
}

static tide_trace* random_trace(t_rng* rng, size_t count) {
  tide_trace* const trace = memory_trace_new();
  uint64_t time_ns = 0;
  for (size_t i = 0; i < count; i++) {
    time_ns += t_rng_below(rng, 3000);
    const tide_trace_entry entry = { .time_ns = time_ns,
                                     .address = t_rng_below(rng, 20) << 9,
                                     .bytes = t_rng_below(rng, 5000),
                                     .note = random_note(trace, rng),
                                     .action = (uint8_t)t_rng_below(rng, TIDE_ACTION_COUNT),
                                     .device = (uint8_t)t_rng_below(rng, 3) };
    memory_add(trace, &entry);
  }
  for (size_t i = 0; i < 5; i++) {
    memory_add_segment(trace, (uint8_t)t_rng_below(rng, 4), t_rng_below(rng, 40) << 9, 512, 0);
  }
  return trace;
}

// The number behind a key of an event's line.
static uint64_t number_in(const char* line, const char* key) {
  const char* const at = strstr(line, key);
  T_CHECK(at != NULL);
  return strtoull(at + strlen(key), NULL, 10);
}

// Every slice begins once and ends once, not before it began.
static void expect_slices_in_order(char* text, size_t limit) {
  uint8_t* const states = calloc(limit, 1);
  T_CHECK(states != NULL);
  size_t open = 0;
  char* rest = NULL;
  for (char* line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
    const bool is_begin = strstr(line, "{\"ph\":\"b\"") == line;
    if (!is_begin && strstr(line, "{\"ph\":\"e\"") != line) continue;
    const uint64_t id = number_in(line, "\",\"id\":");
    T_LT(id, limit);
    T_EQ(states[id], is_begin ? 0 : 1);
    states[id]++;
    open += is_begin ? 1 : SIZE_MAX;
  }
  T_EQ(open, 0);
  free(states);
}

// The reader of snapshots keeps what it does not know, if it is JSON.
static void expect_json(const char* text) {
  static const char head[] = "{\"segments\":[],\"other\":";
  char* const wrapped = malloc(sizeof head + strlen(text) + 1);
  T_CHECK(wrapped != NULL);
  (void)snprintf(wrapped, sizeof head + strlen(text) + 1, "%s%s}", head, text);
  tide_trace_free(memory_trace_of(tide__json_read, wrapped));
  free(wrapped);
}

T_TEST(test_chrome__is_json_with_whole_slices) {
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < t_scaled(100); i++) {
    tide_trace* const trace = random_trace(&rng, t_rng_below(&rng, 300));
    char* const text = memory_text_of(tide__chrome_write, trace);
    expect_json(text);
    expect_slices_in_order(text, 2000);
    free(text);
    tide_trace_free(trace);
  }
}

T_TEST(test_chrome__stays_small) {
  t_rng rng = t_rng_new(1);
  tide_trace* const trace = random_trace(&rng, 3000);
  char* const text = memory_text_of(tide__chrome_write, trace);
  size_t events = 0;
  for (const char* at = text; (at = strstr(at, "{\"ph\":")) != NULL; at++) events++;
  T_LE(strlen(text), 150 * events);
  free(text);
  tide_trace_free(trace);
}

T_TEST(test_chrome__fails_cleanly) {
  t_rng rng = t_rng_new(1);
  tide_trace* const trace = random_trace(&rng, 200);
  for (uint64_t i = 0; i < 50; i++) {
    const uint64_t frame = memory_add_frame(trace, "file.py", (int64_t)i, "function");
    const tide_trace_entry entry = { .address = i, .stack = memory_add_stack(trace, &frame, 1) };
    memory_add(trace, &entry);
  }
  memory_fail_writes(tide__chrome_write, trace);
  memory_fail_sinks(tide__chrome_write, trace);
  tide_trace_free(trace);
}
