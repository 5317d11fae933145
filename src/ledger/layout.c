// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Two trees by address, one of spans and one of tiles. A tile has no pointer to its span: expandable spans
// are merged and split often, and so only the flag of one tile changes. A change costs O(log m) for m tiles,
// amortised over the tiles that it drops.
//
// Tiles are also linked by address, over all spans. The next change often needs the tile of the last one,
// because most releases are completed at once.
#include "ledger/layout.h"

#include <string.h>

#include "base/arith.h"
#include "base/check.h"
#include "base/list.h"

#define LAYOUT_READY 6u  // records of a kind that one change may need

// ---------------------------------------------------------------------------------------------------
// Life

bool tide__layout_prepare(tide__layout* layout) {
  return tide__stock_fill(&layout->tile_stock, layout->heap, LAYOUT_READY) &&
         tide__stock_fill(&layout->span_stock, layout->heap, LAYOUT_READY);
}

void tide__layout_init(tide__layout* layout, const tide_heap* heap, const tide__rules* rules) {
  *layout = (tide__layout){ .heap = heap, .rules = rules, .generation = 1 };
  layout->tile_stock.record_bytes = sizeof(tide__tile);
  layout->span_stock.record_bytes = sizeof(tide__span);
}

void tide__layout_fini(tide__layout* layout) {
  tide__stock_fini(&layout->tile_stock, layout->heap);
  tide__stock_fini(&layout->span_stock, layout->heap);
}

// ---------------------------------------------------------------------------------------------------
// Looking

static tide__tile* tile_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__tile, node) : NULL;
}
static tide__span* span_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__span, node) : NULL;
}
static uint64_t tile_end(const tide__tile* tile) { return tile->node.key + tile->bytes; }
static uint64_t span_end(const tide__span* span) { return span->node.key + span->bytes; }

// The tile or span that contains an address.
static tide__tile* tile_around(const tide__layout* layout, uint64_t address) {
  tide__tile* const tile = tile_of(tide__tree_floor(&layout->tiles, address));
  return tile != NULL && address < tile_end(tile) ? tile : NULL;
}
static tide__span* span_around(const tide__layout* layout, uint64_t address) {
  tide__span* const span = span_of(tide__tree_floor(&layout->spans, address));
  return span != NULL && address < span_end(span) ? span : NULL;
}

// The neighbours of a tile in its own span.
static tide__tile* tile_before(const tide__tile* tile) { return tile->is_first ? NULL : tile->prev; }
static tide__tile* tile_behind(const tide__tile* tile) {
  return tile->next != NULL && !tile->next->is_first ? tile->next : NULL;
}

tide__tile* tide__layout_find(tide__layout* layout, uint64_t address) {
  if (layout->last_found == NULL || layout->last_found->node.key != address) {
    layout->last_found = tile_of(tide__tree_floor(&layout->tiles, address));
  }
  tide__tile* const tile = layout->last_found;
  const bool is_there = tile != NULL && tile->node.key == address && tile->state != TIDE_BLOCK_INACTIVE;
  return is_there ? tile : NULL;
}

const tide__span* tide__layout_span_from(const tide__layout* layout, uint64_t address) {
  return span_of(tide__tree_ceiling(&layout->spans, address));
}

const tide__tile* tide__layout_tile_at(const tide__layout* layout, uint64_t address) {
  const tide__tile* const tile = tile_of(tide__tree_floor(&layout->tiles, address));
  return tile != NULL && tile->node.key == address ? tile : NULL;
}

// ---------------------------------------------------------------------------------------------------
// Tiles

// Adds a tile behind another one; NULL: before all.
static tide__tile* tile_insert(tide__layout* layout, tide__tile* prev, uint64_t address, uint64_t bytes) {
  tide__tile* const tile = tide__stock_take(&layout->tile_stock);
  *tile = (tide__tile){ .node = { .key = address }, .bytes = bytes };
  tile->made_at = TIDE_LEDGER_BEFORE;
  tile->prev = prev;
  tile->next = prev != NULL ? prev->next : layout->first;
  if (tile->next != NULL) tile->next->prev = tile;
  if (prev != NULL) prev->next = tile;
  else layout->first = tile;
  const bool is_new = tide__tree_insert(&layout->tiles, &tile->node);
  TIDE_ASSERT(is_new);
  (void)is_new;
  return tile;
}

