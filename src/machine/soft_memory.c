// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory of the host and dry machines: one tree of top-level ranges, in reserved ones a tree of mappings, and
// counted physical memory below both. One lock guards all of it. It is not held while pages are locked or
// given back to the system, which can take long.
#include <string.h>

#include "base/arith.h"
#include "machine/soft.h"

static uint64_t range_end(const tide__range* range) { return range->node.key + range->bytes; }

static tide__range* range_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__range, node) : NULL;
}

static tide__mapping* mapping_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__mapping, node) : NULL;
}

static uint64_t mapping_end(const tide__mapping* mapping) {
  return mapping->node.key + mapping->physical->bytes;
}

// The range that contains an address, or NULL.
static tide__range* range_around_locked(tide__soft* soft, uint64_t address) {
  tide__range* range = range_of(tide__tree_floor(&soft->ranges, address));
  return range != NULL && address < range_end(range) ? range : NULL;
}

tide__range* tide__soft_range_at_locked(tide__soft* soft, uint64_t address, tide_memory_kind kind) {
  tide__range* range = range_of(tide__tree_floor(&soft->ranges, address));
  return range != NULL && range->node.key == address && range->kind == kind ? range : NULL;
}

// The first range that has a byte in [begin, end), or NULL.
static tide__range* range_in_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  tide__range* range = range_around_locked(soft, begin);
  if (range == NULL) range = range_of(tide__tree_ceiling(&soft->ranges, begin));
  return range != NULL && range->node.key < end ? range : NULL;
}

static void range_enter_locked(tide__soft* soft, tide__range* range) {
  range->identity = ++soft->last_identity;
  (void)tide__tree_insert(&soft->ranges, &range->node);
  TIDE_AUDIT(range->identity % 256 != 0 || tide__tree_check(&soft->ranges) == 0);
}

// ---------------------------------------------------------------------------------------------------
// Busy ranges

static bool range_is_busy_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  const uint32_t count = tide__slots_count(&soft->streams);
  for (uint32_t i = 0; i < count; i++) {
    const tide__stream* stream = tide__slots_at(&soft->streams, i);
    for (int k = 0; k < 2; k++) {
      if (stream->busy[k].begin < end && begin < stream->busy[k].end) return true;
    }
  }
  return false;
}

// Waits until no worker is inside a range. Only a caller that did not wait for its own work has to.
TIDE_UNCHECKED_LOCKING static void range_wait_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  while (range_is_busy_locked(soft, begin, end)) tide__signal_wait(&soft->quiet, &soft->memory_lock);
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

// Ends physical memory that nothing refers to any more. Takes the lock itself.
static void physical_end(tide__soft* soft, tide__physical* physical) {
  const bool is_import = physical->descriptor >= 0;
  const bool is_gone = soft->backend->physical_give(soft, physical);
  tide__mutex_lock(&soft->memory_lock);
  if (!is_gone) {
    tide__list_append(&soft->lingering, &physical->lingering);
  } else if (!is_import) {
    soft->devices[physical->device].used_bytes -= physical->bytes;
  }
  tide__mutex_unlock(&soft->memory_lock);
  if (is_gone) tide__slots_give(&soft->physicals, physical);
}

// Tries again to end what other processes were using when we gave it up.
static void physical_sweep(tide__soft* soft) {
  tide__link waiting;
  tide__list_init(&waiting);
  tide__mutex_lock(&soft->memory_lock);
  while (!tide__list_is_empty(&soft->lingering)) {
    tide__link* link = soft->lingering.next;
    tide__list_unlink(link);
    tide__list_append(&waiting, link);
  }
  tide__mutex_unlock(&soft->memory_lock);
  while (!tide__list_is_empty(&waiting)) {
    tide__link* link = waiting.next;
    tide__list_unlink(link);
    physical_end(soft, TIDE_OWNER(link, tide__physical, lingering));
  }
}

// Drops one reference; true if it was the last and physical_end() must follow once the lock is released.
static bool physical_drop_locked(tide__physical* physical) { return --physical->refs == 0; }

