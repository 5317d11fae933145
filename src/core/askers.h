// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Askers: requests that call functions of the user's. A request copies the open scopes and asks their filters
// with no lock held. From the copy until the last answer it is on this list, which the lock of the scopes
// guards. Whoever closes a scope waits until the requests that may still ask its filter have left the list;
// then the filter's data may go.
#ifndef TIDEMARK_SRC_CORE_ASKERS_H
#define TIDEMARK_SRC_CORE_ASKERS_H

#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

typedef struct tide__asker {
  tide__link link;
  uint64_t number;  // of no other asker, rising
  uint64_t thread;
} tide__asker;

typedef struct tide__askers {
  tide__link list;  // by rising number
  uint64_t count;   // so far
  uint32_t waits;   // how many wait until others have left: nobody else is signalled
  tide__signal left;
} tide__askers;

void tide__askers_init(tide__askers* askers);
void tide__askers_fini(tide__askers* askers);

void tide__askers_enter_locked(tide__askers* askers, tide__asker* asker);
void tide__askers_leave_locked(tide__askers* askers, tide__asker* asker);

// Waits until all askers of this moment have left. Returns at once on a thread that is itself asking: two
// filters that close each other's scopes would wait for ever.
void tide__askers_wait_locked(tide__askers* askers, tide__mutex* mutex) TIDE_REQUIRES(mutex);

// A number for the calling thread that no other thread has or had.
uint64_t tide__thread_number(void);

#endif
