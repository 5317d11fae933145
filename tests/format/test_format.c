// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tide_trace_read() and tide_trace_write() for all formats: detection, sources and sinks that return little
// or fail, a heap that fails at each call, the memory limit, and progress.
#include "machine/counting_heap.h"
#include "notation.h"

// ---------------------------------------------------------------------------------------------------
// Formats

T_TEST(test_format__every_format_is_found_by_its_name) {
  for (uint32_t i = 0; i < TIDE_FORMAT_COUNT; i++) {
    const tide_format_info info = tide_format_describe(i);
    T_CHECK(info.name != NULL && info.ending != NULL && info.text != NULL);
    T_EQ(tide_format_from_name(info.name), (int)i);
  }
  T_EQ(tide_format_from_name("pickl"), -1);
  T_EQ(tide_format_from_name(""), -1);
  T_EQ(tide_format_from_name(NULL), -1);
  T_PTR_EQ(tide_format_describe(TIDE_FORMAT_COUNT).name, NULL);
  T_PTR_EQ(tide_format_describe(UINT32_MAX).ending, NULL);
}

T_TEST(test_format__is_detected_from_the_first_bytes) {
  static const struct {
    const char* head;
    int format;
  } cases[] = {
    { "id,lower,upper,size\n1,0,1,5\n", TIDE_FORMAT_MINIMALLOC },
    { "size,end,start,buffer\r\n", TIDE_FORMAT_MINIMALLOC },
    { "Thread,Time,Action,Pointer,Size,Stream\n", TIDE_FORMAT_RMM },
    { "{\"segments\": []}", TIDE_FORMAT_JSON },
    { "\x80\x04", TIDE_FORMAT_PICKLE },
    { "id,lower,upper\n", -1 },
    { "x", -1 },
    { "", -1 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    T_EQ(tide_format_detect(cases[i].head, strlen(cases[i].head)), cases[i].format);
  }
  T_EQ(tide_format_detect(NULL, 0), -1);
}

T_TEST(test_format__an_empty_file_is_refused) {
  memory_file file = { 0 };
  tide_trace* trace = (tide_trace*)&file;
  T_STATUS(file_read(&file, NULL, &trace), TIDE_ERR_FORMAT);
  T_PTR_EQ(trace, NULL);
  T_STR_HAS(tide_last_error()->text, "empty");
}

T_TEST(test_format__unknown_bytes_are_refused) {
  static const char* const texts[] = { "x",
                                       "PK\x03\x04",
                                       "\x1f\x8b\x08",
                                       "\x80\x06}.",
                                       "\x80\x01}.",
                                       "\x80",
                                       " ",
                                       "\n\n",
                                       "(dp0\n.",
                                       "nothing like a snapshot",
                                       "\xef\xbb\xbf",
                                       "\"a\"",
                                       "1" };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) expect_refused(file_of_text(texts[i]), "");
  expect_refused(file_of("\0\0\0\0", 4), "0x00 0x00");
}

T_TEST(test_format__json_may_begin_with_blanks) {
  for (size_t blanks = 0; blanks < 4000; blanks = 3 * blanks + 1) {
    memory_file file = { 0 };
    for (size_t i = 0; i < blanks; i++) file_add_text(&file, i % 2 == 0 ? "\n" : " ");
    file_add_text(&file, "{\"segments\": []}");
    expect_json(file, "{\"segments\": []}");
  }
}

// Detection must not depend on how many bytes the source returns at once.
T_TEST(test_format__many_blanks_are_judged_alike_from_any_source) {
  for (size_t blanks = 4090; blanks < 4100; blanks++) {
    memory_file file = { 0 };
    for (size_t i = 0; i < blanks; i++) file_add_text(&file, " ");
    file_add_text(&file, "{\"segments\": []}");
    tide_trace* trace = NULL;
    const tide_status whole = file_read(&file, NULL, &trace);
    tide_trace_free(trace);
    file.piece = 1;
    T_STATUS(file_read(&file, NULL, &trace), whole);
    tide_trace_free(trace);
    memory_file_fini(&file);
  }
}

