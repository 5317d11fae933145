// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: fetches parcels. Groups are made and mapped while the contents of those before are copied.
#include "core/capture.h"
#include "device/park/trip.h"

// ---------------------------------------------------------------------------------------------------
// The sizes of handles

static bool can_be_cut(const tide__cargo* cargo, size_t index) {
  const tide__parcel* const parcel = &cargo->parcels[index];
  return parcel->physical == NULL && parcel->bytes != 0 && parcel->bytes <= cargo->handle_bytes;
}

// The end of the adjacent parcels from `first` on that can be cut together, and their bytes.
static size_t run_end(const tide__cargo* cargo, size_t first, uint64_t* out_bytes) {
  const tide__parcel* const parcels = cargo->parcels;
  size_t end = first + 1;
  uint64_t bytes = parcels[first].bytes;
  for (; end < cargo->parcel_count && can_be_cut(cargo, end) && !parcels[end].is_first; end++) {
    if (parcels[end].address != parcels[first].address + bytes) break;
    bytes += parcels[end].bytes;
  }
  *out_bytes = bytes;
  return end;
}

// Cuts memory that is away into parcels of one size and a rest. So pools of the same size have the same
// handles, and can take over those of one another. No parcel was larger, so there are no more than before.
static void parcels_cut(const tide__cargo* cargo) {
  uint64_t bytes = 0;
  for (size_t i = 0, end = 0; i < cargo->parcel_count; i = end) {
    end = i + 1;
    if (!can_be_cut(cargo, i)) continue;
    end = run_end(cargo, i, &bytes);
    uint64_t address = cargo->parcels[i].address;
    for (size_t k = i; k < end; k++) {
      tide__parcel* const parcel = &cargo->parcels[k];
      parcel->address = address;
      parcel->bytes = tide__min(bytes, cargo->handle_bytes);
      address += parcel->bytes;
      bytes -= parcel->bytes;
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Fetching

static tide_status group_map(const tide__cargo_trip* trip, tide__cargo_group* group) {
  tide_device_cache* const device = trip->device;
  TIDE_TRY(
      tide__mapping_new(device, group->address, group->bytes, group->end - group->first, &group->mapping));
  for (size_t i = group->first; i < group->end; i++) {
    const uint64_t bytes = trip->cargo->parcels[i].bytes;
    tide_physical physical = NULL;
    TIDE_TRY(tide__mapping_make(device, group->mapping, bytes, &physical));
    TIDE_TRY(tide__mapping_add(device, group->mapping, physical, bytes));
  }
  return tide__access_give(device, group->address, group->bytes);
}

// The parcels of a group are there, and own the memory.
static void group_arrive(const tide__cargo_trip* trip, tide__cargo_group* group) {
  tide__parcel* const parcels = &trip->cargo->parcels[group->first];
  for (size_t i = 0; i < group->end - group->first; i++) parcels[i].physical = group->mapping->handles[i];
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
  parcels_cut(cargo);
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide_status status = tide__trip_begin(&trip, device, cargo, true);
  if (status == TIDE_OK) status = tide__trip_fetch(&trip, out_done);
  if (status == TIDE_OK) *out = tide__trip_count(&trip);
  tide__trip_end(&trip);
  tide__relax_end(&relaxed);
  return status;
}
