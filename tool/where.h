// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where reserved memory sits that nobody asked for.
#ifndef TIDEMARK_TOOL_WHERE_H
#define TIDEMARK_TOOL_WHERE_H

#include "picture.h"

// Every cause: field, label for people, what is said of the memory. The order is that of the questions asked
// of a byte.
#define TOOL_WHERE_MAP(X)                                                                                  \
  X(rounding, "rounding", "lies in blocks beyond what was asked for")                                      \
  X(waiting_for_events, "waiting for events", "is released, but work on a stream may still use it")        \
  X(private_pools, "private pools", "is free in the pool of a graph or of the program")                    \
  X(stranded_on_another_stream, "stranded on another stream", "is free, and only that stream may have it") \
  X(pinned_by_a_live_neighbour, "pinned by a live neighbour", "is free beside blocks in use")              \
  X(cached_but_free, "cached but free", "is free and could be given back")

// [W1] reserved == requested + the sum of all causes
typedef struct tool_where {
  uint64_t at;  // number of the entry
  uint64_t reserved;
  uint64_t requested;  // by requests that are not released
  bool has_stream;     // was it a request that made memory grow then?
  uint64_t stream;     // of that request
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
// The one with most bytes.
tool_cause tool_where_main_cause(const tool_where* where);

// Looks at the moment when reserved memory first reaches its peak, the request that made it grow included. On
// failure it says why and returns TOOL_USAGE.
int tool_where_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_where* out);

#endif
