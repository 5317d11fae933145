// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// zstd files, with libzstd. Consecutive frames are read as one file.
#include "codec.h"

#ifdef TIDEMARK_HAVE_ZSTD
#include <stdlib.h>
#include <zstd.h>

typedef struct zstd_state {
  ZSTD_CCtx* encoder;  // owned; one of the two
  ZSTD_DCtx* decoder;
  bool is_inside;  // decoding: inside a frame
} zstd_state;

static void zstd_stop(void* opaque) {
  zstd_state* const state = opaque;
  if (state == NULL) return;
  (void)ZSTD_freeCCtx(state->encoder);
  (void)ZSTD_freeDCtx(state->decoder);
  free(state);
}

static void* zstd_start(bool is_encoder) {
  zstd_state* const state = calloc(1, sizeof *state);
  if (state == NULL) return NULL;
  if (is_encoder) state->encoder = ZSTD_createCCtx();
  else state->decoder = ZSTD_createDCtx();
  const bool is_made = is_encoder ? state->encoder != NULL : state->decoder != NULL;
  if (is_made && is_encoder) (void)ZSTD_CCtx_setParameter(state->encoder, ZSTD_c_checksumFlag, 1);
  if (is_made && !is_encoder)
    (void)ZSTD_DCtx_setParameter(state->decoder, ZSTD_d_windowLogMax, TOOL_CODEC_MEMORY_LOG);
  if (is_made) return state;
  zstd_stop(state);
  return NULL;
}

// Decoding is complete when a frame has ended and nothing follows.
static size_t zstd_decode(zstd_state* state, ZSTD_inBuffer* in, ZSTD_outBuffer* out) {
  if (in->size == 0 && !state->is_inside) return 0;
  const size_t result = ZSTD_decompressStream(state->decoder, out, in);
  state->is_inside = result != 0;
  return result;
}

static tool_flow_state zstd_step(void* opaque, tool_flow* flow) {
  zstd_state* const state = opaque;
  ZSTD_inBuffer in = { flow->in, flow->in_bytes, 0 };
  ZSTD_outBuffer out = { flow->out, flow->out_room, 0 };
  const size_t result =
      state->encoder != NULL
          ? ZSTD_compressStream2(state->encoder, &out, &in, flow->is_last ? ZSTD_e_end : ZSTD_e_continue)
          : zstd_decode(state, &in, &out);
  flow->in += in.pos;
  flow->in_bytes -= in.pos;
  flow->out += out.pos;
  flow->out_room -= out.pos;
  if (!ZSTD_isError(result))
    return result == 0 && flow->is_last && flow->in_bytes == 0 ? TOOL_FLOW_END : TOOL_FLOW_MORE;
  flow->problem = ZSTD_getErrorName(result);
  return TOOL_FLOW_BAD;
}
#else
#define zstd_start NULL
#define zstd_step NULL
#define zstd_stop NULL
#endif

const tool_codec tool_codec_zstd = {
  .name = "zstd",
  .ending = ".zst",
  .library = "libzstd",
  .magic = "\x28\xb5\x2f\xfd",
  .magic_bytes = 4,
  .start = zstd_start,
  .step = zstd_step,
  .stop = zstd_stop,
};
