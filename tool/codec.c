// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Finds the codec of a file or of a file name.
#include "codec.h"

#include <string.h>

static const tool_codec* const codecs[] = { &tool_codec_xz, &tool_codec_gzip, &tool_codec_zstd };

#define CODEC_COUNT (sizeof codecs / sizeof codecs[0])

const tool_codec* tool_codec_by_magic(const unsigned char* bytes, size_t count) {
  for (size_t i = 0; i < CODEC_COUNT; i++) {
    const size_t length = codecs[i]->magic_bytes;
    if (count >= length && memcmp(bytes, codecs[i]->magic, length) == 0) return codecs[i];
  }
  return NULL;
}

const tool_codec* tool_codec_by_name(const char* name, size_t* out_stem_bytes) {
  const size_t bytes = strlen(name);
  if (out_stem_bytes != NULL) *out_stem_bytes = bytes;
  for (size_t i = 0; i < CODEC_COUNT; i++) {
    const size_t ending = strlen(codecs[i]->ending);
    if (bytes <= ending || strcmp(name + bytes - ending, codecs[i]->ending) != 0) continue;
    if (out_stem_bytes != NULL) *out_stem_bytes = bytes - ending;
    return codecs[i];
  }
  return NULL;
}
