// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: a machine of your own. A machine is a table of functions and a state. Fill in the table, pass
// both to tide_machine_new(), and every allocator of Tidemark runs on it. A complete small one is
// examples/machine/; docs/machine.md says how ROCm and Level Zero would map to this table.
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
// tide_machine_...() of machine.h is the door to every machine. It does the following before a function of
// the table is called, so a function can rely on it:
// - `device` (and `peer`, another device) is below the device count given to tide_machine_new();
// - no out parameter is NULL, and all are cleared: 0, NULL, false, or the struct's INIT macro;
// - sizes and addresses are not 0 or NULL, unless machine.h allows it; enums and flags are in range;
// - handles are not NULL. A tide_stream may be NULL, TIDE_STREAM_LEGACY or TIDE_STREAM_PER_THREAD, except in
//   stream_free;
// - faults that are in force were applied. The door also counts the call afterwards;
// - in a child of fork() no function is called, `free` included.
// A function checks the rest itself: that handles and addresses are its own, alignment, overflow.
//
// What a function must keep to:
// - Its contract is that of the call with the same name in machine.h.
// - Any thread may call it, also several at once on the same object.
// - When it fails it has changed nothing, leaves its out parameters cleared, and explains itself with
//   TIDE_ERROR_SET() (base.h). Otherwise the door writes a general text.
// - It does not call Tidemark, apart from TIDE_ERROR_SET() and tide_last_error().
// - It writes no field of an out struct that lies beyond the struct's `size`.
// - It waits for queued work only if its name ends in `_synchronize`, or the comment allows it.
//
// Handles are values of the machine's own choice: pointers, numbers, or handles of the layer below.
//
// A function that is NULL is absent: its call returns TIDE_ERR_UNSUPPORTED, unless the comment states another
// meaning. What the parts of Tidemark need:
// - every machine: name, free, device_info;
// - the device allocator: memory_info, raw_alloc, raw_release, device_synchronize. Blocks that are used on
//   several streams need the events, expandable segments the virtual memory, captured graphs the captures;
// - the pinned cache: pinned_alloc, pinned_release, device_synchronize, the events.
//
// The conformance suite (tidemark/conformance.h) checks a machine against the contract. It skips, by name,
// the checks that need absent functions.
#ifndef TIDEMARK_MACHINE_OPS_H
#define TIDEMARK_MACHINE_OPS_H

#include "tidemark/base.h"
#include "tidemark/machine.h"

TIDE_BEGIN_DECLS

// Rises when a function that exists changes its meaning. New functions only make the table longer.
#define TIDE_MACHINE_OPS_VERSION 1u

// Flags of a table: what holds for all memory of the machine.
#define TIDE_MACHINE_HOST_READABLE 1u  // the processor can read and write the memory of every device
#define TIDE_MACHINE_NO_MEMORY 2u  // addresses name no memory, as on dry: not even pinned memory can be read

