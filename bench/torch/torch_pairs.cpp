// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The cases of bench_device.c on PyTorch's own allocator, for a computer that has PyTorch with CUDA. Prints
// one line a case: what, a tab, the value, a tab, the unit. bench/torch/run builds and runs it and shows its
// figures beside ours.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace allocator = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;

static const size_t mib = size_t(1) << 20;

static uint64_t random_next(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static size_t random_size(uint64_t& state, size_t least, size_t most) {
  const double u = double(random_next(state) >> 11) / 9007199254740992.0;
  return size_t(double(least) * std::exp(u * std::log(double(most) / double(least))));
}

struct Churn {
  std::vector<void*> blocks;
  std::vector<size_t> sizes;
  std::vector<uint32_t> picks;

  Churn(size_t live, size_t pairs, size_t most, uint64_t seed) : sizes(pairs), picks(pairs) {
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < pairs; i++) {
      sizes[i] = random_size(state, 512, most);
      picks[i] = uint32_t(random_next(state) % live);
    }
    for (size_t i = 0; i < live; i++) blocks.push_back(allocator::raw_alloc(random_size(state, 512, most)));
  }
  ~Churn() {
    for (void* block : blocks) allocator::raw_delete(block);
  }
  double nanoseconds() {
    const auto begin = Clock::now();
    for (size_t i = 0; i < sizes.size(); i++) {
      void*& block = blocks[picks[i]];
      allocator::raw_delete(block);
      block = allocator::raw_alloc(sizes[i]);
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  }
};

static double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

static void pairs(const char* what, size_t live, size_t most) {
  Churn churn(live, 200000, most, 7);
  churn.nanoseconds();
  std::vector<double> values;
  for (int i = 0; i < 5; i++) values.push_back(churn.nanoseconds() / 200000);
  std::printf("%s\t%.1f\tns\n", what, median(values));
  std::fflush(stdout);
}

// Million pairs in a second, from the first thread that begins to the last that ends, as bench_device.c
// counts: all begin together after a round in which the allocator makes its segments, and none ends its
// blocks before all are done.
static double team_rate(size_t count, size_t each) {
  std::vector<Clock::time_point> begins(count);
  std::vector<Clock::time_point> ends(count);
  std::vector<std::thread> team;
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, unsigned(count));
  for (size_t t = 0; t < count; t++) {
    team.emplace_back([&, t] {
      c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(false, 0));
      Churn churn(64, each, mib, t + 1);
      churn.nanoseconds();
      pthread_barrier_wait(&barrier);
      begins[t] = Clock::now();
      churn.nanoseconds();
      ends[t] = Clock::now();
      pthread_barrier_wait(&barrier);
    });
  }
  for (auto& member : team) member.join();
  pthread_barrier_destroy(&barrier);
  const auto begin = *std::min_element(begins.begin(), begins.end());
  const auto end = *std::max_element(ends.begin(), ends.end());
  return double(count * each) / std::chrono::duration<double, std::micro>(end - begin).count();
}

static void threads(size_t count) {
  std::vector<double> rates;
  for (int round = 0; round < 3; round++) rates.push_back(team_rate(count, 100000));
  std::printf("%zu threads on own streams\t%.2f\tMpairs/s\n", count, median(rates));
  std::fflush(stdout);
}

int main() {
  (void)at::zeros({ 1 }, at::kCUDA);  // starts PyTorch's own way
  pairs("pair, 1 live, 512 B to 1 MiB", 1, mib);
  pairs("pair, 64 live, 512 B to 1 MiB", 64, mib);
  pairs("pair, 4096 live, 512 B to 1 MiB", 4096, mib);
  pairs("pair, 4096 live, 512 B to 4 MiB", 4096, 4 * mib);
  pairs("pair, 512 live, 512 B to 64 MiB", 512, 64 * mib);
  for (size_t count : { 1, 2, 4, 8, 16 }) threads(count);
  return 0;
}
