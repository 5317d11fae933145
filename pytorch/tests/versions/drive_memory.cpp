// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory, streams, pools, limits and pinned memory.
#include <algorithm>
#include <random>

#include "drive.h"

namespace drive {
namespace {

struct Held {
  c10::DataPtr data;
  size_t bytes = 0;
  uint8_t value = 0;
};

bool is_intact(const Held& held) {
  return held.data.get() == nullptr || is_filled(held.data.get(), held.value, held.bytes);
}

// Random requests of several streams keep their contents; then nothing is left.
void keeps_contents() {
  std::mt19937_64 random(21);
  Stream streams[3];
  std::vector<Held> all(24);
  for (int i = 0; i < 300; i++) {
    Held& held = all[random() % all.size()];
    Stream& stream = streams[random() % 3];
    CHECK(is_intact(held));
    held.data.clear();
    model::stream = reinterpret_cast<cudaStream_t>(stream.handle);
    model::is_external = &stream == &streams[2];
    held = { {}, size_t{ 1 } + random() % (i % 4 == 0 ? 3 * mib : 5000), static_cast<uint8_t>(i) };
    held.data = cuda()->allocate(held.bytes);
    stream.fill(held.data.get(), held.value, held.bytes);
    stream.wait();
  }
  model::is_external = false;
  CHECK(std::all_of(all.begin(), all.end(), is_intact));
  all.clear();
  CHECK(cuda()->getDeviceStats(0).allocated_bytes[0].current == 0);
  CHECK(static_cast<size_t>(cuda()->getDeviceStats(0).reserved_bytes[0].current) == used());
  cuda()->emptyCache({ 0, 0 });
  CHECK(used() == 0);
}

void has_raw_memory() {
  Stream stream;
  void* const address = cuda()->raw_alloc(5000);
  void* const other = cuda()->raw_alloc_with_stream(5000, reinterpret_cast<cudaStream_t>(stream.handle));
  stream.fill(address, 1, 5000);
  stream.fill(other, 2, 5000);
  CHECK(is_filled(address, 1, 5000) && is_filled(other, 2, 5000));
  cuda()->copy_data(other, address, 5000);
  CHECK(is_filled(other, 1, 5000));
  cuda()->raw_delete(address);
  cuda()->raw_delete(other);
  cuda()->raw_delete(nullptr);
  int local = 0;
  CHECK(throws<c10::Error>([&] { cuda()->raw_delete(&local); }));
  CHECK(throws<c10::Error>([&] { (void)cuda()->getMemoryFraction(3); }));
  CHECK(cuda()->allocate(0).get() == nullptr);
}

// Memory that another stream still writes is not handed out.
template <typename Record> void waits_for(const Record& record) {
  Stream side;
  Stream stream;
  c10::DataPtr data = cuda()->allocate(2 * mib);
  void* const address = data.get();
  record(data, side);
  const std::shared_ptr<Stream::Gate> gate = side.hold();
  side.fill(address, 7, 2 * mib);
  data.clear();
  std::vector<c10::DataPtr> others;
  for (int i = 0; i < 4; i++) {
    others.push_back(cuda()->allocate(2 * mib));
    stream.fill(others.back().get(), 9, 2 * mib);
  }
  stream.wait();
  gate->open();
  for (const c10::DataPtr& other : others) CHECK(is_filled(other.get(), 9, 2 * mib));
}

void records_streams() {
  waits_for([](const c10::DataPtr& data, const Stream& side) {
    cuda()->recordStream(data, c10::cuda::CUDAStream(side.wrapped()));
  });
#if TORCH_VERSION_MINOR >= 9
  waits_for([](const c10::DataPtr& data, const Stream& side) {
    auto* const device = static_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::kCUDA));
    device->recordStream(data, side.wrapped());
  });
#endif
}

