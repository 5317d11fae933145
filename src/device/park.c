// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The calls of parking: which pools a tag means, their figures, backups, and reading parked blocks.
#include <string.h>

#include "base/sized.h"
#include "device/tide/parking.h"

// ---------------------------------------------------------------------------------------------------
// The pools of a tag

// Pools of which the call is a guest.
typedef struct tag_pools {
  tide__pool** pools;  // owned
  size_t count;
  size_t capacity;
} tag_pools;

// Makes the caller a guest of the pools as far as there is room; returns how many there are.
static size_t pools_visit_locked(tide_device_cache* device, const char* tag, tag_pools* out) {
  size_t count = 0;
  tide__pool_base* base = tide__pools_first_locked(&device->pools);
  for (; base != NULL; base = tide__pools_after_locked(base)) {
    if (!tide__tag_covers(tag, tide__pool_tag(tide__pool_of(base)))) continue;
    if (count < out->capacity) out->pools[count] = tide__pool_of(base);
    count++;
  }
  out->count = count <= out->capacity ? count : 0;
  for (size_t i = 0; i < out->count; i++) out->pools[i]->base.guests++;
  return count;
}

static tide_status pools_find(tide_device_cache* device, const char* call, const char* tag, tag_pools* out) {
  *out = (tag_pools){ NULL, 0, 0 };
  for (;;) {
    tide__mutex_lock(&device->pools_lock);
    const size_t count = pools_visit_locked(device, tag, out);
    tide__mutex_unlock(&device->pools_lock);
    TIDE_REQUIRE(count > 0, TIDE_ERR_HANDLE, "%s: no pool has the tag \"%s\"", call, tag != NULL ? tag : "");
    if (count == out->count) return TIDE_OK;
    void* pools = out->pools;
    const bool is_grown = tide__heap_grow(device->heap, &pools, &out->capacity, count, sizeof *out->pools);
    out->pools = pools;
    TIDE_REQUIRE(is_grown, TIDE_ERR_NO_MEMORY, "%s: no memory for a list of %zu pools", call, count);
  }
}

static void pools_leave(tide_device_cache* device, tag_pools* found) {
  for (size_t i = 0; i < found->count; i++) tide__pool_leave(device, found->pools[i]);
  tide__heap_release(device->heap, found->pools, found->capacity, sizeof *found->pools);
  *found = (tag_pools){ NULL, 0, 0 };
}

// Moves those pools to place `first` and behind it that are parked, or not, and returns them: those with a
// kind of backup, or all if that is TIDE_BACKUP_OF_POOL.
static tide__pool_list pools_select(tag_pools* found, size_t first, bool is_parked, uint32_t kind) {
  tide__pool_list list = { found->pools + first, 0 };
  for (size_t i = first; i < found->count; i++) {
    tide__pool* const pool = found->pools[i];
    const bool is_kind = kind == TIDE_BACKUP_OF_POOL || tide__load_relaxed(&pool->backup) == kind;
    if ((pool->parked != NULL) != is_parked || !is_kind) continue;
    found->pools[i] = list.pools[list.count];
    list.pools[list.count++] = pool;
  }
  return list;
}

static tide_status pools_wait(tide_device_cache* device, const tag_pools* found, const char* call) {
  return tide__pools_wait(device, (tide__pool_list){ found->pools, found->count }, call);
}

static tide_status call_check(tide_device_cache* device, const char* call, const char* tag) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "%s: no device", call);
  TIDE__REQUIRE_OWN(device, call);
  return tag != NULL ? tide__tag_check(call, tag) : TIDE_OK;
}

static tide__call_context context_of(tide_device_cache* device) {
  const tide__call_context none = { 0 };
  return tide__is_recording(device) ? tide__context_now(device, TIDE_HISTORY_ALL) : none;
}

// ---------------------------------------------------------------------------------------------------
// Figures

