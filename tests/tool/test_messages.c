// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Error messages of the library, without the names of functions.
#include "base/error.h"
#include "t.h"
#include "tool.h"

static void expect_text(const char* text, const char* want) {
  const tide_status status = TIDE_FAIL(TIDE_ERR_FORMAT, "%s", text);
  T_STATUS(status, TIDE_ERR_FORMAT);
  T_STR_EQ(tool_error(), want);
}

T_TEST(test_messages__names_of_calls_stood_in_messages) {
  expect_text("trace_read: the file is empty", "the file is empty");
  expect_text("options_parse: max_split_size_mb: found \"1\"", "max_split_size_mb: found \"1\"");
  expect_text("replay: no memory", "no memory");
  expect_text("pickle: byte 2: trace_read: is text of a file",
              "pickle: byte 2: trace_read: is text of a file");
  expect_text("native: byte 16", "native: byte 16");
  expect_text("no colon", "no colon");
  expect_text("", "");
}
