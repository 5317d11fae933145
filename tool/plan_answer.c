// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The answer of tidemark plan: first the finding with its reason, then the figures. The reason is the
// solver's proof, with the names of the buffers.
#include "planning.h"
#include "report.h"

static unsigned long long number(uint64_t n) { return (unsigned long long)n; }

const char* tool_plan_size(uint64_t bytes, char out[TOOL_PLAN_SIZE]) {
  char scaled[TOOL_SIZE_TEXT];
  if (bytes < 1024) (void)snprintf(out, TOOL_PLAN_SIZE, "%llu bytes", number(bytes));
  else (void)snprintf(out, TOOL_PLAN_SIZE, "%llu bytes (%s)", number(bytes), tool_size_text(bytes, scaled));
  return out;
}

static const char* planning_name(const tool_planning* p, size_t position) {
  const char* const name = tide_problem_name(p->problem, position, NULL);
  return name != NULL ? name : "?";
}

static size_t planning_live(const tool_planning* p) {
  size_t count = 0;
  (void)tide_plan_live_set(p->plan, p->outcome.proof.pool, &count);
  return count;
}

static bool planning_has_capacity(const tool_planning* p) { return p->view.pools > 0; }

// ---------------------------------------------------------------------------------------------------
// The finding

static void words_add_exact(tool_words* w, const char* before, uint64_t bytes, const char* behind) {
  char size[TOOL_PLAN_SIZE];
  tool_words_add(w, "%s%s%s", before, tool_plan_size(bytes, size), behind);
}

static void words_add_live(const tool_planning* p, tool_words* w) {
  const size_t live = planning_live(p);
  if (live == 1) tool_words_add(w, "the buffer live at time %llu needs ", number(p->outcome.proof.instant));
  else tool_words_add(w, "the %zu buffers live at time %llu need ", live, number(p->outcome.proof.instant));
}

// Why the bound holds, as a clause.
static void words_add_bound(const tool_planning* p, tool_words* w) {
  const tide_plan_proof* const proof = &p->outcome.proof;
  switch (proof->reason) {
    case TIDE_PLAN_LOAD:
      words_add_live(p, w);
      tool_words_add(w, "that much");
      break;
    case TIDE_PLAN_SEARCH: tool_words_add(w, "every smaller arrangement was ruled out"); break;
    case TIDE_PLAN_BUFFER:
      tool_words_add(w, "'%s' alone needs that much", planning_name(p, proof->buffer));
      break;
    case TIDE_PLAN_PAIR:
      tool_words_add(w, "'%s' and '%s' together need that much", planning_name(p, proof->buffer),
                     planning_name(p, proof->other));
      break;
    default: tool_words_add(w, "there is nothing to place"); break;
  }
}

static void finding_of_plan(const tool_planning* p, tool_words* w) {
  const tide_plan_outcome* const o = &p->outcome;
  words_add_exact(w, "An arena of ", o->peak, "");
  tool_words_add(w, " holds all %zu buffers", p->view.count);
  if (o->verdict == TIDE_PLAN_OPTIMAL) {
    tool_words_add(w, ", and no smaller one can: ");
    words_add_bound(p, w);
    tool_words_add(w, ".");
  } else if (planning_has_capacity(p)) {
    words_add_exact(w, " and fits the capacity; a smaller one may exist, but none below ", o->lower_bound,
                    ".");
  } else {
    words_add_exact(w, "; a smaller one may exist, but none below ", o->lower_bound, "");
    tool_words_add(w, ": ");
    words_add_bound(p, w);
    tool_words_add(w, ".");
  }
}

// Why one buffer cannot be placed.
static void words_add_misfit(const tool_planning* p, tool_words* w) {
  const size_t at = p->outcome.proof.buffer;
  const tide_plan_buffer* const buffer = &p->view.buffers[at];
  const uint64_t most = planning_has_capacity(p) ? p->capacity : TIDE_PLAN_MAX_BYTES;
  const bool is_fixed = buffer->offset != TIDE_PLAN_ANYWHERE;
  tool_words_add(w, "'%s'", planning_name(p, at));
  words_add_exact(w, ", ", buffer->bytes, "");
  if (is_fixed && buffer->alignment > 1 && buffer->offset % buffer->alignment != 0)
    tool_words_add(w, ", is fixed at %llu, which is not a multiple of %llu.", number(buffer->offset),
                   number(buffer->alignment));
  else if (is_fixed && (buffer->bytes > most || buffer->offset > most - buffer->bytes))
    tool_words_add(w, ", is fixed at %llu and ends beyond %llu.", number(buffer->offset), number(most));
  else if (buffer->bytes > most) words_add_exact(w, ", is larger than ", most, ".");
  else tool_words_add(w, ", cannot be placed at its fixed offset.");
}

