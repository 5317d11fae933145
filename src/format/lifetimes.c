// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lifetimes. One pass over the entries with a table from addresses to the last lifetime at each (open
// addressing, linear probing, at most half full). An address that was never seen before and is released, or
// holds an active block in the trace's own list at the end, was there before the recording.
#include "format/lifetimes.h"

#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/heap.h"

#define LIFETIME_FIRST_SLOTS 64u

typedef struct lifetime_slot {
  uint64_t address;
  uint32_t number;  // of the last lifetime at the address, from 1; 0: the slot is empty
} lifetime_slot;

// [S1] slot_count is a power of two, and used <= slot_count / 2
typedef struct lifetime_map {
  lifetime_slot* slots;  // owned
  size_t slot_count;
  size_t used;
} lifetime_map;

// ---------------------------------------------------------------------------------------------------
// The table

// The slot of an address, or the empty one where it belongs.
static lifetime_slot* map_slot(const lifetime_map* map, uint64_t address) {
  const uint64_t hash = address * 0x9e3779b97f4a7c15u;
  size_t at = (size_t)(hash >> 20) & (map->slot_count - 1);
  while (map->slots[at].number != 0 && map->slots[at].address != address) {
    at = (at + 1) & (map->slot_count - 1);
  }
  return &map->slots[at];
}