T_TEST(test_format__a_named_format_is_not_guessed) {
  memory_file json = file_of_text("{\"segments\": []}");
  memory_file pickle = pickle_of("}( 'segments' ] u.");
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide_trace* trace = NULL;

  options.format = TIDE_FORMAT_PICKLE;
  T_STATUS(file_read(&json, &options, &trace), TIDE_ERR_FORMAT);
  T_OK(file_read(&pickle, &options, &trace));
  tide_trace_free(trace);
  options.format = TIDE_FORMAT_JSON;
  T_STATUS(file_read(&pickle, &options, &trace), TIDE_ERR_FORMAT);
  T_OK(file_read(&json, &options, &trace));
  tide_trace_free(trace);

  memory_file_fini(&json);
  memory_file_fini(&pickle);
}

T_TEST(test_format__refuses_bad_arguments) {
  memory_file file = file_of_text("{\"segments\": []}");
  const tide_source source = memory_file_source(&file);
  const tide_source no_source = { NULL, NULL };
  const tide_heap half = { counting_alloc, NULL, NULL };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide_trace* trace = (tide_trace*)&file;

  T_STATUS(tide_trace_read(&source, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_read(NULL, NULL, &trace), TIDE_ERR_ARGUMENT);
  T_PTR_EQ(trace, NULL);
  T_STATUS(tide_trace_read(&no_source, NULL, &trace), TIDE_ERR_ARGUMENT);
  options.size = 4;
  T_STATUS(tide_trace_read(&source, &options, &trace), TIDE_ERR_ARGUMENT);
  options = (tide_read_options)TIDE_READ_OPTIONS_INIT;
  options.heap = &half;
  T_STATUS(tide_trace_read(&source, &options, &trace), TIDE_ERR_ARGUMENT);
  for (uint32_t format = 0; format < TIDE_FORMAT_COUNT + 3; format++) {
    options = (tide_read_options)TIDE_READ_OPTIONS_INIT;
    options.format = format;
    const bool can_read = format >= TIDE_FORMAT_COUNT || tide_format_describe(format).can_read;
    if (format != TIDE_FORMAT_COUNT && (!can_read || format > TIDE_FORMAT_COUNT))
      T_STATUS(tide_trace_read(&source, &options, &trace), TIDE_ERR_ARGUMENT);
  }
  T_EQ(file.calls, 0);
  memory_file_fini(&file);
}

T_TEST(test_format__refuses_to_write_with_bad_arguments) {
  memory_file file = file_of_text("{\"segments\": []}");
  memory_file written = { 0 };
  const tide_sink sink = memory_file_sink(&written);
  const tide_sink no_sink = { NULL, NULL };
  tide_trace* const trace = trace_of(&file);

  T_STATUS(tide_trace_write(NULL, TIDE_FORMAT_JSON, &sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_write(trace, TIDE_FORMAT_JSON, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_write(trace, TIDE_FORMAT_JSON, &no_sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_write(trace, TIDE_FORMAT_COUNT, &sink), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_trace_write(trace, UINT32_MAX, &sink), TIDE_ERR_ARGUMENT);

  T_EQ(written.calls, 0);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// A file with something of everything, larger than the buffers of readers and writers

static void add_segment(memory_file* file, size_t i) {
  char text[512];
  (void)snprintf(
      text, sizeof text,
      "%s{\"device\": %zu, \"address\": %zu, \"total_size\": 2097152, \"segment_type\": \"%s\", "
      "\"segment_pool_id\": [0, %zu], \"is_expandable\": %s, \"stream\": %zu, \"odd\": [null, %zu], "
      "\"blocks\": [{\"address\": %zu, \"size\": 512, \"state\": \"active_allocated\", \"frames\": "
      "[{\"name\": \"f%zu\", \"filename\": \"a\", \"line\": 1}]}, {\"size\": 512, \"state\": \"?\"}]}",
      i == 0 ? "" : ", ", i % 3, i << 21, i % 2 == 0 ? "small" : "large", i % 5,
      i % 2 == 0 ? "true" : "false", i % 4, i, i << 21, i % 10);
  file_add_text(file, text);
}

static void add_entry(memory_file* file, size_t i) {
  char text[512];
  (void)snprintf(text, sizeof text,
                 "%s{\"action\": \"%s\", \"addr\": %zu, \"size\": %zu, \"stream\": 0, \"time_us\": %zu, "
                 "\"compile_context\": \"N/A\", \"user_metadata\": \"step %zu\", \"pool_id\": [0, %zu], "
                 "\"frames\": [{\"name\": \"f%zu\", \"filename\": \"a\\udc80b\", \"line\": %zu}], \"x\": "
                 "{\"y\": %zu.5}}",
                 i == 0 ? "" : ", ", i % 3 == 0 ? "alloc" : "free_requested", 512 * i, i, 1000 + i, i / 100,
                 i % 5, i % 10, i % 7, i % 20);
  file_add_text(file, text);
}

static memory_file json_large(size_t segments, size_t entries) {
  memory_file file = file_of_text("{\"segments\": [");
  for (size_t i = 0; i < segments; i++) add_segment(&file, i);
  file_add_text(&file, "], \"device_traces\": [[], [");
  for (size_t i = 0; i < entries; i++) add_entry(&file, i);
  file_add_text(&file, "], []], \"allocator_settings\": {\"a\": [1, 2.5, true, null, \"b\"]}, \"z\": -1}");
  return file;
}

static const char* const readable[] = { "pickle", "json", "tide", NULL };

// The large file in the format of this test's variant; the test is skipped if there is none yet.
static memory_file file_in_variant(size_t segments, size_t entries, uint32_t* out_format) {
  memory_file json = json_large(segments, entries);
  tide_trace* const trace = trace_of(&json);
  memory_file file = { 0 };
  const tide_sink sink = memory_file_sink(&file);
  *out_format = (uint32_t)tide_format_from_name(t_variant());
  const tide_status status = tide_trace_write(trace, *out_format, &sink);
  if (status == TIDE_ERR_ARGUMENT) t_skip("%s is not written", t_variant());
  T_OK(status);
  tide_trace_free(trace);
  memory_file_fini(&json);
  return file;
}

T_TEST_OVER(test_format__what_was_written_is_read_and_written_alike, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(200, 2000, &format);
  memory_file json = json_large(200, 2000);
  tide_trace* const trace = trace_of(&file);
  tide_trace* const first = trace_of(&json);

  expect_same_traces(trace, first);
  memory_file again = file_written(trace, format);
  expect_same_bytes(&file, &again);

  tide_trace_free(trace);
  tide_trace_free(first);
  memory_file_fini(&file);
  memory_file_fini(&json);
  memory_file_fini(&again);
}

// ---------------------------------------------------------------------------------------------------
// Sources and sinks

T_TEST_OVER(test_format__a_source_may_give_a_byte_at_a_time, readable) {
  static const size_t pieces[] = { 1, 2, 7, 4095, 131071, 131073 };
  uint32_t format = 0;
  memory_file file = file_in_variant(50, 1000, &format);
  tide_trace* const whole = trace_of(&file);
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    tide_trace* trace = NULL;
    file.piece = pieces[i];
    T_OK(file_read(&file, NULL, &trace));
    T_EQ(file.at, file.bytes);
    expect_same_traces(whole, trace);
    tide_trace_free(trace);
  }
  tide_trace_free(whole);
  memory_file_fini(&file);
}

// A source fails with a status that nobody recorded; the thread's last failure is an older one, or none.
T_TEST_OVER(test_format__the_failure_of_a_source_is_returned, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(5, 40, &format);
  file.piece = 61;
  for (file.fail_at = 1; file.fail_at * file.piece <= file.bytes; file.fail_at++) {
    tide_trace* trace = (tide_trace*)&file;
    T_STATUS(file_read(&file, NULL, &trace), MEMORY_FILE_FAILURE);
    T_PTR_EQ(trace, NULL);
    T_EQ(file.calls, file.fail_at);  // and it is not asked again
  }
  T_LT(20, file.fail_at);
  memory_file_fini(&file);
}

T_TEST_OVER(test_format__the_failure_of_a_sink_is_returned, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(300, 2000, &format);
  tide_trace* const trace = trace_of(&file);
  size_t fail_at = 1;
  for (bool has_failed = true; has_failed; fail_at++) {
    memory_file part = { .fail_at = fail_at };
    const tide_sink sink = memory_file_sink(&part);
    const tide_status status = tide_trace_write(trace, format, &sink);
    has_failed = part.calls >= fail_at;
    T_STATUS(status, has_failed ? MEMORY_FILE_FAILURE : TIDE_OK);
    T_LE(part.calls, fail_at);  // nothing is written after a failure
    T_LE(part.bytes, file.bytes);
    if (part.bytes > 0) T_EQ(memcmp(part.data, file.data, part.bytes), 0);
    memory_file_fini(&part);
  }
  T_LT(2, fail_at);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// Each list has the one before twice: 2^26 parts and more, which is within what may be written out.
static memory_file pickle_of_doubled_lists(void) {
  memory_file file = pickle_of("}( 'segments' ] 'x' ](N^");
  for (int level = 0; level < 26; level++) {
    char part[32];
    (void)snprintf(part, sizeof part, "](h%dh%de^", level, level);
    file_add_pickle(&file, part);
  }
  file_add_pickle(&file, "eu.");
  return file;
}

T_TEST(test_format__a_sink_that_fails_ends_the_writing) {
  memory_file file = pickle_of_doubled_lists();
  tide_trace* const trace = trace_of(&file);
  memory_file part = { .fail_at = 1 };
  const tide_sink sink = memory_file_sink(&part);
  const uint64_t begin = t_processor_ns();

  T_STATUS(tide_trace_write(trace, TIDE_FORMAT_JSON, &sink), MEMORY_FILE_FAILURE);

  T_LT((t_processor_ns() - begin) / 1000000u, 500);
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// A sink may record a failure of its own; its text must stay.
static tide_status sink_refuses(void* user, const void* data, size_t bytes) {
  tide_trace* out = NULL;
  (void)user;
  (void)data;
  (void)bytes;
  return tide_trace_read(NULL, NULL, &out);  // TIDE_ERR_ARGUMENT, in words of the reader
}

T_TEST_OVER(test_format__the_words_of_a_failing_sink_stay, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(500, 10, &format);
  tide_trace* const trace = trace_of(&file);
  const tide_sink sink = { sink_refuses, NULL };

  T_STATUS(tide_trace_write(trace, format, &sink), TIDE_ERR_ARGUMENT);

  T_STR_HAS(tide_last_error()->text, "trace_read");
  tide_trace_free(trace);
  memory_file_fini(&file);
}

typedef struct greedy_source {
  size_t calls;
} greedy_source;

static tide_status source_lies(void* user, void* out, size_t room, size_t* out_bytes) {
  ((greedy_source*)user)->calls++;
  memset(out, ' ', room);
  *out_bytes = room + 1;
  return TIDE_OK;
}

T_TEST(test_format__a_source_that_claims_too_much_is_refused) {
  greedy_source greedy = { 0 };
  const tide_source source = { source_lies, &greedy };
  tide_trace* trace = NULL;
  T_STATUS(tide_trace_read(&source, NULL, &trace), TIDE_ERR_ARGUMENT);
  T_EQ(greedy.calls, 1);
}

// ---------------------------------------------------------------------------------------------------
// Memory

static tide_status read_with_fault(memory_file* file, counting_heap* h, tide_trace** out) {
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  options.heap = &h->heap;
  return file_read(file, &options, out);
}

// Every allocation fails once; then it and all after it.
T_TEST_OVER(test_format__reading_may_fail_at_any_alloc, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(70, 80, &format);
  tide_trace* const whole = trace_of(&file);
  size_t fail_at = 0;
  for (bool has_failed = true; has_failed; fail_at++) {
    for (int is_exhausted = 0; is_exhausted < 2; is_exhausted++) {
      counting_heap h;
      tide_trace* trace = NULL;
      counting_heap_init(&h, fail_at, is_exhausted != 0);
      const tide_status status = read_with_fault(&file, &h, &trace);
      has_failed = atomic_load(&h.has_failed);
      T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
      atomic_store(&h.fail_at, SIZE_MAX);
      h.is_exhausted = false;
      if (status == TIDE_OK) expect_same_traces(whole, trace);
      tide_trace_free(trace);
      T_EQ(atomic_load(&h.outstanding), 0);
    }
  }
  T_LT(30, fail_at);
  tide_trace_free(whole);
  memory_file_fini(&file);
}

// The last device has an empty list, which is the only sign of it.
T_TEST(test_format__no_device_is_lost_without_memory) {
  memory_file file = pickle_of("}( 'segments' ] 'device_traces' ](] eu.");
  bool has_failed = true;
  for (size_t fail_at = 0; has_failed; fail_at++) {
    counting_heap h;
    tide_trace* trace = NULL;
    counting_heap_init(&h, fail_at, false);
    const tide_status status = read_with_fault(&file, &h, &trace);
    has_failed = atomic_load(&h.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(tide_trace_device_count(trace), has_failed ? 0 : 1);
    tide_trace_free(trace);
  }
  memory_file_fini(&file);
}

T_TEST_OVER(test_format__writing_may_fail_at_any_alloc, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(70, 80, &format);
  counting_heap h;
  tide_trace* trace = NULL;
  counting_heap_init(&h, SIZE_MAX, false);
  T_OK(read_with_fault(&file, &h, &trace));
  const size_t held = atomic_load(&h.outstanding);
  size_t fail_at = 0;
  for (bool has_failed = true; has_failed; fail_at++) {
    memory_file again = { 0 };
    const tide_sink sink = memory_file_sink(&again);
    atomic_store(&h.has_failed, false);
    atomic_store(&h.fail_at, atomic_load(&h.allocs) + fail_at);
    const tide_status status = tide_trace_write(trace, format, &sink);
    has_failed = atomic_load(&h.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(atomic_load(&h.outstanding), held);
    if (!has_failed) expect_same_bytes(&again, &file);
    memory_file_fini(&again);
  }
  T_LT(1, fail_at);
  tide_trace_free(trace);
  T_EQ(atomic_load(&h.outstanding), 0);
  memory_file_fini(&file);
}

// A heap that knows the most it ever gave.
typedef struct peak_heap {
  counting_heap counting;
  tide_heap heap;
  size_t peak;
} peak_heap;

static void* peak_alloc(void* user, size_t bytes, size_t alignment) {
  peak_heap* const p = user;
  void* const address = counting_alloc(&p->counting, bytes, alignment);
  const size_t now = atomic_load(&p->counting.outstanding);
  if (now > p->peak) p->peak = now;
  return address;
}

static void peak_release(void* user, void* address, size_t bytes) {
  counting_release(&((peak_heap*)user)->counting, address, bytes);
}

static tide_status read_with_limit(memory_file* file, peak_heap* p, uint64_t limit, tide_trace** out) {
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  *p = (peak_heap){ .heap = { peak_alloc, peak_release, p } };
  counting_heap_init(&p->counting, SIZE_MAX, false);
  options.heap = &p->heap;
  options.memory = limit;
  return file_read(file, &options, out);
}

#define TRACE_RECORD 4096u  // the trace's own record is not counted

T_TEST_OVER(test_format__reading_takes_no_more_than_the_limit, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(300, 3000, &format);
  size_t refused = 0;
  tide_status status = TIDE_ERR_LIMIT;
  for (uint64_t limit = 0; status != TIDE_OK; limit += 1 + limit / 8) {
    peak_heap p;
    tide_trace* trace = NULL;
    status = read_with_limit(&file, &p, limit, &trace);
    T_LE(p.peak, limit + TRACE_RECORD);
    if (status != TIDE_OK) {
      T_STATUS(status, TIDE_ERR_LIMIT);
      T_PTR_EQ(trace, NULL);
      refused++;
    }
    tide_trace_free(trace);
    T_EQ(atomic_load(&p.counting.outstanding), 0);
    T_LT(limit, (uint64_t)100 << 20);
  }
  T_LT(10, refused);
  memory_file_fini(&file);
}

// The limit is one of reading: what was read can be written, and added to.
T_TEST_OVER(test_format__the_limit_ends_with_reading, readable) {
  uint32_t format = 0;
  memory_file file = file_in_variant(100, 1000, &format);
  peak_heap p;
  tide_trace* trace = NULL;
  uint64_t limit = 1;
  while (read_with_limit(&file, &p, limit, &trace) != TIDE_OK) limit += 1 + limit / 64;
  const tide_trace_entry entry = { .device = 0 };

  memory_file again = file_written(trace, format);
  for (size_t i = 0; i < 100000; i++) T_OK(tide_trace_add_entry(trace, &entry));

  expect_same_bytes(&file, &again);
  tide_trace_free(trace);
  memory_file_fini(&again);
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// Progress

typedef struct progress {
  uint64_t last;
  size_t calls;
  size_t stop_at;  // the call that ends the reading
} progress;

static bool progress_note(void* user, uint64_t bytes) {
  progress* const p = user;
  T_LT(p->last, bytes);
  p->last = bytes;
  return p->calls++ != p->stop_at;
}

static tide_trace* trace_of_random_entries(size_t count) {
  t_rng rng = t_rng_new(0);
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  for (size_t i = 0; i < count; i++) {
    const tide_trace_entry entry = { .time_ns = t_rng_next(&rng) >> 8,
                                     .address = t_rng_next(&rng),
                                     .bytes = t_rng_next(&rng) >> 24 };
    T_OK(tide_trace_add_entry(trace, &entry));
  }
  return trace;
}

T_TEST_OVER(test_format__progress_is_told_and_can_end_the_reading, readable) {
  tide_trace* const random = trace_of_random_entries(strcmp(t_variant(), "tide") == 0 ? 150000 : 45000);
  memory_file file = file_written(random, (uint32_t)tide_format_from_name(t_variant()));
  progress told = { .stop_at = SIZE_MAX };
  tide_read_options options = TIDE_READ_OPTIONS_INIT;
  tide_trace* trace = NULL;
  options.on_progress = progress_note;
  options.user = &told;
  T_LT(2u << 20, file.bytes);
  tide_trace_free(random);

  T_OK(file_read(&file, &options, &trace));
  tide_trace_free(trace);

  T_LT(1, told.calls);
  T_LE(told.last, file.bytes);
  const size_t calls = told.calls;
  for (size_t stop_at = 0; stop_at < calls; stop_at += 1 + calls / 4) {
    told = (progress){ .stop_at = stop_at };
    T_STATUS(file_read(&file, &options, &trace), TIDE_ERR_STATE);
    T_PTR_EQ(trace, NULL);
    T_EQ(told.calls, stop_at + 1);
    char words[64];
    (void)snprintf(words, sizeof words, "%" PRIu64, told.last);
    T_STR_HAS(tide_last_error()->text, words);
  }
  memory_file_fini(&file);
}

// ---------------------------------------------------------------------------------------------------
// Traces that no file was read to

// Such a trace is no snapshot yet, so the one that is read differs in what is said of it.
static void expect_same_written(const tide_trace* trace) {
  for (uint32_t format = TIDE_FORMAT_PICKLE; format <= TIDE_FORMAT_JSON; format++) {
    memory_file file = file_written(trace, format);
    tide_trace* const again = trace_of(&file);
    memory_file second = file_written(again, format);
    expect_same_bytes(&file, &second);
    tide_trace_free(again);
    memory_file_fini(&file);
    memory_file_fini(&second);
  }
}

T_TEST(test_format__a_trace_from_an_allocator_is_a_snapshot) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  const tide_trace_entry entry = { .time_ns = 5000, .address = 512, .bytes = 100, .device = 1 };
  const tide_trace_segment segment = { .address = 512, .bytes = 2048 };
  const tide_trace_block block = { .address = 512, .bytes = 2048 };
  T_OK(tide_trace_add_entry(trace, &entry));
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &block));

  expect_trace_json(
      __FILE__, __LINE__, trace,
      "{\"segments\": [{\"device\": 0, \"address\": 512, \"total_size\": 2048, \"allocated_size\": 0, "
      "\"active_size\": 0, \"requested_size\": 0, \"stream\": 0, \"segment_type\": \"small\", "
      "\"segment_pool_id\": [0, 0], \"is_expandable\": false, \"frames\": [], \"blocks\": [{\"address\": "
      "512, "
      "\"size\": 2048, \"requested_size\": 0, \"state\": \"inactive\", \"frames\": []}]}], "
      "\"device_traces\": [[], "
      "[{\"action\": \"alloc\", \"addr\": 512, \"size\": 100, \"stream\": 0, \"time_us\": 5, "
      "\"compile_context\": "
      "\"\", \"user_metadata\": \"\", \"pool_id\": [0, 0], \"frames\": []}]]}");
  expect_same_written(trace);
  tide_trace_free(trace);
}

T_TEST(test_format__an_empty_trace_is_an_empty_snapshot) {
  tide_trace* trace = NULL;
  T_OK(tide_trace_new(NULL, &trace));
  expect_trace_json(__FILE__, __LINE__, trace, "{\"segments\": [], \"device_traces\": []}");
  expect_same_written(trace);
  tide_trace_free(trace);
}

static void write_anyhow(tide_trace* trace) {
  memory_file file = { 0 };
  const tide_sink sink = memory_file_sink(&file);
  T_ANY(tide_trace_write(trace, (uint32_t)tide_format_from_name(t_variant()), &sink));
  tide_trace_free(trace);
  memory_file_fini(&file);
}

// Numbers that are not in the trace's table: wrong, but no reason to crash.
T_TEST_OVER(test_format__unknown_numbers_do_no_harm, readable) {
  tide_trace* trace = NULL;
  const tide_trace_entry entry = { .stack = 77, .note = 78, .pool = 79 };
  const tide_trace_segment segment = { .stack = 7, .pool = 99, .extra = 5 };
  const tide_trace_block block = { .stack = 7, .extra = 500 };
  const tide_trace_about about = { .settings = 9, .annotations = 10, .extra = 11 };
  T_OK(tide_trace_new(NULL, &trace));
  T_OK(tide_trace_add_entry(trace, &entry));
  T_OK(tide_trace_add_segment(trace, &segment));
  T_OK(tide_trace_add_block(trace, &block));
  tide_trace_set_about(trace, &about);
  write_anyhow(trace);
}

T_TEST_OVER(test_format__unknown_actions_and_states_do_no_harm, readable) {
  tide_trace* trace = NULL;
  const tide_trace_entry entry = { .action = 250 };
  const tide_trace_segment segment = { .address = 1 };
  const tide_trace_block block = { .state = 200 };
  T_OK(tide_trace_new(NULL, &trace));
  T_ANY(tide_trace_add_entry(trace, &entry));
  T_OK(tide_trace_add_segment(trace, &segment));
  T_ANY(tide_trace_add_block(trace, &block));
  write_anyhow(trace);
}

// ---------------------------------------------------------------------------------------------------
// Files of other kinds

static void expect_named(memory_file file, const char* kind, const char* wanted) {
  tide_trace* trace = NULL;
  T_STATUS(file_read(&file, NULL, &trace), TIDE_ERR_FORMAT);
  T_STR_HAS(tide_last_error()->text, kind);
  T_STR_HAS(tide_last_error()->text, wanted);
  memory_file_fini(&file);
}

#define SNAPSHOT "torch.cuda.memory._dump_snapshot()"

T_TEST(test_format__a_wrong_file_was_not_named_for_what_it_is) {
  static const char archive[] = "PK\x03\x04 0123456789012345678901234567archive/data.pkl";
  static const char legacy[] = "\x80\x02\x8a\x0al\xfc\x9c"
                               "F\xf9 j\xa8P\x19.";
  expect_named(file_of(archive, sizeof archive - 1), "an archive of torch.save()", SNAPSHOT);
  expect_named(file_of(archive, 20), "a zip archive", SNAPSHOT);
  expect_named(file_of(legacy, sizeof legacy - 1), "one of torch.save()", SNAPSHOT);
  expect_named(file_of_text("name,time,bytes\na,1,2\n"), "the columns \"name,time,bytes\"",
               "id,lower,upper,size");
  expect_named(file_of_text("id,lower,size\na,1,2\n"), "the columns \"id,lower,size\"",
               "id,lower,upper,size");
  expect_named(file_of_text("{\"\": 1, \"traceEvents\": []}"), "the timeline of a profiler", SNAPSHOT);
  expect_named(file_of_text("<!DOCTYPE html>"), "HTML", SNAPSHOT);
  expect_named(file_of("\x01\x02", 2), "it begins with 0x01 0x02", SNAPSHOT);
}

T_TEST(test_format__a_pickle_of_objects_was_not_named_for_what_it_is) {
  static const uint8_t codes[] = { 'c', 'i', 'o', 'R', 'b', 'P', 'Q', 0x81, 0x92, 0x93 };
  for (size_t i = 0; i < sizeof codes; i++) {
    const uint8_t bytes[] = { 0x80, 4, '}', codes[i], '.' };
    expect_named(file_of(bytes, sizeof bytes), "a pickle of objects, as torch.save() writes it", SNAPSHOT);
  }
}
