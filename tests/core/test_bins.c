// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The free index, compared with a model that visits every block. There are few sizes, so that many blocks
// have the same one. They lie on both sides of 2 MiB, where the heaps end and the trees begin.
#include "core/bins.h"
#include "machine/counting_heap.h"

#define BLOCKS 512u
#define GRAIN ((uint64_t)512)
#define TWO_MIB ((uint64_t)2 << 20)

typedef struct model {
  tide__bins bins;
  tide__block blocks[BLOCKS];
  bool is_in[BLOCKS];
} model;

static const char* const kinds[] = { "heaps", "trees", NULL };

static bool has_heaps(void) { return strcmp(t_variant(), "heaps") == 0; }

// A size: one of a few, one around 2 MiB, where a tree ends and another begins, or any; or huge.
static uint64_t random_bytes(t_rng* rng) {
  switch (t_rng_below(rng, 6)) {
    case 0: return GRAIN * (1 + t_rng_below(rng, 4));
    case 1: return TWO_MIB - 4 * GRAIN + GRAIN * t_rng_below(rng, 8);
    case 2: return GRAIN << t_rng_below(rng, 16);
    case 3: return TWO_MIB + (TWO_MIB >> 5) * t_rng_below(rng, 4) + GRAIN * t_rng_below(rng, 2);
    case 4: return (GRAIN << t_rng_below(rng, 50)) * (1 + t_rng_below(rng, 4));
    default: return GRAIN * (1 + t_rng_below(rng, 6000));
  }
}

static bool is_before(const tide__block* a, const tide__block* b) {
  return a->bytes < b->bytes || (a->bytes == b->bytes && a->address < b->address);
}

// The smallest block of at least `bytes`, the lowest among equal ones; NULL: none.
static tide__block* model_peek(model* s, uint64_t bytes) {
  tide__block* best = NULL;
  for (size_t i = 0; i < BLOCKS; i++) {
    tide__block* const block = &s->blocks[i];
    if (!s->is_in[i] || block->bytes < bytes) continue;
    if (best == NULL || is_before(block, best)) best = block;
  }
  return best;
}

static uint64_t model_largest(const model* s) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    if (s->is_in[i] && s->blocks[i].bytes > bytes) bytes = s->blocks[i].bytes;
  }
  return bytes;
}

static void put(model* s, size_t i, uint64_t address, uint64_t bytes) {
  memset(&s->blocks[i], 0, sizeof s->blocks[i]);
  s->blocks[i].address = s->blocks[i].tie = address;
  s->blocks[i].bytes = bytes;
  s->blocks[i].state = TIDE__BLOCK_FREE;
  tide__bins_put(&s->bins, &s->blocks[i]);
  s->is_in[i] = true;
}

static void take(model* s, tide__block* block) {
  tide__bins_take(&s->bins, block);
  s->is_in[block - s->blocks] = false;
}

static void expect_agreement(model* s, t_rng* rng) {
  const uint64_t bytes = t_rng_below(rng, 8) == 0 ? t_rng_below(rng, 8 * TWO_MIB) : random_bytes(rng);
  const tide__block* const largest = tide__bins_largest(&s->bins);
  T_PTR_EQ(tide__bins_peek(&s->bins, bytes), model_peek(s, bytes));
  T_EQ(largest != NULL ? largest->bytes : 0, model_largest(s));
  T_EQ(tide__bins_check(&s->bins), 0);
}

// Puts random blocks in and takes random ones, or the best for a size, out; `fullness` of 8 are puts.
static void play(model* s, t_rng* rng, size_t steps, uint64_t fullness) {
  for (size_t step = 0; step < steps; step++) {
    const size_t i = t_rng_below(rng, BLOCKS);
    const bool is_put = t_rng_below(rng, 8) < fullness;
    if (is_put && !s->is_in[i]) put(s, i, GRAIN * (1 + i * 8192), random_bytes(rng));
    if (!is_put && s->is_in[i]) take(s, &s->blocks[i]);
    tide__block* const best = is_put ? NULL : tide__bins_peek(&s->bins, random_bytes(rng));
    if (best != NULL) take(s, best);
    expect_agreement(s, rng);
  }
}

T_TEST_OVER(test_bins__agree_with_a_list, kinds) {
  static model s;
  counting_heap heap;
  t_rng rng = t_rng_new(0);
  counting_heap_init(&heap, SIZE_MAX, false);
  T_CHECK(tide__bins_init(&s.bins, &heap.heap, has_heaps()));

  for (uint64_t fullness = 7; fullness > 0; fullness--) play(&s, &rng, t_scaled(1500), fullness);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (s.is_in[i]) take(&s, &s.blocks[i]);
  }

  T_PTR_EQ(tide__bins_peek(&s.bins, 1), NULL);
  T_PTR_EQ(tide__bins_largest(&s.bins), NULL);
  T_EQ(s.bins.count, 0);
  tide__bins_fini(&s.bins, &heap.heap);
  T_EQ(atomic_load(&heap.outstanding), 0);
}

