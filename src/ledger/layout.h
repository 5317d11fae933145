// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The layout of a device's memory at one point: spans, which are segments, and tiles, which are blocks and
// cover the spans without gaps. Everything is found by address. A change is always made: whatever contradicts
// it is removed, and the result says so.
#ifndef TIDEMARK_SRC_LEDGER_LAYOUT_H
#define TIDEMARK_SRC_LEDGER_LAYOUT_H

#include "base/tree.h"
#include "ledger/rules.h"
#include "ledger/stock.h"
#include "tidemark/ledger.h"

// Addresses end here: sums of bytes cannot overflow.
#define TIDE__LAYOUT_END ((uint64_t)1 << 62)

// Sums over the tiles of a span.
typedef struct tide__span_sum {
  uint64_t free_bytes;
  uint64_t free_count;
  uint64_t largest;  // of the free tiles
  uint64_t waiting_bytes;
  uint64_t longest;  // range without a tile that is allocated
} tide__span_sum;

// A segment.
typedef struct tide__span {
  tide__tree_node node;  // key: the address
  uint64_t bytes;
  uint64_t stream;
  uint64_t made_at;  // number of the entry, or TIDE_LEDGER_BEFORE
  uint32_t pool;
  uint32_t stack;
  bool is_large;
  bool is_expandable;
  bool is_pool_known;
  bool is_made_up;  // invented for an allocation outside of all spans; removed with it
  bool is_parked;   // unmapped with blocks in use: it is not reserved, and its blocks stay
  // Kept by growths.c, and up to date if `summed_in` is the layout's generation.
  tide__span_sum sum;
  uint64_t summed_in;  // 0: never
} tide__span;

// A block.
// [L1] the tiles of a span lie side by side from its beginning to its end; the first, and no other, is_first;
//      spans do not overlap, and no tile lies outside of them
// [L2] of two neighbours in a span one is not inactive
typedef struct tide__tile {
  tide__tree_node node;     // key: the address
  struct tide__tile* prev;  // by address, of all spans; borrowed while in the layout, like next
  struct tide__tile* next;
  uint64_t bytes;
  uint64_t requested_bytes;  // of the last request that used it
  uint64_t made_at;          // number of that request's entry, or TIDE_LEDGER_BEFORE
  uint32_t stack;            // of that entry
  uint8_t state;             // a tide_block_state
  bool is_first;             // of its span
  bool is_expandable;        // as its span, like the next field
  bool is_made_up;
} tide__tile;

// Is told about every change. A range that begins is one that was added, before it is merged with others. One
// that is parked ends, and begins again with a span that is parked; likewise when it comes back.
typedef struct tide__layout_watch {
  void (*on_tile)(void* user, tide_ledger_event event, const tide__tile* tile);
  void (*on_range)(void* user, tide_ledger_event event, const tide__span* span, uint64_t from, uint64_t to);
  void* user;
} tide__layout_watch;

// [L3] totals are the sums over spans that are not parked, and over tiles that are not inactive
typedef struct tide__layout {
  const tide_heap* heap;     // borrowed until fini
  const tide__rules* rules;  // borrowed until fini
  tide__tree spans;
  tide__tree tiles;
  tide__tile* first;          // by address
  tide__tile* last_found;     // a cache: most releases are completed at once
  tide_ledger_totals totals;  // without `at`
  uint64_t made_up_count;     // spans
  uint64_t generation;        // of the sums of spans; at least 1
  tide__stock span_stock;
  tide__stock tile_stock;
  const tide__layout_watch* watch;  // borrowed; NULL: nobody is told
} tide__layout;

// What a change contradicted.
typedef enum tide__oddity {
  TIDE__ODD_NONE,
  TIDE__ODD_UNKNOWN,   // a release of a block that does not exist
  TIDE__ODD_HOMELESS,  // an allocation that no span contains completely
  TIDE__ODD_OVERLAP,   // an allocation over another
  TIDE__ODD_SPAN,      // a span over another; or the removal of one that does not exist or has active blocks
} tide__oddity;

void tide__layout_init(tide__layout* layout, const tide_heap* heap, const tide__rules* rules);
void tide__layout_fini(tide__layout* layout);

// Allocates the records that any one change below may need; false without memory.
bool tide__layout_prepare(tide__layout* layout);

// Adds a copy of `span`. It is merged with its neighbours if all are expandable, of one stream, and of the
// same pool as far as known. A range of a parked span is not parked any more, and keeps its blocks.
tide__oddity tide__layout_add_span(tide__layout* layout, const tide__span* span);
// Where the part of a range ends that can be added at once: at the border of a parked span.
uint64_t tide__layout_part_end(const tide__layout* layout, uint64_t from, uint64_t to);
// Remove the span at an address, or a range of expandable ones. A range with blocks in use is parked instead.
tide__oddity tide__layout_remove_span(tide__layout* layout, uint64_t address, uint64_t bytes);
tide__oddity tide__layout_remove_range(tide__layout* layout, uint64_t address, uint64_t bytes);

// A block to be placed. `bytes` 0: as the rules say.
typedef struct tide__placing {
  uint64_t address;
  uint64_t bytes;
  uint64_t requested_bytes;
  uint64_t made_at;
  uint64_t stream;
  uint32_t stack;
  uint32_t state;
} tide__placing;
tide__oddity tide__layout_place(tide__layout* layout, const tide__placing* placing);
// Is the range free?
bool tide__layout_has_room(const tide__layout* layout, uint64_t address, uint64_t requested_bytes);

// The active block that begins at an address, or NULL.
tide__tile* tide__layout_find(tide__layout* layout, uint64_t address);
// Between ALLOCATED and PENDING. Nobody is told.
void tide__layout_set_state(tide__layout* layout, tide__tile* tile, tide_block_state state);
// From ALLOCATED to PENDING.
void tide__layout_let_wait(tide__layout* layout, tide__tile* tile);
// Makes a block inactive and merges it with its neighbours.
void tide__layout_release(tide__layout* layout, tide__tile* tile);

// The first span at or after an address, and the tile that begins at an address; or NULL.
const tide__span* tide__layout_span_from(const tide__layout* layout, uint64_t address);
const tide__tile* tide__layout_tile_at(const tide__layout* layout, uint64_t address);

// The number of the first invariant that does not hold, 0 if all do.
int tide__layout_check(const tide__layout* layout);

#endif
