// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark report: the diagnosis. First the finding and one piece of advice, then the figures behind them:
// peaks, where reserved memory was lost, why requests were refused, and who holds memory at the peak. Every
// statement about another setting comes from a replay with it.
#include "report.h"

#include <math.h>
#include <stdlib.h>

#define REPORT_LOSS 0.05  // share of reserved memory that fragmentation may cost without being reported

static double report_utilisation(const tool_diagnosis* r) {
  return tool_utilisation(r->peaks.live.bytes, r->peaks.reserved.bytes);
}

// The cost of fragmentation. Overlapping blocks of a damaged recording may make less reserved than live.
static uint64_t report_cost(const tool_diagnosis* r) {
  return r->peaks.reserved.bytes > r->peaks.live.bytes ? r->peaks.reserved.bytes - r->peaks.live.bytes : 0;
}

// ---------------------------------------------------------------------------------------------------
// Analysis

static int report_look(tool_diagnosis* r) {
  r->entry_count = tool_device_actions(r->trace, r->device, r->actions);
  r->has_segments = tool_device_has_segments(r->trace, r->device);
  r->knows_reserved = tool_device_knows_reserved(r->trace, r->device);
  if (tide_ledger_new(r->trace, r->device, &r->ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  r->peaks = tide_ledger_get_peaks(r->ledger);
  r->faults = tide_ledger_get_faults(r->ledger);
  r->peak_allocated = tool_moment_of(r->trace, r->device, r->peaks.live.at);
  r->peak_reserved = tool_moment_of(r->trace, r->device, r->peaks.reserved.at);
  int status = tool_needed_find(r->trace, r->device, r->peaks.live.bytes, r->ledger, &r->needed);
  if (status == TOOL_DONE) status = tool_where_find(r->trace, r->device, r->ledger, &r->where);
  // After the request, where the ledger is already; but a recording may contradict itself just there.
  const bool is_same = r->where.reserved == r->peaks.reserved.bytes;
  const uint64_t why_at = is_same ? r->where.at : r->peaks.reserved.at;
  if (status == TOOL_DONE) status = tool_why_find(r->ledger, why_at, &r->why);
  if (status == TOOL_DONE) status = tool_picture_take(r->ledger, r->peaks.live.at, &r->peak);
  if (status == TOOL_DONE)
    status = tool_refusals_find(r->trace, r->device, r->ledger, r->refusals, TOOL_REFUSALS, &r->refusal_count,
                                &r->limits);
  return status;
}

// With the limit that report_try() found: it bounds by how much each refused request missed.
static int report_find_rooms(tool_diagnosis* r) {
  int status = TOOL_DONE;
  for (size_t i = 0; i < r->refusal_count && status == TOOL_DONE; i++)
    status = tool_room_find(r->trace, r->ledger, &r->refusals[i], &r->limits, &r->rooms[i]);
  return status;
}

// Can another setting or program do better? No setting needs less than what is live, and waits.
static bool report_may_gain(const tool_diagnosis* r) {
  if (!r->faults.is_from_start) return false;
  return r->limits.count > 0 || !r->has_segments || tool_costs_are_possible(&r->why) ||
         tool_is_clearly_less(r->peaks.live.bytes, r->peaks.reserved.bytes);
}

// Finds the limit of the run, and calls to empty_cache.
static bool report_compare(tool_diagnosis* r) {
  const tool_limits* const refusals = r->has_segments ? &r->limits : NULL;
  if (!tool_recording_begin(r->trace, r->device, r->ledger, &r->recording)) return false;
  (void)tool_recording_compare(&r->recording);
  if (tool_limit_choose(r->call, &r->recording, refusals, &r->limit) != TOOL_DONE) return false;
  if (tool_limit_is_shown(&r->limit)) {
    r->limits.at_least = r->limit.at_least;
    r->limits.less_than = r->limit.less_than;
    if (!r->limits.is_device_full) r->limits.likely = r->limit.at_least;
  }
  return true;
}

// Tries other settings, if the recording can be replayed; without calls to empty_cache, if they cannot be
// found.
static void report_try(tool_diagnosis* r) {
  r->advice.verdict = r->faults.is_from_start ? TOOL_VERDICT_KEEP : TOOL_VERDICT_UNKNOWN;
  r->limit = (tool_limit){ .bytes = TIDE_NO_LIMIT, .less_than = TIDE_NO_LIMIT };
  if (r->entry_count == 0 || tide_trace_get_about(r->trace).has_steps || !report_compare(r)) return;
  if (!report_may_gain(r)) return;
  const tide_device_options recorded = tide_replay_recorded_options(r->recording.replay);
  r->trials.replay = r->recording.replay;
  r->trials.limit = r->limit.bytes;
  r->trials.is_quick = true;
  (void)tool_trials_add_recorded(&r->trials, &recorded);
  tool_trials_take(&r->trials, &r->recording, tool_limit_is_recorded(&r->limit, &r->recording));
  tool_trials_run(&r->trials);
  const bool shows_trials = r->refusal_count > 0 && r->knows_reserved;
  if (!shows_trials) tool_trials_end_early(&r->trials, &r->recording);
  tool_trials_add_usual(&r->trials, &recorded, false);
  tool_trials_run(&r->trials);
  r->advice = tool_trials_advise(&r->trials, &r->recording);
  tool_costs_find(&r->trials, &r->recording, &r->why, &r->costs);
}

int tool_diagnosis_find(tool_diagnosis* r) {
  tool_sites_init(&r->sites, r->trace);
  tool_pool_tags_find(r->trace, &r->tags);
  const int status = report_look(r);
  if (status != TOOL_DONE) return status;
  report_try(r);
  return report_find_rooms(r);
}

void tool_diagnosis_fini(tool_diagnosis* r) {
  tide_replay_free(r->recording.replay);
  for (size_t i = 0; i < r->refusal_count; i++) {
    tool_refusal_fini(&r->refusals[i]);
    tool_room_fini(&r->rooms[i]);
  }
  tool_why_fini(&r->why);
  tool_picture_fini(&r->peak);
  tool_sites_fini(&r->sites);
  tool_pool_tags_fini(&r->tags);
  tide_ledger_free(r->ledger);
}

// ---------------------------------------------------------------------------------------------------
// The finding and the advice

void tool_words_add(tool_words* w, const char* format, ...) {
  va_list list;
  va_start(list, format);
  const int added = vsnprintf(w->text + w->length, sizeof w->text - w->length, format, list);
  va_end(list);
  if (added > 0) w->length += (size_t)added;
  if (w->length >= sizeof w->text) w->length = sizeof w->text - 1;
}

void tool_words_add_size(tool_words* w, const char* before, uint64_t bytes, const char* behind) {
  char size[TOOL_SIZE_TEXT];
  tool_words_add(w, "%s%s%s", before, tool_size_text(bytes, size), behind);
}

void tool_words_add_share(tool_words* w, const char* before, double share, const char* behind) {
  char text[TOOL_SHARE_TEXT];
  tool_words_add(w, "%s%s%s", before, tool_share_text(share, text), behind);
}

// Nothing if more was live than reserved, by a recording that contradicts itself.
static void words_add_utilisation(const tool_diagnosis* r, tool_words* w) {
  const double share = report_utilisation(r);
  if (isfinite(share)) tool_words_add_share(w, " (utilisation ", share, ")");
}

// How often requests were refused, and when and how large the first was.
static void words_add_refusal(const tool_diagnosis* r, tool_words* w) {
  const tool_moment moment = tool_moment_of(r->trace, r->device, r->refusals[0].at);
  char when[TOOL_MOMENT_TEXT];
  if (r->limits.count == 1) tool_words_add(w, "Out of memory once,");
  else tool_words_add(w, "Out of memory %llu times, the first", (unsigned long long)r->limits.count);
  tool_words_add(w, " at %s: ", tool_moment_text(&moment, when));
  tool_words_add_size(w, "a request for ", r->refusals[0].bytes, " was refused");
}

static void words_add_tag_refusal(const tool_diagnosis* r, tool_words* w) {
  const tool_tag_refusal* const refusal = &r->limits.by_tag;
  const tool_moment moment = tool_moment_of(r->trace, r->device, refusal->at);
  char when[TOOL_MOMENT_TEXT];
  if (r->limits.tag_count == 1) tool_words_add(w, "The limit of a tag refused a request");
  else
    tool_words_add(w, "Limits of tags refused %llu requests, the first",
                   (unsigned long long)r->limits.tag_count);
  tool_words_add(w, " at %s", tool_moment_text(&moment, when));
  tool_words_add(w, ": the tag \"%s\" had", refusal->tag);
  tool_words_add_size(w, " ", refusal->reserved, "");
  tool_words_add_size(w, " of ", refusal->limit, "");
  tool_words_add_size(w, ", and ", refusal->bytes, " were requested.");
}

// The line to paste, and what it does.
static void advice_to_set(const tool_diagnosis* r, tool_words* advice) {
  char line[TOOL_ADVICE_LINE];
  const bool is_unset = tool_advice_line(&r->advice, line)[0] == 'u';
  tool_words_add(advice, "%s%s: in a replay, ", is_unset ? "Leave PYTORCH_CUDA_ALLOC_CONF unset" : "Set ",
                 is_unset ? "" : line);
  if (r->advice.recorded_bytes == 0) {
    tool_words_add(advice, "every request is served under the same limit.");
    return;
  }
  tool_words_add_size(advice, "the same requests reserve ", r->advice.trial->result.peak_reserved,
                      " at the peak");
  tool_words_add_size(advice, ", ", tool_advice_saved(&r->advice), " less");
  if (!r->advice.is_recorded) tool_words_add(advice, " than %s", tool_advice_than(&r->recording));
  tool_words_add_share(advice, " (", tool_advice_share(&r->advice), ").");
}

static void advice_of_refusal(const tool_diagnosis* r, tool_words* advice) {
  if (r->advice.verdict == TOOL_VERDICT_SET) advice_to_set(r, advice);
  else if (r->advice.verdict == TOOL_VERDICT_UNKNOWN)
    tool_words_add(advice,
                   "Whether another setting would have served it is not known: that needs a run that was "
                   "recorded from its start. The tables below show what holds memory at that point.");
  else
    tool_words_add(
        advice,
        "No PyTorch setting that was tried serves every request under the same limit. Less memory must "
        "be live at that point; the tables below show what holds it.");
}

static void advice_of_loss(const tool_diagnosis* r, tool_words* advice) {
  if (r->advice.verdict == TOOL_VERDICT_SET) advice_to_set(r, advice);
  else if (r->advice.verdict == TOOL_VERDICT_UNKNOWN)
    tool_words_add(advice, "Other settings can be replayed only if the run was recorded from its start.");
  else
    tool_words_add(advice, "No PyTorch setting that was tried lowers the peak by more than %d %%.",
                   TOOL_ADVICE_PERCENT);
}

static void finding_of_refusal(tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  const tool_refusal* const refusal = &r->refusals[0];
  words_add_refusal(r, finding);
  tool_words_add(finding, ".");
  tool_words_add_missed(r, 0, finding);
  if (refusal->free_bytes == 0) {
    tool_words_add_size(finding, " All of the ", refusal->reserved, " reserved were in use.");
  } else {
    tool_words_add_size(finding, " Of ", refusal->reserved, " reserved");
    tool_words_add_size(finding, ", ", refusal->free_bytes, " were free");
    if (refusal->place_largest == 0) tool_words_add(finding, ", but none that this request could use.");
    else
      tool_words_add_size(finding, ", but the largest free block that this request could use was ",
                          refusal->place_largest, ".");
  }
  tool_words_add_room(r, 0, finding);
  advice_of_refusal(r, advice);
}

static void finding_of_tag_refusal(const tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  words_add_tag_refusal(r, finding);
  tool_words_add(advice,
                 "Raise the limit of the tag, or let it hold less; the table of tags shows what each holds.");
}

// The largest of the causes that were avoidable.
static void finding_of_why(const tool_why* why, tool_words* finding) {
  uint32_t causes[TIDE_GROWTH_COUNT];
  const uint64_t avoidable = tool_why_avoidable(why);
  if (avoidable == 0) return;
  tool_why_order(why, causes);
  const uint32_t* cause = causes;
  while (!tool_why_is_avoidable(*cause)) cause++;
  tool_words_add_size(finding, " ", avoidable, " were reserved although enough was free");
  if (why->sums[*cause].bytes < avoidable)
    tool_words_add_size(finding, ", most of it (", why->sums[*cause].bytes, ")");
  else tool_words_add(finding, ", all of it");
  tool_words_add(finding, " %s.", tool_why_reason(*cause));
}

static void finding_of_loss(const tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  tool_words_add_size(finding, "Reserved memory reached ", r->peaks.reserved.bytes, "");
  tool_words_add_size(finding, ", but at most ", r->peaks.live.bytes, " were live at once");
  words_add_utilisation(r, finding);
  tool_words_add_size(finding, ": fragmentation cost ", report_cost(r), ".");
  finding_of_why(&r->why, finding);
  advice_of_loss(r, advice);
}

// A file without entries cannot be replayed, and does not show what led to its state.
static void finding_of_end(const tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  const tool_cause cause = tool_where_main_cause(&r->where);
  const uint64_t bytes = tool_where_bytes(&r->where, cause);
  tool_words_add_size(finding, "Only the final state is known: ", r->where.reserved, " are reserved");
  tool_words_add_size(finding, ", of which ", r->peaks.live.bytes, " are live");
  words_add_utilisation(r, finding);
  if (bytes > 0) {
    tool_words_add_size(finding, "; the largest part of the rest, ", bytes, "");
    tool_words_add(finding, " (%s), is %s", tool_cause_describe(cause).label,
                   tool_cause_describe(cause).text);
  }
  tool_words_add(finding, ".");
  tool_words_add(advice,
                 "To see what led to it, call torch.cuda.memory._record_memory_history() before the first "
                 "allocation.");
}

static void finding_of_good_use(const tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  tool_words_add_size(finding, "Memory is used well: reserved memory reached ", r->peaks.reserved.bytes, "");
  tool_words_add_size(finding, ", and ", r->peaks.live.bytes, " of it were live at once");
  words_add_utilisation(r, finding);
  tool_words_add(finding, ".");
  if (r->advice.verdict == TOOL_VERDICT_SET) advice_to_set(r, advice);
  else
    tool_words_add(
        advice,
        "%s allocator setting can save much. Less memory must be live at the peak; the tables below show "
        "what holds it.",
        r->faults.is_from_start ? "No" : "In the recorded part, no");
}

static void finding_of_requests(const tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  tool_words_add(finding, "Only requests were recorded, not segments, so reserved memory is unknown.");
  tool_words_add_size(finding, " At the peak ", r->peaks.live.bytes, " were live.");
  if (r->advice.verdict == TOOL_VERDICT_SET) advice_to_set(r, advice);
  if (r->refusal_count == 0) return;
  tool_words_add(finding, " ");
  words_add_refusal(r, finding);
  tool_words_add(finding, ".");
}

static void finding_of_plan(const tool_diagnosis* r, tool_words* finding) {
  tool_words_add(finding, "This is a planning problem, not a recording: at most %llu bytes are live at once",
                 (unsigned long long)r->peaks.requested.bytes);
  tool_words_add(finding, ", in an arena of %llu bytes. tidemark plan looks for a smaller one.",
                 (unsigned long long)r->peaks.reserved.bytes);
}

void tool_diagnosis_conclude(tool_diagnosis* r, tool_words* finding, tool_words* advice) {
  *finding = *advice = (tool_words){ .length = 0 };
  if (tide_trace_get_about(r->trace).has_steps) finding_of_plan(r, finding);
  else if (!r->knows_reserved) finding_of_requests(r, finding, advice);
  else if (r->where.reserved == 0) tool_words_add(finding, "Nothing was ever reserved on this device.");
  else if (r->entry_count == 0) finding_of_end(r, finding, advice);
  else if (r->refusal_count > 0) finding_of_refusal(r, finding, advice);
  else if (r->limits.tag_count > 0) finding_of_tag_refusal(r, finding, advice);
  else if (tool_share(report_cost(r), r->peaks.reserved.bytes) > REPORT_LOSS)
    finding_of_loss(r, finding, advice);
  else finding_of_good_use(r, finding, advice);
  tool_words_add_costs(&r->costs, advice);
}

// ---------------------------------------------------------------------------------------------------
// Peaks

static void moment_emit(tool_emit* emit, const tool_moment* moment, const char* entry_key, const char* ms_key,
                        const char* during_key) {
  char when[TOOL_MOMENT_TEXT];
  if (moment->at == TIDE_LEDGER_BEFORE) tool_emit_text(emit, entry_key, NULL, NULL);
  else tool_emit_uint(emit, entry_key, NULL, moment->at);
  if (moment->has_time) tool_emit_real(emit, ms_key, NULL, moment->ms, 3);
  else tool_emit_text(emit, ms_key, NULL, NULL);
  tool_emit_text(emit, during_key, NULL, moment->during);
  tool_emit_text(emit, NULL, "  at", tool_moment_text(moment, when));
}

static void reserved_emit_unknown(tool_emit* emit) {
  static const char* const keys[] = { "peak_reserved",        "peak_reserved_entry", "peak_reserved_ms",
                                      "peak_reserved_during", "utilisation",         "fragmentation_cost" };
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) tool_emit_text(emit, keys[i], NULL, NULL);
}

static void reserved_emit(tool_emit* emit, const tool_diagnosis* r) {
  const char* const label = r->entry_count > 0 ? "peak reserved" : "reserved";
  tool_emit_bytes(emit, "peak_reserved", label, r->peaks.reserved.bytes);
  moment_emit(emit, &r->peak_reserved, "peak_reserved_entry", "peak_reserved_ms", "peak_reserved_during");
  tool_emit_share(emit, "utilisation", "utilisation", report_utilisation(r));
  tool_emit_bytes(emit, "fragmentation_cost", "fragmentation cost", report_cost(r));
}

static void counts_emit(tool_emit* emit, const tool_diagnosis* r) {
  const uint64_t* const n = r->actions;
  if (r->entry_count > 0 && r->has_segments) {
    tool_emit_uint(emit, "driver_allocs", "segments allocated",
                   n[TIDE_ACTION_SEGMENT_ALLOC] + n[TIDE_ACTION_SEGMENT_MAP]);
    tool_emit_uint(emit, "driver_frees", "segments freed",
                   n[TIDE_ACTION_SEGMENT_FREE] + n[TIDE_ACTION_SEGMENT_UNMAP]);
  } else {
    tool_emit_text(emit, "driver_allocs", NULL, NULL);
    tool_emit_text(emit, "driver_frees", NULL, NULL);
  }
  tool_emit_uint_if(emit, r->entry_count > 0, "ooms", "requests refused",
                    r->limits.count + r->limits.tag_count);
}

static void peaks_emit(tool_emit* emit, const tool_diagnosis* r) {
  tool_emit_uint(emit, "device", "device", r->device);
  tool_emit_uint(emit, "entries", "entries", r->entry_count);
  const char* const label = r->entry_count > 0 ? "peak allocated" : "allocated";
  tool_emit_bytes(emit, "peak_allocated", label, r->peaks.live.bytes);
  moment_emit(emit, &r->peak_allocated, "peak_allocated_entry", "peak_allocated_ms", "peak_allocated_during");
  tool_emit_bytes(emit, "peak_allocated_blocks", "  as PyTorch counts", r->peaks.allocated.bytes);
  tool_emit_bytes(emit, "peak_requested", "  as requested", r->peaks.requested.bytes);
  tool_needed_emit(emit, &r->needed);
  if (r->knows_reserved) reserved_emit(emit, r);
  else reserved_emit_unknown(emit);
  counts_emit(emit, r);
}

// ---------------------------------------------------------------------------------------------------
// Where reserved memory was

static void where_emit_json(tool_emit* emit, const tool_diagnosis* r) {
  const tool_where* const where = &r->where;
  if (!r->knows_reserved) {
    tool_emit_text(emit, "fragmentation", NULL, NULL);
    return;
  }
  tool_emit_open(emit, "fragmentation", NULL);
  if (where->at == TIDE_LEDGER_BEFORE) tool_emit_text(emit, "entry", NULL, NULL);
  else tool_emit_uint(emit, "entry", NULL, where->at);
  tool_emit_uint(emit, "reserved", NULL, where->reserved);
  tool_emit_uint(emit, "requested", NULL, where->requested);
  tool_emit_uint(emit, "total", NULL, where->reserved - where->requested);
  for (tool_cause cause = 0; cause < TOOL_CAUSE_COUNT; cause++)
    tool_emit_uint(emit, tool_cause_describe(cause).key, NULL, tool_where_bytes(where, cause));
  tool_emit_close(emit);
}

static void where_emit_row(tool_emit* emit, const char* label, uint64_t bytes, uint64_t reserved,
                           const char* text) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, label);
  tool_emit_bytes(emit, NULL, NULL, bytes);
  tool_emit_share(emit, NULL, NULL, tool_share(bytes, reserved));
  tool_emit_text(emit, NULL, NULL, text);
}

