// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which sizes of large blocks last. A size lasts if some block of it has been handed out at every moment for
// at least half of the large requests of the lane so far. In training these are the sizes of weights, which
// gradients and optimizer states have too. If nothing of a size was ever released, all of its blocks last. If
// something was released, a gradient for instance, some of its blocks last. Sizes may share a place in the
// table; then they count as one size.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_LASTING_H
#define TIDEMARK_SRC_DEVICE_TIDE_LASTING_H

#include "device/allocator.h"

// What a lane knows about its large blocks; NULL: nothing.
static inline tide__sizes* tide__sizes_of_locked(const tide__lane* lane) {
  const tide__segment* const newest = lane->homes[TIDE__LARGE];
  return newest != NULL ? newest->home->sizes : NULL;
}

static inline tide__size* tide__size_place(tide__sizes* sizes, uint64_t bytes) {
  return &sizes->places[bytes * UINT64_C(11400714819323198485) >> (64 - TIDE__SIZES_BITS)];
}

static inline bool tide__size_lasts(const tide__sizes* sizes, const tide__size* size) {
  return size->bytes > 0 && size->first <= sizes->count / 2;
}

// So many requests show which sizes last.
enum { TIDE__SIZES_LEARNT = 32 };

static inline bool tide__sizes_are_learnt_locked(const tide__lane* lane) {
  const tide__sizes* const sizes = tide__sizes_of_locked(lane);
  return sizes != NULL && sizes->count >= TIDE__SIZES_LEARNT;
}

// Do all blocks of a size last, as far as is known?
static inline bool tide__size_all_last_locked(const tide__lane* lane, uint64_t bytes) {
  tide__sizes* const sizes = tide__sizes_of_locked(lane);
  const tide__size* const size = sizes != NULL ? tide__size_place(sizes, bytes) : NULL;
  return size != NULL && sizes->count >= TIDE__SIZES_LEARNT && !size->was_released &&
         tide__size_lasts(sizes, size);
}

// A large block of the lane was handed out, and released.
static inline void tide__sizes_hand_out_locked(const tide__lane* lane, uint64_t bytes) {
  tide__sizes* const sizes = tide__sizes_of_locked(lane);
  if (sizes == NULL) return;
  tide__size* const size = tide__size_place(sizes, bytes);
  if (sizes->count < UINT32_MAX) sizes->count++;
  if (size->bytes == 0) size->first = sizes->count;
  size->bytes += bytes;
}

static inline void tide__sizes_release_locked(const tide__lane* lane, uint64_t bytes) {
  tide__sizes* const sizes = tide__sizes_of_locked(lane);
  if (sizes == NULL) return;
  tide__size* const size = tide__size_place(sizes, bytes);
  size->bytes -= tide__min(size->bytes, bytes);
  size->was_released = true;
}

// How much a lane has handed out in sizes that last and of which nothing was ever released.
static inline uint64_t tide__sizes_lasting_bytes_locked(const tide__lane* lane) {
  const tide__sizes* const sizes = tide__sizes_of_locked(lane);
  uint64_t bytes = 0;
  for (size_t i = 0; sizes != NULL && i < (size_t)1 << TIDE__SIZES_BITS; i++) {
    const tide__size* const size = &sizes->places[i];
    if (!size->was_released && tide__size_lasts(sizes, size)) bytes += size->bytes;
  }
  return bytes;
}

#endif
