// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The functions that the Python package calls. They return an error text, or NULL on success.
#include <string>

#include "shim_blocks.h"
#include "shim_devices.h"
#include "shim_observers.h"
#include "shim_place.h"
#include "shim_pools.h"

namespace tidemark {
namespace {

template <typename Function> const char* text_of_failure(const Function& function) noexcept {
  static thread_local std::string text;
  try {
    function();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an exception of an unknown type";
  }
  return text.c_str();
}

}  // namespace
}  // namespace tidemark

extern "C" {

TIDE_API const char* tidemark_torch_install(const char* settings, int has_host) {
  return tidemark::text_of_failure([&] {
    tide_device_options wanted = tidemark::options();
    tidemark::check(tide_device_options_parse(settings, &wanted));
    tidemark::check_place();
    tidemark::devices.set_options(wanted);
    tidemark::install_device();
    if (has_host != 0) tidemark::install_host();
  });
}

TIDE_API const char* tidemark_torch_configure(const char* settings) {
  return tidemark::text_of_failure([&] {
    tide_device_options wanted = tidemark::options();
    tidemark::check(tide_device_options_parse(settings, &wanted));
    tidemark::devices.set_options(wanted);
  });
}

// Another allocator that has replaced one of ours since; NULL if there is none.
TIDE_API const char* tidemark_torch_replaced_by(void) {
  static thread_local std::string other;
  const char* const failure = tidemark::text_of_failure([] { other = tidemark::replaced_by(); });
  if (failure != nullptr) return failure;
  return other.empty() ? nullptr : other.c_str();
}

// How far PyTorch's vtable could be compared with that of the headers.
TIDE_API const char* tidemark_torch_slots(void) {
  static thread_local std::string text;
  const char* const failure = tidemark::text_of_failure([] { text = tidemark::slots_text(); });
  return failure != nullptr ? failure : text.c_str();
}

// Who writes the largest holders of memory at the end of an out-of-memory error, if a history is recorded.
TIDE_API void tidemark_torch_name_holders(void (*write)(int device, char* text, size_t capacity)) {
  tidemark::name_holders.store(write);
}

TIDE_API void tidemark_torch_use_machine(tide_machine* machine) { tidemark::other_machine = machine; }
TIDE_API tide_machine* tidemark_torch_machine(void) { return tidemark::machine(); }
TIDE_API tide_device_cache* tidemark_torch_device(int index) { return tide_device_default(index); }
// The same; makes it if the device was not used yet. NULL if that fails, and then `failure` says why.
TIDE_API tide_device_cache* tidemark_torch_make_device(int index, const char** failure) {
  tide_device_cache* device = nullptr;
  *failure = tidemark::text_of_failure([&] { device = tidemark::devices.at(index); });
  return device;
}

// Sends all requests of the process, on all devices, to pools with a tag and a tide_backup; newer scopes come
// first.
TIDE_API const char* tidemark_torch_tag_all(const char* tag, uint32_t backup) {
  return tidemark::text_of_failure([&] {
    const std::string name = tag;
    tidemark::devices.wish([name, backup](tide_device_cache* device) {
      tidemark::pool_begin_tagged(device, name.c_str(), backup);
    });
  });
}

// The device joins a ledger: now, or when it is used for the first time; then its requests fail until it has
// joined.
TIDE_API const char* tidemark_torch_join(int index, const tide_quota_options* options) {
  return tidemark::text_of_failure([&] {
    const std::string ledger = options->ledger;
    const std::string member = options->name != nullptr ? options->name : "";
    const tide_quota_options shares = *options;
    tidemark::devices.wish([=](tide_device_cache* device) {
      if (tide_device_index(device) != index) return;
      tide_quota_options wanted = shares;
      wanted.ledger = ledger.c_str();
      wanted.name = member.empty() ? nullptr : member.c_str();
      tidemark::check(tide_device_join(device, &wanted));
    });
  });
}

// How often streams waited for each other's memory, for how many bytes, how often new memory was reserved
// instead, and how long the host waited; how long making views took, and how often that was more than its
// share. Times are in nanoseconds. Zeros for a device without an allocator.
TIDE_API void tidemark_torch_counts(int index, int64_t out[6]) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_device_cache* const device = tide_device_default(index);
  const bool is_there = device != nullptr && tide_device_get_stats(device, &stats) == TIDE_OK;
  out[0] = is_there ? stats.num_stream_waits : 0;
  out[1] = is_there ? stats.stream_wait_bytes : 0;
  out[2] = is_there ? stats.num_waits_avoided : 0;
  out[3] = is_there ? stats.host_wait_ns : 0;
  out[4] = is_there ? stats.stitch_ns : 0;
  out[5] = is_there ? stats.num_hurries : 0;
}

// Why a device has no virtual memory although the settings ask for it; NULL if it has, or is not used yet.
TIDE_API const char* tidemark_torch_fallback(int index) {
  tide_device_cache* const device = tide_device_default(index);
  const char* const reason = device != nullptr ? tide_device_fallback_reason(device) : "";
  return *reason != '\0' ? reason : nullptr;
}

TIDE_API void tidemark_torch_last_oom(tide_oom* out) { *out = tidemark::last_oom_report(); }

}  // extern "C"
