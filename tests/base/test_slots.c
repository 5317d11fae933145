// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tables of handles: stale, foreign and invented handles are recognised, also with many threads.
#define T_THREADS
#include "base/slots.h"

#include "t.h"

typedef struct item {
  tide__slot slot;
  uint64_t value;
} item;

static tide__slots table_new(uint32_t kind) {
  tide__slots slots;
  tide__slots_init(&slots, &tide__system_heap, kind, sizeof(item), NULL, NULL);
  return slots;
}

static uint64_t item_new(tide__slots* slots, uint64_t value) {
  item* it = tide__slots_take(slots);
  T_CHECK(it != NULL);
  it->value = value;
  return tide__slots_publish(slots, it);
}

static void item_free(tide__slots* slots, uint64_t handle) {
  item* it = tide__slots_find(slots, handle);
  T_CHECK(it != NULL && tide__slots_retire(it));
  tide__slots_give(slots, it);
}

T_TEST(test_slots__finds_what_was_put_in) {
  tide__slots slots = table_new(1);
  static uint64_t handles[5000];
  for (size_t i = 0; i < 5000; i++) handles[i] = item_new(&slots, i);

  for (size_t i = 0; i < 5000; i++) {
    const item* it = tide__slots_find(&slots, handles[i]);
    T_CHECK(it != NULL);
    T_EQ(it->value, i);
    T_LE(16, (uint32_t)handles[i]);
  }
  tide__slots_fini(&slots);
}

T_TEST(test_slots__a_handle_ends_once_and_does_not_come_back) {
  tide__slots slots = table_new(0);
  const uint64_t first = item_new(&slots, 1);
  item* const it = tide__slots_find(&slots, first);
  T_CHECK(tide__slots_retire(it));
  T_CHECK(!tide__slots_retire(it));
  tide__slots_give(&slots, it);

  const uint64_t second = item_new(&slots, 2);

  T_NE(first, second);
  T_PTR_EQ(tide__slots_find(&slots, first), NULL);
  T_CHECK(tide__slots_find(&slots, second) != NULL);
  T_EQ(tide__slots_count(&slots), 1);
  tide__slots_fini(&slots);
}

T_TEST(test_slots__knows_its_kind) {
  tide__slots events = table_new(1);
  tide__slots streams = table_new(2);

  const uint64_t event = item_new(&events, 1);
  (void)item_new(&streams, 1);

  T_PTR_EQ(tide__slots_find(&streams, event), NULL);
  tide__slots_fini(&events);
  tide__slots_fini(&streams);
}

T_TEST(test_slots__any_number_may_be_asked_for) {
  tide__slots slots = table_new(3);
  t_rng rng = t_rng_new(0);
  for (size_t i = 0; i < 100; i++) (void)item_new(&slots, i);

  for (size_t i = 0; i < t_scaled(100000); i++) {
    const uint64_t handle = t_rng_next(&rng) >> t_rng_below(&rng, 64);
    const item* it = tide__slots_find(&slots, handle);
    if (it != NULL) T_LT(it->value, 100);
  }
  tide__slots_fini(&slots);
}

typedef struct hammer {
  tide__slots* slots;
  uint64_t id;
} hammer;

static void* thread_hammers(void* user) {
  const hammer* h = user;
  uint64_t held[16] = { 0 };
  t_rng rng = t_rng_new(h->id);
  for (size_t i = 0; i < t_scaled(5000); i++) {
    const size_t k = t_rng_below(&rng, 16);
    if (held[k] == 0) {
      held[k] = item_new(h->slots, h->id);
    } else {
      const item* it = tide__slots_find(h->slots, held[k]);
      T_CHECK(it != NULL && it->value == h->id);
      item_free(h->slots, held[k]);
      held[k] = 0;
    }
  }
  return NULL;
}

T_TEST(test_slots__serves_many_threads) {
  tide__slots slots = table_new(0);
  pthread_t threads[4];
  hammer hammers[4];
  for (uint64_t i = 0; i < 4; i++) {
    hammers[i] = (hammer){ &slots, i + 1 };
    t_thread_start(&threads[i], thread_hammers, &hammers[i]);
  }

  for (int i = 0; i < 4; i++) t_thread_join(threads[i]);

  T_LE(tide__slots_count(&slots), 64);
  tide__slots_fini(&slots);
}
