// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers and callbacks: attached and detached by number, called with no lock held, those of a kind in the
// order they came. Before a program's callback runs, what the thread has to tell is told: others may wait for
// that, and the callback for them.
#include <string.h>

#include "device/allocator.h"

typedef void (*any_fn)(void);

static bool observers_hear_entries_locked(const tide_device* device) {
  return device->observers[TIDE__OBSERVE_TRACE].count + device->observers[TIDE__OBSERVE_ENTRIES].count > 0;
}

static tide_status observer_attach(tide_device* device, int kind, any_fn function, void* user,
                                   tide_observer* out) {
  TIDE_REQUIRE(device != NULL && function != NULL && out != NULL, TIDE_ERR_ARGUMENT,
               "device_observe: no device, function or out");
  *out = 0;
  tide__observers* const list = &device->observers[kind];
  tide__mutex_lock(&device->pools_lock);
  const bool has_room = list->count < TIDE__MAX_OBSERVERS;
  if (has_room) {
    *out = ++device->next_observer;
    list->ids[list->count] = *out;
    list->functions[list->count] = function;
    list->users[list->count++] = user;
    tide__detour(device, TIDE__RECORDS_TRACE, observers_hear_entries_locked(device));
  }
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(has_room, TIDE_ERR_LIMIT, "device_observe: there are %d of this kind", TIDE__MAX_OBSERVERS);
  return TIDE_OK;
}

tide_status tide_device_observe_oom(tide_device* device, tide_oom_fn function, void* user,
                                    tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_OOM, (any_fn)function, user, out);
}

tide_status tide_device_observe_trace(tide_device* device, tide_trace_fn function, void* user,
                                      tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_TRACE, (any_fn)function, user, out);
}

tide_status tide_device_observe_entries(tide_device* device, tide_entry_fn function, void* user,
                                        tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_ENTRIES, (any_fn)function, user, out);
}

tide_status tide_device_observe_reclaim(tide_device* device, tide_reclaim_fn function, void* user,
                                        tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_RECLAIM, (any_fn)function, user, out);
}

static bool observer_remove_locked(tide__observers* list, tide_observer observer) {
  uint32_t i = 0;
  while (i < list->count && list->ids[i] != observer) i++;
  if (i == list->count) return false;
  for (list->count--; i < list->count; i++) {
    list->ids[i] = list->ids[i + 1];
    list->functions[i] = list->functions[i + 1];
    list->users[i] = list->users[i + 1];
  }
  return true;
}

tide_status tide_device_detach(tide_device* device, tide_observer observer) {
  TIDE_REQUIRE(device != NULL, TIDE_ERR_ARGUMENT, "device_detach: no device");
  bool is_found = false;
  tide__mutex_lock(&device->pools_lock);
  for (int kind = 0; kind < TIDE__OBSERVE_KINDS && !is_found; kind++) {
    is_found = observer_remove_locked(&device->observers[kind], observer);
  }
  tide__detour(device, TIDE__RECORDS_TRACE, observers_hear_entries_locked(device));
  tide__mutex_unlock(&device->pools_lock);
  TIDE_REQUIRE(is_found, TIDE_ERR_HANDLE, "device_detach: %llu is not attached",
               (unsigned long long)observer);
  return TIDE_OK;
}

static void observers_copy(tide_device* device, int kind, tide__observers* out) {
  tide__mutex_lock(&device->pools_lock);
  const tide__observers* const list = &device->observers[kind];
  out->count = list->count;
  for (uint32_t i = 0; i < list->count; i++) {
    out->functions[i] = list->functions[i];
    out->users[i] = list->users[i];
  }
  tide__mutex_unlock(&device->pools_lock);
}

void tide__observers_oom(tide_device* device, const tide_oom* oom) {
  tide__observers list;
  tide__history_tell(device);
  observers_copy(device, TIDE__OBSERVE_OOM, &list);
  for (uint32_t i = 0; i < list.count; i++) ((tide_oom_fn)list.functions[i])(list.users[i], oom);
}

void tide__observers_entry(tide_device* device, const tide_trace_entry* entry, uint64_t number) {
  tide__observers list;
  observers_copy(device, TIDE__OBSERVE_TRACE, &list);
  for (uint32_t i = 0; i < list.count; i++) ((tide_trace_fn)list.functions[i])(list.users[i], entry);
  observers_copy(device, TIDE__OBSERVE_ENTRIES, &list);
  for (uint32_t i = 0; i < list.count; i++) ((tide_entry_fn)list.functions[i])(list.users[i], entry, number);
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

static void named_copy(tide__observers* out) {
  tide__mutex_lock(&named_lock);
  out->count = named_count;
  for (uint32_t i = 0; i < named_count; i++) {
    out->functions[i] = (any_fn)named_callbacks[i].function;
    out->users[i] = named_callbacks[i].user;
  }
  tide__mutex_unlock(&named_lock);
}

// All are asked, whatever the first says.
static bool callbacks_ask(tide_device* device, const tide__observers* list) {
  bool has_released = false;
  for (uint32_t i = 0; i < list->count; i++) {
    has_released = ((tide_reclaim_fn)list->functions[i])(list->users[i], device) || has_released;
  }
  return has_released;
}

bool tide__observers_reclaim(tide_device* device) {
  tide__observers list;
  tide__history_tell(device);
  observers_copy(device, TIDE__OBSERVE_RECLAIM, &list);
  const bool has_released = callbacks_ask(device, &list);
  named_copy(&list);
  return callbacks_ask(device, &list) || has_released;
}
