// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Limits, age, and want of memory. All functions are called with no lock held.
#ifndef TIDEMARK_SRC_CPU_LIMITS_H
#define TIDEMARK_SRC_CPU_LIMITS_H

#include "cpu/cache.h"

// After a call that released: is the zone within its allowance?
void tide__cpu_enforce(tide_cpu_cache* cache, tide__zone* zone);
// Now and then: looks at the clock, and gives back what has been idle for too long.
void tide__cpu_look(tide_cpu_cache* cache);
void tide__cpu_sweep(tide_cpu_cache* cache, uint32_t age);
// The stamp of now, which is the cache's from now on.
uint32_t tide__cpu_now(tide_cpu_cache* cache);
void tide__cpu_trim(tide_cpu_cache* cache, uint64_t bytes);
uint64_t tide__cpu_cached(tide_cpu_cache* cache);
// A tide__recover_fn: gives back idle memory of the thread, of the cache, asks the program, and empties other
// caches.
bool tide__cpu_recover(tide_cpu_cache* cache, uint64_t bytes, uint32_t* step);

#endif
