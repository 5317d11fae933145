// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's trace of memory: nobody listens.
#pragma once

#include <c10/core/DataPtr.h>

namespace c10::impl {

struct PyInterpreterVTable {
  virtual ~PyInterpreterVTable() = default;
  virtual void trace_gpu_memory_allocation(DeviceType type, uintptr_t address) const = 0;
  virtual void trace_gpu_memory_deallocation(DeviceType type, uintptr_t address) const = 0;
};

struct PyInterpreter {
  const PyInterpreterVTable* table = nullptr;
  const PyInterpreterVTable* operator->() const { return table; }
};

struct GPUTrace {
  static const PyInterpreter* get_trace() { return nullptr; }
};

}  // namespace c10::impl
