// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch's allocator class for pinned memory, on tidemark/pinned.h. The context of an allocation is its
// address. Pools belong to graphs that are captured; PyTorch identifies them by a pair of numbers, the
// library by one.
#include "shim.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstring>
#include <functional>

#include "shim_methods.h"
#include "shim_place.h"
#include "shim_slots.h"

namespace tidemark::host {
namespace {

tide_pinned_cache* cache() {
  static tide_pinned_cache* const made = [] {
    tide_pinned_cache* pinned = nullptr;
    tide_pinned_options wanted = TIDE_PINNED_OPTIONS_INIT;
    const tide_device_options device = options();
    check(tide_pinned_options_from_device(&device, &wanted));
    wanted.powers_of_two = device.policy == TIDE_POLICY_TORCH;
    check(tide_pinned_new(machine(), &wanted, &pinned));
    return pinned;
  }();
  return made;
}

void give(void* address) {
  if (address != nullptr && !is_forked()) check(tide_pinned_release_address(cache(), address));
}

// Pools by PyTorch's ids. A lock serialises all operations on them.
std::mutex pools_lock;
std::map<MempoolId_t, tide_pool>& pools = *new std::map<MempoolId_t, tide_pool>;

tide_pool pool_find(MempoolId_t id) {
  const auto found = pools.find(id);
  return found != pools.end() ? found->second : 0;
}

tide_pool pool_make(MempoolId_t id) {
  tide_pool pool = 0;
  check(tide_pinned_pool_new(cache(), &pool));
  return pools[id] = pool;
}

// Removes a user; with the last one the id is removed, whatever happens to the pool.
void pool_drop(MempoolId_t id, tide_pool pool) {
  uint32_t users = 0;
  const tide_status status = tide_pinned_pool_drop(cache(), pool);
  const bool is_there = tide_pinned_pool_users(cache(), pool, &users) == TIDE_OK;
  if (!is_there || users == 0) pools.erase(id);
  check(status);
}

using Filter = std::function<bool(c10::Stream)>;
Filters<Filter>& filters = *new Filters<Filter>;

bool filter_takes(void* user, int device, tide_stream stream) {
  const std::shared_ptr<Filter> filter = filters.find(user);
  bool takes = false;
  if (!filter || device < 0) return false;
  guarded([&] {
    const auto handle = reinterpret_cast<cudaStream_t>(stream);
    takes =
        (*filter)(c10::cuda::getStreamFromExternal(handle, static_cast<c10::DeviceIndex>(device)).unwrap());
  });
  return takes;
}

at::DurationStat duration_of(const tide_duration& from) {
  at::DurationStat to;
  to.total = static_cast<int64_t>(from.total_ns / 1000);
  to.max = static_cast<int64_t>(from.max_ns / 1000);
  to.min = static_cast<int64_t>(from.min_ns / 1000);
  to.count = static_cast<int64_t>(from.count);
  return to;
}

// Before 2.10, blocks in use were counted as `allocation`, and all blocks as `segment`.
template <typename Stats>
auto copy_counts(Stats& to, const tide_pinned_stats& from, int) -> decltype(to.active_requests, void()) {
  copy(to.allocations, from.allocations);
  copy(to.allocated_bytes, from.allocated_bytes);
  copy(to.active_requests, from.active_requests);
  copy(to.active_bytes, from.active_bytes);
}
template <typename Stats> void copy_counts(Stats& to, const tide_pinned_stats& from, long) {
  copy(to.allocation, from.active_requests);
  copy(to.allocated_bytes, from.active_bytes);
  copy(to.segment, from.allocations);
  copy(to.reserved_bytes, from.allocated_bytes);
}

// Methods without `override` are not in every version.
SHIM_BEGIN_OVERRIDES
class HostAllocator final : public at::HostAllocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    tide_block block = { nullptr, 0 };
    const c10::DeviceIndex device = c10::cuda::current_device();
    auto* const stream = reinterpret_cast<tide_stream>(c10::cuda::getCurrentCUDAStream(device).stream());
    const Call call;
    check(tide_pinned_alloc_on(cache(), device, stream, bytes, &block));
    c10::DataPtr data = { block.address, block.address, &give, c10::Device(c10::kCPU) };
    raise_pending();
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  // Finds the memory by its context, or else by its address, which may be inside a view.
  bool record_event(void* address, void* context, c10::Stream stream) override {
    const c10::cuda::CUDAStream cuda(stream);
    auto* const handle = reinterpret_cast<tide_stream>(cuda.stream());
    for (void* place : { context, address }) {
      if (place == nullptr) continue;
      if (tide_pinned_record(cache(), { place, 0 }, cuda.device_index(), handle) == TIDE_OK) return true;
    }
    return false;
  }
  void empty_cache() override { check(tide_pinned_empty(cache())); }

