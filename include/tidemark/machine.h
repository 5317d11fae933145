// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tidemark: the machine, the layer below every allocator: devices, memory, addresses, streams and events. The
// library has three machines, and machine_ops.h lets you add your own:
//   host   devices of a chosen capacity in this computer's memory, with streams that run on threads
//   dry    addresses without memory and a virtual clock, to simulate a large GPU on a small computer
//   cuda   the CUDA driver, found at run time
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
// Rules for every call:
// - Any thread may call, and several threads may use the same object at once. Do not free an object while
//   another thread uses it. On host and dry such a call may act on a newer object, but never on freed memory.
//   Both recognise a handle that was freed before the call and return TIDE_ERR_HANDLE.
// - `device` is an index below tide_machine_device_count(); any other value is TIDE_ERR_DEVICE. Calls that
//   take a stream also take its device, because each device has its own two default streams.
// - Only calls named `_synchronize` wait for queued work. There are two exceptions. On host, calls that
//   remove memory or access wait for a copy or fill that is moving bytes there. On cuda the driver may wait
//   in raw_release, pinned_release, pinned_unregister, raw_import, raw_unimport, unmap and physical_free, and
//   in any call that queues work while the stream's queue of about a thousand entries is full.
// - Calls during a capture follow the rules of CUDA stream capture (see "Capture" below).
// - Sizes of 0, addresses or sizes that overflow, and unknown handles are refused and change nothing. The
//   text of tide_last_error() names the call and the values.
// - Every kind of call in TIDE_CALL_MAP can be made to fail (see "Faults").
// - A machine belongs to the process that created it. In a child of fork() every call returns TIDE_ERR_STATE,
//   and tide_machine_free() does nothing. The child can create a machine of its own.
#ifndef TIDEMARK_MACHINE_H
#define TIDEMARK_MACHINE_H

#include "tidemark/base.h"
#include "tidemark/memory.h"

TIDE_BEGIN_DECLS

typedef struct tide_machine tide_machine;  // opaque; freed by tide_machine_free()

// Handles, passed by value. NULL is not a valid handle, except for streams.
typedef struct tide_stream_handle* tide_stream;      // NULL is the legacy default stream, as in CUDA
typedef struct tide_event_handle* tide_event;        // a point in the work of one stream
typedef struct tide_physical_handle* tide_physical;  // physical memory of a device, mapped or not
typedef struct tide_launch_handle* tide_launch;      // a captured graph of work, ready to be launched
typedef struct tide_node_handle* tide_node;          // one piece of work in a capture

// The two default streams of every device. A stream made without TIDE_STREAM_NON_BLOCKING is called blocking.
// Work on the legacy stream waits for all earlier work on the device's blocking streams, and theirs waits for
// the legacy stream. Each thread has its own per-thread stream, which is blocking.
#define TIDE_STREAM_LEGACY ((tide_stream)0x1)
#define TIDE_STREAM_PER_THREAD ((tide_stream)0x2)

#define TIDE_DEVICE_MAX 64  // most devices of one machine

// ---------------------------------------------------------------------------------------------------
// Machines

typedef struct tide_host_options {
  uint32_t size;          // set by TIDE_HOST_OPTIONS_INIT
  uint32_t device_count;  // 1 to TIDE_DEVICE_MAX
  uint64_t capacity;      // bytes of each device; 0: half of the computer's memory, divided among them
  uint64_t granularity;   // of virtual memory: a power of two, at least the page size
  const tide_heap* heap;  // borrowed until the machine is freed; NULL: malloc
} tide_host_options;
// clang-format off
#define TIDE_HOST_OPTIONS_INIT                                                                         \
  { TIDE_FIELD(size, sizeof(tide_host_options)), TIDE_FIELD(device_count, 1), TIDE_FIELD(capacity, 0), \
    TIDE_FIELD(granularity, (uint64_t)2 << 20), TIDE_FIELD(heap, NULL) }
// clang-format on

