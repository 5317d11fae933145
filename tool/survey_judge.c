// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rows of a job, judged together. An outlier is told by the median and the median absolute deviation
// (MAD), which a few odd ranks cannot move: a rank is one if a figure differs from the median by over 3.5
// deviations. A deviation is 1.4826 MAD, the standard deviation if figures are normally distributed, but at
// least one percent of the typical peak, because the figures of equal ranks hardly differ.
//
// The setting for all ranks is the one whose largest need over all ranks is least, of those that serve every
// request on every rank. Cost: O(n log n) for n rows, and O(n) for each setting.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "survey.h"

#define OUTLIER_DEVIATIONS 3.5
#define OUTLIER_ROWS 3u  // of fewer, none can be one
#define MAD_TO_DEVIATION 1.4826
#define LEAST_SHARE 0.01

// ---------------------------------------------------------------------------------------------------
// Ranks

// Without any rank in a name, the order of the files numbers the ranks.
static void ranks_number(const tool_survey_files* files, tool_survey_rows* rows) {
  bool any = false;
  for (size_t i = 0; i < rows->count; i++) {
    tool_survey_row* const row = &rows->items[i];
    row->has_rank = tool_survey_rank_of(files->items[row->place].path, &row->rank);
    any = any || row->has_rank;
  }
  for (size_t i = 0; i < rows->count && !any; i++) {
    rows->items[i].rank = rows->items[i].place;
    rows->items[i].has_rank = true;
  }
}

static int compare_by_rank(const void* a, const void* b) {
  const tool_survey_row* const one = a;
  const tool_survey_row* const other = b;
  int order = tool_compare(!one->has_rank, !other->has_rank);
  if (order == 0) order = tool_compare(one->rank, other->rank);
  if (order == 0) order = tool_compare(one->place, other->place);
  return order != 0 ? order : tool_compare(one->device, other->device);
}

// The rows are sorted by rank.
static bool ranks_are_names(const tool_survey_files* files, const tool_survey_rows* rows) {
  uint64_t rank = 0;
  for (size_t i = 0; i < rows->count; i++) {
    const tool_survey_row* const row = &rows->items[i];
    if (!tool_survey_rank_of(files->items[row->place].path, &rank)) return false;
    if (i > 0 && row[-1].rank == row->rank && row[-1].place != row->place) return false;
  }
  return rows->count > 0;
}

// ---------------------------------------------------------------------------------------------------
// Outliers

bool tool_survey_figure_of(const tool_survey_row* row, tool_survey_figure figure, uint64_t* out) {
  *out = figure == TOOL_SURVEY_ALLOCATED  ? row->allocated
         : figure == TOOL_SURVEY_RESERVED ? row->reserved
                                          : row->waste;
  return row->error == NULL && (figure == TOOL_SURVEY_ALLOCATED || row->knows_reserved);
}

static int compare_numbers(const void* a, const void* b) {
  return tool_compare(*(const uint64_t*)a, *(const uint64_t*)b);
}

// Sorts the values.
static uint64_t median_of(uint64_t* values, size_t count) {
  if (count == 0) return 0;
  qsort(values, count, sizeof *values, compare_numbers);
  const uint64_t low = values[(count - 1) / 2];
  return low + (values[count / 2] - low) / 2;
}

static tool_survey_spread spread_of(const tool_survey_rows* rows, tool_survey_figure figure,
                                    uint64_t* values) {
  tool_survey_spread spread = { .least = UINT64_MAX };
  for (size_t i = 0; i < rows->count; i++) {
    uint64_t value = 0;
    if (!tool_survey_figure_of(&rows->items[i], figure, &value)) continue;
    if (spread.count == 0 || value > spread.most) {
      spread.most = value;
      spread.most_row = i;
    }
    spread.least = tide__min(spread.least, value);
    values[spread.count++] = value;
  }
  spread.median = median_of(values, spread.count);
  for (size_t i = 0; i < spread.count; i++)
    values[i] = values[i] > spread.median ? values[i] - spread.median : spread.median - values[i];
  spread.mad = median_of(values, spread.count);
  return spread;
}

// How many deviations a value is above the median, or below it.
static double deviation_of(const tool_survey_judgement* j, tool_survey_figure figure, uint64_t value) {
  const tool_survey_spread* const spread = &j->spreads[figure];
  const uint64_t typical =
      tide__max(j->spreads[TOOL_SURVEY_ALLOCATED].median, j->spreads[TOOL_SURVEY_RESERVED].median);
  const double scale = fmax(MAD_TO_DEVIATION * (double)spread->mad, LEAST_SHARE * (double)typical);
  return scale > 0 ? ((double)value - (double)spread->median) / scale : 0;
}

