// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark whatif: replays a recording under a list of settings and shows which needs the least memory. A
// replay under the recorded setting first finds the program's calls to empty_cache; every setting then makes
// them at the same places.
#include <stdlib.h>
#include <string.h>

#include "advice.h"
#include "cut.h"
#include "limit.h"
#include "needed.h"
#include "refusal.h"
#include "report.h"

static const tool_option options[] = {
  { "limit", 'l', "SIZE",
    "the most memory that may be reserved; shows which settings fit (default: the limit of the recorded "
    "run, if the recording shows one)" },
  { "policy", 'p', "POLICIES",
    "additional policies, each NAME[:SETTINGS] as for `tidemark replay`, separated by spaces" },
  { "device", 'd', "N",
    "the device to replay (default: the one that ran out of memory first, or the first with entries)" },
  { "quick", 'q', NULL, "skip the search for the smallest memory" },
  { "all", 'a', NULL, "also show settings that are not better than the recorded one" },
  TOOL_BUDGET_OPTIONS,
  TOOL_STEP_OPTION,
  { NULL, 0, NULL, NULL },
};

typedef struct whatif {
  tool_trials trials;
  tool_recording recording;
  tool_advice advice;
  tool_needed needed;
  tool_limit limit;
  tool_budgeting budgeting;
  bool shows_all;  // with --all
} whatif;

// ---------------------------------------------------------------------------------------------------
// Which settings

static int trials_add_words(tool_trials* trials, const char* words) {
  char word[TOOL_POLICY_TEXT];
  for (size_t bytes = 0; *words != '\0'; words += bytes) {
    words += strspn(words, " \t\n");
    bytes = strcspn(words, " \t\n");
    if (bytes == 0) break;
    tide_device_options device;
    if (bytes >= sizeof word) return tool_fail("--policy: a policy of %zu characters is too long", bytes);
    memcpy(word, words, bytes);
    word[bytes] = '\0';
    const int status = tool_policy_parse(word, &device);
    if (status != TOOL_DONE) return status;
    tool_trial* const row = tool_trials_add(trials, &device);
    if (row == NULL) return tool_fail("--policy: more than %d settings", TOOL_TRIALS);
    row->is_asked = true;
  }
  return TOOL_DONE;
}

// One row more: the policy tide under the budgets.
static int trials_add_budgets(whatif* w) {
  tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
  if (w->budgeting.tag_count == 0) return TOOL_DONE;
  if (w->trials.count == TOOL_TRIALS) return tool_fail("--policy: more than %d settings", TOOL_TRIALS - 1);
  if (!w->recording.is_from_start)
    return tool_fail("%s begins in the middle of the run, so settings are not compared; see tidemark replay",
                     w->recording.file);
  device.policy = TIDE_POLICY_TIDE;
  w->trials.rows[w->trials.count++] = (tool_trial){
    .device = device, .is_asked = true, .budgeting = &w->budgeting, .tags = w->budgeting.tags
  };
  return TOOL_DONE;
}

// ---------------------------------------------------------------------------------------------------
// Results

// Settings that run come first, by their peak; then those that do not, by their smallest memory. Ties go to
// the cheaper driver calls.
static int compare_rows(const void* a, const void* b) {
  const tool_trial* const one = a;
  const tool_trial* const other = b;
  const bool runs = tool_trial_fits(one);
  int order = tool_compare(!runs, !tool_trial_fits(other));
  // 0, which is unknown, comes last.
  if (order == 0 && !runs) order = tool_compare(one->smallest_bytes - 1, other->smallest_bytes - 1);
  if (order == 0) order = tool_compare(one->result.peak_reserved, other->result.peak_reserved);
  if (order == 0) order = tool_compare(one->result.driver_ns, other->result.driver_ns);
  if (order == 0) order = tool_compare(one->budgeting != NULL, other->budgeting != NULL);
  char texts[2][TOOL_POLICY_TEXT];
  return order != 0
             ? order
             : strcmp(tool_policy_text(&one->device, texts[0]), tool_policy_text(&other->device, texts[1]));
}