// Costs of calls on the dry machine, in nanoseconds of its virtual clock. The defaults were measured on an
// NVIDIA H200 with driver 580. For raw and pinned memory, a pair of calls was measured and halved.
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
  uint64_t pinned_per_mib;         //   for each MiB, without _register
  uint64_t event_record;           // event_record and event_record_all
  uint64_t event_query;            // event_query
  uint64_t other;                  // any other call
  uint64_t register_per_mib;       // pinned_register: each MiB, touching huge pages with 12 threads included
  uint64_t copy_per_mib;           // time on the stream: a copy between host and device, for each MiB
} tide_dry_costs;
// clang-format off
#define TIDE_DRY_COSTS_INIT                                                                           \
  { TIDE_FIELD(size, sizeof(tide_dry_costs)), TIDE_FIELD(physical_new, 12000), TIDE_FIELD(map, 1100), \
    TIDE_FIELD(access_per_mapping, 30000), TIDE_FIELD(unmap_per_mapping, 20000),                      \
    TIDE_FIELD(physical_free, 15000), TIDE_FIELD(physical_free_per_mib, 500),                         \
    TIDE_FIELD(reserve, 5000), TIDE_FIELD(raw_alloc_small, 3000), TIDE_FIELD(raw_alloc_large, 40000), \
    TIDE_FIELD(raw_release_small, 3000), TIDE_FIELD(raw_release_large, 35000),                        \
    TIDE_FIELD(pinned, 25000), TIDE_FIELD(pinned_per_mib, 95000), TIDE_FIELD(event_record, 410),      \
    TIDE_FIELD(event_query, 280), TIDE_FIELD(other, 0), TIDE_FIELD(register_per_mib, 63000),          \
    TIDE_FIELD(copy_per_mib, 19531) }
// clang-format on

typedef struct tide_dry_options {
  uint32_t size;                // set by TIDE_DRY_OPTIONS_INIT
  uint32_t device_count;        // 1 to TIDE_DEVICE_MAX
  uint64_t capacity;            // bytes of each device
  uint64_t granularity;         // of virtual memory: a power of two, at least 512
  const tide_dry_costs* costs;  // borrowed during the call; NULL: the defaults
  const tide_heap* heap;        // borrowed until the machine is freed; NULL: malloc
} tide_dry_options;
// clang-format off
#define TIDE_DRY_OPTIONS_INIT                                                              \
  { TIDE_FIELD(size, sizeof(tide_dry_options)), TIDE_FIELD(device_count, 1),               \
    TIDE_FIELD(capacity, (uint64_t)140 << 30), TIDE_FIELD(granularity, (uint64_t)2 << 20), \
    TIDE_FIELD(costs, NULL), TIDE_FIELD(heap, NULL) }
// clang-format on

typedef struct tide_cuda_options {
  uint32_t size;          // set by TIDE_CUDA_OPTIONS_INIT
  const char* library;    // file name of the driver, borrowed during the call; NULL: libcuda.so.1
  const tide_heap* heap;  // borrowed until the machine is freed; NULL: malloc
} tide_cuda_options;
// clang-format off
#define TIDE_CUDA_OPTIONS_INIT                                                                       \
  { TIDE_FIELD(size, sizeof(tide_cuda_options)), TIDE_FIELD(library, NULL), TIDE_FIELD(heap, NULL) }
// clang-format on

