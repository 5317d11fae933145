// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: your own machine. A machine is a table of functions and a state. Fill in the table and pass both
// to tide_machine_new(); then every allocator of Tidemark runs on it. examples/machine/ is a small complete
// machine. docs/machine.md maps this table to ROCm and Level Zero.
//
//   static const tide_machine_ops ops = {
//     .size = sizeof(tide_machine_ops),
//     .version = TIDE_MACHINE_OPS_VERSION,
//     .name = "mine",
//     .free = mine_free,
//     .device_info = mine_device_info,
//     .raw_alloc = mine_raw_alloc,
//     .raw_release = mine_raw_release,
//   };
//   tide_status status = tide_machine_new(&ops, state, 1, NULL, &machine);
//   if (status != TIDE_OK) fprintf(stderr, "%s\n", tide_last_error()->text);
//
// Every tide_machine_...() call of machine.h checks its arguments before it calls the function of the table.
// A function can rely on the following:
// - `device` (and `peer`, another device) is below the device count given to tide_machine_new().
// - No out parameter is NULL, and all are cleared: 0, NULL, false, or the struct's INIT macro.
// - Sizes are not 0 and addresses not NULL, unless machine.h allows it. Enums and flags are in range.
// - Handles are not NULL. A tide_stream may be NULL, TIDE_STREAM_LEGACY or TIDE_STREAM_PER_THREAD, except in
//   stream_free.
// - Faults were applied. The call is counted afterwards.
// - In a child of fork() no function is called, not even `free`.
// A function checks the rest itself: whether handles and addresses are its own, alignment, and overflow.
//
// A function must obey these rules:
// - Its contract is that of the call with the same name in machine.h.
// - Any thread may call it, and several threads may use the same object at once.
// - If it fails, it has changed nothing and leaves its out parameters cleared. It explains the failure with
//   TIDE_ERROR_SET() (base.h); otherwise a general text is set.
// - It calls nothing of Tidemark but TIDE_ERROR_SET() and tide_last_error().
// - It writes no field of an out struct beyond the struct's `size`.
// - It waits for queued work only if its name ends in `_synchronize`, or if the comment allows it.
//
// Handles are values that the machine chooses: pointers, numbers, or handles of the layer below.
//
// A function that is NULL is absent: its call returns TIDE_ERR_UNSUPPORTED, unless the comment says
// otherwise. The parts of Tidemark need these functions:
// - every machine: name, free, device_info;
// - the device allocator: memory_info, raw_alloc, raw_release, device_synchronize. Blocks that are used on
//   several streams need the events, expandable segments the virtual memory, captured graphs the captures;
// - the pinned cache: pinned_alloc, pinned_release, device_synchronize, the events. If there are also
//   pinned_register and pinned_unregister, it uses them for large memory.
//
// The conformance suite (tidemark/conformance.h) checks a machine against the contract. It skips checks that
// need absent functions, and names the function.
#ifndef TIDEMARK_MACHINE_OPS_H
#define TIDEMARK_MACHINE_OPS_H

#include "tidemark/base.h"
#include "tidemark/machine.h"

TIDE_BEGIN_DECLS

// Increased when an existing function changes its meaning. New functions only make the table longer.
#define TIDE_MACHINE_OPS_VERSION 1u

// Flags of a table. They apply to all memory of the machine.
#define TIDE_MACHINE_HOST_READABLE 1u  // the CPU can read and write the memory of every device
#define TIDE_MACHINE_NO_MEMORY 2u      // addresses have no memory, as on dry; pinned memory included
#define TIDE_MACHINE_TRUSTED 4u        // what device_info reports works: probes are made only for faults

