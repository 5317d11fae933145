// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Checks of records. Readers and writers use the same ones, so everything that is written can be read.
#include "format/faults.h"

static const char* range_fault(uint64_t address, uint64_t bytes) {
  if (bytes >= TIDE_FORMAT_BYTES) return "its size is 2^57 bytes or more";
  return address > UINT64_MAX - bytes ? "it ends above 2^64" : NULL;
}

static const char* oom_fault(const tide_trace_entry* entry) {
  if (entry->bytes >= TIDE_FORMAT_REQUEST) return "its request is for 2^62 bytes or more";
  return entry->address >= TIDE_FORMAT_BYTES ? "its device has 2^57 bytes or more left" : NULL;
}

// The name of an unknown action is in the extra of its note.
static bool entry_has_action(const tide_trace* trace, const tide_trace_entry* entry) {
  if (!(entry->absent & TIDE_ENTRY_ACTION)) return true;
  const uint32_t extra = tide_intern_note(tide_trace_names(trace), entry->note).extra;
  const uint32_t value = tide_intern_value_find(tide_trace_names(trace), extra, "action");
  return entry->action == TIDE_ACTION_OTHER &&
         tide_intern_value(tide_trace_names(trace), value).kind == TIDE_VALUE_TEXT;
}

const char* tide__entry_fault(const tide_trace* trace, const tide_trace_entry* entry) {
  if (entry->action >= TIDE_ACTION_COUNT) return "its action is unknown";
  if (!entry_has_action(trace, entry)) return "it has no action";
  return entry->action == TIDE_ACTION_OOM ? oom_fault(entry) : range_fault(entry->address, entry->bytes);
}

const char* tide__segment_fault(const tide_trace_segment* segment) {
  if (segment->absent & (TIDE_SEGMENT_ADDRESS | TIDE_SEGMENT_BYTES)) return "it lacks an address or a size";
  if (segment->allocated_bytes >= TIDE_FORMAT_BYTES || segment->active_bytes >= TIDE_FORMAT_BYTES ||
      segment->requested_bytes >= TIDE_FORMAT_BYTES)
    return "it counts 2^57 bytes or more";
  return range_fault(segment->address, segment->bytes);
}

const char* tide__block_fault(const tide_trace_block* block) {
  if (block->state > TIDE_BLOCK_PENDING) return "its state is unknown";
  if (block->requested_bytes >= TIDE_FORMAT_BYTES) return "its request is for 2^57 bytes or more";
  return range_fault(block->address, block->bytes);
}
