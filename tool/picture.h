// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The memory of a device at one point of a trace: all segments and their blocks, in arrays.
#ifndef TIDEMARK_TOOL_PICTURE_H
#define TIDEMARK_TOOL_PICTURE_H

#include "tidemark/ledger.h"
#include "tool.h"

typedef struct tool_picture {
  tide_ledger_totals totals;
  tide_ledger_segment* segments;  // owned; by address
  size_t* first_block;            // owned; of each segment, and one past the last
  size_t segment_count;
  size_t segment_room;
  tide_ledger_block* blocks;  // owned; by address
  size_t block_count;
  size_t block_room;
} tool_picture;

// Copies the state after an entry. On failure it prints why and returns TOOL_USAGE.
int tool_picture_take(tide_ledger* ledger, uint64_t at, tool_picture* out);
void tool_picture_fini(tool_picture* picture);

// The device to look at: --device, or tool_device_default(). On failure it prints why and returns
// TOOL_USAGE.
int tool_device_choose(const tool_call* call, const tide_trace* trace, size_t* out);

// The number of rows in a table: --top, or the default. On failure it prints why and returns TOOL_USAGE.
int tool_top_parse(const tool_call* call, size_t otherwise, size_t* out);

// Does the trace have segments of the device, in its list or in its entries? Some have only requests.
bool tool_device_has_segments(const tide_trace* trace, size_t device);
// Is reserved memory known? It is not if there are only requests.
bool tool_device_knows_reserved(const tide_trace* trace, size_t device);

// The number of entries that contradict others or refer to missing ones, and of differences from the final
// list. Without recorded segments, requests outside of segments do not count.
uint64_t tool_fault_count(const tide_ledger_faults* faults, bool has_segments);

// The number of its entries; and has it entries or segments?
size_t tool_device_entries(const tide_trace* trace, size_t device);
bool tool_device_has_data(const tide_trace* trace, size_t device);
// Counts the entries of the device by kind, and returns their number.
size_t tool_device_actions(const tide_trace* trace, size_t device, uint64_t out[TIDE_ACTION_COUNT]);

// The two numbers of a pool, as a cell of a table.
void tool_emit_pool(tool_emit* emit, const tide_trace* trace, uint32_t pool);

// The number of devices with entries or segments.
size_t tool_device_count(const tide_trace* trace);

#endif
