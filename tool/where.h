// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where reserved memory was lost: memory that no live request asked for, by cause.
#ifndef TIDEMARK_TOOL_WHERE_H
#define TIDEMARK_TOOL_WHERE_H

#include "picture.h"

// Every cause: field, label, description. A byte counts for the first cause that applies to it.
#define TOOL_WHERE_MAP(X)                                                                                \
  X(rounding, "rounding", "added to requests by rounding")                                               \
  X(waiting_for_events, "waiting for events", "released, but another stream may still use it")           \
  X(private_pools, "private pools", "free in a private pool of a graph or program")                      \
  X(held_by_a_live_neighbour, "held by a live neighbour", "free, but in segments that hold live blocks") \
  X(cached_but_free, "cached but free", "free, and could be given back to the device")

// [W1] reserved == requested + the sum of all causes
typedef struct tool_where {
  uint64_t at;  // number of the entry
  uint64_t reserved;
  uint64_t requested;  // by live requests
#define TOOL_WHERE_FIELD(field, label, text) uint64_t field;
  TOOL_WHERE_MAP(TOOL_WHERE_FIELD)
#undef TOOL_WHERE_FIELD
} tool_where;

typedef enum tool_cause {
#define TOOL_WHERE_ENUM(field, label, text) TOOL_CAUSE_##field,
  TOOL_WHERE_MAP(TOOL_WHERE_ENUM)
#undef TOOL_WHERE_ENUM
      TOOL_CAUSE_COUNT
} tool_cause;

typedef struct tool_cause_info {
  const char* key;
  const char* label;
  const char* text;
} tool_cause_info;
tool_cause_info tool_cause_describe(tool_cause cause);
uint64_t tool_where_bytes(const tool_where* where, tool_cause cause);
// The cause with the most bytes.
tool_cause tool_where_main_cause(const tool_where* where);

// Measures at the point where reserved memory first reaches its peak, including the request that made it
// grow. On failure it prints why and returns TOOL_USAGE.
int tool_where_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_where* out);

#endif
