// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Events. Uses stream.h and the rules of capture.h.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_EVENT_H
#define TIDEMARK_SRC_MACHINE_SOFT_EVENT_H

#include "machine/soft/graph.h"
#include "machine/soft/state.h"

typedef struct tide__event {
  tide__slot slot;
  _Atomic int device;
  tide__mutex lock;
  tide__point point;     // shared under lock
  uint64_t capture_id;   // of the capture it was recorded in, or 0; shared under lock
  tide__node_set nodes;  // of that capture; shared under the capture lock
} tide__event;

void tide__event_item_init(void* item);
void tide__event_item_fini(void* item);
// Finds the event of a handle.
tide_status tide__event_find(tide__soft* soft, const char* name, tide_event handle, tide__event** out);

#endif
