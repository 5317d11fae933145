// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Small traces made by hand, entry by entry.
#ifndef TIDEMARK_TESTS_REPLAY_BY_HAND_H
#define TIDEMARK_TESTS_REPLAY_BY_HAND_H

#include "t.h"
#include "tidemark/trace.h"

static inline tide_trace* trace_new(void) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_trace_add_device(trace, 0));
  return trace;
}

static inline void trace_add_on(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes,
                                uint64_t stream) {
  size_t count = 0;
  (void)tide_trace_entries(trace, 0, &count);
  const tide_trace_entry entry = { .time_ns = 1000 * count,
                                   .address = address,
                                   .bytes = bytes,
                                   .stream = stream,
                                   .action = (uint8_t)action,
                                   .absent = TIDE_ENTRY_POOL };
  T_OK(tide_trace_add_entry(trace, &entry));
}

static inline void trace_add(tide_trace* trace, tide_action action, uint64_t address, uint64_t bytes) {
  trace_add_on(trace, action, address, bytes, 0);
}

// Both halves of a release that waits for nothing.
static inline void trace_add_free(tide_trace* trace, uint64_t address, uint64_t bytes) {
  trace_add(trace, TIDE_ACTION_FREE_REQUESTED, address, bytes);
  trace_add(trace, TIDE_ACTION_FREE_COMPLETED, address, bytes);
}

#endif
