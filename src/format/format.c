// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The table of formats and the public functions. Reading detects the format from the first bytes.
#include "tidemark/format.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/sized.h"
#include "format/decode.h"
#include "format/faults.h"
#include "format/native.h"
#include "format/others.h"
#include "format/problem.h"
#include "trace/limit.h"

typedef struct format_ops {
  bool (*is)(const void* head, size_t bytes);
  tide_status (*read)(tide__input* input, tide_trace* trace);
  tide_status (*write)(const tide_trace* trace, tide__output* output);
  uint32_t memory_times;  // bytes of memory that reading may take for each byte of a file
} format_ops;

// By number, which is also the order of detection. An entry takes 48 bytes of memory, and twice as much while
// its list grows. It has at least 40 bytes in a snapshot, 1 in a native file, and 8 in a planning problem.
static const format_ops formats[TIDE_FORMAT_COUNT] = {
  [TIDE_FORMAT_PICKLE] = { tide__pickle_is, tide__pickle_read, tide__pickle_write, 8 },
  [TIDE_FORMAT_JSON] = { tide__json_is, tide__json_read, tide__json_write, 8 },
  [TIDE_FORMAT_NATIVE] = { tide__native_is, tide__native_read, tide__native_write, 512 },
  [TIDE_FORMAT_RMM] = { tide__rmm_is, tide__rmm_read, tide__rmm_write, 512 },
  [TIDE_FORMAT_MINIMALLOC] = { tide__minimalloc_is, tide__minimalloc_read, tide__minimalloc_write, 512 },
  [TIDE_FORMAT_CHROME] = { NULL, NULL, tide__chrome_write, 0 },
  [TIDE_FORMAT_FOLDED] = { NULL, NULL, tide__folded_write, 0 },
  [TIDE_FORMAT_PPROF] = { NULL, NULL, tide__pprof_write, 0 },
};

tide_format_info tide_format_describe(uint32_t format) {
  static const tide_format_info infos[] = {
#define FORMAT_INFO(name, value, word, ending, reads, text) { word, ending, text, reads },
    TIDE_FORMAT_MAP(FORMAT_INFO)
#undef FORMAT_INFO
  };
  return format < TIDE_FORMAT_COUNT ? infos[format] : (tide_format_info){ 0 };
}

int tide_format_from_name(const char* name) {
  if (name == NULL) return -1;
  for (int i = 0; i < TIDE_FORMAT_COUNT; i++) {
    if (strcmp(name, tide_format_describe((uint32_t)i).name) == 0) return i;
  }
  return -1;
}

int tide_format_detect(const void* head, size_t bytes) {
  if (head == NULL || bytes == 0) return -1;
  for (int i = 0; i < TIDE_FORMAT_COUNT; i++) {
    if (formats[i].is != NULL && formats[i].is(head, bytes)) return i;
  }
  return -1;
}

// ---------------------------------------------------------------------------------------------------
// Reading

#define FORMAT_WANTED "; torch.cuda.memory._dump_snapshot() writes a memory snapshot"

static bool head_has(const void* head, size_t bytes, const char* part) {
  const size_t length = strlen(part);
  for (size_t i = 0; i + length <= bytes; i++) {
    if (memcmp((const char*)head + i, part, length) == 0) return true;
  }
  return false;
}

// The length of the first line if it is text with commas; otherwise 0.
static size_t head_columns(const uint8_t* head, size_t bytes) {
  size_t length = 0;
  while (length < bytes && head[length] >= ' ' && head[length] <= '~') length++;
  const bool is_line = length < bytes && (head[length] == '\n' || head[length] == '\r');
  return is_line && memchr(head, ',', length) != NULL ? length : 0;
}

// The kind of a file that no reader accepts, if its first bytes reveal it.
static const char* head_kind(const void* head, size_t bytes) {
  static const struct {
    const char* magic;
    size_t bytes;
    const char* text;
  } kinds[] = {
    { "PK\x03\x04", 4, "a zip archive" },
    { "BZh", 3, "compressed with bzip2, which is not read" },
    { "\x04\x22\x4d\x18", 4, "compressed with lz4, which is not read" },
    { "<", 1, "a page of HTML or XML" },
    { "SQLite format 3", 15, "a database of SQLite" },
    { "\x7f"
      "ELF",
      4, "a program or library" },
    { "\x89HDF", 4, "a file of HDF5" },
  };
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (bytes >= kinds[i].bytes && memcmp(head, kinds[i].magic, kinds[i].bytes) == 0) return kinds[i].text;
  }
  return NULL;
}

