// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// For a hole, a range of neighbouring blocks, just long enough, slides through each segment: O(blocks).
// Segments are chosen by dynamic programming over the bytes to give back, in units of 2 MiB, of which
// PyTorch's segments are multiples: O(segments * units). If that is too much, segments with the fewest live
// bytes per byte are taken first, and the result is only an upper bound.
#include "room.h"

#include <stdlib.h>
#include <string.h>

#include "base/arith.h"

#define UNIT ((uint64_t)2 << 20)
#define CELLS_MAX ((uint64_t)1 << 24)    // segments or handles times units
#define HANDLES_MAX ((uint64_t)1 << 20)  // of all segments; one that has more is taken as a whole
#define HANDLE_LARGE ((uint64_t)20 << 20)
#define HANDLE_SMALL ((uint64_t)2 << 20)
#define NOT_SPLIT_BEYOND ((uint64_t)20 << 20)  // an unsplit block may be larger than its request by less

// ---------------------------------------------------------------------------------------------------
// A hole

// Blocks [from, to) of a picture.
typedef struct block_window {
  size_t from;
  size_t to;
  uint64_t bytes;
  uint64_t used;  // of these, not free
} block_window;

typedef struct hole_search {
  const tool_picture* picture;
  uint64_t need;
  uint64_t less_than;  // a hole of this size or more is not used
  block_window best;   // `to` is 0 if there is none
} hole_search;

static uint64_t block_used(const tide_ledger_block* block) {
  return block->state == TIDE_BLOCK_INACTIVE ? 0 : block->bytes;
}

// Fewer bytes first, then fewer blocks, then the one that was found first.
static bool window_is_better(const block_window* window, const block_window* best) {
  if (best->to == 0) return true;
  if (window->used != best->used) return window->used < best->used;
  return window->to - window->from < best->to - best->from;
}

// The size of the hole when the window is free, with free neighbours in the segment.
static uint64_t window_hole(const hole_search* search, const block_window* window, size_t segment) {
  const tool_picture* const picture = search->picture;
  uint64_t bytes = window->bytes;
  const size_t first = picture->first_block[segment];
  const size_t end = picture->first_block[segment + 1];
  if (window->from > first && picture->blocks[window->from - 1].state == TIDE_BLOCK_INACTIVE)
    bytes += picture->blocks[window->from - 1].bytes;
  if (window->to < end && picture->blocks[window->to].state == TIDE_BLOCK_INACTIVE)
    bytes += picture->blocks[window->to].bytes;
  return bytes;
}

static void windows_try(hole_search* search, size_t segment) {
  const tool_picture* const picture = search->picture;
  block_window window = { .from = picture->first_block[segment], .to = picture->first_block[segment] };
  while (window.to < picture->first_block[segment + 1]) {
    window.bytes += picture->blocks[window.to].bytes;
    window.used += block_used(&picture->blocks[window.to]);
    window.to++;
    while (window.bytes - picture->blocks[window.from].bytes >= search->need) {
      window.bytes -= picture->blocks[window.from].bytes;
      window.used -= block_used(&picture->blocks[window.from]);
      window.from++;
    }
    if (window.bytes >= search->need && window_is_better(&window, &search->best) &&
        window_hole(search, &window, segment) < search->less_than)
      search->best = window;
  }
}

// The first size of a block that the split limit keeps from the request.
static uint64_t hole_limit(const tide_trace* trace, const tool_refusal* refusal) {
  const tide_intern* const names = tide_trace_names(trace);
  const uint32_t settings = tide_trace_get_about(trace).settings;
  const tide_value value =
      tide_intern_value(names, tide_intern_value_find(names, settings, "max_split_size"));
  if (value.kind != TIDE_VALUE_INT || value.integer < 0) return UINT64_MAX;
  const uint64_t max_split = (uint64_t)value.integer;
  uint64_t limit = UINT64_MAX;
  if (refusal->bytes < max_split) return max_split;
  return tide__add(refusal->bytes, NOT_SPLIT_BEYOND, &limit) ? limit : UINT64_MAX;
}

