// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory of the host and dry machines: each reservation has a tree of mappings. The memory lock
// guards all of it.
#include "machine/soft/mapping.h"

#include "base/arith.h"

static tide__mapping* mapping_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__mapping, node) : NULL;
}

static uint64_t mapping_end(const tide__mapping* mapping) {
  return mapping->node.key + mapping->physical->bytes;
}

tide__mapping* tide__mapping_around(const tide__range* range, uint64_t address) {
  tide__mapping* mapping = mapping_of(tide__tree_floor(&range->mappings, address));
  return mapping != NULL && address < mapping_end(mapping) ? mapping : NULL;
}

tide_status tide__soft_address_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                       void** out) {
  tide__soft* soft = self;
  TIDE_REQUIRE(tide__is_aligned(bytes, soft->granularity), TIDE_ERR_ARGUMENT,
               "address_reserve: %zu bytes are not a multiple of the granularity %llu", bytes,
               (unsigned long long)soft->granularity);
  tide__range* range = tide__heap_alloc(soft->heap, 1, sizeof *range);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_NO_MEMORY, "address_reserve: no memory for its records");
  range->bytes = range->span = bytes;
  range->kind = TIDE_MEMORY_RESERVED;
  range->device = device;
  const uint64_t unit = tide__max(alignment, soft->granularity);
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = soft->backend->reserve(soft, device, TIDE_CALL_ADDRESS_RESERVE, bytes, unit,
                                                    tide__address(hint), &range->node.key);
  if (status == TIDE_OK) tide__range_enter_locked(soft, range);
  tide__mutex_unlock(&soft->memory_lock);
  if (status != TIDE_OK) {
    tide__heap_release(soft->heap, range, 1, sizeof *range);
    return status;
  }
  *out = tide__pointer(range->node.key);
  tide__soft_charge(soft, TIDE_CALL_ADDRESS_RESERVE, 0, bytes);
  return TIDE_OK;
}

tide_status tide__soft_address_release(void* self, void* address, size_t bytes) {
  tide__soft* soft = self;
  tide__mutex_lock(&soft->memory_lock);
  tide__range* range = tide__soft_range_at_locked(soft, tide__address(address), TIDE_MEMORY_RESERVED);
  if (range != NULL && range->bytes != bytes) range = NULL;
  const bool is_empty = range != NULL && range->mappings.root == NULL;
  if (is_empty) {
    tide__tree_remove(&soft->ranges, &range->node);
    soft->backend->unreserve(soft, range->node.key, range->span);
  }
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_REQUIRE(range != NULL, TIDE_ERR_ARGUMENT, "address_release: %zu bytes at %p are not a reservation",
               bytes, address);
  TIDE_REQUIRE(is_empty, TIDE_ERR_STATE, "address_release: memory is still mapped in the %zu bytes at %p",
               bytes, address);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
  tide__soft_charge(soft, TIDE_CALL_ADDRESS_RELEASE, 0, bytes);
  return TIDE_OK;
}

// Finds the reservation for a new mapping.
static tide_status map_find_locked(tide__soft* soft, uint64_t begin, const tide__physical* physical,
                                   tide__range** out) {
  tide__range* range = tide__range_around_locked(soft, begin);
  const bool is_inside = range != NULL && range->kind == TIDE_MEMORY_RESERVED &&
                         physical->bytes <= tide__range_end(range) - begin;
  TIDE_REQUIRE(is_inside, TIDE_ERR_ARGUMENT, "map: %llu bytes at %p do not lie in one reservation",
               (unsigned long long)physical->bytes, tide__pointer(begin));
  const tide__mapping* below = mapping_of(tide__tree_floor(&range->mappings, begin));
  const tide__mapping* above = mapping_of(tide__tree_ceiling(&range->mappings, begin));
  const bool is_clear = (below == NULL || mapping_end(below) <= begin) &&
                        (above == NULL || above->node.key >= begin + physical->bytes);
  TIDE_REQUIRE(is_clear, TIDE_ERR_ARGUMENT, "map: memory is already mapped in the %llu bytes at %p",
               (unsigned long long)physical->bytes, tide__pointer(begin));
  *out = range;
  return TIDE_OK;
}

