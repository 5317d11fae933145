// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Folded stacks: which call sites hold memory at the peak, their order and their names.
#include "base/heap.h"
#include "format/others.h"
#include "memory.h"

// Stacks main > step > leaf of one trace; a frame's name is one letter.
typedef struct stacks {
  tide_trace* trace;
  uint32_t a;
  uint32_t b;
} stacks;

static stacks stacks_new(void) {
  stacks s = { .trace = memory_trace_new() };
  const uint64_t main_frame = memory_add_frame(s.trace, "/home/x/main.py", 1, "main");
  const uint64_t a = memory_add_frame(s.trace, "/home/x/nets/net.py", 20, "a");
  const uint64_t b = memory_add_frame(s.trace, "/home/x/nets/net.py", 30, "b");
  s.a = memory_add_stack(s.trace, (const uint64_t[]){ a, main_frame }, 2);
  s.b = memory_add_stack(s.trace, (const uint64_t[]){ b, a, main_frame }, 3);
  return s;
}

static void add_request(stacks* s, uint8_t device, uint64_t address, uint64_t bytes, uint32_t stack) {
  const tide_trace_entry entry = { .address = address, .bytes = bytes, .stack = stack, .device = device };
  memory_add(s->trace, &entry);
}

static void add_release(stacks* s, uint64_t address) {
  const tide_trace_entry entry = { .address = address, .bytes = 1, .action = TIDE_ACTION_FREE_COMPLETED };
  memory_add(s->trace, &entry);
}