static bool segment_is_place(const tool_refusal* refusal, const tide_ledger_segment* segment) {
  return segment->pool == refusal->pool && segment->stream == refusal->stream &&
         segment->is_large == refusal->is_large;
}

static block_window room_find_hole(tool_room* room, const tide_trace* trace, const tool_refusal* refusal,
                                   const tool_picture* picture) {
  hole_search search = { .picture = picture, .need = refusal->bytes };
  search.less_than = hole_limit(trace, refusal);
  for (size_t i = 0; i < picture->segment_count; i++) {
    if (!segment_is_place(refusal, &picture->segments[i])) continue;
    // Of an expandable segment that fills the device, PyTorch maps only what is missing.
    if (picture->segments[i].is_expandable && room->is_exact) room->is_exact = room->is_least = false;
    room->largest_segment = tide__max(room->largest_segment, picture->segments[i].bytes);
    windows_try(&search, i);
  }
  room->has_hole = search.best.to > 0;
  room->hole_bytes = search.best.used;
  return search.best;
}

// ---------------------------------------------------------------------------------------------------
// Segments and handles

// Memory that can be given back when all its blocks are free: a segment, or a handle of an expandable one. A
// block may lie in several handles; whoever pays for one of them has it free for the next.
typedef struct room_cell {
  size_t from;  // its blocks, also those that reach into it
  size_t to;
  uint64_t gain;    // in units
  uint64_t cost;    // live bytes
  uint64_t shared;  // of these, of the block that begins in an earlier cell
} room_cell;

typedef struct room_cells {
  room_cell* items;  // owned
  size_t count;
  size_t room;
  uint64_t gains;     // of all
  bool are_in_units;  // all sizes are whole units, and there are not too many handles
} room_cells;

static void cells_add(room_cells* cells, const room_cell* cell) {
  if (cells->count == cells->room) {
    cells->room = cells->room * 2 + 64;
    cells->items = tool_grow(cells->items, cells->room, sizeof *cells->items);
  }
  cells->items[cells->count++] = *cell;
  cells->gains += cell->gain;
}

static uint64_t block_end(const tide_ledger_block* block) { return block->address + block->bytes; }

// The handles of an expandable segment. Memory is mapped by handles, so it begins with one.
static void cells_add_handles(room_cells* cells, const tool_picture* picture, size_t index) {
  const tide_ledger_segment* const segment = &picture->segments[index];
  const uint64_t handle_bytes = segment->is_large ? HANDLE_LARGE : HANDLE_SMALL;
  const size_t end = picture->first_block[index + 1];
  size_t first = picture->first_block[index];
  for (uint64_t at = segment->address; at + handle_bytes <= segment->address + segment->bytes;
       at += handle_bytes) {
    while (block_end(&picture->blocks[first]) <= at) first++;
    const tide_ledger_block* const block = &picture->blocks[first];
    room_cell cell = { .from = first, .to = first, .gain = handle_bytes / UNIT };
    for (; cell.to < end && picture->blocks[cell.to].address < at + handle_bytes; cell.to++)
      cell.cost += block_used(&picture->blocks[cell.to]);
    if (block->address < at) cell.shared = block_used(block);
    cells_add(cells, &cell);
  }
}

// A request in a private pool also makes PyTorch give back the default pool, and no other one in use.
static room_cells cells_of(const tool_picture* picture) {
  room_cells cells = { .are_in_units = true };
  for (size_t i = 0; i < picture->segment_count; i++) {
    const tide_ledger_segment* const segment = &picture->segments[i];
    if (segment->pool != 0) continue;
    if (segment->bytes % UNIT != 0) cells.are_in_units = false;
    const room_cell cell = { .from = picture->first_block[i],
                             .to = picture->first_block[i + 1],
                             .gain = segment->bytes / UNIT,
                             .cost = segment->active_bytes };
    const uint64_t handles_left = HANDLES_MAX - tide__min(cells.count, HANDLES_MAX);
    const bool is_huge = segment->bytes / HANDLE_SMALL > handles_left;
    if (is_huge) cells.are_in_units = false;
    if (segment->is_expandable && !is_huge) cells_add_handles(&cells, picture, i);
    else cells_add(&cells, &cell);
  }
  return cells;
}

