// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Looking inside: segments and their blocks (core/visit.h). Segments are noted lane by lane. Each is copied
// in pieces under its lane's lock, and shown without it.
#include "core/visit.h"
#include "device/tide/tide.h"

enum { PIECE_BLOCKS = 256 };

// A segment as it was noted, and where a walk along its chain has come to. Both records may mean something
// else by now: see cursor_find_locked().
typedef struct noted_segment {
  uint64_t address;  // everything below was seen
  tide__lane* lane;
  const tide__segment* segment;
  const tide__block* block;
  uint64_t ordinal;
} noted_segment;

typedef struct device_visit {
  tide__visit visit;  // the first member: functions of notes get it
  tide_device_cache* device;
  tide_block_info blocks[PIECE_BLOCKS];
} device_visit;

// ---------------------------------------------------------------------------------------------------
// Noting

// Notes up to PIECE_BLOCKS segments from *link on, for which there is room. The gate is the caller's: no
// segment comes or goes meanwhile, so a link stays good without the lane's lock.
static void lane_note_piece(device_visit* s, tide__lane* lane, tide__link** link) {
  tide__mutex_lock(&lane->lock);
  if (*link == NULL) *link = lane->segments.next;
  for (int i = 0; i < PIECE_BLOCKS && *link != &lane->segments; i++, *link = (*link)->next) {
    const tide__segment* const segment = TIDE_OWNER(*link, tide__segment, link);
    *(noted_segment*)tide__visit_next_note(&s->visit) =
        (noted_segment){ segment->address, lane, segment, segment->head, segment->ordinal };
  }
  tide__mutex_unlock(&lane->lock);
}

static tide_status lane_note(device_visit* s, tide__lane* lane) {
  tide__link* link = NULL;
  while (link != &lane->segments) {
    TIDE_TRY(tide__visit_reserve(&s->visit, PIECE_BLOCKS));
    lane_note_piece(s, lane, &link);
  }
  return TIDE_OK;
}

static tide_status pool_note(device_visit* s, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(s->device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(s->device, pool, lane)) TIDE_TRY(lane_note(s, lane));
  return TIDE_OK;
}

static tide_status visit_note_one(device_visit* s, tide_pool number) {
  tide__pool* const pool = tide__pool_find(s->device, number);
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_HANDLE, "device_visit_pool: there is no pool %u", number);
  return pool_note(s, pool);
}

static tide_status visit_note_all(device_visit* s) {
  tide__pool_cursor at = { 0 };
  TIDE_TRY(pool_note(s, &s->device->default_pool));
  tide__pool* pool = tide__pool_next(s->device, &at);
  for (; pool != NULL; pool = tide__pool_next(s->device, &at)) TIDE_TRY(pool_note(s, pool));
  return TIDE_OK;
}

