// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch's allocator class for CUDA memory, on tidemark/device.h: one allocator for each device,
// created at the first request. Every method forwards to C. Streams are the driver's on both sides; pools are
// found by their label, memory by its address. Built against the headers of the installed PyTorch (see
// tidemark/torch/build.py), and installed before CUDA starts. shim_versions.h has the differences between
// versions.
#include "shim.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "shim_blocks.h"
#include "shim_devices.h"
#include "shim_look.h"
#include "shim_methods.h"
#include "shim_observers.h"
#include "shim_place.h"
#include "shim_pools.h"
#include "shim_share.h"

namespace tidemark {
namespace {

using c10::DeviceIndex;

// ---------------------------------------------------------------------------------------------------
// Other processes

#ifdef TORCH_VERSION_MINOR
constexpr int shared_format = share_format(TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR);
#else
constexpr int shared_format = share_format(2, 11);
#endif

void close_shared(tide_device_cache* device, void* address) {
  if (!is_forked()) (void)!tide_device_unimport(device, address);
}

void warn_of_sharing() {
  static std::atomic<bool> is_told{ false };
  if (is_told.exchange(true)) return;
  warn(
      "A process without Tidemark cannot open this CUDA tensor: its memory lies in handles of several sizes. "
      "The setting tide_most_handle_mb=2 gives all handles one size.");
}

// ---------------------------------------------------------------------------------------------------
// Checkpoints

struct Checkpoint final : ca::AllocatorState {
  ~Checkpoint() override { tide_checkpoint_free(checkpoint); }
  tide_checkpoint* checkpoint = nullptr;
};

// ---------------------------------------------------------------------------------------------------
// The class

constexpr size_t text_limit = 4095;  // bytes of a context or of metadata

void start_history(bool is_on, ca::CreateContextFn recorder, size_t count, ca::RecordContext when,
                   bool clears, const std::vector<std::string>& skipped) {
  tide_history_options history = history_of(recorder, count, when, skipped);
  history.is_on = is_on;
  history.clears = clears;
  devices.set_history(history);
  if (clears || !is_on) forget_stacks();
}

ca::SnapshotInfo look(MempoolId_t id, bool has_traces) {
  ca::SnapshotInfo info{};
  info.config_metadata = config_of(options());
  if (has_traces) info.device_traces.resize(static_cast<size_t>(devices.count.load()));
  devices.each([&](tide_device_cache* device) { add_to_snapshot(device, id, has_traces, info); });
  return info;
}

// Is a value what its type begins with?
template <typename Value> auto is_initial(const Value& value, int) -> decltype(bool{ value == Value{} }) {
  return value == Value{};
}
template <typename Value> bool is_initial(const Value&, long) { return false; }

void warn_of_pools() {
  static std::atomic<bool> is_told{ false };
  if (!is_told.exchange(true))
    warn("PyTorch asks for a pool with an option that Tidemark does not know: it has no effect.");
}

// createOrIncrefPool with the parameters that this PyTorch has: options may stand behind the allocator.
template <typename Method> class PoolMaker : public ca::CUDAAllocator {};
template <typename Base>
class PoolMaker<void (Base::*)(DeviceIndex, MempoolId_t, ca::CUDAAllocator*)> : public Base {  // before 2.11
public:
  void createOrIncrefPool(DeviceIndex index, MempoolId_t id, ca::CUDAAllocator* source) override {
    pool_join(index, id, Source(source, [](ca::CUDAAllocator*) {}));  // its owner keeps it
  }
};
template <typename Base, typename... Options>
class PoolMaker<void (Base::*)(DeviceIndex, MempoolId_t, Source, Options...)> : public Base {
public:
  void createOrIncrefPool(DeviceIndex index, MempoolId_t id, Source source, Options... options) override {
    pool_join(index, id, source);
    if (!(is_initial(options, 0) && ...)) warn_of_pools();
  }
};

// Methods without `override` have other parameters in other versions.
SHIM_BEGIN_OVERRIDES
class Allocator final : public PoolMaker<decltype(&ca::CUDAAllocator::createOrIncrefPool)> {
public:
  // Memory.
  c10::DataPtr allocate(size_t bytes) override {
    const DeviceIndex index = c10::cuda::current_device();
    void* const address = take(index, bytes, Place::now(index));
    return { address, address, &give, c10::Device(c10::kCUDA, index) };
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  c10::DataPtr allocateWithAddress(size_t bytes, void* wanted) {
    const DeviceIndex index = c10::cuda::current_device();
    void* const address = take_at(index, bytes, Place::now(index), wanted);
    return { address, address, &give, c10::Device(c10::kCUDA, index) };
  }
  void* raw_alloc(size_t bytes) override {
    const DeviceIndex index = c10::cuda::current_device();
    return take(index, bytes, Place::now(index));
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    const DeviceIndex index = c10::cuda::current_device();
    return take(index, bytes, Place(stream, Place::now(index)));
  }
  void raw_delete(void* address) override { give(address); }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    if (data.get() == nullptr || data.get_deleter() != &give) return;
    tide_device_cache* const device = devices.at(data.device().index());
    tide_block block = { nullptr, 0 };
    check(tide_device_find(device, data.get(), &block));
    check(tide_device_record_on(device, block, stream.device_index(), stream_of(stream.stream())));
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }
  void* getBaseAllocation(void* address, size_t* bytes) override {
    void* base = nullptr;
    tide_device_cache* const device = devices.owner(address);
    check(tide_device_base(device, address, &base, bytes));
    return base;
  }

