// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Mutexes over pthreads. The ranks a thread holds are one bit each in a thread-local word: of one rank a
// thread never holds two locks.
#include "base/lock.h"

#include <stdio.h>
#include <stdlib.h>

void tide__assert_failed(const char* text, const char* file, int line) {
  (void)fprintf(stderr, "tidemark: %s:%d: broken invariant: %s\n", file, line, text);
  abort();
}

#if TIDE_CHECK >= 1
static _Thread_local uint32_t held_ranks;

static void rank_push(uint32_t rank) {
  TIDE_ASSERT(held_ranks >> rank == 0);
  held_ranks |= 1u << rank;
}

static void rank_pop(uint32_t rank) {
  TIDE_ASSERT((held_ranks >> rank & 1u) != 0);
  held_ranks &= ~(1u << rank);
}

bool tide__holds_no_lock(void) { return held_ranks == 0; }
#else
static void rank_push(uint32_t rank) { (void)rank; }
static void rank_pop(uint32_t rank) { (void)rank; }
bool tide__holds_no_lock(void) { return true; }
#endif

void tide__mutex_init(tide__mutex* mutex, tide__rank rank) {
  (void)pthread_mutex_init(&mutex->native, NULL);
  mutex->rank = (uint32_t)rank;
}

void tide__mutex_fini(tide__mutex* mutex) { (void)pthread_mutex_destroy(&mutex->native); }

TIDE_UNCHECKED_LOCKING void tide__mutex_lock(tide__mutex* mutex) {
  rank_push(mutex->rank);
  (void)pthread_mutex_lock(&mutex->native);
}

TIDE_UNCHECKED_LOCKING void tide__mutex_unlock(tide__mutex* mutex) {
  (void)pthread_mutex_unlock(&mutex->native);
  rank_pop(mutex->rank);
}

void tide__signal_init(tide__signal* signal) { (void)pthread_cond_init(&signal->native, NULL); }
void tide__signal_fini(tide__signal* signal) { (void)pthread_cond_destroy(&signal->native); }
void tide__signal_all(tide__signal* signal) { (void)pthread_cond_broadcast(&signal->native); }

void tide__signal_wait(tide__signal* signal, tide__mutex* mutex) {
  (void)pthread_cond_wait(&signal->native, &mutex->native);
}
