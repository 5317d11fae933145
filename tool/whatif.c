// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark whatif: replays a recording under a list of settings and says which of them needs least memory.
// Calls of empty_cache are found first, by a replay under the recorded setting that compares: every setting
// then has its cache emptied at the same places.
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "trial.h"

#define ROWS_MAX 64

static const tool_option options[] = {
  { "limit", 'l', "SIZE", "memory that may be reserved: say which settings fit (default: no limit)" },
  { "policy", 'p', "POLICIES",
    "further policies, each NAME[:SETTINGS] as for `tidemark replay`, separated by blanks" },
  { "device", 'd', "N", "the device whose events are replayed (default: the first that has any)" },
  { "quick", 'q', NULL, "do not look for the smallest memory" },
  { NULL, 0, NULL, NULL },
};

// What is tried. Garbage collection does nothing without a limit.
static const struct {
  const char* settings;
  bool needs_limit;
} grid[] = {
  { "", false },
  { "roundup_power2_divisions:4", false },
  { "roundup_power2_divisions:8", false },
  { "roundup_power2_divisions:16", false },
  { "max_split_size_mb:64", false },
  { "max_split_size_mb:128", false },
  { "max_split_size_mb:256", false },
  { "max_split_size_mb:512", false },
  { "max_split_size_mb:256,roundup_power2_divisions:8", false },
  { "garbage_collection_threshold:0.6", true },
  { "garbage_collection_threshold:0.8", true },
  { "garbage_collection_threshold:0.8,max_split_size_mb:256", true },
  { "expandable_segments:True", false },
  { "expandable_segments:True,roundup_power2_divisions:8", false },
  { "expandable_segments:True,max_split_size_mb:256", false },
  { "fixes:on", false },
  { "expandable_segments:True,fixes:on", false },
};

// ---------------------------------------------------------------------------------------------------
// Which settings

typedef struct whatif {
  tool_trials trials;
  tool_trial rows[ROWS_MAX];
  tide_replay_result found;  // of the replay that compared
  bool has_found;
} whatif;

static bool options_are_same(const tide_device_options* a, const tide_device_options* b) {
  char one[TOOL_POLICY_TEXT];
  char other[TOOL_POLICY_TEXT];
  return strcmp(tool_policy_text(a, one), tool_policy_text(b, other)) == 0;
}

// PyTorch has neither our policies nor our options.
static bool is_of_torch(const tide_device_options* o) {
  return o->policy == TIDE_POLICY_TORCH && !o->fixes && !o->has_audits && !o->ties_by_age &&
         !o->captures_by_stream;
}

// The row of a setting, which is added unless it is there.
static tool_trial* whatif_add(whatif* w, const tide_device_options* device) {
  for (size_t i = 0; i < w->trials.count; i++) {
    if (options_are_same(&w->rows[i].device, device)) return &w->rows[i];
  }
  if (w->trials.count == ROWS_MAX) return NULL;
  tool_trial* const row = &w->rows[w->trials.count++];
  *row = (tool_trial){ .device = *device, .is_torch = is_of_torch(device) };
  return row;
}

static int whatif_add_grid(whatif* w) {
  for (uint32_t policy = 0; tool_policy_names[policy] != NULL; policy++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    device.policy = policy;
    (void)whatif_add(w, &device);
  }
  for (size_t i = 0; i < sizeof grid / sizeof grid[0]; i++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    if (grid[i].needs_limit && w->trials.limit == TIDE_NO_LIMIT) continue;
    if (tide_device_options_parse(grid[i].settings, &device) != TIDE_OK)
      return tool_fail("%s", tide_last_error()->text);
    (void)whatif_add(w, &device);
  }
  return TOOL_DONE;
}

