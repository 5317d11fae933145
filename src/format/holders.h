// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The requests of a device by call stack and stream: over the whole recording, and at the point at which the
// most bytes were requested and not yet released.
#ifndef TIDEMARK_SRC_FORMAT_HOLDERS_H
#define TIDEMARK_SRC_FORMAT_HOLDERS_H

#include "tidemark/trace.h"

typedef struct tide__holder {
  uint64_t stream;
  uint64_t made_count;  // requests in the recording
  uint64_t made_bytes;
  uint64_t held_count;  // requests at the peak, also of those that are older than the recording
  uint64_t held_bytes;
  uint32_t stack;  // 0: none is known
} tide__holder;

// [H1] the items differ in (stream, stack) and are sorted by it
// [H2] sum of held_bytes == the peak
typedef struct tide__holders {
  const tide_heap* heap;  // borrowed until fini
  tide__holder* items;    // owned
  size_t count;
  size_t capacity;
} tide__holders;

// Errors: as of tide__lifetimes_init(); TIDE_ERR_LIMIT for more than 2^63 bytes in all.
// Cost:   O(n log n) for n entries.
tide_status tide__holders_init(tide__holders* holders, const tide_trace* trace, size_t device,
                               const tide_heap* heap);
void tide__holders_fini(tide__holders* holders);

#endif
