// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gathers the lives of all blocks and ranges of a device in one pass of the ledger. A block whose size turns
// out to be another becomes two blocks, one after the other; so does a range of which a part is removed.
// Therefore the sums at every position are those of the ledger.
//
// Cost: O(n log m); 48 bytes for each block and range, and 32 for each block that is alive at once.
#include <stdlib.h>

#include "base/arith.h"
#include "base/heap.h"
#include "base/list.h"
#include "view.h"

#define OPEN_LIFE UINT32_MAX  // of a block or range that still lives, and of a block that still waits

// A range that exists at the current position.
typedef struct open_range {
  tide__tree_node node;  // key: the address
  uint64_t bytes;
  size_t range;  // its number
} open_range;

typedef struct gathering {
  tool_view_memory* memory;
  tide__tree open_ranges;
  tide__tree parked_ranges;    // those that are parked at the current position
  tide__hash_map open_blocks;  // numbers of blocks plus 1, by address
  tide__hash_map stream_places;
  uint32_t* pool_places;    // owned: by number in the trace; 0: not used yet
  size_t pool_known;        // their count
  uint32_t position;        // of the change that is reported
  tide_timeline curves[2];  // the overview, and the fine ones
} gathering;

const char* const tool_view_curve_names[TOOL_VIEW_CURVE_COUNT] = { "reserved", "allocated", "requested" };

static uint32_t position_of(uint64_t at) { return at == TIDE_LEDGER_BEFORE ? 0 : (uint32_t)at + 1; }

// ---------------------------------------------------------------------------------------------------
// Streams and pools

static uint32_t stream_place(gathering* g, uint64_t stream) {
  tool_view_memory* const m = g->memory;
  const uint64_t found = tide__hash_map_find(&g->stream_places, stream);
  if (found != 0) return (uint32_t)found - 1;
  if (!tide__hash_map_reserve(&g->stream_places, g->stream_places.count + 1)) tool_out_of_memory();
  m->streams = tool_grow(m->streams, m->stream_count + 1, sizeof *m->streams);
  m->streams[m->stream_count] = stream;
  (void)tide__hash_map_put(&g->stream_places, stream, ++m->stream_count);
  return (uint32_t)m->stream_count - 1;
}

static uint32_t pool_place(gathering* g, uint32_t pool) {
  tool_view_memory* const m = g->memory;
  if (pool >= g->pool_known) pool = 0;
  if (g->pool_places[pool] == 0) {
    m->pools = tool_grow(m->pools, m->pool_count + 1, sizeof *m->pools);
    m->pools[m->pool_count++] = pool;
    g->pool_places[pool] = (uint32_t)m->pool_count;
  }
  return g->pool_places[pool] - 1;
}

// ---------------------------------------------------------------------------------------------------
// Ranges

static open_range* open_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, open_range, node) : NULL;
}

static uint64_t open_end(const open_range* open) { return open->node.key + open->bytes; }

// The first open range that ends behind an address.
static open_range* open_from(const tide__tree* ranges, uint64_t address) {
  open_range* const open = open_of(tide__tree_floor(ranges, address));
  if (open != NULL && address < open_end(open)) return open;
  return open_of(tide__tree_ceiling(ranges, address));
}

static tide__tree* ranges_of(gathering* g, const tool_view_range* range) {
  return (range->flags & TOOL_VIEW_PARKED) != 0 ? &g->parked_ranges : &g->open_ranges;
}

static void range_open(gathering* g, const tool_view_range* range) {
  tool_view_memory* const m = g->memory;
  if (m->range_count == m->range_room) {
    m->range_room = 2 * m->range_room + 64;
    m->ranges = tool_grow(m->ranges, m->range_room, sizeof *m->ranges);
  }
  open_range* const open = tool_alloc(1, sizeof *open);
  *open = (open_range){ .node = { .key = range->address }, .bytes = range->bytes, .range = m->range_count };
  (void)tide__tree_insert(ranges_of(g, range), &open->node);
  m->ranges[m->range_count] = *range;
  m->ranges[m->range_count].begin = g->position;
  m->ranges[m->range_count++].life = OPEN_LIFE;
}

// Ends an open range, and returns what it was.
static tool_view_range range_close(gathering* g, open_range* open) {
  tool_view_range* const range = &g->memory->ranges[open->range];
  const tool_view_range was = *range;
  range->life = g->position - range->begin;
  if (range->life == 0) range->begin = TOOL_VIEW_GONE;
  tide__tree_remove(ranges_of(g, &was), &open->node);
  free(open);
  return was;
}

static void range_cut(gathering* g, const tide__tree* ranges, uint64_t from, uint64_t to) {
  open_range* open = open_from(ranges, from);
  while (open != NULL && open->node.key < to) {
    const tool_view_range was = range_close(g, open);
    const uint64_t end = was.address + was.bytes;
    tool_view_range rest = was;
    rest.bytes = was.address < from ? from - was.address : 0;
    if (rest.bytes > 0) range_open(g, &rest);
    rest.address = to;
    rest.bytes = to < end ? end - to : 0;
    if (rest.bytes > 0) range_open(g, &rest);
    open = open_from(ranges, end < to ? end : to);
  }
}

