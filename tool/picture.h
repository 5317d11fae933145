// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A picture of a device's memory at one moment: all segments and their blocks, in arrays.
#ifndef TIDEMARK_TOOL_PICTURE_H
#define TIDEMARK_TOOL_PICTURE_H

#include "tidemark/ledger.h"
#include "tool.h"

typedef struct tool_picture {
  tide_ledger_totals totals;
  tide_ledger_segment* segments;  // owned; by address
  size_t* first_block;            // owned; of each segment, and of one behind the last
  size_t segment_count;
  size_t segment_room;
  tide_ledger_block* blocks;  // owned; by address
  size_t block_count;
  size_t block_room;
} tool_picture;

// Takes the picture of the moment after an entry. On failure it says why and returns TOOL_USAGE.
int tool_picture_take(tide_ledger* ledger, uint64_t at, tool_picture* out);
void tool_picture_fini(tool_picture* picture);

// The device that a verb is about: --device, or the first one that something is known of. On failure it says
// why and returns TOOL_USAGE.
int tool_device_choose(const tool_call* call, const tide_trace* trace, size_t* out);

// How many rows a table may have: --top, or the default. On failure it says why and returns TOOL_USAGE.
int tool_top_parse(const tool_call* call, size_t otherwise, size_t* out);

// Is a segment of the device known, from the list or from the entries? Some recordings have requests only.
bool tool_device_has_segments(const tide_trace* trace, size_t device);
// Is it known what was reserved? Requests alone do not tell.
bool tool_device_knows_reserved(const tide_trace* trace, size_t device);

// Entries that contradict others or lack them, and what is not left as the trace lists it. Where no segments
// were recorded, requests outside of segments are no surprise.
uint64_t tool_fault_count(const tide_ledger_faults* faults, bool has_segments);

// How many entries of each kind the device has; returns how many there are in all.
size_t tool_device_actions(const tide_trace* trace, size_t device, uint64_t out[TIDE_ACTION_COUNT]);

// The two numbers of a pool, as a cell of a table.
void tool_emit_pool(tool_emit* emit, const tide_trace* trace, uint32_t pool);

// How many devices the trace knows: those with entries and those with segments.
size_t tool_device_count(const tide_trace* trace);

#endif
