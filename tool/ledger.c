// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark ledger: shows, makes, changes and removes the ledgers by which processes share the memory of a
// device.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledgers.h"

// The file name of an operand may be at most so long, with its folder.
#define OPERAND_BYTES TIDE_QUOTA_LEDGER

// ---------------------------------------------------------------------------------------------------
// Operands and options

// A ledger as the library wants it: a name, or an absolute path. A file need not exist, but its folder must.
static int ledger_resolve(const char* text, char out[OPERAND_BYTES]) {
  const char* const slash = strrchr(text, '/');
  if (strlen(text) >= OPERAND_BYTES) return tool_fail("the name of the ledger is too long");
  (void)snprintf(out, OPERAND_BYTES, "%s", text);
  if (slash == NULL || *text == '/') return TOOL_DONE;
  out[slash - text] = '\0';
  char* const folder = realpath(out, NULL);
  if (folder == NULL) return tool_fail("%s: %s", out, strerror(errno));
  const int length = snprintf(out, OPERAND_BYTES, "%s/%s", folder, slash + 1);
  free(folder);
  return length < OPERAND_BYTES ? TOOL_DONE : tool_fail("the path of the ledger is too long");
}

// A size of an option that was given. "none" is TIDE_NO_LIMIT where it is allowed.
static int size_option(const tool_call* call, const char* option, bool may_be_none, uint64_t* out) {
  const char* const text = tool_option_value(call, option + strlen("--"));
  if (text == NULL) return TOOL_DONE;
  if (may_be_none && strcmp(text, "none") == 0) {
    *out = TIDE_NO_LIMIT;
    return TOOL_DONE;
  }
  if (!tool_size_parse(text, out)) return tool_fail("%s needs a size such as 24GiB, not '%s'", option, text);
  return *out == 0 ? TOOL_DONE : tool_size_ask(option, text, *out);
}

static bool priority_parse(const char* text, int32_t* out) {
  uint64_t value = 0;
  const bool is_negative = *text == '-';
  if (!tool_number_parse(text + (is_negative ? 1 : 0), TIDE_QUOTA_PRIORITY, &value)) return false;
  *out = is_negative ? -(int32_t)value : (int32_t)value;
  return true;
}

