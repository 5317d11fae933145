// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: sends parcels away. Copies of later groups are queued before an earlier group goes, so that
// the stream never waits for the host. A thread gives physical memory back meanwhile.
#include "core/capture.h"
#include "device/park/trip.h"

// Giving fewer handles back than this is not worth a thread.
#define HANDLES_ALONE 32

// ---------------------------------------------------------------------------------------------------
// The thread that gives memory back

// Handles on their way to the machine. Those that it refuses are moved to the beginning.
typedef struct cargo_giver {
  tide_device_cache* device;
  tide_physical* handles;  // owned
  size_t capacity;
  size_t refused;  // touched by the thread until it has ended
  tide__mutex lock;
  tide__signal changed;
  size_t count;  // under the lock, like
  bool is_ending;
  tide__crew crew;
} cargo_giver;

// Waits for the handle at an index. False at the end.
static bool giver_wait(cargo_giver* giver, size_t index, tide_physical* out) {
  tide__mutex_lock(&giver->lock);
  while (index == giver->count && !giver->is_ending) tide__signal_wait(&giver->changed, &giver->lock);
  const bool is_there = index < giver->count;
  if (is_there) *out = giver->handles[index];
  tide__mutex_unlock(&giver->lock);
  return is_there;
}

static void* giver_run(void* user) {
  cargo_giver* const giver = user;
  tide_physical handle = NULL;
  for (size_t i = 0; giver_wait(giver, i, &handle); i++) {
    if (tide_machine_physical_free(giver->device->machine, handle) == TIDE_OK) continue;
    giver->handles[giver->refused++] = handle;
  }
  return NULL;
}

// The thread must not close descriptors of the allocator. A machine without memory has one clock for all
// threads, so that only one gives the same times always.
static tide_status giver_start(cargo_giver* giver, tide_device_cache* device, size_t capacity) {
  *giver = (cargo_giver){ .device = device };
  if (capacity < HANDLES_ALONE || device->kept.count > 0 || device->stock_users > 0) return TIDE_OK;
  if (!tide_machine_pinned_memory(device->machine, device->index).is_host) return TIDE_OK;
  giver->handles = tide__heap_alloc(device->heap, capacity, sizeof *giver->handles);
  TIDE_REQUIRE(giver->handles != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for the records of %zu handles",
               capacity);
  giver->capacity = capacity;
  tide__mutex_init(&giver->lock, TIDE__RANK_LEAF);
  tide__signal_init(&giver->changed);
  tide__crew_start(&giver->crew, 1, giver_run, giver);
  return TIDE_OK;
}

static void giver_pass_on(cargo_giver* giver, const tide__parcel* parcels, size_t count) {
  tide__mutex_lock(&giver->lock);
  for (size_t i = 0; i < count; i++) giver->handles[giver->count++] = parcels[i].physical;
  tide__signal_all(&giver->changed);
  tide__mutex_unlock(&giver->lock);
}

static void giver_add(cargo_giver* giver, tide__parcel* parcels, size_t count) {
  const bool has_thread = giver->crew.count > 0;
  if (has_thread) giver_pass_on(giver, parcels, count);
  for (size_t i = 0; i < count; i++) {
    if (!has_thread && !tide__stock_put(giver->device, parcels[i].physical, parcels[i].bytes))
      tide__physical_give(giver->device, parcels[i].physical);
    parcels[i].physical = NULL;
  }
}

// Waits until all memory is given back. What the machine refuses becomes an orphan.
static void giver_end(cargo_giver* giver) {
  if (giver->handles == NULL) return;
  tide__mutex_lock(&giver->lock);
  giver->is_ending = true;
  tide__signal_all(&giver->changed);
  tide__mutex_unlock(&giver->lock);
  tide__crew_join(&giver->crew);
  for (size_t i = 0; i < giver->refused; i++) tide__physical_give(giver->device, giver->handles[i]);
  tide__signal_fini(&giver->changed);
  tide__mutex_fini(&giver->lock);
  tide__heap_release(giver->device->heap, giver->handles, giver->capacity, sizeof *giver->handles);
}