static int whatif_add_words(whatif* w, const char* words) {
  char word[TOOL_POLICY_TEXT];
  for (size_t bytes = 0; *words != '\0'; words += bytes) {
    words += strspn(words, " \t\n");
    bytes = strcspn(words, " \t\n");
    if (bytes == 0) break;
    tide_device_options device;
    if (bytes >= sizeof word) return tool_fail("--policy: a policy of %zu letters", bytes);
    memcpy(word, words, bytes);
    word[bytes] = '\0';
    const int status = tool_policy_parse(word, &device);
    if (status != TOOL_DONE) return status;
    if (whatif_add(w, &device) == NULL) return tool_fail("--policy: more than %d settings", ROWS_MAX);
  }
  return TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// Which calls of empty_cache

static bool trace_gives_back(const tide_trace* trace) {
  for (size_t device = 0; device < tide_trace_device_count(trace); device++) {
    size_t count = 0;
    const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
    for (size_t i = 0; i < count; i++) {
      const uint8_t action = entries[i].action;
      if (action == TIDE_ACTION_SEGMENT_FREE || action == TIDE_ACTION_SEGMENT_UNMAP) return true;
    }
  }
  return false;
}

static bool whatif_on_progress(void* user, uint64_t done, uint64_t count) {
  tool_progress_show(user, (double)done / (double)count);
  return true;
}

// Repeats the recording under a limit. What does not repeat it finds fewer calls, and so is tried last first.
static tide_status whatif_compare(whatif* w, uint64_t limit) {
  tide_replay_options o = TIDE_REPLAY_OPTIONS_INIT;
  tool_progress* const progress = tool_progress_begin("looking for calls of empty_cache");
  o.device = tide_replay_recorded_options(w->trials.replay);
  o.checks = true;
  o.limit = limit;
  o.on_progress = whatif_on_progress;
  o.user = progress;
  const tide_status status = tide_replay_run(w->trials.replay, &o, &w->found);
  tool_progress_end(progress);
  w->has_found = status == TIDE_OK;
  return status;
}

// The limit of the recorded run is not known: it may be the given one, or none.
static int whatif_find_empties(whatif* w, const char* file) {
  tide_status status = whatif_compare(w, w->trials.limit);
  const bool is_same = status == TIDE_OK && w->found.mismatch[0] == '\0';
  if (!is_same && w->trials.limit != TIDE_NO_LIMIT) status = whatif_compare(w, TIDE_NO_LIMIT);
  return status == TIDE_OK ? TOOL_DONE : tool_fail("%s: %s", file, tide_last_error()->text);
}

// ---------------------------------------------------------------------------------------------------
// What came out

// The smallest memory is known to a hundredth of the peak; less than that is no difference.
static uint64_t row_rank(const tool_trial* row) {
  const uint64_t unit = row->result.peak_allocated / 100 + 1;
  if (row->status != TIDE_OK) return UINT64_MAX;
  return row->smallest_bytes != 0 ? row->smallest_bytes / unit : UINT64_MAX - 1;
}

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

// The smallest memory first; without it, what fits and then the lowest peak. Then the cheapest.
static int compare_rows(const void* a, const void* b) {
  const tool_trial* const one = a;
  const tool_trial* const other = b;
  int order = compare_numbers(row_rank(one), row_rank(other));
  if (order == 0) order = compare_numbers(one->result.ooms > 0, other->result.ooms > 0);
  if (order == 0) order = compare_numbers(one->result.peak_reserved, other->result.peak_reserved);
  if (order == 0) order = compare_numbers(one->result.driver_ns, other->result.driver_ns);
  char texts[2][TOOL_POLICY_TEXT];
  return order != 0
             ? order
             : strcmp(tool_policy_text(&one->device, texts[0]), tool_policy_text(&other->device, texts[1]));
}

// What a row costs a user: the smallest memory, or the peak where that was not looked for.
static uint64_t row_bytes(const whatif* w, const tool_trial* row) {
  return w->trials.is_quick ? row->result.peak_reserved : row->smallest_bytes;
}

static const tool_trial* row_find(const whatif* w, bool is_recorded) {
  for (size_t i = 0; i < w->trials.count; i++) {
    const tool_trial* const row = &w->rows[i];
    if (is_recorded ? row->is_recorded : row->is_torch && row_bytes(w, row) != 0) return row;
  }
  return NULL;
}

// The columns: those that only JSON has, and then those for people, of which some are left out.
static const tool_column names[] = {
  { "policy", NULL },     { "settings", NULL },  { "is_recorded", NULL },
  { "is_pytorch", NULL }, { "error", NULL },     { "peak_allocated", NULL },
  { "fits", NULL },       { "first_oom", NULL }, { NULL, "setting" },
};
static const tool_column figures[] = {
  { "peak_reserved", "peak reserved" },
  { "utilisation", "utilisation" },
  { "driver_calls", "driver calls" },
  { "driver_ms", "driver ms" },
};
static const tool_column fits[] = { { NULL, "fits" } };
static const tool_column smallest[] = { { "smallest_memory", "smallest memory" }, { "smallest_ms", NULL } };

#define COLUMNS_MAX 16
typedef struct column_list {
  tool_column columns[COLUMNS_MAX];
  size_t count;
} column_list;

static void columns_add(column_list* list, const tool_column* columns, size_t count) {
  memcpy(&list->columns[list->count], columns, count * sizeof *columns);
  list->count += count;
}
#define COLUMNS_ADD(list, columns) columns_add(list, columns, sizeof(columns) / sizeof((columns)[0]))

static column_list columns_of(const whatif* w) {
  column_list list = { .count = 0 };
  COLUMNS_ADD(&list, names);
  COLUMNS_ADD(&list, figures);
  if (w->trials.limit != TIDE_NO_LIMIT) COLUMNS_ADD(&list, fits);
  if (!w->trials.is_quick) COLUMNS_ADD(&list, smallest);
  return list;
}

static bool row_fits(const tool_trial* row) { return row->status == TIDE_OK && row->result.ooms == 0; }

static void row_emit_names(tool_emit* emit, const tool_trial* row) {
  char text[TOOL_POLICY_TEXT];
  tool_emit_text(emit, NULL, NULL, tool_policy_names[row->device.policy]);
  tool_emit_text(emit, NULL, NULL, tool_policy_settings(&row->device, text));
  tool_emit_bool(emit, NULL, NULL, row->is_recorded);
  tool_emit_bool(emit, NULL, NULL, row->is_torch);
  tool_emit_text(emit, NULL, NULL, row->status == TIDE_OK ? NULL : row->text);
  tool_emit_uint(emit, NULL, NULL, row->result.peak_allocated);
  tool_emit_bool(emit, NULL, NULL, row_fits(row));
  if (row->result.ooms > 0) tool_emit_uint(emit, NULL, NULL, row->result.first_oom);
  else tool_emit_text(emit, NULL, NULL, NULL);
  tool_emit_format(emit, NULL, NULL, "%s%s%s", tool_policy_text(&row->device, text),
                   row->is_recorded ? "  (as recorded)" : "", row->is_torch ? "" : "  (not in PyTorch)");
}

static void row_emit_smallest(tool_emit* emit, const tool_trial* row) {
  const bool is_known = row->smallest_bytes != 0;
  if (is_known) tool_emit_bytes(emit, NULL, NULL, row->smallest_bytes);
  else tool_emit_text(emit, NULL, NULL, NULL);
  if (is_known) tool_emit_real(emit, NULL, NULL, (double)row->smallest_ns / 1e6, 2);
  else tool_emit_text(emit, NULL, NULL, NULL);
}

static void row_emit_fits(tool_emit* emit, const tool_trial* row) {
  if (row_fits(row)) tool_emit_text(emit, NULL, NULL, "yes");
  else if (row->status != TIDE_OK) tool_emit_text(emit, NULL, NULL, "no");
  else tool_emit_format(emit, NULL, NULL, "no, event %llu", (unsigned long long)row->result.first_oom);
}

static void row_emit(tool_emit* emit, const whatif* w, const tool_trial* row) {
  const tide_replay_result* const r = &row->result;
  const double utilisation = (double)r->peak_allocated / (double)r->peak_reserved;
  tool_emit_row(emit);
  row_emit_names(emit, row);
  tool_emit_bytes(emit, NULL, NULL, r->peak_reserved);
  tool_emit_real(emit, NULL, NULL, r->peak_reserved > 0 ? utilisation : 0, 4);
  tool_emit_uint(emit, NULL, NULL, r->driver_calls);
  tool_emit_real(emit, NULL, NULL, (double)r->driver_ns / 1e6, 2);
  if (w->trials.limit != TIDE_NO_LIMIT) row_emit_fits(emit, row);
  if (!w->trials.is_quick) row_emit_smallest(emit, row);
}

// What was there before a recording that begins in the middle.
static void before_emit(tool_emit* emit, const tide_replay_result* result) {
  char size[TOOL_SIZE_TEXT];
  tool_emit_uint(emit, "blocks_before", NULL, result->blocks_before);
  tool_emit_uint(emit, "bytes_before", NULL, result->bytes_before);
  if (result->blocks_before == 0) return;
  tool_emit_words(
      emit,
      "The recording begins in the middle: %llu blocks of %s were there before. Every row requests them "
      "first; where they lay then is not known, and so the figures are estimates.",
      (unsigned long long)result->blocks_before, tool_size_text(result->bytes_before, size));
}

static void empties_emit(tool_emit* emit, const whatif* w) {
  const bool is_repeated = w->has_found && w->found.mismatch[0] == '\0';
  tool_emit_uint(emit, "inferred_empty_cache", NULL, w->has_found ? w->found.inferred_empty_cache : 0);
  if (w->has_found) tool_emit_bool(emit, "is_repeated", NULL, is_repeated);
  else tool_emit_text(emit, "is_repeated", NULL, NULL);
  if (!w->has_found || w->found.blocks_before > 0) return;
  if (!is_repeated)
    tool_emit_words(
        emit,
        "The recording could not be repeated exactly under its own setting, perhaps because the memory "
        "limit of the run is not known; so calls of empty_cache may be missing here. %s.",
        w->found.mismatch);
  else if (w->found.inferred_empty_cache > 0)
    tool_emit_words(emit, "%llu calls of empty_cache were found in the recording and are made in every row.",
                    (unsigned long long)w->found.inferred_empty_cache);
}

// "reserves 8.97 GiB at the peak instead of 25.24 GiB"
static void saving_emit(tool_emit* emit, const whatif* w, const tool_trial* best,
                        const tool_trial* recorded) {
  char sizes[4][TOOL_SIZE_TEXT];
  const uint64_t peak = recorded->result.peak_reserved;
  const uint64_t lower = best->result.peak_reserved;
  const double change = peak > 0 ? 100.0 * ((double)lower - (double)peak) / (double)peak : 0;
  const char* const then = tool_size_text(lower, sizes[0]);
  const char* const now = tool_size_text(peak, sizes[1]);
  if (w->trials.is_quick || best->smallest_bytes == 0 || recorded->smallest_bytes == 0)
    tool_emit_words(emit, "It reserves %s at the peak, where the recorded setting reserves %s (%+.1f %%).",
                    then, now, change);
  else
    tool_emit_words(
        emit,
        "It reserves %s at the peak, where the recorded setting reserves %s (%+.1f %%), and needs %s to "
        "run at all, where that needs %s.",
        then, now, change, tool_size_text(best->smallest_bytes, sizes[2]),
        tool_size_text(recorded->smallest_bytes, sizes[3]));
}

// The line to paste: of the best setting that PyTorch has.
static void best_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const best = row_find(w, false);
  const tool_trial* const recorded = row_find(w, true);
  char text[TOOL_POLICY_TEXT] = "";
  char size[TOOL_SIZE_TEXT];
  if (best == NULL || recorded == NULL) return;
  (void)tool_policy_settings(&best->device, text);
  const uint64_t now = recorded->result.peak_reserved;
  const uint64_t then = best->result.peak_reserved;
  const uint64_t saved = now > then ? now - then : 0;
  tool_emit_format(emit, "environment", NULL, "PYTORCH_CUDA_ALLOC_CONF=%s", text);
  tool_emit_uint(emit, "saved_bytes", NULL, saved);
  if (best == recorded) {
    tool_emit_words(emit, "No setting of PyTorch needs less memory than the recorded one.");
    return;
  }
  tool_emit_title(emit, "PYTORCH_CUDA_ALLOC_CONF=%s", text);
  saving_emit(emit, w, best, recorded);
  if (best->device.collect_threshold > 0)
    tool_emit_words(
        emit,
        "Garbage collection needs a limit in PyTorch: torch.cuda.set_per_process_memory_fraction() "
        "with %s.",
        tool_size_text(w->trials.limit, size));
}

