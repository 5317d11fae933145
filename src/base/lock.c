// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The slow paths of mutexes and signals. A signal is a futex: a waiting thread sleeps until the count of
// signals changes. The ranks that a thread holds are bits of a thread-local word, because a thread never
// holds two locks of one rank.
#include "base/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/sys.h"

void tide__assert_failed(const char* text, const char* file, int line) {
  (void)fprintf(stderr, "tidemark: %s:%d: broken invariant: %s\n", file, line, text);
  abort();
}

// ---------------------------------------------------------------------------------------------------
// Ranks

#if TIDE_CHECK >= 1
static _Thread_local uint32_t held_ranks;

void tide__rank_push(uint32_t rank) {
  TIDE_ASSERT(held_ranks >> rank == 0);
  held_ranks |= 1u << rank;
}

void tide__rank_pop(uint32_t rank) {
  TIDE_ASSERT((held_ranks >> rank & 1u) != 0);
  held_ranks &= ~(1u << rank);
}

bool tide__holds_no_lock(void) { return held_ranks == 0; }
#else
bool tide__holds_no_lock(void) { return true; }
#endif

// ---------------------------------------------------------------------------------------------------
// How long locks are held

#ifdef TIDE_LOCK_TIMES
static tide__atomic_u64 longest_ns;

void tide__lock_time_begin(tide__mutex* mutex) { mutex->since_ns = tide__sys_thread_cpu_ns(); }

void tide__lock_time_end(const tide__mutex* mutex) {
  const uint64_t ns = tide__sys_thread_cpu_ns() - mutex->since_ns;
  uint64_t longest = tide__load_relaxed(&longest_ns);
  while (ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, ns)) {}
}

uint64_t tide__lock_longest_ns(void) { return atomic_exchange(&longest_ns, 0); }
#else
uint64_t tide__lock_longest_ns(void) { return UINT64_MAX; }
#endif

// ---------------------------------------------------------------------------------------------------
// Mutexes

enum { SPINS = 100, SLEEP_NS = 20000 };

void tide__wait_a_moment(uint32_t times_before) {
  if (times_before < SPINS) tide__cpu_relax();
  else tide__sys_sleep_ns(SLEEP_NS);
}

void tide__mutex_init(tide__mutex* mutex, tide__rank rank) {
  tide__store_relaxed(&mutex->state, 0);
  mutex->rank = (uint32_t)rank;
}

void tide__mutex_fini(tide__mutex* mutex) { TIDE_ASSERT(tide__load_relaxed(&mutex->state) == 0); }

void tide__mutex_lock_many(tide__mutex* mutex) { tide__mutex_wait(mutex); }

void tide__mutex_unlock_many(tide__mutex* mutex) {
  tide__store_release(&mutex->state, 0);  // pairs with the acquire in tide__mutex_lock
}

// pairs with the release in tide__mutex_unlock
static bool mutex_try(tide__mutex* mutex) {
  uint32_t is_free = 0;
  return tide__load_relaxed(&mutex->state) == 0 &&
         atomic_compare_exchange_weak_explicit(&mutex->state, &is_free, 1, memory_order_acquire,
                                               memory_order_relaxed);
}

void tide__mutex_wait(tide__mutex* mutex) {
  for (uint32_t i = 0; !mutex_try(mutex); i++) tide__wait_a_moment(i);
}

// ---------------------------------------------------------------------------------------------------
// Signals

void tide__signal_init(tide__signal* signal) {
  tide__store_relaxed(&signal->count, 0);
  tide__store_relaxed(&signal->waiting, 0);
}
void tide__signal_fini(tide__signal* signal) { (void)signal; }

void tide__signal_all(tide__signal* signal) {
  (void)tide__add_seq(&signal->count, 1);
  if (tide__load_seq(&signal->waiting) != 0) tide__sys_futex_wake(&signal->count);
}

// A thread that signals and sees nobody waiting has counted its signal before the other reads the count.
TIDE_UNCHECKED_LOCKING void tide__signal_wait(tide__signal* signal, tide__mutex* mutex) {
  (void)tide__add_seq(&signal->waiting, 1);
  const uint32_t count = tide__load_seq(&signal->count);
  tide__mutex_unlock(mutex);
  tide__sys_futex_wait(&signal->count, count);
  (void)tide__sub_seq(&signal->waiting, 1);
  tide__mutex_lock(mutex);
}
