// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Planning problems: what their rows mean in a trace, that they come back as they were, that buffers of one
// time never overlap, and what happens to problems that are wrong or cut.
#include "format/others.h"
#include "base/heap.h"
#include "memory.h"

#define HEADER "id,lower,upper,size\n"
#define BASE ((uint64_t)1 << 40)
#define SMALL                                        \
  "id,lower,upper,size,alignment,hint,gaps,offset\n" \
  "b1,0,5,100,1,-1,,0\n"                             \
  "b2,5,9,40,64,0,6-7 7-8@0:16,64\n"                 \
  "b3,2,9,8,1,7,,512\n"

static const tide_trace_entry* entries_of(const tide_trace* trace, size_t count) {
  size_t there = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &there);
  T_EQ(there, count);
  return entries;
}

static void expect_entry(const tide_trace* trace, const tide_trace_entry* entry, tide_action action,
                         uint64_t step, const char* id) {
  const tide_intern* const names = tide_trace_names(trace);
  T_EQ(entry->action, action);
  T_EQ(entry->time_ns, step * 1000);
  T_STR_EQ(tide_intern_text(names, tide_intern_note(names, entry->note).metadata, NULL), id);
}

T_TEST(test_minimalloc__releases_before_it_allocates) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, HEADER "c,5,7,30\nb,5,5,20\na,1,5,10\n");

  const tide_trace_entry* const e = entries_of(trace, 10);
  T_EQ(e[0].action, TIDE_ACTION_SEGMENT_ALLOC);
  T_EQ(e[0].time_ns, 1000);
  expect_entry(trace, &e[1], TIDE_ACTION_ALLOC, 1, "a");
  expect_entry(trace, &e[2], TIDE_ACTION_FREE_REQUESTED, 5, "a");
  expect_entry(trace, &e[3], TIDE_ACTION_FREE_COMPLETED, 5, "a");
  expect_entry(trace, &e[4], TIDE_ACTION_ALLOC, 5, "b");
  expect_entry(trace, &e[5], TIDE_ACTION_FREE_REQUESTED, 5, "b");
  expect_entry(trace, &e[6], TIDE_ACTION_FREE_COMPLETED, 5, "b");
  expect_entry(trace, &e[7], TIDE_ACTION_ALLOC, 5, "c");
  expect_entry(trace, &e[8], TIDE_ACTION_FREE_REQUESTED, 7, "c");
  expect_entry(trace, &e[9], TIDE_ACTION_FREE_COMPLETED, 7, "c");
  T_EQ(e[1].bytes, 10);
  T_EQ(e[9].bytes, 30);
  const tide_trace_about about = tide_trace_get_about(trace);
  T_CHECK(about.has_entries && about.has_segments && about.has_steps && !about.is_cut);
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__lies_in_one_segment) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, SMALL);
  size_t segments = 0;
  size_t blocks = 0;

  const tide_trace_segment* const segment = tide_trace_segments(trace, &segments);
  const tide_trace_block* const block = tide_trace_blocks(trace, &blocks);

  T_EQ(segments, 1);
  T_EQ(blocks, 1);
  T_EQ(segment->address, BASE);
  T_EQ(segment->bytes, 520);
  T_EQ(block->address, BASE);
  T_EQ(block->bytes, 520);
  T_EQ(block->state, TIDE_BLOCK_INACTIVE);
  T_EQ(entries_of(trace, 10)[0].bytes, 520);
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__uses_the_offsets_of_a_solution) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, SMALL);

  const tide_trace_entry* const e = entries_of(trace, 10);
  T_EQ(e[1].address, BASE);        // b1
  T_EQ(e[2].address, BASE + 512);  // b3
  T_EQ(e[5].address, BASE + 64);   // b2
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__gives_a_place_of_its_own_to_what_has_no_size_or_time) {
  tide_trace* const trace = memory_trace_of(
      tide__minimalloc_read, "id,lower,upper,size,offset\na,0,9,100,0\nb,1,9,0,0\nc,2,2,50,0\n");

  const tide_trace_entry* const e = entries_of(trace, 10);
  T_EQ(e[1].address, BASE);
  T_EQ(e[2].address, BASE + 512);
  T_EQ(e[3].address, BASE + 1024);
  T_EQ(tide_trace_segments(trace, NULL)->bytes, 1536);
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__gives_the_same_rows) {
  static const char* const texts[] = {
    HEADER,
    SMALL,
    HEADER "0,0,2,5\n",
    HEADER "9,7,8,3\n1,0,2,5\n5,3,3,0\n2,3,4,1\n",
    HEADER "x,0,1,1\nx,1,2,1\nx,0,1,1\n",
    HEADER ",0,1,1\n,1,2,1\n",
    HEADER "a b\t\"c\",0,1,9223372036854775000\n",
    "id,lower,upper,size,gaps\na,0,9,1,\n",
    "id,lower,upper,size,alignment\na,0,9,1,1\n",
    "id,lower,upper,size,hint\na,0,9,1,-7\n",
    "id,lower,upper,size,offset\na,0,9,1,0\nb,0,9,1,0\n",
  };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    memory_expect_rewritten(tide__minimalloc_read, tide__minimalloc_write, texts[i], texts[i]);
  }
}

