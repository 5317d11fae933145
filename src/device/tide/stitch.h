// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Chooses the physical memory of a view. A view is an address range of its own for one block that no hole is
// large enough for: free handles are mapped to it one after another, whatever their order at home. Only its
// first and its last handle may be partly in use, the first at its beginning and the last at its end. The
// choice depends only on arrays: no machine, no lock, no clock.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_STITCH_H
#define TIDEMARK_SRC_DEVICE_TIDE_STITCH_H

#include "tidemark/base.h"

#define TIDE__STITCH_NEW UINT32_MAX  // the handle of a part that has yet to be created

// A run: a hole that a view can use. It begins inside a handle whose last `pre` bytes are free, continues
// through `whole` wholly free handles, and ends inside one whose first `suf` bytes are free. At least one of
// the three is not 0. These handles have consecutive indices. A hole that touches neither end of its handle
// is not a run.
// [R1] pre and suf are less than the bytes of their handles
// [R2] no byte is in two runs; but a handle may give its beginning to one and its end to another
typedef struct tide__stitch_run {
  uint32_t first;  // the index of the first of these handles
  uint32_t whole;
  uint64_t pre;
  uint64_t suf;
  bool is_foreign;  // memory of another stream; own memory is preferred
  bool waits;       // using it requires a wait for another stream; memory without a wait is preferred
} tide__stitch_run;

typedef struct tide__stitch_problem {
  uint64_t bytes;                // of the block; not 0
  const uint64_t* handles;       // borrowed for the call: bytes of each, arenas by age, in each by address
  size_t handle_count;           // less than TIDE__STITCH_NEW
  const tide__stitch_run* runs;  // borrowed for the call: in the same order
  size_t run_count;
  uint64_t granularity;   // new handles are multiples of it
  uint64_t handle_bytes;  // of a new handle, unless less is missing; a multiple of the granularity, not 0
  uint64_t growth_left;   // how much may be created rather than using a part of a wholly free handle
  uint64_t end_least;     // the smallest `suf` that is worth mapping after new handles
} tide__stitch_problem;

// A part of the view: a whole handle, in use or not.
typedef struct tide__stitch_part {
  uint32_t handle;  // its index, or TIDE__STITCH_NEW
  uint64_t bytes;
} tide__stitch_part;

// [P1] no handle occurs twice
// [P2] the block lies at `start` and reaches into the last part; all its bytes are free or new
typedef struct tide__stitch_plan {
  tide__stitch_part* parts;  // owned
  size_t count;
  size_t capacity;
  uint64_t start;    // where in the first part the block begins
  uint64_t created;  // bytes of all new handles
} tide__stitch_plan;

// Chooses the parts of a view for `problem->bytes`. There is always a choice, if only of new handles.
// out:    overwritten; empty on failure. tide__stitch_plan_free() frees it.
// Errors: TIDE_ERR_NO_MEMORY.
// Cost:   O(n + k log n) of n runs and wholly free handles together, and k parts.
tide_status tide__stitch_plan_make(const tide__stitch_problem* problem, const tide_heap* heap,
                                   tide__stitch_plan* out);
// The plan is empty afterwards.
void tide__stitch_plan_free(tide__stitch_plan* plan, const tide_heap* heap);

#endif