static void lane_count(tide__lane* lane, tide_tag_stats* stats) {
  tide__mutex_lock(&lane->lock);
  TIDE_LIST_EACH(it, &lane->segments) {
    const tide__block* block = TIDE_OWNER(it, tide__segment, link)->head;
    for (; block != NULL; block = block->next) {
      if (!tide__block_is_handed_out(block)) continue;
      stats->allocation_count++;
      stats->allocated_bytes += tide__block_counted_bytes(block);
    }
  }
  tide__mutex_unlock(&lane->lock);
}

static void pool_count(tide_device_cache* device, tide__pool* pool, tide_tag_stats* stats) {
  stats->pool_count++;
  stats->parked_pool_count += pool->parked != NULL;
  stats->reserved_bytes += tide__load_relaxed(&pool->reserved_bytes);
  stats->parked_bytes += tide__parked_bytes(device, pool);
  tide__lane* lane = tide__lane_next(device, pool, NULL);
  for (; lane != NULL; lane = tide__lane_next(device, pool, lane)) lane_count(lane, stats);
}

// A backup belongs to the tag of the call that made it; a part of its pools may have tags below.
static uint64_t backup_bytes(tide_device_cache* device, const char* tag, const tag_pools* found) {
  uint64_t bytes = 0;
  for (const tide__backup* backup = device->backups; backup != NULL; backup = backup->next) {
    const bool is_covered = tag == NULL || tide__tag_covers(tag, backup->tag);
    if (is_covered) bytes += backup->bytes;
    for (size_t i = 0; i < found->count && !is_covered; i++) {
      bytes += tide__parked_content_bytes(device, found->pools[i], backup);
    }
  }
  return bytes;
}

tide_status tide_device_tag_stats(tide_device_cache* device, const char* tag, tide_tag_stats* out) {
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  tag_pools found;
  TIDE_TRY(tide__sized_check("device_tag_stats", out, sizeof *out));
  tide__sized_clear(out);
  TIDE_TRY(call_check(device, "device_tag_stats", tag));
  (void)tide__gate_enter(device);
  const tide_status status = pools_find(device, "device_tag_stats", tag, &found);
  for (size_t i = 0; i < found.count; i++) pool_count(device, found.pools[i], &stats);
  stats.backup_bytes = backup_bytes(device, tag, &found);
  pools_leave(device, &found);
  tide__gate_leave(device);
  TIDE_TRY(status);
  return tide__sized_write("device_tag_stats", &stats, out, sizeof stats);
}

// ---------------------------------------------------------------------------------------------------
// Parking

// The options of a call as an order. Texts belong to the names of the allocator.
static tide_status order_read(tide_device_cache* device, const char* call, const char* tag,
                              const tide_park_options* options, tide__park_order* out) {
  tide_park_options whole = TIDE_PARK_OPTIONS_INIT;
  if (options != NULL) TIDE_TRY(tide__sized_read(call, options, &whole, sizeof whole));
  TIDE_REQUIRE(whole.backup <= TIDE_BACKUP_OF_POOL, TIDE_ERR_ARGUMENT, "%s: there is no backup of kind %u",
               call, whole.backup);
  *out =
      (tide__park_order){ .wish = { .kind = whole.backup }, .unparks_on_request = whole.unparks_on_request };
  TIDE_TRY(tide__tag_keep(device, call, tag, &out->wish.tag));
  if (whole.folder == NULL) return TIDE_OK;
  uint32_t number = 0;
  TIDE_TRY(tide_intern_add_text(device->history.names, whole.folder, strlen(whole.folder), &number));
  out->wish.folder = tide_intern_text(device->history.names, number, NULL);
  return TIDE_OK;
}

static void result_add(tide_park_result* sum, const tide_park_result* more) {
  sum->pool_count += more->pool_count;
  sum->physical_bytes += more->physical_bytes;
  sum->block_bytes += more->block_bytes;
  sum->copied_bytes += more->copied_bytes;
  if (more->copied_bytes > 0) sum->backup = more->backup;
}

