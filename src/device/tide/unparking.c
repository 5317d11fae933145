// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Unparks pools. Everything that can fail happens before pools change their state: memory that came is sent
// away again.
#include "device/tide/freight.h"
#include "device/tide/giving.h"
#include "device/tide/parking.h"

// A call that unparks: one freight for each backup.
typedef struct unpark_call {
  tide_device_cache* device;
  tide__pool_list list;
  tide__unpark_order* order;
  const tide__call_context* context;
  tide__freight* freights;  // owned
  size_t freight_count;
  tide__want* wants;  // owned; what each pool needs
  tide__stream_set streams;
} unpark_call;

static tide__backup* pool_backup(const tide__pool* pool) { return pool->parked->backup; }

// Loads the pools with the same backup as pool `first`, unless an earlier one has it.
static tide_status backup_load(unpark_call* call, size_t first) {
  tide__pool** const pools = call->list.pools;
  for (size_t i = 0; i < first; i++) {
    if (pool_backup(pools[i]) == pool_backup(pools[first])) return TIDE_OK;
  }
  tide__freight* const freight = &call->freights[call->freight_count++];
  *freight = (tide__freight){ .device = call->device };
  for (size_t i = first; i < call->list.count; i++) {
    if (pool_backup(pools[i]) == pool_backup(pools[first]))
      TIDE_TRY(tide__freight_add_pool(freight, pools[i]));
  }
  tide__freight_sort(freight);
  return tide__freight_reload(freight);
}

static tide_status pools_load(unpark_call* call) {
  call->freights = tide__heap_alloc(call->device->heap, call->list.count, sizeof *call->freights);
  call->wants = tide__heap_alloc(call->device->heap, call->list.count, sizeof *call->wants);
  TIDE_REQUIRE(call->freights != NULL && call->wants != NULL, TIDE_ERR_NO_MEMORY,
               "no memory for the records of parked pools");
  for (size_t i = 0; i < call->list.count; i++) {
    TIDE_TRY(backup_load(call, i));
    call->wants[i] =
        (tide__want){ call->list.pools[i], tide__parked_bytes(call->device, call->list.pools[i]) };
  }
  return TIDE_OK;
}

static void freights_free(unpark_call* call) {
  for (size_t i = 0; i < call->freight_count; i++) tide__freight_free(&call->freights[i]);
  tide__heap_release(call->device->heap, call->freights, call->list.count, sizeof *call->freights);
  tide__heap_release(call->device->heap, call->wants, call->list.count, sizeof *call->wants);
  call->freights = NULL;
  call->freight_count = 0;
}

static uint64_t calls_away_bytes(const unpark_call* call) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < call->freight_count; i++) bytes += tide__freight_away_bytes(&call->freights[i]);
  return bytes;
}

static bool limit_allows(tide_device_cache* device, uint64_t bytes) {
  const uint64_t limit = tide__load_relaxed(&device->limit);
  const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
  return limit == TIDE_NO_LIMIT || (reserved <= limit && bytes <= limit - reserved);
}

static tide_status idle_give_back(const unpark_call* call) {
  TIDE_TRY(tide__timeline_wait(call->device, NULL, call->context));
  tide__ignore(tide__external_synchronize(call->device));
  return tide__reclaim_all(call->device, call->context);
}

static tide__giving giving_for(const unpark_call* call) {
  return (tide__giving){ .device = call->device,
                         .wants = call->wants,
                         .want_count = call->list.count,
                         .ahead = call->order->ahead,
                         .context = call->context };
}

// Others give way for the memory, if budgets are in the way.
static tide_status budgets_check(const unpark_call* call) {
  const tide__giving giving = giving_for(call);
  TIDE_TRY(tide__give_way(&giving));
  const tide__lack lack = tide__giving_lack(&giving);
  if (lack.bytes == 0) return TIDE_OK;
  TIDE_REQUIRE(lack.tag != NULL, TIDE_ERR_NO_MEMORY,
               "%llu bytes of parked memory do not fit: the device lacks %llu bytes for them",
               (unsigned long long)calls_away_bytes(call), (unsigned long long)lack.bytes);
  return TIDE_FAIL(
      TIDE_ERR_NO_MEMORY,
      "%llu bytes of parked memory do not fit into the limit of the tag \"%s\", %llu bytes: %llu "
      "bytes are lacking",
      (unsigned long long)calls_away_bytes(call), lack.tag->text, (unsigned long long)lack.tag->budget.limit,
      (unsigned long long)lack.bytes);
}

