// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The functions for PyTorch's CUDAPluggableAllocator, on tidemark/device.h: the fallback if the shim cannot
// be compiled against PyTorch. It needs no header of PyTorch and works with every version that has the
// interface. Statistics, snapshots, checkpoints, user pools and sharing are not available then: see
// docs/pytorch.md.
//
// PyTorch would take a null pointer for memory. Out of memory is therefore an exception, std::runtime_error
// with our report, which becomes RuntimeError in Python.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "tidemark/tidemark.h"

namespace {

using PoolId = std::pair<unsigned long long, unsigned long long>;  // PyTorch's type
using Filter = std::function<bool(tide_stream)>;

void check(tide_status status) {
  if (status != TIDE_OK) throw std::runtime_error(std::string("tidemark: ") + tide_last_error()->text);
}

struct State {
  std::mutex lock;
  tide_machine* machine = nullptr;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  std::array<std::atomic<tide_device_cache*>, TIDE_DEVICE_MAX> devices{};
  // The filter of a scope is kept until the next scope of its pool: a request may still call it after the
  // scope is closed.
  std::map<uintptr_t, std::shared_ptr<Filter>> filters;
};
// Never destroyed: memory may be released while the process exits.
State& state() {
  static State& one = *new State;
  return one;
}

tide_device_cache* device_at(int index) {
  if (index < 0 || index >= TIDE_DEVICE_MAX) throw std::runtime_error("tidemark: no such device");
  auto& place = state().devices[static_cast<size_t>(index)];
  tide_device_cache* device = place.load(std::memory_order_acquire);
  if (device != nullptr) return device;
  const std::lock_guard<std::mutex> guard(state().lock);
  device = place.load();
  if (device != nullptr) return device;
  if (state().machine == nullptr) check(tide_machine_new_cuda(nullptr, &state().machine));
  check(tide_device_new(state().machine, index, &state().options, &device));
  check(tide_device_set_default(index, device));
  place.store(device, std::memory_order_release);
  return device;
}

tide_device_cache* owner_of(const void* address) {
  for (auto& place : state().devices) {
    tide_device_cache* const device = place.load(std::memory_order_acquire);
    if (device != nullptr && tide_device_bytes(device, address) != 0) return device;
  }
  return nullptr;
}

tide_pool pool_find(tide_device_cache* device, PoolId id) {
  const uint64_t label[2] = { id.first, id.second };
  uint32_t users = 0;
  tide_pool pool = 0;
  if (tide_device_pool_find(device, label, &pool) != TIDE_OK) return 0;
  check(tide_device_pool_users(device, pool, &users));
  return users != 0 ? pool : 0;
}

tide_pool pool_make(tide_device_cache* device, PoolId id) {
  tide_pool pool = 0;
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = id.first;
  options.label[1] = id.second;
  check(tide_device_pool_new(device, &options, &pool));
  return pool;
}

void* filter_keep(int device, tide_pool pool, Filter filter) {
  const uintptr_t key = static_cast<uintptr_t>(device) << 32 | pool;
  const std::lock_guard<std::mutex> guard(state().lock);
  state().filters[key] = std::make_shared<Filter>(std::move(filter));
  return reinterpret_cast<void*>(key);
}

bool filter_takes(void* user, tide_stream stream) {
  std::shared_ptr<Filter> filter;
  {
    const std::lock_guard<std::mutex> guard(state().lock);
    filter = state().filters[reinterpret_cast<uintptr_t>(user)];
  }
  try {
    return filter && (*filter)(stream);
  } catch (...) {
    return false;  // an exception must not cross C
  }
}

}  // namespace

extern "C" {

// To be called first: the options as text, and for tests another machine than the CUDA driver. Returns an
// error text, or NULL on success.
TIDE_API const char* tide_torch_configure(const char* settings) {
  const tide_status status = tide_device_options_parse(settings, &state().options);
  return status == TIDE_OK ? nullptr : tide_last_error()->text;
}
TIDE_API void tide_torch_use_machine(tide_machine* machine) { state().machine = machine; }

TIDE_API void* tide_torch_alloc(size_t bytes, int device, tide_stream stream) {
  tide_block block = { nullptr, 0 };
  const tide_status status = tide_device_alloc(device_at(device), stream, bytes, &block);
  const bool is_reported = status == TIDE_ERR_NO_MEMORY && tide_device_last_oom()->requested_bytes == bytes;
  if (is_reported) throw std::runtime_error(tide_device_last_oom()->text);
  check(status);
  return block.address;
}

TIDE_API void tide_torch_free(void* address, size_t, int device, tide_stream) {
  check(tide_device_release_address(device_at(device), address));
}

TIDE_API void tide_torch_init(int) {}

TIDE_API void tide_torch_reset(void) {
  for (auto& place : state().devices) {
    tide_device_cache* const device = place.load(std::memory_order_acquire);
    if (device != nullptr) check(tide_device_trim(device, 0));
  }
}

TIDE_API void tide_torch_memory_fraction(double fraction, int device) {
  check(tide_device_set_fraction(device_at(device), fraction));
}

TIDE_API void* tide_torch_base_alloc(void* address, size_t* bytes) {
  void* base = nullptr;
  check(tide_device_base(owner_of(address), address, &base, bytes));
  return base;
}

// PyTorch passes every pointer, including those of other allocators.
TIDE_API void tide_torch_record_stream(void* address, tide_stream stream) {
  tide_block block = { nullptr, 0 };
  tide_device_cache* const device = owner_of(address);
  if (device == nullptr) return;
  check(tide_device_find(device, address, &block));
  check(tide_device_record(device, block, stream));
}

TIDE_API void tide_torch_begin_allocate_to_pool(int index, PoolId id, Filter filter) {
  tide_device_cache* const device = device_at(index);
  const tide_pool known = pool_find(device, id);
  const tide_pool pool = known != 0 ? known : pool_make(device, id);
  tide_scope scope = TIDE_SCOPE_INIT;
  scope.kind = TIDE_SCOPE_FILTER;
  scope.filter = filter_takes;
  scope.user = filter_keep(index, pool, std::move(filter));
  if (known != 0) check(tide_device_pool_retain(device, pool));  // each begin adds a user
  const tide_status status = tide_device_pool_begin(device, pool, &scope);
  if (status != TIDE_OK) (void)tide_device_pool_drop(device, pool);
  check(status);
}

TIDE_API void tide_torch_end_allocate_to_pool(int index, PoolId id) {
  tide_device_cache* const device = device_at(index);
  check(tide_device_pool_end(device, pool_find(device, id)));
}

TIDE_API void tide_torch_release_pool(int index, PoolId id) {
  tide_device_cache* const device = device_at(index);
  check(tide_device_pool_drop(device, pool_find(device, id)));
}

}  // extern "C"
