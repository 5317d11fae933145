// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The hash map: against an array of values by key, with keys that meet in few slots, and with a heap that
// fails.
#include "base/hash_map.h"

#include "base/heap.h"
#include "machine/counting_heap.h"
#include "t.h"

#define KEYS 3000u

// ---------------------------------------------------------------------------------------------------
// Kinds of keys

// 2^64 divided by the golden ratio, the map's multiplier, has this inverse modulo 2^64.
#define INVERSE UINT64_C(0xf1de83e19937733d)

typedef uint64_t (*key_fn)(uint64_t n);

static uint64_t key_plain(uint64_t n) { return n; }
static uint64_t key_address(uint64_t n) { return ((uint64_t)0x7f0000 << 24) + n * 512; }
static uint64_t key_high(uint64_t n) { return n << 52 | n; }
static uint64_t key_mixed(uint64_t n) {
  t_rng rng = { n };
  return t_rng_next(&rng);
}
// All keys hash to the first slots of any map.
static uint64_t key_crowded(uint64_t n) { return n * INVERSE; }
// All keys hash to the last slots, so that probing runs over the end.
static uint64_t key_at_the_end(uint64_t n) { return (UINT64_MAX - n) * INVERSE; }

static const key_fn key_kinds[] = {
  key_plain, key_address, key_high, key_mixed, key_crowded, key_at_the_end
};
#define KEY_KINDS (sizeof key_kinds / sizeof *key_kinds)

T_TEST(test_hash_map__keys_of_the_test_meet) {
  tide__hash_map map;
  tide__hash_map_init(&map, &tide__system_heap);
  T_CHECK(tide__hash_map_reserve(&map, 1000));

  for (uint64_t n = 0; n < 1000; n++) {
    T_EQ(tide__hash_map_home(&map, key_crowded(n)), 0);
    T_EQ(tide__hash_map_home(&map, key_at_the_end(n)), tide__hash_map_slot_count(&map) - 1);
  }
  tide__hash_map_fini(&map);
}

// ---------------------------------------------------------------------------------------------------
// The model: by number of a key, its value, or 0

typedef struct model {
  uint64_t values[KEYS];
  size_t count;
  uint32_t keys;  // that are used
  key_fn key;
} model;

static void expect_same(const tide__hash_map* map, const model* m) {
  size_t walked = 0;
  const tide__hash_slot* slot = NULL;
  T_EQ(map->count, m->count);
  T_EQ(tide__hash_map_check(map), 0);
  for (uint32_t n = 0; n < m->keys; n++) T_EQ(tide__hash_map_find(map, m->key(n)), m->values[n]);
  while ((slot = tide__hash_map_next(map, slot)) != NULL) {
    T_EQ(tide__hash_map_find(map, slot->key), slot->value);
    walked++;
  }
  T_EQ(walked, m->count);
}

static void step_put(tide__hash_map* map, model* m, uint32_t n, uint64_t value) {
  T_CHECK(tide__hash_map_reserve(map, map->count + 1));
  T_CHECK(tide__hash_map_has_room(map));
  T_EQ(tide__hash_map_put(map, m->key(n), value), m->values[n]);
  m->count += m->values[n] == 0;
  m->values[n] = value;
}

static void step_take(tide__hash_map* map, model* m, uint32_t n) {
  T_EQ(tide__hash_map_take(map, m->key(n)), m->values[n]);
  m->count -= m->values[n] != 0;
  m->values[n] = 0;
}

static void play(tide__hash_map* map, model* m, t_rng* rng, size_t steps) {
  for (size_t i = 0; i < steps; i++) {
    const uint32_t n = (uint32_t)t_rng_below(rng, m->keys);
    T_EQ(tide__hash_map_find(map, m->key(n)), m->values[n]);
    if (t_rng_below(rng, 2) == 0) step_put(map, m, n, 1 + t_rng_below(rng, UINT64_MAX - 1));
    else step_take(map, m, n);
    if (i % 512 == 0) T_EQ(tide__hash_map_check(map), 0);
  }
}

T_TEST(test_hash_map__agrees_with_an_array) {
  static model m;
  t_rng rng = t_rng_new(0);
  for (size_t kind = 0; kind < KEY_KINDS; kind++) {
    const bool is_crowded = key_kinds[kind] == key_crowded || key_kinds[kind] == key_at_the_end;
    tide__hash_map map;
    tide__hash_map_init(&map, &tide__system_heap);
    m = (model){ .keys = is_crowded ? 60 : KEYS, .key = key_kinds[kind] };

    play(&map, &m, &rng, t_scaled(40000));
    expect_same(&map, &m);

    tide__hash_map_clear(&map);
    m = (model){ .keys = m.keys, .key = m.key };
    expect_same(&map, &m);
    play(&map, &m, &rng, t_scaled(2000));
    expect_same(&map, &m);
    tide__hash_map_fini(&map);
  }
}

// Few keys in a small map, so that most removals shift others back, also over the end of the slots.
T_TEST(test_hash_map__removals_keep_every_other_key) {
  static model m;
  t_rng rng = t_rng_new(1);
  for (size_t round = 0; round < t_scaled(300); round++) {
    tide__hash_map map;
    tide__hash_map_init(&map, &tide__system_heap);
    m = (model){ .keys = 32, .key = key_kinds[round % KEY_KINDS] };
    for (uint32_t n = 0; n < 32; n++) step_put(&map, &m, n, n + 1);
    T_EQ(tide__hash_map_slot_count(&map), 64);
    for (uint32_t left = 32; left > 0; left--) {
      const uint32_t n = (uint32_t)t_rng_below(&rng, 32);
      step_take(&map, &m, n);
      expect_same(&map, &m);
    }
    tide__hash_map_fini(&map);
  }
}

