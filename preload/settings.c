// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads "name=value,name=value". Nothing here allocates: it runs before the program does.
#include "settings.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tidemark/cpu.h"

// Above this size, blocks of the cache are recognised by their addresses, and the C library begins to give
// memory back to the system. docs/results/preload.md has figures.
#define DEFAULT_THRESHOLD TIDE_CPU_SMALL_BYTES
#define DEFAULT_IDLE_NS ((uint64_t)10000000000)

// A part of the text, without a terminating 0.
typedef struct words {
  const char* text;
  size_t length;
} words;

static bool words_are(words part, const char* text) {
  return part.length == strlen(text) && memcmp(part.text, text, part.length) == 0;
}

// Cuts off the text before the first `end`, which is dropped; all of it if there is none.
static words words_cut(words* rest, char end) {
  const char* const found = memchr(rest->text, end, rest->length);
  const words part = { rest->text, found == NULL ? rest->length : (size_t)(found - rest->text) };
  const size_t used = part.length + (found != NULL);
  rest->text += used;
  rest->length -= used;
  return part;
}

typedef struct unit {
  const char* name;
  uint64_t factor;
} unit;

static const unit size_units[] = { { "", 1 },
                                   { "K", (uint64_t)1 << 10 },
                                   { "KiB", (uint64_t)1 << 10 },
                                   { "M", (uint64_t)1 << 20 },
                                   { "MiB", (uint64_t)1 << 20 },
                                   { "G", (uint64_t)1 << 30 },
                                   { "GiB", (uint64_t)1 << 30 },
                                   { "T", (uint64_t)1 << 40 },
                                   { "TiB", (uint64_t)1 << 40 },
                                   { NULL, 0 } };
static const unit time_units[] = {
  { "ms", 1000000 }, { "s", 1000000000 }, { "min", (uint64_t)60000000000 }, { NULL, 0 }
};

// A whole number and one of the units.
static bool read_number(words value, const unit* units, uint64_t* out) {
  uint64_t number = 0;
  size_t digits = 0;
  for (; digits < value.length && value.text[digits] >= '0' && value.text[digits] <= '9'; ++digits) {
    if (__builtin_mul_overflow(number, (uint64_t)10, &number)) return false;
    if (__builtin_add_overflow(number, (uint64_t)(value.text[digits] - '0'), &number)) return false;
  }
  const words rest = { value.text + digits, value.length - digits };
  while (units->name != NULL && !words_are(rest, units->name)) ++units;
  return digits > 0 && units->name != NULL && !__builtin_mul_overflow(number, units->factor, out);
}

static bool read_size(words value, void* out) { return read_number(value, size_units, out); }

static bool read_limit(words value, void* out) {
  if (!words_are(value, "none")) return read_size(value, out);
  *(uint64_t*)out = UINT64_MAX;
  return true;
}

static bool read_time(words value, void* out) {
  if (!words_are(value, "never")) return read_number(value, time_units, out);
  *(uint64_t*)out = 0;
  return true;
}

static bool read_switch(words value, void* out) {
  *(bool*)out = words_are(value, "on");
  return *(bool*)out || words_are(value, "off");
}

// Every setting: name, reader of its value, form of the value.
#define SETTING_MAP(X)                 \
  X(threshold, read_size, "SIZE")      \
  X(cached, read_limit, "SIZE|none")   \
  X(idle, read_time, "TIME|never")     \
  X(huge_pages, read_switch, "on|off") \
  X(helper, read_switch, "on|off")     \
  X(stats, read_switch, "on|off")

// A value that is not understood changes nothing.
static bool setting_read(words part, preload_settings* settings) {
  preload_settings changed = *settings;
  words value = part;
  const words name = words_cut(&value, '=');
  bool is_read = false;
#define SETTING_READ(field, read, form) \
  if (words_are(name, #field)) is_read = read(value, &changed.field);
  SETTING_MAP(SETTING_READ)
#undef SETTING_READ
  if (is_read) *settings = changed;
  return is_read;
}

preload_settings preload_settings_read(const char* text) {
  preload_settings settings = { DEFAULT_THRESHOLD, UINT64_MAX, DEFAULT_IDLE_NS, true, false, false };
  words rest = { text, text == NULL ? 0 : strlen(text) };
  bool has_complained = false;
  while (rest.length > 0) {
    const words part = words_cut(&rest, ',');
    if (setting_read(part, &settings) || has_complained) continue;
    has_complained = true;
#define SETTING_FORM(field, read, form) " " #field "=" form
    preload_say(
        "TIDEMARK_PRELOAD: \"%.*s\" is not understood and ignored; settings are" SETTING_MAP(SETTING_FORM),
        (int)(part.length < 80 ? part.length : 80), part.text);
#undef SETTING_FORM
  }
  return settings;
}

void preload_say(const char* format, ...) {
  static const char name[] = "tidemark preload: ";
  char line[640];
  memcpy(line, name, sizeof name);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line + sizeof name - 1, sizeof line - sizeof name, format, arguments);
  va_end(arguments);
  const size_t length = strlen(line);
  line[length] = '\n';
  const ssize_t written = write(STDERR_FILENO, line, length + 1);
  (void)written;  // there is nobody else to tell
}
