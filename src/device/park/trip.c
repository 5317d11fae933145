// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Room `park`: the groups of a cargo, and the copies of their contents.
#include "device/park/trip.h"

#define GROUP_BYTES ((uint64_t)32 << 20)
// A part of the ring has contents of so many groups at most. They are fewer than there are events: a group
// must not have to wait for contents of a group that waits for it.
#define GROUPS_IN_RUN 8

// ---------------------------------------------------------------------------------------------------
// Groups

static bool group_takes(const tide__cargo_group* group, const tide__parcel* parcel, size_t index,
                        uint64_t most) {
  return !parcel->is_first && group->end == index && group->address + group->bytes == parcel->address &&
         group->bytes + parcel->bytes <= most;
}

static void groups_collect(tide__cargo_trip* trip) {
  const tide__cargo* const cargo = trip->cargo;
  const uint64_t wanted = cargo->group_bytes != 0 ? cargo->group_bytes : GROUP_BYTES;
  const uint64_t most = trip->is_fetch ? tide__max(wanted, cargo->handle_bytes) : wanted;
  tide__cargo_group* last = NULL;
  for (size_t i = 0; i < cargo->parcel_count; i++) {
    const tide__parcel* const parcel = &cargo->parcels[i];
    if (parcel->bytes == 0 || (parcel->physical == NULL) != trip->is_fetch) continue;
    if (last == NULL || !group_takes(last, parcel, i, most)) {
      last = &trip->groups[trip->group_count++];
      *last = (tide__cargo_group){ .first = i, .address = parcel->address };
    }
    last->end = i + 1;
    last->bytes += parcel->bytes;
  }
}

tide_status tide__trip_begin(tide__cargo_trip* trip, tide_device_cache* device, tide__cargo* cargo,
                             bool is_fetch) {
  *trip = (tide__cargo_trip){ .device = device, .cargo = cargo, .is_fetch = is_fetch };
  trip->groups = tide__heap_alloc(device->heap, cargo->parcel_count + 1, sizeof *trip->groups);
  TIDE_REQUIRE(trip->groups != NULL, TIDE_ERR_NO_MEMORY, "park: no memory for the records of %zu handles",
               cargo->parcel_count);
  groups_collect(trip);
  return TIDE_OK;
}

void tide__trip_end(tide__cargo_trip* trip) {
  tide__heap_release(trip->device->heap, trip->groups, trip->cargo->parcel_count + 1, sizeof *trip->groups);
}

tide__cargo_count tide__trip_count(const tide__cargo_trip* trip) {
  tide__cargo_count count = { 0, trip->copied_bytes };
  for (size_t i = 0; i < trip->group_count; i++) count.physical_bytes += trip->groups[i].bytes;
  return count;
}

// ---------------------------------------------------------------------------------------------------
// Pieces: what one content and one group have in common

typedef struct cargo_piece {
  tide__content* content;
  uint64_t address;
  uint64_t offset;
  uint64_t bytes;
} cargo_piece;

// The next piece of a group; false if there is none.
static bool piece_next(tide__cargo_trip* trip, const tide__cargo_group* group, cargo_piece* out) {
  const uint64_t group_end = group->address + group->bytes;
  for (; trip->content < trip->cargo->content_count; trip->content++) {
    tide__content* const content = &trip->cargo->contents[trip->content];
    const uint64_t end = content->address + content->bytes;
    const uint64_t from = tide__max(tide__max(content->address, group->address), trip->reached);
    const uint64_t to = tide__min(end, group_end);
    if (from < to) {
      *out = (cargo_piece){ content, from, content->offset + (from - content->address), to - from };
      trip->reached = to;
      return true;
    }
    if (end > group_end) return false;
  }
  return false;
}

static void pieces_rewind(tide__cargo_trip* trip) {
  trip->content = 0;
  trip->reached = 0;
}

// ---------------------------------------------------------------------------------------------------
// The way

