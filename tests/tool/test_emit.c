// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The answers of verbs, as JSON and as text. Each test runs in a process of its own and prints to a file.
#include "tool.h"

#include <math.h>

#include "t.h"

static char answer[65536];

// Standard output goes to a file from now on.
static tool_emit* answer_begin(bool is_json) {
  static const tool_verb verb = { .name = "test", .summary = "", .operands = "" };
  FILE* const file = tmpfile();
  T_CHECK(file != NULL);
  T_CHECK(dup2(fileno(file), STDOUT_FILENO) == STDOUT_FILENO);
  (void)fclose(file);
  return tool_emit_begin(&(tool_call){ .verb = &verb, .is_json = is_json });
}

static const char* answer_end(tool_emit* emit) {
  T_EQ(tool_emit_end(emit), TOOL_DONE);
  const ssize_t bytes = pread(STDOUT_FILENO, answer, sizeof answer - 1, 0);
  T_CHECK(bytes >= 0);
  answer[bytes] = '\0';
  return answer;
}

T_TEST(test_emit__json_of_nothing_is_an_empty_object) { T_STR_EQ(answer_end(answer_begin(true)), "{}\n"); }

T_TEST(test_emit__json_has_a_member_for_each_fact_with_a_key) {
  tool_emit* const emit = answer_begin(true);

  tool_emit_title(emit, "a title");
  tool_emit_words(emit, "some words");
  tool_emit_uint(emit, "count", "count", UINT64_MAX);
  tool_emit_bytes(emit, "peak", "peak", UINT64_C(28485615616));
  tool_emit_real(emit, "share", NULL, 0.98765, 3);
  tool_emit_bool(emit, "fits", NULL, true);
  tool_emit_text(emit, "name", NULL, "x");
  tool_emit_text(emit, "gone", NULL, NULL);
  tool_emit_format(emit, "made", NULL, "%d of %d", 1, 2);
  tool_emit_uint(emit, NULL, "for people", 1);

  T_STR_EQ(answer_end(emit), "{\n  \"count\": 18446744073709551615,\n  \"peak\": 28485615616,\n"
                             "  \"share\": 0.988,\n  \"fits\": true,\n  \"name\": \"x\",\n"
                             "  \"gone\": null,\n  \"made\": \"1 of 2\"\n}\n");
}

T_TEST(test_emit__json_escapes_texts) {
  tool_emit* const emit = answer_begin(true);

  tool_emit_text(emit, "a\"b", NULL, "\"\\/\b\n\x1f\x7f\xc3\xbc\xff\xe2\x82");

  T_STR_EQ(answer_end(emit), "{\n  \"a\\\"b\": \"\\\"\\\\/\\u0008\\u000a\\u001f\\u007f\xc3\xbc"
                             "\xef\xbf\xbd\xef\xbf\xbd\"\n}\n");
}

T_TEST(test_emit__json_numbers_are_finite) {
  tool_emit* const emit = answer_begin(true);
  const double values[] = { 1.25, -2, NAN, INFINITY, 1e300 * 0 };

  tool_emit_real(emit, "nan", NULL, NAN, 2);
  tool_emit_real(emit, "inf", NULL, -INFINITY, 2);
  tool_emit_real(emit, "whole", NULL, 2.5, 0);
  tool_emit_list(emit, "list", values, 5, 1);
  tool_emit_list(emit, "empty", values, 0, 1);

  T_STR_EQ(answer_end(emit), "{\n  \"nan\": null,\n  \"inf\": null,\n  \"whole\": 2,\n"
                             "  \"list\": [1.2, -2.0, null, null, 0.0],\n  \"empty\": []\n}\n");
}

T_TEST(test_emit__json_prints_the_largest_double) {
  tool_emit* const emit = answer_begin(true);

  tool_emit_real(emit, "x", NULL, -1.7976931348623157e308, 17);
  const char* text = answer_end(emit);

  T_CHECK(strtod(strchr(text, '-'), NULL) < -1.79e308);
  T_STR_HAS(text, ".00000000000000000\n}\n");
}

static const tool_column columns[] = {
  { "size", "size" }, { "json_only", NULL }, { NULL, "people" }, { "note", "note" }
};

static void table_put(tool_emit* emit, const char* key) {
  tool_emit_table(emit, key, columns, 4);
  for (uint64_t i = 0; i < 2; i++) {
    tool_emit_row(emit);
    tool_emit_bytes(emit, NULL, NULL, i << 34);
    tool_emit_uint(emit, NULL, NULL, i);
    tool_emit_real(emit, NULL, NULL, (double)i / 2, 1);
    tool_emit_text(emit, NULL, NULL, i == 0 ? "first" : NULL);
  }
  tool_emit_table_end(emit);
}

