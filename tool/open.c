// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads a trace or a planning problem from a file or from standard input. Compression and format are detected
// from the first bytes. Data is decoded while it is read, directly into the reader's memory, so there is
// never a whole copy. Progress is the share of the file's bytes that were read.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "codec.h"
#include "tool.h"

#define INPUT_BUFFER 65536

// Limits on the decompressed size. Recordings compress to between a tenth and a thirtieth; a file that
// expands much more is probably an attack on memory and time.
#define UNPACKED_FIRST ((uint64_t)64 << 20)
#define UNPACKED_TIMES 256u
#define UNPACKED_MOST ((uint64_t)16 << 30)

static uint64_t unpacked_allowed;  // from --max-unpacked; 0: not given

void tool_unpacked_allow(uint64_t bytes) { unpacked_allowed = bytes; }

typedef struct input {
  int descriptor;
  const char* path;
  uint64_t file_bytes;      // 0: unknown
  uint64_t taken_bytes;     // read from the file so far
  uint64_t unpacked_bytes;  // decoded so far
  const tool_codec* codec;  // NULL: not compressed
  void* decoder;            // owned
  bool is_file_end;         // the file has been read completely
  bool is_end;              // all output of the decoder has been read
  size_t next;              // the buffer contains [next, filled)
  size_t filled;
  tool_progress* progress;  // owned
  size_t head_next;         // decoded bytes that were only peeked at: [head_next, head_bytes)
  size_t head_bytes;
  unsigned char head[TIDE_FORMAT_HEAD];
  unsigned char buffer[INPUT_BUFFER];
} input;

// Reads from the file; 0 bytes mean its end.
static tide_status file_read(input* in, void* out, size_t room, size_t* out_bytes) {
  ssize_t got = 0;
  do got = read(in->descriptor, out, room);
  while (got < 0 && errno == EINTR);
  if (got < 0) return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "cannot be read: %s", strerror(errno));
  *out_bytes = (size_t)got;
  in->is_file_end = got == 0;
  in->taken_bytes += (uint64_t)got;
  const double share = in->file_bytes == 0 ? -1 : (double)in->taken_bytes / (double)in->file_bytes;
  tool_progress_show(in->progress, share);
  return TIDE_OK;
}

static tide_status buffer_fill(input* in) {
  size_t got = 0;
  if (in->next == in->filled) in->next = in->filled = 0;
  TIDE_TRY(file_read(in, in->buffer + in->filled, INPUT_BUFFER - in->filled, &got));
  in->filled += got;
  return TIDE_OK;
}

static tide_status plain_read(input* in, void* out, size_t room, size_t* out_bytes) {
  const size_t kept = in->filled - in->next;
  if (kept == 0) return file_read(in, out, room, out_bytes);
  *out_bytes = kept < room ? kept : room;
  memcpy(out, in->buffer + in->next, *out_bytes);
  in->next += *out_bytes;
  return TIDE_OK;
}

// Runs one step of the decoder on the buffer, and adds to `out_bytes`.
static tide_status decoder_step(input* in, void* out, size_t room, size_t* out_bytes) {
  tool_flow flow = { in->buffer + in->next, in->filled - in->next, out, room, in->is_file_end, NULL };
  const size_t had_bytes = flow.in_bytes;
  const tool_flow_state state = in->codec->step(in->decoder, &flow);
  in->next = in->filled - flow.in_bytes;
  *out_bytes = room - flow.out_room;
  in->is_end = state == TOOL_FLOW_END;
  const unsigned long long at = in->taken_bytes - flow.in_bytes;
  if (state == TOOL_FLOW_BAD)
    return TIDE_FAIL(TIDE_ERR_FORMAT, "the %s data cannot be decoded near byte %llu: %s", in->codec->name, at,
                     flow.problem);
  const bool is_stuck = flow.in_bytes == had_bytes && *out_bytes == 0 && !in->is_end;
  if (is_stuck && (in->is_file_end || had_bytes > 0))
    return TIDE_FAIL(TIDE_ERR_FORMAT, "the %s data is truncated at byte %llu", in->codec->name, at);
  return TIDE_OK;
}

static uint64_t unpacked_limit(const input* in) {
  if (unpacked_allowed != 0) return unpacked_allowed;
  if (in->taken_bytes >= UNPACKED_MOST / UNPACKED_TIMES) return UNPACKED_MOST;
  const uint64_t by_size = UNPACKED_TIMES * in->taken_bytes;
  return by_size > UNPACKED_FIRST ? by_size : UNPACKED_FIRST;
}

static tide_status unpacked_count(input* in, size_t bytes) {
  char text[TOOL_SIZE_TEXT];
  const uint64_t limit = unpacked_limit(in);
  in->unpacked_bytes += bytes;
  TIDE_REQUIRE(in->unpacked_bytes <= limit, TIDE_ERR_LIMIT,
               "%llu bytes of %s data decompress to more than %s; --max-unpacked allows more",
               (unsigned long long)in->taken_bytes, in->codec->name, tool_size_text(limit, text));
  return TIDE_OK;
}

