// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pinned memory in a snapshot of devices: the lists that are added, what all formats make of them, and what
// is refused.
#include "notation.h"

#define FRAME "{\"name\": \"f\", \"filename\": \"a.py\", \"line\": 3}"
#define SEGMENT(device)                                                                                      \
  "{\"device\": " device ", \"address\": 4096, \"total_size\": 1024, \"allocated_size\": 512, "              \
  "\"active_size\": 512, \"requested_size\": 500, \"stream\": 0, \"segment_type\": \"small\", "              \
  "\"segment_pool_id\": [0, 0], \"is_expandable\": false, \"frames\": [" FRAME "], "                         \
  "\"blocks\": [{\"address\": 4096, \"size\": 512, \"requested_size\": 500, \"state\": \"active_allocated\"" \
  ", \"frames\": [" FRAME ", " FRAME "]}, "                                                                  \
  "{\"address\": 4608, \"size\": 512, \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}], "    \
  "\"tag\": {\"deep\": [18446744073709551615, 0.5, null]}}"
#define ENTRY                                                                              \
  "{\"action\": \"alloc\", \"addr\": 4096, \"size\": 500, \"stream\": 0, \"time_us\": 7, " \
  "\"compile_context\": \"N/A\", \"user_metadata\": \"m\", \"pool_id\": [0, 3], \"frames\": [" FRAME "]}"
#define HOST "{\"segments\": [" SEGMENT("0") "], \"device_traces\": [[" ENTRY "], [" ENTRY "]]}"
#define DEVICE "\"segments\": [], \"device_traces\": [[]], \"allocator_settings\": {\"a\": 1}"
#define LISTS "\"host_segments\": [" SEGMENT("-1") "], \"host_traces\": [" ENTRY ", " ENTRY "]"

static tide_trace* trace_of_text(const char* text) {
  memory_file file = file_of_text(text);
  tide_trace* const trace = trace_of(&file);
  memory_file_fini(&file);
  return trace;
}

static tide_trace* both(void) {
  tide_trace* const trace = trace_of_text("{" DEVICE ", \"more\": true}");
  tide_trace* const host = trace_of_text(HOST);
  T_OK(tide_trace_add_host(trace, host));
  tide_trace_free(host);
  return trace;
}

T_TEST(test_host__its_lists_stand_beside_those_of_devices) {
  tide_trace* const trace = both();
  expect_trace_json(__FILE__, __LINE__, trace, "{" DEVICE ", " LISTS ", \"more\": true}");
  size_t count = 0;
  (void)tide_trace_segments(trace, &count);
  T_EQ(count, 0);
  (void)tide_trace_entries(trace, 0, &count);
  T_EQ(count, 0);
  tide_trace_free(trace);
}

T_TEST(test_host__its_lists_are_read_back) {
  static const uint32_t formats[] = { TIDE_FORMAT_NATIVE, TIDE_FORMAT_PICKLE, TIDE_FORMAT_JSON };
  tide_trace* const trace = both();
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    memory_file file = file_written(trace, formats[i]);
    tide_trace* const again = trace_of(&file);
    expect_trace_json(__FILE__, __LINE__, again, "{" DEVICE ", " LISTS ", \"more\": true}");
    tide_trace_free(again);
    memory_file_fini(&file);
  }
  tide_trace_free(trace);
}

T_TEST(test_host__a_second_time_and_nothing_are_refused) {
  tide_trace* const trace = both();
  tide_trace* const empty = trace_of_text("{\"segments\": []}");
  T_STATUS(tide_trace_add_host(trace, empty), TIDE_ERR_ARGUMENT);
  expect_trace_json(__FILE__, __LINE__, trace, "{" DEVICE ", " LISTS ", \"more\": true}");
  T_OK(tide_trace_add_host(empty, trace));
  expect_trace_json(__FILE__, __LINE__, empty,
                    "{\"segments\": [], \"host_segments\": [], \"host_traces\": []}");
  T_STATUS(tide_trace_add_host(NULL, trace), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_host(trace, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_add_host(trace, trace), TIDE_ERR_ARGUMENT);
  tide_trace_free(empty);
  tide_trace_free(trace);
}

T_TEST(test_host__without_memory_the_trace_stays_as_it_was) {
  tide_trace* const host = trace_of_text(HOST);
  bool has_failed = true;
  size_t fail_at = 0;
  for (; has_failed; fail_at++) {
    counting_heap h;
    tide_trace* trace = NULL;
    counting_heap_init(&h, SIZE_MAX, false);
    T_OK(tide_trace_new(&h.heap, &trace));
    atomic_store(&h.fail_at, atomic_load(&h.allocs) + fail_at);
    const tide_status status = tide_trace_add_host(trace, host);
    has_failed = atomic_load(&h.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(tide_trace_get_about(trace).extra == 0, has_failed);
    tide_trace_free(trace);
    T_EQ(atomic_load(&h.outstanding), 0);
  }
  T_LT(5, fail_at);
  tide_trace_free(host);
}
