// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The register of pools and open scopes. Everything is tested before anything is changed: a call that is
// refused leaves neither a user nor a scope behind.
#include "core/pools.h"

#include "base/error.h"
#include "core/capture.h"

void tide__pools_init(tide__pools* pools, tide__mutex* lock, const tide_heap* heap, size_t record_bytes) {
  *pools = (tide__pools){ .lock = lock, .heap = heap, .record_bytes = record_bytes };
  tide__askers_init(&pools->askers);
}

void tide__pools_fini(tide__pools* pools) {
  while (pools->idle != NULL) {
    tide__pool_base* const pool = pools->idle;
    pools->idle = pool->next_idle;
    tide__heap_release(pools->heap, pool, 1, pools->record_bytes);
  }
  tide__askers_fini(&pools->askers);
}

void tide__pools_set_default(tide__pools* pools, tide__pool_base* pool) {
  pool->users = 1;
  pools->default_pool = pool;
}

// ---------------------------------------------------------------------------------------------------
// Finding pools

static tide__pool_base* find_private_locked(const tide__pools* pools, tide_pool number) {
  tide__pool_base* pool = tide__pools_first_locked(pools);
  while (pool != NULL && pool->number != number) pool = tide__pools_after_locked(pool);
  return pool;
}

tide__pool_base* tide__pools_find_locked(const tide__pools* pools, tide_pool number) {
  return number == TIDE_POOL_DEFAULT ? pools->default_pool : find_private_locked(pools, number);
}

tide__pool_base* tide__pools_find(tide__pools* pools, tide_pool number) {
  tide__mutex_lock(pools->lock);
  tide__pool_base* const pool = tide__pools_find_locked(pools, number);
  tide__mutex_unlock(pools->lock);
  return pool;
}

