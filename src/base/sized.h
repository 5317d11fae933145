// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Public structs begin with their size in bytes, a uint32_t, and only grow at their end. A caller that was
// built with an older header passes a shorter struct: missing fields have their defaults, and nothing is
// written beyond its end. A longer struct comes from a newer header and is refused.
#ifndef TIDEMARK_SRC_BASE_SIZED_H
#define TIDEMARK_SRC_BASE_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include "tidemark/base.h"

// Fails with TIDE_ERR_ARGUMENT if `theirs` is NULL, or if no version of a struct of `bytes` bytes had that
// size. `call` names the caller in the error text.
tide_status tide__sized_check(const char* call, const void* theirs, size_t bytes);

// Copies the caller's struct into `own`, which has `bytes` bytes and holds the defaults. Keeps the size of
// `own`.
tide_status tide__sized_read(const char* call, const void* theirs, void* own, size_t bytes);

// Copies `own` into the caller's struct up to its size, which stays.
tide_status tide__sized_write(const char* call, const void* own, void* theirs, size_t bytes);

// Clears all fields but the size, in a caller's struct that passed tide__sized_check().
void tide__sized_clear(void* theirs);

#endif
