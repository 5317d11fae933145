// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Devices are followed one after another, so only one ledger exists at a time.
#include "devices.h"

#include "picture.h"

// ---------------------------------------------------------------------------------------------------
// Which device

bool tool_device_first_refusal(const tide_trace* trace, size_t device, uint64_t* out_entry) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_OOM) continue;
    *out_entry = i;
    return true;
  }
  return false;
}

// The device with the earliest refusal, the first of several without times. Returns false if there is none.
static bool device_of_refusal(const tide_trace* trace, size_t count, size_t* out) {
  uint64_t earliest_ns = 0;
  bool is_found = false;
  for (size_t i = 0; i < count; i++) {
    uint64_t at = 0;
    if (!tool_device_first_refusal(trace, i, &at)) continue;
    const uint64_t time_ns = tide_trace_entries(trace, i, NULL)[at].time_ns;
    if (is_found && time_ns >= earliest_ns) continue;
    is_found = true;
    earliest_ns = time_ns;
    *out = i;
  }
  return is_found;
}

size_t tool_device_default(const tide_trace* trace) {
  const size_t count = tool_device_count(trace);
  size_t device = 0;
  if (device_of_refusal(trace, count, &device)) return device;
  for (size_t i = 0; i < count; i++) {
    if (tool_device_entries(trace, i) > 0) return i;
  }
  for (size_t i = 0; i < count; i++) {
    if (tool_device_has_segments(trace, i)) return i;
  }
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// What they have

static void device_emit(tool_emit* emit, const tide_trace* trace, size_t device,
                        const tide_ledger_peaks* peaks) {
  uint64_t actions[TIDE_ACTION_COUNT];
  const size_t entry_count = tool_device_actions(trace, device, actions);
  const bool is_known = tool_device_knows_reserved(trace, device);
  const double utilisation = tool_utilisation(peaks->live.bytes, peaks->reserved.bytes);
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, device);
  tool_emit_uint(emit, NULL, NULL, entry_count);
  tool_emit_bytes(emit, NULL, NULL, peaks->live.bytes);
  tool_emit_bytes_if(emit, is_known, NULL, NULL, peaks->reserved.bytes);
  tool_emit_share(emit, NULL, NULL, is_known ? utilisation : (double)NAN);
  tool_emit_uint(emit, NULL, NULL, actions[TIDE_ACTION_OOM]);
}

static int device_follow(tool_emit* emit, const tide_trace* trace, size_t device) {
  tide_ledger* ledger = NULL;
  if (tide_ledger_new(trace, device, &ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  tide_ledger_free(ledger);
  device_emit(emit, trace, device, &peaks);
  return TOOL_DONE;
}

static int rows_emit(tool_emit* emit, const tide_trace* trace, size_t described,
                     const tide_ledger_peaks* peaks) {
  static const tool_column columns[] = {
    { "device", "device" },
    { "entries", "entries" },
    { "peak_allocated", "peak allocated" },
    { "peak_reserved", "peak reserved" },
    { "utilisation", "utilisation" },
    { "ooms", "requests refused" },
  };
  const size_t count = tool_device_count(trace);
  int status = TOOL_DONE;
  tool_emit_table(emit, "devices", columns, sizeof columns / sizeof columns[0]);
  if (tool_device_has_data(trace, described)) device_emit(emit, trace, described, peaks);
  for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
    if (i != described && tool_device_has_data(trace, i)) status = device_follow(emit, trace, i);
  }
  tool_emit_table_end(emit);
  return status;
}

static void choice_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace, size_t described) {
  uint64_t at = 0;
  if (tool_option_value(call, "device") != NULL) return;
  const bool is_short = tool_device_first_refusal(trace, described, &at);
  tool_emit_words(emit, "The answer is about device %zu, %s; --device chooses another.", described,
                  is_short ? "which ran out of memory first" : "the first with entries");
}

int tool_devices_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace, size_t described,
                      const tide_ledger_peaks* peaks) {
  size_t count = 0;
  for (size_t i = 0; i < tool_device_count(trace); i++) count += tool_device_has_data(trace, i);
  if (count < 2 && !call->is_json) return TOOL_DONE;
  tool_emit_title(emit, "Devices");
  if (count > 1) choice_emit(emit, call, trace, described);
  return rows_emit(emit, trace, described, peaks);
}
