// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The verifier of plans of runs: each fault, hostile numbers, and random offsets against a comparison of all
// pairs.
#include "machine/counting_heap.h"
#include "planned.h"

static tide_plan_check verified(const tide_profile_request* requests, size_t count, uint64_t bytes) {
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  memset(&check.fault, 0xee, sizeof check - offsetof(tide_plan_check, fault));
  T_OK(tide_profile_verify(requests, count, bytes, NULL, &check));
  T_EQ(check.fault == TIDE_PLAN_NO_FAULT, check.text[0] == '\0');
  return check;
}

static void expect_refused(const tide_profile_request* requests, size_t count) {
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  T_STATUS(tide_profile_verify(requests, count, 100, NULL, &check), TIDE_ERR_ARGUMENT);
}

// ---------------------------------------------------------------------------------------------------
// Faults

T_TEST(test_profile_verify__accepts_a_plan) {
  const tide_profile_request requests[] = { { 10, 1, 2, 0 }, { 6, 2, 3, 10 }, { 10, 1, 3, 0 } };

  const tide_plan_check check = verified(requests, 3, 16);

  T_EQ(check.fault, TIDE_PLAN_NO_FAULT);
  T_EQ(check.peak, 16);
}

T_TEST(test_profile_verify__accepts_nothing) {
  T_EQ(verified(NULL, 0, 0).fault, TIDE_PLAN_NO_FAULT);
  T_EQ(verified(NULL, 0, TIDE_PLAN_MAX_BYTES).fault, TIDE_PLAN_NO_FAULT);
}

T_TEST(test_profile_verify__names_two_that_overlap) {
  const tide_profile_request requests[] = {
    { 10, 1, 1, 0 }, { 10, 1, 4, 0 }, { 5, 1, 4, 20 }, { 6, 1, 4, 9 }
  };

  const tide_plan_check check = verified(requests, 4, 100);

  T_EQ(check.fault, TIDE_PLAN_FAULT_OVERLAP);
  T_EQ(check.buffer + check.other, 1 + 3);
  T_CHECK(check.buffer == 1 || check.buffer == 3);
}

T_TEST(test_profile_verify__one_may_begin_when_another_ends) {
  const tide_profile_request meeting[] = { { 10, 1, 2, 0 }, { 10, 1, 2, 0 } };
  const tide_profile_request in_turn[] = { { 10, 1, 1, 0 }, { 10, 1, 2, 0 } };

  T_EQ(verified(meeting, 2, 10).fault, TIDE_PLAN_FAULT_OVERLAP);
  T_EQ(verified(in_turn, 2, 10).fault, TIDE_PLAN_NO_FAULT);
}

T_TEST(test_profile_verify__what_ends_beyond_the_arena) {
  const tide_profile_request requests[] = { { 10, 1, 2, 0 }, { 10, 1, 2, 10 } };

  T_EQ(verified(requests, 2, 20).fault, TIDE_PLAN_NO_FAULT);
  T_EQ(verified(requests, 2, 19).fault, TIDE_PLAN_FAULT_CAPACITY);
  T_EQ(verified(requests, 2, 19).buffer, 1);
  T_EQ(verified(requests, 2, 0).fault, TIDE_PLAN_FAULT_CAPACITY);
}

T_TEST(test_profile_verify__offsets_that_are_no_multiples) {
  const tide_profile_request requests[] = { { 10, 64, 2, 64 }, { 10, 64, 2, 32 } };

  T_EQ(verified(requests, 2, 1000).fault, TIDE_PLAN_FAULT_ALIGNMENT);
  T_EQ(verified(requests, 2, 1000).buffer, 1);
}

T_TEST(test_profile_verify__what_is_never_released_is_not_looked_at) {
  const tide_profile_request requests[] = { { 10, 1, 2, 0 },
                                            { 10, 1, TIDE_PROFILE_NEVER, 0 },
                                            { 10, 64, TIDE_PROFILE_NEVER, 7 },
                                            { 10, 1, TIDE_PROFILE_NEVER, UINT64_MAX } };

  T_EQ(verified(requests, 4, 10).fault, TIDE_PLAN_NO_FAULT);
}

// ---------------------------------------------------------------------------------------------------
// Hostile numbers

T_TEST(test_profile_verify__offsets_that_wrap_are_beyond_the_arena) {
  const uint64_t offsets[] = { UINT64_MAX, UINT64_MAX - 9, UINT64_MAX - 10, TIDE_PLAN_MAX_BYTES,
                               (uint64_t)1 << 63 };
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
    const tide_profile_request requests[] = { { 10, 1, 2, 0 }, { 10, 1, 2, offsets[i] } };
    const tide_plan_check check = verified(requests, 2, 100);
    T_EQ(check.fault, TIDE_PLAN_FAULT_CAPACITY);
    T_EQ(check.buffer, 1);
  }
}

T_TEST(test_profile_verify__refuses_what_is_no_run) {
  const uint64_t half = (uint64_t)1 << 63;
  const tide_profile_request empty[] = { { 0, 1, 1, 0 } };
  const tide_profile_request backwards[] = { { 8, 1, 2, 0 }, { 8, 1, 1, 8 } };
  const tide_profile_request at_once[] = { { 8, 1, 0, 0 } };
  const tide_profile_request beyond[] = { { 8, 1, 2, 0 } };
  const tide_profile_request crooked[] = { { 8, 3, 1, 0 } };
  const tide_profile_request overflowing[] = { { half, 1, 3, 0 }, { half, 1, 3, 0 }, { 1, 1, 3, 0 } };

  expect_refused(empty, 1);
  expect_refused(backwards, 2);
  expect_refused(at_once, 1);
  expect_refused(beyond, 1);
  expect_refused(crooked, 1);
  expect_refused(overflowing, 3);
  expect_refused(NULL, 1);
  T_STATUS(tide_profile_verify(empty, 0, 0, NULL, NULL), TIDE_ERR_ARGUMENT);
}

