// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A memory snapshot of an allocator: its history and its segments are added to a trace, with the shape that
// PyTorch's snapshots have. Texts, stacks and notes are carried from the allocator's table to that of the
// trace (trace/carry.h).
#ifndef TIDEMARK_SRC_CORE_SNAPSHOT_H
#define TIDEMARK_SRC_CORE_SNAPSHOT_H

#include "core/history.h"
#include "tidemark/cache.h"

// What a snapshot is taken of.
typedef struct tide__snapshot_source {
  const char* call;        // names the call in errors
  tide__history* history;  // borrowed
  const tide_heap* heap;   // borrowed during the call
  uint8_t device;          // its number in the trace
  tide_pool last_pool;     // the highest number of a pool so far
  void* owner;             // the allocator, for the functions below
  // Visits all segments, or at least those of one pool, which must exist; NULL: all.
  tide_status (*visit)(void* owner, const tide_pool* pool, const tide_device_visitor* visitor);
  // (optional) The label of a pool. Pools without one appear in the trace as { 0, their number }.
  bool (*label)(void* owner, tide_pool pool, tide_pool_label* out);
  // (optional) Adds the options of the allocator as a value; called if the trace has no settings yet.
  tide_status (*settings)(void* owner, tide_intern* names, uint32_t* out);
} tide__snapshot_source;

// NULL options mean the defaults. The history is taken first, so segments may be newer while other threads
// work.
// Errors: TIDE_ERR_ARGUMENT for a struct of a wrong size; those of `visit`, and TIDE_ERR_NO_MEMORY, which
//         leave a part of the snapshot in the trace.
tide_status tide__snapshot_take(const tide__snapshot_source* source, const tide_snapshot_options* options,
                                tide_trace* trace);

#endif