  // Lifetime and limits.
  void init(int count) override { devices.count.store(std::min(count, TIDE_DEVICE_MAX)); }
  bool initialized() override { return devices.count.load() > 0; }
  std::string name() override { return "tidemark"; }
  void enable(bool value) override { devices.set_caching(value, false); }
  bool isEnabled() const override { return devices.is_enabled.load(); }
  double getMemoryFraction(DeviceIndex index) override {
    tide_device_cache* const device = devices.find(index);
    return device != nullptr ? tide_device_fraction(device) : options().memory_fraction;
  }
  void setMemoryFraction(double fraction, DeviceIndex index) override {
    const bool is_valid = fraction >= 0 && fraction <= 1;
    if (!is_valid) raise_error("invalid fraction:%g. Please set within [0, 1].", fraction);
    check(tide_device_set_fraction(devices.at(index), fraction));
  }
  void emptyCache(MempoolId_t id) override {
    if (is_forked()) return;
    const Call call;
    devices.each([&](tide_device_cache* device) {
      const bool is_all = id == MempoolId_t{ 0, 0 };
      const tide_status status = is_all ? tide_device_trim(device, 0) : pool_trim(device, id);
      if (status != TIDE_ERR_HANDLE) check(status);  // the pool is gone
    });
    raise_pending();
  }
  void cacheInfo(DeviceIndex index, size_t* largest) override {
    check(tide_device_largest(devices.at(index), largest));
  }

  // Statistics.
  ca::DeviceStats getDeviceStats(DeviceIndex index) override { return stats_of(devices.find(index)); }
  void resetAccumulatedStats(DeviceIndex index) override {
    tide_device_cache* const device = devices.find(index);
    if (device != nullptr) tide_device_reset_accumulated(device);
  }
  void resetPeakStats(DeviceIndex index) override {
    tide_device_cache* const device = devices.find(index);
    if (device != nullptr) tide_device_reset_peaks(device);
  }
  std::vector<ca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex index) {
    return expandable_sizes_of(devices.at(index));
  }