// Blocks of one size come out by rising address, whatever the order they went in.
T_TEST_OVER(test_bins__give_equal_blocks_by_address, kinds) {
  static model s;
  static const uint64_t sizes[] = { GRAIN, TWO_MIB - GRAIN, TWO_MIB, 5 * TWO_MIB };
  t_rng rng = t_rng_new(1);
  T_CHECK(tide__bins_init(&s.bins, tide__heap_or_system(NULL), has_heaps()));
  for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
    for (size_t left = BLOCKS; left > 0;) {
      const size_t i = t_rng_below(&rng, BLOCKS);
      if (s.is_in[i]) continue;
      put(&s, i, GRAIN * (1 + i), sizes[n]);
      left--;
    }
    T_EQ(tide__bins_check(&s.bins), 0);

    for (size_t i = 0; i < BLOCKS; i++) {
      tide__block* const block = tide__bins_peek(&s.bins, 1);
      T_PTR_EQ(block, &s.blocks[i]);
      take(&s, block);
      if (i % 16 == 0) T_EQ(tide__bins_check(&s.bins), 0);
    }
  }
  tide__bins_fini(&s.bins, tide__heap_or_system(NULL));
}

// A request between two sizes, and at the very ends of the heaps.
T_TEST(test_bins__find_the_next_larger_size) {
  static model s;
  T_CHECK(tide__bins_init(&s.bins, tide__heap_or_system(NULL), true));
  put(&s, 0, GRAIN, GRAIN);
  put(&s, 1, 4 * GRAIN, TWO_MIB - GRAIN);
  put(&s, 2, 2 * TWO_MIB, TWO_MIB);
  put(&s, 3, 4 * TWO_MIB, TWO_MIB + GRAIN);

  T_PTR_EQ(tide__bins_peek(&s.bins, 0), &s.blocks[0]);
  T_PTR_EQ(tide__bins_peek(&s.bins, 1), &s.blocks[0]);
  T_PTR_EQ(tide__bins_peek(&s.bins, GRAIN), &s.blocks[0]);
  T_PTR_EQ(tide__bins_peek(&s.bins, GRAIN + 1), &s.blocks[1]);
  T_PTR_EQ(tide__bins_peek(&s.bins, TWO_MIB - GRAIN), &s.blocks[1]);
  T_PTR_EQ(tide__bins_peek(&s.bins, TWO_MIB - GRAIN + 1), &s.blocks[2]);
  T_PTR_EQ(tide__bins_peek(&s.bins, TWO_MIB), &s.blocks[2]);
  T_PTR_EQ(tide__bins_peek(&s.bins, TWO_MIB + 1), &s.blocks[3]);
  T_PTR_EQ(tide__bins_peek(&s.bins, TWO_MIB + GRAIN + 1), NULL);
  T_PTR_EQ(tide__bins_largest(&s.bins), &s.blocks[3]);
  tide__bins_fini(&s.bins, tide__heap_or_system(NULL));
}

T_TEST_OVER(test_bins__leave_nothing_where_memory_lacks, kinds) {
  const size_t needed = has_heaps() ? 2 : 1;
  for (size_t allowed = 0; allowed <= needed; allowed++) {
    tide__bins bins;
    counting_heap heap;
    counting_heap_init(&heap, allowed, true);
    T_EQ(tide__bins_init(&bins, &heap.heap, has_heaps()), allowed == needed);
    tide__bins_fini(&bins, &heap.heap);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
}

T_TEST(test_bins__check_reports_what_is_broken) {
  static model s;
  T_CHECK(tide__bins_init(&s.bins, tide__heap_or_system(NULL), true));
  put(&s, 0, GRAIN, GRAIN);
  put(&s, 1, 2 * GRAIN, GRAIN);
  put(&s, 2, TWO_MIB, TWO_MIB);

  s.bins.summary ^= 2;
  T_EQ(tide__bins_check(&s.bins), 1);
  s.bins.summary ^= 2;
  s.bins.tree_summary ^= 2;
  T_EQ(tide__bins_check(&s.bins), 1);
  s.bins.tree_summary ^= 2;
  s.blocks[1].tie = 0;
  T_EQ(tide__bins_check(&s.bins), 2);
  s.blocks[1].tie = 2 * GRAIN;
  s.blocks[2].bytes += GRAIN;
  T_EQ(tide__bins_check(&s.bins), 3);
  s.blocks[2].bytes -= GRAIN;
  s.bins.count++;
  T_EQ(tide__bins_check(&s.bins), 3);
  s.bins.count--;
  T_EQ(tide__bins_check(&s.bins), 0);
  tide__bins_fini(&s.bins, tide__heap_or_system(NULL));
}