typedef struct tide_machine_ops {
  uint32_t size;     // sizeof(tide_machine_ops); functions beyond it are absent
  uint32_t version;  // TIDE_MACHINE_OPS_VERSION
  uint32_t flags;    // TIDE_MACHINE_HOST_READABLE, TIDE_MACHINE_NO_MEMORY, TIDE_MACHINE_TRUSTED
  const char* name;  // for tide_machine_name() and error texts; borrowed until the machine is freed

  // Frees the state. No other call runs at the same time or later. Waits for queued work that uses the state.
  void (*free)(void* self);
  // Delays the caller, in the machine's own time, for faults with latency. Absent: sleeps.
  void (*delay)(void* self, uint64_t ns);
  // Returns whether the calling thread is inside a tide_call_fn of this machine. If so, its call is refused.
  // Absent: false.
  bool (*is_in_callback)(const void* self);
  // Called after each successful call, for a machine with its own clock. Absent: no effect.
  void (*charge)(void* self, tide_call call);

  // Sets at least total_bytes and name. granularity stays 0 without virtual memory. is_host_readable is
  // already set from the flags.
  tide_status (*device_info)(void* self, int device, tide_device_info* out);
  tide_status (*memory_info)(void* self, int device, size_t* out_free, size_t* out_total);
  // Absent: the monotonic clock of the system.
  tide_status (*clock)(void* self, uint64_t* out_ns);

  // Raw and pinned memory. The release and unregister functions may wait for work that uses the memory. If
  // raw_release always waits for the whole device, device_info sets waits_on_release, and allocators do not
  // wait once more.
  tide_status (*raw_alloc)(void* self, int device, size_t bytes, void** out);
  tide_status (*raw_release)(void* self, int device, void* address);
  tide_status (*pinned_alloc)(void* self, size_t bytes, void** out);
  tide_status (*pinned_release)(void* self, void* address);
  tide_status (*pinned_register)(void* self, void* address, size_t bytes);
  tide_status (*pinned_unregister)(void* self, void* address);

  // Virtual memory: all seven or none. Without them device_info reports a granularity of 0. `alignment` is 0
  // or a power of two. unmap and physical_free may wait for work that uses the memory. Allocators call
  // physical_new with TIDE_PHYSICAL_RDMA or TIDE_PHYSICAL_FABRIC only where device_info offers the flag and a
  // probe succeeded with it.
  tide_status (*address_reserve)(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                 void** out);
  tide_status (*address_release)(void* self, void* address, size_t bytes);
  tide_status (*physical_new)(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out);
  tide_status (*physical_free)(void* self, tide_physical physical);
  tide_status (*map)(void* self, void* address, tide_physical physical);
  tide_status (*unmap)(void* self, void* address, size_t bytes);
  tide_status (*set_access)(void* self, void* address, size_t bytes, int device, tide_access access);

  tide_status (*pointer_info)(void* self, const void* pointer, tide_pointer_info* out);

  // Streams. A machine without streams may omit stream_new and stream_free. The default streams then name its
  // only queue.
  tide_status (*stream_new)(void* self, int device, uint32_t flags, int priority, tide_stream* out);
  tide_status (*stream_free)(void* self, int device, tide_stream stream);
  // Absent: not captured, and number 0, which means unknown.
  tide_status (*stream_info)(void* self, int device, tide_stream stream, bool* out_captured,
                             uint64_t* out_number);
  tide_status (*stream_query)(void* self, int device, tide_stream stream, bool* out_idle);
  tide_status (*stream_synchronize)(void* self, int device, tide_stream stream);
  tide_status (*stream_wait)(void* self, int device, tide_stream stream, tide_event event);
  tide_status (*device_synchronize)(void* self, int device);

  // Events: all five or none; see also event_record_all.
  tide_status (*event_new)(void* self, int device, tide_event* out);
  tide_status (*event_free)(void* self, tide_event event);
  tide_status (*event_record)(void* self, int device, tide_event event, tide_stream stream);
  tide_status (*event_query)(void* self, tide_event event, bool* out_done);
  tide_status (*event_synchronize)(void* self, tide_event event);

  // Work. These functions queue it, and it runs in the order of its stream.
  tide_status (*copy)(void* self, int device, tide_stream stream, void* destination, const void* source,
                      size_t bytes);
  tide_status (*fill)(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                      size_t bytes);
  tide_status (*call)(void* self, int device, tide_stream stream, tide_call_fn function, void* user);

  // Captures: all of them or none.
  // Absent: returns TIDE_CAPTURE_GLOBAL and has no effect.
  tide_status (*capture_exchange)(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
  tide_status (*capture_begin)(void* self, int device, tide_stream stream, tide_capture_mode mode);
  tide_status (*capture_end)(void* self, int device, tide_stream stream, tide_launch* out);
  // Absent: no stream is ever captured.
  tide_status (*capture_info)(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                              uint64_t* out_id);
  tide_status (*capture_terminals)(void* self, int device, tide_stream stream, tide_node* nodes,
                                   size_t capacity, size_t* out_count);
  tide_status (*node_dependencies)(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                   size_t* out_count);
  tide_status (*launch)(void* self, int device, tide_launch graph, tide_stream stream);
  tide_status (*launch_free)(void* self, tide_launch graph);

  // Peers. peer_query absent: no device can be given access to another.
  tide_status (*peer_query)(void* self, int device, int peer, bool* out);
  tide_status (*peer_enable)(void* self, int device, int peer);
  tide_status (*peer_disable)(void* self, int device, int peer);

  // Sharing with other processes. device_info sets has_raw_sharing and has_physical_sharing to match.
  tide_status (*raw_export)(void* self, int device, void* address, tide_raw_share* out);
  tide_status (*raw_import)(void* self, int device, const tide_raw_share* share, void** out);
  tide_status (*raw_unimport)(void* self, void* address);
  tide_status (*physical_export)(void* self, tide_physical physical, tide_physical_share* out);
  tide_status (*physical_import)(void* self, int device, const tide_physical_share* share,
                                 tide_physical* out);

  // With events only. Absent: the allocator waits for the device where it cannot use this.
  tide_status (*event_record_all)(void* self, int device, tide_event event);
} tide_machine_ops;

// Creates a machine from a table and a state. The table is copied. The machine owns the state and frees it
// with ops->free; if the call fails, the caller still owns it. `heap` holds the record of the machine and is
// borrowed until the machine is freed; NULL means malloc. The shorter table of an older header is accepted.
// Errors: TIDE_ERR_ARGUMENT if the table lacks name, free or device_info, has unknown flags, or if the device
//         count is not 1 to TIDE_DEVICE_MAX; TIDE_ERR_UNSUPPORTED for an unknown version; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_machine_new(const tide_machine_ops* ops, void* self,
                                                     int device_count, const tide_heap* heap,
                                                     tide_machine** out);

TIDE_END_DECLS
#endif