// The row with the smallest memory, of all or of PyTorch's settings; NULL: none, or not searched.
static const tool_trial* row_smallest(const whatif* w, bool only_torch) {
  const tool_trial* least = NULL;
  for (size_t i = 0; i < w->trials.count; i++) {
    const tool_trial* const row = &w->trials.rows[i];
    if (row->smallest_bytes == 0 || (only_torch && !row->is_torch) || row->budgeting != NULL) continue;
    if (least == NULL || row->smallest_bytes < least->smallest_bytes) least = row;
  }
  return least;
}

static const tool_trial* row_recorded(const whatif* w) {
  const tool_trial* row = w->trials.rows;
  while (!row->is_recorded) row++;
  return row;
}

static bool any_row_fits(const whatif* w) {
  for (size_t i = 0; i < w->trials.count; i++) {
    if (tool_trial_fits(&w->trials.rows[i]) && w->trials.rows[i].budgeting == NULL) return true;
  }
  return false;
}

// The row under budgets; NULL if there are none.
static const tool_trial* row_budgets(const whatif* w) {
  for (size_t i = 0; i < w->trials.count; i++) {
    if (w->trials.rows[i].budgeting != NULL) return &w->trials.rows[i];
  }
  return NULL;
}

// Does it run where the recorded setting does not, or in less memory? If no setting runs in the limit, the
// smallest memory decides.
static bool row_is_better(const whatif* w, const tool_trial* row) {
  const tool_trial* const recorded = row_recorded(w);
  const bool runs = tool_trial_fits(row);
  if (runs != tool_trial_fits(recorded)) return runs;
  if (runs) return row->result.peak_reserved < recorded->result.peak_reserved;
  return !any_row_fits(w) && row->smallest_bytes != 0 && row->smallest_bytes < recorded->smallest_bytes;
}

static bool row_is_shown(const whatif* w, const tool_trial* row) {
  return w->shows_all || row->is_recorded || row->is_asked || row_is_better(w, row);
}

// Tidemark's own policy with its defaults; NULL if it was not replayed.
static const tool_trial* row_tide(const whatif* w) {
  char text[TOOL_POLICY_TEXT];
  for (size_t i = 0; i < w->trials.count; i++) {
    const tool_trial* const row = &w->trials.rows[i];
    if (row->budgeting == NULL && row->device.policy == TIDE_POLICY_TIDE &&
        *tool_policy_settings(&row->device, text) == '\0')
      return row;
  }
  return NULL;
}

static bool has_limit(const whatif* w) { return w->trials.limit != TIDE_NO_LIMIT; }

// The columns: first those that only JSON has, then those for both, of which some are optional.
static const tool_column names[] = {
  { "policy", NULL },     { "settings", NULL },  { "is_recorded", NULL },
  { "is_pytorch", NULL }, { "error", NULL },     { "peak_allocated", NULL },
  { "fits", NULL },       { "first_oom", NULL }, { NULL, "setting" },
};
static const tool_column figures[] = {
  { "peak_reserved", "reserved" },
  { "utilisation", "used" },
  { "driver_calls", NULL },
  { "driver_ms", "driver ms" },
};
static const tool_column fits[] = { { NULL, "fits" }, { NULL, "refused at" } };
static const tool_column smallest[] = { { "smallest_memory", "smallest" }, { "smallest_ms", NULL } };

static const tool_column moves[] = { { "has_budgets", NULL },
                                     { "bus_ms", "bus ms" },
                                     { "smallest_bus_ms", NULL } };

#define COLUMNS_MAX 24
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
  if (has_limit(w)) COLUMNS_ADD(&list, fits);
  if (!w->trials.is_quick) COLUMNS_ADD(&list, smallest);
  if (row_budgets(w) != NULL) COLUMNS_ADD(&list, moves);
  return list;
}

// The remark next to a setting. A file without settings is assumed to be recorded with the defaults.
static const char* row_remark(const whatif* w, const tool_trial* row) {
  if (row->budgeting != NULL) return " *, with the budgets";
  if (!row->is_torch) return " *";
  if (!row->is_recorded || !w->recording.has_settings) return "";
  if (row->is_repeated) return "  (as recorded)";
  return w->recording.is_repeated ? "  (recorded setting)" : "  (recorded, not reproduced)";
}

