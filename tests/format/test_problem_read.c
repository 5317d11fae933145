// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planning problems read straight from MiniMalloc's CSV: that they have what the file says, that a detour
// over a trace gives the same, and what happens without memory, at a limit, and in a file that is wrong.
#include "base/heap.h"
#include "format/others.h"
#include "memory.h"
#include "tidemark/problem.h"

#define HEADER "id,lower,upper,size"
#define ALL_COLUMNS HEADER ",alignment,hint,gaps,offset\n"
#define SMALL                        \
  ALL_COLUMNS                        \
  "b1,0,5,100,1,-1,,0\n"             \
  "b2,5,9,40,64,0,6-7 7-8@0:16,64\n" \
  "b3,2,9,8,1,7,,512\n"

static tide_status read_with(memory_source* from, const tide_read_options* options, tide_problem** out) {
  const tide_source source = { memory_source_read, from };
  return tide_problem_read(&source, options, out);
}

static tide_problem* read_text(const char* text) {
  tide_problem* problem = NULL;
  memory_source source = memory_source_of(text, strlen(text));
  T_OK(read_with(&source, NULL, &problem));
  T_CHECK(problem != NULL);
  return problem;
}

static tide_problem* read_by_trace(const char* text) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, text);
  tide_problem* problem = NULL;
  T_OK(tide_problem_new(trace, 0, NULL, &problem));
  tide_trace_free(trace);  // the problem does not borrow it
  return problem;
}

static char* written(const tide_problem* problem) {
  memory_sink to = { NULL, 0, SIZE_MAX };
  const tide_sink sink = { memory_sink_write, &to };
  T_OK(tide_problem_write(problem, NULL, &sink));
  return to.data;
}

static void expect_same_buffer(const tide_plan_buffer* a, const tide_plan_buffer* b) {
  T_EQ(a->lower, b->lower);
  T_EQ(a->upper, b->upper);
  T_EQ(a->bytes, b->bytes);
  T_EQ(a->alignment, b->alignment);
  T_EQ(a->offset, b->offset);
  T_EQ(a->hint, b->hint);
  T_EQ(a->alias, b->alias);
  T_EQ(a->pool, b->pool);
  T_EQ(a->gap_count, b->gap_count);
  if (a->gap_count > 0) T_CHECK(memcmp(a->gaps, b->gaps, a->gap_count * sizeof *a->gaps) == 0);
}

static void expect_same(const tide_problem* a, const tide_problem* b) {
  const tide_plan_problem x = tide_problem_plan(a);
  const tide_plan_problem y = tide_problem_plan(b);
  T_EQ(x.count, y.count);
  for (size_t i = 0; i < x.count; i++) {
    size_t bytes = 0;
    size_t other = 0;
    expect_same_buffer(&x.buffers[i], &y.buffers[i]);
    T_STR_EQ(tide_problem_name(a, i, &bytes), tide_problem_name(b, i, &other));
    T_EQ(bytes, other);
  }
  char* const one = written(a);
  char* const two = written(b);
  T_STR_EQ(one, two);
  free(one);
  free(two);
}

T_TEST(test_problem_read__has_what_the_file_says) {
  tide_problem* const problem = read_text(SMALL);
  const tide_plan_buffer* const buffers = tide_problem_plan(problem).buffers;
  size_t bytes = 0;

  T_EQ(tide_problem_plan(problem).count, 3);
  T_EQ(buffers[1].lower, 5);
  T_EQ(buffers[1].upper, 9);
  T_EQ(buffers[1].bytes, 40);
  T_EQ(buffers[1].alignment, 64);
  T_EQ(buffers[1].hint, 0);
  T_EQ(buffers[1].offset, 64);
  T_EQ(buffers[1].gap_count, 2);
  T_EQ(buffers[1].gaps[0].lower, 6);
  T_EQ(buffers[1].gaps[0].first, buffers[1].gaps[0].last);
  T_EQ(buffers[1].gaps[1].upper, 8);
  T_EQ(buffers[1].gaps[1].last, 16);
  T_EQ(buffers[0].hint, TIDE_PLAN_ANYWHERE);
  T_EQ(buffers[0].gap_count, 0);
  T_PTR_EQ(buffers[2].gaps, NULL);
  T_EQ(buffers[2].hint, 7);
  T_STR_EQ(tide_problem_name(problem, 2, &bytes), "b3");
  T_EQ(bytes, 2);
  T_PTR_EQ(tide_problem_name(problem, 3, &bytes), NULL);
  T_EQ(bytes, 0);
  tide_problem_free(problem);
}

T_TEST(test_problem_read__gives_the_same_as_the_way_over_a_trace) {
  static const char* const texts[] = {
    SMALL,
    HEADER "\n",
    ALL_COLUMNS,
    HEADER "\nx,0,1,1\nx,1,2,1\n,0,1,1\n7,3,3,0\n",
    HEADER "\na b\t\"c\",0,1,9223372036854775000\n",
    HEADER ",hint\na,0,9,1,-7\nb,0,9,1,-0\n",
    "offset,id,start,end,size,gaps\n3,a,1,2,7,1-1 2-2@0:0\n4,b,0,9,8,0-3@2:5  5-6 \n",
    HEADER ",gaps\na,0,9,1,\n\nanything at all",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    tide_problem* const straight = read_text(texts[i]);
    tide_problem* const detour = read_by_trace(texts[i]);
    expect_same(straight, detour);
    tide_problem_free(straight);
    tide_problem_free(detour);
  }
}

