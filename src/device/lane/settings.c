// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The options in force, and why they are not those that were asked for. Readers hold no lock and may still
// look at older settings, so all are kept until the allocator is freed.
#include "device/lane/settings.h"

#include <stdio.h>

#include "device/lane/lane.h"

tide_status tide__settings_publish(tide_device_cache* device, const tide_device_options* options,
                                   bool is_fallen, const char* reason) {
  tide__settings* const settings = tide__heap_alloc(device->heap, 1, sizeof *settings);
  TIDE_REQUIRE(settings != NULL, TIDE_ERR_NO_MEMORY, "no memory for the options of an allocator");
  settings->options = *options;
  settings->is_fallen = is_fallen;
  (void)snprintf(settings->reason, sizeof settings->reason, "%s", reason);
  tide__mutex_lock(&device->pools_lock);
  settings->older = tide__load_relaxed(&device->settings);
  tide__detour(device, TIDE__IS_AUDITED, options->has_audits);
  tide__store_release(&device->settings, settings);  // pairs with tide__device_options
  tide__mutex_unlock(&device->pools_lock);
  return TIDE_OK;
}

void tide__settings_free(tide_device_cache* device) {
  tide__settings* settings = tide__load_relaxed(&device->settings);
  while (settings != NULL) {
    tide__settings* const older = settings->older;
    tide__heap_release(device->heap, settings, 1, sizeof *settings);
    settings = older;
  }
}

void tide__options_fall_back(tide_device_options* options, int index, const char* why,
                             char reason[TIDE__REASON_TEXT]) {
  const bool is_tide = options->policy == TIDE_POLICY_TIDE;
  (void)snprintf(reason, TIDE__REASON_TEXT, "%s: virtual memory does not work on device %d: %.300s",
                 is_tide ? "the policy torch with fixes replaces tide" : "expandable segments are off", index,
                 why);
  options->expandable_segments = false;
  if (!is_tide) return;
  options->policy = TIDE_POLICY_TORCH;
  options->fixes = true;
}

tide_status tide__settings_fall_back(tide_device_cache* device, const char* why) {
  const tide__settings* const now =
      tide__load_acquire(&device->settings);  // pairs with tide__settings_publish
  tide_device_options options = now->options;
  char reason[TIDE__REASON_TEXT];
  const bool is_tide = options.policy == TIDE_POLICY_TIDE;
  if (!is_tide && !options.expandable_segments) return TIDE_OK;  // another thread was faster
  tide__options_fall_back(&options, device->index, why, reason);
  return tide__settings_publish(device, &options, now->is_fallen || is_tide, reason);
}
