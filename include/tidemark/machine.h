// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the machine, the layer below every allocator: devices, memory, addresses, streams, events.
// One interface, three machines behind it, and those of others (machine_ops.h):
//   host   the memory of this computer as devices of a chosen capacity, with streams that run for real;
//   dry    addresses without memory and time without waiting, to replay a large card on a small computer;
//   cuda   the CUDA driver, found at run time.
//
//   tide_machine* machine = NULL;
//   tide_stream stream = NULL;
//   void* memory = NULL;
//   tide_status status = tide_machine_new_host(NULL, &machine);
//   if (status == TIDE_OK) status = tide_machine_stream_new(machine, 0, 0, 0, &stream);
//   if (status == TIDE_OK) status = tide_machine_raw_alloc(machine, 0, 4096, &memory);
//   if (status == TIDE_OK) status = tide_machine_fill(machine, 0, stream, memory, 7, 4096);
//   if (status == TIDE_OK) status = tide_machine_stream_synchronize(machine, 0, stream);
//
// What holds for every call:
// - Any thread may call, also several at once on the same object. Freeing an object while another thread uses
//   it is the caller's fault: on host and dry the other call may then meet a newer object, but never freed
//   memory. A handle that was freed before the call is recognised there as stale (TIDE_ERR_HANDLE).
// - `device` is an index below tide_machine_device_count(); anything else is TIDE_ERR_DEVICE. A stream is
//   named together with its device, because the two default streams exist once for each.
// - No call waits for queued work unless it is named `_synchronize`; on host, taking memory or access away
//   waits for a copy or fill that is just then moving bytes there. On cuda the driver itself may wait
//   in raw_release, pinned_release, pinned_unregister, raw_import, raw_unimport, unmap and physical_free,
//   and in any call that queues work while its own queue of a stream, about a thousand pieces, is full.
// - A call inside a capture follows the rules of CUDA stream capture (see "Capture" below).
// - Sizes of 0, addresses or sizes that overflow, and handles that were never given out are refused and
//   change nothing. The text of tide_last_error() names the call and the numbers.
// - Every kind of call in TIDE_CALL_MAP can be made to fail: see "Faults".
// - A machine belongs to the process that made it. In a child of fork() every call on it is TIDE_ERR_STATE at
//   once, and freeing it does nothing; the child can make one of its own.
#ifndef TIDEMARK_MACHINE_H
#define TIDEMARK_MACHINE_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

typedef struct tide_machine tide_machine;  // opaque; freed by tide_machine_free()

// Handles, given by value. NULL is no handle, except for streams.
typedef struct tide_stream_handle* tide_stream;      // NULL is the legacy default stream, as in CUDA
typedef struct tide_event_handle* tide_event;        // a point in the work of one stream
typedef struct tide_physical_handle* tide_physical;  // physical memory of a device, mapped or not
typedef struct tide_launch_handle* tide_launch;      // a captured graph of work, ready to be launched
typedef struct tide_node_handle* tide_node;          // one piece of work in a capture

// The two streams every device has. The legacy stream waits for all earlier work in the streams of its
// device made without TIDE_STREAM_NON_BLOCKING, and they wait for it. The per-thread stream is another one
// on each thread and behaves like a stream made without that flag.
#define TIDE_STREAM_LEGACY ((tide_stream)0x1)
#define TIDE_STREAM_PER_THREAD ((tide_stream)0x2)

#define TIDE_DEVICE_MAX 64  // devices a machine can have

// ---------------------------------------------------------------------------------------------------
// Machines

// The machine of this computer's own memory.
typedef struct tide_host_options {
  uint32_t size;          // set by TIDE_HOST_OPTIONS_INIT
  uint32_t device_count;  // 1 to TIDE_DEVICE_MAX
  uint64_t capacity;      // bytes of each device; 0 shares half of this computer's memory among them
  uint64_t granularity;   // of virtual memory: a power of two, at least one page of the system
  const tide_heap* heap;  // caller keeps until the machine is freed; NULL for malloc
} tide_host_options;
// clang-format off
#define TIDE_HOST_OPTIONS_INIT                                                                         \
  { TIDE_FIELD(size, sizeof(tide_host_options)), TIDE_FIELD(device_count, 1), TIDE_FIELD(capacity, 0), \
    TIDE_FIELD(granularity, (uint64_t)2 << 20), TIDE_FIELD(heap, NULL) }
