// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark whatif: replays a recording under a list of settings and says which of them needs least memory.
// Calls of empty_cache are found first, by a replay under the recorded setting that compares: every setting
// then has its cache emptied at the same places.
#include <stdlib.h>
#include <string.h>

#include "policy.h"
#include "recording.h"
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
  tool_recording recording;
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
// What came out

// The smallest memory is known to half a percent, and who has a little less has gained nothing: ranks are
// steps of 2 % from the best.
static void rows_rank(whatif* w) {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < w->trials.count; i++) {
    const uint64_t bytes = w->rows[i].smallest_bytes;
    if (bytes != 0 && bytes < least) least = bytes;
  }
  for (size_t i = 0; i < w->trials.count; i++) {
    tool_trial* const row = &w->rows[i];
    row->rank = row->smallest_bytes != 0 ? (row->smallest_bytes - least) / (least / 50 + 1) : UINT64_MAX - 1;
    if (row->status != TIDE_OK) row->rank = UINT64_MAX;
  }
}

static int compare_numbers(uint64_t a, uint64_t b) { return a < b ? -1 : a > b; }

// The smallest memory first; without it, what fits and then the lowest peak. Then the cheapest.
static int compare_rows(const void* a, const void* b) {
  const tool_trial* const one = a;
  const tool_trial* const other = b;
  int order = compare_numbers(one->rank, other->rank);
  if (order == 0) order = compare_numbers(one->result.ooms > 0, other->result.ooms > 0);
  if (order == 0) order = compare_numbers(one->result.peak_reserved, other->result.peak_reserved);
  if (order == 0) order = compare_numbers(one->result.driver_ns, other->result.driver_ns);
  char texts[2][TOOL_POLICY_TEXT];
  return order != 0
             ? order
             : strcmp(tool_policy_text(&one->device, texts[0]), tool_policy_text(&other->device, texts[1]));
}

static const tool_trial* row_recorded(const whatif* w) {
  for (size_t i = 0; i < w->trials.count; i++) {
    if (w->rows[i].is_recorded) return &w->rows[i];
  }
  return NULL;
}

// What was reserved at the peak when it was recorded; where that is not known, what the replay reserves.
static uint64_t recorded_bytes(const whatif* w) {
  const tool_trial* const recorded = row_recorded(w);
  if (w->recording.reserved_bytes != 0) return w->recording.reserved_bytes;
  return recorded != NULL ? recorded->result.peak_reserved : 0;
}

static bool row_fits(const tool_trial* row) { return row->status == TIDE_OK && row->result.ooms == 0; }