static bool device_take_once(tide__soft* soft, int device, uint64_t bytes, uint64_t* out_used) {
  tide__soft_device* owner = &soft->devices[device];
  tide__mutex_lock(&soft->memory_lock);
  *out_used = owner->used_bytes;
  const bool has_room = bytes <= soft->capacity - owner->used_bytes;
  if (has_room) owner->used_bytes += bytes;
  tide__mutex_unlock(&soft->memory_lock);
  return has_room;
}

// Counts memory as used, or says why the device has not got it.
static tide_status device_take(tide__soft* soft, const char* name, int device, uint64_t bytes) {
  uint64_t used = 0;
  bool has_room = device_take_once(soft, device, bytes, &used);
  if (!has_room) {
    physical_sweep(soft);
    has_room = device_take_once(soft, device, bytes, &used);
  }
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "%s: %llu bytes asked for, device %d has %llu of %llu free",
               name, (unsigned long long)bytes, device, (unsigned long long)(soft->capacity - used),
               (unsigned long long)soft->capacity);
  return TIDE_OK;
}

// New physical memory with one reference and no handle yet.
static tide_status physical_make(tide__soft* soft, const char* name, int device, uint64_t bytes,
                                 uint32_t flags, tide__physical** out) {
  TIDE_TRY(device_take(soft, name, device, bytes));
  tide__physical* physical = tide__slots_take(&soft->physicals);
  tide_status status = TIDE_OK;
  if (physical == NULL) status = TIDE_FAIL(TIDE_ERR_NO_MEMORY, "%s: no memory for its records", name);
  tide__mutex_lock(&soft->memory_lock);
  if (status == TIDE_OK) {
    physical->device = device;
    physical->flags = flags;
    physical->bytes = bytes;
    physical->refs = 1;
    physical->descriptor = -1;
    tide__list_init(&physical->lingering);
    status = soft->backend->physical_take(soft, name, physical);
  }
  if (status != TIDE_OK) soft->devices[device].used_bytes -= bytes;
  tide__mutex_unlock(&soft->memory_lock);
  if (status != TIDE_OK && physical != NULL) tide__slots_give(&soft->physicals, physical);
  if (status == TIDE_OK) *out = physical;
  return status;
}

static tide__physical* physical_find(tide__soft* soft, tide_physical handle) {
  return tide__slots_find(&soft->physicals, tide__address(handle));
}

tide_status tide__soft_physical_new(void* self, int device, size_t bytes, uint32_t flags,
                                    tide_physical* out) {
  tide__soft* soft = self;
  TIDE_REQUIRE(tide__is_aligned(bytes, soft->granularity), TIDE_ERR_ARGUMENT,
               "physical_new: %zu bytes are no multiple of the granularity %llu", bytes,
               (unsigned long long)soft->granularity);
  tide__physical* physical = NULL;
  TIDE_TRY(physical_make(soft, "physical_new", device, bytes, flags, &physical));
  *out = (tide_physical)tide__pointer(tide__slots_publish(&soft->physicals, physical));
  tide__soft_charge(soft, TIDE_CALL_PHYSICAL_NEW, 0, bytes);
  return TIDE_OK;
}

tide_status tide__soft_physical_free(void* self, tide_physical handle) {
  tide__soft* soft = self;
  tide__physical* physical = tide__slots_claim(&soft->physicals, tide__address(handle));
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_HANDLE, "physical_free: %p is no physical memory of this machine",
               (void*)handle);
  const uint64_t bytes = physical->bytes;
  tide__mutex_lock(&soft->memory_lock);
  const bool is_last = physical_drop_locked(physical);
  tide__mutex_unlock(&soft->memory_lock);
  if (is_last) physical_end(soft, physical);
  tide__soft_charge(soft, TIDE_CALL_PHYSICAL_FREE, 0, bytes);
  return TIDE_OK;
}

