// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Making and freeing regions, the window, and the map from addresses to regions. The map has two levels; its
// leaves are made when they are needed and are never freed.
//
// A region of the system reserves many more addresses than it uses: addresses cost nothing, and one long
// region wastes less than several short ones. If the system refuses, half as many are tried, and so on. Only
// what is needed is reserved where addresses are limited, or locked pages, to which reserved ones count in a
// program that locks all its memory.
#include <errno.h>
#include <pthread.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/sys.h"
#include "cpu/region.h"

_Atomic(tide__region_link*) tide__regions[(size_t)1 << TIDE__REGIONS_ROOT_BITS];

#define REGIONS_LEAF_ENTRIES ((uint64_t)1 << TIDE__REGIONS_LEAF_BITS)
#define REGIONS_LEAF_BYTES (REGIONS_LEAF_ENTRIES * sizeof(tide__region_link))

// The leaf of a unit of addresses, made if necessary; NULL without memory.
static tide__region_link* regions_leaf(uint64_t unit) {
  _Atomic(tide__region_link*)* const root = &tide__regions[unit >> TIDE__REGIONS_LEAF_BITS];
  tide__region_link* leaf = tide__load_acquire(root);  // pairs with the exchange below
  uint64_t made = 0;
  if (leaf != NULL) return leaf;
  if (tide__sys_map_private(REGIONS_LEAF_BYTES, &made) != 0) return NULL;
  if (atomic_compare_exchange_strong_explicit(root, &leaf, tide__pointer(made), memory_order_acq_rel,
                                              memory_order_acquire)) {
    return tide__pointer(made);
  }
  (void)tide__sys_release(made, REGIONS_LEAF_BYTES);  // another thread was faster
  return leaf;
}

static tide__mutex regions_lock = TIDE__MUTEX_INIT(TIDE__RANK_MAP);

// Sets the map entries of a region's addresses. False without memory for the map.
static bool regions_set(const tide__region* region, tide__region* value) {
  const uint64_t first = region->address >> TIDE__REGION_SHIFT;
  const uint64_t end = first + (region->page_count << TIDE__PAGE_SHIFT >> TIDE__REGION_SHIFT);
  for (uint64_t unit = first; unit < end; unit++) {
    if (regions_leaf(unit) == NULL) return false;
  }
  tide__mutex_lock(&regions_lock);
  for (uint64_t unit = first; unit < end; unit++) {
    tide__region_link* const leaf = regions_leaf(unit);
    tide__store_relaxed(&leaf[unit & (REGIONS_LEAF_ENTRIES - 1)], value);
  }
  tide__mutex_unlock(&regions_lock);
  return true;
}

void tide__regions_lock(void) TIDE_UNCHECKED_LOCKING { tide__mutex_lock(&regions_lock); }
void tide__regions_unlock(void) TIDE_UNCHECKED_LOCKING { tide__mutex_unlock(&regions_lock); }

// ---------------------------------------------------------------------------------------------------
// Records of addresses that are not open yet: they can be read, and are zeros

static int records_reserve(uint64_t bytes, uint64_t* out) {
  int error = tide__sys_reserve(bytes, 1, 0, out);
  if (error != 0) return error;
  error = tide__sys_protect(*out, bytes, true, false);
  if (error != 0) (void)tide__sys_release(*out, bytes);
  return error;
}

// Makes the bytes from `from` to `end` of an array of records writable.
static int records_open(uint64_t array, uint64_t from, uint64_t end) {
  const uint64_t page = tide__sys_page_bytes();
  const uint64_t first = (array + from) & ~(page - 1);
  const uint64_t last = (array + end + page - 1) & ~(page - 1);
  return tide__sys_protect(first, last - first, true, true);
}

// ---------------------------------------------------------------------------------------------------
// The window

tide__window_of_slabs tide__window = { .address = TIDE__WINDOW_NOWHERE };
static pthread_once_t window_once = PTHREAD_ONCE_INIT;

static void window_open(void) {
  uint64_t address = 0;
  uint64_t marks = 0;
  for (int i = 0; i < TIDE__WINDOW_SLOTS; i++) tide__window.ids[i] = TIDE__WINDOW_NOBODY;
  if (tide__sys_has_address_limit() ||
      tide__sys_reserve(TIDE__WINDOW_BYTES, TIDE__REGION_UNIT, 0, &address) != 0) {
    return;
  }
  if (records_reserve(TIDE__WINDOW_BYTES >> TIDE__MARK_SHIFT, &marks) != 0) {
    (void)tide__sys_release(address, TIDE__WINDOW_BYTES);
    return;
  }
  tide__window.marks = tide__pointer(marks);
  tide__store_release(&tide__window.address, address);  // pairs with window_take
}

static bool window_has(const tide__region* region) {
  return region->address - tide__load_relaxed(&tide__window.address) < TIDE__WINDOW_BYTES;
}

