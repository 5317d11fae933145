// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The totals of an allocator, to which lanes and threads add their tallies (core/tally.h).
#include "device/lane/lane.h"

// What is active in large blocks is about to rise by so much on the way.
static void peak_large_raise(tide_device_cache* device, int64_t rise) {
  device->peak_large = tide__max(device->peak_large, tide__totals_large(device, rise));
}

void tide__totals_add(tide_device_cache* device, tide__tally* tally) {
  tide_device_stats* const totals = &device->totals;
  const bool has_splits = tally->has_splits;
  tide__mutex_lock(&device->totals_lock);
  for (int kind = 0; kind < 2; kind++)
    device->served[kind] += (uint64_t)tally->items[TIDE__TALLY_BLOCKS].sides[kind].rises;
  tide__tally_add(totals->allocation, tally, TIDE__TALLY_BLOCKS);
  tide__tally_add(totals->active, tally, TIDE__TALLY_BLOCKS);
  tide__tally_add(totals->allocated_bytes, tally, TIDE__TALLY_BYTES);
  peak_large_raise(device, tally->items[TIDE__TALLY_BYTES].sides[TIDE__LARGE].high);
  tide__tally_add(totals->active_bytes, tally, TIDE__TALLY_BYTES);
  tide__tally_add(totals->requested_bytes, tally, TIDE__TALLY_REQUESTED_BYTES);
  if (has_splits) {
    tide__tally_add(totals->inactive_split, tally, TIDE__TALLY_SPLITS);
    tide__tally_add(totals->inactive_split_bytes, tally, TIDE__TALLY_SPLIT_BYTES);
  }
  tide__mutex_unlock(&device->totals_lock);
  tide__tally_clear(tally);
}

static void stats_fall(tide_stat stats[TIDE_STAT_KINDS], bool is_small, uint64_t n) {
  tide__stat_move(&stats[TIDE_STAT_ALL], -(int64_t)n);
  tide__stat_move(&stats[is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE], -(int64_t)n);
}

void tide__totals_wait_begin(tide_device_cache* device, const tide__block* block) {
  tide__mutex_lock(&device->totals_lock);
  stats_fall(device->totals.allocation, block->is_small, 1);
  stats_fall(device->totals.allocated_bytes, block->is_small, tide__block_counted_bytes(block));
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_wait_end(tide_device_cache* device, const tide__block* block) {
  tide__mutex_lock(&device->totals_lock);
  stats_fall(device->totals.active, block->is_small, 1);
  stats_fall(device->totals.active_bytes, block->is_small, tide__block_counted_bytes(block));
  stats_fall(device->totals.requested_bytes, block->is_small, tide__load_relaxed(&block->requested_bytes));
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_commit(tide_device_cache* device, int64_t blocks, int64_t bytes) {
  tide_device_stats* const totals = &device->totals;
  tide__mutex_lock(&device->totals_lock);
  for (int kind = TIDE_STAT_ALL; kind < TIDE_STAT_KINDS; kind++) {
    if (kind == TIDE_STAT_SMALL) continue;
    tide__stat_move(&totals->allocation[kind], blocks);
    tide__stat_move(&totals->active[kind], blocks);
    tide__stat_move(&totals->allocated_bytes[kind], bytes);
    tide__stat_move(&totals->active_bytes[kind], bytes);
    tide__stat_move(&totals->requested_bytes[kind], bytes);
  }
  peak_large_raise(device, 0);
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_count(tide_device_cache* device, size_t field_offset, uint64_t count) {
  tide__mutex_lock(&device->totals_lock);
  *(int64_t*)(void*)((char*)&device->totals + field_offset) += (int64_t)count;
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_oversize(tide_device_cache* device, bool is_rise) {
  tide__mutex_lock(&device->totals_lock);
  tide__stat_move(&device->totals.oversize_allocations, is_rise ? 1 : -1);
  tide__mutex_unlock(&device->totals_lock);
}

void tide__totals_park(tide_device_cache* device, int kind, int64_t bytes) {
  tide__mutex_lock(&device->totals_lock);
  tide__stat_move(&device->totals.parked_bytes[TIDE_STAT_ALL], bytes);
  tide__stat_move(&device->totals.parked_bytes[kind], bytes);
  tide__mutex_unlock(&device->totals_lock);
}
