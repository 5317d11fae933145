// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// At any time, a setting must reserve what the program holds. Nothing else follows for a setting that was not
// the recorded one: it may have kept any amount of memory from before. So a setting may certainly not fit a
// limit, but never certainly fit.
#include "cut.h"

#include "report.h"

static bool is_too_small(const tool_recording* r, const tool_limit* limit) {
  return r->held_bytes > limit->bytes;
}

// ---------------------------------------------------------------------------------------------------
// Rows, only in JSON

static const tool_column columns[] = {
  { "policy", NULL },         { "settings", NULL },        { "is_recorded", NULL },  { "is_pytorch", NULL },
  { "error", NULL },          { "peak_allocated", NULL },  { "fits", NULL },         { "first_oom", NULL },
  { "peak_reserved", NULL },  { "utilisation", NULL },     { "driver_calls", NULL }, { "driver_ms", NULL },
  { "needs_at_least", NULL }, { "smallest_memory", NULL }, { "smallest_ms", NULL },
};

// The figures of the recorded setting are those of the recorded part. All others are unknown.
static void row_emit_figures(tool_emit* emit, const tool_recording* r, bool is_known) {
  const tide_replay_result* const result = &r->result;
  tool_emit_uint_if(emit, is_known, NULL, NULL, r->reserved_bytes);
  if (!is_known) {
    for (size_t i = 0; i < 3; i++) tool_emit_text(emit, NULL, NULL, NULL);
    return;
  }
  tool_emit_real(emit, NULL, NULL, tool_utilisation(r->live_bytes, r->reserved_bytes), 4);
  tool_emit_uint(emit, NULL, NULL, result->driver_calls);
  tool_emit_real(emit, NULL, NULL, (double)result->driver_ns / 1e6, 2);
}

static void row_emit(tool_emit* emit, const tool_recording* r, const tool_limit* limit,
                     const tool_trial* row) {
  char text[TOOL_POLICY_TEXT];
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, tool_policy_names[row->device.policy]);
  tool_emit_text(emit, NULL, NULL, tool_policy_settings(&row->device, text));
  tool_emit_bool(emit, NULL, NULL, row->is_recorded);
  tool_emit_bool(emit, NULL, NULL, row->is_torch);
  tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_uint(emit, NULL, NULL, r->live_bytes);
  if (is_too_small(r, limit)) tool_emit_bool(emit, NULL, NULL, false);
  else tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_text(emit, NULL, NULL, NULL);
  row_emit_figures(emit, r, row->is_recorded && tool_limit_is_recorded(limit, r));
  tool_emit_uint(emit, NULL, NULL, r->held_bytes);
  tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_text(emit, NULL, NULL, NULL);
}

static void rows_emit(tool_emit* emit, const tool_recording* r, const tool_limit* limit,
                      const tool_trials* trials) {
  tool_emit_table(emit, "rows", columns, sizeof columns / sizeof columns[0]);
  for (size_t i = 0; i < trials->count; i++) row_emit(emit, r, limit, &trials->rows[i]);
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// Words

static void needs_words(const tool_recording* r, const tool_limit* limit, tool_words* w) {
  tool_words_add_size(w, "Every setting needs at least ", r->held_bytes,
                      ": the program asks for that much at once.");
  if (r->reserved_bytes != 0)
    tool_words_add_size(w, " The recorded setting reserved ", r->reserved_bytes,
                        " in the recorded part of the run.");
  if (limit->bytes == TIDE_NO_LIMIT) return;
  if (is_too_small(r, limit)) tool_words_add_size(w, " So no setting fits ", limit->bytes, ".");
  else tool_words_add_size(w, " Whether a setting fits ", limit->bytes, " is not known.");
}

static void words_emit(tool_emit* emit, const tool_recording* r, const tool_limit* limit) {
  char size[TOOL_SIZE_TEXT];
  tool_words needs = { .length = 0 };
  needs_words(r, limit, &needs);
  tool_emit_words(
      emit,
      "The recording begins in the middle of the run: %llu blocks of %s in total existed before. "
      "The figures are those of the recorded part. What another setting would have reserved before "
      "is not known, so settings are not compared.",
      (unsigned long long)r->result.blocks_before, tool_size_text(r->result.bytes_before, size));
  tool_emit_words(emit, "%s", needs.text);
  if (r->is_compared && !r->is_repeated && r->has_settings)
    tool_emit_words(emit,
                    "A replay with the recorded setting does not reproduce the recorded part. First "
                    "difference: %s.",
                    r->result.mismatch);
  tool_emit_words(emit,
                  "No setting is suggested: that needs a recording from the start of the run. Call "
                  "torch.cuda.memory._record_memory_history() before the first allocation, with a larger "
                  "max_entries.");
}

int tool_cut_answer(const tool_call* call, const tool_recording* r, const tool_limit* limit,
                    const tool_trials* trials) {
  const tool_advice none = { .verdict = TOOL_VERDICT_UNKNOWN };
  const uint64_t reserved = r->reserved_bytes;
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(r->trace).is_cut);
  tool_emit_bool(emit, "is_from_start", NULL, false);
  tool_limit_emit(emit, limit, false);
  tool_emit_bytes(emit, "peak_allocated", "peak allocated", r->live_bytes);
  tool_emit_bytes_if(emit, reserved != 0, "recorded_reserved", "reserved when recorded", reserved);
  if (call->is_json) rows_emit(emit, r, limit, trials);
  tool_recording_emit_odd(emit, r->odd_entries);
  tool_emit_uint(emit, "blocks_before", NULL, r->result.blocks_before);
  tool_emit_uint(emit, "requested_before", NULL, r->result.bytes_before);
  tool_emit_uint(emit, "inferred_empty_cache", NULL, r->result.inferred_empty_cache);
  tool_emit_bool(emit, "is_repeated", NULL, r->is_repeated);
  words_emit(emit, r, limit);
  tool_advice_emit(emit, &none);
  const int status = tool_emit_end(emit);
  if (status != TOOL_DONE) return status;
  return limit->is_given && is_too_small(r, limit) ? TOOL_NO : TOOL_DONE;
}

void tool_cut_emit_begin(tool_emit* emit, const tool_recording* r, const tide_replay_result* result) {
  if (r->is_from_start) return;
  const char* const how =
      result->is_in_place
          ? "The replay began with the segments and blocks that existed then; its setting "
            "applies from there on."
          : "The replay allocated the older blocks first. How they lay in memory is not known, so its "
            "reserved memory is only an example and may be too low.";
  tool_emit_words(emit,
                  "The recording begins in the middle of the run. %s The figures are those of the recorded "
                  "part; what the run needed before it is not known.",
                  how);
}