// Creates a machine. NULL options mean the defaults.
// Errors: TIDE_ERR_ARGUMENT if an option is out of range; TIDE_ERR_NO_MEMORY; TIDE_ERR_UNSUPPORTED from
//         tide_machine_new_cuda() if there is no driver or no device. The error text says which.
// Cost:   host starts threads and takes memory only when they are needed. cuda retains the primary context of
//         a device at the first call that needs it, and shares that context with its other users.
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_host(const tide_host_options* options,
                                                          tide_machine** out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_dry(const tide_dry_options* options, tide_machine** out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_new_cuda(const tide_cuda_options* options,
                                                          tide_machine** out);

// Frees a machine. NULL is allowed. Host and dry wait for all queued work, then free every object that is
// still there; its addresses and handles become invalid. Cuda waits for nothing and frees only its own
// records: streams, events and memory stay in the driver's context.
// Threads: no other call on the machine may run at the same time or later.
TIDE_API void tide_machine_free(tide_machine* machine);

// "host", "dry", "cuda", or the name in the table of your own machine.
TIDE_API const char* tide_machine_name(const tide_machine* machine);
TIDE_API int tide_machine_device_count(const tide_machine* machine);

typedef struct tide_device_info {
  uint32_t size;           // set by TIDE_DEVICE_INFO_INIT
  int32_t least_priority;  // of streams; lower numbers mean higher priority
  int32_t greatest_priority;
  uint64_t total_bytes;       // memory of the device
  uint64_t granularity;       // unit of sizes and addresses of virtual memory; 0: no virtual memory
  bool is_host_readable;      // this process can read and write the memory of the device
  bool is_pinned_locked;      // pinned memory is really page-locked; host: false once the system refused
  bool has_raw_sharing;       // tide_machine_raw_export() works
  bool has_physical_sharing;  // tide_machine_physical_export() works
  char name[64];
  int32_t numa_node;      // nearest NUMA node; -1: unknown, or the computer has only one
  bool waits_on_release;  // tide_machine_raw_release() waits for all earlier work on the device
  // The device offers TIDE_PHYSICAL_RDMA, TIDE_PHYSICAL_FABRIC. Whether they work: tide_machine_probe().
  TIDE_ALIGNED(8) bool has_rdma;
  bool has_fabric;
} tide_device_info;
// clang-format off
#define TIDE_DEVICE_INFO_INIT                                                                 \
  { TIDE_FIELD(size, sizeof(tide_device_info)), TIDE_FIELD(least_priority, 0),                \
    TIDE_FIELD(greatest_priority, 0), TIDE_FIELD(total_bytes, 0), TIDE_FIELD(granularity, 0), \
    TIDE_FIELD(is_host_readable, false), TIDE_FIELD(is_pinned_locked, false),                 \
    TIDE_FIELD(has_raw_sharing, false), TIDE_FIELD(has_physical_sharing, false),              \
    TIDE_FIELD(name, { 0 }), TIDE_FIELD(numa_node, -1), TIDE_FIELD(waits_on_release, false),  \
    TIDE_FIELD(has_rdma, false), TIDE_FIELD(has_fabric, false) }
// clang-format on

TIDE_API TIDE_NODISCARD tide_status tide_machine_device_info(tide_machine* machine, int device,
                                                             tide_device_info* out);

// Free and total bytes of a device. On cuda, memory of other processes is not free; host and dry count only
// this machine.
TIDE_API TIDE_NODISCARD tide_status tide_machine_memory_info(tide_machine* machine, int device,
                                                             size_t* out_free, size_t* out_total);

// A monotonic clock in nanoseconds: that of the system on host and cuda, the virtual clock on dry.
TIDE_API TIDE_NODISCARD tide_status tide_machine_clock(tide_machine* machine, uint64_t* out_ns);

// ---------------------------------------------------------------------------------------------------
// Memory

// Allocates memory of a device at an address that the machine chooses, aligned to at least 512 bytes.
// Errors: TIDE_ERR_NO_MEMORY if the device is full or, on host, if the system has no mapping left.
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_alloc(tide_machine* machine, int device, size_t bytes,
                                                           void** out);

// Releases raw memory. No queued work may still use it, so synchronize first. On host and dry, a copy or fill
// whose memory was released before it ran is skipped. The next _synchronize call on that device reports it
// as TIDE_ERR_MACHINE.
// Errors: TIDE_ERR_ARGUMENT if raw_alloc did not return the address, or if it was released already.
TIDE_API tide_status tide_machine_raw_release(tide_machine* machine, int device, void* address);

// Allocates and releases page-locked host memory, which all devices can use. On dry it is only an address.
// Errors: TIDE_ERR_NO_MEMORY; for release: TIDE_ERR_ARGUMENT if pinned_alloc did not return the address.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pinned_alloc(tide_machine* machine, size_t bytes,
                                                              void** out);
TIDE_API tide_status tide_machine_pinned_release(tide_machine* machine, void* address);

// Memory of a device, or page-locked memory, as a source for planned arenas (memory.h). Its release waits for
// all work of the device first. An alignment that the machine cannot provide is TIDE_ERR_UNSUPPORTED.
TIDE_API tide_memory tide_machine_memory(tide_machine* machine, int device);
TIDE_API tide_memory tide_machine_pinned_memory(tide_machine* machine, int device);

// Page-locks memory that the caller owns, and unlocks it again. The range must stay mapped until it is
// unregistered.
// Errors: TIDE_ERR_ARGUMENT if the range overlaps registered memory or memory of pinned_alloc; for
//         unregister: if no registration begins at the address.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pinned_register(tide_machine* machine, void* address,
                                                                 size_t bytes);
TIDE_API tide_status tide_machine_pinned_unregister(tide_machine* machine, void* address);