// The best setting that PyTorch has. One that reserves more than was recorded is no advice, unless the limit
// holds it down.
static const tool_trial* row_best(const whatif* w) {
  for (size_t i = 0; i < w->trials.count; i++) {
    const tool_trial* const row = &w->rows[i];
    const bool is_lean = row->result.peak_reserved <= recorded_bytes(w) || w->trials.limit != TIDE_NO_LIMIT;
    if (row->is_torch && row_fits(row) && is_lean) return row;
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

// The row of the recorded setting. A file that tells none was recorded with the defaults, as far as we know.
static const char* row_remark(const whatif* w, const tool_trial* row) {
  if (!row->is_torch) return "  (not in PyTorch)";
  if (!row->is_recorded || !w->recording.has_settings) return "";
  return w->recording.is_compared && !w->recording.is_repeated ? "  (recorded, not repeated)"
                                                               : "  (as recorded)";
}

static void row_emit_names(tool_emit* emit, const whatif* w, const tool_trial* row) {
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
  tool_emit_format(emit, NULL, NULL, "%s%s", tool_policy_text(&row->device, text), row_remark(w, row));
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
  tool_emit_row(emit);
  row_emit_names(emit, w, row);
  tool_emit_bytes(emit, NULL, NULL, r->peak_reserved);
  tool_emit_real(emit, NULL, NULL, tool_share(r->peak_allocated, r->peak_reserved), 4);
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

static void empties_emit(tool_emit* emit, const tool_recording* r) {
  tool_emit_uint(emit, "inferred_empty_cache", NULL, r->is_compared ? r->result.inferred_empty_cache : 0);
  if (r->is_compared) tool_emit_bool(emit, "is_repeated", NULL, r->is_repeated);
  else tool_emit_text(emit, "is_repeated", NULL, NULL);
  if (!r->is_compared || r->result.blocks_before > 0) return;
  if (!r->is_repeated)
    tool_emit_words(
        emit,
        "The recording could not be repeated exactly under its own setting, perhaps because the memory "
        "limit of the run is not known; so calls of empty_cache may be missing here. %s.",
        r->result.mismatch);
  else if (r->result.inferred_empty_cache > 0)
    tool_emit_words(emit, "%llu calls of empty_cache were found in the recording and are made in every row.",
                    (unsigned long long)r->result.inferred_empty_cache);
}

// "It reserves 8.97 GiB at the peak, where 25.24 GiB were reserved when it was recorded"
static void saving_emit(tool_emit* emit, const whatif* w, const tool_trial* best) {
  char sizes[3][TOOL_SIZE_TEXT];
  const uint64_t then = recorded_bytes(w);
  const uint64_t now = best->result.peak_reserved;
  const double change = then > 0 ? 100.0 * ((double)now - (double)then) / (double)then : 0;
  const bool has_smallest = best->smallest_bytes != 0;
  tool_emit_words(
      emit, "It reserves %s at the peak, where %s were reserved when it was recorded (%+.1f %%).%s%s%s",
      tool_size_text(now, sizes[0]), tool_size_text(then, sizes[1]), change,
      has_smallest ? " To run at all it needs " : "",
      has_smallest ? tool_size_text(best->smallest_bytes, sizes[2]) : "", has_smallest ? "." : "");
  if (best->device.collect_threshold > 0)
    tool_emit_words(
        emit,
        "Garbage collection needs a limit in PyTorch: torch.cuda.set_per_process_memory_fraction() with %s.",
        tool_size_text(w->trials.limit, sizes[2]));
}

// Nothing runs under the limit: the first row is the one that needs least.
static void nothing_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const least = &w->rows[0];
  char sizes[2][TOOL_SIZE_TEXT];
  char text[TOOL_POLICY_TEXT];
  if (least->smallest_bytes != 0)
    tool_emit_words(emit, "Nothing runs in %s. The least is %s, with %s.",
                    tool_size_text(w->trials.limit, sizes[0]),
                    tool_size_text(least->smallest_bytes, sizes[1]), tool_policy_text(&least->device, text));
  else tool_emit_words(emit, "Nothing runs in %s.", tool_size_text(w->trials.limit, sizes[0]));
}

// The line to paste, and what it saves.
static void best_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const best = row_best(w);
  char text[TOOL_POLICY_TEXT] = "";
  if (best == NULL || best->is_recorded) {
    tool_emit_text(emit, "environment", NULL, NULL);
    tool_emit_text(emit, "saved_bytes", NULL, NULL);
    if (best == NULL && w->trials.limit != TIDE_NO_LIMIT) nothing_emit(emit, w);
    else tool_emit_words(emit, "No setting of PyTorch needs less memory than the recorded one.");
    return;
  }
  (void)tool_policy_settings(&best->device, text);
  const uint64_t then = recorded_bytes(w);
  const uint64_t now = best->result.peak_reserved;
  tool_emit_format(emit, "environment", NULL, "PYTORCH_CUDA_ALLOC_CONF=%s", text);
  tool_emit_uint(emit, "saved_bytes", NULL, then > now ? then - now : 0);
  tool_emit_title(emit, "PYTORCH_CUDA_ALLOC_CONF=%s", text);
  saving_emit(emit, w, best);
}

static int whatif_emit(const tool_call* call, const whatif* w) {
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(w->recording.trace).is_cut);
  if (w->trials.limit != TIDE_NO_LIMIT) tool_emit_bytes(emit, "limit", "limit", w->trials.limit);
  else tool_emit_text(emit, "limit", NULL, NULL);
  tool_emit_bytes(emit, "peak_allocated", "needed at once", w->recording.live_bytes);
  const uint64_t reserved = w->recording.reserved_bytes;
  if (reserved != 0) tool_emit_bytes(emit, "recorded_reserved", "reserved when recorded", reserved);
  else tool_emit_text(emit, "recorded_reserved", NULL, NULL);
  const column_list list = columns_of(w);
  tool_emit_table(emit, "rows", list.columns, list.count);
  for (size_t i = 0; i < w->trials.count; i++) row_emit(emit, w, &w->rows[i]);
  tool_emit_table_end(emit);
  before_emit(emit, &w->rows[0].result);
  empties_emit(emit, &w->recording);
  best_emit(emit, w);
  return tool_emit_end(emit);
}

// ---------------------------------------------------------------------------------------------------
// The verb

static int whatif_work(const tool_call* call, whatif* w) {
  const tide_device_options recorded = tide_replay_recorded_options(w->recording.replay);
  w->trials.replay = w->recording.replay;
  whatif_add(w, &recorded)->is_recorded = true;
  int status = tool_recording_find_empties(&w->recording, w->trials.limit);
  if (status != TOOL_DONE) return status;
  tool_trials_run(&w->trials);
  rows_rank(w);
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
  w->trials.rows = w->rows;
  w->trials.is_quick = tool_option_value(call, "quick") != NULL;
  int status = tool_limit_parse(call, &w->trials.limit);
  if (status == TOOL_DONE) status = whatif_add_grid(w);
  if (status == TOOL_DONE && policies != NULL) status = whatif_add_words(w, policies);
  if (status == TOOL_DONE) status = tool_recording_open(call, &w->recording);
  if (status == TOOL_DONE) status = whatif_work(call, w);
  tool_recording_close(&w->recording);
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
