// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pools and the scopes that send requests to them. A pool's life: made with one user; users come and go;
// without users it gives its memory back at the next trim; without memory it is gone. Records of pools are
// used again, never freed before the allocator.
#include "base/sized.h"
#include "device/allocator.h"

void tide__pool_init(tide__pool* pool, tide_pool number) {
  pool->number = number;
  pool->node.tie = number;
  pool->users = 1;
  pool->has_scope = false;
  pool->options = (tide_pool_options)TIDE_POOL_OPTIONS_INIT;
  tide__store_relaxed(&pool->no_split, 0);
  tide__store_relaxed(&pool->use_on_oom, 0);
  for (int i = 0; i < 2; i++) tide__store_relaxed(&pool->searches[i], 0);
}

tide__pool* tide__pool_find_locked(tide_device* device, tide_pool number) {
  if (number == TIDE_POOL_DEFAULT) return &device->default_pool;
  tide__tree_node* node = tide__tree_first(&device->pools);
  while (node != NULL && TIDE_OWNER(node, tide__pool, node)->number != number) node = tide__tree_next(node);
  return node != NULL ? TIDE_OWNER(node, tide__pool, node) : NULL;
}

tide__pool* tide__pool_find(tide_device* device, tide_pool number) {
  tide__mutex_lock(&device->pools_lock);
  tide__pool* const pool = tide__pool_find_locked(device, number);
  tide__mutex_unlock(&device->pools_lock);
  return pool;
}

tide__pool* tide__pool_next(tide_device* device, tide__pool_cursor* at) {
  tide__mutex_lock(&device->pools_lock);
  tide__tree_node* node = tide__tree_ceiling(&device->pools, at->key);
  while (at->is_begun && node != NULL && node->key == at->key && node->tie <= at->tie)
    node = tide__tree_next(node);
  if (node != NULL) *at = (tide__pool_cursor){ true, node->key, node->tie };
  tide__mutex_unlock(&device->pools_lock);
  return node != NULL ? TIDE_OWNER(node, tide__pool, node) : NULL;
}

bool tide__pool_is_used(tide_device* device, const tide__pool* pool) {
  tide__mutex_lock(&device->pools_lock);
  const bool is_used = pool->users > 0;
  tide__mutex_unlock(&device->pools_lock);
  return is_used;
}

// ---------------------------------------------------------------------------------------------------
// The end of a pool

// Is nothing left in any lane of the pool?
static bool pool_is_empty(tide_device* device, tide__pool* pool) {
  bool is_empty = true;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL && is_empty; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    is_empty = tide__list_is_empty(&lane->segments);
    if (is_empty) tide__tally_settle(device, &lane->tally);
    tide__mutex_unlock(&lane->lock);
  }
  return is_empty;
}

static void pool_tell_closed(const tide__pool* pool) {
  if (pool->options.closed != NULL) pool->options.closed(pool->options.user);
}

static void pool_drop(tide_device* device, tide__pool* pool) {
  tide__labels_keep(device, pool);
  tide__mutex_lock(&device->pools_lock);
  const bool is_unused = pool->users == 0 && pool->guests == 0;
  if (is_unused) {
    tide__tree_remove(&device->pools, &pool->node);
    tide__lanes_drop_locked(device, pool);
  }
  tide__mutex_unlock(&device->pools_lock);
  if (!is_unused) return;
  tide__lane_tables_free(device, pool);  // both before the record can be used again
  pool_tell_closed(pool);
  tide__mutex_lock(&device->pools_lock);
  pool->next_idle = device->idle_pools;
  device->idle_pools = pool;
  tide__mutex_unlock(&device->pools_lock);
}

void tide__pool_drop_unused(tide_device* device) {
  tide__pool_cursor at = { 0 };
  for (tide__pool* pool = tide__pool_next(device, &at); pool != NULL; pool = tide__pool_next(device, &at)) {
    if (!tide__pool_is_used(device, pool) && pool_is_empty(device, pool)) pool_drop(device, pool);
  }
}