// Reserves a range of addresses. It cannot be read or written until memory is mapped. `bytes` is a multiple
// of the granularity, and `alignment` is 0 or a power of two. `hint` is NULL or the preferred address; if it
// is taken, the range is placed elsewhere.
// Errors: TIDE_ERR_ARGUMENT, TIDE_ERR_NO_MEMORY.
TIDE_API TIDE_NODISCARD tide_status tide_machine_address_reserve(tide_machine* machine, int device,
                                                                 size_t bytes, size_t alignment, void* hint,
                                                                 void** out);

// Releases a whole reservation in which nothing is mapped.
// Errors: TIDE_ERR_ARGUMENT unless exactly this range was reserved; TIDE_ERR_STATE if memory is mapped in it.
TIDE_API tide_status tide_machine_address_release(tide_machine* machine, void* address, size_t bytes);

// Allocates physical memory of a device, without an address. `bytes` is a multiple of the granularity. The
// flags say what the memory is made for. Only memory made with TIDE_PHYSICAL_SHAREABLE can be exported;
// exporting other memory is TIDE_ERR_ARGUMENT. Host and dry accept the other two flags without an effect.
// Errors: TIDE_ERR_NO_MEMORY if the device is full; on cuda errors of the driver for flags that do not work.
#define TIDE_PHYSICAL_SHAREABLE 1u  // file descriptors for other processes
#define TIDE_PHYSICAL_RDMA 2u       // direct access by network cards (GPUDirect RDMA)
#define TIDE_PHYSICAL_FABRIC 4u     // fabric handles, which other libraries export to other computers
TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_new(tide_machine* machine, int device, size_t bytes,
                                                              uint32_t flags, tide_physical* out);

// Frees the handle. The memory itself is freed when no mapping of it is left, in this process or in one that
// imported it.
TIDE_API tide_status tide_machine_physical_free(tide_machine* machine, tide_physical physical);

// Maps all of `physical` at `address`, inside one reservation. The same memory may be mapped at several
// addresses. set_access() must allow its use.
// Errors: TIDE_ERR_ARGUMENT if the address is misaligned or not reserved, or if memory is mapped in the
//         range.
TIDE_API TIDE_NODISCARD tide_status tide_machine_map(tide_machine* machine, void* address,
                                                     tide_physical physical);

// Unmaps a range that consists of whole mappings without a gap. No queued work may still use it: see
// tide_machine_raw_release().
TIDE_API tide_status tide_machine_unmap(tide_machine* machine, void* address, size_t bytes);

typedef enum tide_access {
  TIDE_ACCESS_NONE = 0,
  TIDE_ACCESS_READ = 1,
  TIDE_ACCESS_READ_WRITE = 3
} tide_access;

// Sets the access of `device` to a range that consists of whole mappings without a gap.
TIDE_API TIDE_NODISCARD tide_status tide_machine_set_access(tide_machine* machine, void* address,
                                                            size_t bytes, int device, tide_access access);

// What a device can do, as a probe finds it. An attribute of a device is not enough: under WSL2 and on some
// virtual GPUs it says yes, and the first use fails.
typedef enum tide_feature {
  TIDE_FEATURE_VIRTUAL_MEMORY = 0,  // reserve, make, map, allow access, write, read, unmap and free
  TIDE_FEATURE_DESCRIPTORS = 1,     // virtual memory with TIDE_PHYSICAL_SHAREABLE
  TIDE_FEATURE_RDMA = 2,            // with TIDE_PHYSICAL_RDMA, and with descriptors where these work
  TIDE_FEATURE_FABRIC = 3,          // with TIDE_PHYSICAL_FABRIC, and with all of the above that works
  TIDE_FEATURE_COUNT
} tide_feature;

#define TIDE_PROBE_REASON 256

typedef struct tide_probe {
  uint32_t size;                   // set by TIDE_PROBE_INIT
  bool works;                      // the feature can be used, together with the features before it that work
  uint32_t call_count;             // calls that the probe of all features of the device made; 0: none
  char reason[TIDE_PROBE_REASON];  // why it does not work: the call and the machine's error; "" if it works
} tide_probe;
// clang-format off
#define TIDE_PROBE_INIT                                                                        \
  { TIDE_FIELD(size, sizeof(tide_probe)), TIDE_FIELD(works, false), TIDE_FIELD(call_count, 0), \
    TIDE_FIELD(reason, { 0 }) }
