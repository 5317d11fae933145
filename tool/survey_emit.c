// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The answer of tidemark survey: what stands out in a few sentences, then the ranks, the figures over all
// ranks, and the settings.
#include <string.h>
#include <time.h>

#include "report.h"
#include "survey.h"

#define COUNT_OF(list) (sizeof(list) / sizeof((list)[0]))
#define LABEL_TEXT 300
#define TIME_TEXT 64

typedef struct survey_answer {
  tool_emit* emit;
  const tool_survey_files* files;
  const tool_survey_rows* rows;
  const tool_survey_judgement* j;
} survey_answer;

static const struct {
  const char* key;
  const char* label;
} figures[] = {
  { "peak_allocated", "allocated" },
  { "peak_reserved", "reserved" },
  { "waste", "waste" },
};

static const char* path_of(const survey_answer* a, const tool_survey_row* row) {
  return a->files->items[row->place].path;
}

static const char* name_of(const survey_answer* a, const tool_survey_row* row) {
  const char* const path = path_of(a, row);
  const char* const slash = strrchr(path, '/');
  return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

// Has the file of this row another one? All rows of a file have the same place.
static bool is_of_several(const survey_answer* a, const tool_survey_row* row) {
  size_t count = 0;
  for (size_t i = 0; i < a->rows->count; i++) count += a->rows->items[i].place == row->place;
  return count > 1;
}

// What a sentence calls a row: "rank 3", "b.pickle", "rank 3 (device 1)".
static const char* label_of(const survey_answer* a, size_t number, char out[LABEL_TEXT]) {
  const tool_survey_row* const row = &a->rows->items[number];
  char device[40] = "";
  if (is_of_several(a, row))
    (void)snprintf(device, sizeof device, " (device %llu)", (unsigned long long)row->device);
  if (a->j->ranks_by_name)
    (void)snprintf(out, LABEL_TEXT, "rank %llu%s", (unsigned long long)row->rank, device);
  else (void)snprintf(out, LABEL_TEXT, "%.200s%s", name_of(a, row), device);
  return out;
}

static const char* settings_shown(const char* settings) {
  return settings != NULL && *settings == '\0' ? "(defaults)" : settings;
}

static bool any_file_has_several(const survey_answer* a) {
  for (size_t i = 0; i < a->rows->count; i++) {
    if (is_of_several(a, &a->rows->items[i])) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------
// Sentences

static void words_of_reading(const survey_answer* a) {
  const size_t read = a->j->files - a->j->unread;
  tool_emit_uint(a->emit, "recordings", NULL, a->j->files);
  tool_emit_uint(a->emit, "unreadable", NULL, a->j->unread);
  tool_emit_uint(a->emit, "outliers", NULL, a->j->outliers);
  if (read == 0) tool_emit_words(a->emit, "No recording could be read. The table says why.");
  else if (a->j->unread == 0) tool_emit_words(a->emit, "Recordings: %zu.", read);
  else
    tool_emit_words(a->emit,
                    "Recordings: %zu. Of these, %zu could not be read; the answer is about the others.",
                    a->j->files, a->j->unread);
}

// The settings of all ranks, if they are the same.
static void settings_emit_common(const survey_answer* a) {
  const char* settings = NULL;
  for (size_t i = 0; i < a->rows->count && a->j->has_one_setting && settings == NULL; i++)
    settings = a->rows->items[i].settings;
  tool_emit_text(a->emit, "recorded_settings", NULL, settings);
  if (settings == NULL) return;
  if (*settings == '\0') tool_emit_words(a->emit, "All were recorded with PyTorch's default settings.");
  else tool_emit_words(a->emit, "All were recorded with the same settings: %s.", settings);
}

// "Most memory was reserved by rank 3: 26.53 GiB, 2.10 times the median of 12.60 GiB. Outliers: 1."
static void words_of_imbalance(const survey_answer* a) {
  const bool knows_reserved = a->j->spreads[TOOL_SURVEY_RESERVED].count > 0;
  const tool_survey_spread* const spread =
      &a->j->spreads[knows_reserved ? TOOL_SURVEY_RESERVED : TOOL_SURVEY_ALLOCATED];
  char label[LABEL_TEXT];
  tool_words words = { .length = 0 };
  if (spread->count < 2 || spread->median == 0) return;
  tool_words_add(&words, "Most memory was %s by %s: ", knows_reserved ? "reserved" : "allocated",
                 label_of(a, spread->most_row, label));
  tool_words_add_size(&words, "", spread->most, "");
  tool_words_add(&words, ", %.2f times the median", (double)spread->most / (double)spread->median);
  tool_words_add_size(&words, " of ", spread->median, ".");
  tool_words_add(&words, a->j->outliers == 0 ? " No rank is an outlier." : " Outliers: %zu, listed first.",
                 a->j->outliers);
  tool_emit_words(a->emit, "%s", words.text);
}

// Microseconds since 1970 as "2026-11-16 08:00:01.250000 UTC".
static const char* time_text(uint64_t ns, char out[TIME_TEXT]) {
  const time_t seconds = (time_t)(ns / 1000000000u);
  struct tm parts;
  char text[TIME_TEXT / 2] = "";
  if (gmtime_r(&seconds, &parts) != NULL) (void)strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  (void)snprintf(out, TIME_TEXT, "%s.%06u UTC", text, (unsigned)(ns % 1000000000u / 1000));
  return out;
}

static void words_of_first_oom(const survey_answer* a) {
  const tool_survey_row* const first = &a->rows->items[a->j->first_oom];
  char label[LABEL_TEXT];
  char text[TIME_TEXT];
  tool_words words = { .length = 0 };
  tool_words_add(&words, "Out of memory first: %s, at entry %llu", label_of(a, a->j->first_oom, label),
                 (unsigned long long)first->oom_at);
  if (first->is_absolute) tool_words_add(&words, ", %s", time_text(first->oom_ns, text));
  tool_words_add_size(&words, "; a request for ", first->oom_bytes, " was refused.");
  if (a->j->oom_rows > 1) {
    const tool_survey_row* const second = &a->rows->items[a->j->second_oom];
    tool_words_add(&words, " The next was %s, %.6f s later by the clocks of their computers.",
                   label_of(a, a->j->second_oom, label), (double)(second->oom_ns - first->oom_ns) / 1e9);
    tool_words_add(&words, " In all, %zu ranks ran out of memory.", a->j->oom_rows);
  }
  tool_emit_words(a->emit, "%s", words.text);
}

static void first_oom_emit(const survey_answer* a) {
  const bool is_known = a->j->is_first_oom_known;
  const tool_survey_row* const row = is_known ? &a->rows->items[a->j->first_oom] : NULL;
  tool_emit_uint(a->emit, "ooms", NULL, a->j->oom_rows);
  tool_emit_uint_if(a->emit, is_known && row->has_rank, "first_oom_rank", NULL, is_known ? row->rank : 0);
  tool_emit_text(a->emit, "first_oom_file", NULL, is_known ? path_of(a, row) : NULL);
  if (is_known) words_of_first_oom(a);
  else if (a->j->oom_rows > 0)
    tool_emit_words(
        a->emit,
        "Ranks that ran out of memory: %zu. Which was first is unknown, because the recordings have no "
        "absolute times.",
        a->j->oom_rows);
  else if (a->j->files > a->j->unread) tool_emit_words(a->emit, "No rank ran out of memory.");
}

// ---------------------------------------------------------------------------------------------------
// Ranks

#define COLUMNS_MAX 40
typedef struct rank_columns {
  tool_column columns[COLUMNS_MAX];
  size_t count;
} rank_columns;

static void column_add(rank_columns* list, const char* key, const char* label) {
  list->columns[list->count++] = (tool_column){ key, label };
}

// In text, a column is left out if it says the same in every row.
static rank_columns columns_of(const survey_answer* a) {
  rank_columns list = { .count = 0 };
  const bool by_name = a->j->ranks_by_name;
  column_add(&list, "rank", by_name ? "rank" : NULL);
  column_add(&list, "file", NULL);
  column_add(&list, NULL, by_name ? NULL : "file");
  column_add(&list, "device", any_file_has_several(a) ? "device" : NULL);
  column_add(&list, "error", NULL);
  column_add(&list, "entries", NULL);
  column_add(&list, "peak_allocated", "allocated");
  column_add(&list, "peak_requested", NULL);
  column_add(&list, "peak_reserved", "reserved");
  column_add(&list, "peak_allocated_entry", NULL);
  column_add(&list, "peak_allocated_ms", NULL);
  column_add(&list, "peak_reserved_entry", NULL);
  column_add(&list, "peak_reserved_ms", NULL);
  column_add(&list, "peak_reserved_us", NULL);
  column_add(&list, NULL, "at (s)");
  column_add(&list, "peak_reserved_during", NULL);
  column_add(&list, "waste", "waste");
  column_add(&list, "main_cause", NULL);
  column_add(&list, "ooms", "OOMs");
  column_add(&list, "first_oom", NULL);
  column_add(&list, "first_oom_ms", NULL);
  column_add(&list, "first_oom_us", NULL);
  column_add(&list, "first_oom_bytes", NULL);
  column_add(&list, "limit", NULL);
  column_add(&list, "is_limit_inferred", NULL);
  column_add(&list, "settings", NULL);
  column_add(&list, "is_from_start", NULL);
  column_add(&list, "is_cut", NULL);
  column_add(&list, "odd_entries", NULL);
  column_add(&list, "outlier_of", NULL);
  column_add(&list, "deviation", NULL);
  column_add(&list, "needs", a->j->verdict == TOOL_VERDICT_SET ? "with it" : NULL);
  column_add(&list, NULL, "remark");
  column_add(&list, NULL, a->j->has_one_setting ? NULL : "settings");
  return list;
}

// "reserved 110.0 % above the median", or what makes the figures doubtful.
static const char* remark_of(const survey_answer* a, const tool_survey_row* row, char out[LABEL_TEXT]) {
  uint64_t value = 0;
  if (row->error != NULL) return row->error;
  if (row->outlier_of >= 0) {
    const uint64_t median = a->j->spreads[row->outlier_of].median;
    (void)tool_survey_figure_of(row, (tool_survey_figure)row->outlier_of, &value);
    const char* const label = figures[row->outlier_of].label;
    const double change = median > 0 ? (double)value / (double)median - 1 : 0;
    char share[TOOL_SHARE_TEXT];
    if (median == 0) (void)snprintf(out, LABEL_TEXT, "outlier: %s, the median is 0", label);
    else
      (void)snprintf(out, LABEL_TEXT, "outlier: %s %s %s median", label, tool_share_text(fabs(change), share),
                     change < 0 ? "below" : "above");
    return out;
  }
  if (row->is_cut) return "its end is missing";
  if (row->odd > 0) return "entries contradict each other";
  if (row->entries == 0) return "only the final state";
  return row->is_from_start ? "" : "begins in the middle of the run";
}

// Emits a number only if it is known.
static void real_emit(tool_emit* emit, bool is_known, double value, int decimals) {
  tool_emit_real(emit, NULL, NULL, is_known ? value : (double)NAN, decimals);
}

static void row_emit_peaks(tool_emit* emit, const tool_survey_row* row) {
  const bool is_read = row->error == NULL;
  const bool knows = is_read && row->knows_reserved;
  const bool has_allocated_at = is_read && row->allocated_at < row->entries;
  const bool has_reserved_at = knows && row->reserved_at < row->entries;
  const bool has_time = has_reserved_at && row->has_times && row->reserved_ns >= row->first_ns;
  const double since_ns = (double)row->reserved_ns - (double)row->first_ns;
  tool_emit_bytes_if(emit, is_read, NULL, NULL, row->allocated);
  tool_emit_bytes_if(emit, is_read, NULL, NULL, row->requested);
  tool_emit_bytes_if(emit, knows, NULL, NULL, row->reserved);
  tool_emit_uint_if(emit, has_allocated_at, NULL, NULL, row->allocated_at);
  real_emit(emit, has_allocated_at && row->has_times,
            ((double)row->allocated_ns - (double)row->first_ns) / 1e6, 3);
  tool_emit_uint_if(emit, has_reserved_at, NULL, NULL, row->reserved_at);
  real_emit(emit, has_time, since_ns / 1e6, 3);
  tool_emit_uint_if(emit, has_time && row->is_absolute, NULL, NULL, row->reserved_ns / 1000);
  real_emit(emit, has_time, since_ns / 1e9, 3);
  tool_emit_text(emit, NULL, NULL, row->during);
  tool_emit_bytes_if(emit, knows, NULL, NULL, row->waste);
  tool_emit_text(emit, NULL, NULL, row->cause);
}

static void row_emit_ooms(tool_emit* emit, const tool_survey_row* row) {
  const bool is_read = row->error == NULL;
  const bool has_oom = is_read && row->ooms > 0;
  tool_emit_uint_if(emit, is_read, NULL, NULL, row->ooms);
  tool_emit_uint_if(emit, has_oom, NULL, NULL, row->oom_at);
  real_emit(emit, has_oom && row->has_times, ((double)row->oom_ns - (double)row->first_ns) / 1e6, 3);
  tool_emit_uint_if(emit, has_oom && row->is_absolute, NULL, NULL, row->oom_ns / 1000);
  tool_emit_uint_if(emit, has_oom, NULL, NULL, row->oom_bytes);
  tool_emit_uint_if(emit, is_read && row->limit != TIDE_NO_LIMIT, NULL, NULL, row->limit);
  tool_emit_bool(emit, NULL, NULL, row->is_limit_inferred);
}

// What the rank needs with the setting for all, or else with its own.
static void row_emit_needs(const survey_answer* a, const tool_survey_row* row) {
  const tool_survey_trial* const trial =
      a->j->verdict == TOOL_VERDICT_SET ? tool_survey_trial_of(row, a->j->settings[a->j->advised].settings)
                                        : NULL;
  const bool is_kept = a->j->verdict == TOOL_VERDICT_KEEP && row->needs > 0;
  tool_emit_bytes_if(a->emit, trial != NULL || is_kept, NULL, NULL,
                     trial != NULL ? trial->reserved : row->needs);
}

static void row_emit(const survey_answer* a, const tool_survey_row* row) {
  char remark[LABEL_TEXT];
  const bool is_read = row->error == NULL;
  tool_emit_row(a->emit);
  tool_emit_uint_if(a->emit, row->has_rank, NULL, NULL, row->rank);
  tool_emit_text(a->emit, NULL, NULL, path_of(a, row));
  tool_emit_text(a->emit, NULL, NULL, name_of(a, row));
  tool_emit_uint_if(a->emit, is_read, NULL, NULL, row->device);
  tool_emit_text(a->emit, NULL, NULL, row->error);
  tool_emit_uint_if(a->emit, is_read, NULL, NULL, row->entries);
  row_emit_peaks(a->emit, row);
  row_emit_ooms(a->emit, row);
  tool_emit_text(a->emit, NULL, NULL, row->settings);
  tool_emit_bool(a->emit, NULL, NULL, row->is_from_start);
  tool_emit_bool(a->emit, NULL, NULL, row->is_cut);
  tool_emit_uint(a->emit, NULL, NULL, row->odd);
  tool_emit_text(a->emit, NULL, NULL, row->outlier_of >= 0 ? figures[row->outlier_of].key : NULL);
  real_emit(a->emit, is_read, row->deviation, 2);
  row_emit_needs(a, row);
  tool_emit_text(a->emit, NULL, NULL, remark_of(a, row, remark));
  tool_emit_text(a->emit, NULL, NULL, settings_shown(row->settings));
}

static void rows_emit(const survey_answer* a, size_t top) {
  const rank_columns list = columns_of(a);
  const size_t count = top < a->rows->count ? top : a->rows->count;
  tool_emit_title(a->emit, "Peaks");
  tool_emit_table(a->emit, "ranks", list.columns, list.count);
  for (size_t i = 0; i < count; i++) row_emit(a, &a->rows->items[i]);
  tool_emit_table_end(a->emit);
  if (count < a->rows->count)
    tool_emit_words(a->emit, "Ranks not shown: %zu; --top shows more.", a->rows->count - count);
}

// ---------------------------------------------------------------------------------------------------
// Figures over all ranks

static void spreads_emit(const survey_answer* a, bool is_json) {
  static const tool_column columns[] = {
    { "figure", NULL },     { NULL, "peak" },      { "least", "least" },
    { "median", "median" }, { "mad", "MAD" },      { "most", "most" },
    { "most_rank", NULL },  { "most_file", NULL }, { "most_over_median", "most / median" },
    { NULL, "reached by" },
  };
  char label[LABEL_TEXT];
  if (a->j->spreads[TOOL_SURVEY_ALLOCATED].count == 0 && !is_json) return;
  tool_emit_title(a->emit, "Imbalance");
  tool_emit_table(a->emit, "figures", columns, COUNT_OF(columns));
  for (int i = 0; i < TOOL_SURVEY_FIGURES; i++) {
    const tool_survey_spread* const spread = &a->j->spreads[i];
    if (spread->count == 0) continue;
    const tool_survey_row* const most = &a->rows->items[spread->most_row];
    tool_emit_row(a->emit);
    tool_emit_text(a->emit, NULL, NULL, figures[i].key);
    tool_emit_text(a->emit, NULL, NULL, figures[i].label);
    tool_emit_bytes(a->emit, NULL, NULL, spread->least);
    tool_emit_bytes(a->emit, NULL, NULL, spread->median);
    tool_emit_bytes(a->emit, NULL, NULL, spread->mad);
    tool_emit_bytes(a->emit, NULL, NULL, spread->most);
    tool_emit_uint_if(a->emit, most->has_rank, NULL, NULL, most->rank);
    tool_emit_text(a->emit, NULL, NULL, path_of(a, most));
    real_emit(a->emit, spread->median > 0, (double)spread->most / (double)spread->median, 3);
    tool_emit_text(a->emit, NULL, NULL, label_of(a, spread->most_row, label));
  }
  tool_emit_table_end(a->emit);
}

// ---------------------------------------------------------------------------------------------------
// The setting for all ranks

static const char* setting_line(const char* settings, char out[TOOL_ADVICE_LINE]) {
  tool_trial trial = { .is_torch = true };
  trial.device = (tide_device_options)TIDE_DEVICE_OPTIONS_INIT;
  if (tide_device_options_parse(settings, &trial.device) != TIDE_OK) return NULL;
  return tool_advice_line(&(tool_advice){ .trial = &trial }, out);
}

static void words_of_set(const survey_answer* a, const tool_survey_setting* best, const char* line) {
  char label[LABEL_TEXT];
  tool_words words = { .length = 0 };
  tool_emit_title(a->emit, "%s", line);
  tool_words_add(&words,
                 "With this setting every request of every rank is served. The most is then reserved by %s",
                 label_of(a, best->most_row, label));
  tool_words_add_size(&words, ": ", best->needs, "");
  if (a->j->needs == 0) tool_words_add(&words, ". With the recorded settings, not every request is served.");
  else {
    tool_words_add_size(&words, ", instead of ", a->j->needs, " as recorded");
    tool_words_add(&words, " (%+.1f %%).", 100 * ((double)best->needs / (double)a->j->needs - 1));
  }
  tool_emit_words(a->emit, "%s", words.text);
  if (strstr(best->settings, "garbage_collection_threshold") != NULL)
    tool_emit_words(a->emit, "In PyTorch, garbage collection works only with a limit: call "
                             "torch.cuda.set_per_process_memory_fraction().");
}

static void words_of_unknown(const survey_answer* a) {
  size_t count = 0;
  for (size_t i = 0; i < a->rows->count; i++)
    count += a->rows->items[i].error == NULL && a->rows->items[i].entries > 0;
  if (count == 0) tool_emit_words(a->emit, "No setting is suggested: there is nothing to replay.");
  else
    tool_emit_words(
        a->emit,
        "No setting is suggested: %zu of %zu ranks were not recorded from their start, or cannot be "
        "replayed exactly.",
        count - a->j->proofs, count);
}

static void verdict_emit(const survey_answer* a) {
  static const char* const names[] = { "keep", "set", "short", "unknown" };
  char line[TOOL_ADVICE_LINE];
  const bool is_set = a->j->verdict == TOOL_VERDICT_SET;
  const tool_survey_setting* const best = is_set ? &a->j->settings[a->j->advised] : NULL;
  const char* const text = is_set ? setting_line(best->settings, line) : NULL;
  tool_emit_text(a->emit, "verdict", NULL, names[a->j->verdict]);
  tool_emit_text(a->emit, "environment", NULL, text);
  tool_emit_text(a->emit, "advised", NULL, is_set ? best->settings : NULL);
  tool_emit_uint_if(a->emit, is_set, "advised_needs", NULL, is_set ? best->needs : 0);
  tool_emit_uint_if(a->emit, a->j->needs != 0, "recorded_needs", NULL, a->j->needs);
  switch (a->j->verdict) {
    case TOOL_VERDICT_SET: words_of_set(a, best, text); break;
    case TOOL_VERDICT_KEEP:
      tool_emit_words(
          a->emit, "No PyTorch setting that was tried lowers the largest peak of a rank by more than %d %%.",
          TOOL_ADVICE_PERCENT);
      break;
    case TOOL_VERDICT_SHORT:
      tool_emit_words(a->emit, "No PyTorch setting that was tried serves every request of every rank.");
      break;
    case TOOL_VERDICT_UNKNOWN: words_of_unknown(a); break;
  }
}

// Replays that prove nothing are not shown.
static void settings_emit(const survey_answer* a, bool is_json) {
  static const tool_column columns[] = {
    { "settings", NULL },   { NULL, "setting" },    { "needs", "most reserved" },    { "most_rank", NULL },
    { "most_file", NULL },  { "median", "median" }, { "short_ranks", "do not fit" }, { "is_recorded", NULL },
    { NULL, "reached by" },
  };
  char label[LABEL_TEXT];
  const size_t count = a->j->verdict != TOOL_VERDICT_UNKNOWN ? a->j->setting_count : 0;
  if (count == 0 && !is_json) return;
  tool_emit_title(a->emit, "Settings");
  tool_emit_table(a->emit, "settings", columns, COUNT_OF(columns));
  for (size_t i = 0; i < count; i++) {
    const tool_survey_setting* const s = &a->j->settings[i];
    const tool_survey_row* const most = &a->rows->items[s->most_row];
    tool_emit_row(a->emit);
    tool_emit_text(a->emit, NULL, NULL, s->settings);
    tool_emit_format(a->emit, NULL, NULL, "%s%s", settings_shown(s->settings),
                     s->is_recorded ? "  (recorded)" : "");
    tool_emit_bytes(a->emit, NULL, NULL, s->needs);
    tool_emit_uint_if(a->emit, most->has_rank, NULL, NULL, most->rank);
    tool_emit_text(a->emit, NULL, NULL, path_of(a, most));
    tool_emit_bytes(a->emit, NULL, NULL, s->median);
    tool_emit_uint(a->emit, NULL, NULL, s->short_ranks);
    tool_emit_bool(a->emit, NULL, NULL, s->is_recorded);
    tool_emit_text(a->emit, NULL, NULL, label_of(a, s->most_row, label));
  }
  tool_emit_table_end(a->emit);
}

static void limits_emit(const survey_answer* a) {
  size_t inferred = 0;
  for (size_t i = 0; i < a->rows->count; i++) inferred += a->rows->items[i].is_limit_inferred;
  if (inferred > 0 && a->j->verdict != TOOL_VERDICT_UNKNOWN)
    tool_emit_words(
        a->emit,
        "Ranks whose refused requests or retries show a limit are replayed with it, the others without "
        "one. --limit sets one limit for all.");
}

int tool_survey_emit(const tool_call* call, const tool_survey_files* files, const tool_survey_rows* rows,
                     const tool_survey_judgement* judgement, size_t top) {
  const survey_answer a = { tool_emit_begin(call), files, rows, judgement };
  words_of_reading(&a);
  settings_emit_common(&a);
  words_of_imbalance(&a);
  first_oom_emit(&a);
  verdict_emit(&a);
  rows_emit(&a, top);
  spreads_emit(&a, call->is_json);
  settings_emit(&a, call->is_json);
  limits_emit(&a);
  return tool_emit_end(a.emit);
}
