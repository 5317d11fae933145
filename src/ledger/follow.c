// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Forward, an entry is trusted: whatever conflicts with it is removed. Backward, entries are inverted: a
// release becomes an allocation, and so on. The sizes of blocks are right there too: PyTorch never leaves a
// rest below its splitting limit free, so such a rest belonged to the block before it.
#include "ledger/follow.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

// ---------------------------------------------------------------------------------------------------
// Forward

static tide__span span_of_entry(const tide_trace_entry* entry, uint64_t number) {
  tide__span span = { .node = { .key = entry->address }, .bytes = entry->bytes };
  span.stream = entry->stream;
  span.made_at = number;
  span.stack = entry->stack;
  span.is_expandable = entry->action == TIDE_ACTION_SEGMENT_MAP || entry->action == TIDE_ACTION_SEGMENT_UNMAP;
  span.is_large = span.is_expandable ? entry->bytes % TIDE__RULES_HANDLE == 0
                                     : entry->bytes > TIDE__RULES_SEGMENT;
  span.is_pool_known = (entry->absent & TIDE_ENTRY_POOL) == 0;
  if (span.is_pool_known) span.pool = entry->pool;
  return span;
}

tide__span tide__follow_span(const tide__finals* finals, const tide_trace_entry* entry, uint64_t number) {
  tide__span span = span_of_entry(entry, number);
  const tide_trace_segment* const final = tide__finals_of_entry(finals, entry, number);
  if (final != NULL) {
    span.is_large = final->is_large;
    if (!span.is_pool_known) span.pool = final->pool;
    span.is_pool_known = true;
  }
  return span;
}

static tide__oddity follow_new_span(tide__layout* layout, const tide__finals* finals,
                                    const tide_trace_entry* entry, uint64_t number) {
  const tide__span span = tide__follow_span(finals, entry, number);
  return tide__layout_add_span(layout, &span);
}

static tide__oddity follow_alloc(tide__layout* layout, const tide_trace_entry* entry, uint64_t number) {
  const tide__placing placing = { .address = entry->address,
                                  .requested_bytes = entry->bytes,
                                  .made_at = number,
                                  .stream = entry->stream,
                                  .stack = entry->stack,
                                  .state = TIDE_BLOCK_ALLOCATED };
  return tide__layout_place(layout, &placing);
}

static tide__oddity follow_request(tide__layout* layout, const tide_trace_entry* entry) {
  tide__tile* const tile = tide__layout_find(layout, entry->address);
  if (tile == NULL || tile->state != TIDE_BLOCK_ALLOCATED) return TIDE__ODD_UNKNOWN;
  tide__layout_let_wait(layout, tile);
  return TIDE__ODD_NONE;
}

static tide__oddity follow_completion(tide__layout* layout, const tide_trace_entry* entry) {
  tide__tile* const tile = tide__layout_find(layout, entry->address);
  if (tile == NULL) return TIDE__ODD_UNKNOWN;
  tide__layout_release(layout, tile);
  return TIDE__ODD_NONE;
}

tide__oddity tide__follow_entry(tide__layout* layout, const tide__finals* finals,
                                const tide_trace_entry* entry, uint64_t number) {
  switch (entry->action) {
    case TIDE_ACTION_ALLOC: return follow_alloc(layout, entry, number);
    case TIDE_ACTION_FREE_REQUESTED: return follow_request(layout, entry);
    case TIDE_ACTION_FREE_COMPLETED: return follow_completion(layout, entry);
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_MAP: return follow_new_span(layout, finals, entry, number);
    case TIDE_ACTION_SEGMENT_FREE: return tide__layout_remove_span(layout, entry->address, entry->bytes);
    case TIDE_ACTION_SEGMENT_UNMAP: return tide__layout_remove_range(layout, entry->address, entry->bytes);
    default: return TIDE__ODD_NONE;
  }
}

// ---------------------------------------------------------------------------------------------------
// Backward

static void back_alloc(tide__layout* layout, const tide_trace_entry* entry) {
  tide__tile* const tile = tide__layout_find(layout, entry->address);
  if (tile != NULL) tide__layout_release(layout, tile);
}

// A released block existed before; its request is not known. Two releases of one request make one block: it
// is allocated, because the first release comes last in this direction.
static void back_release(tide__layout* layout, const tide_trace_entry* entry, tide_block_state state) {
  tide__tile* const tile = tide__layout_find(layout, entry->address);
  if (tile != NULL) {
    if (state == TIDE_BLOCK_ALLOCATED) tide__layout_set_state(layout, tile, state);
    return;
  }
  const uint64_t need = entry->bytes != 0 ? entry->bytes : 1;
  if (!tide__layout_has_room(layout, entry->address, need)) return;
  const tide__placing placing = {
    .address = entry->address, .requested_bytes = entry->bytes, .made_at = TIDE_LEDGER_BEFORE, .state = state
  };
  (void)tide__layout_place(layout, &placing);
}