// Takes a free slot for a cache; false if there is none.
static bool window_take(tide__region* region, uint64_t caches_id) {
  (void)pthread_once(&window_once, window_open);
  const uint64_t address = tide__load_acquire(&tide__window.address);  // pairs with window_open
  uint64_t slot = 0;
  if (address == TIDE__WINDOW_NOWHERE) return false;
  for (; slot < TIDE__WINDOW_SLOTS; slot++) {
    uint64_t nobody = TIDE__WINDOW_NOBODY;
    if (atomic_compare_exchange_strong(&tide__window.ids[slot], &nobody, caches_id)) break;
  }
  if (slot == TIDE__WINDOW_SLOTS) return false;
  const uint64_t offset = slot << TIDE__WINDOW_SLOT_SHIFT;
  region->address = address + offset;
  region->marks = &tide__window.marks[offset >> TIDE__MARK_SHIFT];
  return true;
}

// Gives a slot back, with its memory and marks. A slot that the system does not take back stays unused.
static void window_give(const tide__region* region) {
  const uint64_t marks = tide__address(region->marks);
  const uint64_t marks_bytes = TIDE__WINDOW_SLOT_BYTES >> TIDE__MARK_SHIFT;
  if (tide__sys_map_nothing(region->address, TIDE__WINDOW_SLOT_BYTES) != 0) return;
  if (tide__sys_purge(marks, marks_bytes) != 0) return;
  (void)tide__sys_protect(marks, marks_bytes, true, false);
  const uint64_t offset = region->address - tide__load_relaxed(&tide__window.address);
  tide__store_seq(&tide__window.ids[offset >> TIDE__WINDOW_SLOT_SHIFT], TIDE__WINDOW_NOBODY);
}

// ---------------------------------------------------------------------------------------------------
// Addresses

static uint64_t region_round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) & ~(unit - 1); }

// Reserves `wanted` bytes, or less, but at least `least`.
static int region_take_addresses(uint64_t least, uint64_t wanted, uint64_t* out, uint64_t* out_bytes) {
  int error = 0;
  uint64_t bytes = wanted > least && !tide__sys_has_address_limit() ? wanted : least;
  for (;;) {
    *out_bytes = bytes;
    error = tide__sys_reserve(bytes, TIDE__REGION_UNIT, 0, out);
    if (error == 0 || bytes == least) return error;
    bytes = error == EAGAIN ? least : tide__max(least, (bytes / 2) & ~(TIDE__REGION_UNIT - 1));
  }
}

// Takes a slot of the window, if that is what is needed and one is free.
static bool region_take_slot(tide__region* region, const tide_memory* memory, const tide__region_need* need) {
  const bool fits = need->bytes == TIDE__WINDOW_SLOT_BYTES && need->pages <= need->bytes >> TIDE__PAGE_SHIFT;
  if (memory->alloc != NULL || need->caches_id == 0 || !fits) return false;
  if (!window_take(region, need->caches_id)) return false;
  region->page_count = need->bytes >> TIDE__PAGE_SHIFT;
  region->has_purge = true;
  return true;
}

static tide_status region_take_range(tide__region* region, const tide_memory* memory,
                                     const tide__region_need* need) {
  if (region_take_slot(region, memory, need)) return TIDE_OK;
  const uint64_t least = region_round_up(need->pages << TIDE__PAGE_SHIFT, TIDE__REGION_UNIT);
  uint64_t bytes = tide__max(least, need->bytes);
  if (memory->alloc != NULL) {
    void* address = NULL;
    TIDE_TRY(memory->alloc(memory, bytes, TIDE__REGION_UNIT, &address));
    region->address = tide__address(address);
  } else {
    const int error = region_take_addresses(least, bytes, &region->address, &bytes);
    if (error != 0) {
      return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "the system has no %llu bytes of addresses left",
                              (unsigned long long)least);
    }
    if (need->has_huge_pages) tide__sys_ask_huge_pages(region->address, bytes);
  }
  region->page_count = bytes >> TIDE__PAGE_SHIFT;
  region->has_purge = memory->alloc == NULL;
  return TIDE_OK;
}

static void region_give_range(const tide__region* region, const tide_memory* memory) {
  if (memory->alloc != NULL) (void)memory->release(memory, tide__pointer(region->address));
  else if (window_has(region)) window_give(region);
  else (void)tide__sys_release(region->address, region->page_count << TIDE__PAGE_SHIFT);
}

// ---------------------------------------------------------------------------------------------------
// Records

static uint64_t region_record_bytes(const tide__region* region) {
  const uint64_t words = region->page_count / 64 + 1;
  const uint64_t marks = region->has_marks ? region->page_count << TIDE__PAGE_SHIFT >> TIDE__MARK_SHIFT : 0;
  return region->page_count * sizeof(tide__page) + words * sizeof(uint64_t) + marks;
}

