// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Texts of any bytes as JSON strings.
#ifndef TIDEMARK_SRC_FORMAT_JSON_TEXT_H
#define TIDEMARK_SRC_FORMAT_JSON_TEXT_H

#include "format/output.h"

// What becomes of a byte that is not UTF-8: it is kept as the lone surrogate U+DC80 + (byte - 0x80), as
// Python's surrogateescape has it, so that it can be read back; or it becomes U+FFFD, for people to see.
typedef enum tide__json_repair { TIDE__JSON_KEEP, TIDE__JSON_SHOW } tide__json_repair;

// Writes a string with its quotes.
void tide__output_json_text(tide__output* output, const char* text, size_t bytes, tide__json_repair repair);

// A number in JSON's form, whatever the locale of the program; and a number that printf() made, brought to
// that form.
double tide__json_number(const char* text);
void tide__json_point(char* text);

// How many bytes the character takes that a text begins with; 0: it is not UTF-8.
size_t tide__utf8_length(const char* text, size_t bytes);

// The bytes of a code point, surrogates included.
size_t tide__utf8_encode(uint32_t code, char out[4]);

#endif