static void tile_delete(tide__layout* layout, tide__tile* tile) {
  if (tile->next != NULL) tile->next->prev = tile->prev;
  if (tile->prev != NULL) tile->prev->next = tile->next;
  else layout->first = tile->next;
  if (layout->last_found == tile) layout->last_found = NULL;
  tide__tree_remove(&layout->tiles, &tile->node);
  tide__stock_give(&layout->tile_stock, tile);
}

// Splits a tile; returns the upper part, which has the same state.
static tide__tile* tile_cut(tide__layout* layout, tide__tile* tile, uint64_t address) {
  tide__tile* const upper = tile_insert(layout, tile, address, tile_end(tile) - address);
  tile->bytes = address - tile->node.key;
  upper->requested_bytes = tile->requested_bytes;
  upper->made_at = tile->made_at;
  upper->stack = tile->stack;
  upper->state = tile->state;
  upper->is_expandable = tile->is_expandable;
  upper->is_made_up = tile->is_made_up;
  return upper;
}

// Merges two inactive neighbours. The last request is that of `youngest`.
static tide__tile* tile_join(tide__layout* layout, tide__tile* lower, tide__tile* upper,
                             const tide__tile* youngest) {
  lower->requested_bytes = youngest->requested_bytes;
  lower->made_at = youngest->made_at;
  lower->stack = youngest->stack;
  lower->bytes += upper->bytes;
  tile_delete(layout, upper);
  return lower;
}

static tide__tile* tile_merge(tide__layout* layout, tide__tile* tile) {
  tide__tile* const behind = tile_behind(tile);
  if (behind != NULL && behind->state == TIDE_BLOCK_INACTIVE) tile = tile_join(layout, tile, behind, tile);
  tide__tile* const before = tile_before(tile);
  if (before != NULL && before->state == TIDE_BLOCK_INACTIVE) tile = tile_join(layout, before, tile, tile);
  return tile;
}

// ---------------------------------------------------------------------------------------------------
// Telling

// Nobody is told most of the time, and then these cost a test.
__attribute__((cold, noinline)) static void watch_tell_tile(const tide__layout_watch* watch,
                                                            tide_ledger_event event, const tide__tile* tile) {
  watch->on_tile(watch->user, event, tile);
}

static inline void tile_tell(const tide__layout* layout, tide_ledger_event event, const tide__tile* tile) {
  if (layout->watch != NULL) watch_tell_tile(layout->watch, event, tile);
}

static void range_tell(const tide__layout* layout, tide_ledger_event event, const tide__span* span,
                       uint64_t from, uint64_t to) {
  if (layout->watch != NULL) layout->watch->on_range(layout->watch->user, event, span, from, to);
}

// ---------------------------------------------------------------------------------------------------
// Requests

void tide__layout_set_state(tide__layout* layout, tide__tile* tile, tide_block_state state) {
  if (tile->state == TIDE_BLOCK_ALLOCATED) layout->totals.allocated_bytes -= tile->bytes;
  tile->state = (uint8_t)state;
  if (tile->state == TIDE_BLOCK_ALLOCATED) layout->totals.allocated_bytes += tile->bytes;
}

void tide__layout_let_wait(tide__layout* layout, tide__tile* tile) {
  layout->totals.allocated_bytes -= tile->bytes;
  tile->state = TIDE_BLOCK_PENDING;
  tile_tell(layout, TIDE_LEDGER_WAITS, tile);
}

// Gives an inactive tile to a request.
static void tile_occupy(tide__layout* layout, tide__tile* tile, const tide__placing* placing) {
  tide_ledger_totals* const totals = &layout->totals;
  tile->requested_bytes = tide__min(placing->requested_bytes, tile->bytes);
  tile->made_at = placing->made_at;
  tile->stack = placing->stack;
  totals->live_count++;
  totals->live_bytes += tide__request_bytes(tile->requested_bytes);
  totals->requested_bytes += tile->requested_bytes;
  totals->active_bytes += tile->bytes;
  tide__layout_set_state(layout, tile, placing->state);
  tile_tell(layout, TIDE_LEDGER_BEGINS, tile);
}

