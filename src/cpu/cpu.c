// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Requests and releases. A small request takes an object from the thread's magazine of its class, and a
// release puts one there: neither involves another thread. Everything else (an empty magazine, a new region,
// a limit, the clock) is done outside the thread cache, which is entered again afterwards.
#include "tidemark/cpu.h"

#include "base/arith.h"
#include "base/check.h"
#include "base/error.h"
#include "base/sys.h"
#include "cpu/cpu_release.h"
#include "cpu/region_blocks.h"
#include "memory/fill.h"

// Rare paths are kept out of the functions that every request goes through, so that these need no stack.
#define CPU_SELDOM __attribute__((noinline))

// ---------------------------------------------------------------------------------------------------
// Around a thread cache

// What to do after the thread cache has been left.
typedef struct cpu_after {
  bool sweeps;    // give old memory back, if it is time to
  bool enforces;  // the limit of cached bytes, of this zone
  tide__zone* zone;
} cpu_after;

static void tcache_flush_tally(tide_cpu_cache* cache, tide__cpu_tcache* tcache, cpu_after* after) {
  tide__cpu_flush_tally(cache, tcache);
  if (tcache->tally.flushes % TIDE__FLUSHES_PER_SWEEP == 0) after->sweeps = true;
}

static inline void tcache_flush_if_due(tide_cpu_cache* cache, tide__cpu_tcache* tcache, cpu_after* after) {
  if (tcache->tally.changes >= TIDE__CHANGES_PER_FLUSH) tcache_flush_tally(cache, tcache, after);
}

// Reads the clock, with which idle blocks are stamped. A thread that reads the same tick many times reads the
// clock only now and then.
static void tcache_read_clock(tide_cpu_cache* cache, tide__cpu_tcache* tcache) {
  tide__cpu_tally* const tally = &tcache->tally;
  if (tally->changes < tally->clock_at) return;
  const uint32_t before = tide__load_relaxed(&cache->stamp);
  tally->same_ticks = tide__cpu_read_clock(cache) == before ? tally->same_ticks + 1 : 0;
  const bool is_often = tally->same_ticks >= TIDE__READS_IN_A_TICK;
  tally->clock_at = tally->changes + (is_often ? TIDE__CHANGES_PER_CLOCK : 0);
}

static void cpu_do_after(tide_cpu_cache* cache, const cpu_after* after) {
  if (after->enforces) tide__cpu_enforce(cache, after->zone);
  if (after->sweeps) tide__cpu_sweep_if_due(cache);
}

// ---------------------------------------------------------------------------------------------------
// Small blocks

// Takes an object from a magazine; 0 if the magazine is empty, or if its newest object is not idle. Such an
// object was released by two threads at the same moment, and is another thread's now.
static inline uint64_t magazine_take(tide__cpu_magazine* magazine, uint32_t class_number) {
  const tide__idle_object object = magazine->top[-1];
  if (tide__load_relaxed(object.mark) != tide__mark_idle(class_number)) return 0;
  magazine->top--;
  magazine->takes_left--;
  tide__store_relaxed(object.mark, tide__mark_live(class_number));
  return object.address;
}

// Skips objects that are not idle, and refills an empty magazine.
static uint64_t small_take(tide_cpu_cache* cache, tide__cpu_tcache* tcache, uint32_t class_number) {
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  uint64_t address = magazine_take(magazine, class_number);
  while (address == 0 && tide__cpu_magazine_count(tcache, class_number) > 0) {
    magazine->top--;
    address = magazine_take(magazine, class_number);
  }
  if (address != 0 || !tide__slabs_refill(cache, tcache, class_number)) return address;
  return magazine_take(magazine, class_number);
}

CPU_SELDOM static tide_status small_alloc_slowly(tide_cpu_cache* cache, uint32_t class_number, void** out) {
  cpu_after after = { 0 };
  uint64_t address = 0;
  *out = NULL;
  for (;;) {
    tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
    if (tcache->magazines[class_number].takes_left == 0) tcache_flush_tally(cache, tcache, &after);
    address = small_take(cache, tcache, class_number);
    tcache_flush_if_due(cache, tcache, &after);
    tide__thread_caches_leave(tcache);
    if (address != 0) break;
    const tide_status status = tide__slabs_grow(cache, class_number, tide__cpu_recover);
    if (status != TIDE_OK) {
      tide__cpu_count(cache, TIDE__CPU_num_ooms, status == TIDE_ERR_NO_MEMORY ? 1 : 0);
      return status;
    }
  }
  cpu_do_after(cache, &after);
  *out = tide__pointer(address);
  return TIDE_OK;
}

