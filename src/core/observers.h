// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers and callbacks of one allocator, or of all: a list for each kind, in the order they were attached.
// They are called with no lock held, so they may call the allocator, and attach and detach observers.
// Detaching waits until no other thread is inside an observer of that kind, so that its data may be freed
// afterwards. A thread that is inside an observer itself does not wait: two could wait for each other.
#ifndef TIDEMARK_SRC_CORE_OBSERVERS_H
#define TIDEMARK_SRC_CORE_OBSERVERS_H

#include "base/atomic.h"
#include "base/lock.h"
#include "core/askers.h"
#include "tidemark/cache.h"

enum { TIDE__MAX_OBSERVERS = 32 };  // of a kind

typedef enum tide__observer_kind {
  TIDE__OBSERVE_TRACE,    // a tide_trace_fn
  TIDE__OBSERVE_ENTRIES,  // a tide_entry_fn
  TIDE__OBSERVE_OOM,      // the rest are the allocator's own
  TIDE__OBSERVE_RECLAIM,
  TIDE__OBSERVE_PRESSURE,
  TIDE__OBSERVER_KINDS
} tide__observer_kind;

typedef void (*tide__observer_fn)(void);  // cast to and from the type of its kind

typedef struct tide__attached {
  tide_observer id;
  tide__observer_fn function;
  void* user;  // borrowed until detached
} tide__attached;

typedef struct tide__observer_list {
  tide__attached attached[TIDE__MAX_OBSERVERS];
  uint32_t count;
  tide__askers callers;  // threads that call observers of this list
} tide__observer_list;

typedef struct tide__observers {
  tide__mutex lock;  // guards all below, and the bit
  tide_observer last_id;
  tide__atomic_u32* word;  // borrowed until fini; of the allocator
  uint32_t bit;            // set in the word while an observer of TRACE or ENTRIES is attached
  tide__observer_list lists[TIDE__OBSERVER_KINDS];
} tide__observers;

void tide__observers_init(tide__observers* observers, tide__atomic_u32* word, uint32_t bit);
void tide__observers_fini(tide__observers* observers);

// `call` names the call in errors. Errors: TIDE_ERR_LIMIT above TIDE__MAX_OBSERVERS of the kind.
tide_status tide__observers_attach(tide__observers* observers, const char* call, tide__observer_kind kind,
                                   tide__observer_fn function, void* user, tide_observer* out);
// Errors: TIDE_ERR_HANDLE if it is not attached. With no lock held.
tide_status tide__observers_detach(tide__observers* observers, const char* call, tide_observer observer);

// Forgets the threads that are inside observers, except the calling one: they do not exist in a child of
// fork(). With the lock held since before the fork.
void tide__observers_inherit_locked(tide__observers* observers);

// Is the calling thread inside an observer, of any allocator?
bool tide__observers_are_around(void);

// Calls `invoke` for each observer of a kind that is attached now; with no lock held.
typedef void (*tide__observer_invoke_fn)(tide__observer_fn function, void* user, void* argument);
void tide__observers_call(tide__observers* observers, tide__observer_kind kind,
                          tide__observer_invoke_fn invoke, void* argument);

#endif
