// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cuda machine on the inside.
//
//   context.c  statuses and contexts
//   memory.c   memory, sharing; calls context.c
//   stream.c   streams, events, captures; calls context.c
//   cuda.c     finding the driver, devices, the table; calls all of them
//
// Streams and nodes are the driver's own pointers, so that streams of other users of the driver can be
// named; like the driver, we cannot tell a wrong one. Events, physical memory and graphs are named by
// handles of ours.
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
  tide__cu_graph graph;  // owned: the nodes are its
  tide__cu_exec exec;    // owned
} tide__cuda_launch;

// A reservation of ours: the driver does not tell reserved addresses from any others.
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
// The driver's name for an answer.
const char* tide__cuda_result_name(const tide__cuda_api* api, tide__cu_result result);
// The primary context of a device, retained at its first use.
tide_status tide__cuda_context(tide__cuda* cuda, int device, tide__cu_context* out);
// The status for an answer of the driver, with its name and our call's in the text.
tide_status tide__cuda_status(const tide__cuda* cuda, const char* name, tide__cu_result result);

// Makes the context of a device the current one if it is not; *out_pushed tells tide__cuda_leave what to
// undo. A negative device means any: the thread's own context, or one that is there already.
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

// memory.c
void tide__cuda_memory_fini(tide__cuda* cuda);
tide_status tide__cuda_memory_info(void* self, int device, size_t* out_free, size_t* out_total);
tide_status tide__cuda_granularity(tide__cuda* cuda, int device, uint64_t* out);
tide_status tide__cuda_raw_alloc(void* self, int device, size_t bytes, void** out);
tide_status tide__cuda_raw_release(void* self, int device, void* address);
tide_status tide__cuda_pinned_alloc(void* self, size_t bytes, void** out);
tide_status tide__cuda_pinned_release(void* self, void* address);
tide_status tide__cuda_pinned_register(void* self, void* address, size_t bytes);
tide_status tide__cuda_pinned_unregister(void* self, void* address);
tide_status tide__cuda_address_reserve(void* self, int device, size_t bytes, size_t alignment, void* hint,
                                       void** out);
tide_status tide__cuda_address_release(void* self, void* address, size_t bytes);
tide_status tide__cuda_physical_new(void* self, int device, size_t bytes, uint32_t flags, tide_physical* out);
tide_status tide__cuda_physical_free(void* self, tide_physical physical);
tide_status tide__cuda_map(void* self, void* address, tide_physical physical);
tide_status tide__cuda_unmap(void* self, void* address, size_t bytes);
tide_status tide__cuda_set_access(void* self, void* address, size_t bytes, int device, tide_access access);
tide_status tide__cuda_pointer_info(void* self, const void* pointer, tide_pointer_info* out);
tide_status tide__cuda_raw_export(void* self, int device, void* address, tide_raw_share* out);
tide_status tide__cuda_raw_import(void* self, int device, const tide_raw_share* share, void** out);
tide_status tide__cuda_raw_unimport(void* self, void* address);
tide_status tide__cuda_physical_export(void* self, tide_physical physical, tide_physical_share* out);
tide_status tide__cuda_physical_import(void* self, int device, const tide_physical_share* share,
                                       tide_physical* out);

// stream.c
tide_status tide__cuda_stream_new(void* self, int device, uint32_t flags, int priority, tide_stream* out);
tide_status tide__cuda_stream_free(void* self, int device, tide_stream stream);
tide_status tide__cuda_stream_info(void* self, int device, tide_stream stream, bool* out_captured,
                                   uint64_t* out_number);
tide_status tide__cuda_stream_query(void* self, int device, tide_stream stream, bool* out_idle);
tide_status tide__cuda_stream_synchronize(void* self, int device, tide_stream stream);
tide_status tide__cuda_stream_wait(void* self, int device, tide_stream stream, tide_event event);
tide_status tide__cuda_device_synchronize(void* self, int device);
tide_status tide__cuda_event_new(void* self, int device, tide_event* out);
tide_status tide__cuda_event_free(void* self, tide_event event);
tide_status tide__cuda_event_record(void* self, int device, tide_event event, tide_stream stream);
tide_status tide__cuda_event_query(void* self, tide_event event, bool* out_done);
tide_status tide__cuda_event_synchronize(void* self, tide_event event);
tide_status tide__cuda_copy(void* self, int device, tide_stream stream, void* destination, const void* source,
                            size_t bytes);
tide_status tide__cuda_fill(void* self, int device, tide_stream stream, void* destination, uint8_t value,
                            size_t bytes);
tide_status tide__cuda_call(void* self, int device, tide_stream stream, tide_call_fn function, void* user);
tide_status tide__cuda_capture_exchange(void* self, tide_capture_mode mode, tide_capture_mode* out_before);
tide_status tide__cuda_capture_begin(void* self, int device, tide_stream stream, tide_capture_mode mode);
tide_status tide__cuda_capture_end(void* self, int device, tide_stream stream, tide_launch* out);
tide_status tide__cuda_capture_info(void* self, int device, tide_stream stream, tide_capture_state* out_state,
                                    uint64_t* out_id);
tide_status tide__cuda_capture_terminals(void* self, int device, tide_stream stream, tide_node* nodes,
                                         size_t capacity, size_t* out_count);
tide_status tide__cuda_node_dependencies(void* self, tide_node node, tide_node* nodes, size_t capacity,
                                         size_t* out_count);
tide_status tide__cuda_launch_graph(void* self, int device, tide_launch graph, tide_stream stream);
tide_status tide__cuda_launch_free(void* self, tide_launch graph);

#endif