static inline tide_status small_alloc(tide_cpu_cache* cache, uint32_t class_number, void** out) {
  tide__cpu_tcache* const tcache = tide__thread_caches_enter_fast(cache->tcaches.id);
  if (tcache == NULL) return small_alloc_slowly(cache, class_number, out);
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  const uint64_t address = magazine->takes_left != 0 ? magazine_take(magazine, class_number) : 0;
  tide__thread_cache_leave_fast(tcache);
  if (address == 0) return small_alloc_slowly(cache, class_number, out);
  *out = tide__pointer(address);
  return TIDE_OK;
}

// Puts an object into a magazine that has room for it.
static inline void magazine_put(tide__cpu_magazine* magazine, uint32_t class_number, uint64_t address,
                                tide__atomic_u8* mark) {
  *magazine->top++ = (tide__idle_object){ address, mark };
  tide__store_relaxed(mark, tide__mark_idle(class_number));
}

// Returns an object to its slab without a magazine.
static void small_put_back(tide__cpu_tcache* tcache, tide__slab* slab, uint32_t index) {
  tcache->tally.blocks--;
  tcache->tally.bytes -= slab->object_bytes;  // after the next line the slab may have ended
  tide__slabs_put(slab, index);
  tcache->tally.changes++;
}

CPU_SELDOM static tide_status small_release(tide__region* region, tide__slab* slab, uint64_t address) {
  uint32_t index = 0;
  if (!tide__slab_index(slab, address, &index)) return tide__release_foreign(address);
  tide_cpu_cache* const cache = slab->cache;
  const uint32_t class_number = slab->class_number;
  cpu_after after = { 0 };
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  if (tide__load_relaxed(&cache->is_ending) != 0) {
    tide__thread_caches_leave(tcache);
    return tide__orphan_release(region, address);
  }
  const bool has_magazine = magazine->end > &tcache->objects[class_number][1];
  // Flush before the claim: in a double release the object may be in the magazine already.
  if (has_magazine && magazine->top == magazine->end) {
    tide__slabs_flush(cache, tcache, class_number, tide__cpu_magazine_count(tcache, class_number) / 2);
  }
  if (!tide__slab_claim(slab, index)) {
    tide__thread_caches_leave(tcache);
    return tide__release_twice(cache, address);
  }
  if (!has_magazine) small_put_back(tcache, slab, index);
  if (has_magazine) magazine_put(magazine, class_number, address, tide__slab_mark(slab, index));
  tcache_flush_if_due(cache, tcache, &after);
  after.zone = &tcache->zone;
  after.enforces = !has_magazine;
  tide__cpu_hold(cache);
  tide__thread_caches_leave(tcache);
  cpu_do_after(cache, &after);
  tide__cpu_drop(cache);
  return TIDE_OK;
}

// The fast path of a release: a live object in the window goes into a magazine that has room. An ending cache
// has no fast thread caches, so its objects do not take this path.
static inline bool window_release(uint64_t address) {
  const uint64_t offset = address - tide__load_relaxed(&tide__window.address);
  if (offset >= TIDE__WINDOW_BYTES || tide__window.marks == NULL) return false;
  tide__atomic_u8* const mark = &tide__window.marks[offset >> TIDE__MARK_SHIFT];
  const uint32_t value = tide__load_relaxed(mark);
  if (value < TIDE__MARK_LIVE || !tide__is_aligned(offset, TIDE__CPU_ALIGNMENT)) return false;
  const uint64_t id = tide__load_relaxed(&tide__window.ids[offset >> TIDE__WINDOW_SLOT_SHIFT]);
  tide__cpu_tcache* const tcache = tide__thread_caches_enter_fast(id);
  if (tcache == NULL) return false;
  const uint32_t class_number = value - TIDE__MARK_LIVE - 1;
  tide__cpu_magazine* const magazine = &tcache->magazines[class_number];
  const bool has_room = magazine->top != magazine->end;
  if (has_room) magazine_put(magazine, class_number, address, mark);
  tide__thread_cache_leave_fast(tcache);
  return has_room;
}

// ---------------------------------------------------------------------------------------------------
// Blocks of pages

