// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Exceptions never cross C: what a user function throws comes out of the call that led to it. So does the
// failure of an operator new. Neither loses memory. At the end, eight threads do everything at once.
#include <algorithm>
#include <random>
#include <thread>

#include "drive.h"

namespace drive {
namespace {

thread_local bool is_throwing = false;

std::shared_ptr<c10::GatheredContext> gather_or_throw() {
  if (is_throwing) throw Boom();
  return std::make_shared<c10::GatheredContext>();
}

// While it lives, user functions throw.
struct Throwing {
  Throwing() { is_throwing = true; }
  ~Throwing() { is_throwing = false; }
};

int64_t live() { return cuda()->getDeviceStats(0).allocation[0].current; }

void recorder_throws() {
  Stream stream;
  record_history(true, gather_or_throw, 1000, ca::RecordContext::ALL);
  const int64_t before = live();
  c10::DataPtr data = cuda()->allocate(mib);
  {
    const Throwing throwing;
    CHECK(throws<Boom>([] { (void)cuda()->allocate(mib); }));
    CHECK(live() == before + 1);
    data.clear();  // a release drops it
  }
  CHECK(live() == before);
  CHECK(cuda()->allocate(mib).get() != nullptr);
  {
    const Throwing throwing;
    CHECK(throws<Boom>([] { cuda()->emptyCache({ 0, 0 }); }) || used() == 0);
  }
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
}

void tracker_throws() {
  cuda()->attachAllocatorTraceTracker([](const ca::TraceEntry&) {
    if (is_throwing) throw Boom();
  });
  Stream stream;
  const int64_t before = live();
  const Throwing throwing;
  CHECK(throws<Boom>([] { (void)cuda()->allocate(mib); }));
  CHECK(live() == before);
}

void filter_throws() {
  const PoolId id = { 0, 20 };
  Stream stream;
  cuda()->beginAllocateToPool(0, id, [](cudaStream_t) {
    if (is_throwing) throw Boom();
    return false;
  });
  {
    const Throwing throwing;
    CHECK(throws<Boom>([] { (void)cuda()->allocate(mib); }));
  }
  CHECK(cuda()->allocate(mib).get() != nullptr);
  cuda()->endAllocateToPool(0, id);
  cuda()->releasePool(0, id);
}

void observer_throws() {
  cuda()->attachOutOfMemoryObserver([](int64_t, size_t, size_t, size_t) {
    if (is_throwing) throw Boom();
  });
  const Throwing throwing;
  CHECK(throws<Boom>([] { (void)cuda()->allocate(2 * capacity); }));
}

struct Reclaim final : c10::FreeMemoryCallback {
  bool Execute() override {
    if (is_throwing) throw Boom();
    return false;
  }
};

void reclaim_throws() {
  auto& makers = c10::FreeCudaMemoryCallbacksRegistry()->makers;
  makers["reclaim"] = [] { return std::make_unique<Reclaim>(); };
  CHECK(throws<c10::OutOfMemoryError>([] { (void)cuda()->allocate(2 * capacity); }));
  {
    const Throwing throwing;
    CHECK(throws<Boom>([] { (void)cuda()->allocate(2 * capacity); }));
  }
  makers.clear();
}

#if TORCH_VERSION_MINOR >= 11
void pinned_filter_throws() {
  const PoolId id = { 21, 0 };
  Stream stream;
  host()->begin_allocate_to_pool(id, [](c10::Stream) -> bool { throw Boom(); });
  CHECK(throws<Boom>([] { (void)host()->allocate(5000); }));
  host()->end_allocate_to_pool(id);
  host()->release_pool(id);
}
#endif

// Calls a function with each operator new in it failing in turn; each failure must come out. Returns how
// many there were.
template <typename Function> int run_out(const Function& function) {
  for (int at = 1; at < 100000; at++) {
    fail_new(at);
    const bool is_out = throws<std::bad_alloc>(function);
    const bool has_failed = has_failed_new();
    fail_new(0);
    if (!has_failed) return at - 1;
    if (!is_out) throw Failure("the lack of memory was lost");
  }
  throw Failure("it never has enough memory");
}

void snapshot_runs_out() {
  Stream stream;
  record_history(true, gather_or_throw, 1000, ca::RecordContext::ALL);
  {
    std::vector<c10::DataPtr> held;
    for (size_t i = 1; i <= 20; i++) held.push_back(cuda()->allocate(i * 5000));
    const size_t segments = snapshot().segments.size();
    CHECK(run_out([] { (void)snapshot(); }) >= 10);
    CHECK(snapshot().segments.size() == segments);
#if TORCH_VERSION_MINOR >= 10
    CHECK(run_out([] { (void)cuda()->getExpandableSegmentSizes(0); }) >= (is_tide() ? 1 : 0));
#endif
  }
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
}

// A request that cannot keep its stack fails, and gives its memory back.
void requests_run_out() {
  Stream stream;
  record_history(true, gather_or_throw, 1000, ca::RecordContext::ALLOC);  // a release would drop it
  const int64_t before = live();
  CHECK(run_out([] { (void)cuda()->allocate(7000); }) >= 1);
  CHECK(live() == before);
  const c10::DataPtr held = cuda()->allocate(7000);
  CHECK(run_out([] { record_history(false, nullptr, 0, ca::RecordContext::NEVER); }) >= 1);
}

// ---------------------------------------------------------------------------------------------------
// Threads

constexpr int thread_count = 8;
constexpr int rounds = 400;

// Allocates, fills, checks and releases; now and then looks inside, or changes the history.
void work(int number, std::string* failure) {
  try {
    std::mt19937_64 random(static_cast<uint64_t>(number));
    Stream stream;
    std::vector<c10::DataPtr> held(8);
    for (int i = 0; i < rounds; i++) {
      c10::DataPtr& data = held[random() % held.size()];
      data.clear();
      const size_t bytes = 512 + random() % 100000;
      data = cuda()->allocate(bytes);
      stream.fill(data.get(), static_cast<uint8_t>(number), bytes);
      if (i % 40 == 0) {
        stream.wait();
        const auto* const bytes_there = static_cast<const uint8_t*>(data.get());
        CHECK(std::all_of(bytes_there, bytes_there + bytes, [&](uint8_t byte) { return byte == number; }));
      }
      if (i % 64 == 7 * number) CHECK(!snapshot().segments.empty());
      if (i % 100 == 12 * number)
        record_history(i % 200 < 100, gather_or_throw, 500, ca::RecordContext::ALL, false);
      if (i % 128 == 16 * number) cuda()->emptyCache({ 0, 0 });
      if (i % 50 == 0) (void)host()->allocate(bytes);
      if (i % 97 == 0) (void)cuda()->getDeviceStats(0);
    }
    stream.wait();
  } catch (const std::exception& error) {
    *failure = error.what();
  }
}

void eight_threads() {
  const int64_t before = live();
  std::vector<std::thread> threads;
  std::vector<std::string> failures(thread_count);
  for (int i = 0; i < thread_count; i++) threads.emplace_back(work, i, &failures[static_cast<size_t>(i)]);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) {
    if (!failure.empty()) throw Failure(failure);
  }
  CHECK(live() == before);
  record_history(false, nullptr, 0, ca::RecordContext::NEVER);
  cuda()->emptyCache({ 0, 0 });
  CHECK(static_cast<size_t>(cuda()->getDeviceStats(0).reserved_bytes[0].current) == used());
}

}  // namespace

const std::vector<Test> throw_tests = {
  { "recorder_throws", recorder_throws },
  { "tracker_throws", tracker_throws },
  { "filter_throws", filter_throws },
  { "observer_throws", observer_throws },
  { "reclaim_throws", reclaim_throws },
#if TORCH_VERSION_MINOR >= 11
  { "pinned_filter_throws", pinned_filter_throws },
#endif
  { "snapshot_runs_out", snapshot_runs_out },
  { "requests_run_out", requests_run_out },
};
const std::vector<Test> thread_tests = { { "eight_threads", eight_threads } };

}  // namespace drive
