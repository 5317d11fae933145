// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Slabs: 64 to 512 KiB cut into objects of one size class. A class lists its slabs with a free object, and
// takes the object with the lowest address from the first. Magazines are refilled and flushed by halves, so
// that the lock of a class is taken once for many calls. A slab without a used object goes back to the common
// zone, unless it is the last one listed and max_cached_bytes is not set.
#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "cpu/cache.h"

// Pages of a slab: at least eight objects.
static uint32_t slab_pages(uint64_t object_bytes) {
  if (object_bytes <= (uint64_t)8 << 10) return 16;
  return object_bytes <= (uint64_t)32 << 10 ? 64 : 128;
}

void tide__slabs_init(tide_cpu_cache* cache) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__slab_class* const class = &cache->classes[i];
    const uint64_t bytes = tide__class_units(i) << TIDE__SMALL_UNIT_SHIFT;
    tide__mutex_init(&class->lock, TIDE__RANK_DEPOT);
    class->object_bytes = (uint32_t)bytes;
    class->slab_pages = slab_pages(bytes);
    class->capacity = (uint32_t)(((uint64_t) class->slab_pages << TIDE__PAGE_SHIFT) / bytes);
  }
}

static void slab_free_records(tide_cpu_cache* cache, tide__slab* slab) {
  while (slab != NULL) {
    tide__slab* const next = slab->next;
    tide__heap_release(cache->heap, slab, 1, sizeof *slab);
    slab = next;
  }
}

// Nothing is in use any more, so every slab has free objects and is listed.
void tide__slabs_fini(tide_cpu_cache* cache) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    slab_free_records(cache, cache->classes[i].listed);
    slab_free_records(cache, cache->classes[i].spare);
    tide__mutex_fini(&cache->classes[i].lock);
  }
}

// ---------------------------------------------------------------------------------------------------
// The list of a class

static void slab_list(tide__slab_class* class, tide__slab* slab) {
  slab->previous = NULL;
  slab->next = class->listed;
  if (class->listed != NULL) class->listed->previous = slab;
  class->listed = slab;
  slab->is_listed = true;
}

static void slab_unlist(tide__slab_class* class, tide__slab* slab) {
  if (slab->next != NULL) slab->next->previous = slab->previous;
  if (slab->previous != NULL) slab->previous->next = slab->next;
  else class->listed = slab->next;
  slab->is_listed = false;
}

// ---------------------------------------------------------------------------------------------------
// Making and ending slabs

// Tags all pages as those of a slab; NULL: as one block of pages again.
static void slab_mark_pages(tide__region* region, uint64_t first, uint64_t pages, const tide__slab* slab) {
  for (uint64_t page = first; page < first + pages; page++) {
    const uint64_t plain = page == first ? tide__tag(TIDE__PAGE_LIVE, pages, 0) : 0;
    // pairs with tide_cpu_find()
    tide__store_release(&region->pages[page].tag, slab != NULL ? tide__slab_tag(slab) : plain);
  }
}

static void slab_set_up(tide__slab* slab, const tide__slab_class* class, const tide__region* region,
                        uint64_t address) {
  tide__store_relaxed(&slab->address, address);
  tide__store_relaxed(&slab->marks, &region->marks[(address - region->address) >> TIDE__MARK_SHIFT]);
  slab->free_count = class->capacity;
  for (uint32_t i = 0; i < TIDE__SLAB_MAX_OBJECTS / 64; i++) slab->free_words[i] = 0;
  for (uint32_t i = 0; i < class->capacity; i++) slab->free_words[i / 64] |= (uint64_t)1 << i % 64;
}

// A record without pages, or NULL.
static tide__slab* slab_take_record(tide_cpu_cache* cache, uint32_t class_number) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__mutex_lock(&class->lock);
  tide__slab* slab = class->spare;
  if (slab != NULL) class->spare = slab->next;
  tide__mutex_unlock(&class->lock);
  if (slab != NULL) return slab;
  slab = tide__heap_alloc(cache->heap, 1, sizeof *slab);
  if (slab == NULL) return NULL;
  slab->cache = cache;
  slab->class_number = class_number;
  slab->object_bytes = class->object_bytes;
  slab->reciprocal = (((uint64_t)1 << TIDE__SLAB_SHIFT) + class->object_bytes - 1) / class->object_bytes;
  slab->capacity = class->capacity;
  return slab;
}

