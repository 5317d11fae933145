// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Writes a file or to standard output, compressed if the name says so. A file is written under a temporary
// name in the same folder and then renamed, so a failure or a signal leaves the old file unchanged. Anything
// but an ordinary file (a pipe, /dev/null) is written directly. All write errors are reported, including
// those on close.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "codec.h"
#include "tool.h"

#define OUTPUT_BUFFER 65536
#define TEMPORARY_ENDING ".XXXXXX"

typedef struct output {
  int descriptor;           // -1: none
  bool is_standard;         // standard output, which stays open
  char* target;             // owned: the final path, with links followed; NULL: written directly
  char* temporary;          // owned: the temporary path
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
  while (bytes > 0) {
    const ssize_t done = write(out->descriptor, data, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "cannot be written: %s", strerror(errno));
    data += done;
    bytes -= (size_t)done;
    out->written_bytes += (uint64_t)done;
  }
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

static char* volatile unfinished;  // the temporary file to remove when a signal ends the program

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
static void unfinished_guard(char* path) {
  struct sigaction action = { .sa_handler = path == NULL ? SIG_DFL : unfinished_remove };
  deadly_set(&action.sa_mask);
  unfinished = path;
  for (size_t i = 0; i < DEADLY_COUNT; i++) {
    struct sigaction now;
    if (sigaction(deadly_signals[i], NULL, &now) != 0 || now.sa_handler == SIG_IGN) continue;
    (void)sigaction(deadly_signals[i], &action, NULL);
  }
}

// Creates the temporary file. Signals are blocked until the file is guarded.
static int temporary_make(char* path) {
  sigset_t deadly;
  sigset_t before;
  deadly_set(&deadly);
  (void)sigprocmask(SIG_BLOCK, &deadly, &before);
  const int descriptor = mkstemp(path);
  if (descriptor >= 0) unfinished_guard(path);
  (void)sigprocmask(SIG_SETMASK, &before, NULL);
  return descriptor;
}

// The mode of the file that is replaced, or that of a new file.
static mode_t target_mode(const char* target) {
  struct stat about;
  if (stat(target, &about) == 0) return about.st_mode & 07777;
  const mode_t mask = umask(0);
  (void)umask(mask);
  return 0666 & ~mask;
}

static tide_status temporary_open(output* out, const char* path) {
  out->target = realpath(path, NULL);
  if (out->target == NULL) out->target = strdup(path);
  if (out->target == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "out of memory for a file name");
  const size_t bytes = strlen(out->target) + sizeof TEMPORARY_ENDING;
  out->temporary = tool_alloc(bytes, 1);
  (void)snprintf(out->temporary, bytes, "%s%s", out->target, TEMPORARY_ENDING);
  out->descriptor = temporary_make(out->temporary);
  if (out->descriptor >= 0) {
    (void)fchmod(out->descriptor, target_mode(out->target));
    return TIDE_OK;
  }
  const int error = errno;
  free(out->temporary);
  out->temporary = NULL;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, error, "cannot be created: %s", strerror(error));
}

static tide_status output_open(output* out, const char* path) {
  struct stat about;
  if (strcmp(path, "-") == 0) {
    out->descriptor = STDOUT_FILENO;
    out->is_standard = true;
    return TIDE_OK;
  }
  const bool is_there = stat(path, &about) == 0;
  TIDE_REQUIRE(!is_there || !S_ISDIR(about.st_mode), TIDE_ERR_ARGUMENT, "is a directory");
  if (!is_there || S_ISREG(about.st_mode)) return temporary_open(out, path);
  out->descriptor = open(path, O_WRONLY | O_CLOEXEC);
  if (out->descriptor >= 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "cannot be opened: %s", strerror(errno));
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

// Writes the rest and renames the file.
static tide_status output_finish(output* out) {
  TIDE_TRY(buffer_drain(out, true));
  const int descriptor = out->descriptor;
  out->descriptor = -1;
  if (!out->is_standard && close(descriptor) != 0)
    return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "cannot be written: %s", strerror(errno));
  if (out->temporary == NULL) return TIDE_OK;
  if (rename(out->temporary, out->target) != 0)
    return TIDE_FAIL_NATIVE(TIDE_ERR_MACHINE, errno, "cannot be replaced: %s", strerror(errno));
  unfinished_guard(NULL);
  free(out->temporary);
  out->temporary = NULL;
  return TIDE_OK;
}

// Removes an unfinished file.
static void output_free(output* out) {
  if (out->codec != NULL && out->codec->stop != NULL) out->codec->stop(out->encoder);
  if (out->descriptor >= 0 && !out->is_standard) (void)close(out->descriptor);
  if (out->temporary != NULL) {
    (void)unlink(out->temporary);
    unfinished_guard(NULL);
  }
  tool_progress_end(out->progress);
  free(out->temporary);
  free(out->target);
  free(out);
}

int tool_file_write(const char* path, tool_file_writer* write, const void* what, uint64_t* out_bytes) {
  output* const out = tool_alloc(1, sizeof *out);
  out->descriptor = -1;
  out->progress = tool_progress_begin("writing");
  const tide_sink sink = { output_write, out };
  tide_status status = encoder_begin(out, path);
  if (status == TIDE_OK) status = output_open(out, path);
  if (status == TIDE_OK) status = write(what, &sink);
  if (status == TIDE_OK) status = output_finish(out);
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
