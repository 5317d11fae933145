// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Virtual memory: reservations, the mappings in them, and the access of devices. Uses range.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_MAPPING_H
#define TIDEMARK_SRC_MACHINE_SOFT_MAPPING_H

#include "machine/soft/range.h"

typedef struct tide__mapping {
  tide__tree_node node;      // key: the first address
  tide__physical* physical;  // shared under the memory lock
  uint64_t readers;          // one bit for each device
  uint64_t writers;          // [M1] writers is a subset of readers
} tide__mapping;

// The mapping that contains an address of a reservation, or NULL. Under the memory lock, like the next
// function.
tide__mapping* tide__mapping_around(const tide__range* range, uint64_t address);
// Checks that every byte of a range in a reservation is mapped and that some device has access. Sets
// *out_staged if `device` itself has none.
tide_status tide__mappings_check_locked(const tide__range* range, const char* name, int device,
                                        uint64_t address, uint64_t bytes, bool is_write, bool* out_staged);
// Ends all mappings of a reservation, when the machine is freed.
void tide__mappings_free(tide__soft* soft, tide__range* range);

#endif
