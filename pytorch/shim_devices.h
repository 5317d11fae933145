// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The devices: the allocator of each, created at the first request, and what all of them are told.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "shim.h"

namespace tidemark {

// Warns through PyTorch with a finished text, because TORCH_WARN formats with C++ streams: see raise_error().
void warn(std::string text);

class Devices {
public:
  using Wish = std::function<void(tide_device_cache*)>;

  tide_device_cache* at(int index) {
    const bool is_there = index >= 0 && index < count.load();
    if (C10_UNLIKELY(!is_there)) raise_error("Invalid device argument %d: did you call init?", index);
    if (C10_UNLIKELY(is_forked())) raise_error("Cannot re-initialize CUDA in forked subprocess.");
    tide_device_cache* const found = made[static_cast<size_t>(index)].load(std::memory_order_acquire);
    return found != nullptr ? found : make(index);
  }

  // The same without creating it: nullptr if it does not exist yet or belongs to the parent process.
  tide_device_cache* find(int index) {
    const bool is_there = index >= 0 && index < count.load();
    if (!is_there) raise_error("Invalid device argument %d: did you call init?", index);
    return is_forked() ? nullptr : made[static_cast<size_t>(index)].load(std::memory_order_acquire);
  }

  // The allocator that an address belongs to; nullptr if it belongs to none.
  tide_device_cache* seek(const void* address) {
    for (int i = 0; i < count.load(); i++) {
      tide_device_cache* const device = made[static_cast<size_t>(i)].load(std::memory_order_acquire);
      if (device != nullptr && tide_device_bytes(device, address) != 0) return device;
    }
    return nullptr;
  }

  tide_device_cache* owner(const void* address) {
    tide_device_cache* const found = seek(address);
    if (C10_UNLIKELY(found == nullptr)) raise_error("invalid device pointer: %p", address);
    return found;
  }

  // To be called after a request: the first one of a device shows whether its virtual memory works. If not,
  // this warns, once. It may throw.
  void settle(tide_device_cache* device) {
    auto& is_told = is_settled[static_cast<size_t>(tide_device_index(device))];
    if (C10_UNLIKELY(!is_told.load(std::memory_order_relaxed)) && !is_told.exchange(true))
      tell_fallback(device);
  }

  // Calls a function for every device; in a forked child there is none.
  void each(const Wish& wish) {
    for (int i = 0; i < count.load() && !is_forked(); i++) {
      tide_device_cache* const device = made[static_cast<size_t>(i)].load(std::memory_order_acquire);
      if (device != nullptr) wish(device);
    }
  }

  // The same, and later for new devices: a device whose wish throws is not made.
  void wish(Wish wish) {
    const std::lock_guard<std::mutex> guard(lock);
    each(wish);
    wishes.push_back(std::move(wish));
  }

  void set_history(const tide_history_options& wanted) {
    const std::lock_guard<std::mutex> guard(lock);
    each([&](tide_device_cache* device) { check(tide_device_history(device, &wanted)); });
    history = wanted;
  }

  bool has_history() {
    const std::lock_guard<std::mutex> guard(lock);
    return history.is_on;
  }

  void set_options(const tide_device_options& wanted) {
    const std::lock_guard<std::mutex> guard(lock);
    each([&](tide_device_cache* device) { check(tide_device_configure(device, &wanted)); });
    options = wanted;
  }

  tide_device_options get_options() {
    const std::lock_guard<std::mutex> guard(lock);
    return options;
  }

  // Set by the program and by the environment, which takes precedence.
  void set_caching(bool is_wanted, bool is_refused) {
    const std::lock_guard<std::mutex> guard(lock);
    is_enabled.store(is_wanted);
    is_forbidden = is_forbidden || is_refused;
    each([&](tide_device_cache* device) { tide_device_set_caching(device, is_wanted && !is_forbidden); });
  }

  std::atomic<int> count{ 0 };
  std::atomic<bool> is_enabled{ true };

private:
  tide_device_cache* make(int index);
  static void tell_fallback(tide_device_cache* device);

  static tide_history_options no_history() {
    tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
    history.is_on = false;
    return history;
  }

  std::mutex lock;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  bool is_forbidden = false;
  std::array<std::atomic<tide_device_cache*>, TIDE_DEVICE_MAX> made{};
  std::array<std::atomic<bool>, TIDE_DEVICE_MAX> is_settled{};
  std::vector<Wish> wishes;
  tide_history_options history = no_history();
};
extern Devices& devices;

// For tests: another machine than the CUDA driver, to be set before it is used.
extern tide_machine* other_machine;

// From now on a fork is noticed: see is_forked().
void watch_forks();

}  // namespace tidemark
