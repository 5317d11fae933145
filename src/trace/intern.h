// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Functions of the tables for value.c, words.c and tests.
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

// Adds `bytes` bytes, at least one, as a value of a kind, with `zeros` zero bytes after them.
tide_status tide__intern_add(tide_intern* names, tide__intern_kind kind, const void* data, size_t bytes,
                             size_t zeros, uint32_t* out);
// The value with a number; NULL and 0 bytes for unknown numbers.
const uint64_t* tide__intern_find(const tide_intern* names, tide__intern_kind kind, uint32_t id,
                                  size_t* out_bytes);
const tide_heap* tide__intern_heap(const tide_intern* names);
// A number above 0 that no other table of the process ever has.
uint64_t tide__intern_uid(const tide_intern* names);

// The number of the first invariant that does not hold, 0 if all do. O(n), with a lock held.
int tide__intern_check(tide_intern* names);

#endif
