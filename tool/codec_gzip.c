// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// gzip files, with zlib. Consecutive members are read as one file; zeros after the last are padding. zlib
// counts in 32 bits, which limits the size of a step.
#include "codec.h"

#ifdef TIDEMARK_HAVE_ZLIB
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define GZIP_WINDOW (15 + 16)  // the widest, with gzip's header
#define GZIP_MEMORY 8

typedef struct gzip_state {
  z_stream stream;
  bool is_encoder;
  bool is_between;  // decoding: after a member
} gzip_state;

static void* gzip_start(bool is_encoder) {
  gzip_state* const state = calloc(1, sizeof *state);
  if (state == NULL) return NULL;
  state->is_encoder = is_encoder;
  const int result = is_encoder ? deflateInit2(&state->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW,
                                               GZIP_MEMORY, Z_DEFAULT_STRATEGY)
                                : inflateInit2(&state->stream, GZIP_WINDOW);
  if (result == Z_OK) return state;
  free(state);
  return NULL;
}

static unsigned gzip_count(size_t bytes) { return bytes > UINT_MAX ? UINT_MAX : (unsigned)bytes; }

// Between two members; true if another one begins.
static bool member_begins(gzip_state* state, tool_flow* flow) {
  while (flow->in_bytes > 0 && *flow->in == 0) {
    flow->in++;
    flow->in_bytes--;
  }
  if (flow->in_bytes == 0) return false;
  state->is_between = false;
  return inflateReset(&state->stream) == Z_OK;
}

// One call of zlib, whose input is not const although zlib does not write to it.
static int gzip_code(gzip_state* state, tool_flow* flow) {
  const unsigned in_bytes = gzip_count(flow->in_bytes);
  const unsigned out_room = gzip_count(flow->out_room);
  z_stream* const stream = &state->stream;
  memcpy(&stream->next_in, &flow->in, sizeof flow->in);
  stream->avail_in = in_bytes;
  stream->next_out = flow->out;
  stream->avail_out = out_room;
  const bool is_last = flow->is_last && in_bytes == flow->in_bytes;
  const int result = state->is_encoder ? deflate(stream, is_last ? Z_FINISH : Z_NO_FLUSH)
                                       : inflate(stream, Z_NO_FLUSH);
  flow->in += in_bytes - stream->avail_in;
  flow->in_bytes -= in_bytes - stream->avail_in;
  flow->out += out_room - stream->avail_out;
  flow->out_room -= out_room - stream->avail_out;
  return result;
}

static tool_flow_state gzip_step(void* opaque, tool_flow* flow) {
  gzip_state* const state = opaque;
  if (state->is_between && !member_begins(state, flow)) return flow->is_last ? TOOL_FLOW_END : TOOL_FLOW_MORE;
  const int result = gzip_code(state, flow);
  if (result == Z_STREAM_END && state->is_encoder) return TOOL_FLOW_END;
  if (result == Z_STREAM_END) state->is_between = true;
  if (result == Z_STREAM_END || result == Z_OK || result == Z_BUF_ERROR) return TOOL_FLOW_MORE;
  flow->problem = result == Z_MEM_ERROR ? "out of memory" : "the data is corrupt";
  return TOOL_FLOW_BAD;
}

static void gzip_stop(void* opaque) {
  gzip_state* const state = opaque;
  if (state == NULL) return;
  (void)(state->is_encoder ? deflateEnd(&state->stream) : inflateEnd(&state->stream));
  free(state);
}
#else
#define gzip_start NULL
#define gzip_step NULL
#define gzip_stop NULL
#endif

const tool_codec tool_codec_gzip = {
  .name = "gzip",
  .ending = ".gz",
  .library = "zlib",
  .magic = "\x1f\x8b",
  .magic_bytes = 2,
  .start = gzip_start,
  .step = gzip_step,
  .stop = gzip_stop,
};
