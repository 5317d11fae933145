// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The address map: compared with a list, at the edges of its ranges, without memory, and with readers that
// look addresses up while others write.
#define T_THREADS
#include "core/map.h"
#include "machine/counting_heap.h"

#define MIB ((uint64_t)1 << 20)
#define GRAIN ((uint64_t)512)
#define TOP ((uint64_t)1 << TIDE__MAP_ADDRESS_BITS)

typedef struct fixture {
  tide__map map;
  counting_heap heap;
} fixture;

static void fixture_init(fixture* f) {
  memset(f, 0, sizeof *f);
  counting_heap_init(&f->heap, SIZE_MAX, false);
  tide__map_init(&f->map, &f->heap.heap);
}

static void fixture_fini(fixture* f) {
  tide__map_fini(&f->map);
  T_EQ(atomic_load(&f->heap.outstanding), 0);
}

static void expect_at(fixture* f, uint64_t address, uint32_t index) {
  uint32_t found = UINT32_MAX;
  T_CHECK(tide__map_find(&f->map, address, &found));
  T_EQ(found, index);
}

static void expect_nothing(fixture* f, uint64_t address) {
  uint32_t found = 77;
  T_CHECK(!tide__map_find(&f->map, address, &found));
  T_EQ(found, 77);
}

// ---------------------------------------------------------------------------------------------------
// Beside a list

#define SEGMENTS 24u
#define PLACES 64u

// A range of the map; blocks begin at multiples of `step` in it.
typedef struct segment {
  uint64_t address;
  uint64_t step;
  bool is_small;
  uint32_t blocks[PLACES];  // the index noted there plus 1; 0: none
} segment;

// Ranges far apart and close together, few of them at a whole MiB.
static void segment_init(segment* g, size_t n, t_rng* rng) {
  memset(g, 0, sizeof *g);
  g->is_small = t_rng_below(rng, 2) == 0;
  g->step = g->is_small ? GRAIN * (1 + t_rng_below(rng, 60)) : MIB / 2 + GRAIN * t_rng_below(rng, 5000);
  const uint64_t base = n % 3 == 0 ? (n + 1) * (TOP / 32) : 0x7f0000000000 + n * 1024 * MIB;
  g->address = base + GRAIN * t_rng_below(rng, 4096);
}

static void segment_step(fixture* f, segment* g, t_rng* rng) {
  const size_t i = t_rng_below(rng, PLACES);
  const uint64_t address = g->address + i * g->step;
  if (g->blocks[i] != 0) {
    expect_at(f, address, g->blocks[i] - 1);
    tide__map_clear(&f->map, address, g->is_small);
    g->blocks[i] = 0;
  } else {
    g->blocks[i] = 1 + (uint32_t)t_rng_below(rng, UINT32_MAX - 1);
    tide__map_set(&f->map, address, g->is_small, g->blocks[i] - 1);
  }
}

static void expect_same(fixture* f, const segment* g) {
  for (size_t i = 0; i < PLACES; i++) {
    const uint64_t address = g->address + i * g->step;
    if (g->blocks[i] != 0) expect_at(f, address, g->blocks[i] - 1);
    else expect_nothing(f, address);
  }
}