static bool region_take_records(tide__region* region, const tide_heap* heap, bool has_slabs) {
  region->has_marks = has_slabs && region->marks == NULL;
  const uint64_t bytes = region_record_bytes(region);
  if (region->has_purge) {
    uint64_t address = 0;
    if (records_reserve(region_round_up(bytes, TIDE__PAGE_BYTES), &address) != 0) return false;
    region->pages = tide__pointer(address);
  } else {
    region->pages = tide__heap_alloc(heap, 1, bytes);
  }
  if (region->pages == NULL) return false;
  region->resident = (uint64_t*)(region->pages + region->page_count);
  if (region->has_marks) region->marks = (tide__atomic_u8*)(region->resident + region->page_count / 64 + 1);
  return true;
}

static void region_give_records(tide__region* region, const tide_heap* heap) {
  const uint64_t bytes = region_record_bytes(region);
  if (region->pages == NULL) return;
  if (!region->has_purge) tide__heap_release(heap, region->pages, 1, bytes);
  else (void)tide__sys_release(tide__address(region->pages), region_round_up(bytes, TIDE__PAGE_BYTES));
}

// ---------------------------------------------------------------------------------------------------
// Opening

#define REGION_OPEN_BYTES ((uint64_t)4 << 20)  // at once, at least

static int region_open_range(const tide__region* region, uint64_t from, uint64_t end) {
  const uint64_t bytes = (end - from) << TIDE__PAGE_SHIFT;
  const uint64_t marks_shift = TIDE__PAGE_SHIFT - TIDE__MARK_SHIFT;
  int error = tide__sys_protect(tide__region_address(region, from), bytes, true, true);
  if (error == 0)
    error = records_open(tide__address(region->pages), from * sizeof(tide__page), end * sizeof(tide__page));
  if (error == 0) {
    error = records_open(tide__address(region->resident), from / 64 * sizeof(uint64_t),
                         (end / 64 + 1) * sizeof(uint64_t));
  }
  if (error != 0 || region->marks == NULL) return error;
  return records_open(tide__address(region->marks), from << marks_shift, end << marks_shift);
}

tide_status tide__region_open(const tide__region* region, uint64_t from, uint64_t pages, uint64_t* out) {
  const uint64_t unit = TIDE__REGION_UNIT >> TIDE__PAGE_SHIFT;
  const uint64_t wanted = tide__max(pages, from + tide__max(from / 4, REGION_OPEN_BYTES >> TIDE__PAGE_SHIFT));
  *out = tide__min(region_round_up(wanted, unit), region->page_count);
  int error = region_open_range(region, from, *out);
  if (error != 0) error = region_open_range(region, from, *out = pages);
  if (error == 0) return TIDE_OK;
  *out = from;
  return TIDE_FAIL_NATIVE(TIDE_ERR_NO_MEMORY, error, "the system has no memory for %llu more pages",
                          (unsigned long long)(pages - from));
}

// ---------------------------------------------------------------------------------------------------
// Regions

void tide__region_free(tide__region* region, const tide_memory* memory, const tide_heap* heap) {
  if (region == NULL) return;
  if (region->page_count > 0) {
    (void)regions_set(region, region->below);
    region_give_range(region, memory);
  }
  region_give_records(region, heap);
  tide__heap_release(heap, region, 1, sizeof *region);
}

static tide_status region_set_up(tide__region* region, const tide_memory* memory, const tide_heap* heap,
                                 const tide__region_need* need) {
  TIDE_TRY(region_take_range(region, memory, need));
  tide__regions_lock();
  region->below = tide__region_at(region->address);
  tide__regions_unlock();
  if (!region_take_records(region, heap, need->caches_id != 0)) {
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the records of %llu pages",
                     (unsigned long long)region->page_count);
  }
  if (region->has_purge) {
    TIDE_TRY(tide__region_open(region, 0, need->pages, &region->open_pages));
  } else {
    for (uint64_t page = 0; page < region->page_count; page++) {
      region->resident[page / 64] |= (uint64_t)1 << page % 64;
    }
    region->resident_pages = region->open_pages = region->page_count;
  }
  if (regions_set(region, region)) return TIDE_OK;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the map of addresses");
}

tide_status tide__region_new(const tide_memory* memory, const tide_heap* heap, const tide__region_need* need,
                             struct tide__zone* zone, tide__region** out) {
  tide__region* const region = tide__heap_alloc(heap, 1, sizeof *region);
  *out = NULL;
  if (region == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a region");
  region->zone = zone;
  region->is_single = need->is_single;
  const tide_status status = region_set_up(region, memory, heap, need);
  if (status == TIDE_OK) *out = region;
  else tide__region_free(region, memory, heap);
  return status;
}
