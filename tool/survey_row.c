// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One recording becomes a row for each of its devices. The recorded figures come from a ledger; then the
// usual settings are replayed, in the memory that the run had, if that is known. Nothing of the recording is
// kept.
#include <stdlib.h>
#include <string.h>

#include "limit.h"
#include "moment.h"
#include "picture.h"
#include "refusal.h"
#include "survey.h"
#include "where.h"

#define DAY_NS (UINT64_C(86400) * 1000000000u)  // earlier times do not count from 1970

// ---------------------------------------------------------------------------------------------------
// What was recorded

static uint64_t time_at(const tide_trace* trace, size_t device, uint64_t at) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  return at < count ? entries[at].time_ns : count > 0 ? entries[0].time_ns : 0;
}

static void row_note_times(tool_survey_row* row, const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  row->has_times = count > 0 && !tide_trace_get_about(trace).has_steps;
  for (size_t i = 0; i < count && row->has_times; i++)
    row->has_times = (entries[i].absent & TIDE_ENTRY_TIME) == 0;
  row->first_ns = count > 0 ? entries[0].time_ns : 0;
  row->is_absolute = row->has_times && row->first_ns >= DAY_NS;
}

static void row_note_ooms(tool_survey_row* row, const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_OOM || row->ooms++ > 0) continue;
    row->oom_at = i;
    row->oom_ns = entries[i].time_ns;
    row->oom_bytes = entries[i].bytes;
  }
}

static void row_note_waste(tool_survey_row* row, const tide_trace* trace, size_t device,
                           tide_ledger* ledger) {
  tool_where where;
  if (!row->knows_reserved || tool_where_find(trace, device, ledger, &where) != TOOL_DONE) return;
  row->waste = where.reserved > where.requested ? where.reserved - where.requested : 0;
  if (row->waste > 0) row->cause = tool_text_copy(tool_cause_describe(tool_where_main_cause(&where)).label);
}

static void row_note_peaks(tool_survey_row* row, const tide_ledger_peaks* peaks) {
  row->allocated = peaks->live.bytes;
  row->requested = peaks->requested.bytes;
  row->allocated_at = peaks->live.at;
  row->reserved = row->knows_reserved ? peaks->reserved.bytes : 0;
  row->reserved_at = row->knows_reserved ? peaks->reserved.at : TIDE_LEDGER_BEFORE;
}

