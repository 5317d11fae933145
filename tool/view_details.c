// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks that are left out of a page that is served. They are kept in the order of their begin. A block that
// exists at a position began less than 2^level positions before it, so a search and one pass find those of a
// window.
//
// Cost: 48 bytes for each left-out block; an answer takes O(log n + b), where b is the number of blocks that
// begin in the window or up to 2^level positions before it.
#include <stdlib.h>
#include <string.h>

#include "view.h"

// ---------------------------------------------------------------------------------------------------
// Keeping

void tool_view_details_keep(tool_view_page* page, tool_view_memory* memory) {
  page->details = tool_grow(page->details, page->device_count, sizeof *page->details);
  tool_view_memory* const kept = &page->details[page->device_count - 1];
  *kept = (tool_view_memory){
    .entry_count = memory->entry_count,
    .blocks = memory->blocks,
    .block_count = memory->block_count,
    .lanes = memory->lanes,
    .lane_count = memory->lane_count,
    .unit = memory->unit,
  };
  memory->blocks = NULL;
  memory->lanes = NULL;
}

void tool_view_details_trim(tool_view_page* page) {
  for (size_t i = 0; i < page->device_count; i++) {
    tool_view_memory* const m = &page->details[i];
    size_t count = 0;
    for (size_t k = 0; k < m->block_count; k++) {
      const tool_view_block* const block = &m->blocks[k];
      if (block->begin == TOOL_VIEW_GONE || tool_view_block_level(m, block) >= page->level) continue;
      m->blocks[count++] = *block;
    }
    m->block_count = count;
    m->blocks = tool_grow(m->blocks, count + 1, sizeof *m->blocks);
  }
}

// ---------------------------------------------------------------------------------------------------
// Windows

// The position from which a block does not exist any more.
static uint64_t block_end(const tool_view_block* block) {
  const uint64_t length = (uint64_t)block->life + block->wait;
  return length != 0 ? block->begin + length : UINT64_MAX;
}

// The first block that begins at a position or behind it.
static size_t block_from(const tool_view_memory* m, uint64_t position) {
  size_t low = 0;
  size_t high = m->block_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (m->blocks[middle].begin < position) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Left-out blocks exist for fewer positions than this.
static uint64_t length_bound(const tool_view_page* page) {
  return page->level < TOOL_VIEW_LEVELS ? (uint64_t)1 << page->level : UINT64_MAX;
}

static void answer_put(const tool_view_memory* m, uint64_t count, const uint32_t* numbers,
                       size_t number_count, tool_view_bytes* out) {
  tool_view_put(out, 1);
  tool_view_put(out, count);
  if (count == number_count) tool_view_blocks_put(out, m, numbers, number_count);
}

bool tool_view_details_window(const tool_view_page* page, uint64_t device, uint64_t from, uint64_t to,
                              tool_view_bytes* out) {
  if (device >= page->device_count) return false;
  const tool_view_memory* const m = &page->details[device];
  const uint64_t reach = length_bound(page);
  const size_t first = block_from(m, from >= reach ? from - reach + 1 : 0);
  const size_t behind = from <= m->entry_count ? block_from(m, to) : first;  // later positions do not exist
  const size_t most = behind > first ? behind - first : 0;
  uint32_t* const numbers =
      tool_alloc((most < TOOL_VIEW_DETAILS ? most : TOOL_VIEW_DETAILS) + 1, sizeof *numbers);
  uint64_t count = 0;
  for (size_t i = first; i < behind; i++) {
    if (block_end(&m->blocks[i]) <= from) continue;
    if (count < TOOL_VIEW_DETAILS) numbers[count] = (uint32_t)i;
    count++;
  }
  answer_put(m, count, numbers, count <= TOOL_VIEW_DETAILS ? (size_t)count : 0, out);
  free(numbers);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Before and after

static bool block_is_in(const tool_view_block* block, uint64_t low, uint64_t high) {
  return block->address < high && block->address + block->bytes > low;
}

// The block in a range that ended last before or at a position; the count of blocks if there is none.
static size_t block_before(const tool_view_memory* m, uint64_t position, uint64_t reach, uint64_t low,
                           uint64_t high) {
  size_t best = m->block_count;
  uint64_t best_end = 0;
  for (size_t i = block_from(m, position); i-- > 0;) {
    const tool_view_block* const block = &m->blocks[i];
    if (best_end >= reach && block->begin <= best_end - reach) break;  // earlier ones ended earlier
    const uint64_t end = block_end(block);
    if (end > position || end <= best_end || !block_is_in(block, low, high)) continue;
    best = i;
    best_end = end;
  }
  return best;
}

// The block in a range that begins first after a position; the count of blocks if there is none.
static size_t block_after(const tool_view_memory* m, uint64_t position, uint64_t low, uint64_t high) {
  size_t i = block_from(m, position + 1);
  while (i < m->block_count && !block_is_in(&m->blocks[i], low, high)) i++;
  return i;
}

bool tool_view_details_nearest(const tool_view_page* page, uint64_t device, uint64_t position, uint64_t lane,
                               uint64_t low, uint64_t high, tool_view_bytes* out) {
  if (device >= page->device_count || lane >= page->details[device].lane_count) return false;
  const tool_view_memory* const m = &page->details[device];
  const uint64_t base = m->lanes[lane].address;
  const size_t found[] = {
    block_before(m, position, length_bound(page), base + low * m->unit, base + high * m->unit),
    block_after(m, position, base + low * m->unit, base + high * m->unit),
  };
  uint32_t numbers[2];
  size_t count = 0;
  for (size_t i = 0; i < 2; i++) {
    if (found[i] < m->block_count) numbers[count++] = (uint32_t)found[i];
  }
  answer_put(m, count, numbers, count, out);
  return true;
}