T_TEST(test_map__agrees_with_a_list) {
  static fixture f;
  static segment segments[SEGMENTS];
  t_rng rng = t_rng_new(0);
  fixture_init(&f);
  for (size_t n = 0; n < SEGMENTS; n++) {
    segment_init(&segments[n], n, &rng);
    T_OK(tide__map_cover(&f.map, segments[n].address, segments[n].step * PLACES, segments[n].is_small));
  }

  for (size_t step = 0; step < t_scaled(100000); step++) {
    segment_step(&f, &segments[t_rng_below(&rng, SEGMENTS)], &rng);
    if (step % 64 == 0) expect_same(&f, &segments[t_rng_below(&rng, SEGMENTS)]);
  }

  for (size_t n = 0; n < SEGMENTS; n++) expect_same(&f, &segments[n]);
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Edges

T_TEST(test_map__knows_nothing_at_first) {
  static fixture f;
  fixture_init(&f);

  expect_nothing(&f, 0);
  expect_nothing(&f, MIB);
  expect_nothing(&f, TOP - GRAIN);
  expect_nothing(&f, TOP);
  expect_nothing(&f, UINT64_MAX);

  fixture_fini(&f);
}

T_TEST(test_map__knows_nothing_beside_what_was_covered) {
  static fixture f;
  const uint64_t address = 0x7f0000000000 + 3 * MIB;
  fixture_init(&f);
  T_OK(tide__map_cover(&f.map, address, 2 * MIB, true));
  tide__map_set(&f.map, address, true, 5);

  expect_at(&f, address, 5);
  expect_nothing(&f, address + GRAIN);
  expect_nothing(&f, address - GRAIN);
  expect_nothing(&f, address + 2 * MIB);
  expect_nothing(&f, address + 512 * MIB);
  expect_nothing(&f, address + (MIB << 18));
  expect_nothing(&f, address | TOP);

  fixture_fini(&f);
}

// A segment of 2 MiB that begins inside a MiB touches three; a large block may begin in the last one.
T_TEST(test_map__covers_segments_that_begin_inside_a_mib) {
  static fixture f;
  const uint64_t address = 0x100000000000 - MIB / 2;  // and crosses from one node of the tree to another
  fixture_init(&f);
  T_OK(tide__map_cover(&f.map, address, 2 * MIB, true));
  for (uint32_t i = 0; i < 4096; i++) tide__map_set(&f.map, address + i * GRAIN, true, i);

  for (uint32_t i = 0; i < 4096; i++) expect_at(&f, address + i * GRAIN, i);
  expect_nothing(&f, address - GRAIN);
  expect_nothing(&f, address + 2 * MIB);

  fixture_fini(&f);
}

// Two large blocks, one behind the other, begin in neighbouring MiB; a small one may lie in the same MiB.
T_TEST(test_map__keeps_small_and_large_blocks_of_one_mib_apart) {
  static fixture f;
  const uint64_t small = 0x200000000000;
  const uint64_t large = small + 4 * GRAIN;
  fixture_init(&f);
  T_OK(tide__map_cover(&f.map, small, 4 * GRAIN, true));
  T_OK(tide__map_cover(&f.map, large, 3 * MIB, false));
  tide__map_set(&f.map, small, true, 1);
  tide__map_set(&f.map, large, false, 2);
  tide__map_set(&f.map, large + MIB + GRAIN, false, 3);

  expect_at(&f, small, 1);
  expect_at(&f, large, 2);
  expect_at(&f, large + MIB + GRAIN, 3);
  tide__map_clear(&f.map, large, false);
  expect_nothing(&f, large);
  expect_at(&f, small, 1);
  tide__map_clear(&f.map, small, true);
  expect_nothing(&f, small);

  fixture_fini(&f);
}

T_TEST(test_map__ends_at_its_top) {
  static fixture f;
  fixture_init(&f);

  T_STATUS(tide__map_cover(&f.map, TOP, MIB, true), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide__map_cover(&f.map, TOP - MIB, 2 * MIB, true), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide__map_cover(&f.map, UINT64_MAX - GRAIN, MIB, false), TIDE_ERR_UNSUPPORTED);
  T_STATUS(tide__map_cover(&f.map, UINT64_MAX, 1, false), TIDE_ERR_UNSUPPORTED);
  T_EQ(atomic_load(&f.heap.outstanding), 0);
  T_OK(tide__map_cover(&f.map, TOP - 2 * MIB, MIB, true));
  tide__map_set(&f.map, TOP - 2 * MIB, true, UINT32_MAX - 1);
  expect_at(&f, TOP - 2 * MIB, UINT32_MAX - 1);

  fixture_fini(&f);
}

T_TEST(test_map__costs_nothing_when_covered_again) {
  static fixture f;
  fixture_init(&f);
  T_OK(tide__map_cover(&f.map, 7 * MIB, 20 * MIB, true));
  const size_t before = atomic_load(&f.heap.allocs);

  T_OK(tide__map_cover(&f.map, 8 * MIB + GRAIN, 5 * MIB, true));
  T_OK(tide__map_cover(&f.map, 7 * MIB, 20 * MIB, false));

  T_EQ(atomic_load(&f.heap.allocs), before);
  fixture_fini(&f);
}

// ---------------------------------------------------------------------------------------------------
// Without memory

T_TEST(test_map__survives_a_heap_that_fails) {
  static fixture f;
  const uint64_t address = 0x300000000000 - 3 * MIB;
  bool has_failed = true;
  for (size_t at = 0; has_failed; at++) {
    fixture_init(&f);
    atomic_store(&f.heap.fail_at, at);

    const tide_status status = tide__map_cover(&f.map, address, 6 * MIB, true);
    has_failed = atomic_load(&f.heap.has_failed);

    T_EQ(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    expect_nothing(&f, address);
    T_OK(tide__map_cover(&f.map, address, 6 * MIB, true));
    for (uint32_t i = 0; i < 6; i++) tide__map_set(&f.map, address + i * MIB, true, i);
    for (uint32_t i = 0; i < 6; i++) expect_at(&f, address + i * MIB, i);
    fixture_fini(&f);
  }
}

// ---------------------------------------------------------------------------------------------------
// Several threads

enum { WRITERS = 2, READERS = 2, ROUNDS = 64 };

typedef struct race {
  fixture f;
  atomic_bool is_over;
  size_t rounds;
} race;

typedef struct racer {
  race* r;
  uint32_t number;
} racer;

// Where writer `number` notes what in a round. Both writers cover the same MiB.
static uint64_t race_address(uint32_t number, uint32_t round) {
  return 0x400000000000 - 8 * MIB + round * (MIB / 4) + number * 64 * GRAIN;
}

static void* race_write(void* user) {
  const racer* const w = user;
  t_rng rng = t_rng_new(10 + w->number);
  for (size_t i = 0; i < w->r->rounds; i++) {
    const uint32_t round = (uint32_t)t_rng_below(&rng, ROUNDS);
    const uint64_t address = race_address(w->number, round);
    T_OK(tide__map_cover(&w->r->f.map, address, MIB / 2, round % 2 == 0));
    T_OK(tide__map_cover(&w->r->f.map, address, GRAIN, true));
    tide__map_set(&w->r->f.map, address, true, w->number * 1000 + round);
    expect_at(&w->r->f, address, w->number * 1000 + round);
    tide__map_clear(&w->r->f.map, address, true);
  }
  return NULL;
}

// A reader finds nothing, or the right block.
static void* race_read(void* user) {
  const racer* const w = user;
  t_rng rng = t_rng_new(20 + w->number);
  while (!atomic_load(&w->r->is_over)) {
    const uint32_t number = (uint32_t)t_rng_below(&rng, WRITERS);
    const uint32_t round = (uint32_t)t_rng_below(&rng, ROUNDS);
    uint32_t found = 0;
    if (!tide__map_find(&w->r->f.map, race_address(number, round), &found)) continue;
    T_EQ(found, number * 1000 + round);
  }
  return NULL;
}

T_TEST(test_map__is_read_while_it_grows) {
  static race r;
  static racer racers[WRITERS + READERS];
  pthread_t threads[WRITERS + READERS];
  for (size_t again = 0; again < t_scaled(20); again++) {
    fixture_init(&r.f);
    atomic_store(&r.is_over, false);
    r.rounds = 500;
    for (uint32_t i = 0; i < WRITERS + READERS; i++) {
      racers[i] = (racer){ &r, i < WRITERS ? i : i - WRITERS };
      t_thread_start(&threads[i], i < WRITERS ? race_write : race_read, &racers[i]);
    }

    for (size_t i = 0; i < WRITERS; i++) t_thread_join(threads[i]);
    atomic_store(&r.is_over, true);
    for (size_t i = WRITERS; i < WRITERS + READERS; i++) t_thread_join(threads[i]);

    for (uint32_t round = 0; round < ROUNDS; round++) expect_nothing(&r.f, race_address(0, round));
    fixture_fini(&r.f);
  }
}
