// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers of the device allocator (core/observers.h), and the callbacks of the whole process. Before a
// callback runs, the thread tells its untold entries: another thread may wait for that, and the callback may
// wait for that thread.
#include <string.h>

#include "device/lane/lane.h"

static tide_status observer_attach(tide_device_cache* device, tide__observer_kind kind,
                                   tide__observer_fn function, void* user, tide_observer* out) {
  TIDE_REQUIRE(device != NULL && function != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_observe: no device, function or out");
  return tide__observers_attach(&device->history.observers, "device_observe", kind, function, user, out);
}

tide_status tide_device_observe_oom(tide_device_cache* device, tide_oom_fn function, void* user,
                                    tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_OOM, (tide__observer_fn)function, user, out);
}

tide_status tide_device_observe_trace(tide_device_cache* device, tide_trace_fn function, void* user,
                                      tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_TRACE, (tide__observer_fn)function, user, out);
}

tide_status tide_device_observe_entries(tide_device_cache* device, tide_entry_fn function, void* user,
                                        tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_ENTRIES, (tide__observer_fn)function, user, out);
}

tide_status tide_device_observe_reclaim(tide_device_cache* device, tide_reclaim_fn function, void* user,
                                        tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_RECLAIM, (tide__observer_fn)function, user, out);
}

tide_status tide_device_detach(tide_device_cache* device, tide_observer observer) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_detach: no device");
  return tide__observers_detach(&device->history.observers, "device_detach", observer);
}

static void invoke_oom(tide__observer_fn function, void* user, void* argument) {
  ((tide_oom_fn)function)(user, *(const tide_oom* const*)argument);
}

void tide__observers_oom(tide_device_cache* device, const tide_oom* oom) {
  tide__history_tell(&device->history);
  tide__observers_call(&device->history.observers, TIDE__OBSERVE_OOM, invoke_oom, &oom);
}

// ---------------------------------------------------------------------------------------------------
// Callbacks of the whole process

typedef struct named_callback {
  char name[TIDE_RECLAIM_NAME + 1];
  tide_reclaim_fn function;
  void* user;
} named_callback;

static tide__mutex named_lock = TIDE__MUTEX_INIT(TIDE__RANK_REGISTRY);  // guards both below
static named_callback named_callbacks[TIDE__MAX_OBSERVERS];             // in the order the names came
static uint32_t named_count;

static uint32_t named_find_locked(const char* name) TIDE_REQUIRES(&named_lock) {
  uint32_t i = 0;
  while (i < named_count && strcmp(named_callbacks[i].name, name) != 0) i++;
  return i;
}

tide_status tide_reclaim_register(const char* name, tide_reclaim_fn function, void* user) {
  TIDE_REQUIRE(name != NULL && function != NULL, TIDE_ERR_ARGUMENT, "reclaim_register: no name or function");
  const size_t length = strlen(name);
  TIDE_REQUIRE(length > 0 && length <= TIDE_RECLAIM_NAME, TIDE_ERR_ARGUMENT,
               "reclaim_register: a name of %zu bytes", length);
  tide__mutex_lock(&named_lock);
  const uint32_t index = named_find_locked(name);
  const bool has_room = index < TIDE__MAX_OBSERVERS;
  if (has_room) {
    memcpy(named_callbacks[index].name, name, length + 1);
    named_callbacks[index].function = function;
    named_callbacks[index].user = user;
    if (index == named_count) named_count++;
  }
  tide__mutex_unlock(&named_lock);
  TIDE_REQUIRE(has_room, TIDE_ERR_LIMIT, "reclaim_register: there are %d names", TIDE__MAX_OBSERVERS);
  return TIDE_OK;
}

tide_status tide_reclaim_unregister(const char* name) {
  TIDE_REQUIRE(name != NULL, TIDE_ERR_ARGUMENT, "reclaim_unregister: no name");
  tide__mutex_lock(&named_lock);
  uint32_t index = named_find_locked(name);
  const bool is_found = index < named_count;
  if (is_found) named_count--;
  for (; is_found && index < named_count; index++) named_callbacks[index] = named_callbacks[index + 1];
  tide__mutex_unlock(&named_lock);
  TIDE_REQUIRE(is_found, TIDE_ERR_HANDLE, "reclaim_unregister: there is no \"%.63s\"", name);
  return TIDE_OK;
}

// Calls a copy of the callbacks; all of them, whatever the first says.
static bool named_ask(tide_device_cache* device) {
  named_callback copy[TIDE__MAX_OBSERVERS];
  bool has_released = false;
  tide__mutex_lock(&named_lock);
  const uint32_t count = named_count;
  if (count > 0) memcpy(copy, named_callbacks, count * sizeof *copy);
  tide__mutex_unlock(&named_lock);
  for (uint32_t i = 0; i < count; i++) {
    has_released = copy[i].function(copy[i].user, device) || has_released;
  }
  return has_released;
}

// ---------------------------------------------------------------------------------------------------
// Both

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
  return named_ask(device) || round.has_released;
}
