// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Observers of the device allocator (core/observers.h). Before a callback runs, the thread tells its untold
// entries: another thread may wait for that, and the callback may wait for that thread.
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

tide_status tide_device_observe_pressure(tide_device_cache* device, tide_pressure_fn function, void* user,
                                         tide_observer* out) {
  return observer_attach(device, TIDE__OBSERVE_PRESSURE, (tide__observer_fn)function, user, out);
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

// Callbacks of pressure run one at a time in a thread: they may make requests.
static _Thread_local bool is_pressed;

typedef struct pressure_round {
  tide_device_cache* device;
  const tide_pressure* pressure;
  bool has_called;
} pressure_round;

static void invoke_pressure(tide__observer_fn function, void* user, void* argument) {
  pressure_round* const round = argument;
  round->has_called = true;
  ((tide_pressure_fn)function)(user, round->device, round->pressure);
}

bool tide__observers_press(tide_device_cache* device, const tide_pressure* pressure) {
  pressure_round round = { device, pressure, false };
  if (is_pressed) return false;
  is_pressed = true;
  tide__history_tell(&device->history);
  tide__observers_call(&device->history.observers, TIDE__OBSERVE_PRESSURE, invoke_pressure, &round);
  is_pressed = false;
  return round.has_called;
}
