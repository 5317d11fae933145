// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pools and the scopes that send requests to them. A pool's life: made with one user; users come and go;
// without users it gives its memory back when the cache is emptied; without memory it is gone. Records of
// pools are used again, never freed before the cache. Lock: pools.
#include "pinned/pinned_cache.h"

tide__pin_pool* tide__pin_pool_make(tide_pinned* pinned) {
  tide__pin_pool* const pool = tide__heap_alloc(pinned->heap, 1, sizeof *pool);
  if (pool == NULL) return NULL;
  tide__list_init(&pool->link);
  tide__list_init(&pool->segments);
  tide__pin_depot_init(&pool->depot);
  pool->users = 1;
  pool->stats = (tide_pinned_stats)TIDE_PINNED_STATS_INIT;
  return pool;
}

static void copies_free(tide_pinned* pinned, tide__pin_copy* copy) {
  while (copy != NULL) {
    tide__pin_copy* const next = copy->next;
    tide__heap_release(pinned->heap, copy, 1, sizeof *copy);
    copy = next;
  }
}

static void pools_free(tide_pinned* pinned, tide__link* list) {
  while (!tide__list_is_empty(list)) {
    tide__pin_pool* const pool = TIDE_OWNER(list->next, tide__pin_pool, link);
    tide__list_unlink(&pool->link);
    copies_free(pinned, pool->copies);
    tide__heap_release(pinned->heap, pool, 1, sizeof *pool);
  }
}

void tide__pin_pools_fini(tide_pinned* pinned) {
  pools_free(pinned, &pinned->pools);
  pools_free(pinned, &pinned->idle_pools);
  tide__heap_release(pinned->heap, pinned->default_pool, 1, sizeof *pinned->default_pool);
}

tide__pin_pool* tide__pin_pool_find_locked(tide_pinned* pinned, tide_pool number) {
  if (number == TIDE_POOL_DEFAULT) return pinned->default_pool;
  TIDE_LIST_EACH(it, &pinned->pools) {
    tide__pin_pool* const pool = TIDE_OWNER(it, tide__pin_pool, link);
    if (pool->number == number) return pool;
  }
  return NULL;
}

// ---------------------------------------------------------------------------------------------------
// The end of a pool

// A private pool without users that this pass has not been to: a guest holds it. NULL if there is none.
static tide__pin_pool* unused_next(tide_pinned* pinned, tide_pool* number) {
  tide__pin_pool* next = NULL;
  tide__mutex_lock(&pinned->pools_lock);
  TIDE_LIST_EACH(it, &pinned->pools) {
    tide__pin_pool* const pool = TIDE_OWNER(it, tide__pin_pool, link);
    const bool is_next = pool->users == 0 && pool->number > *number;
    if (is_next && (next == NULL || pool->number < next->number)) next = pool;
  }
  if (next != NULL) {
    next->guests++;
    *number = next->number;
  }
  tide__mutex_unlock(&pinned->pools_lock);
  return next;
}

// Forgets a pool that has neither users, guests beside the caller, nor memory.
static void unused_leave(tide_pinned* pinned, tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_empty = tide__list_is_empty(&pool->segments);
  tide__mutex_unlock(&pinned->chunks_lock);
  if (is_empty) tide__pin_totals_settle(pinned);  // no front may count for it any more
  tide__mutex_lock(&pinned->pools_lock);
  pool->guests--;
  if (is_empty && pool->guests == 0 && pool->users == 0) {
    tide__list_unlink(&pool->link);
    tide__list_append(&pinned->idle_pools, &pool->link);
  }
  tide__mutex_unlock(&pinned->pools_lock);
}

// Lets the kept blocks of a pool wait for the streams they were announced to, like others.
static void kept_release(tide_pinned* pinned, tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->waits.lock);
  tide__pin* list = pool->kept;
  pool->kept = NULL;
  tide__mutex_unlock(&pinned->waits.lock);
  while (list != NULL) {
    tide__pin* const block = list;
    list = block->next;
    block->is_scoped = false;
    tide__pin_wait(pinned, block);
  }
}

