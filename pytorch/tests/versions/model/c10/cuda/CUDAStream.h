// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's CUDA streams; each thread has a current one.
#pragma once

#include <c10/core/Stream.h>
#include <cuda_runtime_api.h>

namespace c10::cuda {

class CUDAStream {
public:
  explicit CUDAStream(c10::Stream stream) : inner(stream) {}
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(static_cast<intptr_t>(inner.id())); }
  DeviceIndex device_index() const { return inner.device_index(); }
  c10::Stream unwrap() const { return inner; }

private:
  c10::Stream inner;
};

CUDAStream getCurrentCUDAStream(DeviceIndex device = -1);

inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex device) {
  return CUDAStream(
      c10::Stream(Device(kCUDA, device), static_cast<int64_t>(reinterpret_cast<intptr_t>(stream))));
}

}  // namespace c10::cuda
