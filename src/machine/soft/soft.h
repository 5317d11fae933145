// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The part that the host and the dry machine share: all rules and all bookkeeping. What differs (real pages
// or none, real threads or virtual time) is behind a small table, the backend of state.h. So every rule is
// written and tested once, and a program that runs on dry runs on host.
//
// From the bottom up; a file calls only files above it in this list:
//
//   state          the state, the backend, errors of work that failed late
//   queue          the work of one stream
//   thread         what belongs to a calling thread
//   range          ranges of addresses, physical memory
//   mapping        reservations, mappings, access
//   graph          captured work
//   capture        the rules of captures
//   memory         raw and pinned memory, pointers, peers
//   stream         streams and waiting
//   event          events
//   work           copies, fills, calls: queueing and doing them
//   capture_calls  begin, end, launch
//   soft           making and freeing
#ifndef TIDEMARK_SRC_MACHINE_SOFT_SOFT_H
#define TIDEMARK_SRC_MACHINE_SOFT_SOFT_H

#include "machine/machine.h"
#include "machine/soft/capture_calls.h"
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

// What both machines have in their table; each adds the rest.
#define TIDE__SOFT_OPS                                                                                       \
  .is_in_callback = tide__soft_is_in_callback, .memory_info = tide__soft_memory_info,                        \
  .raw_alloc = tide__soft_raw_alloc, .raw_release = tide__soft_raw_release,                                  \
  .pinned_alloc = tide__soft_pinned_alloc, .pinned_release = tide__soft_pinned_release,                      \
  .pinned_register = tide__soft_pinned_register, .pinned_unregister = tide__soft_pinned_unregister,          \
  .address_reserve = tide__soft_address_reserve, .address_release = tide__soft_address_release,              \
  .physical_new = tide__soft_physical_new, .physical_free = tide__soft_physical_free, .map = tide__soft_map, \
  .unmap = tide__soft_unmap, .set_access = tide__soft_set_access, .pointer_info = tide__soft_pointer_info,   \
  .stream_new = tide__soft_stream_new, .stream_free = tide__soft_stream_free,                                \
  .stream_info = tide__soft_stream_info, .stream_query = tide__soft_stream_query,                            \
  .stream_synchronize = tide__soft_stream_synchronize, .stream_wait = tide__soft_stream_wait,                \
  .device_synchronize = tide__soft_device_synchronize, .event_new = tide__soft_event_new,                    \
  .event_free = tide__soft_event_free, .event_record = tide__soft_event_record,                              \
  .event_query = tide__soft_event_query, .event_synchronize = tide__soft_event_synchronize,                  \
  .copy = tide__soft_copy, .fill = tide__soft_fill, .call = tide__soft_call,                                 \
  .capture_exchange = tide__soft_capture_exchange, .capture_begin = tide__soft_capture_begin,                \
  .capture_end = tide__soft_capture_end, .capture_info = tide__soft_capture_info,                            \
  .capture_terminals = tide__soft_capture_terminals, .node_dependencies = tide__soft_node_dependencies,      \
  .launch = tide__soft_launch, .launch_free = tide__soft_launch_free, .peer_query = tide__soft_peer_query,   \
  .peer_enable = tide__soft_peer_enable, .peer_disable = tide__soft_peer_disable,                            \
  .raw_unimport = tide__soft_raw_unimport

#endif
