// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a run needed at once: its live requests, and those that were refused.
#ifndef TIDEMARK_TOOL_NEEDED_H
#define TIDEMARK_TOOL_NEEDED_H

#include "tidemark/ledger.h"
#include "tool.h"

// The largest sum of live requests and a refused one, each rounded up to 512 bytes. Without refusals, this is
// the peak of live requests. No allocator serves the run in less memory.
typedef struct tool_needed {
  uint64_t bytes;
  bool has_refusal;  // a refused request is included
} tool_needed;

// `live_bytes` is the peak of live requests. `ledger` may be NULL: then one is made if requests were refused.
// On failure it prints why and returns TOOL_USAGE.
int tool_needed_find(const tide_trace* trace, size_t device, uint64_t live_bytes, tide_ledger* ledger,
                     tool_needed* out);

// A fact: "needed at once", with the key peak_needed. In text, only if a refused request is included.
void tool_needed_emit(tool_emit* emit, const tool_needed* needed);

#endif
