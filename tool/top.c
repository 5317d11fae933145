// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark top: the caches of running processes, once or again and again.
#include "top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arith.h"

#define LATE_NS UINT64_C(5000000000)  // a page that is older belongs to a process that does not run
#define INTERVAL_LEAST_S 0.1
#define INTERVAL_MOST_S 3600.0

// ---------------------------------------------------------------------------------------------------
// Gathering

static bool pid_is_wanted(const tool_call* call, int64_t pid) {
  uint64_t wanted = 0;
  for (int i = 0; i < call->operand_count; i++) {
    if (tool_number_parse(call->operands[i], INT64_MAX, &wanted) && (int64_t)wanted == pid) return true;
  }
  return call->operand_count == 0;
}

bool top_list_is_first(const top_list* list, size_t index) {
  const tide_monitor_process* const process = &list->entries[index].process;
  for (size_t i = 0; i < index; i++) {
    const tide_monitor_process* const other = &list->entries[i].process;
    if (other->pid == process->pid && other->pid_namespace == process->pid_namespace &&
        other->copy == process->copy)
      return false;
  }
  return true;
}

static bool entry_add(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  top_list* const list = user;
  if (!pid_is_wanted(list->call, process->pid)) return true;
  if (list->count == list->capacity) {
    list->capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
    list->entries = tool_grow(list->entries, list->capacity, sizeof *list->entries);
  }
  top_entry* const entry = &list->entries[list->count++];
  memset(entry, 0, sizeof *entry);
  entry->process = *process;
  if (row != NULL) entry->row = *row;
  if (top_list_is_first(list, list->count - 1)) list->process_count++;
  return true;
}

static int entry_compare(const void* a, const void* b) {
  const top_entry* const x = a;
  const top_entry* const y = b;
  const int64_t left = x->row.reserved_bytes.current;
  const int64_t right = y->row.reserved_bytes.current;
  if (left != right) return left > right ? -1 : 1;
  if (x->process.pid != y->process.pid) return x->process.pid < y->process.pid ? -1 : 1;
  return (x->row.serial > y->row.serial) - (x->row.serial < y->row.serial);
}

// Ledgers that cannot be read are not shown: the verb `ledger` says why.
static void ledgers_gather(top_list* list) {
  char folder[TIDE_QUOTA_LEDGER];
  const tide_error before = *tide_last_error();
  int length = 0;
  if (list->folder != NULL) length = snprintf(folder, sizeof folder, "%s/", list->folder);
  if (length < 0 || (size_t)length >= sizeof folder) return;
  if (ledger_list_gather(&list->ledgers, list->folder != NULL ? folder : NULL) == TIDE_OK) return;
  list->ledgers.count = 0;
  if (before.status != TIDE_OK)
    (void)tide_error_set(before.status, before.native, before.file, before.line, "%s", before.text);
}

// Pages in one folder are shown even if another folder is refused.
int top_list_gather(top_list* list) {
  struct timespec now = { 0 };
  list->count = 0;
  list->process_count = 0;
  const tide_status status = tide_monitor_read(list->folder, entry_add, list);
  ledgers_gather(list);
  (void)clock_gettime(CLOCK_REALTIME, &now);
  list->now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
  if (list->count > 0) qsort(list->entries, list->count, sizeof *list->entries, entry_compare);
  if (status == TIDE_OK) return TOOL_DONE;
  if (list->count == 0) return tool_fail("%s", tool_error());
  if (!list->has_warned) tool_warn("%s", tool_error());
  list->has_warned = true;
  return TOOL_DONE;
}

void top_list_clear(top_list* list) {
  free(list->entries);
  ledger_list_clear(&list->ledgers);
  list->entries = NULL;
  list->count = list->capacity = 0;
}

// ---------------------------------------------------------------------------------------------------
// Words

void top_cache_name(const tide_monitor_row* row, char out[TOP_NAME]) {
  const char* const kind = tide_monitor_kind_name((tide_monitor_kind)row->kind);
  if (row->kind == 0) (void)snprintf(out, TOP_NAME, "no cache");
  else if (row->device < 0) (void)snprintf(out, TOP_NAME, "%s", kind);
  else (void)snprintf(out, TOP_NAME, "%s %d %s", kind, (int)row->device, row->policy);
}

const char* top_owner_name(const top_entry* entry) {
  return *entry->row.label != '\0' ? entry->row.label : entry->process.command;
}