void tide__pool_fini(tide_device* device, tide__pool* pool) {
  while (pool->lanes != NULL) {
    tide__lane* const lane = pool->lanes;
    pool->lanes = lane->next;
    tide__lane_fini(device, lane);
  }
  tide__lane_tables_free(device, pool);
  if (device->machine != NULL) pool_tell_closed(pool);  // else its segments stay in use
}

// ---------------------------------------------------------------------------------------------------
// Calls

// PyTorch keeps pools in a hash table by their id (here the label, or else the number) and walks over them in
// the order of its places: the upper bits of this product.
static uint64_t pool_place(const tide__pool* pool) {
  const uint64_t* const label = pool->options.label;
  const uint64_t id = label[0] != 0 ? label[0] : label[1] != 0 ? label[1] : pool->number;
  return id * UINT64_C(11400714819323198485);
}

static tide__pool* pool_take_record(tide_device* device) {
  tide__mutex_lock(&device->pools_lock);
  tide__pool* pool = device->idle_pools;
  if (pool != NULL) device->idle_pools = pool->next_idle;
  tide__mutex_unlock(&device->pools_lock);
  return pool != NULL ? pool : tide__heap_alloc(device->heap, 1, sizeof *pool);
}

tide_status tide_device_pool_new(tide_device* device, const tide_pool_options* options, tide_pool* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_pool_new: no device or out");
  *out = 0;
  tide_pool_options whole = TIDE_POOL_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("device_pool_new", options, &whole, sizeof whole));
  options = &whole;
  TIDE_REQUIRE((options->segment_alloc == NULL) == (options->segment_release == NULL), TIDE_ERR_ARGUMENT,
               "device_pool_new: only one of segment_alloc and segment_release is given");
  TIDE__REQUIRE_OWN(device, "device_pool_new");
  tide__pool* const pool = pool_take_record(device);
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_NO_MEMORY, "device_pool_new: no memory for the record of a pool");
  tide__mutex_lock(&device->pools_lock);
  tide__pool_init(pool, device->next_pool++);
  pool->options = *options;
  pool->node.key = pool_place(pool);
  tide__store_relaxed(&pool->no_split, options->no_split);
  tide__store_relaxed(&pool->use_on_oom, options->use_on_oom);
  (void)tide__tree_insert(&device->pools, &pool->node);
  *out = pool->number;
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

// A private pool by its number, with the lock held; or the reason why not, without it.
static tide_status pool_lock(tide_device* device, tide_pool number, const char* call,
                             tide__pool** out) TIDE_UNCHECKED_LOCKING;
static tide_status pool_lock(tide_device* device, tide_pool number, const char* call, tide__pool** out) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "%s: no device", call);
  TIDE__REQUIRE_OWN(device, call);
  tide__mutex_lock(&device->pools_lock);
  *out = number != TIDE_POOL_DEFAULT ? tide__pool_find_locked(device, number) : NULL;
  if (*out != NULL) return TIDE_OK;
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_FAIL(TIDE_ERR_HANDLE, "%s: there is no private pool %u", call, number);
}

static tide_status pool_lock_used(tide_device* device, tide_pool number, const char* call,
                                  tide__pool** out) TIDE_UNCHECKED_LOCKING;