static tide_status limit_check(const unpark_call* call) {
  if (tide__budgets_exist(call->device)) return budgets_check(call);
  const uint64_t bytes = calls_away_bytes(call);
  if (limit_allows(call->device, bytes)) return TIDE_OK;
  TIDE_TRY(idle_give_back(call));
  TIDE_REQUIRE(limit_allows(call->device, bytes), TIDE_ERR_NO_MEMORY,
               "%llu bytes of parked memory do not fit into the limit of %llu bytes",
               (unsigned long long)bytes, (unsigned long long)tide__load_relaxed(&call->device->limit));
  return TIDE_OK;
}

static tide__store* freight_store(const tide__freight* freight) {
  const tide__pool* const pool = freight->home_count > 0 ? freight->homes[0].segment->lane->pool : NULL;
  return pool != NULL && pool->parked->backup != NULL ? pool->parked->backup->store : NULL;
}

static tide_status freight_fetch(const unpark_call* call, tide__freight* freight, tide_park_result* out) {
  tide__cargo cargo = tide__freight_cargo(freight, freight_store(freight));
  tide__cargo_count count = { 0, 0 };
  tide_event done = NULL;
  // Calls that map hold up copies that are under way, so what comes ahead is mapped in one.
  if (call->order->ahead != NULL) cargo.group_bytes = TIDE_NO_LIMIT;
  TIDE_TRY(tide__cargo_fetch(call->device, &cargo, &count, &done));
  tide__arrival_note(call->device, done);
  out->physical_bytes += count.physical_bytes;
  out->copied_bytes += count.copied_bytes;
  out->block_bytes += freight->block_bytes;
  return TIDE_OK;
}

// The machine has no memory left, whatever budgets say.
static tide_status freight_press(const unpark_call* call, tide__freight* freight, tide_park_result* out) {
  tide__giving giving = giving_for(call);
  uint64_t turn = 0;
  giving.refused_bytes = tide__freight_away_bytes(freight);
  TIDE_TRY(idle_give_back(call));
  tide_status status = freight_fetch(call, freight, out);
  if (status != TIDE_ERR_NO_MEMORY || !tide__budgets_exist(call->device) || call->order->ahead != NULL)
    return status;
  TIDE_TRY(tide__give_idle(&giving, TIDE__GIVES_ALL));
  status = freight_fetch(call, freight, out);
  while (status == TIDE_ERR_NO_MEMORY && tide__give_next(&giving, &turn)) {
    status = freight_fetch(call, freight, out);
  }
  return status;
}

// If the device has no memory left, others give way first.
static tide_status freights_fetch(const unpark_call* call, tide_park_result* out) {
  for (size_t i = 0; i < call->freight_count; i++) {
    tide_status status = freight_fetch(call, &call->freights[i], out);
    if (status == TIDE_ERR_NO_MEMORY) status = freight_press(call, &call->freights[i], out);
    call->order->lacks_device_memory = status == TIDE_ERR_NO_MEMORY;
    TIDE_TRY(status);
  }
  return TIDE_OK;
}

static bool content_has(const tide__freight* freight, const tide__block* block) {
  for (size_t i = 0; i < freight->content_count; i++) {
    const tide__content* const content = &freight->contents[i];
    if (content->is_lost && block->address >= content->address &&
        block->address < content->address + content->bytes) {
      return true;
    }
  }
  return false;
}

static bool freight_has_lost(const tide__freight* freight) {
  for (size_t i = 0; i < freight->content_count; i++) {
    if (freight->contents[i].is_lost) return true;
  }
  return false;
}

// Lists the blocks in lost contents; false if there is no room for one more.
static bool home_list_lost_locked(const tide__freight* freight, const tide__freight_home* home,
                                  tide__unpark_order* order) {
  const size_t before = order->lost_count;
  for (const tide__block* block = home->segment->head; block != NULL; block = block->next) {
    if (block->state != TIDE__BLOCK_ALLOCATED || !content_has(freight, block)) continue;
    if (order->lost_count == order->lost_capacity) {
      order->lost_count = before;
      return false;
    }
    order->lost[order->lost_count++] = (tide__lost_block){ block->address, tide__block_counted_bytes(block) };
  }
  return true;
}