static tide_status pages_fail(tide_cpu_cache* cache, uint64_t pages) {
  tide__cpu_count(cache, TIDE__CPU_num_ooms, 1);
  const uint64_t bytes = tide__load_relaxed(&cache->system_pages) << TIDE__PAGE_SHIFT;
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "no memory for %llu bytes; the cache holds %llu bytes of the system",
                   (unsigned long long)(pages << TIDE__PAGE_SHIFT), (unsigned long long)bytes);
}

static tide_status pages_alloc(tide_cpu_cache* cache, uint64_t pages, uint64_t alignment,
                               tide__page_block* out) {
  cpu_after after = { 0 };
  for (uint32_t step = 0;;) {
    tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
    tcache_read_clock(cache, tcache);
    tide__zone_drain(&tcache->zone);
    const bool is_taken = tide__zone_take(&tcache->zone, pages, alignment, out);
    if (is_taken) {
      tide__cpu_note_pages(tcache, 1, (int64_t)(pages << TIDE__PAGE_SHIFT));
      tcache_flush_if_due(cache, tcache, &after);
    }
    tide__thread_caches_leave(tcache);
    if (is_taken) break;
    if (!out->is_refused && tide__zone_grow(&tcache->zone, pages + alignment - 1) == TIDE_OK) continue;
    if (!tide__cpu_recover(cache, pages << TIDE__PAGE_SHIFT, &step)) return pages_fail(cache, pages);
  }
  if (after.sweeps) cpu_do_after(cache, &after);
  return TIDE_OK;
}

// The fast path of a request for pages: the thread's first region has an idle block for it, and all of its
// pages have memory.
static inline uint64_t pages_take_simply(tide_cpu_cache* cache, uint64_t pages) {
  tide__cpu_tcache* const tcache = tide__thread_caches_enter_fast(cache->tcaches.id);
  tide__region_place place = { 0 };
  if (tcache == NULL) return 0;
  tide__region* const region = tcache->zone.regions;
  const bool is_simple = region != NULL && region->has_purge &&
                         tcache->tally.changes < tcache->tally.clock_at &&
                         region->resident_pages == tide__region_top(region) &&
                         tide__region_take_simply(region, pages, &place);
  if (is_simple) {
    tcache->zone.idle_pages -= pages;
    tide__cpu_note_pages(tcache, 1, (int64_t)(pages << TIDE__PAGE_SHIFT));
  }
  tide__thread_cache_leave_fast(tcache);
  return is_simple ? tide__region_address(region, place.page) : 0;
}

static tide_status pages_alloc_single(tide_cpu_cache* cache, uint64_t pages, uint64_t alignment,
                                      tide__page_block* out) {
  cpu_after after = { 0 };
  for (uint32_t step = 0; tide__zone_take_single(&cache->zone, pages, alignment, out) != TIDE_OK;) {
    if (!tide__cpu_recover(cache, pages << TIDE__PAGE_SHIFT, &step)) return pages_fail(cache, pages);
  }
  tide__cpu_count(cache, TIDE__CPU_num_uncached, 1);
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  tide__cpu_note_pages(tcache, 1, (int64_t)(pages << TIDE__PAGE_SHIFT));
  tcache_flush_if_due(cache, tcache, &after);
  tide__thread_caches_leave(tcache);
  cpu_do_after(cache, &after);
  return TIDE_OK;
}

// Returns a claimed block to its zone: directly if the zone is that of the entered thread cache, otherwise
// through its list of remote frees. False if it is the common zone.
static bool pages_return(tide__cpu_tcache* tcache, tide__region* region, uint64_t page, uint64_t bytes,
                         cpu_after* after) {
  tide__zone* const zone = region->zone;
  after->zone = zone;
  if (zone == &tcache->zone) {
    tide__zone_drain(zone);
    tide__zone_put(zone, region, page, tide__load_relaxed(&zone->cache->stamp));
    after->enforces = tide__zone_cached(zone) > zone->allowance;
    return true;
  }
  if (zone->tcache == NULL) return false;
  tide__zone_free_remote(zone, region, page);
  const uint64_t limit = tide__load_relaxed(&zone->cache->max_cached_bytes);
  if (limit != TIDE_NO_LIMIT) {
    after->enforces = tide__add_relaxed(&zone->remote_bytes, bytes) + bytes > limit / 16;
  }
  return true;
}

