// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the two allocators of the shim share: the machine, how a status becomes an exception, and what a
// forked child must not touch. The shim translates between PyTorch's C++ and Tidemark's C; whatever decides
// anything is in the library.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "tidemark/tidemark.h"

namespace tidemark {

// Raises PyTorch's error with a text that is made without C++ streams, unlike those of TORCH_CHECK: where the
// compiler links a C++ library of its own into the shim, streams crash at the first number, because the
// locales of that library are not set up.
[[noreturn]] void raise_error(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Raises what a call that failed left in the error record of this thread.
inline void check(tide_status status) {
  if (C10_UNLIKELY(status != TIDE_OK)) raise_error("tidemark: %s", tide_last_error()->text);
}

// Functions of the user's that the library calls may raise, which C cannot pass on: the first exception is
// kept for the thread, and raised when the call that led to it has returned.
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

// The CUDA driver, opened at the first call.
tide_machine* machine();

// What install() was told, and what PyTorch's settings changed since.
const tide_device_options& options();

// Does something with every device there is.
void each_device(const std::function<void(tide_device*)>& wish);

// In a forked child the memory is the parent's, and locks may be held by threads that are not there.
bool is_forked();

inline void copy(c10::CachingAllocator::Stat& to, const tide_stat& from) {
  to.current = from.current;
  to.peak = from.peak;
  to.allocated = from.allocated;
  to.freed = from.freed;
}

// The filters of open scopes. A request may still ask the filter of a scope that was closed meanwhile, so
// they are found by the number of the scope's pool, which is not used again.
template <typename Filter> class Filters {
public:
  void* open(int device, tide_pool pool, Filter filter) {
    const uintptr_t key = key_of(device, pool);
    const std::lock_guard<std::mutex> guard(lock);
    open_ones[key] = std::make_shared<Filter>(std::move(filter));
    return reinterpret_cast<void*>(key);
  }

  void close(int device, tide_pool pool) {
    const std::lock_guard<std::mutex> guard(lock);
    open_ones.erase(key_of(device, pool));
  }

  std::shared_ptr<Filter> find(void* key) {
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = open_ones.find(reinterpret_cast<uintptr_t>(key));
    return found != open_ones.end() ? found->second : nullptr;
  }

private:
  static uintptr_t key_of(int device, tide_pool pool) { return static_cast<uintptr_t>(device) << 32 | pool; }

  std::mutex lock;
  std::map<uintptr_t, std::shared_ptr<Filter>> open_ones;
};

// Makes ours PyTorch's allocator of pinned memory.
void install_host();

}  // namespace tidemark
