// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Reads a JSON snapshot in one pass. Every value goes to the assembler, and at once into its list or dict.
// Texts are decoded to UTF-8; a lone surrogate from U+DC80 to U+DCFF is a byte that was not UTF-8. NaN and
// Infinity are accepted, as Python writes them.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/assemble.h"
#include "format/decode.h"
#include "format/json_text.h"
#include "format/numbers.h"
#include "format/record.h"
#include "trace/limit.h"

#define JSON_NESTED 80u
#define JSON_NUMBER 400u  // characters of a number

typedef struct json_reader {
  tide__input* input;
  tide__assembler a;
  tide__bytes text;            // the string that is being read
  uint8_t kinds[JSON_NESTED];  // what is open: '{' or '['
  size_t depth;
} json_reader;

static bool is_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

bool tide__json_is(const void* head, size_t bytes) {
  const uint8_t* const at = head;
  size_t i = 0;
  while (i < bytes && is_space(at[i])) i++;
  return i < bytes && (at[i] == '{' || at[i] == '[');
}

// ---------------------------------------------------------------------------------------------------
// Bytes

// Peeks at the next byte; -1 at the end.
static tide_status json_peek(json_reader* r, int* out) {
  if (tide__input_ready(r->input) == 0) TIDE_TRY(tide__input_fill(r->input, 1));
  *out = tide__input_ready(r->input) > 0 ? r->input->buffer[r->input->at] : -1;
  return TIDE_OK;
}

static tide_status json_next(json_reader* r, int* out) {
  TIDE_TRY(json_peek(r, out));
  if (*out < 0)
    return TIDE_FAIL(TIDE_ERR_FORMAT, "json: truncated at byte %" PRIu64, tide__input_offset(r->input));
  r->input->at++;
  return TIDE_OK;
}

// Skips white space and peeks at the next byte.
static tide_status json_skip(json_reader* r, int* out) {
  TIDE_TRY(json_peek(r, out));
  while (is_space(*out)) {
    r->input->at++;
    TIDE_TRY(json_peek(r, out));
  }
  r->a.offset = tide__input_offset(r->input);
  return TIDE_OK;
}

static tide_status json_unexpected(json_reader* r, int byte) {
  if (byte < 0) return TIDE_FAIL(TIDE_ERR_FORMAT, "json: truncated at byte %" PRIu64, r->a.offset);
  return TIDE__FILE_FAIL(&r->a, "unexpected byte 0x%02x", (unsigned)byte);
}

// ---------------------------------------------------------------------------------------------------
// Texts

static tide_status json_hex(json_reader* r, uint32_t* out) {
  const uint8_t* at = NULL;
  uint32_t code = 0;
  TIDE_TRY(tide__input_take(r->input, 4, &at));
  for (size_t i = 0; i < 4; i++) {
    const uint8_t digit = at[i];
    const bool is_letter = (digit | 0x20) >= 'a' && (digit | 0x20) <= 'f';
    if (!is_letter && (digit < '0' || digit > '9'))
      return TIDE__FILE_FAIL(&r->a, "%s", "\\u is not followed by four hexadecimal digits");
    code = code << 4 | (uint32_t)(is_letter ? (digit | 0x20) - 'a' + 10 : digit - '0');
  }
  *out = code;
  return TIDE_OK;
}

// The second half of a pair of surrogates, if it follows.
static tide_status json_low_half(json_reader* r, uint32_t* code) {
  uint32_t low = 0;
  TIDE_TRY(tide__input_fill(r->input, 6));
  const uint8_t* const at = r->input->buffer + r->input->at;
  if (tide__input_ready(r->input) < 6 || at[0] != '\\' || at[1] != 'u' || (at[2] | 0x20) != 'd' ||
      at[3] < 'C')
    return TIDE_OK;
  r->input->at += 2;
  TIDE_TRY(json_hex(r, &low));
  if (low >= 0xdc00 && low <= 0xdfff) *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
  else r->input->at -= 6;
  return TIDE_OK;
}

static tide_status json_unicode(json_reader* r) {
  uint32_t code = 0;
  char bytes[4];
  TIDE_TRY(json_hex(r, &code));
  if (code >= 0xd800 && code <= 0xdbff) TIDE_TRY(json_low_half(r, &code));
  if (code >= 0xdc80 && code <= 0xdcff) {
    bytes[0] = (char)(code - 0xdc00);
    return tide__bytes_add(&r->text, bytes, 1);
  }
  return tide__bytes_add(&r->text, bytes, tide__utf8_encode(code, bytes));
}

