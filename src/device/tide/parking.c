// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Parks pools, and what parked pools need: records, requests, trims. Everything that can fail happens before
// pools change their state: memory that went is fetched again.
#include "device/tide/parking.h"

#include <string.h>

#include "device/tide/freight.h"

// ---------------------------------------------------------------------------------------------------
// Pools

static tide_status pool_check(tide_device_cache* device, tide__pool* pool) {
  const tide_pool number = pool->base.number;
  TIDE_REQUIRE(tide__policy_of(device, pool) == &tide__policy_tide, TIDE_ERR_UNSUPPORTED,
               "pool %u cannot be parked: the policy tide does not serve it", number);
  tide__mutex_lock(&device->pools_lock);
  const tide__scope* const scope = tide__pools_scope_locked(&device->pools, &pool->base);
  const bool has_capture = scope != NULL && !scope->is_region;
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(!has_capture, TIDE_ERR_STATE, "pool %u cannot be parked: its scope is open", number);
  return TIDE_OK;
}

static bool range_is_idle_locked(const tide__segment* segment, const tide__handle* handle) {
  const tide__block* block = segment->head;
  while (block != NULL && tide__block_end(block) <= handle->address) block = block->next;
  return block != NULL && block->state == TIDE__BLOCK_FREE &&
         tide__block_end(block) >= tide__handle_end(handle);
}

// Is memory of a segment used by somebody who does not know that it is parked? A BUSY block is being given
// back by a thread that is telling observers so: inside an observer nobody waits for that thread.
static tide_status segment_check_locked(const tide__segment* segment) {
  const tide_pool number = segment->lane->pool->base.number;
  TIDE_REQUIRE(segment->home != NULL, TIDE_ERR_UNSUPPORTED,
               "pool %u cannot be parked: it has memory that is not virtual", number);
  for (size_t i = 0; i < segment->home->count; i++) {
    const tide__handle* const handle = segment->home->handles[i];
    if (!handle->is_shared) continue;
    TIDE_REQUIRE(range_is_idle_locked(segment, handle), TIDE_ERR_STATE,
                 "pool %u cannot be parked: memory at %#llx is shared with other processes", number,
                 (unsigned long long)handle->address);
  }
  for (const tide__block* block = segment->head; block != NULL; block = block->next) {
    TIDE_REQUIRE(block->state != TIDE__BLOCK_BUSY, TIDE_ERR_STATE,
                 "pool %u cannot be parked: another thread is giving memory of it back", number);
    const bool is_lent = block->state == TIDE__BLOCK_ALLOCATED && block->is_borrowed;
    TIDE_REQUIRE(!is_lent, TIDE_ERR_STATE,
                 "pool %u cannot be parked: the block at %#llx serves a request of the default pool", number,
                 (unsigned long long)block->address);
  }
  return TIDE_OK;
}

static tide_status pool_check_memory(tide_device_cache* device, tide__pool* pool) {
  tide_status status = TIDE_OK;
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL && status == TIDE_OK; lane = tide__lane_next(device, pool, lane)) {
    tide__mutex_lock(&lane->lock);
    TIDE_LIST_EACH(it, &lane->segments) {
      status = segment_check_locked(TIDE_OWNER(it, tide__segment, link));
      if (status != TIDE_OK) break;
    }
    tide__mutex_unlock(&lane->lock);
  }
  return status;
}

tide_status tide__pools_check_captures(tide_device_cache* device, const char* call) {
  const bool is_capturing = tide__has_captures(device) && !tide__device_options(device)->captures_by_stream;
  TIDE_REQUIRE(!is_capturing, TIDE_ERR_CAPTURE, "%s: a scope is open that is not a region", call);
  return TIDE_OK;
}

static const tide__pool* list_moving(tide__pool_list list) {
  size_t i = 0;
  while (i < list.count && !list.pools[i]->is_moving) i++;
  return i < list.count ? list.pools[i] : NULL;
}

// While this waits for one pool, another one may begin to move.
tide_status tide__pools_wait(tide_device_cache* device, tide__pool_list list, const char* call) {
  for (;;) {
    tide__gate_settle(device);
    const tide__pool* const moving = list_moving(list);
    if (moving == NULL) return TIDE_OK;
    TIDE_REQUIRE(!tide__observers_are_around(), TIDE_ERR_STATE,
                 "%s: pool %u is being parked, and this is called inside an observer", call,
                 moving->base.number);
    tide__gate_wait_for(device, moving);
  }
}

