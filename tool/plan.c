// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark plan: places every buffer of a planning problem, or every request of a recording, in one arena.
// The search ends with a proof, at a limit, or at an interrupt from the keyboard; the best plan so far is the
// answer.
#include "planning.h"

#include <float.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "picture.h"

#define PLAN_SECONDS 10.0
#define PLAN_THREADS 1024u

static const tool_option options[] = {
  { "capacity", 'c', "SIZE",
    "the size of the arena: stop at the first plan that fits (default: look for the smallest arena)" },
  { "align", 'a', "N", "place buffers at multiples of N, besides their own alignment (default: 1)" },
  { "seconds", 's', "S", "stop the search after S seconds; 0 is no limit (default: 10)" },
  { "nodes", 'n', "N", "stop the search after N placements; 0 is no limit (default: 0)" },
  { "threads", 't', "N", "number of search threads; 0 is one per processor (default: 1)" },
  { "seed", 0, "K", "seed of the search (default: 0)" },
  { "keep-hints", 'k', NULL,
    "take the hints in the file as an earlier plan, and move as few buffers as possible" },
  { "device", 'd', "N",
    "the device of a recording (default: the one that ran out of memory first, or the first with entries)" },
  { "output", 'o', "FILE", "write the plan to FILE as MiniMalloc CSV; '-' is standard output" },
  { "svg", 0, "FILE", "draw the plan to FILE" },
  { NULL, 0, NULL, NULL },
};

// ---------------------------------------------------------------------------------------------------
// The command line

int tool_capacity_parse(const tool_call* call, uint64_t* out, bool* out_is_given) {
  const char* const text = tool_option_value(call, "capacity");
  *out_is_given = text != NULL;
  if (text == NULL || (tool_size_parse(text, out) && *out <= TIDE_PLAN_MAX_BYTES)) return TOOL_DONE;
  return tool_fail("--capacity must be a size such as 1048576 or 24GiB, not '%s'", text);
}

static int seconds_parse(const tool_call* call, double* out) {
  const char* const text = tool_option_value(call, "seconds");
  *out = PLAN_SECONDS;
  if (text == NULL || tool_seconds_parse(text, 0, DBL_MAX, out)) return TOOL_DONE;
  return tool_fail("--seconds must be a number such as 10 or 0.5, not '%s'", text);
}

// Reads the number of an option; `out` is unchanged if it is not given.
static int count_parse(const tool_call* call, const char* name, uint64_t most, uint64_t* out) {
  const char* const text = tool_option_value(call, name);
  if (text == NULL || tool_number_parse(text, most, out)) return TOOL_DONE;
  if (most == UINT64_MAX) return tool_fail("--%s must be a whole number, not '%s'", name, text);
  return tool_fail("--%s must be a whole number of at most %llu, not '%s'", name, (unsigned long long)most,
                   text);
}

static int options_parse(const tool_call* call, tide_plan_options* out) {
  uint64_t threads = 1;
  int status = seconds_parse(call, &out->seconds);
  if (status == TOOL_DONE) status = count_parse(call, "nodes", UINT64_MAX, &out->nodes);
  if (status == TOOL_DONE) status = count_parse(call, "threads", PLAN_THREADS, &threads);
  if (status == TOOL_DONE) status = count_parse(call, "seed", UINT64_MAX, &out->seed);
  out->threads = (uint32_t)threads;
  out->keeps_hints = tool_option_value(call, "keep-hints") != NULL;
  return status;
}

static bool is_standard_output(const char* path) { return path != NULL && strcmp(path, "-") == 0; }