static tide_status json_escape(json_reader* r) {
  static const char from[] = "\"\\/bfnrt";
  static const char to[] = "\"\\/\b\f\n\r\t";
  int byte = 0;
  TIDE_TRY(json_next(r, &byte));
  if (byte == 'u') return json_unicode(r);
  const char* const at = byte != 0 ? strchr(from, byte) : NULL;
  if (at == NULL) return TIDE__FILE_FAIL(&r->a, "%s", "not a valid escape sequence");
  return tide__bytes_add(&r->text, &to[at - from], 1);
}

// Takes all characters up to the next quote, escape or control character.
static tide_status json_run(json_reader* r) {
  const uint8_t* const at = r->input->buffer + r->input->at;
  const size_t ready = tide__input_ready(r->input);
  size_t run = 0;
  while (run < ready && at[run] != '"' && at[run] != '\\' && at[run] >= 0x20) run++;
  r->input->at += run;
  return run > 0 ? tide__bytes_add(&r->text, at, run) : TIDE_OK;
}

static tide_status json_text(json_reader* r) {
  r->text.used = 0;
  r->input->at++;
  for (;;) {
    int byte = 0;
    TIDE_TRY(json_run(r));
    TIDE_TRY(json_peek(r, &byte));
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;  // the next piece
    TIDE_TRY(json_next(r, &byte));
    if (byte == '"') break;
    if (byte != '\\') return TIDE__FILE_FAIL(&r->a, "control character 0x%02x in a string", (unsigned)byte);
    TIDE_TRY(json_escape(r));
  }
  return tide__assemble_text(&r->a, r->text.data, r->text.used);
}

// ---------------------------------------------------------------------------------------------------
// Numbers and words

static bool is_of_number(int byte) {
  return (byte >= '0' && byte <= '9') || byte == '-' || byte == '+' || byte == '.' || byte == 'e' ||
         byte == 'E';
}

// Is it a JSON number: -?(0|[1-9]digits)(.digits)?([eE][+-]?digits)?
static bool number_is_right(const char* at, bool* out_is_integer) {
  at += *at == '-';
  if (*at == '0' && at[1] >= '0' && at[1] <= '9') return false;
  const size_t whole = strspn(at, "0123456789");
  at += whole;
  *out_is_integer = *at == '\0';
  if (whole == 0) return false;
  if (*at == '.') {
    const size_t fraction = strspn(at + 1, "0123456789");
    if (fraction == 0) return false;
    at += 1 + fraction;
  }
  if (*at == 'e' || *at == 'E') {
    at++;
    at += *at == '+' || *at == '-';
    const size_t exponent = strspn(at, "0123456789");
    if (exponent == 0) return false;
    at += exponent;
  }
  return *at == '\0';
}

// Up to 2^64 - 1, or down to -2^63.
static bool digits_fit(const char* at, bool is_negative, uint64_t* out) {
  uint64_t number = 0;
  for (; *at != '\0'; at++) {
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
      return false;
  }
  *out = number;
  return !is_negative || number <= (uint64_t)INT64_MAX + 1;
}

static tide_status number_give(json_reader* r, const char* text, bool is_integer) {
  const bool is_negative = text[0] == '-';
  uint64_t number = 0;
  if (!is_integer) return tide__assemble_float(&r->a, tide__json_number(text));
  if (!digits_fit(text + is_negative, is_negative, &number))
    return TIDE__FILE_FAIL(&r->a, "%s", "an integer does not fit into 64 bits");
  return is_negative ? tide__assemble_int(&r->a, (int64_t)-number) : tide__assemble_uint(&r->a, number);
}

// true, false, null, NaN, Infinity or -Infinity.
static tide_status json_word_of(json_reader* r) {
  char word[10] = "";
  size_t length = 0;
  int byte = 0;
  TIDE_TRY(json_peek(r, &byte));
  while (length + 1 < sizeof word &&
         ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '-')) {
    word[length++] = (char)byte;
    r->input->at++;
    TIDE_TRY(json_peek(r, &byte));
  }
  if (strcmp(word, "true") == 0) return tide__assemble_bool(&r->a, true);
  if (strcmp(word, "false") == 0) return tide__assemble_bool(&r->a, false);
  if (strcmp(word, "null") == 0) return tide__assemble_none(&r->a);
  if (strcmp(word, "NaN") == 0) return tide__assemble_float(&r->a, (double)NAN);
  if (strcmp(word, "Infinity") == 0) return tide__assemble_float(&r->a, (double)INFINITY);
  if (strcmp(word, "-Infinity") == 0) return tide__assemble_float(&r->a, -(double)INFINITY);
  if (byte < 0) return json_unexpected(r, byte);
  return TIDE__FILE_FAIL(&r->a, "'%s' is not a value", word);
}

