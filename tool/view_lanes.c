// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lanes, the rows of the picture of addresses: ranges that overlap at different times share one, and so do
// neighbouring ranges of expandable segments. They are numbered by address.
#include <stdlib.h>

#include "view.h"

#define UNIT_MOST 512u

static int range_order(const void* a, const void* b) {
  const tool_view_range* const left = *(tool_view_range* const*)a;
  const tool_view_range* const right = *(tool_view_range* const*)b;
  if (left->address != right->address) return left->address < right->address ? -1 : 1;
  return (left > right) - (left < right);
}

// Takes the next range in the order of addresses. `grows` says whether an expandable range ends where the
// lane does; returns the same for the new end.
static bool lane_add(tool_view_memory* m, tool_view_range* range, bool grows) {
  const uint64_t end = range->address + range->bytes;
  const bool is_expandable = (range->flags & TOOL_VIEW_EXPANDABLE) != 0;
  tool_view_lane* lane = &m->lanes[m->lane_count];  // behind the last
  const bool is_inside = m->lane_count > 0 && (range->address < lane[-1].end ||
                                               (range->address == lane[-1].end && grows && is_expandable));
  if (is_inside) {
    lane--;
  } else {
    *lane = (tool_view_lane){ range->address, range->address };
    m->lane_count++;
  }
  range->lane = (uint32_t)m->lane_count - 1;
  if (end < lane->end) return grows;
  grows = is_expandable || (end == lane->end && grows);
  lane->end = end;
  return grows;
}

static uint64_t unit_find(const tool_view_memory* m) {
  uint64_t bits = UNIT_MOST;
  for (size_t i = 0; i < m->range_count; i++) bits |= m->ranges[i].address | m->ranges[i].bytes;
  for (size_t i = 0; i < m->block_count; i++) bits |= m->blocks[i].address | m->blocks[i].bytes;
  return bits & (~bits + 1);
}

void tool_view_lanes_find(tool_view_memory* m) {
  tool_view_range** const order = tool_alloc(m->range_count + 1, sizeof *order);
  size_t count = 0;
  for (size_t i = 0; i < m->range_count; i++) {
    if (m->ranges[i].begin != TOOL_VIEW_GONE) order[count++] = &m->ranges[i];
  }
  if (count > 1) qsort(order, count, sizeof *order, range_order);
  m->lanes = tool_alloc(count + 1, sizeof *m->lanes);
  bool grows = false;
  for (size_t i = 0; i < count; i++) grows = lane_add(m, order[i], grows);
  free(order);
  m->unit = unit_find(m);
}

uint32_t tool_view_lane_of(const tool_view_memory* m, uint64_t address) {
  size_t low = 0;
  size_t high = m->lane_count;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    if (m->lanes[middle].address <= address) low = middle;
    else high = middle;
  }
  return (uint32_t)low;
}
