// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Raw, imported and pinned memory: each is one range. Also information about pointers, the check of every
// copy and fill, and peers.
#include "machine/soft/memory.h"

#include "base/arith.h"
#include "machine/soft/capture.h"
#include "machine/soft/mapping.h"

// ---------------------------------------------------------------------------------------------------
// Raw memory

// Reserves addresses for a range, maps its memory there, and adds it to the tree.
static tide_status range_place_locked(tide__soft* soft, tide__range* range, tide_call call) {
  uint64_t address = 0;
  TIDE_TRY(soft->backend->reserve(soft, range->device, call, range->span, soft->page_bytes, 0, &address));
  tide_status status = soft->backend->map(soft, range->physical, address);
  if (status == TIDE_OK) status = soft->backend->protect(soft, address, range->span, true, true);
  if (status != TIDE_OK) {
    soft->backend->unreserve(soft, address, range->span);
    return status;
  }
  range->node.key = address;
  tide__range_enter_locked(soft, range);
  return TIDE_OK;
}

tide_status tide__soft_range_over(tide__soft* soft, tide__physical* physical, tide_memory_kind kind,
                                  uint64_t bytes, tide_call call, void** out) {
  tide__range* range = tide__heap_alloc(soft->heap, 1, sizeof *range);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "%s: no memory for its records", tide_call_name(call));
  range->bytes = bytes;
  range->span = physical->bytes;
  range->kind = kind;
  range->device = physical->device;
  range->physical = physical;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = range_place_locked(soft, range, call);
  tide__mutex_unlock(&soft->memory_lock);
  if (status == TIDE_OK) {
    *out = tide__pointer(range->node.key);
  } else {
    tide__heap_release(soft->heap, range, 1, sizeof *range);
  }
  return status;
}

tide_status tide__soft_raw_alloc(void* self, int device, size_t bytes, void** out) {
  tide__soft* soft = self;
  TIDE_TRY(tide__capture_guard(soft, "raw_alloc"));
  uint64_t span = 0;
  TIDE_REQUIRE(tide__align_up(bytes, soft->page_bytes, &span), TIDE_ERR_NO_MEMORY,
               "raw_alloc: %zu bytes are more than any device can have", bytes);
  tide__physical* physical = NULL;
  TIDE_TRY(tide__physical_make(soft, "raw_alloc", device, span, 0, &physical));
  const tide_status status =
      tide__soft_range_over(soft, physical, TIDE_MEMORY_RAW, bytes, TIDE_CALL_RAW_ALLOC, out);
  if (status != TIDE_OK) {
    tide__physical_end(soft, physical);
    return status;
  }
  tide__soft_charge(soft, TIDE_CALL_RAW_ALLOC, 0, bytes);
  return TIDE_OK;
}

// Frees a raw or imported range that was removed from the tree.
static void range_end_raw(tide__soft* soft, tide__range* range) {
  tide__mutex_lock(&soft->memory_lock);
  tide__range_wait_locked(soft, range->node.key, tide__range_end(range));
  if (range->export_slot != 0) soft->backend->export_end(soft, range);
  soft->backend->unreserve(soft, range->node.key, range->span);
  const bool is_last = tide__physical_drop_locked(range->physical);
  tide__mutex_unlock(&soft->memory_lock);
  if (is_last) tide__physical_end(soft, range->physical);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
}

// Removes the range of a kind that begins at an address from the tree. Returns NULL if there is none, or if
// it belongs to another device (-1: any).
static tide__range* range_take(tide__soft* soft, uint64_t address, tide_memory_kind kind, int device) {
  tide__mutex_lock(&soft->memory_lock);
  tide__range* range = tide__soft_range_at_locked(soft, address, kind);
  if (range != NULL && device >= 0 && range->device != device) range = NULL;
  if (range != NULL) tide__tree_remove(&soft->ranges, &range->node);
  tide__mutex_unlock(&soft->memory_lock);
  return range;
}

tide_status tide__soft_raw_release(void* self, int device, void* address) {
  tide__soft* soft = self;
  TIDE_TRY(tide__capture_guard(soft, "raw_release"));
  tide__range* range = range_take(soft, tide__address(address), TIDE_MEMORY_RAW, device);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_ARGUMENT, "raw_release: no raw memory of device %d begins at %p",
               device, address);
  const uint64_t bytes = range->bytes;
  range_end_raw(soft, range);
  tide__soft_charge(soft, TIDE_CALL_RAW_RELEASE, 0, bytes);
  return TIDE_OK;
}

tide_status tide__soft_raw_unimport(void* self, void* address) {
  tide__soft* soft = self;
  TIDE_TRY(tide__capture_guard(soft, "raw_unimport"));
  tide__range* range = range_take(soft, tide__address(address), TIDE_MEMORY_IMPORTED, -1);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_ARGUMENT, "raw_unimport: no imported memory begins at %p", address);
  range_end_raw(soft, range);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Pinned memory