// clang-format on

// Returns whether a feature of a device works. The first call for a device tries all features, with one
// granule of memory, and remembers the results. Threads that ask at the same time may each try. What is tried
// is undone; only what the machine refuses twice to take back stays with it. If the device is too full to
// try, features that it offers count as working, except RDMA and fabric handles, and nothing is remembered.
// Faults apply to the calls of a probe, but tide_machine_call_stats() does not count them. On host and dry a
// probe is only made while faults are set, because their own virtual memory always works.
// Errors: TIDE_ERR_DEVICE, TIDE_ERR_ARGUMENT for an unknown feature, TIDE_ERR_NO_MEMORY for the record.
TIDE_API TIDE_NODISCARD tide_status tide_machine_probe(tide_machine* machine, int device,
                                                       tide_feature feature, tide_probe* out);
// The name of a feature, "virtual_memory"; "unknown" for other values.
TIDE_API const char* tide_feature_name(tide_feature feature);

typedef enum tide_memory_kind {
  TIDE_MEMORY_UNKNOWN = 0,   // not memory of this machine: ordinary host memory, or none
  TIDE_MEMORY_RAW = 1,       // inside memory of raw_alloc
  TIDE_MEMORY_PINNED = 2,    // inside memory of pinned_alloc or pinned_register
  TIDE_MEMORY_MAPPED = 3,    // inside a mapping
  TIDE_MEMORY_RESERVED = 4,  // inside a reservation where nothing is mapped
  TIDE_MEMORY_IMPORTED = 5   // inside memory of raw_import
} tide_memory_kind;

typedef struct tide_pointer_info {
  uint32_t size;   // set by TIDE_POINTER_INFO_INIT
  uint32_t kind;   // a tide_memory_kind
  int32_t device;  // that owns the memory; -1 if it is pinned, reserved or unknown
  void* base;      // first byte of the allocation, mapping or reservation
  uint64_t bytes;  // its size
} tide_pointer_info;
// clang-format off
#define TIDE_POINTER_INFO_INIT                                                                \
  { TIDE_FIELD(size, sizeof(tide_pointer_info)), TIDE_FIELD(kind, 0), TIDE_FIELD(device, -1), \
    TIDE_FIELD(base, NULL), TIDE_FIELD(bytes, 0) }
// clang-format on

// Describes the memory that a pointer points into. Any value is allowed; the pointer is never dereferenced.
// On cuda imported memory is reported as raw, and `base` and `bytes` of a mapping may be those of its
// reservation, because the driver does not distinguish them.
TIDE_API TIDE_NODISCARD tide_status tide_machine_pointer_info(tide_machine* machine, const void* pointer,
                                                              tide_pointer_info* out);

// ---------------------------------------------------------------------------------------------------
// Streams and events

#define TIDE_STREAM_NON_BLOCKING 1u  // the stream and the legacy stream do not wait for each other

// Creates a stream: a queue whose work runs in order, and concurrently with other streams. A priority out of
// range is clamped.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_new(tide_machine* machine, int device, uint32_t flags,
                                                            int priority, tide_stream* out);
// Frees a stream; its queued work still runs. A default stream is TIDE_ERR_ARGUMENT.
TIDE_API tide_status tide_machine_stream_free(tide_machine* machine, int device, tide_stream stream);
// Returns whether a stream is being captured, and its number. A handle may be reused for a new stream, but a
// number never is. The number is 0 if it is unknown: on cuda during a capture, and with drivers before CUDA
// 12.0. TIDE_STREAM_PER_THREAD means that of the calling thread. The call is safe during a capture, except on
// cuda while another thread begins one on this stream.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_info(tide_machine* machine, int device,
                                                             tide_stream stream, bool* out_captured,
                                                             uint64_t* out_number);
// Returns whether all work queued so far is done.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_query(tide_machine* machine, int device,
                                                              tide_stream stream, bool* out_idle);
// Waits for all work queued so far.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_synchronize(tide_machine* machine, int device,
                                                                    tide_stream stream);
// Makes later work of the stream wait for the last record of the event, which may belong to another device.
// Waiting for an event that was never recorded has no effect.
TIDE_API TIDE_NODISCARD tide_status tide_machine_stream_wait(tide_machine* machine, int device,
                                                             tide_stream stream, tide_event event);
