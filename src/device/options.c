// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Options as text: reads, prints and checks them by the rows of option_table.c. A kind is how a value is read
// from a text and written to one.
//
//   text  = [ entry { "," entry } [ "," ] ]        entry = key ( ":" | "=" ) value
//   value = word | "[" [ pair { "," pair } [ "," ] ] "]"        pair = word ":" word
//
// White space is dropped everywhere, also inside words, as PyTorch does. A text is read twice, because the
// size of large segments is a bound of other options and may stand behind them: first for that one alone,
// then for the rest. All is read into a copy, which replaces the caller's options only if nothing was wrong.
#include "device/options.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "device/option_table.h"

#define OPTION_WORD 128         // longest word and its end; no key and no sensible number is near it
#define OPTION_VALUE 320        // longest printed value and its end: a list of 16 pairs "32768:2147483648,"
#define OPTION_MARKS ",:[]"     // what ends a word
#define OPTION_KEY_END ",:[]="  // what ends a key

// A text that is being read.
typedef struct option_text {
  const char* at;          // borrowed during the call
  const char* source;      // borrowed during the call; what opens an error: the call, or the variable
  char word[OPTION_WORD];  // what was read last, as an error shows it
} option_text;

typedef struct option_kind {
  // Reads a value. False if it is not of this kind; the text's word is then the part that is wrong.
  bool (*read)(option_text* text, void* field);
  // Writes it as `read` takes it, into OPTION_VALUE bytes.
  void (*write)(const void* field, char* out);
} option_kind;

static const tide_device_options option_defaults = TIDE_DEVICE_OPTIONS_INIT;

// ---------------------------------------------------------------------------------------------------
// Words and marks

// The next character that is not white space, or 0 at the end.
static char option_peek(option_text* text) {
  while (*text->at == ' ' || (*text->at >= '\t' && *text->at <= '\r')) text->at++;
  return *text->at;
}

static bool option_accept(option_text* text, char mark) {
  if (option_peek(text) != mark) return false;
  text->at++;
  return true;
}

// Makes the next character the word, where a mark is missing. The word is empty at the end of the text.
static void option_show_next(option_text* text) {
  text->word[0] = option_peek(text);
  text->word[1] = '\0';
}

// Reads a word up to one of `ends`; false if there is none or it is too long. What cannot be printed becomes
// "?", which is in no key and no value either.
static bool option_next_word(option_text* text, const char* ends) {
  size_t count = 0;
  size_t dropped = 0;
  for (char c = option_peek(text); c != '\0' && strchr(ends, c) == NULL; c = option_peek(text)) {
    if (count + 1 < OPTION_WORD) text->word[count++] = (char)(c > ' ' && c <= '~' ? c : '?');
    else dropped++;
    text->at++;
  }
  if (count == 0) option_show_next(text);
  else text->word[count] = '\0';
  return count > 0 && dropped == 0;
}

static bool option_word_is(const option_text* text, const char* word) {
  return strcmp(text->word, word) == 0;
}

