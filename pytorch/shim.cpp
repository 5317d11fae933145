// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// PyTorch's allocator class for CUDA memory, on tidemark/device.h: one allocator for each device,
// created at the first request. Every method forwards to C. Streams are the driver's on both sides; pools are
// found by their label, memory by its address. Built against the headers of the installed PyTorch (see
// tidemark/torch/build.py), and installed before CUDA starts. shim_versions.h has the differences between
// versions.
#include "shim.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "shim_look.h"
#include "shim_place.h"
#include "shim_share.h"

namespace tidemark {
namespace {

using c10::DeviceIndex;

// ---------------------------------------------------------------------------------------------------
// Filters of scopes

using Filter = std::function<bool(cudaStream_t)>;
Filters<Filter>& filters = *new Filters<Filter>;

bool filter_takes(void* user, tide_stream stream) {
  bool takes = false;
  const std::shared_ptr<Filter> filter = filters.find(user);
  if (filter) guarded([&] { takes = (*filter)(stream_of(stream)); });
  return takes;
}

// ---------------------------------------------------------------------------------------------------
// Observers

// User functions that PyTorch registers: never removed, and called with no lock held.
template <typename Function> class Functions {
public:
  using List = std::shared_ptr<const std::vector<Function>>;

  // Returns true for the first one.
  bool add(Function function) {
    const std::lock_guard<std::mutex> guard(lock);
    auto longer = std::make_shared<std::vector<Function>>(*list);
    longer->push_back(std::move(function));
    list = std::move(longer);
    return list->size() == 1;
  }

  // Calls them in order, until one throws.
  template <typename... Values> void call(const Values&... values) {
    List now;
    {
      const std::lock_guard<std::mutex> guard(lock);
      now = list;
    }
    for (const Function& function : *now) {
      if (!pending) guarded([&] { function(values...); });
    }
  }

private:
  std::mutex lock;
  List list = std::make_shared<std::vector<Function>>();
};
auto& oom_observers = *new Functions<ca::OutOfMemoryObserver>;
auto& rejection_observers = *new Functions<ca::OomRejectionObserver>;
auto& trackers = *new Functions<ca::AllocatorTraceTracker>;

// The last out-of-memory report of any thread, for explain_oom().
std::mutex oom_lock;
tide_oom last_oom;

void observe_oom(void*, const tide_oom* oom) {
  const size_t total = oom->limit != TIDE_NO_LIMIT ? oom->limit : oom->device_total;
  {
    const std::lock_guard<std::mutex> guard(oom_lock);
    last_oom = *oom;
  }
  const int64_t index = oom->device;
  if (oom->is_rejected)
    rejection_observers.call(index, oom->segment_bytes, oom->reserved_bytes, oom->device_total);
  else oom_observers.call(index, oom->segment_bytes, total, oom->device_free);
}

void track(void* user, const tide_trace_entry* entry) {
  if (entry->action > TIDE_ACTION_OOM) return;
  guarded([&] { trackers.call(entry_of(static_cast<tide_device_cache*>(user), *entry, epoch_ns())); });
}

bool reclaim(void*, tide_device_cache*) {
  bool is_freed = false;
  auto* const registry = c10::FreeCudaMemoryCallbacksRegistry();
  guarded([&] {
    for (const auto& name : registry->Keys())
      guarded([&] { is_freed = registry->Create(name)->Execute() || is_freed; });
  });
  return is_freed;
}

// ---------------------------------------------------------------------------------------------------
// The devices

// Warns through PyTorch with a finished text, because TORCH_WARN formats with C++ streams: see raise_error().
void warn(std::string text) {
  c10::warn(c10::Warning(c10::UserWarning(), { __func__, __FILE__, static_cast<uint32_t>(__LINE__) },
                         std::move(text), false));
}

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

  // Calls a function for every device; in a forked child there is none.
  void each(const Wish& wish) {
    for (int i = 0; i < count.load() && !is_forked(); i++) {
      tide_device_cache* const device = made[static_cast<size_t>(i)].load(std::memory_order_acquire);
      if (device != nullptr) wish(device);
    }
  }

