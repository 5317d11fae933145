// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark verify: checks the offsets of a plan. The library's verifier shares no code with its solver, so it
// checks plans of any solver alike.
#include <stdlib.h>

#include "planning.h"

static const tool_option options[] = {
  { "capacity", 'c', "SIZE", "the size of the arena (default: no limit)" },
  { NULL, 0, NULL, NULL },
};

typedef struct verification {
  const tool_call* call;
  tide_trace* trace;      // owned; NULL if the file is a planning problem
  tide_problem* problem;  // owned
  tide_plan_problem view;
  uint64_t* offsets;  // owned
  uint64_t capacity;
  tide_plan_check check;
} verification;

static unsigned long long number(uint64_t n) { return (unsigned long long)n; }

static int verification_open(verification* v) {
  const char* const file = v->call->operands[0];
  const int status = tool_problem_read(file, &v->problem, &v->trace);
  if (status != TOOL_DONE) return status;
  if (v->problem == NULL && tide_problem_new(v->trace, 0, NULL, &v->problem) != TIDE_OK)
    return tool_fail("%s: %s", file, tool_error());
  const tide_plan_problem view = tide_problem_plan(v->problem);
  v->view.buffers = view.buffers;
  v->view.count = view.count;
  v->offsets = tool_alloc(view.count, sizeof *v->offsets);
  for (size_t i = 0; i < view.count; i++) {
    v->offsets[i] = view.buffers[i].offset;
    if (v->offsets[i] == TIDE_PLAN_ANYWHERE)
      return tool_fail(
          "%s: '%s' has no offset, so this is not a plan; tidemark plan FILE -o PLAN.csv writes one", file,
          tide_problem_name(v->problem, i, NULL));
  }
  return TOOL_DONE;
}

static int verification_check(verification* v) {
  v->check = (tide_plan_check)TIDE_PLAN_CHECK_INIT;
  if (tide_plan_verify(&v->view, v->offsets, NULL, NULL, &v->check) == TIDE_OK) return TOOL_DONE;
  return tool_fail("%s: %s", v->call->operands[0], tool_error());
}

// ---------------------------------------------------------------------------------------------------
// The answer

static bool check_has_other(const tide_plan_check* check) {
  return check->fault == TIDE_PLAN_FAULT_OVERLAP || check->fault == TIDE_PLAN_FAULT_ALIAS;
}

static const char* verification_name(const verification* v, size_t position) {
  return tide_problem_name(v->problem, position, NULL);
}

// Describes the fault with the names of the buffers. A file has neither pools nor shared storage; for other
// faults the verifier's own text is enough.
static void fault_emit(const verification* v, tool_emit* emit) {
  const tide_plan_check* const check = &v->check;
  const tide_plan_buffer* const buffer = &v->view.buffers[check->buffer];
  const char* const name = verification_name(v, check->buffer);
  const uint64_t offset = v->offsets[check->buffer];
  switch (check->fault) {
    case TIDE_PLAN_FAULT_OVERLAP:
      tool_emit_format(emit, "fault", "fault",
                       "'%s' at offset %llu and '%s' at offset %llu overlap at time %llu", name,
                       number(offset), verification_name(v, check->other), number(v->offsets[check->other]),
                       number(check->instant));
      break;
    case TIDE_PLAN_FAULT_CAPACITY:
      tool_emit_format(emit, "fault", "fault",
                       "'%s', %llu bytes at offset %llu, ends beyond the capacity of %llu", name,
                       number(buffer->bytes), number(offset),
                       number(v->view.pools > 0 ? v->capacity : TIDE_PLAN_MAX_BYTES));
      break;
    case TIDE_PLAN_FAULT_ALIGNMENT:
      tool_emit_format(emit, "fault", "fault", "'%s' is at offset %llu, which is not a multiple of %llu",
                       name, number(offset), number(buffer->alignment));
      break;
    default: tool_emit_text(emit, "fault", "fault", check->text); break;
  }
}

static void answer_emit(const verification* v, tool_emit* emit) {
  const tide_plan_check* const check = &v->check;
  const bool is_valid = check->fault == TIDE_PLAN_NO_FAULT;
  char size[TOOL_PLAN_SIZE];
  tool_emit_bool(emit, "valid", "valid", is_valid);
  tool_emit_uint(emit, "buffers", "buffers", v->view.count);
  if (is_valid) {
    tool_emit_uint(emit, "peak", NULL, check->peak);
    tool_emit_text(emit, NULL, "peak", tool_plan_size(check->peak, size));
    tool_emit_text(emit, "fault", NULL, NULL);
  } else {
    tool_emit_text(emit, "peak", NULL, NULL);
    fault_emit(v, emit);
  }
  tool_emit_text(emit, "buffer", NULL, is_valid ? NULL : verification_name(v, check->buffer));
  tool_emit_text(emit, "other", NULL, check_has_other(check) ? verification_name(v, check->other) : NULL);
  tool_emit_uint_if(emit, check->fault == TIDE_PLAN_FAULT_OVERLAP, "instant", NULL, check->instant);
}

static int verification_emit(const verification* v) {
  tool_emit* const emit = tool_emit_begin(v->call);
  tool_emit_text(emit, "file", NULL, v->call->operands[0]);
  tool_emit_uint_if(emit, v->view.pools > 0, "capacity", NULL, v->capacity);
  answer_emit(v, emit);
  const int status = tool_emit_end(emit);
  if (status != TOOL_DONE) return status;
  return v->check.fault == TIDE_PLAN_NO_FAULT ? TOOL_DONE : TOOL_NO;
}

static int verify_run(const tool_call* call) {
  verification v = { .call = call };
  bool has_capacity = false;
  int status = tool_capacity_parse(call, &v.capacity, &has_capacity);
  if (has_capacity) v.view = (tide_plan_problem){ .capacities = &v.capacity, .pools = 1 };
  if (status == TOOL_DONE) status = verification_open(&v);
  if (status == TOOL_DONE) status = verification_check(&v);
  if (status == TOOL_DONE) status = verification_emit(&v);
  tide_problem_free(v.problem);
  tide_trace_free(v.trace);
  free(v.offsets);
  return status;
}

const tool_verb tool_verify = {
  .name = "verify",
  .summary = "check the offsets of a plan",
  .operands = "PLAN.csv",
  .text =
      "PLAN.csv is a problem in MiniMalloc's CSV format with an offset for every buffer. Buffers that live "
      "at the same time must not overlap, and offsets must be multiples of their alignment. The first fault "
      "is reported. Exit status 1: the plan is wrong.",
  .options = options,
  .operands_min = 1,
  .operands_max = 1,
  .run = verify_run,
};