// A number of digits alone; one that is too large for 64 bits is the largest.
static bool option_next_number(option_text* text, uint64_t* out) {
  if (!option_next_word(text, OPTION_MARKS)) return false;
  uint64_t number = 0;
  for (const char* c = text->word; *c != '\0'; c++) {
    if (*c < '0' || *c > '9') return false;
    if (!tide__mul(number, 10, &number) || !tide__add(number, (uint64_t)(*c - '0'), &number))
      number = UINT64_MAX;
  }
  *out = number;
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Kinds: True and False, names

static bool option_read_bool(option_text* text, void* field) {
  if (!option_next_word(text, OPTION_MARKS)) return false;
  *(bool*)field = option_word_is(text, "True");
  return option_word_is(text, "True") || option_word_is(text, "False");
}

static void option_write_bool(const void* field, char* out) {
  (void)snprintf(out, OPTION_VALUE, "%s", *(const bool*)field ? "True" : "False");
}

// Our own options know the words of other tools as well.
static bool option_read_switch(option_text* text, void* field) {
  if (option_read_bool(text, field)) return true;
  *(bool*)field = option_word_is(text, "on");
  return option_word_is(text, "on") || option_word_is(text, "off");
}

static bool option_read_policy(option_text* text, void* field) {
  if (!option_next_word(text, OPTION_MARKS)) return false;
  for (uint32_t i = 0; i < TIDE__POLICY_COUNT; i++) {
    if (!option_word_is(text, tide__policy_names[i])) continue;
    *(uint32_t*)field = i;
    return true;
  }
  return false;
}

static void option_write_policy(const void* field, char* out) {
  const uint32_t policy = *(const uint32_t*)field;
  if (policy < TIDE__POLICY_COUNT) (void)snprintf(out, OPTION_VALUE, "%s", tide__policy_names[policy]);
  else (void)snprintf(out, OPTION_VALUE, "%" PRIu32, policy);
}

// PyTorch's choice among its allocators. This library is none of the others, so it accepts only "native".
static bool option_read_backend(option_text* text, void* field) {
  (void)field;
  return option_next_word(text, OPTION_MARKS) && option_word_is(text, "native");
}

// What has no field is never printed, because its text is always the default's.
static void option_write_nothing(const void* field, char* out) {
  (void)field;
  out[0] = '\0';
}

// ---------------------------------------------------------------------------------------------------
// Kinds: numbers

static bool option_read_count(option_text* text, void* field) {
  uint64_t count = 0;
  if (!option_next_number(text, &count) || count > UINT32_MAX) return false;
  *(uint32_t*)field = (uint32_t)count;
  return true;
}

static void option_write_count(const void* field, char* out) {
  (void)snprintf(out, OPTION_VALUE, "%" PRIu32, *(const uint32_t*)field);
}

static bool option_read_limit(option_text* text, void* field) {
  uint64_t mib = 0;
  if (!option_next_number(text, &mib)) return false;
  *(uint64_t*)field = tide__min(mib, UINT64_MAX / TIDE__OPTION_MIB) * TIDE__OPTION_MIB;
  return true;
}

// Bytes, in whole MiB; more than there can be is the largest multiple. Where 0 bytes stand for something
// else, only leaving the option out says so.
static bool option_read_mib(option_text* text, void* field) {
  return option_read_limit(text, field) && *(uint64_t*)field != 0;
}

// Rounds up, so that no limit, the default, is told from the largest multiple.
static void option_write_mib(const void* field, char* out) {
  const uint64_t bytes = *(const uint64_t*)field;
  const uint64_t mib = bytes / TIDE__OPTION_MIB + (tide__is_aligned(bytes, TIDE__OPTION_MIB) ? 0 : 1);
  (void)snprintf(out, OPTION_VALUE, "%" PRIu64, mib);
}

// The C library reads and writes reals as the process's locale has it; a text of ours looks the same in all.
typedef struct option_locale {
  locale_t plain;  // owned until option_locale_leave
  locale_t before;
} option_locale;

// Without memory for it, the process's own stays.
static option_locale option_locale_enter(void) {
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return (option_locale){ plain, uselocale(plain) };
}

static void option_locale_leave(option_locale locale) {
  (void)uselocale(locale.before);
  if (locale.plain != (locale_t)0) freelocale(locale.plain);
}

// Digits, a point, an exponent: not the signs, the hexadecimal digits and the names that strtod knows.
static bool option_read_real(option_text* text, void* field) {
  if (!option_next_word(text, OPTION_MARKS)) return false;
  if (text->word[strspn(text->word, "0123456789.eE+-")] != '\0') return false;
  if (text->word[0] == '+' || text->word[0] == '-') return false;
  char* end = NULL;
  const option_locale locale = option_locale_enter();
  *(double*)field = strtod(text->word, &end);
  option_locale_leave(locale);
  return *end == '\0';
}

// As few digits as read back to the same number.
static void option_write_real(const void* field, char* out) {
  const double real = *(const double*)field;
  const option_locale locale = option_locale_enter();
  for (int digits = 15; digits <= 17; digits++) {
    (void)snprintf(out, OPTION_VALUE, "%.*g", digits, real == 0 ? 0.0 : real);  // -0 is 0
    if (strtod(out, NULL) == real) break;
  }
  option_locale_leave(locale);
}

// A share that is off at 0, which a text cannot say.
static bool option_read_share(option_text* text, void* field) {
  return option_read_real(text, field) && *(const double*)field > 0;
}

// ---------------------------------------------------------------------------------------------------
// Kinds: divisions, for all sizes or by size

// How far the list was read.
typedef struct option_slots {
  uint32_t* divisions;  // borrowed during the call
  size_t last;          // the slot named last
  bool has_first;       // whether one was named
} option_slots;

static void option_fill(uint32_t* divisions, size_t first, size_t end, uint32_t value) {
  for (size_t i = first; i < end; i++) divisions[i] = value;
}

static bool option_read_divisions(option_text* text, uint32_t* out) {
  return option_read_count(text, out) && (*out == 0 || tide__is_power_of_two(*out));
}

// "MiB:divisions" sets the slot of that size, and the first of its kind also those below; ">:divisions" sets
// the slots above the one named last. What lies between two that are named stays.
static bool option_read_pair(option_text* text, option_slots* slots) {
  uint64_t mib = 0;
  const bool is_number = option_next_number(text, &mib);
  const bool is_above = option_word_is(text, ">");
  if (!is_above && (!is_number || !tide__is_power_of_two(mib))) return false;
  if (!option_accept(text, ':')) {
    option_show_next(text);
    return false;
  }
  uint32_t value = 0;
  if (!option_read_divisions(text, &value)) return false;
  if (is_above) {
    option_fill(slots->divisions, slots->last + 1, TIDE_ROUNDUP_SLOTS, value);
    return true;
  }
  slots->last = tide__min((uint64_t)__builtin_ctzll(mib), TIDE_ROUNDUP_SLOTS - 1);
  option_fill(slots->divisions, slots->has_first ? slots->last : 0, slots->last + 1, value);
  slots->has_first = true;
  return true;
}

static bool option_read_list(option_text* text, uint32_t* divisions) {
  option_slots slots = { divisions, 0, false };
  while (!option_accept(text, ']')) {
    if (!option_read_pair(text, &slots)) return false;
    if (option_peek(text) == ']' || option_accept(text, ',')) continue;
    option_show_next(text);
    return false;
  }
  return true;
}

static bool option_read_roundup(option_text* text, void* field) {
  if (option_accept(text, '[')) return option_read_list(text, field);
  uint32_t value = 0;
  if (!option_read_divisions(text, &value) || value == 0) return false;
  option_fill(field, 0, TIDE_ROUNDUP_SLOTS, value);
  return true;
}

// Names the end of the run of equal slots at the beginning, then what is not 0, and for the run at the end
// the slot before it and ">".
static void option_write_roundup(const void* field, char* out) {
  const uint32_t* divisions = field;
  const uint32_t above = divisions[TIDE_ROUNDUP_SLOTS - 1];
  size_t first = 0;
  size_t tail = TIDE_ROUNDUP_SLOTS - 1;
  while (first < tail && divisions[first + 1] == divisions[0]) first++;
  if (first == tail) {
    (void)snprintf(out, OPTION_VALUE, "%" PRIu32, above);
    return;
  }
  while (divisions[tail - 1] == above) tail--;
  size_t length = 0;
  for (size_t i = first; i < tail; i++) {
    if (i != first && divisions[i] == 0 && i + 1 != tail) continue;
    length += (size_t)snprintf(out + length, OPTION_VALUE - length, "%c%u:%" PRIu32, length == 0 ? '[' : ',',
                               1u << i, divisions[i]);
  }
  if (above == 0) (void)snprintf(out + length, OPTION_VALUE - length, "]");
  else (void)snprintf(out + length, OPTION_VALUE - length, ",>:%" PRIu32 "]", above);
}

// ---------------------------------------------------------------------------------------------------
// Kinds: a share or GiB

static bool option_read_reserve(option_text* text, void* field) {
  tide_reserve* const reserve = field;
  const option_text before = *text;
  *reserve = (tide_reserve){ 0.0, 0 };
  if (!option_next_word(text, OPTION_MARKS)) return false;
  const size_t digits = strspn(text->word, "0123456789");
  if (digits > 0 && digits <= 6 && strcmp(text->word + digits, "G") == 0) {
    reserve->bytes = (uint64_t)strtoul(text->word, NULL, 10) << 30;
    return reserve->bytes != 0;
  }
  *text = before;
  return option_read_real(text, &reserve->fraction) && reserve->fraction > 0;
}

static void option_write_reserve(const void* field, char* out) {
  const tide_reserve* const reserve = field;
  if (reserve->bytes == 0) {
    option_write_real(&reserve->fraction, out);
  } else {
    (void)snprintf(out, OPTION_VALUE, "%lluG", (unsigned long long)(reserve->bytes >> 30));
  }
}

// ---------------------------------------------------------------------------------------------------
// Kinds: keys without effect

static bool option_read_no_bool(option_text* text, void* field) {
  bool value = false;
  (void)field;
  return option_read_bool(text, &value);
}

// Reserves of addresses by the class of a stream. PyTorch ignores those that it cannot read.
static bool option_read_no_list(option_text* text, void* field) {
  (void)field;
  bool is_good = option_accept(text, '[');
  while (is_good && !option_accept(text, ']')) {
    is_good = option_next_word(text, OPTION_MARKS) && option_accept(text, ':') &&
              option_next_word(text, OPTION_MARKS) && (option_accept(text, ',') || option_peek(text) == ']');
  }
  if (!is_good) option_show_next(text);
  return is_good;
}

// ---------------------------------------------------------------------------------------------------
// Kinds

static const option_kind option_kinds[] = {
  [TIDE__OPTION_BOOL] = { option_read_bool, option_write_bool },
  [TIDE__OPTION_SWITCH] = { option_read_switch, option_write_bool },
  [TIDE__OPTION_POLICY] = { option_read_policy, option_write_policy },
  [TIDE__OPTION_BACKEND] = { option_read_backend, option_write_nothing },
  [TIDE__OPTION_COUNT] = { option_read_count, option_write_count },
  [TIDE__OPTION_MIBS] = { option_read_mib, option_write_mib },
  [TIDE__OPTION_LIMIT] = { option_read_limit, option_write_mib },
  [TIDE__OPTION_REAL] = { option_read_real, option_write_real },
  [TIDE__OPTION_SHARE] = { option_read_share, option_write_real },
  [TIDE__OPTION_RESERVE] = { option_read_reserve, option_write_reserve },
  [TIDE__OPTION_ROUNDUP] = { option_read_roundup, option_write_roundup },
  [TIDE__OPTION_NO_BOOL] = { option_read_no_bool, option_write_nothing },
  [TIDE__OPTION_NO_LIST] = { option_read_no_list, option_write_nothing },
};

static bool option_read(option_text* text, const tide__option_row* row, tide_device_options* options) {
  return option_kinds[row->kind].read(text, (char*)options + row->offset);
}

static void option_write(const tide__option_row* row, const tide_device_options* options, char* out) {
  option_kinds[row->kind].write((const char*)options + row->offset, out);
}

// The size of large segments is a bound of other options.
static bool option_is_early(const tide__option_row* row) {
  return row->offset == offsetof(tide_device_options, large_segment_bytes);
}

static bool option_is_valid(const tide__option_row* row, const tide_device_options* options) {
  return row->is_valid == NULL || row->is_valid(options);
}

// ---------------------------------------------------------------------------------------------------
// Reading

static tide_status option_refuse(const option_text* text, const tide__option_row* row, const char* wants) {
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: %s: found \"%.40s\", expected %s", text->source, row->key,
                   text->word, wants);
}