void counts_users_of_pools() {
  const PoolId id = { 0, 7 };
  Stream stream;
  cuda()->emptyCache({ 0, 0 });
  CHECK(used() == 0);
  CHECK(cuda()->getPoolUseCount(0, id) == 0);
  join_pool(id);
  CHECK(cuda()->getPoolUseCount(0, id) == 1);
  void* address = nullptr;
  {
    const Scope scope(id);
    CHECK(cuda()->getPoolUseCount(0, id) == 2);
    CHECK(throws<c10::Error>([&] { const Scope again(id); }));
    address = cuda()->raw_alloc(mib);
  }
  CHECK(cuda()->getPoolUseCount(0, id) == 1);
  const ca::SnapshotInfo info = snapshot(id);
  CHECK(!info.segments.empty());
  bool is_found = false;
  for (const ca::SegmentInfo& segment : info.segments) {
    const auto number = reinterpret_cast<uintptr_t>(address);
    CHECK(segment.owner_private_pool_id == id);
    is_found |= segment.address <= number && number < segment.address + segment.total_size;
  }
  CHECK(is_found);
  CHECK(cuda()->checkPoolLiveAllocations(0, id, { address }));
  CHECK(!cuda()->checkPoolLiveAllocations(0, id, {}));
#if TORCH_VERSION_MINOR >= 14
  const size_t all = used();
  CHECK(static_cast<size_t>(cuda()->getDeviceStats(0).reserved_bytes_by_private_pools[id][0].current) == all);
#endif
  cuda()->raw_delete(address);
  cuda()->releasePool(0, id);
  CHECK(cuda()->getPoolUseCount(0, id) == 0);
  CHECK(throws<c10::Error>([&] { cuda()->releasePool(0, id); }));
  cuda()->emptyCache(id);
  CHECK(used() == 0);
}

// What a pool has idle serves others only if it lends.
void lends_memory_of_pools() {
  const PoolId id = { 0, 8 };
  Stream stream;
  join_pool(id);
  {
    const Scope scope(id);
    cuda()->raw_delete(cuda()->raw_alloc(128 * mib));
  }
  CHECK(used() >= 128 * mib);
  const c10::DataPtr held = cuda()->allocate(100 * mib);
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(100 * mib); }));
  lend_pool(id);
  c10::DataPtr lent = cuda()->allocate(100 * mib);
  stream.fill(lent.get(), 3, 100 * mib);
  stream.wait();
  CHECK(is_filled(lent.get(), 3, 100 * mib));
  lent.clear();
  cuda()->releasePool(0, id);
}

void has_pools_with_an_allocator() {
  const PoolId id = { 0, 9 };
  int alive = 0;
  Stream stream;
  std::shared_ptr<ca::CUDAAllocator> source = counting_source(&alive);
  join_pool(id, source);
  {
    const Scope scope(id);
    void* const address = cuda()->raw_alloc(3 * mib);
    CHECK(alive == 1);
    stream.fill(address, 5, 3 * mib);
    CHECK(is_filled(address, 5, 3 * mib));
    cuda()->raw_delete(address);
  }
  cuda()->releasePool(0, id);
  cuda()->emptyCache({ 0, 0 });
  CHECK(alive == 0);
  CHECK(source.use_count() == 1);
}

void restores_checkpoints() {
  const PoolId id = { 0, 10 };
  Stream stream;
  join_pool(id);
  void* kept = nullptr;
  void* later = nullptr;
  {
    const Scope scope(id);
    kept = cuda()->raw_alloc(mib);
    const std::shared_ptr<ca::AllocatorState> state = cuda()->getCheckpointState(0, id);
    later = cuda()->raw_alloc(mib);
    cuda()->raw_delete(kept);
    const ca::CheckpointDelta delta = cuda()->setCheckpointPoolState(0, state);
    CHECK(delta.ptrs_freed.size() == 1 && delta.ptrs_freed[0] == later);
    CHECK(delta.dataptrs_allocd.size() == 1 && delta.dataptrs_allocd[0].get() == kept);
    CHECK(cuda()->checkPoolLiveAllocations(0, id, { kept }));
    CHECK(throws<c10::Error>(
        [&] { (void)cuda()->setCheckpointPoolState(0, std::make_shared<ca::AllocatorState>()); }));
  }
  cuda()->releasePool(0, id);
  cuda()->emptyCache({ 0, 0 });
}

int oom_count = 0;

void observes_out_of_memory() {
  cuda()->attachOutOfMemoryObserver([](int64_t device, size_t bytes, size_t total, size_t) {
    if (device == 0 && bytes >= 200 * mib && total == capacity / 2) oom_count++;
  });
  CHECK(cuda()->getMemoryFraction(0) == 1.0);
  cuda()->setMemoryFraction(0.5, 0);
  CHECK(cuda()->getMemoryFraction(0) == 0.5);
  const int64_t before = cuda()->getDeviceStats(0).num_ooms;
  const int64_t profiled = model::profiled_ooms;
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(200 * mib); }));
  CHECK(oom_count == 1);
  CHECK(cuda()->getDeviceStats(0).num_ooms == before + 1);
  CHECK(model::profiled_ooms == profiled + 1);
  CHECK(throws<c10::Error>([] { cuda()->setMemoryFraction(1.5, 0); }));
  cuda()->setMemoryFraction(1.0, 0);
  CHECK(cuda()->allocate(200 * mib).get() != nullptr);
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(size_t{ 1 } << 61); }));
  cuda()->emptyCache({ 0, 0 });
}

