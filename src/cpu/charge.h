// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Pages of the system, counted against max_bytes.
#ifndef TIDEMARK_SRC_CPU_CHARGE_H
#define TIDEMARK_SRC_CPU_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "tidemark/cpu.h"

// Counts pages that get memory; false if that would exceed max_bytes. And counts pages that lose it. The
// cache is a void* because regions call the first one as a tide__region_charge.
bool tide__cpu_charge(void* cache, uint64_t pages);
void tide__cpu_uncharge(tide_cpu_cache* cache, uint64_t pages);

#endif