static int shares_parse(const tool_call* call, tide_quota_shares* out) {
  const char* const priority = tool_option_value(call, "priority");
  int status = size_option(call, "--guarantee", false, &out->guarantee_bytes);
  if (status == TOOL_DONE) status = size_option(call, "--limit", true, &out->limit_bytes);
  if (status != TOOL_DONE) return status;
  if (priority != NULL && !priority_parse(priority, &out->priority))
    return tool_fail("--priority must be between -%d and %d, not '%s'", TIDE_QUOTA_PRIORITY,
                     TIDE_QUOTA_PRIORITY, priority);
  if (tool_option_value(call, "guarantee") != NULL) out->set |= TIDE_QUOTA_SET_GUARANTEE;
  if (tool_option_value(call, "limit") != NULL) out->set |= TIDE_QUOTA_SET_LIMIT;
  if (priority != NULL) out->set |= TIDE_QUOTA_SET_PRIORITY;
  return TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// Actions. Each has checked the whole command line before it changes anything.

static int ledger_show(const tool_call* call, const char* ledger) {
  ledger_list list = { .rows = NULL };
  if (ledger_list_gather(&list, ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  tool_emit* const emit = tool_emit_begin(call);
  ledger_list_emit(emit, &list, call->is_json);
  if (list.count == 0) {
    tool_emit_words(emit,
                    "There is no ledger. A process makes one when it joins it with a total, and so does "
                    "tidemark ledger make NAME --total SIZE.");
  }
  ledger_list_clear(&list);
  return tool_emit_end(emit);
}

static int ledger_make(const tool_call* call, const char* ledger) {
  uint64_t total = 0;
  const int status = size_option(call, "--total", false, &total);
  if (status != TOOL_DONE) return status;
  if (total == 0) return tool_fail("make needs --total SIZE");
  if (tide_quota_make(ledger, total) != TIDE_OK) return tool_fail("%s", tool_error());
  return ledger_show(call, ledger);
}

static int ledger_remove(const tool_call* call, const char* ledger) {
  if (tide_quota_remove(ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  tool_emit* const emit = tool_emit_begin(call);
  const char* const slash = strrchr(ledger, '/');
  tool_emit_text(emit, "removed", NULL, ledger);
  tool_emit_text(emit, NULL, "removed", slash != NULL ? slash + 1 : ledger);
  return tool_emit_end(emit);
}

static int ledger_set(const tool_call* call, const char* ledger) {
  tide_quota_shares shares = TIDE_QUOTA_SHARES_INIT;
  const char* const pid_text = tool_option_value(call, "pid");
  uint64_t total = 0;
  uint64_t pid = 0;
  int status = size_option(call, "--total", false, &total);
  if (status == TOOL_DONE) status = shares_parse(call, &shares);
  if (status != TOOL_DONE) return status;
  if (pid_text != NULL && (!tool_number_parse(pid_text, INT64_MAX, &pid) || pid == 0))
    return tool_fail("'%s' is not a process id", pid_text);
  if ((pid != 0) != (shares.set != 0))
    return tool_fail(pid == 0 ? "--guarantee, --limit and --priority need --pid"
                              : "--pid needs --guarantee, --limit or --priority");
  if (total != 0 && pid != 0) return tool_fail("--total and --pid cannot be combined");
  if (total == 0 && pid == 0) return tool_fail("set needs --total, or --pid and a share");
  if (total != 0 && tide_quota_set_total(ledger, total) != TIDE_OK) return tool_fail("%s", tool_error());
  if (pid != 0 && tide_quota_set_shares(ledger, (int64_t)pid, &shares) != TIDE_OK)
    return tool_fail("%s", tool_error());
  return ledger_show(call, ledger);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static const struct {
  const char* name;
  int (*run)(const tool_call* call, const char* ledger);
} actions[] = {
  { "show", ledger_show },
  { "make", ledger_make },
  { "set", ledger_set },
  { "remove", ledger_remove },
};

static bool has_settings(const tool_call* call) {
  static const char* const names[] = { "total", "pid", "guarantee", "limit", "priority" };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (tool_option_value(call, names[i]) != NULL) return true;
  }
  return false;
}

static int ledger_run(const tool_call* call) {
  const char* const action = call->operand_count > 0 ? call->operands[0] : "show";
  const bool is_show = strcmp(action, "show") == 0;
  const bool is_remove = strcmp(action, "remove") == 0;
  char ledger[OPERAND_BYTES];
  if ((is_show || is_remove) && has_settings(call)) return tool_fail("%s takes no settings; use set", action);
  if (call->operand_count > 1) {
    const int status = ledger_resolve(call->operands[1], ledger);
    if (status != TOOL_DONE) return status;
  }
  for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
    if (strcmp(actions[i].name, action) != 0) continue;
    if (call->operand_count < 2 && !is_show) return tool_fail("%s needs the name of a ledger", action);
    return actions[i].run(call, call->operand_count > 1 ? ledger : NULL);
  }
  return tool_fail("unknown action '%s'; it can be show, make, set or remove", action);
}

static const tool_option ledger_options[] = {
  { "total", 0, "SIZE", "the memory that all members share" },
  { "pid", 0, "PID", "the member to change, by its process" },
  { "guarantee", 0, "SIZE", "what the member can always have" },
  { "limit", 0, "SIZE", "what the member may have at most; none: as much as the ledger" },
  { "priority", 0, "NUMBER", "who is asked to free memory: lower priorities first" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_ledger = {
  .name = "ledger",
  .summary = "share the memory of a device between processes",
  .operands = "[show|make|set|remove] [LEDGER]",
  .text =
      "A ledger is a file by which processes of one user share the memory of a device. Its members together "
      "hold at most its total. Each has a guarantee, a limit and a priority. One that needs more asks the "
      "others to free idle memory, and then to move memory away.\n\n"
      "Without operands all ledgers and their members are shown. make makes a ledger with a total, set "
      "changes the total or the shares of a member at run time, and remove removes a ledger that has no "
      "members. LEDGER is a name, such as gpu0, or a path with a slash in it.",
  .options = ledger_options,
  .operands_max = 2,
  .run = ledger_run,
};
