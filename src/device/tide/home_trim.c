// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Gives handles of homes back that are wholly idle. The caller has the gate.
#include <string.h>

#include "device/park/park.h"
#include "device/tide/home.h"

// The handles that lie wholly in a block: from `first` to `end` - 1.
typedef struct handle_range {
  size_t first;
  size_t end;
} handle_range;

static handle_range block_handles(const tide__block* block) {
  const tide__home* const home = block->segment->home;
  handle_range range = { tide__handle_index_at(home, block->address), 0 };
  if (range.first < home->count && home->handles[range.first]->address < block->address) range.first++;
  range.end = range.first;
  while (range.end < home->count && tide__handle_end(home->handles[range.end]) <= tide__block_end(block)) {
    range.end++;
  }
  return range;
}

// Waits until no work uses handles that are idle. Copies may still write to memory whose stream does not wait
// for them.
static tide_status handles_quiesce(tide_device_cache* device, const tide__segment* segment,
                                   handle_range range) {
  const tide__pool* const pool = segment->lane->pool;
  bool is_own = true;
  if (tide__pool_is_arriving(device, pool)) TIDE_TRY(tide__arrival_wait_for(device, pool->arrival_number));
  tide__mutex_lock(&segment->lane->lock);
  for (size_t i = range.first; i < range.end; i++) {
    const tide__handle* const handle = segment->home->handles[i];
    is_own &= tide__handle_readiness(device, handle, 0, handle->bytes, segment->lane) == TIDE__READY;
  }
  tide__mutex_unlock(&segment->lane->lock);
  return is_own ? tide__lane_quiesce(device, segment->lane, true)
                : tide_machine_device_synchronize(device->machine, device->index);
}

void tide__home_remove_handle(tide_device_cache* device, tide__segment* segment, size_t index) {
  tide__home* const home = segment->home;
  tide__handle* const handle = home->handles[index];
  tide__mutex_lock(&segment->lane->lock);
  if (handle->is_odd) home->odd_count--;
  const size_t behind = --home->count - index;
  memmove(&home->handles[index], &home->handles[index + 1], behind * sizeof *home->handles);
  memmove(&home->ends[index], &home->ends[index + 1], behind * sizeof *home->ends);
  tide__notes_stop_locked(home);
  tide__mutex_unlock(&segment->lane->lock);
  tide__heap_release(device->heap, handle, 1, sizeof *handle);
}

// Unmaps one idle handle everywhere and gives its memory back.
static tide_status handle_drop(tide_device_cache* device, tide__segment* segment, size_t index) {
  tide__handle* const handle = segment->home->handles[index];
  TIDE_TRY(tide__views_drop_handle(device, handle));
  if (handle->is_mapped) {
    TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(handle->address), handle->bytes));
  }
  tide__physical_give(device, handle->physical);
  tide__home_remove_handle(device, segment, index);
  return TIDE_OK;
}

// The part of a block whose handles are given back; empty at first.
typedef struct hollow {
  uint64_t from;
  uint64_t to;
} hollow;

void tide__home_hollow_locked(tide__block* block, uint64_t from, uint64_t to) {
  if (from == to) {
    tide__block_return_locked(block, false);
    return;
  }
  tide__block_hollow_locked(block, from, to);
  if (block->next == NULL) block->segment->home->top = block;
}

// The handles of a range that go: from its high end, until at most `target` bytes are reserved, as far as
// the floors of the allocator and of the pool allow.
static hollow handles_choose(tide_device_cache* device, const tide__home* home, handle_range range,
                             uint64_t target) {
  const uint64_t floor = tide__device_options(device)->tide_floor_bytes;
  tide__pool* const pool = home->segment->lane->pool;
  uint64_t left = tide__load_relaxed(&device->reserved_bytes);
  uint64_t left_in_pool = tide__load_relaxed(&pool->reserved_bytes);
  hollow chosen = { 0, 0 };
  for (size_t i = range.end; i-- > range.first && left > target;) {
    const tide__handle* const handle = home->handles[i];
    if (left < floor + handle->bytes || left_in_pool < pool->floor_bytes + handle->bytes) break;
    left -= handle->bytes;
    left_in_pool -= handle->bytes;
    chosen.from = handle->address;
    if (chosen.to == 0) chosen.to = tide__handle_end(handle);
  }
  return chosen;
}

// Gives chosen handles back from the high end, as far as the machine takes them.
static tide_status handles_drop(tide_device_cache* device, tide__segment* segment, hollow chosen,
                                hollow* out) {
  const tide__home* const home = segment->home;
  const size_t first = tide__handle_index_at(home, chosen.from);
  size_t end = first;
  while (end < home->count && home->handles[end]->address < chosen.to) end++;
  TIDE_TRY(tide__orphans_reserve(device, end - first));
  for (size_t i = end; i-- > first;) {
    const uint64_t from = home->handles[i]->address;
    TIDE_TRY(handle_drop(device, segment, i));
    out->from = from;
    out->to = chosen.to;
  }
  return TIDE_OK;
}

// Other threads may change the home while observers are told, but not what is under the BUSY block.
static tide_status handles_give(tide_device_cache* device, const tide__block* block, uint64_t target,
                                bool is_used, const tide__call_context* context, hollow* out) {
  tide__segment* const segment = block->segment;
  const handle_range range = block_handles(block);
  const hollow chosen = handles_choose(device, segment->home, range, target);
  if (chosen.from == chosen.to) return TIDE_OK;
  if (is_used) TIDE_TRY(handles_quiesce(device, segment, range));
  tide__unmapping_tell(device, segment, chosen.from, chosen.to, context);
  const tide_status status = handles_drop(device, segment, chosen, out);
  const uint64_t kept_to = out->from != 0 ? out->from : chosen.to;
  tide__unmapping_revoke(device, segment, chosen.from, kept_to, context);
  return status;
}

static tide_status block_give(tide_device_cache* device, tide__block* block, uint64_t target, bool is_used,
                              const tide__call_context* context) {
  tide__segment* const segment = block->segment;
  tide__lane* const lane = segment->lane;
  tide__block* held[2];
  hollow h = { 0, 0 };
  tide_status status = tide__lane_hold_spares(device, lane, held);
  const bool has_spares = status == TIDE_OK;
  if (has_spares) status = handles_give(device, block, target, is_used, context, &h);
  tide__mutex_lock(&lane->lock);
  if (has_spares) tide__lane_unhold_spares_locked(lane, held);
  tide__home_hollow_locked(block, h.from, h.to);
  tide__mutex_unlock(&lane->lock);
  tide__unmapped_keep(device, segment, h.from, h.to, context);
  return status;
}

tide_status tide__home_give_idle(tide_device_cache* device, tide__block* block, uint64_t target,
                                 const tide__call_context* context) {
  return block_give(device, block, target, true, context);
}

tide_status tide__home_give_unused(tide_device_cache* device, tide__block* block,
                                   const tide__call_context* context) {
  return block_give(device, block, 0, false, context);
}