// Of memory that was parked, a part may have come back, so the range is added in parts.
static tide_status back_removal(tide__layout* layout, const tide_trace_entry* entry) {
  tide__span span = span_of_entry(entry, TIDE_LEDGER_BEFORE);
  uint64_t end = 0;
  if (!tide__add(entry->address, entry->bytes, &end)) return TIDE_OK;
  for (uint64_t at = entry->address; at < end; at = span.node.key + span.bytes) {
    TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for segments");
    span.node.key = at;
    span.bytes = tide__layout_part_end(layout, at, end) - at;
    (void)tide__layout_add_span(layout, &span);
  }
  return TIDE_OK;
}

// Undoes an entry: removes what it added, and adds what it removed. Ignores what does not fit.
static tide_status follow_back(tide__layout* layout, const tide_trace_entry* entry) {
  switch (entry->action) {
    case TIDE_ACTION_ALLOC: back_alloc(layout, entry); break;
    case TIDE_ACTION_FREE_REQUESTED: back_release(layout, entry, TIDE_BLOCK_ALLOCATED); break;
    case TIDE_ACTION_FREE_COMPLETED: back_release(layout, entry, TIDE_BLOCK_PENDING); break;
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_MAP:
      (void)tide__layout_remove_range(layout, entry->address, entry->bytes);
      break;
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_UNMAP: return back_removal(layout, entry);
    default: break;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The state before the first entry

static tide_status before_add(tide__before* before, const tide__layout* layout, const tide__span* span) {
  void* spans = before->spans;
  const bool has_room = tide__heap_grow(layout->heap, &spans, &before->span_room, before->span_count + 1,
                                        sizeof *before->spans);
  before->spans = spans;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "ledger: no memory for %zu segments", before->span_count + 1);
  before->spans[before->span_count++] = *span;
  return TIDE_OK;
}

static tide_status before_add_block(tide__before* before, const tide__layout* layout,
                                    const tide__tile* tile) {
  void* blocks = before->blocks;
  const bool has_room = tide__heap_grow(layout->heap, &blocks, &before->block_room, before->block_count + 1,
                                        sizeof *before->blocks);
  before->blocks = blocks;
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "ledger: no memory for %zu blocks", before->block_count + 1);
  before->blocks[before->block_count++] = (tide__placing){ .address = tile->node.key,
                                                           .bytes = tile->bytes,
                                                           .requested_bytes = tile->requested_bytes,
                                                           .made_at = TIDE_LEDGER_BEFORE,
                                                           .stack = tile->stack,
                                                           .state = tile->state };
  before->bytes += tile->bytes;
  return TIDE_OK;
}

static tide_status before_save(tide__before* before, const tide__layout* layout) {
  const tide__span* span = tide__layout_span_from(layout, 0);
  while (span != NULL) {
    TIDE_TRY(before_add(before, layout, span));
    span = tide__layout_span_from(layout, span->node.key + 1);
  }
  for (const tide__tile* tile = layout->first; tile != NULL; tile = tile->next) {
    if (tile->state != TIDE_BLOCK_INACTIVE) TIDE_TRY(before_add_block(before, layout, tile));
  }
  return TIDE_OK;
}

tide_status tide__before_find(tide__before* before, tide__layout* layout, const tide__finals* finals,
                              const tide_trace_entry* entries, uint64_t count) {
  TIDE_TRY(tide__finals_load(finals, layout));
  for (uint64_t i = count; i > 0; i--) {
    TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for blocks");
    TIDE_TRY(follow_back(layout, &entries[i - 1]));
  }
  return before_save(before, layout);
}

tide_status tide__before_load(const tide__before* before, tide__layout* layout) {
  for (size_t i = 0; i < before->span_count; i++) {
    TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for segments");
    (void)tide__layout_add_span(layout, &before->spans[i]);
  }
  for (size_t i = 0; i < before->block_count; i++) {
    TIDE_REQUIRE(tide__layout_prepare(layout), TIDE_ERR_NO_MEMORY, "ledger: no memory for blocks");
    (void)tide__layout_place(layout, &before->blocks[i]);
  }
  return TIDE_OK;
}

void tide__before_fini(tide__before* before, const tide_heap* heap) {
  tide__heap_release(heap, before->spans, before->span_room, sizeof *before->spans);
  tide__heap_release(heap, before->blocks, before->block_room, sizeof *before->blocks);
}