void tide__pools_set_moving(tide__pool_list list, bool is_moving) {
  for (size_t i = 0; i < list.count; i++) list.pools[i]->is_moving = is_moving;
}

static uint64_t list_reserved(tide__pool_list list) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < list.count; i++) bytes += tide__load_relaxed(&list.pools[i]->reserved_bytes);
  return bytes;
}

void tide__parked_free(tide_device_cache* device, tide__pool* pool) {
  tide__parked* const parked = pool->parked;
  if (parked == NULL) return;
  pool->parked = NULL;
  if (parked->backup != NULL) tide__backup_leave(device, parked->backup);
  tide__heap_release(device->heap, parked, 1, sizeof *parked);
}

// ---------------------------------------------------------------------------------------------------
// Parking

// Tags above each other whose uses are waited for; if there are more, all work is.
enum { USES_MOST = 16 };

// A call that parks.
typedef struct park_call {
  tide_device_cache* device;
  tide__pool_list list;
  const tide__park_order* order;
  const tide__call_context* context;
  tide__freight freight;
  tide__parked** parked;  // owned; the records of the pools
  tide__backup* backup;   // the call is a user
  bool is_saved;          // the backup has the contents already
  bool was_kept;          // the backup was kept, and the call has found it
  tide_event events[USES_MOST];
  size_t event_count;
} park_call;

// Waits for announced work of released blocks, and gives back what is wholly idle. A graph may write to
// memory that is idle for the allocator, so that of a captured pool stays.
static tide_status pool_quiesce(const park_call* call, tide__pool* pool) {
  tide_device_cache* const device = call->device;
  if (!tide__timeline_is_empty(device)) TIDE_TRY(tide__timeline_wait(device, pool, call->context));
  if (tide__load_relaxed(&pool->is_captured)) return TIDE_OK;
  return tide__reclaim_pool(device, pool, call->context);
}

static tide_status records_make(park_call* call) {
  const tide_heap* const heap = call->device->heap;
  call->parked = tide__heap_alloc(heap, call->list.count, sizeof(tide__parked*));
  TIDE_REQUIRE(call->parked != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of parked pools");
  for (size_t i = 0; i < call->list.count; i++) {
    call->parked[i] = tide__heap_alloc(heap, 1, sizeof(tide__parked));
    TIDE_REQUIRE(call->parked[i] != NULL, TIDE_ERR_NO_MEMORY, "no memory for the records of parked pools");
    call->parked[i]->bytes = tide__load_relaxed(&call->list.pools[i]->reserved_bytes);
    call->parked[i]->unparks_on_request = call->order->unparks_on_request;
  }
  return TIDE_OK;
}

static void records_free(const park_call* call) {
  const tide_heap* const heap = call->device->heap;
  for (size_t i = 0; call->parked != NULL && i < call->list.count; i++) {
    tide__heap_release(heap, call->parked[i], 1, sizeof *call->parked[i]);
  }
  tide__heap_release(heap, call->parked, call->list.count, sizeof(tide__parked*));
}

static bool list_is_constant(tide__pool_list list) {
  size_t i = 0;
  while (i < list.count && tide__budget_of(tide__pool_tag_record(list.pools[i]))->is_constant) i++;
  return i == list.count;
}

static bool freight_has(const tide__freight* freight, uint64_t address) {
  for (size_t i = 0; i < freight->home_count; i++) {
    const tide__segment* const segment = freight->homes[i].segment;
    if (address - segment->address < segment->bytes) return true;
  }
  return false;
}

static bool pool_has(tide_device_cache* device, tide__pool* pool, uint64_t address) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) {
    TIDE_LIST_EACH(it, &lane->segments) {
      const tide__segment* const segment = TIDE_OWNER(it, tide__segment, link);
      if (address - segment->address < segment->bytes) return true;
    }
  }
  return false;
}

// Has no pool of its tag memory any more where its contents were?
static bool backup_is_stale(tide_device_cache* device, const tide__backup* backup) {
  tide__pool_cursor at = { 0 };
  bool is_stale = true;
  for (tide__pool* pool = NULL; (pool = tide__pool_next(device, &at)) != NULL;) {
    if (!is_stale || backup->content_count == 0 || strcmp(tide__pool_tag(pool), backup->tag) != 0) continue;
    is_stale = !pool_has(device, pool, backup->contents[0].address);
  }
  return is_stale;
}

