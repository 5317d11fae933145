// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs the verifier, and checks that its answer is consistent.
#ifndef TIDEMARK_TESTS_PLAN_CHECKED_H
#define TIDEMARK_TESTS_PLAN_CHECKED_H

#include "t.h"
#include "tidemark/plan.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static inline tide_plan_check check_of(const tide_plan_problem* problem, const uint64_t* offsets,
                                       const uint32_t* pools) {
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  memset(&check.fault, 0xab, sizeof check - offsetof(tide_plan_check, fault));
  T_OK(tide_plan_verify(problem, offsets, pools, NULL, &check));
  T_CHECK((check.fault == TIDE_PLAN_NO_FAULT) == (check.text[0] == '\0'));
  T_CHECK(memchr(check.text, '\0', sizeof check.text) != NULL);
  if (check.fault != TIDE_PLAN_NO_FAULT) T_EQ(check.peak, 0);
  return check;
}

#endif