static void row_compare(const tool_survey_judgement* j, tool_survey_row* row) {
  int most = -1;
  for (int figure = 0; figure < TOOL_SURVEY_FIGURES; figure++) {
    uint64_t value = 0;
    if (!tool_survey_figure_of(row, (tool_survey_figure)figure, &value)) continue;
    const double deviation = deviation_of(j, (tool_survey_figure)figure, value);
    if (most >= 0 && fabs(deviation) <= fabs(row->deviation)) continue;
    most = figure;
    row->deviation = deviation;
  }
  const bool is_outlier = most >= 0 && j->spreads[most].count >= OUTLIER_ROWS &&
                          fabs(row->deviation) > OUTLIER_DEVIATIONS;
  row->outlier_of = is_outlier ? most : -1;
}

// Unreadable ones, then outliers, the strongest first, then the others by rank.
static int compare_rows(const void* a, const void* b) {
  const tool_survey_row* const one = a;
  const tool_survey_row* const other = b;
  int order = tool_compare(one->error == NULL, other->error == NULL);
  if (order == 0) order = tool_compare(one->outlier_of < 0, other->outlier_of < 0);
  const double strengths[] = { fabs(one->deviation), fabs(other->deviation) };
  if (order == 0 && one->outlier_of >= 0)
    order = (strengths[0] < strengths[1]) - (strengths[0] > strengths[1]);
  return order != 0 ? order : compare_by_rank(a, b);
}

static void rows_compare(tool_survey_judgement* j, tool_survey_rows* rows) {
  uint64_t* const values = tool_alloc(rows->count, sizeof *values);
  for (int i = 0; i < TOOL_SURVEY_FIGURES; i++)
    j->spreads[i] = spread_of(rows, (tool_survey_figure)i, values);
  for (size_t i = 0; i < rows->count; i++) {
    row_compare(j, &rows->items[i]);
    j->outliers += rows->items[i].outlier_of >= 0;
  }
  if (rows->count > 1) qsort(rows->items, rows->count, sizeof *rows->items, compare_rows);
  for (int i = 0; i < TOOL_SURVEY_FIGURES; i++)
    j->spreads[i] = spread_of(rows, (tool_survey_figure)i, values);
  free(values);
}

// ---------------------------------------------------------------------------------------------------
// Out of memory

static bool is_earlier(const tool_survey_rows* rows, size_t row, size_t than) {
  return than == rows->count || rows->items[row].oom_ns < rows->items[than].oom_ns;
}

// The order of two is known only if both have absolute times; a single one is the first in any case.
static void ooms_find(tool_survey_judgement* j, const tool_survey_rows* rows) {
  size_t absolute = 0;
  j->first_oom = j->second_oom = rows->count;
  for (size_t i = 0; i < rows->count; i++) {
    const tool_survey_row* const row = &rows->items[i];
    if (row->ooms == 0) continue;
    j->oom_rows++;
    absolute += row->is_absolute;
    if (is_earlier(rows, i, j->first_oom)) {
      j->second_oom = j->first_oom;
      j->first_oom = i;
    } else if (is_earlier(rows, i, j->second_oom)) {
      j->second_oom = i;
    }
  }
  j->is_first_oom_known = j->oom_rows == 1 || (j->oom_rows > 1 && absolute == j->oom_rows);
}

// ---------------------------------------------------------------------------------------------------
// The setting for all

const tool_survey_trial* tool_survey_trial_of(const tool_survey_row* row, const char* settings) {
  for (size_t i = 0; i < row->trial_count; i++) {
    if (strcmp(row->trials[i].settings, settings) == 0) return &row->trials[i];
  }
  return NULL;
}

static bool row_counts(const tool_survey_row* row) { return row->error == NULL && row->entries > 0; }

static size_t options_of(const char* settings) {
  size_t count = *settings != '\0';
  bool is_in_list = false;  // [256:1,512:2] is one option
  for (; *settings != '\0'; settings++) {
    if (*settings == '[') is_in_list = true;
    if (*settings == ']') is_in_list = false;
    count += *settings == ',' && !is_in_list;
  }
  return count;
}

// Sums a setting over all ranks; false: it was not replayed on each.
static bool setting_sum(const tool_survey_rows* rows, tool_survey_setting* s, uint64_t* values) {
  size_t count = 0;
  s->is_recorded = true;
  for (size_t i = 0; i < rows->count; i++) {
    const tool_survey_row* const row = &rows->items[i];
    if (!row_counts(row)) continue;
    const tool_survey_trial* const trial = tool_survey_trial_of(row, s->settings);
    if (trial == NULL) return false;
    if (count == 0 || trial->reserved > s->needs) {
      s->needs = trial->reserved;
      s->most_row = i;
    }
    s->short_ranks += !trial->fits;
    s->driver_ns += trial->driver_ns;
    s->is_recorded = s->is_recorded && row->settings != NULL && strcmp(row->settings, s->settings) == 0;
    values[count++] = trial->reserved;
  }
  s->median = median_of(values, count);
  s->options = options_of(s->settings);
  return count > 0;
}

