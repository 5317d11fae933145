// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The state that the host and dry machines share, and the backend, a small table of functions that differ.
// Every file of this folder may use this header. state.c calls only the backend.
#ifndef TIDEMARK_SRC_MACHINE_SOFT_STATE_H
#define TIDEMARK_SRC_MACHINE_SOFT_STATE_H

#include "base/atomic.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/slots.h"
#include "base/tree.h"
#include "machine/soft/op.h"
#include "tidemark/machine_ops.h"

// The functions of a machine's table that this folder implements for both machines. Each is tide__soft_NAME()
// and has the prototype of its entry in tide_machine_ops.
// clang-format off
#define TIDE__SOFT_CALL_MAP(X) \
  X(memory_info) X(raw_alloc) X(raw_release) X(pinned_alloc) X(pinned_release) X(pinned_register) \
  X(pinned_unregister) X(address_reserve) X(address_release) X(physical_new) X(physical_free) X(map) \
  X(unmap) X(set_access) X(pointer_info) X(stream_new) X(stream_free) X(stream_info) X(stream_query) \
  X(stream_synchronize) X(stream_wait) X(device_synchronize) X(event_new) X(event_free) \
  X(event_record) X(event_record_all) X(event_query) X(event_synchronize) X(copy) X(fill) X(call) \
  X(capture_exchange) \
  X(capture_begin) X(capture_end) X(capture_info) X(capture_terminals) X(node_dependencies) \
  X(launch) X(launch_free) X(peer_query) X(peer_enable) X(peer_disable) X(raw_unimport)
// clang-format on
#define TIDE__SOFT_PROTOTYPE(name) __typeof__(*((tide_machine_ops*)0)->name) tide__soft_##name;
TIDE__SOFT_CALL_MAP(TIDE__SOFT_PROTOTYPE)
#define TIDE__SOFT_ENTRY(name) .name = tide__soft_##name,

typedef struct tide__soft tide__soft;
typedef struct tide__physical tide__physical;
typedef struct tide__range tide__range;

// The differences between the host and dry machines. Addresses and sizes are checked, and are whole pages.
// Functions that return nothing cannot fail.
typedef struct tide__soft_backend {
  // Memory. Called with the memory lock held, unless the comment says "no lock".
  tide_status (*reserve)(tide__soft* soft, int device, tide_call call, uint64_t bytes, uint64_t alignment,
                         uint64_t hint, uint64_t* out);
  void (*unreserve)(tide__soft* soft, uint64_t address, uint64_t bytes);
  tide_status (*physical_take)(tide__soft* soft, const char* name, tide__physical* physical);
  // Returns false while another process uses the memory. No lock.
  bool (*physical_give)(tide__soft* soft, tide__physical* physical);
  tide_status (*map)(tide__soft* soft, const tide__physical* physical, uint64_t address);
  tide_status (*unmap)(tide__soft* soft, uint64_t address, uint64_t bytes);
  tide_status (*protect)(tide__soft* soft, uint64_t address, uint64_t bytes, bool can_read, bool can_write);
  void (*export_end)(tide__soft* soft, tide__range* range);          // (optional: no exports)
  tide_status (*pinned_take)(tide__soft* soft, tide__range* range);  // sets the address. No lock
  void (*pinned_give)(tide__soft* soft, tide__range* range);         // no lock
  void (*charge)(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes);  // (optional: free)
  // Streams
  tide_status (*stream_start)(tide__stream* stream, const char* name);  // before anybody can see it
  void (*stream_kick)(tide__stream* stream);  // work was queued; under the stream's lock
  void (*stream_stop)(tide__stream* stream);  // it was freed: finish its work, then return the slot
  void (*settle)(tide__soft* soft);           // (optional) runs the work that is due
  uint64_t (*now)(tide__soft* soft);          // (optional: 0) the virtual time
  void (*drain)(tide__soft* soft);            // finishes the work of all streams, which were freed
  tide_status (*await)(tide__soft* soft, const char* name, tide__point point);  // waits for a point
  // (optional: 0) The virtual time that a copy between host and device takes.
  uint64_t (*copy_ns)(tide__soft* soft, uint64_t bytes);
  // (optional) Executes a fill or copy that was checked. Fails if ordinary host memory is not mapped.
  tide_status (*move)(const tide__op* op, bool is_staged);
} tide__soft_backend;

typedef struct tide__soft_device {
  tide__mutex streams_lock;
  tide__link streams;             // shared under streams_lock
  size_t stream_count;            // of these
  _Atomic(tide__stream*) legacy;  // created at its first use, like
  _Atomic(tide__stream*) joiner;  // which waits for all others: see tide__stream_tail_of_all
  uint64_t used_bytes;            // shared under the memory lock
  uint64_t peers;                 // devices whose memory this one may use, shared under the memory lock
  tide__mutex error_lock;
  bool has_error;  // work failed after its call had returned; shared under error_lock
  tide_error error;
} tide__soft_device;

struct tide__soft {
  const tide__soft_backend* backend;  // static
  const tide_heap* heap;              // borrowed until freed
  tide_machine* machine;              // borrowed: the machine that owns this state
  int device_count;
  uint64_t capacity;     // of each device
  uint64_t granularity;  // of virtual memory
  uint64_t page_bytes;   // sizes are rounded up to this
  uint64_t serial;       // unique in the process
  tide__link in_registry;
  tide__soft_device* devices;  // owned

  tide__mutex memory_lock;
  tide__signal quiet;      // signalled when a busy move ends
  tide__tree ranges;       // of tide__range, shared under memory_lock
  uint64_t last_identity;  // of a range, shared under memory_lock
  tide__link lingering;    // of tide__physical, shared under memory_lock
  tide__link busy;         // of tide__busy_move, shared under memory_lock
  tide__slots physicals;

  tide__slots streams;
  tide__atomic_u64 last_stream;  // the highest number of a stream
  tide__slots events;
  tide__slots graphs;

  tide__mutex capture_lock;
  tide__link captures;             // active ones, shared under capture_lock
  tide__atomic_u32 capture_count;  // of these; read without the lock
  uint64_t last_capture_id;        // shared under capture_lock
};

void tide__soft_charge(tide__soft* soft, tide_call call, uint64_t mappings, uint64_t bytes);
// Runs the work that is due, on a machine with virtual time. Called without a lock: it may run callbacks.
void tide__soft_settle(tide__soft* soft);
// Keeps the calling thread's last error for the next _synchronize call on a device, which reports it.
void tide__soft_note_error(tide__soft* soft, int device);
tide_status tide__soft_report_error(tide__soft* soft, int device);

#endif