T_TEST(test_minimalloc__gives_the_same_rows_after_other_formats) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, SMALL);
  const tide_trace_about about = { .has_segments = true, .has_entries = true };  // what a snapshot can say

  tide_trace_set_about(trace, &about);

  memory_expect_text(tide__minimalloc_write, trace, SMALL);
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__takes_columns_in_any_order_under_any_name) {
  static const struct {
    const char* text;
    const char* want;
  } cases[] = {
    { "size,upper,lower,id\n7,2,1,a\n", HEADER "a,1,2,7\n" },
    { "buffer,begin,upper,size\na,1,2,7\n", HEADER "a,1,2,7\n" },
    { "buffer_id,start,upper,size\r\na,1,2,7\r\n", HEADER "a,1,2,7\n" },
    { "offset,id,start,end,size\n3,a,1,2,7\n", "id,lower,upper,size,offset\na,1,3,7,3\n" },
    { "id,lower,end,size,gaps\na,0,9,1, 1-2  4-4@0:8 \n",
      "id,lower,upper,size,gaps\na,0,10,1,1-3 4-5@0:8\n" },
    { "id,lower,upper,size,gaps\na,0,9,1, 1-2  4-4@0:8 \n",
      "id,lower,upper,size,gaps\na,0,9,1,1-2 4-4@0:8\n" },
    { HEADER "a,0,9,1\n\nanything at all", HEADER "a,0,9,1\n" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    T_CHECK(tide__minimalloc_is(cases[i].text, strlen(cases[i].text)));
    memory_expect_rewritten(tide__minimalloc_read, tide__minimalloc_write, cases[i].text, cases[i].want);
  }
}

T_TEST(test_minimalloc__knows_its_header) {
  static const char header[] = HEADER;
  T_CHECK(tide__minimalloc_is(header, sizeof header - 1));
  T_CHECK(tide__minimalloc_is(header, sizeof header - 2));
  T_CHECK(!tide__minimalloc_is(header, sizeof header - 3));
  T_CHECK(!tide__minimalloc_is(header, 0));
  T_CHECK(!tide__minimalloc_is("\n", 1));
  T_CHECK(!tide__minimalloc_is("id,lower,upper\n", 15));
  T_CHECK(!tide__minimalloc_is("Thread,Time,Action,Pointer,Size,Stream\n", 39));
}

T_TEST(test_minimalloc__refuses_what_is_wrong) {
  static const memory_case cases[] = {
    { "", "line 1, byte 0: a column for id, lower, upper or size is missing" },
    { "\n", "line 1, byte 0: not a column" },
    { "id,lower,upper\n", "line 1, byte 0: a column for" },
    { "id,lower,upper,size,weight\n", "line 1, byte 20: not a column of MiniMalloc: \"weight\"" },
    { "id,lower,upper,size,size\n", "line 1, byte 20: a column that occurs twice" },
    { "id,lower,upper,size,buffer\n", "line 1, byte 20: a column that occurs twice" },
    { "id,lower,upper,end,size\n", "line 1, byte 15: a column that occurs twice" },
    { HEADER "a,1,2\n", "line 2, byte 20: not as many fields" },
    { HEADER "a,1,2,3,4\n", "line 2, byte 20: not as many fields" },
    { HEADER "a,1,2,3\nb,-1,2,3\n", "line 3, byte 30: not a time" },
    { HEADER "a,1,2,3\nb,1,2,-3\n", "line 3, byte 34: not a size" },
    { HEADER "a,x,2,3\n", "line 2, byte 22: not a time" },
    { HEADER "a,1,,3\n", "line 2, byte 24: not a time" },
    { HEADER "a,1,2,\n", "line 2, byte 26: not a size" },
    { HEADER "a,1,2,3.5\n", "not a size" },
    { HEADER "a,1,2, 3\n", "not a size" },
    { HEADER "a,1,2,9223372036854775808\n", "not a size, or too large" },
    { HEADER "a,9223372036854775,9223372036854775,1\n", "line 2, byte 39: not a time, or too large" },
    { HEADER "a,5,4,1\n", "line 2, byte 24: ends before it begins" },
    { "id,lower,end,size\na,5,3,1\n", "ends before it begins" },
    { "id,lower,upper,size,alignment\na,1,2,3,0\n", "line 2, byte 38: an alignment of 0" },
    { "id,lower,upper,size,alignment\na,1,2,3,-1\n", "not a number" },
    { "id,lower,upper,size,hint\na,1,2,3,\n", "not a number" },
    { "id,lower,upper,size,hint\na,1,2,3,--1\n", "not a number" },
    { "id,lower,upper,size,offset\na,1,2,3,-1\n", "not a number" },
    { "id,lower,upper,size,offset\na,1,2,3,9223372036854775807\n", "the range ends above 2^63" },
    { "id,lower,upper,size,gaps\na,1,2,3,5\n", "line 2, byte 33: not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5-6;\n", "not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5-6@1\n", "not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5-6@1:\n", "not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5-6 x\n", "not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5--6\n", "not gaps" },
    { "id,lower,upper,size,gaps\na,1,2,3,5-9223372036854775808\n", "not gaps" },
    { "id,lower,end,size,gaps\na,1,2,3,5-9223372036854775807\n", "a number too large" },
    { HEADER "a,1,2", "line 2, byte 20: not as many fields as in the header" },
    { HEADER "a,1,2,", "line 2, byte 26: not a size" },
  };
  memory_expect_refused(tide__minimalloc_read, cases, sizeof cases / sizeof cases[0]);
}

T_TEST(test_minimalloc__refuses_an_arena_beyond_all_addresses) {
  static const char text[] = HEADER "a,0,9,9223372036854775000\nb,0,9,9223372036854775000\n";
  tide_trace* trace = NULL;
  memory_source source = memory_source_of(text, sizeof text - 1);
  T_STATUS(memory_read(tide__minimalloc_read, &source, &tide__system_heap, &trace), TIDE_ERR_LIMIT);
}

// A text of which the end is missing, or one that never had a newline there, reads as if it had one.
T_TEST(test_minimalloc__the_last_line_needs_no_newline) {
  for (size_t cut = 1; cut <= strlen(SMALL); cut++) {
    char text[sizeof SMALL + 1];
    tide_trace* traces[2] = { NULL, NULL };
    (void)snprintf(text, sizeof text, "%.*s\n", (int)cut, SMALL);
    memory_source cut_off = memory_source_of(text, cut);
    memory_source whole = memory_source_of(text, SMALL[cut - 1] == '\n' ? cut : cut + 1);
    const tide_status status = memory_read(tide__minimalloc_read, &whole, &tide__system_heap, &traces[0]);
    T_STATUS(memory_read(tide__minimalloc_read, &cut_off, &tide__system_heap, &traces[1]), status);
    if (status == TIDE_OK) {
      char* const want = memory_text_of(tide__minimalloc_write, traces[0]);
      memory_expect_text(tide__minimalloc_write, traces[1], want);
      free(want);
    }
    for (size_t i = 0; i < 2; i++) tide_trace_free(traces[i]);
  }
}

T_TEST(test_minimalloc__lines_may_end_as_on_other_systems) {
  static const char* const texts[] = { "id,lower,upper,size\r\na,1,2,3\r\nb,2,3,4\r\n",
                                       "id,lower,upper,size\r\na,1,2,3\r\nb,2,3,4",
                                       "id,lower,upper,size\r\na,1,2,3\r\nb,2,3,4\r",
                                       HEADER "a,1,2,3\nb,2,3,4" };
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    memory_expect_rewritten(tide__minimalloc_read, tide__minimalloc_write, texts[i],
                            HEADER "a,1,2,3\nb,2,3,4\n");
}

T_TEST(test_minimalloc__survives_any_damage) {
  t_rng rng = t_rng_new(1);
  for (size_t i = 0; i < t_scaled(20000); i++) {
    char text[] = SMALL;
    tide_trace* trace = NULL;
    for (uint64_t k = t_rng_below(&rng, 4) + 1; k > 0; k--) {
      static const char likely[] = "0123456789,-@: \n";
      text[t_rng_below(&rng, sizeof text - 1)] = likely[t_rng_below(&rng, sizeof likely)];
    }
    memory_source source = memory_source_of(text, sizeof text - 1);
    const tide_status status = memory_read(tide__minimalloc_read, &source, &tide__system_heap, &trace);
    if (status == TIDE_OK) free(memory_text_of(tide__minimalloc_write, trace));
    else T_STATUS(status, TIDE_ERR_FORMAT);
    tide_trace_free(trace);
  }
}

// ---------------------------------------------------------------------------------------------------
// Places

typedef struct live_buffer {
  uint64_t address;
  uint64_t bytes;
} live_buffer;

// Follows a trace and expects that buffers neither overlap nor leave the segment.
static void expect_no_overlap(const tide_trace* trace) {
  live_buffer live[256] = { { 0, 0 } };
  size_t live_count = 0;
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, 0, &count);
  const tide_trace_segment* const segment = tide_trace_segments(trace, NULL);
  for (size_t i = 1; i < count; i++) {
    const tide_trace_entry* const e = &entries[i];
    T_LE(entries[i - 1].time_ns, e->time_ns);
    T_LE(segment->address, e->address);
    T_LE(e->address + e->bytes, segment->address + segment->bytes);
    size_t at = 0;
    while (at < live_count && live[at].address != e->address) at++;
    if (e->action == TIDE_ACTION_FREE_COMPLETED) live[at] = live[--live_count];
    if (e->action != TIDE_ACTION_ALLOC) continue;
    for (size_t k = 0; k < live_count; k++) {
      T_NE(live[k].address, e->address);
      T_CHECK(live[k].address >= e->address + e->bytes || e->address >= live[k].address + live[k].bytes);
    }
    T_LT(live_count, 256);
    live[live_count++] = (live_buffer){ e->address, e->bytes };
  }
  T_EQ(live_count, 0);
}