// clang-format on

// What the calls of the dry machine cost, in nanoseconds of its virtual clock. The defaults were measured
// on an NVIDIA H200 with driver 580 (raw and pinned figures: measured pairs, halved).
typedef struct tide_dry_costs {
  uint32_t size;                   // set by TIDE_DRY_COSTS_INIT
  uint64_t physical_new;           // one physical_new
  uint64_t map;                    // one map
  uint64_t access_per_mapping;     // set_access: each mapping in the range
  uint64_t unmap_per_mapping;      // unmap: each mapping in the range
  uint64_t physical_free;          // physical_free, and
  uint64_t physical_free_per_mib;  //   for each MiB
  uint64_t reserve;                // address_reserve and address_release
  uint64_t raw_alloc_small;        // raw_alloc up to 1 MiB
  uint64_t raw_alloc_large;        // raw_alloc above
  uint64_t raw_release_small;      // raw_release up to 1 MiB
  uint64_t raw_release_large;      // raw_release above
  uint64_t pinned;                 // pinned_alloc, _release, _register, _unregister, and
  uint64_t pinned_per_mib;         //   for each MiB
  uint64_t event_record;           // event_record
  uint64_t event_query;            // event_query
  uint64_t other;                  // any other call
} tide_dry_costs;
// clang-format off
#define TIDE_DRY_COSTS_INIT                                                                           \
  { TIDE_FIELD(size, sizeof(tide_dry_costs)), TIDE_FIELD(physical_new, 12000), TIDE_FIELD(map, 1100), \
    TIDE_FIELD(access_per_mapping, 30000), TIDE_FIELD(unmap_per_mapping, 20000),                      \
    TIDE_FIELD(physical_free, 15000), TIDE_FIELD(physical_free_per_mib, 500),                         \
    TIDE_FIELD(reserve, 5000), TIDE_FIELD(raw_alloc_small, 3000), TIDE_FIELD(raw_alloc_large, 40000), \
    TIDE_FIELD(raw_release_small, 3000), TIDE_FIELD(raw_release_large, 35000),                        \
    TIDE_FIELD(pinned, 25000), TIDE_FIELD(pinned_per_mib, 95000), TIDE_FIELD(event_record, 410),      \
    TIDE_FIELD(event_query, 280), TIDE_FIELD(other, 0) }
// clang-format on

// The machine without memory.
typedef struct tide_dry_options {
  uint32_t size;                // set by TIDE_DRY_OPTIONS_INIT
  uint32_t device_count;        // 1 to TIDE_DEVICE_MAX
  uint64_t capacity;            // bytes of each device
  uint64_t granularity;         // of virtual memory: a power of two, at least 512
  const tide_dry_costs* costs;  // borrowed during the call; NULL for the defaults
  const tide_heap* heap;        // caller keeps until the machine is freed; NULL for malloc
} tide_dry_options;
// clang-format off
#define TIDE_DRY_OPTIONS_INIT                                                              \
  { TIDE_FIELD(size, sizeof(tide_dry_options)), TIDE_FIELD(device_count, 1),               \
    TIDE_FIELD(capacity, (uint64_t)140 << 30), TIDE_FIELD(granularity, (uint64_t)2 << 20), \
    TIDE_FIELD(costs, NULL), TIDE_FIELD(heap, NULL) }
// clang-format on

// The CUDA driver.
typedef struct tide_cuda_options {
  uint32_t size;          // set by TIDE_CUDA_OPTIONS_INIT
  const char* library;    // the driver's file name, NULL for libcuda.so.1; borrowed during the call
  const tide_heap* heap;  // caller keeps until the machine is freed; NULL for malloc
} tide_cuda_options;
// clang-format off
#define TIDE_CUDA_OPTIONS_INIT                                                                       \
  { TIDE_FIELD(size, sizeof(tide_cuda_options)), TIDE_FIELD(library, NULL), TIDE_FIELD(heap, NULL) }
// clang-format on

