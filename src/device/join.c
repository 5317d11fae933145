// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cache as a member of a ledger of processes: joining, leaving, and giving memory to others that ask.
#include "base/sized.h"
#include "device/policy/policy.h"
#include "device/tide/giving.h"

// ---------------------------------------------------------------------------------------------------
// Others ask

// Idle memory that no work holds goes first, because waiting for work holds the gate.
static tide_status ask_serve(tide_device_cache* device, const tide_quota_ask* ask,
                             const tide__call_context* context) {
  tide__giving giving = { .device = device, .refused_bytes = ask->bytes, .context = context };
  const uint64_t before = tide__load_relaxed(&device->reserved_bytes);
  uint64_t turn = 0;
  TIDE_TRY(tide__reclaim_some(device, ask->bytes, context));
  for (tide__giver giver = TIDE__GIVES_EXCESS; giver <= TIDE__GIVES_ALL; giver++) {
    const uint64_t given = tide__given_since(device, before);
    if (given >= ask->bytes) return TIDE_OK;
    giving.refused_bytes = ask->bytes - given;
    TIDE_TRY(tide__give_idle(&giving, giver));
  }
  if (ask->step != TIDE_QUOTA_PARK) return TIDE_OK;
  while (tide__given_since(device, before) < ask->bytes && tide__give_next(&giving, &turn)) continue;
  return TIDE_OK;
}

// A tide_quota_ask_fn. The ledger hears what was given when the turn ends. A machine that fails gives
// nothing.
static void ask_answer(void* user, const tide_quota_ask* ask) {
  tide_device_cache* const device = user;
  tide__call_context context = { 0 };
  if (tide__is_recording(device)) context = tide__context_now(device, TIDE_HISTORY_ALL);
  (void)tide__gate_enter(device);
  if (!device->is_leaving && !tide__has_captures(device)) tide__ignore(ask_serve(device, ask, &context));
  tide__gate_leave(device);
  tide__history_tell(&device->history);
}

// ---------------------------------------------------------------------------------------------------
// Joining and leaving

// The ledger must have room for what is reserved. It may ask others, so the gate is not held; meanwhile more
// may be reserved.
static tide_status quota_start(tide_device_cache* device, tide_quota* quota) {
  uint64_t granted = 0;
  for (;;) {
    const uint64_t reserved = tide__load_relaxed(&device->reserved_bytes);
    if (reserved > granted) TIDE_TRY(tide_quota_take(quota, reserved - granted));
    granted = tide__max(granted, reserved);
    (void)tide__gate_enter(device);
    const bool is_enough = tide__load_relaxed(&device->reserved_bytes) <= granted;
    if (is_enough) tide__membership_set(device, quota, granted);
    tide__gate_leave(device);
    if (is_enough) return TIDE_OK;
  }
}

static tide_status quota_join(tide_device_cache* device, const tide_quota_options* options) {
  tide_quota* quota = NULL;
  TIDE_REQUIRE(tide__load_relaxed(&device->quota) == NULL, TIDE_ERR_STATE,
               "device_join: the cache is a member of a ledger already");
  TIDE_TRY(tide_quota_join(options, &quota));
  tide__store_relaxed(&device->quota_wait_ns, options->wait_ns);
  const tide_status status = quota_start(device, quota);
  if (status != TIDE_OK) {
    const tide_error before = *tide_last_error();
    tide_quota_leave(quota);
    tide__error_restore(&before);
  }
  return status;
}

tide_status tide_device_join(tide_device_cache* device, const tide_quota_options* options) {
  tide_quota_options whole = TIDE_QUOTA_OPTIONS_INIT;
  TIDE_REQUIRE(device != NULL && options != NULL, TIDE_ERR_ARGUMENT, "device_join: no device or options");
  TIDE__REQUIRE_OWN(device, "device_join");
  TIDE_TRY(tide__sized_read("device_join", options, &whole, sizeof whole));
  TIDE_REQUIRE(!tide__observers_are_around(), TIDE_ERR_STATE, "device_join: called inside an observer");
  TIDE_REQUIRE(whole.on_ask == NULL && whole.user == NULL, TIDE_ERR_ARGUMENT,
               "device_join: the cache answers other processes itself; on_ask and user must be NULL");
  whole.on_ask = ask_answer;
  whole.user = device;
  whole.has_helper = true;
  tide__membership_change_begin(device);
  const tide_status status = quota_join(device, &whole);
  tide__membership_change_end(device);
  return status == TIDE_ERR_LIMIT ? TIDE_ERR_NO_MEMORY : status;
}

void tide_device_leave(tide_device_cache* device) {
  if (device == NULL || tide__is_inherited(device) || tide__observers_are_around()) return;
  tide__membership_change_begin(device);
  tide_quota_leave(tide__membership_end(device));
  tide__membership_change_end(device);
}
