// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// plan.h: places buffers with known lifetimes in the smallest arena, with a proof that none is smaller.
#include "example.h"

int main(void) {
  const tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 3, .bytes = 4096, TIDE_PLAN_FREELY },
    { .lower = 2, .upper = 5, .bytes = 1024, .alignment = 256, TIDE_PLAN_FREELY },
    { .lower = 4, .upper = 9, .bytes = 4096, TIDE_PLAN_FREELY },
    { .lower = 0, .upper = 9, .bytes = 512, .offset = 0, .hint = TIDE_PLAN_ANYWHERE },  // fixed
  };
  const tide_plan_problem problem = { .buffers = buffers, .count = 4 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  tide_plan* plan = NULL;
  must(tide_plan_solve(&problem, NULL, &plan));
  const tide_plan_outcome outcome = tide_plan_result(plan);
  const uint64_t* const offsets = tide_plan_offsets(plan);
  (void)printf("%s: %llu bytes; none can be below %llu\n", tide_plan_verdict_name(outcome.verdict),
               (unsigned long long)outcome.peak, (unsigned long long)outcome.lower_bound);
  for (size_t i = 0; i < 4; i++) (void)printf("  buffer %zu at %llu\n", i, (unsigned long long)offsets[i]);

  // The verifier shares no code with the solver.
  must(tide_plan_verify(&problem, offsets, NULL, NULL, &check));
  (void)printf("verified: %s\n", check.fault == TIDE_PLAN_NO_FAULT ? "yes" : check.text);
  tide_plan_free(plan);
  return check.fault == TIDE_PLAN_NO_FAULT && outcome.verdict == TIDE_PLAN_OPTIMAL ? 0 : 1;
}
