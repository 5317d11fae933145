// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The rules and bookkeeping that the host and dry machines share. Their differences (real pages or none,
// threads or virtual time) are behind a small table, the backend in state.h. So every rule is written and
// tested once, and a program that runs on dry runs on host.
//
// The files in layers; a file calls only files above it in this list:
//
//   state          the state, the backend, errors of work that failed late
//   queue          the work of one stream
//   thread         state of the calling thread
//   range          ranges of addresses, physical memory
//   mapping        reservations, mappings, access
//   graph          captured work
//   capture        the rules of captures
//   memory         raw and pinned memory, pointers, peers
//   stream         streams and waiting
//   event          events
//   work           copies, fills, calls: queueing and executing them
//   capture_calls  begin, end, launch
//   soft           creating and freeing
#ifndef TIDEMARK_SRC_MACHINE_SOFT_SOFT_H
#define TIDEMARK_SRC_MACHINE_SOFT_SOFT_H

#include "machine/machine.h"
#include "machine/soft/event.h"
#include "machine/soft/mapping.h"
#include "machine/soft/memory.h"
#include "machine/soft/stream.h"
#include "machine/soft/thread.h"
#include "machine/soft/work.h"

// Checks the options that the host and dry machines share. `call` names the caller in error texts.
tide_status tide__soft_check_options(const char* call, uint32_t device_count, uint64_t capacity,
                                     uint64_t granularity, uint64_t least_granularity, const tide_heap* heap);
tide_status tide__soft_init(tide__soft* soft, const tide__soft_backend* backend, const tide_heap* heap,
                            int device_count, uint64_t capacity, uint64_t granularity, uint64_t page_bytes);
void tide__soft_fini(tide__soft* soft);

#endif