// Makes a tile inactive without merging it.
static void tile_vacate(tide__layout* layout, tide__tile* tile) {
  tide_ledger_totals* const totals = &layout->totals;
  tile_tell(layout, TIDE_LEDGER_ENDS, tile);
  tide__layout_set_state(layout, tile, TIDE_BLOCK_INACTIVE);
  totals->live_count--;
  totals->live_bytes -= tide__request_bytes(tile->requested_bytes);
  totals->requested_bytes -= tile->requested_bytes;
  totals->active_bytes -= tile->bytes;
}

static tide__tile* tile_release(tide__layout* layout, tide__tile* tile) {
  tile_vacate(layout, tile);
  return tile_merge(layout, tile);
}

// ---------------------------------------------------------------------------------------------------
// Spans

static tide__span* span_insert(tide__layout* layout, const tide__span* span) {
  tide__span* const added = tide__stock_take(&layout->span_stock);
  *added = *span;
  added->summed_in = 0;
  const bool is_new = tide__tree_insert(&layout->spans, &added->node);
  TIDE_ASSERT(is_new);
  (void)is_new;
  layout->totals.segment_count += !added->is_parked;
  layout->made_up_count += added->is_made_up;
  return added;
}

static void span_delete(tide__layout* layout, tide__span* span) {
  tide__tree_remove(&layout->spans, &span->node);
  layout->made_up_count -= span->is_made_up;
  layout->totals.segment_count -= !span->is_parked;
  tide__stock_give(&layout->span_stock, span);
}

// Makes the part of a span from an address on a span of its own. A tile begins there.
static tide__span* span_split(tide__layout* layout, tide__span* span, uint64_t address) {
  tide__span upper = *span;
  upper.node.key = address;
  upper.bytes = span_end(span) - address;
  span->bytes -= upper.bytes;
  tile_around(layout, address)->is_first = true;
  return span_insert(layout, &upper);
}

// Removes a range from the span that contains it. What is behind the range becomes a span of its own.
static void span_shrink(tide__layout* layout, tide__span* span, uint64_t from, uint64_t to) {
  range_tell(layout, TIDE_LEDGER_ENDS, span, from, to);
  if (!span->is_parked) layout->totals.reserved_bytes -= to - from;
  if (to < span_end(span)) (void)span_split(layout, span, to);
  span->bytes = from - span->node.key;
  if (span->bytes == 0) span_delete(layout, span);
}

// Releases all blocks in a range of one span, so that one inactive tile covers it, and returns that tile.
static tide__tile* span_vacate(tide__layout* layout, uint64_t from, uint64_t to, bool* was_in_use) {
  tide__tile* tile = tile_around(layout, from);
  while (tile->state != TIDE_BLOCK_INACTIVE || tile_end(tile) < to) {
    const bool is_idle = tile->state == TIDE_BLOCK_INACTIVE;
    tile = tile_release(layout, is_idle ? tile->next : tile);
    *was_in_use = true;
  }
  return tile;
}

// Removes a range of one span with its tiles.
static void span_cut_out(tide__layout* layout, tide__span* span, uint64_t from, uint64_t to,
                         bool* was_in_use) {
  tide__tile* tile = span_vacate(layout, from, to, was_in_use);
  if (to < tile_end(tile)) (void)tile_cut(layout, tile, to);
  if (from > tile->node.key) tile = tile_cut(layout, tile, from);
  tile_delete(layout, tile);
  span_shrink(layout, span, from, to);
}

// Removes a range from all spans; returns the bytes removed, without parked ones. Invented spans are removed
// as a whole.
static uint64_t range_clear(tide__layout* layout, uint64_t from, uint64_t to, bool* was_in_use) {
  uint64_t cleared = 0;
  tide__span* span = span_around(layout, from);
  if (span == NULL) span = span_of(tide__tree_ceiling(&layout->spans, from));
  while (span != NULL && span->node.key < to) {
    const uint64_t begin = span->is_made_up ? span->node.key : tide__max(from, span->node.key);
    const uint64_t end = span->is_made_up ? span_end(span) : tide__min(to, span_end(span));
    cleared += span->is_parked ? 0 : end - begin;
    span_cut_out(layout, span, begin, end, was_in_use);
    span = span_of(tide__tree_ceiling(&layout->spans, end));
  }
  return cleared;
}

