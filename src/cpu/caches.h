// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// All caches of the process.
#ifndef TIDEMARK_SRC_CPU_CACHES_H
#define TIDEMARK_SRC_CPU_CACHES_H

#include "cpu/cache.h"

void tide__caches_add(tide_cpu_cache* cache);
void tide__caches_remove(tide_cpu_cache* cache);
// The oldest cache (for NULL), or the one after `cache`, which is held no longer; NULL if there is none. The
// result is held: it stays until the caller drops it.
tide_cpu_cache* tide__caches_hold_next(tide_cpu_cache* cache);

#endif