static void slab_give_record(tide__slab_class* class, tide__slab* slab) {
  slab->next = class->spare;
  class->spare = slab;
}

// Pages of the common zone for a slab.
static tide_status slab_take_pages(tide_cpu_cache* cache, tide__slab_class* class, tide__slab* slab,
                                   tide__recover_fn recover) {
  tide__page_block run = { 0 };
  for (uint32_t step = 0;;) {
    tide__mutex_lock(&cache->zone_lock);
    const bool is_taken = tide__zone_take(&cache->zone, class->slab_pages, 1, &run);
    if (is_taken) {
      tide__region* const region = tide__region_at(run.address);
      slab_set_up(slab, class, region, run.address);
      slab_mark_pages(region, tide__region_page(region, run.address), class->slab_pages, slab);
    }
    tide__mutex_unlock(&cache->zone_lock);
    if (is_taken) return TIDE_OK;
    if (!run.is_refused && tide__zone_grow(&cache->zone, class->slab_pages) == TIDE_OK) continue;
    if (!recover(cache, (uint64_t) class->slab_pages << TIDE__PAGE_SHIFT, &step)) {
      return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u pages of small blocks", class->slab_pages);
    }
  }
}

tide_status tide__slabs_grow(tide_cpu_cache* cache, uint32_t class_number, tide__recover_fn recover) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__slab* const slab = slab_take_record(cache, class_number);
  if (slab == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a slab");
  const tide_status status = slab_take_pages(cache, class, slab, recover);
  tide__mutex_lock(&class->lock);
  if (status == TIDE_OK) {
    slab_list(class, slab);
    class->slab_count++;
  } else {
    slab_give_record(class, slab);
  }
  tide__mutex_unlock(&class->lock);
  return status;
}

// Gives the pages of a slab without a used object back to the common zone.
static void slab_end(tide_cpu_cache* cache, tide__slab_class* class, tide__slab* slab)
    TIDE_REQUIRES(&class->lock) {
  tide__region* const region = tide__region_at(tide__load_relaxed(&slab->address));
  const uint64_t first = tide__region_page(region, tide__load_relaxed(&slab->address));
  slab_unlist(class, slab);
  class->slab_count--;
  tide__mutex_lock(&cache->zone_lock);
  slab_mark_pages(region, first, class->slab_pages, NULL);
  tide__zone_put(&cache->zone, region, first, slab->stamp);
  tide__mutex_unlock(&cache->zone_lock);
  slab_give_record(class, slab);
}

// ---------------------------------------------------------------------------------------------------
// Objects

static uint32_t slab_take_object(tide__slab_class* class, tide__slab* slab) TIDE_REQUIRES(&class->lock) {
  slab->stamp = tide__load_relaxed(&slab->cache->stamp);
  uint32_t word = 0;
  while (slab->free_words[word] == 0) word++;
  const uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(slab->free_words[word]);
  slab->free_words[word] &= slab->free_words[word] - 1;
  if (--slab->free_count == 0) slab_unlist(class, slab);
  return index;
}

static void slab_put_object(tide_cpu_cache* cache, tide__slab_class* class, tide__slab* slab, uint32_t index)
    TIDE_REQUIRES(&class->lock) {
  slab->free_words[index / 64] |= (uint64_t)1 << index % 64;
  tide__store_relaxed(tide__slab_mark(slab, index), TIDE__MARK_NONE);
  slab->free_count++;
  if (!slab->is_listed) slab_list(class, slab);
  const bool is_last = class->listed == slab && slab->next == NULL;
  const bool is_kept = is_last && tide__load_relaxed(&cache->max_cached_bytes) == TIDE_NO_LIMIT;
  if (slab->free_count == slab->capacity && !is_kept) slab_end(cache, class, slab);
}

// Counts objects that moved from slabs to a magazine, or back (negative).
static void magazine_moved(tide__cpu_tcache* tcache, const tide__cpu_magazine* magazine, int64_t objects) {
  tcache->tally.bytes += objects * (int64_t)magazine->object_bytes;
  tcache->tally.blocks += objects;
  tcache->tally.changes++;
}

