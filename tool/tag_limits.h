// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests that the limit of a tag refused, and not the memory of the device: they say nothing about what the
// device had. A snapshot knows the limits at its end, and they are taken for those of the whole run.
#ifndef TIDEMARK_TOOL_TAG_LIMITS_H
#define TIDEMARK_TOOL_TAG_LIMITS_H

#include "picture.h"
#include "tags.h"

typedef struct tool_tag_refusal {
  uint64_t at;      // number of the entry
  uint64_t bytes;   // requested, rounded
  const char* tag;  // whose limit was in the way; borrowed from the trace
  uint64_t limit;
  uint64_t reserved;  // under the tag
} tool_tag_refusal;

// The tags of a device that have a limit.
typedef struct tool_tag_limits {
  tool_pool_tags pools;
  tide_trace_tag* items;  // owned
  size_t count;
  size_t pictures;  // that were taken so far
} tool_tag_limits;

void tool_tag_limits_init(tool_tag_limits* limits, const tide_trace* trace, size_t device);
void tool_tag_limits_fini(tool_tag_limits* limits);

// Did the limit of a tag refuse the request of an entry? `out->tag` is NULL if none did. The most special tag
// counts. On failure it prints why and returns TOOL_USAGE.
// Cost: O(tags with a limit × segments) for the first thousand; later ones are the device's.
int tool_tag_limits_ask(tool_tag_limits* limits, tide_ledger* ledger, const tide_trace_entry* entry,
                        uint64_t at, tool_tag_refusal* out);

#endif