static void row_emit_names(tool_emit* emit, const whatif* w, const tool_trial* row) {
  char text[TOOL_POLICY_TEXT];
  tool_emit_text(emit, NULL, NULL, tool_policy_names[row->device.policy]);
  tool_emit_text(emit, NULL, NULL, tool_policy_settings(&row->device, text));
  tool_emit_bool(emit, NULL, NULL, row->is_recorded);
  tool_emit_bool(emit, NULL, NULL, row->is_torch);
  tool_emit_text(emit, NULL, NULL, row->status == TIDE_OK ? NULL : row->text);
  tool_emit_uint(emit, NULL, NULL, row->result.peak_allocated);
  tool_emit_bool(emit, NULL, NULL, tool_trial_fits(row));
  tool_emit_uint_if(emit, row->result.ooms > 0, NULL, NULL, row->result.first_oom);
  tool_emit_format(emit, NULL, NULL, "%s%s", tool_policy_setting(&row->device, text), row_remark(w, row));
}

static void row_emit_smallest(tool_emit* emit, const tool_trial* row) {
  const bool is_known = row->smallest_bytes != 0;
  tool_emit_bytes_if(emit, is_known, NULL, NULL, row->smallest_bytes);
  if (is_known) tool_emit_real(emit, NULL, NULL, (double)row->smallest_ns / 1e6, 2);
  else tool_emit_text(emit, NULL, NULL, NULL);
}

static void row_emit_fits(tool_emit* emit, const tool_trial* row) {
  tool_emit_text(emit, NULL, NULL, tool_trial_fits(row) ? "yes" : "no");
  if (row->status == TIDE_OK && row->result.ooms > 0) tool_emit_uint(emit, NULL, NULL, row->result.first_oom);
  else tool_emit_text(emit, NULL, NULL, NULL);
}

static void row_emit_moves(tool_emit* emit, const tool_trial* row) {
  const bool is_searched = row->smallest_bytes != 0;
  const bool has_budgets = row->budgeting != NULL;
  tool_emit_bool(emit, NULL, NULL, has_budgets);
  tool_emit_real(emit, NULL, NULL, has_budgets ? (double)row->result.bus_ns / 1e6 : (double)NAN, 3);
  tool_emit_real(emit, NULL, NULL,
                 has_budgets && is_searched ? (double)row->smallest_bus_ns / 1e6 : (double)NAN, 3);
}

static void row_emit(tool_emit* emit, const whatif* w, const tool_trial* row) {
  const tide_replay_result* const r = &row->result;
  tool_emit_row(emit);
  row_emit_names(emit, w, row);
  tool_emit_bytes(emit, NULL, NULL, r->peak_reserved);
  tool_emit_share(emit, NULL, NULL, tool_utilisation(r->peak_allocated, r->peak_reserved));
  tool_emit_uint(emit, NULL, NULL, r->driver_calls);
  tool_emit_real(emit, NULL, NULL, (double)r->driver_ns / 1e6, 2);
  if (has_limit(w)) row_emit_fits(emit, row);
  if (!w->trials.is_quick) row_emit_smallest(emit, row);
  if (row_budgets(w) != NULL) row_emit_moves(emit, row);
}

// The table. JSON has all rows; text has the better ones, unless all are wanted.
static void rows_emit(tool_emit* emit, const tool_call* call, const whatif* w) {
  const column_list list = columns_of(w);
  size_t hidden = 0;
  bool has_own = false;
  tool_emit_table(emit, "rows", list.columns, list.count);
  for (size_t i = 0; i < w->trials.count; i++) {
    const tool_trial* const row = &w->trials.rows[i];
    const bool is_shown = call->is_json || row_is_shown(w, row);
    hidden += !is_shown;
    has_own |= is_shown && !row->is_torch;
    if (is_shown) row_emit(emit, w, row);
  }
  tool_emit_table_end(emit);
  if (has_own) tool_emit_words(emit, "* Tidemark has this setting, PyTorch does not.");
  if (hidden > 0)
    tool_emit_words(emit, "%zu setting%s not better than %s, and not shown; --all shows %s.", hidden,
                    hidden == 1 ? " is" : "s are",
                    row_recorded(w) != NULL ? "the recorded one" : "the defaults",
                    hidden == 1 ? "it" : "them");
}