// The backup that was kept for the tag when these pools were unparked, or one that nobody needs; NULL: none.
static tide__backup* backup_find(const park_call* call, bool is_stale) {
  const tide__park_order* const order = call->order;
  tide__backup* backup = call->device->backups;
  for (; backup != NULL; backup = backup->next) {
    const bool is_idle = backup->users == 0 || (backup == order->backup && backup->users == 1);
    if (!is_idle || !backup->is_kept || backup->kind != order->wish.kind) continue;
    if (strcmp(backup->tag, order->wish.tag) != 0) continue;
    if (is_stale && backup_is_stale(call->device, backup)) break;
    if (backup->content_count > 0 && freight_has(&call->freight, backup->contents[0].address)) break;
  }
  return backup;
}

// Has a backup the contents of exactly these blocks?
static bool backup_is_same(const tide__backup* backup, const tide__freight* freight) {
  if (backup->print != freight->print || backup->content_count != freight->content_count) return false;
  for (size_t i = 0; i < backup->content_count; i++) {
    const tide__content* const a = &backup->contents[i];
    const tide__content* const b = &freight->contents[i];
    if (a->address != b->address || a->bytes != b->bytes || a->offset != b->offset) return false;
  }
  return true;
}

// A backup for the contents: one that was kept for these pools or for the tag, if it is large enough, or a
// new one. Contents that do not change are there already. One that is not large enough ends, so that they do
// not become more and more.
static tide_status backup_get(park_call* call) {
  const tide__park_order* const order = call->order;
  const uint64_t bytes = tide__freight_content_bytes(&call->freight);
  if (order->wish.kind == TIDE_BACKUP_NONE || bytes == 0) return TIDE_OK;
  tide__backup* const found = backup_find(call, false);
  tide__backup* kept = found != NULL ? found : order->backup;
  if (kept == NULL) kept = backup_find(call, true);
  call->is_saved = found != NULL && list_is_constant(call->list) && backup_is_same(found, &call->freight);
  if (kept != NULL && kept->bytes >= bytes) {
    call->backup = kept;
    call->was_kept = true;
    tide__backup_share(call->backup);
  } else {
    if (kept != NULL) kept->is_kept = false;  // it is too small for what is there now
    TIDE_TRY(tide__backup_new(call->device, &order->wish, bytes, &call->backup));
  }
  if (!call->is_saved) tide__backup_forget(call->device, call->backup);
  call->backup->is_kept = false;
  return TIDE_OK;
}

static void totals_park(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                        const tide__call_context* context) {
  tide__unmapped_keep(device, segment, from, to, context);
  tide__totals_park(device, segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE, (int64_t)(to - from));
}

// What kept backups have of the pools is older than what was parked now.
static void kept_forget(const park_call* call) {
  const tide__freight* const freight = &call->freight;
  for (tide__backup* backup = call->device->backups; backup != NULL; backup = backup->next) {
    for (size_t i = 0; i < freight->home_count && backup->users == 0; i++) {
      const tide__segment* const segment = freight->homes[i].segment;
      const size_t at = tide__backup_content_at(backup, segment->address);
      const bool has_any = at < backup->content_count &&
                           backup->contents[at].address < segment->address + segment->bytes;
      if (has_any) tide__backup_forget(call->device, backup);
    }
  }
}

// The list of contents goes to the backup.
static void contents_keep(park_call* call) {
  tide__freight* const freight = &call->freight;
  call->backup->print = freight->print;
  tide__backup_set_contents(call->device, call->backup, freight->contents, freight->content_count,
                            freight->content_capacity);
  freight->contents = NULL;
  freight->content_count = 0;
  freight->content_capacity = 0;
}

// The memory of the pools is away, or a part of it.
static void park_commit(park_call* call) {
  tide__freight_settle(&call->freight, true);
  tide__freight_each_range(&call->freight, true, totals_park, call->context);
  for (size_t i = 0; i < call->list.count; i++) {
    tide__pool* const pool = call->list.pools[i];
    pool->parked = call->parked[i];
    call->parked[i] = NULL;
    pool->parked->backup = call->backup;
    if (call->backup != NULL) tide__backup_share(call->backup);
    tide__store_relaxed(&pool->is_parked, 1);
  }
  kept_forget(call);
  if (call->backup != NULL) contents_keep(call);
}