tide_status tide__pin_pools_empty(tide_pinned* pinned) {
  const tide__pin_pick all = { .keep_bytes = 0 };
  tide_status first = TIDE_OK;
  tide_pool number = TIDE_POOL_DEFAULT;
  uint32_t count = 0;
  tide__link list;
  tide__list_init(&list);
  for (;;) {
    tide__pin_pool* const pool = unused_next(pinned, &number);
    if (pool == NULL) return first;
    kept_release(pinned, pool);
    const tide_status polled = tide__pin_poll(pinned);
    (void)tide__pin_depot_pick(pinned, pool, &all, &list);
    const tide_status given = tide__pin_segments_give(pinned, &list, &count);
    unused_leave(pinned, pool);
    if (first == TIDE_OK) first = polled != TIDE_OK ? polled : given;
  }
}

// ---------------------------------------------------------------------------------------------------
// Users

static tide__pin_pool* pool_take_idle(tide_pinned* pinned) {
  tide__pin_pool* pool = NULL;
  tide__mutex_lock(&pinned->pools_lock);
  if (!tide__list_is_empty(&pinned->idle_pools)) {
    pool = TIDE_OWNER(pinned->idle_pools.next, tide__pin_pool, link);
    tide__list_unlink(&pool->link);
  }
  tide__mutex_unlock(&pinned->pools_lock);
  return pool;
}

tide_status tide_pinned_pool_new(tide_pinned* pinned, tide_pool* out) {
  if (out != NULL) *out = TIDE_POOL_DEFAULT;
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_new: no cache or out");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_pool_new");
  tide__pin_pool* pool = pool_take_idle(pinned);
  if (pool == NULL) pool = tide__pin_pool_make(pinned);
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_NO_MEMORY, "pinned_pool_new: no memory for the record of a pool");
  tide__mutex_lock(&pinned->totals_lock);
  pool->stats = (tide_pinned_stats)TIDE_PINNED_STATS_INIT;
  tide__mutex_unlock(&pinned->totals_lock);
  tide__mutex_lock(&pinned->pools_lock);
  pool->users = 1;
  pool->has_scope = false;
  pool->number = ++pinned->next_pool;
  tide__list_append(&pinned->pools, &pool->link);
  *out = pool->number;
  tide__mutex_unlock(&pinned->pools_lock);
  return TIDE_OK;
}

// A private pool with users by its number, with the lock held; or the reason why not, without it.
static tide_status pin_pool_lock(tide_pinned* pinned, tide_pool number, const char* call,
                                 tide__pin_pool** out) TIDE_UNCHECKED_LOCKING;
static tide_status pin_pool_lock(tide_pinned* pinned, tide_pool number, const char* call,
                                 tide__pin_pool** out) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE__PIN_REQUIRE_OWN(pinned, call);
  tide__mutex_lock(&pinned->pools_lock);
  *out = number != TIDE_POOL_DEFAULT ? tide__pin_pool_find_locked(pinned, number) : NULL;
  if (*out != NULL && (*out)->users > 0) return TIDE_OK;
  tide__mutex_unlock(&pinned->pools_lock);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: there is no private pool %u", call, number);
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: pool %u has no users any more", call, number);
}

TIDE_UNCHECKED_LOCKING tide_status tide_pinned_pool_retain(tide_pinned* pinned, tide_pool pool) {
  tide__pin_pool* found = NULL;
  TIDE_TRY(pin_pool_lock(pinned, pool, "pinned_pool_retain", &found));
  found->users++;
  tide__mutex_unlock(&pinned->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_pinned_pool_release(tide_pinned* pinned, tide_pool pool) {
  tide__pin_pool* found = NULL;
  TIDE_TRY(pin_pool_lock(pinned, pool, "pinned_pool_release", &found));
  const bool is_refused = found->users == 1 && found->has_scope;
  if (!is_refused) found->users--;
  tide__mutex_unlock(&pinned->pools_lock);
  TIDE_REQUIRE(!is_refused, TIDE_ERR_STATE, "pinned_pool_release: the scope of pool %u is still open", pool);
  return TIDE_OK;
}

tide_status tide_pinned_pool_users(tide_pinned* pinned, tide_pool pool, uint32_t* out) {
  if (out != NULL) *out = 0;
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_users: no cache or out");
  tide__mutex_lock(&pinned->pools_lock);
  const tide__pin_pool* const found = pool != TIDE_POOL_DEFAULT ? tide__pin_pool_find_locked(pinned, pool)
                                                                : NULL;
  if (found != NULL) *out = found->users;
  tide__mutex_unlock(&pinned->pools_lock);
  TIDE_REQUIRE(found != NULL, TIDE_ERR_HANDLE, "pinned_pool_users: there is no private pool %u", pool);
  return TIDE_OK;
}