// The least cost of each gain with the first cells, by whether the last of them is taken: then the block
// that reaches into the next one is paid for. Cells in the middle of such a block cost nothing more, so none
// of them is left out. A choice is which of the two states it comes from (bit 0), and whether the cell is
// taken (bit 1).
typedef struct cell_row {
  uint64_t* least[2];  // owned; by gains
} cell_row;

static cell_row row_new(uint64_t need) {
  cell_row row = { { tool_alloc((size_t)need + 1, sizeof(uint64_t)),
                     tool_alloc((size_t)need + 1, sizeof(uint64_t)) } };
  for (uint64_t d = 0; d <= need; d++) row.least[0][d] = row.least[1][d] = d == 0 ? 0 : UINT64_MAX;
  row.least[1][0] = UINT64_MAX;
  return row;
}

static void row_fini(cell_row* row) {
  free(row->least[0]);
  free(row->least[1]);
}

static void row_offer(cell_row* row, int state, uint64_t d, uint64_t cost, uint8_t choice, uint8_t* choices) {
  if (cost >= row->least[state][d]) return;
  row->least[state][d] = cost;
  choices[2 * d + (uint64_t)state] = choice;
}

static void row_follow(cell_row* row, const cell_row* before, const room_cell* cell, uint64_t need,
                       uint8_t* choices) {
  for (uint64_t d = 0; d <= need; d++) {
    row->least[0][d] = row->least[1][d] = UINT64_MAX;
    for (int from = 0; from < 2; from++) {
      const uint64_t skipped = before->least[from][d];
      const uint64_t rest = before->least[from][d > cell->gain ? d - cell->gain : 0];
      const uint64_t cost = cell->cost - (from == 1 ? cell->shared : 0);
      row_offer(row, 0, d, skipped, (uint8_t)from, choices);
      if (rest != UINT64_MAX) row_offer(row, 1, d, rest + cost, (uint8_t)(2 + from), choices);
    }
  }
}

// Finds the cheapest cells by dynamic programming, and sets a flag for each.
static void cells_solve(const room_cells* cells, uint64_t need, bool* is_taken) {
  const size_t width = 2 * ((size_t)need + 1);
  uint8_t* const choices = tool_alloc(cells->count, width);
  cell_row rows[2] = { row_new(need), row_new(need) };
  for (size_t i = 0; i < cells->count; i++)
    row_follow(&rows[(i + 1) % 2], &rows[i % 2], &cells->items[i], need, choices + i * width);
  const cell_row* const last = &rows[cells->count % 2];
  uint64_t state = last->least[1][need] < last->least[0][need];
  for (size_t i = cells->count; i > 0; i--) {
    const uint8_t choice = choices[(i - 1) * width + 2 * need + state];
    is_taken[i - 1] = choice >= 2;
    if (choice >= 2) need -= tide__min(need, cells->items[i - 1].gain);
    state = choice & 1;
  }
  row_fini(&rows[0]);
  row_fini(&rows[1]);
  free(choices);
}

// Fewer live bytes for each byte first.
static int cell_order(const void* a, const void* b) {
  const room_cell* const left = a;
  const room_cell* const right = b;
  const double costs[] = { (double)left->cost * (double)right->gain,
                           (double)right->cost * (double)left->gain };
  if (costs[0] != costs[1]) return costs[0] < costs[1] ? -1 : 1;
  return (left->from > right->from) - (left->from < right->from);
}

static void cells_take_cheap(room_cells* cells, uint64_t need, bool* is_taken) {
  qsort(cells->items, cells->count, sizeof *cells->items, cell_order);
  for (size_t i = 0; i < cells->count && need > 0; i++) {
    is_taken[i] = cells->items[i].gain > 0;
    need -= tide__min(need, cells->items[i].gain);
  }
}

