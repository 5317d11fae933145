// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The steps of a run and its suspected leaks, as the verbs report and leaks show them.
#ifndef TIDEMARK_TOOL_STEPS_H
#define TIDEMARK_TOOL_STEPS_H

#include "sites.h"
#include "tidemark/steps.h"
#include "tool.h"

// The steps of one device.
typedef struct tool_steps {
  const tide_trace* trace;  // borrowed, like the next
  tool_sites* sites;
  size_t device;
  const char* named;   // what --step names; NULL: nothing
  uint64_t entries;    // or the length it gives; 0: none
  tide_steps* steps;   // owned
  uint64_t* site_ids;  // owned; by the number of the stack; 0: not known yet
} tool_steps;

// Reads --step and finds the steps; `ledger` is of this device. On failure it prints why and returns
// TOOL_USAGE.
int tool_steps_init(tool_steps* steps, const tool_call* call, const tide_trace* trace, size_t device,
                    tide_ledger* ledger, tool_sites* sites);
void tool_steps_fini(tool_steps* steps);

// How the steps were found: by the annotation "train_step".
#define TOOL_STEPS_HOW 512
const char* tool_steps_how(const tool_steps* steps, char out[TOOL_STEPS_HOW]);
// Why there are none, as a clause.
const char* tool_steps_why_not(const tool_steps* steps, char out[TOOL_STEPS_HOW]);

// How they were found and a table of all steps, under "steps". In text only if `is_shown`, and with the
// middle of a long table left out.
void tool_steps_emit(tool_emit* emit, const tool_call* call, const tool_steps* steps, bool is_shown);

// All steps, as a table under `key`; in text with the middle of a long table left out.
void tool_steps_emit_rows(tool_emit* emit, const char* key, const tool_call* call, const tool_steps* steps);

// The number of suspected leaks of at least `least` bytes per step, on `count` devices; a table of them,
// under "leaks"; and in text their stacks.
size_t tool_leaks_count(const tool_steps* steps, size_t count, uint64_t least);
void tool_leaks_emit(tool_emit* emit, const tool_call* call, const tool_steps* steps, size_t count,
                     uint64_t least);

// For tidemark report: a sentence if memory leaks; then the steps, in text only with --steps or --step, and
// the leaks in JSON.
void tool_steps_emit_warning(tool_emit* emit, const tool_steps* steps);
// The same sentence; NULL if nothing leaks.
#define TOOL_STEPS_WARNING (TOOL_SITE_TEXT + TOOL_STEPS_HOW + 256)
const char* tool_steps_warning(const tool_steps* steps, char out[TOOL_STEPS_WARNING]);
void tool_steps_emit_report(tool_emit* emit, const tool_call* call, const tool_steps* steps);

// The option --step of a verb.
#define TOOL_STEP_OPTION                                                                                    \
  {                                                                                                         \
    "step", 0, "NAME|N",                                                                                    \
        "what marks a step: a part of the name of an annotation, of metadata or of a frame (train.py:88), " \
        "or "                                                                                               \
        "a number of entries (default: found from the recording)"                                           \
  }

#endif
