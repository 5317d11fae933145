// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the parts of tidemark plan share: the problem, the options, and the plan.
#ifndef TIDEMARK_TOOL_PLANNING_H
#define TIDEMARK_TOOL_PLANNING_H

#include "tidemark/ledger.h"
#include "tidemark/problem.h"
#include "tool.h"

typedef struct tool_planning {
  const tool_call* call;
  tide_trace* trace;  // owned; NULL if the file is a planning problem
  size_t device;
  tide_problem* problem;      // owned
  tide_plan_buffer* buffers;  // owned; those of the problem, with --align
  tide_plan_problem view;     // what is planned
  uint64_t capacity;          // of the view, if it has one
  tide_plan_options options;
  tide_plan* plan;  // owned
  tide_plan_outcome outcome;
  const uint64_t* offsets;  // borrowed from the plan; NULL: there is none
  bool is_interrupted;
  // Only of a recording.
  bool is_recording;
  bool knows_reserved;
  bool has_streams;  // requests on more than one
  tide_ledger_peaks peaks;
  tide_ledger_faults faults;
} tool_planning;

// A size in bytes and in a fitting unit: "1048576 bytes (1.00 MiB)".
#define TOOL_PLAN_SIZE 64
const char* tool_plan_size(uint64_t bytes, char out[TOOL_PLAN_SIZE]);

// Reads --capacity; `out` is unchanged if it is not given. On failure it prints why.
int tool_capacity_parse(const tool_call* call, uint64_t* out, bool* out_is_given);

// Prints the answer of the verb (plan_answer.c), or on standard error why there is no plan.
int tool_planning_emit(const tool_planning* p);
void tool_planning_refuse(const tool_planning* p);

// Draws the plan of a planning (plan_svg.c): a tool_file_writer.
tide_status tool_planning_draw(const void* planning, const tide_sink* sink);

#endif
