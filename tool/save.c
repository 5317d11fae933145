// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a file or to standard output, compressed if the name says so. A signal, too, leaves the old file
// unchanged, and no unfinished one.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "codec.h"
#include "tool.h"

#define OUTPUT_BUFFER 65536

typedef struct output {
  tool_file_writer* write;
  const void* what;         // borrowed for the call
  const tide_sink* to;      // borrowed for the call: the file
  const tool_codec* codec;  // NULL: not compressed
  void* encoder;            // owned
  tool_progress* progress;  // owned; the total is unknown
  uint64_t written_bytes;
  size_t filled;
  unsigned char buffer[OUTPUT_BUFFER];
  unsigned char coded[OUTPUT_BUFFER];
} output;

// ---------------------------------------------------------------------------------------------------
// Bytes

static tide_status file_write(output* out, const unsigned char* data, size_t bytes) {
  TIDE_TRY(out->to->write(out->to->user, data, bytes));
  out->written_bytes += bytes;
  tool_progress_show(out->progress, -1);
  return TIDE_OK;
}

// Sends the buffer through the encoder; at the end, until all output is written.
static tide_status encoder_drain(output* out, bool is_last) {
  tool_flow flow = { .in = out->buffer, .in_bytes = out->filled, .is_last = is_last };
  tool_flow_state state = TOOL_FLOW_MORE;
  while (state == TOOL_FLOW_MORE && (flow.in_bytes > 0 || is_last)) {
    flow.out = out->coded;
    flow.out_room = OUTPUT_BUFFER;
    state = out->codec->step(out->encoder, &flow);
    if (state == TOOL_FLOW_BAD)
      return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "cannot be compressed with %s: %s", out->codec->name,
                       flow.problem);
    TIDE_TRY(file_write(out, out->coded, OUTPUT_BUFFER - flow.out_room));
  }
  return TIDE_OK;
}

static tide_status buffer_drain(output* out, bool is_last) {
  TIDE_TRY(out->codec == NULL ? file_write(out, out->buffer, out->filled) : encoder_drain(out, is_last));
  out->filled = 0;
  return TIDE_OK;
}

static tide_status output_write(void* user, const void* data, size_t bytes) {
  output* const out = user;
  for (const unsigned char* at = data; bytes > 0;) {
    const size_t room = OUTPUT_BUFFER - out->filled;
    const size_t piece = bytes < room ? bytes : room;
    memcpy(out->buffer + out->filled, at, piece);
    out->filled += piece;
    at += piece;
    bytes -= piece;
    if (out->filled == OUTPUT_BUFFER) TIDE_TRY(buffer_drain(out, false));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Files

static const int deadly_signals[] = { SIGINT, SIGTERM, SIGHUP };
#define DEADLY_COUNT (sizeof deadly_signals / sizeof deadly_signals[0])

static const char* volatile unfinished;  // the temporary file to remove when a signal ends the program

static void deadly_set(sigset_t* out) {
  (void)sigemptyset(out);
  for (size_t i = 0; i < DEADLY_COUNT; i++) (void)sigaddset(out, deadly_signals[i]);
}

static void unfinished_remove(int number) {
  const char* path = unfinished;
  const struct sigaction usual = { .sa_handler = SIG_DFL };
  if (path != NULL) (void)unlink(path);
  (void)sigaction(number, &usual, NULL);
  (void)raise(number);
}

// An ignored signal (nohup) stays ignored. All signals are blocked in the handler: a second one would end the
// program before the file is removed.
static void unfinished_guard(const char* path) {
  struct sigaction action = { .sa_handler = path == NULL ? SIG_DFL : unfinished_remove };
  deadly_set(&action.sa_mask);
  unfinished = path;
  for (size_t i = 0; i < DEADLY_COUNT; i++) {
    struct sigaction now;
    if (sigaction(deadly_signals[i], NULL, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    (void)sigaction(deadly_signals[i], &action, NULL);
  }
}

static tide_status encoder_begin(output* out, const char* path) {
  out->codec = strcmp(path, "-") == 0 ? NULL : tool_codec_by_name(path, NULL);
  if (out->codec == NULL) return TIDE_OK;
  TIDE_REQUIRE(out->codec->start != NULL, TIDE_ERR_UNSUPPORTED,
               "cannot be compressed with %s: this program was built without %s", out->codec->name,
               out->codec->library);
  out->encoder = out->codec->start(true);
  TIDE_REQUIRE(out->encoder != NULL, TIDE_ERR_NO_MEMORY, "out of memory for the %s encoder",
               out->codec->name);
  return TIDE_OK;
}

static tide_status output_run(void* user, const tide_sink* to) {
  output* const out = user;
  const tide_sink sink = { output_write, out };
  out->to = to;
  TIDE_TRY(out->write(out->what, &sink));
  return buffer_drain(out, true);
}

static tide_status output_save(output* out, const char* path) {
  const tide__file_work work = { output_run, unfinished_guard, out };
  const tide_sink standard = tide__file_sink(STDOUT_FILENO);
  TIDE_TRY(encoder_begin(out, path));
  return strcmp(path, "-") == 0 ? output_run(out, &standard) : tide__file_save(path, &work);
}

static void output_free(output* out) {
  if (out->codec != NULL && out->codec->stop != NULL) out->codec->stop(out->encoder);
  tool_progress_end(out->progress);
  free(out);
}

int tool_file_write(const char* path, tool_file_writer* write, const void* what, uint64_t* out_bytes) {
  output* const out = tool_alloc(1, sizeof *out);
  out->write = write;
  out->what = what;
  out->progress = tool_progress_begin("writing");
  const tide_status status = output_save(out, path);
  if (out_bytes != NULL) *out_bytes = status == TIDE_OK ? out->written_bytes : 0;
  const char* name = strcmp(path, "-") == 0 ? "standard output" : path;
  if (status != TIDE_OK) (void)tool_fail("%s: %s", name, tool_error());
  output_free(out);
  return status == TIDE_OK ? TOOL_DONE : TOOL_USAGE;
}

// ---------------------------------------------------------------------------------------------------
// Traces

typedef struct formatted_trace {
  const tide_trace* trace;
  tide_format format;
} formatted_trace;

static tide_status formatted_trace_write(const void* what, const tide_sink* sink) {
  const formatted_trace* const formatted = what;
  return tide_trace_write(formatted->trace, (uint32_t)formatted->format, sink);
}

int tool_trace_write_counted(const tide_trace* trace, const char* path, tide_format format,
                             uint64_t* out_bytes) {
  const formatted_trace formatted = { trace, format };
  return tool_file_write(path, formatted_trace_write, &formatted, out_bytes);
}

int tool_trace_write(const tide_trace* trace, const char* path, tide_format format) {
  return tool_trace_write_counted(trace, path, format, NULL);
}
