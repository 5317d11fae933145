// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Objects that stand for call stacks, by the numbers that blocks and entries of a history keep. Nobody says
// that a number is needed no more: when there are many, those in use are looked up, and the others go. A
// number may still be on its way to its block then, so one goes only if it is older than the sweep before.
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

  // The number of a new object: never 0, and no other's as long as the object is here.
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

  // Are there so many that a sweep pays?
  bool is_due() const {
    const std::lock_guard<std::mutex> guard(lock);
    return kept.size() >= due_size;
  }

  size_t size() const {
    const std::lock_guard<std::mutex> guard(lock);
    return kept.size();
  }

  // Drops what is not in use and older than `age` sweeps, this one included; nothing if another thread does.
  void sweep(const Look& look, uint64_t age = 2) {
    const std::unique_lock<std::mutex> turn(sweeping, std::try_to_lock);
    if (!turn.owns_lock()) return;
    begin_sweep();
    Used used;
    look(used);
    const std::vector<Pointer> dropped = drop_unused(used, age);  // ended without the lock
  }

private:
  struct Kept {
    Pointer object;
    uint64_t born;  // sweeps before it came
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