// Makes a machine; NULL options are the defaults.
// Errors: TIDE_ERR_ARGUMENT for options out of range; TIDE_ERR_NO_MEMORY; TIDE_ERR_UNSUPPORTED from
//         tide_machine_new_cuda() where there is no driver or no device, with the reason as text.
// Cost:   host starts no thread and takes no memory before they are needed. cuda makes the primary
//         context of a device at the first call that needs it, and works beside other users of it.
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_host(const tide_host_options* options,
                                                          tide_machine** out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_dry(const tide_dry_options* options, tide_machine** out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_cuda(const tide_cuda_options* options,
                                                          tide_machine** out);

// Frees a machine. Host and dry: waits for all queued work, then frees everything that was made on it and is
// still there; addresses and handles become invalid. Cuda: waits for nothing and frees only what the machine
// holds for itself; streams, events and memory belong to the driver's context and stay.
// Threads: no other call may be under way or follow.
TIDE_API void tide_machine_free(tide_machine* machine);

// "host", "dry", "cuda", or the name in the table of a machine of one's own.
TIDE_API const char* tide_machine_name(const tide_machine* machine);
TIDE_API int tide_machine_device_count(const tide_machine* machine);

typedef struct tide_device_info {
  uint32_t size;           // set by TIDE_DEVICE_INFO_INIT
  int32_t least_priority;  // of streams; numbers fall as priority rises
  int32_t greatest_priority;
  uint64_t total_bytes;       // memory of the device
  uint64_t granularity;       // sizes and addresses of virtual memory are multiples of this; 0: has none
  bool is_host_readable;      // the addresses of the device can be read and written by this process
  bool is_pinned_locked;      // pinned memory is really locked (host: false once the system refused)
  bool has_raw_sharing;       // tide_machine_raw_export() works
  bool has_physical_sharing;  // tide_machine_physical_export() works
  char name[64];
  int32_t numa_node;  // of the computer, nearest to the device; -1: not known, or there is only one
} tide_device_info;
// clang-format off
#define TIDE_DEVICE_INFO_INIT                                                                 \
  { TIDE_FIELD(size, sizeof(tide_device_info)), TIDE_FIELD(least_priority, 0),                \
    TIDE_FIELD(greatest_priority, 0), TIDE_FIELD(total_bytes, 0), TIDE_FIELD(granularity, 0), \
    TIDE_FIELD(is_host_readable, false), TIDE_FIELD(is_pinned_locked, false),                 \
    TIDE_FIELD(has_raw_sharing, false), TIDE_FIELD(has_physical_sharing, false),              \
    TIDE_FIELD(name, { 0 }), TIDE_FIELD(numa_node, -1) }
// clang-format on

TIDE_API TIDE_NODISCARD tide_status tide_machine_device_info(tide_machine* machine, int device,
                                                             tide_device_info* out);

// Free and total bytes of a device. On cuda free memory counts every process; elsewhere only this machine.
TIDE_API TIDE_NODISCARD tide_status tide_machine_memory_info(tide_machine* machine, int device,
                                                             size_t* out_free, size_t* out_total);

// A clock that never goes back, in ns: the system's on host and cuda, virtual on dry.
TIDE_API TIDE_NODISCARD tide_status tide_machine_clock(tide_machine* machine, uint64_t* out_ns);

// ---------------------------------------------------------------------------------------------------
// Memory

// Memory of a device at an address that the machine chooses, aligned to at least 512.
// Errors: TIDE_ERR_NO_MEMORY when the device is full (or, host, when the system has no mapping left).
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_alloc(tide_machine* machine, int device, size_t bytes,
                                                           void** out);

// Gives raw memory back. No queued work may still use it: synchronize first. On host and dry, work that
// comes too late is not done, and is reported by the next _synchronize call on that device as
// TIDE_ERR_MACHINE.
// Errors: TIDE_ERR_ARGUMENT for an address that raw_alloc did not return, or that is free already.
TIDE_API tide_status tide_machine_raw_release(tide_machine* machine, int device, void* address);

// Page-locked memory of the host, usable by all devices; on dry only an address, like all its memory.
// Errors: TIDE_ERR_NO_MEMORY; for release: TIDE_ERR_ARGUMENT for what is not pinned by pinned_alloc.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pinned_alloc(tide_machine* machine, size_t bytes,
                                                              void** out);
TIDE_API tide_status tide_machine_pinned_release(tide_machine* machine, void* address);

// Memory of a device, and page-locked memory, as a source of arenas; releasing first waits for all work of
// the device. Alignments above what the machine gives are TIDE_ERR_UNSUPPORTED.
TIDE_API tide_memory tide_machine_memory(tide_machine* machine, int device);
TIDE_API tide_memory tide_machine_pinned_memory(tide_machine* machine, int device);

// Page-locks memory the caller has already. The range may not touch one that is registered or was made by
// pinned_alloc, and must stay mapped until it is unregistered.
// Errors: TIDE_ERR_ARGUMENT for such a range, or an address that no registration begins at.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pinned_register(tide_machine* machine, void* address,
                                                                 size_t bytes);