// Parks pools with one kind of backup.
static tide_status kind_park(tide_device_cache* device, tide__pool_list list, const tide__park_order* order,
                             uint32_t kind, const tide__call_context* context, tide_park_result* out) {
  tide__park_order own = *order;
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  own.wish.kind = kind;
  if (kind != TIDE_BACKUP_FILE) own.wish.folder = NULL;
  own.backup = tide__backup_take(device, &own.wish);
  const tide_status status = tide__pools_park(device, list, &own, context, &result);
  if (own.backup != NULL) tide__backup_leave(device, own.backup);
  if (status == TIDE_OK) result_add(out, &result);
  return status;
}

// After a failure, what was parked before comes back, unless others have fetched it. If it does not, it stays
// parked with its backup.
static void parked_return(tide_device_cache* device, tag_pools parked, const tide__call_context* context) {
  const tide_error before = *tide_last_error();
  tide__unpark_order order = { .streams = NULL };
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  if (pools_wait(device, &parked, "device_park") == TIDE_OK) {
    const tide__pool_list list = pools_select(&parked, 0, true, TIDE_BACKUP_OF_POOL);
    tide__ignore(tide__pools_unpark(device, list, &order, context, &result));
  }
  tide__heap_release(device->heap, order.lost, order.lost_capacity, sizeof *order.lost);
  tide__error_restore(&before);
}

static tide_status found_park(tide_device_cache* device, tag_pools* found, const tide__park_order* order,
                              tide_park_result* out) {
  const tide__call_context context = context_of(device);
  const uint32_t asked = order->wish.kind;
  size_t parked = 0;  // pools at the front of the list that this call has parked; contents are discarded last
  if (asked != TIDE_BACKUP_OF_POOL) {
    TIDE_TRY(pools_wait(device, found, "device_park"));
    return kind_park(device, pools_select(found, 0, false, TIDE_BACKUP_OF_POOL), order, asked, &context, out);
  }
  for (uint32_t kind = TIDE_BACKUP_FILE + 1; kind-- > TIDE_BACKUP_NONE;) {
    tide_status status = pools_wait(device, found, "device_park");
    const tide__pool_list list = pools_select(found, parked, false, kind);
    if (status == TIDE_OK && list.count > 0) status = kind_park(device, list, order, kind, &context, out);
    if (status != TIDE_OK) {
      parked_return(device, (tag_pools){ found->pools, parked, parked }, &context);
      return status;
    }
    parked += list.count;
  }
  return TIDE_OK;
}

static tide_status park_at_gate(tide_device_cache* device, const char* tag, const tide__park_order* order,
                                tide_park_result* out) {
  tag_pools found;
  tide__backups_sweep(device);
  tide_status status = pools_find(device, "device_park", tag, &found);
  if (status == TIDE_OK) status = found_park(device, &found, order, out);
  pools_leave(device, &found);
  return status;
}

tide_status tide_device_park(tide_device_cache* device, const char* tag, const tide_park_options* options,
                             tide_park_result* out) {
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  tide__park_order order;
  if (out != NULL) TIDE_TRY(tide__sized_check("device_park", out, sizeof *out));
  if (out != NULL) tide__sized_clear(out);
  TIDE_TRY(call_check(device, "device_park", tag));
  TIDE_TRY(order_read(device, "device_park", tag, options, &order));
  (void)tide__gate_enter(device);
  const tide_status status = park_at_gate(device, tag, &order, &result);
  tide__gate_leave(device);
  tide__history_tell(&device->history);
  if (status == TIDE_OK && out != NULL) return tide__sized_write("device_park", &result, out, sizeof result);
  return status;
}