// Waits for all work of a device.
TIDE_API TIDE_NODISCARD tide_status tide_machine_device_synchronize(tide_machine* machine, int device);

TIDE_API TIDE_NODISCARD tide_status tide_machine_event_new(tide_machine* machine, int device,
                                                           tide_event* out);
TIDE_API tide_status tide_machine_event_free(tide_machine* machine, tide_event event);
// Records the end of the work queued so far on a stream of the event's device. It replaces an earlier record.
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_record(tide_machine* machine, int device,
                                                              tide_event event, tide_stream stream);
// Records the end of the work queued so far on all streams of the event's device, also on streams that are
// freed. It makes no call on a stream. The event can be queried and synchronized. No stream should wait for
// it, because work before the record may wait for that stream.
// While a stream of the device is captured, the call returns TIDE_ERR_CAPTURE. The capture is not harmed,
// except on cuda that of a non-blocking stream, which the machine cannot notice: the driver invalidates it.
// Errors: also TIDE_ERR_UNSUPPORTED on cuda with drivers before CUDA 12.5.
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_record_all(tide_machine* machine, int device,
                                                                  tide_event event);
// Returns whether the work before the last record is done: true for an event that was never recorded. The
// second function waits for it.
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_query(tide_machine* machine, tide_event event,
                                                             bool* out_done);
TIDE_API TIDE_NODISCARD tide_status tide_machine_event_synchronize(tide_machine* machine, tide_event event);

// Queue work on a stream. Each end of a copy may be memory of any device, pinned memory, or ordinary host
// memory, which must stay valid and unchanged until the copy is done. The two ranges must not overlap. A copy
// between devices without peer access is staged. A fill needs memory that the stream's device may write. An
// address without memory is detected when the work runs. On host the rest of the work is skipped, and the
// next _synchronize call on that device reports it once as TIDE_ERR_MACHINE. On cuda the driver reports an
// error, and its context may be lost. With 0 bytes both are no-ops, whatever the addresses are: an empty
// tensor may have a NULL address.
// Errors: TIDE_ERR_ARGUMENT if a range leaves its allocation; TIDE_ERR_ACCESS without access to it.
TIDE_API TIDE_NODISCARD tide_status tide_machine_copy(tide_machine* machine, int device, tide_stream stream,
                                                      void* destination, const void* source, size_t bytes);
TIDE_API TIDE_NODISCARD tide_status tide_machine_fill(tide_machine* machine, int device, tide_stream stream,
                                                      void* destination, uint8_t value, size_t bytes);

// Queues a call of a function. Later work waits until it returns. The function must not call the machine: on
// host and dry such a call is TIDE_ERR_STATE. It runs on a thread of the machine. On dry it runs on the
// thread that queries or synchronizes a stream or event, and other threads that do so wait.
typedef void (*tide_call_fn)(void* user);
TIDE_API TIDE_NODISCARD tide_status tide_machine_call(tide_machine* machine, int device, tide_stream stream,
                                                      tide_call_fn function, void* user);

// ---------------------------------------------------------------------------------------------------
// Capture: work is recorded instead of run, and launched later, any number of times
//
// A stream joins a capture when it waits for an event that was recorded in it. Before the end, its work must
// be joined back into the stream on which the capture began, also by an event. Breaking a rule returns
// TIDE_ERR_CAPTURE and usually invalidates the capture: every call in it fails until capture_end, which fails
// too and ends it. These break a capture:
// - querying or synchronizing a captured stream, an event recorded in the capture, or its device;
// - waiting in the capture for work outside;
// - using the legacy stream while a blocking stream is captured;
// - ending the capture on another stream;
// - unsafe calls: those that allocate or release raw or pinned memory, and those that query or synchronize a
//   stream, an event or a device.
// Whether an unsafe call is refused depends on the mode of the calling thread:
// - GLOBAL: if the thread itself began a capture that is not RELAXED, or any thread began a GLOBAL one;
// - THREAD_LOCAL: if the thread itself began a capture that is not RELAXED;
// - RELAXED: never.
// A stream that is freed leaves its capture; if the capture began on it, the capture ends. An event that was
// recorded in a capture that has ended must be recorded again before it is used (TIDE_ERR_ARGUMENT).

