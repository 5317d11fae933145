// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Expandable segments: addresses for more than the whole device, of which as much is backed by memory as is
// needed. Memory comes in handles of one size; handle n of a segment is mapped at address + n * handle_bytes,
// or not at all. Blocks without memory are in the chain like the others, in state UNMAPPED. The gate is the
// caller's; blocks that are being mapped or unmapped are BUSY, so that no other thread touches them while the
// machine is called without a lock.
#include <string.h>

#include "device/segment/segment.h"
#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// Handles

static size_t handle_index(const tide__segment* segment, uint64_t address) {
  return (size_t)((address - segment->address) / segment->handle_bytes);
}

// Makes a handle for each place from `first` to `end` - 1 and maps it there.
static tide_status handles_fill(tide_device_cache* device, tide__segment* segment, tide__mapping* mapping,
                                size_t first, size_t end) {
  const uint64_t bytes = segment->handle_bytes;
  for (size_t i = first; i < end; i++) {
    TIDE_TRY(tide__mapping_make(device, mapping, bytes, &segment->handles[i]));
    TIDE_TRY(tide__mapping_add(device, mapping, segment->handles[i], bytes));
  }
  return tide__mapping_commit(device, mapping);
}

// Maps a range; all or nothing.
static tide_status handles_map(tide_device_cache* device, tide__segment* segment, uint64_t address,
                               uint64_t bytes) {
  const size_t first = handle_index(segment, address);
  const size_t end = first + (size_t)(bytes / segment->handle_bytes);
  tide__mapping* mapping = NULL;
  TIDE_REQUIRE(tide__heap_grow(device->heap, (void**)&segment->handles, &segment->handle_capacity, end,
                               sizeof *segment->handles),
               TIDE_ERR_NO_MEMORY, "no memory for the records of %zu handles", end);
  TIDE_TRY(tide__mapping_new(device, address, bytes, end - first, &mapping));
  const tide_status status = handles_fill(device, segment, mapping, first, end);
  if (status != TIDE_OK) {
    (void)tide__mapping_end(device, mapping);
    memset(&segment->handles[first], 0, (end - first) * sizeof *segment->handles);
  }
  return status;
}

