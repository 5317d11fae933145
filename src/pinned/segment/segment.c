// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `segment`: segments, pinned memory cut into blocks of one size. Small classes get chunks. A chunk is
// as large as all blocks that its class has already, but at least 128 KiB and at most 1 MiB. Larger blocks
// have their own segments. All records are made with the segment, so that handing out its blocks takes no
// memory.
#include "pinned/segment/segment.h"

#include "pinned/stats/stats.h"

#define CHUNK_LEAST ((uint64_t)128 << 10)
#define CHUNK_MOST ((uint64_t)1 << 20)
enum { CHUNK_STEP = 8 };  // the number of blocks is a multiple of this, so that chunks are whole pages

// The map has places for small blocks, and one place in each tile for a block that is larger than a tile.
static bool block_is_small(const tide__pin_segment* segment) {
  return segment->block_bytes <= (uint64_t)1 << TIDE__MAP_TILE_SHIFT;
}

static uint64_t block_begin(const tide__pin_segment* segment, uint32_t index) {
  return segment->memory.address + index * segment->block_bytes;
}

// ---------------------------------------------------------------------------------------------------
// Records

// The generation rises, so that handles of this block are recognised as stale when the record is reused.
static void block_drop(tide_pinned_cache* pinned, tide__pin* block) {
  tide__store_relaxed(&block->state, TIDE__PIN_SPARE);
  tide__store_relaxed(&block->slot.generation, tide__load_relaxed(&block->slot.generation) + 2);
  tide__slots_give(&pinned->blocks, block);
}

static void block_set_up(tide__pin* block, tide__pin_segment* segment, uint64_t address, bool is_plain) {
  tide__store_relaxed(&block->address, address);
  tide__store_relaxed(&block->bytes, segment->block_bytes);
  tide__store_relaxed(&block->requested_bytes, 0);
  tide__store_relaxed(&block->state, TIDE__PIN_IDLE);
  block->segment = segment;
  block->class_index = (uint16_t)segment->class_index;
  block->is_plain = is_plain;
  block->waiter.keeps_record = is_plain && segment->block_bytes <= TIDE__PIN_MAGAZINE_BYTES;
  block->is_scoped = false;
  tide__store_relaxed(&block->stack, 0);
}

// Makes the records of all blocks, a list by rising address.
static tide_status segment_carve(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  const bool is_plain = segment->pool == pinned->default_pool;
  for (uint32_t i = segment->capacity; i-- > 0;) {
    tide__pin* const block = tide__slots_take(&pinned->blocks);
    TIDE_REQUIRE(block != NULL, TIDE_ERR_NO_MEMORY, "pinned: no memory for the records of %u blocks",
                 segment->capacity);
    block_set_up(block, segment, block_begin(segment, i), is_plain);
    block->next = segment->idle;
    segment->idle = block;
    segment->idle_count++;
  }
  const uint64_t bytes = block_is_small(segment) ? segment->memory.bytes : 1;
  return tide__map_cover(&pinned->map, segment->memory.address, bytes, block_is_small(segment));
}

static void segment_uncarve(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  while (segment->idle != NULL) {
    tide__pin* const block = segment->idle;
    segment->idle = block->next;
    block_drop(pinned, block);
  }
}

static void segment_free(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  segment_uncarve(pinned, segment);
  tide__heap_release(pinned->heap, segment, 1, sizeof *segment);
}

static void segment_enter(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  for (tide__pin* block = segment->idle; block != NULL; block = block->next) {
    tide__map_set(&pinned->map, tide__pin_address(block), block_is_small(segment), block->slot.index);
  }
  tide__mutex_lock(&pinned->chunks_lock);
  tide__list_append(&segment->pool->segments, &segment->all);
  tide__mutex_unlock(&pinned->chunks_lock);
}

static void segment_leave(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  for (uint32_t i = 0; i < segment->capacity; i++) {
    tide__map_clear(&pinned->map, block_begin(segment, i), block_is_small(segment));
  }
  tide__mutex_lock(&pinned->chunks_lock);
  tide__list_unlink(&segment->all);
  tide__mutex_unlock(&pinned->chunks_lock);
}

// ---------------------------------------------------------------------------------------------------
// Making

static uint64_t chunk_bytes(tide_pinned_cache* pinned, const tide__pin_request* request) {
  tide__mutex_lock(&pinned->totals_lock);
  const uint64_t blocks = (uint64_t)pinned->class_blocks[request->class_index];
  tide__mutex_unlock(&pinned->totals_lock);
  return tide__max(CHUNK_LEAST, tide__min(CHUNK_MOST, blocks * request->rounded));
}

static uint32_t segment_capacity(tide_pinned_cache* pinned, const tide__pin_request* request, bool is_least) {
  if (request->class_index >= pinned->first_single) return 1;
  if (is_least) return CHUNK_STEP;
  const uint64_t blocks = chunk_bytes(pinned, request) / request->rounded;
  return (uint32_t)tide__max(CHUNK_STEP, blocks & ~(uint64_t)(CHUNK_STEP - 1));
}

