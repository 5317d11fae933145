// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Command-line options that the replaying verbs share.
#include "policy.h"

#include <string.h>

const char* const tool_policy_names[] = { "torch", "tide", NULL };

// ---------------------------------------------------------------------------------------------------
// Policies

static int policy_find(const char* name, size_t bytes) {
  for (int i = 0; tool_policy_names[i] != NULL; i++) {
    if (strlen(tool_policy_names[i]) == bytes && memcmp(tool_policy_names[i], name, bytes) == 0) return i;
  }
  return -1;
}

static int policy_refuse(const char* text) {
  char names[256] = "";
  for (size_t i = 0; tool_policy_names[i] != NULL; i++) {
    const size_t length = strlen(names);
    (void)snprintf(names + length, sizeof names - length, "%s%s", i == 0 ? "" : ", ", tool_policy_names[i]);
  }
  return tool_fail("--policy must be NAME[:SETTINGS], not '%s'; the names are %s", text, names);
}

int tool_policy_parse(const char* text, tide_device_options* out) {
  const char* const colon = strchr(text, ':');
  const int policy = policy_find(text, colon != NULL ? (size_t)(colon - text) : strlen(text));
  if (policy < 0) return policy_refuse(text);
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = (uint32_t)policy;
  const tide_status status = colon != NULL ? tide_device_options_parse(colon + 1, &options) : TIDE_OK;
  if (status != TIDE_OK) return tool_fail("--policy %s: %s", text, tool_error());
  *out = options;
  return TOOL_DONE;
}

const char* tool_policy_settings(const tide_device_options* options, char out[TOOL_POLICY_TEXT]) {
  tide_device_options plain = *options;
  plain.policy = TIDE_POLICY_TORCH;  // the default, which is not printed
  (void)tide_device_options_print(&plain, out, TOOL_POLICY_TEXT);
  return out;
}

const char* tool_policy_text(const tide_device_options* options, char out[TOOL_POLICY_TEXT]) {
  char settings[TOOL_POLICY_TEXT];
  (void)tool_policy_settings(options, settings);
  (void)snprintf(out, TOOL_POLICY_TEXT, "%s%s%.*s", tool_policy_names[options->policy],
                 settings[0] != '\0' ? ":" : "", TOOL_POLICY_TEXT - 64, settings);
  return out;
}

const char* tool_policy_setting(const tide_device_options* options, char out[TOOL_POLICY_TEXT]) {
  if (options->policy != TIDE_POLICY_TORCH) return tool_policy_text(options, out);
  if (*tool_policy_settings(options, out) == '\0') (void)snprintf(out, TOOL_POLICY_TEXT, "(defaults)");
  return out;
}

// ---------------------------------------------------------------------------------------------------
// Limits

int tool_limit_parse(const tool_call* call, uint64_t* out) {
  const char* const text = tool_option_value(call, "limit");
  *out = TIDE_NO_LIMIT;
  if (text == NULL) return TOOL_DONE;
  if (tool_size_parse(text, out) && *out > 0) return tool_size_ask("--limit", text, *out);
  return tool_fail("--limit must be a size such as 24GiB, not '%s'", text);
}
