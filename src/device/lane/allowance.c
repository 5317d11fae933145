// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the ledger of processes lets the cache have. Before memory is taken from the machine, the ledger
// grants it; at the end of each turn, what is granted and not reserved goes back to the ledger.
//
//   granted >= reserved + unsettled     always, with the gate
//
// Unsettled is memory that came from the machine and is not reserved yet. Where parking or unparking fails
// half way, it is counted too long, until the turn ends. While a thread has paused its turn, nothing is
// settled: it may have such memory.
#include "base/sys.h"
#include "device/lane/lane.h"

static uint64_t needed_bytes(tide_device_cache* device) {
  return tide__load_relaxed(&device->reserved_bytes) + device->unsettled_bytes;
}

tide_status tide__allowance_take(tide_device_cache* device, uint64_t bytes) {
  tide_quota* const quota = tide__load_relaxed(&device->quota);
  if (quota == NULL) return TIDE_OK;
  const uint64_t granted = tide__load_relaxed(&device->granted_bytes);
  const uint64_t needed = needed_bytes(device) + bytes;
  if (needed > granted) {
    const tide_status status = tide_quota_take_now(quota, needed - granted);
    if (status != TIDE_OK) return TIDE_ERR_NO_MEMORY;  // a limit of the ledger, too, is as a full device
    (void)tide__add_relaxed(&device->granted_bytes, needed - granted);
  }
  device->unsettled_bytes += bytes;
  return TIDE_OK;
}

void tide__allowance_undo(tide_device_cache* device, uint64_t bytes) {
  device->unsettled_bytes -= tide__min(device->unsettled_bytes, bytes);
}

void tide__allowance_settle(tide_device_cache* device) {
  tide_quota* const quota = tide__load_relaxed(&device->quota);
  if (quota == NULL || tide__load_relaxed(&device->paused) > 0) return;
  device->unsettled_bytes = 0;
  const uint64_t needed = needed_bytes(device) + tide__load_relaxed(&device->pledged_bytes);
  const uint64_t granted = tide__load_relaxed(&device->granted_bytes);
  if (granted <= needed) return;
  (void)tide__add_relaxed(&device->granted_bytes, needed - granted);
  tide__ignore(tide_quota_give(quota, granted - needed));
}

// ---------------------------------------------------------------------------------------------------
// Asking other processes

#define MACHINE_PAUSE_NS 1000000u  // between two looks at the memory of the machine

// While this waits for others, they may ask, too: what is freed for them goes to the ledger. From the grant
// on, no turn gives away what is granted.
static bool pledge_begin(tide_device_cache* device, uint64_t bytes) {
  if (tide_quota_take(tide__load_relaxed(&device->quota), bytes) != TIDE_OK) return false;
  (void)tide__gate_enter(device);
  (void)tide__add_relaxed(&device->pledged_bytes, bytes);
  (void)tide__add_relaxed(&device->granted_bytes, bytes);
  tide__gate_leave(device);
  return true;
}

static void pledge_end(tide_device_cache* device, uint64_t bytes) {
  (void)tide__gate_enter(device);
  (void)tide__add_relaxed(&device->pledged_bytes, (uint64_t)0 - bytes);
  tide__gate_leave(device);
}

// Has the machine, which the ledger does not know, less than the ledger says?
static bool machine_lacks(tide_device_cache* device, uint64_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const tide_status status =
      tide_machine_memory_info(device->machine, device->index, &free_bytes, &total_bytes);
  return status == TIDE_OK && free_bytes < bytes;
}

// The memory of a process that has ended comes back a little after its place in the ledger.
static tide_status attempt_patiently(tide_device_cache* device, uint64_t bytes, tide__attempt_fn again,
                                     void* user) {
  const uint64_t begin_ns = tide__sys_clock_ns();
  tide_status status = again(user);
  while (status == TIDE_ERR_NO_MEMORY && machine_lacks(device, bytes) &&
         tide__sys_clock_ns() - begin_ns < device->quota_wait_ns) {
    tide__sys_sleep_ns(MACHINE_PAUSE_NS);
    if (!machine_lacks(device, bytes)) status = again(user);
  }
  return status;
}

tide_status tide__allowance_ask(tide_device_cache* device, uint64_t bytes, tide__attempt_fn again,
                                void* user) {
  if (tide__load_relaxed(&device->quota) == NULL || bytes == 0) return TIDE_ERR_NO_MEMORY;
  const tide_error before = *tide_last_error();
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (!pledge_begin(device, bytes)) {
    tide__error_restore(&before);
    return status;
  }
  status = attempt_patiently(device, bytes, again, user);
  pledge_end(device, bytes);
  return status;
}
