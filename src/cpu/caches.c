// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All caches of the process, in the order they were made, and forks.
#include "cpu/cache.h"

#include <pthread.h>

static tide__mutex caches_lock = TIDE__MUTEX_INIT(TIDE__RANK_CACHES);
static tide_cpu_cache* caches_first;  // borrowed; shared under caches_lock, like the links
static pthread_once_t caches_once = PTHREAD_ONCE_INIT;

// ---------------------------------------------------------------------------------------------------
// Forks: all locks are held across a fork, so the child finds every cache in a consistent state

static void fork_lock_cache(tide_cpu_cache* cache) {
  tide__thread_caches_before_fork(&cache->tcaches);
  for (int i = 0; i < TIDE__SMALL_CLASSES; i++) tide__mutex_lock_many(&cache->classes[i].lock);
  tide__mutex_lock_many(&cache->zone_lock);
  tide__mutex_lock_many(&cache->totals_lock);
}

static void fork_unlock_cache(tide_cpu_cache* cache, bool is_child) {
  tide__mutex_unlock_many(&cache->totals_lock);
  tide__mutex_unlock_many(&cache->zone_lock);
  for (int i = TIDE__SMALL_CLASSES; i-- > 0;) tide__mutex_unlock_many(&cache->classes[i].lock);
  tide__thread_caches_after_fork(&cache->tcaches, is_child);
  if (!is_child) return;
  cache->has_helper = false;
  tide__store_relaxed(&cache->holds, 0);
}

static void fork_prepare(void) {
  tide__mutex_lock_many(&caches_lock);
  tide__thread_caches_lock_all();
  tide__regions_lock();
  for (tide_cpu_cache* cache = caches_first; cache != NULL; cache = cache->next) fork_lock_cache(cache);
}

static void fork_end(bool is_child) {
  for (tide_cpu_cache* cache = caches_first; cache != NULL; cache = cache->next) {
    fork_unlock_cache(cache, is_child);
  }
  tide__regions_unlock();
  tide__thread_caches_unlock_all();
  tide__mutex_unlock_many(&caches_lock);
}

static void fork_parent(void) { fork_end(false); }
static void fork_child(void) { fork_end(true); }

static void caches_start(void) { (void)pthread_atfork(fork_prepare, fork_parent, fork_child); }

// ---------------------------------------------------------------------------------------------------
// The list

void tide__caches_add(tide_cpu_cache* cache) {
  (void)pthread_once(&caches_once, caches_start);
  tide__mutex_lock(&caches_lock);
  tide_cpu_cache** link = &caches_first;
  while (*link != NULL) link = &(*link)->next;
  *link = cache;
  tide__mutex_unlock(&caches_lock);
}

void tide__caches_remove(tide_cpu_cache* cache) {
  tide__mutex_lock(&caches_lock);
  tide_cpu_cache** link = &caches_first;
  while (*link != cache) link = &(*link)->next;
  *link = cache->next;
  tide__mutex_unlock(&caches_lock);
}

tide_cpu_cache* tide__caches_hold_next(tide_cpu_cache* cache) {
  tide__mutex_lock(&caches_lock);
  tide_cpu_cache* next = cache != NULL ? cache->next : caches_first;
  while (next != NULL && tide__load_relaxed(&next->is_ending) != 0) next = next->next;
  if (next != NULL) tide__cpu_hold(next);
  tide__mutex_unlock(&caches_lock);
  if (cache != NULL) tide__cpu_drop(cache);
  return next;
}