typedef struct tide_machine_ops {
  uint32_t size;     // sizeof(tide_machine_ops); functions beyond it are absent
  uint32_t version;  // TIDE_MACHINE_OPS_VERSION
  uint32_t flags;    // TIDE_MACHINE_HOST_READABLE, TIDE_MACHINE_NO_MEMORY
  const char* name;  // for tide_machine_name() and error texts; borrowed until the machine is freed

  // Frees the state. No other call is under way or follows. Waits for queued work if that work uses the
  // state.
  void (*free)(void* self);
  // Holds the caller up in the machine's own time, for faults with latency. Absent: sleeps.
  void (*delay)(void* self, uint64_t ns);
  // Is the calling thread inside a tide_call_fn of this machine? If so the door refuses its call. Absent: no.
  bool (*is_in_callback)(const void* self);
  // Called after each call that succeeded, for a machine that keeps a clock of its own. Absent: nothing.
  void (*charge)(void* self, tide_call call);

  // Sets at least total_bytes and name. granularity stays 0 without virtual memory. The door has set
  // is_host_readable from the flags.
  tide_status (*device_info)(void* self, int device, tide_device_info* out);
  tide_status (*memory_info)(void* self, int device, size_t* out_free, size_t* out_total);
  // Absent: the monotonic clock of the system.
  tide_status (*clock)(void* self, uint64_t* out_ns);

  // Raw and pinned memory. The release and unregister functions may wait for work that uses the memory.
  tide_status (*raw_alloc)(void* self, int device, size_t bytes, void** out);
  tide_status (*raw_release)(void* self, int device, void* address);
  tide_status (*pinned_alloc)(void* self, size_t bytes, void** out);
  tide_status (*pinned_release)(void* self, void* address);
  tide_status (*pinned_register)(void* self, void* address, size_t bytes);
  tide_status (*pinned_unregister)(void* self, void* address);

  // Virtual memory: all seven or none. Without them device_info reports a granularity of 0. `alignment` is 0
  // or a power of two. unmap and physical_free may wait for work that uses the memory.
  tide_status (*address_reserve)(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                 void** out);
  tide_status (*address_release)(void* self, void* address, size_t bytes);
  tide_status (*physical_new)(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out);
  tide_status (*physical_free)(void* self, tide_physical physical);
  tide_status (*map)(void* self, void* address, tide_physical physical);
  tide_status (*unmap)(void* self, void* address, size_t bytes);
  tide_status (*set_access)(void* self, void* address, size_t bytes, int device, tide_access access);

  tide_status (*pointer_info)(void* self, const void* pointer, tide_pointer_info* out);

  // Streams. A machine without streams may leave out stream_new and stream_free; the default streams then
  // stand for its one queue of work.
  tide_status (*stream_new)(void* self, int device, uint32_t flags, int priority, tide_stream* out);
  tide_status (*stream_free)(void* self, int device, tide_stream stream);
  // Absent: not captured, and number 0, which means that it cannot be told.
  tide_status (*stream_info)(void* self, int device, tide_stream stream, bool* out_captured,
                             uint64_t* out_number);
  tide_status (*stream_query)(void* self, int device, tide_stream stream, bool* out_idle);
  tide_status (*stream_synchronize)(void* self, int device, tide_stream stream);
  tide_status (*stream_wait)(void* self, int device, tide_stream stream, tide_event event);
  tide_status (*device_synchronize)(void* self, int device);

  // Events: all five or none.
  tide_status (*event_new)(void* self, int device, tide_event* out);
  tide_status (*event_free)(void* self, tide_event event);
  tide_status (*event_record)(void* self, int device, tide_event event, tide_stream stream);
  tide_status (*event_query)(void* self, tide_event event, bool* out_done);
  tide_status (*event_synchronize)(void* self, tide_event event);

  // Work. These queue it; it runs in the order of its stream.
  tide_status (*copy)(void* self, int device, tide_stream stream, void* destination, const void* source,
                      size_t bytes);
  tide_status (*fill)(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                      size_t bytes);
  tide_status (*call)(void* self, int device, tide_stream stream, tide_call_fn function, void* user);

  // Captures: all of them or none.
  // Absent: hands out TIDE_CAPTURE_GLOBAL, and has no effect.
  tide_status (*capture_exchange)(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
  tide_status (*capture_begin)(void* self, int device, tide_stream stream, tide_capture_mode mode);
  tide_status (*capture_end)(void* self, int device, tide_stream stream, tide_launch* out);
  // Absent: no stream is ever in a capture.
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
} tide_machine_ops;

// Makes a machine from a table and a state. The table is copied; the machine owns the state from then on and
// frees it with ops->free. If the call fails the state stays the caller's. `heap` holds the record of the
// machine, NULL for malloc; the caller keeps it until the machine is freed. A table of an older version of
// the header, which is shorter, is accepted.
// Errors: TIDE_ERR_ARGUMENT for a table without name, free or device_info, for unknown flags, and for a
//         device count outside 1 to TIDE_DEVICE_MAX; TIDE_ERR_UNSUPPORTED for a version that this library
//         does not know; TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_machine_new(const tide_machine_ops* ops, void* self,
                                                     int device_count, const tide_heap* heap,
                                                     tide_machine** out);

TIDE_END_DECLS
#endif
