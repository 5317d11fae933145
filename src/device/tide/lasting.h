// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which sizes of large blocks last: those that the lane has known for at least half of its large requests so
// far, and of which nothing was ever released. In training these are gradients and optimizer states, which
// have the sizes of weights. Sizes share places in a table; if one of them was released, no other lasts.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_LASTING_H
#define TIDEMARK_SRC_DEVICE_TIDE_LASTING_H

#include "device/allocator.h"

// The place of a size that was released.
#define TIDE__SIZE_RELEASED UINT32_MAX

static inline uint32_t* tide__size_place(tide__sizes* sizes, uint64_t bytes) {
  return &sizes->first[bytes * UINT64_C(11400714819323198485) >> (64 - TIDE__SIZES_BITS)];
}

// Counts a request. Do blocks of its size last?
static inline bool tide__sizes_request_locked(tide__sizes* sizes, uint64_t bytes) {
  uint32_t* const first = tide__size_place(sizes, bytes);
  if (sizes->requests < TIDE__SIZE_RELEASED - 1) sizes->requests++;
  if (*first == 0) *first = sizes->requests;
  return *first <= sizes->requests / 2;
}

static inline void tide__sizes_release_locked(tide__sizes* sizes, uint64_t bytes) {
  *tide__size_place(sizes, bytes) = TIDE__SIZE_RELEASED;
}

#endif
