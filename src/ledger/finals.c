// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The list is sorted by address, O(k log k) for k segments, and searched by bisection. One pass over all
// entries finds the SEGMENT_ALLOC of each segment, because an address may have been used before.
#include "ledger/finals.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/heap.h"
#include "trace/limit.h"

static int final_order(const void* a, const void* b) {
  const tide_trace_segment* const left = ((const tide__final*)a)->segment;
  const tide_trace_segment* const right = ((const tide__final*)b)->segment;
  if (left->address != right->address) return left->address < right->address ? -1 : 1;
  return (left > right) - (left < right);  // both lie in the array of the trace
}

// The last one that begins at an address or before it.
static tide__final* final_floor(const tide__finals* finals, uint64_t address) {
  size_t low = 0;
  size_t high = finals->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (finals->items[middle].segment->address <= address) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? &finals->items[low - 1] : NULL;
}

static void finals_find_makers(tide__finals* finals, const tide_trace* trace, size_t device) {
  size_t count = 0;
  const tide_trace_entry* const entries = tide_trace_entries(trace, device, &count);
  for (size_t i = 0; i < count; i++) {
    if (entries[i].action != TIDE_ACTION_SEGMENT_ALLOC) continue;
    tide__final* const final = final_floor(finals, entries[i].address);
    if (final != NULL && final->segment->address == entries[i].address) final->made_at = i;
  }
}

tide_status tide__finals_init(tide__finals* finals, const tide_trace* trace, size_t device) {
  *finals = (tide__finals){ .blocks = tide_trace_blocks(trace, NULL) };
  const tide_trace_segment* const segments = tide_trace_segments(trace, &finals->room);
  if (finals->room == 0) return TIDE_OK;
  finals->items = tide__heap_alloc(tide__trace_heap(trace), finals->room, sizeof *finals->items);
  TIDE_REQUIRE(finals->items != NULL, TIDE_ERR_NO_MEMORY, "ledger: no memory for %zu segments", finals->room);
  for (size_t i = 0; i < finals->room; i++) {
    if (segments[i].device != device) continue;
    finals->items[finals->count++] =
        (tide__final){ &segments[i], TIDE_LEDGER_BEFORE, tide_trace_segment_is_parked(trace, &segments[i]) };
  }
  if (finals->count == 0) return TIDE_OK;
  qsort(finals->items, finals->count, sizeof *finals->items, final_order);
  finals_find_makers(finals, trace, device);
  return TIDE_OK;
}

void tide__finals_fini(tide__finals* finals, const tide_heap* heap) {
  tide__heap_release(heap, finals->items, finals->room, sizeof *finals->items);
}

// A mapped range is in the segment that it became part of, unless another stream got the addresses in
// between.
const tide_trace_segment* tide__finals_of_entry(const tide__finals* finals, const tide_trace_entry* entry,
                                                uint64_t number) {
  const tide__final* const final = final_floor(finals, entry->address);
  if (final == NULL) return NULL;
  const tide_trace_segment* const segment = final->segment;
  if (entry->action == TIDE_ACTION_SEGMENT_ALLOC) return final->made_at == number ? segment : NULL;
  const bool is_inside = entry->address - segment->address < segment->bytes;
  return is_inside && segment->is_expandable && segment->stream == entry->stream ? segment : NULL;
}

// The blocks of a segment lie one after another, so the address of one that has none follows from the block
// before it, which ends at `end`.
static uint64_t block_address(const tide_trace_block* block, uint64_t end) {
  return (block->absent & TIDE_BLOCK_KEY_ADDRESS) != 0 ? end : block->address;
}

// ---------------------------------------------------------------------------------------------------
// Into a layout

static tide_status final_load_block(const tide_trace_block* block, uint64_t address, tide__layout* layout) {
  const bool is_used = block->state == TIDE_BLOCK_ALLOCATED || block->state == TIDE_BLOCK_PENDING;
  if (!is_used || block->bytes == 0 || !tide__layout_has_room(layout, address, block->bytes)) return TIDE_OK;
  const tide__placing placing = { .address = address,
                                  .bytes = block->bytes,
                                  .requested_bytes = block->requested_bytes,
                                  .made_at = TIDE_LEDGER_BEFORE,
                                  .stack = block->stack,
                                  .state = block->state };
  TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for a block");
  (void)tide__layout_place(layout, &placing);
  return TIDE_OK;
}