tide_status tide__soft_memory_info(void* self, int device, size_t* out_free, size_t* out_total) {
  tide__soft* soft = self;
  physical_sweep(soft);
  tide__mutex_lock(&soft->memory_lock);
  *out_free = soft->capacity - soft->devices[device].used_bytes;
  tide__mutex_unlock(&soft->memory_lock);
  *out_total = soft->capacity;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Raw memory

// Finds a place for a range, maps its memory there, and enters it.
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
  range_enter_locked(soft, range);
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
               "raw_alloc: %zu bytes are more than any device has", bytes);
  tide__physical* physical = NULL;
  TIDE_TRY(physical_make(soft, "raw_alloc", device, span, 0, &physical));
  const tide_status status =
      tide__soft_range_over(soft, physical, TIDE_MEMORY_RAW, bytes, TIDE_CALL_RAW_ALLOC, out);
  if (status != TIDE_OK) {
    physical_end(soft, physical);
    return status;
  }
  tide__soft_charge(soft, TIDE_CALL_RAW_ALLOC, 0, bytes);
  return TIDE_OK;
}

// Ends a raw or imported range that was taken out of the tree.
static void range_end_raw(tide__soft* soft, tide__range* range) {
  tide__mutex_lock(&soft->memory_lock);
  range_wait_locked(soft, range->node.key, range_end(range));
  if (range->export_slot != 0) soft->backend->export_end(soft, range);
  soft->backend->unreserve(soft, range->node.key, range->span);
  const bool is_last = physical_drop_locked(range->physical);
  tide__mutex_unlock(&soft->memory_lock);
  if (is_last) physical_end(soft, range->physical);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
}

// Takes the range of a kind that begins at an address out of the tree; NULL if there is none (on that
// device).
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