static tide__range* pinned_make(tide__soft* soft, uint64_t address, uint64_t bytes, uint64_t span) {
  tide__range* range = tide__heap_alloc(soft->heap, 1, sizeof *range);
  if (range == NULL) return NULL;
  range->node.key = address;
  range->bytes = bytes;
  range->span = span;
  range->kind = TIDE_MEMORY_PINNED;
  range->device = -1;
  range->is_registered = address != 0;
  return range;
}

// Takes pages and adds them to the tree. On dry another thread may have taken these addresses meanwhile; then
// it tries again.
static tide_status pinned_place(tide__soft* soft, tide__range* range) {
  for (;;) {
    TIDE_TRY(soft->backend->pinned_take(soft, range));
    tide__mutex_lock(&soft->memory_lock);
    const bool is_clear = tide__range_in_locked(soft, range->node.key, tide__range_end(range)) == NULL;
    if (is_clear) tide__range_enter_locked(soft, range);
    tide__mutex_unlock(&soft->memory_lock);
    if (is_clear) return TIDE_OK;
    soft->backend->pinned_give(soft, range);
  }
}

tide_status tide__soft_pinned_alloc(void* self, size_t bytes, void** out) {
  tide__soft* soft = self;
  TIDE_TRY(tide__capture_guard(soft, "pinned_alloc"));
  uint64_t span = 0;
  TIDE_REQUIRE(tide__align_up(bytes, soft->page_bytes, &span), TIDE_ERR_NO_MEMORY,
               "pinned_alloc: %zu bytes are too many", bytes);
  tide__range* range = pinned_make(soft, 0, bytes, span);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "pinned_alloc: no memory for its records");
  const tide_status status = pinned_place(soft, range);
  if (status != TIDE_OK) {
    tide__heap_release(soft->heap, range, 1, sizeof *range);
    return status;
  }
  *out = tide__pointer(range->node.key);
  tide__soft_charge(soft, TIDE_CALL_PINNED_ALLOC, 0, bytes);
  return TIDE_OK;
}

// Adds a range of the caller's pages to the tree, unless it overlaps another range.
static tide_status pinned_enter(tide__soft* soft, tide__range* range) {
  tide__mutex_lock(&soft->memory_lock);
  const tide__range* other = tide__range_in_locked(soft, range->node.key, tide__range_end(range));
  const uint64_t taken = other != NULL ? other->node.key : 0;
  if (other == NULL) tide__range_enter_locked(soft, range);
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_REQUIRE(other == NULL, TIDE_ERR_ARGUMENT,
               "pinned_register: %llu bytes at %p overlap the range that begins at %p",
               (unsigned long long)range->bytes, tide__pointer(range->node.key), tide__pointer(taken));
  return TIDE_OK;
}

tide_status tide__soft_pinned_register(void* self, void* address, size_t bytes) {
  tide__soft* soft = self;
  TIDE_TRY(tide__capture_guard(soft, "pinned_register"));
  uint64_t end = 0;
  TIDE_REQUIRE(tide__add(tide__address(address), bytes, &end), TIDE_ERR_ARGUMENT,
               "pinned_register: %zu bytes at %p leave the address space", bytes, address);
  tide__range* range = pinned_make(soft, tide__address(address), bytes, bytes);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "pinned_register: no memory for its records");
  tide_status status = pinned_enter(soft, range);
  if (status == TIDE_OK) {
    // Added first: page locks do not nest, so locking an overlapping range could not be undone.
    status = soft->backend->pinned_take(soft, range);
    if (status != TIDE_OK) (void)range_take(soft, range->node.key, TIDE_MEMORY_PINNED, -1);
  }
  if (status != TIDE_OK) tide__heap_release(soft->heap, range, 1, sizeof *range);
  if (status == TIDE_OK) tide__soft_charge(soft, TIDE_CALL_PINNED_REGISTER, 0, bytes);
  return status;
}

static tide_status pinned_end(tide__soft* soft, tide_call call, void* address, bool is_registered) {
  TIDE_TRY(tide__capture_guard(soft, tide_call_name(call)));
  const uint64_t begin = tide__address(address);
  tide__mutex_lock(&soft->memory_lock);
  tide__range* range = tide__soft_range_at_locked(soft, begin, TIDE_MEMORY_PINNED);
  if (range != NULL && range->is_registered != is_registered) range = NULL;
  if (range != NULL) {
    tide__tree_remove(&soft->ranges, &range->node);
    tide__range_wait_locked(soft, begin, tide__range_end(range));
  }
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_ARGUMENT, "%s: no %s memory begins at %p", tide_call_name(call),
               is_registered ? "registered" : "pinned", address);
  const uint64_t bytes = range->bytes;
  soft->backend->pinned_give(soft, range);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
  tide__soft_charge(soft, call, 0, bytes);
  return TIDE_OK;
}

