// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The verifier: each fault and each refusal by hand.
#include "machine/counting_heap.h"
#include "plan/checked.h"

// Expects a plan with this peak.
static void expect_plan(const tide_plan_buffer* buffers, size_t count, const uint64_t* offsets,
                        uint64_t peak) {
  const tide_plan_problem problem = { .buffers = buffers, .count = count };
  const tide_plan_check check = check_of(&problem, offsets, NULL);
  T_STR_EQ(check.text, "");
  T_EQ(check.peak, peak);
}

static void expect_fault(const tide_plan_buffer* buffers, size_t count, const uint64_t* offsets,
                         tide_plan_fault fault, const char* text) {
  const tide_plan_problem problem = { .buffers = buffers, .count = count };
  const tide_plan_check check = check_of(&problem, offsets, NULL);
  T_EQ(check.fault, fault);
  T_STR_EQ(check.text, text);
}

// ---------------------------------------------------------------------------------------------------
// Faults

T_TEST(test_verify__of_nothing_is_a_plan) {
  const tide_plan_problem problem = { .count = 0 };

  const tide_plan_check check = check_of(&problem, NULL, NULL);

  T_EQ(check.fault, TIDE_PLAN_NO_FAULT);
  T_EQ(check.peak, 0);
}

T_TEST(test_verify__finds_two_that_overlap) {
  const tide_plan_buffer buffers[] = { { .lower = 0, .upper = 5, .bytes = 8, TIDE_PLAN_FREELY },
                                       { .lower = 3, .upper = 9, .bytes = 4, TIDE_PLAN_FREELY } };
  const tide_plan_problem problem = { .buffers = buffers, .count = 2 };

  const tide_plan_check check = check_of(&problem, (uint64_t[]){ 10, 17 }, NULL);

  T_EQ(check.fault, TIDE_PLAN_FAULT_OVERLAP);
  T_EQ(check.buffer, 1);
  T_EQ(check.other, 0);
  T_EQ(check.instant, 3);
  T_STR_EQ(check.text, "buffers 1 and 0 both use byte 17 of pool 0 at instant 3");
  expect_plan(buffers, 2, (uint64_t[]){ 10, 18 }, 22);
  expect_plan(buffers, 2, (uint64_t[]){ 10, 6 }, 18);
}

T_TEST(test_verify__lets_one_begin_where_another_ends) {
  const tide_plan_buffer buffers[] = { { .lower = 0, .upper = 5, .bytes = 8, TIDE_PLAN_FREELY },
                                       { .lower = 5, .upper = 9, .bytes = 4, TIDE_PLAN_FREELY } };

  expect_plan(buffers, 2, (uint64_t[]){ 0, 0 }, 8);
}

