// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Which stripe a thread has.
#define T_THREADS
#include "base/stripe.h"

#include "t.h"

enum { THREADS = 3 * TIDE__STRIPES };

static void* stripe_report(void* out) {
  *(uint32_t*)out = tide__stripe();
  T_EQ(tide__stripe(), *(uint32_t*)out);  // it stays the same
  return NULL;
}

T_TEST(test_stripe__threads_get_them_in_turn) {
  uint32_t stripes[THREADS];
  uint32_t users[TIDE__STRIPES] = { 0 };
  for (size_t i = 0; i < THREADS; i++) {
    pthread_t thread;
    t_thread_start(&thread, stripe_report, &stripes[i]);
    t_thread_join(thread);
  }

  for (size_t i = 0; i < THREADS; i++) {
    T_LT(stripes[i], TIDE__STRIPES);
    users[stripes[i]]++;
    // Of as many threads as there are stripes, no two share one.
    for (size_t k = i >= TIDE__STRIPES ? i - TIDE__STRIPES + 1 : 0; k < i; k++)
      T_CHECK(stripes[k] != stripes[i]);
  }
  for (size_t i = 0; i < TIDE__STRIPES; i++) T_EQ(users[i], THREADS / TIDE__STRIPES);
}

T_TEST(test_stripe__counts_those_in_use) {
  T_EQ(tide__stripe_count(), 0);
  T_LT(tide__stripe(), 1);
  T_EQ(tide__stripe_count(), 1);
  for (size_t i = 1; i < THREADS; i++) {
    pthread_t thread;
    uint32_t stripe = 0;
    t_thread_start(&thread, stripe_report, &stripe);
    t_thread_join(thread);
    T_LT(stripe, tide__stripe_count());
    T_EQ(tide__stripe_count(), i < TIDE__STRIPES ? i + 1 : TIDE__STRIPES);
  }
}
