// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests share, and the main program: drive SETTINGS FOLDER [part of a name].
#include "drive.h"

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <native.h>

namespace {

thread_local int64_t news_left = 0;
thread_local bool is_new_failed = false;

void* allocate_or_fail(size_t bytes) {
  if (news_left > 0 && --news_left == 0) {
    is_new_failed = true;
    throw std::bad_alloc();
  }
  void* const address = std::malloc(bytes != 0 ? bytes : 1);
  if (address == nullptr) throw std::bad_alloc();
  return address;
}

}  // namespace

// All memory of C++ comes from here, so that tests can let it run out.
void* operator new(size_t bytes) { return allocate_or_fail(bytes); }
void* operator new[](size_t bytes) { return allocate_or_fail(bytes); }
void operator delete(void* address) noexcept { std::free(address); }
void operator delete[](void* address) noexcept { std::free(address); }
void operator delete(void* address, size_t) noexcept { std::free(address); }
void operator delete[](void* address, size_t) noexcept { std::free(address); }

namespace drive {

tide_machine* machine = nullptr;
std::string settings;
std::string folder;

void fail_new(int64_t countdown) {
  news_left = countdown;
  is_new_failed = false;
}
bool has_failed_new() { return is_new_failed; }

size_t used() {
  size_t idle = 0;
  size_t total = 0;
  CHECK(tide_machine_memory_info(machine, 0, &idle, &total) == TIDE_OK);
  return total - idle;
}

// ---------------------------------------------------------------------------------------------------
// Signatures

ca::SnapshotInfo snapshot(PoolId id) {
#if TORCH_VERSION_MINOR >= 11
  return cuda()->snapshot(id, true);
#else
  return cuda()->snapshot(id);
#endif
}

void record_history(bool is_on, ca::CreateContextFn recorder, size_t entries, ca::RecordContext when,
                    bool clears) {
#if TORCH_VERSION_MINOR >= 11
  cuda()->recordHistory(is_on, recorder, entries, when, clears, {});
#else
  cuda()->recordHistory(is_on, recorder, entries, when, clears);
#endif
}

void join_pool(PoolId id, std::shared_ptr<ca::CUDAAllocator> source) {
#if TORCH_VERSION_MINOR >= 16
  cuda()->createOrIncrefPool(0, id, std::move(source), false);
#elif TORCH_VERSION_MINOR >= 11
  cuda()->createOrIncrefPool(0, id, std::move(source));
#else
  cuda()->createOrIncrefPool(0, id, source.get());  // the caller keeps it
#endif
}

void lend_pool(PoolId id) {
#if TORCH_VERSION_MINOR >= 11
  cuda()->setUseOnOOM(0, id, true);
#else
  cuda()->setUseOnOOM(0, id);
#endif
}

// ---------------------------------------------------------------------------------------------------
// Streams

struct Stream::Gate::State {
  std::mutex lock;
  std::condition_variable changed;
  bool is_open = false;
};

Stream::Stream() : outer(model::stream) {
  CHECK(tide_machine_stream_new(machine, 0, 0, 0, &handle) == TIDE_OK);
  model::stream = reinterpret_cast<cudaStream_t>(handle);
}

Stream::~Stream() {
  model::stream = outer;
  (void)!tide_machine_stream_synchronize(machine, 0, handle);  // it stays: memory may still refer to it
}

void Stream::fill(void* address, uint8_t value, size_t bytes) {
  CHECK(tide_machine_fill(machine, 0, handle, address, value, bytes) == TIDE_OK);
}
void Stream::wait() { CHECK(tide_machine_stream_synchronize(machine, 0, handle) == TIDE_OK); }

c10::Stream Stream::wrapped() const {
  return c10::cuda::getOwnStream(reinterpret_cast<cudaStream_t>(handle), 0).unwrap();
}

std::shared_ptr<Stream::Gate> Stream::hold() {
  auto gate = std::make_shared<Gate>();
  gate->state = std::make_shared<Gate::State>();
  auto* const kept = new std::shared_ptr<Gate::State>(gate->state);  // until the stream has passed
  const auto pass = [](void* user) {
    const std::unique_ptr<std::shared_ptr<Gate::State>> own(static_cast<std::shared_ptr<Gate::State>*>(user));
    Gate::State& state = **own;
    std::unique_lock<std::mutex> guard(state.lock);
    state.changed.wait(guard, [&] { return state.is_open; });
  };
  CHECK(tide_machine_call(machine, 0, handle, pass, kept) == TIDE_OK);
  return gate;
}

void Stream::Gate::open() {
  const std::lock_guard<std::mutex> guard(state->lock);
  state->is_open = true;
  state->changed.notify_all();
}

bool is_filled(const void* address, uint8_t value, size_t bytes) {
  std::vector<uint8_t> copy(bytes, static_cast<uint8_t>(~value));
  CHECK(tide_machine_device_synchronize(machine, 0) == TIDE_OK);
  CHECK(tide_machine_copy(machine, 0, nullptr, copy.data(), address, bytes) == TIDE_OK);
  CHECK(tide_machine_device_synchronize(machine, 0) == TIDE_OK);
  for (const uint8_t byte : copy) {
    if (byte != value) return false;
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Pools

Scope::Scope(PoolId pool) : id(pool) {
  const cudaStream_t mine = model::stream;
  cuda()->beginAllocateToPool(0, id, [mine](cudaStream_t stream) { return stream == mine; });
}
Scope::~Scope() {
  cuda()->endAllocateToPool(0, id);
  cuda()->releasePool(0, id);  // each begin adds a user
}

namespace {
struct Counting final : model::Native {
  explicit Counting(int* counter) : alive(counter) {}
  void* raw_alloc(size_t bytes) override {
    void* address = nullptr;
    if (tide_machine_raw_alloc(machine, 0, bytes, &address) == TIDE_OK) ++*alive;
    return address;
  }
  void raw_delete(void* address) override {
    if (tide_machine_raw_release(machine, 0, address) == TIDE_OK) --*alive;
  }
  int* alive;
};
}  // namespace

std::shared_ptr<ca::CUDAAllocator> counting_source(int* alive) { return std::make_shared<Counting>(alive); }

// ---------------------------------------------------------------------------------------------------
// Running

namespace {

struct Counts {
  int passed = 0;
  int failed = 0;
};

void run(const std::vector<Test>& tests, const char* part, bool is_needed, Counts& counts) {
  for (const Test& test : tests) {
    if (!is_needed && part != nullptr && std::strstr(test.name, part) == nullptr) continue;
    try {
      test.run();
      counts.passed++;
    } catch (const std::exception& error) {
      (void)std::printf("FAILED %s: %s\n", test.name, error.what());
      counts.failed++;
    }
    fail_new(0);
  }
}

// A driver that maps memory and then gives no access to it.
bool refuse_access() {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_SET_ACCESS;
  fault.status = TIDE_ERR_MACHINE;
  fault.count = UINT64_MAX;
  return tide_machine_fault_add(machine, &fault) == TIDE_OK;
}

}  // namespace
}  // namespace drive

int main(int argc, char** argv) {
  using namespace drive;
  if (argc < 3) return 2;
  settings = argv[1];
  folder = argv[2];
  const char* const part = argc > 3 ? argv[3] : nullptr;
  tide_host_options options = TIDE_HOST_OPTIONS_INIT;
  options.capacity = capacity;
  if (tide_machine_new_host(&options, &machine) != TIDE_OK) return 2;
  if (std::getenv("DRIVE_NO_VIRTUAL") != nullptr && !refuse_access()) return 2;
  model::start();
  tidemark_torch_use_machine(machine);
  Counts counts;
  try {
    run(place_tests, part, true, counts);
    for (const auto* tests : { &memory_tests, &look_tests, &throw_tests, &thread_tests, &park_tests }) {
      if (counts.failed == 0) run(*tests, part, false, counts);
    }
  } catch (const Refused&) {
    counts.passed++;
  }
  (void)std::printf("%d passed, %d failed, 0 skipped\n", counts.passed, counts.failed);
  return counts.failed != 0 ? 1 : 0;
}
