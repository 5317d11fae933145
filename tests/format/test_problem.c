// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planning problems: what a trace becomes, and how it is written with offsets.
#include "tidemark/problem.h"
#include "base/heap.h"
#include "format/others.h"
#include "memory.h"

#define HEADER "id,lower,upper,size"

static tide_problem* problem_of(const tide_trace* trace) {
  tide_problem* problem = NULL;
  T_OK(tide_problem_new(trace, 0, NULL, &problem));
  T_CHECK(problem != NULL);
  return problem;
}

static void expect_buffer(const tide_problem* problem, size_t position, uint64_t lower, uint64_t upper,
                          uint64_t bytes) {
  const tide_plan_problem view = tide_problem_plan(problem);
  T_LT(position, view.count);
  T_EQ(view.buffers[position].lower, lower);
  T_EQ(view.buffers[position].upper, upper);
  T_EQ(view.buffers[position].bytes, bytes);
}

static void expect_name(const tide_problem* problem, size_t position, const char* want) {
  size_t bytes = 0;
  T_STR_EQ(tide_problem_name(problem, position, &bytes), want);
  T_EQ(bytes, strlen(want));
}

static void expect_written(const tide_problem* problem, const uint64_t* offsets, const char* want) {
  memory_sink to = { NULL, 0, SIZE_MAX };
  const tide_sink sink = { memory_sink_write, &to };
  T_OK(tide_problem_write(problem, offsets, &sink));
  T_STR_EQ(to.data, want);
  free(to.data);
}

// ---------------------------------------------------------------------------------------------------
// Planning problems

T_TEST(test_problem__has_the_rows_of_its_file) {
  tide_trace* const trace =
      memory_trace_of(tide__minimalloc_read, HEADER "\nb,5,9,700\na,0,5,300\nb,2,2,0\n");
  tide_problem* const problem = problem_of(trace);

  T_EQ(tide_problem_plan(problem).count, 3);
  T_EQ(tide_problem_plan(problem).pools, 0);
  expect_buffer(problem, 0, 5, 9, 700);
  expect_buffer(problem, 1, 0, 5, 300);
  expect_buffer(problem, 2, 2, 2, 0);
  expect_name(problem, 0, "b");
  expect_name(problem, 1, "a");
  expect_name(problem, 2, "b");
  const tide_plan_problem view = tide_problem_plan(problem);
  for (size_t i = 0; i < 3; i++) {
    const tide_plan_buffer* const buffer = &view.buffers[i];
    T_EQ(buffer->alignment, 1);
    T_EQ(buffer->offset, TIDE_PLAN_ANYWHERE);
    T_EQ(buffer->hint, TIDE_PLAN_ANYWHERE);
    T_EQ(buffer->gap_count, 0);
    T_EQ(buffer->alias, 0);
    T_EQ(buffer->pool, 0);
  }
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__has_every_column) {
  static const char text[] = HEADER ",alignment,hint,gaps,offset\n"
                                    "a,0,9,64,16,-7,1-2 4-6@8:24,32\n"
                                    "b,0,9,64,1,48,,0\n"
                                    "c,3,7,8,3,-1,4-5,640\n";
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, text);
  tide_problem* const problem = problem_of(trace);
  const tide_plan_buffer* const buffers = tide_problem_plan(problem).buffers;

  T_EQ(buffers[0].alignment, 16);
  T_EQ(buffers[0].hint, TIDE_PLAN_ANYWHERE);
  T_EQ(buffers[0].offset, 32);
  T_EQ(buffers[0].gap_count, 2);
  T_EQ(buffers[0].gaps[0].lower, 1);
  T_EQ(buffers[0].gaps[0].upper, 2);
  T_EQ(buffers[0].gaps[0].first, buffers[0].gaps[0].last);
  T_EQ(buffers[0].gaps[1].lower, 4);
  T_EQ(buffers[0].gaps[1].upper, 6);
  T_EQ(buffers[0].gaps[1].first, 8);
  T_EQ(buffers[0].gaps[1].last, 24);
  T_EQ(buffers[1].hint, 48);
  T_EQ(buffers[1].offset, 0);
  T_EQ(buffers[1].gap_count, 0);
  T_EQ(buffers[2].alignment, 3);
  T_EQ(buffers[2].gap_count, 1);
  T_EQ(buffers[2].gaps[0].lower, 4);
  expect_written(problem, NULL, text);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__is_written_with_the_offsets_of_a_plan) {
  static const struct {
    const char* text;
    const char* want;
  } cases[] = {
    { HEADER "\na,0,9,64\n,1,2,3\n", HEADER ",offset\na,0,9,64,700\n,1,2,3,18446744073709551615\n" },
    { HEADER ",offset\na,0,9,64,1\nb,1,2,3,2\n",
      HEADER ",offset\na,0,9,64,700\nb,1,2,3,18446744073709551615\n" },
    { "offset,size,upper,lower,id\n5,64,9,0,a\n6,3,2,1,b\n",
      HEADER ",offset\na,0,9,64,700\nb,1,2,3,18446744073709551615\n" },
    { HEADER ",gaps\na,0,9,64,1-2\nb,1,2,3,\n",
      HEADER ",gaps,offset\na,0,9,64,1-2,700\nb,1,2,3,,18446744073709551615\n" },
  };
  static const uint64_t offsets[] = { 700, UINT64_MAX };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tide_trace* const trace = memory_trace_of(tide__minimalloc_read, cases[i].text);
    tide_problem* const problem = problem_of(trace);
    expect_written(problem, offsets, cases[i].want);
    tide_problem_free(problem);
    tide_trace_free(trace);
  }
}

