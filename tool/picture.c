// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One visit of the ledger fills the arrays; O(segments + blocks).
#include "picture.h"

#include <stdlib.h>
#include <string.h>

#include "devices.h"

static bool picture_add_segment(void* user, const tide_ledger_segment* segment) {
  tool_picture* const picture = user;
  if (picture->segment_count + 1 >= picture->segment_room) {
    picture->segment_room = 2 * picture->segment_room + 16;
    picture->segments = tool_grow(picture->segments, picture->segment_room, sizeof *picture->segments);
    picture->first_block =
        tool_grow(picture->first_block, picture->segment_room, sizeof *picture->first_block);
  }
  picture->first_block[picture->segment_count] = picture->block_count;
  picture->segments[picture->segment_count++] = *segment;
  return true;
}

static bool picture_add_block(void* user, const tide_ledger_block* block) {
  tool_picture* const picture = user;
  if (picture->block_count == picture->block_room) {
    picture->block_room = 2 * picture->block_room + 64;
    picture->blocks = tool_grow(picture->blocks, picture->block_room, sizeof *picture->blocks);
  }
  picture->blocks[picture->block_count++] = *block;
  picture->first_block[picture->segment_count] = picture->block_count;
  return true;
}

int tool_picture_take(tide_ledger* ledger, uint64_t at, tool_picture* out) {
  *out = (tool_picture){ .segment_count = 0 };
  if (tide_ledger_seek(ledger, at) != TIDE_OK) return tool_fail("%s", tool_error());
  out->totals = tide_ledger_get_totals(ledger);
  tide_ledger_visit(ledger, picture_add_segment, picture_add_block, out);
  return TOOL_DONE;
}

void tool_picture_fini(tool_picture* picture) {
  free(picture->segments);
  free(picture->first_block);
  free(picture->blocks);
  *picture = (tool_picture){ .segment_count = 0 };
}

// ---------------------------------------------------------------------------------------------------
// Devices

size_t tool_device_count(const tide_trace* trace) {
  size_t count = tide_trace_device_count(trace);
  size_t segment_count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &segment_count);
  for (size_t i = 0; i < segment_count; i++) {
    if (segments[i].device >= count) count = (size_t)segments[i].device + 1;
  }
  return count;
}

static bool device_has_listed(const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device == device) return true;
  }
  return false;
}

size_t tool_device_entries(const tide_trace* trace, size_t device) {
  size_t count = 0;
  (void)tide_trace_entries(trace, device, &count);
  return count;
}

bool tool_device_has_data(const tide_trace* trace, size_t device) {
  return tool_device_entries(trace, device) > 0 || tool_device_has_segments(trace, device);
}

bool tool_device_has_segments(const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action >= TIDE_ACTION_SEGMENT_ALLOC && entries[i].action <= TIDE_ACTION_SEGMENT_UNMAP)
      return true;
  }
  return device_has_listed(trace, device);
}

bool tool_device_knows_reserved(const tide_trace* trace, size_t device) {
  size_t count = 0;
  (void)tide_trace_entries(trace, device, &count);
  return count == 0 || tool_device_has_segments(trace, device);
}

uint64_t tool_fault_count(const tide_ledger_faults* faults, bool has_segments) {
  return faults->unknown_frees + faults->overlaps + faults->odd_segments + faults->differences +
         (has_segments ? faults->homeless_allocs : 0);
}

size_t tool_device_actions(const tide_trace* trace, size_t device, uint64_t out[TIDE_ACTION_COUNT]) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  memset(out, 0, TIDE_ACTION_COUNT * sizeof *out);
  for (size_t i = 0; i < count; i++)
    out[entries[i].action < TIDE_ACTION_COUNT ? entries[i].action : TIDE_ACTION_OTHER]++;
  return count;
}

void tool_emit_pool(tool_emit* emit, const tide_trace* trace, uint32_t pool) {
  const tide_pool_label label = tide_trace_pool(trace, pool);
  tool_emit_format(emit, NULL, NULL, "(%llu, %llu)", (unsigned long long)label.first,
                   (unsigned long long)label.second);
}

// ---------------------------------------------------------------------------------------------------
// Options

int tool_device_choose(const tool_call* call, const tide_trace* trace, size_t* out) {
  *out = 0;
  const size_t count = tool_device_count(trace);
  const char* const text = tool_option_value(call, "device");
  if (text != NULL) {
    uint64_t number = 0;
    if (count > 0 && tool_number_parse(text, count - 1, &number)) {
      *out = (size_t)number;
      return TOOL_DONE;
    }
    if (count < 2) return tool_fail("no device '%s': the recording has only device 0", text);
    return tool_fail("no device '%s': the recording has devices 0 to %zu", text, count - 1);
  }
  *out = tool_device_default(trace);
  return TOOL_DONE;
}

int tool_top_parse(const tool_call* call, size_t otherwise, size_t* out) {
  const char* const text = tool_option_value(call, "top");
  uint64_t number = otherwise;
  if (text != NULL && !tool_number_parse(text, SIZE_MAX, &number))
    return tool_fail("--top must be a number of rows, not '%s'", text);
  *out = (size_t)number;
  return TOOL_DONE;
}