T_TEST(test_minimalloc__places_buffers_without_overlap) {
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(200); round++) {
    const bool has_offsets = t_rng_below(&rng, 2) == 0;
    char text[16384];
    size_t used =
        (size_t)snprintf(text, sizeof text, "id,lower,upper,size%s\n", has_offsets ? ",offset" : "");
    const uint64_t buffers = t_rng_below(&rng, 200);
    const uint64_t steps = 1 + t_rng_below(&rng, 100);
    for (uint64_t i = 0; i < buffers; i++) {
      const uint64_t lower = t_rng_below(&rng, steps);
      const uint64_t upper = lower + t_rng_below(&rng, steps / 4 + 1);
      used += (size_t)snprintf(text + used, sizeof text - used,
                               "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64, i, lower, upper,
                               t_rng_below(&rng, 5000));
      if (has_offsets) {
        used += (size_t)snprintf(text + used, sizeof text - used, ",%" PRIu64, t_rng_below(&rng, 9) * 2500);
      }
      used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    }
    if (buffers == 0) (void)snprintf(text, sizeof text, "%s", HEADER);
    tide_trace* const trace = memory_trace_of(tide__minimalloc_read, text);
    if (buffers > 0) expect_no_overlap(trace);
    memory_expect_text(tide__minimalloc_write, trace, text);
    tide_trace_free(trace);
  }
}

