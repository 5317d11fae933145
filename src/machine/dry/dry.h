// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Internals of the dry machine.
//
//   time.c  the virtual clock, streams in virtual time
//   dry.c   options, addresses, costs; calls time.c
#ifndef TIDEMARK_SRC_MACHINE_DRY_DRY_H
#define TIDEMARK_SRC_MACHINE_DRY_DRY_H

#include "base/arith.h"
#include "base/stripe.h"
#include "machine/soft/soft.h"

// A queue of addresses that the caller dictated.
typedef struct tide__dry_script {
  uint64_t* addresses;  // owned; shared under the memory lock, like all fields here
  size_t capacity;
  size_t first;
  size_t count;
} tide__dry_script;

typedef struct tide__dry_device {
  tide__dry_script raw;
  tide__dry_script reserve;
} tide__dry_device;

// The time that calls of the threads of one stripe took.
typedef struct tide__dry_clock {
  _Alignas(64) tide__atomic_u64 ns;
} tide__dry_clock;

typedef struct tide__dry {
  tide__soft soft;  // must be first: the functions of the table get a pointer to it
  tide_dry_costs costs;
  tide__dry_device* devices;  // owned
  uint64_t next_address;      // start of the search for free addresses, shared under the memory lock
  tide__dry_clock clocks[TIDE__STRIPES];
  tide__atomic_u32 has_work;  // work was queued, or may have become ready
  tide__atomic_u64 due;       // otherwise no work ends before this time
  tide__mutex runner_lock;
  tide__signal runner_left;
  bool has_runner;   // one thread at a time plays the streams; shared under runner_lock
  uint32_t waiters;  // threads that wait for that one to leave; shared under runner_lock
} tide__dry;

static inline tide__dry* tide__dry_of(tide__soft* soft) { return (tide__dry*)(void*)soft; }

// The virtual time, in ns. It stops at its largest value instead of wrapping around.
static inline uint64_t tide__dry_now(tide__dry* dry) {
  const uint32_t stripes = tide__stripe_count();
  uint64_t now = 0;
  for (uint32_t i = 0; i < stripes; i++) {
    if (!tide__add(now, tide__load_relaxed(&dry->clocks[i].ns), &now)) return UINT64_MAX;
  }
  return now;
}

// Advances the clock by `ns`.
static inline void tide__dry_pass(tide__dry* dry, uint64_t ns) {
  tide__atomic_u64* const clock = &dry->clocks[tide__stripe()].ns;
  uint64_t before = tide__load_relaxed(clock);
  uint64_t later = 0;
  do {
    if (!tide__add(before, ns, &later)) later = UINT64_MAX;
  } while (!atomic_compare_exchange_weak(clock, &before, later));
}

// time.c
tide_status tide__dry_stream_start(tide__stream* stream, const char* name);
void tide__dry_stream_kick(tide__stream* stream);
void tide__dry_stream_stop(tide__stream* stream);
void tide__dry_settle(tide__soft* soft);
void tide__dry_drain(tide__soft* soft);
tide_status tide__dry_await(tide__soft* soft, const char* name, tide__point point);
tide_status tide__dry_work(tide__dry* dry, int device, tide_stream handle, uint64_t ns);
tide_status tide__dry_hold(tide__dry* dry, int device, tide_stream handle, bool is_held);
tide_status tide__dry_finish(tide__dry* dry, tide_event handle);

#endif