static void words_add_clash(const tool_planning* p, tool_words* w) {
  const tide_plan_proof* const proof = &p->outcome.proof;
  tool_words_add(w, "'%s' and '%s' are fixed where they overlap: at %llu and at %llu.",
                 planning_name(p, proof->buffer), planning_name(p, proof->other),
                 number(p->view.buffers[proof->buffer].offset), number(p->view.buffers[proof->other].offset));
}

static void finding_of_none(const tool_planning* p, tool_words* w) {
  const tide_plan_outcome* const o = &p->outcome;
  tool_words_add(w, "There is no plan");
  if (planning_has_capacity(p)) words_add_exact(w, " within ", p->capacity, "");
  tool_words_add(w, ": ");
  switch (o->proof.reason) {
    case TIDE_PLAN_LOAD:
      words_add_live(p, w);
      words_add_exact(w, "", o->lower_bound, ".");
      break;
    case TIDE_PLAN_BUFFER: words_add_misfit(p, w); break;
    case TIDE_PLAN_PAIR: words_add_clash(p, w); break;
    default: tool_words_add(w, "every arrangement was ruled out."); break;
  }
}

static void finding_of_doubt(const tool_planning* p, tool_words* w) {
  const tide_plan_outcome* const o = &p->outcome;
  tool_words_add(w, "No plan was found%s", p->is_interrupted ? "" : " before a limit was reached");
  words_add_exact(w, ", and none was ruled out: at least ", o->lower_bound, " are needed");
  if (o->peak != 0) words_add_exact(w, "; the smallest plan found needs ", o->peak, "");
  tool_words_add(w, ".");
}

static void finding_make(const tool_planning* p, tool_words* w) {
  if (p->offsets != NULL) finding_of_plan(p, w);
  else if (p->outcome.verdict == TIDE_PLAN_INFEASIBLE) finding_of_none(p, w);
  else finding_of_doubt(p, w);
  if (p->is_interrupted) tool_words_add(w, " The search was interrupted.");
}

void tool_planning_refuse(const tool_planning* p) {
  tool_words finding = { .length = 0 };
  finding_make(p, &finding);
  tool_warn("%s", finding.text);
}

// ---------------------------------------------------------------------------------------------------
// What the plan means for the recorded run

static void recording_emit_words(const tool_planning* p, tool_emit* emit) {
  tool_words w = { .length = 0 };
  if (!p->is_recording || p->offsets == NULL) return;
  words_add_exact(&w, "An arena of this size would have served the run: at its peak, ", p->peaks.live.bytes,
                  " were live");
  if (p->knows_reserved && p->peaks.reserved.bytes > 0) {
    words_add_exact(&w, "; its allocator reserved ", p->peaks.reserved.bytes, "");
    tool_words_add(&w, ", %.3f times the arena", tool_share(p->peaks.reserved.bytes, p->outcome.peak));
  }
  tool_words_add(&w, ".");
  if (p->has_streams)
    tool_words_add(
        &w, " Requests of several streams would share its memory in the order of their entries, so these "
            "streams would have to wait for each other.");
  if (p->faults.blocks_before > 0)
    tool_words_add(&w, " The recording begins in the middle of the run: earlier blocks are live from time 0 "
                       "on, as far as the recording shows.");
  tool_emit_words(emit, "%s", w.text);
}

static void recording_emit(const tool_planning* p, tool_emit* emit) {
  tool_emit_uint_if(emit, p->is_recording, "peak_allocated", NULL, p->peaks.live.bytes);
  tool_emit_uint_if(emit, p->knows_reserved, "recorded_reserved", NULL, p->peaks.reserved.bytes);
  tool_emit_uint(emit, "blocks_before", NULL, p->faults.blocks_before);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(p->trace).is_cut);
}

// ---------------------------------------------------------------------------------------------------
// The figures