static uint64_t history_scale(const tide_monitor_row* row) {
  uint64_t largest = 1;
  for (uint32_t i = 0; i < row->point_count; i++) {
    if (row->points[i].reserved_bytes > largest) largest = row->points[i].reserved_bytes;
    if (row->points[i].allocated_bytes > largest) largest = row->points[i].allocated_bytes;
  }
  return largest;
}

// Each cell is the largest value of ten seconds; cells from before the process began are blank.
void top_history(const tide_monitor_row* row, char out[TOP_HISTORY_TEXT]) {
  enum { CELL_POINTS = TIDE_MONITOR_POINTS / TOP_HISTORY_CELLS, LEVELS = 8 };
  const uint64_t scale = history_scale(row);
  char* at = out;
  for (uint32_t cell = TOP_HISTORY_CELLS; cell-- > 0;) {
    uint64_t largest = 0;
    bool is_known = false;
    for (uint32_t age = cell * CELL_POINTS; age < (cell + 1) * CELL_POINTS && age < row->point_count; age++) {
      const tide_monitor_point* const point = &row->points[row->point_count - 1 - age];
      if (point->allocated_bytes > largest) largest = point->allocated_bytes;
      is_known = true;
    }
    if (!is_known) *at++ = ' ';
    if (!is_known) continue;
    const int level = (int)((double)largest / (double)scale * (LEVELS - 1) + 0.5);
    at += snprintf(at, 4, "\xe2\x96%c", (char)(0x81 + level));  // U+2581 to U+2588
  }
  *at = '\0';
}

double top_silence_s(const top_list* list, const tide_monitor_process* process) {
  const uint64_t passed_ns = list->now_ns - tide__min(list->now_ns, process->updated_ns);
  return passed_ns >= LATE_NS ? (double)passed_ns * 1e-9 : 0;
}

// ---------------------------------------------------------------------------------------------------
// Once

static const tool_column process_columns[] = {
  { "pid", NULL },      { "is_in_namespace", NULL }, { "pid_namespace", NULL }, { "copy", NULL },
  { "command", NULL },  { "version", NULL },         { "caches", NULL },        { "left_out", NULL },
  { "opened_s", NULL }, { "updated_s", NULL },
};

static const tool_column cache_columns[] = {
  { "pid", "pid" },
  { NULL, "cache" },
  { "copy", NULL },
  { "cache", NULL },
  { "kind", NULL },
  { "device", NULL },
  { "policy", NULL },
  { "machine", NULL },
  { "label", NULL },
  { "reserved_bytes", "reserved" },
  { "reserved_peak_bytes", "peak" },
  { "active_bytes", NULL },
  { "active_peak_bytes", NULL },
  { "allocated_bytes", "allocated" },
  { "allocated_peak_bytes", NULL },
  { "requested_bytes", NULL },
  { "requested_peak_bytes", NULL },
  { "blocks", NULL },
  { "allocations", NULL },
  { "alloc_retries", "retries" },
  { "ooms", "ooms" },
  { "stream_waits", NULL },
  { "limit_bytes", NULL },
  { "total_bytes", NULL },
  { "updated_s", NULL },
  { "reserved_history", NULL },
  { "allocated_history", NULL },
  { NULL, "last 2 min" },
  { NULL, "name" },
};

static void process_emit(tool_emit* emit, const tide_monitor_process* process) {
  tool_emit_row(emit);
  tool_emit_uint(emit, NULL, NULL, (uint64_t)process->pid);
  tool_emit_bool(emit, NULL, NULL, process->is_in_namespace);
  tool_emit_uint_if(emit, process->pid_namespace != 0, NULL, NULL, process->pid_namespace);
  tool_emit_uint(emit, NULL, NULL, process->copy);
  tool_emit_text(emit, NULL, NULL, process->command);
  tool_emit_text(emit, NULL, NULL, process->version);
  tool_emit_uint(emit, NULL, NULL, process->row_count);
  tool_emit_uint(emit, NULL, NULL, process->left_out);
  tool_emit_real(emit, NULL, NULL, (double)process->opened_ns * 1e-9, 3);
  tool_emit_real(emit, NULL, NULL, (double)process->updated_ns * 1e-9, 3);
}

static void processes_emit(tool_emit* emit, const top_list* list) {
  tool_emit_table(emit, "processes", process_columns, sizeof process_columns / sizeof process_columns[0]);
  for (size_t i = 0; i < list->count; i++) {
    if (top_list_is_first(list, i)) process_emit(emit, &list->entries[i].process);
  }
  tool_emit_table_end(emit);
}

