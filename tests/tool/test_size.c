// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parsing and printing sizes.
#include "tool.h"

#include "t.h"

static uint64_t parsed(const char* text) {
  uint64_t bytes = 0;
  if (!tool_size_parse(text, &bytes)) T_FAIL("\"%s\" is refused", text);
  return bytes;
}

T_TEST(test_size__reads_plain_bytes) {
  T_EQ(parsed("0"), 0);
  T_EQ(parsed("512"), 512);
  T_EQ(parsed("512B"), 512);
  T_EQ(parsed("18446744073709551615"), UINT64_MAX);
}

T_TEST(test_size__takes_a_letter_and_ib_for_powers_of_1024) {
  T_EQ(parsed("1K"), 1024);
  T_EQ(parsed("3KiB"), 3 * 1024);
  T_EQ(parsed("2M"), 2 << 20);
  T_EQ(parsed("2MiB"), 2 << 20);
  T_EQ(parsed("24G"), UINT64_C(24) << 30);
  T_EQ(parsed("24GiB"), UINT64_C(24) << 30);
  T_EQ(parsed("1T"), UINT64_C(1) << 40);
  T_EQ(parsed("1TiB"), UINT64_C(1) << 40);
}

T_TEST(test_size__takes_a_letter_and_b_for_powers_of_1000) {
  T_EQ(parsed("1KB"), 1000);
  T_EQ(parsed("2MB"), 2000000);
  T_EQ(parsed("24GB"), UINT64_C(24000000000));
  T_EQ(parsed("1TB"), UINT64_C(1000000000000));
}

T_TEST(test_size__reads_fractions_of_a_unit) {
  T_EQ(parsed("1.5G"), UINT64_C(3) << 29);
  T_EQ(parsed("16.5GiB"), UINT64_C(33) << 29);
  T_EQ(parsed("0.5K"), 512);
  T_EQ(parsed("0.1KB"), 100);
  T_EQ(parsed("26.53 GiB"), UINT64_C(28486370591));
  T_EQ(parsed("1.000000000000000000000000000001K"), 1024);
}

T_TEST(test_size__does_not_mind_capitals_or_a_blank) {
  T_EQ(parsed("24gib"), UINT64_C(24) << 30);
  T_EQ(parsed("1 kb"), 1000);
}

T_TEST(test_size__refuses_what_is_no_size) {
  static const char* const bad[] = { "",    " ",    "G",   "-1",   "+1",  "1.5",   "1.5B", "0x10",
                                     "1e9", "1..5", "1.G", ".5G",  "1GX", "1 G x", "1,5G", "nan",
                                     "inf", " 1",   "1GG", "12 3", "1PB", "1Gib ", "one",  "1\n" };
  uint64_t bytes = 7;

  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    if (tool_size_parse(bad[i], &bytes)) T_FAIL("\"%s\" is taken", bad[i]);
    T_EQ(bytes, 0);
  }
}

T_TEST(test_size__refuses_more_than_64_bits) {
  uint64_t bytes = 0;

  T_CHECK(!tool_size_parse("18446744073709551616", &bytes));
  T_CHECK(!tool_size_parse("16777216T", &bytes));
  T_CHECK(!tool_size_parse("99999999999999999999999999", &bytes));
  T_EQ(parsed("16777215T"), UINT64_C(16777215) << 40);
}

T_TEST(test_size__prints_the_largest_unit_that_is_there_once) {
  char text[TOOL_SIZE_TEXT];

  T_STR_EQ(tool_size_text(0, text), "0 B");
  T_STR_EQ(tool_size_text(1023, text), "1023 B");
  T_STR_EQ(tool_size_text(1024, text), "1.00 KiB");
  T_STR_EQ(tool_size_text((1 << 20) - 1, text), "1.00 MiB");  // and not 1024.00 KiB
  T_STR_EQ(tool_size_text(UINT64_C(1) << 20, text), "1.00 MiB");
  T_STR_EQ(tool_size_text(UINT64_C(28485615616), text), "26.53 GiB");
  T_STR_EQ(tool_size_text(UINT64_MAX, text), "16777216.00 TiB");
}