// Follows the recorded addresses; the ledger is freed before anything is replayed.
static tide_status row_follow(tool_survey_row* row, tool_recording* r) {
  tide_ledger* ledger = NULL;
  const tide_status status = tide_ledger_new(r->trace, r->device, &ledger);
  if (status != TIDE_OK) return status;
  const tide_ledger_peaks peaks = tide_ledger_get_peaks(ledger);
  const tide_ledger_faults faults = tide_ledger_get_faults(ledger);
  row->knows_reserved = tool_device_knows_reserved(r->trace, r->device);
  row_note_peaks(row, &peaks);
  row_note_times(row, r->trace, r->device);
  row_note_ooms(row, r->trace, r->device);
  row_note_waste(row, r->trace, r->device, ledger);
  tide_ledger_free(ledger);
  row->allocated_ns = time_at(r->trace, r->device, row->allocated_at);
  row->reserved_ns = time_at(r->trace, r->device, row->reserved_at);
  row->during = tool_text_copy(tool_moment_of(r->trace, r->device, row->reserved_at).during);
  row->odd = tool_fault_count(&faults, tool_device_has_segments(r->trace, r->device));
  row->is_from_start = faults.is_from_start;
  r->odd_entries = row->odd;
  r->live_bytes = row->allocated;
  r->is_from_start = row->is_from_start;
  r->reserved_bytes = tool_device_has_segments(r->trace, r->device) ? row->reserved : 0;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// What other settings would have needed

static void row_note_trials(tool_survey_row* row, const tool_trials* trials) {
  char text[TOOL_POLICY_TEXT];
  row->trials = tool_alloc(trials->count, sizeof *row->trials);
  for (size_t i = 0; i < trials->count; i++) {
    const tool_trial* const trial = &trials->rows[i];
    if (!trial->is_torch) continue;
    row->trials[row->trial_count++] =
        (tool_survey_trial){ .settings = tool_text_copy(tool_policy_settings(&trial->device, text)),
                             .reserved = trial->result.peak_reserved,
                             .driver_ns = trial->result.driver_ns,
                             .fits = tool_trial_fits(trial) };
  }
}

static bool row_limit(const tool_call* call, tool_survey_row* row, const tool_recording* r) {
  tool_limit limit;
  if (tool_limit_choose(call, r, NULL, &limit) != TOOL_DONE) return false;
  row->limit = limit.bytes;
  row->is_limit_inferred = !limit.is_given && limit.bytes != TIDE_NO_LIMIT;
  return tool_limit_is_recorded(&limit, r);
}

static void row_replay(const tool_call* call, tool_survey_row* row, tool_recording* r, size_t threads) {
  char text[TOOL_POLICY_TEXT];
  tool_trials* const trials = tool_alloc(1, sizeof *trials);
  const tide_device_options recorded = tide_replay_recorded_options(r->replay);
  if (row->has_settings) row->settings = tool_text_copy(tool_policy_settings(&recorded, text));
  trials->replay = r->replay;
  trials->is_quick = true;
  trials->threads = threads;
  if (tool_recording_compare(r) == TIDE_OK) {
    const bool is_same = row_limit(call, row, r);
    trials->limit = row->limit;
    tool_trials_add_usual(trials, &recorded, false);
    tool_trials_take(trials, r, is_same);
    tool_trials_run(trials);
    const tool_advice advice = tool_trials_advise(trials, r);
    row->is_proof = advice.verdict != TOOL_VERDICT_UNKNOWN;
    row->needs = advice.recorded_bytes;
    row_note_trials(row, trials);
  }
  free(trials);
}

// ---------------------------------------------------------------------------------------------------
// A recording

static tide_status device_read(const tool_call* call, tool_survey_row* row, tool_recording* r,
                               size_t threads) {
  const tide_trace_about about = tide_trace_get_about(r->trace);
  row->device = r->device;
  row->entries = tool_device_entries(r->trace, r->device);
  row->is_cut = about.is_cut;
  row->has_settings = r->has_settings = about.settings != 0;
  const tide_status status = row_follow(row, r);
  if (status != TIDE_OK || row->entries == 0) return status;
  // A recording with too many streams has figures, but cannot be replayed.
  if (tide_replay_new(r->trace, r->device, NULL, &r->replay) == TIDE_OK) row_replay(call, row, r, threads);
  tide_replay_free(r->replay);
  r->replay = NULL;
  return TIDE_OK;
}

// Replaces the rows of a file by one with an error.
static void rows_fail(tool_survey_rows* rows, size_t first, size_t place, const char* text) {
  tool_survey_rows_cut(rows, first);
  tool_survey_row* const row = tool_survey_rows_add(rows);
  row->place = place;
  row->error = tool_text_copy(text);
}

void tool_survey_read(const tool_call* call, const tool_survey_file* file, size_t threads,
                      tool_survey_rows* out) {
  const size_t first = out->count;
  tool_recording r = { .file = file->path };
  if (file->found == TOOL_FOUND_FOLDER && !file->is_closed) {
    rows_fail(out, first, file->place, "the folder contains no recordings");
    return;
  }
  tide_status status = tool_trace_load(file->path, &r.trace);
  const size_t devices = status == TIDE_OK ? tool_device_count(r.trace) : 0;
  for (r.device = 0; r.device < devices && status == TIDE_OK; r.device++) {
    if (!tool_device_has_data(r.trace, r.device)) continue;
    tool_survey_row* const row = tool_survey_rows_add(out);
    row->place = file->place;
    row->limit = TIDE_NO_LIMIT;
    status = device_read(call, row, &r, threads);
  }
  if (status != TIDE_OK) rows_fail(out, first, file->place, tool_error());
  else if (out->count == first)
    rows_fail(out, first, file->place, "the recording has neither entries nor segments");
  tide_trace_free(r.trace);
}
