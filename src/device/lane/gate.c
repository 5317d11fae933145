// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The gate, the detours from the fast path, and the refusal of an allocator that was inherited by a fork.
#include "device/lane/lane.h"

uint64_t tide__gate_enter(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  device->gate_waiters++;
  while (device->is_gate_taken) tide__signal_wait(&device->gate_open, &device->gate_lock);
  device->gate_waiters--;
  device->is_gate_taken = true;
  const uint64_t turn = tide__load_relaxed(&device->gate_turn);
  tide__mutex_unlock(&device->gate_lock);
  return turn;
}

void tide__gate_enter_last(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  while (device->is_gate_taken || device->gate_waiters > 0)
    tide__signal_wait(&device->gate_open, &device->gate_lock);
  device->is_gate_taken = true;
  tide__mutex_unlock(&device->gate_lock);
}

static void turn_end(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  tide__store_release(&device->gate_turn,
                      tide__load_relaxed(&device->gate_turn) + 1);  // pairs with request_begin
  device->is_gate_taken = false;
  tide__signal_all(&device->gate_open);
  tide__mutex_unlock(&device->gate_lock);
}

void tide__gate_leave(tide_device_cache* device) {
  tide__allowance_settle(device);
  turn_end(device);
}

void tide__gate_pause(tide_device_cache* device) {
  (void)tide__add_relaxed(&device->paused, 1);  // with the gate
  turn_end(device);
}

void tide__gate_resume(tide_device_cache* device) {
  (void)tide__gate_enter(device);
  (void)tide__add_relaxed(&device->paused, (uint32_t)-1);
}

// Leaves the gate until no thread has paused, if `waits_for_paused`, and `moving`, if there is one, does not
// move. Who has paused may wait for what this thread has still to tell. What is waited for changes with the
// gate only, so it stays as it is while nobody has that.
static void turn_give(tide_device_cache* device, bool waits_for_paused, const tide__pool* moving) {
  turn_end(device);
  tide__history_tell(&device->history);
  tide__mutex_lock(&device->gate_lock);
  while (device->is_gate_taken || (waits_for_paused && tide__load_relaxed(&device->paused) > 0) ||
         (moving != NULL && moving->is_moving)) {
    tide__signal_wait(&device->gate_open, &device->gate_lock);
  }
  device->is_gate_taken = true;
  tide__mutex_unlock(&device->gate_lock);
}

void tide__gate_settle(tide_device_cache* device) {
  const bool waits = tide__load_relaxed(&device->paused) > 0 && !tide__observers_are_around();
  if (waits || tide__untold_count > 0) turn_give(device, waits, NULL);
}

void tide__gate_wait_for(tide_device_cache* device, const tide__pool* moving) {
  turn_give(device, false, moving);
}

void tide__detour(tide_device_cache* device, uint32_t bit, bool is_set) {
  tide__bits_set(&device->detours, bit, is_set);
}

tide_status tide__inherited_refuse(const char* call) {
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: the allocator belongs to the parent process", call);
}
