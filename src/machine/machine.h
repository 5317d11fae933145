// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a machine is on the inside: a table of functions and a state. machine.c stands in front of the table
// and checks, counts and fails calls, so that a function here can rely on the following:
// - `device` is below the device count, no out parameter is NULL, and all are cleared;
// - sizes are not 0, enums and flags are in range, a `share` is not NULL;
// - the calling thread holds no lock.
// Everything else (handles, addresses, alignment, overflow) the function checks itself. It changes nothing
// when it fails, leaves its reason with TIDE_FAIL, and never calls back into an allocator.
#ifndef TIDEMARK_SRC_MACHINE_MACHINE_H
#define TIDEMARK_SRC_MACHINE_MACHINE_H

#include "base/atomic.h"
#include "base/fork.h"
#include "base/lock.h"
#include "tidemark/machine.h"

// A call whose function is NULL is TIDE_ERR_UNSUPPORTED.
typedef struct tide__machine_ops {
  const char* name;
  void (*free)(void* self);
  void (*delay)(void* self, uint64_t ns);       // holds the caller up, in the machine's own time
  bool (*is_in_callback)(void);                 // (optional: never) is this thread inside a tide_call_fn?
  uint64_t (*staged_copies)(const void* self);  // (optional: 0)
  void (*charge)(void* self, tide_call call);   // (optional: free) a call succeeded

  tide_status (*device_info)(void* self, int device, tide_device_info* out);
  tide_status (*memory_info)(void* self, int device, size_t* out_free, size_t* out_total);
  tide_status (*clock)(void* self, uint64_t* out_ns);

  tide_status (*raw_alloc)(void* self, int device, size_t bytes, void** out);
  tide_status (*raw_release)(void* self, int device, void* address);
  tide_status (*pinned_alloc)(void* self, size_t bytes, void** out);
  tide_status (*pinned_release)(void* self, void* address);
  tide_status (*pinned_register)(void* self, void* address, size_t bytes);
  tide_status (*pinned_unregister)(void* self, void* address);
  tide_status (*address_reserve)(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                 void** out);
  tide_status (*address_release)(void* self, void* address, size_t bytes);
  tide_status (*physical_new)(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out);
  tide_status (*physical_free)(void* self, tide_physical physical);
  tide_status (*map)(void* self, void* address, tide_physical physical);
  tide_status (*unmap)(void* self, void* address, size_t bytes);
  tide_status (*set_access)(void* self, void* address, size_t bytes, int device, tide_access access);
  tide_status (*pointer_info)(void* self, const void* pointer, tide_pointer_info* out);

  tide_status (*stream_new)(void* self, int device, uint32_t flags, int priority, tide_stream* out);
  tide_status (*stream_free)(void* self, int device, tide_stream stream);
  tide_status (*stream_info)(void* self, int device, tide_stream stream, bool* out_captured,
                             uint64_t* out_number);
  tide_status (*stream_query)(void* self, int device, tide_stream stream, bool* out_idle);
  tide_status (*stream_synchronize)(void* self, int device, tide_stream stream);
  tide_status (*stream_wait)(void* self, int device, tide_stream stream, tide_event event);
  tide_status (*device_synchronize)(void* self, int device);
  tide_status (*event_new)(void* self, int device, tide_event* out);
  tide_status (*event_free)(void* self, tide_event event);
  tide_status (*event_record)(void* self, int device, tide_event event, tide_stream stream);
  tide_status (*event_query)(void* self, tide_event event, bool* out_done);
  tide_status (*event_synchronize)(void* self, tide_event event);
  tide_status (*copy)(void* self, int device, tide_stream stream, void* destination, const void* source,
                      size_t bytes);
  tide_status (*fill)(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                      size_t bytes);
  tide_status (*call)(void* self, int device, tide_stream stream, tide_call_fn function, void* user);

  tide_status (*capture_exchange)(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
  tide_status (*capture_begin)(void* self, int device, tide_stream stream, tide_capture_mode mode);
  tide_status (*capture_end)(void* self, int device, tide_stream stream, tide_launch* out);
  tide_status (*capture_info)(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                              uint64_t* out_id);
  tide_status (*capture_terminals)(void* self, int device, tide_stream stream, tide_node* nodes,
                                   size_t capacity, size_t* out_count);
  tide_status (*node_dependencies)(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                   size_t* out_count);
  tide_status (*launch)(void* self, int device, tide_launch graph, tide_stream stream);
  tide_status (*launch_free)(void* self, tide_launch graph);

  tide_status (*peer_query)(void* self, int device, int peer, bool* out);
  tide_status (*peer_enable)(void* self, int device, int peer);
  tide_status (*peer_disable)(void* self, int device, int peer);
  tide_status (*raw_export)(void* self, int device, void* address, tide_raw_share* out);
  tide_status (*raw_import)(void* self, int device, const tide_raw_share* share, void** out);
  tide_status (*raw_unimport)(void* self, void* address);
  tide_status (*physical_export)(void* self, tide_physical physical, tide_physical_share* out);
  tide_status (*physical_import)(void* self, int device, const tide_physical_share* share,
                                 tide_physical* out);
} tide__machine_ops;

// How often one kind of call was made; a cache line each, so that counting one kind does not slow another.
typedef struct tide__call_counter {
  _Alignas(64) tide__atomic_u64 calls;
  tide__atomic_u64 failures;
  tide__atomic_u64 ns;
} tide__call_counter;

// What handles name; a number in each handle.
enum { TIDE__KIND_STREAM, TIDE__KIND_EVENT, TIDE__KIND_PHYSICAL, TIDE__KIND_LAUNCH };

#define TIDE__FAULT_MAX 16

// The faults in force. `count` is read without the lock, to pay nothing where there are none.
typedef struct tide__faults {
  tide__mutex lock;
  tide__atomic_u32 count;
  struct {
    tide_fault fault;
    uint64_t seen;   // matching calls beyond the budget so far, shared under lock like all here
    uint64_t bytes;  // they asked for
  } plan[TIDE__FAULT_MAX];
} tide__faults;

struct tide_machine {
  tide__call_counter counters[TIDE_CALL_COUNT];
  const tide__machine_ops* ops;  // static
  void* self;                    // owned through ops->free
  const tide_heap* heap;         // borrowed until the machine is freed
  int device_count;
  tide__faults faults;
  tide__fork_note fork_note;
  tide__atomic_u32 is_inherited;  // this process is a child of the one that made it
};

// Wraps a table and a state into a machine, which owns the state from then on.
tide_status tide__machine_new(const tide__machine_ops* ops, void* self, int device_count,
                              const tide_heap* heap, tide_machine** out);
// The state behind a machine of the given kind, or NULL.
void* tide__machine_self(tide_machine* machine, const tide__machine_ops* ops);
// Adds to what a kind of call has cost.
void tide__machine_charge(tide_machine* machine, tide_call call, uint64_t ns);

void tide__faults_init(tide__faults* faults);
void tide__faults_fini(tide__faults* faults);
// What the faults in force do to one call: how long it is held up, and the status it then has.
tide_status tide__faults_apply(tide__faults* faults, tide_call call, uint64_t bytes, uint64_t* out_delay_ns);

#endif