T_TEST(test_minimalloc__uses_places_again) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, HEADER
                                            "a,0,1,1000\nb,1,2,500\nc,1,2,400\nd,2,3,1024\ne,3,4,3000\n");
  T_EQ(tide_trace_segments(trace, NULL)->bytes, 1024 + 3072);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Traces of other origin

T_TEST(test_minimalloc__of_other_traces_counts_entries_and_rounds_sizes) {
  tide_trace* const trace = memory_trace_new();
  memory_add_plain(trace, TIDE_ACTION_SEGMENT_ALLOC, 0x1000, 4096);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 1);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1200, 512);
  memory_add_plain(trace, TIDE_ACTION_FREE_REQUESTED, 0x1000, 1);
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x9000, 77);  // there before: no row
  memory_add_plain(trace, TIDE_ACTION_FREE_COMPLETED, 0x1000, 1);
  memory_add_plain(trace, TIDE_ACTION_ALLOC, 0x1000, 513);

  memory_expect_text(tide__minimalloc_write, trace,
                     HEADER "0,1,5,512\n"
                            "1,2,7,512\n"
                            "2,6,7,1024\n");
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__names_buffers_by_their_metadata) {
  static const char* const metadata[] = { "weights", "twice", "", "twice", "a,b", "7", "bias" };
  tide_trace* const trace = memory_trace_new();
  for (size_t i = 0; i < sizeof metadata / sizeof metadata[0]; i++) {
    const tide_trace_entry entry = { .address = 512 * i, .note = memory_add_note(trace, metadata[i], 0) };
    memory_add(trace, &entry);
  }

  memory_expect_text(tide__minimalloc_write, trace,
                     HEADER "weights,0,7,0\n1,1,7,0\n2,2,7,0\n3,3,7,0\n4,4,7,0\n5,5,7,0\nbias,6,7,0\n");
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__writes_only_columns_that_make_sense) {
  static const struct {
    const char* key;
    tide_value value;
    const char* want;
  } cases[] = {
    { "alignment",
      { .kind = TIDE_VALUE_INT, .integer = 8 },
      "id,lower,upper,size,alignment\n0,0,2,0,8\n1,1,2,0,1\n" },
    { "alignment", { .kind = TIDE_VALUE_INT, .integer = 0 }, HEADER "0,0,2,0\n1,1,2,0\n" },
    { "hint",
      { .kind = TIDE_VALUE_INT, .integer = 64 },
      "id,lower,upper,size,hint\n0,0,2,0,64\n1,1,2,0,-1\n" },
    { "hint", { .kind = TIDE_VALUE_FLOAT, .number = 1 }, HEADER "0,0,2,0\n1,1,2,0\n" },
    { "offset", { .kind = TIDE_VALUE_INT, .integer = 8 }, HEADER "0,0,2,0\n1,1,2,0\n" },  // not for all
    { "gaps", { .kind = TIDE_VALUE_INT, .integer = 8 }, HEADER "0,0,2,0\n1,1,2,0\n" },
    { "minimalloc_row",
      { .kind = TIDE_VALUE_INT, .integer = 8 },
      HEADER "0,0,2,0\n1,1,2,0\n" },  // not for all
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tide_trace* const trace = memory_trace_new();
    const uint32_t extra = memory_add_dict(trace, cases[i].key, &cases[i].value);
    const tide_trace_entry first = { .address = 1, .note = memory_add_note(trace, "", extra) };
    memory_add(trace, &first);
    memory_add_plain(trace, TIDE_ACTION_ALLOC, 2, 0);
    memory_expect_text(tide__minimalloc_write, trace, cases[i].want);
    tide_trace_free(trace);
  }
}