// At most one output goes to standard output or to a file, and none may overwrite the input.
static int outputs_check(const tool_call* call) {
  const char* const file = call->operands[0];
  const char* const output = tool_option_value(call, "output");
  const char* const picture = tool_option_value(call, "svg");
  if (is_standard_output(picture)) return tool_fail("--svg must name a file");
  if (is_standard_output(output) && call->is_json)
    return tool_fail("--json and the plan cannot both go to standard output");
  if (output != NULL && tool_file_is_input(output, file))
    return tool_fail("-o %s: the plan would overwrite the input", output);
  if (picture != NULL && tool_file_is_input(picture, file))
    return tool_fail("--svg %s: the picture would overwrite the input", picture);
  if (output != NULL && picture != NULL && tool_file_is_same(output, picture))
    return tool_fail("--svg %s: the picture would overwrite the plan, which goes to the same file", picture);
  return TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// The problem

// Raises all alignments to their least common multiple with that of --align.
static int buffers_align(tool_planning* p) {
  const char* const text = tool_option_value(p->call, "align");
  uint64_t unit = 1;
  if (text != NULL && (!tool_size_parse(text, &unit) || unit == 0))
    return tool_fail("--align must be a size such as 512 or 2MiB, not '%s'", text);
  for (size_t i = 0; i < p->view.count; i++) {
    uint64_t* const alignment = &p->buffers[i].alignment;
    const uint64_t own = *alignment == 0 ? 1 : *alignment;
    if (!tide__mul(own / tide__gcd(own, unit), unit, alignment))
      return tool_fail("--align %s: combined with the alignment %llu of '%s' it is out of range", text,
                       (unsigned long long)own, tide_problem_name(p->problem, i, NULL));
  }
  return TOOL_DONE;
}

static int problem_take(tool_planning* p) {
  bool has_capacity = false;
  int status = tool_capacity_parse(p->call, &p->capacity, &has_capacity);
  // A planning problem may have any unit; a recording has bytes of a device.
  if (status == TOOL_DONE && has_capacity && p->is_recording)
    status = tool_size_ask("--capacity", tool_option_value(p->call, "capacity"), p->capacity);
  if (status != TOOL_DONE) return status;
  p->view = tide_problem_plan(p->problem);
  p->buffers = tool_alloc(p->view.count, sizeof *p->buffers);
  if (p->view.count > 0) memcpy(p->buffers, p->view.buffers, p->view.count * sizeof *p->buffers);
  p->view.buffers = p->buffers;
  if (has_capacity) {
    p->view.capacities = &p->capacity;
    p->view.pools = 1;
    p->options.goal = TIDE_PLAN_FIT;
  }
  return buffers_align(p);
}

static bool recording_has_streams(const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  const tide_trace_entry* first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_ALLOC) continue;
    if (first == NULL) first = &entries[i];
    if (entries[i].stream != first->stream) return true;
  }
  return false;
}

// What the recorded run needed.
static tide_status recording_look(tool_planning* p) {
  tide_ledger* ledger = NULL;
  p->is_recording = p->trace != NULL && !tide_trace_get_about(p->trace).has_steps;
  if (!p->is_recording) return TIDE_OK;
  const tide_status status = tide_ledger_new(p->trace, p->device, &ledger);
  if (status != TIDE_OK) return status;
  p->peaks = tide_ledger_get_peaks(ledger);
  p->faults = tide_ledger_get_faults(ledger);
  p->knows_reserved = tool_device_knows_reserved(p->trace, p->device);
  p->has_streams = recording_has_streams(p->trace, p->device);
  tide_ledger_free(ledger);
  return TIDE_OK;
}

// The buffers of a trace.
static tide_status trace_take(tool_planning* p) {
  const tide_status status = recording_look(p);
  if (status != TIDE_OK) return status;
  return tide_problem_new(p->trace, p->device, NULL, &p->problem);
}

static int device_choose(tool_planning* p) {
  const char* const text = tool_option_value(p->call, "device");
  uint64_t number = 0;
  if (p->trace != NULL) return tool_device_choose(p->call, p->trace, &p->device);
  if (text == NULL || tool_number_parse(text, 0, &number)) return TOOL_DONE;
  return tool_fail("no device '%s': a planning problem has only device 0", text);
}

static int planning_open(tool_planning* p) {
  const char* const file = p->call->operands[0];
  int status = tool_problem_read(file, &p->problem, &p->trace);
  if (status == TOOL_DONE) status = device_choose(p);
  if (status != TOOL_DONE) return status;
  if (p->problem == NULL && trace_take(p) != TIDE_OK) return tool_fail("%s: %s", file, tool_error());
  return problem_take(p);
}

// ---------------------------------------------------------------------------------------------------
// The search

static volatile sig_atomic_t is_search_interrupted;

static void search_interrupt(int number) {
  (void)number;
  is_search_interrupted = 1;
}

// From now on an interrupt ends the search, and a second one the program. An ignored signal stays ignored.
static void search_guard(struct sigaction* before) {
  struct sigaction during = { .sa_handler = search_interrupt };
  during.sa_flags = (int)SA_RESETHAND | SA_RESTART;
  (void)sigemptyset(&during.sa_mask);
  if (sigaction(SIGINT, NULL, before) == 0 && before->sa_handler != SIG_IGN)
    (void)sigaction(SIGINT, &during, NULL);
}

