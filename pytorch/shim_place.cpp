// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The checks before the allocator is put in place, and after.
#include "shim_place.h"

#include <atomic>
#include <mutex>

#include "shim.h"
#include "shim_methods.h"
#include "shim_slots.h"

namespace tidemark {
namespace {

namespace ca = c10::cuda::CUDACachingAllocator;

std::atomic<ca::CUDAAllocator*> placed{ nullptr };

// ---------------------------------------------------------------------------------------------------
// The vtable

SHIM_METHODS(SHIM_SLOT)
SHIM_INHERITED(SHIM_SLOT)

// recordStream has a form for each kind of stream.
template <typename Class, typename Stream>
auto add_record(Slots& slots, int)
    -> decltype(static_cast<void (Class::*)(const c10::DataPtr&, Stream)>(&Class::recordStream), void()) {
  using Record = void (Class::*)(const c10::DataPtr&, Stream);
  slots.push_back({ "recordStream", slot_of(static_cast<Record>(&Class::recordStream)) });
}
template <typename Class, typename Stream> void add_record(Slots&, long) {}

constexpr const char* pluggable_vtable = "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";

const SlotReport& slot_report() {
  static const SlotReport report = [] {
    Slots slots;
#define ADD_SLOT(method) add_##method<ca::CUDAAllocator>(slots, 0);
    SHIM_METHODS(ADD_SLOT)
    SHIM_INHERITED(ADD_SLOT)
#undef ADD_SLOT
    add_record<ca::CUDAAllocator, c10::cuda::CUDAStream>(slots, 0);
    add_record<ca::CUDAAllocator, c10::Stream>(slots, 0);  // since 2.9
    SlotReport compared = compare_slots(pluggable_vtable, slots);
    compared.strange = strange_slots<ca::CUDAAllocator>(slots);
    return compared;
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
  const std::string text = report.equal == 0 ? "not compared: PyTorch does not export its pluggable class"
                                             : std::to_string(report.equal) + " of " + all +
                                                   " methods are where they should be";
  if (report.strange == 0) return text;
  return text + "; Tidemark leaves " + std::to_string(report.strange) + " that it does not know to PyTorch";
}

}  // namespace tidemark