static bool range_is_sane(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  return bytes != 0 && tide__add(address, bytes, &end) && end <= TIDE__LAYOUT_END;
}

static bool spans_are_one(const tide__span* lower, const tide__span* upper) {
  return !lower->is_parked && !upper->is_parked && lower->is_expandable && upper->is_expandable &&
         lower->stream == upper->stream &&
         (lower->pool == upper->pool || !lower->is_pool_known || !upper->is_pool_known);
}

// Merges a span with the one behind it, if they belong together.
static tide__span* span_join(tide__layout* layout, tide__span* lower, tide__span* upper) {
  if (lower == NULL || upper == NULL || !spans_are_one(lower, upper)) return upper != NULL ? upper : lower;
  tide__tile* const tile = tile_around(layout, upper->node.key);
  if (!lower->is_pool_known) lower->pool = upper->pool;
  lower->is_pool_known |= upper->is_pool_known;
  if (lower->made_at != TIDE_LEDGER_BEFORE) {
    lower->made_at = upper->made_at == TIDE_LEDGER_BEFORE ? upper->made_at
                                                          : tide__min(lower->made_at, upper->made_at);
  }
  lower->bytes += upper->bytes;
  span_delete(layout, upper);
  tile->is_first = false;
  tide__tile* const before = tile->prev;
  const bool is_idle = tile->state == TIDE_BLOCK_INACTIVE && before->state == TIDE_BLOCK_INACTIVE;
  if (is_idle) (void)tile_join(layout, before, tile, tile);
  return lower;
}

static void span_join_both(tide__layout* layout, tide__span* span) {
  tide__span* const lower = span->node.key > 0 ? span_around(layout, span->node.key - 1) : NULL;
  span = span_join(layout, lower, span);
  (void)span_join(layout, span, span_around(layout, span_end(span)));
}

// ---------------------------------------------------------------------------------------------------
// Parking

// Makes a tile begin at an address inside a span. False if a block in use lies across it.
static bool tile_begin_at(tide__layout* layout, uint64_t address) {
  tide__tile* const tile = tile_around(layout, address);
  if (tile == NULL || tile->node.key == address) return true;
  if (tile->state != TIDE_BLOCK_INACTIVE) return false;
  (void)tile_cut(layout, tile, address);
  return true;
}

// Makes a range of a span a span of its own.
static tide__span* span_isolate(tide__layout* layout, tide__span* span, uint64_t from, uint64_t to) {
  if (to < span_end(span)) (void)span_split(layout, span, to);
  return from > span->node.key ? span_split(layout, span, from) : span;
}

// The span that contains a range, cut so that tiles begin and end there; NULL if there is none, or a block in
// use lies across a border.
static tide__span* range_find(tide__layout* layout, uint64_t from, uint64_t to, bool is_parked) {
  tide__span* const span = span_around(layout, from);
  if (span == NULL || span->is_parked != is_parked || to > span_end(span)) return NULL;
  if (to < span_end(span) && !tile_begin_at(layout, to)) return NULL;
  return tile_begin_at(layout, from) ? span : NULL;
}

static bool range_is_used(const tide__layout* layout, uint64_t from, uint64_t to) {
  const tide__tile* tile = tile_around(layout, from);
  for (; tile != NULL && tile->node.key < to; tile = tile->next) {
    if (tile->state != TIDE_BLOCK_INACTIVE) return true;
  }
  return false;
}

// Two inactive tiles on both sides of an address in one span are one.
static void tiles_join_at(tide__layout* layout, uint64_t address) {
  tide__tile* const tile = tile_around(layout, address);
  if (tile != NULL && tile->state == TIDE_BLOCK_INACTIVE) (void)tile_merge(layout, tile);
}

