// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The tables of ledgers and of their members.
#include "ledgers.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

// ---------------------------------------------------------------------------------------------------
// Gathering

static bool row_add(void* user, const tide_quota_ledger* ledger, const tide_quota_member* member) {
  ledger_list* const list = user;
  if (list->count == list->capacity) {
    list->capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
    list->rows = tool_grow(list->rows, list->capacity, sizeof *list->rows);
  }
  ledger_row* const row = &list->rows[list->count];
  memset(row, 0, sizeof *row);
  row->ledger = *ledger;
  row->has_member = member != NULL;
  if (member != NULL) row->member = *member;
  row->is_first = list->count == 0 || strcmp(list->rows[list->count - 1].ledger.path, ledger->path) != 0;
  list->count++;
  return true;
}

tide_status ledger_list_gather(ledger_list* list, const char* ledger) {
  list->count = 0;
  return tide_quota_read(ledger, row_add, list);
}

void ledger_list_clear(ledger_list* list) {
  free(list->rows);
  *list = (ledger_list){ .rows = NULL };
}

const char* ledger_name(const tide_quota_ledger* ledger) {
  const char* const slash = strrchr(ledger->path, '/');
  const char* const name = slash != NULL ? slash + 1 : ledger->path;
  const size_t prefix = strlen("ledger-");
  return strncmp(name, "ledger-", prefix) == 0 ? name + prefix : name;
}

// ---------------------------------------------------------------------------------------------------
// Tables

static const tool_column ledger_columns[] = {
  { "ledger", "ledger" },   { "path", NULL },         { "total_bytes", "total" },
  { "held_bytes", "held" }, { "free_bytes", "free" }, { "guarantee_bytes", "guaranteed" },
  { "members", "members" }, { "is_damaged", NULL },   { "made_s", NULL },
};

static const tool_column member_columns[] = {
  { "ledger", "ledger" },
  { "pid", "pid" },
  { "is_in_namespace", NULL },
  { "pid_namespace", NULL },
  { "index", NULL },
  { "priority", "priority" },
  { "held_bytes", "held" },
  { "peak_bytes", NULL },
  { "guarantee_bytes", "guarantee" },
  { "limit_bytes", "limit" },
  { "wanted_bytes", "waits for" },
  { "waits", NULL },
  { "failures", NULL },
  { "given_bytes", "gave" },
  { "has_helper", NULL },
  { "joined_s", NULL },
  { "name", "name" },
};

static void ledger_emit(tool_emit* emit, const tide_quota_ledger* ledger) {
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, ledger_name(ledger));
  tool_emit_text(emit, NULL, NULL, ledger->path);
  tool_emit_bytes(emit, NULL, NULL, ledger->total_bytes);
  tool_emit_bytes(emit, NULL, NULL, ledger->held_bytes);
  tool_emit_bytes(emit, NULL, NULL, ledger->total_bytes - tide__min(ledger->total_bytes, ledger->held_bytes));
  tool_emit_bytes(emit, NULL, NULL, ledger->guarantee_bytes);
  tool_emit_uint(emit, NULL, NULL, ledger->member_count);
  tool_emit_bool(emit, NULL, NULL, ledger->is_damaged);
  tool_emit_real(emit, NULL, NULL, (double)ledger->made_ns * 1e-9, 3);
}

static void member_emit(tool_emit* emit, const ledger_row* row) {
  const tide_quota_member* const member = &row->member;
  tool_emit_row(emit);
  tool_emit_text(emit, NULL, NULL, ledger_name(&row->ledger));
  tool_emit_uint(emit, NULL, NULL, (uint64_t)member->pid);
  tool_emit_bool(emit, NULL, NULL, member->is_in_namespace);
  tool_emit_uint_if(emit, member->pid_namespace != 0, NULL, NULL, member->pid_namespace);
  tool_emit_uint(emit, NULL, NULL, member->index);
  tool_emit_real(emit, NULL, NULL, member->priority, 0);
  tool_emit_bytes(emit, NULL, NULL, member->held_bytes);
  tool_emit_bytes(emit, NULL, NULL, member->peak_bytes);
  tool_emit_bytes(emit, NULL, NULL, member->guarantee_bytes);
  tool_emit_bytes_if(emit, member->limit_bytes != TIDE_NO_LIMIT, NULL, NULL, member->limit_bytes);
  tool_emit_bytes(emit, NULL, NULL, member->wanted_bytes);
  tool_emit_uint(emit, NULL, NULL, member->num_waits);
  tool_emit_uint(emit, NULL, NULL, member->num_failures);
  tool_emit_bytes(emit, NULL, NULL, member->given_bytes);
  tool_emit_bool(emit, NULL, NULL, member->has_helper);
  tool_emit_real(emit, NULL, NULL, (double)member->joined_ns * 1e-9, 0);
  tool_emit_text(emit, NULL, NULL, member->name);
}

static bool has_members(const ledger_list* list) {
  for (size_t i = 0; i < list->count; i++) {
    if (list->rows[i].has_member) return true;
  }
  return false;
}

static void ledgers_emit(tool_emit* emit, const ledger_list* list) {
  tool_emit_table(emit, "ledgers", ledger_columns, sizeof ledger_columns / sizeof ledger_columns[0]);
  for (size_t i = 0; i < list->count; i++) {
    if (list->rows[i].is_first) ledger_emit(emit, &list->rows[i].ledger);
  }
  tool_emit_table_end(emit);
}

static void members_emit(tool_emit* emit, const ledger_list* list) {
  tool_emit_table(emit, "members", member_columns, sizeof member_columns / sizeof member_columns[0]);
  for (size_t i = 0; i < list->count; i++) {
    if (list->rows[i].has_member) member_emit(emit, &list->rows[i]);
  }
  tool_emit_table_end(emit);
}

void ledger_list_emit(tool_emit* emit, const ledger_list* list, bool is_json) {
  if (is_json || list->count > 0) ledgers_emit(emit, list);
  if (is_json || has_members(list)) members_emit(emit, list);
  for (size_t i = 0; i < list->count; i++) {
    const tide_quota_ledger* const ledger = &list->rows[i].ledger;
    if (list->rows[i].is_first && ledger->is_damaged)
      tool_emit_words(emit, "The ledger %s was damaged; its members repair it at their next request.",
                      ledger_name(ledger));
  }
}
