// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics: the totals of a cache and of each pool, to which the thread caches add what they counted. What
// changes with a call of the machine is counted in the totals at once, what waits with the waiting.
// Locks: totals, waits.
#include "base/sized.h"
#include "pinned/pinned_cache.h"

static void stats_add_tally(tide_pinned_stats* stats, const tide__pin_tally* tally) {
  tide_stat* const to[TIDE__PIN_COUNTS] = { &stats->active_requests, &stats->active_bytes };
  for (int i = 0; i < TIDE__PIN_COUNTS; i++) tide__stat_add(to[i], tally->counts[i]);
}

void tide__pin_totals_add(tide_pinned_cache* pinned, tide__pin_tally* tally) {
  tide__mutex_lock(&pinned->totals_lock);
  stats_add_tally(&pinned->totals, tally);
  stats_add_tally(&tally->pool->stats, tally);
  tide__mutex_unlock(&pinned->totals_lock);
  *tally = (tide__pin_tally){ .pool = tally->pool };
}

static void stats_segment(tide_pinned_stats* stats, const tide__pin_segment* segment, bool is_made) {
  const int64_t blocks = (int64_t)segment->capacity;
  const int64_t block_bytes = blocks * (int64_t)segment->block_bytes;
  const int64_t bytes = (int64_t)segment->memory.bytes;
  tide__stat_move(&stats->allocations, is_made ? blocks : -blocks);
  tide__stat_move(&stats->allocated_bytes, is_made ? block_bytes : -block_bytes);
  tide__stat_move(&stats->segments, is_made ? 1 : -1);
  tide__stat_move(&stats->reserved_bytes, is_made ? bytes : -bytes);
}

void tide__pin_totals_segment(tide_pinned_cache* pinned, const tide__pin_segment* segment, bool is_made) {
  const int64_t blocks = (int64_t)segment->capacity;
  tide__mutex_lock(&pinned->totals_lock);
  stats_segment(&pinned->totals, segment, is_made);
  stats_segment(&segment->pool->stats, segment, is_made);
  pinned->class_blocks[segment->class_index] += is_made ? blocks : -blocks;
  if (is_made) pinned->class_made[segment->class_index] += segment->capacity;
  tide__mutex_unlock(&pinned->totals_lock);
}

static void stats_call(tide_pinned_stats* stats, bool is_alloc, uint64_t ns) {
  tide__duration_add(is_alloc ? &stats->host_alloc_time : &stats->host_free_time, ns);
  if (is_alloc) stats->num_host_alloc++;
  else stats->num_host_free++;
}

void tide__pin_totals_call(tide_pinned_cache* pinned, tide__pin_pool* pool, bool is_alloc, uint64_t ns) {
  tide__mutex_lock(&pinned->totals_lock);
  stats_call(&pinned->totals, is_alloc, ns);
  stats_call(&pool->stats, is_alloc, ns);
  tide__mutex_unlock(&pinned->totals_lock);
}

void tide__pin_totals_count(tide_pinned_cache* pinned, tide__pin_pool* pool, size_t field_offset, int64_t n) {
  tide__mutex_lock(&pinned->totals_lock);
  *(int64_t*)(void*)((char*)&pinned->totals + field_offset) += n;
  *(int64_t*)(void*)((char*)&pool->stats + field_offset) += n;
  tide__mutex_unlock(&pinned->totals_lock);
}

// ---------------------------------------------------------------------------------------------------
// Asking and resetting

// Adds what all thread caches counted.
void tide__pin_totals_settle(tide_pinned_cache* pinned) {
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) {
    tide__thread_cache_take(tcache);
    tide__pin_settle_locked(pinned, (tide__pin_tcache*)(void*)tcache);
    tide__thread_cache_give(tcache);
  }
}

static tide_status stats_copy(tide_pinned_cache* pinned, const tide_pinned_stats* from,
                              tide_pinned_stats* out) {
  tide__pin_totals_settle(pinned);
  tide__mutex_lock(&pinned->waits.lock);
  tide__mutex_lock(&pinned->totals_lock);
  const tide_status status = tide__sized_write("pinned_get_stats", from, out, sizeof *from);
  tide__mutex_unlock(&pinned->totals_lock);
  tide__mutex_unlock(&pinned->waits.lock);
  return status;
}

tide_status tide_pinned_get_stats(tide_pinned_cache* pinned, tide_pinned_stats* out) {
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_get_stats: no cache or out");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_get_stats");
  return stats_copy(pinned, &pinned->totals, out);
}

