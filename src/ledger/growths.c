// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A tree of ranges follows the entries of segments: O(log s) each, for s ranges. Only growths of which
// something is left are judged. Each of them walks over all spans, and over the tiles of those that changed.
#include "ledger/growths.h"

#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"

#define REQUEST_WITHIN 256u  // entries after a growth among which its request is searched
#define RANGES_READY 3u      // records that one entry may need

// Memory that one entry added.
typedef struct growth_range {
  tide__tree_node node;  // key: the address
  uint64_t bytes;
  uint64_t at;  // number of the entry, or TIDE_LEDGER_BEFORE
} growth_range;

static const char* const cause_names[TIDE_GROWTH_COUNT] = {
#define CAUSE_NAME(name, value, text) [value] = text,
  TIDE_GROWTH_MAP(CAUSE_NAME)
#undef CAUSE_NAME
};

const char* tide_growth_cause_name(uint32_t cause) {
  return cause < TIDE_GROWTH_COUNT ? cause_names[cause] : NULL;
}

void tide__growths_init(tide__growths* growths, const tide_heap* heap) {
  *growths = (tide__growths){ .heap = heap };
  growths->range_stock.record_bytes = sizeof(growth_range);
}

void tide__growths_fini(tide__growths* growths) {
  tide__stock_fini(&growths->range_stock, growths->heap);
  tide__heap_release(growths->heap, growths->items, growths->room, sizeof *growths->items);
  tide__heap_release(growths->heap, growths->places, growths->place_room, sizeof *growths->places);
}

// ---------------------------------------------------------------------------------------------------
// Ranges

static growth_range* range_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, growth_range, node) : NULL;
}

static uint64_t range_end(const growth_range* range) { return range->node.key + range->bytes; }

// The first range that ends behind an address.
static growth_range* range_from(const tide__growths* growths, uint64_t address) {
  growth_range* const range = range_of(tide__tree_floor(&growths->ranges, address));
  if (range != NULL && address < range_end(range)) return range;
  return range_of(tide__tree_ceiling(&growths->ranges, address));
}

static void range_insert(tide__growths* growths, uint64_t address, uint64_t bytes, uint64_t at) {
  growth_range* const range = tide__stock_take(&growths->range_stock);
  *range = (growth_range){ .node = { .key = address }, .bytes = bytes, .at = at };
  (void)tide__tree_insert(&growths->ranges, &range->node);
}

static void ranges_remove(tide__growths* growths, uint64_t from, uint64_t to) {
  growth_range* range = range_from(growths, from);
  while (range != NULL && range->node.key < to) {
    const growth_range old = *range;
    tide__tree_remove(&growths->ranges, &range->node);
    tide__stock_give(&growths->range_stock, range);
    if (old.node.key < from) range_insert(growths, old.node.key, from - old.node.key, old.at);
    if (to < range_end(&old)) range_insert(growths, to, range_end(&old) - to, old.at);
    range = range_from(growths, to < range_end(&old) ? to : range_end(&old));
  }
}

static tide_status ranges_add(tide__growths* growths, uint64_t address, uint64_t bytes, uint64_t at) {
  uint64_t end = 0;
  if (bytes == 0 || !tide__add(address, bytes, &end) || end > TIDE__LAYOUT_END) return TIDE_OK;
  TIDE_REQUIRE(tide__stock_fill(&growths->range_stock, growths->heap, RANGES_READY), TIDE_ERR_NO_MEMORY,
               "ledger: no memory for segments");
  ranges_remove(growths, address, end);
  range_insert(growths, address, bytes, at);
  return TIDE_OK;
}

static tide_status ranges_follow(tide__growths* growths, const tide_trace_entry* entry, uint64_t number) {
  uint64_t end = 0;
  switch (entry->action) {
    case TIDE_ACTION_SEGMENT_ALLOC:
    case TIDE_ACTION_SEGMENT_MAP: return ranges_add(growths, entry->address, entry->bytes, number);
    case TIDE_ACTION_SEGMENT_FREE:
    case TIDE_ACTION_SEGMENT_UNMAP:
      TIDE_REQUIRE(tide__stock_fill(&growths->range_stock, growths->heap, RANGES_READY), TIDE_ERR_NO_MEMORY,
                   "ledger: no memory for segments");
      if (tide__add(entry->address, entry->bytes, &end)) ranges_remove(growths, entry->address, end);
      return TIDE_OK;
    default: return TIDE_OK;
  }
}

