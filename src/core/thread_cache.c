// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which thread has which caches. A thread has a list of its caches, one for each object it works with; one
// lock for all lists is taken when a thread meets an object for the first time, when it ends, and when an
// object goes.
#include "core/thread_cache.h"

#include <pthread.h>

#include "base/sys.h"

struct tide__thread_cache_thread {
  tide__thread_cache* first;  // borrowed; shared under caches_lock
  bool has_key;               // its end will be noticed
};

_Thread_local tide__thread_cache_recent tide__thread_cache_recents[TIDE__CACHE_RECENT];
static _Thread_local struct tide__thread_cache_thread this_thread;
static bool need_barriers;  // set before the first cache is made

static tide__mutex caches_lock;
static pthread_once_t caches_once = PTHREAD_ONCE_INIT;
static pthread_key_t caches_key;
static bool caches_have_key;
static tide__atomic_u64 caches_ids;

// ---------------------------------------------------------------------------------------------------
// Threads

// When a thread ends, other threads may have its caches, with their contents.
static void thread_end(void* thread) {
  struct tide__thread_cache_thread* const self = thread;
  tide__mutex_lock(&caches_lock);
  for (tide__thread_cache* cache = self->first; cache != NULL; cache = cache->thread_next)
    cache->thread = NULL;
  self->first = NULL;
  self->has_key = false;
  for (int i = 0; i < TIDE__CACHE_RECENT; i++) tide__thread_cache_recents[i].id = 0;
  tide__mutex_unlock(&caches_lock);
}

static void caches_start(void) {
  tide__mutex_init(&caches_lock, TIDE__RANK_THREAD_CACHES);
  need_barriers = !tide__sys_can_fence_all();
  caches_have_key = pthread_key_create(&caches_key, thread_end) == 0;
}

static void thread_own(tide__thread_cache* cache) TIDE_REQUIRES(&caches_lock) {
  cache->thread = &this_thread;
  cache->thread_next = this_thread.first;
  this_thread.first = cache;
}

static void thread_disown(tide__thread_cache* cache) TIDE_REQUIRES(&caches_lock) {
  if (cache->thread == NULL) return;
  tide__thread_cache** link = &cache->thread->first;
  while (*link != cache) link = &(*link)->thread_next;
  *link = cache->thread_next;
  cache->thread = NULL;
}

// The newest takes the first place; the one that had it moves to the others.
static void thread_remember(tide__thread_cache* cache) {
  tide__thread_cache_recent* const newest = &tide__thread_cache_recents[0];
  if (newest->id == cache->id) return;
  tide__thread_cache_recents[1 + newest->id % TIDE__CACHE_OTHERS] = *newest;
  *newest = (tide__thread_cache_recent){ cache->id, cache };
}

// ---------------------------------------------------------------------------------------------------
// Thread caches of an object

static tide__thread_cache* caches_make(tide__thread_caches* caches) {
  tide__thread_cache* const cache = tide__heap_alloc(caches->heap, 1, caches->cache_bytes);
  if (cache == NULL) return NULL;
  cache->id = caches->id;
  cache->hurdles = need_barriers ? TIDE__CACHE_SLOW : 0;
  caches->cache_init(cache, caches->owner);
  return cache;
}

static void caches_link(tide__thread_caches* caches, tide__thread_cache* cache) TIDE_REQUIRES(&caches_lock) {
  cache->next = tide__load_relaxed(&caches->first);
  tide__store_release(&caches->first, cache);  // pairs with tide__thread_caches_first
}

bool tide__thread_caches_init(tide__thread_caches* caches, const tide_heap* heap, size_t cache_bytes,
                              void (*cache_init)(void*, void*), void* owner) {
  (void)pthread_once(&caches_once, caches_start);
  *caches = (tide__thread_caches){ .id = tide__add_relaxed(&caches_ids, 1) + 1,
                                   .heap = heap,
                                   .cache_bytes = cache_bytes,
                                   .cache_init = cache_init,
                                   .owner = owner };
  tide__thread_cache* const common = caches_make(caches);
  if (common == NULL) return false;
  common->is_common = true;
  common->hurdles = TIDE__CACHE_SLOW;
  caches->common = common;
  tide__mutex_lock(&caches_lock);
  caches_link(caches, common);
  tide__mutex_unlock(&caches_lock);
  return true;
}

