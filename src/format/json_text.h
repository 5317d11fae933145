// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts of any bytes as JSON strings.
#ifndef TIDEMARK_SRC_FORMAT_JSON_TEXT_H
#define TIDEMARK_SRC_FORMAT_JSON_TEXT_H

#include "format/output.h"

// What to do with a byte that is not UTF-8. KEEP writes the lone surrogate U+DC80 + (byte - 0x80), as
// Python's surrogateescape does, so that it can be read back. SHOW writes U+FFFD, for display.
typedef enum tide__json_repair { TIDE__JSON_KEEP, TIDE__JSON_SHOW } tide__json_repair;

// Writes a string with its quotes.
void tide__output_json_text(tide__output* output, const char* text, size_t bytes, tide__json_repair repair);

// Parses a JSON number, whatever the locale; and converts a number printed by printf() to JSON.
double tide__json_number(const char* text);
void tide__json_point(char* text);

// The length of the first character of a text in bytes; 0 if it is not UTF-8.
size_t tide__utf8_length(const char* text, size_t bytes);

// The bytes of a code point, surrogates included.
size_t tide__utf8_encode(uint32_t code, char out[4]);

#endif