TIDE_API tide_status tide_machine_pinned_unregister(tide_machine* machine, void* address);

// Reserves a range of addresses; nothing can be read or written there until memory is mapped.
// `bytes` is a multiple of the granularity; `alignment` is 0 or a power of two; `hint` is NULL, or where
// the range should begin: it is placed elsewhere if that is taken.
// Errors: TIDE_ERR_ARGUMENT, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_machine_address_reserve(tide_machine* machine, int device,
                                                                 size_t bytes, size_t alignment, void* hint,
                                                                 void** out);

// Gives back a whole reservation in which nothing is mapped.
// Errors: TIDE_ERR_ARGUMENT unless exactly this range was reserved; TIDE_ERR_STATE while something is mapped.
TIDE_API tide_status tide_machine_address_release(tide_machine* machine, void* address, size_t bytes);

// Physical memory of a device, not yet at any address. `bytes` is a multiple of the granularity.
// TIDE_PHYSICAL_SHAREABLE must be given if it is to be exported later (else TIDE_ERR_ARGUMENT then).
// Errors: TIDE_ERR_NO_MEMORY when the device is full.
#define TIDE_PHYSICAL_SHAREABLE 1u
TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_new(tide_machine* machine, int device, size_t bytes,
                                                              uint32_t flags, tide_physical* out);

// Gives up the handle. The memory is given back when it is mapped nowhere any more, here or in a process
// that imported it.
TIDE_API tide_status tide_machine_physical_free(tide_machine* machine, tide_physical physical);

// Maps the whole of `physical` at `address` inside one reservation. The same memory may be mapped at
// several addresses at once. It can be used once set_access() gave access.
// Errors: TIDE_ERR_ARGUMENT if the address is misaligned, not reserved, or something is mapped in the range.
TIDE_API TIDE_NODISCARD tide_status tide_machine_map(tide_machine* machine, void* address,
                                                     tide_physical physical);

// Ends all mappings in a range that begins and ends at mappings and has no gap. No queued work may still
// use the range: see tide_machine_raw_release().
TIDE_API tide_status tide_machine_unmap(tide_machine* machine, void* address, size_t bytes);

typedef enum tide_access {
  TIDE_ACCESS_NONE = 0,
  TIDE_ACCESS_READ = 1,
  TIDE_ACCESS_READ_WRITE = 3
} tide_access;

// Says what `device` may do in a range that begins and ends at mappings and has no gap.
TIDE_API TIDE_NODISCARD tide_status tide_machine_set_access(tide_machine* machine, void* address,
                                                            size_t bytes, int device, tide_access access);

typedef enum tide_memory_kind {
  TIDE_MEMORY_UNKNOWN = 0,   // not of this machine: ordinary host memory, or nothing
  TIDE_MEMORY_RAW = 1,       // inside memory of raw_alloc
  TIDE_MEMORY_PINNED = 2,    // inside memory of pinned_alloc or pinned_register
  TIDE_MEMORY_MAPPED = 3,    // inside a mapping
  TIDE_MEMORY_RESERVED = 4,  // inside a reservation where nothing is mapped
  TIDE_MEMORY_IMPORTED = 5   // inside memory of raw_import
} tide_memory_kind;