// The fast path of a release of pages: to the thread's own zone, with nothing else to do.
static inline bool pages_put_simply(tide_cpu_cache* cache, tide__region* region, uint64_t page) {
  tide__cpu_tcache* const tcache = tide__thread_caches_enter_fast(cache->tcaches.id);
  uint64_t pages = 0;
  if (tcache == NULL) return false;
  tide__zone* const zone = &tcache->zone;
  const bool is_simple = region->zone == zone && region->has_purge && zone->allowance == UINT64_MAX &&
                         tcache->tally.changes < tcache->tally.clock_at &&
                         tide__pages_claim(region, page, &pages);
  if (is_simple) {
    zone->idle_pages += tide__region_put(region, page, tide__load_relaxed(&cache->stamp));
    tide__cpu_note_pages(tcache, -1, -(int64_t)(pages << TIDE__PAGE_SHIFT));
  }
  tide__thread_cache_leave_fast(tcache);
  return is_simple;
}

static tide_status pages_release(tide__region* region, uint64_t page, uint64_t address) {
  tide_cpu_cache* const cache = region->zone->cache;
  if (pages_put_simply(cache, region, page)) return TIDE_OK;
  cpu_after after = { 0 };
  uint64_t pages = 0;
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  if (tide__load_relaxed(&cache->is_ending) != 0) {
    tide__thread_caches_leave(tcache);
    return tide__orphan_release(region, address);
  }
  if (!tide__pages_claim(region, page, &pages)) {
    tide__cpu_hold(cache);
    tide__thread_caches_leave(tcache);
    const tide_status status = tide__pages_refuse(region, address);
    tide__cpu_drop(cache);
    return status;
  }
  const uint64_t bytes = pages << TIDE__PAGE_SHIFT;
  tcache_read_clock(cache, tcache);
  const bool is_returned = pages_return(tcache, region, page, bytes, &after);
  tide__cpu_note_pages(tcache, -1, -(int64_t)bytes);
  tcache_flush_if_due(cache, tcache, &after);
  const bool has_more = !is_returned || after.enforces || after.sweeps;
  if (has_more) tide__cpu_hold(cache);
  tide__thread_caches_leave(tcache);
  if (has_more) {
    if (!is_returned) tide__zone_put_back(&cache->zone, region, page);
    after.enforces |= !is_returned;
    cpu_do_after(cache, &after);
    tide__cpu_drop(cache);
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory

// Fresh memory holds zeros already.
static void cpu_fill(tide_fill fill, void* address, uint64_t bytes, bool is_fresh) {
  if (fill == TIDE_FILL_ZEROS && is_fresh) return;
  tide__memory_fill(fill, address, bytes);
}

static bool cpu_is_small(uint64_t bytes, uint64_t alignment) {
  if (bytes > TIDE__SMALL_MAX_BYTES) return false;
  return alignment <= TIDE__CPU_ALIGNMENT || (alignment <= TIDE__PAGE_BYTES && bytes <= TIDE__PAGE_BYTES);
}

// The class of a small request. Objects whose size is a power of two are aligned to it.
static uint32_t cpu_small_class(uint64_t bytes, uint64_t alignment) {
  uint64_t wanted = bytes;
  if (alignment > TIDE__CPU_ALIGNMENT) {
    wanted = tide__max(bytes, alignment);
    wanted = (uint64_t)1 << (64 - __builtin_clzll(wanted - 1));
  }
  return tide__class_of((wanted + TIDE__CPU_ALIGNMENT - 1) >> TIDE__SMALL_UNIT_SHIFT);
}

static tide_status cpu_alloc(tide_cpu_cache* cache, uint64_t bytes, uint64_t alignment, tide_fill fill,
                             void** out) {
  tide__page_block run = { 0 };
  if (cpu_is_small(bytes, alignment)) {
    TIDE_TRY(small_alloc(cache, cpu_small_class(bytes, alignment), out));
  } else {
    const uint64_t pages = (bytes + TIDE__PAGE_BYTES - 1) >> TIDE__PAGE_SHIFT;
    const uint64_t step = tide__max(alignment >> TIDE__PAGE_SHIFT, 1);
    if (pages > cache->most_pages) return pages_fail(cache, pages);
    const bool is_single = pages << TIDE__PAGE_SHIFT > cache->options.max_block_bytes;
    TIDE_TRY(is_single ? pages_alloc_single(cache, pages, step, &run)
                       : pages_alloc(cache, pages, step, &run));
    *out = tide__pointer(run.address);
  }
  if (fill != TIDE_FILL_NOTHING) cpu_fill(fill, *out, bytes, run.is_fresh);
  return TIDE_OK;
}

CPU_SELDOM static tide_status cpu_alloc_checked(tide_cpu_cache* cache, uint64_t bytes, uint64_t alignment,
                                                tide_fill fill, void** out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "alloc: the result is NULL");
  *out = NULL;
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "alloc: the cache is NULL");
  TIDE_REQUIRE(bytes <= TIDE_CPU_MAX_BYTES, TIDE_ERR_ARGUMENT,
               "alloc: %llu bytes are above the limit of %llu", (unsigned long long)bytes,
               (unsigned long long)TIDE_CPU_MAX_BYTES);
  TIDE_REQUIRE(tide__is_power_of_two(alignment) && alignment <= TIDE_CPU_MAX_ALIGNMENT, TIDE_ERR_ARGUMENT,
               "alloc: %llu is not an alignment", (unsigned long long)alignment);
  return bytes != 0 ? cpu_alloc(cache, bytes, alignment, fill, out) : TIDE_OK;
}

