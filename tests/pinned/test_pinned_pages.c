// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Where large segments come from by default: pages of our own that are registered, and what happens where the
// machine or the system does not permit that.
#define T_THREADS
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/sys.h"
#include "pinned/pinneds.h"

#define LARGE (5 * MIB)  // a class of its own

// Ranges that the machine pinned for the cache; one more is of the test itself.
static uint64_t pinned_for(const tide_machine* m) { return holdings_of(m).pinned - 1; }

static uint64_t register_calls(const tide_machine* m) { return calls_made(m, TIDE_CALL_PINNED_REGISTER); }

static void expect_bytes(tide_machine* m, tide_pinned_cache* p, size_t bytes, uint8_t value) {
  const tide_block block = take(p, bytes);
  paint(m, block, value, bytes);
  expect_painted(m, block.address, value, bytes);
  give(p, block);
}

// ---------------------------------------------------------------------------------------------------
// The choice

PINNED_TEST(test_pinned_pages__large_segments_are_registered_and_small_ones_are_not) {
  const tide_block large = take(p, LARGE);
  T_EQ(holdings_of(m).registered, 1);
  T_EQ(pinned_for(m), 0);
  T_EQ((uintptr_t)large.address % (2 * MIB), 0);
  T_EQ(pointer_info(m, large.address).kind, TIDE_MEMORY_PINNED);
  T_EQ(pointer_info(m, large.address).bytes, LARGE);

  const tide_block small[] = { take(p, 512), take(p, SINGLE), take(p, 1 * MIB) };
  T_EQ(holdings_of(m).registered, 1);
  T_EQ(pinned_for(m), 3);

  T_EQ(counter(p, num_host_alloc), 4);
  T_EQ(counter(p, num_registered), 1);
  T_EQ(counter(p, num_register_refusals), 0);
  T_STR_EQ(tide_pinned_fallback_reason(p), "");
  give(p, large);
  for (size_t i = 0; i < 3; ++i) give(p, small[i]);
  empty(p);
  T_EQ(counter(p, num_host_free), 4);
}

PINNED_TEST_WITH(test_pinned_pages__exact_sizes_come_from_the_machine, machine_names, with_powers) {
  give(p, take(p, LARGE));
  T_EQ(register_calls(m), 0);
  T_EQ(pinned_for(m), 1);
  T_EQ(counter(p, num_registered), 0);
}

static void with_machine(tide_pinned_options* options) { options->uses_machine = true; }

PINNED_TEST_WITH(test_pinned_pages__all_memory_can_come_from_the_machine, machine_names, with_machine) {
  give(p, take(p, LARGE));
  T_EQ(register_calls(m), 0);
  T_EQ(pinned_for(m), 1);
}

static void with_reserve(tide_pinned_options* options) { options->reserve_bytes = 16 * MIB; }

PINNED_TEST_WITH(test_pinned_pages__a_large_reserve_is_registered, machine_names, with_reserve) {
  const tide_block blocks[] = { take(p, SINGLE), take(p, LARGE) };
  T_EQ(holdings_of(m).registered, 1);
  T_EQ(pinned_for(m), 0);
  T_EQ(pointer_info(m, blocks[0].address).bytes, 16 * MIB);
  for (size_t i = 0; i < 2; ++i) give(p, blocks[i]);
}

// What is registered beyond the request is at most an eighth of it.
PINNED_TEST(test_pinned_pages__waste_at_most_an_eighth) {
  t_rng rng = t_rng_new(5);
  for (size_t i = 0; i < 40; ++i) {
    const size_t bytes = 2 * MIB + t_rng_below(&rng, (size_t)1 << (18 + i % 8));
    const tide_block block = take(p, bytes);
    T_LE(bytes, pinned_room(m, block.address));
    T_LE(8 * pointer_info(m, block.address).bytes, 9 * bytes);
    give(p, block);
    empty(p);
  }
}

// ---------------------------------------------------------------------------------------------------
// Copies

