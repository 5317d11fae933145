// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache visits segments and blocks in the order of their addresses, as a snapshot lists them. So both
// lists are walked once, side by side.
#include "replay/remains.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct remains {
  const tide__stage* stage;  // borrowed during the call
  const tide_trace_segment* segments;
  const tide_trace_block* blocks;
  size_t segment_count;
  size_t segment;    // the next expected one
  size_t block;      // the next expected block of the segment before it
  size_t block_end;  // behind the last block of that segment
  bool is_vague;
  char* text;  // borrowed during the call
  size_t text_bytes;
} remains;

// The next expected segment of the device, or NULL.
static const tide_trace_segment* remains_peek(remains* r) {
  const size_t device = r->stage->script->device;
  while (r->segment < r->segment_count && r->segments[r->segment].device != device) r->segment++;
  return r->segment < r->segment_count ? &r->segments[r->segment] : NULL;
}

static bool segment_is_same(const remains* r, const tide_trace_segment* want, const tide_segment_info* got) {
  const tide__script* const script = r->stage->script;
  const tide_pool_label label = tide_trace_pool(script->trace, want->pool);
  const uint32_t stream = tide__script_stream(script, want->stream);
  const bool is_stream = stream < script->stream_count && r->stage->streams[stream] == got->stream;
  const bool is_pool = label.first == got->pool_label[0] && label.second == got->pool_label[1];
  return want->address == got->address && want->bytes == got->bytes &&
         ((want->absent & TIDE_SEGMENT_STREAM) != 0 || is_stream) &&
         ((want->absent & TIDE_SEGMENT_POOL) != 0 || is_pool) &&
         ((want->absent & TIDE_SEGMENT_TYPE) != 0 || want->is_large == got->is_large) &&
         ((want->absent & TIDE_SEGMENT_EXPANDABLE) != 0 || want->is_expandable == got->is_expandable);
}

static bool remains_on_segment(void* user, const tide_segment_info* got) {
  remains* const r = user;
  const tide_trace_segment* const want = remains_peek(r);
  const bool is_complete = r->block == r->block_end;
  if (!is_complete || want == NULL || !segment_is_same(r, want, got)) {
    (void)snprintf(r->text, r->text_bytes,
                   "another segment is left: 0x%" PRIx64 " of %" PRIu64 " bytes, pool %" PRIu32
                   "; recorded: 0x%" PRIx64 " of %" PRIu64,
                   got->address, got->bytes, got->pool, want != NULL ? want->address : 0,
                   want != NULL ? want->bytes : 0);
    return false;
  }
  r->segment++;
  r->block = want->first_block;
  r->block_end = want->first_block + want->block_count;
  return true;
}

static bool block_is_same(const remains* r, const tide_trace_block* want, const tide_block_info* got) {
  const bool has_size = (want->absent & TIDE_BLOCK_KEY_REQUESTED) == 0 &&
                        !(r->is_vague && want->state == TIDE_BLOCK_INACTIVE);
  return ((want->absent & TIDE_BLOCK_KEY_ADDRESS) != 0 || want->address == got->address) &&
         want->bytes == got->bytes && want->state == got->state &&
         (!has_size || want->requested_bytes == got->requested_bytes);
}

static bool remains_on_block(void* user, const tide_block_info* got) {
  remains* const r = user;
  const tide_trace_block* const want = r->block < r->block_end ? &r->blocks[r->block] : NULL;
  r->block++;
  if (want != NULL && block_is_same(r, want, got)) return true;
  (void)snprintf(r->text, r->text_bytes,
                 "another block is left: 0x%" PRIx64 " of %" PRIu64 " bytes, requested %" PRIu64 ", %s",
                 got->address, got->bytes, got->requested_bytes, tide_block_state_name(got->state));
  return false;
}

tide_status tide__remains_compare(tide__stage* stage, bool is_vague, char* text, size_t text_bytes) {
  const tide_trace* const trace = stage->script->trace;
  remains r = { .stage = stage, .is_vague = is_vague, .text = text, .text_bytes = text_bytes };
  text[0] = '\0';
  if (!tide_trace_get_about(trace).has_segments) return TIDE_OK;
  r.segments = tide_trace_segments(trace, &r.segment_count);
  r.blocks = tide_trace_blocks(trace, NULL);
  const tide_device_visitor visitor = { remains_on_segment, remains_on_block, &r };
  const tide_status status = tide_device_visit(stage->device, &visitor);
  if (status != TIDE_OK || text[0] != '\0') return status;
  const tide_trace_segment* const missing = remains_peek(&r);
  if (missing != NULL)
    (void)snprintf(text, text_bytes, "the segment 0x%" PRIx64 " of %" PRIu64 " bytes is not left",
                   missing->address, missing->bytes);
  else if (r.block != r.block_end)
    (void)snprintf(text, text_bytes, "blocks of the last segment are not left");
  return TIDE_OK;
}