// Some settings run in less than the limit, but not in the limit itself.
static void islands_emit(tool_emit* emit, const whatif* w) {
  char sizes[2][TOOL_SIZE_TEXT];
  char text[TOOL_POLICY_TEXT];
  for (size_t i = 0; has_limit(w) && i < w->trials.count; i++) {
    const tool_trial* const row = &w->trials.rows[i];
    if (tool_trial_fits(row) || row->smallest_bytes == 0 || row->smallest_bytes > w->trials.limit) continue;
    if (row->budgeting != NULL) continue;
    tool_size_pair(w->trials.limit, row->smallest_bytes, sizes[0], sizes[1]);
    tool_emit_words(
        emit,
        "%s does not fit %s, although it fits %s: with this setting, the limit decides when memory is "
        "given back.",
        tool_policy_setting(&row->device, text), sizes[0], sizes[1]);
  }
}

static void empties_emit(tool_emit* emit, const tool_recording* r) {
  tool_emit_uint(emit, "inferred_empty_cache", NULL, r->is_compared ? r->result.inferred_empty_cache : 0);
  if (r->is_compared) tool_emit_bool(emit, "is_repeated", NULL, r->is_repeated);
  else tool_emit_text(emit, "is_repeated", NULL, NULL);
  if (!r->is_compared) return;
  if (!r->is_repeated && r->has_settings)
    tool_emit_words(
        emit,
        "A replay with the recorded setting does not reproduce the recording, so calls to empty_cache may "
        "be missing here, and the figures may be too high. First difference: %s.",
        r->result.mismatch);
  else if (r->result.inferred_empty_cache > 0)
    tool_emit_words(emit, "Calls to empty_cache that the recording shows, repeated in every row: %llu.",
                    (unsigned long long)r->result.inferred_empty_cache);
}

// ---------------------------------------------------------------------------------------------------
// The verdict

// The line to paste, and what it saves: "It reserves 8.97 GiB at the peak, instead of 25.24 GiB when it was
// recorded (-64.4 %)."
static void set_emit(tool_emit* emit, const whatif* w) {
  const tool_advice* const advice = &w->advice;
  char line[TOOL_ADVICE_LINE];
  char sizes[2][TOOL_SIZE_TEXT];
  tool_size_pair(advice->trial->result.peak_reserved, advice->recorded_bytes, sizes[0], sizes[1]);
  tool_emit_title(emit, "%s", tool_advice_line(advice, line));
  if (advice->recorded_bytes == 0)
    tool_emit_words(emit, "It serves every request, which the recorded setting does not, and reserves %s.",
                    sizes[0]);
  else
    tool_emit_words(emit, "It reserves %s at the peak, instead of %s %s (%+.1f %%).", sizes[0], sizes[1],
                    advice->is_recorded ? "when it was recorded" : tool_advice_than(&w->recording),
                    -100 * tool_advice_share(advice));
  if (advice->trial->device.collect_threshold > 0)
    tool_emit_words(emit,
                    "In PyTorch, garbage collection works only with a limit: call "
                    "torch.cuda.set_per_process_memory_fraction() for %s.",
                    tool_size_text(w->trials.limit, sizes[1]));
}

// No setting lowers the peak, but one may need less under a limit.
static void keep_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const least = row_smallest(w, true);
  const uint64_t recorded = row_recorded(w)->smallest_bytes;
  char sizes[2][TOOL_SIZE_TEXT];
  char text[TOOL_POLICY_TEXT];
  tool_emit_words(emit,
                  "No PyTorch setting that was tried lowers the peak of reserved memory by more than %d %%.",
                  TOOL_ADVICE_PERCENT);
  if (least == NULL || recorded == 0 || !tool_is_clearly_less(least->smallest_bytes, recorded)) return;
  tool_size_pair(least->smallest_bytes, recorded, sizes[0], sizes[1]);
  tool_emit_words(emit, "If memory is short, set %s: it needs at least %s, the recorded setting %s.",
                  tool_policy_setting(&least->device, text), sizes[0], sizes[1]);
}

static void least_words(tool_words* words, const char* before, const tool_trial* least) {
  char text[TOOL_POLICY_TEXT];
  if (least == NULL) return;
  tool_words_add_size(words, before, least->smallest_bytes, "");
  tool_words_add(words, ", with %s.", tool_policy_setting(&least->device, text));
}