// Makes room for one more.
static tide_status map_grow(lifetime_map* map, const tide_heap* heap) {
  if (map->used < map->slot_count / 2) return TIDE_OK;
  const size_t count = map->slot_count == 0 ? LIFETIME_FIRST_SLOTS : 2 * map->slot_count;
  lifetime_map larger = { tide__heap_alloc(heap, count, sizeof *map->slots), count, map->used };
  TIDE_REQUIRE(larger.slots != NULL, TIDE_ERR_NO_MEMORY, "lifetimes: no memory for %zu addresses", count);
  for (size_t i = 0; i < map->slot_count; i++) {
    if (map->slots[i].number != 0) *map_slot(&larger, map->slots[i].address) = map->slots[i];
  }
  tide__heap_release(heap, map->slots, map->slot_count, sizeof *map->slots);
  *map = larger;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Following

static tide_status lifetime_add(tide__lifetimes* all, lifetime_slot* slot, const tide__lifetime* lifetime) {
  TIDE_REQUIRE(lifetime->bytes <= INT64_MAX && all->count < UINT32_MAX, TIDE_ERR_LIMIT,
               "lifetimes: number %zu of requests or segments has 2^63 bytes or more, or is one of 2^32",
               all->count);
  TIDE_REQUIRE(
      tide__heap_grow(all->heap, (void**)&all->items, &all->capacity, all->count + 1, sizeof *all->items),
      TIDE_ERR_NO_MEMORY, "lifetimes: no memory for %zu lifetimes", all->count + 1);
  all->items[all->count++] = *lifetime;
  slot->number = (uint32_t)all->count;
  return TIDE_OK;
}

static tide_status lifetime_begin(tide__lifetimes* all, lifetime_slot* slot, size_t at) {
  const tide_trace_entry* const entry = &all->entries[at];
  tide__lifetime lifetime = { .begin = at + 1, .end = TIDE__MOMENT_NEVER, .bytes = entry->bytes };
  lifetime.stream = entry->stream;
  lifetime.stack = entry->stack;
  lifetime.note = entry->note;
  if (slot->number != 0 && all->items[slot->number - 1].end == TIDE__MOMENT_NEVER) {
    lifetime.displaced = slot->number;
    all->items[slot->number - 1].end = at + 1;
  }
  TIDE_TRY(lifetime_add(all, slot, &lifetime));
  all->of_entry[at] = slot->number;
  return TIDE_OK;
}

static tide_status lifetime_end(tide__lifetimes* all, lifetime_slot* slot, size_t at) {
  const tide_trace_entry* const entry = &all->entries[at];
  if (slot->number == 0) {
    const tide__lifetime before = { .end = at + 1,
                                    .bytes = entry->bytes,
                                    .stream = entry->stream,
                                    .stack = entry->stack,
                                    .note = entry->note };
    TIDE_TRY(lifetime_add(all, slot, &before));
    all->of_entry[at] = slot->number;
  } else if (all->items[slot->number - 1].end == TIDE__MOMENT_NEVER) {
    all->items[slot->number - 1].end = at + 1;
    all->of_entry[at] = slot->number;
  }
  return TIDE_OK;
}

// The slot of an address that may be new.
static tide_status map_take(lifetime_map* map, const tide_heap* heap, uint64_t address,
                            lifetime_slot** out_slot) {
  TIDE_TRY(map_grow(map, heap));
  *out_slot = map_slot(map, address);
  if ((*out_slot)->number == 0) map->used++;
  (*out_slot)->address = address;
  return TIDE_OK;
}

static tide_status lifetimes_follow(tide__lifetimes* all, lifetime_map* map) {
  const bool is_requests = all->kind == TIDE__LIFETIMES_OF_REQUESTS;
  const uint8_t begin = is_requests ? TIDE_ACTION_ALLOC : TIDE_ACTION_SEGMENT_ALLOC;
  const uint8_t end = is_requests ? TIDE_ACTION_FREE_COMPLETED : TIDE_ACTION_SEGMENT_FREE;
  for (size_t i = 0; i < all->entry_count; i++) {
    const tide_trace_entry* const entry = &all->entries[i];
    lifetime_slot* slot = NULL;
    if (entry->action != begin && entry->action != end) continue;
    TIDE_TRY(map_take(map, all->heap, entry->address, &slot));
    if (entry->action == begin) TIDE_TRY(lifetime_begin(all, slot, i));
    else TIDE_TRY(lifetime_end(all, slot, i));
  }
  return TIDE_OK;
}

// What is there at the end and has no entry was there all the time.
static tide_status lifetimes_add_rest(tide__lifetimes* all, lifetime_map* map, uint64_t address,
                                      const tide__lifetime* rest) {
  lifetime_slot* slot = NULL;
  TIDE_TRY(map_take(map, all->heap, address, &slot));
  return slot->number == 0 ? lifetime_add(all, slot, rest) : TIDE_OK;
}

static tide_status lifetimes_add_segment(tide__lifetimes* all, lifetime_map* map,
                                         const tide_trace_segment* segment) {
  if (segment->is_expandable || (segment->absent & TIDE_SEGMENT_ADDRESS) != 0) return TIDE_OK;
  const tide__lifetime rest = {
    .end = TIDE__MOMENT_NEVER, .bytes = segment->bytes, .stream = segment->stream, .stack = segment->stack
  };
  return lifetimes_add_rest(all, map, segment->address, &rest);
}

static tide_status lifetimes_add_blocks(tide__lifetimes* all, lifetime_map* map, const tide_trace* trace,
                                        const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL) + segment->first_block;
  for (size_t i = 0; i < segment->block_count; i++) {
    const bool has_requested = (blocks[i].absent & TIDE_BLOCK_KEY_REQUESTED) == 0;
    const tide__lifetime rest = { .end = TIDE__MOMENT_NEVER,
                                  .bytes = has_requested ? blocks[i].requested_bytes : blocks[i].bytes,
                                  .stream = segment->stream,
                                  .stack = blocks[i].stack };
    if (blocks[i].state == TIDE_BLOCK_INACTIVE || (blocks[i].absent & TIDE_BLOCK_KEY_ADDRESS) != 0) continue;
    TIDE_TRY(lifetimes_add_rest(all, map, blocks[i].address, &rest));
  }
  return TIDE_OK;
}

static tide_status lifetimes_add_all_rest(tide__lifetimes* all, lifetime_map* map, const tide_trace* trace,
                                          size_t device) {
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device != device) continue;
    if (all->kind == TIDE__LIFETIMES_OF_SEGMENTS) TIDE_TRY(lifetimes_add_segment(all, map, &segments[i]));
    else if (segments[i].block_count > 0) TIDE_TRY(lifetimes_add_blocks(all, map, trace, &segments[i]));
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The peak