// Requests that are not small, or are to be filled.
CPU_SELDOM static tide_status cpu_alloc_beyond(tide_cpu_cache* cache, size_t bytes, void** out) {
  if (cache != NULL && out != NULL && bytes < cache->fast_pages_bytes && bytes != 0) {
    const uint64_t address = pages_take_simply(cache, (bytes + TIDE__PAGE_BYTES - 1) >> TIDE__PAGE_SHIFT);
    *out = tide__pointer(address);
    if (address != 0) return TIDE_OK;
  }
  const tide_fill fill = cache != NULL ? cache->options.fill : TIDE_FILL_NOTHING;
  return cpu_alloc_checked(cache, bytes, TIDE__CPU_ALIGNMENT, fill, out);
}

tide_status tide_cpu_alloc(tide_cpu_cache* cache, size_t bytes, void** out) {
  const uint64_t last_byte = (uint64_t)bytes - 1;
  if (cache != NULL && out != NULL && last_byte < cache->fast_bytes) {
    return small_alloc(cache, tide__class_to(last_byte >> TIDE__SMALL_UNIT_SHIFT), out);
  }
  return cpu_alloc_beyond(cache, bytes, out);
}

tide_status tide_cpu_alloc_aligned(tide_cpu_cache* cache, size_t bytes, size_t alignment, void** out) {
  const tide_fill fill = cache != NULL ? cache->options.fill : TIDE_FILL_NOTHING;
  return cpu_alloc_checked(cache, bytes, alignment, fill, out);
}

tide_status tide_cpu_alloc_zeros(tide_cpu_cache* cache, size_t bytes, void** out) {
  return cpu_alloc_checked(cache, bytes, TIDE__CPU_ALIGNMENT, TIDE_FILL_ZEROS, out);
}

CPU_SELDOM static tide_status cpu_release(uint64_t address) {
  if (address == 0) return TIDE_OK;
  tide__region* const region = tide__region_at(address);
  if (region == NULL || !tide__is_aligned(address, TIDE__CPU_ALIGNMENT))
    return tide__release_foreign(address);
  const uint64_t page = tide__region_page(region, address);
  tide__slab* const slab = tide__region_slab(region, page);
  if (slab != NULL) return small_release(region, slab, address);
  if (!tide__is_aligned(address, TIDE__PAGE_BYTES)) return tide__release_foreign(address);
  return pages_release(region, page, address);
}

tide_status tide_cpu_release(void* pointer) {
  const uint64_t address = tide__address(pointer);
  return window_release(address) ? TIDE_OK : cpu_release(address);
}

// The cache is held meanwhile, unless it is ending.
tide_status tide_cpu_forget(void* pointer) {
  const uint64_t address = tide__address(pointer);
  if (pointer == NULL) return TIDE_OK;
  tide__region* const region = tide__region_at(address);
  if (region == NULL) return tide__release_foreign(address);
  tide_cpu_cache* const cache = region->zone->cache;
  tide__cpu_tcache* const tcache = tide__thread_caches_enter(&cache->tcaches);
  const bool is_ending = tide__load_relaxed(&cache->is_ending) != 0;
  if (!is_ending) tide__cpu_hold(cache);
  tide__thread_caches_leave(tcache);
  if (is_ending) return tide__orphan_release(region, address);
  const tide_status status = tide__cpu_release_slowly(region, address, TIDE__RELEASE_FORGET);
  if (status == TIDE_OK) tide__cpu_enforce(cache, &cache->zone);
  tide__cpu_drop(cache);
  return status;
}