void tide__thread_caches_close(tide__thread_caches* caches) {
  tide__mutex_lock(&caches_lock);
  tide__store_relaxed(&caches->is_closed, 1);
  tide__mutex_unlock(&caches_lock);
}

void tide__thread_caches_fini(tide__thread_caches* caches) {
  tide__mutex_lock(&caches_lock);
  for (tide__thread_cache* cache = tide__thread_caches_first(caches); cache != NULL; cache = cache->next) {
    thread_disown(cache);
  }
  tide__mutex_unlock(&caches_lock);
  for (tide__thread_cache* cache = tide__thread_caches_first(caches); cache != NULL;) {
    tide__thread_cache* const next = cache->next;
    tide__heap_release(caches->heap, cache, 1, caches->cache_bytes);
    cache = next;
  }
}

// The thread's own cache, or one that nobody has, or NULL.
static tide__thread_cache* caches_claim(tide__thread_caches* caches) TIDE_REQUIRES(&caches_lock) {
  for (tide__thread_cache* cache = this_thread.first; cache != NULL; cache = cache->thread_next) {
    if (cache->id == caches->id) return cache;
  }
  for (tide__thread_cache* cache = tide__thread_caches_first(caches); cache != NULL; cache = cache->next) {
    if (cache->thread != NULL || cache->is_common) continue;
    thread_own(cache);
    return cache;
  }
  return NULL;
}

// Makes sure that the end of the thread is noticed.
static bool thread_watch(void) {
  if (this_thread.has_key) return true;
  this_thread.has_key = caches_have_key && pthread_setspecific(caches_key, &this_thread) == 0;
  return this_thread.has_key;
}

// A new cache for the calling thread; the common one if the object was closed meanwhile; NULL without memory.
static tide__thread_cache* caches_add(tide__thread_caches* caches) {
  tide__thread_cache* const cache = caches_make(caches);
  if (cache == NULL) return NULL;
  tide__mutex_lock(&caches_lock);
  caches_link(caches, cache);
  const bool is_closed = tide__load_relaxed(&caches->is_closed) != 0;
  if (!is_closed) thread_own(cache);
  tide__mutex_unlock(&caches_lock);
  return is_closed ? caches->common : cache;
}

// The calling thread's cache, or the common one.
static tide__thread_cache* caches_find(tide__thread_caches* caches) {
  if (!thread_watch()) return caches->common;
  tide__mutex_lock(&caches_lock);
  const bool is_closed = tide__load_relaxed(&caches->is_closed) != 0;
  tide__thread_cache* cache = is_closed ? caches->common : caches_claim(caches);
  tide__mutex_unlock(&caches_lock);
  if (cache == NULL) cache = caches_add(caches);
  if (cache == NULL || cache->is_common) return caches->common;
  thread_remember(cache);
  return cache;
}

// ---------------------------------------------------------------------------------------------------
// The biased lock

// Waits until bits of a word are 0: spins, then sleeps for ever longer.
static void wait_for_zero(tide__atomic_u32* word, uint32_t bits) {
  for (uint32_t turn = 0; (tide__load_seq(word) & bits) != 0; turn++) {  // pairs with who leaves
    if (turn < 64) tide__cpu_relax();
    else tide__sys_sleep_ns(turn < 256 ? 1000 : 50000);
  }
}

static void cache_enter(tide__thread_cache* cache) {
  for (;;) {
    tide__store_seq(&cache->is_busy, 1);
    if ((tide__load_seq(&cache->hurdles) & TIDE__CACHE_WANTED) == 0) return;  // pairs with cache_give
    tide__store_release(&cache->is_busy, 0);                                  // pairs with cache_take
    wait_for_zero(&cache->hurdles, TIDE__CACHE_WANTED);
  }
}

