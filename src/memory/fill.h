// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Filling memory that is handed out.
#ifndef TIDEMARK_SRC_MEMORY_FILL_H
#define TIDEMARK_SRC_MEMORY_FILL_H

#include "tidemark/memory.h"

void tide__memory_fill(tide_fill fill, void* address, uint64_t bytes);

#endif