// Reads the value of a row into the options, or, when it is not its turn, only over it.
static tide_status option_read_value(option_text* text, const tide__option_row* row, bool is_early,
                                     tide_device_options* options) {
  const bool is_turn = option_is_early(row) == is_early;
  tide_device_options other = *options;
  tide_device_options* target = is_turn ? options : &other;
  const bool is_read = option_read(text, row, target);
  if (!is_read || (is_turn && !option_is_valid(row, target))) return option_refuse(text, row, row->wants);
  return TIDE_OK;
}

static tide_status option_refuse_key(const option_text* text) {
  const char* const instead = tide__option_instead(text->word);
  if (instead == NULL)
    return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: there is no option \"%.40s\"", text->source, text->word);
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: the option \"%.40s\" was removed; see %s", text->source,
                   text->word, instead);
}

static tide_status option_read_entry(option_text* text, bool is_early, tide_device_options* options) {
  const bool is_word = option_next_word(text, OPTION_KEY_END);
  const tide__option_row* row = is_word ? tide__option_find(text->word) : NULL;
  if (row == NULL) return option_refuse_key(text);
  if (!option_accept(text, ':') && !option_accept(text, '=')) {
    option_show_next(text);
    return option_refuse(text, row, "\":\" after the key");
  }
  TIDE_TRY(option_read_value(text, row, is_early, options));
  if (option_peek(text) != '\0' && !option_accept(text, ',')) {
    option_show_next(text);
    return option_refuse(text, row, "\",\" or the end after the value");
  }
  return TIDE_OK;
}