typedef struct tide_pointer_info {
  uint32_t size;   // set by TIDE_POINTER_INFO_INIT
  uint32_t kind;   // a tide_memory_kind
  int32_t device;  // whose memory it is; -1 for pinned, reserved and unknown
  void* base;      // where the allocation, mapping or reservation begins
  uint64_t bytes;  // and how long it is
} tide_pointer_info;
// clang-format off
#define TIDE_POINTER_INFO_INIT                                                                \
  { TIDE_FIELD(size, sizeof(tide_pointer_info)), TIDE_FIELD(kind, 0), TIDE_FIELD(device, -1), \
    TIDE_FIELD(base, NULL), TIDE_FIELD(bytes, 0) }
// clang-format on

// Says whose memory a pointer points into. Any value may be asked about; it is never read through. On cuda
// the driver does not tell imported memory from raw, nor (base and bytes) one mapping from its reservation.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pointer_info(tide_machine* machine, const void* pointer,
                                                              tide_pointer_info* out);

// ---------------------------------------------------------------------------------------------------
// Streams and events

#define TIDE_STREAM_NON_BLOCKING 1u  // does not wait for the legacy stream, nor the legacy stream for it

// A queue of work that runs in order, beside all other streams. A priority out of range is clamped.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_new(tide_machine* machine, int device, uint32_t flags,
                                                            int priority, tide_stream* out);
// Gives the stream up; its queued work still runs. The default streams are refused (TIDE_ERR_ARGUMENT).
TIDE_API tide_status tide_machine_stream_free(tide_machine* machine, int device, tide_stream stream);
// Which stream is it, and is it in a capture just now? The number is that of no other stream of the machine,
// while a new stream may have the handle of one that is gone; 0: it cannot be told, as on cuda during a
// capture and with drivers before CUDA 12.0. Of TIDE_STREAM_PER_THREAD it is the calling thread's. Safe to
// call during a capture, but on cuda not while another thread begins one on this stream.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_info(tide_machine* machine, int device,
                                                             tide_stream stream, bool* out_captured,
                                                             uint64_t* out_number);
// Is all work done that was queued so far?
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_query(tide_machine* machine, int device,
                                                              tide_stream stream, bool* out_idle);
// Waits until it is.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_synchronize(tide_machine* machine, int device,
                                                                    tide_stream stream);
// Later work of the stream begins after the event's last record; never recorded means no wait. The event
// may be of another device.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_wait(tide_machine* machine, int device,
                                                             tide_stream stream, tide_event event);
TIDE_API TIDE_NODISCARD tide_status tide_machine_device_synchronize(tide_machine* machine, int device);

TIDE_API TIDE_NODISCARD tide_status tide_machine_event_new(tide_machine* machine, int device,
                                                           tide_event* out);
TIDE_API tide_status tide_machine_event_free(tide_machine* machine, tide_event event);
// Marks the end of the work queued so far on a stream of the event's device; replaces an earlier record.
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_record(tide_machine* machine, int device,
                                                              tide_event event, tide_stream stream);
// Is the work before the last record done? True for an event that was never recorded.
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_query(tide_machine* machine, tide_event event,
                                                             bool* out_done);
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_synchronize(tide_machine* machine, tide_event event);

// Work on a stream. Either end of a copy may be memory of any device, pinned, or ordinary host memory (which
// must stay as it is until the copy is done). Between devices without peer access a copy is staged. A fill
// needs memory that the stream's own device may write. The two ranges of a copy may not overlap.
// An address that belongs to nobody is found out when the work is done: on host the rest of it is left out,
// and the next _synchronize call on that device says so, once, as TIDE_ERR_MACHINE; on cuda it is an error of
// the driver, after which its context may be lost.
// Errors: TIDE_ERR_ARGUMENT for a range that leaves its allocation, TIDE_ERR_ACCESS for one without access.
TIDE_API TIDE_NODISCARD tide_status tide_machine_copy(tide_machine* machine, int device, tide_stream stream,
                                                      void* destination, const void* source, size_t bytes);
TIDE_API TIDE_NODISCARD tide_status tide_machine_fill(tide_machine* machine, int device, tide_stream stream,
                                                      void* destination, uint8_t value, size_t bytes);

