// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sanitised text and columns.
#include "display.h"

#include "t.h"

static char printed[4096];

// The output of a function.
static FILE* sheet_open(void) {
  FILE* const sheet = fmemopen(printed, sizeof printed, "w");
  T_CHECK(sheet != NULL);
  return sheet;
}

static void shown_is(const char* text, const char* want) {
  char* const shown = tool_display_text(text, false);
  T_STR_EQ(shown, want);
  free(shown);
}

T_TEST(test_display__keeps_text_as_it_is) {
  shown_is("", "");
  shown_is("model.py:12 forward", "model.py:12 forward");
  shown_is("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a",
           "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8a");
}

T_TEST(test_display__spells_out_what_would_steer_a_terminal) {
  shown_is("a\033[2Jb", "a\\x1b[2Jb");
  shown_is("one\ntwo\ttab\rx", "one\\x0atwo\\x09tab\\x0dx");
  shown_is("\x7f", "\\x7f");
  shown_is("\xc2\x9b", "\\x9b");
}

T_TEST(test_display__keeps_newlines_where_they_may_be) {
  char* const shown = tool_display_text("a\nb\x01", true);

  T_STR_EQ(shown, "a\nb\\x01");
  free(shown);
}

T_TEST(test_display__replaces_what_is_no_utf8) {
  shown_is("\x80", "\xef\xbf\xbd");  // a lone continuation byte
  shown_is("a\xff"
           "b",
           "a\xef\xbf\xbd"
           "b");                                                     // a byte that UTF-8 never has
  shown_is("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  shown_is("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // half a surrogate pair
  shown_is("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // above U+10FFFF
  shown_is("\xe2\x82", "\xef\xbf\xbd");  // truncated: one for the whole run
  shown_is("\xe2\x82"
           "a",
           "\xef\xbf\xbd"
           "a");
  shown_is("\xf0\x9f\x8c", "\xef\xbf\xbd");
}

T_TEST(test_display__reads_every_code_point_back) {
  for (uint32_t want = 0x80; want <= 0x10ffff; want++) {
    if (want >= 0xd800 && want < 0xe000) continue;
    char text[4];
    size_t bytes = 2;
    if (want >= 0x10000) bytes = 4;
    else if (want >= 0x800) bytes = 3;
    for (size_t i = bytes; i-- > 1;) text[i] = (char)(0x80 | (want >> 6 * (bytes - 1 - i) & 0x3f));
    text[0] = (char)(0xf00 >> bytes | want >> 6 * (bytes - 1));
    uint32_t point = 0;

    T_EQ(tool_code_point(text, bytes, &point), bytes);
    T_EQ(point, want);
    T_CHECK(tool_code_point(text, bytes - 1, &point) == bytes - 1 && point == 0xfffd);
  }
}

T_TEST(test_display__counts_code_points) {
  T_EQ(tool_display_columns(""), 0);
  T_EQ(tool_display_columns("gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x8c\x8a"), 6);
}

T_TEST(test_display__wraps_between_words) {
  FILE* const sheet = sheet_open();

  tool_wrap(sheet, "one two  three four", 0, 2, 9);
  (void)fclose(sheet);

  T_STR_EQ(printed, "one two\n  three\n  four\n");
}

T_TEST(test_display__keeps_a_number_and_its_unit_together) {
  FILE* const sheet = sheet_open();

  tool_wrap(sheet, "at most 1.50 GiB, or 59 % of 8 blocks", 0, 0, 13);
  (void)fclose(sheet);

  T_STR_EQ(printed, "at most\n1.50 GiB, or\n59 % of 8\nblocks\n");
}

T_TEST(test_display__wraps_after_what_stands_there_already) {
  FILE* const sheet = sheet_open();

  tool_wrap(sheet, "one two\nthree averylongword x", 10, 4, 17);
  (void)fclose(sheet);

  T_STR_EQ(printed, "one two\n    three\n    averylongword\n    x\n");
}

static void row_add(tool_grid* grid, const char* a, const char* b, const char* c) {
  tool_grid_add(grid, a, false);
  tool_grid_add(grid, b, true);
  tool_grid_add(grid, c, false);
}

T_TEST(test_grid__puts_numbers_right_and_texts_left) {
  tool_grid grid = { .columns = 3 };
  FILE* const sheet = sheet_open();

  row_add(&grid, "name", "count", "what");
  row_add(&grid,
          "\xc3\xbc"
          "ber",
          "5", "first");
  row_add(&grid, "b", "12345678", "");
  tool_grid_print(&grid, sheet, (tool_grid_style){ .has_heading = true });
  (void)fclose(sheet);

  T_STR_EQ(printed, "name     count  what\n\xc3\xbc"
                    "ber         5  first\nb     12345678\n");
  T_EQ(grid.count, 0);
}

T_TEST(test_grid__a_dash_does_not_make_a_column_of_texts) {
  tool_grid grid = { .columns = 1 };
  FILE* const sheet = sheet_open();

  tool_grid_add(&grid, "-", false);
  tool_grid_add(&grid, "100", true);
  tool_grid_print(&grid, sheet, (tool_grid_style){ 0 });
  (void)fclose(sheet);

  T_STR_EQ(printed, "  -\n100\n");
}

T_TEST(test_grid__cuts_the_last_column_of_texts) {
  tool_grid grid = { .columns = 3 };
  FILE* const sheet = sheet_open();

  row_add(&grid, "a", "1",
          "abcd\xc3\xbc"
          "fghijklmnop");
  row_add(&grid, "b", "2", "abcdefghijk");
  tool_grid_print(&grid, sheet, (tool_grid_style){ .width = 17, .truncates = true });
  (void)fclose(sheet);

  T_STR_EQ(printed, "a  1  abcd\xc3\xbc"
                    "fghij\xe2\x80\xa6\nb  2  abcdefghijk\n");
}

T_TEST(test_grid__wraps_texts_that_are_too_long) {
  tool_grid grid = { .columns = 3 };
  FILE* const sheet = sheet_open();

  row_add(&grid, "name", "1", "torch/nn/modules/conv.py:548 _conv_forward");
  row_add(&grid, "b", "2", "short");
  tool_grid_print(&grid, sheet, (tool_grid_style){ .width = 32 });
  (void)fclose(sheet);

  T_STR_EQ(printed, "name  1  torch/nn/modules/\n           conv.py:548\n           _conv_forward\n"
                    "b     2  short\n");
}

T_TEST(test_grid__wraps_the_first_column_rather_than_truncating_it) {
  tool_grid grid = { .columns = 2 };
  FILE* const sheet = sheet_open();

  tool_grid_add(&grid, "max_split_size_mb:256,roundup_power2_divisions:8", false);
  tool_grid_add(&grid, "123456", true);
  tool_grid_print(&grid, sheet, (tool_grid_style){ .width = 40, .truncates = true });
  (void)fclose(sheet);

  T_STR_EQ(printed, "max_split_size_mb:256,            123456\n  roundup_power2_divisions:8\n");
}

T_TEST(test_grid__every_size_has_a_unit_that_fits) {
  tool_grid grid = { .columns = 1 };
  FILE* const sheet = sheet_open();

  tool_grid_add_bytes(&grid, UINT64_C(15) << 29, 0);
  tool_grid_add_bytes(&grid, 512, 0);
  tool_grid_add_bytes(&grid, 0, '-');
  tool_grid_add_bytes(&grid, 3 << 19, '+');
  tool_grid_print(&grid, sheet, (tool_grid_style){ 0 });
  (void)fclose(sheet);

  T_STR_EQ(printed, " 7.50 GiB\n    512 B\n      0 B\n+1.50 MiB\n");
}

T_TEST(test_grid__an_empty_one_prints_nothing) {
  tool_grid grid = { .columns = 2 };
  FILE* const sheet = sheet_open();

  tool_grid_print(&grid, sheet, (tool_grid_style){ .has_heading = true });
  (void)fclose(sheet);

  T_STR_EQ(printed, "");
}

// ---------------------------------------------------------------------------------------------------
// What a file must not do to a terminal

T_TEST(test_display__an_override_of_direction_reached_the_terminal) {
  shown_is("a\xe2\x80\xae"
           "b",
           "a\\u{202e}b");
  shown_is("\xe2\x81\xa6x\xe2\x81\xa9", "\\u{2066}x\\u{2069}");
  shown_is("\xd8\x9c\xe2\x80\x8f", "\\u{61c}\\u{200f}");
  shown_is("\xe2\x80\xa8", "\\u{2028}");
  shown_is("\xf3\xa0\x81\x81", "\\u{e0041}");
  shown_is("\xc2\x9b"
           "31m\x1b[0m",
           "\\x9b31m\\x1b[0m");
}

T_TEST(test_display__letters_of_all_languages_stay) {
  shown_is("\xd7\xa9\xd7\x9c \xd8\xb9 \xe6\x97\xa5 \xf0\x9f\x99\x82 \xc3\xbc",
           "\xd7\xa9\xd7\x9c \xd8\xb9 \xe6\x97\xa5 \xf0\x9f\x99\x82 \xc3\xbc");
}

// Any bytes: the result has no control characters and does not exceed its memory.
T_TEST(test_display__random_bytes_never_steer) {
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < t_scaled(20000); i++) {
    static const char* const parts[] = { "\xe2\x80\xae", "\xc2\x9b", "\x1b", "\xf3\xa0\x81\x81", "\xd8\x9c",
                                         "\xff",         "\xe2",     "x",    "\xef\xbb\xbf" };
    char text[64] = "";
    for (uint64_t n = t_rng_below(&rng, 12); n > 0; n--) (void)strcat(text, parts[t_rng_below(&rng, 9)]);
    char* const shown = tool_display_text(text, false);
    const size_t bytes = strlen(shown);
    for (size_t at = 0; at < bytes;) {
      uint32_t point = 0;
      at += tool_code_point(shown + at, bytes - at, &point);
      T_CHECK(!tool_code_point_steers(point));
    }
    free(shown);
  }
}
