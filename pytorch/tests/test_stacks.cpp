// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Stacks that are kept as objects, with an allocator that refers to them by number: every stack that is
// referred to is kept and is the right one, and all others are dropped, however long the run is.
#include "../shim_stacks.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tidemark/tidemark.h"

namespace {

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (condition) break;                                                              \
    (void)std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    std::exit(1);                                                                      \
  } while (false)

// A fake stack: the size of its request.
struct Stack {
  uint64_t bytes;
};

thread_local uint64_t asking = 0;

struct Rig {
  explicit Rig(size_t entries, size_t least) : stacks(least) {
    tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
    options.policy = TIDE_POLICY_TIDE;
    CHECK(tide_machine_new_dry(nullptr, &machine) == TIDE_OK);
    CHECK(tide_device_new(machine, 0, &options, &device) == TIDE_OK);
    tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
    history.level = TIDE_HISTORY_ALLOC;
    history.max_entries = entries;
    history.number = number;
    history.user = this;
    CHECK(tide_device_history(device, &history) == TIDE_OK);
  }
  ~Rig() {
    tide_device_free(device);
    tide_machine_free(machine);
  }

  static uint32_t number(void* user) {
    auto& rig = *static_cast<Rig*>(user);
    const uint32_t made = rig.stacks.add(std::make_shared<Stack>(Stack{ asking }));
    if (rig.stacks.is_due()) rig.sweep(2);
    return made;
  }

  void sweep(uint64_t age) {
    stacks.sweep([this](auto& used) { look(used); }, age);
  }

  void look(std::unordered_set<uint32_t>& used) {
    const auto add = [](void* user, uint32_t stack) {
      static_cast<std::unordered_set<uint32_t>*>(user)->insert(stack);
    };
    CHECK(tide_device_visit_stacks(device, add, &used) == TIDE_OK);
  }

  // Allocates and releases blocks at random, some of which live long.
  void churn(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<tide_block> live(50);
    for (size_t i = 0; i < count; i++) {
      tide_block& block = live[random() % (i % 8 == 0 ? live.size() : 4)];
      CHECK(tide_device_release(device, block) == TIDE_OK);
      asking = 512 * (1 + random() % 64);
      CHECK(tide_device_alloc(device, nullptr, asking, &block) == TIDE_OK);
    }
    for (const tide_block& block : live) CHECK(tide_device_release(device, block) == TIDE_OK);
  }

  // Every stack that a request's entry shows is the one of that request.
  size_t check_entries() {
    struct Seen {
      Rig& rig;
      size_t count;
    } seen = { *this, 0 };
    const auto each = [](void* user, const tide_trace_entry* entries, size_t count) {
      auto& all = *static_cast<Seen*>(user);
      for (size_t i = 0; i < count; i++) {
        if (entries[i].action != TIDE_ACTION_ALLOC) continue;
        const auto stack = all.rig.stacks.find(entries[i].stack);
        CHECK(stack != nullptr);
        CHECK(stack->bytes == entries[i].bytes);
        all.count++;
      }
      return true;
    };
    CHECK(tide_device_history_visit(device, each, &seen) == TIDE_OK);
    return seen.count;
  }

  tide_machine* machine = nullptr;
  tide_device_cache* device = nullptr;
  tidemark::Stacks<Stack> stacks;
};

void test_a_long_run_keeps_what_is_shown() {
  Rig rig(1000, 100);
  rig.churn(200000, 1);
  CHECK(rig.check_entries() > 200);
  CHECK(rig.stacks.size() < 5000);
}

void test_a_block_keeps_its_stack_when_the_history_is_cleared() {
  Rig rig(1000, 100);
  tide_block kept = { nullptr, 0 };
  asking = 777;
  CHECK(tide_device_alloc(rig.device, nullptr, asking, &kept) == TIDE_OK);
  rig.churn(500, 2);
  tide_history_options off = TIDE_HISTORY_OPTIONS_INIT;
  off.is_on = false;
  off.clears = true;
  off.max_entries = 1;
  CHECK(tide_device_history(rig.device, &off) == TIDE_OK);
  rig.sweep(1);
  std::unordered_set<uint32_t> used;
  rig.look(used);
  bool is_there = false;
  for (const uint32_t number : used) {
    CHECK(rig.stacks.find(number) != nullptr);
    is_there = is_there || rig.stacks.find(number)->bytes == 777;
  }
  CHECK(is_there);
  CHECK(rig.stacks.size() == used.size());
  CHECK(tide_device_release(rig.device, kept) == TIDE_OK);
}

void test_threads_sweep_while_others_add() {
  Rig rig(1000, 100);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; i++) threads.emplace_back([&rig, i] { rig.churn(30000, i); });
  for (std::thread& thread : threads) thread.join();
  CHECK(rig.check_entries() > 200);
}

void test_numbers_are_not_given_twice() {
  tidemark::Stacks<Stack> stacks(4);
  const uint32_t first = stacks.add(std::make_shared<Stack>(Stack{ 1 }));
  const uint32_t second = stacks.add(std::make_shared<Stack>(Stack{ 2 }));
  CHECK(first != 0 && second != 0 && first != second);
  stacks.sweep([&](auto& used) { used.insert(first); });
  CHECK(stacks.find(second) != nullptr);  // it may be on its way
  stacks.sweep([&](auto& used) { used.insert(first); });
  CHECK(stacks.find(second) == nullptr);
  CHECK(stacks.find(first)->bytes == 1);
}

}  // namespace

int main() {
  test_a_long_run_keeps_what_is_shown();
  test_a_block_keeps_its_stack_when_the_history_is_cleared();
  test_threads_sweep_while_others_add();
  test_numbers_are_not_given_twice();
  (void)std::printf("4 passed, 0 failed, 0 skipped\n");
  return 0;
}
