// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One pass of a ledger, which stops at each refusal.
#include "needed.h"

#include "base/arith.h"
#include "tidemark/ledger.h"

#define REQUEST_GRAIN 512u

static void needed_add(tool_needed* needed, uint64_t live_bytes, uint64_t refused_bytes, uint64_t at) {
  uint64_t bytes = 0;
  if (!tide__align_up(refused_bytes, REQUEST_GRAIN, &bytes) || !tide__add(live_bytes, bytes, &bytes))
    bytes = UINT64_MAX;
  if (bytes > needed->bytes) *needed = (tool_needed){ bytes, at, true };
}

static int needed_follow(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_needed* out) {
  const tide_ledger_peak live = tide_ledger_get_peaks(ledger).live;
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  *out = (tool_needed){ live.bytes, live.at, false };
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_OOM) continue;
    if (tide_ledger_seek(ledger, i) != TIDE_OK) return tool_fail("%s", tool_error());
    needed_add(out, tide_ledger_get_totals(ledger).live_bytes, entries[i].bytes, i);
  }
  return TOOL_DONE;
}

int tool_needed_find(const tide_trace* trace, size_t device, tool_needed* out) {
  tide_ledger* ledger = NULL;
  *out = (tool_needed){ .bytes = 0 };
  if (tide_ledger_new(trace, device, &ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  const int status = needed_follow(trace, device, ledger, out);
  tide_ledger_free(ledger);
  return status;
}

void tool_needed_emit(tool_emit* emit, const tool_needed* needed) {
  tool_emit_bytes(emit, "peak_needed", needed->has_refusal ? "needed at once" : NULL, needed->bytes);
}
