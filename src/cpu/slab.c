// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Slabs: 64 or 256 KiB cut into objects of one size class. A class lists its slabs that have a free object and
// takes the objects with the lowest addresses of the first. Magazines are filled and emptied by halves, so
// that the lock of a class is taken once for many calls. A slab of which nothing is used goes back to the
// common zone, unless it is the last of its class with free objects.
#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "cpu/cache.h"

#define SLAB_SHORT_PAGES 16
#define SLAB_LONG_PAGES 64
#define SLAB_SHORT_MAX_BYTES ((uint64_t)8 << 10)  // objects of slabs of the short kind

static size_t slab_record_bytes(const tide__slab_class* class) {
  return sizeof(tide__slab) + class->capacity * sizeof(tide__atomic_u8);
}

void tide__slabs_init(tide_cpu* cache) {
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__slab_class* const class = &cache->classes[i];
    const uint64_t units = tide__class_units(i);
    const uint64_t bytes = units << TIDE__SMALL_UNIT_SHIFT;
    tide__mutex_init(&class->lock, TIDE__RANK_DEPOT);
    class->units = (uint32_t)units;
    class->slab_pages = bytes <= SLAB_SHORT_MAX_BYTES ? SLAB_SHORT_PAGES : SLAB_LONG_PAGES;
    class->capacity = (uint32_t)(((uint64_t) class->slab_pages << TIDE__PAGE_SHIFT) / bytes);
  }
}

static void slab_free_records(tide_cpu* cache, tide__slab* slab) {
  while (slab != NULL) {
    tide__slab* const next = slab->next;
    tide__heap_release(cache->heap, slab, 1, slab_record_bytes(&cache->classes[slab->class_number]));
    slab = next;
  }
}

// When the cache goes nothing is in use: every slab has free objects, and so is listed.
void tide__slabs_fini(tide_cpu* cache) {
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

// Writes into the records of all its pages that they are of this slab; NULL: one block of pages again.
static void slab_mark_pages(tide__region* region, uint64_t first, uint64_t pages, tide__slab* slab) {
  for (uint64_t page = first; page < first + pages; page++) {
    tide__page* const record = &region->pages[page];
    const uint64_t plain = page == first ? tide__tag(TIDE__PAGE_LIVE, pages, 0) : 0;
    if (slab != NULL) tide__store_relaxed(&record->slab, (void*)slab);
    // pairs with who looks an address up
    tide__store_release(&record->tag, slab != NULL ? tide__tag(TIDE__PAGE_SLAB, 1, 0) : plain);
  }
}

static void slab_set_up(tide__slab* slab, const tide__slab_class* class, uint64_t address) {
  slab->address = address;
  slab->units = class->units;
  slab->reciprocal = (((uint64_t)1 << 32) + class->units - 1) / class->units;
  slab->capacity = class->capacity;
  slab->free_count = class->capacity;
  for (uint32_t i = 0; i < TIDE__SLAB_MAX_OBJECTS / 64; i++) slab->free_words[i] = 0;
  for (uint32_t i = 0; i < class->capacity; i++) {
    slab->free_words[i / 64] |= (uint64_t)1 << i % 64;
    tide__store_relaxed(&slab->states[i], TIDE__OBJECT_FREE);
  }
}

// A record without pages, or NULL.
static tide__slab* slab_take_record(tide_cpu* cache, uint32_t class_number) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__mutex_lock(&class->lock);
  tide__slab* slab = class->spare;
  if (slab != NULL) class->spare = slab->next;
  tide__mutex_unlock(&class->lock);
  if (slab == NULL) slab = tide__heap_alloc(cache->heap, 1, slab_record_bytes(class));
  if (slab == NULL) return NULL;
  slab->cache = cache;
  slab->class_number = class_number;
  return slab;
}

static void slab_give_record(tide__slab_class* class, tide__slab* slab) {
  slab->next = class->spare;
  class->spare = slab;
}

// Pages of the common zone for a slab.
static tide_status slab_take_pages(tide_cpu* cache, tide__slab_class* class, tide__slab* slab) {
  tide__page_block run = { 0 };
  for (uint32_t step = 0;;) {
    tide__mutex_lock(&cache->zone_lock);
    const bool is_taken = tide__zone_take(&cache->zone, class->slab_pages, 1, &run);
    if (is_taken) {
      tide__region* const region = tide__region_at(run.address);
      slab_set_up(slab, class, run.address);
      slab_mark_pages(region, (run.address - region->address) >> TIDE__PAGE_SHIFT, class->slab_pages, slab);
    }
    tide__mutex_unlock(&cache->zone_lock);
    if (is_taken) return TIDE_OK;
    if (!run.is_refused && tide__zone_grow(&cache->zone, class->slab_pages) == TIDE_OK) continue;
    if (!tide__cpu_recover(cache, (uint64_t) class->slab_pages << TIDE__PAGE_SHIFT, &step)) {
      return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %u pages of small blocks", class->slab_pages);
    }
  }
}

