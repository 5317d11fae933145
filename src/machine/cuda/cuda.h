// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Internals of the cuda machine.
//
//   context.c  statuses and contexts
//   memory.c   memory, sharing; calls context.c
//   stream.c   streams, events, captures; calls context.c
//   cuda.c     finding the driver, devices, the table; calls all of them
//
// Streams and nodes are the driver's own pointers, so that streams of other users of the driver can be used.
// Like the driver, we cannot recognise a wrong one. Events, physical memory and graphs have our own handles.
#ifndef TIDEMARK_SRC_MACHINE_CUDA_CUDA_H
#define TIDEMARK_SRC_MACHINE_CUDA_CUDA_H

#include "base/arith.h"
#include "base/atomic.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/slots.h"
#include "base/tree.h"
#include "machine/cuda/api.h"
#include "machine/machine.h"

typedef struct tide__cuda_device {
  tide__cu_device ordinal;
  _Atomic(tide__cu_context) context;  // the primary one, retained at its first use
} tide__cuda_device;

typedef struct tide__cuda_event {
  tide__slot slot;
  int device;
  tide__cu_event event;  // owned
} tide__cuda_event;

typedef struct tide__cuda_physical {
  tide__slot slot;
  int device;
  uint64_t bytes;
  tide__cu_handle handle;  // owned
} tide__cuda_physical;

typedef struct tide__cuda_launch {
  tide__slot slot;
  int device;
  tide__cu_graph graph;  // owned; it owns the nodes
  tide__cu_exec exec;    // owned
} tide__cuda_launch;

// A reservation. The driver cannot be asked about reserved addresses.
typedef struct tide__cuda_range {
  tide__tree_node node;  // key: where it begins
  uint64_t bytes;
} tide__cuda_range;

typedef struct tide__cuda {
  tide__cuda_api api;
  const tide_heap* heap;       // borrowed until freed
  tide__cuda_device* devices;  // owned
  int device_count;
  tide__slots events;
  tide__slots physicals;
  tide__slots launches;
  tide__mutex ranges_lock;
  tide__tree ranges;  // of tide__cuda_range, shared under ranges_lock
} tide__cuda;

// context.c
// The driver's name of a result.
const char* tide__cuda_result_name(const tide__cuda_api* api, tide__cu_result result);
// The primary context of a device, retained at its first use.
tide_status tide__cuda_context(tide__cuda* cuda, int device, tide__cu_context* out);
// The status for a result of the driver. The error text names the result and our call.
tide_status tide__cuda_status(const tide__cuda* cuda, const char* name, tide__cu_result result);

// Makes the context of a device current if it is not; *out_pushed tells tide__cuda_leave() what to undo. A
// negative device means any: the thread's current context, or one that is already retained.
tide_status tide__cuda_enter(tide__cuda* cuda, int device, bool* out_pushed);
void tide__cuda_leave(tide__cuda* cuda, bool is_pushed);

// Calls the driver inside the context of a device: sets `result`, or returns if there is no context.
#define CUDA_IN_DEVICE(cuda, device, result, call)             \
  do {                                                         \
    bool is_pushed_ = false;                                   \
    TIDE_TRY(tide__cuda_enter((cuda), (device), &is_pushed_)); \
    (result) = (call);                                         \
    tide__cuda_leave((cuda), is_pushed_);                      \
  } while (0)

static inline tide__cu_pointer tide__cuda_pointer(const void* address) { return tide__address(address); }

// The functions of the table in memory.c and stream.c. Each is tide__cuda_NAME() and has the prototype of its
// entry in tide_machine_ops.
// clang-format off
#define TIDE__CUDA_CALL_MAP(X) \
  X(memory_info) X(raw_alloc) X(raw_release) X(pinned_alloc) X(pinned_release) X(pinned_register) \
  X(pinned_unregister) X(address_reserve) X(address_release) X(physical_new) X(physical_free) X(map) \
  X(unmap) X(set_access) X(pointer_info) X(stream_new) X(stream_free) X(stream_info) X(stream_query) \
  X(stream_synchronize) X(stream_wait) X(device_synchronize) X(event_new) X(event_free) \
  X(event_record) X(event_record_all) X(event_query) X(event_synchronize) X(copy) X(fill) X(call) \
  X(capture_exchange) \
  X(capture_begin) X(capture_end) X(capture_info) X(capture_terminals) X(node_dependencies) \
  X(launch_free) X(raw_export) X(raw_import) X(raw_unimport) X(physical_export) X(physical_import)
// clang-format on
#define CUDA_PROTOTYPE(name) __typeof__(*((tide_machine_ops*)0)->name) tide__cuda_##name;
TIDE__CUDA_CALL_MAP(CUDA_PROTOTYPE)
#undef CUDA_PROTOTYPE

// memory.c
void tide__cuda_memory_fini(tide__cuda* cuda);
tide_status tide__cuda_granularity(tide__cuda* cuda, int device, uint64_t* out);

// stream.c
tide_status tide__cuda_launch_graph(void* self, int device, tide_launch graph, tide_stream stream);

#endif
