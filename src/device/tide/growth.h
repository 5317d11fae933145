// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How much new memory a request may make: by what is handed out and reserved now, by the peak and how fast it
// grows, by limits and budgets. And whether its stream may wait for others instead. The caller has the gate.
#ifndef TIDEMARK_SRC_DEVICE_TIDE_GROWTH_H
#define TIDEMARK_SRC_DEVICE_TIDE_GROWTH_H

#include "device/tide/tide.h"

// How a request treats the work of other streams.
typedef enum tide__patience { TIDE__WAITS, TIDE__AVOIDS_WAITS } tide__patience;

// What a request may make, without the sizes of handles, except in a hurry.
tide__growth tide__growth_of(const tide__request* request, tide__patience how);
// Chooses these sizes, if that was not done. Most requests are served without new memory, and need none.
void tide__growth_choose(const tide__request* request, tide__growth* growth);
// How much more may be reserved for a request: under the limit of the device, and by the budgets of tags.
uint64_t tide__growth_limit(const tide__request* request);
// Polls marks. May the request's stream wait for those of others, where that helps?
// *out_avoids: it could, but new memory is better.
bool tide__growth_can_wait(const tide__request* request, tide__patience how, bool* out_avoids);
// The request was served: only now the peak rises, so that one that fails changes no later decision.
void tide__growth_served(const tide__request* request);

#endif