static tide_status pool_lock_used(tide_device* device, tide_pool number, const char* call, tide__pool** out) {
  TIDE_TRY(pool_lock(device, number, call, out));
  if ((*out)->users > 0) return TIDE_OK;
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: pool %u has no users any more", call, number);
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_retain(tide_device* device, tide_pool pool) {
  tide__pool* found = NULL;
  TIDE_TRY(pool_lock_used(device, pool, "device_pool_retain", &found));
  found->users++;
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_release(tide_device* device, tide_pool pool) {
  tide__pool* found = NULL;
  TIDE_TRY(pool_lock_used(device, pool, "device_pool_release", &found));
  const bool is_refused = found->users == 1 && found->has_scope;
  if (!is_refused) found->users--;
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(!is_refused, TIDE_ERR_STATE, "device_pool_release: the scope of pool %u is still open", pool);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_users(tide_device* device, tide_pool pool,
                                                          uint32_t* out) {
  tide__pool* found = NULL;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "device_pool_users: no out");
  *out = 0;
  TIDE_TRY(pool_lock(device, pool, "device_pool_users", &found));
  *out = found->users;
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_use_on_oom(tide_device* device, tide_pool pool,
                                                                   bool is_on) {
  tide__pool* found = NULL;
  TIDE_TRY(pool_lock(device, pool, "device_pool_set_use_on_oom", &found));
  tide__store_relaxed(&found->use_on_oom, is_on);
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_no_split(tide_device* device, tide_pool pool) {
  tide__pool* found = NULL;
  TIDE_TRY(pool_lock(device, pool, "device_pool_set_no_split", &found));
  tide__store_relaxed(&found->no_split, 1);
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

tide_status tide_device_pool_find(tide_device* device, const uint64_t label[2], tide_pool* out) {
  TIDE_REQUIRE(device != NULL && label != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_pool_find: no device, label or out");
  *out = 0;
  TIDE_REQUIRE(label[0] != 0 || label[1] != 0, TIDE_ERR_ARGUMENT, "device_pool_find: the label is empty");
  TIDE__REQUIRE_OWN(device, "device_pool_find");
  tide__mutex_lock(&device->pools_lock);
  tide__tree_node* node = tide__tree_first(&device->pools);
  for (; node != NULL; node = tide__tree_next(node)) {
    const tide__pool* const pool = TIDE_OWNER(node, tide__pool, node);
    const uint64_t* const own = pool->options.label;
    if (own[0] == label[0] && own[1] == label[1] && pool->number > *out) *out = pool->number;
  }
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(*out != 0, TIDE_ERR_HANDLE, "device_pool_find: no pool has the label %llu, %llu",
               (unsigned long long)label[0], (unsigned long long)label[1]);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_get_label(tide_device* device, tide_pool pool,
                                                              uint64_t out[2]) {
  tide__pool* found = NULL;
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "device_pool_get_label: no out");
  out[0] = out[1] = 0;
  TIDE_TRY(pool_lock(device, pool, "device_pool_get_label", &found));
  for (int i = 0; i < 2; i++) out[i] = found->options.label[i];
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_reserved(tide_device* device, tide_pool pool,
                                                             uint64_t* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_pool_reserved: no device or out");
  *out = 0;
  TIDE__REQUIRE_OWN(device, "device_pool_reserved");
  tide__pool* found = &device->default_pool;
  if (pool == TIDE_POOL_DEFAULT) {
    tide__mutex_lock(&device->pools_lock);
  } else {
    TIDE_TRY(pool_lock(device, pool, "device_pool_reserved", &found));
  }
  *out = tide__load_relaxed(&found->reserved_bytes);
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Scopes

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_begin(tide_device* device, tide_pool pool,
                                                          const tide_scope* scope) {
  tide__pool* found = NULL;
  tide_scope whole = TIDE_SCOPE_INIT;
  if (scope != NULL) TIDE_TRY(tide__sized_read("device_pool_begin", scope, &whole, sizeof whole));
  scope = &whole;
  TIDE_REQUIRE(scope->kind <= TIDE_SCOPE_FILTER, TIDE_ERR_ARGUMENT, "device_pool_begin: a scope of kind %u",
               scope->kind);
  TIDE_REQUIRE(scope->kind != TIDE_SCOPE_FILTER || scope->filter != NULL, TIDE_ERR_ARGUMENT,
               "device_pool_begin: no filter");
  TIDE_TRY(pool_lock_used(device, pool, "device_pool_begin", &found));
  const uint32_t count = tide__load_relaxed(&device->scope_count);
  const bool has_scope = found->has_scope;
  if (!has_scope && count < TIDE__MAX_SCOPES) {
    found->has_scope = true;
    device->scopes[count] = (tide__scope){ found, ++device->next_scope, *scope, tide__thread_number() };
    tide__store_seq(&device->scope_count, count + 1);
    tide__detour(device, TIDE__HAS_SCOPES, true);
  }
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(!has_scope, TIDE_ERR_STATE, "device_pool_begin: pool %u has an open scope already", pool);
  TIDE_REQUIRE(count < TIDE__MAX_SCOPES, TIDE_ERR_LIMIT, "device_pool_begin: %u scopes are open", count);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_end(tide_device* device, tide_pool pool) {
  tide__pool* found = NULL;
  TIDE_TRY(pool_lock(device, pool, "device_pool_end", &found));
  const uint32_t count = tide__load_relaxed(&device->scope_count);
  const bool had_scope = found->has_scope;
  if (had_scope) {
    found->has_scope = false;
    uint32_t i = 0;
    while (device->scopes[i].pool != found) i++;
    for (; i + 1 < count; i++) device->scopes[i] = device->scopes[i + 1];
    tide__store_seq(&device->scope_count, count - 1);
    tide__detour(device, TIDE__HAS_SCOPES, count > 1);
    tide__askers_wait_locked(&device->askers, &device->pools_lock);
  }
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(had_scope, TIDE_ERR_STATE, "device_pool_end: pool %u has no open scope", pool);
  return TIDE_OK;
}

static bool scope_takes(tide_device* device, const tide__scope* scope, tide_stream stream) {
  switch ((tide_scope_kind)scope->scope.kind) {
    case TIDE_SCOPE_ALL: return true;
    case TIDE_SCOPE_THREAD: return scope->thread == tide__thread_number();
    case TIDE_SCOPE_STREAM: return scope->scope.stream == stream;
    case TIDE_SCOPE_CAPTURE: {
      const uint64_t id = tide__stream_capture(device, scope->scope.stream);
      return id != 0 && tide__stream_capture(device, stream) == id;
    }
    case TIDE_SCOPE_FILTER: return scope->scope.filter(scope->scope.user, stream);
  }
  return false;
}

// Makes the request a guest of a pool that one of the copied scopes named, if that scope is still open.
static bool pool_visit(tide_device* device, const tide__scope* scope) {
  bool is_open = false;
  tide__mutex_lock(&device->pools_lock);
  for (uint32_t i = 0; i < tide__load_relaxed(&device->scope_count); i++) {
    is_open = is_open || (device->scopes[i].pool == scope->pool && device->scopes[i].number == scope->number);
  }
  if (is_open) scope->pool->guests++;
  tide__mutex_unlock(&device->pools_lock);
  return is_open;
}

void tide__pool_leave(tide_device* device, tide__pool* pool) {
  tide__mutex_lock(&device->pools_lock);
  pool->guests--;
  tide__mutex_unlock(&device->pools_lock);
}

// Filters are the user's: they are asked with no lock held, from the newest scope to the oldest.
void tide__pool_choose(tide__request* request) {
  tide_device* const device = request->device;
  tide__scope scopes[TIDE__MAX_SCOPES];
  tide__asker asker;
  tide__mutex_lock(&device->pools_lock);
  uint32_t count = tide__load_relaxed(&device->scope_count);
  for (uint32_t i = 0; i < count; i++) scopes[i] = device->scopes[i];
  tide__askers_enter_locked(&device->askers, &asker);
  tide__mutex_unlock(&device->pools_lock);
  while (count-- > 0) {
    if (!scope_takes(device, &scopes[count], request->stream)) continue;
    if (!pool_visit(device, &scopes[count])) continue;
    request->pool = request->visited = scopes[count].pool;
    break;
  }
  tide__mutex_lock(&device->pools_lock);
  tide__askers_leave_locked(&device->askers, &asker);
  tide__mutex_unlock(&device->pools_lock);
}