static tide_status way_plan(tide__cargo_trip* trip) {
  for (size_t i = 0; i < trip->group_count; i++) {
    cargo_piece piece;
    if (i % GROUPS_IN_RUN == 0) tide__relay_cut(&trip->relay);
    while (piece_next(trip, &trip->groups[i], &piece)) {
      TIDE_TRY(tide__relay_add(&trip->relay, piece.offset, piece.bytes));
    }
  }
  pieces_rewind(trip);
  return TIDE_OK;
}

static bool has_nothing_to_do(const tide__cargo_trip* trip) {
  return trip->cargo->is_saved && !trip->is_fetch;
}

tide_status tide__way_open(tide__cargo_trip* trip, bool is_fetch) {
  tide__store* const store = trip->cargo->store;
  trip->is_fetch = is_fetch;
  trip->is_relayed = false;
  trip->copied_bytes = 0;
  pieces_rewind(trip);
  TIDE_TRY(tide__carrier_open(trip->device));
  if (store == NULL || has_nothing_to_do(trip)) return TIDE_OK;
  TIDE_TRY(tide__store_open(store));
  if (tide__store_is_direct(store)) return TIDE_OK;
  trip->is_relayed = true;
  tide__relay_init(&trip->relay, trip->device, store, is_fetch);
  TIDE_TRY(way_plan(trip));
  return tide__relay_start(&trip->relay);
}

tide_status tide__way_close(tide__cargo_trip* trip) {
  if (trip->is_relayed) tide__relay_fini(&trip->relay);
  trip->is_relayed = false;
  if (trip->device->carrier == NULL || trip->device->carrier->stream == NULL) return TIDE_OK;
  TIDE_TRY(tide__carrier_drain(trip->device));
  return tide__carrier_close_ring(trip->device);
}

static tide_status bytes_copy(tide__cargo_trip* trip, uint64_t address, void* host, uint64_t bytes) {
  tide_device_cache* const device = trip->device;
  void* const there = tide__pointer(address);
  trip->copied_bytes += bytes;
  return tide_machine_copy(device->machine, device->index, device->carrier->stream,
                           trip->is_fetch ? there : host, trip->is_fetch ? host : there, bytes);
}

// Reads a part of a piece again, of which more could not be read.
static bool bytes_are_lost(tide__store* store, uint64_t offset, uint64_t bytes, void* host) {
  tide_error before;
  tide__error_keep(&before);
  const bool is_lost = tide__store_read(store, offset, bytes, host) != TIDE_OK;
  tide__error_restore(&before);
  return is_lost;
}

static tide_status relayed_copy(tide__cargo_trip* trip, const cargo_piece* piece, uint64_t done,
                                uint64_t* bytes) {
  void* host = NULL;
  bool is_lost = false;
  TIDE_TRY(tide__relay_place(&trip->relay, bytes, &host, &is_lost));
  if (is_lost) is_lost = bytes_are_lost(trip->cargo->store, piece->offset + done, *bytes, host);
  if (is_lost) piece->content->is_lost = true;
  else TIDE_TRY(bytes_copy(trip, piece->address + done, host, *bytes));
  return tide__relay_queued(&trip->relay, *bytes);
}

static tide_status piece_copy(tide__cargo_trip* trip, const cargo_piece* piece) {
  for (uint64_t done = 0; done < piece->bytes;) {
    uint64_t some = piece->bytes - done;
    if (trip->is_relayed) {
      TIDE_TRY(relayed_copy(trip, piece, done, &some));
    } else {
      void* const host = tide__store_window(trip->cargo->store, piece->offset + done, &some);
      TIDE_TRY(bytes_copy(trip, piece->address + done, host, some));
    }
    done += some;
  }
  return TIDE_OK;
}

tide_status tide__way_carry(tide__cargo_trip* trip, tide__cargo_group* group) {
  cargo_piece piece;
  const bool has_copies = trip->cargo->store != NULL && !has_nothing_to_do(trip);
  while (has_copies && piece_next(trip, group, &piece)) {
    TIDE_TRY(piece_copy(trip, &piece));
    group->is_marked = true;
  }
  if (trip->is_relayed) group->runs = tide__relay_begun(&trip->relay);
  return TIDE_OK;
}