#if TORCH_VERSION_MINOR >= 12
int rejection_count = 0;

void observes_rejections() {
  cuda()->attachOomRejectionObserver([](int64_t device, size_t bytes, size_t reserved, size_t total) {
    if (device == 0 && bytes >= capacity && reserved == used() && total == capacity) rejection_count++;
  });
  const int before = oom_count;
  CHECK(tidemark_torch_configure("throw_on_cudamalloc_oom:True") == nullptr);
  const c10::DataPtr held = cuda()->allocate(3 * mib);
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(capacity); }));
  CHECK(tidemark_torch_configure("throw_on_cudamalloc_oom:False") == nullptr);
  if (!is_tide()) {
    CHECK(rejection_count == 1 && oom_count == before);
    CHECK(cuda()->getDeviceStats(0).num_oom_rejections == 1);
  }
}
#endif

void answers_questions() {
  Stream stream;
  const c10::DataPtr data = cuda()->allocate(mib);
  size_t largest = 1;
  cuda()->cacheInfo(0, &largest);
  CHECK(largest <= capacity);
  CHECK(cuda()->isEnabled());
  CHECK(cuda()->raw_deleter() != nullptr);
  if (!is_tide()) {
    size_t bytes = 0;
    void* const base = cuda()->getBaseAllocation(data.get(), &bytes);
    CHECK(base <= data.get() && bytes >= mib);
  }
  std::vector<uint8_t> from(1000, 8);
  CHECK(cuda()->memcpyAsync(data.get(), 0, from.data(), 0, 1000, model::stream, false) == cudaSuccess);
  CHECK(is_filled(data.get(), 8, 1000));
#if TORCH_VERSION_MINOR >= 14
  cuda()->markCaptureBegin(0);
  cuda()->markCaptureEnd(0);
  CHECK(cuda()->supportsUserMetadata());
  CHECK(throws<c10::Error>([&] { (void)cuda()->allocateWithAddress(512, data.get()); }));
#endif
}

void can_switch_caching_off() {
  cuda()->emptyCache({ 0, 0 });
  cuda()->enable(false);
  CHECK(!cuda()->isEnabled());
  const size_t before = used();
  cuda()->raw_delete(cuda()->raw_alloc(8 * mib));
  CHECK(used() == before);
  cuda()->enable(true);
}

void informs_the_profiler() {
  model::is_profiling = true;
  model::profiled_bytes = 0;
  {
    const c10::DataPtr data = cuda()->allocate(mib);
    CHECK(static_cast<size_t>(model::profiled_bytes.load()) >= mib);
  }
  CHECK(model::profiled_bytes == 0);
  model::is_profiling = false;
}

// ---------------------------------------------------------------------------------------------------
// Pinned memory

int64_t pinned_active(const at::HostStats& stats) {
#if TORCH_VERSION_MINOR >= 10
  return stats.active_requests.current;
#else
  return stats.allocation.current;
#endif
}

void has_pinned_memory() {
  Stream stream;
  const int64_t before = pinned_active(host()->get_stats());
  c10::DataPtr data = host()->allocate(100000);
  CHECK(data.get() != nullptr && data.device().type() == c10::kCPU);
  CHECK(pinned_active(host()->get_stats()) == before + 1);
  std::memset(data.get(), 4, 100000);
  const c10::DataPtr copy = cuda()->allocate(100000);
  CHECK(tide_machine_copy(machine, 0, stream.handle, copy.get(), data.get(), 100000) == TIDE_OK);
  CHECK(host()->record_event(data.get(), data.get_context(), stream.wrapped()));
  CHECK(host()->record_event(static_cast<char*>(data.get()) + 50, data.get_context(), stream.wrapped()));
  CHECK(host()->record_event(data.get(), nullptr, stream.wrapped()));
  int local = 0;
  CHECK(!host()->record_event(&local, &local, stream.wrapped()));
  CHECK(is_filled(copy.get(), 4, 100000));
  data.clear();
  host()->empty_cache();  // work that it waited for is done
  CHECK(pinned_active(host()->get_stats()) == before);
  host()->reset_accumulated_stats();
  host()->reset_peak_stats();
  CHECK(host()->get_stats().num_host_free <= host()->get_stats().num_host_alloc + 1);
}

