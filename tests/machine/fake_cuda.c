// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The functions of the fake driver that do something: devices, contexts, what an address is, copies.
#include "machine/fake_cuda.h"

#define PROTOTYPE(name, symbol, parameters) tide__cu_result symbol parameters;
TIDE__CUDA_FUNCTION_MAP(PROTOTYPE)
#undef PROTOTYPE

extern fake_cuda_state fake_cuda;
fake_cuda_state fake_cuda = { .device_count = 2 };

enum { CONTEXTS_MOST = 8 };
static _Thread_local tide__cu_context stack[CONTEXTS_MOST];
static _Thread_local int depth;

// ---------------------------------------------------------------------------------------------------
// Devices and contexts

tide__cu_result cuInit(unsigned flags) { return flags == 0 ? TIDE__CU_SUCCESS : TIDE__CU_INVALID_VALUE; }

tide__cu_result cuDeviceGetCount(int* out) {
  *out = fake_cuda.device_count;
  return TIDE__CU_SUCCESS;
}

tide__cu_result cuDeviceGet(tide__cu_device* out, int ordinal) {
  *out = ordinal;
  return TIDE__CU_SUCCESS;
}

tide__cu_result cuDevicePrimaryCtxRetain(tide__cu_context* out, tide__cu_device device) {
  *out = (tide__cu_context)(uintptr_t)(device + 1);
  return TIDE__CU_SUCCESS;
}

tide__cu_result cuDevicePrimaryCtxRelease_v2(tide__cu_device device) {
  return device < fake_cuda.device_count ? TIDE__CU_SUCCESS : TIDE__CU_INVALID_DEVICE;
}

tide__cu_result cuCtxGetCurrent(tide__cu_context* out) {
  *out = depth > 0 ? stack[depth - 1] : NULL;
  return TIDE__CU_SUCCESS;
}

tide__cu_result cuCtxPushCurrent_v2(tide__cu_context context) {
  if (depth == CONTEXTS_MOST) return TIDE__CU_INVALID_CONTEXT;
  stack[depth++] = context;
  return TIDE__CU_SUCCESS;
}

tide__cu_result cuCtxPopCurrent_v2(tide__cu_context* out) {
  if (depth == 0) return TIDE__CU_INVALID_CONTEXT;
  *out = stack[--depth];
  return TIDE__CU_SUCCESS;
}

// ---------------------------------------------------------------------------------------------------
// Addresses and copies

// Both attributes are asked for in 32 bits. The driver knows no ordinary host memory.
tide__cu_result cuPointerGetAttribute(void* out, tide__cu_pointer_attribute attribute,
                                      tide__cu_pointer address) {
  const uint64_t device = address / FAKE_CUDA_DEVICE_BYTES;
  if (device == 0 || device > (uint64_t)fake_cuda.device_count) return TIDE__CU_INVALID_VALUE;
  if (attribute == TIDE__CU_POINTER_MEMORY_TYPE) *(uint32_t*)out = TIDE__CU_MEMORY_DEVICE;
  else if (attribute == TIDE__CU_POINTER_DEVICE) *(int*)out = (int)device - 1;
  else return TIDE__CU_INVALID_VALUE;
  return TIDE__CU_SUCCESS;
}

static tide__cu_result copy_note(tide__cu_pointer destination, tide__cu_pointer source, size_t bytes,
                                 tide__cu_stream stream) {
  fake_cuda.destination = destination;
  fake_cuda.source = source;
  fake_cuda.bytes = bytes;
  fake_cuda.stream = stream;
  return cuCtxGetCurrent(&fake_cuda.current);
}

tide__cu_result cuMemcpyAsync(tide__cu_pointer destination, tide__cu_pointer source, size_t bytes,
                              tide__cu_stream stream) {
  fake_cuda.plain_copies++;
  fake_cuda.contexts[0] = fake_cuda.contexts[1] = NULL;
  return copy_note(destination, source, bytes, stream);
}

tide__cu_result cuMemcpyPeerAsync(tide__cu_pointer destination, tide__cu_context destination_context,
                                  tide__cu_pointer source, tide__cu_context source_context, size_t bytes,
                                  tide__cu_stream stream) {
  fake_cuda.peer_copies++;
  fake_cuda.contexts[0] = destination_context;
  fake_cuda.contexts[1] = source_context;
  return copy_note(destination, source, bytes, stream);
}