// Any numbers at all: the answer is an answer, and it does not crash.
T_TEST(test_profile_verify__survives_any_numbers) {
  const uint64_t numbers[] = {
    0, 1, 2, 3, 4, 7, 64, (uint64_t)1 << 62, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX
  };
  const size_t count = sizeof numbers / sizeof *numbers;
  tide_profile_request requests[4];
  t_rng rng = t_rng_new(0);
  size_t accepted = 0;
  for (size_t round = 0; round < t_scaled(20000); round++) {
    tide_plan_check check = TIDE_PLAN_CHECK_INIT;
    tide_profile_plan* plan = NULL;
    for (size_t i = 0; i < 4; i++) {
      requests[i].bytes = numbers[t_rng_below(&rng, count)];
      requests[i].alignment = numbers[t_rng_below(&rng, 7)];
      requests[i].lifetime = numbers[t_rng_below(&rng, count)];
      requests[i].offset = numbers[t_rng_below(&rng, count)];
    }
    const size_t used = t_rng_below(&rng, 5);
    const tide_status status =
        tide_profile_verify(requests, used, numbers[t_rng_below(&rng, 8)], NULL, &check);

    T_STATUS(tide_profile_plan_new(requests, used, NULL, &plan), status);  // both refuse the same
    tide_profile_plan_free(plan);
    accepted += status == TIDE_OK ? 1 : 0;
  }
  T_LT(0, accepted);
}

// ---------------------------------------------------------------------------------------------------
// Against all pairs

static bool is_sound(const tide_profile_request* requests, size_t count, uint64_t bytes) {
  size_t a = 0;
  size_t b = 0;
  for (size_t i = 0; i < count; i++) {
    if (!oracle_is_managed(&requests[i])) continue;
    if (requests[i].offset + requests[i].bytes > bytes) return false;
    if (requests[i].offset % requests[i].alignment != 0) return false;
  }
  return !oracle_find_overlap(requests, count, &a, &b);
}

static void expect_pair(const tide_profile_request* requests, const tide_plan_check* check) {
  const tide_profile_request* const a = &requests[check->buffer];
  const tide_profile_request* const b = &requests[check->other];
  T_CHECK(oracle_meet(requests, check->buffer, check->other));
  T_LT(a->offset, b->offset + b->bytes);
  T_LT(b->offset, a->offset + a->bytes);
}

T_TEST(test_profile_verify__agrees_with_all_pairs) {
  tide_profile_request requests[12];
  size_t sound = 0;
  for (uint64_t round = 0; round < t_scaled(20000); round++) {
    t_rng rng = t_rng_new(round);
    const size_t count = 1 + t_rng_below(&rng, 12);
    planned_random(requests, count, "any lifetime", &rng);
    for (size_t i = 0; i < count; i++) {
      requests[i].bytes = 1 + t_rng_below(&rng, 20);
      requests[i].offset = t_rng_below(&rng, 30 * (1 + count / 2));
      if (t_rng_below(&rng, 6) == 0) requests[i].lifetime = TIDE_PROFILE_NEVER;
      if (t_rng_below(&rng, 20) == 0) requests[i].alignment = 2;
    }
    const uint64_t bytes = 20 + 30 * (1 + count / 2) - t_rng_below(&rng, 20);

    const tide_plan_check check = verified(requests, count, bytes);

    T_EQ(check.fault == TIDE_PLAN_NO_FAULT, is_sound(requests, count, bytes));
    if (check.fault == TIDE_PLAN_FAULT_OVERLAP) expect_pair(requests, &check);
    sound += check.fault == TIDE_PLAN_NO_FAULT ? 1 : 0;
  }
  T_LT(t_scaled(20000) / 100, sound);
}

// A plan with one offset moved by one byte is found out whenever all pairs say so.
T_TEST(test_profile_verify__notices_one_byte) {
  tide_profile_request requests[20];
  for (uint64_t round = 0; round < t_scaled(200); round++) {
    t_rng rng = t_rng_new(round);
    planned_random(requests, 20, "any lifetime", &rng);
    const uint64_t bytes = planned_bytes(requests, 20, TIDE_PROFILE_BEST_FIT);
    const size_t moved = t_rng_below(&rng, 20);
    requests[moved].offset += requests[moved].offset == 0 || t_rng_below(&rng, 2) == 0 ? 1 : UINT64_MAX;

    T_EQ(verified(requests, 20, bytes).fault == TIDE_PLAN_NO_FAULT, is_sound(requests, 20, bytes));
  }
}

T_TEST(test_profile_verify__every_failing_record_is_reported) {
  const tide_profile_request requests[] = { { 10, 1, 2, 0 }, { 6, 2, 3, 10 }, { 10, 1, 3, 0 } };
  bool has_failed = true;
  for (size_t n = 0; has_failed; n++) {
    counting_heap heap;
    tide_plan_check check = TIDE_PLAN_CHECK_INIT;
    counting_heap_init(&heap, n, false);

    const tide_status status = tide_profile_verify(requests, 3, 16, &heap.heap, &check);

    has_failed = atomic_load(&heap.has_failed);
    T_STATUS(status, has_failed ? TIDE_ERR_NO_MEMORY : TIDE_OK);
    T_EQ(atomic_load(&heap.outstanding), 0);
  }
}