// Counts what is taken, and sets a flag for each block in it.
static void cells_count(tool_room* room, const room_cells* cells, const bool* is_taken,
                        const tool_picture* picture, bool* is_in_way) {
  for (size_t i = 0; i < cells->count; i++) {
    if (!is_taken[i]) continue;
    room->given_bytes += cells->items[i].gain * UNIT;
    for (size_t k = cells->items[i].from; k < cells->items[i].to; k++) {
      if (!is_in_way[k]) room->segments_bytes += block_used(&picture->blocks[k]);
      is_in_way[k] = true;
    }
  }
}

// Returns a flag for each block of the picture.
static bool* room_find_segments(tool_room* room, const tool_picture* picture) {
  room_cells cells = cells_of(picture);
  const uint64_t need = room->missing_bytes / UNIT + (room->missing_bytes % UNIT != 0);
  bool* const is_in_way = tool_alloc(picture->block_count + 1, sizeof *is_in_way);
  room->has_segments = cells.count > 0 && cells.gains >= need;
  room->is_least = room->is_least && cells.are_in_units;
  if (room->has_segments) {
    bool* const is_taken = tool_alloc(cells.count, sizeof *is_taken);
    const bool is_small = need < CELLS_MAX / cells.count;
    if (is_small) cells_solve(&cells, need, is_taken);
    else cells_take_cheap(&cells, need, is_taken);
    room->is_least = room->is_least && is_small;
    cells_count(room, &cells, is_taken, picture, is_in_way);
    free(is_taken);
  }
  free(cells.items);
  return is_in_way;
}

// ---------------------------------------------------------------------------------------------------
// The cheaper one

static void room_add_blocks(tool_room* room, const tool_picture* picture, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) {
    if (picture->blocks[i].state != TIDE_BLOCK_INACTIVE)
      room->blocks[room->block_count++] = picture->blocks[i];
  }
}

static void room_choose(tool_room* room, const tool_picture* picture, const block_window* hole,
                        const bool* is_in_way) {
  room->blocks = tool_alloc(picture->block_count + 1, sizeof *room->blocks);
  if (room->has_hole && (!room->has_segments || room->hole_bytes <= room->segments_bytes)) {
    room->way = TOOL_ROOM_HOLE;
    room_add_blocks(room, picture, hole->from, hole->to);
  } else if (room->has_segments) {
    room->way = TOOL_ROOM_SEGMENTS;
    for (size_t i = 0; i < picture->block_count; i++) {
      if (is_in_way[i]) room_add_blocks(room, picture, i, i + 1);
    }
  }
}

uint64_t tool_room_bytes(const tool_room* room) {
  return room->way == TOOL_ROOM_HOLE ? room->hole_bytes : room->segments_bytes;
}

// At most the new segment. If more was reserved at another time, the limit was lower at this one.
static uint64_t missing_bytes(const tool_refusal* refusal, const tool_limits* limits) {
  const uint64_t left = limits->likely > refusal->reserved ? limits->likely - refusal->reserved : 0;
  return left < refusal->segment_bytes ? refusal->segment_bytes - left : refusal->segment_bytes;
}

int tool_room_find(const tide_trace* trace, tide_ledger* ledger, const tool_refusal* refusal,
                   const tool_limits* limits, tool_room* out) {
  *out = (tool_room){ .is_exact = limits->is_device_full, .is_least = true };
  tool_picture picture;
  const int status = tool_picture_take(ledger, refusal->at, &picture);
  if (status != TOOL_DONE) return status;
  out->missing_bytes = missing_bytes(refusal, limits);
  const block_window hole = room_find_hole(out, trace, refusal, &picture);
  bool* const is_in_way = room_find_segments(out, &picture);
  room_choose(out, &picture, &hole, is_in_way);
  free(is_in_way);
  tool_picture_fini(&picture);
  return TOOL_DONE;
}

void tool_room_fini(tool_room* room) { free(room->blocks); }
