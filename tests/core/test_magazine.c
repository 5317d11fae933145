// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A magazine, compared with a plain stack: the same items in the same order after any calls.
#include "core/magazine.h"

#include "t.h"

#define ITEMS 64u

typedef struct item {
  uint32_t number;
  struct item* link;  // not the first field: the offset matters
} item;

#define LINK offsetof(item, link)

typedef struct model {
  tide__magazine magazine;
  item items[ITEMS];
  item* stack[ITEMS];  // in the magazine, the newest last
  uint32_t count;
  item* idle[ITEMS];  // elsewhere
  uint32_t idle_count;
} model;

static void model_init(model* m) {
  memset(m, 0, sizeof *m);
  tide__magazine_init(&m->magazine, 7, 1024, 16 * 1024, 2, 32);
  for (uint32_t i = 0; i < ITEMS; i++) {
    m->items[i].number = i;
    m->idle[m->idle_count++] = &m->items[i];
  }
}

static void expect_same(const model* m) {
  const item* at = tide__load_relaxed(&m->magazine.head);
  for (uint32_t i = m->count; i-- > 0; at = at->link) T_PTR_EQ(at, m->stack[i]);
  T_PTR_EQ(at, NULL);
  T_EQ(m->magazine.count, m->count);
}

static void do_put(model* m, t_rng* rng) {
  T_EQ(tide__magazine_has_room(&m->magazine), m->count < 16);
  if (m->count == 16) return;
  const uint32_t at = (uint32_t)t_rng_below(rng, m->idle_count);
  item* const put = m->idle[at];
  m->idle[at] = m->idle[--m->idle_count];
  tide__magazine_put(&m->magazine, put, LINK);
  m->stack[m->count++] = put;
}

static void do_take(model* m, t_rng* rng) {
  (void)rng;
  if (m->count == 0) return;
  item* const taken = m->stack[--m->count];
  T_PTR_EQ(tide__magazine_take(&m->magazine, LINK), taken);
  m->idle[m->idle_count++] = taken;
}

// What is cut off are the oldest, the newest of them first.
static void do_cut(model* m, t_rng* rng) {
  const uint32_t keep = (uint32_t)t_rng_below(rng, m->count + 1);
  const uint32_t cut = m->count - keep;
  item* list = tide__magazine_cut(&m->magazine, keep, LINK);
  for (uint32_t i = cut; i-- > 0; list = list->link) {
    T_PTR_EQ(list, m->stack[i]);
    m->idle[m->idle_count++] = list;
  }
  T_PTR_EQ(list, NULL);
  memmove(m->stack, m->stack + cut, keep * sizeof *m->stack);
  m->count = keep;
}

static void do_refill(model* m, t_rng* rng) {
  if (m->count != 0) return;
  const uint32_t count = (uint32_t)t_rng_below(rng, 9);
  item* list = NULL;
  for (uint32_t i = 0; i < count; i++) {
    item* const added = m->idle[--m->idle_count];
    added->link = list;
    list = added;
    m->stack[m->count++] = added;
  }
  tide__magazine_refill(&m->magazine, list, count);
}

T_TEST(test_magazine__is_a_stack_that_can_be_cut) {
  static void (*const calls[])(model*,
                               t_rng*) = { do_put, do_put, do_put, do_take, do_take, do_cut, do_refill };
  static model m;
  t_rng rng = t_rng_new(1);
  model_init(&m);
  for (size_t i = 0; i < t_scaled_alone(50000); i++) {
    calls[t_rng_below(&rng, sizeof calls / sizeof *calls)](&m, &rng);
    expect_same(&m);
    T_EQ(m.count + m.idle_count, ITEMS);
  }
}

T_TEST(test_magazine__its_limit_follows_from_bytes_within_bounds) {
  tide__magazine magazine;
  tide__magazine_init(&magazine, 3, 512, 2 << 20, 8, 32);
  T_EQ(magazine.limit, 32);
  tide__magazine_init(&magazine, 3, 128 << 10, 2 << 20, 8, 32);
  T_EQ(magazine.limit, 16);
  tide__magazine_init(&magazine, 3, 1 << 20, 2 << 20, 8, 32);
  T_EQ(magazine.limit, 8);
  T_EQ(magazine.units, 3);
  T_EQ(magazine.count, 0);
}

T_TEST(test_magazine__refills_double_up_to_half_of_the_limit) {
  static const uint32_t wanted[] = { 1, 2, 4, 8, 10, 10 };
  tide__magazine magazine;
  tide__magazine_init(&magazine, 1, 1, 20, 1, 255);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    T_EQ(tide__magazine_wanted(&magazine), wanted[i]);
    magazine.fill = (uint8_t)wanted[i];
  }
  magazine.fill = 0;
  T_EQ(tide__magazine_wanted(&magazine), 1);
  tide__magazine_init(&magazine, 1, 1, 1, 1, 255);
  T_EQ(tide__magazine_wanted(&magazine), 1);  // never none
}
