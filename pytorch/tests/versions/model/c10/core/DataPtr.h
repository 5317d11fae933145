// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model of PyTorch's core types: devices, owned memory, statistics, and the reports to the profiler.
#pragma once

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

class Device {
public:
  Device(DeviceType of, DeviceIndex at = -1) : kind(of), place(at) {}
  DeviceType type() const { return kind; }
  DeviceIndex index() const { return place; }

private:
  DeviceType kind;
  DeviceIndex place;
};

using DeleterFnPtr = void (*)(void*);

class DataPtr {
public:
  DataPtr() : data(nullptr), owner(nullptr, [](void*) {}), where(kCPU) {}
  DataPtr(void* address, void* context, DeleterFnPtr deleter, Device on)
      : data(address), owner(context, deleter), where(on) {}
  void* get() const { return data; }
  void* get_context() const { return owner.get(); }
  DeleterFnPtr get_deleter() const { return owner.get_deleter(); }
  Device device() const { return where; }
  void clear() {
    owner.reset();
    data = nullptr;
  }

private:
  void* data;
  std::unique_ptr<void, DeleterFnPtr> owner;
  Device where;
};

struct GatheredContext {
  virtual ~GatheredContext() = default;
};

struct MempoolIdHash {
  size_t operator()(const std::pair<unsigned long long, unsigned long long>& id) const {
    return id.first * 31 + id.second;
  }
};

namespace CachingAllocator {
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
using StatArray = std::array<Stat, 3>;
}  // namespace CachingAllocator

bool memoryProfilingEnabled();
void reportMemoryUsageToProfiler(void* address, int64_t bytes, size_t allocated, size_t reserved,
                                 Device device);
void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device device);

}  // namespace c10
