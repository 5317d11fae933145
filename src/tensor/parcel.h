// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tensors that did not come from a cache of ours, which knows its blocks itself: where each lies and where it
// came from. The records lie apart, so that an address which is asked about is never read through.
//
// Records hang in lists by a hash of the address. A few locks share the lists; each is held for a walk over
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

// A record that is in no list, and its end; NULL without memory for it.
tide__parcel* tide__parcel_new(void);
void tide__parcel_free(tide__parcel* parcel);

// Lets it be found by its address, which no other has. It cannot fail.
void tide__parcel_add(tide__parcel* parcel);
// Takes the record of an address out of its list, for one caller alone; NULL if there is none.
tide__parcel* tide__parcel_take(uint64_t address);

#endif
