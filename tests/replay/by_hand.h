// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Small traces made by hand, entry by entry, or in a notation of words with addresses and sizes:
//
//   tide_trace* trace = trace_from(0, "segment 2M:20M alloc 2M:100 free 2M:100");
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

// A sum such as "2M-512", in bytes; K, M and G are powers of 1024.
static inline uint64_t events_number(char** at) {
  uint64_t sum = 0;
  for (char sign = '+'; sign == '+' || sign == '-'; sign = **at) {
    if (**at == '+' || **at == '-') ++*at;
    uint64_t number = strtoull(*at, at, 0);
    static const char units[] = "KMG";
    const char* const unit = **at != '\0' ? strchr(units, **at) : NULL;
    if (unit != NULL) number <<= 10 * (unit - units + 1);
    if (unit != NULL) ++*at;
    sum = sign == '+' ? sum + number : sum - number;
  }
  return sum;
}

// Adds entries: a word, and address:bytes for each that follows. Addresses are relative to `base`. "request"
// and "done" are the halves of "free"; "give" is segment_free.
static inline void trace_add_from(tide_trace* trace, uint64_t base, const char* text) {
  static const char* const words[] = { "alloc", "request",  "done", "segment",      "give",  "map",
                                       "unmap", "snapshot", "oom",  "user_defined", "other", "free" };
  char copy[512];
  int action = -1;
  T_LT(strlen(text), sizeof copy);
  memcpy(copy, text, strlen(text) + 1);
  for (char* word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) {
    if (strchr(word, ':') == NULL) {
      for (action = TIDE_ACTION_COUNT; strcmp(words[action], word) != 0; action--) T_LT(0, action);
      continue;
    }
    const uint64_t address = base + events_number(&word);
    T_EQ(*word++, ':');
    const uint64_t bytes = events_number(&word);
    T_EQ(*word, '\0');
    if (action == TIDE_ACTION_COUNT) trace_add_free(trace, address, bytes);
    else trace_add(trace, (tide_action)action, address, bytes);
  }
}

static inline tide_trace* trace_from(uint64_t base, const char* text) {
  tide_trace* const trace = trace_new();
  trace_add_from(trace, base, text);
  return trace;
}

#endif
