// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ranges that grow: segments whose addresses get memory part by part. A range is like a view whose parts the
// user chooses. Each block in it is one whole handle, which is LENT at its home: memory comes from homes of
// the default pool and returns there. The caller of these functions has the gate, and holds no lock.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_RANGE_H
#define TIDEMARK_SRC_DEVICE_TIDE_RANGE_H

#include "device/tide/home.h"

struct tide_range {
  tide_device_cache* device;  // borrowed; it frees what is left
  tide__segment* segment;     // in a lane of the default pool, which owns it
  uint64_t address;
  uint64_t bytes;
  uint64_t unit;      // handles in it are multiples of this
  tide__tree blocks;  // of its chain, by address; it changes with the gate and the lane's lock
  tide__atomic_u64 committed;
};

// The block over an address of a range. The caller has the gate or the lane's lock.
static inline tide__block* tide__range_block_at(const tide_range* range, uint64_t address) {
  return TIDE_OWNER(tide__tree_floor(&range->blocks, address), tide__block, tree);
}
// Notes a block of the chain, and drops that before its address changes.
static inline void tide__range_note_locked(tide_range* range, tide__block* block) {
  block->tree.key = block->address;
  block->tree.tie = 0;
  (void)tide__tree_insert(&range->blocks, &block->tree);
}
static inline void tide__range_unnote_locked(tide_range* range, tide__block* block) {
  tide__tree_remove(&range->blocks, &block->tree);
}
// Is there an address without memory between two? Is there a whole handle? They need no gate.
bool tide__range_has_gap(tide_range* range, uint64_t from, uint64_t to);
bool tide__range_has_memory(tide_range* range, uint64_t from, uint64_t to);

// Reserves addresses for a range in a lane.
tide_status tide__range_new(tide_device_cache* device, tide__lane* lane, uint64_t bytes, uint32_t stack,
                            tide_range** out);

// range_fill.c: what a commit may do to get memory.
typedef enum tide__fill {
  TIDE__FILL_NEW,     // only make memory
  TIDE__FILL_QUEUED,  // also take idle memory for which the request's stream can wait on the device
  TIDE__FILL_WAITED   // also take all other idle memory, and wait for the device on the host
} tide__fill;

// Gives memory to all addresses from `from` to `to` that have none, or to none of them.
// Errors: TIDE_ERR_NO_MEMORY if the device is full or the limit is reached; errors of the machine.
tide_status tide__range_fill(const tide__request* request, tide_range* range, uint64_t from, uint64_t to,
                             tide__fill how);

// range_end.c: takes the memory of whole handles between two addresses away, which no work uses any more; and
// frees a range that has none.
tide_status tide__range_empty(tide_range* range, uint64_t from, uint64_t to,
                              const tide__call_context* context);
tide_status tide__range_free(tide_range* range);

#endif