  // The same, and later for new devices.
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
  tide_device_cache* make(int index) {
    const std::lock_guard<std::mutex> guard(lock);
    auto& place = made[static_cast<size_t>(index)];
    tide_device_cache* device = place.load();
    if (device != nullptr) return device;
    check(tide_device_new(machine(), index, &options, &device));
    tide_device_set_caching(device, is_enabled.load() && !is_forbidden);
    if (history.is_on) check(tide_device_history(device, &history));
    for (const Wish& wish : wishes) wish(device);
    check(tide_device_set_default(index, device));
    place.store(device, std::memory_order_release);
    const char* const reason = tide_device_fallback_reason(device);
    if (*reason != '\0') warn(std::string("tidemark: ") + reason);
    return device;
  }

  static tide_history_options no_history() {
    tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
    history.is_on = false;
    return history;
  }

  std::mutex lock;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  bool is_forbidden = false;
  std::array<std::atomic<tide_device_cache*>, TIDE_DEVICE_MAX> made{};
  std::vector<Wish> wishes;
  tide_history_options history = no_history();
};
Devices& devices = *new Devices;  // never destroyed: tensors may outlive everything

// Informs the profiler and memory tracers; most runs have neither.
void tell(tide_device_cache* device, void* address, bool is_new) {
  const auto index = static_cast<DeviceIndex>(tide_device_index(device));
  if (c10::memoryProfilingEnabled()) {
    tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
    check(tide_device_get_stats(device, &stats));
    const auto bytes = static_cast<int64_t>(tide_device_bytes(device, address));
    const int64_t allocated = stats.allocated_bytes[TIDE_STAT_ALL].current - (is_new ? 0 : bytes);
    c10::reportMemoryUsageToProfiler(address, is_new ? bytes : -bytes, static_cast<size_t>(allocated),
                                     static_cast<size_t>(stats.reserved_bytes[TIDE_STAT_ALL].current),
                                     c10::Device(c10::kCUDA, index));
  }
  const auto* const trace = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(trace != nullptr)) {
    const auto number = reinterpret_cast<uintptr_t>(address);
    if (is_new) (*trace)->trace_gpu_memory_allocation(c10::kCUDA, number);
    else (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, number);
  }
}

// Writes the largest holders of live memory into a text; the Python package sets it.
using HolderWriter = void (*)(int device, char* text, size_t capacity);
std::atomic<HolderWriter> name_holders{ nullptr };

// The report, and who holds the memory if stacks are recorded.
std::string oom_text(const tide_oom& oom) {
  std::string text = oom.text;
  std::array<char, 4096> holders{};
  const HolderWriter write = name_holders.load();
  if (write != nullptr && devices.has_history()) write(oom.device, holders.data(), holders.size());
  if (holders[0] != '\0') text.append("\n").append(holders.data());
  return text;
}

// Throws the reason why a request failed: out of memory is PyTorch's own exception, with our report.
[[noreturn]] void raise_alloc(tide_status status, int index, size_t bytes) {
  const tide_oom& oom = *tide_device_last_oom();
  const bool is_reported = status == TIDE_ERR_NO_MEMORY && oom.device == index &&
                           oom.requested_bytes == bytes;
  if (is_reported) {
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(oom.rounded_bytes), oom.allocated_bytes,
                                     oom.reserved_bytes,
                                     c10::Device(c10::kCUDA, static_cast<DeviceIndex>(index)));
  }
  raise_pending();
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < size_t{ 1 } << 60,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  if (status != TIDE_ERR_NO_MEMORY) check(status);
  const std::string text = is_reported ? oom_text(oom) : tide_last_error()->text;
  TORCH_CHECK_WITH(OutOfMemoryError, false, text.c_str());
}

// A stream that a request is made on. PyTorch never destroys streams of its own. The id of another library's
// stream is its handle, and that library may destroy it at any time.
struct Place {
  explicit Place(const c10::cuda::CUDAStream& stream)
      : handle(stream.stream()), is_external(stream.id() == reinterpret_cast<intptr_t>(handle)) {}

  // A stream that is known by its handle alone counts as external, unless it is the current one.
  Place(cudaStream_t stream, const Place& current)
      : handle(stream), is_external(stream != current.handle || current.is_external) {}

  static Place now(DeviceIndex index) { return Place(c10::cuda::getCurrentCUDAStream(index)); }

  cudaStream_t handle;
  bool is_external;  // also true for the default stream, which the library knows
};

void* take(int index, size_t bytes, const Place& place) {
  tide_block block = { nullptr, 0 };
  tide_device_cache* const device = devices.at(index);
  const Call call;
  const tide_stream stream = stream_of(place.handle);
  const bool is_external = C10_UNLIKELY(place.is_external && place.handle != nullptr);
  const tide_status status = is_external ? tide_device_alloc_external(device, stream, bytes, &block)
                                         : tide_device_alloc(device, stream, bytes, &block);
  if (C10_UNLIKELY(status != TIDE_OK)) raise_alloc(status, index, bytes);
  if (C10_UNLIKELY(pending)) {
    (void)!tide_device_release(device, block);
    raise_pending();
  }
  if (block.address != nullptr) tell(device, block.address, true);
  return block.address;
}