// The bytes of a block go to the device and into another block, over all of its pages.
PINNED_TEST(test_pinned_pages__registered_memory_can_be_copied) {
  const tide_stream stream = side_new(m);
  const tide_block from = take(p, LARGE);
  const tide_block to = take(p, LARGE);
  uint8_t* const there = raw_new(m, 0, LARGE);
  paint(m, from, 0x6b, LARGE);
  paint(m, to, 0, LARGE);

  T_OK(tide_pinned_copy(p, from, 0, stream, there, from.address, LARGE));
  T_OK(tide_pinned_copy(p, to, 0, stream, to.address, there, LARGE));
  give(p, from);  // it waits for the copy
  stream_finish(m, 0, stream);

  expect_painted(m, to.address, 0x6b, LARGE);
  give(p, to);
}

// A segment goes back only when the copies that use it are done.
PINNED_TEST(test_pinned_pages__nothing_is_unregistered_while_a_copy_runs) {
  const tide_stream stream = side_new(m);
  const tide_block block = take(p, LARGE);
  gate g;
  hold_up(&g, m, stream);
  announce(p, block, stream);
  give(p, block);

  empty(p);

  T_EQ(calls_made(m, TIDE_CALL_PINNED_UNREGISTER), 0);
  let_go(&g);
  stream_finish(m, 0, stream);
  empty(p);
  T_EQ(holdings_of(m).registered, 0);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

PINNED_TEST_OVER(test_pinned_pages__a_refusal_is_remembered, machine_emulated) {
  const tide_block before = take(p, LARGE);
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_NO_MEMORY, UINT64_MAX);
  const uint64_t calls = register_calls(m);

  const tide_block first = take(p, LARGE);
  const tide_block second = take(p, 2 * LARGE);

  T_EQ(register_calls(m), calls + 1);
  T_EQ(counter(p, num_register_refusals), 1);
  T_EQ(counter(p, num_registered), 1);
  T_EQ(counter(p, num_host_alloc), 3);
  T_EQ(counter(p, num_alloc_retries), 0);
  T_EQ(pinned_for(m), 2);
  T_STR_HAS(tide_pinned_fallback_reason(p), "pinned_register");
  tide_machine_fault_clear(m);
  give(p, before);
  give(p, first);
  give(p, second);
  empty(p);
  expect_nothing_left(p);
  expect_bytes(m, p, LARGE, 3);
  T_EQ(register_calls(m), calls + 1);
}

// A lack of memory is not a refusal: there is nothing to gain from the machine either.
PINNED_TEST_OVER(test_pinned_pages__a_lack_of_memory_is_not_remembered, machine_emulated) {
  break_pinning(m);

  expect_oom(p, LARGE);

  tide_machine_fault_clear(m);
  T_STR_EQ(tide_pinned_fallback_reason(p), "");
  expect_bytes(m, p, LARGE, 4);
  T_EQ(counter(p, num_registered), 1);
}

PINNED_TEST_OVER(test_pinned_pages__a_request_that_succeeds_leaves_no_error, machine_emulated) {
  T_STATUS(tide_pinned_release(p, (tide_block){ p, 77 }), TIDE_ERR_ARGUMENT);
  const tide_error error = *tide_last_error();
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_MACHINE, 1);

  give(p, take(p, LARGE));

  T_STR_EQ(tide_last_error()->text, error.text);
}

PINNED_TEST_WITH(test_pinned_pages__whoever_asks_for_registration_gets_the_refusal, machine_emulated,
                 with_register) {
  break_calls(m, TIDE_CALL_PINNED_REGISTER, TIDE_ERR_MACHINE, UINT64_MAX);
  T_STATUS(try_take(p, LARGE), TIDE_ERR_MACHINE);
  T_EQ(pinned_for(m), 0);
  tide_machine_fault_clear(m);
  give(p, take(p, LARGE));
}

// ---------------------------------------------------------------------------------------------------
// Systems

