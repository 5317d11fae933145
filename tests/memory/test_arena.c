// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Arenas that are kept from run to run: the largest of the last numbers, how much memory is asked for, and
// which arena fits a run.
#include "memory/arena.h"
#include "memory/memory_table.h"

// ---------------------------------------------------------------------------------------------------
// The largest of the last numbers

static uint64_t largest_of(const uint64_t* numbers, size_t first, size_t last) {
  uint64_t largest = 0;
  for (size_t i = first; i < last; i++) largest = numbers[i] > largest ? numbers[i] : largest;
  return largest;
}

T_TEST(test_arena__recent_max_is_that_of_the_last_numbers) {
  static const uint32_t windows[] = { 0, 1, 2, 7, 64 };
  t_rng rng = t_rng_new(1);
  for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++) {
    uint64_t ring[64] = { 0 };
    uint64_t all[500];
    tide__recent_max recent = { .numbers = ring, .window = windows[k] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
      all[i] = t_rng_below(&rng, 1000000) >> t_rng_below(&rng, 20);
      const bool forgets = windows[k] != 0 && i >= windows[k];
      const size_t first = forgets ? i + 1 - windows[k] : 0;
      T_EQ(tide__recent_max_add(&recent, all[i]), largest_of(all, first, i + 1));
    }
  }
}

// ---------------------------------------------------------------------------------------------------
// Memory

T_TEST(test_arena__takes_what_the_last_runs_needed) {
  table m;
  tide__arena_memory arena;
  const tide__arena_need need = { .bytes = 100, .most = 700, .alignment = 256 };
  table_init(&m);
  T_OK(tide__arena_memory_alloc(&arena, &m.memory, &need));
  T_EQ(arena.bytes, 700);
  T_EQ(m.bytes, 700);
  T_EQ((uintptr_t)arena.base % 256, 0);
  tide__arena_memory_release(&arena, &m.memory);
  T_PTR_EQ(arena.base, NULL);
  T_EQ(arena.bytes, 0);
  tide__arena_memory_release(&arena, &m.memory);  // has no effect
  T_EQ(m.releases, 1);
  table_fini(&m);
}

T_TEST(test_arena__takes_what_the_run_needs_if_there_is_no_more) {
  table m;
  tide__arena_memory arena;
  const tide__arena_need need = { .bytes = 100, .most = 700, .alignment = 64 };
  table_init(&m);
  m.fail_at = 0;
  T_OK(tide__arena_memory_alloc(&arena, &m.memory, &need));
  T_EQ(arena.bytes, 100);
  T_EQ(m.allocs, 2);
  tide__arena_memory_release(&arena, &m.memory);
  table_fini(&m);
}

T_TEST(test_arena__fails_with_the_status_of_the_memory) {
  table m;
  tide__arena_memory arena = { (char*)&m, 5 };
  tide__arena_need need = { .bytes = 100, .most = 700, .alignment = 64 };
  table_init(&m);
  m.fail_at = 0;
  m.is_exhausted = true;
  T_STATUS(tide__arena_memory_alloc(&arena, &m.memory, &need), TABLE_FAILURE);
  T_PTR_EQ(arena.base, NULL);
  T_EQ(arena.bytes, 0);
  T_EQ(m.allocs, 2);
  need.most = 100;  // asked for once
  T_STATUS(tide__arena_memory_alloc(&arena, &m.memory, &need), TABLE_FAILURE);
  T_EQ(m.allocs, 3);
  need.bytes = 0;  // a run that needs nothing has it
  T_OK(tide__arena_memory_alloc(&arena, &m.memory, &need));
  T_PTR_EQ(arena.base, NULL);
  table_fini(&m);
}

T_TEST(test_arena__of_no_bytes_needs_no_memory) {
  table m;
  tide__arena_memory arena;
  const tide__arena_need none = { .bytes = 0, .most = 0, .alignment = 64 };
  table_init(&m);
  T_OK(tide__arena_memory_alloc(&arena, &m.memory, &none));
  T_PTR_EQ(arena.base, NULL);
  T_EQ(m.allocs, 0);
  T_CHECK(tide__arena_memory_fits(&arena, &none));
  T_CHECK(!tide__arena_memory_has(&arena, NULL));
  table_fini(&m);
}

T_TEST(test_arena__fits_from_what_is_needed_to_what_was_needed) {
  const tide__arena_need need = { .bytes = 100, .most = 700, .alignment = 64 };
  for (uint64_t bytes = 99; bytes <= 701; bytes++) {
    const tide__arena_memory arena = { (char*)(uintptr_t)4096, bytes };
    const tide__arena_memory crooked = { (char*)(uintptr_t)(4096 + 32), bytes };
    T_EQ(tide__arena_memory_fits(&arena, &need), bytes >= 100 && bytes <= 700);
    T_CHECK(!tide__arena_memory_fits(&crooked, &need));
  }
}

T_TEST(test_arena__has_its_addresses_alone) {
  const tide__arena_memory arena = { (char*)(uintptr_t)4096, 100 };
  for (uintptr_t at = 4000; at < 4300; at++) {
    T_EQ(tide__arena_memory_has(&arena, (void*)at), at >= 4096 && at < 4196);
  }
}
