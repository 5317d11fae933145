// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The error record of each thread, and the names and texts of statuses. A record has a fixed size, so setting
// it allocates nothing and cannot fail.
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local tide_error thread_error;

tide_status tide_error_set(tide_status status, int64_t native, const char* file, int line, const char* format,
                           ...) {
  // Printed to a copy first, because an argument may be the text of the last error.
  char text[sizeof thread_error.text];
  va_list arguments;
  va_start(arguments, format);
  if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = '\0';
  va_end(arguments);
  thread_error.status = status;
  thread_error.native = native;
  thread_error.file = file;
  thread_error.line = line;
  memcpy(thread_error.text, text, strlen(text) + 1);
  return status;
}

void tide__error_restore(const tide_error* error) {
  static const tide_error none = { .status = TIDE_OK };
  if (error->status == TIDE_OK && thread_error.status == TIDE_OK) return;  // nothing failed meanwhile
  thread_error = error->status != TIDE_OK ? *error : none;
}

const tide_error* tide_last_error(void) { return &thread_error; }

const char* tide_status_name(tide_status status) {
  switch (status) {
#define STATUS_NAME(name, value, text) \
  case TIDE_##name: return "TIDE_" #name;
    TIDE_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
  }
  return "TIDE_ERR_?";
}

const char* tide_status_text(tide_status status) {
  switch (status) {
#define STATUS_TEXT(name, value, text) \
  case TIDE_##name: return text;
    TIDE_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
  }
  return "unknown status";
}

#define VERSION_STRING_OF(major, minor, patch) #major "." #minor "." #patch
#define VERSION_STRING(major, minor, patch) VERSION_STRING_OF(major, minor, patch)

const char* tide_version(void) {
  return VERSION_STRING(TIDE_VERSION_MAJOR, TIDE_VERSION_MINOR, TIDE_VERSION_PATCH);
}

int tide_version_number(void) { return TIDE_VERSION_NUMBER; }
