// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: sends parcels away and fetches them. The caller has the gate, and no lock is held.
#include "core/capture.h"
#include "device/park/store.h"

#define GROUP_BYTES ((uint64_t)32 << 20)
#define BOUNCE_BYTES ((uint64_t)1 << 20)

// What parking needs of the machine, kept by the allocator.
typedef struct tide__carrier {
  tide_stream stream;
} tide__carrier;

// Adjacent parcels that are unmapped or mapped together.
typedef struct cargo_group {
  size_t first;  // parcels
  size_t end;
  uint64_t address;
  uint64_t bytes;
  tide__mapping* mapping;  // owned; while it is being fetched
} cargo_group;

// A cargo on its way.
typedef struct cargo_trip {
  tide_device_cache* device;
  tide__cargo* cargo;
  cargo_group* groups;  // owned
  size_t group_count;
  uint64_t handle_bytes;
  size_t content;  // the first one that may be in the next group
  uint64_t copied_bytes;
  void* bounce;
} cargo_trip;

static tide_status carrier_open(tide_device_cache* device) {
  if (device->carrier == NULL) {
    device->carrier = tide__heap_alloc(device->heap, 1, sizeof *device->carrier);
    TIDE_REQUIRE(device->carrier != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for its records");
  }
  if (device->carrier->stream != NULL) return TIDE_OK;
  return tide_machine_stream_new(device->machine, device->index, TIDE_STREAM_NON_BLOCKING, 0,
                                 &device->carrier->stream);
}

void tide__cargo_fini(tide_device_cache* device) {
  tide__carrier* const carrier = device->carrier;
  if (carrier == NULL) return;
  if (carrier->stream != NULL && device->machine != NULL) {
    tide__ignore(tide_machine_stream_free(device->machine, device->index, carrier->stream));
  }
  tide__heap_release(device->heap, carrier, 1, sizeof *carrier);
  device->carrier = NULL;
}

// ---------------------------------------------------------------------------------------------------
// Groups

// Collects the parcels that are there, or away, in groups.
static void groups_collect(cargo_trip* trip, bool is_away) {
  const tide__cargo* const cargo = trip->cargo;
  const uint64_t wanted = cargo->group_bytes != 0 ? cargo->group_bytes : GROUP_BYTES;
  const uint64_t most = tide__max(wanted, trip->handle_bytes);
  cargo_group* last = NULL;
  for (size_t i = 0; i < cargo->parcel_count; i++) {
    const tide__parcel* const parcel = &cargo->parcels[i];
    if (parcel->bytes == 0 || (parcel->physical == NULL) != is_away) continue;
    if (last == NULL || last->end != i || last->address + last->bytes != parcel->address ||
        last->bytes + parcel->bytes > most) {
      last = &trip->groups[trip->group_count++];
      *last = (cargo_group){ .first = i, .address = parcel->address };
    }
    last->end = i + 1;
    last->bytes += parcel->bytes;
  }
}

// The end of the parcels that become one handle, and their bytes.
static size_t unit_end(const cargo_trip* trip, const cargo_group* group, size_t first, uint64_t* out_bytes) {
  const tide__parcel* const parcels = trip->cargo->parcels;
  size_t end = first + 1;
  uint64_t bytes = parcels[first].bytes;
  while (end < group->end && bytes + parcels[end].bytes <= trip->handle_bytes) bytes += parcels[end++].bytes;
  *out_bytes = bytes;
  return end;
}

static size_t unit_count(const cargo_trip* trip, const cargo_group* group) {
  size_t count = 0;
  uint64_t bytes = 0;
  for (size_t i = group->first; i < group->end; i = unit_end(trip, group, i, &bytes)) count++;
  return count;
}

static tide_status trip_begin(tide_device_cache* device, tide__cargo* cargo, bool is_away, cargo_trip* trip) {
  *trip = (cargo_trip){ .device = device, .cargo = cargo };
  trip->handle_bytes = is_away ? cargo->handle_bytes : 0;
  trip->groups = tide__heap_alloc(device->heap, cargo->parcel_count + 1, sizeof *trip->groups);
  trip->bounce = tide__heap_alloc(device->heap, 1, BOUNCE_BYTES);
  if (trip->groups != NULL && trip->bounce != NULL) {
    groups_collect(trip, is_away);
    return TIDE_OK;
  }
  return TIDE_FAIL(TIDE_ERR_NO_MEMORY, "park: no memory for the records of %zu handles", cargo->parcel_count);
}

static void trip_end(cargo_trip* trip) {
  const tide_heap* const heap = trip->device->heap;
  tide__heap_release(heap, trip->groups, trip->cargo->parcel_count + 1, sizeof *trip->groups);
  tide__heap_release(heap, trip->bounce, 1, BOUNCE_BYTES);
}

// ---------------------------------------------------------------------------------------------------
// Copies

static tide_status copy_now(cargo_trip* trip, void* to, const void* from, uint64_t bytes) {
  tide_device_cache* const device = trip->device;
  const tide_stream stream = device->carrier->stream;
  TIDE_TRY(tide_machine_copy(device->machine, device->index, stream, to, from, bytes));
  return tide_machine_stream_synchronize(device->machine, device->index, stream);
}

static tide_status piece_send(cargo_trip* trip, uint64_t address, uint64_t offset, uint64_t bytes) {
  tide__store* const store = trip->cargo->store;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t some = tide__min(bytes - done, BOUNCE_BYTES);
    TIDE_TRY(copy_now(trip, trip->bounce, tide__pointer(address + done), some));
    TIDE_TRY(tide__store_write(store, offset + done, some, trip->bounce));
    done += some;
  }
  return TIDE_OK;
}