static tide_status map_locked(tide__soft* soft, uint64_t begin, tide_physical handle,
                              tide__mapping* mapping) {
  tide__physical* physical = tide__slots_find(&soft->physicals, tide__address(handle));
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_HANDLE, "map: %p is not physical memory of this machine",
               (void*)handle);
  tide__range* range = NULL;
  TIDE_TRY(map_find_locked(soft, begin, physical, &range));
  TIDE_TRY(soft->backend->map(soft, physical, begin));
  physical->refs++;
  mapping->physical = physical;
  mapping->node.key = begin;
  (void)tide__tree_insert(&range->mappings, &mapping->node);
  return TIDE_OK;
}

tide_status tide__soft_map(void* self, void* address, tide_physical handle) {
  tide__soft* soft = self;
  const uint64_t begin = tide__address(address);
  TIDE_REQUIRE(tide__is_aligned(begin, soft->granularity), TIDE_ERR_ARGUMENT,
               "map: the address %p is not a multiple of the granularity %llu", address,
               (unsigned long long)soft->granularity);
  tide__mapping* mapping = tide__heap_alloc(soft->heap, 1, sizeof *mapping);
  TIDE_REQUIRE(mapping != NULL, TIDE_ERR_NO_MEMORY, "map: no memory for its records");
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = map_locked(soft, begin, handle, mapping);
  tide__mutex_unlock(&soft->memory_lock);
  if (status != TIDE_OK) {
    tide__heap_release(soft->heap, mapping, 1, sizeof *mapping);
    return status;
  }
  tide__soft_charge(soft, TIDE_CALL_MAP, 1, 0);
  return TIDE_OK;
}

// Finds the mappings that cover [begin, begin + bytes) exactly: the first one and their number.
static tide_status mappings_find_locked(tide__soft* soft, const char* name, uint64_t begin, uint64_t bytes,
                                        tide__range** out_range, tide__mapping** out_first,
                                        uint64_t* out_count) {
  tide__range* range = tide__range_around_locked(soft, begin);
  const bool is_inside = range != NULL && range->kind == TIDE_MEMORY_RESERVED &&
                         bytes <= tide__range_end(range) - begin;
  uint64_t at = begin;
  uint64_t count = 0;
  tide__mapping* first = is_inside ? mapping_of(tide__tree_floor(&range->mappings, begin)) : NULL;
  for (tide__mapping* it = first; it != NULL && it->node.key == at && at < begin + bytes; count++) {
    at = mapping_end(it);
    it = mapping_of(tide__tree_next(&it->node));
  }
  TIDE_REQUIRE(is_inside && at == begin + bytes, TIDE_ERR_ARGUMENT,
               "%s: the %llu bytes at %p do not begin and end at mappings without a gap", name,
               (unsigned long long)bytes, tide__pointer(begin));
  *out_range = range;
  *out_first = first;
  *out_count = count;
  return TIDE_OK;
}

// Removes `count` mappings from their range and adds them to the list *dead. Memory that is still referenced
// is detached from its mapping.
static void mappings_remove_locked(tide__range* range, tide__mapping* first, uint64_t count,
                                   tide__mapping** dead) {
  for (uint64_t i = 0; i < count; i++) {
    tide__mapping* mapping = first;
    first = mapping_of(tide__tree_next(&mapping->node));
    tide__tree_remove(&range->mappings, &mapping->node);
    if (!tide__physical_drop_locked(mapping->physical)) mapping->physical = NULL;
    mapping->node.parent = *dead != NULL ? &(*dead)->node
                                         : NULL;  // the node is free: its link chains the dead
    *dead = mapping;
  }
}

static void mappings_bury(tide__soft* soft, tide__mapping* dead) {
  while (dead != NULL) {
    tide__mapping* next = mapping_of(dead->node.parent);
    if (dead->physical != NULL) tide__physical_end(soft, dead->physical);
    tide__heap_release(soft->heap, dead, 1, sizeof *dead);
    dead = next;
  }
}

static tide_status unmap_locked(tide__soft* soft, uint64_t begin, uint64_t bytes, uint64_t* out_count,
                                tide__mapping** out_dead) {
  tide__range* range = NULL;
  tide__mapping* first = NULL;
  TIDE_TRY(mappings_find_locked(soft, "unmap", begin, bytes, &range, &first, out_count));
  if (tide__range_is_busy_locked(soft, begin, begin + bytes)) {
    tide__range_wait_locked(soft, begin, begin + bytes);  // the lock was released meanwhile: search again
    TIDE_TRY(mappings_find_locked(soft, "unmap", begin, bytes, &range, &first, out_count));
  }
  TIDE_TRY(soft->backend->unmap(soft, begin, bytes));
  mappings_remove_locked(range, first, *out_count, out_dead);
  return TIDE_OK;
}

