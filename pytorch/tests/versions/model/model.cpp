// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of the running PyTorch: its tables of allocators, the current stream, and the profiler.
#include "model.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>

#include <cstring>
#include <native.h>

namespace {

// An entry of a table of allocators: one with a lower priority does not replace it.
template <typename Type> struct Entry {
  std::atomic<Type*> allocator{ nullptr };
  uint8_t priority = 0;
  void set(Type* wanted, uint8_t with) {
    if (with < priority) return;
    priority = with;
    allocator.store(wanted);
  }
};
Entry<c10::Allocator> of_device[2];
Entry<at::HostAllocator> of_host[2];

}  // namespace

namespace c10 {

void SetAllocator(DeviceType type, Allocator* allocator, uint8_t priority) {
  of_device[static_cast<int>(type)].set(allocator, priority);
}
Allocator* GetAllocator(DeviceType type) { return of_device[static_cast<int>(type)].allocator.load(); }

bool memoryProfilingEnabled() { return model::is_profiling.load(); }
void reportMemoryUsageToProfiler(void*, int64_t bytes, size_t, size_t, Device) {
  model::profiled_bytes += bytes;
}
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) { model::profiled_ooms++; }

void warn(const Warning& warning) {
  model::warnings++;
  model::last_warning = warning.text;
}

FreeMemoryRegistry* FreeCudaMemoryCallbacksRegistry() {
  static FreeMemoryRegistry registry;
  return &registry;
}

}  // namespace c10

namespace c10::cuda {

DeviceIndex current_device() { return static_cast<DeviceIndex>(model::device); }
CUDAStream getCurrentCUDAStream(DeviceIndex device) {
  const DeviceIndex index = device >= 0 ? device : current_device();
  return model::is_external ? getStreamFromExternal(model::stream, index)
                            : getOwnStream(model::stream, index);
}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{ nullptr };
}

}  // namespace c10::cuda

namespace at {

void setHostAllocator(c10::DeviceType type, HostAllocator* allocator, uint8_t priority) {
  of_host[static_cast<int>(type)].set(allocator, priority);
}
HostAllocator* getHostAllocator(c10::DeviceType type) {
  return of_host[static_cast<int>(type)].allocator.load();
}

}  // namespace at

// Memory of the host machine's devices is ordinary memory.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}

namespace model {

void start() {
  static Native native;
  c10::SetAllocator(c10::kCUDA, &native, MODEL_NATIVE_PRIORITY);
  c10::cuda::CUDACachingAllocator::allocator.store(&native);
}

}  // namespace model
