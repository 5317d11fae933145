// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The time that making views takes, and the hurry that begins when it is too much. The caller has the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_HURRY_H
#define TIDEMARK_SRC_DEVICE_TIDE_HURRY_H

#include "device/tide/tide.h"

// May a view be made for a request?
static inline bool tide__may_stitch(const tide__request* request) {
  return request->kind == TIDE__LARGE && request->pool == &request->device->default_pool &&
         !request->is_capturing;
}

// Is the policy in a hurry for a request?
bool tide__is_hurried(const tide__request* request);
// Counts the time until now as passed. Returns the machine's time; 0: making views is not bounded.
uint64_t tide__stitch_begin(const tide__request* request);
// Counts the time since then as spent on views.
void tide__stitch_end(const tide__request* request, uint64_t begin_ns);

#endif