// Reads the early options of a text, or the others.
static tide_status option_read_pass(option_text* text, bool is_early, tide_device_options* options) {
  while (option_peek(text) != '\0') TIDE_TRY(option_read_entry(text, is_early, options));
  return TIDE_OK;
}

// The options of a caller, whose struct may be a shorter one, as a whole one.
static tide_status options_complete(const tide_device_options* options, const char* call,
                                    tide_device_options* out) {
  memcpy(out, &option_defaults, sizeof *out);  // padding as well, which options_give() compares
  return tide__sized_read(call, options, out, sizeof *out);
}

// Gives options back to a caller; an older struct must have room for all that is set.
static tide_status options_give(const char* source, const tide_device_options* from,
                                tide_device_options* options) {
  const size_t size = options->size;
  const bool is_lost =
      memcmp((const char*)from + size, (const char*)&option_defaults + size, sizeof *from - size) != 0;
  TIDE_REQUIRE(!is_lost, TIDE_ERR_ARGUMENT, "%s: sets an option that a struct of %zu bytes does not have",
               source, size);
  return tide__sized_write(source, from, options, sizeof *from);
}

static tide_status options_read(const char* source, const char* text, tide_device_options* options) {
  tide_device_options read;
  TIDE_TRY(options_complete(options, source, &read));
  read.max_split_bytes = option_defaults.max_split_bytes;
  read.non_split_excess_bytes = option_defaults.non_split_excess_bytes;
  read.collect_threshold = option_defaults.collect_threshold;
  memcpy(read.roundup_divisions, option_defaults.roundup_divisions, sizeof read.roundup_divisions);
  option_text first = { text, source, "" };
  TIDE_TRY(option_read_pass(&first, true, &read));
  option_text second = { text, source, "" };
  TIDE_TRY(option_read_pass(&second, false, &read));
  return options_give(source, &read, options);
}