static void stat_emit(tool_emit* emit, bool is_known, const tide_stat* stat) {
  tool_emit_bytes_if(emit, is_known, NULL, NULL, top_bytes(stat->current));
  tool_emit_bytes_if(emit, is_known, NULL, NULL, top_bytes(stat->peak));
}

static void history_emit(tool_emit* emit, const tide_monitor_row* row) {
  double reserved[TIDE_MONITOR_POINTS];
  double allocated[TIDE_MONITOR_POINTS];
  char bars[TOP_HISTORY_TEXT];
  for (uint32_t i = 0; i < row->point_count; i++) {
    reserved[i] = (double)row->points[i].reserved_bytes;
    allocated[i] = (double)row->points[i].allocated_bytes;
  }
  top_history(row, bars);
  tool_emit_list(emit, NULL, reserved, row->point_count, 0);
  tool_emit_list(emit, NULL, allocated, row->point_count, 0);
  tool_emit_text(emit, NULL, NULL, bars);
}

static void identity_emit(tool_emit* emit, const top_entry* entry) {
  const tide_monitor_row* const row = &entry->row;
  char name[TOP_NAME];
  top_cache_name(row, name);
  tool_emit_uint(emit, NULL, NULL, (uint64_t)entry->process.pid);
  tool_emit_text(emit, NULL, NULL, name);
  tool_emit_uint(emit, NULL, NULL, entry->process.copy);
  tool_emit_uint(emit, NULL, NULL, row->serial);
  tool_emit_text(emit, NULL, NULL, tide_monitor_kind_name((tide_monitor_kind)row->kind));
  tool_emit_uint_if(emit, row->device >= 0, NULL, NULL, (uint64_t)row->device);
  tool_emit_text(emit, NULL, NULL, *row->policy != '\0' ? row->policy : NULL);
  tool_emit_text(emit, NULL, NULL, *row->machine != '\0' ? row->machine : NULL);
  tool_emit_text(emit, NULL, NULL, *row->label != '\0' ? row->label : NULL);
}

static void cache_emit(tool_emit* emit, const top_entry* entry) {
  const tide_monitor_row* const row = &entry->row;
  const bool is_device = row->kind == TIDE_MONITOR_DEVICE;
  tool_emit_row(emit);
  identity_emit(emit, entry);
  stat_emit(emit, true, &row->reserved_bytes);
  stat_emit(emit, true, &row->active_bytes);
  stat_emit(emit, true, &row->allocated_bytes);
  stat_emit(emit, is_device, &row->requested_bytes);
  tool_emit_uint(emit, NULL, NULL, top_bytes(row->num_blocks));
  tool_emit_uint(emit, NULL, NULL, top_bytes(row->num_allocs));
  tool_emit_uint(emit, NULL, NULL, top_bytes(row->num_alloc_retries));
  tool_emit_uint(emit, NULL, NULL, top_bytes(row->num_ooms));
  tool_emit_uint_if(emit, is_device, NULL, NULL, top_bytes(row->num_stream_waits));
  tool_emit_bytes_if(emit, row->limit_bytes != TIDE_NO_LIMIT, NULL, NULL, row->limit_bytes);
  tool_emit_bytes_if(emit, is_device, NULL, NULL, row->total_bytes);
  tool_emit_real(emit, NULL, NULL, (double)row->updated_ns * 1e-9, 3);
  history_emit(emit, row);
  tool_emit_text(emit, NULL, NULL, top_owner_name(entry));
}

// What the table does not say.
static void notes_emit(tool_emit* emit, const top_list* list) {
  for (size_t i = 0; i < list->count; i++) {
    const tide_monitor_process* const process = &list->entries[i].process;
    const double silence_s = top_silence_s(list, process);
    if (!top_list_is_first(list, i)) continue;
    if (silence_s > 0) {
      tool_emit_words(emit, "Process %lld has published nothing for %.0f s; it may be stopped.",
                      (long long)process->pid, silence_s);
    }
    if (process->left_out > 0) {
      tool_emit_words(emit, "Caches of process %lld that are not shown: %u; at most %d are published.",
                      (long long)process->pid, process->left_out, TIDE_MONITOR_ROWS);
    }
  }
}