// ---------------------------------------------------------------------------------------------------
// Groups

static tide_event* group_event(const tide__cargo_trip* trip, size_t index) {
  return &trip->device->carrier->groups[index % TIDE__CARRIER_EVENTS];
}

static tide_status group_queue(tide__cargo_trip* trip, size_t index) {
  tide__cargo_group* const group = &trip->groups[index];
  TIDE_TRY(tide__way_carry(trip, group));
  const bool needs_event = group->is_marked && !trip->is_relayed;
  return needs_event ? tide__carrier_mark(trip->device, group_event(trip, index)) : TIDE_OK;
}

// A group goes when its contents are in the store.
static tide_status group_leave(tide__cargo_trip* trip, size_t index, cargo_giver* giver) {
  tide_device_cache* const device = trip->device;
  const tide__cargo_group* const group = &trip->groups[index];
  if (trip->is_relayed) {
    TIDE_TRY(tide__relay_wait(&trip->relay, group->runs));
  } else if (group->is_marked) {
    TIDE_TRY(tide_machine_event_synchronize(device->machine, *group_event(trip, index)));
  }
  TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(group->address), group->bytes));
  giver_add(giver, &trip->cargo->parcels[group->first], group->end - group->first);
  return TIDE_OK;
}

static tide_status groups_send(tide__cargo_trip* trip, cargo_giver* giver, size_t* out_gone) {
  size_t queued = 0;
  for (size_t gone = 0; gone < trip->group_count; *out_gone = ++gone) {
    for (; queued < trip->group_count && queued - gone < TIDE__CARRIER_EVENTS; queued++) {
      TIDE_TRY(group_queue(trip, queued));
    }
    TIDE_TRY(group_leave(trip, gone, giver));
  }
  return TIDE_OK;
}

// Fetches what is gone.
static void groups_recover(tide__cargo_trip* trip, size_t gone) {
  tide_event done = NULL;
  const tide_error before = *tide_last_error();
  trip->group_count = gone;
  if (gone > 0 && tide__trip_fetch(trip, &done) == TIDE_OK) tide__ignore(tide__way_close(trip));
  tide__error_restore(&before);
}

// Waits until no work uses the memory.
static tide_status memory_quiesce(const tide__cargo_trip* trip) {
  tide_device_cache* const device = trip->device;
  const tide__cargo* const cargo = trip->cargo;
  if (cargo->events == NULL || device->peer_count > 0) return tide__carrier_quiesce(device);
  for (size_t i = 0; i < cargo->event_count; i++) {
    TIDE_TRY(tide_machine_event_synchronize(device->machine, cargo->events[i]));
  }
  return TIDE_OK;
}

// Closing the way can fail after everything has gone. Then its copies are over, and only the ring stays.
static tide_status trip_send(tide__cargo_trip* trip) {
  tide_device_cache* const device = trip->device;
  cargo_giver giver;
  size_t gone = 0;
  TIDE_TRY(tide__orphans_reserve(device, trip->cargo->parcel_count));
  TIDE_TRY(giver_start(&giver, device, trip->cargo->parcel_count));
  tide_status status = tide__way_open(trip, false);
  if (status == TIDE_OK) status = memory_quiesce(trip);
  if (status == TIDE_OK) status = groups_send(trip, &giver, &gone);
  giver_end(&giver);
  tide_error before;
  tide__error_keep(&before);
  if (!trip->cargo->is_saved) tide__ignore(tide__way_close(trip));
  tide__error_restore(&before);
  if (status != TIDE_OK) groups_recover(trip, gone);
  return status;
}

tide_status tide__cargo_send(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out) {
  tide__cargo_trip trip;
  *out = (tide__cargo_count){ 0, 0 };
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide_status status = tide__trip_begin(&trip, device, cargo, false);
  if (status == TIDE_OK) status = trip_send(&trip);
  if (status == TIDE_OK) *out = tide__trip_count(&trip);
  tide__trip_end(&trip);
  tide__relax_end(&relaxed);
  return status;
}