static void range_change(gathering* g, tide_ledger_event event, uint64_t at, const tide_ledger_range* range,
                         uint32_t flags) {
  const tide__tree* const ranges = (flags & TOOL_VIEW_PARKED) != 0 ? &g->parked_ranges : &g->open_ranges;
  g->position = position_of(at);
  if (event == TIDE_LEDGER_ENDS) {
    range_cut(g, ranges, range->address, range->address + range->bytes);
    return;
  }
  const tool_view_range added = {
    .address = range->address,
    .bytes = range->bytes,
    .stream = stream_place(g, range->stream),
    .pool = pool_place(g, range->pool),
    .stack = tool_view_stack(g->memory->stacks, range->stack),
    .cause = range->cause,
    .flags = (range->is_expandable ? TOOL_VIEW_EXPANDABLE : 0) | (range->is_large ? TOOL_VIEW_LARGE : 0) |
             (range->is_invented ? TOOL_VIEW_INVENTED : 0) | flags,
  };
  range_open(g, &added);
}

static void on_range(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  range_change(user, event, at, range, 0);
}

static void on_parked(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_range* range) {
  range_change(user, event, at, range, TOOL_VIEW_PARKED);
}

// The range around a block, which may be parked; NULL if there is none.
static const tool_view_range* range_around(const gathering* g, uint64_t address) {
  const open_range* const open = open_from(&g->open_ranges, address);
  const open_range* const parked = open_from(&g->parked_ranges, address);
  const bool is_parked = parked != NULL && parked->node.key <= address;
  const open_range* const found = is_parked ? parked : open;
  return found != NULL ? &g->memory->ranges[found->range] : NULL;
}

// ---------------------------------------------------------------------------------------------------
// Blocks

static void block_open(gathering* g, const tool_view_block* block) {
  tool_view_memory* const m = g->memory;
  if (m->block_count == m->block_room) {
    m->block_room += m->block_room / 2 + 256;
    m->blocks = tool_grow(m->blocks, m->block_room, sizeof *m->blocks);
  }
  if (!tide__hash_map_has_room(&g->open_blocks) &&
      !tide__hash_map_reserve(&g->open_blocks, 2 * g->open_blocks.count + 64))
    tool_out_of_memory();
  m->blocks[m->block_count] = *block;
  (void)tide__hash_map_put(&g->open_blocks, block->address, ++m->block_count);
}

static void block_release(const gathering* g, tool_view_block* block) {
  if (block->life == OPEN_LIFE) block->life = g->position - block->begin;
}

static void block_close(const gathering* g, tool_view_block* block) {
  block_release(g, block);
  block->wait = g->position - block->begin - block->life;
  if (block->life + block->wait == 0) block->begin = TOOL_VIEW_GONE;
}

static void block_begin(gathering* g, uint64_t at, const tide_ledger_block* block) {
  const tool_view_memory* const m = g->memory;
  const tool_view_range* const range = range_around(g, block->address);
  const bool is_old = at == TIDE_LEDGER_BEFORE;
  const tool_view_block added = {
    .address = block->address,
    .bytes = block->bytes,
    .slack = block->bytes - block->requested_bytes,
    .begin = g->position,
    .life = block->state == TIDE_BLOCK_PENDING ? 0 : OPEN_LIFE,
    .wait = OPEN_LIFE,
    .stack = tool_view_stack(m->stacks, block->stack),
    .stream = !is_old         ? stream_place(g, m->entries[at].stream)
              : range != NULL ? range->stream
                              : 0,
    .pool = range != NULL ? range->pool : 0,
  };
  block_open(g, &added);
}

// The block goes on as another one with another size.
static void block_change(gathering* g, const tool_view_block* was, const tide_ledger_block* block) {
  tool_view_block rest = *was;
  rest.begin = g->position;
  if (rest.life != OPEN_LIFE) rest.life = 0;
  rest.wait = OPEN_LIFE;
  rest.bytes = block->bytes;
  rest.slack = block->bytes - block->requested_bytes;
  (void)tide__hash_map_take(&g->open_blocks, block->address);
  block_open(g, &rest);
}

static void on_block(void* user, tide_ledger_event event, uint64_t at, const tide_ledger_block* block) {
  gathering* const g = user;
  g->position = position_of(at);
  if (event == TIDE_LEDGER_BEGINS) {
    block_begin(g, at, block);
    return;
  }
  const uint64_t number = tide__hash_map_find(&g->open_blocks, block->address);
  if (number == 0) return;
  tool_view_block* const known = &g->memory->blocks[number - 1];
  if (event == TIDE_LEDGER_WAITS) {
    block_release(g, known);
    return;
  }
  const tool_view_block was = *known;
  block_close(g, known);
  if (event == TIDE_LEDGER_CHANGES) block_change(g, &was, block);
  else (void)tide__hash_map_take(&g->open_blocks, block->address);
}

// ---------------------------------------------------------------------------------------------------
// Curves