// Refuses a file that no reader accepts, and says what is expected.
static tide_status format_refuse(const uint8_t* head, size_t bytes) {
  const char* const kind = head_kind(head, bytes);
  if (kind != NULL && head[0] == 'P' && head_has(head, bytes, "data.pkl"))
    return TIDE_FAIL(TIDE_ERR_FORMAT,
                     "trace_read: the file is an archive of torch.save(), not a recording" FORMAT_WANTED);
  if (kind != NULL)
    return TIDE_FAIL(TIDE_ERR_FORMAT, "trace_read: the file is %s, not a recording" FORMAT_WANTED, kind);
  const size_t columns = head_columns(head, bytes);
  if (columns > 0)
    return TIDE_FAIL(TIDE_ERR_FORMAT,
                     "trace_read: the file is a table with the columns \"%.*s\"; an RMM log has "
                     "Thread,Time,Action,Pointer,"
                     "Size,Stream, a planning problem id,lower,upper,size",
                     (int)tide__min(columns, 80), (const char*)head);
  return TIDE_FAIL(
      TIDE_ERR_FORMAT,
      "trace_read: the format of the file is unknown: it begins with 0x%02x 0x%02x" FORMAT_WANTED, head[0],
      bytes > 1 ? head[1] : 0);
}

static tide_status format_find(tide__input* input, uint32_t* format) {
  if (*format != TIDE_FORMAT_COUNT) return TIDE_OK;
  TIDE_TRY(tide__input_fill(input, TIDE_FORMAT_HEAD));
  const size_t bytes = tide__min(tide__input_ready(input), TIDE_FORMAT_HEAD);
  TIDE_REQUIRE(bytes > 0, TIDE_ERR_FORMAT, "trace_read: the file is empty");
  const int found = tide_format_detect(input->buffer + input->at, bytes);
  if (found < 0) return format_refuse(input->buffer + input->at, bytes);
  *format = (uint32_t)found;
  return TIDE_OK;
}

static tide_status format_read(const tide_source* source, const tide_read_options* options,
                               tide_trace* trace) {
  tide__input input;
  uint32_t format = options->format;
  TIDE_TRY(tide__input_init(&input, source, tide__trace_heap(trace), options));
  tide_status status = format_find(&input, &format);
  if (status == TIDE_OK) {
    tide__input_limit(&input, tide__trace_limited_heap(trace), options->memory, formats[format].memory_times);
    status = formats[format].read(&input, trace);
  }
  tide__input_fini(&input);
  return status;
}

static tide_status read_check(const char* call, const tide_source* source, const tide_read_options* options,
                              tide_read_options* out_whole) {
  TIDE_REQUIRE(source != NULL && source->read != NULL, TIDE_ERR_ARGUMENT,
               "%s: source is NULL or has no function", call);
  if (options != NULL) TIDE_TRY(tide__sized_read(call, options, out_whole, sizeof *out_whole));
  TIDE_REQUIRE(tide__heap_is_valid(out_whole->heap), TIDE_ERR_ARGUMENT, "%s: the heap lacks a function",
               call);
  return TIDE_OK;
}

// The status of a failed call: TIDE_ERR_LIMIT if the limit refused memory.
static tide_status read_failure(const char* call, tide_status status, bool has_refused,
                                const tide_read_options* options) {
  if (status != TIDE_ERR_NO_MEMORY || !has_refused) return status;
  return TIDE_FAIL(
      TIDE_ERR_LIMIT,
      "%s: the file needs more memory than is plausible for its length, or than the limit of %llu bytes",
      call, (unsigned long long)options->memory);
}

