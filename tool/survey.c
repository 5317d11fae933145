// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark survey: the recordings of a whole job, one of each rank. Every process finds the files that it
// sees, reads its share of them, and gives its rows to process 0, which judges and prints them. A process
// alone does the same with itself.
#include "survey.h"

#include <stdlib.h>
#include <string.h>

#include "picture.h"

static const tool_option options[] = {
  { "limit", 'l', "SIZE",
    "the most memory that a rank may reserve; finds a setting that fits on every rank (default: for each "
    "rank the limit that refused requests or retries show, otherwise none)" },
  { "top", 'n', "N", "rows in the table of ranks (default: all)" },
  { "memory", 'm', "SIZE",
    "memory for recordings that are read at the same time (default: that of the largest, at least 256 MiB)" },
  { NULL, 0, NULL, NULL },
};

// ---------------------------------------------------------------------------------------------------
// A team of one

static void alone_gather(const tool_bytes* mine, tool_bytes_taker* take, void* user) {
  tool_bytes bytes = *mine;
  take(user, 0, &bytes);
}

static void alone_scatter(const tool_bytes* shares, tool_bytes* out_mine) {
  tool_bytes_append(out_mine, &shares[0]);
}

static const tool_team alone = { .count = 1, .sharing = 1, .gather = alone_gather, .scatter = alone_scatter };
static const tool_team* team = &alone;

void tool_survey_join(const tool_team* joined) { team = joined; }

// ---------------------------------------------------------------------------------------------------
// The verb

static void rows_gathered(void* user, size_t from, tool_bytes* bytes) {
  (void)from;
  // Every row was packed by this same program.
  if (!tool_survey_rows_take(bytes, user))
    tool_warn("a process sent an incomplete answer; its recordings are left out");
}

static void rows_gather(const tool_survey_rows* mine, tool_survey_rows* out) {
  tool_bytes bytes = { .count = 0 };
  tool_survey_rows_put(mine, &bytes);
  team->gather(&bytes, rows_gathered, out);
  tool_bytes_fini(&bytes);
}

// No rank fits the limit of the command line.
static bool is_no(const tool_survey_plan* plan, const tool_survey_judgement* judgement) {
  return tool_option_value(plan->call, "limit") != NULL && judgement->verdict == TOOL_VERDICT_SHORT;
}

static int survey_answer_print(const tool_call* call, const tool_survey_plan* plan,
                               const tool_survey_files* files, tool_survey_rows* rows, size_t top) {
  tool_survey_judgement judgement;
  tool_survey_judge(files, rows, &judgement);
  int status = tool_survey_emit(call, files, rows, &judgement, top);
  if (status == TOOL_DONE && judgement.unread > 0) status = TOOL_USAGE;
  if (status == TOOL_DONE && is_no(plan, &judgement)) status = TOOL_NO;
  tool_survey_judgement_fini(&judgement);
  return status;
}

static int survey_share(const tool_call* call, const tool_survey_plan* plan, size_t top) {
  tool_survey_files all = { .count = 0 };
  tool_survey_files mine = { .count = 0 };
  tool_survey_rows my_rows = { .count = 0 };
  tool_survey_rows rows = { .count = 0 };
  int status = TOOL_DONE;
  tool_survey_files_share(team, call->operands, (size_t)call->operand_count, &all, &mine);
  tool_survey_work(&mine, plan, &my_rows);
  rows_gather(&my_rows, &rows);
  tool_survey_rows_fini(&my_rows);
  if (team->number == 0) status = survey_answer_print(call, plan, &all, &rows, top);
  tool_survey_rows_fini(&rows);
  tool_survey_files_fini(&mine);
  tool_survey_files_fini(&all);
  return status;
}

static int memory_parse(const tool_call* call, uint64_t* out) {
  const char* const text = tool_option_value(call, "memory");
  *out = 0;
  if (text == NULL) return TOOL_DONE;
  if (tool_size_parse(text, out) && *out > 0) return tool_size_ask("--memory", text, *out);
  return tool_fail("--memory must be a size such as 24GiB, not '%s'", text);
}

static int survey_run(const tool_call* call) {
  tool_survey_plan plan = { .call = call, .processes = team->sharing, .is_shown = team->number == 0 };
  size_t top = 0;
  uint64_t limit = 0;
  int status = tool_limit_parse(call, &limit);
  if (status == TOOL_DONE) status = memory_parse(call, &plan.memory);
  if (status == TOOL_DONE) status = tool_top_parse(call, SIZE_MAX, &top);
  for (int i = 0; i < call->operand_count && status == TOOL_DONE; i++) {
    if (team->count > 1 && strcmp(call->operands[i], "-") == 0)
      status = tool_fail("standard input cannot be shared by several processes; name files or a folder");
  }
  return status != TOOL_DONE ? status : survey_share(call, &plan, top);
}

const tool_verb tool_survey = {
  .name = "survey",
  .summary = "compare the recordings of all ranks of a job",
  .operands = "FOLDER|FILE ...",
  .text =
      "Reads any number of recordings, one for each rank, with all processors. The first paragraphs say "
      "which "
      "rank stands out, which ran out of memory first, and the one PyTorch setting with which the largest "
      "rank needs the least, replayed on every rank. Then follow a row for each rank (peaks, when reserved "
      "memory peaked, waste, out-of-memory errors) and figures over all ranks. Waste is reserved memory that "
      "no live request asked for, at the peak of reserved memory.\n\n"
      "In a folder it reads the files that end in .pickle, .pkl, .json, .tide or .rmm.csv, also compressed. "
      "A name such as rank3.pickle or rank_3/a.pickle gives the rank; otherwise the order of the files does. "
      "Outliers come first: ranks with a figure over 3.5 deviations from the median. A deviation is 1.4826 "
      "times the median absolute deviation (MAD), and at least 1 % of the median peak.\n\n"
      "tidemark-mpi does the same with many processes under mpirun or srun. Exit status 1: no setting fits "
      "--limit on every rank; 2: a file cannot be read.",
  .options = options,
  .operands_min = 1,
  .operands_max = TOOL_OPERANDS_ANY,
  .run = survey_run,
};
