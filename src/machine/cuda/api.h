// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Our own declarations of the used part of the CUDA driver, so that building needs no CUDA headers. If cuda.h
// is found, cuda_check.c compares every constant, struct and prototype with it.
//
// Types are written CU(name), so that the list of functions can be used twice: with our types to call the
// driver, and with the driver's own types to compare.
#ifndef TIDEMARK_SRC_MACHINE_CUDA_API_H
#define TIDEMARK_SRC_MACHINE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t tide__cu_result;
typedef int tide__cu_device;
typedef struct CUctx_st* tide__cu_context;
typedef struct CUstream_st* tide__cu_stream;
typedef struct CUevent_st* tide__cu_event;
typedef struct CUgraph_st* tide__cu_graph;
typedef struct CUgraphNode_st* tide__cu_node;
typedef struct CUgraphExec_st* tide__cu_exec;
typedef unsigned long long tide__cu_pointer;
typedef unsigned long long tide__cu_handle;
typedef uint64_t tide__cu_id;
typedef void (*tide__cu_function)(void* user);
typedef uint32_t tide__cu_attribute;
typedef uint32_t tide__cu_pointer_attribute;
typedef uint32_t tide__cu_capture_mode;
typedef uint32_t tide__cu_capture_status;
typedef uint32_t tide__cu_handle_type;
typedef uint32_t tide__cu_granularity;
typedef struct CUgraphEdgeData_st tide__cu_edge;  // opaque here

typedef struct tide__cu_location {
  uint32_t type;
  int id;
} tide__cu_location;

typedef struct tide__cu_access {
  tide__cu_location location;
  uint32_t flags;
} tide__cu_access;

