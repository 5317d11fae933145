// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `pool`: the records of pools, and how a pool ends. Users, guests and scopes are those of core/pools.h.
// A pool without users gives its memory back when the cache is emptied, and is dropped when it has none left.
// Calls the rooms `stream` and `segment`.
#include "pinned/pool/pool.h"

#include "pinned/segment/segment.h"
#include "pinned/stream/stream.h"

static void pool_record_init(void* record) {
  tide__pin_pool* const pool = record;
  tide__list_init(&pool->segments);
  tide__pin_depot_init(&pool->depot);
}

bool tide__pin_pools_start(tide_pinned_cache* pinned) {
  tide__pools_init(&pinned->pools, &pinned->pools_lock, pinned->heap, sizeof(tide__pin_pool));
  pinned->pools.record_init = pool_record_init;
  pinned->pools.flags = &pinned->unusual;
  pinned->pools.has_scopes = TIDE__PIN_HAS_SCOPES;
  pinned->default_pool = tide__pin_pool_at(tide__pools_take_record(&pinned->pools));
  if (pinned->default_pool == NULL) return false;
  tide__pools_set_default(&pinned->pools, &pinned->default_pool->base);
  return true;
}

static void copies_free(tide_pinned_cache* pinned, tide__pin_pool* pool) {
  while (pool->copies != NULL) {
    tide__pin_copy* const copy = pool->copies;
    pool->copies = copy->next;
    tide__heap_release(pinned->heap, copy, 1, sizeof *copy);
  }
}

void tide__pin_pools_fini(tide_pinned_cache* pinned) {
  tide__pool_base* base = NULL;
  while ((base = tide__pools_first_locked(&pinned->pools)) != NULL) {
    copies_free(pinned, tide__pin_pool_at(base));
    tide__pools_free(&pinned->pools, base);
  }
  tide__pools_fini(&pinned->pools);
  tide__heap_release(pinned->heap, pinned->default_pool, 1, sizeof *pinned->default_pool);
}

// ---------------------------------------------------------------------------------------------------
// The end of a pool

// Ends the stay of the calling guest, and drops the pool if it has no memory and nobody else.
static void unused_leave(tide_pinned_cache* pinned, tide__pin_pool* pool) {
  tide__mutex_lock(&pinned->chunks_lock);
  const bool is_empty = tide__list_is_empty(&pool->segments);
  tide__mutex_unlock(&pinned->chunks_lock);
  if (!is_empty) {
    tide__pools_leave(&pinned->pools, &pool->base);
  } else if (tide__pools_remove(&pinned->pools, &pool->base)) {
    copies_free(pinned, pool);
    tide__pools_recycle(&pinned->pools, &pool->base);
  }
}

// Lets the kept blocks of a pool wait for the streams they were announced to.
static void kept_release(tide_pinned_cache* pinned, tide__pin_pool* pool) {
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

tide_status tide__pin_pools_empty(tide_pinned_cache* pinned) {
  const tide__pin_pick all = { .keep_bytes = 0 };
  tide__first_failure failure;
  tide__pool_cursor at = { 0 };
  tide__link list;
  tide__list_init(&list);
  tide__first_failure_begin(&failure);
  for (;;) {
    tide__pin_pool* const pool = tide__pin_pool_at(tide__pools_next_unused(&pinned->pools, &at));
    if (pool == NULL) return tide__first_failure_end(&failure);
    kept_release(pinned, pool);
    tide__first_failure_note(&failure, tide__pin_poll(pinned));
    (void)tide__pin_depot_pick(pinned, pool, &all, &list);
    tide__first_failure_note(&failure, tide__pin_segments_give(pinned, &list, NULL));
    unused_leave(pinned, pool);
  }
}

// ---------------------------------------------------------------------------------------------------
// Calls

tide_status tide__pin_cache_check(const tide_pinned_cache* pinned, const char* call) {
  TIDE_REQUIRE(pinned != NULL, TIDE_ERR_ARGUMENT, "%s: no cache", call);
  TIDE__PIN_REQUIRE_OWN(pinned, call);
  return TIDE_OK;
}

tide_status tide_pinned_pool_new(tide_pinned_cache* pinned, tide_pool* out) {
  if (out != NULL) *out = TIDE_POOL_DEFAULT;
  TIDE_REQUIRE(pinned != NULL && out != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_new: no cache or out");
  TIDE__PIN_REQUIRE_OWN(pinned, "pinned_pool_new");
  tide__pool_base* const pool = tide__pools_take_record(&pinned->pools);
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_NO_MEMORY, "pinned_pool_new: no memory for the record of a pool");
  *out = tide__pools_add(&pinned->pools, pool, NULL);
  return TIDE_OK;
}

tide_status tide_pinned_pool_retain(tide_pinned_cache* pinned, tide_pool pool) {
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_pool_retain"));
  return tide__pools_retain(&pinned->pools, pool, "pinned_pool_retain");
}

tide_status tide_pinned_pool_drop(tide_pinned_cache* pinned, tide_pool pool) {
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_pool_drop"));
  return tide__pools_drop(&pinned->pools, pool, "pinned_pool_drop");
}

tide_status tide_pinned_pool_users(tide_pinned_cache* pinned, tide_pool pool, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "pinned_pool_users: no out");
  *out = 0;
  TIDE_TRY(tide__pin_cache_check(pinned, "pinned_pool_users"));
  return tide__pools_users(&pinned->pools, pool, "pinned_pool_users", out);
}
