// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Objects for call stacks, by the numbers that blocks and history entries keep. Numbers are not
// reference-counted: when there are many, a sweep finds those in use and drops the others. A number may not
// have reached its block yet, so a sweep drops only what is older than the sweep before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace tidemark {

template <typename Object> class Stacks {
public:
  using Pointer = std::shared_ptr<Object>;
  using Used = std::unordered_set<uint32_t>;
  using Look = std::function<void(Used&)>;  // adds all numbers in use

  explicit Stacks(size_t least_size) : least(least_size), due_size(least_size) {}

  // Adds an object and returns its number: never 0, and unique while the object is kept.
  uint32_t add(Pointer object) {
    const std::lock_guard<std::mutex> guard(lock);
    do newest++;
    while (newest == 0 || kept.count(newest) != 0);
    kept[newest] = { std::move(object), sweeps };
    return newest;
  }

  Pointer find(uint32_t number) const {
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = kept.find(number);
    return found != kept.end() ? found->second.object : nullptr;
  }

  // Are there enough to make a sweep worthwhile?
  bool is_due() const {
    const std::lock_guard<std::mutex> guard(lock);
    return kept.size() >= due_size;
  }

  size_t size() const {
    const std::lock_guard<std::mutex> guard(lock);
    return kept.size();
  }

  // Drops what is unused and older than `age` sweeps, including this one; does nothing if another thread
  // sweeps.
  void sweep(const Look& look, uint64_t age = 2) {
    const std::unique_lock<std::mutex> turn(sweeping, std::try_to_lock);
    if (!turn.owns_lock()) return;
    begin_sweep();
    Used used;
    look(used);
    const std::vector<Pointer> dropped = drop_unused(used, age);  // destroyed without the lock
  }

private:
  struct Kept {
    Pointer object;
    uint64_t born;  // the number of sweeps before it was added
  };

  void begin_sweep() {
    const std::lock_guard<std::mutex> guard(lock);
    sweeps++;
  }

  std::vector<Pointer> drop_unused(const Used& used, uint64_t age) {
    const std::lock_guard<std::mutex> guard(lock);
    std::vector<Pointer> dropped;
    for (auto it = kept.begin(); it != kept.end();) {
      const bool stays = sweeps - it->second.born < age || used.count(it->first) != 0;
      if (!stays) dropped.push_back(std::move(it->second.object));
      it = stays ? std::next(it) : kept.erase(it);
    }
    due_size = std::max(least, 2 * kept.size());
    return dropped;
  }

  mutable std::mutex lock;
  std::mutex sweeping;  // taken before the other
  const size_t least;
  size_t due_size;
  uint64_t sweeps = 0;
  uint32_t newest = 0;
  std::unordered_map<uint32_t, Kept> kept;
};

}  // namespace tidemark