static tide__pin_segment* segment_new(const tide__pin_request* request, bool is_least) {
  tide_pinned_cache* const pinned = request->pinned;
  tide__pin_segment* const segment = tide__heap_alloc(pinned->heap, 1, sizeof *segment);
  if (segment == NULL) return NULL;
  tide__list_init(&segment->link);
  tide__list_init(&segment->all);
  segment->pool = request->pool;
  segment->block_bytes = request->rounded;
  segment->class_index = request->class_index;
  segment->capacity = segment_capacity(pinned, request, is_least);
  segment->ordinal = tide__add_relaxed(&pinned->next_ordinal, 1);
  segment->stack = request->context.stack;
  const uint64_t bytes = pinned->options.powers_of_two ? request->rounded : request->bytes;
  segment->is_cached = bytes <= pinned->options.max_block_bytes;
  return segment;
}

// Gives back the memory of a segment that was never used. If the machine refuses, the record stays in the
// list `refused`.
static tide_status segment_return(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  const bool has_memory = segment->memory.bytes != 0;
  const tide_status status = has_memory ? tide__pin_memory_give(pinned, &segment->memory) : TIDE_OK;
  if (status == TIDE_OK) {
    segment_free(pinned, segment);
    return TIDE_OK;
  }
  segment_uncarve(pinned, segment);
  tide__mutex_lock(&pinned->chunks_lock);
  tide__list_append(&pinned->refused, &segment->all);
  tide__mutex_unlock(&pinned->chunks_lock);
  return status;
}

static void segment_undo(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  const tide_error error = *tide_last_error();
  tide__ignore(segment_return(pinned, segment));
  tide__error_restore(&error);
}

tide_status tide__pin_segment_make(const tide__pin_request* request, bool is_least, tide__pin** out) {
  tide_pinned_cache* const pinned = request->pinned;
  *out = NULL;
  tide__pin_segment* const segment = segment_new(request, is_least);
  TIDE_REQUIRE(segment != NULL, TIDE_ERR_NO_MEMORY, "pinned: no memory for the record of a segment");
  tide_status status =
      tide__pin_memory_take(pinned, segment->capacity * segment->block_bytes, &segment->memory);
  if (status == TIDE_OK) status = segment_carve(pinned, segment);
  if (status != TIDE_OK) {
    segment_undo(pinned, segment);
    return status;
  }
  segment_enter(pinned, segment);
  (void)tide__add_relaxed(&segment->pool->depot.classes[segment->class_index].steals_left, 1);
  tide__pin_totals_segment(pinned, segment, true);
  tide__pin_history_add(pinned, TIDE_ACTION_SEGMENT_ALLOC, &request->context, segment->memory.address,
                        segment->memory.bytes, segment->pool->base.number);
  tide__pin* const list = segment->idle;
  segment->idle = NULL;
  segment->idle_count = 0;
  *out = list;
  if (list->next != NULL) tide__pin_depot_put(pinned, segment->pool, segment->class_index, list->next);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Giving back

// The addresses leave the map first: once the machine has them back, another thread may get them.
static tide_status segment_give(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  segment_leave(pinned, segment);
  const tide_status status = tide__pin_memory_give(pinned, &segment->memory);
  if (status != TIDE_OK) {
    segment_enter(pinned, segment);
    tide__pin_depot_restore(pinned, segment);
    return status;
  }
  const tide__call_context context = tide__pin_context_now(pinned, TIDE_HISTORY_ALL);
  tide__pin_history_add(pinned, TIDE_ACTION_SEGMENT_FREE, &context, segment->memory.address,
                        segment->memory.bytes, segment->pool->base.number);
  tide__pin_totals_segment(pinned, segment, false);
  segment_free(pinned, segment);
  return TIDE_OK;
}

tide_status tide__pin_segments_give(tide_pinned_cache* pinned, tide__link* list, uint32_t* out_count) {
  tide__first_failure failure;
  uint32_t count = 0;
  tide__first_failure_begin(&failure);
  while (!tide__list_is_empty(list)) {
    tide__pin_segment* const segment = TIDE_OWNER(list->next, tide__pin_segment, link);
    tide__list_unlink(&segment->link);
    const tide_status status = segment_give(pinned, segment);
    if (status == TIDE_OK) count++;
    tide__first_failure_note(&failure, status);
  }
  if (out_count != NULL) *out_count = count;
  return tide__first_failure_end(&failure);
}

tide_status tide__pin_refused_give(tide_pinned_cache* pinned, uint32_t* count) {
  tide__first_failure failure;
  tide__link list;
  tide__list_init(&list);
  tide__mutex_lock(&pinned->chunks_lock);
  tide__list_append(&pinned->refused, &list);  // `list` replaces the old head
  tide__list_unlink(&pinned->refused);
  tide__mutex_unlock(&pinned->chunks_lock);
  tide__first_failure_begin(&failure);
  while (!tide__list_is_empty(&list)) {
    tide__pin_segment* const segment = TIDE_OWNER(list.next, tide__pin_segment, all);
    tide__list_unlink(&segment->all);
    const tide_status status = segment_return(pinned, segment);
    if (status == TIDE_OK) (*count)++;
    tide__first_failure_note(&failure, status);
  }
  return tide__first_failure_end(&failure);
}

void tide__pin_segment_drop(tide_pinned_cache* pinned, tide__pin_segment* segment) {
  tide__list_unlink(&segment->all);
  tide__heap_release(pinned->heap, segment, 1, sizeof *segment);
}