// Makes the buckets; the caller sets where they begin.
static void curves_init(tool_view_curves* curves, size_t count) {
  curves->count = count;
  curves->buckets = tool_alloc(count, sizeof *curves->buckets);
}

const tide_timeline_range* tool_view_range_of(const tool_view_curves* curves, size_t curve, size_t bucket) {
  const tide_timeline_bucket* const at = &curves->buckets[bucket];
  switch (curve) {
    case TOOL_VIEW_RESERVED: return &at->reserved;
    case TOOL_VIEW_ALLOCATED: return &at->allocated;
    default: return &at->requested;
  }
}

uint64_t tool_view_bucket_begin(const tool_view_memory* memory, size_t bucket) {
  return memory->entry_count * bucket / memory->overview.count;
}

static void memory_divide(tool_view_memory* m) {
  const uint64_t count = m->entry_count;
  curves_init(&m->overview, count == 0 ? 1 : (size_t)tide__min(count, TOOL_VIEW_BUCKETS));
  curves_init(&m->fine, count / TOOL_VIEW_FINE + 1);
  for (size_t i = 0; i < m->overview.count; i++) m->overview.buckets[i].begin = tool_view_bucket_begin(m, i);
  for (size_t i = 0; i < m->fine.count; i++) m->fine.buckets[i].begin = (uint64_t)i * TOOL_VIEW_FINE;
}

static void on_entry(void* user, const tide_ledger_totals* totals) {
  gathering* const g = user;
  for (size_t i = 0; i < 2; i++) {
    if (totals->at == TIDE_LEDGER_BEFORE) tide_timeline_start(&g->curves[i], totals);
    else tide_timeline_add(&g->curves[i], totals->at, totals);
  }
}

// ---------------------------------------------------------------------------------------------------
// All

// Lives that did not end: a block lives to the end; one that waits ends after it.
static void lives_complete(tool_view_memory* m) {
  const uint32_t behind = (uint32_t)m->entry_count + 1;
  for (size_t i = 0; i < m->block_count; i++) {
    tool_view_block* const block = &m->blocks[i];
    if (block->life == OPEN_LIFE) block->life = block->wait = 0;
    else if (block->wait == OPEN_LIFE) block->wait = behind - block->begin - block->life;
  }
  for (size_t i = 0; i < m->range_count; i++) {
    if (m->ranges[i].life == OPEN_LIFE) m->ranges[i].life = 0;
  }
}

static void ranges_free(tide__tree* ranges) {
  while (ranges->root != NULL) {
    open_range* const open = open_of(ranges->root);
    tide__tree_remove(ranges, &open->node);
    free(open);
  }
}

static void gathering_fini(gathering* g) {
  ranges_free(&g->open_ranges);
  ranges_free(&g->parked_ranges);
  for (size_t i = 0; i < 2; i++) tide_timeline_finish(&g->curves[i]);
  tide__hash_map_fini(&g->open_blocks);
  tide__hash_map_fini(&g->stream_places);
  free(g->pool_places);
}

static void gathering_init(gathering* g, tool_view_memory* memory) {
  *g = (gathering){ .memory = memory };
  g->pool_known = tide_trace_pool_count(memory->trace) + 1;
  g->pool_places = tool_alloc(g->pool_known, sizeof *g->pool_places);
  tide__hash_map_init(&g->open_blocks, tide__heap_or_system(NULL));
  tide__hash_map_init(&g->stream_places, tide__heap_or_system(NULL));
  const tool_view_curves* const both[] = { &memory->overview, &memory->fine };
  for (size_t i = 0; i < 2; i++)
    g->curves[i] = (tide_timeline){ .buckets = both[i]->buckets, .count = both[i]->count };
}

int tool_view_memory_gather(tool_view_memory* memory, const tide_trace* trace, size_t device,
                            tide_ledger* ledger, tool_view_stacks* stacks) {
  size_t count = 0;
  *memory = (tool_view_memory){ .trace = trace, .stacks = stacks };
  memory->entries = tide_trace_entries(trace, device, &count);
  memory->entry_count = count;
  if (count >= INT32_MAX) return tool_fail("%zu entries are too many for a page", count);
  memory_divide(memory);
  gathering g;
  gathering_init(&g, memory);
  tide_ledger_watcher watcher = TIDE_LEDGER_WATCHER_INIT;
  watcher.on_range = on_range;
  watcher.on_parked = on_parked;
  watcher.on_block = on_block;
  watcher.on_entry = on_entry;
  watcher.user = &g;
  const tide_status status = tide_ledger_watch(ledger, &watcher);
  gathering_fini(&g);
  lives_complete(memory);
  if (status != TIDE_OK) return tool_fail("%s", tool_error());
  tool_view_lanes_find(memory);
  return TOOL_DONE;
}

void tool_view_memory_fini(tool_view_memory* memory) {
  free(memory->blocks);
  free(memory->ranges);
  free(memory->lanes);
  free(memory->streams);
  free(memory->pools);
  free(memory->overview.buckets);
  free(memory->fine.buckets);
}
