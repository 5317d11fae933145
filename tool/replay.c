// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark replay: runs the requests of a recording through a policy on the dry machine, and with --check
// compares what happens with the recording.
#include "tidemark/replay.h"

#include <stdlib.h>
#include <string.h>

#include "budgeting.h"
#include "cut.h"
#include "moment.h"
#include "parking.h"
#include "policy.h"
#include "recording.h"

static const tool_option options[] = {
  { "policy", 'p', "NAME[:SETTINGS]",
    "the allocator policy: torch or tide, with SETTINGS as in PYTORCH_CUDA_ALLOC_CONF (default: as "
    "recorded; with --tag or --budget: tide)" },
  { "limit", 'l', "SIZE",
    "the most memory that may be reserved (default: the limit of the recorded run, if the recording "
    "shows one)" },
  { "reserve", 0, "SIZE",
    "reserve SIZE before the first request, as tide_device_reserve() and TIDEMARK_RESERVE do" },
  { "scale", 's', "FACTOR",
    "multiply the sizes of requests by FACTOR, as if batches were larger (default: 1); blocks that live for "
    "more than half of the recording, such as weights, keep their size" },
  { "scale-all", 0, NULL, "with --scale: multiply the sizes of all blocks, also weights" },
  { "check", 'c', NULL, "compare every address, segment and refusal with the recording" },
  { "device", 'd', "N",
    "the device to replay (default: the one that ran out of memory first, or the first with entries)" },
  TOOL_PARK_OPTIONS,
  TOOL_BUDGET_OPTIONS,
  TOOL_STEP_OPTION,
  { NULL, 0, NULL, NULL },
};

static void tenths_emit(tool_emit* emit, const char* key, const uint64_t values[TIDE_REPLAY_TENTHS],
                        double unit, int decimals) {
  double scaled[TIDE_REPLAY_TENTHS];
  for (size_t i = 0; i < TIDE_REPLAY_TENTHS; i++) scaled[i] = (double)values[i] / unit;
  tool_emit_list(emit, key, scaled, TIDE_REPLAY_TENTHS, decimals);
}

static void comparison_emit(tool_emit* emit, const tide_replay_result* r, bool checks) {
  const bool is_same = r->mismatch[0] == '\0';
  if (checks)
    tool_emit_text(emit, NULL, "comparison",
                   is_same ? "identical to the recording" : "DIFFERS from the recording");
  tool_emit_uint(emit, "mismatched_addresses", checks ? "addresses that differ" : NULL,
                 r->mismatched_addresses);
  tool_emit_uint(emit, "mismatched_segments", checks ? "other differences" : NULL, r->mismatched_segments);
  tool_emit_text(emit, "mismatch", is_same ? NULL : "first difference", is_same ? NULL : r->mismatch);
}

static void memory_emit(tool_emit* emit, const tide_replay_result* r) {
  tool_emit_bytes(emit, "peak_allocated", "peak allocated", r->peak_allocated);
  tool_emit_bytes(emit, "peak_allocated_blocks", "  as PyTorch counts", r->peak_blocks);
  tool_emit_bytes(emit, "peak_reserved", "peak reserved", r->peak_reserved);
  tool_emit_share(emit, "utilisation", "utilisation", tool_utilisation(r->peak_allocated, r->peak_reserved));
  tool_emit_uint(emit, "retries", "retries", r->retries);
  tool_emit_uint(emit, "ooms", "requests refused", r->ooms);
  tool_emit_uint_if(emit, r->ooms > 0, "first_oom", "  first at entry", r->first_oom);
  tool_emit_bytes(emit, "oom_bytes", r->ooms > 0 ? "  its size" : NULL, r->oom_bytes);
  tool_emit_uint(emit, "inferred_empty_cache", "calls to empty_cache", r->inferred_empty_cache);
}

