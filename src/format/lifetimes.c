// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Lifetimes. One pass over the entries with a map from addresses to the last lifetime at each. If an address
// is released without an allocation, or has an active block at the end and no entry, its lifetime is older
// than the recording.
#include "format/lifetimes.h"

#include "base/arith.h"
#include "base/error.h"
#include "base/hash_map.h"
#include "base/heap.h"

// ---------------------------------------------------------------------------------------------------
// Following

// The pass also has the number (from 1) of the last lifetime at each address.
typedef struct lifetime_work {
  tide__lifetimes* all;  // borrowed
  tide__hash_map last;
} lifetime_work;

// The last lifetime at an address, or NULL.
static tide__lifetime* lifetime_last(const lifetime_work* work, uint64_t address) {
  const uint64_t number = tide__hash_map_find(&work->last, address);
  return number != 0 ? &work->all->items[number - 1] : NULL;
}

static tide_status lifetime_add(lifetime_work* work, uint64_t address, const tide__lifetime* lifetime) {
  tide__lifetimes* const all = work->all;
  TIDE_REQUIRE(lifetime->bytes <= INT64_MAX && all->count < UINT32_MAX, TIDE_ERR_LIMIT,
               "lifetimes: request or segment %zu has 2^63 bytes or more, or there are 2^32 of them",
               all->count);
  TIDE_REQUIRE(
      tide__hash_map_reserve(&work->last, work->last.count + 1) &&
          tide__heap_grow(all->heap, (void**)&all->items, &all->capacity, all->count + 1, sizeof *all->items),
      TIDE_ERR_NO_MEMORY, "lifetimes: no memory for %zu lifetimes", all->count + 1);
  all->items[all->count++] = *lifetime;
  (void)tide__hash_map_put(&work->last, address, all->count);
  return TIDE_OK;
}

static tide_status lifetime_begin(lifetime_work* work, size_t at) {
  tide__lifetimes* const all = work->all;
  const tide_trace_entry* const entry = &all->entries[at];
  tide__lifetime lifetime = { .begin = at + 1, .end = TIDE__INSTANT_NEVER, .bytes = entry->bytes };
  lifetime.stream = entry->stream;
  lifetime.stack = entry->stack;
  lifetime.note = entry->note;
  tide__lifetime* const last = lifetime_last(work, entry->address);
  if (last != NULL && last->end == TIDE__INSTANT_NEVER) {
    lifetime.displaced = (uint32_t)(last - all->items) + 1;
    last->end = at + 1;
  }
  TIDE_TRY(lifetime_add(work, entry->address, &lifetime));
  all->of_entry[at] = (uint32_t)all->count;
  return TIDE_OK;
}

static tide_status lifetime_end(lifetime_work* work, size_t at) {
  tide__lifetimes* const all = work->all;
  const tide_trace_entry* const entry = &all->entries[at];
  tide__lifetime* const last = lifetime_last(work, entry->address);
  if (last == NULL) {
    const tide__lifetime before = { .end = at + 1,
                                    .bytes = entry->bytes,
                                    .stream = entry->stream,
                                    .stack = entry->stack,
                                    .note = entry->note };
    TIDE_TRY(lifetime_add(work, entry->address, &before));
    all->of_entry[at] = (uint32_t)all->count;
  } else if (last->end == TIDE__INSTANT_NEVER) {
    last->end = at + 1;
    all->of_entry[at] = (uint32_t)(last - all->items) + 1;
  }
  return TIDE_OK;
}

static tide_status lifetimes_follow(lifetime_work* work) {
  const tide__lifetimes* const all = work->all;
  const bool is_requests = all->kind == TIDE__LIFETIMES_OF_REQUESTS;
  const uint8_t begin = is_requests ? TIDE_ACTION_ALLOC : TIDE_ACTION_SEGMENT_ALLOC;
  const uint8_t end = is_requests ? TIDE_ACTION_FREE_COMPLETED : TIDE_ACTION_SEGMENT_FREE;
  for (size_t i = 0; i < all->entry_count; i++) {
    if (all->entries[i].action == begin) TIDE_TRY(lifetime_begin(work, i));
    else if (all->entries[i].action == end) TIDE_TRY(lifetime_end(work, i));
  }
  return TIDE_OK;
}

