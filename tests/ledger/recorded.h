// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Traces for tests: made by hand, entry by entry, or from a recording (device/recording.h), as PyTorch's
// snapshot of it would have been read.
//
//   tide_trace* trace = recorded_trace("graphs", 100, NULL);   // without its first 100 entries
#ifndef TIDEMARK_TESTS_LEDGER_RECORDED_H
#define TIDEMARK_TESTS_LEDGER_RECORDED_H

#include "device/recording.h"
#include "device/script.h"
#include "tidemark/ledger.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

// ---------------------------------------------------------------------------------------------------
// By hand

static inline void trace_add(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = 1000 * count,
                                   .address = address,
                                   .bytes = bytes,
                                   .action = (uint8_t)action,
                                   .absent = TIDE_ENTRY_POOL };
  T_OK(tide_trace_add_entry(trace, &entry));
}

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

// The size that each address was last asked for with: a table with open addressing.
typedef struct recorded_sizes {
  uint64_t* keys;
  uint64_t* values;
  size_t mask;
} recorded_sizes;

static inline uint64_t* recorded_size(recorded_sizes* sizes, uint64_t address) {
  size_t at = (size_t)((address >> 9) * 0x9e3779b97f4a7c15u >> 20) & sizes->mask;
  while (sizes->keys[at] != 0 && sizes->keys[at] != address) at = (at + 1) & sizes->mask;
  sizes->keys[at] = address;
  return &sizes->values[at];
}

static inline tide_action recorded_action(char kind) {
  switch (kind) {
    case 'a': return TIDE_ACTION_ALLOC;
    case 'd':
    case 'f': return TIDE_ACTION_FREE_REQUESTED;
    case 'c': return TIDE_ACTION_FREE_COMPLETED;
    case 's': return TIDE_ACTION_SEGMENT_ALLOC;
    case 'r': return TIDE_ACTION_SEGMENT_FREE;
    case 'n':
    case 'm': return TIDE_ACTION_SEGMENT_MAP;
    case 'u': return TIDE_ACTION_SEGMENT_UNMAP;
    case 'o': return TIDE_ACTION_OOM;
    default: T_FAIL("no entry of a snapshot is '%c'", kind);
  }
}

// Adds one entry if fewer than `skip` have come before it.
static inline void recorded_add(tide_trace* trace, tide_trace_entry* entry, size_t* number, size_t skip) {
  entry->time_ns = 1000 * *number;
  if ((*number)++ >= skip) T_OK(tide_trace_add_entry(trace, entry));
}

static inline void recorded_add_entries(tide_trace* trace, const recording* rec, size_t skip) {
  recorded_sizes sizes = { .mask = 1 };
  while (sizes.mask < 2 * rec->entry_count) sizes.mask = 2 * sizes.mask + 1;
  sizes.keys = calloc(sizes.mask + 1, sizeof *sizes.keys);
  sizes.values = calloc(sizes.mask + 1, sizeof *sizes.values);
  T_CHECK(sizes.keys != NULL && sizes.values != NULL);
  size_t number = 0;
  for (size_t i = 0; i < rec->entry_count; i++) {
    const recording_entry* const from = &rec->entries[i];
    tide_trace_entry entry = { .address = from->address, .bytes = from->bytes, .stream = from->stream };
    entry.action = (uint8_t)recorded_action(from->kind);
    entry.absent = TIDE_ENTRY_POOL | (from->kind == 'o' ? TIDE_ENTRY_ADDRESS : 0);
    if (from->kind == 'a') *recorded_size(&sizes, from->address) = from->bytes;
    if (strchr("dfc", from->kind) != NULL) entry.bytes = *recorded_size(&sizes, from->address);
    recorded_add(trace, &entry, &number, skip);
    entry.action = TIDE_ACTION_FREE_COMPLETED;
    if (from->kind == 'd') recorded_add(trace, &entry, &number, skip);
  }
  free(sizes.keys);
  free(sizes.values);
}

static inline void recorded_add_rows(tide_trace* trace, const recording* rec) {
  for (size_t i = 0; i < rec->row_count; i++) {
    const recording_row* const row = &rec->rows[i];
    if (row->kind == 'S') {
      tide_trace_segment segment = { .address = row->address, .bytes = row->bytes, .stream = row->stream };
      const tide_pool_label label = { rec->labels[row->pool][0], rec->labels[row->pool][1] };
      T_OK(tide_trace_add_pool(trace, label, &segment.pool));
      segment.is_large = row->is_large;
      segment.is_expandable = row->is_expandable;
      T_OK(tide_trace_add_segment(trace, &segment));
    } else {
      const uint8_t state = row->state == 'a'   ? TIDE_BLOCK_ALLOCATED
                            : row->state == 'p' ? TIDE_BLOCK_PENDING
                                                : TIDE_BLOCK_INACTIVE;
      const tide_trace_block block = {
        .address = row->address, .bytes = row->bytes, .requested_bytes = row->requested, .state = state
      };
      T_OK(tide_trace_add_block(trace, &block));
    }
  }
}

static inline tide_trace* recorded_make(const recording* rec, size_t skip, const tide_heap* heap) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(heap, &trace));
  const tide_trace_about about = { .has_segments = true, .has_entries = true };
  tide_trace_set_about(trace, &about);
  T_OK(tide_trace_add_device(trace, 0));
  trace_set_options(trace, rec->options);
  recorded_add_entries(trace, rec, skip);
  recorded_add_rows(trace, rec);
  return trace;
}

// One of the recordings that lie beside the tests of the device allocator, without its first `skip` entries.
static inline tide_trace* recorded_trace(const char* name, size_t skip, const tide_heap* heap) {
  char file[128];
  char path[SCRIPT_PATH];
  recording rec;
  (void)snprintf(file, sizeof file, "tests/device/recordings/%s.txt", name);
  script_path(path, SCRIPT_SOURCE, file);
  FILE* const lines = fopen(path, "r");
  T_CHECK(lines != NULL);
  T_CHECK(recording_read(lines, &rec));
  (void)fclose(lines);
  tide_trace* const trace = recorded_make(&rec, skip, heap);
  recording_fini(&rec);
  return trace;
}

// One of the large recordings; the test is skipped where they are not.
static inline tide_trace* recorded_large_trace(const char* name) {
  char file[128];
  char path[SCRIPT_PATH];
  recording rec;
  (void)snprintf(file, sizeof file, "traces/%s.pickle.xz", name);
  script_path(path, "TIDEMARK_DATA", file);
  script s = script_open("tests/device/recording.py", (const char* const[]){ path, NULL });
  T_CHECK(recording_read(s.output, &rec));
  script_close(&s);
  tide_trace* const trace = recorded_make(&rec, 0, NULL);
  recording_fini(&rec);
  return trace;
}

#endif