static tide_status json_number(json_reader* r) {
  char text[JSON_NUMBER + 1];
  size_t length = 0;
  int byte = 0;
  bool is_integer = false;
  TIDE_TRY(tide__input_fill(r->input, 2));
  const uint8_t* const at = r->input->buffer + r->input->at;
  if (tide__input_ready(r->input) >= 2 && at[0] == '-' && at[1] == 'I') return json_word_of(r);
  TIDE_TRY(json_peek(r, &byte));
  while (is_of_number(byte) && length < JSON_NUMBER) {
    text[length++] = (char)byte;
    r->input->at++;
    TIDE_TRY(json_peek(r, &byte));
  }
  text[length] = '\0';
  if (!number_is_right(text, &is_integer)) return TIDE__FILE_FAIL(&r->a, "%s", "not a valid number");
  return number_give(r, text, is_integer);
}

// ---------------------------------------------------------------------------------------------------
// Lists and dicts, with an explicit stack instead of recursion

static tide_status json_begin(json_reader* r, int byte) {
  if (r->depth == JSON_NESTED) return TIDE__FILE_FAIL(&r->a, "nested deeper than %u", JSON_NESTED);
  r->input->at++;
  r->kinds[r->depth++] = (uint8_t)byte;
  return tide__assemble_open(&r->a, byte == '{');
}

// A scalar, or the beginning of a list or dict.
static tide_status json_value(json_reader* r, int byte) {
  if (byte == '{' || byte == '[') return json_begin(r, byte);
  if (byte == '"') return json_text(r);
  if (byte == '-' || (byte >= '0' && byte <= '9')) return json_number(r);
  return json_word_of(r);
}

// A key and the colon behind it.
static tide_status json_key(json_reader* r, int byte) {
  if (byte != '"') return json_unexpected(r, byte);
  TIDE_TRY(json_text(r));
  TIDE_TRY(json_skip(r, &byte));
  if (byte != ':') return json_unexpected(r, byte);
  r->input->at++;
  return json_skip(r, &byte);
}

// Adds a complete value to its list or dict.
static tide_status json_give(json_reader* r) {
  const bool is_dict = r->kinds[r->depth - 1] == '{';
  return is_dict ? tide__assemble_set(&r->a, 2, false) : tide__assemble_append(&r->a, 1, false);
}

// Skips the comma before the next element, or the closing bracket.
static tide_status json_more(json_reader* r, bool is_first, bool* out_is_end) {
  int byte = 0;
  TIDE_TRY(json_skip(r, &byte));
  *out_is_end = byte == (r->kinds[r->depth - 1] == '{' ? '}' : ']');
  if (!*out_is_end && is_first) return TIDE_OK;
  if (!*out_is_end && byte != ',') return json_unexpected(r, byte);
  r->input->at++;
  return TIDE_OK;
}

// An element, or its beginning if it is a list or dict itself.
static tide_status json_element(json_reader* r) {
  int byte = 0;
  TIDE_TRY(json_skip(r, &byte));
  if (r->kinds[r->depth - 1] == '{') TIDE_TRY(json_key(r, byte));
  TIDE_TRY(json_skip(r, &byte));
  return json_value(r, byte);
}

// White space may follow the end, and zero bytes that pad a page.
static tide_status json_tail(json_reader* r) {
  int byte = 0;
  TIDE_TRY(json_skip(r, &byte));
  while (byte == 0) {
    r->input->at++;
    TIDE_TRY(json_skip(r, &byte));
  }
  return byte < 0 ? TIDE_OK : json_unexpected(r, byte);
}

static tide_status json_run_all(json_reader* r) {
  int byte = 0;
  TIDE_TRY(json_skip(r, &byte));
  if (byte != '{' && byte != '[') return json_unexpected(r, byte);
  TIDE_TRY(json_begin(r, byte));
  for (bool is_first = true; r->depth > 0;) {
    bool is_end = false;
    const size_t depth = r->depth;
    TIDE_TRY(json_more(r, is_first, &is_end));
    if (is_end) r->depth--;
    else TIDE_TRY(json_element(r));
    is_first = r->depth > depth;
    if (!is_first && r->depth > 0) TIDE_TRY(json_give(r));
  }
  TIDE_TRY(tide__assemble_end(&r->a));
  return json_tail(r);
}

tide_status tide__json_read(tide__input* input, tide_trace* trace) {
  json_reader r = { .input = input };
  tide_status status = tide__assembler_init(&r.a, trace, "json");
  r.a.has_no_tuples = true;
  r.text.heap = r.a.heap;
  if (status == TIDE_OK) status = json_run_all(&r);
  tide__bytes_fini(&r.text);
  tide__assembler_fini(&r.a);
  return status;
}