static tide_status unpark_at_gate(tide_device_cache* device, const char* tag, tide__unpark_order* order,
                                  tide_park_result* out) {
  const tide__call_context context = context_of(device);
  tag_pools found;
  tide__backups_sweep(device);
  tide_status status = pools_find(device, "device_unpark", tag, &found);
  if (status == TIDE_OK) status = pools_wait(device, &found, "device_unpark");
  if (status == TIDE_OK) {
    const tide__pool_list parked = pools_select(&found, 0, true, TIDE_BACKUP_OF_POOL);
    status = tide__pools_unpark(device, parked, order, &context, out);
  }
  if (status == TIDE_OK)
    status = tide__pools_arrive(device, (tide__pool_list){ found.pools, found.count }, order);
  pools_leave(device, &found);
  return status;
}

// A call of tide_device_unpark(); it is made again if other processes give memory for it.
typedef struct unpark_attempt {
  tide_device_cache* device;
  const char* tag;
  tide__unpark_order* order;
  tide_park_result* out;
} unpark_attempt;

static tide_status unpark_enter(void* user) {
  const unpark_attempt* const attempt = user;
  const tide_park_result none = TIDE_PARK_RESULT_INIT;
  *attempt->out = none;
  attempt->order->lost_count = 0;
  (void)tide__gate_enter(attempt->device);
  const tide_status status = unpark_at_gate(attempt->device, attempt->tag, attempt->order, attempt->out);
  tide__gate_leave(attempt->device);
  return status;
}

static tide_status unpark_ask(unpark_attempt* attempt) {
  const tide_error before = *tide_last_error();
  tide_tag_stats stats = TIDE_TAG_STATS_INIT;
  TIDE_TRY(tide_device_tag_stats(attempt->device, attempt->tag, &stats));
  const tide_status status = tide__allowance_ask(attempt->device, stats.parked_bytes, unpark_enter, attempt);
  if (status == TIDE_ERR_NO_MEMORY) tide__error_restore(&before);
  return status;
}

