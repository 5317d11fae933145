// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sizes as people write them. A size is a decimal number, then perhaps a unit, with or without a blank
// between them: "512", "24GiB", "1.5 G". K, M, G and T and KiB ... are powers of 1024, KB ... powers of 1000;
// capitals do not matter. What is left of a byte is rounded. Also plain numbers.
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

// The bytes of a unit; 0 for a word that is none.
static uint64_t unit_bytes(const char* word) {
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (strcasecmp(word, units[i].name) == 0) return units[i].bytes;
  }
  return 0;
}

// Digits at the front of a text.
static bool whole_parse(const char** text, uint64_t* out) {
  if (!isdigit((unsigned char)**text)) return false;
  *out = 0;
  for (; isdigit((unsigned char)**text); ++*text) {
    if (!tide__mul(*out, 10, out) || !tide__add(*out, (uint64_t)(**text - '0'), out)) return false;
  }
  return true;
}

// What follows the point, as a number below 1.
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

const char* tool_size_text(uint64_t bytes, char out[TOOL_SIZE_TEXT]) {
  (void)snprintf(out, TOOL_SIZE_TEXT, "%.2f GiB", (double)bytes / (double)(1 << 30));
  return out;
}

const char* tool_size_scaled(uint64_t bytes, char out[TOOL_SIZE_TEXT]) {
  static const char* const names[] = { "KiB", "MiB", "GiB", "TiB" };
  size_t unit = 0;
  double scaled = (double)bytes / 1024;
  for (; scaled >= 1024 && unit < 3; unit++) scaled /= 1024;
  if (bytes < 1024) (void)snprintf(out, TOOL_SIZE_TEXT, "%llu B", (unsigned long long)bytes);
  else (void)snprintf(out, TOOL_SIZE_TEXT, "%.2f %s", scaled, names[unit]);
  return out;
}

bool tool_number_parse(const char* text, uint64_t most, uint64_t* out) {
  uint64_t number = 0;
  const bool is_number = whole_parse(&text, &number) && *text == '\0' && number <= most;
  *out = is_number ? number : 0;
  return is_number;
}
