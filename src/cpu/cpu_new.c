// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Making a cache, its upkeep on request, and the cache as a source of memory.
#include "base/arith.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/sys.h"
#include "cpu/cache.h"

// ---------------------------------------------------------------------------------------------------
// Options

static tide_status options_check(const tide_cpu_options* options) {
  const tide_memory* const memory = &options->memory;
  TIDE_REQUIRE(options->fill <= TIDE_FILL_JUNK, TIDE_ERR_ARGUMENT, "cpu_new: %u is not a fill",
               (unsigned)options->fill);
  TIDE_REQUIRE((memory->alloc == NULL) == (memory->release == NULL), TIDE_ERR_ARGUMENT,
               "cpu_new: the memory has only one of its functions");
  TIDE_REQUIRE(memory->alloc == NULL || memory->is_host, TIDE_ERR_ARGUMENT,
               "cpu_new: the memory is not host memory");
  TIDE_REQUIRE(tide__is_aligned(options->region_bytes, TIDE__REGION_UNIT) &&
                   options->region_bytes <= TIDE_CPU_MAX_BYTES,
               TIDE_ERR_ARGUMENT,
               "cpu_new: region_bytes is %llu, which is not a multiple of 2 MiB or is too large",
               (unsigned long long)options->region_bytes);
  TIDE_REQUIRE(options->max_block_bytes >= TIDE__SMALL_MAX_BYTES, TIDE_ERR_ARGUMENT,
               "cpu_new: max_block_bytes is %llu, which is below 64 KiB",
               (unsigned long long)options->max_block_bytes);
  TIDE_REQUIRE(tide__heap_is_valid(options->heap), TIDE_ERR_ARGUMENT,
               "cpu_new: the heap has only one of its functions");
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// The cache

static void tcache_init(void* memory, void* owner) {
  tide__cpu_tcache* const tcache = memory;
  tide_cpu_cache* const cache = owner;
  tide__zone_init(&tcache->zone, cache, tcache);
  for (uint32_t i = 0; i < TIDE__SMALL_CLASSES; i++) {
    tide__cpu_magazine* const magazine = &tcache->magazines[i];
    magazine->object_bytes = (uint32_t)(tide__class_units(i) << TIDE__SMALL_UNIT_SHIFT);
    magazine->takes_left = TIDE__TAKES_PER_FLUSH;
    magazine->top = &tcache->objects[i][1];
    tcache->objects[i][0].mark = &tcache->no_mark;
  }
  tide__cpu_magazines_open(tcache, tide__load_relaxed(&cache->max_cached_bytes) == TIDE_NO_LIMIT);
}

static void cache_set_up(tide_cpu_cache* cache, const tide_cpu_options* options, const tide_heap* heap) {
  const bool has_limit = options->max_cached_bytes != TIDE_NO_LIMIT;
  cache->options = *options;
  cache->heap = heap;
  cache->most_pages = options->memory.alloc == NULL ? tide__sys_memory_and_swap_bytes() >> TIDE__PAGE_SHIFT
                                                    : UINT64_MAX;
  const uint64_t most_bytes = tide__min(cache->most_pages, TIDE_CPU_MAX_BYTES >> TIDE__PAGE_SHIFT)
                              << TIDE__PAGE_SHIFT;
  cache->fast_pages_bytes =
      options->fill == TIDE_FILL_NOTHING ? tide__min(most_bytes, options->max_block_bytes) : 0;
  cache->fast_bytes = options->fill == TIDE_FILL_NOTHING ? TIDE__SMALL_MAX_BYTES : 0;
  cache->max_bytes = options->max_bytes;
  cache->max_cached_bytes = options->max_cached_bytes;
  cache->allowance_left = has_limit ? options->max_cached_bytes : 0;
  tide__mutex_init(&cache->zone_lock, TIDE__RANK_CHUNKS);
  tide__mutex_init(&cache->totals_lock, TIDE__RANK_TOTALS);
  tide__zone_init(&cache->zone, cache, NULL);
  tide__slabs_init(cache);
  if (options->idle_ns == 0) return;
  cache->tick_ns = tide__max(options->idle_ns / TIDE__TICKS_PER_IDLE, 1);
  cache->last_sweep = tide__sys_coarse_clock_ns() / cache->tick_ns;
  cache->stamp = (uint32_t)cache->last_sweep & TIDE__STAMP_MASK;
}

tide_status tide_cpu_new(const tide_cpu_options* options, tide_cpu_cache** out) {
  tide_cpu_options whole = TIDE_CPU_OPTIONS_INIT;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "cpu_new: the result is NULL");
  *out = NULL;
  if (options != NULL) TIDE_TRY(tide__sized_read("cpu_new", options, &whole, sizeof whole));
  options = &whole;
  TIDE_TRY(options_check(options));
  const tide_heap* const heap = tide__heap_or_system(options->heap);
  tide_cpu_cache* const cache = tide__heap_alloc(heap, 1, sizeof *cache);
  if (cache == NULL) return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "cpu_new: no memory for a cache");
  cache_set_up(cache, options, heap);
  if (!tide__thread_caches_init(&cache->tcaches, heap, sizeof(tide__cpu_tcache), tcache_init, cache)) {
    tide__heap_release(heap, cache, 1, sizeof *cache);
    return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "cpu_new: no memory for a thread cache");
  }
  tide__caches_add(cache);
  tide__monitored_add(&cache->monitored, cache, tide__cpu_row_fill);
  const tide_status status = tide__cpu_start_helper(cache);
  if (status == TIDE_OK) *out = cache;
  else tide_cpu_free(cache, NULL);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Upkeep

tide_status tide_cpu_trim(tide_cpu_cache* cache, uint64_t keep_bytes) {
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "trim: the cache is NULL");
  tide__cpu_trim(cache, keep_bytes);
  return TIDE_OK;
}

tide_status tide_cpu_poll(tide_cpu_cache* cache) {
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "poll: the cache is NULL");
  if (cache->tick_ns == 0) return TIDE_OK;
  tide__cpu_sweep_if_due(cache);
  tide__cpu_sweep(cache);
  tide__cpu_sweep(cache);  // empties magazines that were not used since the first
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Memory of others

tide_status tide_cpu_release_any(tide_cpu_cache* cache, void* address) {
  TIDE_REQUIRE(cache != NULL, TIDE_ERR_ARGUMENT, "release_any: the cache is NULL");
  const bool is_ours = address == NULL || tide__region_at(tide__address(address)) != NULL;
  if (is_ours || !cache->options.frees_foreign) return tide_cpu_release(address);
  const tide_memory* const own = &cache->options.memory;
  const tide_memory source = own->release != NULL ? *own : tide_memory_cpu();
  TIDE_TRY(source.release(&source, address));
  tide__cpu_count(cache, TIDE__CPU_num_foreign, 1);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// As a source

static tide_status source_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  return tide_cpu_alloc_aligned(memory->user, bytes, tide__max(alignment, 1), out);
}

static tide_status source_release(const tide_memory* memory, void* address) {
  return tide_cpu_release_any(memory->user, address);
}

tide_memory tide_cpu_memory(tide_cpu_cache* cache) {
  return (tide_memory){ .alloc = source_alloc, .release = source_release, .user = cache, .is_host = true };
}
