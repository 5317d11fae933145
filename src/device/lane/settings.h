// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The options in force, and how they fall back where virtual memory does not work.
#ifndef TIDEMARK_SRC_DEVICE_LANE_SETTINGS_H
#define TIDEMARK_SRC_DEVICE_LANE_SETTINGS_H

#include "device/allocator.h"

tide_status tide__settings_publish(tide_device_cache* device, const tide_device_options* options,
                                   bool is_fallen, const char* reason);
void tide__settings_free(tide_device_cache* device);
// Replaces what needs virtual memory, and writes the reason as one sentence.
void tide__options_fall_back(tide_device_options* options, int index, const char* why,
                             char reason[TIDE__REASON_TEXT]);
// The same for the options in force.
tide_status tide__settings_fall_back(tide_device_cache* device, const char* why);

#endif
