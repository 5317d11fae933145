// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ledgers by which processes share the memory of a device (quota.h), as `ledger` and `top` show them.
#ifndef TIDEMARK_TOOL_LEDGERS_H
#define TIDEMARK_TOOL_LEDGERS_H

#include "tidemark/quota.h"
#include "tool.h"

// A member, or a ledger without members.
typedef struct ledger_row {
  tide_quota_ledger ledger;
  tide_quota_member member;
  bool has_member;
  bool is_first;  // of its ledger
} ledger_row;

typedef struct ledger_list {
  ledger_row* rows;  // owned; those of a ledger together
  size_t count;
  size_t capacity;
} ledger_list;

// Reads a ledger, or all ledgers of the user for NULL. Replaces what was read before. Freed by
// ledger_list_clear().
tide_status ledger_list_gather(ledger_list* list, const char* ledger);
void ledger_list_clear(ledger_list* list);

// Emits the tables "ledgers" and "members". In text, empty tables are left out.
void ledger_list_emit(tool_emit* emit, const ledger_list* list, bool is_json);

// The name of a ledger: that of its file, without the beginning "ledger-".
const char* ledger_name(const tide_quota_ledger* ledger);

#endif
