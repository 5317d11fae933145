// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compressed files: one codec for each compression format. If its library was missing when the program was
// built, a codec still has its magic and its ending, but no functions.
#ifndef TIDEMARK_TOOL_CODEC_H
#define TIDEMARK_TOOL_CODEC_H

#include <stdbool.h>
#include <stddef.h>

// The most memory that a decoder may use for a hostile file.
#define TOOL_CODEC_MEMORY_LOG 30

// Input and output of a codec. A step advances the pointers and reduces the counts.
typedef struct tool_flow {
  const unsigned char* in;  // borrowed
  size_t in_bytes;
  unsigned char* out;  // borrowed
  size_t out_room;
  bool is_last;         // nothing comes after `in`
  const char* problem;  // set for TOOL_FLOW_BAD; never freed
} tool_flow;

typedef enum tool_flow_state {
  TOOL_FLOW_MORE,  // needs more input or more room
  TOOL_FLOW_END,   // all input is consumed and all output written
  TOOL_FLOW_BAD
} tool_flow_state;

typedef struct tool_codec {
  const char* name;
  const char* ending;
  const char* library;
  const char* magic;
  size_t magic_bytes;
  // Creates a decoder or an encoder; NULL if out of memory. All three are NULL without the library.
  void* (*start)(bool is_encoder);
  tool_flow_state (*step)(void* state, tool_flow* flow);
  void (*stop)(void* state);  // frees the state, which may be NULL
} tool_codec;

extern const tool_codec tool_codec_xz;
extern const tool_codec tool_codec_gzip;
extern const tool_codec tool_codec_zstd;

#define TOOL_MAGIC_BYTES 6  // the longest

// The codec of a file by its first bytes, or of a name by its ending; NULL: not compressed. `out_stem_bytes`
// (may be NULL) gets the length of the name without that ending.
const tool_codec* tool_codec_by_magic(const unsigned char* bytes, size_t count);
const tool_codec* tool_codec_by_name(const char* name, size_t* out_stem_bytes);

#endif
