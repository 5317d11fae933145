// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Askers: threads that call functions of the user, such as the filters of scopes. A thread copies what it
// will call under a lock, and calls it with no lock held. From the copy to the last call it is on this list,
// which the same lock guards. Whoever removes a function waits until the threads that may still call it have
// left the list. Then the user may free the function's data.
#ifndef TIDEMARK_SRC_CORE_ASKERS_H
#define TIDEMARK_SRC_CORE_ASKERS_H

#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

typedef struct tide__asker {
  tide__link link;
  uint64_t number;  // unique and rising
  uint64_t thread;
} tide__asker;

typedef struct tide__askers {
  tide__link list;  // by rising number
  uint64_t count;   // so far
  uint32_t waits;   // threads in tide__askers_wait_locked(); without them nobody is signalled
  tide__signal left;
} tide__askers;

void tide__askers_init(tide__askers* askers);
void tide__askers_fini(tide__askers* askers);

void tide__askers_enter_locked(tide__askers* askers, tide__asker* asker);
void tide__askers_leave_locked(tide__askers* askers, tide__asker* asker);

// Removes the askers of all other threads, which do not exist in a child of fork().
void tide__askers_inherit_locked(tide__askers* askers);

// Waits until all askers on the list now have left. Returns at once if the calling thread is on the list: two
// filters that close each other's scopes would wait for each other.
void tide__askers_wait_locked(tide__askers* askers, tide__mutex* mutex) TIDE_REQUIRES(mutex);

// A number that no other thread has or had.
uint64_t tide__thread_number(void);

#endif
