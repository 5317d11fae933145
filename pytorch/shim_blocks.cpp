// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Blocks as PyTorch asks for them: on a stream, by their address, and with PyTorch's exceptions.
#include "shim_blocks.h"

#include <c10/core/impl/GPUTrace.h>

#include <array>

namespace tidemark {

std::atomic<HolderWriter> name_holders{ nullptr };

namespace {

// Informs the profiler and memory tracers; most runs have neither.
void tell(tide_device_cache* device, void* address, bool is_new) {
  const auto index = static_cast<c10::DeviceIndex>(tide_device_index(device));
  if (c10::memoryProfilingEnabled()) {
    tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
    check(tide_device_get_stats(device, &stats));
    const auto bytes = static_cast<int64_t>(tide_device_bytes(device, address));
    const int64_t allocated = stats.allocated_bytes[TIDE_STAT_ALL].current - (is_new ? 0 : bytes);
    c10::reportMemoryUsageToProfiler(address, is_new ? bytes : -bytes, static_cast<size_t>(allocated),
                                     static_cast<size_t>(stats.reserved_bytes[TIDE_STAT_ALL].current),
                                     c10::Device(c10::kCUDA, index));
  }
  const auto* const trace = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(trace != nullptr)) {
    const auto number = reinterpret_cast<uintptr_t>(address);
    if (is_new) (*trace)->trace_gpu_memory_allocation(c10::kCUDA, number);
    else (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, number);
  }
}

// The report, and who holds the memory if stacks are recorded.
std::string oom_text(const tide_oom& oom) {
  std::string text = oom.text;
  std::array<char, 4096> holders{};
  const HolderWriter write = name_holders.load();
  if (write != nullptr && devices.has_history()) write(oom.device, holders.data(), holders.size());
  if (holders[0] != '\0') text.append("\n").append(holders.data());
  return text;
}

// Throws the reason why a request failed: out of memory is PyTorch's own exception, with our report.
[[noreturn]] void raise_alloc(tide_status status, int index, size_t bytes) {
  const tide_oom& oom = *tide_device_last_oom();
  const bool is_reported = status == TIDE_ERR_NO_MEMORY && oom.device == index &&
                           oom.requested_bytes == bytes;
  if (is_reported) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(oom.rounded_bytes), oom.allocated_bytes,
                                     oom.reserved_bytes,
                                     c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
  }
  raise_pending();
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < size_t{ 1 } << 60,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  if (status != TIDE_ERR_NO_MEMORY) check(status);
  const std::string text = is_reported ? oom_text(oom) : tide_last_error()->text;
  TORCH_CHECK_WITH(OutOfMemoryError, false, text.c_str());
}

// A new block becomes PyTorch's, unless a user function threw meanwhile.
void* hand_over(tide_device_cache* device, tide_block block) {
  if (C10_UNLIKELY(pending)) {
    (void)!tide_device_release(device, block);
    raise_pending();
  }
  if (block.address != nullptr) tell(device, block.address, true);
  return block.address;
}

}  // namespace

void* take(int index, size_t bytes, const Place& place) {
  tide_block block = { nullptr, 0 };
  tide_device_cache* const device = devices.at(index);
  const Call call;
  const tide_stream stream = stream_of(place.handle);
  const bool is_external = C10_UNLIKELY(place.is_external && place.handle != nullptr);
  const tide_status status = is_external ? tide_device_alloc_external(device, stream, bytes, &block)
                                         : tide_device_alloc(device, stream, bytes, &block);
  if (C10_UNLIKELY(status != TIDE_OK)) raise_alloc(status, index, bytes);
  guarded([&] { devices.settle(device); });
  return hand_over(device, block);
}

void* take_at(int index, size_t bytes, const Place& place, void* address) {
  tide_block block = { nullptr, 0 };
  tide_device_cache* const device = devices.at(index);
  if (place.is_external && place.handle != nullptr)
    raise_error("tidemark: allocateWithAddress needs a stream of PyTorch");
  const Call call;
  const tide_status status = tide_device_alloc_at(device, stream_of(place.handle), bytes, address, &block);
  if (status != TIDE_OK) {
    raise_pending();
    check(status);
  }
  return hand_over(device, block);
}

void give(void* address) {
  if (address == nullptr || is_forked()) return;
  tide_device_cache* const device = devices.owner(address);
  const Call call;
  tell(device, address, false);
  check(tide_device_release_address(device, address));
}

}  // namespace tidemark