static void driver_emit(tool_emit* emit, const tide_replay_result* r, const tool_recording* recording) {
  uint64_t first_ns = 0;
  uint64_t span_ns = 0;
  const bool has_times = tool_device_times(recording->trace, recording->device, &first_ns, &span_ns);
  tool_emit_uint(emit, "driver_allocs", "segments allocated", r->driver_allocs);
  tool_emit_uint(emit, "driver_frees", "segments freed", r->driver_frees);
  tool_emit_uint(emit, "driver_calls", "driver calls", r->driver_calls);
  tool_emit_real(emit, "driver_ms", "driver time (ms, estimated)", (double)r->driver_ns / 1e6, 3);
  tenths_emit(emit, "driver_calls_by_tenth", r->driver_calls_by_tenth, 1, 0);
  tenths_emit(emit, "driver_ms_by_tenth", r->driver_ns_by_tenth, 1e6, 3);
  tenths_emit(emit, "remap_ms_by_tenth", r->remap_ns_by_tenth, 1e6, 3);
  tool_emit_real(emit, "reserve_ms", r->reserve_ns > 0 ? "  to reserve memory before (ms)" : NULL,
                 (double)r->reserve_ns / 1e6, 3);
  if (has_times) tool_emit_real(emit, "span_ms", "recorded time (ms)", (double)span_ns / 1e6, 3);
  else tool_emit_text(emit, "span_ms", NULL, NULL);
}

static void scale_emit(tool_emit* emit, const tide_replay_options* o, const tide_replay_result* r) {
  tool_emit_real(emit, "scale", o->scale != 1 ? "size factor" : NULL, o->scale, 4);
  tool_emit_uint(emit, "unscaled_blocks", o->scale != 1 ? "blocks not scaled" : NULL, r->unscaled_blocks);
  tool_emit_bytes(emit, "unscaled_bytes", r->unscaled_blocks > 0 ? "  requested" : NULL, r->unscaled_bytes);
}

// What was multiplied and what was not, and how that was decided.
static void scale_emit_words(tool_emit* emit, const tide_replay_options* o, const tide_replay_result* r) {
  char size[TOOL_SIZE_TEXT];
  if (o->scale == 1) return;
  if (o->scales_all) {
    tool_emit_words(emit, "All requests are multiplied by %g, also weights and optimizer states.", o->scale);
    return;
  }
  if (r->unscaled_blocks == 0) {
    tool_emit_words(
        emit,
        "All requests are multiplied by %g. Blocks that live for more than half of the recording, such as "
        "weights, would keep their size, but there are none.",
        o->scale);
    return;
  }
  tool_emit_words(
      emit,
      "All requests are multiplied by %g, except for %llu block%s (%s) that live%s for more than half of "
      "the recording, such as weights and optimizer states. Gradients that each step allocates are "
      "multiplied too, so the peak may be overestimated. A batch buffer that is kept for the whole "
      "run is not multiplied; --scale-all multiplies everything.",
      o->scale, (unsigned long long)r->unscaled_blocks, r->unscaled_blocks == 1 ? "" : "s",
      tool_size_text(r->unscaled_bytes, size), r->unscaled_blocks == 1 ? "s" : "");
}

// What is replayed, and how.
typedef struct replay_plan {
  tide_device_options device;
  tide_replay_options options;
  tool_recording recording;
  tool_parking parking;
  tool_budgeting budgeting;
} replay_plan;

