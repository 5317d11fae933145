// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The end of a cache.
#ifndef TIDEMARK_SRC_CPU_ENDING_H
#define TIDEMARK_SRC_CPU_ENDING_H

#include "cpu/cache.h"

// Takes a block back whose cache has ended.
tide_status tide__orphan_release(tide__region* region, uint64_t address);

#endif