static void where_emit_people(tool_emit* emit, const tool_diagnosis* r) {
  const tool_where* const where = &r->where;
  const tool_column columns[] = { { NULL, "" }, { NULL, "bytes" }, { NULL, "share" }, { NULL, "" } };
  tool_emit_title(emit, "Where reserved memory was at %s", r->entry_count > 0 ? "its peak" : "the end");
  tool_emit_table(emit, NULL, columns, 4);
  where_emit_row(emit, "requested", where->requested, where->reserved, "in use by live requests");
  for (tool_cause cause = 0; cause < TOOL_CAUSE_COUNT; cause++) {
    const tool_cause_info info = tool_cause_describe(cause);
    where_emit_row(emit, info.label, tool_where_bytes(where, cause), where->reserved, info.text);
  }
  where_emit_row(emit, "reserved", where->reserved, where->reserved, "");
  tool_emit_table_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static void faults_emit(tool_emit* emit, const tool_diagnosis* r) {
  const tide_ledger_faults* const faults = &r->faults;
  const uint64_t odd = tool_fault_count(faults, r->has_segments);
  tool_emit_bool(emit, "has_segments", NULL, r->has_segments);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(r->trace).is_cut);
  tool_emit_bool(emit, "is_from_start", NULL, faults->is_from_start);
  tool_emit_uint(emit, "faults", NULL, odd);
  if (!faults->is_from_start && r->entry_count > 0)
    tool_emit_words(
        emit, "The recording begins in the middle of the run. What existed before was reconstructed from the "
              "final state; peaks before the first entry are unknown.");
  tool_recording_emit_odd(emit, odd);
}

