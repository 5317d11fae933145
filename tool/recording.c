// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Opens a recording for a replay. The recorded peaks come from a ledger, which follows the recorded
// addresses.
#include "recording.h"

#include "base/arith.h"
#include "picture.h"

static int device_choose(const tool_call* call, tool_recording* r) {
  const int status = tool_device_choose(call, r->trace, &r->device);
  if (status != TOOL_DONE || tool_device_entries(r->trace, r->device) > 0) return status;
  return tool_fail("%s: there are no entries to replay%s; record them with "
                   "torch.cuda.memory._record_memory_history()",
                   r->file, tool_option_value(call, "device") != NULL ? " on that device" : "");
}

// The most that the program asks for at once: what it holds, and what it was refused then.
static tide_status held_find(tool_recording* r, tide_ledger* ledger) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(r->trace, r->device, &count);
  r->held_bytes = tide_ledger_get_peaks(ledger).held.bytes;
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_OOM) continue;
    const tide_status status = tide_ledger_seek(ledger, i);
    if (status != TIDE_OK) return status;
    const tide_ledger_totals totals = tide_ledger_get_totals(ledger);
    const uint64_t waiting = totals.active_bytes - totals.allocated_bytes;
    uint64_t held = 0;
    if (!tide__add(totals.live_bytes - tide__min(totals.live_bytes, waiting), entries[i].bytes, &held))
      continue;
    r->held_bytes = tide__max(r->held_bytes, held);
  }
  return TIDE_OK;
}

static tide_status recording_follow(tool_recording* r) {
  tide_ledger* ledger = NULL;
  tide_status status = tide_ledger_new(r->trace, r->device, &ledger);
  if (status != TIDE_OK) return status;
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  r->odd_entries = tool_fault_count(&faults, tool_device_has_segments(r->trace, r->device));
  r->live_bytes = peaks.live.bytes;
  r->is_from_start = faults.is_from_start;
  r->reserved_bytes = tool_device_has_segments(r->trace, r->device) ? peaks.reserved.bytes : 0;
  status = held_find(r, ledger);
  tide_ledger_free(ledger);
  return status;
}

void tool_recording_emit_odd(tool_emit* emit, uint64_t count) {
  if (count > 0)
    tool_emit_words(
        emit,
        "%llu entries contradict others, or refer to entries that are missing, so the figures are "
        "approximate. tidemark info counts them.",
        (unsigned long long)count);
}

int tool_recording_open(const tool_call* call, tool_recording* out) {
  *out = (tool_recording){ .file = call->operands[0] };
  int status = tool_trace_read(out->file, &out->trace);
  if (status == TOOL_DONE) status = device_choose(call, out);
  if (status != TOOL_DONE) return status;
  out->has_settings = tide_trace_get_about(out->trace).settings != 0;
  if (recording_follow(out) != TIDE_OK ||
      tide_replay_new(out->trace, out->device, NULL, &out->replay) != TIDE_OK)
    return tool_fail("%s: %s", out->file, tool_error());
  return TOOL_DONE;
}

bool tool_recording_begin(tide_trace* trace, size_t device, const tide_ledger* ledger, tool_recording* out) {
  *out = (tool_recording){ .trace = trace, .device = device };
  out->is_from_start = tide_ledger_get_faults(ledger).is_from_start;
  out->has_settings = tide_trace_get_about(trace).settings != 0;
  if (tool_device_has_segments(trace, device))
    out->reserved_bytes = tide_ledger_get_peaks(ledger).reserved.bytes;
  return tide_replay_new(trace, device, NULL, &out->replay) == TIDE_OK;
}

void tool_recording_close(tool_recording* recording) {
  tide_replay_free(recording->replay);
  tide_trace_free(recording->trace);
}

int tool_recording_steps(const tool_call* call, const tool_recording* r, tool_sites* sites, tool_steps* out) {
  tide_ledger* ledger = NULL;
  if (tide_ledger_new(r->trace, r->device, &ledger) != TIDE_OK)
    return tool_fail("%s: %s", r->file, tool_error());
  const int status = tool_steps_init(out, call, r->trace, r->device, ledger, sites);
  tide_ledger_free(ledger);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Repeating the recording

bool tool_recording_on_progress(void* user, uint64_t done, uint64_t count) {
  tool_progress_show(user, (double)done / (double)count);
  return true;
}

tide_status tool_recording_compare(tool_recording* r) {
  if (r->reserved_bytes == 0) return TIDE_OK;
  tide_replay_options o = TIDE_REPLAY_OPTIONS_INIT;
  tool_progress* const progress = tool_progress_begin("repeating the recording");
  const tide_device_options device = tide_replay_recorded_options(r->replay);
  o.device = &device;
  o.checks = true;
  o.infers_limit = true;
  o.on_progress = tool_recording_on_progress;
  o.user = progress;
  r->result = (tide_replay_result)TIDE_REPLAY_RESULT_INIT;
  const tide_status status = tide_replay_run(r->replay, &o, &r->result);
  tool_progress_end(progress);
  r->is_compared = status == TIDE_OK;
  r->is_repeated = r->is_compared && r->result.mismatch[0] == '\0';
  return status;
}
