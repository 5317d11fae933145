// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A cargo on its way. It is sent and fetched in groups of adjacent parcels.
#ifndef TIDEMARK_SRC_DEVICE_PARK_TRIP_H
#define TIDEMARK_SRC_DEVICE_PARK_TRIP_H

#include "device/park/carrier.h"

typedef struct tide__cargo_group {
  size_t first;  // parcels
  size_t end;
  uint64_t address;
  uint64_t bytes;
  bool is_marked;          // its copies have an event
  size_t runs;             // of the relay that must be written before it goes
  tide__mapping* mapping;  // owned; while it is being fetched
} tide__cargo_group;

typedef struct tide__cargo_trip {
  tide_device_cache* device;
  tide__cargo* cargo;
  tide__cargo_group* groups;  // owned
  size_t group_count;
  bool is_fetch;
  bool is_relayed;  // contents go by way of the relay
  tide__relay relay;
  size_t content;    // the first one that may be in the next group
  uint64_t reached;  // the address up to which contents were taken
  uint64_t copied_bytes;
} tide__cargo_trip;

// Collects the parcels that are there, to be sent, or away, to be fetched.
tide_status tide__trip_begin(tide__cargo_trip* trip, tide_device_cache* device, tide__cargo* cargo,
                             bool is_fetch);
void tide__trip_end(tide__cargo_trip* trip);
// How many bytes its parcels have, and how many were copied.
tide__cargo_count tide__trip_count(const tide__cargo_trip* trip);

// Opens the way for the contents of all groups, in one direction; and closes it, when all copies are done or
// abandoned. Closing waits for them.
tide_status tide__way_open(tide__cargo_trip* trip, bool is_fetch);
tide_status tide__way_close(tide__cargo_trip* trip);
// Queues the copies of the next group.
tide_status tide__way_carry(tide__cargo_trip* trip, tide__cargo_group* group);

// fetch.c: fetches the groups of a trip. On failure they are away again. Unless `*out_done`, the contents are
// there.
tide_status tide__trip_fetch(tide__cargo_trip* trip, tide_event* out_done);

#endif
