// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Compares our declarations of the CUDA driver with cuda.h, if it was found at configuration. Generates no
// code.
#ifdef TIDEMARK_HAVE_CUDA_H

#define __CUDA_API_VERSION_INTERNAL 1  // declares every version of a function under its own name
#include <cuda.h>

#include "base/check.h"
#include "machine/cuda/api.h"
#include "tidemark/machine.h"

// Constants
#define CHECK_CONSTANT(name, value, theirs) TIDE_STATIC_ASSERT((int)(theirs) == TIDE__CU_##name);
TIDE__CUDA_CONSTANT_MAP(CHECK_CONSTANT)
#if CUDA_VERSION >= 12030
TIDE__CUDA_NEWER_CONSTANT_MAP(CHECK_CONSTANT)
#endif

// Handles of the default streams are passed to the driver unchanged. Only gcc can compare pointers at compile
// time.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
TIDE_STATIC_ASSERT((uintptr_t)CU_STREAM_LEGACY == (uintptr_t)TIDE_STREAM_LEGACY);
TIDE_STATIC_ASSERT((uintptr_t)CU_STREAM_PER_THREAD == (uintptr_t)TIDE_STREAM_PER_THREAD);
#pragma GCC diagnostic pop
#endif

// Structs
#define CHECK_FIELD(ours, mine, theirs, field)                         \
  TIDE_STATIC_ASSERT(offsetof(ours, mine) == offsetof(theirs, field)); \
  TIDE_STATIC_ASSERT(sizeof(((ours*)0)->mine) == sizeof(((theirs*)0)->field))

TIDE_STATIC_ASSERT(sizeof(tide__cu_location) == sizeof(CUmemLocation));
CHECK_FIELD(tide__cu_location, type, CUmemLocation, type);
CHECK_FIELD(tide__cu_location, id, CUmemLocation, id);
TIDE_STATIC_ASSERT(sizeof(tide__cu_access) == sizeof(CUmemAccessDesc));
CHECK_FIELD(tide__cu_access, location, CUmemAccessDesc, location);
CHECK_FIELD(tide__cu_access, flags, CUmemAccessDesc, flags);
TIDE_STATIC_ASSERT(sizeof(tide__cu_memory) == sizeof(CUmemAllocationProp));
CHECK_FIELD(tide__cu_memory, type, CUmemAllocationProp, type);
CHECK_FIELD(tide__cu_memory, handle_types, CUmemAllocationProp, requestedHandleTypes);
CHECK_FIELD(tide__cu_memory, location, CUmemAllocationProp, location);
CHECK_FIELD(tide__cu_memory, windows, CUmemAllocationProp, win32HandleMetaData);
CHECK_FIELD(tide__cu_memory, flags, CUmemAllocationProp, allocFlags);
CHECK_FIELD(tide__cu_memory, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
CHECK_FIELD(tide__cu_memory, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
CHECK_FIELD(tide__cu_memory, flags.usage, CUmemAllocationProp, allocFlags.usage);
TIDE_STATIC_ASSERT(sizeof(tide__cu_share) == sizeof(CUipcMemHandle));
TIDE_STATIC_ASSERT(sizeof(tide__cu_handle) == sizeof(CUmemGenericAllocationHandle));
TIDE_STATIC_ASSERT(sizeof(tide__cu_pointer) == sizeof(CUdeviceptr));

// Types that we declare as numbers have the same size.
TIDE_STATIC_ASSERT(sizeof(tide__cu_result) == sizeof(CUresult));
TIDE_STATIC_ASSERT(sizeof(tide__cu_device) == sizeof(CUdevice));
TIDE_STATIC_ASSERT(sizeof(tide__cu_attribute) == sizeof(CUdevice_attribute));
TIDE_STATIC_ASSERT(sizeof(tide__cu_pointer_attribute) == sizeof(CUpointer_attribute));
TIDE_STATIC_ASSERT(sizeof(tide__cu_capture_mode) == sizeof(CUstreamCaptureMode));
TIDE_STATIC_ASSERT(sizeof(tide__cu_capture_status) == sizeof(CUstreamCaptureStatus));
TIDE_STATIC_ASSERT(sizeof(tide__cu_handle_type) == sizeof(CUmemAllocationHandleType));
TIDE_STATIC_ASSERT(sizeof(tide__cu_granularity) == sizeof(CUmemAllocationGranularity_flags));
TIDE_STATIC_ASSERT(sizeof(tide__cu_id) == sizeof(cuuint64_t));

// Prototypes: the list again, with the driver's own types
typedef CUresult check_result;
typedef CUdevice check_device;
typedef CUcontext check_context;
typedef CUstream check_stream;
typedef CUevent check_event;
typedef CUgraph check_graph;
typedef CUgraphNode check_node;
typedef CUgraphExec check_exec;
typedef CUdeviceptr check_pointer;
typedef CUmemGenericAllocationHandle check_handle;
typedef cuuint64_t check_id;
typedef CUhostFn check_function;
typedef CUdevice_attribute check_attribute;
typedef CUpointer_attribute check_pointer_attribute;
typedef CUstreamCaptureMode check_capture_mode;
typedef CUstreamCaptureStatus check_capture_status;
typedef CUmemAllocationHandleType check_handle_type;
typedef CUmemAllocationGranularity_flags check_granularity;
typedef CUgraphEdgeData check_edge;
typedef CUmemAccessDesc check_access;
typedef CUmemAllocationProp check_memory;
typedef CUipcMemHandle check_share;

#undef CU
#define CU(name) check_##name
#define CHECK_FUNCTION(name, symbol, parameters) \
  TIDE_STATIC_ASSERT(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters));
TIDE__CUDA_FUNCTION_MAP(CHECK_FUNCTION)
#if CUDA_VERSION >= 12050
TIDE__CUDA_NEWER_MAP(CHECK_FUNCTION)
#endif

#else
typedef int tide__cuda_check_is_off;  // a C file may not be empty
#endif
