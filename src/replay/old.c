// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Old segments come in the order of their addresses. Each part of an address reserve that has memory is one
// of them; the parts of one reserve follow each other.
//
// Cost: O(n log m) for n entries and m old segments.
#include "replay/old.h"

// The reserve of a part is that of the part before it, if both are of the same lane: a lane has one for large
// and one for small requests.
static uint64_t old_base(const tide__script* script, const tide__old_segment* part) {
  if (!part->is_expandable || script->old_count == 0) return part->address;
  const tide__old_segment* const last = &script->old_segments[script->old_count - 1];
  const bool is_same = last->is_expandable && last->stream == part->stream && last->pool == part->pool &&
                       last->is_small == part->is_small;
  return is_same ? last->base : part->address;
}

tide_status tide__old_segment_add(tide__script* script, const tide_ledger_segment* segment, uint16_t pool) {
  const uint32_t stream = tide__script_stream(script, segment->stream);
  tide__old_segment old = { .address = segment->address, .bytes = segment->bytes };
  old.first_block = (uint32_t)script->old_block_count;
  old.stream = (uint16_t)(stream < script->stream_count ? stream : 0);
  old.pool = pool;
  old.is_small = !segment->is_large;
  old.is_expandable = segment->is_expandable;
  old.base = old_base(script, &old);
  if (!tide__heap_grow(script->heap, (void**)&script->old_segments, &script->old_capacity,
                       script->old_count + 1, sizeof *script->old_segments)) {
    return tide__script_no_memory(script);
  }
  script->old_segments[script->old_count++] = old;
  return TIDE_OK;
}

tide_status tide__old_block_add(tide__script* script, const tide_ledger_block* block) {
  if (!tide__heap_grow(script->heap, (void**)&script->old_blocks, &script->old_block_capacity,
                       script->old_block_count + 1, sizeof *script->old_blocks)) {
    return tide__script_no_memory(script);
  }
  script->old_blocks[script->old_block_count++] = (tide__old_block){ block->address, block->bytes };
  script->old_segments[script->old_count - 1].block_count++;
  return TIDE_OK;
}

// The first old segment behind an address; old_count: none.
static size_t old_behind(const tide__script* script, uint64_t address) {
  size_t low = 0;
  size_t high = script->old_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (script->old_segments[middle].address <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

// A reserve may begin with a hole, in which memory is mapped later. Two reserves are further apart than the
// device is large, which has at least `device_bytes`.
static void old_base_lower(tide__script* script, const tide_trace_entry* entry, uint64_t device_bytes) {
  const size_t first = old_behind(script, entry->address);
  if (entry->action != TIDE_ACTION_SEGMENT_MAP || first == script->old_count) return;
  const uint64_t base = script->old_segments[first].base;
  const bool is_free = first == 0 ||
                       script->old_segments[first - 1].address + script->old_segments[first - 1].bytes <=
                           entry->address;
  const bool is_below = script->old_segments[first].is_expandable && entry->address < base && is_free;
  if (!is_below || base - entry->address >= device_bytes) return;
  for (size_t i = first; i < script->old_count && script->old_segments[i].base == base; i++)
    script->old_segments[i].base = entry->address;
}

// Adds a hole that was mapped once to the range of its reserve.
static bool old_hole_add(tide__ranges* ranges, uint64_t begin, uint64_t end) {
  bool is_new = false;
  return begin >= end || tide__ranges_map(ranges, begin, end - begin, &is_new);
}

static bool old_range_add(const tide__script* script, tide__ranges* ranges, size_t index) {
  const tide__old_segment* const old = &script->old_segments[index];
  bool is_new = false;
  if (!old->is_expandable) return tide__ranges_make(ranges, old->address, old->bytes);
  const tide__old_segment* const last = index > 0 ? old - 1 : NULL;
  const bool is_next = last != NULL && last->is_expandable && last->base == old->base;
  const uint64_t begin = is_next ? last->address + last->bytes : old->base;
  if (!old_hole_add(ranges, begin, old->address) ||
      !tide__ranges_map(ranges, old->address, old->bytes, &is_new))
    return false;
  if (begin < old->address) tide__ranges_give(ranges, begin, old->address - begin);
  return true;
}

tide_status tide__old_ranges_add(tide__script* script, tide__ranges* ranges, uint64_t device_bytes) {
  for (size_t i = 0; i < script->entry_count && script->old_count > 0; i++)
    old_base_lower(script, &script->entries[i], device_bytes);
  for (size_t i = 0; i < script->old_count; i++) {
    if (!old_range_add(script, ranges, i)) return tide__script_no_memory(script);
  }
  return TIDE_OK;
}