tide_status tide__soft_unmap(void* self, void* address, size_t bytes) {
  tide__soft* soft = self;
  uint64_t count = 0;
  tide__mapping* dead = NULL;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = unmap_locked(soft, tide__address(address), bytes, &count, &dead);
  tide__mutex_unlock(&soft->memory_lock);
  mappings_bury(soft, dead);
  if (status == TIDE_OK) tide__soft_charge(soft, TIDE_CALL_UNMAP, count, bytes);
  return status;
}

// Sets the protection of a mapping: the process may do what any device may do.
static tide_status mapping_protect(tide__soft* soft, const tide__mapping* mapping, uint64_t readers,
                                   uint64_t writers) {
  return soft->backend->protect(soft, mapping->node.key, mapping->physical->bytes, readers != 0,
                                writers != 0);
}

static tide_status access_locked(tide__soft* soft, uint64_t begin, uint64_t bytes, int device,
                                 tide_access access, uint64_t* out_count) {
  tide__range* range = NULL;
  tide__mapping* first = NULL;
  TIDE_TRY(mappings_find_locked(soft, "set_access", begin, bytes, &range, &first, out_count));
  if (access != TIDE_ACCESS_READ_WRITE && tide__range_is_busy_locked(soft, begin, begin + bytes)) {
    tide__range_wait_locked(soft, begin, begin + bytes);  // the lock was released meanwhile: search again
    TIDE_TRY(mappings_find_locked(soft, "set_access", begin, bytes, &range, &first, out_count));
  }
  tide__mapping* mapping = first;
  tide_status status = TIDE_OK;
  uint64_t done = 0;
  for (; done < *out_count && status == TIDE_OK; done++) {
    status = mapping_protect(soft, mapping,
                             tide__mask_with(mapping->readers, device, (access & TIDE_ACCESS_READ) != 0),
                             tide__mask_with(mapping->writers, device, access == TIDE_ACCESS_READ_WRITE));
    mapping = mapping_of(tide__tree_next(&mapping->node));
  }
  mapping = first;
  for (uint64_t i = 0; i < done; i++) {
    if (status == TIDE_OK) {
      mapping->readers = tide__mask_with(mapping->readers, device, (access & TIDE_ACCESS_READ) != 0);
      mapping->writers = tide__mask_with(mapping->writers, device, access == TIDE_ACCESS_READ_WRITE);
    } else {
      (void)mapping_protect(soft, mapping, mapping->readers, mapping->writers);  // as it was
    }
    mapping = mapping_of(tide__tree_next(&mapping->node));
  }
  return status;
}

tide_status tide__soft_set_access(void* self, void* address, size_t bytes, int device, tide_access access) {
  tide__soft* soft = self;
  uint64_t count = 0;
  tide__mutex_lock(&soft->memory_lock);
  const tide_status status = access_locked(soft, tide__address(address), bytes, device, access, &count);
  tide__mutex_unlock(&soft->memory_lock);
  if (status == TIDE_OK) tide__soft_charge(soft, TIDE_CALL_SET_ACCESS, count, bytes);
  return status;
}

tide_status tide__mappings_check_locked(const tide__range* range, const char* name, int device,
                                        uint64_t address, uint64_t bytes, bool is_write, bool* out_staged) {
  const uint64_t end = address + bytes;
  const tide__mapping* mapping = mapping_of(tide__tree_floor(&range->mappings, address));
  while (mapping != NULL && mapping->node.key <= address && address < mapping_end(mapping)) {
    const uint64_t allowed = is_write ? mapping->writers : mapping->readers;
    TIDE_REQUIRE(allowed != 0, TIDE_ERR_ACCESS, "%s: no device may %s at %p: see set_access", name,
                 is_write ? "write" : "read", tide__pointer(address));
    if ((allowed >> device & 1u) == 0) *out_staged = true;
    address = mapping_end(mapping);
    if (address >= end) return TIDE_OK;
    mapping = mapping_of(tide__tree_next(&mapping->node));
  }
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: no memory is mapped at %p", name, tide__pointer(address));
}

void tide__mappings_free(tide__soft* soft, tide__range* range) {
  tide__mapping* dead = NULL;
  for (tide__mapping* it = mapping_of(tide__tree_first(&range->mappings)); it != NULL;) {
    tide__mapping* next = mapping_of(tide__tree_next(&it->node));
    mappings_remove_locked(range, it, 1, &dead);
    it = next;
  }
  mappings_bury(soft, dead);
}