// Something that exists at the end without an entry existed all the time.
static tide_status lifetimes_add_rest(lifetime_work* work, uint64_t address, const tide__lifetime* rest) {
  return lifetime_last(work, address) == NULL ? lifetime_add(work, address, rest) : TIDE_OK;
}

static tide_status lifetimes_add_segment(lifetime_work* work, const tide_trace_segment* segment) {
  if (segment->is_expandable || (segment->absent & TIDE_SEGMENT_ADDRESS) != 0) return TIDE_OK;
  const tide__lifetime rest = {
    .end = TIDE__INSTANT_NEVER, .bytes = segment->bytes, .stream = segment->stream, .stack = segment->stack
  };
  return lifetimes_add_rest(work, segment->address, &rest);
}

static tide_status lifetimes_add_blocks(lifetime_work* work, const tide_trace* trace,
                                        const tide_trace_segment* segment) {
  const tide_trace_block* const blocks = tide_trace_blocks(trace, NULL) + segment->first_block;
  for (size_t i = 0; i < segment->block_count; i++) {
    const bool has_requested = (blocks[i].absent & TIDE_BLOCK_KEY_REQUESTED) == 0;
    const tide__lifetime rest = { .end = TIDE__INSTANT_NEVER,
                                  .bytes = has_requested ? blocks[i].requested_bytes : blocks[i].bytes,
                                  .stream = segment->stream,
                                  .stack = blocks[i].stack };
    if (blocks[i].state == TIDE_BLOCK_INACTIVE || (blocks[i].absent & TIDE_BLOCK_KEY_ADDRESS) != 0) continue;
    TIDE_TRY(lifetimes_add_rest(work, blocks[i].address, &rest));
  }
  return TIDE_OK;
}

static tide_status lifetimes_add_all_rest(lifetime_work* work, const tide_trace* trace, size_t device) {
  const bool is_requests = work->all->kind == TIDE__LIFETIMES_OF_REQUESTS;
  size_t count = 0;
  const tide_trace_segment* const segments = tide_trace_segments(trace, &count);
  for (size_t i = 0; i < count; i++) {
    if (segments[i].device != device) continue;
    if (!is_requests) TIDE_TRY(lifetimes_add_segment(work, &segments[i]));
    else if (segments[i].block_count > 0) TIDE_TRY(lifetimes_add_blocks(work, trace, &segments[i]));
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
    if (live > all->peak_bytes) all->peak_instant = i + 1;
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

void tide__lifetimes_times(const tide_trace* trace, uint64_t* out_first_ns, uint64_t* out_last_ns) {
  *out_first_ns = UINT64_MAX;
  *out_last_ns = 0;
  for (size_t i = 0; i < tide_trace_device_count(trace); i++) {
    size_t count = 0;
    const tide_trace_entry* const entries = tide_trace_entries(trace, i, &count);
    if (count == 0) continue;
    *out_first_ns = tide__min(*out_first_ns, entries[0].time_ns);
    *out_last_ns = tide__max(*out_last_ns, entries[count - 1].time_ns);
  }
}

static tide_status lifetimes_build(tide__lifetimes* all, const tide_trace* trace, size_t device) {
  lifetime_work work = { .all = all };
  tide__hash_map_init(&work.last, all->heap);
  if (all->entry_count > 0) {
    all->of_entry = tide__heap_alloc(all->heap, all->entry_count, sizeof *all->of_entry);
    TIDE_REQUIRE(all->of_entry != NULL, TIDE_ERR_NO_MEMORY, "lifetimes: no memory for %zu entries",
                 all->entry_count);
  }
  tide_status status = lifetimes_follow(&work);
  if (status == TIDE_OK) status = lifetimes_add_all_rest(&work, trace, device);
  tide__hash_map_fini(&work.last);
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