static tide_status piece_fetch(cargo_trip* trip, tide__content* content, uint64_t address, uint64_t offset,
                               uint64_t bytes) {
  tide__store* const store = trip->cargo->store;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t some = tide__min(bytes - done, BOUNCE_BYTES);
    if (tide__store_read(store, offset + done, some, trip->bounce) != TIDE_OK) {
      content->is_lost = true;
      return TIDE_OK;
    }
    TIDE_TRY(copy_now(trip, tide__pointer(address + done), trip->bounce, some));
    done += some;
  }
  return TIDE_OK;
}

// Copies what is in a group.
static tide_status group_copy(cargo_trip* trip, const cargo_group* group, bool is_fetch) {
  const tide__cargo* const cargo = trip->cargo;
  const uint64_t group_end = group->address + group->bytes;
  if (cargo->store == NULL) return TIDE_OK;
  for (; trip->content < cargo->content_count; trip->content++) {
    tide__content* const content = &cargo->contents[trip->content];
    const uint64_t end = content->address + content->bytes;
    if (content->address >= group_end) break;
    const uint64_t from = tide__max(content->address, group->address);
    const uint64_t to = tide__min(end, group_end);
    if (from >= to) continue;
    const uint64_t offset = content->offset + (from - content->address);
    TIDE_TRY(is_fetch ? piece_fetch(trip, content, from, offset, to - from)
                      : piece_send(trip, from, offset, to - from));
    trip->copied_bytes += to - from;
    if (end > group_end) break;
  }
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// Fetching

static tide_status group_map(cargo_trip* trip, cargo_group* group) {
  tide_device_cache* const device = trip->device;
  TIDE_TRY(tide__mapping_new(device, group->address, group->bytes, unit_count(trip, group), &group->mapping));
  uint64_t bytes = 0;
  for (size_t i = group->first; i < group->end;) {
    tide_physical physical = NULL;
    i = unit_end(trip, group, i, &bytes);
    TIDE_TRY(tide__mapping_make(device, group->mapping, bytes, &physical));
    TIDE_TRY(tide__mapping_add(device, group->mapping, physical, bytes));
  }
  return tide__access_give(device, group->address, group->bytes);
}

// The parcels of a group are there.
static void group_arrive(cargo_trip* trip, cargo_group* group) {
  tide__parcel* const parcels = trip->cargo->parcels;
  size_t unit = 0;
  for (size_t i = group->first; i < group->end;) {
    uint64_t bytes = 0;
    const size_t end = unit_end(trip, group, i, &bytes);
    for (size_t k = i + 1; k < end; k++) parcels[k].bytes = 0;
    parcels[i].bytes = bytes;
    parcels[i].physical = group->mapping->handles[unit++];
    i = end;
  }
  tide__mapping_free(trip->device, group->mapping);
}

static tide_status groups_fetch(cargo_trip* trip) {
  tide_status status = TIDE_OK;
  trip->content = 0;
  for (size_t i = 0; i < trip->group_count && status == TIDE_OK; i++) {
    status = group_map(trip, &trip->groups[i]);
    if (status == TIDE_OK) status = group_copy(trip, &trip->groups[i], true);
  }
  for (size_t i = 0; i < trip->group_count; i++) {
    cargo_group* const group = &trip->groups[i];
    if (group->mapping == NULL) continue;
    if (status == TIDE_OK) group_arrive(trip, group);
    else (void)tide__mapping_end(trip->device, group->mapping);
  }
  return status;
}

static tide_status trip_fetch(cargo_trip* trip) {
  TIDE_TRY(carrier_open(trip->device));
  if (trip->cargo->store != NULL) TIDE_TRY(tide__store_open(trip->cargo->store));
  return groups_fetch(trip);
}

static uint64_t groups_bytes(const cargo_trip* trip) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < trip->group_count; i++) bytes += trip->groups[i].bytes;
  return bytes;
}

