// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Traces for tests: made by hand, entry by entry, or from a recording of PyTorch without its beginning.
//
//   tide_trace* trace = recorded_trace("graphs", 100, NULL);   // without its first 100 entries
#ifndef TIDEMARK_TESTS_LEDGER_RECORDED_H
#define TIDEMARK_TESTS_LEDGER_RECORDED_H

#include "machine/counting_heap.h"
#include "replay/by_hand.h"
#include "tidemark/device.h"
#include "tidemark/ledger.h"
#include "traces.h"

// The recordings in tests/data.
static const char* const recorded_names[] = { "after_oom",
                                              "events",
                                              "expand",
                                              "expand_limit",
                                              "expand_split",
                                              "gc_mix",
                                              "gnn_gc_split",
                                              "gnn_retry",
                                              "graphs",
                                              "limit_edge",
                                              "oversize",
                                              "pools",
                                              "release_available",
                                              "research",
                                              "resnet_stacks",
                                              "roundup",
                                              NULL };

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

// ---------------------------------------------------------------------------------------------------
// By hand

static inline void trace_set_settings(tide_trace* trace, const uint64_t* items, size_t count) {
  tide_trace_about about = tide_trace_get_about(trace);
  const tide_value dict = { .kind = TIDE_VALUE_DICT, .items = items, .count = count };
  T_OK(tide_intern_add_value(tide_trace_names(trace), &dict, &about.settings));
  tide_trace_set_about(trace, &about);
}

// A pair for a dict.
static inline uint64_t trace_pair(tide_trace* trace, const char* key, tide_value value) {
  uint32_t key_id = 0;
  uint32_t value_id = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), key, strlen(key), &key_id));
  T_OK(tide_intern_add_value(tide_trace_names(trace), &value, &value_id));
  return (uint64_t)key_id << 32 | value_id;
}

static inline tide_value trace_number(int64_t number) {
  return (tide_value){ .kind = TIDE_VALUE_INT, .integer = number };
}

// The settings of a trace in the words of PyTorch's environment variable, as a snapshot has them.
static inline void trace_set_options(tide_trace* trace, const char* text) {
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  T_OK(tide_device_options_parse(text, &options));
  uint64_t slots[TIDE_ROUNDUP_SLOTS];
  for (unsigned i = 0; i < TIDE_ROUNDUP_SLOTS; i++) {
    char key[16];
    (void)snprintf(key, sizeof key, "%u", 1u << i);
    slots[i] = trace_pair(trace, key, trace_number(options.roundup_divisions[i]));
  }
  const tide_value roundup = { .kind = TIDE_VALUE_DICT, .items = slots, .count = TIDE_ROUNDUP_SLOTS };
  const tide_value is_expandable = { .kind = TIDE_VALUE_BOOL, .integer = options.expandable_segments };
  uint32_t conf = 0;
  T_OK(tide_intern_add_text(tide_trace_names(trace), text, strlen(text), &conf));
  const int64_t max_split = options.max_split_bytes > (uint64_t)INT64_MAX ? -1
                                                                          : (int64_t)options.max_split_bytes;
  const uint64_t items[] = {
    trace_pair(trace, "PYTORCH_CUDA_ALLOC_CONF", (tide_value){ .kind = TIDE_VALUE_TEXT, .text = conf }),
    trace_pair(trace, "max_split_size", trace_number(max_split)),
    trace_pair(trace, "expandable_segments", is_expandable),
    trace_pair(trace, "roundup_power2_divisions", roundup),
  };
  trace_set_settings(trace, items, sizeof items / sizeof items[0]);
}

// ---------------------------------------------------------------------------------------------------
// From a recording

static inline bool recorded_skip(void* user, size_t index, tide_trace_entry* entry) {
  (void)entry;
  return index >= *(const size_t*)user;
}

// A recording from tests/data without its first `skip` entries.
static inline tide_trace* recorded_trace(const char* name, size_t skip, const tide_heap* heap) {
  tide_trace* const whole = trace_of_test(name);
  const trace_edit edit = { .entry = recorded_skip, .user = &skip, .heap = heap };
  tide_trace* const trace = trace_copy(whole, &edit);
  tide_trace_free(whole);
  return trace;
}

// One of the large recordings; the test is skipped where they are not.
static inline tide_trace* recorded_large_trace(const char* name) {
  char file[128];
  (void)snprintf(file, sizeof file, "traces/%s.pickle.xz", name);
  return trace_of_data(file);
}

// Lets every allocation of `trip` fail in turn. It must say so, and leave nothing behind.
static inline void survives_every_failure(tide_status (*trip)(const tide_trace* trace)) {
  counting_heap heap;
  counting_heap_init(&heap, SIZE_MAX, false);
  tide_trace* const trace = recorded_trace("graphs", 2000, &heap.heap);
  const size_t outstanding = heap.outstanding;
  size_t failures = 0;

  for (bool is_done = false; !is_done;) {
    heap.fail_at = heap.allocs + failures;
    heap.has_failed = false;
    const tide_status status = trip(trace);
    is_done = !heap.has_failed;
    T_STATUS(status, is_done ? TIDE_OK : TIDE_ERR_NO_MEMORY);
    T_EQ(heap.outstanding, outstanding);
    failures += !is_done;
  }

  T_LT(5, failures);
  tide_trace_free(trace);
  T_EQ(heap.outstanding, 0);
}

#endif