void give(void* address) {
  if (address == nullptr || is_forked()) return;
  tide_device_cache* const device = devices.owner(address);
  const Call call;
  tell(device, address, false);
  check(tide_device_release_address(device, address));
}

// ---------------------------------------------------------------------------------------------------
// Pools

// The pool with an id, if it has users; 0 otherwise.
tide_pool pool_find(tide_device_cache* device, MempoolId_t id) {
  const uint64_t label[2] = { id.first, id.second };
  uint32_t users = 0;
  tide_pool pool = 0;
  if (tide_device_pool_find(device, label, &pool) != TIDE_OK) return 0;
  const bool is_there = tide_device_pool_users(device, pool, &users) == TIDE_OK;  // it may have been dropped
  return is_there && users != 0 ? pool : 0;
}

tide_pool pool_of(tide_device_cache* device, MempoolId_t id) {
  const tide_pool pool = pool_find(device, id);
  if (C10_UNLIKELY(pool == 0)) raise_error("Could not find pool of id (%llu, %llu)", id.first, id.second);
  return pool;
}

// The allocator that provides the segments of a pool; it lives as long as the pool.
using Source = std::shared_ptr<ca::CUDAAllocator>;

void* pool_segment(void* user, size_t bytes, int, tide_stream) {
  void* address = nullptr;
  guarded([&] { address = (*static_cast<Source*>(user))->raw_alloc(bytes); });
  return address;
}

void pool_segment_end(void* user, void* address, size_t, int, tide_stream) {
  guarded([&] { (*static_cast<Source*>(user))->raw_delete(address); });
}

void pool_closed(void* user) {
  guarded([&] { delete static_cast<Source*>(user); });
}

tide_pool pool_make(tide_device_cache* device, MempoolId_t id, const Source& source) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  options.label[0] = id.first;
  options.label[1] = id.second;
  auto kept = source ? std::make_unique<Source>(source) : nullptr;
  if (kept) {
    options.segment_alloc = pool_segment;
    options.segment_release = pool_segment_end;
    options.user = kept.get();
    options.closed = pool_closed;
  }
  tide_pool pool = 0;
  check(tide_device_pool_new(device, &options, &pool));
  (void)kept.release();
  remember_label(device, pool, id);
  return pool;
}

// Returns TIDE_ERR_HANDLE if there is no such pool.
tide_status pool_trim(tide_device_cache* device, MempoolId_t id) {
  const uint64_t label[2] = { id.first, id.second };
  tide_pool pool = 0;
  const tide_status status = tide_device_pool_find(device, label, &pool);
  return status == TIDE_OK ? tide_device_trim_pool(device, pool) : status;
}

std::mutex pools_lock;  // only one thread creates a missing pool

void pool_join(int index, MempoolId_t id, const Source& source) {
  tide_device_cache* const device = devices.at(index);
  const std::lock_guard<std::mutex> guard(pools_lock);
  const tide_pool known = pool_find(device, id);
  if (known != 0) check(tide_device_pool_retain(device, known));
  else (void)pool_make(device, id, source);
}

void pool_lend(int index, MempoolId_t id, bool is_on) {
  if (is_forked()) return;
  tide_device_cache* const device = devices.at(index);
  if (!is_on && pool_find(device, id) == 0) return;  // a dropped pool calls this in any case
  check(tide_device_pool_set_use_on_oom(device, pool_of(device, id), is_on));
}

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