bool tide__soft_has_pinned(tide__soft* soft, uint64_t begin, uint64_t end) {
  if (begin >= end) return false;
  tide__mutex_lock(&soft->memory_lock);
  const tide__range* range = tide__range_in_locked(soft, begin, end);
  const bool is_pinned = range != NULL && range->kind == TIDE_MEMORY_PINNED;
  tide__mutex_unlock(&soft->memory_lock);
  return is_pinned;
}

tide_status tide__soft_pinned_release(void* self, void* address) {
  return pinned_end(self, TIDE_CALL_PINNED_RELEASE, address, false);
}

tide_status tide__soft_pinned_unregister(void* self, void* address) {
  return pinned_end(self, TIDE_CALL_PINNED_UNREGISTER, address, true);
}

// ---------------------------------------------------------------------------------------------------
// Information and checks

static void pointer_describe_locked(const tide__range* range, uint64_t address, tide_pointer_info* out) {
  const tide__mapping* mapping = tide__mapping_around(range, address);
  if (mapping != NULL) {
    out->kind = TIDE_MEMORY_MAPPED;
    out->device = mapping->physical->device;
    out->base = tide__pointer(mapping->node.key);
    out->bytes = mapping->physical->bytes;
    return;
  }
  out->kind = (uint32_t)range->kind;
  out->device = range->kind == TIDE_MEMORY_RESERVED ? -1 : range->device;
  out->base = tide__pointer(range->node.key);
  out->bytes = range->bytes;
}

tide_status tide__soft_pointer_info(void* self, const void* pointer, tide_pointer_info* out) {
  tide__soft* soft = self;
  tide__mutex_lock(&soft->memory_lock);
  const tide__range* range = tide__range_around_locked(soft, tide__address(pointer));
  if (range != NULL) pointer_describe_locked(range, tide__address(pointer), out);
  tide__mutex_unlock(&soft->memory_lock);
  return TIDE_OK;
}

tide_status tide__soft_check_locked(tide__soft* soft, const char* name, int device, uint64_t address,
                                    uint64_t bytes, bool is_write, bool* out_staged, uint64_t* out_identity) {
  uint64_t end = 0;
  *out_identity = 0;
  TIDE_REQUIRE(tide__add(address, bytes, &end), TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at %p leave the address space", name, (unsigned long long)bytes,
               tide__pointer(address));
  const tide__range* range = tide__range_in_locked(soft, address, end);
  if (range == NULL) return TIDE_OK;  // ordinary host memory
  TIDE_REQUIRE(range->node.key <= address && end <= tide__range_end(range), TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at %p do not lie in one allocation: one of %llu begins at %p", name,
               (unsigned long long)bytes, tide__pointer(address), (unsigned long long)range->bytes,
               tide__pointer(range->node.key));
  *out_identity = range->identity;
  if (range->kind == TIDE_MEMORY_RESERVED) {
    return tide__mappings_check_locked(range, name, device, address, bytes, is_write, out_staged);
  }
  const bool is_own = range->device == device || range->device < 0;
  if (!is_own && (soft->devices[device].peers >> range->device & 1u) == 0) *out_staged = true;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Peers

tide_status tide__soft_peer_query(void* self, int device, int peer, bool* out) {
  (void)self, (void)device, (void)peer;
  *out = true;
  return TIDE_OK;
}

static tide_status peer_set(tide__soft* soft, int device, int peer, bool is_enabled) {
  tide__mutex_lock(&soft->memory_lock);
  soft->devices[device].peers = tide__mask_with(soft->devices[device].peers, peer, is_enabled);
  tide__mutex_unlock(&soft->memory_lock);
  return TIDE_OK;
}

tide_status tide__soft_peer_enable(void* self, int device, int peer) {
  return peer_set(self, device, peer, true);
}
tide_status tide__soft_peer_disable(void* self, int device, int peer) {
  return peer_set(self, device, peer, false);
}

// ---------------------------------------------------------------------------------------------------
// Freeing the machine

static void range_free(tide__soft* soft, tide__range* range) {
  tide__tree_remove(&soft->ranges, &range->node);
  if (range->kind == TIDE_MEMORY_PINNED) {
    soft->backend->pinned_give(soft, range);
    tide__heap_release(soft->heap, range, 1, sizeof *range);
    return;
  }
  if (range->kind != TIDE_MEMORY_RESERVED) {
    range_end_raw(soft, range);
    return;
  }
  tide__mappings_free(soft, range);
  soft->backend->unreserve(soft, range->node.key, range->span);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
}

void tide__soft_memory_fini(tide__soft* soft) {
  while (soft->ranges.root != NULL) range_free(soft, TIDE_OWNER(soft->ranges.root, tide__range, node));
  const uint32_t count = tide__slots_count(&soft->physicals);
  for (uint32_t i = 0; i < count; i++) {
    tide__physical* physical = tide__slots_at(&soft->physicals, i);
    if (tide__slots_retire(physical)) tide__physical_end(soft, physical);
  }
}
