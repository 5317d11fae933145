// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the two allocators of the shim share: the machine, the conversion of a status to an exception, and the
// test for a forked child. The shim only translates between PyTorch's C++ and Tidemark's C; all decisions are
// in the library.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "shim_versions.h"
#include "tidemark/tidemark.h"

namespace tidemark {

// Throws PyTorch's error with a text that is formatted without C++ streams, unlike TORCH_CHECK. If the
// compiler links a C++ library of its own into the shim, streams crash at the first number, because the
// locales of that library are not initialised.
[[noreturn]] void raise_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Throws the error in the thread's error record; a driver error as PyTorch's exception for it.
[[noreturn]] void raise_last_error();
inline void check(tide_status status) {
  if (C10_UNLIKELY(status != TIDE_OK)) raise_last_error();
}

// User functions that the library calls may throw, but exceptions must not cross C. The first exception is
// kept for the thread. It is thrown when the call that led to it has returned, or dropped where nothing may
// be thrown.
inline thread_local std::exception_ptr pending;

template <typename Function> void guarded(const Function& function) noexcept {
  try {
    function();
  } catch (...) {
    if (!pending) pending = std::current_exception();
  }
}

inline void raise_pending() {
  if (C10_UNLIKELY(pending)) std::rethrow_exception(std::exchange(pending, nullptr));
}

// A call from PyTorch, possibly nested in a user function of another call: each has its own exception.
class Call {
public:
  Call() : outer(std::exchange(pending, nullptr)) {}
  ~Call() { pending = std::move(outer); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

private:
  std::exception_ptr outer;
};

// Calls the library. Throws what a user function threw meanwhile, or else the library's error.
template <typename Function> void checked(const Function& function) {
  const Call call;
  const tide_status status = function();
  raise_pending();
  check(status);
}

// The CUDA driver, opened at the first call.
tide_machine* machine();

// The options of install(), with later changes of PyTorch's settings.
tide_device_options options();

// Calls a function for every device.
void each_device(const std::function<void(tide_device_cache*)>& wish);

// In a forked child the memory belongs to the parent, if there is any, and locks may be held by threads that
// do not exist.
bool is_forked();

inline void copy(c10::CachingAllocator::Stat& to, const tide_stat& from) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

// The filters of open scopes. A request may still call the filter of a scope that was closed meanwhile, so
// filters are found by a number that is never reused.
template <typename Filter> class Filters {
public:
  // Returns the `user` of a scope that is about to be opened.
  void* add(Filter filter) {
    const std::lock_guard<std::mutex> guard(lock);
    filters[++newest] = std::make_shared<Filter>(std::move(filter));
    return reinterpret_cast<void*>(newest);
  }

  // To be called when the scope was opened, or could not be.
  void opened(int device, tide_pool pool, void* key, bool is_open) {
    const std::lock_guard<std::mutex> guard(lock);
    if (is_open) scopes[{ device, pool }] = key;
    else filters.erase(reinterpret_cast<uintptr_t>(key));
  }

  // The filter of the open scope, to be dropped when it is closed.
  void* of_scope(int device, tide_pool pool) {
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = scopes.find({ device, pool });
    return found != scopes.end() ? found->second : nullptr;
  }

  void drop(void* key) {
    const std::lock_guard<std::mutex> guard(lock);
    filters.erase(reinterpret_cast<uintptr_t>(key));
  }

  std::shared_ptr<Filter> find(void* key) {
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = filters.find(reinterpret_cast<uintptr_t>(key));
    return found != filters.end() ? found->second : nullptr;
  }

private:
  std::mutex lock;
  uintptr_t newest = 0;
  std::map<uintptr_t, std::shared_ptr<Filter>> filters;
  std::map<std::pair<int, tide_pool>, void*> scopes;
};

// Install the allocators of device and of pinned memory.
void install_device();
void install_host();
std::string host_replaced_by();  // another allocator in its place; empty while it is there, or not installed

}  // namespace tidemark
