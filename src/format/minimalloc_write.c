// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes planning problems for MiniMalloc, a row for each buffer. A trace with requests on a single device is
// converted to a problem first. Blocks older than its first entry have no row, because their beginning is
// unknown.
// Cost: O(n) for n buffers.
#include <inttypes.h>

#include "base/arith.h"
#include "base/error.h"
#include "format/others.h"
#include "format/problem.h"

// ---------------------------------------------------------------------------------------------------
// Rows

static void mini_put_gaps(const tide_plan_buffer* buffer, tide__output* output) {
  char text[TIDE__MINI_GAP_TEXT];
  tide__output_byte(output, ',');
  for (size_t i = 0; i < buffer->gap_count; i++) {
    if (i > 0) tide__output_byte(output, ' ');
    tide__output_bytes(output, text, tide__mini_gap_print(&buffer->gaps[i], text));
  }
}

// The last column has the offsets of the plan, or those of the problem.
static void mini_put_offset(const tide_problem* problem, size_t position, const uint64_t* offsets,
                            tide__output* output) {
  if (offsets == NULL && !problem->has_column[TIDE__MINI_OFFSET]) return;
  tide__output_byte(output, ',');
  tide__output_uint(output, offsets != NULL ? offsets[position] : problem->buffers[position].offset);
}

// Refuses what a reader would refuse: a buffer that ends before it begins (in a trace whose times go back),
// times that overflow in ns, and a total of 2^63 bytes, each buffer rounded up.
static void mini_check_row(const tide_plan_buffer* buffer, uint64_t* total, tide__output* output) {
  const bool is_sane = buffer->bytes < INT64_MAX && tide__add(*total, buffer->bytes + 512, total) &&
                       *total < INT64_MAX;
  if (is_sane && buffer->lower <= buffer->upper && buffer->upper < INT64_MAX / TIDE__MINI_STEP_NS) return;
  tide__output_fail(output, TIDE_FAIL(TIDE_ERR_LIMIT,
                                      "trace_write: a buffer of %" PRIu64 " bytes from %" PRIu64
                                      " to %" PRIu64 " cannot be in a planning problem",
                                      buffer->bytes, buffer->lower, buffer->upper));
}

static void mini_put_row(const tide_problem* problem, size_t position, const uint64_t* offsets,
                         tide__output* output) {
  const tide_plan_buffer* const buffer = &problem->buffers[position];
  size_t bytes = 0;
  const uint64_t begin = tide__output_offset(output);
  const char* const name = tide_problem_name(problem, position, &bytes);
  tide__output_bytes(output, name, bytes);
  tide__output_format(output, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, buffer->lower, buffer->upper,
                      buffer->bytes);
  if (problem->has_column[TIDE__MINI_ALIGNMENT]) tide__output_format(output, ",%" PRIu64, buffer->alignment);
  if (problem->has_column[TIDE__MINI_HINT]) {
    tide__output_format(output, ",%" PRId64, problem->rows[position].hint);
  }
  if (problem->has_column[TIDE__MINI_GAPS]) mini_put_gaps(buffer, output);
  mini_put_offset(problem, position, offsets, output);
  tide__output_byte(output, '\n');
  tide__csv_check_row(output, begin);
}

static void mini_put_all(const tide_problem* problem, const uint64_t* offsets, tide__output* output) {
  for (tide__mini_column i = 0; i < TIDE__MINI_COLUMNS; i++) {
    const bool is_planned = i == TIDE__MINI_OFFSET && offsets != NULL;
    if (i >= TIDE__MINI_REQUIRED && !problem->has_column[i] && !is_planned) continue;
    tide__output_text(output, i > 0 ? "," : "");
    tide__output_text(output, tide__mini_columns[i]);
  }
  tide__output_byte(output, '\n');
  uint64_t total = 0;
  for (size_t i = 0; i < problem->count; i++) {
    if (offsets == NULL)
      mini_check_row(&problem->buffers[i], &total, output);  // with a plan, all buffers have offsets
    mini_put_row(problem, i, offsets, output);
  }
}

tide_status tide_problem_write(const tide_problem* problem, const uint64_t* offsets, const tide_sink* sink) {
  tide__output output;
  TIDE_REQUIRE(problem != NULL, TIDE_ERR_ARGUMENT, "problem_write: problem is NULL");
  TIDE_REQUIRE(sink != NULL && sink->write != NULL, TIDE_ERR_ARGUMENT,
               "problem_write: sink is NULL or has no function");
  TIDE_TRY(tide__output_init(&output, sink, problem->heap));
  mini_put_all(problem, offsets, &output);
  const tide_status status = tide__output_flush(&output);
  tide__output_fini(&output);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Traces

static bool mini_has_requests(const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action == TIDE_ACTION_ALLOC) return true;
  }
  return false;
}

// A problem is about one arena, so about one device.
static tide_status mini_find_device(const tide_trace* trace, size_t* out) {
  bool is_found = false;
  *out = 0;
  for (size_t i = 0; i < tide_trace_device_count(trace); i++) {
    if (!mini_has_requests(trace, i)) continue;
    TIDE_REQUIRE(
        !is_found, TIDE_ERR_LIMIT,
        "trace_write: a planning problem has one device, but the trace has requests on devices %zu and %zu",
        *out, i);
    is_found = true;
    *out = i;
  }
  return TIDE_OK;
}

tide_status tide__minimalloc_write(const tide_trace* trace, tide__output* output) {
  size_t device = 0;
  tide_problem* problem = NULL;
  TIDE_TRY(mini_find_device(trace, &device));
  TIDE_TRY(tide__problem_of_trace(trace, device, TIDE__PROBLEM_RECORDED, output->heap, &problem));
  mini_put_all(problem, NULL, output);
  tide_problem_free(problem);
  return output->status;
}