typedef enum tide_capture_mode {
  TIDE_CAPTURE_GLOBAL = 0,  // the initial mode of a thread
  TIDE_CAPTURE_THREAD_LOCAL = 1,
  TIDE_CAPTURE_RELAXED = 2
} tide_capture_mode;

typedef enum tide_capture_state {
  TIDE_CAPTURE_NONE = 0,
  TIDE_CAPTURE_ACTIVE = 1,
  TIDE_CAPTURE_INVALIDATED = 2
} tide_capture_state;

// Sets the mode of the calling thread and returns the previous one.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_exchange(tide_machine* machine,
                                                                  tide_capture_mode mode,
                                                                  tide_capture_mode* out_before);
// Begins a capture. The legacy stream, and a stream that is being captured, are TIDE_ERR_CAPTURE.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_begin(tide_machine* machine, int device,
                                                               tide_stream stream, tide_capture_mode mode);
// Ends a capture, on the stream on which it began and, unless it is RELAXED, on the thread that began it.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_end(tide_machine* machine, int device,
                                                             tide_stream stream, tide_launch* out);
// Returns the state of a stream's capture and its id, which is 0 unless the capture is active. Each capture
// of a machine has a different id. The call is safe during a capture, also for the legacy stream.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_info(tide_machine* machine, int device,
                                                              tide_stream stream,
                                                              tide_capture_state* out_state,
                                                              uint64_t* out_id);
// Return the nodes on which the next work of a captured stream would depend, and the nodes on which a node
// depends. At most `capacity` nodes are written; `out_count` is the full number. A node lives as long as its
// capture and the graph made from it. A stream that is not being captured is TIDE_ERR_STATE.
TIDE_API TIDE_NODISCARD tide_status tide_machine_capture_terminals(tide_machine* machine, int device,
                                                                   tide_stream stream, tide_node* nodes,
                                                                   size_t capacity, size_t* out_count);
TIDE_API TIDE_NODISCARD tide_status tide_machine_node_dependencies(tide_machine* machine, tide_node node,
                                                                   tide_node* nodes, size_t capacity,
                                                                   size_t* out_count);
// Queues the captured work. Launches of the same graph run one after another. A launch cannot be captured.
TIDE_API TIDE_NODISCARD tide_status tide_machine_launch(tide_machine* machine, int device, tide_launch graph,
                                                        tide_stream stream);
// Frees a graph; launches that are queued still run.
TIDE_API tide_status tide_machine_launch_free(tide_machine* machine, tide_launch graph);

// ---------------------------------------------------------------------------------------------------
// Peers and other processes

// Returns whether `device` can get access to the memory of `peer`, another device; enables and disables that
// access. Enabling or disabling it twice is allowed.
TIDE_API TIDE_NODISCARD tide_status tide_machine_peer_query(tide_machine* machine, int device, int peer,
                                                            bool* out);
TIDE_API TIDE_NODISCARD tide_status tide_machine_peer_enable(tide_machine* machine, int device, int peer);
TIDE_API tide_status tide_machine_peer_disable(tide_machine* machine, int device, int peer);

// Identifies raw memory for another process of the same user. The bytes can be sent in any way.
typedef struct tide_raw_share {
  unsigned char bytes[64];
} tide_raw_share;

// Exports the whole allocation that begins at `address`. The exporter still owns it, and must not release it
// before it is imported.
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_export(tide_machine* machine, int device, void* address,
                                                            tide_raw_share* out);
// Opens exported memory in another process, until raw_unimport.
// Errors: TIDE_ERR_ARGUMENT if the bytes are not an export; TIDE_ERR_STATE in the exporting process, or if
//         the exporter has released the memory or has ended.
TIDE_API TIDE_NODISCARD tide_status tide_machine_raw_import(tide_machine* machine, int device,
                                                            const tide_raw_share* share, void** out);
TIDE_API tide_status tide_machine_raw_unimport(tide_machine* machine, void* address);

// Physical memory for another process: a file descriptor, to be sent over a Unix socket or inherited, and two
// numbers. The memory lives until its last handle, mapping and descriptor are gone, in all processes.
typedef struct tide_physical_share {
  int descriptor;   // owned by the caller of physical_export, who closes it after sending it
  uint64_t offset;  // 0 on import: where the descriptor itself says
  uint64_t bytes;
} tide_physical_share;

TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_export(tide_machine* machine,
                                                                 tide_physical physical,
                                                                 tide_physical_share* out);