T_TEST(test_verify__finds_one_inside_another) {
  const tide_plan_buffer buffers[] = { { .lower = 0, .upper = 9, .bytes = 100, TIDE_PLAN_FREELY },
                                       { .lower = 4, .upper = 5, .bytes = 1, TIDE_PLAN_FREELY } };

  expect_fault(buffers, 2, (uint64_t[]){ 0, 50 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 1 and 0 both use byte 50 of pool 0 at instant 4");
  expect_fault(buffers, 2, (uint64_t[]){ 0, 99 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 1 and 0 both use byte 99 of pool 0 at instant 4");
  expect_plan(buffers, 2, (uint64_t[]){ 0, 100 }, 101);
}

T_TEST(test_verify__finds_a_wrong_alignment) {
  const tide_plan_buffer buffers[] = { { .upper = 1, .bytes = 6, .alignment = 6, TIDE_PLAN_FREELY },
                                       { .upper = 1, .bytes = 1, .alignment = 1, TIDE_PLAN_FREELY } };

  expect_fault(buffers, 2, (uint64_t[]){ 8, 0 }, TIDE_PLAN_FAULT_ALIGNMENT,
               "buffer 0 lies at 8, which is not a multiple of 6");
  expect_plan(buffers, 2, (uint64_t[]){ 12, 7 }, 18);
}

T_TEST(test_verify__finds_one_that_left_its_offset) {
  const tide_plan_buffer buffers[] = { { .upper = 1, .bytes = 6, .offset = 3, .hint = 9 } };

  expect_fault(buffers, 1, (uint64_t[]){ 4 }, TIDE_PLAN_FAULT_FIXED, "buffer 0 is fixed at 3 but lies at 4");
  expect_plan(buffers, 1, (uint64_t[]){ 3 }, 9);
}

T_TEST(test_verify__finds_storage_that_is_not_shared) {
  const tide_plan_buffer buffers[] = { { .upper = 1, .bytes = 6, .alias = 7, TIDE_PLAN_FREELY },
                                       { .upper = 1, .bytes = 6, .alias = 8, TIDE_PLAN_FREELY },
                                       { .upper = 1, .bytes = 6, .alias = 7, TIDE_PLAN_FREELY } };

  expect_fault(buffers, 3, (uint64_t[]){ 0, 6, 12 }, TIDE_PLAN_FAULT_ALIAS,
               "buffers 0 and 2 share storage but lie at 0 of pool 0 and at 12 of pool 0");
  expect_plan(buffers, 3, (uint64_t[]){ 0, 6, 0 }, 12);
}

T_TEST(test_verify__finds_an_end_beyond_the_pool) {
  const tide_plan_buffer buffers[] = { { .upper = 1, .bytes = 6, TIDE_PLAN_FREELY },
                                       { .upper = 1, .bytes = 2, .pool = 1, TIDE_PLAN_FREELY } };
  const uint64_t capacities[] = { 6, 3 };
  const tide_plan_problem problem = { buffers, 2, capacities, 2 };

  const tide_plan_check fits = check_of(&problem, (uint64_t[]){ 0, 1 }, NULL);
  const tide_plan_check beyond = check_of(&problem, (uint64_t[]){ 0, 2 }, NULL);

  T_STR_EQ(fits.text, "");
  T_EQ(fits.peak, 6);
  T_EQ(beyond.fault, TIDE_PLAN_FAULT_CAPACITY);
  T_EQ(beyond.buffer, 1);
  T_STR_EQ(beyond.text, "buffer 1 lies at 2 with 2 bytes, and pool 1 ends at 3");
}

T_TEST(test_verify__knows_no_offset_beyond_2_to_62) {
  const tide_plan_buffer one[] = { { .upper = 1, .bytes = 1, TIDE_PLAN_FREELY } };
  const tide_plan_buffer all[] = { { .upper = 1, .bytes = TIDE_PLAN_MAX_BYTES, TIDE_PLAN_FREELY } };
  const tide_plan_buffer none[] = { { .upper = 1, .bytes = 0, TIDE_PLAN_FREELY } };
  const char* const text = "buffer 0 lies at 4611686018427387904 with 1 bytes, and pool 0 ends at "
                           "4611686018427387904";

  expect_plan(one, 1, (uint64_t[]){ TIDE_PLAN_MAX_BYTES - 1 }, TIDE_PLAN_MAX_BYTES);
  expect_fault(one, 1, (uint64_t[]){ TIDE_PLAN_MAX_BYTES }, TIDE_PLAN_FAULT_CAPACITY, text);
  expect_plan(all, 1, (uint64_t[]){ 0 }, TIDE_PLAN_MAX_BYTES);
  expect_plan(none, 1, (uint64_t[]){ TIDE_PLAN_MAX_BYTES }, 0);
  const uint64_t far[] = { TIDE_PLAN_MAX_BYTES + 1, UINT64_MAX - 1, UINT64_MAX };
  for (size_t i = 0; i < COUNT_OF(far); i++) {
    const tide_plan_buffer* const buffers[] = { one, all, none };
    for (size_t k = 0; k < 3; k++) {
      const tide_plan_problem problem = { .buffers = buffers[k], .count = 1 };
      T_EQ(check_of(&problem, &far[i], NULL).fault, TIDE_PLAN_FAULT_CAPACITY);
    }
  }
}

T_TEST(test_verify__lets_what_holds_nothing_lie_in_the_way) {
  const tide_plan_gap whole[] = { { 0, 4, 5, 5 }, { 4, 6, 0, 0 } };
  const tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 9, .bytes = 8, TIDE_PLAN_FREELY },
    { .lower = 0, .upper = 9, .bytes = 0, TIDE_PLAN_FREELY },
    { .lower = 4, .upper = 4, .bytes = 80, TIDE_PLAN_FREELY },
    { .lower = 0, .upper = 6, .bytes = 80, .gaps = whole, .gap_count = 2, TIDE_PLAN_FREELY }
  };
  const uint64_t capacity = 8;
  const tide_plan_problem problem = { buffers, 4, &capacity, 1 };

  const tide_plan_check check = check_of(&problem, (uint64_t[]){ 0, 5, 100, 1 }, NULL);

  T_STR_EQ(check.text, "");
  T_EQ(check.peak, 8);
}

T_TEST(test_verify__keeps_to_the_rules_of_what_holds_nothing) {
  const tide_plan_buffer buffers[] = { { .upper = 1, .bytes = 0, .alignment = 4, TIDE_PLAN_FREELY },
                                       { .upper = 0, .bytes = 9, .offset = 6, .hint = 0 },
                                       { .upper = 1, .bytes = 0, .alias = 1, TIDE_PLAN_FREELY },
                                       { .upper = 1, .bytes = 3, .alias = 1, TIDE_PLAN_FREELY } };

  expect_plan(buffers, 4, (uint64_t[]){ 8, 6, 2, 2 }, 5);
  expect_fault(buffers, 4, (uint64_t[]){ 9, 6, 2, 2 }, TIDE_PLAN_FAULT_ALIGNMENT,
               "buffer 0 lies at 9, which is not a multiple of 4");
  expect_fault(buffers, 4, (uint64_t[]){ 8, 7, 2, 2 }, TIDE_PLAN_FAULT_FIXED,
               "buffer 1 is fixed at 6 but lies at 7");
  expect_fault(buffers, 4, (uint64_t[]){ 8, 6, 1, 2 }, TIDE_PLAN_FAULT_ALIAS,
               "buffers 2 and 3 share storage but lie at 1 of pool 0 and at 2 of pool 0");
}

// ---------------------------------------------------------------------------------------------------
// Gaps, shared storage, pools

T_TEST(test_verify__lets_others_into_gaps) {
  const tide_plan_gap gaps[] = { { 6, 8, 2, 5 }, { 2, 4, 0, 0 }, { 5, 5, 0, 0 } };
  const tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 9, .bytes = 8, .gaps = gaps, .gap_count = 3, TIDE_PLAN_FREELY },
    { .lower = 2, .upper = 4, .bytes = 8, TIDE_PLAN_FREELY },
    { .lower = 6, .upper = 8, .bytes = 2, TIDE_PLAN_FREELY },
    { .lower = 6, .upper = 8, .bytes = 3, TIDE_PLAN_FREELY },
  };

  expect_plan(buffers, 4, (uint64_t[]){ 0, 0, 0, 5 }, 8);
  expect_fault(buffers, 4, (uint64_t[]){ 0, 0, 1, 5 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 2 and 0 both use byte 2 of pool 0 at instant 6");
  expect_fault(buffers, 4, (uint64_t[]){ 0, 0, 0, 4 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 3 and 0 both use byte 4 of pool 0 at instant 6");
}

T_TEST(test_verify__finds_one_that_stays_when_a_gap_ends) {
  const tide_plan_gap gap = { 2, 4, 0, 0 };
  const tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 9, .bytes = 8, .gaps = &gap, .gap_count = 1, TIDE_PLAN_FREELY },
    { .lower = 2, .upper = 5, .bytes = 8, TIDE_PLAN_FREELY },
  };

  expect_fault(buffers, 2, (uint64_t[]){ 0, 0 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 0 and 1 both use byte 0 of pool 0 at instant 4");
}

T_TEST(test_verify__lets_shared_storage_overlap_and_no_one_else) {
  const tide_plan_buffer buffers[] = { { .lower = 0, .upper = 6, .bytes = 4, .alias = 1, TIDE_PLAN_FREELY },
                                       { .lower = 2, .upper = 9, .bytes = 9, .alias = 1, TIDE_PLAN_FREELY },
                                       { .lower = 2, .upper = 9, .bytes = 9, .alias = 1, TIDE_PLAN_FREELY },
                                       { .lower = 0, .upper = 2, .bytes = 5, TIDE_PLAN_FREELY },
                                       { .lower = 9, .upper = 10, .bytes = 9, TIDE_PLAN_FREELY } };

  expect_plan(buffers, 5, (uint64_t[]){ 0, 0, 0, 4, 0 }, 9);
  expect_fault(buffers, 5, (uint64_t[]){ 0, 0, 0, 3, 0 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 3 and 0 both use byte 3 of pool 0 at instant 0");
}

T_TEST(test_verify__lets_others_into_a_hole_of_shared_storage) {
  const tide_plan_gap low = { 0, 9, 0, 3 };
  const tide_plan_gap high = { 0, 9, 6, 9 };
  const tide_plan_buffer buffers[] = {
    { .upper = 9, .bytes = 9, .gaps = &low, .gap_count = 1, .alias = 1, TIDE_PLAN_FREELY },
    { .upper = 9, .bytes = 9, .gaps = &high, .gap_count = 1, .alias = 1, TIDE_PLAN_FREELY },
    { .lower = 1, .upper = 5, .bytes = 3, TIDE_PLAN_FREELY },
  };

  expect_plan(buffers, 3, (uint64_t[]){ 0, 0, 3 }, 9);
  expect_fault(buffers, 3, (uint64_t[]){ 0, 0, 2 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 2 and 0 both use byte 2 of pool 0 at instant 1");
  expect_fault(buffers, 3, (uint64_t[]){ 0, 0, 4 }, TIDE_PLAN_FAULT_OVERLAP,
               "buffers 2 and 1 both use byte 6 of pool 0 at instant 1");
}

T_TEST(test_verify__keeps_pools_apart) {
  const tide_plan_buffer buffers[] = {
    { .upper = 9, .bytes = 4, TIDE_PLAN_FREELY },
    { .upper = 9, .bytes = 4, .pool = 1, TIDE_PLAN_FREELY },
    { .upper = 9, .bytes = 4, .pool = TIDE_PLAN_ANY_POOL, TIDE_PLAN_FREELY }
  };
  const uint64_t capacities[] = { UINT64_MAX, 8, 4 };
  const tide_plan_problem problem = { buffers, 3, capacities, 3 };
  const uint64_t offsets[] = { 0, 0, 0 };

  T_EQ(check_of(&problem, offsets, (uint32_t[]){ 0, 1, 2 }).fault, TIDE_PLAN_NO_FAULT);
  T_EQ(check_of(&problem, offsets, (uint32_t[]){ 0, 1, 0 }).fault, TIDE_PLAN_FAULT_OVERLAP);
  T_EQ(check_of(&problem, offsets, (uint32_t[]){ 0, 1, 1 }).fault, TIDE_PLAN_FAULT_OVERLAP);
  T_EQ(check_of(&problem, offsets, NULL).fault, TIDE_PLAN_FAULT_OVERLAP);
  const tide_plan_check elsewhere = check_of(&problem, offsets, (uint32_t[]){ 0, 2, 2 });
  T_STR_EQ(elsewhere.text, "buffer 1 belongs to pool 1 but lies in pool 2");
  T_EQ(elsewhere.fault, TIDE_PLAN_FAULT_FIXED);
  const tide_plan_check nowhere = check_of(&problem, offsets, (uint32_t[]){ 0, 1, 3 });
  T_STR_EQ(nowhere.text, "buffer 2 lies in pool 3, and there are 3");
  T_EQ(nowhere.fault, TIDE_PLAN_FAULT_CAPACITY);
  T_EQ(check_of(&problem, offsets, (uint32_t[]){ 0, 1, UINT32_MAX }).fault, TIDE_PLAN_FAULT_CAPACITY);
}

T_TEST(test_verify__keeps_shared_storage_in_one_pool) {
  const tide_plan_buffer buffers[] = {
    { .upper = 9, .bytes = 4, .alias = 5, .pool = TIDE_PLAN_ANY_POOL, TIDE_PLAN_FREELY },
    { .upper = 9, .bytes = 4, .alias = 5, .pool = TIDE_PLAN_ANY_POOL, TIDE_PLAN_FREELY }
  };
  const uint64_t capacities[] = { 4, 4 };
  const tide_plan_problem problem = { buffers, 2, capacities, 2 };

  T_EQ(check_of(&problem, (uint64_t[]){ 0, 0 }, (uint32_t[]){ 1, 1 }).fault, TIDE_PLAN_NO_FAULT);
  T_EQ(check_of(&problem, (uint64_t[]){ 0, 0 }, (uint32_t[]){ 0, 1 }).fault, TIDE_PLAN_FAULT_ALIAS);
}

// ---------------------------------------------------------------------------------------------------
// Refusals

static void expect_refused(const tide_plan_buffer* buffer, const char* text) {
  const uint64_t offset = 0;
  const tide_plan_problem problem = { .buffers = buffer, .count = 1 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  memset(&check.fault, 0xab, sizeof check - offsetof(tide_plan_check, fault));
  T_STATUS(tide_plan_verify(&problem, &offset, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, text);
  T_EQ(check.fault, TIDE_PLAN_NO_FAULT);
  T_EQ(check.peak, 0);
  T_STR_EQ(check.text, "");
}

T_TEST(test_verify__refuses_buffers_that_make_no_sense) {
  expect_refused(&(tide_plan_buffer){ .lower = 2, .upper = 1, .bytes = 1, TIDE_PLAN_FREELY },
                 "buffer 0 lives from 2 to 1");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .bytes = TIDE_PLAN_MAX_BYTES + 1, TIDE_PLAN_FREELY },
                 "buffer 0 has 4611686018427387905 bytes");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .bytes = UINT64_MAX, TIDE_PLAN_FREELY },
                 "buffer 0 has 18446744073709551615 bytes");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .alignment = TIDE_PLAN_MAX_BYTES + 1, TIDE_PLAN_FREELY },
                 "buffer 0 has the alignment 4611686018427387905");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .bytes = 1, .offset = TIDE_PLAN_MAX_BYTES + 1 },
                 "buffer 0 has the fixed offset 4611686018427387905");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .bytes = 1, .pool = 1, TIDE_PLAN_FREELY },
                 "buffer 0 is of pool 1, and there are 1");
  expect_refused(&(tide_plan_buffer){ .upper = 1, .bytes = 1, .gap_count = 1, TIDE_PLAN_FREELY },
                 "buffer 0 has 1 gaps at NULL");
}

