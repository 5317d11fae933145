// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The history of the device allocator: core/history.h, with entries about memory of lanes.
#include "device/lane/lane.h"

// The end of a stitched block makes an entry for each of its pieces.
tide__call_context tide__context_now(tide_device_cache* device, uint32_t level) {
  const size_t entries = TIDE__STEP_ENTRIES + tide__load_relaxed(&device->most_pieces);
  return tide__history_context(&device->history, level, entries);
}

static tide_trace_entry entry_of(const tide_device_cache* device, tide_action action, uint32_t stack,
                                 const tide__lane* lane, uint64_t address, uint64_t bytes) {
  return (tide_trace_entry){
    .address = address,
    .bytes = bytes,
    .stream = lane != NULL ? tide__address(lane->stream) : 0,
    .stack = stack,
    .pool = lane != NULL ? lane->pool->base.number : 0,
    .action = (uint8_t)action,
    .device = (uint8_t)device->index,
  };
}

void tide__entry_add(tide_device_cache* device, tide_action action, const tide__call_context* context,
                     uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes) {
  tide__history_add(&device->history, context, entry_of(device, action, stack, lane, address, bytes));
}

// ---------------------------------------------------------------------------------------------------
// Ends

void tide__end_announce(tide_device_cache* device, tide_action action, const tide__call_context* context,
                        uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes) {
  if (!tide__history_is_observed(&device->history)) return;
  const tide_error before = *tide_last_error();
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
  tide__history_report(&device->history, context, entry_of(device, action, stack, lane, address, bytes));
  tide__gate_pause(device);
  tide__history_tell(&device->history);
  tide__history_make_room(&device->history, TIDE__STEP_ENTRIES);
  tide__gate_resume(device);
  tide__error_restore(&before);
}

void tide__end_keep(tide_device_cache* device, tide_action action, const tide__call_context* context,
                    uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes) {
  tide__history_keep(&device->history, context, entry_of(device, action, stack, lane, address, bytes));
}

void tide__end_revoke(tide_device_cache* device, tide_action action, const tide__call_context* context,
                      uint32_t stack, const tide__lane* lane, uint64_t address, uint64_t bytes) {
  tide__history_report(&device->history, context, entry_of(device, action, stack, lane, address, bytes));
}

// ---------------------------------------------------------------------------------------------------
// Calls

tide_status tide_device_annotate(tide_device_cache* device, const char* text) {
  TIDE_REQUIRE(device != NULL && text != NULL, TIDE_ERR_ARGUMENT, "device_annotate: no device or text");
  return tide__history_annotate(&device->history, TIDE_HISTORY_NEVER, text);
}

tide_status tide_device_history(tide_device_cache* device, const tide_history_options* options) {
  TIDE_REQUIRE(device != NULL && options != NULL, TIDE_ERR_ARGUMENT, "device_history: no device or options");
  TIDE_TRY(tide__history_configure(&device->history, "device_history", options));
  if (options->clears || !options->is_on) tide__labels_forget(device);
  return TIDE_OK;
}

bool tide_device_has_history(const tide_device_cache* device) {
  return device != NULL && tide__history_is_kept(&device->history);
}

tide_intern* tide_device_names(tide_device_cache* device) {
  return device != NULL ? device->history.names : NULL;
}

tide_status tide_device_history_visit(tide_device_cache* device, tide_history_fn function, void* user) {
  TIDE_REQUIRE(device != NULL && function != NULL, TIDE_ERR_ARGUMENT,
               "device_history_visit: no device or function");
  return tide__ring_visit(&device->history.ring, function, user);
}