T_TEST(test_problem__may_be_empty) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, HEADER "\n");
  tide_problem* const problem = problem_of(trace);
  const uint64_t none = 0;

  T_EQ(tide_problem_plan(problem).count, 0);
  expect_written(problem, NULL, HEADER "\n");
  expect_written(problem, &none, HEADER ",offset\n");
  T_PTR_EQ(tide_problem_name(problem, 0, NULL), NULL);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Recordings

T_TEST(test_problem__of_a_recording_counts_entries_and_rounds_sizes) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_ALLOC, 0x1000, 4096);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 1);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1200, 512);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x1000, 1);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 513);
  tide_problem* const problem = problem_of(trace);

  T_EQ(tide_problem_plan(problem).count, 3);
  expect_buffer(problem, 0, 1, 3, 512);
  expect_buffer(problem, 1, 2, 5, 512);
  expect_buffer(problem, 2, 4, 5, 1024);
  expect_name(problem, 2, "2");
  memory_expect_text(tide__minimalloc_write, trace, HEADER "\n0,1,3,512\n1,2,5,512\n2,4,5,1024\n");
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__of_a_recording_has_what_was_there_before) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x9000, 77);  // there until the first entry
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 5);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x1000, 5);
  memory_add_segment(trace, 0, 0x2000, 513, 0);  // exists all the time, without an entry
  tide_problem* const problem = problem_of(trace);

  T_EQ(tide_problem_plan(problem).count, 3);
  expect_buffer(problem, 0, 0, 1, 512);
  expect_buffer(problem, 1, 2, 3, 512);
  expect_buffer(problem, 2, 0, 4, 512);
  memory_expect_text(tide__minimalloc_write, trace, HEADER "\n0,1,2,512\n");
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__of_a_list_of_blocks_is_one_instant) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_about steps = { .has_segments = true, .has_steps = true };
  memory_add_segment(trace, 0, 0x2000, 1000, 0);

  tide_problem* problem = problem_of(trace);
  expect_buffer(problem, 0, 0, 1, 1024);
  tide_problem_free(problem);
  tide_trace_set_about(trace, &steps);
  problem = problem_of(trace);
  expect_buffer(problem, 0, 0, 1, 999);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__of_steps_may_have_what_was_there_before) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_about steps = { .has_segments = true, .has_entries = true, .has_steps = true };
  tide_trace_set_about(trace, &steps);
  memory_add_plain(trace, TIDE_ACTION_OTHER, 0, 0);
  memory_add_plain(trace, TIDE_ACTION_OTHER, 0, 0);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x9000, 77);
  tide_problem* const problem = problem_of(trace);

  expect_buffer(problem, 0, 0, 2, 77);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__is_of_one_device) {
  tide_trace* const trace = memory_trace_new();
  const tide_trace_entry second = { .address = 1, .bytes = 512, .device = 1 };
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 1024);
  memory_add(trace, &second);
  tide_problem* problem = problem_of(trace);
  expect_buffer(problem, 0, 0, 1, 1024);
  tide_problem_free(problem);

  T_OK(tide_problem_new(trace, 1, NULL, &problem));
  expect_buffer(problem, 0, 0, 1, 512);
  tide_problem_free(problem);
  T_OK(tide_problem_new(trace, 2, NULL, &problem));  // an unknown device
  T_EQ(tide_problem_plan(problem).count, 0);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