// ---------------------------------------------------------------------------------------------------
// What is left

static tide_status growths_add(tide__growths* growths, const tide__span* span, uint64_t address,
                               uint64_t bytes, uint64_t at) {
  TIDE_REQUIRE(tide__heap_grow(growths->heap, (void**)&growths->items, &growths->room, growths->count + 1,
                               sizeof *growths->items),
               TIDE_ERR_NO_MEMORY, "ledger: no memory for %zu segments", growths->count + 1);
  growths->items[growths->count++] =
      (tide_growth){ .at = at,
                     .address = address,
                     .bytes = bytes,
                     .stream = span->stream,
                     .request_at = TIDE_LEDGER_BEFORE,
                     .pool = span->pool,
                     .cause = at == TIDE_LEDGER_BEFORE ? TIDE_GROWTH_BEFORE : TIDE_GROWTH_UNKNOWN,
                     .is_large = span->is_large,
                     .is_expandable = span->is_expandable,
                     .is_pool_known = span->is_pool_known };
  return TIDE_OK;
}

// Adds a span, cut where its ranges begin and end. What no range covers is of unknown origin: an allocation
// invented it, or the recording contradicts itself.
static tide_status growths_add_span(tide__growths* growths, const tide__span* span) {
  const uint64_t end = span->node.key + span->bytes;
  uint64_t at = span->node.key;
  const growth_range* range = range_from(growths, at);
  while (at < end) {
    const bool is_inside = range != NULL && range->node.key <= at;
    uint64_t to = end;
    if (range != NULL) to = tide__min(end, is_inside ? range_end(range) : range->node.key);
    TIDE_TRY(growths_add(growths, span, at, to - at, is_inside ? range->at : span->made_at));
    if (is_inside) range = range_of(tide__tree_next(&range->node));
    at = to;
  }
  return TIDE_OK;
}

// What is older than the recording comes first.
static int growth_order(const void* a, const void* b) {
  const tide_growth* const left = a;
  const tide_growth* const right = b;
  if (left->at != right->at) return left->at + 1 < right->at + 1 ? -1 : 1;
  return (left->address > right->address) - (left->address < right->address);
}