// A size, or null.
static void exact_emit(tool_emit* emit, const char* key, const char* label, bool is_known, uint64_t bytes) {
  char size[TOOL_PLAN_SIZE];
  if (is_known) {
    tool_emit_uint(emit, key, NULL, bytes);
    tool_emit_text(emit, NULL, label, tool_plan_size(bytes, size));
  } else {
    tool_emit_text(emit, key, NULL, NULL);
  }
}

static void position_emit(const tool_planning* p, tool_emit* emit, const char* key, bool is_known,
                          size_t position) {
  tool_emit_text(emit, key, NULL, is_known ? planning_name(p, position) : NULL);
}

static void proof_emit(const tool_planning* p, tool_emit* emit) {
  static const char* const reasons[] = { NULL, "load", "search", "buffer", "pair" };
  const tide_plan_proof* const proof = &p->outcome.proof;
  const bool is_load = proof->reason == TIDE_PLAN_LOAD;
  const bool is_pair = proof->reason == TIDE_PLAN_PAIR;
  tool_emit_open(emit, "proof", NULL);
  tool_emit_text(emit, "reason", NULL, reasons[proof->reason]);
  tool_emit_uint_if(emit, is_load, "instant", NULL, proof->instant);
  tool_emit_uint_if(emit, is_load, "live", NULL, is_load ? planning_live(p) : 0);
  position_emit(p, emit, "buffer", is_pair || proof->reason == TIDE_PLAN_BUFFER, proof->buffer);
  position_emit(p, emit, "other", is_pair, proof->other);
  tool_emit_close(emit);
}

static void figures_emit(const tool_planning* p, tool_emit* emit) {
  const tide_plan_outcome* const o = &p->outcome;
  const bool is_plan = p->offsets != NULL;
  tool_emit_uint(emit, "buffers", "buffers", p->view.count);
  exact_emit(emit, "capacity", "capacity", planning_has_capacity(p), p->capacity);
  exact_emit(emit, "lower_bound", "lower bound", true, o->lower_bound);
  exact_emit(emit, "peak", "peak", is_plan, o->peak);
  exact_emit(emit, "smallest_found", "smallest found", !is_plan && o->peak != 0, o->peak);
  if (is_plan) {
    tool_emit_real(emit, "gap", NULL, o->gap, 9);
    tool_emit_format(emit, NULL, "gap", "%.3f %%", 100 * o->gap);
  } else {
    tool_emit_text(emit, "gap", NULL, NULL);
  }
  tool_emit_text(emit, "status", "status", tide_plan_verdict_name(o->verdict));
  tool_emit_text(emit, "stage", is_plan ? "found by" : NULL, tide_plan_stage_name(o->stage));
  tool_emit_uint(emit, "nodes", "placements tried", o->nodes);
  tool_emit_real(emit, "seconds", NULL, o->seconds, 6);
  if (o->seconds < 1) tool_emit_format(emit, NULL, "time", "%.2f ms", 1000 * o->seconds);
  else tool_emit_format(emit, NULL, "time", "%.2f s", o->seconds);
}

static void rest_emit(const tool_planning* p, tool_emit* emit) {
  const char* const output = p->offsets != NULL ? tool_option_value(p->call, "output") : NULL;
  const char* const picture = p->offsets != NULL ? tool_option_value(p->call, "svg") : NULL;
  if (p->options.keeps_hints && p->offsets != NULL)
    tool_emit_uint(emit, "moved", "moved from their hints", p->outcome.moved);
  else tool_emit_text(emit, "moved", NULL, NULL);
  tool_emit_bool(emit, "is_interrupted", NULL, p->is_interrupted);
  tool_emit_text(emit, "output", output != NULL ? "plan" : NULL, output);
  tool_emit_text(emit, "svg", picture != NULL ? "picture" : NULL, picture);
}

int tool_planning_emit(const tool_planning* p) {
  tool_words finding = { .length = 0 };
  tool_emit* const emit = tool_emit_begin(p->call);
  finding_make(p, &finding);
  tool_emit_words(emit, "%s", finding.text);
  recording_emit_words(p, emit);
  tool_emit_text(emit, "file", NULL, p->call->operands[0]);
  tool_emit_text(emit, "finding", NULL, finding.text);
  figures_emit(p, emit);
  rest_emit(p, emit);
  proof_emit(p, emit);
  recording_emit(p, emit);
  return tool_emit_end(emit);
}