T_TEST(test_problem__names_buffers_that_share_a_name_by_their_position) {
  static const char* const metadata[] = { "weights", "twice", "twice", "7", "a,b" };
  static const char* const names[] = { "weights", "1", "2", "3", "4" };
  tide_trace* const trace = memory_trace_new();
  for (size_t i = 0; i < sizeof metadata / sizeof metadata[0]; i++) {
    const tide_trace_entry entry = { .address = 512 * i, .note = memory_add_note(trace, metadata[i], 0) };
    memory_add(trace, &entry);
  }
  tide_problem* const problem = problem_of(trace);

  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) expect_name(problem, i, names[i]);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Faults

T_TEST(test_problem__refuses_bad_arguments) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, HEADER "\na,0,9,64\n");
  tide_problem* problem = (tide_problem*)trace;  // to be overwritten
  memory_sink to = { NULL, 0, SIZE_MAX };
  const tide_sink sink = { memory_sink_write, &to };
  const tide_sink half = { NULL, NULL };
  const tide_heap no_heap = { NULL, NULL, NULL };

  T_STATUS(tide_problem_new(NULL, 0, NULL, &problem), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(problem, NULL);
  T_STATUS(tide_problem_new(trace, 0, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_problem_new(trace, 0, &no_heap, &problem), TIDE_ERR_ARGUMENT);
  problem = problem_of(trace);
  T_STATUS(tide_problem_write(NULL, NULL, &sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_problem_write(problem, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_problem_write(problem, NULL, &half), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(tide_problem_name(problem, 1, NULL), NULL);
  T_PTR_EQ(tide_problem_name(NULL, 0, NULL), NULL);
  T_EQ(tide_problem_plan(NULL).count, 0);
  tide_problem_free(problem);
  tide_problem_free(NULL);
  tide_trace_free(trace);
}

T_TEST(test_problem__fails_cleanly_without_memory) {
  tide_trace* const trace =
      memory_trace_of(tide__minimalloc_read, HEADER ",gaps\na,0,9,64,1-2\nb,0,9,64,2-3@0:8\n");
  const uint64_t offsets[] = { 0, 64 };
  for (size_t n = 0;; n++) {
    counting_heap h;
    tide_problem* problem = NULL;
    memory_sink to = { NULL, 0, SIZE_MAX };
    const tide_sink sink = { memory_sink_write, &to };
    counting_heap_init(&h, n, n % 2 == 0);
    tide_status status = tide_problem_new(trace, 0, &h.heap, &problem);
    T_CHECK((status == TIDE_OK) == (problem != NULL));
    if (status == TIDE_OK) status = tide_problem_write(problem, offsets, &sink);
    T_STATUS(status, atomic_load(&h.has_failed) ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    tide_problem_free(problem);
    free(to.data);
    T_EQ(atomic_load(&h.outstanding), 0);
    if (status == TIDE_OK) break;
  }
  tide_trace_free(trace);
}

T_TEST(test_problem__passes_on_what_the_sink_says) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, HEADER "\na,0,9,64\n");
  tide_problem* const problem = problem_of(trace);
  memory_sink to = { NULL, 0, 3 };
  const tide_sink sink = { memory_sink_write, &to };

  T_STATUS(tide_problem_write(problem, NULL, &sink), TIDE_ERR_MACHINE);
  free(to.data);
  tide_problem_free(problem);
  tide_trace_free(trace);
}

// What a fuzzer finds in seconds: any text that is read makes a problem whose plan can be written and read.
T_TEST(test_problem__survives_any_text) {
  static const char text[] = HEADER
      ",alignment,hint,gaps,offset\na,0,9,64,16,-7,1-2 4-6@8:24,32\nb,1,2,3,1,1,,0\n";
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < t_scaled(20000); i++) {
    char damaged[sizeof text];
    tide_trace* trace = NULL;
    memcpy(damaged, text, sizeof text);
    for (uint64_t k = t_rng_below(&rng, 4) + 1; k > 0; k--) {
      static const char likely[] = "0123456789,-@: \n";
      damaged[t_rng_below(&rng, sizeof text - 1)] = likely[t_rng_below(&rng, sizeof likely)];
    }
    memory_source source = memory_source_of(damaged, sizeof damaged - 1);
    if (memory_read(tide__minimalloc_read, &source, &tide__system_heap, &trace) != TIDE_OK) continue;
    tide_problem* const problem = problem_of(trace);
    const uint64_t offsets[] = { 1, 2, 3, 4 };
    memory_sink to = { NULL, 0, SIZE_MAX };
    const tide_sink sink = { memory_sink_write, &to };
    T_LE(tide_problem_plan(problem).count, 4);
    T_OK(tide_problem_write(problem, offsets, &sink));
    free(to.data);
    tide_problem_free(problem);
    tide_trace_free(trace);
  }
}