typedef struct tide__cu_memory {
  uint32_t type;
  uint32_t handle_types;
  tide__cu_location location;
  void* windows;
  struct {
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} tide__cu_memory;

typedef struct tide__cu_share {
  char bytes[64];
} tide__cu_share;

// Constants: our name, value, the driver's name.
#define TIDE__CUDA_CONSTANT_MAP(X)                                                                \
  X(SUCCESS, 0, CUDA_SUCCESS)                                                                     \
  X(INVALID_VALUE, 1, CUDA_ERROR_INVALID_VALUE)                                                   \
  X(OUT_OF_MEMORY, 2, CUDA_ERROR_OUT_OF_MEMORY)                                                   \
  X(NO_DEVICE, 100, CUDA_ERROR_NO_DEVICE)                                                         \
  X(INVALID_DEVICE, 101, CUDA_ERROR_INVALID_DEVICE)                                               \
  X(INVALID_CONTEXT, 201, CUDA_ERROR_INVALID_CONTEXT)                                             \
  X(MAP_FAILED, 205, CUDA_ERROR_MAP_FAILED)                                                       \
  X(PEER_UNSUPPORTED, 217, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)                                    \
  X(INVALID_HANDLE, 400, CUDA_ERROR_INVALID_HANDLE)                                               \
  X(ILLEGAL_STATE, 401, CUDA_ERROR_ILLEGAL_STATE)                                                 \
  X(NOT_FOUND, 500, CUDA_ERROR_NOT_FOUND)                                                         \
  X(NOT_READY, 600, CUDA_ERROR_NOT_READY)                                                         \
  X(PEER_ALREADY_ENABLED, 704, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)                            \
  X(PEER_NOT_ENABLED, 705, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)                                    \
  X(ALREADY_REGISTERED, 712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)                           \
  X(NOT_REGISTERED, 713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)                                   \
  X(NOT_PERMITTED, 800, CUDA_ERROR_NOT_PERMITTED)                                                 \
  X(NOT_SUPPORTED, 801, CUDA_ERROR_NOT_SUPPORTED)                                                 \
  X(CAPTURE_FIRST, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                    \
  X(CAPTURE_IMPLICIT, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)                                    \
  X(CAPTURE_LAST, 908, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)                                    \
  X(STREAM_NON_BLOCKING, 1, CU_STREAM_NON_BLOCKING)                                               \
  X(EVENT_DISABLE_TIMING, 2, CU_EVENT_DISABLE_TIMING)                                             \
  X(HOST_PORTABLE, 1, CU_MEMHOSTALLOC_PORTABLE)                                                   \
  X(REGISTER_PORTABLE, 1, CU_MEMHOSTREGISTER_PORTABLE)                                            \
  X(IPC_LAZY_PEER, 1, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)                                         \
  X(MEMORY_HOST, 1, CU_MEMORYTYPE_HOST)                                                           \
  X(MEMORY_DEVICE, 2, CU_MEMORYTYPE_DEVICE)                                                       \
  X(POINTER_MEMORY_TYPE, 2, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)                                     \
  X(POINTER_DEVICE, 9, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)                                       \
  X(POINTER_RANGE_BEGIN, 11, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)                               \
  X(POINTER_RANGE_BYTES, 12, CU_POINTER_ATTRIBUTE_RANGE_SIZE)                                     \
  X(DEVICE_HAS_VIRTUAL_MEMORY, 102, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)      \
  X(DEVICE_HAS_DESCRIPTORS, 103, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
  X(DEVICE_HAS_RDMA, 110, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)            \
  X(ALLOCATION_PINNED, 1, CU_MEM_ALLOCATION_TYPE_PINNED)                                          \
  X(LOCATION_DEVICE, 1, CU_MEM_LOCATION_TYPE_DEVICE)                                              \
  X(HANDLE_DESCRIPTOR, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                               \
  X(GRANULARITY_MINIMUM, 0, CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                     \
  X(ACCESS_NONE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE)                                                \
  X(ACCESS_READ, 1, CU_MEM_ACCESS_FLAGS_PROT_READ)                                                \
  X(ACCESS_READ_WRITE, 3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                     \
  X(MODE_GLOBAL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL)                                                \
  X(MODE_THREAD_LOCAL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)                                    \
  X(MODE_RELAXED, 2, CU_STREAM_CAPTURE_MODE_RELAXED)                                              \
  X(STATUS_NONE, 0, CU_STREAM_CAPTURE_STATUS_NONE)                                                \
  X(STATUS_ACTIVE, 1, CU_STREAM_CAPTURE_STATUS_ACTIVE)                                            \
  X(STATUS_INVALIDATED, 2, CU_STREAM_CAPTURE_STATUS_INVALIDATED)

// Constants that headers before CUDA 12.3 do not define. Older drivers refuse them.
#define TIDE__CUDA_NEWER_CONSTANT_MAP(X)                                      \
  X(DEVICE_HAS_FABRIC, 128, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) \
  X(DEVICE_HOST_NODE, 134, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)                  \
  X(HANDLE_FABRIC, 8, CU_MEM_HANDLE_TYPE_FABRIC)

enum {
#define CUDA_CONSTANT(name, value, theirs) TIDE__CU_##name = value,
  TIDE__CUDA_CONSTANT_MAP(CUDA_CONSTANT) TIDE__CUDA_NEWER_CONSTANT_MAP(CUDA_CONSTANT)
#undef CUDA_CONSTANT
};

#define CU(name) tide__cu_##name

// Functions that every driver has (since CUDA 11.3): our name, the driver's symbol, parameters.
#define TIDE__CUDA_FUNCTION_MAP(X)                                                                           \
  X(init, cuInit, (unsigned flags))                                                                          \
  X(error_name, cuGetErrorName, (CU(result) error, const char** out))                                        \
  X(device_count, cuDeviceGetCount, (int* out))                                                              \
  X(device_get, cuDeviceGet, (CU(device) * out, int ordinal))                                                \
  X(device_name, cuDeviceGetName, (char* out, int bytes, CU(device) device))                                 \
  X(device_bytes, cuDeviceTotalMem_v2, (size_t * out, CU(device) device))                                    \
  X(device_attribute, cuDeviceGetAttribute, (int* out, CU(attribute) attribute, CU(device) device))          \
  X(context_retain, cuDevicePrimaryCtxRetain, (CU(context) * out, CU(device) device))                        \
  X(context_release, cuDevicePrimaryCtxRelease_v2, (CU(device) device))                                      \
  X(context_current, cuCtxGetCurrent, (CU(context) * out))                                                   \
  X(context_push, cuCtxPushCurrent_v2, (CU(context) context))                                                \
  X(context_pop, cuCtxPopCurrent_v2, (CU(context) * out))                                                    \
  X(context_synchronize, cuCtxSynchronize, (void))                                                           \
  X(priority_range, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                                \
  X(peer_query, cuDeviceCanAccessPeer, (int* out, CU(device) device, CU(device) peer))                       \
  X(peer_enable, cuCtxEnablePeerAccess, (CU(context) peer, unsigned flags))                                  \
  X(peer_disable, cuCtxDisablePeerAccess, (CU(context) peer))                                                \
  X(memory_info, cuMemGetInfo_v2, (size_t * out_free, size_t * out_total))                                   \
  X(raw_alloc, cuMemAlloc_v2, (CU(pointer) * out, size_t bytes))                                             \
  X(raw_free, cuMemFree_v2, (CU(pointer) address))                                                           \
  X(raw_range, cuMemGetAddressRange_v2, (CU(pointer) * out_base, size_t * out_bytes, CU(pointer) address))   \
  X(host_alloc, cuMemHostAlloc, (void** out, size_t bytes, unsigned flags))                                  \
  X(host_free, cuMemFreeHost, (void* address))                                                               \
  X(host_register, cuMemHostRegister_v2, (void* address, size_t bytes, unsigned flags))                      \
  X(host_unregister, cuMemHostUnregister, (void* address))                                                   \
  X(pointer_attribute, cuPointerGetAttribute,                                                                \
    (void* out, CU(pointer_attribute) attribute, CU(pointer) address))                                       \
  X(granularity, cuMemGetAllocationGranularity,                                                              \
    (size_t * out, const CU(memory) * memory, CU(granularity) which))                                        \
  X(reserve, cuMemAddressReserve,                                                                            \
    (CU(pointer) * out, size_t bytes, size_t alignment, CU(pointer) hint, unsigned long long flags))         \
  X(unreserve, cuMemAddressFree, (CU(pointer) address, size_t bytes))                                        \
  X(create, cuMemCreate,                                                                                     \
    (CU(handle) * out, size_t bytes, const CU(memory) * memory, unsigned long long flags))                   \
  X(release, cuMemRelease, (CU(handle) handle))                                                              \
  X(retain, cuMemRetainAllocationHandle, (CU(handle) * out, void* address))                                  \
  X(map, cuMemMap,                                                                                           \
    (CU(pointer) address, size_t bytes, size_t offset, CU(handle) handle, unsigned long long flags))         \
  X(unmap, cuMemUnmap, (CU(pointer) address, size_t bytes))                                                  \
  X(set_access, cuMemSetAccess,                                                                              \
    (CU(pointer) address, size_t bytes, const CU(access) * access, size_t count))                            \
  X(handle_export, cuMemExportToShareableHandle,                                                             \
    (void* out, CU(handle) handle, CU(handle_type) type, unsigned long long flags))                          \
  X(handle_import, cuMemImportFromShareableHandle, (CU(handle) * out, void* shared, CU(handle_type) type))   \
  X(share_get, cuIpcGetMemHandle, (CU(share) * out, CU(pointer) address))                                    \
  X(share_open, cuIpcOpenMemHandle_v2, (CU(pointer) * out, CU(share) share, unsigned flags))                 \
  X(share_close, cuIpcCloseMemHandle, (CU(pointer) address))                                                 \
  X(stream_create, cuStreamCreateWithPriority, (CU(stream) * out, unsigned flags, int priority))             \
  X(stream_destroy, cuStreamDestroy_v2, (CU(stream) stream))                                                 \
  X(stream_query, cuStreamQuery, (CU(stream) stream))                                                        \
  X(stream_synchronize, cuStreamSynchronize, (CU(stream) stream))                                            \
  X(stream_wait, cuStreamWaitEvent, (CU(stream) stream, CU(event) event, unsigned flags))                    \
  X(event_create, cuEventCreate, (CU(event) * out, unsigned flags))                                          \
  X(event_destroy, cuEventDestroy_v2, (CU(event) event))                                                     \
  X(event_record, cuEventRecord, (CU(event) event, CU(stream) stream))                                       \
  X(event_query, cuEventQuery, (CU(event) event))                                                            \
  X(event_synchronize, cuEventSynchronize, (CU(event) event))                                                \
  X(copy, cuMemcpyAsync, (CU(pointer) destination, CU(pointer) source, size_t bytes, CU(stream) stream))     \
  X(copy_peer, cuMemcpyPeerAsync,                                                                            \
    (CU(pointer) destination, CU(context) destination_context, CU(pointer) source,                           \
     CU(context) source_context, size_t bytes, CU(stream) stream))                                           \
  X(fill, cuMemsetD8Async, (CU(pointer) destination, unsigned char value, size_t bytes, CU(stream) stream))  \
  X(call, cuLaunchHostFunc, (CU(stream) stream, CU(function) function, void* user))                          \
  X(capture_exchange, cuThreadExchangeStreamCaptureMode, (CU(capture_mode) * inout))                         \
  X(capture_begin, cuStreamBeginCapture_v2, (CU(stream) stream, CU(capture_mode) mode))                      \
  X(capture_end, cuStreamEndCapture, (CU(stream) stream, CU(graph) * out))                                   \
  X(capture_info_v2, cuStreamGetCaptureInfo_v2,                                                              \
    (CU(stream) stream, CU(capture_status) * out_status, CU(id) * out_id, CU(graph) * out_graph,             \
     const CU(node) * *out_nodes, size_t * out_count))                                                       \
  X(node_dependencies_v1, cuGraphNodeGetDependencies, (CU(node) node, CU(node) * out, size_t * inout_count)) \
  X(instantiate, cuGraphInstantiateWithFlags, (CU(exec) * out, CU(graph) graph, unsigned long long flags))   \
  X(launch, cuGraphLaunch, (CU(exec) exec, CU(stream) stream))                                               \
  X(exec_destroy, cuGraphExecDestroy, (CU(exec) exec))                                                       \
  X(graph_destroy, cuGraphDestroy, (CU(graph) graph))

// Functions of newer drivers: ids of streams (CUDA 12.0), edges that carry data (12.3), events of a whole
// context (12.5). NULL in older drivers.
#define TIDE__CUDA_NEWER_MAP(X)                                                                  \
  X(stream_number, cuStreamGetId, (CU(stream) stream, unsigned long long* out))                  \
  X(capture_info_v3, cuStreamGetCaptureInfo_v3,                                                  \
    (CU(stream) stream, CU(capture_status) * out_status, CU(id) * out_id, CU(graph) * out_graph, \
     const CU(node) * *out_nodes, const CU(edge) * *out_edges, size_t * out_count))              \
  X(node_dependencies_v2, cuGraphNodeGetDependencies_v2,                                         \
    (CU(node) node, CU(node) * out, CU(edge) * out_edges, size_t * inout_count))                 \
  X(context_record, cuCtxRecordEvent, (CU(context) context, CU(event) event))

typedef struct tide__cuda_api {
#define CUDA_FUNCTION(name, symbol, parameters) CU(result)(*name) parameters;
  TIDE__CUDA_FUNCTION_MAP(CUDA_FUNCTION)
  TIDE__CUDA_NEWER_MAP(CUDA_FUNCTION)
#undef CUDA_FUNCTION
} tide__cuda_api;

#endif