static tide_status final_load(const tide__finals* finals, const tide__final* final, tide__layout* layout) {
  const tide_trace_segment* const segment = final->segment;
  tide__span span = { .node = { .key = segment->address }, .bytes = segment->bytes };
  span.stream = segment->stream;
  span.made_at = TIDE_LEDGER_BEFORE;
  span.pool = segment->pool;
  span.is_pool_known = true;
  span.stack = segment->stack;
  span.is_large = segment->is_large;
  span.is_expandable = segment->is_expandable;
  span.is_parked = final->is_parked;
  TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for a segment");
  if (tide__layout_add_span(layout, &span) != TIDE__ODD_NONE) return TIDE_OK;
  uint64_t end = segment->address;
  for (uint32_t i = 0; i < segment->block_count; i++) {
    const tide_trace_block* const block = &finals->blocks[segment->first_block + i];
    const uint64_t address = block_address(block, end);
    TIDE_TRY(final_load_block(block, address, layout));
    end = address + block->bytes;
  }
  return TIDE_OK;
}

tide_status tide__finals_load(const tide__finals* finals, tide__layout* layout) {
  for (size_t i = 0; i < finals->count; i++) {
    TIDE_TRY(final_load(finals, &finals->items[i], layout));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Against a layout

// The requested size of an inactive block is that of some earlier request, and is not compared.
static bool final_block_is_same(const tide_trace_block* block, uint64_t address, const tide__tile* tile) {
  if (address != tile->node.key || block->bytes != tile->bytes || block->state != tile->state) return false;
  return block->state == TIDE_BLOCK_INACTIVE || block->requested_bytes == tile->requested_bytes;
}

// Walks the blocks of a segment and the tiles of a span side by side.
static uint64_t blocks_compare(const tide__finals* finals, const tide_trace_segment* segment,
                               const tide__tile* tile) {
  uint64_t differences = 0;
  uint64_t end = segment->address;
  uint32_t i = 0;
  while (i < segment->block_count || tile != NULL) {
    const tide_trace_block* const block = i < segment->block_count ? &finals->blocks[segment->first_block + i]
                                                                   : NULL;
    const uint64_t address = block != NULL ? block_address(block, end) : 0;
    if (block == NULL || tile == NULL || !final_block_is_same(block, address, tile)) differences++;
    const bool steps_block = block != NULL && (tile == NULL || address <= tile->node.key);
    const bool steps_tile = tile != NULL && (block == NULL || tile->node.key <= address);
    if (steps_block) end = address + block->bytes;
    if (steps_block) i++;
    if (steps_tile) tile = tile->next != NULL && !tile->next->is_first ? tile->next : NULL;
  }
  return differences;
}

static bool final_segment_is_same(const tide__final* final, const tide__span* span) {
  const tide_trace_segment* const segment = final->segment;
  return segment->bytes == span->bytes && final->is_parked == span->is_parked &&
         segment->is_expandable == span->is_expandable &&
         ((segment->absent & TIDE_SEGMENT_STREAM) != 0 || segment->stream == span->stream);
}

// Invented segments are not expected in the list.
uint64_t tide__finals_compare(const tide__finals* finals, const tide__layout* layout) {
  uint64_t differences = 0;
  uint64_t found = 0;
  for (size_t i = 0; i < finals->count; i++) {
    const tide_trace_segment* const segment = finals->items[i].segment;
    const tide__span* const span = tide__layout_span_from(layout, segment->address);
    const bool is_there = span != NULL && span->node.key == segment->address;
    const bool is_again = i > 0 && finals->items[i - 1].segment->address == segment->address;
    if (!is_there || is_again || !final_segment_is_same(&finals->items[i], span)) differences++;
    if (!is_there || is_again) continue;
    differences += blocks_compare(finals, segment, tide__layout_tile_at(layout, segment->address));
    found += !span->is_made_up && !span->is_parked;
  }
  return differences + (layout->totals.segment_count - layout->made_up_count - found);
}
