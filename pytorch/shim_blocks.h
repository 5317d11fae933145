// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks as PyTorch asks for them: on a stream, by their address, and with PyTorch's exceptions.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <atomic>

#include "shim_devices.h"
#include "shim_look.h"

namespace tidemark {

// A stream that a request is made on. PyTorch never destroys streams of its own. The id of another library's
// stream is its handle, and that library may destroy it at any time.
struct Place {
  explicit Place(const c10::cuda::CUDAStream& stream)
      : handle(stream.stream()), is_external(stream.id() == reinterpret_cast<intptr_t>(handle)) {}

  // A stream that is known by its handle alone counts as external, unless it is the current one.
  Place(cudaStream_t stream, const Place& current)
      : handle(stream), is_external(stream != current.handle || current.is_external) {}

  static Place now(c10::DeviceIndex index) { return Place(c10::cuda::getCurrentCUDAStream(index)); }

  cudaStream_t handle;
  bool is_external;  // also true for the default stream, which the library knows
};

// Throws PyTorch's own exception if there is no memory.
void* take(int index, size_t bytes, const Place& place);
// The same at an address, a multiple of 512; throws PyTorch's plain error if that is not idle on the stream.
void* take_at(int index, size_t bytes, const Place& place, void* address);
// Also the deleter of tensors. In a forked child it does nothing.
void give(void* address);

// Writes the largest holders of live memory into a text; the Python package sets it.
using HolderWriter = void (*)(int device, char* text, size_t capacity);
extern std::atomic<HolderWriter> name_holders;

}  // namespace tidemark