typedef struct search_view {
  tool_progress* progress;
  const tide_plan_options* options;
  uint64_t peak;  // shown in the bar
} search_view;

// The progress towards the nearer limit; below 0 if there is none.
static double search_share(const tide_plan_options* limits, const tide_plan_progress* now) {
  const double time = limits->seconds > 0 ? now->seconds / limits->seconds : -1;
  const double nodes = limits->nodes > 0 ? (double)now->nodes / (double)limits->nodes : -1;
  return time > nodes ? time : nodes;
}

static bool search_on_progress(void* user, const tide_plan_progress* now) {
  search_view* const view = user;
  if (now->peak != view->peak && now->peak != UINT64_MAX) {
    char text[96];
    const double gap = tool_share(now->peak - now->lower_bound, now->lower_bound);
    (void)snprintf(text, sizeof text, "planning, %.2f %% above the bound", 100 * gap);
    tool_progress_rename(view->progress, text);
    view->peak = now->peak;
  }
  tool_progress_show(view->progress, search_share(view->options, now));
  return !is_search_interrupted;
}

static int plan_search(tool_planning* p) {
  struct sigaction before = { .sa_handler = SIG_DFL };
  search_view view = { tool_progress_begin("planning"), &p->options, UINT64_MAX };
  p->options.on_progress = search_on_progress;
  p->options.user = &view;
  search_guard(&before);
  const tide_status status = tide_plan_solve(&p->view, &p->options, &p->plan);
  (void)sigaction(SIGINT, &before, NULL);
  tool_progress_end(view.progress);
  if (status != TIDE_OK) return tool_fail("%s: %s", p->call->operands[0], tool_error());
  p->is_interrupted = is_search_interrupted != 0;
  p->outcome = tide_plan_result(p->plan);
  p->offsets = tide_plan_offsets(p->plan);
  return TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// The verb

static tide_status plan_write(const void* planning, const tide_sink* sink) {
  const tool_planning* const p = planning;
  return tide_problem_write(p->problem, p->offsets, sink);
}

static int plan_save(const tool_planning* p) {
  const char* const output = tool_option_value(p->call, "output");
  const char* const picture = tool_option_value(p->call, "svg");
  int status = TOOL_DONE;
  if (p->offsets == NULL) return status;
  if (output != NULL) status = tool_file_write(output, plan_write, p, NULL);
  if (status == TOOL_DONE && picture != NULL) status = tool_file_write(picture, tool_planning_draw, p, NULL);
  return status;
}

static int plan_answer(const tool_planning* p) {
  const bool is_alone = is_standard_output(tool_option_value(p->call, "output"));
  const int status = is_alone ? TOOL_DONE : tool_planning_emit(p);
  if (status != TOOL_DONE) return status;
  if (p->offsets != NULL) return TOOL_DONE;
  if (is_alone) tool_planning_refuse(p);
  return p->outcome.verdict == TIDE_PLAN_INFEASIBLE ? TOOL_NO : TOOL_TIME;
}

static int plan_verb_run(const tool_call* call) {
  const tide_plan_options defaults = TIDE_PLAN_OPTIONS_INIT;
  tool_planning p = { .call = call, .options = defaults };
  int status = options_parse(call, &p.options);
  if (status == TOOL_DONE) status = outputs_check(call);
  if (status == TOOL_DONE) status = planning_open(&p);
  if (status == TOOL_DONE) status = plan_search(&p);
  if (status == TOOL_DONE) status = plan_save(&p);
  if (status == TOOL_DONE) status = plan_answer(&p);
  tide_plan_free(p.plan);
  tide_problem_free(p.problem);
  tide_trace_free(p.trace);
  free(p.buffers);
  return status;
}

const tool_verb tool_plan = {
  .name = "plan",
  .summary = "place buffers with known lifetimes in the smallest arena",
  .operands = "FILE",
  .text =
      "FILE is a planning problem in MiniMalloc's CSV format, or a recording. The requests of a recording "
      "are the buffers, and the answer says how small an arena would have served the run. Offsets that a "
      "problem gives are fixed. Ctrl-C ends the search and keeps the best plan so far. Exit status 1: there "
      "is no plan; 3: none was found before a limit was reached. In both cases nothing is written.",
  .options = options,
  .operands_min = 1,
  .operands_max = 1,
  .run = plan_verb_run,
};