static void expect_pair(uint64_t a, uint64_t b, const char* want_a, const char* want_b) {
  char texts[2][TOOL_SIZE_TEXT];
  tool_size_pair(a, b, texts[0], texts[1]);
  T_STR_EQ(texts[0], want_a);
  T_STR_EQ(texts[1], want_b);
}

T_TEST(test_size__two_sizes_that_differ_look_different) {
  expect_pair(UINT64_C(1) << 30, UINT64_C(3) << 30, "1.00 GiB", "3.00 GiB");
  expect_pair(UINT64_C(600) << 20, UINT64_C(3) << 30, "0.59 GiB", "3.00 GiB");
  expect_pair(UINT64_C(1) << 30, UINT64_C(1026) << 20, "1024.00 MiB", "1026.00 MiB");
  expect_pair(UINT64_C(1) << 30, (UINT64_C(1) << 30) + 1, "1073741824 B", "1073741825 B");
  expect_pair(UINT64_C(1) << 30, UINT64_C(1) << 30, "1.00 GiB", "1.00 GiB");
  expect_pair(0, 0, "0 B", "0 B");
}

T_TEST(test_size__reads_whole_numbers) {
  static const char* const bad[] = { "", "-1", "+1", "1.5", "x", "1x", " 1", "18446744073709551616", "11" };
  uint64_t number = 7;

  T_CHECK(tool_number_parse("0", 0, &number));
  T_EQ(number, 0);
  T_CHECK(tool_number_parse("18446744073709551615", UINT64_MAX, &number));
  T_EQ(number, UINT64_MAX);
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    if (tool_number_parse(bad[i], 10, &number)) T_FAIL("\"%s\" is taken", bad[i]);
    T_EQ(number, 0);
  }
}

T_TEST(test_size__a_pair_never_has_a_size_that_looks_like_none) {
  char a[TOOL_SIZE_TEXT];
  char b[TOOL_SIZE_TEXT];

  tool_size_pair(1024, UINT64_C(2) << 30, a, b);
  T_STR_EQ(a, "1.00 KiB");
  T_STR_EQ(b, "2.00 GiB");
  tool_size_pair(0, UINT64_C(2) << 30, a, b);
  T_STR_EQ(b, "2.00 GiB");
}

T_TEST(test_size__prints_shares_as_percent) {
  char text[TOOL_SHARE_TEXT];

  T_STR_EQ(tool_share_text(0, text), "0.0 %");
  T_STR_EQ(tool_share_text(0.0001, text), "<0.1 %");
  T_STR_EQ(tool_share_text(0.62, text), "62.0 %");
  T_STR_EQ(tool_share_text(0.99996, text), ">99.9 %");
  T_STR_EQ(tool_share_text(1, text), "100.0 %");
  T_STR_EQ(tool_share_text(1.25, text), "125.0 %");
}

T_TEST(test_progress__tells_the_time_left) {
  char text[TOOL_PROGRESS_LEFT];
  const uint64_t second_ns = UINT64_C(1000000000);

  T_STR_EQ(tool_progress_left(0.25, 4 * second_ns, text), "  12 s left");
  T_STR_EQ(tool_progress_left(0.5, 65 * second_ns, text), "  1 min 05 s left");
  T_STR_EQ(tool_progress_left(0.02, 3600 * second_ns, text), "  49 h 00 min left");
  T_STR_EQ(tool_progress_left(0.99, second_ns, text), "  1 s left");
  T_STR_EQ(tool_progress_left(0.02, UINT64_MAX, text), "  99 h 59 min left");
}

T_TEST(test_progress__does_not_guess) {
  char text[TOOL_PROGRESS_LEFT];

  T_STR_EQ(tool_progress_left(-1, 1000, text), "");
  T_STR_EQ(tool_progress_left(0, 1000, text), "");
  T_STR_EQ(tool_progress_left(1, 1000, text), "");
}
