// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Public structs that begin with their size in bytes, a uint32_t, and only grow at their end. A caller that
// was built with an older header passes a shorter struct: fields that it lacks have their defaults, and
// nothing is written behind its end. A longer struct comes from a newer header and is refused.
#ifndef TIDEMARK_SRC_BASE_SIZED_H
#define TIDEMARK_SRC_BASE_SIZED_H

#include <stddef.h>
#include <stdint.h>

#include "tidemark/base.h"

// Fails with TIDE_ERR_ARGUMENT if `theirs` is NULL, or has a size that no version of a struct of `bytes`
// bytes has had. `call` names the caller in the error's text.
tide_status tide__sized_check(const char* call, const void* theirs, size_t bytes);

// Copies the caller's struct into `own`, which holds the defaults and has `bytes` bytes. The size of `own`
// stays.
tide_status tide__sized_read(const char* call, const void* theirs, void* own, size_t bytes);

// Copies `own` into the caller's struct, as far as that goes. The size of the caller's struct stays.
tide_status tide__sized_write(const char* call, const void* own, void* theirs, size_t bytes);

// Sets everything behind the size to zero, in a struct of the caller that passed tide__sized_check().
void tide__sized_clear(void* theirs);

#endif