// No PyTorch setting runs in the limit; a policy of Tidemark may.
static void short_emit(tool_emit* emit, const whatif* w) {
  const bool runs_elsewhere = any_row_fits(w);
  const tool_trial* const least = row_smallest(w, false);
  const tool_trial* const least_torch = row_smallest(w, true);
  tool_words words = { .length = 0 };
  if (w->budgeting.tag_count > 0) tool_words_add(&words, "Without the budgets: ");
  tool_words_add(&words, runs_elsewhere ? "No PyTorch setting that was tried" : "No setting that was tried");
  tool_words_add_size(&words, " runs in ", w->trials.limit, ".");
  if (!runs_elsewhere && least != least_torch) least_words(&words, " The smallest that fits is ", least);
  least_words(&words,
              least != least_torch ? " With PyTorch, the smallest that fits is "
                                   : " The smallest that fits is ",
              least_torch);
  tool_emit_words(emit, "%s", words.text);
}

// What to do for Tidemark's own policy, if it runs where the recorded setting does not, or in clearly less.
static void tide_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const tide = row_tide(w);
  const uint64_t recorded = w->advice.recorded_bytes;
  char size[TOOL_SIZE_TEXT];
  const bool is_better = tide != NULL && w->advice.verdict != TOOL_VERDICT_UNKNOWN && tool_trial_fits(tide) &&
                         (recorded == 0 || tool_is_clearly_less(tide->result.peak_reserved, recorded));
  tool_emit_text(emit, "tide_command", NULL, is_better ? TOOL_TIDE_COMMAND : NULL);
  if (!is_better) return;
  tool_emit_title(emit, TOOL_TIDE_COMMAND);
  tool_emit_words(emit,
                  "With Tidemark's own allocator (policy tide), the same requests reserve %s at the peak.",
                  tool_size_text(tide->result.peak_reserved, size));
}

static void verdict_emit(tool_emit* emit, const whatif* w) {
  tool_advice_emit(emit, &w->advice);
  switch (w->advice.verdict) {
    case TOOL_VERDICT_SET: set_emit(emit, w); break;
    case TOOL_VERDICT_KEEP: keep_emit(emit, w); break;
    case TOOL_VERDICT_SHORT: short_emit(emit, w); break;
    case TOOL_VERDICT_UNKNOWN:
      tool_emit_words(emit,
                      "No setting is suggested: that needs a PyTorch run that was recorded from its start.");
      break;
  }
  tide_emit(emit, w);
}

// What the budgets do under the limit, and what the smallest memory costs.
static void budgets_emit(tool_emit* emit, const whatif* w) {
  const tool_trial* const row = row_budgets(w);
  char size[TOOL_SIZE_TEXT];
  tool_budgeting_emit(emit, &w->budgeting, row != NULL ? &row->result : NULL);
  if (row != NULL && row->smallest_bus_ns > 0)
    tool_emit_words(emit, "In the smallest memory, %s, the bus would be in use for %.3f ms.",
                    tool_size_text(row->smallest_bytes, size), (double)row->smallest_bus_ns / 1e6);
}

