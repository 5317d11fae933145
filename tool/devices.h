// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The devices of a recording: which one a verb describes, and what the others have.
#ifndef TIDEMARK_TOOL_DEVICES_H
#define TIDEMARK_TOOL_DEVICES_H

#include "tidemark/ledger.h"
#include "tool.h"

// The device that a verb describes unless --device names another: the one that ran out of memory first, or
// else the first with entries, or else the first with segments.
size_t tool_device_default(const tide_trace* trace);
// The entry of the first refusal on a device. Returns false if there is none.
bool tool_device_first_refusal(const tide_trace* trace, size_t device, uint64_t* out_entry);

// One row for each device with data: the described one first, whose peaks of live and reserved memory are
// known already. In text only if there are several; then a sentence says which is described and why. On
// failure it prints why and returns TOOL_USAGE.
int tool_devices_emit(tool_emit* emit, const tool_call* call, const tide_trace* trace, size_t described,
                      const tide_ledger_peaks* peaks);

#endif