// The memory of a range goes, and its blocks stay. False if nothing is in use there, or it is not a range of
// one span.
static bool range_park(tide__layout* layout, uint64_t from, uint64_t to) {
  if (!range_is_used(layout, from, to)) return false;
  tide__span* span = range_find(layout, from, to, false);
  if (span == NULL || !span->is_expandable || span->is_made_up) {
    tiles_join_at(layout, to);
    tiles_join_at(layout, from);
    return false;
  }
  range_tell(layout, TIDE_LEDGER_ENDS, span, from, to);
  span = span_isolate(layout, span, from, to);
  span->is_parked = true;
  layout->totals.segment_count--;
  layout->totals.reserved_bytes -= to - from;
  range_tell(layout, TIDE_LEDGER_BEGINS, span, from, to);
  return true;
}

// The memory of a range of a parked span is there again.
static bool range_unpark(tide__layout* layout, uint64_t from, uint64_t to) {
  tide__span* span = range_find(layout, from, to, true);
  if (span == NULL) {
    tiles_join_at(layout, to);
    tiles_join_at(layout, from);
    return false;
  }
  range_tell(layout, TIDE_LEDGER_ENDS, span, from, to);
  span = span_isolate(layout, span, from, to);
  span->is_parked = false;
  layout->totals.segment_count++;
  layout->totals.reserved_bytes += to - from;
  range_tell(layout, TIDE_LEDGER_BEGINS, span, from, to);
  span_join_both(layout, span);
  return true;
}

uint64_t tide__layout_part_end(const tide__layout* layout, uint64_t from, uint64_t to) {
  const tide__span* const span = span_around(layout, from);
  if (span != NULL) return span->is_parked ? tide__min(to, span_end(span)) : to;
  const tide__span* const next = span_of(tide__tree_ceiling(&layout->spans, from));
  return next != NULL && next->is_parked ? tide__min(to, next->node.key) : to;
}

tide__oddity tide__layout_add_span(tide__layout* layout, const tide__span* span) {
  const uint64_t address = span->node.key;
  if (!range_is_sane(address, span->bytes)) return TIDE__ODD_SPAN;
  if (!span->is_parked && span->is_expandable && range_unpark(layout, address, address + span->bytes))
    return TIDE__ODD_NONE;
  bool was_in_use = false;
  const bool is_odd = range_clear(layout, address, address + span->bytes, &was_in_use) != 0 || was_in_use;
  tide__tile* const before = tile_of(tide__tree_floor(&layout->tiles, address));
  tide__tile* const tile = tile_insert(layout, before, address, span->bytes);
  tile->is_first = true;
  tile->is_expandable = span->is_expandable;
  tile->is_made_up = span->is_made_up;
  tide__span* const added = span_insert(layout, span);
  if (!span->is_parked) layout->totals.reserved_bytes += span->bytes;
  range_tell(layout, TIDE_LEDGER_BEGINS, added, address, span_end(added));
  if (span->is_expandable) span_join_both(layout, added);
  return is_odd ? TIDE__ODD_SPAN : TIDE__ODD_NONE;
}

tide__oddity tide__layout_remove_span(tide__layout* layout, uint64_t address, uint64_t bytes) {
  tide__span* const span = span_around(layout, address);
  if (span == NULL || span->node.key != address) return TIDE__ODD_SPAN;
  bool is_odd = span->bytes != bytes;
  span_cut_out(layout, span, address, span_end(span), &is_odd);
  return is_odd ? TIDE__ODD_SPAN : TIDE__ODD_NONE;
}

tide__oddity tide__layout_remove_range(tide__layout* layout, uint64_t address, uint64_t bytes) {
  if (!range_is_sane(address, bytes)) return TIDE__ODD_SPAN;
  if (range_park(layout, address, address + bytes)) return TIDE__ODD_NONE;
  bool is_odd = false;
  if (range_clear(layout, address, address + bytes, &is_odd) != bytes) is_odd = true;
  return is_odd ? TIDE__ODD_SPAN : TIDE__ODD_NONE;
}

// ---------------------------------------------------------------------------------------------------
// Placing

bool tide__layout_has_room(const tide__layout* layout, uint64_t address, uint64_t requested_bytes) {
  const tide__tile* const tile = tile_around(layout, address);
  return tile != NULL && tile->state == TIDE_BLOCK_INACTIVE && tile_end(tile) - address >= requested_bytes;
}

