// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The parts of tidemark survey that processes share: rows as bytes, and who reads which file. The whole verb
// is tested by tests/tool/test_survey.py.
#include <stdlib.h>
#include <sys/stat.h>

#include "survey.h"
#include "t.h"

// ---------------------------------------------------------------------------------------------------
// Rows as bytes

static char* text_new(const char* text) {
  char* const copy = tool_alloc(strlen(text) + 1, 1);
  memcpy(copy, text, strlen(text) + 1);
  return copy;
}

// One row with everything, and one with an error only.
static tool_survey_rows rows_make(void) {
  tool_survey_rows rows = { .count = 0 };
  tool_survey_row* row = tool_survey_rows_add(&rows);
  row->place = 7;
  row->reserved = UINT64_MAX;
  row->limit = UINT64_C(0x0123456789abcdef);
  row->knows_reserved = true;
  row->is_proof = true;
  row->settings = text_new("");
  row->trials = tool_alloc(2, sizeof *row->trials);
  row->trial_count = 2;
  row->trials[0] = (tool_survey_trial){ .settings = text_new("") };
  row->trials[1] = (tool_survey_trial){ text_new("max_split_size_mb:64"), 3, 4, true };
  row = tool_survey_rows_add(&rows);
  row->place = 8;
  row->error = text_new("No such file or directory");
  return rows;
}

T_TEST(test_survey__rows_arrive_as_they_were_sent) {
  tool_survey_rows rows = rows_make();
  tool_survey_rows got = { .count = 0 };
  tool_bytes bytes = { .count = 0 };

  tool_survey_rows_put(&rows, &bytes);
  T_CHECK(tool_survey_rows_take(&bytes, &got));
  T_EQ(bytes.next, bytes.count);
  T_EQ(got.count, 2u);
  T_EQ(got.items[0].place, 7u);
  T_EQ(got.items[0].reserved, UINT64_MAX);
  T_EQ(got.items[0].limit, UINT64_C(0x0123456789abcdef));
  T_CHECK(got.items[0].knows_reserved && got.items[0].is_proof && !got.items[0].is_cut);
  T_STR_EQ(got.items[0].settings, "");
  T_CHECK(got.items[0].error == NULL && got.items[0].during == NULL);
  T_EQ(got.items[0].trial_count, 2u);
  T_STR_EQ(got.items[0].trials[1].settings, "max_split_size_mb:64");
  T_EQ(got.items[0].trials[1].reserved, 3u);
  T_CHECK(got.items[0].trials[1].fits && !got.items[0].trials[0].fits);
  T_STR_EQ(got.items[1].error, "No such file or directory");
  tool_survey_rows_fini(&rows);
  tool_survey_rows_fini(&got);
  tool_bytes_fini(&bytes);
}

T_TEST(test_survey__rows_that_are_cut_anywhere_are_refused) {
  tool_survey_rows rows = rows_make();
  tool_bytes bytes = { .count = 0 };

  tool_survey_rows_put(&rows, &bytes);
  for (size_t count = 0; count < bytes.count; count++) {
    tool_survey_rows got = { .count = 0 };
    tool_bytes part = { .count = 0 };
    memcpy(tool_bytes_extend(&part, count + 1), bytes.data, count);
    part.count = count;
    T_CHECK(!tool_survey_rows_take(&part, &got));
    tool_survey_rows_fini(&got);
    tool_bytes_fini(&part);
  }
  tool_survey_rows_fini(&rows);
  tool_bytes_fini(&bytes);
}

// ---------------------------------------------------------------------------------------------------
// Files

static void seen_add(tool_survey_files* files, size_t operand, const char* path, uint64_t bytes,
                     tool_found found) {
  char name[64];
  (void)snprintf(name, sizeof name, "%s", path);
  tool_survey_files_add(
      files, &(tool_survey_file){ .operand = operand, .path = name, .bytes = bytes, .found = found });
}

static const tool_survey_file* file_of(const tool_survey_files* files, const char* path) {
  for (size_t i = 0; i < files->count; i++) {
    if (strcmp(files->items[i].path, path) == 0) return &files->items[i];
  }
  T_FAIL("there is no %s", path);
  return NULL;
}

T_TEST(test_survey__the_largest_files_go_to_the_least_loaded) {
  static const uint64_t sizes[] = { 10, 70, 20, 60, 30, 40 };  // 70 and 60 first, then 40, 30, 20, 10
  static const size_t processes[] = { 0, 0, 0, 1, 0, 1 };
  tool_survey_pool* const pool = tool_survey_pool_new(2);
  tool_survey_files all = { .count = 0 };

  for (size_t process = 0; process < 2; process++) {
    tool_survey_files seen = { .count = 0 };
    for (size_t i = 0; i < 6; i++) {
      char path[16];
      (void)snprintf(path, sizeof path, "rank%zu.pickle", i);
      seen_add(&seen, 0, path, sizes[i], TOOL_FOUND_FILE);
    }
    tool_survey_pool_add(pool, process, &seen);
    T_EQ(seen.count, 0u);
  }
  tool_survey_pool_divide(pool, &all);
  T_EQ(all.count, 6u);
  uint64_t loads[2] = { 0, 0 };
  for (size_t i = 0; i < 6; i++) {
    T_EQ(all.items[i].place, i);
    T_EQ(all.items[i].bytes, sizes[i]);
    loads[all.items[i].process] += sizes[i];
  }
  T_EQ(file_of(&all, "rank1.pickle")->process, processes[1]);
  T_EQ(file_of(&all, "rank3.pickle")->process, processes[3]);
  T_EQ(file_of(&all, "rank5.pickle")->process, processes[5]);
  T_EQ(file_of(&all, "rank4.pickle")->process, processes[4]);
  T_LE(loads[0] > loads[1] ? loads[0] - loads[1] : loads[1] - loads[0], 10u);
  tool_survey_files_fini(&all);
}