// Those that serve every request first, then by need; ties by fewer options, cheaper calls and name.
static int compare_settings(const void* a, const void* b) {
  const tool_survey_setting* const one = a;
  const tool_survey_setting* const other = b;
  int order = tool_compare(one->short_ranks, other->short_ranks);
  if (order == 0) order = tool_compare(one->needs, other->needs);
  if (order == 0) order = tool_compare(one->options, other->options);
  if (order == 0) order = tool_compare(one->driver_ns, other->driver_ns);
  return order != 0 ? order : strcmp(one->settings, other->settings);
}

static void settings_sum(tool_survey_judgement* j, const tool_survey_rows* rows) {
  const tool_survey_row* first = NULL;
  for (size_t i = 0; i < rows->count && first == NULL; i++) {
    if (row_counts(&rows->items[i])) first = &rows->items[i];
  }
  if (first == NULL) return;
  uint64_t* const values = tool_alloc(rows->count, sizeof *values);
  j->settings = tool_alloc(first->trial_count, sizeof *j->settings);
  for (size_t i = 0; i < first->trial_count; i++) {
    tool_survey_setting setting = { .settings = first->trials[i].settings };
    if (setting_sum(rows, &setting, values)) j->settings[j->setting_count++] = setting;
  }
  free(values);
  if (j->setting_count > 1) qsort(j->settings, j->setting_count, sizeof *j->settings, compare_settings);
}

// Fewer options first, then the order of the list.
static bool setting_is_advised(tool_survey_judgement* j) {
  bool is_found = false;
  const uint64_t least = j->setting_count > 0 ? j->settings[0].needs : 0;
  for (size_t i = 0; i < j->setting_count; i++) {
    const tool_survey_setting* const s = &j->settings[i];
    const bool is_better = j->needs == 0 || tool_is_clearly_less(s->needs, j->needs);
    if (s->short_ranks > 0 || s->is_recorded || !is_better || tool_is_clearly_less(least, s->needs)) continue;
    if (!is_found || s->options < j->settings[j->advised].options) j->advised = i;
    is_found = true;
  }
  return is_found;
}

static void setting_choose(tool_survey_judgement* j, const tool_survey_rows* rows) {
  size_t count = 0;
  bool is_short = false;
  for (size_t i = 0; i < rows->count; i++) {
    const tool_survey_row* const row = &rows->items[i];
    if (!row_counts(row)) continue;
    count++;
    j->proofs += row->is_proof;
    is_short = is_short || row->needs == 0;
    j->needs = tide__max(j->needs, row->needs);
  }
  if (is_short) j->needs = 0;
  j->verdict = TOOL_VERDICT_UNKNOWN;
  if (count == 0 || j->proofs < count) return;
  if (setting_is_advised(j)) j->verdict = TOOL_VERDICT_SET;
  else j->verdict = is_short ? TOOL_VERDICT_SHORT : TOOL_VERDICT_KEEP;
}

// ---------------------------------------------------------------------------------------------------
// All of it

static bool rows_have_one_setting(const tool_survey_rows* rows) {
  const tool_survey_row* first = NULL;
  for (size_t i = 0; i < rows->count; i++) {
    const tool_survey_row* const row = &rows->items[i];
    if (!row_counts(row)) continue;
    if (first == NULL) first = row;
    if (row->settings == NULL || strcmp(row->settings, first->settings) != 0) return false;
  }
  return first != NULL;
}

void tool_survey_judge(const tool_survey_files* files, tool_survey_rows* rows, tool_survey_judgement* out) {
  *out = (tool_survey_judgement){ .files = files->count };
  ranks_number(files, rows);
  if (rows->count > 1) qsort(rows->items, rows->count, sizeof *rows->items, compare_by_rank);
  out->ranks_by_name = ranks_are_names(files, rows);
  for (size_t i = 0; i < rows->count; i++) out->unread += rows->items[i].error != NULL;
  out->has_one_setting = rows_have_one_setting(rows);
  rows_compare(out, rows);
  ooms_find(out, rows);
  settings_sum(out, rows);
  setting_choose(out, rows);
}

void tool_survey_judgement_fini(tool_survey_judgement* judgement) { free(judgement->settings); }
