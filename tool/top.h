// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark top: what the processes of this user publish (monitor.h), gathered once for each picture.
#ifndef TIDEMARK_TOOL_TOP_H
#define TIDEMARK_TOOL_TOP_H

#include "display.h"
#include "ledgers.h"
#include "tidemark/monitor.h"
#include "tool.h"

// A cache of a process, or a process without caches, whose row is all zeros.
typedef struct top_entry {
  tide_monitor_process process;
  tide_monitor_row row;
} top_entry;

// All that was found.
typedef struct top_list {
  top_entry* entries;  // owned; the largest reserved memory first
  size_t count;
  size_t capacity;
  size_t process_count;
  const tool_call* call;  // borrowed: its operands are the processes to show; without any, all
  const char* folder;     // borrowed; NULL: the user's own folders
  bool has_warned;        // that a folder was refused
  uint64_t now_ns;        // when it was gathered, since 1970
  ledger_list ledgers;    // of the same folder, or the user's own
} top_list;

// Reads all pages. Returns 0, or prints an error and returns TOOL_USAGE. Freed by top_list_clear().
int top_list_gather(top_list* list);
// Is this entry the first of its process?
bool top_list_is_first(const top_list* list, size_t index);
void top_list_clear(top_list* list);

// How a cache is called: "device 0 tide", "pinned", "cpu"; and for whom: its label, or the command.
#define TOP_NAME 64
void top_cache_name(const tide_monitor_row* row, char out[TOP_NAME]);
const char* top_owner_name(const top_entry* entry);

// The allocated bytes of the last two minutes as a row of small bars, against the largest reserved memory.
#define TOP_HISTORY_CELLS 10
#define TOP_HISTORY_TEXT (3 * TOP_HISTORY_CELLS + 1)
void top_history(const tide_monitor_row* row, char out[TOP_HISTORY_TEXT]);

// Since when a process has published nothing, in seconds; 0 if it is on time.
double top_silence_s(const top_list* list, const tide_monitor_process* process);

static inline uint64_t top_bytes(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

// Prints the list in Prometheus' text format (top_prometheus.c). Returns the exit status.
int top_prometheus_print(const top_list* list);

// Shows the list on the terminal until a key or a signal ends it (top_live.c). Returns the exit status.
int top_live_run(top_list* list, double interval_s);

#endif