const tide__lifetime* tide__lifetimes_begun_by(const tide__lifetimes* lifetimes, size_t entry) {
  const uint32_t number = lifetimes->of_entry[entry];
  const bool is_begun = number != 0 && lifetimes->items[number - 1].begin == entry + 1;
  return is_begun ? &lifetimes->items[number - 1] : NULL;
}

const tide__lifetime* tide__lifetimes_ended_by(const tide__lifetimes* lifetimes, size_t entry) {
  const uint32_t number = lifetimes->of_entry[entry];
  if (number == 0) return NULL;
  const tide__lifetime* const lifetime = &lifetimes->items[number - 1];
  if (lifetime->begin != entry + 1) return lifetime;
  return lifetime->displaced != 0 ? &lifetimes->items[lifetime->displaced - 1] : NULL;
}

static bool lifetimes_find_peak(tide__lifetimes* all) {
  for (size_t i = 0; i < all->count; i++) {
    if (all->items[i].begin != 0) continue;
    if (!tide__add(all->first_bytes, all->items[i].bytes, &all->first_bytes)) return false;
  }
  uint64_t live = all->first_bytes;
  all->peak_bytes = live;
  for (size_t i = 0; i < all->entry_count; i++) {
    const tide__lifetime* const ended = tide__lifetimes_ended_by(all, i);
    const tide__lifetime* const begun = tide__lifetimes_begun_by(all, i);
    if (ended != NULL) live -= ended->bytes;
    if (begun != NULL && !tide__add(live, begun->bytes, &live)) return false;
    if (live > all->peak_bytes) all->peak_moment = i + 1;
    all->peak_bytes = tide__max(live, all->peak_bytes);
  }
  return all->peak_bytes <= INT64_MAX;
}

// ---------------------------------------------------------------------------------------------------
// Life

size_t tide__lifetimes_device_count(const tide_trace* trace) {
  size_t count = 0;
  uint64_t devices = tide_trace_device_count(trace);
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) devices = tide__max(devices, (uint64_t)segments[i].device + 1);
  return devices;
}

static tide_status lifetimes_build(tide__lifetimes* all, const tide_trace* trace, size_t device) {
  lifetime_map map = { 0 };
  if (all->entry_count > 0) {
    all->of_entry = tide__heap_alloc(all->heap, all->entry_count, sizeof *all->of_entry);
    TIDE_REQUIRE(all->of_entry != NULL, TIDE_ERR_NO_MEMORY, "lifetimes: no memory for %zu entries",
                 all->entry_count);
  }
  tide_status status = lifetimes_follow(all, &map);
  if (status == TIDE_OK) status = lifetimes_add_all_rest(all, &map, trace, device);
  tide__heap_release(all->heap, map.slots, map.slot_count, sizeof *map.slots);
  TIDE_TRY(status);
  TIDE_REQUIRE(lifetimes_find_peak(all), TIDE_ERR_LIMIT, "lifetimes: more than 2^63 bytes are live at once");
  return TIDE_OK;
}

tide_status tide__lifetimes_init(tide__lifetimes* lifetimes, const tide_trace* trace, size_t device,
                                 tide__lifetimes_kind kind, const tide_heap* heap) {
  *lifetimes = (tide__lifetimes){ .heap = heap, .kind = kind };
  lifetimes->entries = tide_trace_entries(trace, device, &lifetimes->entry_count);
  const tide_status status = lifetimes_build(lifetimes, trace, device);
  if (status != TIDE_OK) tide__lifetimes_fini(lifetimes);
  return status;
}

void tide__lifetimes_fini(tide__lifetimes* lifetimes) {
  tide__heap_release(lifetimes->heap, lifetimes->items, lifetimes->capacity, sizeof *lifetimes->items);
  tide__heap_release(lifetimes->heap, lifetimes->of_entry, lifetimes->entry_count,
                     sizeof *lifetimes->of_entry);
  *lifetimes = (tide__lifetimes){ .heap = lifetimes->heap };
}