static void caches_emit(tool_emit* emit, const top_list* list, bool is_json) {
  tool_emit_table(emit, "caches", cache_columns, sizeof cache_columns / sizeof cache_columns[0]);
  for (size_t i = 0; i < list->count; i++) {
    if (list->entries[i].row.kind != 0 || !is_json) cache_emit(emit, &list->entries[i]);
  }
  tool_emit_table_end(emit);
}

static int once_print(const tool_call* call, const top_list* list) {
  tool_emit* const emit = tool_emit_begin(call);
  if (call->is_json) processes_emit(emit, list);
  if (call->is_json || list->count > 0) caches_emit(emit, list, call->is_json);
  if (list->count == 0) {
    tool_emit_words(emit,
                    "No process%s publishes statistics. Start a program that uses Tidemark with "
                    "TIDEMARK_MONITOR=1 in its environment.",
                    call->operand_count > 0 ? " that was named" : "");
  }
  notes_emit(emit, list);
  ledger_list_emit(emit, &list->ledgers, call->is_json);
  return tool_emit_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

// Was each process that the command line names found?
static bool pids_are_found(const top_list* list) {
  for (int i = 0; i < list->call->operand_count; i++) {
    uint64_t pid = 0;
    bool is_found = false;
    (void)tool_number_parse(list->call->operands[i], INT64_MAX, &pid);
    for (size_t k = 0; k < list->count && !is_found; k++) {
      is_found = list->entries[k].process.pid == (int64_t)pid;
    }
    if (!is_found) return false;
  }
  return true;
}

static int list_print(const tool_call* call, top_list* list) {
  int status = top_list_gather(list);
  if (status != TOOL_DONE) return status;
  const bool is_prometheus = tool_option_value(call, "prometheus") != NULL;
  status = is_prometheus ? top_prometheus_print(list) : once_print(call, list);
  return status == TOOL_DONE && !pids_are_found(list) ? TOOL_NO : status;
}

static int call_check(const tool_call* call, double* interval_s) {
  const char* const interval = tool_option_value(call, "interval");
  uint64_t pid = 0;
  for (int i = 0; i < call->operand_count; i++) {
    if (!tool_number_parse(call->operands[i], INT64_MAX, &pid) || pid == 0)
      return tool_fail("'%s' is not a process id", call->operands[i]);
  }
  if (interval != NULL && !tool_seconds_parse(interval, INTERVAL_LEAST_S, INTERVAL_MOST_S, interval_s))
    return tool_fail("--interval must be between 0.1 and 3600 seconds, not '%s'", interval);
  if (call->is_json && tool_option_value(call, "prometheus") != NULL)
    return tool_fail("--json and --prometheus cannot be combined");
  return TOOL_DONE;
}

static int top_run(const tool_call* call) {
  double interval_s = 1;
  top_list list = { .call = call, .folder = tool_option_value(call, "folder") };
  int status = call_check(call, &interval_s);
  if (status != TOOL_DONE) return status;
  const bool is_once = call->is_json || tool_option_value(call, "once") != NULL ||
                       tool_option_value(call, "prometheus") != NULL || tool_terminal_columns(stdout) == 0;
  status = is_once ? list_print(call, &list) : top_live_run(&list, interval_s);
  top_list_clear(&list);
  return status;
}

static const tool_option top_options[] = {
  { "once", 0, NULL, "print the table once; the default if standard output is not a terminal" },
  { "prometheus", 0, NULL, "print once, in the text format of Prometheus" },
  { "interval", 'n', "SECONDS", "refresh the table every SECONDS (default: 1)" },
  { "folder", 0, "FOLDER",
    "the folder in which the processes publish, if TIDEMARK_MONITOR named one to them" },
  { NULL, 0, NULL, NULL },
};

const tool_verb tool_top = {
  .name = "top",
  .summary = "watch the caches of running processes",
  .operands = "[PID ...]",
  .text =
      "Shows the caches of all processes of this user that publish their statistics, or of the processes "
      "that are named; the largest reserved memory first. A program that uses Tidemark publishes if "
      "TIDEMARK_MONITOR=1 is in its environment; a plain PyTorch program does not. The small bars show the "
      "allocated memory of the last two minutes; a full bar is the largest reserved memory in that time. "
      "The key q ends the program.\n\n"
      "Exit status 1: a process that was named publishes nothing.",
  .options = top_options,
  .operands_max = TOOL_OPERANDS_ANY,
  .run = top_run,
};