static tide_status decoded_read(input* in, void* out, size_t room, size_t* out_bytes) {
  while (*out_bytes == 0 && !in->is_end) {
    if (in->next == in->filled && !in->is_file_end) TIDE_TRY(buffer_fill(in));
    TIDE_TRY(decoder_step(in, out, room, out_bytes));
  }
  return unpacked_count(in, *out_bytes);
}

static tide_status input_decode(input* in, void* out, size_t room, size_t* out_bytes) {
  *out_bytes = 0;
  return in->codec == NULL ? plain_read(in, out, room, out_bytes) : decoded_read(in, out, room, out_bytes);
}

static tide_status input_read(void* user, void* out, size_t room, size_t* out_bytes) {
  input* const in = user;
  const size_t kept = in->head_bytes - in->head_next;
  if (kept == 0) return input_decode(in, out, room, out_bytes);
  *out_bytes = kept < room ? kept : room;
  memcpy(out, in->head + in->head_next, *out_bytes);
  in->head_next += *out_bytes;
  return TIDE_OK;
}

// Decodes the bytes that identify the format. They are read again afterwards.
static tide_status input_peek(input* in) {
  size_t got = 1;
  while (in->head_bytes < sizeof in->head && got > 0) {
    TIDE_TRY(input_decode(in, in->head + in->head_bytes, sizeof in->head - in->head_bytes, &got));
    in->head_bytes += got;
  }
  return TIDE_OK;
}

// Reads enough to detect the compression.
static tide_status input_begin(input* in) {
  while (in->filled < TOOL_MAGIC_BYTES && !in->is_file_end) TIDE_TRY(buffer_fill(in));
  in->codec = tool_codec_by_magic(in->buffer, in->filled);
  if (in->codec == NULL) return TIDE_OK;
  TIDE_REQUIRE(in->codec->start != NULL, TIDE_ERR_UNSUPPORTED,
               "is compressed with %s, but this program was built without %s", in->codec->name,
               in->codec->library);
  in->decoder = in->codec->start(false);
  TIDE_REQUIRE(in->decoder != NULL, TIDE_ERR_NO_MEMORY, "out of memory for the %s decoder", in->codec->name);
  return TIDE_OK;
}

static tide_status input_open(input* in) {
  in->descriptor = STDIN_FILENO;
  if (strcmp(in->path, "-") != 0) in->descriptor = open(in->path, O_RDONLY | O_CLOEXEC);
  if (in->descriptor < 0) return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "%s", strerror(errno));
  struct stat about;
  if (fstat(in->descriptor, &about) == 0 && S_ISREG(about.st_mode)) in->file_bytes = (uint64_t)about.st_size;
  return TIDE_OK;
}

static void input_close(input* in) {
  if (in->codec != NULL && in->codec->stop != NULL) in->codec->stop(in->decoder);
  if (in->descriptor > STDIN_FILENO) (void)close(in->descriptor);
  tool_progress_end(in->progress);
  free(in);
}

// Opens, reads and closes a file. With `out_problem`, a planning problem is read as such.
static tide_status file_load(const char* path, tide_problem** out_problem, tide_trace** out_trace) {
  input* const in = tool_alloc(1, sizeof *in);
  in->path = path;
  tide_status status = input_open(in);
  in->progress = tool_progress_begin("reading");
  if (status == TIDE_OK) status = input_begin(in);
  if (status == TIDE_OK && out_problem != NULL) status = input_peek(in);
  const tide_source source = { input_read, in };
  const bool is_problem = tide_format_detect(in->head, in->head_bytes) == TIDE_FORMAT_MINIMALLOC;
  if (status == TIDE_OK && is_problem) status = tide_problem_read(&source, NULL, out_problem);
  else if (status == TIDE_OK) status = tide_trace_read(&source, NULL, out_trace);
  input_close(in);
  return status;
}

// Reports a failure, or a truncated file.
static int file_report(const char* path, tide_status status, const tide_trace* trace) {
  const char* const name = strcmp(path, "-") == 0 ? "standard input" : path;
  if (status != TIDE_OK) return tool_fail("%s: %s", name, tool_error());
  if (tide_trace_get_about(trace).is_cut)
    tool_warn("%s: the end is missing or damaged; the answer covers the part before it", name);
  return TOOL_DONE;
}

tide_status tool_trace_load(const char* path, tide_trace** out) {
  *out = NULL;
  return file_load(path, NULL, out);
}

int tool_trace_read(const char* path, tide_trace** out) {
  const tide_status status = tool_trace_load(path, out);
  return file_report(path, status, *out);
}

int tool_problem_read(const char* path, tide_problem** out_problem, tide_trace** out_trace) {
  *out_problem = NULL;
  *out_trace = NULL;
  const tide_status status = file_load(path, out_problem, out_trace);
  return file_report(path, status, *out_trace);
}
