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

// Who has paused may wait for what this thread has still to tell.
void tide__gate_settle(tide_device_cache* device) {
  const bool waits = tide__load_relaxed(&device->paused) > 0 && !tide__observers_are_around();
  if (!waits && tide__untold_count == 0) return;
  turn_end(device);
  tide__history_tell(&device->history);
  tide__mutex_lock(&device->gate_lock);
  while (device->is_gate_taken || (waits && tide__load_relaxed(&device->paused) > 0)) {
    tide__signal_wait(&device->gate_open, &device->gate_lock);
  }
  device->is_gate_taken = true;
  tide__mutex_unlock(&device->gate_lock);
}

void tide__detour(tide_device_cache* device, uint32_t bit, bool is_set) {
  tide__bits_set(&device->detours, bit, is_set);
}

tide_status tide__inherited_refuse(const char* call) {
  return TIDE_FAIL(TIDE_ERR_STATE, "%s: the allocator belongs to the parent process", call);
}
