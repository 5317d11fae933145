// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What values (value.c) and tests ask of the tables beyond the public interface.
#ifndef TIDEMARK_SRC_TRACE_INTERN_H
#define TIDEMARK_SRC_TRACE_INTERN_H

#include "tidemark/trace.h"

typedef enum tide__intern_kind {
  TIDE__INTERN_TEXT,
  TIDE__INTERN_STACK,
  TIDE__INTERN_NOTE,
  TIDE__INTERN_FRAME,
  TIDE__INTERN_VALUE,
  TIDE__INTERN_KINDS
} tide__intern_kind;

// The number of `bytes` bytes, which are not none, as a value of some kind, with `zeros` bytes behind them.
tide_status tide__intern_add(tide_intern* names, tide__intern_kind kind, const void* data, size_t bytes,
                             size_t zeros, uint32_t* out);
// What a number stands for; NULL and 0 bytes for one that was never given out.
const uint64_t* tide__intern_find(const tide_intern* names, tide__intern_kind kind, uint32_t id,
                                  size_t* out_bytes);
const tide_heap* tide__intern_heap(const tide_intern* names);
// A number that no other table of the process ever has, above 0.
uint64_t tide__intern_uid(const tide_intern* names);

// The number of the first invariant that does not hold, 0 if all do. O(n), with a lock held.
int tide__intern_check(tide_intern* names);

#endif
