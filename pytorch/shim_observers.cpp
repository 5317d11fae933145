// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// User functions that PyTorch registers, and what they are told.
#include "shim_observers.h"

#include "shim_devices.h"

namespace tidemark {

Functions<ca::OutOfMemoryObserver>& oom_observers = *new Functions<ca::OutOfMemoryObserver>;
Functions<ca::OomRejectionObserver>& rejection_observers = *new Functions<ca::OomRejectionObserver>;
Functions<ca::AllocatorTraceTracker>& trackers = *new Functions<ca::AllocatorTraceTracker>;

namespace {

std::mutex oom_lock;
tide_oom last_oom;

void observe_oom(void*, const tide_oom* oom) {
  const size_t total = oom->limit != TIDE_NO_LIMIT ? oom->limit : oom->device_total;
  {
    const std::lock_guard<std::mutex> guard(oom_lock);
    last_oom = *oom;
  }
  const int64_t index = oom->device;
  if (oom->is_rejected)
    rejection_observers.call(index, oom->segment_bytes, oom->reserved_bytes, oom->device_total);
  else oom_observers.call(index, oom->segment_bytes, total, oom->device_free);
}

void track(void* user, const tide_trace_entry* entry) {
  if (entry->action > TIDE_ACTION_OOM) return;
  guarded([&] { trackers.call(entry_of(static_cast<tide_device_cache*>(user), *entry, epoch_ns())); });
}

bool reclaim(void*, tide_device_cache*) {
  bool is_freed = false;
  auto* const registry = c10::FreeCudaMemoryCallbacksRegistry();
  guarded([&] {
    for (const auto& name : registry->Keys())
      guarded([&] { is_freed = registry->Create(name)->Execute() || is_freed; });
  });
  return is_freed;
}

}  // namespace

tide_oom last_oom_report() {
  const std::lock_guard<std::mutex> guard(oom_lock);
  return last_oom;
}

void observe_devices() {
  devices.wish([](tide_device_cache* device) {
    tide_observer number = 0;
    check(tide_device_observe_oom(device, observe_oom, nullptr, &number));
    check(tide_device_observe_reclaim(device, reclaim, nullptr, &number));
  });
}

void track_devices() {
  devices.wish([](tide_device_cache* device) {
    tide_observer number = 0;
    check(tide_device_observe_trace(device, track, device, &number));
  });
}

}  // namespace tidemark