void* tide__thread_caches_enter_slow(tide__thread_caches* caches) {
  tide__thread_cache* const cache = caches_find(caches);
  if (cache->is_common) {
    tide__thread_cache_take(cache);
    return cache;
  }
  tide__rank_push(TIDE__RANK_THREAD_CACHE);
  cache_enter(cache);
  return cache;
}

void tide__thread_cache_leave_slow(tide__thread_cache* cache) {
  if (cache->is_common) {
    tide__thread_cache_give(cache);
    return;
  }
  tide__store_release(&cache->is_busy, 0);  // pairs with cache_take
  tide__rank_pop(TIDE__RANK_THREAD_CACHE);
}

// Every processor that runs this process passes a barrier, unless the owners have barriers of their own.
static void fence_all(void) {
  if (!need_barriers) tide__sys_fence_all();
}

// Says that a cache is wanted; nobody else can take it from then on.
static void cache_want(tide__thread_cache* cache) {
  while ((atomic_fetch_or(&cache->hurdles, TIDE__CACHE_WANTED) & TIDE__CACHE_WANTED) != 0) {
    wait_for_zero(&cache->hurdles, TIDE__CACHE_WANTED);
  }
}

// Pairs with the entry of its thread, and with the next taker.
static void cache_unwant(tide__thread_cache* cache) {
  (void)atomic_fetch_and_explicit(&cache->hurdles, ~TIDE__CACHE_WANTED, memory_order_release);
}

static void cache_take(tide__thread_cache* cache) {
  cache_want(cache);
  if (cache->is_common) return;
  fence_all();
  wait_for_zero(&cache->is_busy, 1);
  fence_all();
}

static void cache_give(tide__thread_cache* cache) {
  if (!cache->is_common) fence_all();
  cache_unwant(cache);
}

void tide__thread_cache_take(tide__thread_cache* cache) {
  tide__rank_push(TIDE__RANK_THREAD_CACHE);
  cache_take(cache);
}

void tide__thread_cache_give(tide__thread_cache* cache) {
  cache_give(cache);
  tide__rank_pop(TIDE__RANK_THREAD_CACHE);
}

// Everybody takes several caches in the order of the list, which never changes, so there is no deadlock. The
// common cache is never entered as a thread's own, so it is never busy.
tide__thread_cache* tide__thread_caches_take_all(tide__thread_caches* caches) {
  tide__thread_cache* const first = tide__thread_caches_first(caches);
  tide__rank_push(TIDE__RANK_THREAD_CACHE);
  for (tide__thread_cache* cache = first; cache != NULL; cache = cache->next) cache_want(cache);
  fence_all();
  for (tide__thread_cache* cache = first; cache != NULL; cache = cache->next) {
    wait_for_zero(&cache->is_busy, 1);
  }
  fence_all();
  return first;
}

void tide__thread_caches_give_all(tide__thread_cache* first) {
  fence_all();
  for (tide__thread_cache* cache = first; cache != NULL; cache = cache->next) cache_unwant(cache);
  tide__rank_pop(TIDE__RANK_THREAD_CACHE);
}

// ---------------------------------------------------------------------------------------------------
// Forks

void tide__thread_caches_lock_all(void) TIDE_UNCHECKED_LOCKING {
  (void)pthread_once(&caches_once, caches_start);
  tide__mutex_lock(&caches_lock);
}

void tide__thread_caches_unlock_all(void) TIDE_UNCHECKED_LOCKING { tide__mutex_unlock(&caches_lock); }

void tide__thread_caches_before_fork(tide__thread_caches* caches) {
  for (tide__thread_cache* cache = tide__thread_caches_first(caches); cache != NULL; cache = cache->next)
    cache_take(cache);
}

void tide__thread_caches_after_fork(tide__thread_caches* caches, bool is_child) {
  for (tide__thread_cache* cache = tide__thread_caches_first(caches); cache != NULL; cache = cache->next) {
    if (is_child && cache->thread != &this_thread) cache->thread = NULL;
    cache_give(cache);
  }
}
