// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The pools of the device allocator: their options, and how they end. Users, guests and scopes are those of
// core/pools.h. A pool without users gives its memory back at the next trim, and is dropped when it has none.
#include "base/sized.h"
#include "device/lane/lane.h"

// PyTorch keeps pools in a hash table by their id (here the label, or else the number) and walks over them in
// the order of its places: the upper bits of this product.
static uint64_t pool_place(const tide__pool_base* pool) {
  const uint64_t* const label = pool->label;
  const uint64_t id = label[0] != 0 ? label[0] : label[1] != 0 ? label[1] : pool->number;
  return id * UINT64_C(11400714819323198485);
}

void tide__pools_start(tide_device_cache* device) {
  const tide_pool_options defaults = TIDE_POOL_OPTIONS_INIT;
  tide__pools_init(&device->pools, &device->pools_lock, device->heap, sizeof(tide__pool));
  device->pools.place = pool_place;
  device->pools.flags = &device->detours;
  device->pools.has_scopes = TIDE__HAS_SCOPES;
  device->pools.has_captures = TIDE__HAS_CAPTURES;
  tide__pool_init(&device->default_pool, &defaults);
  tide__pools_set_default(&device->pools, &device->default_pool.base);
}

void tide__pool_init(tide__pool* pool, const tide_pool_options* options) {
  pool->options = *options;
  pool->options.tag = NULL;  // borrowed during the call
  tide__store_relaxed(&pool->tag, "");
  tide__store_relaxed(&pool->tag_record, NULL);
  tide__store_relaxed(&pool->is_captured, 0);
  tide__store_relaxed(&pool->is_arriving, 0);
  tide__store_relaxed(&pool->is_tracked, 0);
  pool->arrival_number = 0;
  pool->floor_bytes = 0;
  pool->is_raw = options->is_plain || options->segment_alloc != NULL;
  tide__store_relaxed(&pool->no_split, options->no_split);
  tide__store_relaxed(&pool->backup, options->backup);
  tide__store_relaxed(&pool->use_on_oom, options->use_on_oom);
  for (int i = 0; i < 2; i++) tide__store_relaxed(&pool->searches[i], 0);
}

// ---------------------------------------------------------------------------------------------------
// The end of a pool

// Is nothing left in any lane of the pool?
static bool pool_is_empty(tide_device_cache* device, tide__pool* pool) {
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

// Ends the stay of the caller, and drops the pool if it has no other user or guest.
static void pool_drop(tide_device_cache* device, tide__pool* pool) {
  tide__labels_keep(device, pool);
  if (!tide__pools_remove(&device->pools, &pool->base)) return;
  tide__mutex_lock(&device->pools_lock);
  tide__lanes_drop_locked(device, pool);
  tide__mutex_unlock(&device->pools_lock);
  tide__lane_tables_free(device, pool);
  pool_tell_closed(pool);
  tide__pools_recycle(&device->pools, &pool->base);
}

void tide__pool_drop_unused(tide_device_cache* device) {
  tide__pool_cursor at = { 0 };
  for (;;) {
    tide__pool* const pool = tide__pool_of(tide__pools_next_unused(&device->pools, &at));
    if (pool == NULL) return;
    const bool is_over = !tide__pool_is_away(pool) && pool_is_empty(device, pool);
    if (is_over) pool_drop(device, pool);
    else tide__pool_leave(device, pool);
  }
}

void tide__pool_fini(tide_device_cache* device, tide__pool* pool) {
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

// What every call that names a pool asks first.
static tide_status device_check(tide_device_cache* device, const char* call) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "%s: no device", call);
  TIDE__REQUIRE_OWN(device, call);
  return TIDE_OK;
}

static tide_status backup_check(const char* call, uint32_t backup) {
  TIDE_REQUIRE(backup <= TIDE_BACKUP_FILE, TIDE_ERR_ARGUMENT, "%s: a pool has no backup of kind %u", call,
               backup);
  return TIDE_OK;
}

tide_status tide_device_pool_new(tide_device_cache* device, const tide_pool_options* options,
                                 tide_pool* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_pool_new: no device or out");
  *out = 0;
  tide_pool_options whole = TIDE_POOL_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read("device_pool_new", options, &whole, sizeof whole));
  TIDE_REQUIRE((whole.segment_alloc == NULL) == (whole.segment_release == NULL), TIDE_ERR_ARGUMENT,
               "device_pool_new: only one of segment_alloc and segment_release is given");
  TIDE_TRY(backup_check("device_pool_new", whole.backup));
  TIDE__REQUIRE_OWN(device, "device_pool_new");
  const char* tag = NULL;
  tide__tag* record = NULL;
  TIDE_TRY(tide__tag_keep(device, "device_pool_new", whole.tag, &tag));
  TIDE_TRY(tide__tag_make(device, tag, &record));
  if (tide__device_options(device)->plain_pools) whole.is_plain = true;
  tide__pool* const pool = tide__pool_of(tide__pools_take_record(&device->pools));
  TIDE_REQUIRE(pool != NULL, TIDE_ERR_NO_MEMORY, "device_pool_new: no memory for the record of a pool");
  tide__pool_init(pool, &whole);
  tide__store_relaxed(&pool->tag, tag);
  tide__store_relaxed(&pool->tag_record, record);
  *out = tide__pools_add(&device->pools, &pool->base, whole.label);
  return TIDE_OK;
}