static int result_emit(const tool_call* call, const replay_plan* plan, const tool_limit* limit,
                       const tide_replay_result* r) {
  const tool_recording* const recording = &plan->recording;
  const tide_replay_options* const o = &plan->options;
  const tide_trace_about about = tide_trace_get_about(recording->trace);
  char text[TOOL_POLICY_TEXT];
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_bool(emit, "is_cut", NULL, about.is_cut);
  tool_emit_uint(emit, "device", "device", recording->device);
  tool_emit_text(emit, "policy", "policy", tool_policy_names[o->device->policy]);
  tool_emit_text(emit, "settings", NULL, tool_policy_settings(o->device, text));
  tool_emit_text(emit, NULL, "settings", text[0] != '\0' ? text : "(defaults)");
  tool_limit_emit(emit, limit, false);
  scale_emit(emit, o, r);
  tool_emit_uint(emit, "entries", "entries", r->entries);
  tool_emit_uint(emit, "allocations", "allocations", r->allocations);
  tool_emit_uint(emit, "blocks_before", r->blocks_before > 0 ? "blocks already there" : NULL,
                 r->blocks_before);
  tool_emit_bytes(emit, "requested_before", r->blocks_before > 0 ? "  requested" : NULL, r->bytes_before);
  tool_emit_uint(emit, "skipped", r->skipped > 0 ? "releases of unknown blocks" : NULL, r->skipped);
  comparison_emit(emit, r, o->checks);
  memory_emit(emit, r);
  driver_emit(emit, r, recording);
  tool_emit_real(emit, "ns_per_entry", "replay time (ns per entry)", (double)r->run_ns / (double)r->entries,
                 1);
  scale_emit_words(emit, o, r);
  tool_recording_emit_odd(emit, recording->odd_entries);
  tool_emit_bool(emit, "is_from_start", NULL, recording->is_from_start);
  tool_cut_emit_begin(emit, recording, r);
  if (r->peak_allocated > r->peak_reserved && r->sent_bytes == 0)
    tool_emit_words(
        emit,
        "The utilisation is unknown: more memory was live in the recording than the replay reserved. The "
        "recording contradicts itself, or completes releases later than the replay.");
  tool_parking_emit(emit, call, o, r);
  tool_budgeting_emit(emit, &plan->budgeting, r);
  return tool_emit_end(emit);
}

static int replay_status(const tide_replay_options* o, const tide_replay_result* r) {
  const bool differs = r->mismatched_addresses + r->mismatched_segments > 0;
  const bool is_short = !o->checks && r->ooms > 0;
  return differs || is_short ? TOOL_NO : TOOL_DONE;
}

static int replay_fail(const tool_call* call) { return tool_fail("%s: %s", call->operands[0], tool_error()); }

static tide_status replay_run(const tool_recording* recording, tide_replay_options* o,
                              tide_replay_result* out) {
  tool_progress* const progress = tool_progress_begin("replaying");
  o->on_progress = tool_recording_on_progress;
  o->user = progress;
  const tide_status status = tide_replay_run(recording->replay, o, out);
  tool_progress_end(progress);
  return status;
}

// The limit of the run: that of --limit, or the inferred one. Larger sizes are replayed without one, because
// the question is what they need.
static int limit_set(const tool_call* call, const tool_recording* recording, tide_replay_options* o,
                     tool_limit* limit) {
  const int status = tool_limit_choose(call, recording, NULL, limit);
  if (o->scale != 1 && !limit->is_given) limit->bytes = TIDE_NO_LIMIT;
  o->limit = limit->bytes;
  o->infers_limit = o->checks && !limit->is_given;
  return status;
}

static int replay_once(const tool_call* call, replay_plan* plan) {
  tool_recording* const recording = &plan->recording;
  tide_replay_options* const o = &plan->options;
  tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
  tool_limit limit;
  if (tool_recording_compare(recording) != TIDE_OK) return replay_fail(call);
  const int status = limit_set(call, recording, o, &limit);
  if (status != TOOL_DONE) return status;
  const bool is_recorded = tool_option_value(call, "policy") == NULL && o->scale == 1 && o->park_count == 0 &&
                           o->tag_count == 0 && o->reserve_bytes == 0;
  if (is_recorded && tool_limit_is_recorded(&limit, recording)) result = recording->result;
  else if (replay_run(recording, o, &result) != TIDE_OK) return replay_fail(call);
  const int printed = result_emit(call, plan, &limit, &result);
  return printed != TOOL_DONE ? printed : replay_status(o, &result);
}

static int reserve_parse(const tool_call* call, uint64_t* out) {
  const char* const text = tool_option_value(call, "reserve");
  if (text == NULL) return TOOL_DONE;
  if (!tool_size_parse(text, out) || *out == 0)
    return tool_fail("--reserve must be a size such as 14GiB, not '%s'", text);
  if (tool_option_value(call, "check") == NULL) return tool_size_ask("--reserve", text, *out);
  return tool_fail("--check compares with the recording, so it cannot be combined with --reserve");
}

