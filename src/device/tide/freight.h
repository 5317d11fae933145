// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The homes of pools as cargo: their handles as parcels, and their blocks as contents. The caller has the
// gate, and holds no lock.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_FREIGHT_H
#define TIDEMARK_SRC_DEVICE_TIDE_FREIGHT_H

#include "device/park/park.h"
#include "device/tide/home.h"

// What is parked of a pool.
struct tide__parked {
  tide__backup* backup;  // borrowed, as a user; NULL: there are no contents
  uint64_t bytes;        // that the pool had
  bool unparks_on_request;
};
typedef struct tide__parked tide__parked;

// A home and its part of the arrays.
typedef struct tide__freight_home {
  tide__segment* segment;
  size_t parcel;  // the first one; one for each handle, in the same order
  size_t parcel_count;
  size_t content;
  size_t content_count;
} tide__freight_home;

typedef struct tide__freight {
  tide_device_cache* device;
  tide__freight_home* homes;  // owned, like all; by address
  size_t home_count;
  size_t home_capacity;
  tide__parcel* parcels;
  size_t parcel_count;
  size_t parcel_capacity;
  tide__content* contents;
  size_t content_count;
  size_t content_capacity;
  uint64_t block_bytes;  // of the blocks that are handed out
  // Differs from that of another freight if one of the blocks is not the same: another one at the same
  // place, too.
  uint64_t print;
} tide__freight;

void tide__freight_free(tide__freight* freight);
// Adds the homes of a pool. After the last pool the homes are sorted.
tide_status tide__freight_add_pool(tide__freight* freight, tide__pool* pool);
void tide__freight_sort(tide__freight* freight);
// Lists the handles of all homes, and the blocks that are handed out. If `hides`, the handles count as not
// mapped from now on, and no request gets memory of them. Offsets in the store are those of the contents one
// after another. On failure the caller undoes it by tide__freight_settle().
tide_status tide__freight_load(tide__freight* freight, bool hides);
uint64_t tide__freight_content_bytes(const tide__freight* freight);
// The same for homes that are parked already: what is still handed out of the contents of their pools.
tide_status tide__freight_reload(tide__freight* freight);
// The bytes of parcels that are away.
uint64_t tide__freight_away_bytes(const tide__freight* freight);
// Writes into the handles which of them have memory. Those that have are mapped, unless `stays_parked`.
// Handles that came back as a part of others are gone. No later call for a freight looks at its handles.
void tide__freight_settle(tide__freight* freight, bool stays_parked);
// Calls a function for each range of adjacent parcels of one home, which are there or away.
typedef void (*tide__range_fn)(tide_device_cache* device, const tide__segment* segment, uint64_t from,
                               uint64_t to, const tide__call_context* context);
void tide__freight_each_range(const tide__freight* freight, bool is_away, tide__range_fn function,
                              const tide__call_context* context);
// The freight as a cargo, for a store.
static inline tide__cargo tide__freight_cargo(tide__freight* freight, tide__store* store) {
  return (tide__cargo){ .parcels = freight->parcels,
                        .parcel_count = freight->parcel_count,
                        .contents = freight->contents,
                        .content_count = store != NULL ? freight->content_count : 0,
                        .store = store,
                        .handle_bytes = tide__device_options(freight->device)->tide_most_handle_bytes };
}

// Takes wholly idle handles of a parked pool out of its homes: they need not come back. False if that failed
// for lack of memory, which does no harm.
bool tide__parked_drop_idle(tide_device_cache* device, tide__pool* pool);
// Has a parked pool memory that is away?
bool tide__parked_has_any(tide_device_cache* device, tide__pool* pool);

#endif