T_TEST(test_minimalloc__writes_no_gaps_that_are_none) {
  tide_trace* const trace = memory_trace_new();
  const tide_value value = { .kind = TIDE_VALUE_TEXT, .text = memory_add_text(trace, "1-2,3\n4") };
  const uint32_t extra = memory_add_dict(trace, "gaps", &value);
  const tide_trace_entry entry = { .note = memory_add_note(trace, "", extra) };
  memory_add(trace, &entry);

  memory_expect_text(tide__minimalloc_write, trace, HEADER "0,0,1,0\n");
  tide_trace_free(trace);
}

T_TEST(test_minimalloc__holds_one_device) {
  tide_trace* const trace = memory_trace_new();
  T_OK(tide_trace_add_device(trace, 1));
  tide_trace_entry entry = { .address = 1, .device = 1 };
  memory_add(trace, &entry);
  memory_expect_text(tide__minimalloc_write, trace, HEADER "0,0,1,0\n");
  entry.device = 0;
  memory_add(trace, &entry);

  memory_sink sink = { NULL, 0, SIZE_MAX };
  T_STATUS(memory_write(tide__minimalloc_write, trace, &tide__system_heap, &sink), TIDE_ERR_LIMIT);

  tide_trace_free(trace);
}

T_TEST(test_minimalloc__fails_cleanly) {
  tide_trace* const trace = memory_trace_of(tide__minimalloc_read, SMALL);
  memory_fail_reads(tide__minimalloc_read, SMALL);
  memory_fail_sources(tide__minimalloc_read, SMALL);
  memory_fail_writes(tide__minimalloc_write, trace);
  memory_fail_sinks(tide__minimalloc_write, trace);
  tide_trace_free(trace);
}