tide_pool tide__pools_find_label(tide__pools* pools, const uint64_t label[2]) {
  tide_pool newest = 0;
  tide__mutex_lock(pools->lock);
  tide__pool_base* pool = tide__pools_first_locked(pools);
  for (; pool != NULL; pool = tide__pools_after_locked(pool)) {
    const bool is_it = pool->label[0] == label[0] && pool->label[1] == label[1];
    if (is_it && pool->number > newest) newest = pool->number;
  }
  tide__mutex_unlock(pools->lock);
  return newest;
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_lock(tide__pools* pools, tide_pool number, bool needs_users,
                                                    const char* call, tide__pool_base** out) {
  tide__mutex_lock(pools->lock);
  *out = find_private_locked(pools, number);
  if (*out != NULL && (!needs_users || (*out)->users > 0)) return TIDE_OK;
  tide__mutex_unlock(pools->lock);
  TIDE_REQUIRE(*out != NULL, TIDE_ERR_HANDLE, "%s: there is no private pool %u", call, number);
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: pool %u has no users any more", call, number);
}

// The first pool behind the cursor.
static tide__pool_base* cursor_next_locked(const tide__pools* pools, const tide__pool_cursor* at) {
  tide__tree_node* node = tide__tree_ceiling(&pools->tree, at->key);
  while (at->is_begun && node != NULL && node->key == at->key && node->tie <= at->tie) {
    node = tide__tree_next(node);
  }
  return node != NULL ? TIDE_OWNER(node, tide__pool_base, node) : NULL;
}

tide__pool_base* tide__pools_next(tide__pools* pools, tide__pool_cursor* at) {
  tide__mutex_lock(pools->lock);
  tide__pool_base* const pool = cursor_next_locked(pools, at);
  if (pool != NULL) *at = (tide__pool_cursor){ true, pool->node.key, pool->node.tie };
  tide__mutex_unlock(pools->lock);
  return pool;
}

tide__pool_base* tide__pools_next_unused(tide__pools* pools, tide__pool_cursor* at) {
  tide__mutex_lock(pools->lock);
  tide__pool_base* pool = cursor_next_locked(pools, at);
  while (pool != NULL && pool->users > 0) pool = tide__pools_after_locked(pool);
  if (pool != NULL) {
    *at = (tide__pool_cursor){ true, pool->node.key, pool->node.tie };
    pool->guests++;
  }
  tide__mutex_unlock(pools->lock);
  return pool;
}

// ---------------------------------------------------------------------------------------------------
// The life of a pool

tide__pool_base* tide__pools_take_record(tide__pools* pools) {
  tide__mutex_lock(pools->lock);
  tide__pool_base* pool = pools->idle;
  if (pool != NULL) pools->idle = pool->next_idle;
  tide__mutex_unlock(pools->lock);
  if (pool != NULL) return pool;
  pool = tide__heap_alloc(pools->heap, 1, pools->record_bytes);
  if (pool != NULL && pools->record_init != NULL) pools->record_init(pool);
  return pool;
}

tide_pool tide__pools_add(tide__pools* pools, tide__pool_base* pool, const uint64_t label[2]) {
  tide__mutex_lock(pools->lock);
  const tide_pool number = ++pools->last_number;
  *pool = (tide__pool_base){ .number = number, .users = 1 };
  for (int i = 0; i < 2 && label != NULL; i++) pool->label[i] = label[i];
  pool->node.key = pools->place != NULL ? pools->place(pool) : number;
  pool->node.tie = number;
  (void)tide__tree_insert(&pools->tree, &pool->node);
  tide__mutex_unlock(pools->lock);
  return number;
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_retain(tide__pools* pools, tide_pool number,
                                                      const char* call) {
  tide__pool_base* pool = NULL;
  TIDE_TRY(tide__pools_lock(pools, number, true, call, &pool));
  pool->users++;
  tide__mutex_unlock(pools->lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_drop(tide__pools* pools, tide_pool number, const char* call) {
  tide__pool_base* pool = NULL;
  TIDE_TRY(tide__pools_lock(pools, number, true, call, &pool));
  const bool is_refused = pool->users == 1 && pool->has_scope;
  if (!is_refused) pool->users--;
  tide__mutex_unlock(pools->lock);
  TIDE_REQUIRE(!is_refused, TIDE_ERR_STATE, "%s: the scope of pool %u is still open", call, number);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_users(tide__pools* pools, tide_pool number, const char* call,
                                                     uint32_t* out) {
  tide__pool_base* pool = NULL;
  *out = 0;
  TIDE_TRY(tide__pools_lock(pools, number, false, call, &pool));
  *out = pool->users;
  tide__mutex_unlock(pools->lock);
  return TIDE_OK;
}

bool tide__pools_is_used(tide__pools* pools, const tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  const bool is_used = pool->users > 0;
  tide__mutex_unlock(pools->lock);
  return is_used;
}

void tide__pools_visit(tide__pools* pools, tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  pool->guests++;
  tide__mutex_unlock(pools->lock);
}

void tide__pools_leave(tide__pools* pools, tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  pool->guests--;
  tide__mutex_unlock(pools->lock);
}

bool tide__pools_remove(tide__pools* pools, tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  const bool is_dropped = --pool->guests == 0 && pool->users == 0;
  if (is_dropped) tide__tree_remove(&pools->tree, &pool->node);
  tide__mutex_unlock(pools->lock);
  return is_dropped;
}

void tide__pools_recycle(tide__pools* pools, tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  pool->next_idle = pools->idle;
  pools->idle = pool;
  tide__mutex_unlock(pools->lock);
}

void tide__pools_free(tide__pools* pools, tide__pool_base* pool) {
  tide__mutex_lock(pools->lock);
  tide__tree_remove(&pools->tree, &pool->node);
  tide__mutex_unlock(pools->lock);
  tide__heap_release(pools->heap, pool, 1, pools->record_bytes);
}

// ---------------------------------------------------------------------------------------------------
// Opening and closing scopes

static void show_scopes_locked(tide__pools* pools) {
  uint32_t bits = pools->scope_count != 0 ? pools->has_scopes : 0;
  if (pools->flags == NULL) return;
  for (uint32_t i = 0; i < pools->scope_count; i++) {
    if (!pools->scopes[i].scope.is_region) bits |= pools->has_captures;
  }
  (void)atomic_fetch_or(pools->flags, bits);
  (void)atomic_fetch_and(pools->flags, bits | ~(pools->has_scopes | pools->has_captures));
}

static void scope_add_locked(tide__pools* pools, tide__pool_base* pool, const tide__scope* scope) {
  pool->has_scope = true;
  pools->scopes[pools->scope_count++] =
      (tide__open_scope){ pool, ++pools->scopes_opened, tide__thread_number(), *scope };
  show_scopes_locked(pools);
}

static void scope_remove_locked(tide__pools* pools, tide__pool_base* pool) {
  uint32_t i = 0;
  pool->has_scope = false;
  while (pools->scopes[i].pool != pool) i++;
  for (pools->scope_count--; i < pools->scope_count; i++) pools->scopes[i] = pools->scopes[i + 1];
  show_scopes_locked(pools);
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_begin(tide__pools* pools, tide_pool number,
                                                     const tide__scope* scope, const char* call) {
  tide__pool_base* pool = NULL;
  TIDE_REQUIRE(scope->kind <= TIDE_SCOPE_FILTER, TIDE_ERR_ARGUMENT, "%s: there is no scope of kind %u", call,
               scope->kind);
  TIDE_REQUIRE(scope->kind != TIDE_SCOPE_FILTER || scope->filter != NULL, TIDE_ERR_ARGUMENT, "%s: no filter",
               call);
  TIDE_TRY(tide__pools_lock(pools, number, true, call, &pool));
  const bool has_scope = pool->has_scope;
  const bool has_room = pools->scope_count < TIDE__MAX_SCOPES;
  if (!has_scope && has_room) scope_add_locked(pools, pool, scope);
  tide__mutex_unlock(pools->lock);
  TIDE_REQUIRE(!has_scope, TIDE_ERR_STATE, "%s: pool %u has an open scope already", call, number);
  TIDE_REQUIRE(has_room, TIDE_ERR_LIMIT, "%s: %d scopes are open, and no more can be", call,
               TIDE__MAX_SCOPES);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide__pools_end(tide__pools* pools, tide_pool number, const char* call) {
  tide__pool_base* pool = NULL;
  TIDE_TRY(tide__pools_lock(pools, number, false, call, &pool));
  const bool has_scope = pool->has_scope;
  if (has_scope) {
    scope_remove_locked(pools, pool);
    tide__askers_wait_locked(&pools->askers, pools->lock);
  }
  tide__mutex_unlock(pools->lock);
  TIDE_REQUIRE(has_scope, TIDE_ERR_STATE, "%s: pool %u has no open scope", call, number);
  return TIDE_OK;
}

const tide__scope* tide__pools_scope_locked(const tide__pools* pools, const tide__pool_base* pool) {
  for (uint32_t i = 0; i < pools->scope_count; i++) {
    if (pools->scopes[i].pool == pool) return &pools->scopes[i].scope;
  }
  return NULL;
}

bool tide__pools_is_captured_elsewhere(tide__pools* pools, const tide__pool_base* pool) {
  bool is_captured = false;
  tide__mutex_lock(pools->lock);
  for (uint32_t i = 0; i < pools->scope_count && !is_captured; i++) {
    is_captured = pools->scopes[i].pool != pool && !pools->scopes[i].scope.is_region;
  }
  tide__mutex_unlock(pools->lock);
  return is_captured;
}

// ---------------------------------------------------------------------------------------------------
// Requests

static bool capture_is_shared(tide_machine* machine, const tide__scope* scope, int device,
                              tide_stream stream) {
  if (device < 0) return false;
  const uint64_t capture = tide__capture_of(machine, scope->device, scope->stream);
  return capture != 0 && tide__capture_of(machine, device, stream) == capture;
}

static bool scope_takes(const tide__open_scope* open, tide_machine* machine, int device, tide_stream stream) {
  const tide__scope* const scope = &open->scope;
  switch ((tide_scope_kind)scope->kind) {
    case TIDE_SCOPE_ALL: return true;
    case TIDE_SCOPE_THREAD: return open->thread == tide__thread_number();
    case TIDE_SCOPE_STREAM: return scope->device == device && scope->stream == stream;
    case TIDE_SCOPE_CAPTURE: return capture_is_shared(machine, scope, device, stream);
    case TIDE_SCOPE_FILTER: return scope->ask(scope, device, stream);
  }
  return false;
}

// Makes the caller a guest of the pool of a copied scope, if that scope is still open.
static bool scope_visit(tide__pools* pools, const tide__open_scope* copy) {
  bool is_open = false;
  tide__mutex_lock(pools->lock);
  for (uint32_t i = 0; i < pools->scope_count; i++) {
    is_open = is_open || pools->scopes[i].number == copy->number;
  }
  if (is_open) copy->pool->guests++;
  tide__mutex_unlock(pools->lock);
  return is_open;
}

// Scopes are asked from the newest to the oldest, on a copy, because filters are asked with no lock held. The
// scope that takes the request is looked up again: it may be closed by then.
tide__pool_base* tide__pools_choose(tide__pools* pools, tide_machine* machine, int device,
                                    tide_stream stream) {
  tide__open_scope copies[TIDE__MAX_SCOPES];
  tide__pool_base* pool = NULL;
  tide__asker asker;
  tide__mutex_lock(pools->lock);
  uint32_t count = pools->scope_count;
  for (uint32_t i = 0; i < count; i++) copies[i] = pools->scopes[i];
  tide__askers_enter_locked(&pools->askers, &asker);
  tide__mutex_unlock(pools->lock);
  while (pool == NULL && count-- > 0) {
    const tide__open_scope* const copy = &copies[count];
    if (scope_takes(copy, machine, device, stream) && scope_visit(pools, copy)) pool = copy->pool;
  }
  tide__mutex_lock(pools->lock);
  tide__askers_leave_locked(&pools->askers, &asker);
  tide__mutex_unlock(pools->lock);
  return pool;
}