// Peers that were enabled meanwhile have no access to handles that did not count as mapped.
static void range_give_access(tide_device_cache* device, const tide__segment* segment, uint64_t from,
                              uint64_t to, const tide__call_context* context) {
  (void)segment;
  (void)context;
  tide__ignore(tide__access_give(device, from, to - from));
}

static void park_undo(park_call* call, uint32_t peers_before) {
  const tide_error before = *tide_last_error();
  if (call->device->peer_count != peers_before) {
    tide__freight_each_range(&call->freight, false, range_give_access, call->context);
  }
  tide__freight_settle(&call->freight, false);
  tide__freight_each_range(&call->freight, false, tide__unmapping_revoke, call->context);
  tide__error_restore(&before);
}

// The events behind the work of all uses of a pool that a use has brought back. Returns false if there may be
// other work.
static bool events_find(park_call* call) {
  tide__pool* const pool = call->list.pools[0];
  if (call->list.count != 1 || !tide__load_relaxed(&pool->is_tracked)) return false;
  for (const tide__tag* tag = tide__pool_tag_record(pool); tag != NULL; tag = tag->parent) {
    if (tag->is_done_unknown || tag->uses > 0 || call->event_count == USES_MOST) return false;
    if (tag->done != NULL) call->events[call->event_count++] = tag->done;
  }
  return true;
}

// All work has passed, so the next event of a tag that is not in use is behind everything.
static void work_has_passed(tide__pool_list list) {
  for (size_t i = 0; i < list.count; i++) {
    tide__tag* tag = tide__pool_tag_record(list.pools[i]);
    for (; tag != NULL; tag = tag->parent) tag->is_done_unknown = tag->is_done_unknown && tag->uses > 0;
  }
}

static tide_status cargo_send(park_call* call, tide_park_result* out) {
  tide__cargo cargo = tide__freight_cargo(&call->freight, call->backup != NULL ? call->backup->store : NULL);
  tide__cargo_count count = { 0, 0 };
  cargo.is_saved = call->is_saved;
  if (call->is_saved) cargo.group_bytes = TIDE_NO_LIMIT;  // there are no copies that unmapping could overlap
  cargo.events = events_find(call) ? call->events : NULL;
  cargo.event_count = call->event_count;
  if (cargo.events != NULL)
    TIDE_TRY(tide__arrival_wait_for(call->device, call->list.pools[0]->arrival_number));
  TIDE_TRY(tide__cargo_send(call->device, &cargo, &count));
  if (cargo.events == NULL) work_has_passed(call->list);
  out->physical_bytes += count.physical_bytes;
  out->copied_bytes = count.copied_bytes;
  return TIDE_OK;
}

// Observers hear of the end of the memory before it goes. Meanwhile no request gets any of it.
static tide_status park_send(park_call* call, tide_park_result* out) {
  tide_device_cache* const device = call->device;
  const uint32_t peers = device->peer_count;
  tide_status status = tide__freight_load(&call->freight, true);
  if (status == TIDE_OK) status = backup_get(call);
  if (status != TIDE_OK) {
    tide__freight_settle(&call->freight, false);
    return status;
  }
  tide__freight_each_range(&call->freight, false, tide__unmapping_tell, call->context);
  status = cargo_send(call, out);
  if (status == TIDE_OK) {
    park_commit(call);
    return TIDE_OK;
  }
  if (tide__freight_away_bytes(&call->freight) == 0) {
    park_undo(call, peers);
    return status;
  }
  const tide_error why = *tide_last_error();
  park_commit(call);
  tide__freight_each_range(&call->freight, false, tide__unmapping_revoke, call->context);
  return TIDE_FAIL(status, "the memory that had gone cannot be taken again, and stays parked: %.150s",
                   why.text);
}

static tide_status park_moving(park_call* call, tide_park_result* out) {
  tide__stream_set streams;
  TIDE_TRY(tide__streams_find(call->device, NULL, 0, &streams));  // none is captured
  tide__streams_free(call->device, &streams);
  const uint64_t reserved = list_reserved(call->list);
  for (size_t i = 0; i < call->list.count; i++) TIDE_TRY(pool_quiesce(call, call->list.pools[i]));
  for (size_t i = 0; i < call->list.count; i++)
    TIDE_TRY(pool_check_memory(call->device, call->list.pools[i]));
  out->physical_bytes = reserved - tide__min(reserved, list_reserved(call->list));
  tide_status status = records_make(call);
  if (status == TIDE_OK) status = tide__freight_of(call->device, call->list, &call->freight);
  if (status == TIDE_OK) status = park_send(call, out);
  records_free(call);
  out->block_bytes = call->freight.block_bytes;
  tide__freight_free(&call->freight);
  return status;
}