static tide_status visit_note(device_visit* s, const tide_pool* only) {
  (void)tide__gate_enter(s->device);
  tide__tcache_flush(s->device);
  const tide_status status = only != NULL ? visit_note_one(s, *only) : visit_note_all(s);
  tide__gate_leave(s->device);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Showing

static bool block_is_active(const tide__block* block) {
  return tide__block_is_handed_out(block) || block->state == TIDE__BLOCK_PENDING;
}

// The segment, if it is still there. Records of segments are used again, so the number is compared as well.
static const tide__segment* noted_find_locked(const noted_segment* noted) {
  TIDE_LIST_EACH(it, &noted->lane->segments) {
    const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
    if (segment == noted->segment) return segment->ordinal == noted->ordinal ? segment : NULL;
  }
  return NULL;
}

// The block where the walk goes on; NULL at the end. Usually it is the one noted: a record that has the
// segment and the address is in the chain. Otherwise things have changed and the chain is walked from its
// head.
static const tide__block* cursor_find_locked(noted_segment* at) {
  const tide__block* block = at->block;
  const bool is_good = block != NULL && block->segment == at->segment && block->address == at->address &&
                       at->segment->ordinal == at->ordinal;
  if (!is_good) {
    const tide__segment* const segment = noted_find_locked(at);
    block = segment != NULL ? segment->head : NULL;
    while (block != NULL && tide__block_end(block) <= at->address) block = block->next;
  }
  while (block != NULL && !tide__state_has_memory(block->state)) block = block->next;
  at->block = block;
  if (block != NULL) at->address = block->address;
  return block;
}

static void cursor_move(noted_segment* at, const tide__block* block) {
  at->address = tide__block_end(block);
  at->block = block->next;
}

static tide_segment_info range_describe(const device_visit* s, const tide__block* block) {
  const tide__segment* const segment = block->segment;
  const tide__lane* const lane = segment->lane;
  return (tide_segment_info){
    .address = block->address,
    .pool_label = { lane->pool->options.label[0], lane->pool->options.label[1] },
    .stream = lane->stream,
    .pool = lane->pool->base.number,
    .stack = segment->stack,
    .device = s->device->index,
    .is_large = !segment->is_small,
    .is_expandable = segment->is_expandable,
    .ordinal = segment->ordinal,
    .tag = tide__pool_tag(lane->pool),
    .is_parked = tide__load_relaxed(&lane->pool->is_parked) != 0,
  };
}

static void range_count(tide_segment_info* info, const tide__block* block) {
  info->bytes += block->bytes;
  if (!block_is_active(block)) return;
  const uint64_t counted = tide__block_counted_bytes(block);
  if (block->state != TIDE__BLOCK_PENDING) info->allocated_bytes += counted;
  info->active_bytes += counted;
  info->requested_bytes += tide__load_relaxed(&block->requested_bytes);
}

// Adds up the next range that has memory, in pieces. False: there is none.
static bool range_measure(const device_visit* s, noted_segment at, tide_segment_info* out) {
  size_t count = PIECE_BLOCKS;
  bool is_begun = false;
  while (count == PIECE_BLOCKS) {
    count = 0;
    tide__mutex_lock(&at.lane->lock);
    const uint64_t expected = at.address;
    const tide__block* block = cursor_find_locked(&at);
    if (block != NULL && !is_begun) *out = range_describe(s, block);
    if (block != NULL && is_begun && block->address != expected) block = NULL;  // behind a gap
    is_begun = is_begun || block != NULL;
    for (; block != NULL && tide__state_has_memory(block->state) && count < PIECE_BLOCKS; count++) {
      range_count(out, block);
      cursor_move(&at, block);
      block = block->next;
    }
    tide__mutex_unlock(&at.lane->lock);
  }
  return is_begun;
}

// Adds a block to those to be shown. What it has beyond its request is shown as idle memory behind it.
static size_t block_describe(const tide__block* block, tide_block_info out[2]) {
  const bool is_active = block_is_active(block);
  const uint64_t counted = is_active ? tide__block_counted_bytes(block) : block->bytes;
  out[0] = (tide_block_info){
    .address = block->address,
    .bytes = counted,
    .requested_bytes = tide__load_relaxed(&block->requested_bytes),
    .stack = is_active ? tide__load_relaxed(&block->stack) : 0,  // a block in a magazine keeps the one it had
    .state = !is_active                            ? TIDE_BLOCK_INACTIVE
             : block->state == TIDE__BLOCK_PENDING ? TIDE_BLOCK_PENDING
                                                   : TIDE_BLOCK_ALLOCATED,
  };
  if (counted == block->bytes) return 1;
  out[1] = (tide_block_info){ .address = block->address + counted,
                              .bytes = block->bytes - counted,
                              .state = TIDE_BLOCK_INACTIVE };
  return 2;
}

// Copies the next blocks before `end`; returns how many.
static size_t range_copy_locked(device_visit* s, noted_segment* at, uint64_t end) {
  size_t count = 0;
  const tide__block* block = cursor_find_locked(at);
  while (block != NULL && block->address < end && count + 1 < PIECE_BLOCKS) {
    count += block_describe(block, &s->blocks[count]);
    cursor_move(at, block);
    block = cursor_find_locked(at);
  }
  return count;
}

static bool range_show_blocks(device_visit* s, noted_segment* at, uint64_t end) {
  while (at->address < end) {
    tide__mutex_lock(&at->lane->lock);
    const size_t count = range_copy_locked(s, at, end);
    tide__mutex_unlock(&at->lane->lock);
    if (count == 0) return true;
    if (!tide__visit_blocks(&s->visit, s->blocks, count)) return false;
  }
  return true;
}

// Shows the ranges of a segment that have memory, one after the other. False: the visitor has seen enough.
static bool segment_show(tide__visit* visit, void* note) {
  device_visit* const s = (device_visit*)(void*)visit;
  noted_segment* const at = note;
  tide_segment_info info;
  while (range_measure(s, *at, &info)) {
    if (!tide__visit_segment(visit, &info)) return false;
    if (!range_show_blocks(s, at, info.address + info.bytes)) return false;
    at->address = tide__max(at->address, info.address + info.bytes);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Calls

// Shows the segments, and adds up the active bytes of what was shown.
static tide_status show_all(tide_device_cache* device, const tide_pool* only,
                            const tide_device_visitor* visitor, uint64_t* out_active_bytes) {
  device_visit* const s = tide__heap_alloc(device->heap, 1, sizeof *s);
  TIDE_REQUIRE(s != NULL, TIDE_ERR_NO_MEMORY, "device_visit: no memory");
  s->device = device;
  s->visit = (tide__visit){
    .heap = device->heap, .visitor = visitor, .call = "device_visit", .note_bytes = sizeof(noted_segment)
  };
  const tide_status status = visit_note(s, only);
  if (status == TIDE_OK) tide__visit_show(&s->visit, segment_show);
  *out_active_bytes = s->visit.active_bytes;
  tide__visit_fini(&s->visit);
  tide__heap_release(device->heap, s, 1, sizeof *s);
  return status;
}

static tide_status visit(tide_device_cache* device, const tide_pool* only,
                         const tide_device_visitor* visitor) {
  uint64_t active_bytes = 0;
  TIDE_REQUIRE(device != NULL && visitor != NULL && visitor->segment != NULL, TIDE_ERR_ARGUMENT,
               "device_visit: no device or visitor");
  TIDE_TRY(show_all(device, only, visitor, &active_bytes));
  if (visitor->block != NULL) tide__history_add_snapshot(&device->history, active_bytes);
  return TIDE_OK;
}

tide_status tide_device_visit(tide_device_cache* device, const tide_device_visitor* visitor) {
  return visit(device, NULL, visitor);
}

tide_status tide_device_visit_pool(tide_device_cache* device, tide_pool pool,
                                   const tide_device_visitor* visitor) {
  return visit(device, &pool, visitor);
}

typedef struct stack_visit {
  void (*function)(void* user, uint32_t stack);
  void* user;
} stack_visit;

static bool stack_show(const stack_visit* v, uint32_t stack) {
  if (stack != 0) v->function(v->user, stack);
  return true;
}

static bool stack_of_segment(void* user, const tide_segment_info* info) {
  return stack_show(user, info->stack);
}
static bool stack_of_block(void* user, const tide_block_info* info) { return stack_show(user, info->stack); }
static bool stacks_of_entries(void* user, const tide_trace_entry* entries, size_t count) {
  for (size_t i = 0; i < count; i++) (void)stack_show(user, entries[i].stack);
  return true;
}

// Blocks before entries: a release between the two makes an entry with the stack of a block.
tide_status tide_device_visit_stacks(tide_device_cache* device, void (*function)(void* user, uint32_t stack),
                                     void* user) {
  TIDE_REQUIRE(device != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "device_visit_stacks: no device or function");
  stack_visit v = { function, user };
  uint64_t active_bytes = 0;
  const tide_device_visitor visitor = { stack_of_segment, stack_of_block, &v };
  TIDE_TRY(show_all(device, NULL, &visitor, &active_bytes));
  return tide_device_history_visit(device, stacks_of_entries, &v);
}

// ---------------------------------------------------------------------------------------------------
// Where a block lies

// A range of addresses that the machine gave or mapped.
typedef struct base_range {
  uint64_t address;
  uint64_t bytes;
} base_range;

static base_range span_range(tide__span span, uint64_t address) {
  base_range range = { address - span.offset, 0 };
  for (size_t i = 0; i < span.count; i++) range.bytes += span.handles[i]->bytes;
  return range;
}

// Around a block. While the caller has the gate, its segment and handles stay where they are.
static tide_status placed_range(const tide__place* block, base_range* out) {
  const tide__segment* const segment = block->segment;
  if (segment == NULL) {
    *out = (base_range){ block->address, block->bytes };
  } else if (segment->home != NULL) {
    *out = span_range(tide__home_span(segment->home, block->address, block->bytes), block->address);
  } else if (segment->view != NULL) {
    const uint64_t offset = block->address - segment->address;
    *out = span_range(tide__view_span(segment->view, offset, block->bytes), block->address);
  } else {
    TIDE_REQUIRE(!segment->is_expandable, TIDE_ERR_UNSUPPORTED,
                 "device_base: %#llx is in an expandable segment", (unsigned long long)block->address);
    *out = (base_range){ segment->address, segment->bytes };
  }
  return TIDE_OK;
}

tide_status tide_device_base(tide_device_cache* device, const void* address, void** out_base,
                             size_t* out_bytes) {
  tide_block block = { NULL, 0 };
  tide__place place = { NULL, 0, 0 };
  base_range range = { 0, 0 };
  TIDE_REQUIRE(out_base != NULL, TIDE_ERR_ARGUMENT, "device_base: no out");
  *out_base = NULL;
  if (out_bytes != NULL) *out_bytes = 0;
  TIDE_TRY(tide_device_find(device, address, &block));
  (void)tide__gate_enter(device);
  tide_status status = tide__block_place(device, block, "device_base", &place);
  if (status == TIDE_OK) status = placed_range(&place, &range);
  tide__gate_leave(device);
  *out_base = tide__pointer(range.address);
  if (out_bytes != NULL) *out_bytes = range.bytes;
  return status;
}

static void pool_largest(tide_device_cache* device, tide__pool* pool, size_t* bytes) {
  if (tide__load_relaxed(&pool->is_parked)) return;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    for (int i = 0; i < 2; i++) {
      const tide__block* const block = tide__bins_largest(&lane->free_index[i].bins);
      if (block != NULL && block->bytes > *bytes) *bytes = block->bytes;
    }
    tide__mutex_unlock(&lane->lock);
  }
}

tide_status tide_device_largest(tide_device_cache* device, size_t* bytes) {
  TIDE_REQUIRE(device != NULL && bytes != NULL, TIDE_ERR_ARGUMENT, "device_largest: no device or bytes");
  size_t total = 0;
  if (*bytes == 0) TIDE_TRY(tide_machine_memory_info(device->machine, device->index, bytes, &total));
  pool_largest(device, &device->default_pool, bytes);
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) pool_largest(device, pool, bytes);
  return TIDE_OK;
}