  // Pools, graphs, checkpoints.
  void beginAllocateToPool(DeviceIndex index, MempoolId_t id, Filter filter) override {
    pool_begin(index, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex index, MempoolId_t id) override { pool_end(index, id); }
  void releasePool(DeviceIndex index, MempoolId_t id) override {
    if (is_forked()) return;
    tide_device_cache* const device = devices.at(index);
    const Call call;  // a pool is dropped by a destructor: what user functions throw is dropped, too
    check(tide_device_pool_drop(device, pool_of(device, id)));
  }
  int getPoolUseCount(DeviceIndex index, MempoolId_t id) override {
    uint32_t users = 0;
    const tide_pool pool = pool_find(devices.at(index), id);
    if (pool != 0) check(tide_device_pool_users(devices.at(index), pool, &users));
    return static_cast<int>(users);
  }
  void setUseOnOOM(DeviceIndex index, MempoolId_t id, bool is_on) { pool_lend(index, id, is_on); }
  void setUseOnOOM(DeviceIndex index, MempoolId_t id) { pool_lend(index, id, true); }
  void setNoSplit(DeviceIndex index, MempoolId_t id) {
    tide_device_cache* const device = devices.at(index);
    check(tide_device_pool_set_no_split(device, pool_of(device, id)));
  }
  bool checkPoolLiveAllocations(DeviceIndex index, MempoolId_t id,
                                const std::unordered_set<void*>& expected) override {
    tide_device_cache* const device = devices.at(index);
    const std::vector<const void*> addresses(expected.begin(), expected.end());
    bool is_equal = false;
    check(tide_device_pool_check(device, pool_of(device, id), addresses.data(), addresses.size(), &is_equal));
    return is_equal;
  }
  std::shared_ptr<ca::AllocatorState> getCheckpointState(DeviceIndex index, MempoolId_t id) override {
    auto state = std::make_shared<Checkpoint>();
    tide_device_cache* const device = devices.at(index);
    check(tide_device_checkpoint(device, pool_of(device, id), &state->checkpoint));
    return state;
  }
  // A capture is known by the driver's state of its stream, and by the scope of its pool.
  void markCaptureBegin(DeviceIndex) {}
  void markCaptureEnd(DeviceIndex) {}
  ca::CheckpointDelta setCheckpointPoolState(DeviceIndex index,
                                             std::shared_ptr<ca::AllocatorState> state) override {
    tide_restore_delta from = TIDE_RESTORE_DELTA_INIT;
    const std::unique_ptr<tide_restore_delta, void (*)(tide_restore_delta*)> owner(&from,
                                                                                   tide_restore_delta_clear);
    ca::CheckpointDelta to;
    const auto checkpoint = std::dynamic_pointer_cast<Checkpoint>(state);
    if (!checkpoint) raise_error("Expected a checkpoint of this allocator");
    tide_device_cache* const device = devices.at(index);
    checked([&] { return tide_device_restore(device, checkpoint->checkpoint, &from); });
    to.ptrs_freed.assign(from.released, from.released + from.released_count);
    for (size_t i = 0; i < from.created_count; i++) {
      void* const address = from.created[i].address;
      to.dataptrs_allocd.emplace_back(address, address, &give, c10::Device(c10::kCUDA, index));
    }
    return to;
  }

  // Other devices and processes.
  void enablePeerAccess(DeviceIndex user, DeviceIndex owner) override {
    check(tide_device_enable_peer(devices.at(owner), user));
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                          cudaStream_t stream, bool is_peer) override {
    if (is_peer || to_device == from_device)
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }
  ca::ShareableHandle shareIpcHandle(void* address) override {
    std::string bytes;
    uint64_t offset = 0;
    bool is_for_all = true;
    check(share_memory(devices.owner(address), address, shared_format, bytes, offset, is_for_all));
    if (!is_for_all) warn_of_sharing();
    return { static_cast<ptrdiff_t>(offset), bytes };
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    std::string why;
    tide_device_cache* const device = devices.at(c10::cuda::current_device());
    std::shared_ptr<void> base = open_memory(device, handle, close_shared, why);
    if (!why.empty()) raise_error("tidemark: %s", why.c_str());
    if (!base) raise_last_error();
    return base;
  }

  // Snapshots and history.
  ca::SnapshotInfo snapshot(MempoolId_t id, bool has_traces) { return look(id, has_traces); }
  ca::SnapshotInfo snapshot(MempoolId_t id) { return look(id, true); }
  bool isHistoryEnabled() override { return devices.has_history(); }
  void recordHistory(bool is_on, ca::CreateContextFn recorder, size_t count, ca::RecordContext when,
                     bool clears, const std::vector<std::string>& skipped) {
    start_history(is_on, recorder, count, when, clears, skipped);
  }
  void recordHistory(bool is_on, ca::CreateContextFn recorder, size_t count, ca::RecordContext when,
                     bool clears) {
    start_history(is_on, recorder, count, when, clears, {});
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) {
    tide_device_cache* const device = address != nullptr && !is_forked() ? devices.seek(address) : nullptr;
    return device != nullptr ? stack_at(device, address) : nullptr;
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs) override {
    if (!devices.has_history()) return;
    tide_device_cache* const device = devices.at(c10::cuda::current_device());
    (void)!tide_device_annotate(device, annotation_text(pairs).c_str());
  }
  void pushCompileContext(std::string& text) override {
    if (devices.has_history()) (void)!tide_thread_push_context(text.substr(0, text_limit).c_str());
  }
  void popCompileContext() override {
    if (devices.has_history()) (void)!tide_thread_pop_context();
  }
  void setUserMetadata(const std::string& text) {
    (void)!tide_thread_set_metadata(text.substr(0, text_limit).c_str());
  }
  std::string getUserMetadata() { return tide_thread_metadata(); }
  bool supportsUserMetadata() { return true; }
  void annotateMemory(const void* address, const std::string& text) {
    const bool is_wanted = address != nullptr && !is_forked() && devices.has_history();
    tide_device_cache* const device = is_wanted ? devices.seek(address) : nullptr;
    if (device != nullptr) add_remark(device, address, text.substr(0, text_limit - 32));  // less its prefix
  }

  void attachOutOfMemoryObserver(ca::OutOfMemoryObserver observer) override {
    (void)oom_observers.add(std::move(observer));
  }
  void attachOomRejectionObserver(ca::OomRejectionObserver observer) {
    (void)rejection_observers.add(std::move(observer));
  }
  void attachAllocatorTraceTracker(ca::AllocatorTraceTracker tracker) override {
    if (trackers.add(std::move(tracker))) track_devices();
  }
};
SHIM_END_OVERRIDES
SHIM_REFUSE_ABSTRACT(Allocator);
#define CHECK_METHOD(method) SHIM_CHECK(Allocator, ca::CUDAAllocator, method)
SHIM_METHODS(CHECK_METHOD)
#undef CHECK_METHOD

}  // namespace

void install_device() {
  const char* const uncached = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  devices.set_caching(true, uncached != nullptr && std::strcmp(uncached, "1") == 0);
  observe_devices();
  place(new Allocator);
  watch_forks();
}

}  // namespace tidemark
