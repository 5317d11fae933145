// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's CUDA streams; each thread has a current one. As in PyTorch, the id of another
// library's stream is its handle, and that of a stream of PyTorch's own is not.
#pragma once

#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

class CUDAStream {
public:
  explicit CUDAStream(c10::Stream stream) : inner(stream) {}
  cudaStream_t stream() const {
    return reinterpret_cast<cudaStream_t>(static_cast<intptr_t>(inner.id()) & ~own);
  }
  StreamId id() const { return inner.id(); }
  DeviceIndex device_index() const { return inner.device_index(); }
  c10::Stream unwrap() const { return inner; }
  static constexpr intptr_t own = intptr_t{ 1 } << 62;  // in the id of a stream of PyTorch's own

private:
  c10::Stream inner;
};

CUDAStream getCurrentCUDAStream(DeviceIndex device = -1);

inline CUDAStream getOwnStream(cudaStream_t stream, DeviceIndex device) {
  const intptr_t number = reinterpret_cast<intptr_t>(stream) | (stream != nullptr ? CUDAStream::own : 0);
  return CUDAStream(c10::Stream(Device(kCUDA, device), static_cast<int64_t>(number)));
}

inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex device) {
  return CUDAStream(
      c10::Stream(Device(kCUDA, device), static_cast<int64_t>(reinterpret_cast<intptr_t>(stream))));
}

}  // namespace c10::cuda