static int scale_parse(const tool_call* call, double* out) {
  const char* const text = tool_option_value(call, "scale");
  char* end = NULL;
  if (text == NULL && tool_option_value(call, "scale-all") != NULL)
    return tool_fail("--scale-all needs --scale");
  if (text == NULL) return TOOL_DONE;
  *out = strtod(text, &end);
  if (end == text || *end != '\0' || !(*out > 0 && *out <= 1024))
    return tool_fail("--scale must be a number above 0 and at most 1024, not '%s'", text);
  if (*out == 1 || tool_option_value(call, "check") == NULL) return TOOL_DONE;
  return tool_fail("--check compares with the recording, so it cannot be combined with --scale");
}

// Everything that can be said before the file is read, which may take long.
static int plan_parse(replay_plan* plan, const tool_call* call) {
  tide_replay_options* const o = &plan->options;
  const char* const policy = tool_option_value(call, "policy");
  o->checks = tool_option_value(call, "check") != NULL;
  o->scales_all = tool_option_value(call, "scale-all") != NULL;
  int status = tool_limit_parse(call, &o->limit);
  if (status == TOOL_DONE) status = reserve_parse(call, &o->reserve_bytes);
  if (status == TOOL_DONE) status = scale_parse(call, &o->scale);
  if (status == TOOL_DONE) status = tool_parking_parse(call, o);
  if (status == TOOL_DONE) status = tool_budgeting_parse(&plan->budgeting, call);
  if (status == TOOL_DONE && tool_budgeting_is_given(call)) {
    plan->device.policy = TIDE_POLICY_TIDE;
    if (o->checks)
      return tool_fail(
          "--check compares with the recording, so it cannot be combined with --tag or --budget");
    if (tool_option_value(call, "park") != NULL)
      return tool_fail("--park parks all memory, so it cannot be combined with --tag or --budget");
  }
  return status == TOOL_DONE && policy != NULL ? tool_policy_parse(policy, &plan->device) : status;
}

static int plan_find(replay_plan* plan, const tool_call* call) {
  const bool is_recorded = tool_option_value(call, "policy") == NULL && !tool_budgeting_is_given(call);
  if (is_recorded) plan->device = tide_replay_recorded_options(plan->recording.replay);
  int status = tool_parking_find(&plan->parking, call, &plan->recording, &plan->options);
  if (status == TOOL_DONE) status = tool_budgeting_find(&plan->budgeting, call, &plan->recording);
  tool_budgeting_set(&plan->budgeting, plan->budgeting.tags, &plan->options);
  return status;
}

static int replay_verb_run(const tool_call* call) {
  replay_plan plan = { .device = TIDE_DEVICE_OPTIONS_INIT, .options = TIDE_REPLAY_OPTIONS_INIT };
  plan.options.device = &plan.device;
  int status = plan_parse(&plan, call);
  if (status == TOOL_DONE) status = tool_recording_open(call, &plan.recording);
  if (status == TOOL_DONE) status = plan_find(&plan, call);
  if (status == TOOL_DONE) status = replay_once(call, &plan);
  tool_parking_fini(&plan.parking);
  tool_budgeting_fini(&plan.budgeting);
  tool_recording_close(&plan.recording);
  return status;
}

const tool_verb tool_replay = {
  .name = "replay",
  .summary = "run the recorded requests through an allocator, without a GPU",
  .operands = "FILE",
  .text =
      "Shows how much memory the recorded requests need under a policy, and what the driver calls would "
      "cost. With --check, every entry is compared with the recording, up to the first difference. Where "
      "the recording gave memory back and no limit explains it, the program probably called empty_cache; the "
      "replay calls it there too. With --tag and --budget, it shows whether the run fits budgets, and what "
      "giving "
      "way costs. Exit status 1: with --check, something differs; without it, a request was "
      "refused.",
  .options = options,
  .operands_min = 1,
  .operands_max = 1,
  .run = replay_verb_run,
};
