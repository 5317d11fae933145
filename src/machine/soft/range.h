// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges of addresses and their physical memory. soft->memory_lock guards all of it. It is not held while
// pages are locked or returned to the system, which can take long.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_RANGE_H
#define TIDEMARK_SRC_MACHINE_SOFT_RANGE_H

#include "machine/soft/state.h"

// Physical memory of a device. A tide_physical names it until its owner frees that handle.
// [P1] refs == (handle is live) + mappings + (belongs to a raw or imported range)
struct tide__physical {
  tide__slot slot;
  int device;
  uint32_t flags;
  uint32_t refs;   // shared under the memory lock
  int descriptor;  // host: the file of another process, owned; -1 for our own memory
  uint64_t bytes;
  uint64_t offset;       // in that file
  tide__link lingering;  // in soft->lingering while another process uses memory that we freed
};

// A top-level range of addresses: raw, pinned, reserved or imported.
// [R1] ranges do not overlap   [R2] mappings lie inside their range and do not overlap
struct tide__range {
  tide__tree_node node;  // key: the first address
  uint64_t identity;     // unique in the machine; never 0
  uint64_t bytes;        // as requested
  uint64_t span;         // rounded up to whole pages
  tide_memory_kind kind;
  int device;                // -1 for pinned
  bool is_registered;        // pinned: the caller owns the pages
  bool is_locked;            // pinned: the system locked the pages
  uint32_t export_slot;      // host, raw: its word in the ledger of exports, 0 if not exported
  tide__physical* physical;  // raw and imported; shared under the memory lock
  tide__tree mappings;       // reserved: of tide__mapping
};

// A copy or fill that runs without the lock. Its addresses must not be unmapped during that time.
typedef struct tide__busy_move {
  tide__link link;  // in soft->busy
  struct {
    uint64_t begin;
    uint64_t end;
  } ranges[2];
} tide__busy_move;

uint64_t tide__range_end(const tide__range* range);
// Adds a device to a set of devices, or removes it.
uint64_t tide__mask_with(uint64_t mask, int device, bool is_set);

// Allocates physical memory with one reference and no handle. Takes the lock, like the next function.
tide_status tide__physical_make(tide__soft* soft, const char* name, int device, uint64_t bytes,
                                uint32_t flags, tide__physical** out);
// Frees physical memory without references.
void tide__physical_end(tide__soft* soft, tide__physical* physical);

// The other functions are called under the memory lock.

// The range that contains an address; the range of a kind that begins there; the first range with a byte in
// [begin, end). NULL if there is none.
tide__range* tide__range_around_locked(tide__soft* soft, uint64_t address);
tide__range* tide__soft_range_at_locked(tide__soft* soft, uint64_t address, tide_memory_kind kind)
    TIDE_REQUIRES(&soft->memory_lock);
tide__range* tide__range_in_locked(tide__soft* soft, uint64_t begin, uint64_t end);
void tide__range_enter_locked(tide__soft* soft, tide__range* range);
// Does a busy move use these addresses? The second function waits until none does, and releases the lock for
// that time.
bool tide__range_is_busy_locked(tide__soft* soft, uint64_t begin, uint64_t end);
void tide__range_wait_locked(tide__soft* soft, uint64_t begin, uint64_t end);
// Drops one reference. Returns true for the last one; the caller then calls tide__physical_end() without the
// lock.
bool tide__physical_drop_locked(tide__physical* physical);

#endif