// ---------------------------------------------------------------------------------------------------
// Random problems, whose buffers are known before they are written

#define RANDOM_ROWS 60u
#define RANDOM_GAPS 3u

typedef struct random_row {
  tide_plan_buffer buffer;
  tide_plan_gap gaps[RANDOM_GAPS];
  char name[16];
} random_row;

static void row_fill(random_row* row, t_rng* rng, bool has_extras) {
  *row = (random_row){ .buffer = { .alignment = 1, TIDE_PLAN_FREELY } };
  tide_plan_buffer* const buffer = &row->buffer;
  buffer->lower = t_rng_below(rng, 1000);
  buffer->upper = buffer->lower + t_rng_below(rng, 50);
  buffer->bytes = t_rng_below(rng, 100000);
  (void)snprintf(row->name, sizeof row->name, "n%" PRIu64, t_rng_below(rng, 20));
  if (!has_extras) return;
  buffer->alignment = 1 + t_rng_below(rng, 600);
  buffer->hint = t_rng_below(rng, 5000);
  buffer->offset = t_rng_below(rng, 1000000);
  buffer->gap_count = t_rng_below(rng, RANDOM_GAPS + 1);
  for (size_t i = 0; i < buffer->gap_count; i++) {
    const uint64_t lower = t_rng_below(rng, 1000);
    const uint64_t first = 1 + t_rng_below(rng, 9);
    row->gaps[i] = (tide_plan_gap){ lower, lower + t_rng_below(rng, 9), 0, 0 };
    if (t_rng_below(rng, 2) == 0) row->gaps[i].first = first;
    if (row->gaps[i].first != 0) row->gaps[i].last = first + t_rng_below(rng, 9);
  }
}

static size_t row_print(const random_row* row, bool has_extras, char* out, size_t room) {
  const tide_plan_buffer* const b = &row->buffer;
  size_t at = (size_t)snprintf(out, room, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64, row->name, b->lower,
                               b->upper, b->bytes);
  if (has_extras) {
    at += (size_t)snprintf(out + at, room - at, ",%" PRIu64 ",%" PRIu64 ",", b->alignment, b->hint);
    for (size_t i = 0; i < b->gap_count; i++) {
      const tide_plan_gap* const gap = &row->gaps[i];
      at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64 "-%" PRIu64, i > 0 ? " " : "", gap->lower,
                             gap->upper);
      if (gap->first == 0) continue;
      at += (size_t)snprintf(out + at, room - at, "@%" PRIu64 ":%" PRIu64, gap->first, gap->last);
    }
    at += (size_t)snprintf(out + at, room - at, ",%" PRIu64, b->offset);
  }
  return at + (size_t)snprintf(out + at, room - at, "\n");
}

static void expect_rows(const tide_problem* problem, const random_row* rows, size_t count) {
  const tide_plan_problem view = tide_problem_plan(problem);
  T_EQ(view.count, count);
  for (size_t i = 0; i < count; i++) {
    tide_plan_buffer want = rows[i].buffer;
    want.gaps = rows[i].gaps;
    expect_same_buffer(&view.buffers[i], &want);
    T_STR_EQ(tide_problem_name(problem, i, NULL), rows[i].name);
  }
}

T_TEST(test_problem_read__gives_random_problems_back) {
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(300); round++) {
    random_row rows[RANDOM_ROWS];
    char text[16384];
    const bool has_extras = round % 2 == 1;
    const size_t count = 1 + t_rng_below(&rng, RANDOM_ROWS);
    size_t at = (size_t)snprintf(text, sizeof text, "%s", has_extras ? ALL_COLUMNS : HEADER "\n");
    for (size_t i = 0; i < count; i++) {
      row_fill(&rows[i], &rng, has_extras);
      at += row_print(&rows[i], has_extras, text + at, sizeof text - at);
    }
    T_LT(at, sizeof text);
    tide_problem* const problem = read_text(text);
    expect_rows(problem, rows, count);
    char* const again = written(problem);
    T_STR_EQ(again, text);
    free(again);
    tide_problem_free(problem);
  }
}

// ---------------------------------------------------------------------------------------------------
// Faults

// Each row needs all fields of the header. The last one of this problem may be cut within its last number.
T_TEST(test_problem_read__of_a_cut_file_is_refused_or_has_rows_of_all_fields) {
  const size_t last = strlen(SMALL) - strlen("512\n");
  for (size_t cut = 0; cut <= strlen(SMALL); cut++) {
    tide_problem* problem = NULL;
    memory_source source = memory_source_of(SMALL, cut);
    const char* const comma = cut > strlen(ALL_COLUMNS) ? memchr(&SMALL[cut], ',', 1) : NULL;
    const tide_status status = read_with(&source, NULL, &problem);
    const bool is_line_end = cut > 0 && (SMALL[cut - 1] == '\n' || SMALL[cut] == '\n');
    if (is_line_end || cut > last) T_OK(status);
    if (comma != NULL) T_STATUS(status, TIDE_ERR_FORMAT);
    T_EQ(problem != NULL, status == TIDE_OK);
    tide_problem_free(problem);
  }
}