T_TEST(test_survey__a_file_is_read_by_a_process_that_sees_it) {
  tool_survey_pool* const pool = tool_survey_pool_new(3);
  tool_survey_files all = { .count = 0 };
  tool_survey_files seen[3] = { { .count = 0 } };

  // Operand 0 is a folder, which process 0 sees empty and process 1 not at all. Nobody sees operand 1.
  seen_add(&seen[0], 0, "job", 0, TOOL_FOUND_FOLDER);
  seen_add(&seen[1], 0, "job", 0, TOOL_FOUND_NOTHING);
  seen_add(&seen[2], 0, "job/b", 5, TOOL_FOUND_FILE);
  seen_add(&seen[2], 0, "job/a", 900, TOOL_FOUND_FILE);
  for (size_t i = 0; i < 3; i++) {
    seen_add(&seen[i], 1, "none", 0, TOOL_FOUND_NOTHING);
    tool_survey_pool_add(pool, i, &seen[i]);
  }
  tool_survey_pool_divide(pool, &all);
  T_EQ(all.count, 3u);
  T_EQ(file_of(&all, "job/a")->process, 2u);
  T_EQ(file_of(&all, "job/b")->process, 2u);
  T_EQ(file_of(&all, "job/a")->place, 0u);
  T_EQ(file_of(&all, "none")->place, 2u);
  T_NE(file_of(&all, "none")->process, 2u);  // it has work already
  tool_survey_files_fini(&all);
}

T_TEST(test_survey__a_file_is_read_by_a_process_that_may_read_it) {
  tool_survey_pool* const pool = tool_survey_pool_new(3);
  tool_survey_files all = { .count = 0 };

  // Process 1 alone may read "a". Nobody may read "b"; process 0 reports it, which has no work.
  for (size_t i = 0; i < 3; i++) {
    tool_survey_files seen = { .count = 0 };
    seen_add(&seen, 0, "a", 900, TOOL_FOUND_FILE);
    seen.items[0].is_closed = i != 1;
    seen_add(&seen, 0, "b", 5, TOOL_FOUND_FILE);
    seen.items[1].is_closed = true;
    tool_survey_pool_add(pool, i, &seen);
  }
  tool_survey_pool_divide(pool, &all);
  T_EQ(all.count, 2u);
  T_EQ(file_of(&all, "a")->process, 1u);
  T_EQ(file_of(&all, "b")->process, 0u);
  tool_survey_files_fini(&all);
}

T_TEST(test_survey__the_same_path_with_another_size_is_another_file) {
  tool_survey_pool* const pool = tool_survey_pool_new(2);
  tool_survey_files all = { .count = 0 };

  for (size_t i = 0; i < 2; i++) {
    tool_survey_files seen = { .count = 0 };
    seen_add(&seen, 0, "local/rank.pickle", 100 + i, TOOL_FOUND_FILE);
    tool_survey_pool_add(pool, i, &seen);
  }
  tool_survey_pool_divide(pool, &all);
  T_EQ(all.count, 2u);
  T_EQ(all.items[0].process, 0u);
  T_EQ(all.items[1].process, 1u);
  tool_survey_files_fini(&all);
}

T_TEST(test_survey__the_rank_is_the_number_after_the_word) {
  static const struct {
    const char* path;
    int rank;  // -1: none
  } cases[] = {
    { "rank0.pickle", 0 },
    { "a/b/RANK_12.pickle", 12 },
    { "rank-007_x.tide", 7 },
    { "x.rank=3", 3 },
    { "rank9/a.pickle", 9 },
    { "rank9/rank1.pickle", 1 },
    { "franks.pickle", -1 },
    { "a3.pickle", -1 },
    { "rank9/b/a.pickle", -1 },
    { "rank__3", -1 },
    { "rank", -1 },
    { "", -1 },
    { "/rank5.pickle", 5 },
    { "frank4rank6", 4 },
    { "rankrank8", 8 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    uint64_t rank = 0;
    T_EQ(tool_survey_rank_of(cases[i].path, &rank), cases[i].rank >= 0);
    if (cases[i].rank >= 0) T_EQ(rank, (uint64_t)cases[i].rank);
  }
}

// What nobody named is not opened: a pipe would wait for somebody who writes.
T_TEST(test_survey__a_pipe_in_a_folder_was_waited_for) {
  char folder[] = "/tmp/tide_survey_XXXXXX";
  char path[64];
  char* operand = folder;
  tool_survey_files files = { .count = 0 };
  T_CHECK(mkdtemp(folder) != NULL);
  (void)snprintf(path, sizeof path, "%s/x.pickle", folder);
  T_EQ(mkfifo(path, 0600), 0);
  tool_survey_files_find(&operand, 1, &files);
  T_EQ(files.count, 1u);
  T_EQ(files.items[0].found, TOOL_FOUND_FOLDER);
  tool_survey_files_fini(&files);
  operand = path;
  tool_survey_files_find(&operand, 1, &files);
  T_EQ(files.count, 1u);
  T_EQ(files.items[0].found, TOOL_FOUND_FILE);
  tool_survey_files_fini(&files);
  T_EQ(unlink(path), 0);
  T_EQ(rmdir(folder), 0);
}