int tool_diagnosis_emit(tool_emit* emit, tool_diagnosis* r, const tool_steps* steps) {
  tool_words finding;
  tool_words advice;
  tool_diagnosis_conclude(r, &finding, &advice);
  if (advice.length > 0) tool_emit_words(emit, "%s %s", finding.text, advice.text);
  else tool_emit_words(emit, "%s", finding.text);
  tool_steps_emit_warning(emit, steps);
  const int status = tool_diagnosis_emit_timeline(emit, r);
  tool_emit_text(emit, "finding", NULL, finding.text);
  tool_emit_text(emit, "advice", NULL, advice.length > 0 ? advice.text : NULL);
  tool_advice_emit(emit, &r->advice);
  faults_emit(emit, r);
  peaks_emit(emit, r);
  if (r->call->is_json) where_emit_json(emit, r);
  else if (r->has_segments) where_emit_people(emit, r);
  tool_limit_emit(emit, &r->limit, r->refusal_count > 0);
  tool_diagnosis_emit_why(emit, r);
  tool_diagnosis_emit_costs(emit, r);
  tool_diagnosis_emit_ooms(emit, r);
  tool_diagnosis_emit_peak(emit, r);
  tool_diagnosis_emit_tags(emit, r);
  return status;
}

static int report_answer(tool_diagnosis* r) {
  tool_steps steps;
  int status = tool_steps_init(&steps, r->call, r->trace, r->device, r->ledger, &r->sites);
  if (status != TOOL_DONE) return status;
  tool_emit* const emit = tool_emit_begin(r->call);
  status = tool_diagnosis_emit(emit, r, &steps);
  tool_steps_emit_report(emit, r->call, &steps);
  tool_steps_fini(&steps);
  if (status == TOOL_DONE) status = tool_devices_emit(emit, r->call, r->trace, r->device, &r->peaks);
  if (status == TOOL_DONE) return tool_emit_end(emit);
  tool_emit_drop(emit);
  return status;
}

