// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The devices, the machine, and errors.
#include "shim_devices.h"

#include <pthread.h>

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <utility>

namespace tidemark {

Devices& devices = *new Devices;  // never destroyed: tensors may outlive everything

tide_device_cache* Devices::make(int index) {
  const std::lock_guard<std::mutex> guard(lock);
  auto& place = made[static_cast<size_t>(index)];
  tide_device_cache* device = place.load();
  if (device != nullptr) return device;
  check(tide_device_new(machine(), index, &options, &device));
  std::unique_ptr<tide_device_cache, decltype(&tide_device_free)> fresh(device, tide_device_free);
  tide_device_set_caching(device, is_enabled.load() && !is_forbidden);
  if (history.is_on) check(tide_device_history(device, &history));
  for (const Wish& wish : wishes) wish(device);
  check(tide_device_set_default(index, device));
  place.store(fresh.release(), std::memory_order_release);
  return device;
}

void Devices::tell_fallback(tide_device_cache* device) {
  const char* const reason = tide_device_fallback_reason(device);
  if (*reason != '\0') warn(std::string("tidemark: ") + reason);
}

tide_device_options options() { return devices.get_options(); }

void each_device(const std::function<void(tide_device_cache*)>& wish) { devices.each(wish); }

// ---------------------------------------------------------------------------------------------------
// The machine

namespace {
std::atomic<bool> has_started{ false };  // the driver was used
std::atomic<bool> has_forked{ false };
}  // namespace

bool is_forked() { return has_forked.load(std::memory_order_relaxed); }

void watch_forks() {
  (void)pthread_atfork(nullptr, nullptr, [] { has_forked.store(has_started.load()); });
}

tide_machine* other_machine = nullptr;

tide_machine* machine() {
  static tide_machine* const made = [] {
    tide_machine* cuda = other_machine;
    if (cuda == nullptr) check(tide_machine_new_cuda(nullptr, &cuda));
    has_started.store(true);
    return cuda;
  }();
  return made;
}

// ---------------------------------------------------------------------------------------------------
// Warnings and errors

void warn(std::string text) {
  c10::warn(c10::Warning(c10::UserWarning(), { __func__, __FILE__, static_cast<uint32_t>(__LINE__) },
                         std::move(text), false));
}

void raise_error(const char* format, ...) {
  char text[1024];
  va_list values;
  va_start(values, format);
  (void)std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  C10_THROW_ERROR(Error, text);
}

// A driver error has a class of its own, because callers test for the class, not for the text.
void raise_last_error() {
  const tide_error& error = *tide_last_error();
  if (error.status != TIDE_ERR_MACHINE) raise_error("tidemark: %s", error.text);
  throw c10::AcceleratorError({ __func__, __FILE__, static_cast<uint32_t>(__LINE__) },
                              static_cast<int32_t>(error.native), std::string("CUDA error: ") + error.text);
}

}  // namespace tidemark
