// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: fetches parcels. Groups are made and mapped while the contents of those before are copied.
#include "core/capture.h"
#include "device/park/trip.h"

static size_t unit_count(const tide__cargo_trip* trip, const tide__cargo_group* group) {
  size_t count = 0;
  uint64_t bytes = 0;
  for (size_t i = group->first; i < group->end; i = tide__unit_end(trip, group, i, &bytes)) count++;
  return count;
}

static tide_status group_map(const tide__cargo_trip* trip, tide__cargo_group* group) {
  tide_device_cache* const device = trip->device;
  TIDE_TRY(tide__mapping_new(device, group->address, group->bytes, unit_count(trip, group), &group->mapping));
  for (size_t i = group->first; i < group->end;) {
    uint64_t bytes = 0;
    tide_physical physical = NULL;
    i = tide__unit_end(trip, group, i, &bytes);
    TIDE_TRY(tide__mapping_make(device, group->mapping, bytes, &physical));
    TIDE_TRY(tide__mapping_add(device, group->mapping, physical, bytes));
  }
  return tide__access_give(device, group->address, group->bytes);
}

// The parcels of a group are there, and own the memory.
static void group_arrive(const tide__cargo_trip* trip, tide__cargo_group* group) {
  tide__parcel* const parcels = trip->cargo->parcels;
  size_t unit = 0;
  for (size_t i = group->first; i < group->end;) {
    uint64_t bytes = 0;
    const size_t end = tide__unit_end(trip, group, i, &bytes);
    for (size_t k = i + 1; k < end; k++) parcels[k].bytes = 0;
    parcels[i].bytes = bytes;
    parcels[i].physical = group->mapping->handles[unit++];
    i = end;
  }
  tide__mapping_free(trip->device, group->mapping);
}

static tide_status groups_queue(tide__cargo_trip* trip) {
  for (size_t i = 0; i < trip->group_count; i++) {
    TIDE_TRY(group_map(trip, &trip->groups[i]));
    TIDE_TRY(tide__way_carry(trip, &trip->groups[i]));
  }
  return TIDE_OK;
}

// Copies from the ring must be over before it is freed. Others need not.
static tide_status way_finish(tide__cargo_trip* trip, tide_event* out_done) {
  if (trip->copied_bytes == 0 && !trip->is_relayed) return TIDE_OK;
  if (trip->is_relayed) return tide__way_close(trip);
  tide_event* const done = tide__arrival_place(trip->device, trip->device->arrival_number + 1);
  TIDE_TRY(tide__carrier_mark(trip->device, done));
  *out_done = *done;
  return TIDE_OK;
}

tide_status tide__trip_fetch(tide__cargo_trip* trip, tide_event* out_done) {
  *out_done = NULL;
  for (size_t i = 0; i < trip->cargo->content_count; i++) trip->cargo->contents[i].is_lost = false;
  tide_status status = tide__way_open(trip, true);
  if (status == TIDE_OK) status = groups_queue(trip);
  if (status == TIDE_OK) status = way_finish(trip, out_done);
  bool is_busy = false;  // copies may still be under way
  if (status != TIDE_OK) {
    const tide_error before = *tide_last_error();
    is_busy = tide__way_close(trip) != TIDE_OK;
    tide__error_restore(&before);
  }
  for (size_t i = 0; i < trip->group_count; i++) {
    tide__cargo_group* const group = &trip->groups[i];
    if (group->mapping == NULL) continue;
    group->mapping->is_busy = is_busy;
    if (status == TIDE_OK) group_arrive(trip, group);
    else (void)tide__mapping_end(trip->device, group->mapping);
    group->mapping = NULL;
  }
  return status;
}

tide_status tide__cargo_fetch(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out,
                              tide_event* out_done) {
  tide__cargo_trip trip;
  *out = (tide__cargo_count){ 0, 0 };
  *out_done = NULL;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide_status status = tide__trip_begin(&trip, device, cargo, true);
  if (status == TIDE_OK) status = tide__trip_fetch(&trip, out_done);
  if (status == TIDE_OK) *out = tide__trip_count(&trip);
  tide__trip_end(&trip);
  tide__relax_end(&relaxed);
  return status;
}
