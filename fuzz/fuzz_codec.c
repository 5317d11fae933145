// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Fuzzes compressed files through the reader of the command. The first byte decides whether the rest is a
// file as it is, or is compressed by a codec first, with one bit flipped or not. A file is read or refused. A
// file that was compressed correctly is read exactly if it is read without the codec.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec.h"
#include "tool.h"

#define FUZZ_PACKED ((size_t)256 << 10)
#define FUZZ_REQUIRE(cond) \
  do {                     \
    if (!(cond)) abort();  \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

// A file without a name, and a path by which it can be opened.
static int fuzz_file = -1;
static char fuzz_path[64];

static void fuzz_file_open(void) {
  char path[] = "/tmp/tide_fuzz_XXXXXX";
  if (fuzz_file >= 0) return;
  fuzz_file = mkstemp(path);
  FUZZ_REQUIRE(fuzz_file >= 0 && unlink(path) == 0);
  (void)snprintf(fuzz_path, sizeof fuzz_path, "/proc/self/fd/%d", fuzz_file);
}

static tide_status fuzz_read(const uint8_t* data, size_t bytes) {
  tide_trace* trace = NULL;
  fuzz_file_open();
  // Some file systems write a file to the disk when it is cut to nothing and filled again.
  FUZZ_REQUIRE(bytes == 0 || pwrite(fuzz_file, data, bytes, 0) == (ssize_t)bytes);
  FUZZ_REQUIRE(ftruncate(fuzz_file, (off_t)bytes) == 0);
  const tide_status status = tool_trace_load(fuzz_path, &trace);
  FUZZ_REQUIRE(status == TIDE_OK || status == TIDE_ERR_FORMAT || status == TIDE_ERR_LIMIT);
  FUZZ_REQUIRE((status == TIDE_OK) == (trace != NULL));
  tide_trace_free(trace);
  return status;
}

// Compresses some bytes with a codec; returns the size.
static size_t fuzz_pack(const tool_codec* codec, const uint8_t* data, size_t bytes, uint8_t* out) {
  void* const encoder = codec->start(true);
  tool_flow flow = { .in = data, .in_bytes = bytes, .out = out, .out_room = FUZZ_PACKED, .is_last = true };
  FUZZ_REQUIRE(encoder != NULL);
  tool_flow_state state = TOOL_FLOW_MORE;
  while (state == TOOL_FLOW_MORE) state = codec->step(encoder, &flow);
  FUZZ_REQUIRE(state == TOOL_FLOW_END);
  codec->stop(encoder);
  return FUZZ_PACKED - flow.out_room;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const tool_codec* const codecs[] = { &tool_codec_xz, &tool_codec_gzip, &tool_codec_zstd };
  static uint8_t packed[FUZZ_PACKED];
  if (bytes == 0 || bytes > FUZZ_PACKED / 4) return 0;
  const uint8_t way = *data++;
  bytes--;
  // Making an encoder of xz takes longer than all else, so it has few turns.
  const tool_codec* const codec = way % 32 == 0 ? codecs[0] : way % 4 < 3 ? codecs[1 + way % 2] : NULL;
  if (codec == NULL || codec->start == NULL) {
    (void)fuzz_read(data, bytes);
    return 0;
  }
  const size_t length = fuzz_pack(codec, data, bytes, packed);
  if (way < 128) {
    // A file that is packed within the packed one is refused; alone it is unpacked.
    if (tool_codec_by_magic(data, bytes) != NULL) return 0;
    FUZZ_REQUIRE(fuzz_read(packed, length) == fuzz_read(data, bytes));
    return 0;
  }
  packed[(size_t)way * 2654435761u % length] ^= (uint8_t)(1 << way % 8);
  (void)fuzz_read(packed, length);
  return 0;
}