static int report_work(tool_diagnosis* r) {
  int status = tool_top_parse(r->call, TOOL_DIAGNOSIS_TOP, &r->top);
  if (status == TOOL_DONE) status = tool_stacks_parse(r->call, &r->stacks);
  if (status == TOOL_DONE) status = tool_timeline_parse(r->call, &r->has_timeline);
  if (status == TOOL_DONE) status = tool_trace_read(r->call->operands[0], &r->trace);
  if (status == TOOL_DONE) status = tool_device_choose(r->call, r->trace, &r->device);
  if (status == TOOL_DONE) status = tool_diagnosis_find(r);
  return status == TOOL_DONE ? report_answer(r) : status;
}

static int report_run(const tool_call* call) {
  tool_diagnosis* const r = tool_alloc(1, sizeof *r);
  r->call = call;
  const int status = report_work(r);
  tool_diagnosis_fini(r);
  tide_trace_free(r->trace);
  free(r);
  return status;
}

static const tool_option report_options[] = {
  { "device", 'd', "N",
    "the device to report on (default: the one that ran out of memory first, or the first with entries)" },
  { "top", 'n', "N", "number of rows in a table (default: 10)" },
  TOOL_STACKS_OPTIONS,
  { "steps", 0, NULL, "show a table of the steps of the run" },
  TOOL_STEP_OPTION,
  { "timeline", 0, "WHEN",
    "when to draw memory over time: auto (on a terminal that shows UTF-8; the default), always or never" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_report = {
  .name = "report",
  .summary = "diagnose a run's memory problem, and suggest what to do",
  .operands = "FILE",
  .text =
      "The first paragraph says what happened and what to do; what it says about another setting comes from "
      "a "
      "replay. Then follow the peaks, where reserved memory was lost, why it was reserved, why requests were "
      "refused, and what holds memory at the peak.\n\n"
      "\"needed at once\" is the largest sum of live memory and a refused request. Losses are measured when "
      "reserved memory first reaches its peak; each byte is counted once. A call site is the innermost line "
      "of your program; \"calls\" is the line of a library behind it. tidemark(1) lists the keys of "
      "--json.",
  .options = report_options,
  .operands_min = 1,
  .operands_max = 1,
  .run = report_run,
};
