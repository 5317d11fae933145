// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stripes: counters that many threads add to without sharing a cache line. There is a copy of the counter for
// each stripe. A thread adds to the copy of its stripe, and the count is the sum of all copies. Threads get
// their stripes in turn. If there are more threads than stripes, some share one, so that adding is an atomic
// step.
#ifndef TIDEMARK_SRC_BASE_STRIPE_H
#define TIDEMARK_SRC_BASE_STRIPE_H

#include "base/atomic.h"

enum { TIDE__STRIPES = 16 };

extern _Thread_local uint32_t tide__stripe_number;  // of the calling thread, from 1; 0: it has none yet
// Gives the calling thread its stripe.
uint32_t tide__stripe_take(void);

// The stripe of the calling thread.
static inline uint32_t tide__stripe(void) {
  return (tide__stripe_number != 0 ? tide__stripe_number : tide__stripe_take()) - 1;
}

// How many stripes, from the first on, threads have had so far. The copies of the others are 0.
uint32_t tide__stripe_count(void);

#endif