tide_status tide_device_pool_retain(tide_device_cache* device, tide_pool pool) {
  TIDE_TRY(device_check(device, "device_pool_retain"));
  return tide__pools_retain(&device->pools, pool, "device_pool_retain");
}

tide_status tide_device_pool_users(tide_device_cache* device, tide_pool pool, uint32_t* out) {
  TIDE_REQUIRE(out != NULL, TIDE_ERR_ARGUMENT, "device_pool_users: no out");
  *out = 0;
  TIDE_TRY(device_check(device, "device_pool_users"));
  return tide__pools_users(&device->pools, pool, "device_pool_users", out);
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_use_on_oom(tide_device_cache* device, tide_pool pool,
                                                                   bool is_on) {
  tide__pool_base* found = NULL;
  TIDE_TRY(device_check(device, "device_pool_set_use_on_oom"));
  TIDE_TRY(tide__pools_lock(&device->pools, pool, false, "device_pool_set_use_on_oom", &found));
  tide__store_relaxed(&tide__pool_of(found)->use_on_oom, is_on);
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_no_split(tide_device_cache* device, tide_pool pool) {
  tide__pool_base* found = NULL;
  TIDE_TRY(device_check(device, "device_pool_set_no_split"));
  TIDE_TRY(tide__pools_lock(&device->pools, pool, false, "device_pool_set_no_split", &found));
  const bool is_parked = tide__load_relaxed(&tide__pool_of(found)->is_parked) != 0;
  if (!is_parked) tide__store_relaxed(&tide__pool_of(found)->no_split, 1);
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(!is_parked, TIDE_ERR_STATE, "device_pool_set_no_split: pool %u is parked", pool);
  return TIDE_OK;
}

TIDE_UNCHECKED_LOCKING tide_status tide_device_pool_set_backup(tide_device_cache* device, tide_pool pool,
                                                               tide_backup backup) {
  tide__pool_base* found = NULL;
  TIDE_TRY(device_check(device, "device_pool_set_backup"));
  TIDE_TRY(backup_check("device_pool_set_backup", (uint32_t)backup));
  TIDE_TRY(tide__pools_lock(&device->pools, pool, false, "device_pool_set_backup", &found));
  tide__store_relaxed(&tide__pool_of(found)->backup, (uint32_t)backup);
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

tide_status tide_device_pool_find(tide_device_cache* device, const uint64_t label[2], tide_pool* out) {
  TIDE_REQUIRE(device != NULL && label != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_pool_find: no device, label or out");
  *out = 0;
  TIDE_REQUIRE(label[0] != 0 || label[1] != 0, TIDE_ERR_ARGUMENT, "device_pool_find: the label is empty");
  TIDE__REQUIRE_OWN(device, "device_pool_find");
  *out = tide__pools_find_label(&device->pools, label);
  TIDE_REQUIRE(*out != 0, TIDE_ERR_HANDLE, "device_pool_find: no pool has the label %llu, %llu",
               (unsigned long long)label[0], (unsigned long long)label[1]);
  return TIDE_OK;
}

tide_status tide_device_pool_reserved(tide_device_cache* device, tide_pool pool, uint64_t* out) {
  TIDE_REQUIRE(device != NULL && out != NULL, TIDE_ERR_ARGUMENT, "device_pool_reserved: no device or out");
  *out = 0;
  TIDE__REQUIRE_OWN(device, "device_pool_reserved");
  tide__mutex_lock(&device->pools_lock);
  tide__pool* const found = tide__pool_find_locked(device, pool);
  if (found != NULL) *out = tide__load_relaxed(&found->reserved_bytes);
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(found != NULL, TIDE_ERR_HANDLE, "device_pool_reserved: there is no pool %u", pool);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Scopes

typedef bool (*scope_filter_fn)(void* user, tide_stream stream);

static bool filter_ask(const tide__scope* scope, int device, tide_stream stream) {
  (void)device;
  return ((scope_filter_fn)scope->filter)(scope->user, stream);
}

tide_status tide_device_pool_begin(tide_device_cache* device, tide_pool pool, const tide_scope* scope) {
  tide_scope whole = TIDE_SCOPE_INIT;
  if (scope != NULL) TIDE_TRY(tide__sized_read("device_pool_begin", scope, &whole, sizeof whole));
  scope = &whole;
  TIDE_TRY(device_check(device, "device_pool_begin"));
  const tide__scope opened = { .kind = scope->kind,
                               .is_region = scope->is_region,
                               .device = device->index,
                               .stream = scope->stream,
                               .ask = filter_ask,
                               .filter = (void (*)(void))scope->filter,
                               .user = scope->user };
  return tide__pools_begin(&device->pools, pool, &opened, "device_pool_begin");
}

tide_status tide_device_pool_end(tide_device_cache* device, tide_pool pool) {
  TIDE_TRY(device_check(device, "device_pool_end"));
  return tide__pools_end(&device->pools, pool, "device_pool_end");
}

void tide__pool_choose(tide__request* request) {
  tide_device_cache* const device = request->device;
  tide__pool* const pool =
      tide__pool_of(tide__pools_choose(&device->pools, device->machine, device->index, request->stream));
  if (pool != NULL) request->pool = request->visited = pool;
}