tide_status tide_pinned_pool_stats(tide_pinned_cache* pinned, tide_pool pool, tide_pinned_stats* out) {
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_stats: no cache or out");
  const tide__pin_pool* const found = tide__pin_pool_find(pinned, pool);
  TIDE_REQUIRE(found != NULL, TIDE_ERR_HANDLE, "pinned_pool_stats: there is no pool %u", pool);
  return stats_copy(pinned, &found->stats, out);
}

tide_status tide_pinned_get_class(tide_pinned_cache* pinned, uint32_t index, tide_pinned_class* out) {
  TIDE_REQUIRE(pinned != NULL && out != NULL && index < TIDE__PIN_KINDS, TIDE_ERR_ARGUMENT,
               "pinned_get_class: no cache, no out, or no class %u", index);
  tide_pinned_class class = TIDE_PINNED_CLASS_INIT;
  if (index != TIDE__PIN_SIZED) class.bytes = tide__pin_class_bytes(index);
  tide__mutex_lock(&pinned->totals_lock);
  class.blocks = pinned->class_blocks[index];
  class.made = pinned->class_made[index];
  tide__mutex_unlock(&pinned->totals_lock);
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) {
    tide__thread_cache_take(tcache);
    const tide__pin_magazine* const magazine = &((tide__pin_tcache*)(void*)tcache)->magazines[index];
    class.active += magazine->active;
    class.handed_out += magazine->handed_out;
    tide__thread_cache_give(tcache);
  }
  return tide__sized_write("pinned_get_class", &class, out, sizeof class);
}

static void stats_forget_sums(tide_pinned_stats* stats) {
#define FORGET_SUMS(name) tide__stat_forget_sums(&stats->name);
  TIDE_PINNED_STAT_MAP(FORGET_SUMS)
#undef FORGET_SUMS
#define FORGET_COUNT(name) stats->name = 0;
  TIDE_PINNED_COUNTER_MAP(FORGET_COUNT)
#undef FORGET_COUNT
  tide__duration_forget_sums(&stats->host_alloc_time);
  tide__duration_forget_sums(&stats->host_free_time);
}

static void stats_forget_peaks(tide_pinned_stats* stats) {
#define FORGET_PEAK(name) tide__stat_forget_peak(&stats->name);
  TIDE_PINNED_STAT_MAP(FORGET_PEAK)
#undef FORGET_PEAK
  tide__duration_forget_peak(&stats->host_alloc_time);
  tide__duration_forget_peak(&stats->host_free_time);
}

// Changes the totals and the statistics of every pool.
static void stats_each(tide_pinned_cache* pinned, void (*change)(tide_pinned_stats* stats)) {
  tide__pin_totals_settle(pinned);
  tide__mutex_lock(&pinned->waits.lock);
  tide__mutex_lock(&pinned->pools_lock);
  tide__mutex_lock(&pinned->totals_lock);
  change(&pinned->totals);
  change(&pinned->default_pool->stats);
  tide__pool_base* pool = tide__pools_first_locked(&pinned->pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) change(&tide__pin_pool_at(pool)->stats);
  tide__mutex_unlock(&pinned->totals_lock);
  tide__mutex_unlock(&pinned->pools_lock);
  tide__mutex_unlock(&pinned->waits.lock);
}

void tide_pinned_reset_accumulated(tide_pinned_cache* pinned) {
  if (pinned == NULL) return;
  stats_each(pinned, stats_forget_sums);
  tide__mutex_lock(&pinned->totals_lock);
  for (uint32_t i = 0; i < TIDE__PIN_KINDS; i++) pinned->class_made[i] = 0;
  tide__mutex_unlock(&pinned->totals_lock);
  tide__thread_cache* tcache = tide__thread_caches_first(&pinned->tcaches);
  for (; tcache != NULL; tcache = tcache->next) {
    tide__pin_tcache* const f = (tide__pin_tcache*)(void*)tcache;
    tide__thread_cache_take(tcache);
    for (uint32_t i = 0; i < TIDE__PIN_KINDS; i++) f->magazines[i].handed_out = 0;
    tide__thread_cache_give(tcache);
  }
}

void tide_pinned_reset_peaks(tide_pinned_cache* pinned) {
  if (pinned != NULL) stats_each(pinned, stats_forget_peaks);
}