tide_status tide__slabs_grow(tide_cpu* cache, uint32_t class_number) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__slab* const slab = slab_take_record(cache, class_number);
  if (slab == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for the record of a slab");
  const tide_status status = slab_take_pages(cache, class, slab);
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

// Gives the pages of a slab of which nothing is used back to the common zone.
static void slab_end(tide_cpu* cache, tide__slab_class* class, tide__slab* slab) TIDE_REQUIRES(&class->lock) {
  tide__region* const region = tide__region_at(slab->address);
  const uint64_t first = (slab->address - region->address) >> TIDE__PAGE_SHIFT;
  slab_unlist(class, slab);
  class->slab_count--;
  tide__mutex_lock(&cache->zone_lock);
  slab_mark_pages(region, first, class->slab_pages, NULL);
  tide__zone_put(&cache->zone, region, first);
  tide__mutex_unlock(&cache->zone_lock);
  slab_give_record(class, slab);
}

// ---------------------------------------------------------------------------------------------------
// Objects

static uint32_t slab_take_object(tide__slab_class* class, tide__slab* slab) TIDE_REQUIRES(&class->lock) {
  uint32_t word = 0;
  while (slab->free_words[word] == 0) word++;
  const uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(slab->free_words[word]);
  slab->free_words[word] &= slab->free_words[word] - 1;
  if (--slab->free_count == 0) slab_unlist(class, slab);
  return index;
}

static void slab_put_object(tide_cpu* cache, tide__slab_class* class, tide__slab* slab, uint32_t index)
    TIDE_REQUIRES(&class->lock) {
  const uint64_t bit = (uint64_t)1 << index % 64;
  if ((slab->free_words[index / 64] & bit) != 0) return;  // two threads have released it at once
  slab->free_words[index / 64] |= bit;
  tide__store_relaxed(&slab->states[index], TIDE__OBJECT_FREE);
  slab->free_count++;
  if (!slab->is_listed) slab_list(class, slab);
  const bool is_last = class->listed == slab && slab->next == NULL;
  if (slab->free_count == slab->capacity && !is_last) slab_end(cache, class, slab);
}

bool tide__slabs_refill(tide_cpu* cache, tide__cpu_front* front, uint32_t class_number) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__magazine* const magazine = &front->magazines[class_number];
  const uint32_t wanted = tide__zone_cached(&front->zone) < front->zone.allowance ? magazine->capacity / 2
                                                                                  : 1;
  tide__mutex_lock(&class->lock);
  while (magazine->count < wanted && class->listed != NULL) {
    tide__slab* const slab = class->listed;
    const uint32_t index = slab_take_object(class, slab);
    const uint64_t bytes = (uint64_t) class->units << TIDE__SMALL_UNIT_SHIFT;
    tide__store_relaxed(&slab->states[index], TIDE__OBJECT_IDLE);
    magazine->objects[magazine->count++] =
        (tide__idle_object){ slab->address + index * bytes, &slab->states[index] };
    front->zone.magazine_bytes += bytes;
  }
  tide__mutex_unlock(&class->lock);
  return magazine->count > 0;
}

// The slab of an object that is known to be one.
static tide__slab* object_slab(uint64_t address) {
  const tide__region* const region = tide__region_at(address);
  return tide__load_relaxed(&region->pages[(address - region->address) >> TIDE__PAGE_SHIFT].slab);
}

// The oldest objects go, because the newest are warm.
void tide__slabs_flush(tide_cpu* cache, tide__cpu_front* front, uint32_t class_number, uint32_t left) {
  tide__slab_class* const class = &cache->classes[class_number];
  tide__magazine* const magazine = &front->magazines[class_number];
  if (magazine->count <= left) return;
  const uint32_t going = magazine->count - left;
  tide__mutex_lock(&class->lock);
  for (uint32_t i = 0; i < going; i++) {
    tide__slab* const slab = object_slab(magazine->objects[i].address);
    slab_put_object(cache, class, slab, (uint32_t)(magazine->objects[i].state - slab->states));
  }
  tide__mutex_unlock(&class->lock);
  for (uint32_t i = 0; i < left; i++) magazine->objects[i] = magazine->objects[going + i];
  magazine->count = (uint16_t)left;
  front->zone.magazine_bytes -= going * ((uint64_t) class->units << TIDE__SMALL_UNIT_SHIFT);
}

void tide__slabs_put(tide__slab* slab, uint32_t index) {
  tide__slab_class* const class = &slab->cache->classes[slab->class_number];
  tide__mutex_lock(&class->lock);
  slab_put_object(slab->cache, class, slab, index);
  tide__mutex_unlock(&class->lock);
}

void tide__slabs_trim(tide_cpu* cache) {
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
