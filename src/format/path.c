// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Traces in files, by path.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "tidemark/format.h"

// Does the file name end with a dot and this ending, and have a stem before them?
static bool path_has_ending(const char* path, const char* ending) {
  const size_t bytes = strlen(path);
  const size_t length = strlen(ending);
  return bytes > length + 1 && path[bytes - length - 1] == '.' && path[bytes - length - 2] != '/' &&
         strcmp(path + bytes - length, ending) == 0;
}

int tide_format_from_path(const char* path) {
  int best = -1;
  size_t longest = 0;
  for (uint32_t i = 0; path != NULL && i < TIDE_FORMAT_COUNT; i++) {
    const char* const ending = tide_format_describe(i).ending;
    if (strlen(ending) <= longest || !path_has_ending(path, ending)) continue;
    longest = strlen(ending);
    best = (int)i;
  }
  return best;
}

tide_status tide_trace_load(const char* path, const tide_read_options* options, tide_trace** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "trace_load: out is NULL");
  *out = NULL;
  TIDE_REQUIRE(path != NULL, TIDE_ERR_ARGUMENT, "trace_load: the path is NULL");
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, errno, "trace_load: %s: %s", path, strerror(errno));
  const tide_source source = tide_source_file(file);
  const tide_status status = tide_trace_read(&source, options, out);
  (void)close(file);
  return status;
}

typedef struct formatted_trace {
  const tide_trace* trace;
  uint32_t format;
} formatted_trace;

static tide_status formatted_write(void* user, const tide_sink* sink) {
  const formatted_trace* const formatted = user;
  return tide_trace_write(formatted->trace, formatted->format, sink);
}

tide_status tide_trace_save(const tide_trace* trace, const char* path) {
  TIDE_REQUIRE(trace != NULL && path != NULL, TIDE_ERR_ARGUMENT, "trace_save: trace or path is NULL");
  const int format = tide_format_from_path(path);
  TIDE_REQUIRE(format >= 0, TIDE_ERR_ARGUMENT, "trace_save: %s: no format has this ending", path);
  formatted_trace formatted = { trace, (uint32_t)format };
  const tide__file_work work = { .write = formatted_write, .user = &formatted };
  const tide_status status = tide__file_save(path, &work);
  if (status == TIDE_OK) return TIDE_OK;
  const tide_error error = *tide_last_error();
  return TIDE_FAIL_NATIVE(status, error.native, "trace_save: %s: %s", path, error.text);
}