// Removes a span with its tiles.
static void span_drop(tide__layout* layout, tide__span* span) {
  bool was_in_use = false;
  span_cut_out(layout, span, span->node.key, span_end(span), &was_in_use);
}

// Invents a span for this allocation, or for the part of it before the next span. Other invented spans in its
// way are dropped: their end was not recorded.
static void span_make_up(tide__layout* layout, const tide__placing* placing, uint64_t bytes,
                         tide__oddity* odd) {
  const uint64_t end = placing->address + tide__min(bytes, tide__max(placing->requested_bytes, 1));
  tide__span* above = span_of(tide__tree_ceiling(&layout->spans, placing->address));
  while (above != NULL && above->is_made_up && above->node.key < end) {
    *odd = TIDE__ODD_OVERLAP;
    span_drop(layout, above);
    above = span_of(tide__tree_ceiling(&layout->spans, placing->address));
  }
  const uint64_t room = above != NULL ? above->node.key - placing->address : bytes;
  tide__span span = { .node = { .key = placing->address }, .bytes = tide__min(bytes, room) };
  span.stream = placing->stream;
  span.made_at = placing->made_at;
  span.is_large = bytes > TIDE__RULES_SMALL;
  span.is_made_up = true;
  (void)tide__layout_add_span(layout, &span);
}

// A block that begins in the tile of another one, but behind its requested bytes, shows that the tile is
// smaller than the rules say: not every allocator rounds as PyTorch does. Returns the tile that is free then;
// NULL if the span is an invented one, which now ends there.
static tide__tile* tile_trim(tide__layout* layout, tide__tile* tile, uint64_t address) {
  const uint64_t rest = tile_end(tile) - address;
  layout->totals.active_bytes -= rest;
  if (tile->state == TIDE_BLOCK_ALLOCATED) layout->totals.allocated_bytes -= rest;
  if (tile->is_made_up) {
    tide__span* const span = span_around(layout, tile->node.key);
    tile->bytes -= rest;
    span->bytes -= rest;
    layout->totals.reserved_bytes -= rest;
    tile_tell(layout, TIDE_LEDGER_CHANGES, tile);
    range_tell(layout, TIDE_LEDGER_ENDS, span, address, address + rest);
    return NULL;
  }
  tide__tile* const upper = tile_cut(layout, tile, address);
  tile_tell(layout, TIDE_LEDGER_CHANGES, tile);
  upper->state = TIDE_BLOCK_INACTIVE;
  return tile_merge(layout, upper);
}

// Finds the inactive tile for `need` bytes and releases blocks in the way. NULL if there is no span, or only
// one that was invented for something else.
static tide__tile* room_make(tide__layout* layout, uint64_t address, uint64_t need, tide__oddity* odd) {
  tide__tile* tile = tile_around(layout, address);
  if (tile != NULL && tile->state != TIDE_BLOCK_INACTIVE && address > tile->node.key &&
      address - tile->node.key >= tile->requested_bytes)
    tile = tile_trim(layout, tile, address);
  if (tile == NULL) *odd = TIDE__ODD_HOMELESS;
  if (tile == NULL || (tile->state == TIDE_BLOCK_INACTIVE && tile_end(tile) >= address + need)) return tile;
  *odd = TIDE__ODD_OVERLAP;
  tide__span* const span = span_around(layout, address);
  if (span->is_made_up) {
    span_drop(layout, span);
    return NULL;
  }
  if (span_end(span) < address + need) *odd = TIDE__ODD_HOMELESS;
  bool was_in_use = false;
  return span_vacate(layout, address, tide__min(address + need, span_end(span)), &was_in_use);
}

