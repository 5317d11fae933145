// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Functions that release memory before a cache asks the machine: those of one cache, and those that were
// registered by a name for all caches of the process. The latter are observers of no cache. Their lists exist
// from the first registration on, and are never freed.
#include <pthread.h>
#include <string.h>

#include "base/fork.h"
#include "device/lane/lane.h"

typedef struct reclaim_name {
  const char* text;  // borrowed until it is unregistered; NULL: not in use
  tide_observer observer;
} reclaim_name;

typedef struct reclaim_registry {
  tide__mutex lock;  // guards the names
  reclaim_name names[TIDE__MAX_OBSERVERS];
  tide__observers observers;  // only of TIDE__OBSERVE_RECLAIM
  tide__fork_note fork_note;
  tide__atomic_u32 word;  // which the observers and the note want; nobody reads it
  tide__atomic_u32 is_made;
} reclaim_registry;

static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static reclaim_registry registry;

// The functions of other threads never return in a child.
static void registry_inherit(void* user) {
  (void)user;
  tide__observers_inherit_locked(&registry.observers);
}

static void registry_make(void) {
  tide__mutex_init(&registry.lock, TIDE__RANK_REGISTRY);
  tide__observers_init(&registry.observers, &registry.word, 1);
  registry.fork_note.in_child = registry_inherit;
  tide__fork_watch(&registry.fork_note, &registry.word, 2);
  tide__fork_hold(&registry.lock);
  tide__fork_hold(&registry.observers.lock);
  tide__store_release(&registry.is_made, 1);  // pairs with tide__observers_reclaim
}

// The record of a name; NULL stands for one that is not in use. NULL: there is none.
static reclaim_name* name_find_locked(const char* text) TIDE_REQUIRES(&registry.lock) {
  for (size_t i = 0; i < TIDE__MAX_OBSERVERS; i++) {
    reclaim_name* const name = &registry.names[i];
    const bool is_used = name->text != NULL;
    if (text == NULL ? !is_used : is_used && strcmp(name->text, text) == 0) return name;
  }
  return NULL;
}

static tide_status name_attach_locked(const char* text, tide_reclaim_fn function, void* user)
    TIDE_REQUIRES(&registry.lock) {
  TIDE_REQUIRE(name_find_locked(text) == NULL, TIDE_ERR_STATE,
               "reclaim_register: \"%s\" is registered already", text);
  tide_observer observer = 0;
  TIDE_TRY(tide__observers_attach(&registry.observers, "reclaim_register", TIDE__OBSERVE_RECLAIM,
                                  (tide__observer_fn)function, user, &observer));
  *name_find_locked(NULL) = (reclaim_name){ text, observer };  // there are as many names as observers
  return TIDE_OK;
}

tide_status tide_reclaim_register(const char* name, tide_reclaim_fn function, void* user) {
  TIDE_REQUIRE(name != NULL && *name != '\0' && function != NULL, TIDE_ERR_ARGUMENT,
               "reclaim_register: no name or function");
  (void)pthread_once(&registry_once, registry_make);
  tide__mutex_lock(&registry.lock);
  const tide_status status = name_attach_locked(name, function, user);
  tide__mutex_unlock(&registry.lock);
  return status;
}

// The name goes first, and the lock is not held while other threads are waited for: they may register others.
tide_status tide_reclaim_unregister(const char* name) {
  TIDE_REQUIRE(name != NULL && *name != '\0', TIDE_ERR_ARGUMENT, "reclaim_unregister: no name");
  (void)pthread_once(&registry_once, registry_make);
  tide_observer observer = 0;
  tide__mutex_lock(&registry.lock);
  reclaim_name* const found = name_find_locked(name);
  if (found != NULL) {
    observer = found->observer;
    *found = (reclaim_name){ NULL, 0 };
  }
  tide__mutex_unlock(&registry.lock);
  TIDE_REQUIRE(observer != 0, TIDE_ERR_HANDLE, "reclaim_unregister: \"%s\" is not registered", name);
  return tide__observers_detach(&registry.observers, "reclaim_unregister", observer);
}

// ---------------------------------------------------------------------------------------------------
// Calling

typedef struct reclaim_round {
  tide_device_cache* device;
  bool has_released;
} reclaim_round;

static void invoke_reclaim(tide__observer_fn function, void* user, void* argument) {
  reclaim_round* const round = argument;
  round->has_released = ((tide_reclaim_fn)function)(user, round->device) || round->has_released;
}

bool tide__observers_reclaim(tide_device_cache* device) {
  reclaim_round round = { device, false };
  tide__history_tell(&device->history);
  tide__observers_call(&device->history.observers, TIDE__OBSERVE_RECLAIM, invoke_reclaim, &round);
  if (tide__load_acquire(&registry.is_made) != 0) {
    tide__observers_call(&registry.observers, TIDE__OBSERVE_RECLAIM, invoke_reclaim, &round);
  }
  return round.has_released;
}
