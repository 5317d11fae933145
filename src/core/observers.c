// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Attaching, detaching and calling observers. A caller copies its list and joins the list's callers in one
// step under the lock; so whoever detaches afterwards either finds it there, or the copy lacks the observer.
#include "core/observers.h"

#include "base/error.h"

// How many observers the calling thread is inside of, over all allocators.
static _Thread_local uint32_t observers_around;

bool tide__observers_are_around(void) { return observers_around > 0; }

void tide__observers_init(tide__observers* observers, tide__atomic_u32* word, uint32_t bit) {
  tide__mutex_init(&observers->lock, TIDE__RANK_HISTORY);
  observers->last_id = 0;
  observers->word = word;
  observers->bit = bit;
  for (int kind = 0; kind < TIDE__OBSERVER_KINDS; kind++) {
    observers->lists[kind].count = 0;
    tide__askers_init(&observers->lists[kind].callers);
  }
}

void tide__observers_fini(tide__observers* observers) {
  for (int kind = 0; kind < TIDE__OBSERVER_KINDS; kind++) tide__askers_fini(&observers->lists[kind].callers);
  tide__mutex_fini(&observers->lock);
}

void tide__observers_inherit_locked(tide__observers* observers) {
  for (int kind = 0; kind < TIDE__OBSERVER_KINDS; kind++) {
    tide__askers_inherit_locked(&observers->lists[kind].callers);
  }
}

static void observed_set_locked(tide__observers* observers) {
  const tide__observer_list* const lists = observers->lists;
  const bool is_observed = lists[TIDE__OBSERVE_TRACE].count + lists[TIDE__OBSERVE_ENTRIES].count > 0;
  tide__bits_set(observers->word, observers->bit, is_observed);
}

tide_status tide__observers_attach(tide__observers* observers, const char* call, tide__observer_kind kind,
                                   tide__observer_fn function, void* user, tide_observer* out) {
  tide__observer_list* const list = &observers->lists[kind];
  *out = 0;
  tide__mutex_lock(&observers->lock);
  const bool has_room = list->count < TIDE__MAX_OBSERVERS;
  if (has_room) {
    *out = ++observers->last_id;
    list->attached[list->count++] = (tide__attached){ *out, function, user };
    observed_set_locked(observers);
  }
  tide__mutex_unlock(&observers->lock);
  TIDE_REQUIRE(has_room, TIDE_ERR_LIMIT, "%s: %d observers of this kind are attached already", call,
               TIDE__MAX_OBSERVERS);
  return TIDE_OK;
}

static bool list_remove_locked(tide__observer_list* list, tide_observer observer) {
  uint32_t i = 0;
  while (i < list->count && list->attached[i].id != observer) i++;
  if (i == list->count) return false;
  for (list->count--; i < list->count; i++) list->attached[i] = list->attached[i + 1];
  return true;
}

tide_status tide__observers_detach(tide__observers* observers, const char* call, tide_observer observer) {
  int kind = 0;
  tide__mutex_lock(&observers->lock);
  while (kind < TIDE__OBSERVER_KINDS && !list_remove_locked(&observers->lists[kind], observer)) kind++;
  const bool is_found = kind < TIDE__OBSERVER_KINDS;
  observed_set_locked(observers);
  if (is_found && observers_around == 0) {
    tide__askers_wait_locked(&observers->lists[kind].callers, &observers->lock);
  }
  tide__mutex_unlock(&observers->lock);
  TIDE_REQUIRE(is_found, TIDE_ERR_HANDLE, "%s: %llu is not attached", call, (unsigned long long)observer);
  return TIDE_OK;
}

void tide__observers_call(tide__observers* observers, tide__observer_kind kind,
                          tide__observer_invoke_fn invoke, void* argument) {
  tide__observer_list* const list = &observers->lists[kind];
  tide__asker caller;
  tide__attached copy[TIDE__MAX_OBSERVERS];
  tide__mutex_lock(&observers->lock);
  const uint32_t count = list->count;
  for (uint32_t i = 0; i < count; i++) copy[i] = list->attached[i];
  if (count > 0) tide__askers_enter_locked(&list->callers, &caller);
  tide__mutex_unlock(&observers->lock);
  if (count == 0) return;
  observers_around++;
  for (uint32_t i = 0; i < count; i++) invoke(copy[i].function, copy[i].user, argument);
  observers_around--;
  tide__mutex_lock(&observers->lock);
  tide__askers_leave_locked(&list->callers, &caller);
  tide__mutex_unlock(&observers->lock);
}