// Imports physical memory, in another process or in the same one. The caller keeps the descriptor and may
// close it afterwards. Imported memory does not count as used memory of the importing device.
TIDE_API TIDE_NODISCARD tide_status tide_machine_physical_import(tide_machine* machine, int device,
                                                                 const tide_physical_share* share,
                                                                 tide_physical* out);

// ---------------------------------------------------------------------------------------------------
// Counters and faults

// Every kind of call, named like its function without tide_machine_.
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
  X(RAW_UNIMPORT, raw_unimport) X(PHYSICAL_EXPORT, physical_export) X(PHYSICAL_IMPORT, physical_import)    \
  X(EVENT_RECORD_ALL, event_record_all)

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
  uint64_t calls;
  uint64_t failures;  // calls that failed
  uint64_t ns;        // virtual time that the dry machine charged
} tide_call_stats;

// Counts of one kind of call on this machine, or of all kinds together (TIDE_CALL_ANY).
TIDE_API tide_call_stats tide_machine_call_stats(const tide_machine* machine, tide_call call);

// Faults: a fault makes calls of one kind, or of any kind, fail or take longer. A call that fails by a fault
// does not reach the machine.
typedef struct tide_fault {
  uint32_t size;         // set by TIDE_FAULT_INIT
  uint32_t call;         // a tide_call, or TIDE_CALL_ANY
  uint32_t status;       // the tide_status to return; TIDE_OK: only the latency applies
  uint64_t skip;         // matching calls to let pass first
  uint64_t count;        // matching calls to hit after that; UINT64_MAX: all
  uint64_t byte_budget;  // matching calls pass until their bytes together exceed this; 0: no budget
  uint64_t latency_ns;   // delay of each call that is hit; virtual time on dry
} tide_fault;
// clang-format off
#define TIDE_FAULT_INIT                                                                \
  { TIDE_FIELD(size, sizeof(tide_fault)), TIDE_FIELD(call, TIDE_CALL_ANY),             \
    TIDE_FIELD(status, TIDE_ERR_NO_MEMORY), TIDE_FIELD(skip, 0), TIDE_FIELD(count, 1), \
    TIDE_FIELD(byte_budget, 0), TIDE_FIELD(latency_ns, 0) }
// clang-format on

// Adds a fault, or removes all. At most 16 can be added, used-up ones included (TIDE_ERR_LIMIT). The first
// fault that hits a call decides its status.
TIDE_API TIDE_NODISCARD tide_status tide_machine_fault_add(tide_machine* machine, const tide_fault* fault);
TIDE_API void tide_machine_fault_clear(tide_machine* machine);

// ---------------------------------------------------------------------------------------------------
// Control of the dry machine (TIDE_ERR_UNSUPPORTED on others)
//
// Each call costs the virtual time of tide_dry_costs. Work on a stream takes no time, except copies between
// host and device, and that of tide_dry_work(). The clock moves by the cost of calls, by tide_dry_advance(),
// and by _synchronize calls, which move it to the end of the work that they wait for.

// Advances the virtual clock.
TIDE_API TIDE_NODISCARD tide_status tide_dry_advance(tide_machine* machine, uint64_t ns);
// Queues work that takes `ns` of virtual time.
TIDE_API TIDE_NODISCARD tide_status tide_dry_work(tide_machine* machine, int device, tide_stream stream,
                                                  uint64_t ns);
// Holds a stream before its next work, or lets it continue. Waiting for work of a held stream would never
// end: such a _synchronize call runs the work that can run and returns TIDE_ERR_STATE. Freeing a stream ends
// the hold.
TIDE_API TIDE_NODISCARD tide_status tide_dry_hold(tide_machine* machine, int device, tide_stream stream,
                                                  bool is_held);
// Finishes the work before the last record of an event now, even if its stream is held.
TIDE_API TIDE_NODISCARD tide_status tide_dry_finish(tide_machine* machine, tide_event event);

// Sets the address that the next raw_alloc or address_reserve on a device returns. Each of the two calls has
// a queue of such addresses. An address that is taken or misaligned is used up, and the call fails with
// TIDE_ERR_ARGUMENT.
TIDE_API TIDE_NODISCARD tide_status tide_dry_dictate(tide_machine* machine, int device, tide_call call,
                                                     void* address);

TIDE_END_DECLS
#endif
