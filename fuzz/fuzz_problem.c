// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes the way of a planning problem from a file to a plan and back: any bytes are refused or read as
// MiniMalloc's CSV; its buffers are refused or planned, with few nodes; and what is written with the
// offsets of the plan reads back to the same buffers at these offsets, which are a plan of them.
#include "rewrite.h"
#include "tidemark/plan.h"
#include "tidemark/problem.h"

enum { FUZZ_NODES = 2000 };

// NULL when the text is refused.
static tide_problem* fuzz_problem_read(fuzz_text* text) {
  const tide_source source = { fuzz_text_read, text };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide_problem* problem = NULL;
  options.memory = FUZZ_MEMORY;
  const tide_status status = tide_problem_read(&source, &options, &problem);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_LIMIT);
  return problem;
}

static void fuzz_check_buffer(const tide_plan_buffer* a, const tide_plan_buffer* b) {
  FUZZ_REQUIRE(a->lower == b->lower && a->upper == b->upper && a->bytes == b->bytes);
  FUZZ_REQUIRE(a->alignment == b->alignment && a->hint == b->hint);
  FUZZ_REQUIRE(a->alias == b->alias && a->pool == b->pool && a->gap_count == b->gap_count);
  for (size_t i = 0; i < a->gap_count; i++) {
    FUZZ_REQUIRE(a->gaps[i].lower == b->gaps[i].lower && a->gaps[i].upper == b->gaps[i].upper);
    FUZZ_REQUIRE(a->gaps[i].first == b->gaps[i].first && a->gaps[i].last == b->gaps[i].last);
  }
}

static void fuzz_check_names(const tide_problem* a, const tide_problem* b, size_t position) {
  size_t bytes_a = 0;
  size_t bytes_b = 0;
  const char* const name_a = tide_problem_name(a, position, &bytes_a);
  const char* const name_b = tide_problem_name(b, position, &bytes_b);
  FUZZ_REQUIRE(name_a != NULL && name_b != NULL && bytes_a == bytes_b);
  FUZZ_REQUIRE(memcmp(name_a, name_b, bytes_a + 1) == 0 && name_a[bytes_a] == '\0');
}

// Writes a problem with the offsets of a plan and reads it again.
static void fuzz_check_written(const tide_problem* problem, const uint64_t* offsets) {
  const tide_plan_problem before = tide_problem_plan(problem);
  fuzz_text text = { NULL, 0, 0 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  const tide_sink sink = { fuzz_text_write, &text };
  FUZZ_REQUIRE(tide_problem_write(problem, offsets, &sink) == TIDE_OK);
  tide_problem* const again = fuzz_problem_read(&text);
  FUZZ_REQUIRE(again != NULL);
  const tide_plan_problem after = tide_problem_plan(again);
  FUZZ_REQUIRE(after.count == before.count);
  for (size_t i = 0; i < before.count; i++) {
    fuzz_check_buffer(&before.buffers[i], &after.buffers[i]);
    fuzz_check_names(problem, again, i);
    FUZZ_REQUIRE(after.buffers[i].offset == (offsets != NULL ? offsets[i] : before.buffers[i].offset));
  }
  if (offsets != NULL) {
    FUZZ_REQUIRE(tide_plan_verify(&after, offsets, NULL, NULL, &check) == TIDE_OK);
    FUZZ_REQUIRE(check.fault == TIDE_PLAN_NO_FAULT);
  }
  tide_problem_free(again);
  free(text.data);
}

// Does every buffer have an offset, and is their sum one that may be written?
static bool fuzz_is_writable(const tide_plan_problem* problem) {
  uint64_t left = INT64_MAX;
  for (size_t i = 0; i < problem->count; i++) {
    if (problem->buffers[i].offset == TIDE_PLAN_ANYWHERE) return false;
    if (problem->buffers[i].bytes >= left || left - problem->buffers[i].bytes <= 512) return false;
    left -= problem->buffers[i].bytes + 512;
  }
  return true;
}

static void fuzz_check_planned(const tide_problem* problem) {
  const tide_plan_problem view = tide_problem_plan(problem);
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  tide_plan* plan = NULL;
  options.seconds = 0;
  options.nodes = FUZZ_NODES;
  const tide_status status = tide_plan_solve(&view, &options, &plan);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_ARGUMENT);
  if (plan != NULL && tide_plan_offsets(plan) != NULL) fuzz_check_written(problem, tide_plan_offsets(plan));
  tide_plan_free(plan);
  if (fuzz_is_writable(&view)) fuzz_check_written(problem, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  fuzz_text given = { NULL, 0, 0 };
  if (bytes > 0) (void)fuzz_text_write(&given, data, bytes);
  tide_problem* const problem = fuzz_problem_read(&given);
  if (problem != NULL) fuzz_check_planned(problem);
  tide_problem_free(problem);
  free(given.data);
  return 0;
}
