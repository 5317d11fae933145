// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parses and prints sizes. A size is a decimal number and an optional unit, with or without a blank between
// them: "512", "24GiB", "1.5 G". K, M, G, T and KiB ... are powers of 1024, KB ... powers of 1000; case is
// ignored. Fractions of a byte are rounded. Also parses plain numbers.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arith.h"
#include "tool.h"

static const struct {
  const char* name;
  uint64_t bytes;
} units[] = {
  // clang-format off
  { "", 1 },
  { "B", 1 },
  { "K", UINT64_C(1) << 10 }, { "KiB", UINT64_C(1) << 10 }, { "KB", UINT64_C(1000) },
  { "M", UINT64_C(1) << 20 }, { "MiB", UINT64_C(1) << 20 }, { "MB", UINT64_C(1000000) },
  { "G", UINT64_C(1) << 30 }, { "GiB", UINT64_C(1) << 30 }, { "GB", UINT64_C(1000000000) },
  { "T", UINT64_C(1) << 40 }, { "TiB", UINT64_C(1) << 40 }, { "TB", UINT64_C(1000000000000) },
  // clang-format on
};

// The bytes of a unit; 0 if it is unknown.
static uint64_t unit_bytes(const char* word) {
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strcasecmp(word, units[i].name) == 0) return units[i].bytes;
  }
  return 0;
}

// Parses the leading digits of a text.
static bool whole_parse(const char** text, uint64_t* out) {
  if (!isdigit((unsigned char)**text)) return false;
  *out = 0;
  for (; isdigit((unsigned char)**text); ++*text) {
    if (!tide__mul(*out, 10, out) || !tide__add(*out, (uint64_t)(**text - '0'), out)) return false;
  }
  return true;
}

// Parses the digits after the decimal point, as a number below 1.
static bool fraction_parse(const char** text, double* out) {
  *out = 0;
  if (**text != '.') return true;
  ++*text;
  if (!isdigit((unsigned char)**text)) return false;
  for (double place = 0.1; isdigit((unsigned char)**text); place /= 10, ++*text)
    *out += (**text - '0') * place;
  return true;
}

bool tool_size_parse(const char* text, uint64_t* out) {
  *out = 0;
  uint64_t whole = 0;
  double fraction = 0;
  if (!whole_parse(&text, &whole) || !fraction_parse(&text, &fraction)) return false;
  while (*text == ' ') text++;
  const uint64_t unit = unit_bytes(text);
  if (unit == 0 || (unit == 1 && fraction > 0)) return false;
  uint64_t bytes = 0;
  const uint64_t rest = (uint64_t)(fraction * (double)unit + 0.5);
  if (!tide__mul(whole, unit, &bytes) || !tide__add(bytes, rest, &bytes)) return false;
  *out = bytes;
  return true;
}

int tool_size_ask(const char* option, const char* text, uint64_t bytes) {
  const bool has_unit = text[strspn(text, "0123456789. ")] != '\0';
  if (has_unit || bytes >= UINT64_C(1) << 20) return TOOL_DONE;
  const unsigned long long number = bytes;
  const char* const unit = bytes < 1024 ? "GiB" : "MiB";  // that was probably meant
  return tool_fail("%s %llu has no unit: write %llu%s, or %lluB for bytes", option, number, number, unit,
                   number);
}

// A size that would be printed as 1024.00 of a unit is 1.00 of the next.
tool_unit tool_size_unit(uint64_t largest) {
  tool_unit unit = TOOL_UNIT_B;
  for (; unit < TOOL_UNIT_TIB; unit++) {
    const uint64_t one = UINT64_C(1) << 10 * unit;
    if (largest < 1024 * one - one / 200) break;
  }
  return unit;
}

const char* tool_size_in(uint64_t bytes, tool_unit unit, char out[TOOL_SIZE_TEXT]) {
  static const char* const names[] = { "B", "KiB", "MiB", "GiB", "TiB" };
  const double scale = (double)(UINT64_C(1) << 10 * unit);
  if (unit == TOOL_UNIT_B) (void)snprintf(out, TOOL_SIZE_TEXT, "%llu B", (unsigned long long)bytes);
  else (void)snprintf(out, TOOL_SIZE_TEXT, "%.2f %s", (double)bytes / scale, names[unit]);
  return out;
}

const char* tool_size_text(uint64_t bytes, char out[TOOL_SIZE_TEXT]) {
  return tool_size_in(bytes, tool_size_unit(bytes), out);
}

static bool text_is_none(const char* text) { return strncmp(text, "0.00 ", 5) == 0; }

void tool_size_pair(uint64_t a, uint64_t b, char out_a[TOOL_SIZE_TEXT], char out_b[TOOL_SIZE_TEXT]) {
  for (tool_unit unit = tool_size_unit(a > b ? a : b);; unit--) {
    (void)tool_size_in(a, unit, out_a);
    (void)tool_size_in(b, unit, out_b);
    if (unit == TOOL_UNIT_B || a == b || strcmp(out_a, out_b) != 0) break;
  }
  if (!text_is_none(out_a) && !text_is_none(out_b)) return;
  (void)tool_size_text(a, out_a);
  (void)tool_size_text(b, out_b);
}

const char* tool_share_text(double share, char out[TOOL_SHARE_TEXT]) {
  const double percent = 100 * share;
  if (percent > 0 && percent < 0.05) (void)snprintf(out, TOOL_SHARE_TEXT, "<0.1 %%");
  else if (percent < 100 && percent >= 99.95) (void)snprintf(out, TOOL_SHARE_TEXT, ">99.9 %%");
  else (void)snprintf(out, TOOL_SHARE_TEXT, "%.1f %%", percent);
  return out;
}

bool tool_number_parse(const char* text, uint64_t most, uint64_t* out) {
  uint64_t number = 0;
  const bool is_number = whole_parse(&text, &number) && *text == '\0' && number <= most;
  *out = is_number ? number : 0;
  return is_number;
}

bool tool_seconds_parse(const char* text, double least, double most, double* out) {
  char* end = NULL;
  *out = strtod(text, &end);
  const bool has_digit = *text == '.' || (*text >= '0' && *text <= '9');  // neither a sign nor a word
  return has_digit && end != text && *end == '\0' && *out >= least && *out <= most;
}
