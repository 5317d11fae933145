// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// For each refusal the memory at that point is visited once: O(blocks).
#include "refusal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "tidemark/device.h"

#define MIB_BYTES ((uint64_t)1 << 20)

// ---------------------------------------------------------------------------------------------------
// Free memory

uint32_t tool_range_pool(const tool_sum* range) { return (uint32_t)(range->key >> 1); }
bool tool_range_is_large(const tool_sum* range) { return (range->key & 1) != 0; }

static bool segment_is_place(const tool_refusal* refusal, const tide_ledger_segment* segment) {
  return segment->pool == refusal->pool && segment->stream == refusal->stream &&
         segment->is_large == refusal->is_large;
}

static void refusal_add_free(tool_refusal* refusal, const tide_ledger_segment* segment, uint64_t bytes) {
  const uint64_t key = (uint64_t)segment->pool << 1 | segment->is_large;
  (void)tool_sums_add(&refusal->ranges, key, segment->stream, bytes);
  refusal->free_bytes += bytes;
  if (!segment_is_place(refusal, segment)) return;
  refusal->place_free += bytes;
  refusal->place_pieces++;
  refusal->place_largest = tide__max(refusal->place_largest, bytes);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

// PyTorch's sizes of segments.
static uint64_t segment_bytes_for(uint64_t bytes) {
  if (bytes <= MIB_BYTES) return 2 * MIB_BYTES;
  if (bytes < 10 * MIB_BYTES) return 20 * MIB_BYTES;
  uint64_t rounded = 0;
  return tide__align_up(bytes, 2 * MIB_BYTES, &rounded) ? rounded : bytes;
}

static tool_refusal refusal_of_entry(const tide_trace_entry* entry, uint64_t at) {
  return (tool_refusal){ .at = at,
                         .bytes = tide__max(entry->bytes, 1),
                         .segment_bytes = segment_bytes_for(entry->bytes),
                         .stream = entry->stream,
                         .pool = (entry->absent & TIDE_ENTRY_POOL) == 0 ? entry->pool : 0,
                         .stack = entry->stack,
                         .is_large = entry->bytes > MIB_BYTES,
                         .has_device_free = (entry->absent & TIDE_ENTRY_ADDRESS) == 0,
                         .device_free = entry->address };
}

static int refusal_look(tool_refusal* refusal, tide_ledger* ledger) {
  tool_picture picture;
  const int status = tool_picture_take(ledger, refusal->at, &picture);
  if (status != TOOL_DONE) return status;
  refusal->reserved = picture.totals.reserved_bytes;
  refusal->allocated = picture.totals.allocated_bytes;
  for (size_t i = 0; i < picture.segment_count; i++) {
    for (size_t k = picture.first_block[i]; k < picture.first_block[i + 1]; k++) {
      const tide_ledger_block* const block = &picture.blocks[k];
      if (block->state == TIDE_BLOCK_INACTIVE) refusal_add_free(refusal, &picture.segments[i], block->bytes);
    }
  }
  tool_sums_sort_by_keys(&refusal->ranges);
  tool_picture_fini(&picture);
  return TOOL_DONE;
}

void tool_refusal_fini(tool_refusal* refusal) { tool_sums_fini(&refusal->ranges); }

// ---------------------------------------------------------------------------------------------------
// The limit

static void limits_add(tool_limits* limits, const tool_refusal* refusal, uint64_t reserved) {
  uint64_t wanted = 0;
  if (!tide__add(reserved, refusal->segment_bytes, &wanted)) wanted = UINT64_MAX;
  if (limits->count == 0) {
    limits->is_device_full = refusal->has_device_free && refusal->device_free < refusal->segment_bytes;
    if (limits->is_device_full && !tide__add(reserved, refusal->device_free, &limits->likely))
      limits->likely = UINT64_MAX;
  }
  limits->count++;
  if (limits->less_than == 0 || wanted < limits->less_than) limits->less_than = wanted;
}

// Is memory mapped? Then whole handles are, and the last one may pass the limit.
static bool device_maps(const tide_trace* trace, size_t device) {
  uint64_t actions[TIDE_ACTION_COUNT];
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  (void)tool_device_actions(trace, device, actions);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device == device && segments[i].is_expandable) return true;
  }
  return actions[TIDE_ACTION_SEGMENT_MAP] > 0;
}

// A refusal of the device.
static int refusal_add(tide_ledger* ledger, const tide_trace_entry* entry, uint64_t at, tool_refusal* out,
                       size_t room, size_t* count, tool_limits* limits) {
  tool_refusal refusal = refusal_of_entry(entry, at);
  if (tide_ledger_seek(ledger, at) != TIDE_OK) return tool_fail("%s", tool_error());
  limits_add(limits, &refusal, tide_ledger_get_totals(ledger).reserved_bytes);
  if (*count == room) return TOOL_DONE;
  const int status = refusal_look(&refusal, ledger);
  if (status == TOOL_DONE) out[(*count)++] = refusal;
  return status;
}

int tool_refusals_find(const tide_trace* trace, size_t device, tide_ledger* ledger, tool_refusal* out,
                       size_t room, size_t* out_count, tool_limits* out_limits) {
  *out_count = 0;
  *out_limits = (tool_limits){ .at_least = tide_ledger_get_peaks(ledger).reserved.bytes };
  if (device_maps(trace, device)) out_limits->at_least -= tide__min(out_limits->at_least, 20 * MIB_BYTES);
  size_t count = 0;
  int status = TOOL_DONE;
  tool_tag_limits tags;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  tool_tag_limits_init(&tags, trace, device);
  for (size_t i = 0; i < count && status == TOOL_DONE; i++) {
    tool_tag_refusal by_tag;
    if (entries[i].action != TIDE_ACTION_OOM) continue;
    status = tool_tag_limits_ask(&tags, ledger, &entries[i], i, &by_tag);
    if (status != TOOL_DONE) break;
    if (by_tag.tag == NULL) status = refusal_add(ledger, &entries[i], i, out, room, out_count, out_limits);
    else if (out_limits->tag_count++ == 0) out_limits->by_tag = by_tag;
  }
  tool_tag_limits_fini(&tags);
  if (!out_limits->is_device_full) out_limits->likely = out_limits->at_least;
  return status;
}

int tool_limits_find(const tide_trace* trace, size_t device, tool_limits* out) {
  uint64_t actions[TIDE_ACTION_COUNT];
  (void)tool_device_actions(trace, device, actions);
  *out = (tool_limits){ .count = 0 };
  if (actions[TIDE_ACTION_OOM] == 0 || !tool_device_has_segments(trace, device)) return TOOL_DONE;
  tide_ledger* ledger = NULL;
  size_t count = 0;
  if (tide_ledger_new(trace, device, &ledger) != TIDE_OK) return tool_fail("%s", tool_error());
  const int status = tool_refusals_find(trace, device, ledger, NULL, 0, &count, out);
  tide_ledger_free(ledger);
  return status;
}
