// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The options --tag, --budget and --uses of the replaying verbs, and what budgets do to a recorded run.
#ifndef TIDEMARK_TOOL_BUDGETING_H
#define TIDEMARK_TOOL_BUDGETING_H

#include "recording.h"

// One --tag.
typedef struct tool_tag_rule {
  char* name;           // owned
  const char* pattern;  // borrowed from the call
  uint64_t requests;    // that got the tag by this pattern
} tool_tag_rule;

// One --budget.
typedef struct tool_tag_budget {
  char* name;  // owned
  tide_budget budget;
} tool_tag_budget;

typedef struct tool_budgeting {
  tool_tag_rule* rules;  // owned
  size_t rule_count;
  tool_tag_budget* budgets;  // owned
  size_t budget_count;
  // All tags: of the options, and of the recording. Each comes before those below it. Their results are those
  // of the last run.
  tide_replay_tag* tags;  // owned; names are of the lists above, or of the trace
  size_t tag_count;
  uint16_t* stack_tags;  // owned; of tide_replay_options
  size_t stack_count;
  tide_replay_use* uses;  // owned; of tide_replay_options
  size_t use_count;
  bool yields;       // a budget permits parking
  bool has_steps;    // uses are assumed in every step
  bool has_returns;  // the recording shows when parked memory came back
  bool wants_steps;  // --uses steps
  bool wants_none;   // --uses requests
} tool_budgeting;

// Are there budgets or tags on the command line?
bool tool_budgeting_is_given(const tool_call* call);
// Reads the options, before a file is read. On failure it prints why and returns TOOL_USAGE.
int tool_budgeting_parse(tool_budgeting* budgeting, const tool_call* call);
// Finds the tags of stacks and the uses of tags in a recording. On failure it prints why and returns
// TOOL_USAGE. In all cases fini frees it. Without options it does nothing.
int tool_budgeting_find(tool_budgeting* budgeting, const tool_call* call, const tool_recording* recording);
void tool_budgeting_fini(tool_budgeting* budgeting);
// The place of a tag in `tags`; tag_count if it is not among them.
size_t tool_budgeting_place(const tool_budgeting* budgeting, const char* name);
// The last part of finding (budgeting_uses.c).
int tool_budgeting_find_uses(tool_budgeting* budgeting, const tool_call* call,
                             const tool_recording* recording, tool_sites* sites);

// Sets the options of a replay, whose results go to `tags`: one for each of the tags, such as a copy of them.
void tool_budgeting_set(const tool_budgeting* budgeting, tide_replay_tag* tags, tide_replay_options* o);

// What the budgets did to a run under a limit; only null in JSON if there are none.
void tool_budgeting_emit(tool_emit* emit, const tool_budgeting* budgeting, const tide_replay_result* r);

#define TOOL_BUDGET_OPTIONS                                                                                \
  { "tag", 0, "NAME=PATTERN",                                                                              \
    "give requests a tag: those with a line in their stack that looks like PATTERN, such as "              \
    "'model.py:*' or '* forward'; may be repeated, and the first that fits counts" },                      \
      { "budget", 0, "TAG:RULES",                                                                          \
        "what a tag may have: limit=SIZE, soft=SIZE, guarantee=SIZE, priority=N, yields, constant, "       \
        "separated "                                                                                       \
        "by commas; may be repeated" },                                                                    \
  {                                                                                                        \
    "uses", 0, "WHEN",                                                                                     \
        "when a tag that yields is used, beside its own requests and releases: once in each of the steps " \
        "(the default, if there are any), or only in requests"                                             \
  }

#endif