PINNED_TEST_OVER(test_pinned_pages__a_system_without_huge_pages_works, machine_real) {
  if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) t_skip("the system cannot switch huge pages off");
  expect_bytes(m, p, 20 * MIB + 5, 0x21);
  T_EQ(counter(p, num_registered), 1);
}

// The host machine uses memory that the system does not lock.
PINNED_TEST_OVER(test_pinned_pages__a_small_limit_of_locked_memory_works, machine_real) {
  const struct rlimit little = { 64 * KIB, 64 * KIB };
  T_EQ(setrlimit(RLIMIT_MEMLOCK, &little), 0);
  for (size_t i = 0; i < 4; ++i) {
    expect_bytes(m, p, 3 * LARGE, (uint8_t)(i + 1));
    expect_bytes(m, p, SINGLE, (uint8_t)(i + 1));
    empty(p);
  }
  T_EQ(counter(p, num_ooms), 0);
}

// Runs a function in a child; returns whether it returned true.
static bool in_child(bool (*function)(const tide_block* blocks), const tide_block* blocks) {
  int status = 0;
  const pid_t child = fork();
  T_LE(0, child);
  if (child == 0) _exit(function(blocks) ? 0 : 1);
  T_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool bytes_are(const uint8_t* bytes, uint8_t value, size_t count) {
  for (size_t i = 0; i < count; i += 512) {
    if (bytes[i] != value) return false;
  }
  return true;
}

static bool is_mapped(tide_block block) {
  return tide__sys_is_mapped((uint64_t)(uintptr_t)block.address, LARGE);
}

// The first two blocks are handed out, the third is idle.
static bool child_sees(const tide_block* blocks) {
  if (!tide__sys_copies_locked_pages()) return !is_mapped(blocks[0]) && !is_mapped(blocks[2]);
  if (!bytes_are(blocks[0].address, 11, LARGE) || !bytes_are(blocks[1].address, 12, LARGE)) return false;
  memset(blocks[0].address, 77, LARGE);  // its own copy
  return !is_mapped(blocks[2]);
}

// A program may fork to save its memory, while the parent goes on to use it.
PINNED_TEST_OVER(test_pinned_pages__a_child_gets_what_is_handed_out, machine_real) {
  const tide_pool pool = pool_new(p);
  tide_block blocks[] = { take(p, LARGE), take_in(p, pool, LARGE), take(p, LARGE) };
  for (size_t i = 0; i < 3; ++i) paint(m, blocks[i], (uint8_t)(i + 11), LARGE);
  give(p, blocks[2]);

  T_CHECK(in_child(child_sees, blocks));
  expect_painted(m, blocks[0].address, 11, LARGE);

  give(p, blocks[0]);  // the third is handed out again, and the first is idle
  tide_block again[] = { take(p, LARGE), blocks[1], blocks[0] };
  if (is_same_memory(again[0], blocks[0])) again[2] = blocks[2];
  paint(m, again[0], 11, LARGE);
  T_CHECK(in_child(child_sees, again));
  give(p, again[0]);
  give(p, blocks[1]);
}

// More than the computer has is refused by an error, and not by the end of the process.
PINNED_TEST_OVER(test_pinned_pages__more_than_the_computer_has_is_an_error, machine_host) {
  const size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  break_calls(m, TIDE_CALL_PINNED_ALLOC, TIDE_ERR_NO_MEMORY, UINT64_MAX);

  expect_oom(p, 2 * all);

  T_EQ(register_calls(m), 0);
  T_STR_HAS(tide_last_error()->text, "no memory");
}

// ---------------------------------------------------------------------------------------------------
// Threads and faults

typedef struct taker {
  tide_machine* m;
  tide_pinned_cache* p;
  uint8_t number;
} taker;

static void* take_and_give(void* user) {
  const taker* const t = user;
  for (size_t i = 0; i < 6; ++i) {
    const size_t bytes = (2 + (t->number + i) % 4) * MIB;
    expect_bytes(t->m, t->p, bytes, (uint8_t)(16 * t->number + i));
    if (i % 3 == 2) T_ANY(tide_pinned_empty(t->p));
  }
  return NULL;
}

static void run_takers(tide_machine* m, tide_pinned_cache* p) {
  enum { TEAM = 4 };
  pthread_t threads[TEAM];
  taker takers[TEAM];
  for (size_t i = 0; i < TEAM; ++i) {
    takers[i] = (taker){ m, p, (uint8_t)(i + 1) };
    t_thread_start(&threads[i], take_and_give, &takers[i]);
  }
  for (size_t i = 0; i < TEAM; ++i) t_thread_join(threads[i]);
}

PINNED_TEST(test_pinned_pages__threads_register_at_the_same_time) {
  run_takers(m, p);
  T_EQ(current(p, active_requests), 0);
  T_EQ(counter(p, num_register_refusals), 0);
}

// Registration stops to work while four threads use it.
PINNED_TEST_OVER(test_pinned_pages__threads_fall_back_together, machine_emulated) {
  tide_fault fault = TIDE_FAULT_INIT;
  fault.call = TIDE_CALL_PINNED_REGISTER;
  fault.status = TIDE_ERR_MACHINE;
  fault.skip = 3;
  fault.count = UINT64_MAX;
  T_OK(tide_machine_fault_add(m, &fault));

  run_takers(m, p);

  T_LE(counter(p, num_register_refusals), 4);
  T_EQ(counter(p, num_registered), 3);
  T_STR_HAS(tide_pinned_fallback_reason(p), "pinned_register");
  tide_machine_fault_clear(m);
}

// A few large blocks, a copy and giving back, as far as the machine lets it.
static void play(tide_machine* m, tide_pinned_cache* p, uint8_t* there, tide_stream stream) {
  tide_block blocks[3];
  for (size_t i = 0; i < 3; ++i) {
    T_ANY(tide_pinned_alloc(p, (2 + 3 * i) * MIB, &blocks[i]));
    if (blocks[i].address != NULL) paint(m, blocks[i], (uint8_t)(i + 1), (2 + 3 * i) * MIB);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (blocks[i].address == NULL) continue;
    T_ANY(tide_pinned_copy(p, blocks[i], 0, stream, there, blocks[i].address, MIB));
    expect_painted(m, blocks[i].address, (uint8_t)(i + 1), (2 + 3 * i) * MIB);
    give(p, blocks[i]);
  }
  T_ANY(tide_machine_stream_synchronize(m, 0, stream));
  T_ANY(tide_pinned_empty(p));
}

// The cache is made, used and freed with a fault at each call of the machine in turn.
EMULATED_TEST(test_pinned_pages__a_fault_at_any_call_leaves_nothing) {
  uint8_t* const there = raw_new(m, 0, MIB);
  const tide_stream stream = side_new(m);
  uint64_t calls = 0;
  const size_t mappings = t_count_mappings();
  for (uint64_t i = 0; i <= calls; ++i) {
    const holdings before = holdings_of(m);
    const uint64_t first = calls_made(m, TIDE_CALL_ANY);
    tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
    tide_fault fault = TIDE_FAULT_INIT;
    fault.status = i % 2 == 0 ? TIDE_ERR_NO_MEMORY : TIDE_ERR_MACHINE;
    fault.skip = i - 1;  // the first round has none
    if (i != 0) T_OK(tide_machine_fault_add(m, &fault));
    tide_pinned_cache* const p = pinned_open(m, NULL);
    play(m, p, there, stream);
    pinned_expect_valid(p);
    tide_pinned_free(p, &leaks);
    tide_machine_fault_clear(m);
    if (i == 0) calls = calls_made(m, TIDE_CALL_ANY) - first;
    const holdings after = holdings_of(m);
    T_EQ(leaks.refused_pieces, 0);
    T_EQ(after.registered, before.registered);
    T_EQ(after.pinned, before.pinned);
  }
  T_LT(20, calls);
  if (!T_HAS_SANITIZER) T_LE(t_count_mappings(), mappings + 16);
}