T_TEST(test_emit__json_of_a_table_is_a_list_of_objects) {
  tool_emit* const emit = answer_begin(true);

  table_put(emit, "rows");
  table_put(emit, NULL);
  tool_emit_open(emit, "inner", "Inner");
  tool_emit_table(emit, "none", columns, 4);
  tool_emit_table_end(emit);
  tool_emit_uint(emit, "last", NULL, 1);
  tool_emit_close(emit);

  T_STR_EQ(answer_end(emit), "{\n  \"rows\": [\n"
                             "    { \"size\": 0, \"json_only\": 0, \"note\": \"first\" },\n"
                             "    { \"size\": 17179869184, \"json_only\": 1, \"note\": null }\n  ],\n"
                             "  \"inner\": {\n    \"none\": [],\n    \"last\": 1\n  }\n}\n");
}

T_TEST(test_emit__json_nests_as_deep_as_it_must) {
  tool_emit* const emit = answer_begin(true);
  const int depth = 100;

  for (int i = 0; i < depth; i++) tool_emit_open(emit, "a", NULL);
  for (int i = 0; i < depth; i++) tool_emit_close(emit);
  tool_emit_uint(emit, "b", NULL, 1);

  const char* text = answer_end(emit);
  size_t opened = 0;
  for (const char* at = text; *at != '\0'; at++) opened += *at == '{';
  T_EQ(opened, depth + 1);
  T_STR_HAS(text, "\n  },\n  \"b\": 1\n}\n");
}

T_TEST(test_emit__people_get_blocks_with_empty_lines_between) {
  tool_emit* const emit = answer_begin(false);

  tool_emit_title(emit, "Peak of %s", "x");
  tool_emit_bytes(emit, "peak", "peak allocated", UINT64_C(28485615616));
  tool_emit_bool(emit, "fits", "fits", false);
  tool_emit_uint(emit, "hidden", NULL, 1);
  tool_emit_words(emit, "Some words.");
  table_put(emit, "rows");
  tool_emit_open(emit, "inner", "Inner");
  tool_emit_real(emit, "nan", "share", NAN, 2);
  tool_emit_close(emit);

  T_STR_EQ(answer_end(emit), "Peak of x\npeak allocated  26.53 GiB\nfits            no\n\nSome words.\n\n"
                             "     size  people  note\n      0 B     0.0  first\n16.00 GiB     0.5  -\n\n"
                             "Inner\nshare  -\n");
}

T_TEST(test_emit__people_get_a_short_row_filled_up) {
  tool_emit* const emit = answer_begin(false);

  tool_emit_table(emit, "rows", columns, 4);
  tool_emit_row(emit);
  tool_emit_bytes(emit, NULL, NULL, 0);
  tool_emit_row(emit);
  for (int i = 0; i < 9; i++) tool_emit_uint(emit, NULL, NULL, 7);
  tool_emit_table_end(emit);

  T_STR_EQ(answer_end(emit), "size  people  note\n 0 B\n   7       7     7\n");
}

T_TEST(test_emit__people_get_texts_that_are_fit_to_be_shown) {
  tool_emit* const emit = answer_begin(false);

  tool_emit_title(emit, "%s", "\033[31mred");
  tool_emit_text(emit, "name", "name", "a\nb\xff");

  T_STR_EQ(answer_end(emit), "\\x1b[31mred\nname  a\\x0ab\xef\xbf\xbd\n");
}

T_TEST(test_emit__what_is_dropped_prints_nothing) {
  tool_emit* const emit = answer_begin(false);
  tool_emit_uint(emit, "count", "count", 1);
  table_put(emit, "rows");
  tool_emit_uint(emit, "count", "count", 1);

  tool_emit_drop(emit);
  (void)fflush(stdout);

  T_EQ(pread(STDOUT_FILENO, answer, sizeof answer, 0), 0);
}

T_TEST(test_emit__a_full_disk_is_an_error) {
  tool_emit* const emit = answer_begin(true);
  const int full = open("/dev/full", O_WRONLY);
  if (full < 0) t_skip("there is no /dev/full");
  T_CHECK(dup2(full, STDOUT_FILENO) == STDOUT_FILENO);

  T_EQ(tool_emit_end(emit), TOOL_USAGE);
  _Exit(0);  // exit() would try to write the rest again
}

T_TEST(test_emit__json_let_an_override_of_direction_through) {
  tool_emit* const emit = answer_begin(true);

  tool_emit_text(emit, "text", NULL, "a\xe2\x80\xae\xc2\x9b\xf3\xa0\x81\x81 \xd7\xa9");

  T_STR_EQ(answer_end(emit), "{\n  \"text\": \"a\\u202e\\u009b\\udb40\\udc41 \xd7\xa9\"\n}\n");
}
