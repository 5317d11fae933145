// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One pass of a ledger, which stops at each refusal.
#include "needed.h"

#include "base/arith.h"
#include "devices.h"

#define REQUEST_GRAIN 512u

static void needed_add(tool_needed* needed, uint64_t live_bytes, uint64_t refused_bytes) {
  uint64_t bytes = 0;
  if (!tide__align_up(refused_bytes, REQUEST_GRAIN, &bytes) || !tide__add(live_bytes, bytes, &bytes))
    bytes = UINT64_MAX;
  if (bytes > needed->bytes) *needed = (tool_needed){ bytes, true };
}

static int needed_follow(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_needed* needed) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_OOM) continue;
    if (tide_ledger_seek(ledger, i) != TIDE_OK) return tool_fail("%s", tool_error());
    needed_add(needed, tide_ledger_get_totals(ledger).live_bytes, entries[i].bytes);
  }
  return TOOL_DONE;
}

int tool_needed_find(const tide_trace* trace, size_t device, uint64_t live_bytes, tide_ledger* ledger,
                     tool_needed* out) {
  uint64_t at = 0;
  tide_ledger* own = NULL;
  *out = (tool_needed){ .bytes = live_bytes };
  if (!tool_device_first_refusal(trace, device, &at)) return TOOL_DONE;
  if (ledger == NULL && tide_ledger_new(trace, device, &own) != TIDE_OK) return tool_fail("%s", tool_error());
  const int status = needed_follow(trace, device, ledger != NULL ? ledger : own, out);
  tide_ledger_free(own);
  return status;
}

void tool_needed_emit(tool_emit* emit, const tool_needed* needed) {
  tool_emit_bytes(emit, "peak_needed", needed->has_refusal ? "needed at once" : NULL, needed->bytes);
}