tide_status tide_trace_read(const tide_source* source, const tide_read_options* options, tide_trace** out) {
  tide_read_options whole = TIDE_READ_OPTIONS_INIT;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "trace_read: out is NULL");
  *out = NULL;
  TIDE_TRY(read_check("trace_read", source, options, &whole));
  options = &whole;
  const bool is_known = options->format < TIDE_FORMAT_COUNT && formats[options->format].read != NULL;
  TIDE_REQUIRE(options->format == TIDE_FORMAT_COUNT || is_known, TIDE_ERR_ARGUMENT,
               "trace_read: format %u cannot be read", options->format);
  tide_trace* trace = NULL;
  const uint64_t first = tide__min(options->memory, TIDE__INPUT_MEMORY);
  TIDE_TRY(tide__trace_new_limited(tide__heap_or_system(options->heap), first, &trace));
  const tide_status status = format_read(source, options, trace);
  if (status == TIDE_OK) {
    tide__limited_heap_raise(tide__trace_limited_heap(trace), UINT64_MAX);
    *out = trace;
    return TIDE_OK;
  }
  const bool has_refused = tide__limited_heap_has_refused(tide__trace_limited_heap(trace));
  tide_trace_free(trace);
  return read_failure("trace_read", status, has_refused, options);
}

tide_status tide_problem_read(const tide_source* source, const tide_read_options* options,
                              tide_problem** out) {
  tide_read_options whole = TIDE_READ_OPTIONS_INIT;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "problem_read: out is NULL");
  *out = NULL;
  TIDE_TRY(read_check("problem_read", source, options, &whole));
  options = &whole;
  TIDE_REQUIRE(options->format == TIDE_FORMAT_COUNT || options->format == TIDE_FORMAT_MINIMALLOC,
               TIDE_ERR_ARGUMENT, "problem_read: format %u is not one of planning problems", options->format);
  const tide_heap* const heap = tide__heap_or_system(options->heap);
  tide__limited_heap limited;
  tide__input input;
  tide__limited_heap_init(&limited, heap, tide__min(options->memory, TIDE__INPUT_MEMORY));
  tide_status status = tide__input_init(&input, source, &limited.heap, options);
  if (status == TIDE_OK) {
    tide__input_limit(&input, &limited, options->memory, formats[TIDE_FORMAT_MINIMALLOC].memory_times);
    status = tide__problem_read(&input, out);
    tide__input_fini(&input);
  }
  if (status == TIDE_OK) (*out)->heap = heap;
  return read_failure("problem_read", status, tide__limited_heap_has_refused(&limited), options);
}

// ---------------------------------------------------------------------------------------------------
// Writing

static tide_status fault_fail(const char* row, size_t number, const char* fault) {
  TIDE_REQUIRE(fault == NULL, TIDE_ERR_LIMIT, "trace_write: %s %zu is not valid in a file: %s", row, number,
               fault);
  return TIDE_OK;
}

// Refuses what no reader would accept.
static tide_status trace_check(const tide_trace* trace) {
  size_t count = 0;
  for (size_t device = 0; device < tide_trace_device_count(trace); device++) {
    const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
    for (size_t i = 0; i < count; i++)
      TIDE_TRY(fault_fail("entry", i, tide__entry_fault(trace, &entries[i])));
  }
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) TIDE_TRY(fault_fail("segment", i, tide__segment_fault(&segments[i])));
  const tide_trace_block* const blocks = tide_trace_blocks(trace, &count);
  for (size_t i = 0; i < count; i++) TIDE_TRY(fault_fail("block", i, tide__block_fault(&blocks[i])));
  return TIDE_OK;
}

tide_status tide_trace_write(const tide_trace* trace, uint32_t format, const tide_sink* sink) {
  tide__output output;
  TIDE_REQUIRE(trace != NULL, TIDE_ERR_ARGUMENT, "trace_write: trace is NULL");
  TIDE_REQUIRE(sink != NULL && sink->write != NULL, TIDE_ERR_ARGUMENT,
               "trace_write: sink is NULL or has no function");
  TIDE_REQUIRE(format < TIDE_FORMAT_COUNT && formats[format].write != NULL, TIDE_ERR_ARGUMENT,
               "trace_write: there is no format %u", format);
  // A planning problem has rules of its own.
  if (formats[format].read != NULL && format != TIDE_FORMAT_MINIMALLOC) TIDE_TRY(trace_check(trace));
  TIDE_TRY(tide__output_init(&output, sink, tide__trace_heap(trace)));
  tide_status status = formats[format].write(trace, &output);
  if (status == TIDE_OK) status = tide__output_flush(&output);
  tide__output_fini(&output);
  return status;
}
