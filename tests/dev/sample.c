// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Tests that fail on purpose: tests/dev/run checks what the harness prints about them.
#include "t.h"

T_TEST(test_sample__passes) { T_EQ(t_seed(), 7); }

T_TEST(test_sample__uses_the_processor_for_ever) {
  for (volatile uint64_t i = 0;; i = i + 1) {}
}

T_TEST(test_sample__fails_and_is_made_smaller_for_ever) {
  t_shrink_begin("the sum is %d, not %d", 5, 4);
  while (true) t_sleep_us(1000000);
}

T_TEST(test_sample__fails) { T_EQ(2 + 2, 5); }

static void* do_nothing(void* user) { return user; }

T_TEST(test_sample__starts_a_thread) {
  pthread_t thread;
  t_thread_start(&thread, do_nothing, NULL);
  t_thread_join(thread);
}

T_TEST(test_sample__tier_is_quick) {
  T_CHECK(!t_is_thorough());
  T_EQ(t_scaled(100), 10);
  T_EQ(t_scaled(5), 1);
  T_EQ(t_scaled_least(100, 20), 20);
  T_EQ(t_scaled_least(10, 20), 10);
  T_EQ(t_scaled_least(1000, 20), 100);
  T_EQ(t_sample_step(), 7);
  T_EQ(t_sample_first(), 2);  // the seed is 9
}

T_TEST(test_sample__tier_is_thorough) {
  t_only_thorough();
  T_EQ(t_scaled(100), 200);
  T_EQ(t_sample_step(), 1);
  T_EQ(t_sample_first(), 0);
}