tide_status tide__growths_find(tide__growths* growths, const tide__before* before,
                               const tide_trace_entry* entries, uint64_t count, const tide__layout* layout) {
  for (size_t i = 0; i < before->span_count; i++) {
    const tide__span* const span = &before->spans[i];
    if (!span->is_parked) TIDE_TRY(ranges_add(growths, span->node.key, span->bytes, TIDE_LEDGER_BEFORE));
  }
  for (uint64_t i = 0; i < count; i++) TIDE_TRY(ranges_follow(growths, &entries[i], i));
  const tide__span* span = tide__layout_span_from(layout, 0);
  while (span != NULL) {
    if (!span->is_parked) TIDE_TRY(growths_add_span(growths, span));
    span = tide__layout_span_from(layout, span->node.key + 1);
  }
  if (growths->count > 1) qsort(growths->items, growths->count, sizeof *growths->items, growth_order);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Requests

static bool entry_is_inside(const tide_trace_entry* entry, const tide_trace_entry* growth) {
  const uint64_t bytes = tide__max(entry->bytes, 1);
  if (entry->address < growth->address) return growth->address - entry->address < bytes;
  return entry->address - growth->address < growth->bytes;
}

// The request gets memory of the new range; or it is refused, and the range is all that could be mapped.
static bool entry_is_request(const tide_trace_entry* entry, const tide_trace_entry* growth) {
  if (entry->action == TIDE_ACTION_OOM) return entry->stream == growth->stream;
  return entry->action == TIDE_ACTION_ALLOC && entry_is_inside(entry, growth);
}

void tide__growth_find_request(tide_growth* growth, const tide__rules* rules, const tide_trace_entry* entries,
                               uint64_t count) {
  if (growth->at >= count) return;
  const uint64_t end = count - growth->at > REQUEST_WITHIN ? growth->at + REQUEST_WITHIN : count;
  for (uint64_t i = growth->at + 1; i < end; i++) {
    const tide_trace_entry* const entry = &entries[i];
    if (!entry_is_request(entry, &entries[growth->at]) || entry->bytes >= TIDE__LAYOUT_END) continue;
    growth->request_at = i;
    growth->requested_bytes = entry->bytes;
    growth->rounded_bytes = tide__rules_round(rules, entry->bytes);
    growth->stack = entry->stack;
    return;
  }
}

// One request may map several ranges, one after the other.
uint64_t tide__growth_first(const tide_growth* growth, const tide_trace_entry* entries) {
  uint64_t first = growth->at;
  while (first > 0 && entries[first - 1].action == TIDE_ACTION_SEGMENT_MAP &&
         entries[first].action == TIDE_ACTION_SEGMENT_MAP &&
         entries[first - 1].stream == entries[first].stream)
    first--;
  return first;
}

// ---------------------------------------------------------------------------------------------------
// Sums over spans

static void span_sum(const tide__layout* layout, tide__span* span) {
  tide__span_sum sum = { .free_bytes = 0 };
  uint64_t run = 0;
  const tide__tile* const first = span->is_parked ? NULL : tide__layout_tile_at(layout, span->node.key);
  for (const tide__tile* tile = first; tile != NULL && (tile == first || !tile->is_first);
       tile = tile->next) {
    run = tile->state == TIDE_BLOCK_ALLOCATED ? 0 : run + tile->bytes;
    sum.longest = tide__max(sum.longest, run);
    if (tile->state == TIDE_BLOCK_PENDING) sum.waiting_bytes += tile->bytes;
    if (tile->state != TIDE_BLOCK_INACTIVE) continue;
    sum.free_bytes += tile->bytes;
    sum.free_count++;
    sum.largest = tide__max(sum.largest, tile->bytes);
  }
  span->sum = sum;
  span->summed_in = layout->generation;
}

static void span_touch(tide__layout* layout, uint64_t address) {
  tide__tree_node* const node = tide__tree_floor(&layout->spans, address);
  if (node != NULL) TIDE_OWNER(node, tide__span, node)->summed_in = 0;
}

// A change of segments may merge or cut their neighbours.
void tide__growths_touch(tide__layout* layout, const tide_trace_entry* entry) {
  uint64_t end = 0;
  span_touch(layout, entry->address);
  if (entry->action < TIDE_ACTION_SEGMENT_ALLOC || entry->action > TIDE_ACTION_SEGMENT_UNMAP) return;
  if (entry->address > 0) span_touch(layout, entry->address - 1);
  if (tide__add(entry->address, entry->bytes, &end)) span_touch(layout, end);
}

// ---------------------------------------------------------------------------------------------------
// Causes

static bool place_is(const tide_ledger_place* place, const tide__span* span) {
  return place->pool == span->pool && place->stream == span->stream && place->is_large == span->is_large;
}

// The place of a span, adding it if necessary; NULL without memory.
static tide_ledger_place* place_of(tide__growths* growths, const tide__span* span) {
  for (size_t i = growths->place_count; i > 0; i--) {
    if (place_is(&growths->places[i - 1], span)) return &growths->places[i - 1];
  }
  if (!tide__heap_grow(growths->heap, (void**)&growths->places, &growths->place_room,
                       growths->place_count + 1, sizeof *growths->places))
    return NULL;
  tide_ledger_place* const place = &growths->places[growths->place_count++];
  *place = (tide_ledger_place){ .stream = span->stream, .pool = span->pool, .is_large = span->is_large };
  return place;
}

static void place_add(tide_ledger_place* place, const tide__span_sum* sum) {
  place->waiting_bytes += sum->waiting_bytes;
  place->free_bytes += sum->free_bytes;
  place->free_count += sum->free_count;
  place->largest_bytes = tide__max(place->largest_bytes, sum->largest);
}

static bool growth_is_home(const tide_growth* growth, const tide__span* span) {
  return growth->pool == span->pool && growth->stream == span->stream && growth->is_large == span->is_large;
}

// Finds the smallest free block that is large enough.
static void growth_find_fitting(tide_growth* growth, const tide__layout* layout, const tide__span* span) {
  const tide__tile* const first = tide__layout_tile_at(layout, span->node.key);
  for (const tide__tile* tile = first; tile != NULL && (tile == first || !tile->is_first);
       tile = tile->next) {
    const bool fits = tile->state == TIDE_BLOCK_INACTIVE && tile->bytes >= growth->rounded_bytes;
    if (fits && (growth->place_fitting == 0 || tile->bytes < growth->place_fitting))
      growth->place_fitting = tile->bytes;
  }
}

static void growth_add_own(tide_growth* growth, const tide__layout* layout, const tide__span* span) {
  growth->place_bytes += span->sum.free_bytes;
  growth->place_waiting += span->sum.waiting_bytes;
  growth->place_largest = tide__max(growth->place_largest, span->sum.largest);
  if (span->sum.free_count > 0 && span->sum.largest >= growth->rounded_bytes)
    growth_find_fitting(growth, layout, span);
}

static void growth_add_other(tide_growth* growth, const tide__span* span) {
  if (span->is_large != growth->is_large) growth->other_class += span->sum.free_bytes;
  else if (span->pool != growth->pool) growth->other_pools += span->sum.free_bytes;
  else growth->other_streams += span->sum.free_bytes;
}

// Do a block of this size and larger ones stay whole, so that smaller requests cannot use them?
static bool rules_keep_whole(const tide__rules* rules, const tide_growth* growth) {
  return growth->is_large && growth->place_fitting >= rules->max_split_bytes;
}

static tide_growth_cause growth_cause(const tide_growth* growth, const tide__rules* rules, uint64_t longest) {
  const uint64_t need = growth->rounded_bytes;
  if (growth->place_fitting > 0)
    return rules_keep_whole(rules, growth) ? TIDE_GROWTH_SPLIT : TIDE_GROWTH_PASSED;
  if (longest >= need) return TIDE_GROWTH_EVENT;
  uint64_t sum = growth->place_bytes;
  if (sum >= need) return TIDE_GROWTH_HOLE;
  sum += growth->place_waiting;
  if (sum >= need) return TIDE_GROWTH_EVENT;
  sum += growth->other_streams;
  if (sum >= need) return TIDE_GROWTH_STREAM;
  sum += growth->other_pools;
  if (sum >= need) return TIDE_GROWTH_POOL;
  return sum + growth->other_class >= need ? TIDE_GROWTH_CLASS : TIDE_GROWTH_NEEDED;
}

bool tide__growth_is_unparked(const tide__layout* layout, const tide_growth* growth) {
  const uint64_t end = growth->address + growth->bytes;
  tide__tree_node* node = tide__tree_floor(&layout->spans, growth->address);
  if (node == NULL) node = tide__tree_ceiling(&layout->spans, growth->address);
  for (; node != NULL && node->key < end; node = tide__tree_next(node)) {
    const tide__span* const span = TIDE_OWNER(node, tide__span, node);
    if (span->is_parked && node->key + span->bytes > growth->address) return true;
  }
  return false;
}

tide_status tide__growth_judge(tide__growths* growths, tide__layout* layout, tide_growth* growth) {
  uint64_t longest = 0;
  growths->place_count = 0;
  for (tide__tree_node* node = tide__tree_first(&layout->spans); node != NULL; node = tide__tree_next(node)) {
    tide__span* const span = TIDE_OWNER(node, tide__span, node);
    if (span->is_made_up) continue;
    if (span->summed_in != layout->generation) span_sum(layout, span);
    tide_ledger_place* const place = place_of(growths, span);
    TIDE_REQUIRE(place != NULL, TIDE_ERR_NO_MEMORY, "ledger: no memory for %zu places",
                 growths->place_count + 1);
    place_add(place, &span->sum);
    if (growth_is_home(growth, span)) {
      growth_add_own(growth, layout, span);
      longest = tide__max(longest, span->sum.longest);
    } else {
      growth_add_other(growth, span);
    }
  }
  growth->places = growths->places;
  growth->place_count = growths->place_count;
  if (growth->request_at != TIDE_LEDGER_BEFORE) growth->cause = growth_cause(growth, layout->rules, longest);
  return TIDE_OK;
}
