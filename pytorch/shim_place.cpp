// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The checks before the allocator is put in place, and after.
#include "shim_place.h"

#include <atomic>
#include <mutex>

#include "shim.h"
#include "shim_slots.h"

namespace tidemark {
namespace {

namespace ca = c10::cuda::CUDACachingAllocator;

std::atomic<ca::CUDAAllocator*> placed{ nullptr };

// ---------------------------------------------------------------------------------------------------
// The vtable

// Every virtual method of the base classes whose name is unique.
// clang-format off
#define SHIM_METHODS(X)                                                                                 \
  X(allocate) X(raw_deleter) X(copy_data) X(initialized) X(emptyCache) X(getDeviceStats)                \
  X(resetAccumulatedStats) X(resetPeakStats) X(getMemoryInfo) X(raw_alloc) X(raw_alloc_with_stream)     \
  X(raw_delete) X(init) X(getMemoryFraction) X(setMemoryFraction) X(getExpandableSegmentSizes)          \
  X(enable) X(isEnabled) X(cacheInfo) X(getBaseAllocation) X(snapshot) X(beginAllocateToPool)           \
  X(endAllocateToPool) X(markCaptureBegin) X(markCaptureEnd) X(releasePool) X(getPoolUseCount)          \
  X(createOrIncrefPool) X(setUseOnOOM) X(setNoSplit) X(checkPoolLiveAllocations) X(shareIpcHandle)      \
  X(getIpcDevPtr) X(isHistoryEnabled) X(getContextForPointer) X(recordHistory) X(recordAnnotation)      \
  X(pushCompileContext) X(popCompileContext) X(setUserMetadata) X(getUserMetadata)                      \
  X(supportsUserMetadata) X(annotateMemory) X(allocateWithAddress) X(attachOutOfMemoryObserver)         \
  X(attachOomRejectionObserver) X(attachAllocatorTraceTracker) X(enablePeerAccess) X(memcpyAsync)       \
  X(getCheckpointState) X(setCheckpointPoolState) X(name)
// clang-format on
SHIM_METHODS(SHIM_SLOT)

constexpr const char* pluggable_vtable = "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";

const SlotReport& slot_report() {
  static const SlotReport report = [] {
    Slots slots;
#define ADD_SLOT(method) add_##method<ca::CUDAAllocator>(slots, 0);
    SHIM_METHODS(ADD_SLOT)
#undef ADD_SLOT
    using Record = void (ca::CUDAAllocator::*)(const c10::DataPtr&, c10::cuda::CUDAStream);
    slots.push_back({ "recordStream", slot_of(static_cast<Record>(&ca::CUDAAllocator::recordStream)) });
    return compare_slots(pluggable_vtable, slots);
  }();
  return report;
}

// ---------------------------------------------------------------------------------------------------
// Other allocators

std::string text_of(ca::CUDAAllocator* allocator) {
  const auto& object = *allocator;
  return "\"" + allocator->name() + "\" (" + type_name(typeid(object)) + ")";
}

std::string text_of(c10::Allocator* allocator) {
  if (allocator == nullptr) return "nothing";
  const auto& object = *allocator;
  return type_name(typeid(object));
}

}  // namespace

void check_place() {
  ca::CUDAAllocator* const present = ca::get();
  c10::Allocator* const registered = c10::GetAllocator(c10::kCUDA);
  if (placed.load() != nullptr) raise_error("tidemark is already installed");
  if (present != nullptr && present->name() != "native") {
    raise_error("PyTorch uses another allocator already: %s. Tidemark replaces only PyTorch's own.",
                text_of(present).c_str());
  }
  if (registered != nullptr && static_cast<c10::Allocator*>(present) != registered) {
    raise_error("another allocator is registered with PyTorch for CUDA: %s", text_of(registered).c_str());
  }
  if (present != nullptr && present->initialized())
    raise_error("CUDA is already initialised: call install() before the first use of CUDA");
  const SlotReport& report = slot_report();
  if (!report.problem.empty()) {
    raise_error("the shim was compiled for another PyTorch than the one that runs (its headers: %s): %s",
                TORCH_VERSION, report.problem.c_str());
  }
}

void place(ca::CUDAAllocator* ours) {
  register_with([&](uint8_t priority) { c10::SetAllocator(c10::kCUDA, ours, priority); },
                [&] { return c10::GetAllocator(c10::kCUDA) == ours; });
  ca::allocator.store(ours);
  placed.store(ours);
}

std::string replaced_by() {
  ca::CUDAAllocator* const ours = placed.load();
  if (ours == nullptr) return "";
  ca::CUDAAllocator* const present = ca::get();
  if (present != ours) return present != nullptr ? text_of(present) : "nothing";
  c10::Allocator* const registered = c10::GetAllocator(c10::kCUDA);
  if (registered != ours) return text_of(registered) + ", registered for CUDA";
  return host_replaced_by();
}

std::string slots_text() {
  const SlotReport& report = slot_report();
  if (!report.problem.empty()) return report.problem;
  const std::string all = std::to_string(report.equal + report.unknown);
  return report.equal == 0
             ? "not compared: PyTorch does not export its pluggable class"
             : std::to_string(report.equal) + " of " + all + " methods are where they should be";
}

}  // namespace tidemark