tide_status tide__cargo_fetch(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out,
                              tide_event* out_done) {
  cargo_trip trip;
  *out = (tide__cargo_count){ 0, 0 };
  *out_done = NULL;
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide_status status = trip_begin(device, cargo, true, &trip);
  if (status == TIDE_OK) status = trip_fetch(&trip);
  if (status == TIDE_OK) *out = (tide__cargo_count){ groups_bytes(&trip), trip.copied_bytes };
  trip_end(&trip);
  tide__relax_end(&relaxed);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Sending

static tide_status group_leave(cargo_trip* trip, const cargo_group* group) {
  tide_device_cache* const device = trip->device;
  tide__parcel* const parcels = trip->cargo->parcels;
  TIDE_TRY(tide_machine_unmap(device->machine, tide__pointer(group->address), group->bytes));
  for (size_t i = group->first; i < group->end; i++) {
    tide__physical_give(device, parcels[i].physical);
    parcels[i].physical = NULL;
  }
  return TIDE_OK;
}

// Fetches what is gone.
static void groups_recover(cargo_trip* trip, size_t gone) {
  const tide_error before = *tide_last_error();
  trip->group_count = gone;
  tide__ignore(groups_fetch(trip));
  tide__error_restore(&before);
}

static tide_status trip_send(cargo_trip* trip) {
  tide_device_cache* const device = trip->device;
  TIDE_TRY(carrier_open(device));
  if (trip->cargo->store != NULL) TIDE_TRY(tide__store_open(trip->cargo->store));
  TIDE_TRY(tide__orphans_reserve(device, trip->cargo->parcel_count));
  TIDE_TRY(tide_machine_device_synchronize(device->machine, device->index));
  tide_status status = TIDE_OK;
  size_t gone = 0;
  while (gone < trip->group_count) {
    status = group_copy(trip, &trip->groups[gone], false);
    if (status == TIDE_OK) status = group_leave(trip, &trip->groups[gone]);
    if (status != TIDE_OK) break;
    gone++;
  }
  if (status != TIDE_OK) groups_recover(trip, gone);
  return status;
}

tide_status tide__cargo_send(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out) {
  cargo_trip trip;
  *out = (tide__cargo_count){ 0, 0 };
  const tide__relaxed relaxed = tide__relax_or_not(device->machine);
  tide_status status = trip_begin(device, cargo, false, &trip);
  if (status == TIDE_OK) status = trip_send(&trip);
  if (status == TIDE_OK) *out = (tide__cargo_count){ groups_bytes(&trip), trip.copied_bytes };
  trip_end(&trip);
  tide__relax_end(&relaxed);
  return status;
}