// Splits off the part of an inactive tile before a block. But if the block before it is older than the
// recording, its size is only a lower bound, and PyTorch leaves no rest this small: the part belongs to that
// block.
static tide__tile* room_cut_front(tide__layout* layout, tide__tile* tile, uint64_t address) {
  tide__tile* const before = tile_before(tile);
  const uint64_t rest = address - tile->node.key;
  if (rest == 0) return tile;
  tide__tile* const room = tile_cut(layout, tile, address);
  const bool is_old = before != NULL && before->made_at == TIDE_LEDGER_BEFORE;
  if (!is_old || tide__rules_cuts(layout->rules, before->bytes, rest, before->is_expandable)) return room;
  before->bytes += rest;
  layout->totals.active_bytes += rest;
  if (before->state == TIDE_BLOCK_ALLOCATED) layout->totals.allocated_bytes += rest;
  tile_tell(layout, TIDE_LEDGER_CHANGES, before);
  tile_delete(layout, tile);
  return room;
}

tide__oddity tide__layout_place(tide__layout* layout, const tide__placing* placing) {
  const uint64_t address = placing->address;
  const uint64_t requested = placing->requested_bytes;
  if (requested > TIDE__LAYOUT_END || placing->bytes > TIDE__LAYOUT_END) return TIDE__ODD_HOMELESS;
  const bool is_exact = placing->bytes != 0;
  const uint64_t bytes = is_exact ? placing->bytes : tide__rules_round(layout->rules, requested);
  if (!range_is_sane(address, bytes)) return TIDE__ODD_HOMELESS;
  tide__oddity odd = TIDE__ODD_NONE;
  tide__tile* tile = room_make(layout, address, is_exact ? bytes : tide__max(requested, 1), &odd);
  if (tile == NULL) {
    span_make_up(layout, placing, bytes, &odd);
    tile = tile_around(layout, address);
  }
  tile = room_cut_front(layout, tile, address);
  const uint64_t rest = tile->bytes - tide__min(tile->bytes, bytes);
  const bool is_cut = is_exact || tide__rules_cuts(layout->rules, bytes, rest, tile->is_expandable);
  if (rest > 0 && is_cut) (void)tile_cut(layout, tile, address + bytes);
  tile_occupy(layout, tile, placing);
  layout->last_found = tile;
  return odd;
}

void tide__layout_release(tide__layout* layout, tide__tile* tile) {
  tile = tile_release(layout, tile);
  if (tile->is_made_up) span_drop(layout, span_around(layout, tile->node.key));
}

// ---------------------------------------------------------------------------------------------------
// Checking

static int span_check(const tide__span* span, const tide__tile** tile, tide_ledger_totals* sums) {
  uint64_t address = span->node.key;
  if (*tile == NULL || (*tile)->node.key != address || span->bytes == 0) return 1;
  for (const tide__tile* it = *tile; address < span_end(span); it = *tile) {
    if (it == NULL || it->node.key != address || it->is_first != (address == span->node.key)) return 1;
    if (it->is_expandable != span->is_expandable || it->is_made_up != span->is_made_up) return 1;
    const bool is_idle = it->state == TIDE_BLOCK_INACTIVE;
    if (is_idle && !it->is_first && it->prev->state == TIDE_BLOCK_INACTIVE) return 2;
    sums->active_bytes += is_idle ? 0 : it->bytes;
    sums->allocated_bytes += it->state == TIDE_BLOCK_ALLOCATED ? it->bytes : 0;
    sums->requested_bytes += is_idle ? 0 : it->requested_bytes;
    sums->live_bytes += is_idle ? 0 : tide__request_bytes(it->requested_bytes);
    sums->live_count += !is_idle;
    address += it->bytes;
    *tile = it->next;
  }
  return address == span_end(span) ? 0 : 1;
}

int tide__layout_check(const tide__layout* layout) {
  if (tide__tree_check(&layout->spans) != 0 || tide__tree_check(&layout->tiles) != 0) return 1;
  tide_ledger_totals sums = { .at = layout->totals.at };
  const tide__tile* tile = layout->first;
  for (tide__tree_node* node = tide__tree_first(&layout->spans); node != NULL; node = tide__tree_next(node)) {
    const int broken = span_check(span_of(node), &tile, &sums);
    if (broken != 0) return broken;
    sums.segment_count += !span_of(node)->is_parked;
    sums.reserved_bytes += span_of(node)->is_parked ? 0 : span_of(node)->bytes;
  }
  if (tile != NULL) return 1;
  return memcmp(&sums, &layout->totals, sizeof sums) == 0 ? 0 : 3;
}
