// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What differs between the versions of PyTorch that the shim compiles against, 2.8 to 2.15; the rest of the
// shim knows nothing of versions.
//
// - Methods: the shim's classes declare every signature that a method ever had, without `override` where it
//   differs. Whichever matches the base class overrides, and the others are members that nobody calls. If a
//   version asks for more, SHIM_REFUSE_ABSTRACT names it; shim_methods.h has a check for each method.
// - Types that a version lacks: `absent` has a stand-in. It is found only if PyTorch's namespace has no such
//   name, because look-up prefers the members of a namespace to those of its using-directives.
// - Fields: SHIM_FIELD_SETTER makes a function that sets a field if there is one.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#elif __has_include(<torch/version.h>)
#include <torch/version.h>
#endif
#ifndef TORCH_VERSION
#define TORCH_VERSION "of unknown version"
#elif TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 8)
#error "Tidemark's allocator class needs PyTorch 2.8 or later"
#endif

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

namespace tidemark {

using MempoolId_t = std::pair<unsigned long long, unsigned long long>;  // in all versions, in two namespaces

namespace absent {

// Before 2.10.
struct StreamSegmentSize {
  StreamSegmentSize(void* of_stream, bool is_small, size_t bytes)
      : stream(of_stream), is_small_pool(is_small), total_size(bytes) {}
  void* stream;
  bool is_small_pool;
  size_t total_size;
};

// Before 2.12.
using OomRejectionObserver = std::function<void(int64_t, size_t, size_t, size_t)>;

}  // namespace absent
}  // namespace tidemark

namespace c10::cuda::CUDACachingAllocator {
using namespace tidemark::absent;
}

// Defines set_NAME(object, value), which does nothing if the object has no field of that name.
#define SHIM_FIELD_SETTER(field)                                                                      \
  template <typename Object, typename Value>                                                          \
  auto set_##field(Object& object, const Value& value, int)->decltype(object.field = value, void()) { \
    object.field = value;                                                                             \
  }                                                                                                   \
  template <typename Object, typename Value> void set_##field(Object&, const Value&, long) {}         \
  template <typename Object, typename Value> void set_##field(Object& object, const Value& value) {   \
    set_##field(object, value, 0);                                                                    \
  }

// Fails to compile, with the version, if a class still has pure methods; the compiler lists them.
#define SHIM_REFUSE_ABSTRACT(type) \
  static_assert(                   \
      !std::is_abstract_v<type>,   \
      "PyTorch " TORCH_VERSION     \
      " has methods that Tidemark does not know: the compiler names them as pure virtual functions")

// Around a class that overrides methods without saying so.
#define SHIM_BEGIN_OVERRIDES                                                                \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverloaded-virtual\"") \
      _Pragma("GCC diagnostic ignored \"-Wsuggest-override\"") SHIM_CLANG_OVERRIDES
#define SHIM_END_OVERRIDES _Pragma("GCC diagnostic pop")
#ifdef __clang__
#define SHIM_CLANG_OVERRIDES _Pragma("GCC diagnostic ignored \"-Winconsistent-missing-override\"")
#else
#define SHIM_CLANG_OVERRIDES
#endif