  at::HostStats get_stats() override {
    tide_pinned_stats from = TIDE_PINNED_STATS_INIT;
    at::HostStats to;
    check(tide_pinned_get_stats(cache(), &from));
    copy_counts(to, from, 0);
    to.host_alloc_time = duration_of(from.host_alloc_time);
    to.host_free_time = duration_of(from.host_free_time);
    to.num_host_alloc = from.num_host_alloc;
    to.num_host_free = from.num_host_free;
    return to;
  }
  void reset_accumulated_stats() override { tide_pinned_reset_accumulated(cache()); }
  void reset_peak_stats() override { tide_pinned_reset_peaks(cache()); }

  // Pools of graphs.
  void begin_allocate_to_pool(MempoolId_t id, Filter filter) {
    const std::lock_guard<std::mutex> guard(pools_lock);
    const tide_pool known = pool_find(id);
    const tide_pool pool = known != 0 ? known : pool_make(id);
    tide_pinned_scope scope = TIDE_PINNED_SCOPE_INIT;
    scope.kind = TIDE_SCOPE_FILTER;
    scope.filter = filter_takes;
    scope.user = filters.add(std::move(filter));
    if (known != 0) check(tide_pinned_pool_retain(cache(), pool));  // each begin adds a user
    const tide_status status = tide_pinned_pool_begin(cache(), pool, &scope);
    filters.opened(0, pool, scope.user, status == TIDE_OK);
    if (status != TIDE_OK) pool_drop(id, pool);
    check(status);
  }
  void end_allocate_to_pool(MempoolId_t id) {
    const std::lock_guard<std::mutex> guard(pools_lock);
    const tide_pool pool = pool_find(id);
    if (pool == 0) return;
    void* const filter = filters.of_scope(0, pool);
    check(tide_pinned_pool_end(cache(), pool));
    filters.drop(filter);
  }
  void release_pool(MempoolId_t id) {
    if (is_forked()) return;
    const std::lock_guard<std::mutex> guard(pools_lock);
    const tide_pool pool = pool_find(id);
    if (pool != 0) pool_drop(id, pool);
  }
};
SHIM_END_OVERRIDES
SHIM_REFUSE_ABSTRACT(HostAllocator);
#define CHECK_METHOD(method) SHIM_CHECK(HostAllocator, at::HostAllocator, method)
SHIM_HOST_METHODS(CHECK_METHOD)
#undef CHECK_METHOD

std::atomic<at::HostAllocator*> placed{ nullptr };

}  // namespace
}  // namespace tidemark::host

namespace tidemark {

void install_host() {
  auto* const allocator = new host::HostAllocator;
  register_with([&](uint8_t priority) { at::setHostAllocator(c10::kCUDA, allocator, priority); },
                [&] { return at::getHostAllocator(c10::kCUDA) == allocator; });
  host::placed.store(allocator);
}

std::string host_replaced_by() {
  at::HostAllocator* const present = at::getHostAllocator(c10::kCUDA);
  if (host::placed.load() == nullptr || present == host::placed.load()) return "";
  const auto& object = *present;
  return type_name(typeid(object)) + ", registered for pinned memory";
}

}  // namespace tidemark
