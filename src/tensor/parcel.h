// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tensors that did not come from a cache, which knows its own blocks: their addresses and sources. The
// records are separate from the memory, so an unknown address is never dereferenced.
//
// Records are in lists by a hash of the address. A few locks guard the lists; each is held for a walk over
// one list. Cost: O(1) for up to some ten thousand tensors.
#ifndef TIDEMARK_SRC_TENSOR_PARCEL_H
#define TIDEMARK_SRC_TENSOR_PARCEL_H

#include "tidemark/memory.h"
#include "tidemark/profile.h"

typedef struct tide__parcel {
  struct tide__parcel* next;  // in its list; shared under the lock of that
  uint64_t address;           // that the source handed out
  tide_profile* profile;      // borrowed until it is released; NULL: it came from `memory`
  tide_memory memory;
} tide__parcel;

// Make and free a record that is in no list; NULL without memory.
tide__parcel* tide__parcel_new(void);
void tide__parcel_free(tide__parcel* parcel);

// Inserts a record with a unique address. It cannot fail.
void tide__parcel_add(tide__parcel* parcel);
// Removes the record of an address and returns it to one caller only; NULL if there is none.
tide__parcel* tide__parcel_take(uint64_t address);

#endif
