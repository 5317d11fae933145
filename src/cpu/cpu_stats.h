// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Totals of a cache.
#ifndef TIDEMARK_SRC_CPU_CPU_STATS_H
#define TIDEMARK_SRC_CPU_CPU_STATS_H

#include "cpu/cache.h"

// Counts the end of a block for no thread cache.
void tide__cpu_count_release(tide_cpu_cache* cache, uint64_t bytes);
// Adds what a thread cache has counted to the totals; the caller has entered it.
void tide__cpu_tell(tide_cpu_cache* cache, tide__cpu_tcache* tcache);

#endif
