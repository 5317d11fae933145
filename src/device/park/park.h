// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Moves the memory of mapped ranges away and back: copies what is alive to a store, unmaps and frees the
// rest, and the other way round. It knows addresses, handles and bytes, but neither blocks nor pools. The
// caller has the gate, and no lock is held.
#ifndef TIDEMARK_SRC_DEVICE_PARK_PARK_H
#define TIDEMARK_SRC_DEVICE_PARK_PARK_H

#include "device/segment/virtual.h"

// ---------------------------------------------------------------------------------------------------
// store.c: where contents are kept

// Host memory or a file for a number of bytes. A store is used by one thread at a time.
typedef struct tide__store tide__store;

// Makes a store. Its memory is made when it is used, or ahead by tide__store_prepare(), in another thread.
// `folder` is for a file.
tide_status tide__store_new(tide_device_cache* device, tide_backup kind, const char* folder, uint64_t bytes,
                            tide__store** out);
tide_status tide__store_prepare(tide__store* store);
void tide__store_free(tide__store* store);
tide_backup tide__store_kind(const tide__store* store);  // pageable, where pinned memory cannot be locked
uint64_t tide__store_bytes(const tide__store* store);    // for contents; what it really takes, when made
// The host memory at an offset; NULL for a file.
const void* tide__store_data(const tide__store* store, uint64_t offset);
// Reads contents. Errors: TIDE_ERR_MACHINE if they cannot be read.
tide_status tide__store_read(tide__store* store, uint64_t offset, uint64_t bytes, void* destination);

// ---------------------------------------------------------------------------------------------------
// cargo.c: away and back

// A mapped range with physical memory of its own. While it is away it has none. Without bytes, it is none.
typedef struct tide__parcel {
  uint64_t address;
  uint64_t bytes;
  tide_physical physical;  // owned by the caller's records; NULL: away
} tide__parcel;

// A range whose contents matter, inside parcels; a range may go across the border of two that are adjacent.
typedef struct tide__content {
  uint64_t address;
  uint64_t bytes;
  uint64_t offset;  // in the store
  bool is_lost;     // it could not be read back
} tide__content;

// Both arrays are sorted by address and borrowed during a call.
typedef struct tide__cargo {
  tide__parcel* parcels;
  size_t parcel_count;
  tide__content* contents;
  size_t content_count;
  tide__store* store;  // NULL: contents are discarded
  // When they are fetched, adjacent parcels become one handle of up to so many bytes; 0: as they were.
  uint64_t handle_bytes;
  uint64_t group_bytes;  // of adjacent parcels that are mapped or unmapped in one call; 0: 32 MiB
} tide__cargo;

typedef struct tide__cargo_count {
  uint64_t physical_bytes;
  uint64_t copied_bytes;
} tide__cargo_count;

// Sends all parcels away that are there, behind all work that is queued on the device: copies their contents
// on a stream of its own, and unmaps and frees each parcel when its copy is done, while later ones are being
// copied. Returns when all are away. On failure it fetches those that are gone. `physical` tells for each
// parcel whether it is away.
tide_status tide__cargo_send(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out);

// Fetches all parcels that are away: makes and maps memory with access for the device and its peers, and
// copies contents back. On failure, those that it fetched are away again, and the store still has everything.
// With `handle_bytes`, the first parcel of those that became one has all of their bytes; the others have 0.
// `*out_done` is an event behind the last copy, NULL: the contents are there. The allocator owns the event, and
// the next fetch records it again. The store must live until it has passed.
tide_status tide__cargo_fetch(tide_device_cache* device, tide__cargo* cargo, tide__cargo_count* out,
                              tide_event* out_done);

// The stream, events and staging memory that parking uses, made when they are needed, kept by the allocator;
// frees them at its end.
void tide__cargo_fini(tide_device_cache* device);

#endif
