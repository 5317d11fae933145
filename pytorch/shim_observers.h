// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// User functions that PyTorch registers, and what they are told.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "shim_look.h"

namespace tidemark {

// Functions that are never removed, and called with no lock held.
template <typename Function> class Functions {
public:
  using List = std::shared_ptr<const std::vector<Function>>;

  // Returns true for the first one.
  bool add(Function function) {
    const std::lock_guard<std::mutex> guard(lock);
    auto longer = std::make_shared<std::vector<Function>>(*list);
    longer->push_back(std::move(function));
    list = std::move(longer);
    return list->size() == 1;
  }

  // Calls them in order, until one throws.
  template <typename... Values> void call(const Values&... values) {
    List now;
    {
      const std::lock_guard<std::mutex> guard(lock);
      now = list;
    }
    for (const Function& function : *now) {
      if (!pending) guarded([&] { function(values...); });
    }
  }

private:
  std::mutex lock;
  List list = std::make_shared<std::vector<Function>>();
};

extern Functions<ca::OutOfMemoryObserver>& oom_observers;
extern Functions<ca::OomRejectionObserver>& rejection_observers;
extern Functions<ca::AllocatorTraceTracker>& trackers;

// Makes all devices, present and future, call these functions.
void observe_devices();
// The same for trackers: without any, no entries are recorded for them.
void track_devices();

// The last out-of-memory report of any thread.
tide_oom last_oom_report();

}  // namespace tidemark