static tide_status home_list_lost(tide_device_cache* device, const tide__freight* freight,
                                  const tide__freight_home* home, tide__unpark_order* order) {
  for (;;) {
    tide__mutex_lock(&home->segment->lane->lock);
    const bool has_room = home_list_lost_locked(freight, home, order);
    tide__mutex_unlock(&home->segment->lane->lock);
    if (has_room) return TIDE_OK;
    void* lost = order->lost;
    const bool is_grown = tide__heap_grow(device->heap, &lost, &order->lost_capacity,
                                          order->lost_capacity + 1, sizeof *order->lost);
    order->lost = lost;
    TIDE_REQUIRE(is_grown, TIDE_ERR_NO_MEMORY, "no memory for the records of lost blocks");
  }
}

static tide_status lost_list(const unpark_call* call) {
  for (size_t i = 0; i < call->freight_count; i++) {
    const tide__freight* const freight = &call->freights[i];
    if (!freight_has_lost(freight)) continue;
    for (size_t k = 0; k < freight->home_count; k++) {
      TIDE_TRY(home_list_lost(call->device, freight, &freight->homes[k], call->order));
    }
  }
  return TIDE_OK;
}

static void totals_unpark(tide_device_cache* device, const tide__segment* segment, uint64_t from, uint64_t to,
                          const tide__call_context* context) {
  tide__totals_park(device, segment->is_small ? TIDE_STAT_SMALL : TIDE_STAT_LARGE, -(int64_t)(to - from));
  tide__mapped_keep(device, segment, from, to, context);
}

// Counts the memory of a home that came. What was there all the time, or did not come, does not count.
static void handles_count(tide_device_cache* device, const tide__freight* freight,
                          const tide__freight_home* home, const tide__call_context* context) {
  const tide__segment* const segment = home->segment;
  uint64_t from = 0;
  uint64_t to = 0;
  for (size_t i = 0; i < home->parcel_count; i++) {
    const tide__parcel* const parcel = &freight->parcels[home->parcel + i];
    if (segment->home->handles[i]->physical != NULL || parcel->physical == NULL) continue;
    if (parcel->address != to) {
      if (from < to) totals_unpark(device, segment, from, to, context);
      from = parcel->address;
    }
    to = parcel->address + parcel->bytes;
  }
  if (from < to) totals_unpark(device, segment, from, to, context);
}

static void unpark_commit(const unpark_call* call) {
  for (size_t i = 0; i < call->freight_count; i++) {
    tide__freight* const freight = &call->freights[i];
    for (size_t k = 0; k < freight->home_count; k++) {
      handles_count(call->device, freight, &freight->homes[k], call->context);
    }
    tide__freight_settle(freight, false);
  }
  for (size_t i = 0; i < call->list.count; i++) {
    tide__backup* const backup = pool_backup(call->list.pools[i]);
    if (backup != NULL) backup->is_kept = call->order->keeps_backup;
    tide__store_relaxed(&call->list.pools[i]->is_tracked, call->order->is_for_streams);
    if (call->device->arrival != NULL) {
      call->list.pools[i]->arrival_number = call->device->arrival_number;
      tide__store_relaxed(&call->list.pools[i]->is_arriving, call->order->is_for_streams);
    }
    tide__store_relaxed(&call->list.pools[i]->is_parked, 0);
    tide__parked_free(call->device, call->list.pools[i]);
  }
}

// Leaves only those parcels in a freight that came with this call.
static void freight_limit(tide__freight* freight) {
  for (size_t i = 0; i < freight->home_count; i++) {
    const tide__freight_home* const home = &freight->homes[i];
    for (size_t k = 0; k < home->parcel_count; k++) {
      if (home->segment->home->handles[k]->physical != NULL) freight->parcels[home->parcel + k].bytes = 0;
    }
  }
}

