// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark top --prometheus: the text exposition format, version 0.0.4. Each metric has one group of lines.
// The labels of a line identify a cache: the process, its PID namespace if that is another one, and the
// number of the cache in the process. Metrics of ledgers follow if there are any.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "top.h"

typedef struct top_metric {
  const char* name;  // without the prefix
  const char* type;
  const char* help;
  bool (*value)(const tide_monitor_row* row, double* out);  // false: the cache has no such value
} top_metric;

// A value of a row, and the condition under which there is one.
#define METRIC(name, condition, expression)                            \
  static bool name##_value(const tide_monitor_row* row, double* out) { \
    *out = (double)(expression);                                       \
    return condition;                                                  \
  }
#define IS_DEVICE (row->kind == TIDE_MONITOR_DEVICE)
METRIC(reserved, true, row->reserved_bytes.current)
METRIC(reserved_peak, true, row->reserved_bytes.peak)
METRIC(active, true, row->active_bytes.current)
METRIC(active_peak, true, row->active_bytes.peak)
METRIC(allocated, true, row->allocated_bytes.current)
METRIC(allocated_peak, true, row->allocated_bytes.peak)
METRIC(requested, IS_DEVICE, row->requested_bytes.current)
METRIC(requested_peak, IS_DEVICE, row->requested_bytes.peak)
METRIC(blocks, true, row->num_blocks)
METRIC(allocations, true, row->num_allocs)
METRIC(retries, true, row->num_alloc_retries)
METRIC(ooms, true, row->num_ooms)
METRIC(stream_waits, IS_DEVICE, row->num_stream_waits)
METRIC(limit, row->limit_bytes != TIDE_NO_LIMIT, row->limit_bytes)
METRIC(total, IS_DEVICE, row->total_bytes)
METRIC(updated, true, (double)row->updated_ns * 1e-9)

static const top_metric metrics[] = {
  { "reserved_bytes", "gauge", "Memory taken from the device or the system.", reserved_value },
  { "reserved_peak_bytes", "gauge", "The largest value of tidemark_reserved_bytes.", reserved_peak_value },
  { "active_bytes", "gauge", "Memory of blocks that are handed out or wait for streams.", active_value },
  { "active_peak_bytes", "gauge", "The largest value of tidemark_active_bytes.", active_peak_value },
  { "allocated_bytes", "gauge", "Memory of blocks that are handed out.", allocated_value },
  { "allocated_peak_bytes", "gauge", "The largest value of tidemark_allocated_bytes.", allocated_peak_value },
  { "requested_bytes", "gauge", "What the active blocks were requested with.", requested_value },
  { "requested_peak_bytes", "gauge", "The largest value of tidemark_requested_bytes.", requested_peak_value },
  { "blocks", "gauge", "Blocks that are handed out.", blocks_value },
  { "allocations_total", "counter", "Allocations so far.", allocations_value },
  { "alloc_retries_total", "counter", "Requests that were tried again after idle memory was given back.",
    retries_value },
  { "ooms_total", "counter", "Requests that failed for lack of memory.", ooms_value },
  { "stream_waits_total", "counter", "Waits of a stream for the last use of memory on another stream.",
    stream_waits_value },
  { "limit_bytes", "gauge", "The limit on reserved memory.", limit_value },
  { "device_bytes", "gauge", "The memory of the device.", total_value },
  { "updated_timestamp_seconds", "gauge", "When the process published the values.", updated_value },
};

// The value of a label: backslash, quote and line feed are escaped; other controls are shown as text.
static void label_put(const char* name, const char* value, const char* after) {
  char* const shown = tool_display_text(value, true);
  (void)printf("%s=\"", name);
  for (const char* at = shown; *at != '\0'; at++) {
    if (*at == '\n') (void)fputs("\\n", stdout);
    else if (*at == '"' || *at == '\\') (void)printf("\\%c", *at);
    else (void)fputc(*at, stdout);
  }
  (void)printf("\"%s", after);
  free(shown);
}

static void labels_put(const top_entry* entry) {
  const tide_monitor_process* const process = &entry->process;
  const tide_monitor_row* const row = &entry->row;
  char number[64];
  (void)snprintf(number, sizeof number, "%lld", (long long)process->pid);
  label_put("pid", number, ",");
  (void)snprintf(number, sizeof number, "%llu", (unsigned long long)process->pid_namespace);
  if (!process->is_in_namespace) label_put("pid_namespace", number, ",");
  if (process->copy == 0) (void)snprintf(number, sizeof number, "%llu", (unsigned long long)row->serial);
  else (void)snprintf(number, sizeof number, "%llu.%u", (unsigned long long)row->serial, process->copy);
  label_put("cache", number, ",");
  label_put("kind", tide_monitor_kind_name((tide_monitor_kind)row->kind), ",");
  (void)snprintf(number, sizeof number, "%d", (int)row->device);
  label_put("device", row->device >= 0 ? number : "", ",");
  label_put("policy", row->policy, ",");
  label_put("label", row->label, "");
}

