// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which stripe a thread has.
#include "base/stripe.h"

#include "base/arith.h"

_Thread_local uint32_t tide__stripe_number;

static tide__atomic_u64 thread_count;  // that have a stripe, or had one

uint32_t tide__stripe_take(void) {
  tide__stripe_number = (uint32_t)(tide__add_relaxed(&thread_count, 1) % TIDE__STRIPES) + 1;
  return tide__stripe_number;
}

uint32_t tide__stripe_count(void) {
  return (uint32_t)tide__min(tide__load_relaxed(&thread_count), TIDE__STRIPES);
}
