// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The thread that looks at the clock for a cache.
#ifndef TIDEMARK_SRC_CPU_UPKEEP_H
#define TIDEMARK_SRC_CPU_UPKEEP_H

#include "cpu/cache.h"

tide_status tide__cpu_start_helper(tide_cpu_cache* cache);
void tide__cpu_stop_helper(tide_cpu_cache* cache);

#endif
