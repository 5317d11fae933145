// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// C++ takes its memory by operator new, which calls malloc() and aligned_alloc(): large vectors, maps,
// strings, over-aligned types, and what is thrown when there is no memory. Prints sums.
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

struct alignas(4096) page {
  unsigned char bytes[4096 * 50];
};

static std::uint64_t grow(std::uint64_t seed) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 300000; ++i) numbers.push_back(i * seed);
  const std::vector<std::uint64_t> copy = numbers;
  numbers.shrink_to_fit();
  return std::accumulate(copy.begin(), copy.end(), std::uint64_t{ 0 });
}

int main() {
  std::uint64_t sums[3] = { 0, 0, 0 };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back([&sums, i] { sums[i] = grow(i + 1); });
  for (auto& thread : threads) thread.join();
  std::printf("vectors: %llu\n", static_cast<unsigned long long>(sums[0] + sums[1] + sums[2]));

  std::string text;
  for (int i = 0; i < 100000; ++i) text += std::to_string(i);
  std::map<int, std::string> map;
  for (int i = 0; i < 10; ++i) map[i] = text.substr(0, text.size() / (i + 1));
  std::printf("strings: %zu\n", map[3].size() + text.size());

  const auto aligned = std::make_unique<page>();
  std::printf("aligned: %d\n", reinterpret_cast<std::uintptr_t>(aligned.get()) % 4096 == 0);
  volatile std::size_t impossible = SIZE_MAX / 2;
  try {
    std::printf("%p\n", static_cast<void*>(new char[impossible]));
  } catch (const std::bad_alloc&) {
    std::printf("bad_alloc\n");
  }
  char* const none = new (std::nothrow) char[impossible];
  std::printf("nothrow: %d\n", none == nullptr);
  delete[] none;
  return 0;
}