static int whatif_emit(const tool_call* call, const whatif* w) {
  tool_emit* const emit = tool_emit_begin(call);
  tool_emit_bool(emit, "is_cut", NULL, tide_trace_get_about(w->recording.trace).is_cut);
  tool_emit_bool(emit, "is_from_start", NULL, true);
  tool_limit_emit(emit, &w->limit, false);
  tool_emit_bytes(emit, "peak_allocated", "peak allocated", w->recording.live_bytes);
  tool_needed_emit(emit, &w->needed);
  const uint64_t reserved = w->recording.reserved_bytes;
  tool_emit_bytes_if(emit, reserved != 0, "recorded_reserved", "reserved when recorded", reserved);
  rows_emit(emit, call, w);
  islands_emit(emit, w);
  budgets_emit(emit, w);
  tool_recording_emit_odd(emit, w->recording.odd_entries);
  tool_emit_uint(emit, "blocks_before", NULL, 0);
  tool_emit_uint(emit, "requested_before", NULL, 0);
  empties_emit(emit, &w->recording);
  verdict_emit(emit, w);
  tool_emit_uint(emit, "device", NULL, w->recording.device);
  const tide_ledger_peaks peaks = { .live = { .bytes = w->recording.live_bytes },
                                    .reserved = { .bytes = reserved } };
  const int status = tool_devices_emit(emit, call, w->recording.trace, w->recording.device, &peaks);
  if (status == TOOL_DONE) return tool_emit_end(emit);
  tool_emit_drop(emit);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// The verb

static int whatif_work(const tool_call* call, whatif* w) {
  const char* const policies = tool_option_value(call, "policy");
  const tide_device_options recorded = tide_replay_recorded_options(w->recording.replay);
  w->trials.replay = w->recording.replay;
  if (tool_recording_compare(&w->recording) != TIDE_OK)
    return tool_fail("%s: %s", w->recording.file, tool_error());
  int status = tool_limit_choose(call, &w->recording, NULL, &w->limit);
  if (status == TOOL_DONE)
    status =
        tool_needed_find(w->recording.trace, w->recording.device, w->recording.live_bytes, NULL, &w->needed);
  if (status != TOOL_DONE) return status;
  w->trials.limit = w->limit.bytes;
  tool_trials_add_usual(&w->trials, &recorded, true);
  if (policies != NULL) status = trials_add_words(&w->trials, policies);
  if (status == TOOL_DONE) status = tool_budgeting_find(&w->budgeting, call, &w->recording);
  if (status == TOOL_DONE) status = trials_add_budgets(w);
  if (status != TOOL_DONE) return status;
  if (!w->recording.is_from_start) return tool_cut_answer(call, &w->recording, &w->limit, &w->trials);
  tool_trials_take(&w->trials, &w->recording, tool_limit_is_recorded(&w->limit, &w->recording));
  tool_trials_run(&w->trials);
  if (row_budgets(w) != NULL && row_budgets(w)->status != TIDE_OK)
    return tool_fail("%s: %s", w->recording.file, row_budgets(w)->text);
  qsort(w->trials.rows, w->trials.count, sizeof w->trials.rows[0], compare_rows);
  w->advice = tool_trials_advise(&w->trials, &w->recording);
  status = whatif_emit(call, w);
  if (status != TOOL_DONE) return status;
  if (row_budgets(w) != NULL) return tool_trial_fits(row_budgets(w)) ? TOOL_DONE : TOOL_NO;
  return w->limit.is_given && !any_row_fits(w) ? TOOL_NO : TOOL_DONE;
}

static int whatif_run(const tool_call* call) {
  whatif* const w = tool_alloc(1, sizeof *w);
  w->trials.is_quick = tool_option_value(call, "quick") != NULL;
  w->shows_all = tool_option_value(call, "all") != NULL;
  int status =
      tool_limit_parse(call, &w->trials.limit);  // a wrong --limit is reported before the file is read
  if (status == TOOL_DONE) status = tool_budgeting_parse(&w->budgeting, call);
  if (status == TOOL_DONE) status = tool_recording_open(call, &w->recording);
  if (status == TOOL_DONE) status = whatif_work(call, w);
  tool_budgeting_fini(&w->budgeting);
  tool_recording_close(&w->recording);
  free(w);
  return status;
}

const tool_verb tool_whatif = {
  .name = "whatif",
  .summary = "compare allocator settings by the memory they would have needed",
  .operands = "FILE",
  .text =
      "Replays the recording with PyTorch's defaults, the recorded setting, common settings for rounding, "
      "splitting, garbage collection and expandable segments, and Tidemark's own policy, tide. The table has "
      "the recorded setting and those that are better, the lowest peak first; --all shows the others.\n\n"
      "\"reserved\" is the peak of reserved memory. \"used\" is the utilisation: the most that was live, as "
      "a share of it. \"driver ms\" is the estimated time of driver calls. \"fits\" says whether every "
      "request is served, and \"refused at\" is the entry of the first that is not. \"smallest\" is a limit "
      "that fits, while 2 MiB less does not; it is found by bisection. It may be below the peak, because "
      "an allocator gives cached memory back before it refuses a request.\n\n"
      "Below the table is the line to put into the environment, if a PyTorch setting lowers the peak by "
      "more than 2 %, or serves every request where the recorded setting did not; then the command that runs "
      "a script on Tidemark's own allocator, if that does.\n\n"
      "With --tag and --budget, one row more is the policy tide under these budgets, and what each tag has "
      "and "
      "moves is shown below; \"bus ms\" is the time that giving way takes on the bus. Exit status 1: no "
      "setting "
      "fits --limit or, with --tag or --budget, that row does not fit.",
  .options = options,
  .operands_min = 1,
  .operands_max = 1,
  .run = whatif_run,
};