// The caller has waited for work that uses the memory, and told observers.
static tide_status handles_unmap(tide_device_cache* device, tide__segment* segment, uint64_t address,
                                 uint64_t bytes) {
  const size_t first = handle_index(segment, address);
  const size_t end = first + (size_t)(bytes / segment->handle_bytes);
  TIDE_TRY(tide__orphans_reserve(device, end - first));
  TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(address), bytes));
  for (size_t i = first; i < end; i++) {
    tide__physical_give(device, segment->handles[i]);
    segment->handles[i] = NULL;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Shrinking

static tide_status range_unmap(tide_device_cache* device, tide__segment* segment, uint64_t from, uint64_t to,
                               const tide__call_context* context) {
  TIDE_TRY(tide__lane_quiesce(device, segment->lane, true));
  tide__unmapping_tell(device, segment, from, to, context);
  const tide_status status = handles_unmap(device, segment, from, to - from);
  if (status != TIDE_OK) tide__unmapping_revoke(device, segment, from, to, context);
  return status;
}

static tide_status block_unmap(tide_device_cache* device, tide__block* block, uint64_t from, uint64_t to,
                               const tide__call_context* context) {
  tide__lane* const lane = block->segment->lane;
  tide__block* held[2];
  TIDE_TRY(tide__lane_hold_spares(device, lane, held));
  const tide_status status = range_unmap(device, block->segment, from, to, context);
  tide__mutex_lock(&lane->lock);
  tide__lane_unhold_spares_locked(lane, held);
  if (status == TIDE_OK) tide__block_hollow_locked(block, from, to);
  tide__mutex_unlock(&lane->lock);
  return status;
}

// Unmaps the whole handles inside the block, or as many at its end as are enough.
static tide_status block_give_idle(tide_device_cache* device, tide__block* block, uint64_t target,
                                   const tide__call_context* context) {
  tide__segment* const segment = block->segment;
  tide__lane* const lane = segment->lane;
  const uint64_t handle = segment->handle_bytes;
  const uint64_t too_much = tide__load_relaxed(&device->reserved_bytes) - target;
  const uint64_t first = (block->address - segment->address + handle - 1) / handle;
  const uint64_t end = (tide__block_end(block) - segment->address) / handle;
  const uint64_t count = first < end ? tide__min(end - first, (too_much + handle - 1) / handle) : 0;
  const uint64_t from = segment->address + (end - count) * handle;
  const uint64_t to = segment->address + end * handle;
  const tide_status status = count > 0 ? block_unmap(device, block, from, to, context) : TIDE_OK;
  if (count > 0 && status == TIDE_OK) {
    tide__unmapped_keep(device, segment, from, to, context);
    return TIDE_OK;
  }
  tide__mutex_lock(&lane->lock);
  tide__block_return_locked(block, false);
  if (status != TIDE_OK) lane->puts++;  // a walk inside of an observer may not have seen it meanwhile
  tide__mutex_unlock(&lane->lock);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Segments

static tide_status segment_reserve(const tide__request* request, tide__segment* segment) {
  tide_device_cache* const device = request->device;
  uint64_t handle = segment->is_small ? TIDE__SMALL_SEGMENT_BYTES : request->options->large_segment_bytes;
  handle = (handle + device->granularity - 1) / device->granularity * device->granularity;
  const uint64_t wanted = tide__reserve_wanted(device, &request->options->address_reserve);
  const uint64_t bytes = (wanted + handle - 1) / handle * handle;
  void* address = NULL;
  TIDE_REQUIRE(bytes >= request->rounded, TIDE_ERR_NO_MEMORY, "%llu bytes are more than the device has",
               (unsigned long long)request->rounded);
  TIDE_TRY(tide_machine_address_reserve(device->machine, device->index, bytes, 0, NULL, &address));
  segment->handle_bytes = handle;
  segment->is_expandable = true;
  segment->ordinal = tide__add_relaxed(&device->next_ordinal, 1);
  if (!tide__lane_lock_with_spares(device, request->lane)) {
    tide__ignore(tide_machine_address_release(device->machine, address, bytes));
    return TIDE_ERR_NO_MEMORY;
  }
  tide__block* const block =
      tide__segment_link_locked(segment, tide__address(address), bytes, TIDE__BLOCK_UNMAPPED);
  tide__free_index_put_unmapped_locked(block);
  request->lane->puts++;  // should nothing be mapped in it, the next walk drops it
  tide__mutex_unlock(&request->lane->lock);
  return TIDE_OK;
}

static void segment_destroy(tide_device_cache* device, tide__segment* segment) {
  for (size_t i = 0; i < segment->handle_capacity; i++) {
    if (segment->handles[i] == NULL) continue;
    void* const address = tide__pointer(segment->address + i * segment->handle_bytes);
    tide__ignore(tide_machine_unmap(device->machine, address, segment->handle_bytes));
    tide__ignore(tide_machine_physical_free(device->machine, segment->handles[i]));
  }
  tide__ignore(
      tide_machine_address_release(device->machine, tide__pointer(segment->address), segment->bytes));
}

// Gives a peer access to everything mapped in a segment, run by run.
static tide_status segment_add_peer(tide_device_cache* device, const tide__segment* segment, int peer) {
  for (size_t i = 0; i < segment->handle_capacity; i++) {
    if (segment->handles[i] == NULL) continue;
    void* const address = tide__pointer(segment->address + i * segment->handle_bytes);
    TIDE_TRY(tide_machine_set_access(device->machine, address, segment->handle_bytes, peer,
                                     TIDE_ACCESS_READ_WRITE));
  }
  return TIDE_OK;
}

static const tide__segment_kind expandable_kind = { .give_idle = block_give_idle,
                                                    .add_peer = segment_add_peer,
                                                    .destroy = segment_destroy };

static tide_status segment_expandable_new(const tide__request* request) {
  tide_device_cache* const device = request->device;
  tide__segment* const segment =
      tide__segment_new(device, &expandable_kind, request->lane, request->kind == TIDE__SMALL);
  TIDE_REQUIRE(segment != NULL, TIDE_ERR_NO_MEMORY, "no memory for the record of a segment");
  const tide_status status = segment_reserve(request, segment);
  if (status != TIDE_OK) tide__segment_free(device, segment);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Growing

static bool can_grow_over(const tide__block* block) {
  return block != NULL && (block->state == TIDE__BLOCK_FREE || block->state == TIDE__BLOCK_UNMAPPED);
}

// The first place, by address, where idle and unmapped blocks in a row are enough for the request; NULL:
// none.
static tide__block* place_find_locked(const tide__request* request) {
  const tide__tree* const unmapped = &request->lane->free_index[request->kind].unmapped;
  for (tide__tree_node* it = tide__tree_first(unmapped); it != NULL; it = tide__tree_next(it)) {
    tide__block* const block = TIDE_OWNER(it, tide__block, tree);
    if (block->segment->home != NULL) continue;  // of the policy tide, which was in force before
    const bool has_tcache = block->prev != NULL && block->prev->state == TIDE__BLOCK_FREE;
    tide__block* const start = has_tcache ? block->prev : block;
    uint64_t bytes = 0;
    for (const tide__block* b = start; can_grow_over(b) && bytes < request->rounded; b = b->next) {
      bytes += b->bytes;
    }
    if (bytes >= request->rounded) return start;
  }
  return NULL;
}

// Finds the place and takes its first block: an idle one into *out_tcache, and if that is not enough already
// (a search may have passed it over for being too large) the unmapped block that comes next, BUSY, into
// *out_next. False if there is no place.
static bool place_take_locked(const tide__request* request, tide__block** out_tcache,
                              tide__block** out_next) {
  tide__block* const start = place_find_locked(request);
  if (start == NULL) return false;
  *out_tcache = start->state == TIDE__BLOCK_FREE ? start : NULL;
  *out_next = *out_tcache != NULL ? start->next : start;
  if (*out_tcache != NULL) tide__free_index_take_locked(start);
  if (*out_tcache != NULL && start->bytes >= request->rounded) {
    *out_next = NULL;
  } else {
    tide__free_index_take_unmapped_locked(*out_next);
  }
  return true;
}

// Joins memory that was just mapped with the block before it that grows, and with an idle one behind it.
// Returns the block that grew.
static tide__block* place_join_locked(tide__lane* lane, tide__block* front, tide__block* mapped,
                                      uint64_t bytes) {
  if (mapped->bytes > bytes) {
    tide__free_index_put_unmapped_locked(tide__block_cut_back_locked(lane, mapped, mapped->bytes - bytes));
  }
  if (front != NULL) tide__block_absorb_prev_locked(lane, mapped);
  if (mapped->next != NULL && mapped->next->state == TIDE__BLOCK_FREE) {
    tide__block_absorb_next_locked(lane, mapped);
  }
  return mapped;
}

static void place_give_up(tide__lane* lane, tide__block* front, tide__block* unmapped) {
  tide__mutex_lock(&lane->lock);
  if (unmapped != NULL) tide__free_index_put_unmapped_locked(unmapped);
  if (front != NULL) tide__block_return_locked(front, false);
  tide__mutex_unlock(&lane->lock);
}

// Maps what the request still needs at the beginning of an unmapped block. On success *front has grown.
static tide_status place_map(const tide__request* request, tide__block** front, tide__block* unmapped) {
  tide_device_cache* const device = request->device;
  tide__segment* const segment = unmapped->segment;
  const uint64_t address = unmapped->address;
  const uint64_t missing = request->rounded - (*front != NULL ? (*front)->bytes : 0);
  const uint64_t wanted = tide__min(unmapped->bytes, missing);
  const uint64_t bytes = (wanted + segment->handle_bytes - 1) / segment->handle_bytes * segment->handle_bytes;
  tide__block* held[2];
  TIDE_TRY(tide__map_cover(&device->map, address, bytes, segment->is_small));
  TIDE_TRY(tide__lane_hold_spares(device, request->lane, held));
  const tide_status status = handles_map(device, segment, address, bytes);
  tide__mutex_lock(&request->lane->lock);
  tide__lane_unhold_spares_locked(request->lane, held);
  if (status == TIDE_OK) {
    *front = place_join_locked(request->lane, *front, unmapped, bytes);
    if (segment->stack == 0) segment->stack = request->context.stack;
  }
  tide__mutex_unlock(&request->lane->lock);
  if (status == TIDE_OK) tide__mapped_tell(request, address, bytes);
  return status;
}

// The unmapped block behind one that grows, BUSY; NULL if another thread took what was there.
static tide__block* place_next(tide__lane* lane, const tide__block* front) {
  tide__mutex_lock(&lane->lock);
  tide__block* const next = front->next;
  const bool is_unmapped = next != NULL && next->state == TIDE__BLOCK_UNMAPPED;
  if (is_unmapped) tide__free_index_take_unmapped_locked(next);
  tide__mutex_unlock(&lane->lock);
  return is_unmapped ? next : NULL;
}

// Maps from a place on until the request fits. TIDE_OK without a block: begin again.
static tide_status place_grow(const tide__request* request, tide__block* front, tide__block* unmapped,
                              tide__block** out) {
  while (unmapped != NULL) {
    const tide_status status = place_map(request, &front, unmapped);
    if (status != TIDE_OK) {
      place_give_up(request->lane, front, unmapped);
      return status;
    }
    const bool is_enough = front->bytes >= request->rounded;
    unmapped = is_enough ? NULL : place_next(request->lane, front);
  }
  if (front->bytes >= request->rounded) {
    *out = front;
  } else {
    place_give_up(request->lane, front, NULL);
  }
  return TIDE_OK;
}

tide_status tide__expand_grow(const tide__request* request, tide__block** out) {
  tide_device_cache* const device = request->device;
  TIDE_REQUIRE(device->granularity != 0, TIDE_ERR_UNSUPPORTED, "the device has no virtual memory");
  while (*out == NULL) {
    tide__block* front = NULL;
    tide__block* unmapped = NULL;
    tide__mutex_lock(&request->lane->lock);
    const bool has_place = place_take_locked(request, &front, &unmapped);
    tide__mutex_unlock(&request->lane->lock);
    TIDE_TRY(has_place ? place_grow(request, front, unmapped, out) : segment_expandable_new(request));
  }
  return TIDE_OK;
}