tide_status tide_device_unpark(tide_device_cache* device, const char* tag, const tide_unpark_options* options,
                               tide_park_result* out) {
  tide_park_result result = TIDE_PARK_RESULT_INIT;
  tide_unpark_options whole = TIDE_UNPARK_OPTIONS_INIT;
  if (out != NULL) TIDE_TRY(tide__sized_check("device_unpark", out, sizeof *out));
  if (out != NULL) tide__sized_clear(out);
  if (options != NULL) TIDE_TRY(tide__sized_read("device_unpark", options, &whole, sizeof whole));
  TIDE_REQUIRE(whole.streams != NULL || whole.stream_count == 0, TIDE_ERR_ARGUMENT,
               "device_unpark: no streams");
  TIDE_TRY(call_check(device, "device_unpark", tag));
  tide__unpark_order order = { .streams = whole.streams, .stream_count = whole.stream_count };
  order.waits = whole.waits;
  order.keeps_backup = whole.keeps_backup;
  unpark_attempt attempt = { device, tag, &order, &result };
  tide_status status = unpark_enter(&attempt);
  if (status == TIDE_ERR_NO_MEMORY && order.lacks_device_memory) status = unpark_ask(&attempt);
  tide__history_tell(&device->history);
  for (size_t i = 0; i < order.lost_count && status == TIDE_OK && whole.lost != NULL; i++) {
    whole.lost(whole.user, order.lost[i].address, order.lost[i].bytes);
  }
  tide__heap_release(device->heap, order.lost, order.lost_capacity, sizeof *order.lost);
  if (status == TIDE_OK && out != NULL)
    return tide__sized_write("device_unpark", &result, out, sizeof result);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Backups

// Makes a backup of one kind, unless one is kept that is large enough.
static tide_status kind_prepare(tide_device_cache* device, tide__pool_list list, tide__backup_wish wish) {
  tide__backup* backup = NULL;
  uint64_t bytes = 0;
  if (wish.kind != TIDE_BACKUP_FILE) wish.folder = NULL;
  TIDE_TRY(tide__pools_measure(device, list, &bytes));
  if (bytes == 0) return TIDE_OK;
  tide__backup* const kept = tide__backup_take(device, &wish);
  const bool is_enough = kept != NULL && kept->bytes >= bytes;
  if (kept != NULL && !is_enough) kept->is_kept = false;
  if (kept != NULL) tide__backup_leave(device, kept);
  if (is_enough) return TIDE_OK;
  TIDE_TRY(tide__backup_new(device, &wish, bytes, &backup));
  backup->is_kept = true;
  tide__ignore(tide__store_prepare(backup->store));  // tried again when it is used
  tide__backup_leave(device, backup);
  return TIDE_OK;
}

static tide_status found_prepare(tide_device_cache* device, tag_pools* found, tide__backup_wish wish) {
  const uint32_t asked = wish.kind;
  if (asked != TIDE_BACKUP_OF_POOL) {
    return kind_prepare(device, pools_select(found, 0, false, TIDE_BACKUP_OF_POOL), wish);
  }
  for (wish.kind = TIDE_BACKUP_PINNED; wish.kind <= TIDE_BACKUP_FILE; wish.kind++) {
    TIDE_TRY(kind_prepare(device, pools_select(found, 0, false, wish.kind), wish));
  }
  return TIDE_OK;
}

tide_status tide_device_prepare_backup(tide_device_cache* device, const char* tag,
                                       const tide_park_options* options) {
  tide__park_order order;
  tag_pools found;
  TIDE_TRY(call_check(device, "device_prepare_backup", tag));
  TIDE_TRY(order_read(device, "device_prepare_backup", tag, options, &order));
  TIDE_REQUIRE(order.wish.kind != TIDE_BACKUP_NONE, TIDE_ERR_ARGUMENT,
               "device_prepare_backup: contents that are discarded have no backup");
  (void)tide__gate_enter(device);
  tide_status status = pools_find(device, "device_prepare_backup", tag, &found);
  if (status == TIDE_OK) status = found_prepare(device, &found, order.wish);
  pools_leave(device, &found);
  tide__gate_leave(device);
  return status;
}

tide_status tide_device_trim_backups(tide_device_cache* device, const char* tag) {
  TIDE_TRY(call_check(device, "device_trim_backups", tag));
  (void)tide__gate_enter(device);
  const tide_status status = tide__arrival_wait(device);  // copies may still read from them
  if (status == TIDE_OK) tide__backups_trim(device, tag);
  tide__gate_leave(device);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Reading

static tide_status read_at_gate(tide_device_cache* device, uint64_t address, uint64_t bytes,
                                void* destination, const void** out_data) {
  tide__parked_place place = { NULL, 0 };
  TIDE_REQUIRE(tide__parked_find(device, address, bytes, &place), TIDE_ERR_HANDLE,
               "device_read_parked: %llu bytes at %#llx are not in a block with a backup",
               (unsigned long long)bytes, (unsigned long long)address);
  TIDE_REQUIRE(place.store != NULL, TIDE_ERR_STATE, "device_read_parked: the contents were discarded");
  if (out_data != NULL) *out_data = tide__store_data(place.store, place.offset);
  return destination != NULL ? tide__store_read(place.store, place.offset, bytes, destination) : TIDE_OK;
}

tide_status tide_device_read_parked(tide_device_cache* device, const void* address, size_t bytes,
                                    void* destination, const void** out_data) {
  if (out_data != NULL) *out_data = NULL;
  TIDE_TRY(call_check(device, "device_read_parked", NULL));
  if (bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(address != NULL, TIDE_ERR_ARGUMENT, "device_read_parked: no address");
  (void)tide__gate_enter(device);
  const tide_status status = read_at_gate(device, tide__address(address), bytes, destination, out_data);
  tide__gate_leave(device);
  return status;
}