T_TEST(test_folded__tells_who_holds_memory_at_the_peak) {
  stacks s = stacks_new();
  add_request(&s, 0, 0x100, 900, s.a);
  add_release(&s, 0x100);
  add_request(&s, 0, 0x200, 400, s.a);
  add_request(&s, 0, 0x300, 600, s.b);
  add_request(&s, 0, 0x400, 100, s.a);  // the peak: 1100
  add_release(&s, 0x300);
  add_request(&s, 0, 0x500, 50, s.b);

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;main.py:1:main;nets/net.py:20:a;nets/net.py:30:b 600\n"
                     "device_0;main.py:1:main;nets/net.py:20:a 500\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__has_what_has_no_stack) {
  stacks s = stacks_new();
  add_request(&s, 0, 0x100, 10, 0);
  add_request(&s, 0, 0x200, 20, 0);
  add_request(&s, 0, 0x300, 0, s.a);  // holds nothing

  memory_expect_text(tide__folded_write, s.trace, "device_0;<no-context> 30\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__has_what_is_older_than_the_recording) {
  stacks s = stacks_new();
  memory_add_segment(s.trace, 0, 0x9000, 101, s.b);
  add_request(&s, 0, 0x100, 10, s.a);

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;main.py:1:main;nets/net.py:20:a;nets/net.py:30:b 100\n"
                     "device_0;main.py:1:main;nets/net.py:20:a 10\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__has_each_device_at_its_own_peak) {
  stacks s = stacks_new();
  add_request(&s, 0, 0x100, 10, s.a);
  add_release(&s, 0x100);
  add_request(&s, 2, 0x100, 10, s.a);
  memory_add_segment(s.trace, 3, 0x9000, 8, 0);

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;main.py:1:main;nets/net.py:20:a 10\n"
                     "device_2;main.py:1:main;nets/net.py:20:a 10\n"
                     "device_3;<no-context> 7\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__joins_streams_and_equal_texts) {
  stacks s = stacks_new();
  const char* const files[] = { "/v/site-packages/vision/main.py", "/w/site-packages/vision/main.py" };
  const uint64_t frames[] = { memory_add_frame(s.trace, files[0], 1, "main"),
                              memory_add_frame(s.trace, files[1], 1, "main") };
  const uint32_t x = memory_add_stack(s.trace, &frames[0], 1);
  const uint32_t y = memory_add_stack(s.trace, &frames[1], 1);
  add_request(&s, 0, 0x100, 10, x);
  add_request(&s, 0, 0x200, 20, y);
  const tide_trace_entry entry = { .address = 0x300, .bytes = 30, .stack = y, .stream = 77 };
  memory_add(s.trace, &entry);

  memory_expect_text(tide__folded_write, s.trace, "device_0;vision/main.py:1:main 60\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__tells_files_of_the_same_name_apart) {
  stacks s = stacks_new();
  const uint64_t frames[] = { memory_add_frame(s.trace, "/home/x/a/net.py", 1, "forward"),
                              memory_add_frame(s.trace, "/home/x/b/net.py", 1, "forward"),
                              memory_add_frame(s.trace, "/usr/lib/python3.12/threading.py", 1, "run"),
                              memory_add_frame(s.trace, "<frozen runpy>", 8, "_run_code"),
                              memory_add_frame(s.trace, "??", 0, "at::empty(long)") };
  for (uint64_t i = 0; i < 5; i++) add_request(&s, 0, i, 10 - i, memory_add_stack(s.trace, &frames[i], 1));

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;a/net.py:1:forward 10\n"
                     "device_0;b/net.py:1:forward 9\n"
                     "device_0;threading.py:1:run 8\n"
                     "device_0;<frozen runpy>:8:_run_code 7\n"
                     "device_0;at::empty(long) 6\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__leaves_out_frames_of_the_interpreter) {
  stacks s = stacks_new();
  const uint64_t frames[] = {
    memory_add_frame(s.trace, "??", 0, "torch::CapturedTraceback::gather(bool, bool, bool)"),
    memory_add_frame(s.trace, "/src/aten/core/boxing/impl.h", 5, "call"),
    memory_add_frame(s.trace, "net.py", 7, "forward"),
    memory_add_frame(s.trace, "/usr/src/python/Python/ceval.c", 9, "eval"),
    memory_add_frame(s.trace, "", 0, "_start"),
  };
  const uint64_t hidden[] = { frames[0], frames[4] };
  add_request(&s, 0, 0x100, 10, memory_add_stack(s.trace, frames, 5));
  add_request(&s, 0, 0x200, 5, memory_add_stack(s.trace, hidden, 2));

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;net.py:7:forward 10\n"
                     "device_0;<no-context> 5\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__keeps_a_line_a_line) {
  stacks s = stacks_new();
  const uint64_t frame = memory_add_frame(s.trace, "a;b.py", -3, "f;\n\x01g\xff\xc3\xa9\xed\xa0\x80");
  add_request(&s, 0, 0x100, 10, memory_add_stack(s.trace, &frame, 1));

  memory_expect_text(tide__folded_write, s.trace,
                     "device_0;a:b.py:-3:f:  g\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd 10\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__cuts_names_between_characters) {
  stacks s = stacks_new();
  char name[2001] = "";
  for (size_t i = 0; i < 2000; i++) name[i] = "\xc3\xa9"[i % 2];
  const uint64_t frame = memory_add_frame(s.trace, "f", 1, name);
  add_request(&s, 0, 0x100, 10, memory_add_stack(s.trace, &frame, 1));

  char* const text = memory_text_of(tide__folded_write, s.trace);

  T_EQ(strlen(text), strlen("device_0;") + 512 + strlen(" 10\n"));
  T_STR_HAS(text, "\xc3\xa9 10\n");
  free(text);
  tide_trace_free(s.trace);
}

T_TEST(test_folded__shows_addresses_that_are_no_frames) {
  stacks s = stacks_new();
  const uint64_t frames[] = { 0x7f0012345678, 0 };
  add_request(&s, 0, 0x100, 10, memory_add_stack(s.trace, frames, 2));

  memory_expect_text(tide__folded_write, s.trace, "device_0;0x0;0x7f0012345678 10\n");
  tide_trace_free(s.trace);
}

T_TEST(test_folded__of_nothing_is_nothing) {
  tide_trace* const trace = memory_trace_new();
  memory_sink sink = { NULL, 0, SIZE_MAX };
  T_OK(memory_write(tide__folded_write, trace, &tide__system_heap, &sink));
  T_EQ(sink.bytes, 0);
  tide_trace_free(trace);
}

T_TEST(test_folded__fails_cleanly) {
  stacks s = stacks_new();
  for (uint64_t i = 0; i < 100; i++) {
    const uint64_t frame = memory_add_frame(s.trace, "file.py", (int64_t)i, "function");
    add_request(&s, (uint8_t)(i % 2), i << 9, 100 + i, memory_add_stack(s.trace, &frame, 1));
  }
  memory_fail_writes(tide__folded_write, s.trace);
  memory_fail_sinks(tide__folded_write, s.trace);
  tide_trace_free(s.trace);
}
