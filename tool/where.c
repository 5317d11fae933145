// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The causes are tested in a fixed order, so every byte is counted once: O(blocks).
#include "where.h"

#include <string.h>

static const tool_cause_info causes[] = {
#define WHERE_INFO(field, label, text) { #field, label, text },
  TOOL_WHERE_MAP(WHERE_INFO)
#undef WHERE_INFO
};

tool_cause_info tool_cause_describe(tool_cause cause) { return causes[cause]; }

uint64_t tool_where_bytes(const tool_where* where, tool_cause cause) {
  const uint64_t bytes[] = {
#define WHERE_VALUE(field, label, text) where->field,
    TOOL_WHERE_MAP(WHERE_VALUE)
#undef WHERE_VALUE
  };
  return bytes[cause];
}

tool_cause tool_where_main_cause(const tool_where* where) {
  tool_cause main_cause = 0;
  for (tool_cause cause = 1; cause < TOOL_CAUSE_COUNT; cause++) {
    if (tool_where_bytes(where, cause) > tool_where_bytes(where, main_cause)) main_cause = cause;
  }
  return main_cause;
}

// The part of a free block that could be returned to the device: all of it in an unused segment, and in an
// expandable segment the handles that it covers completely.
static uint64_t block_loose_bytes(const tide_ledger_segment* segment, const tide_ledger_block* block) {
  if (segment->active_bytes == 0) return block->bytes;
  if (!segment->is_expandable) return 0;
  const uint64_t handle_bytes = (segment->is_large ? 20u : 2u) << 20;
  const uint64_t begin = block->address - segment->address;
  const uint64_t first = begin / handle_bytes + (begin % handle_bytes != 0);
  const uint64_t end = (begin + block->bytes) / handle_bytes;
  return first < end ? (end - first) * handle_bytes : 0;
}

static void where_add_free(tool_where* where, const tide_ledger_segment* segment,
                           const tide_ledger_block* block) {
  const uint64_t loose_bytes = block_loose_bytes(segment, block);
  if (segment->pool != 0) {
    where->private_pools += block->bytes;
  } else {
    where->cached_but_free += loose_bytes;
    where->held_by_a_live_neighbour += block->bytes - loose_bytes;
  }
}

static void where_add_block(tool_where* where, const tide_ledger_segment* segment,
                            const tide_ledger_block* block) {
  if (block->state == TIDE_BLOCK_ALLOCATED) {
    where->requested += block->requested_bytes;
    where->rounding += block->bytes - block->requested_bytes;
  } else if (block->state == TIDE_BLOCK_PENDING) {
    where->waiting_for_events += block->bytes;
  } else {
    where_add_free(where, segment, block);
  }
}

// A segment is recorded before the block that it was allocated for, and is not really free in between. The
// peak is therefore taken after that block, unless an entry of another kind comes first.
static uint64_t where_settle(const tide_trace* trace, size_t device, uint64_t at) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (uint64_t i = at + 1; at < count && i < count; i++) {
    if (entries[i].action == TIDE_ACTION_ALLOC) return i;
    if (entries[i].action != TIDE_ACTION_SEGMENT_ALLOC && entries[i].action != TIDE_ACTION_SEGMENT_MAP) break;
  }
  return at;
}

int tool_where_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_where* out) {
  *out = (tool_where){ .at = tide_ledger_get_peaks(ledger).reserved.at };
  out->at = where_settle(trace, device, out->at);
  tool_picture picture;
  const int status = tool_picture_take(ledger, out->at, &picture);
  if (status != TOOL_DONE) return status;
  out->reserved = picture.totals.reserved_bytes;
  for (size_t i = 0; i < picture.segment_count; i++) {
    for (size_t k = picture.first_block[i]; k < picture.first_block[i + 1]; k++)
      where_add_block(out, &picture.segments[i], &picture.blocks[k]);
  }
  tool_picture_fini(&picture);
  return TOOL_DONE;
}