tide_status tide_device_options_parse(const char* text, tide_device_options* options) {
  TIDE_REQUIRE(text != NULL, TIDE_ERR_ARGUMENT, "options_parse: needs a text");
  return options_read("options_parse", text, options);
}

tide_status tide_device_options_from_env(tide_device_options* options) {
  static const char* const names[] = { "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TIDEMARK_CONF" };
  tide_device_options whole;
  TIDE_TRY(options_complete(options, "options_from_env", &whole));
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const char* text = getenv(names[i]);
    if (text != NULL) return options_read(names[i], text, options);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Printing and checking

// A text that is being written; `length` is that of the whole text, even where it does not fit.
typedef struct option_out {
  char* text;  // borrowed during the call
  size_t capacity;
  size_t length;
} option_out;

static void option_append(option_out* out, const char* piece) {
  for (; *piece != '\0'; piece++, out->length++) {
    if (out->length + 1 < out->capacity) out->text[out->length] = *piece;
  }
}

static void option_append_row(option_out* out, const tide__option_row* row,
                              const tide_device_options* options) {
  char value[OPTION_VALUE];
  char usual[OPTION_VALUE];
  option_write(row, options, value);
  option_write(row, &option_defaults, usual);
  if (strcmp(value, usual) == 0) return;
  if (out->length > 0) option_append(out, ",");
  option_append(out, row->key);
  option_append(out, ":");
  option_append(out, value);
}

size_t tide_device_options_print(const tide_device_options* options, char* text, size_t capacity) {
  if (text == NULL) capacity = 0;
  option_out out = { text, capacity, 0 };
  tide_device_options whole = option_defaults;
  const bool is_known = tide__sized_read("options_print", options, &whole, sizeof whole) == TIDE_OK;
  for (size_t i = 0; is_known && i < tide__option_row_count; i++)
    option_append_row(&out, &tide__option_rows[i], &whole);
  if (capacity > 0) text[tide__min(out.length, capacity - 1)] = '\0';
  return out.length;
}

// A size that is no whole MiB is wrong because of its bytes: shows those.
static void option_show_value(const tide__option_row* row, const tide_device_options* options, char* out) {
  const bool is_mib = row->kind == TIDE__OPTION_MIBS || row->kind == TIDE__OPTION_LIMIT;
  uint64_t bytes = 0;
  memcpy(&bytes, (const char*)options + row->offset, sizeof bytes);
  if (is_mib) (void)snprintf(out, OPTION_VALUE, "%" PRIu64, bytes);
  else option_write(row, options, out);
}

tide_status tide__device_options_take(const tide_device_options* options, const char* call,
                                      tide_device_options* out) {
  TIDE_TRY(options_complete(options, call, out));
  options = out;
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT, "%s: heap lacks a function", call);
  for (size_t i = 0; i < tide__option_row_count; i++) {
    const tide__option_row* row = &tide__option_rows[i];
    if (option_is_valid(row, options)) continue;
    char value[OPTION_VALUE];
    option_show_value(row, options, value);
    return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: %s is %.60s, expected %s", call, row->field, value, row->wants);
  }
  return TIDE_OK;
}
