// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Raw and pinned memory, information about pointers, and peers. Uses range.h, mapping.h and the guard of
// capture.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_MEMORY_H
#define TIDEMARK_SRC_MACHINE_SOFT_MEMORY_H

#include "machine/soft/range.h"

// Creates a range for existing physical memory. On success the range owns the memory.
tide_status tide__soft_range_over(tide__soft* soft, tide__physical* physical, tide_memory_kind kind,
                                  uint64_t bytes, tide_call call, void** out);
// Does pinned memory have a byte in [begin, end)?
bool tide__soft_has_pinned(tide__soft* soft, uint64_t begin, uint64_t end);
// Checks whether a stream of `device` may use a range of bytes. Sets whether they must be staged, and the
// identity of their range (0: none). Under the memory lock.
tide_status tide__soft_check_locked(tide__soft* soft, const char* name, int device, uint64_t address,
                                    uint64_t bytes, bool is_write, bool* out_staged, uint64_t* out_identity);
// Frees all ranges and physical memory, when the machine is freed.
void tide__soft_memory_fini(tide__soft* soft);

#endif