// ---------------------------------------------------------------------------------------------------
// Public problems

static char* file_text(const char* path) {
  FILE* const file = fopen(path, "rb");
  char* const text = calloc(1, (size_t)1 << 20);
  T_CHECK(file != NULL && text != NULL);
  const size_t bytes = fread(text, 1, ((size_t)1 << 20) - 1, file);
  T_CHECK(bytes > 0 && bytes < ((size_t)1 << 20) - 1);
  (void)fclose(file);
  return text;
}

T_TEST(test_minimalloc__gives_public_problems_back) {
  char folder[1024];
  const char* const data = getenv("TIDEMARK_DATA");
  if (data == NULL || *data == '\0') t_skip("TIDEMARK_DATA is not set");
  (void)snprintf(folder, sizeof folder, "%s/planner", data);
  DIR* const dir = opendir(folder);
  if (dir == NULL) t_skip("there is no %s", folder);
  size_t count = 0;
  for (const struct dirent* entry = NULL; (entry = readdir(dir)) != NULL;) {
    char path[2048];
    if (strstr(entry->d_name, ".csv") == NULL) continue;
    (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    char* const text = file_text(path);
    memory_expect_rewritten(tide__minimalloc_read, tide__minimalloc_write, text, text);
    free(text);
    count++;
  }
  T_LT(0, count);
  (void)closedir(dir);
}