T_TEST(test_problem_read__names_the_place_of_a_fault) {
  tide_problem* problem = NULL;
  memory_source source = memory_source_of(HEADER "\na,1,2,3\nb,9,2,3\n", 36);
  T_STATUS(read_with(&source, NULL, &problem), TIDE_ERR_FORMAT);
  T_STR_HAS(tide_last_error()->text, "line 3, byte 32: ends before it begins");
  T_PTR_EQ(problem, NULL);
}

T_TEST(test_problem_read__reads_times_up_to_a_limit_that_it_writes) {
  static const char last[] = HEADER "\na,0,9223372036854774,1\n";
  tide_problem* problem = read_text(last);
  char* const text = written(problem);
  T_STR_EQ(text, last);
  free(text);
  tide_problem_free(problem);
  memory_source source = memory_source_of("id,lower,end,size\na,0,9223372036854774,1\n", 41);
  T_STATUS(read_with(&source, NULL, &problem), TIDE_ERR_FORMAT);
}

T_TEST(test_problem_read__fails_cleanly_without_memory) {
  for (size_t n = 0;; n++) {
    counting_heap h;
    tide_read_options options = TIDE_READ_OPTIONS_INIT;
    tide_problem* problem = NULL;
    memory_source source = memory_source_of(SMALL, strlen(SMALL));
    counting_heap_init(&h, n, n % 2 == 0);
    options.heap = &h.heap;
    const tide_status status = read_with(&source, &options, &problem);
    T_STATUS(status, atomic_load(&h.has_failed) ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    tide_problem_free(problem);
    T_EQ(atomic_load(&h.outstanding), 0);
    if (status == TIDE_OK) return;
  }
}

T_TEST(test_problem_read__returns_what_the_source_returned) {
  for (size_t n = 0; n <= strlen(SMALL); n++) {
    tide_problem* problem = NULL;
    memory_source source = memory_source_of(SMALL, strlen(SMALL));
    source.piece = 1;
    source.fail_after = n;
    T_STATUS(read_with(&source, NULL, &problem), TIDE_ERR_MACHINE);
    T_PTR_EQ(problem, NULL);
  }
}

T_TEST(test_problem_read__takes_no_more_memory_than_allowed) {
  enum { ROWS = 20000 };
  char* const text = malloc(64 + 16 * (size_t)ROWS);
  T_CHECK(text != NULL);
  size_t bytes = (size_t)sprintf(text, HEADER "\n");
  for (int i = 0; i < ROWS; i++) bytes += (size_t)sprintf(text + bytes, "a,0,1,1\n");
  bool has_fitted = false;
  for (uint64_t limit = 1; limit < (uint64_t)64 << 20; limit *= 4) {
    counting_heap h;
    tide_read_options options = TIDE_READ_OPTIONS_INIT;
    tide_problem* problem = NULL;
    memory_source source = memory_source_of(text, bytes);
    counting_heap_init(&h, SIZE_MAX, false);
    options.heap = &h.heap;
    options.memory = limit;
    const tide_status status = read_with(&source, &options, &problem);
    if (has_fitted || limit >= (uint64_t)16 << 20) T_STATUS(status, TIDE_OK);
    T_CHECK(status == TIDE_OK || status == TIDE_ERR_LIMIT);
    has_fitted |= status == TIDE_OK;
    if (status == TIDE_OK) T_LE(atomic_load(&h.outstanding), limit);
    tide_problem_free(problem);
    T_EQ(atomic_load(&h.outstanding), 0);
  }
  T_CHECK(has_fitted);
  free(text);
}

T_TEST(test_problem_read__refuses_bad_arguments) {
  tide_problem* problem = NULL;
  memory_source text = memory_source_of(SMALL, strlen(SMALL));
  const tide_source source = { memory_source_read, &text };
  const tide_source half = { NULL, NULL };
  const tide_heap no_heap = { NULL, NULL, NULL };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;

  T_STATUS(tide_problem_read(&source, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_problem_read(NULL, NULL, &problem), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_problem_read(&half, NULL, &problem), TIDE_ERR_ARGUMENT);
  options.format = TIDE_FORMAT_JSON;
  T_STATUS(tide_problem_read(&source, &options, &problem), TIDE_ERR_ARGUMENT);
  options.format = TIDE_FORMAT_MINIMALLOC;
  options.size--;
  T_STATUS(tide_problem_read(&source, &options, &problem), TIDE_ERR_ARGUMENT);
  options.size++;
  options.heap = &no_heap;
  T_STATUS(tide_problem_read(&source, &options, &problem), TIDE_ERR_ARGUMENT);
  options.heap = NULL;
  T_OK(tide_problem_read(&source, &options, &problem));
  tide_problem_free(problem);
}