static void metric_print(const top_metric* metric, const top_list* list) {
  double value = 0;
  (void)printf("# HELP tidemark_%s %s\n# TYPE tidemark_%s %s\n", metric->name, metric->help, metric->name,
               metric->type);
  for (size_t i = 0; i < list->count; i++) {
    const top_entry* const entry = &list->entries[i];
    if (entry->row.kind == 0 || !metric->value(&entry->row, &value)) continue;
    (void)printf("tidemark_%s{", metric->name);
    labels_put(entry);
    (void)printf("} %.*f\n", metric->value == updated_value ? 3 : 0, value);
  }
}

// ---------------------------------------------------------------------------------------------------
// Ledgers

typedef struct ledger_metric {
  const char* name;  // without the prefix
  const char* type;
  const char* help;
  bool (*value)(const ledger_row* row, double* out);  // false: the row has no such value
  bool is_of_ledger;                                  // one line for each ledger, not for each member
} ledger_metric;

#define LEDGER_METRIC(name, condition, expression)               \
  static bool name##_value(const ledger_row* row, double* out) { \
    *out = (double)(expression);                                 \
    return condition;                                            \
  }
LEDGER_METRIC(ledger_total, row->is_first, row->ledger.total_bytes)
LEDGER_METRIC(ledger_held, row->has_member, row->member.held_bytes)
LEDGER_METRIC(ledger_guarantee, row->has_member, row->member.guarantee_bytes)
LEDGER_METRIC(ledger_limit, row->has_member && row->member.limit_bytes != TIDE_NO_LIMIT,
              row->member.limit_bytes)
LEDGER_METRIC(ledger_wanted, row->has_member, row->member.wanted_bytes)
LEDGER_METRIC(ledger_waits, row->has_member, row->member.num_waits)
LEDGER_METRIC(ledger_failures, row->has_member, row->member.num_failures)
LEDGER_METRIC(ledger_given, row->has_member, row->member.given_bytes)

static const ledger_metric ledger_metrics[] = {
  { "ledger_total_bytes", "gauge", "The memory that all members share.", ledger_total_value, true },
  { "ledger_held_bytes", "gauge", "What a member holds.", ledger_held_value, false },
  { "ledger_guarantee_bytes", "gauge", "What a member can always have.", ledger_guarantee_value, false },
  { "ledger_limit_bytes", "gauge", "What a member may have at most.", ledger_limit_value, false },
  { "ledger_wanted_bytes", "gauge", "What a member waits for.", ledger_wanted_value, false },
  { "ledger_waits_total", "counter", "Requests that had to wait for others.", ledger_waits_value, false },
  { "ledger_failures_total", "counter", "Requests that others made fail.", ledger_failures_value, false },
  { "ledger_given_bytes_total", "counter", "Memory freed because others asked.", ledger_given_value, false },
};

static void member_labels_put(const tide_quota_member* member) {
  char number[64];
  (void)snprintf(number, sizeof number, "%lld", (long long)member->pid);
  label_put("pid", number, ",");
  (void)snprintf(number, sizeof number, "%llu", (unsigned long long)member->pid_namespace);
  if (!member->is_in_namespace) label_put("pid_namespace", number, ",");
  (void)snprintf(number, sizeof number, "%u", (unsigned)member->index);
  label_put("member", number, ",");
  label_put("name", member->name, "");
}

static void ledger_metric_print(const ledger_metric* metric, const ledger_list* list) {
  double value = 0;
  (void)printf("# HELP tidemark_%s %s\n# TYPE tidemark_%s %s\n", metric->name, metric->help, metric->name,
               metric->type);
  for (size_t i = 0; i < list->count; i++) {
    const ledger_row* const row = &list->rows[i];
    if (!metric->value(row, &value)) continue;
    (void)printf("tidemark_%s{", metric->name);
    label_put("ledger", ledger_name(&row->ledger), metric->is_of_ledger ? "" : ",");
    if (!metric->is_of_ledger) member_labels_put(&row->member);
    (void)printf("} %.0f\n", value);
  }
}

int top_prometheus_print(const top_list* list) {
  for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) metric_print(&metrics[i], list);
  for (size_t i = 0; list->ledgers.count > 0 && i < sizeof ledger_metrics / sizeof ledger_metrics[0]; i++) {
    ledger_metric_print(&ledger_metrics[i], &list->ledgers);
  }
  return fflush(stdout) == 0 && !ferror(stdout) ? TOOL_DONE : tool_output_failed();
}