// Calls a function when the work before it is done; work behind it waits until it returns. The function may
// not call the machine (host and dry: TIDE_ERR_STATE). It runs on a thread of the machine; on dry, on
// whichever thread asks how far a stream is, and others that ask wait for it.
typedef void (*tide_call_fn)(void* user);
TIDE_API TIDE_NODISCARD tide_status tide_machine_call(tide_machine* machine, int device, tide_stream stream,
                                                      tide_call_fn function, void* user);

// ---------------------------------------------------------------------------------------------------
// Capture: work is noted down instead of done, and launched later, any number of times
//
// A stream joins a capture when it waits for an event recorded in it, and its work must be joined back into
// the stream the capture began on, in the same way, before the end. Breaking a rule gives TIDE_ERR_CAPTURE,
// and most breaches invalidate the capture: every call in it fails until capture_end, which then fails too
// and ends it. These invalidate: querying or synchronizing a stream in the capture, an event recorded in
// it, or its device; waiting in it for work outside; using the legacy stream while a blocking stream is
// captured; ending it on another stream; and unsafe calls. Unsafe are all calls that take or give back raw
// or pinned memory, and those that query or synchronize a stream, an event or a device. An unsafe call is
// refused
// - on a thread in mode GLOBAL: if the thread itself began a capture that is not RELAXED, or any thread
//   began one that is GLOBAL;
// - on a thread in mode THREAD_LOCAL: if the thread itself began a capture that is not RELAXED;
// - on a thread in mode RELAXED: never.
// A stream that is freed leaves its capture; if the capture began on it, that is the end of it. An event
// that was recorded in a capture that has ended must be recorded again before it is used (TIDE_ERR_ARGUMENT).

typedef enum tide_capture_mode {
  TIDE_CAPTURE_GLOBAL = 0,  // what a thread starts in
  TIDE_CAPTURE_THREAD_LOCAL = 1,
  TIDE_CAPTURE_RELAXED = 2
} tide_capture_mode;

typedef enum tide_capture_state {
  TIDE_CAPTURE_NONE = 0,
  TIDE_CAPTURE_ACTIVE = 1,
  TIDE_CAPTURE_INVALIDATED = 2
} tide_capture_state;

// Sets the mode of the calling thread and hands out the one before.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_exchange(tide_machine* machine,
                                                                  tide_capture_mode mode,
                                                                  tide_capture_mode* out_before);
// Begins a capture on a stream other than the legacy one that is in none (TIDE_ERR_CAPTURE).
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_begin(tide_machine* machine, int device,
                                                               tide_stream stream, tide_capture_mode mode);
// Ends it on the stream it began on; unless it is RELAXED, on the thread it began on.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_end(tide_machine* machine, int device,
                                                             tide_stream stream, tide_launch* out);
// Is the stream in a capture, and in which? Ids differ for all captures of a machine; 0 unless the capture is
// active. Safe to call during a capture, also on the legacy stream.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_info(tide_machine* machine, int device,
                                                              tide_stream stream,
                                                              tide_capture_state* out_state,
                                                              uint64_t* out_id);
// The nodes that the next piece of work on a capturing stream would depend on, and the nodes that a node
// depends on. Writes up to `capacity` nodes; `out_count` is how many there are, also when that is more. A
// node lives as long as its capture and then its graph. TIDE_ERR_STATE for a stream that is not being
// captured.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_terminals(tide_machine* machine, int device,
                                                                   tide_stream stream, tide_node* nodes,
                                                                   size_t capacity, size_t* out_count);
TIDE_API TIDE_NODISCARD tide_status tide_machine_node_dependencies(tide_machine* machine, tide_node node,
                                                                   tide_node* nodes, size_t capacity,
                                                                   size_t* out_count);
// Queues the captured work. Launches of the same graph run one after the other. A launch cannot be captured
// itself.
TIDE_API TIDE_NODISCARD tide_status tide_machine_launch(tide_machine* machine, int device, tide_launch graph,
                                                        tide_stream stream);
// Gives the graph up; launches already queued still run.
TIDE_API tide_status tide_machine_launch_free(tide_machine* machine, tide_launch graph);

// ---------------------------------------------------------------------------------------------------
// Peers and other processes