// Pinned memory that a copy still reads is not handed out.
void pinned_memory_waits() {
  Stream stream;
  const c10::DataPtr copy = cuda()->allocate(mib);
  c10::DataPtr data = host()->allocate(mib);
  std::memset(data.get(), 6, mib);
  const std::shared_ptr<Stream::Gate> gate = stream.hold();
  CHECK(tide_machine_copy(machine, 0, stream.handle, copy.get(), data.get(), mib) == TIDE_OK);
  CHECK(host()->record_event(data.get(), data.get_context(), stream.wrapped()));
  data.clear();
  const c10::DataPtr next = host()->allocate(mib);
  std::memset(next.get(), 1, mib);
  gate->open();
  CHECK(is_filled(copy.get(), 6, mib));
}

#if TORCH_VERSION_MINOR >= 16
// Idle memory is had again at its address, and no other memory is.
void has_memory_at_an_address() {
  const Stream stream;
  c10::DataPtr first = cuda()->allocate(4 * mib);
  auto* const address = static_cast<uint8_t*>(first.get());
  CHECK(throws<c10::Error>([&] { (void)cuda()->allocateWithAddress(2 * mib, address); }));
  first.clear();
  {
    const c10::DataPtr inside = cuda()->allocateWithAddress(2 * mib, address + 2 * mib);
    CHECK(inside.get() == address + 2 * mib && inside.get_deleter() == cuda()->raw_deleter());
    CHECK(throws<c10::Error>([&] { (void)cuda()->allocateWithAddress(3 * mib, address); }));
    CHECK(cuda()->allocateWithAddress(2 * mib, address).get() == address);
  }
  CHECK(throws<c10::Error>([&] { (void)cuda()->allocateWithAddress(2 * mib, address + 1); }));
  const Stream other;
  CHECK(throws<c10::Error>([&] { (void)cuda()->allocateWithAddress(2 * mib, address); }));
}

// A pool with an option that the shim does not know is there, and the first one warns.
void warns_of_options_of_pools() {
  const int64_t before = model::warnings;
  for (unsigned i = 0; i < 3; i++) {
    cuda()->createOrIncrefPool(0, { 0, 70 + i }, nullptr, i > 0);
    CHECK(cuda()->getPoolUseCount(0, { 0, 70 + i }) == 1);
    CHECK(model::warnings == before + (i > 0 ? 1 : 0));
    cuda()->releasePool(0, { 0, 70 + i });
  }
}
#endif

#if TORCH_VERSION_MINOR >= 11
void pinned_memory_has_pools() {
  const PoolId id = { 3, 0 };
  Stream stream;
  int asked = 0;
  host()->begin_allocate_to_pool(id, [&](c10::Stream) { return ++asked > 0; });
  c10::DataPtr inside = host()->allocate(5000);
  void* const address = inside.get();
  host()->end_allocate_to_pool(id);
  CHECK(asked >= 1);
  inside.clear();
  const c10::DataPtr outside = host()->allocate(5000);
  CHECK(outside.get() != address);
  host()->release_pool(id);
  host()->empty_cache();
}
#endif

}  // namespace

const std::vector<Test> memory_tests = {
  { "keeps_contents", keeps_contents },
  { "has_raw_memory", has_raw_memory },
  { "records_streams", records_streams },
  { "counts_users_of_pools", counts_users_of_pools },
  { "lends_memory_of_pools", lends_memory_of_pools },
  { "has_pools_with_an_allocator", has_pools_with_an_allocator },
  { "restores_checkpoints", restores_checkpoints },
  { "observes_out_of_memory", observes_out_of_memory },
#if TORCH_VERSION_MINOR >= 12
  { "observes_rejections", observes_rejections },
#endif
  { "answers_questions", answers_questions },
  { "can_switch_caching_off", can_switch_caching_off },
  { "informs_the_profiler", informs_the_profiler },
  { "has_pinned_memory", has_pinned_memory },
  { "pinned_memory_waits", pinned_memory_waits },
#if TORCH_VERSION_MINOR >= 16
  { "has_memory_at_an_address", has_memory_at_an_address },
  { "warns_of_options_of_pools", warns_of_options_of_pools },
#endif
#if TORCH_VERSION_MINOR >= 11
  { "pinned_memory_has_pools", pinned_memory_has_pools },
#endif
};

}  // namespace drive