T_TEST(test_hash_map__any_key_and_any_value_but_zero) {
  tide__hash_map map;
  tide__hash_map_init(&map, &tide__system_heap);
  T_EQ(tide__hash_map_find(&map, 0), 0);
  T_EQ(tide__hash_map_take(&map, 0), 0);
  T_CHECK(tide__hash_map_reserve(&map, 2));
  T_EQ(tide__hash_map_find(&map, 0), 0);

  T_EQ(tide__hash_map_put(&map, 0, UINT64_MAX), 0);
  T_EQ(tide__hash_map_put(&map, UINT64_MAX, 1), 0);

  T_EQ(tide__hash_map_find(&map, 0), UINT64_MAX);
  T_EQ(tide__hash_map_find(&map, UINT64_MAX), 1);
  T_EQ(tide__hash_map_take(&map, 0), UINT64_MAX);
  T_EQ(tide__hash_map_find(&map, 0), 0);
  T_EQ(map.count, 1);
  tide__hash_map_fini(&map);
  T_EQ(map.count, 0);
  T_EQ(tide__hash_map_find(&map, UINT64_MAX), 0);
}

T_TEST(test_hash_map__is_at_most_half_full) {
  tide__hash_map map;
  tide__hash_map_init(&map, &tide__system_heap);
  T_CHECK(!tide__hash_map_has_room(&map));

  for (uint64_t n = 1; n <= 5000; n++) {
    T_CHECK(tide__hash_map_reserve(&map, n));
    (void)tide__hash_map_put(&map, n, n);
    T_LE(2 * n, tide__hash_map_slot_count(&map));
    T_LE(tide__hash_map_slot_count(&map), n < 32 ? 64 : 4 * n);
  }
  const size_t slots = tide__hash_map_slot_count(&map);
  T_CHECK(tide__hash_map_reserve(&map, 0));
  T_CHECK(tide__hash_map_reserve(&map, 10));
  T_EQ(tide__hash_map_slot_count(&map), slots);
  tide__hash_map_fini(&map);
}

// ---------------------------------------------------------------------------------------------------
// Growth

// One allocation fails. The map is as it was, and the next attempt succeeds.
static bool fill_with_failure_at(size_t fail_at) {
  static model m;
  counting_heap h;
  tide__hash_map map;
  counting_heap_init(&h, fail_at, false);
  tide__hash_map_init(&map, &h.heap);
  m = (model){ .keys = 1000, .key = key_address };
  for (uint32_t n = 0; n < 1000; n++) {
    if (!tide__hash_map_reserve(&map, map.count + 1)) {
      expect_same(&map, &m);
      T_CHECK(!tide__hash_map_has_room(&map));
    }
    step_put(&map, &m, n, n + 1);
  }
  expect_same(&map, &m);
  tide__hash_map_fini(&map);
  T_EQ(atomic_load(&h.outstanding), 0);
  return atomic_load(&h.has_failed);
}

T_TEST(test_hash_map__may_fail_at_any_alloc) {
  size_t fail_at = 0;
  while (fill_with_failure_at(fail_at)) fail_at++;
  T_EQ(fail_at, 6);  // 64, 128, ... 2048 slots
}

T_TEST(test_hash_map__refuses_more_keys_than_there_are_bytes) {
  tide__hash_map map;
  tide__hash_map_init(&map, &tide__system_heap);
  T_CHECK(!tide__hash_map_reserve(&map, SIZE_MAX));
  T_CHECK(!tide__hash_map_reserve(&map, SIZE_MAX / 2 + 1));
  T_PTR_EQ(map.slots, NULL);
  tide__hash_map_fini(&map);
}

T_TEST(test_hash_map__grows_into_a_larger_map_without_the_heap) {
  static model m;
  counting_heap h;
  tide__hash_map map;
  tide__hash_map larger;
  counting_heap_init(&h, SIZE_MAX, false);
  tide__hash_map_init(&map, &h.heap);
  tide__hash_map_init(&larger, &h.heap);
  m = (model){ .keys = 300, .key = key_address };
  for (uint32_t n = 0; n < 100; n++) step_put(&map, &m, n, n + 1);
  T_CHECK(tide__hash_map_reserve(&larger, 300));
  const size_t allocs = atomic_load(&h.allocs);
  const size_t slots = tide__hash_map_slot_count(&map);

  tide__hash_map_grow_into(&map, &larger);

  expect_same(&map, &m);
  T_EQ(tide__hash_map_slot_count(&larger), slots);
  for (uint32_t n = 100; n < 300; n++) step_put(&map, &m, n, n + 1);
  expect_same(&map, &m);
  T_EQ(atomic_load(&h.allocs), allocs);
  tide__hash_map_fini(&larger);
  tide__hash_map_fini(&map);
  T_EQ(atomic_load(&h.outstanding), 0);
}

// Another thread was faster: the map is as large already.
T_TEST(test_hash_map__does_not_grow_into_a_map_of_its_size) {
  static model m;
  tide__hash_map map;
  tide__hash_map other;
  tide__hash_map_init(&map, &tide__system_heap);
  tide__hash_map_init(&other, &tide__system_heap);
  m = (model){ .keys = 20, .key = key_plain };
  for (uint32_t n = 0; n < 20; n++) step_put(&map, &m, n, n + 1);
  T_CHECK(tide__hash_map_reserve(&other, 32));
  const tide__hash_slot* const slots = map.slots;

  tide__hash_map_grow_into(&map, &other);

  T_PTR_EQ(map.slots, slots);
  T_EQ(other.count, 0);
  expect_same(&map, &m);
  tide__hash_map_fini(&other);
  tide__hash_map_fini(&map);
}