static void expect_refused_gaps(const tide_plan_gap* gaps, size_t count, const char* text) {
  const tide_plan_buffer buffer = {
    .lower = 10, .upper = 20, .bytes = 8, .gaps = gaps, .gap_count = count, TIDE_PLAN_FREELY
  };
  expect_refused(&buffer, text);
}

T_TEST(test_verify__refuses_gaps_that_make_no_sense) {
  expect_refused_gaps((tide_plan_gap[]){ { 12, 11, 0, 0 } }, 1, "a gap from 12 to 11");
  expect_refused_gaps((tide_plan_gap[]){ { 9, 11, 0, 0 } }, 1, "a gap from 9 to 11");
  expect_refused_gaps((tide_plan_gap[]){ { 11, 21, 0, 0 } }, 1, "a gap from 11 to 21");
  expect_refused_gaps((tide_plan_gap[]){ { 9, 9, 0, 0 } }, 1, "a gap from 9 to 9");
  expect_refused_gaps((tide_plan_gap[]){ { 11, 12, 3, 2 } }, 1, "the window 3 to 2");
  expect_refused_gaps((tide_plan_gap[]){ { 11, 12, 0, 9 } }, 1, "the window 0 to 9");
  expect_refused_gaps((tide_plan_gap[]){ { 14, 16, 0, 0 }, { 11, 15, 0, 0 } }, 2, "two gaps at instant 14");
  expect_refused_gaps((tide_plan_gap[]){ { 11, 15, 0, 0 }, { 11, 15, 0, 0 } }, 2, "two gaps at instant 11");
}