static int whatif_emit(const tool_call* call, const whatif* w) {
  tool_emit* const emit = tool_emit_begin(call);
  if (w->trials.limit != TIDE_NO_LIMIT) tool_emit_bytes(emit, "limit", "limit", w->trials.limit);
  else tool_emit_text(emit, "limit", NULL, NULL);
  tool_emit_bytes(emit, "peak_allocated", "needed at once", w->rows[0].result.peak_allocated);
  const column_list list = columns_of(w);
  tool_emit_table(emit, "rows", list.columns, list.count);
  for (size_t i = 0; i < w->trials.count; i++) row_emit(emit, w, &w->rows[i]);
  tool_emit_table_end(emit);
  before_emit(emit, &w->rows[0].result);
  empties_emit(emit, w);
  best_emit(emit, w);
  return tool_emit_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static int whatif_work(const tool_call* call, whatif* w, const tide_trace* trace) {
  const tide_device_options recorded = tide_replay_recorded_options(w->trials.replay);
  int status = TOOL_DONE;
  tool_trial* const row = whatif_add(w, &recorded);
  row->is_recorded = true;
  if (trace_gives_back(trace)) status = whatif_find_empties(w, call->operands[0]);
  if (status != TOOL_DONE) return status;
  tool_trials_run(&w->trials);
  qsort(w->rows, w->trials.count, sizeof w->rows[0], compare_rows);
  status = whatif_emit(call, w);
  if (status != TOOL_DONE) return status;
  for (size_t i = 0; i < w->trials.count; i++) {
    if (row_fits(&w->rows[i])) return TOOL_DONE;
  }
  return w->trials.limit != TIDE_NO_LIMIT ? TOOL_NO : TOOL_DONE;
}

static int whatif_run(const tool_call* call) {
  whatif* const w = tool_alloc(1, sizeof *w);
  const char* const policies = tool_option_value(call, "policy");
  tide_trace* trace = NULL;
  w->trials.rows = w->rows;
  w->trials.is_quick = tool_option_value(call, "quick") != NULL;
  int status = tool_limit_parse(call, &w->trials.limit);
  if (status == TOOL_DONE) status = whatif_add_grid(w);
  if (status == TOOL_DONE && policies != NULL) status = whatif_add_words(w, policies);
  if (status == TOOL_DONE) status = tool_replay_open(call, &trace, &w->trials.replay);
  if (status == TOOL_DONE) status = whatif_work(call, w, trace);
  tide_replay_free(w->trials.replay);
  tide_trace_free(trace);
  free(w);
  return status;
}

const tool_verb tool_whatif = {
  .name = "whatif",
  .summary = "say which allocator setting would have needed least memory",
  .usage = "FILE [--limit SIZE] [--policy POLICIES] [--device N] [--quick]",
  .text =
      "Replays the recording under PyTorch's default, the recorded setting, rounding, split limits, garbage "
      "collection, expandable segments and the policies of Tidemark. The smallest memory is the limit under "
      "which everything still runs: less than the peak may do, because under a limit the cache is given back "
      "before a request fails. The best setting comes first, and below the table the line to put into the "
      "environment. Exit status 1: nothing fits under --limit.",
  .options = options,
  .operands_min = 1,
  .operands_max = 1,
  .run = whatif_run,
};
