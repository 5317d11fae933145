// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which virtual methods PyTorch's allocator classes have, by name. A method whose parameters changed is not
// overridden by ours any more; if the base class has a body for it, the compiler says nothing, and every call
// goes to that body. So the methods of both classes are compared while the shim is compiled.
#pragma once

#include <type_traits>

#include "shim_versions.h"

// What ours override in c10::cuda::CUDACachingAllocator::CUDAAllocator; recordStream, which has two forms,
// says `override`.
// clang-format off
#define SHIM_METHODS(X)                                                                                 \
  X(allocate) X(raw_deleter) X(copy_data) X(initialized) X(emptyCache) X(getDeviceStats)                \
  X(resetAccumulatedStats) X(resetPeakStats) X(raw_alloc) X(raw_alloc_with_stream) X(raw_delete)        \
  X(init) X(getMemoryFraction) X(setMemoryFraction) X(getExpandableSegmentSizes) X(enable)              \
  X(isEnabled) X(cacheInfo) X(getBaseAllocation) X(snapshot) X(beginAllocateToPool)                     \
  X(endAllocateToPool) X(markCaptureBegin) X(markCaptureEnd) X(releasePool) X(getPoolUseCount)          \
  X(createOrIncrefPool) X(setUseOnOOM) X(setNoSplit) X(checkPoolLiveAllocations) X(shareIpcHandle)      \
  X(getIpcDevPtr) X(isHistoryEnabled) X(getContextForPointer) X(recordHistory) X(recordAnnotation)      \
  X(pushCompileContext) X(popCompileContext) X(setUserMetadata) X(getUserMetadata)                      \
  X(supportsUserMetadata) X(annotateMemory) X(allocateWithAddress) X(attachOutOfMemoryObserver)         \
  X(attachOomRejectionObserver) X(attachAllocatorTraceTracker) X(enablePeerAccess) X(memcpyAsync)       \
  X(getCheckpointState) X(setCheckpointPoolState) X(name)

// What the base classes do for us: ask the deleter, and ask the driver.
#define SHIM_INHERITED(X) X(is_simple_data_ptr) X(getMemoryInfo)

// What ours override in at::HostAllocator besides.
#define SHIM_HOST_METHODS(X)                                                                            \
  X(record_event) X(empty_cache) X(get_stats) X(reset_accumulated_stats) X(reset_peak_stats)            \
  X(begin_allocate_to_pool) X(end_allocate_to_pool) X(release_pool)
// clang-format on

namespace tidemark {

// The pointer to a method with the same type, but of another class.
template <typename Class, typename Pointer> struct PointerInto;
template <typename Class, typename Method, typename Owner> struct PointerInto<Class, Method Owner::*> {
  using Type = Method Class::*;
};

// Defines, for a name: Has_NAME, whether a class has a member of that name, or several; Overrides_NAME,
// whether a class declares a method with the type of the only one of that name in its base.
#define SHIM_METHOD(method)                                                                                  \
  struct Named_##method {                                                                                    \
    int method;                                                                                              \
  };                                                                                                         \
  template <typename Class> struct Both_##method : Class, Named_##method {}; /* two of them are ambiguous */ \
  template <typename Class, typename = void> struct Has_##method : std::true_type {};                        \
  template <typename Class>                                                                                  \
  struct Has_##method<Class, std::void_t<decltype(&Both_##method<Class>::method)>> : std::false_type {};     \
  template <typename Class, typename Base, typename = void> struct Inherits_##method : std::false_type {};   \
  template <typename Class, typename Base>                                                                   \
  struct Inherits_##method<Class, Base, std::void_t<decltype(&Class::method), decltype(&Base::method)>>      \
      : std::is_same<decltype(&Class::method), decltype(&Base::method)> {};                                  \
  template <typename Class, typename Base, typename = void> struct Overrides_##method : std::false_type {};  \
  template <typename Class, typename Base>                                                                   \
  struct Overrides_##method<                                                                                 \
      Class, Base,                                                                                           \
      std::void_t<decltype(static_cast<typename PointerInto<Class, decltype(&Base::method)>::Type>(          \
          &Class::method))>> : std::negation<Inherits_##method<Class, Base>> {};

// Fails to compile, with the version and the name, if a class does not override a method that its base has.
#define SHIM_CHECK(Class, Base, method)                                               \
  static_assert(!Has_##method<Base>::value || Overrides_##method<Class, Base>::value, \
                "PyTorch " TORCH_VERSION " has a method " #method                     \
                " with other parameters than Tidemark knows, or several of that name");

SHIM_METHODS(SHIM_METHOD)
SHIM_HOST_METHODS(SHIM_METHOD)

}  // namespace tidemark