// Sends away again what came. If the machine refuses that, too, the memory stays, and only the rest is
// parked.
static void freight_return(const unpark_call* call, tide__freight* freight) {
  tide__cargo cargo = tide__freight_cargo(freight, freight_store(freight));
  tide__cargo_count count = { 0, 0 };
  if (tide__freight_away_bytes(freight) > 0) return;  // it did not come
  freight_limit(freight);
  if (tide__cargo_send(call->device, &cargo, &count) == TIDE_OK) return;
  for (size_t i = 0; i < freight->home_count; i++) {
    handles_count(call->device, freight, &freight->homes[i], call->context);
  }
  tide__freight_settle(freight, true);
}

static void freights_return(const unpark_call* call) {
  const tide_error before = *tide_last_error();
  for (size_t i = 0; i < call->freight_count; i++) freight_return(call, &call->freights[i]);
  tide__error_restore(&before);
}

// Memory of those that give way is used for those that come.
static tide_status memory_fetch(const unpark_call* call, tide_park_result* out) {
  tide__stock_open(call->device);
  tide_status status = limit_check(call);
  if (status == TIDE_OK) status = freights_fetch(call, out);
  tide__stock_close(call->device);
  return status;
}

static tide_status unpark_fetch(unpark_call* call, tide_park_result* out) {
  tide_status status = memory_fetch(call, out);
  if (status == TIDE_OK) status = lost_list(call);
  if (status == TIDE_OK) {
    status = call->order->is_for_streams ? tide__arrival_begin_for(call->device, &call->streams)
                                         : tide__arrival_begin(call->device, &call->streams);
  }
  if (status == TIDE_OK && call->order->waits) status = tide__arrival_wait(call->device);
  if (status == TIDE_OK) unpark_commit(call);
  else freights_return(call);
  return status;
}

static tide_status unpark_moving(unpark_call* call, tide_park_result* out) {
  for (size_t i = 0; i < call->list.count; i++) {
    tide__pool* const pool = call->list.pools[i];
    const tide__backup* const backup = pool->parked->backup;
    if (!tide__load_relaxed(&pool->is_captured)) (void)tide__parked_drop_idle(call->device, pool);
    if (backup != NULL) out->backup = (uint32_t)tide__store_kind(backup->store);
  }
  tide_status status = pools_load(call);
  if (status == TIDE_OK) status = unpark_fetch(call, out);
  freights_free(call);
  return status;
}

tide_status tide__pools_unpark(tide_device_cache* device, tide__pool_list list, tide__unpark_order* order,
                               const tide__call_context* context, tide_park_result* out) {
  unpark_call call = { .device = device, .list = list, .order = order, .context = context };
  if (list.count == 0) return TIDE_OK;
  TIDE_TRY(tide__pools_check_captures(device, "device_unpark"));
  if (order->is_for_streams) {
    TIDE_TRY(tide__streams_take(device, order->streams, order->stream_count, &call.streams));
  } else {
    TIDE_TRY(tide__streams_find(device, order->streams, order->stream_count, &call.streams));
  }
  tide__pools_set_moving(list, true);  // first, because observers hear of what is given, and the gate is left
  const tide_status status = unpark_moving(&call, out);
  tide__pools_set_moving(list, false);
  tide__streams_free(device, &call.streams);
  tide__backups_sweep(device);
  if (status == TIDE_OK) out->pool_count = (uint32_t)list.count;
  for (size_t i = 0; i < order->lost_count; i++) out->lost_bytes += order->lost[i].bytes;
  return status;
}

tide_status tide__pools_arrive(tide_device_cache* device, tide__pool_list list,
                               const tide__unpark_order* order) {
  tide__stream_set streams;
  size_t i = 0;
  for (size_t k = 0; k < list.count; k++) tide__store_relaxed(&list.pools[k]->is_tracked, 0);
  while (i < list.count && !tide__pool_is_arriving(device, list.pools[i])) i++;
  if (i == list.count || tide__arrival_is_over(device)) return TIDE_OK;
  TIDE_TRY(tide__streams_find(device, order->streams, order->stream_count, &streams));
  const tide_status status = tide__arrival_begin(device, &streams);
  tide__streams_free(device, &streams);
  return status == TIDE_OK && order->waits ? tide__arrival_wait(device) : status;
}
