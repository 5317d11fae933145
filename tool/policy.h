// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Policies on the command line: NAME[:SETTINGS], with SETTINGS in PyTorch's grammar.
#ifndef TIDEMARK_TOOL_POLICY_H
#define TIDEMARK_TOOL_POLICY_H

#include "tidemark/replay.h"
#include "tool.h"

// The names of all policies by their number, up to NULL.
extern const char* const tool_policy_names[];

// Parses a policy; settings that are not named have their defaults. Returns 0, or prints what is wrong and
// returns TOOL_USAGE.
int tool_policy_parse(const char* text, tide_device_options* out);

// The settings alone, and with the name before them: "torch:max_split_size_mb:64". They return `out`.
#define TOOL_POLICY_TEXT 1024
const char* tool_policy_settings(const tide_device_options* options, char out[TOOL_POLICY_TEXT]);
const char* tool_policy_text(const tide_device_options* options, char out[TOOL_POLICY_TEXT]);

// A setting as users know it: settings of PyTorch, "(defaults)", or a policy of Tidemark. Returns `out`.
const char* tool_policy_setting(const tide_device_options* options, char out[TOOL_POLICY_TEXT]);

// The command that runs a script on Tidemark's own allocator.
#define TOOL_TIDE_COMMAND "python -m tidemark.torch script.py"

// The value of --limit; TIDE_NO_LIMIT if there is none.
int tool_limit_parse(const tool_call* call, uint64_t* out);

#endif