// May `device` be given access to the memory of `peer`, another device? Give it, take it away; doing either
// twice is fine.
TIDE_API TIDE_NODISCARD tide_status tide_machine_peer_query(tide_machine* machine, int device, int peer,
                                                            bool* out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_peer_enable(tide_machine* machine, int device, int peer);
TIDE_API tide_status tide_machine_peer_disable(tide_machine* machine, int device, int peer);

// Raw memory for another process of the same user: plain bytes, to be sent in any way.
typedef struct tide_raw_share {
  unsigned char bytes[64];
} tide_raw_share;

// Exports the whole allocation that begins at `address`. It stays the exporter's, who must keep it until the
// importer has it.
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_export(tide_machine* machine, int device, void* address,
                                                            tide_raw_share* out);
// Opens it in another process, until raw_unimport.
// Errors: TIDE_ERR_ARGUMENT for bytes that are no export; TIDE_ERR_STATE in the exporting process itself, or
//         when the exporter has freed the memory or is gone.
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_import(tide_machine* machine, int device,
                                                            const tide_raw_share* share, void** out);
TIDE_API tide_status tide_machine_raw_unimport(tide_machine* machine, void* address);

// Physical memory for another process: a file descriptor, to be sent over a Unix socket or inherited, and
// two numbers. The memory lives until its last handle, mapping and descriptor are gone, in any process.
typedef struct tide_physical_share {
  int descriptor;  // owned by the caller of physical_export, who closes it when it is sent
  uint64_t offset;
  uint64_t bytes;
} tide_physical_share;

TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_export(tide_machine* machine,
                                                                 tide_physical physical,
                                                                 tide_physical_share* out);
// The descriptor stays the caller's and may be closed afterwards. Also works in the exporting process.
// Imported memory does not count as used by the importing device.
TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_import(tide_machine* machine, int device,
                                                                 const tide_physical_share* share,
                                                                 tide_physical* out);

// ---------------------------------------------------------------------------------------------------
// Counters and faults

// Every kind of call. The names are those of the functions, without tide_machine_.
// clang-format off
#define TIDE_CALL_MAP(X)                                                                                   \
  X(DEVICE_INFO, device_info) X(MEMORY_INFO, memory_info) X(CLOCK, clock) X(RAW_ALLOC, raw_alloc)          \
  X(RAW_RELEASE, raw_release) X(PINNED_ALLOC, pinned_alloc) X(PINNED_RELEASE, pinned_release)              \
  X(PINNED_REGISTER, pinned_register) X(PINNED_UNREGISTER, pinned_unregister)                              \
  X(ADDRESS_RESERVE, address_reserve) X(ADDRESS_RELEASE, address_release) X(PHYSICAL_NEW, physical_new)    \
  X(PHYSICAL_FREE, physical_free) X(MAP, map) X(UNMAP, unmap) X(SET_ACCESS, set_access)                    \
  X(POINTER_INFO, pointer_info) X(STREAM_NEW, stream_new) X(STREAM_FREE, stream_free)                      \
  X(STREAM_INFO, stream_info)                                                                              \
  X(STREAM_QUERY, stream_query) X(STREAM_SYNCHRONIZE, stream_synchronize) X(STREAM_WAIT, stream_wait)      \
  X(DEVICE_SYNCHRONIZE, device_synchronize) X(EVENT_NEW, event_new) X(EVENT_FREE, event_free)              \
  X(EVENT_RECORD, event_record) X(EVENT_QUERY, event_query) X(EVENT_SYNCHRONIZE, event_synchronize)        \
  X(COPY, copy) X(FILL, fill) X(CALL, call) X(CAPTURE_EXCHANGE, capture_exchange)                          \
  X(CAPTURE_BEGIN, capture_begin) X(CAPTURE_END, capture_end) X(CAPTURE_INFO, capture_info)                \
  X(CAPTURE_TERMINALS, capture_terminals) X(NODE_DEPENDENCIES, node_dependencies) X(LAUNCH, launch)        \
  X(LAUNCH_FREE, launch_free) X(PEER_QUERY, peer_query) X(PEER_ENABLE, peer_enable)                        \
  X(PEER_DISABLE, peer_disable) X(RAW_EXPORT, raw_export) X(RAW_IMPORT, raw_import)                        \
  X(RAW_UNIMPORT, raw_unimport) X(PHYSICAL_EXPORT, physical_export) X(PHYSICAL_IMPORT, physical_import)

typedef enum tide_call {
#define TIDE_CALL_ENUM(upper, lower) TIDE_CALL_##upper,
  TIDE_CALL_MAP(TIDE_CALL_ENUM)
#undef TIDE_CALL_ENUM
  TIDE_CALL_COUNT,
  TIDE_CALL_ANY = TIDE_CALL_COUNT
} tide_call;
// clang-format on

// The name of a kind of call, "raw_alloc"; "any" for TIDE_CALL_ANY.
TIDE_API const char* tide_call_name(tide_call call);

typedef struct tide_call_stats {
  uint64_t calls;     // made so far
  uint64_t failures;  // of these
  uint64_t ns;        // charged for them by the dry machine
} tide_call_stats;

// How often a kind of call was made on this machine (TIDE_CALL_ANY: all together).
TIDE_API tide_call_stats tide_machine_call_stats(const tide_machine* machine, tide_call call);

// A fault: calls of one kind, or of any, fail or are slow. The failing call does not reach the machine.
typedef struct tide_fault {
  uint32_t size;         // set by TIDE_FAULT_INIT
  uint32_t call;         // a tide_call, or TIDE_CALL_ANY
  uint32_t status;       // the tide_status they return; TIDE_OK leaves only the latency
  uint64_t skip;         // matching calls that pass first
  uint64_t count;        // how many are then hit; UINT64_MAX: all
  uint64_t byte_budget;  // only calls that would take the bytes of matching calls above this count; 0: all
  uint64_t latency_ns;   // how long a hit call is held up (virtual time on dry)
} tide_fault;
// clang-format off
#define TIDE_FAULT_INIT                                                                \
  { TIDE_FIELD(size, sizeof(tide_fault)), TIDE_FIELD(call, TIDE_CALL_ANY),             \
    TIDE_FIELD(status, TIDE_ERR_NO_MEMORY), TIDE_FIELD(skip, 0), TIDE_FIELD(count, 1), \
    TIDE_FIELD(byte_budget, 0), TIDE_FIELD(latency_ns, 0) }
// clang-format on

// Adds a fault to those in force (at most 16, spent ones too: TIDE_ERR_LIMIT), or removes all. The first that
// hits decides.
TIDE_API TIDE_NODISCARD tide_status tide_machine_fault_add(tide_machine* machine, const tide_fault* fault);
TIDE_API void tide_machine_fault_clear(tide_machine* machine);

// ---------------------------------------------------------------------------------------------------
// Control of the dry machine (TIDE_ERR_UNSUPPORTED on others)
//
// Each call costs what the table says, on one virtual clock. Work on a stream takes no time, except what
// tide_dry_work() queues. Nothing moves but the clock: by the cost of calls, by _synchronize calls, which
// move it to the end of what they wait for, and by tide_dry_advance().

// Moves the virtual clock.
TIDE_API TIDE_NODISCARD tide_status tide_dry_advance(tide_machine* machine, uint64_t ns);
// Queues work that takes `ns`.
TIDE_API TIDE_NODISCARD tide_status tide_dry_work(tide_machine* machine, int device, tide_stream stream,
                                                  uint64_t ns);
// Stops a stream before its next piece of work, or lets it go on from then. Synchronizing with work behind a
// held stream would wait for ever: it plays what it can, and is TIDE_ERR_STATE. A stream that is freed is
// held no longer.
TIDE_API TIDE_NODISCARD tide_status tide_dry_hold(tide_machine* machine, int device, tide_stream stream,
                                                  bool is_held);
// Ends the work of a stream up to an event's last record now, held or not.
TIDE_API TIDE_NODISCARD tide_status tide_dry_finish(tide_machine* machine, tide_event event);

// Dictates the address that the next raw_alloc or address_reserve on a device returns, first in, first
// out for each of the two calls. An address that is taken or misaligned is used up and makes that call fail
// with TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_dry_dictate(tide_machine* machine, int device, tide_call call,
                                                     void* address);

TIDE_END_DECLS
#endif
