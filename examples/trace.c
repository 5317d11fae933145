// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// trace.h: what happened, entry by entry. This trace is written by hand; others come from an allocator or a
// file.
#include "example.h"

static void add(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes) {
  const tide_trace_entry entry = { .action = (uint8_t)action, .address = address, .bytes = bytes };
  must(tide_trace_add_entry(trace, &entry));
}

int main(void) {
  tide_trace* trace = NULL;
  size_t count = 0;
  must(tide_trace_new(NULL, &trace));
  add(trace, TIDE_ACTION_SEGMENT_ALLOC, 1 << 30, 20 * MIB);
  add(trace, TIDE_ACTION_ALLOC, 1 << 30, 3 * MIB);
  add(trace, TIDE_ACTION_FREE_REQUESTED, 1 << 30, 3 * MIB);
  add(trace, TIDE_ACTION_FREE_COMPLETED, 1 << 30, 3 * MIB);

  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  for (size_t i = 0; i < count; i++) {
    (void)printf("%-15s %8zu KiB\n", tide_action_name(entries[i].action), (size_t)entries[i].bytes / 1024);
  }
  tide_trace_free(trace);
  return count == 4 ? 0 : 1;
}