T_TEST(test_verify__takes_gaps_that_touch_or_are_empty) {
  const tide_plan_gap gaps[] = { { 14, 16, 0, 8 }, { 15, 15, 1, 1 }, { 10, 14, 8, 8 }, { 20, 20, 0, 0 } };
  const tide_plan_buffer buffers[] = {
    { .lower = 10, .upper = 20, .bytes = 8, .gaps = gaps, .gap_count = 4, TIDE_PLAN_FREELY },
  };

  expect_plan(buffers, 1, (uint64_t[]){ 5 }, 13);
}

T_TEST(test_verify__refuses_pools_that_make_no_sense) {
  const tide_plan_buffer buffer = { .upper = 1, .bytes = 1, TIDE_PLAN_FREELY };
  const uint64_t offset = 0;
  const uint64_t large[] = { 1, TIDE_PLAN_MAX_BYTES + 1 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;

  const tide_plan_problem too_large = { &buffer, 1, large, 2 };
  T_STATUS(tide_plan_verify(&too_large, &offset, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
  T_STR_HAS(tide_last_error()->text, "pool 1 has 4611686018427387905 bytes");
  const tide_plan_problem none = { &buffer, 1, NULL, 2 };
  T_STATUS(tide_plan_verify(&none, &offset, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
  const tide_plan_problem too_many = { &buffer, 1, large, UINT64_C(1) << 30 };
  T_STATUS(tide_plan_verify(&too_many, &offset, NULL, NULL, &check), TIDE_ERR_LIMIT);
}

T_TEST(test_verify__refuses_what_is_not_there) {
  const tide_plan_buffer buffer = { .upper = 1, .bytes = 1, TIDE_PLAN_FREELY };
  const tide_plan_problem problem = { .buffers = &buffer, .count = 1 };
  const tide_plan_problem without = { .count = 1 };
  const tide_heap broken = { NULL, NULL, NULL };
  const uint64_t offset = 0;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;

  T_STATUS(tide_plan_verify(NULL, &offset, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_verify(&problem, NULL, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_verify(&problem, &offset, NULL, NULL, NULL), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_verify(&problem, &offset, NULL, &broken, &check), TIDE_ERR_ARGUMENT);
  T_STATUS(tide_plan_verify(&without, &offset, NULL, NULL, &check), TIDE_ERR_ARGUMENT);
}

T_TEST(test_verify__refuses_counts_before_it_reads_what_they_count) {
  const tide_plan_gap gap = { 0, 1, 0, 0 };
  const tide_plan_buffer buffers[] = {
    { .upper = 1, .bytes = 1, .gaps = &gap, .gap_count = SIZE_MAX, TIDE_PLAN_FREELY },
    { .upper = 1, .bytes = 1, .gaps = &gap, .gap_count = (1u << 30) - 2, TIDE_PLAN_FREELY },
    { .upper = 1, .bytes = 1, TIDE_PLAN_FREELY },
  };
  const uint64_t offsets[] = { 0, 1, 2 };
  const tide_plan_problem many = { .buffers = buffers, .count = UINT64_C(1) << 30 };
  const tide_plan_problem wrapping = { .buffers = buffers, .count = 2 };
  const tide_plan_problem edge = { .buffers = buffers + 1, .count = 2 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;

  T_STATUS(tide_plan_verify(&many, offsets, NULL, NULL, &check), TIDE_ERR_LIMIT);
  T_STATUS(tide_plan_verify(&wrapping, offsets, NULL, NULL, &check), TIDE_ERR_LIMIT);
  T_STATUS(tide_plan_verify(&edge, offsets, NULL, NULL, &check), TIDE_ERR_LIMIT);
}

T_TEST(test_verify__says_when_memory_is_out_and_keeps_none) {
  const tide_plan_gap gap = { 1, 2, 0, 0 };
  const tide_plan_buffer buffers[] = {
    { .upper = 4, .bytes = 4, .alias = 3, .gaps = &gap, .gap_count = 1, TIDE_PLAN_FREELY },
    { .upper = 4, .bytes = 4, .alias = 3, TIDE_PLAN_FREELY },
    { .upper = 4, .bytes = 4, TIDE_PLAN_FREELY }
  };
  const tide_plan_problem problem = { .buffers = buffers, .count = 3 };
  const uint64_t offsets[] = { 0, 0, 4 };
  counting_heap h;
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  size_t failed = 0;

  for (size_t i = 0;; i++) {
    counting_heap_init(&h, i, false);
    const tide_status status = tide_plan_verify(&problem, offsets, NULL, &h.heap, &check);
    T_EQ(atomic_load(&h.outstanding), 0);
    if (!atomic_load(&h.has_failed)) break;
    T_STATUS(status, TIDE_ERR_NO_MEMORY);
    failed++;
  }

  T_EQ(check.peak, 8);
  T_LE(5, failed);
}
