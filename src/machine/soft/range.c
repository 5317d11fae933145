// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges of addresses in one tree, and reference-counted physical memory.
#include "machine/soft/range.h"

#include "base/arith.h"

uint64_t tide__range_end(const tide__range* range) { return range->node.key + range->bytes; }

uint64_t tide__mask_with(uint64_t mask, int device, bool is_set) {
  const uint64_t bit = (uint64_t)1 << device;
  return is_set ? mask | bit : mask & ~bit;
}

static tide__range* range_of(tide__tree_node* node) {
  return node != NULL ? TIDE_OWNER(node, tide__range, node) : NULL;
}

tide__range* tide__range_around_locked(tide__soft* soft, uint64_t address) {
  tide__range* range = range_of(tide__tree_floor(&soft->ranges, address));
  return range != NULL && address < tide__range_end(range) ? range : NULL;
}

tide__range* tide__soft_range_at_locked(tide__soft* soft, uint64_t address, tide_memory_kind kind) {
  tide__range* range = range_of(tide__tree_floor(&soft->ranges, address));
  return range != NULL && range->node.key == address && range->kind == kind ? range : NULL;
}

tide__range* tide__range_in_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  tide__range* range = tide__range_around_locked(soft, begin);
  if (range == NULL) range = range_of(tide__tree_ceiling(&soft->ranges, begin));
  return range != NULL && range->node.key < end ? range : NULL;
}

void tide__range_enter_locked(tide__soft* soft, tide__range* range) {
  range->identity = ++soft->last_identity;
  (void)tide__tree_insert(&soft->ranges, &range->node);
  TIDE_AUDIT(range->identity % 256 != 0 || tide__tree_check(&soft->ranges) == 0);
}

// ---------------------------------------------------------------------------------------------------
// Busy moves

bool tide__range_is_busy_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  TIDE_LIST_EACH(it, &soft->busy) {
    const tide__busy_move* move = TIDE_OWNER(it, tide__busy_move, link);
    for (int k = 0; k < 2; k++) {
      if (move->ranges[k].begin < end && begin < move->ranges[k].end) return true;
    }
  }
  return false;
}

// Only a caller that did not synchronize its work waits here.
TIDE_UNCHECKED_LOCKING void tide__range_wait_locked(tide__soft* soft, uint64_t begin, uint64_t end) {
  while (tide__range_is_busy_locked(soft, begin, end)) tide__signal_wait(&soft->quiet, &soft->memory_lock);
}

// ---------------------------------------------------------------------------------------------------
// Physical memory

void tide__physical_end(tide__soft* soft, tide__physical* physical) {
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

// Retries to free memory that other processes still used when its handle was freed.
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
    tide__physical_end(soft, TIDE_OWNER(link, tide__physical, lingering));
  }
}

bool tide__physical_drop_locked(tide__physical* physical) { return --physical->refs == 0; }

static bool device_take_once(tide__soft* soft, int device, uint64_t bytes, uint64_t* out_used) {
  tide__soft_device* owner = &soft->devices[device];
  tide__mutex_lock(&soft->memory_lock);
  *out_used = owner->used_bytes;
  const bool has_room = bytes <= soft->capacity - owner->used_bytes;
  if (has_room) owner->used_bytes += bytes;
  tide__mutex_unlock(&soft->memory_lock);
  return has_room;
}

// Counts memory as used, or fails with the free bytes of the device.
static tide_status device_take(tide__soft* soft, const char* name, int device, uint64_t bytes) {
  uint64_t used = 0;
  bool has_room = device_take_once(soft, device, bytes, &used);
  if (!has_room) {
    physical_sweep(soft);
    has_room = device_take_once(soft, device, bytes, &used);
  }
  TIDE_REQUIRE(has_room, TIDE_ERR_NO_MEMORY, "%s: %llu bytes requested, device %d has %llu of %llu free",
               name, (unsigned long long)bytes, device, (unsigned long long)(soft->capacity - used),
               (unsigned long long)soft->capacity);
  return TIDE_OK;
}

tide_status tide__physical_make(tide__soft* soft, const char* name, int device, uint64_t bytes,
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

tide_status tide__soft_physical_new(void* self, int device, size_t bytes, uint32_t flags,
                                    tide_physical* out) {
  tide__soft* soft = self;
  TIDE_REQUIRE(tide__is_aligned(bytes, soft->granularity), TIDE_ERR_ARGUMENT,
               "physical_new: %zu bytes are not a multiple of the granularity %llu", bytes,
               (unsigned long long)soft->granularity);
  tide__physical* physical = NULL;
  TIDE_TRY(tide__physical_make(soft, "physical_new", device, bytes, flags, &physical));
  *out = (tide_physical)tide__pointer(tide__slots_publish(&soft->physicals, physical));
  tide__soft_charge(soft, TIDE_CALL_PHYSICAL_NEW, 0, bytes);
  return TIDE_OK;
}

tide_status tide__soft_physical_free(void* self, tide_physical handle) {
  tide__soft* soft = self;
  tide__physical* physical = tide__slots_claim(&soft->physicals, tide__address(handle));
  TIDE_REQUIRE(physical != NULL, TIDE_ERR_HANDLE, "physical_free: %p is not physical memory of this machine",
               (void*)handle);
  const uint64_t bytes = physical->bytes;
  tide__mutex_lock(&soft->memory_lock);
  const bool is_last = tide__physical_drop_locked(physical);
  tide__mutex_unlock(&soft->memory_lock);
  if (is_last) tide__physical_end(soft, physical);
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
