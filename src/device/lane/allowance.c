// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the ledger of processes lets the cache have. Before memory is taken from the machine, the ledger
// grants it; at the end of each turn, what is granted and not reserved goes back to the ledger.
//
//   granted >= reserved + unsettled     always, with the gate
//
// Requests that wait for other processes use the quota without the gate. A thread that leaves the ledger
// stops them and waits for them. A pledge belongs to the membership in which it was made, and ends with it.
//
// Unsettled is memory that came from the machine and is not reserved yet. Where parking or unparking fails
// half way, it is counted too long, until the turn ends. While a thread has paused its turn, nothing is
// settled: it may have such memory.
#include "base/sys.h"
#include "device/lane/lane.h"
#include "quota/member.h"

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

// The quota, which stays until quota_let_go(); NULL: none. `out_number` is that of the membership.
static tide_quota* quota_hold(tide_device_cache* device, uint64_t* out_number) {
  tide__mutex_lock(&device->gate_lock);
  tide_quota* const quota = tide__load_relaxed(&device->quota);
  *out_number = tide__load_relaxed(&device->memberships);
  if (quota != NULL) device->quota_users++;
  tide__mutex_unlock(&device->gate_lock);
  return quota;
}

static void quota_let_go(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  if (--device->quota_users == 0) tide__signal_all(&device->gate_open);
  tide__mutex_unlock(&device->gate_lock);
}

static bool is_member_still(tide_device_cache* device, uint64_t number) {
  return tide__load_relaxed(&device->memberships) == number;
}

// While this waits for others, they may ask, too: what is freed for them goes to the ledger. From the grant
// on, no turn gives away what is granted. What is granted after the cache has left is gone with its quota.
static bool pledge_begin(tide_device_cache* device, tide_quota* quota, uint64_t number, uint64_t bytes) {
  if (tide_quota_take(quota, bytes) != TIDE_OK) return false;
  (void)tide__gate_enter(device);
  const bool is_member = is_member_still(device, number);
  if (is_member) {
    (void)tide__add_relaxed(&device->pledged_bytes, bytes);
    (void)tide__add_relaxed(&device->granted_bytes, bytes);
  }
  tide__gate_leave(device);
  return is_member;
}

static void pledge_end(tide_device_cache* device, uint64_t number, uint64_t bytes) {
  (void)tide__gate_enter(device);
  if (is_member_still(device, number)) (void)tide__add_relaxed(&device->pledged_bytes, (uint64_t)0 - bytes);
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
static tide_status attempt_patiently(tide_device_cache* device, uint64_t number, uint64_t bytes,
                                     tide__attempt_fn again, void* user) {
  const uint64_t end_ns = tide__sys_clock_ns() + tide__load_relaxed(&device->quota_wait_ns);
  tide_status status = again(user);
  while (status == TIDE_ERR_NO_MEMORY && machine_lacks(device, bytes) && is_member_still(device, number) &&
         tide__sys_clock_ns() < end_ns) {
    tide__sys_sleep_ns(MACHINE_PAUSE_NS);
    if (!machine_lacks(device, bytes)) status = again(user);
  }
  return status;
}

// A cache that has left meanwhile has no ledger that could refuse the memory.
tide_status tide__allowance_ask(tide_device_cache* device, uint64_t bytes, tide__attempt_fn again,
                                void* user) {
  uint64_t number = 0;
  tide_quota* const quota = bytes > 0 ? quota_hold(device, &number) : NULL;
  if (quota == NULL) return TIDE_ERR_NO_MEMORY;
  const tide_error before = *tide_last_error();
  const bool is_pledged = pledge_begin(device, quota, number, bytes);
  quota_let_go(device);
  tide_status status = TIDE_ERR_NO_MEMORY;
  if (is_pledged || !is_member_still(device, number))
    status = attempt_patiently(device, number, bytes, again, user);
  else tide__error_restore(&before);
  if (is_pledged) pledge_end(device, number, bytes);
  return status;
}

// ---------------------------------------------------------------------------------------------------
// Membership

void tide__membership_change_begin(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  while (device->is_membership_changing) tide__signal_wait(&device->gate_open, &device->gate_lock);
  device->is_membership_changing = true;
  tide__mutex_unlock(&device->gate_lock);
}

void tide__membership_change_end(tide_device_cache* device) {
  tide__mutex_lock(&device->gate_lock);
  device->is_membership_changing = false;
  tide__signal_all(&device->gate_open);
  tide__mutex_unlock(&device->gate_lock);
}

// Who has the gate or its lock may read the quota, so it changes with both.
void tide__membership_set(tide_device_cache* device, tide_quota* quota, uint64_t granted) {
  tide__mutex_lock(&device->gate_lock);
  tide__store_relaxed(&device->granted_bytes, granted);
  tide__store_relaxed(&device->pledged_bytes, 0);
  device->unsettled_bytes = 0;
  (void)tide__add_relaxed(&device->memberships, 1);
  tide__store_relaxed(&device->quota, quota);
  tide__mutex_unlock(&device->gate_lock);
}

tide_quota* tide__membership_end(tide_device_cache* device) {
  tide_quota* const quota = tide__load_relaxed(&device->quota);
  if (quota == NULL) return NULL;
  (void)tide__gate_enter(device);
  tide__membership_set(device, NULL, 0);
  tide__gate_leave(device);
  tide__quota_stop(quota);
  tide__mutex_lock(&device->gate_lock);
  while (device->quota_users > 0) tide__signal_wait(&device->gate_open, &device->gate_lock);
  tide__mutex_unlock(&device->gate_lock);
  return quota;
}