// Takes pages and enters them, unless (dry) another thread was given addresses among them meanwhile.
static tide_status pinned_place(tide__soft* soft, tide__range* range) {
  for (;;) {
    TIDE_TRY(soft->backend->pinned_take(soft, range));
    tide__mutex_lock(&soft->memory_lock);
    const bool is_clear = range_in_locked(soft, range->node.key, range_end(range)) == NULL;
    if (is_clear) range_enter_locked(soft, range);
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
               "pinned_alloc: %zu bytes are more than there are", bytes);
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

// Enters a range of the caller's pages, unless it touches another.
static tide_status pinned_enter(tide__soft* soft, tide__range* range) {
  tide__mutex_lock(&soft->memory_lock);
  const tide__range* other = range_in_locked(soft, range->node.key, range_end(range));
  const uint64_t taken = other != NULL ? other->node.key : 0;
  if (other == NULL) range_enter_locked(soft, range);
  tide__mutex_unlock(&soft->memory_lock);
  TIDE_REQUIRE(other == NULL, TIDE_ERR_ARGUMENT,
               "pinned_register: %llu bytes at %p touch the range that begins at %p",
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
    // Entered first: page locks do not nest, so locking a range that overlaps another could not be undone.
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
    range_wait_locked(soft, begin, range_end(range));
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
  const tide__range* range = range_in_locked(soft, begin, end);
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
// Virtual memory

tide_status tide__soft_address_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                       void** out) {
  tide__soft* soft = self;
  TIDE_REQUIRE(tide__is_aligned(bytes, soft->granularity), TIDE_ERR_ARGUMENT,
               "address_reserve: %zu bytes are no multiple of the granularity %llu", bytes,
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
  if (status == TIDE_OK) range_enter_locked(soft, range);
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
  TIDE_REQUIRE(range != NULL, TIDE_ERR_ARGUMENT, "address_release: %zu bytes at %p are no reservation", bytes,
               address);
  TIDE_REQUIRE(is_empty, TIDE_ERR_STATE, "address_release: memory is still mapped in the %zu bytes at %p",
               bytes, address);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
  tide__soft_charge(soft, TIDE_CALL_ADDRESS_RELEASE, 0, bytes);
  return TIDE_OK;
}

// Finds the place of a new mapping; the reservation it goes into.
static tide_status map_find_locked(tide__soft* soft, uint64_t begin, const tide__physical* physical,
                                   tide__range** out) {
  tide__range* range = range_around_locked(soft, begin);
  const bool is_inside = range != NULL && range->kind == TIDE_MEMORY_RESERVED &&
                         physical->bytes <= range_end(range) - begin;
  TIDE_REQUIRE(is_inside, TIDE_ERR_ARGUMENT, "map: %llu bytes at %p do not lie in one reservation",
               (unsigned long long)physical->bytes, tide__pointer(begin));
  const tide__mapping* below = mapping_of(tide__tree_floor(&range->mappings, begin));
  const tide__mapping* above = mapping_of(tide__tree_ceiling(&range->mappings, begin));
  const bool is_clear = (below == NULL || mapping_end(below) <= begin) &&
                        (above == NULL || above->node.key >= begin + physical->bytes);
  TIDE_REQUIRE(is_clear, TIDE_ERR_ARGUMENT, "map: something is mapped already in the %llu bytes at %p",
               (unsigned long long)physical->bytes, tide__pointer(begin));
  *out = range;
  return TIDE_OK;
}

static tide_status map_locked(tide__soft* soft, uint64_t begin, tide_physical handle,
                              tide__mapping* mapping) {
  tide__physical* physical = physical_find(soft, handle);
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_HANDLE, "map: %p is no physical memory of this machine",
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
               "map: the address %p is no multiple of the granularity %llu", address,
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

// Finds the mappings that make up [begin, begin + bytes) exactly: the first, and how many.
static tide_status mappings_find_locked(tide__soft* soft, const char* name, uint64_t begin, uint64_t bytes,
                                        tide__range** out_range, tide__mapping** out_first,
                                        uint64_t* out_count) {
  tide__range* range = range_around_locked(soft, begin);
  const bool is_inside = range != NULL && range->kind == TIDE_MEMORY_RESERVED &&
                         bytes <= range_end(range) - begin;
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

// Takes `count` mappings out of their range and puts those whose memory is now unused in front of *dead.
static void mappings_remove_locked(tide__range* range, tide__mapping* first, uint64_t count,
                                   tide__mapping** dead) {
  for (uint64_t i = 0; i < count; i++) {
    tide__mapping* mapping = first;
    first = mapping_of(tide__tree_next(&mapping->node));
    tide__tree_remove(&range->mappings, &mapping->node);
    if (!physical_drop_locked(mapping->physical)) mapping->physical = NULL;
    mapping->node.parent = *dead != NULL ? &(*dead)->node
                                         : NULL;  // the node is free: its link chains the dead
    *dead = mapping;
  }
}

static void mappings_bury(tide__soft* soft, tide__mapping* dead) {
  while (dead != NULL) {
    tide__mapping* next = mapping_of(dead->node.parent);
    if (dead->physical != NULL) physical_end(soft, dead->physical);
    tide__heap_release(soft->heap, dead, 1, sizeof *dead);
    dead = next;
  }
}

static tide_status unmap_locked(tide__soft* soft, uint64_t begin, uint64_t bytes, uint64_t* out_count,
                                tide__mapping** out_dead) {
  tide__range* range = NULL;
  tide__mapping* first = NULL;
  TIDE_TRY(mappings_find_locked(soft, "unmap", begin, bytes, &range, &first, out_count));
  if (range_is_busy_locked(soft, begin, begin + bytes)) {
    range_wait_locked(soft, begin, begin + bytes);  // the lock was open meanwhile: look again
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

// Sets what the process may do at a mapping: all that any device may.
static tide_status mapping_protect(tide__soft* soft, const tide__mapping* mapping, uint64_t readers,
                                   uint64_t writers) {
  return soft->backend->protect(soft, mapping->node.key, mapping->physical->bytes, readers != 0,
                                writers != 0);
}

static uint64_t mask_with(uint64_t mask, int device, bool is_set) {
  const uint64_t bit = (uint64_t)1 << device;
  return is_set ? mask | bit : mask & ~bit;
}

static tide_status access_locked(tide__soft* soft, uint64_t begin, uint64_t bytes, int device,
                                 tide_access access, uint64_t* out_count) {
  tide__range* range = NULL;
  tide__mapping* first = NULL;
  TIDE_TRY(mappings_find_locked(soft, "set_access", begin, bytes, &range, &first, out_count));
  if (access != TIDE_ACCESS_READ_WRITE && range_is_busy_locked(soft, begin, begin + bytes)) {
    range_wait_locked(soft, begin, begin + bytes);  // the lock was open meanwhile: look again
    TIDE_TRY(mappings_find_locked(soft, "set_access", begin, bytes, &range, &first, out_count));
  }
  tide__mapping* mapping = first;
  tide_status status = TIDE_OK;
  uint64_t done = 0;
  for (; done < *out_count && status == TIDE_OK; done++) {
    status = mapping_protect(soft, mapping,
                             mask_with(mapping->readers, device, (access & TIDE_ACCESS_READ) != 0),
                             mask_with(mapping->writers, device, access == TIDE_ACCESS_READ_WRITE));
    mapping = mapping_of(tide__tree_next(&mapping->node));
  }
  mapping = first;
  for (uint64_t i = 0; i < done; i++) {
    if (status == TIDE_OK) {
      mapping->readers = mask_with(mapping->readers, device, (access & TIDE_ACCESS_READ) != 0);
      mapping->writers = mask_with(mapping->writers, device, access == TIDE_ACCESS_READ_WRITE);
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

// ---------------------------------------------------------------------------------------------------
// Questions

static void pointer_describe_locked(const tide__range* range, uint64_t address, tide_pointer_info* out) {
  const tide__mapping* mapping = mapping_of(tide__tree_floor(&range->mappings, address));
  if (mapping != NULL && address < mapping_end(mapping)) {
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
  const tide__range* range = range_around_locked(soft, tide__address(pointer));
  if (range != NULL) pointer_describe_locked(range, tide__address(pointer), out);
  tide__mutex_unlock(&soft->memory_lock);
  return TIDE_OK;
}

// Has every byte of a range in a reservation memory that a device may use? Staged where it is not this
// device.
static tide_status check_mapped_locked(const tide__range* range, const char* name, int device,
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
  return TIDE_FAIL(TIDE_ERR_ARGUMENT, "%s: nothing is mapped at %p", name, tide__pointer(address));
}

tide_status tide__soft_check_locked(tide__soft* soft, const char* name, int device, uint64_t address,
                                    uint64_t bytes, bool is_write, bool* out_staged, uint64_t* out_identity) {
  uint64_t end = 0;
  *out_identity = 0;
  TIDE_REQUIRE(tide__add(address, bytes, &end), TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at %p leave the address space", name, (unsigned long long)bytes,
               tide__pointer(address));
  const tide__range* range = range_in_locked(soft, address, end);
  if (range == NULL) return TIDE_OK;  // ordinary host memory
  TIDE_REQUIRE(range->node.key <= address && end <= range_end(range), TIDE_ERR_ARGUMENT,
               "%s: %llu bytes at %p do not lie in one allocation: one of %llu begins at %p", name,
               (unsigned long long)bytes, tide__pointer(address), (unsigned long long)range->bytes,
               tide__pointer(range->node.key));
  *out_identity = range->identity;
  if (range->kind == TIDE_MEMORY_RESERVED) {
    return check_mapped_locked(range, name, device, address, bytes, is_write, out_staged);
  }
  const bool is_own = range->device == device || range->device < 0;
  if (!is_own && (soft->devices[device].peers >> range->device & 1u) == 0) *out_staged = true;
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Peers

tide_status tide__soft_peer_query(void* self, int device, int peer, bool* out) {
  (void)self;
  (void)device;
  (void)peer;
  *out = true;
  return TIDE_OK;
}

static tide_status peer_set(tide__soft* soft, int device, int peer, bool is_enabled) {
  tide__mutex_lock(&soft->memory_lock);
  soft->devices[device].peers = mask_with(soft->devices[device].peers, peer, is_enabled);
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
// The end

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
  tide__mapping* dead = NULL;
  for (tide__mapping* it = mapping_of(tide__tree_first(&range->mappings)); it != NULL;) {
    tide__mapping* next = mapping_of(tide__tree_next(&it->node));
    mappings_remove_locked(range, it, 1, &dead);
    it = next;
  }
  mappings_bury(soft, dead);
  soft->backend->unreserve(soft, range->node.key, range->span);
  tide__heap_release(soft->heap, range, 1, sizeof *range);
}

void tide__soft_memory_fini(tide__soft* soft) {
  while (soft->ranges.root != NULL) range_free(soft, range_of(soft->ranges.root));
  const uint32_t count = tide__slots_count(&soft->physicals);
  for (uint32_t i = 0; i < count; i++) {
    tide__physical* physical = tide__slots_at(&soft->physicals, i);
    if (tide__slots_retire(physical)) physical_end(soft, physical);
  }
}