bool tide__slabs_refill(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  const int64_t capacity = magazine->end - tcache->objects[class_number] - 1;
  const uint32_t wanted = capacity > 1 ? (uint32_t)capacity / 2 : 1;
  uint32_t count = 0;
  tide__mutex_lock(&class->lock);
  for (; count < wanted && class->listed != NULL; count++) {
    tide__slab* const slab = class->listed;
    const uint32_t index = slab_take_object(class, slab);
    tide__atomic_u8* const mark = tide__slab_mark(slab, index);
    tide__store_relaxed(mark, tide__mark_idle(class_number));
    *magazine->top++ =
        (tide__idle_object){ tide__load_relaxed(&slab->address) + (uint64_t)index * class->object_bytes,
                             mark };
  }
  tide__mutex_unlock(&class->lock);
  magazine_moved(tcache, magazine, count);
  return count > 0;
}

// Returns idle objects to their slabs, and how many there were. An object that is not idle was released by
// two threads at the same moment, and belongs to another magazine or to the program.
static uint32_t slabs_put_idle(tide_cpu_cache* cache, uint32_t class_number, const tide__idle_object* objects,
                               uint32_t count) {
  tide__slab_class* const class = &cache->classes[class_number];
  uint32_t put = 0;
  tide__mutex_lock(&class->lock);
  for (uint32_t i = 0; i < count; i++) {
    if (tide__load_relaxed(objects[i].mark) != tide__mark_idle(class_number)) continue;
    const tide__region* const region = tide__region_at(objects[i].address);
    tide__slab* const slab = tide__region_slab(region, tide__region_page(region, objects[i].address));
    const uint64_t offset = objects[i].address - tide__load_relaxed(&slab->address);
    slab_put_object(cache, class, slab, (uint32_t)(offset / class->object_bytes));
    put++;
  }
  tide__mutex_unlock(&class->lock);
  return put;
}

// The oldest objects go; the newest are warm in the processor's caches.
void tide__slabs_flush(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number,
                       uint32_t left) {
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  tide__idle_object* const objects = &tcache->objects[class_number][1];
  const uint32_t count = tide__cpu_magazine_count(tcache, class_number);
  if (count <= left) return;
  const uint32_t going = count - left;
  const uint32_t put = slabs_put_idle(cache, class_number, objects, going);
  for (uint32_t i = 0; i < left; i++) objects[i] = objects[going + i];
  magazine->top -= going;
  magazine_moved(tcache, magazine, -(int64_t)put);
  if (put < going) tide__cpu_count(cache, TIDE__CPU_num_double_releases, going - put);
}

#define MAGAZINE_BYTES ((uint64_t)32 << 10)  // of one size class, but at least four objects

void tide__cpu_magazines_open(tide__cpu_tcache* tcache, bool is_open) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__cpu_magazine* const magazine = &tcache->magazines[i];
    const uint64_t wanted = MAGAZINE_BYTES / magazine->object_bytes;
    const uint64_t capacity = tide__max(4, tide__min(wanted, TIDE__MAGAZINE_ITEMS));
    if (!is_open) tide__slabs_flush(tcache->zone.cache, tcache, i, 0);
    magazine->end = &tcache->objects[i][is_open ? 1 + capacity : 1];
  }
}

void tide__slabs_put(tide__slab* slab, uint32_t index) {
  tide__slab_class* const class = &slab->cache->classes[slab->class_number];
  tide__mutex_lock(&class->lock);
  slab_put_object(slab->cache, class, slab, index);
  tide__mutex_unlock(&class->lock);
}

uint64_t tide__slabs_cached(tide_cpu_cache* cache) {
  uint64_t pages = 0;
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__slab_class* const class = &cache->classes[i];
    tide__mutex_lock(&class->lock);
    for (const tide__slab* slab = class->listed; slab != NULL; slab = slab->next) {
      if (slab->free_count == slab->capacity) pages += class->slab_pages;
    }
    tide__mutex_unlock(&class->lock);
  }
  return pages << TIDE__PAGE_SHIFT;
}

void tide__slabs_trim(tide_cpu_cache* cache) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__slab_class* const class = &cache->classes[i];
    tide__mutex_lock(&class->lock);
    for (tide__slab* slab = class->listed; slab != NULL;) {
      tide__slab* const next = slab->next;
      if (slab->free_count == slab->capacity) slab_end(cache, class, slab);
      slab = next;
    }
    tide__mutex_unlock(&class->lock);
  }
}