// Methods without `override` have other parameters in other versions.
SHIM_BEGIN_OVERRIDES
class Allocator final : public ca::CUDAAllocator {
public:
  // Memory.
  c10::DataPtr allocate(size_t bytes) override {
    const DeviceIndex index = c10::cuda::current_device();
    void* const address = take(index, bytes, Place::now(index));
    return { address, address, &give, c10::Device(c10::kCUDA, index) };
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give; }
  c10::DataPtr allocateWithAddress(size_t, void*) {
    raise_error("tidemark does not support allocateWithAddress: it cannot choose the address of a block");
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
    tide_device_cache* const device = devices.at(index);
    const std::lock_guard<std::mutex> guard(pools_lock);
    const tide_pool known = pool_find(device, id);
    const tide_pool pool = known != 0 ? known : pool_make(device, id, nullptr);
    tide_scope scope = TIDE_SCOPE_INIT;
    scope.kind = TIDE_SCOPE_FILTER;
    scope.filter = filter_takes;
    scope.user = filters.add(std::move(filter));
    if (known != 0) check(tide_device_pool_retain(device, pool));  // each begin adds a user
    const tide_status status = tide_device_pool_begin(device, pool, &scope);
    filters.opened(index, pool, scope.user, status == TIDE_OK);
    if (status != TIDE_OK) (void)tide_device_pool_drop(device, pool);
    if (status == TIDE_ERR_STATE) raise_error("beginAllocateToPool: already recording to mempool_id");
    check(status);
  }
  void endAllocateToPool(DeviceIndex index, MempoolId_t id) override {
    tide_device_cache* const device = devices.at(index);
    const tide_pool pool = pool_of(device, id);
    void* const filter = filters.of_scope(index, pool);
    const tide_status status = tide_device_pool_end(device, pool);
    if (status == TIDE_ERR_STATE) raise_error("endAllocatePool: not currently recording to mempool_id");
    check(status);
    filters.drop(filter);
  }
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
  void createOrIncrefPool(DeviceIndex index, MempoolId_t id, std::shared_ptr<ca::CUDAAllocator> source) {
    pool_join(index, id, source);
  }
  void createOrIncrefPool(DeviceIndex index, MempoolId_t id, ca::CUDAAllocator* source) {
    pool_join(index, id, Source(source, [](ca::CUDAAllocator*) {}));  // its owner keeps it
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
  bool supportsUserMetadata() const { return true; }

  void attachOutOfMemoryObserver(ca::OutOfMemoryObserver observer) override {
    (void)oom_observers.add(std::move(observer));
  }
  void attachOomRejectionObserver(ca::OomRejectionObserver observer) {
    (void)rejection_observers.add(std::move(observer));
  }
  // Without a tracker, no entries are recorded for it.
  void attachAllocatorTraceTracker(ca::AllocatorTraceTracker tracker) override {
    if (!trackers.add(std::move(tracker))) return;
    devices.wish([](tide_device_cache* device) {
      tide_observer number = 0;
      check(tide_device_observe_trace(device, track, device, &number));
    });
  }
};
SHIM_END_OVERRIDES
SHIM_REFUSE_ABSTRACT(Allocator);

std::atomic<bool> has_started{ false };  // the driver was used
std::atomic<bool> has_forked{ false };

void watch_devices() {
  devices.wish([](tide_device_cache* device) {
    tide_observer number = 0;
    check(tide_device_observe_oom(device, observe_oom, nullptr, &number));
    check(tide_device_observe_reclaim(device, reclaim, nullptr, &number));
  });
}

void install_device() {
  const char* const uncached = std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  devices.set_caching(true, uncached != nullptr && std::strcmp(uncached, "1") == 0);
  watch_devices();
  place(new Allocator);
  (void)pthread_atfork(nullptr, nullptr, [] { has_forked.store(has_started.load()); });
}

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

bool is_forked() { return has_forked.load(std::memory_order_relaxed); }

tide_device_options options() { return devices.get_options(); }

void each_device(const std::function<void(tide_device_cache*)>& wish) { devices.each(wish); }

// For tests: another machine than the CUDA driver.
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

}  // namespace tidemark

// ---------------------------------------------------------------------------------------------------
// The functions that the Python package calls. They return an error text, or NULL on success.

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

// How often streams waited for each other's memory, for how many bytes, how often new memory was reserved
// instead, and how long the host waited, in nanoseconds. Zeros for a device without an allocator.
TIDE_API void tidemark_torch_waits(int index, int64_t out[4]) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  tide_device_cache* const device = tide_device_default(index);
  const bool is_there = device != nullptr && tide_device_get_stats(device, &stats) == TIDE_OK;
  out[0] = is_there ? stats.num_stream_waits : 0;
  out[1] = is_there ? stats.stream_wait_bytes : 0;
  out[2] = is_there ? stats.num_waits_avoided : 0;
  out[3] = is_there ? stats.host_wait_ns : 0;
}

TIDE_API void tidemark_torch_last_oom(tide_oom* out) {
  const std::lock_guard<std::mutex> guard(tidemark::oom_lock);
  *out = tidemark::last_oom;
}

}  // extern "C"
