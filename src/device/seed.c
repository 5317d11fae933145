// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A seed is made as a segment for one large request. Its block becomes idle, holes are given back, and the
// blocks are taken from what is idle, each at its place.
#include "device/seed.h"

#include "device/policy/policy.h"

static tide_status seed_request(tide_device_cache* device, const tide__seed* seed, tide__request* out) {
  *out = (tide__request){ .device = device,
                          .options = tide__device_options(device),
                          .stream = seed->stream,
                          .bytes = seed->bytes,
                          .rounded = seed->bytes,
                          .segment_bytes = seed->bytes,
                          .kind = seed->is_small ? TIDE__SMALL : TIDE__LARGE };
  out->pool = seed->pool == TIDE_POOL_DEFAULT ? &device->default_pool : tide__pool_find(device, seed->pool);
  TIDE_REQUIRE(out->pool != NULL, TIDE_ERR_HANDLE, "seed: there is no pool %u", seed->pool);
  out->policy = tide__policy_of(device, out->pool);
  TIDE_TRY(tide__lane_find(device, out->pool, seed->stream, &out->lane));
  tide__lane_turn(device, out->lane);
  return tide__lane_add_spares(device, out->lane, 2 * (seed->block_count + seed->hole_count + 1));
}

// The idle block around an address, at `block` or behind it; it becomes BUSY from the address on.
static tide__block* idle_take_locked(tide__block* block, uint64_t address) {
  while (block != NULL && tide__block_end(block) <= address) block = block->next;
  const bool is_idle = block != NULL && block->state == TIDE__BLOCK_FREE;
  return is_idle ? tide__block_take_from_locked(block, address) : NULL;
}

// Gives the memory of a hole back.
static tide_status hole_make(const tide__request* request, tide__segment* segment,
                             const tide__seed_range* hole) {
  tide__lane* const lane = request->lane;
  tide__mutex_lock(&lane->lock);
  tide__block* const block = idle_take_locked(segment->head, segment->address + hole->offset);
  if (block != NULL && block->bytes > hole->bytes) {
    tide__block* const rest = tide__block_cut_back_locked(lane, block, block->bytes - hole->bytes);
    tide__block_return_locked(rest, true);
  }
  tide__mutex_unlock(&lane->lock);
  if (block == NULL) return TIDE_OK;
  return segment->kind->give_idle(request->device, block, 0, &request->context);
}

// There are spares enough: see seed_request().
static void blocks_hand_out(tide__request* request, const tide__segment* segment, const tide__seed* seed,
                            tide_block* out) {
  tide__tally* const tally = tide__tally_enter(request->device, request->lane);
  tide__mutex_lock(&request->lane->lock);
  tide__block* from = segment->head;
  for (size_t i = 0; i < seed->block_count; i++) {
    const tide__seed_range* const want = &seed->blocks[i];
    tide__block* const block = idle_take_locked(from, segment->address + want->offset);
    out[i] = (tide_block){ NULL, 0 };
    if (block == NULL) continue;
    request->bytes = want->requested_bytes;
    request->rounded = want->bytes;
    from = tide__block_commit_locked(request, block, block->bytes > want->bytes, tally, &out[i]);
  }
  tide__mutex_unlock(&request->lane->lock);
  tide__tally_leave(request->device, tally);
}

static tide_status seed_at_gate(tide_device_cache* device, const tide__seed* seed, tide_block* out) {
  tide__request request;
  tide__block* whole = NULL;
  TIDE_TRY(seed_request(device, seed, &request));
  TIDE_TRY(seed->is_expandable ? tide__expand_grow(&request, &whole) : tide__segment_grow(&request, &whole));
  tide__segment* const segment = whole->segment;
  tide__mutex_lock(&request.lane->lock);
  tide__block_return_locked(whole, true);
  tide__mutex_unlock(&request.lane->lock);
  for (size_t i = 0; i < seed->hole_count; i++) TIDE_TRY(hole_make(&request, segment, &seed->holes[i]));
  blocks_hand_out(&request, segment, seed, out);
  return TIDE_OK;
}

tide_status tide__device_seed(tide_device_cache* device, const tide__seed* seed, tide_block* out) {
  (void)tide__gate_enter(device);
  const tide_status status = seed_at_gate(device, seed, out);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  return status;
}