tide_status tide__pools_park(tide_device_cache* device, tide__pool_list list, const tide__park_order* order,
                             const tide__call_context* context, tide_park_result* out) {
  park_call call = { .device = device, .list = list, .order = order, .context = context };
  call.freight.device = device;
  if (list.count == 0) return TIDE_OK;
  TIDE_TRY(tide__pools_check_captures(device, "device_park"));
  TIDE_ASSERT(list_moving(list) == NULL);
  for (size_t i = 0; i < list.count; i++) TIDE_TRY(pool_check(device, list.pools[i]));
  tide__pools_set_moving(list, true);
  const tide_status status = park_moving(&call, out);
  tide__pools_set_moving(list, false);
  out->backup = order->wish.kind;
  if (call.backup != NULL) {
    const bool is_taken = call.backup == order->backup;
    const bool is_empty = call.backup->users == (is_taken ? 2 : 1);  // this call, and the one that took it
    out->backup = (uint32_t)tide__store_kind(call.backup->store);
    if (is_empty) call.backup->is_kept = call.was_kept;
    tide__backup_leave(device, call.backup);
  }
  if (status == TIDE_OK) out->pool_count = (uint32_t)list.count;
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Requests and trims

tide_status tide__pool_open(const tide__request* request) {
  tide_device_cache* const device = request->device;
  tide__pool* pool = request->pool;
  const tide__pool_list list = { &pool, 1 };
  if (!tide__pool_is_away(pool)) return TIDE_OK;
  TIDE_TRY(tide__pools_wait(device, list, "device_alloc"));
  if (pool->parked == NULL) return TIDE_OK;
  TIDE_REQUIRE(pool->parked->unparks_on_request, TIDE_ERR_STATE, "device_alloc: pool %u is parked",
               pool->base.number);
  tide__unpark_order order = { .streams = &request->stream, .stream_count = 1 };
  order.keeps_backup = tide__budget_of(tide__pool_tag_record(pool))->yields;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  const tide_status status = tide__pools_unpark(device, list, &order, &request->context, &result);
  tide__heap_release(device->heap, order.lost, order.lost_capacity, sizeof *order.lost);
  return status;
}

static bool lane_is_idle(tide__lane* lane) {
  bool is_idle = true;
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL && is_idle; block = block->next) {
      is_idle = block->state == TIDE__BLOCK_FREE || block->state == TIDE__BLOCK_UNMAPPED;
    }
  }
  tide__mutex_unlock(&lane->lock);
  return is_idle;
}

static bool pool_is_idle(tide_device_cache* device, tide__pool* pool) {
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  while (lane != NULL && lane_is_idle(lane)) lane = tide__lane_next(device, pool, lane);
  return lane == NULL;
}

// Without memory that is away, a pool is not parked any more.
static void pool_tidy(tide_device_cache* device, tide__pool* pool) {
  const tide__pool_list list = { &pool, 1 };
  tide__freight freight;
  if (pool->parked == NULL || pool->is_moving || tide__pool_is_used(device, pool)) return;
  if (!pool_is_idle(device, pool) || !tide__parked_drop_idle(device, pool)) return;
  if (tide__parked_has_any(device, pool)) return;
  const tide_error before = *tide_last_error();
  if (tide__freight_of(device, list, &freight) == TIDE_OK && tide__freight_reload(&freight) == TIDE_OK) {
    tide__freight_settle(&freight, false);
    tide__store_relaxed(&pool->is_parked, 0);
    tide__parked_free(device, pool);
    tide__lane* lane = tide__lane_next(device, pool, NULL);
    for (; lane != NULL; lane = tide__lane_next(device, pool, lane))
      tide__segments_drop_unmapped(device, lane);
  }
  tide__freight_free(&freight);
  tide__error_restore(&before);
}

void tide__parking_tidy(tide_device_cache* device) {
  tide__pool_cursor at = { 0 };
  tide__pool* pool = tide__pool_next(device, &at);
  for (; pool != NULL; pool = tide__pool_next(device, &at)) pool_tidy(device, pool);
  tide__backups_sweep(device);
}
