// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// plan.h: places buffers with known lifetimes in the smallest arena, with a proof that none is smaller; then
// the same buffers in two pools of limited size.
#include "example.h"

static void print_outcome(const char* what, const tide_plan_outcome* outcome) {
  (void)printf("%s: %s, %llu bytes; none can be below %llu\n", what, tide_plan_verdict_name(outcome->verdict),
               (unsigned long long)outcome->peak, (unsigned long long)outcome->lower_bound);
}

// A small fast pool, and a larger one for the buffers that do not fit there.
static bool plan_two_pools(tide_plan_buffer* buffers, size_t count) {
  const uint64_t capacities[] = { 5120, 8192 };
  const tide_plan_problem problem = {
    .buffers = buffers, .count = count, .capacities = capacities, .pools = 2
  };
  tide_plan* plan = NULL;
  for (size_t i = 0; i < count; i++) buffers[i].pool = TIDE_PLAN_ANY_POOL;
  must(tide_plan_solve(&problem, NULL, &plan));
  const tide_plan_outcome fast = tide_plan_pool_result(plan, 0);
  const tide_plan_outcome slow = tide_plan_pool_result(plan, 1);
  print_outcome("fast pool", &fast);
  print_outcome("slow pool", &slow);
  const bool fits = tide_plan_offsets(plan) != NULL && fast.peak <= 5120 && slow.peak <= 8192;
  tide_plan_free(plan);
  return fits;
}

int main(void) {
  tide_plan_buffer buffers[] = {
    { .lower = 0, .upper = 3, .bytes = 4096, TIDE_PLAN_FREELY },
    { .lower = 2, .upper = 5, .bytes = 1024, .alignment = 256, TIDE_PLAN_FREELY },
    { .lower = 4, .upper = 9, .bytes = 4096, TIDE_PLAN_FREELY },
    { .lower = 0, .upper = 9, .bytes = 512, .offset = 0, .hint = TIDE_PLAN_ANYWHERE },  // a fixed offset
  };
  const tide_plan_problem problem = { .buffers = buffers, .count = 4 };
  tide_plan_check check = TIDE_PLAN_CHECK_INIT;
  tide_plan* plan = NULL;
  must(tide_plan_solve(&problem, NULL, &plan));
  const tide_plan_outcome outcome = tide_plan_result(plan);
  const uint64_t* const offsets = tide_plan_offsets(plan);
  print_outcome("one arena", &outcome);
  for (size_t i = 0; i < 4; i++) (void)printf("  buffer %zu at %llu\n", i, (unsigned long long)offsets[i]);

  // The verifier shares no code with the solver.
  must(tide_plan_verify(&problem, offsets, NULL, NULL, &check));
  (void)printf("verified: %s\n", check.fault == TIDE_PLAN_NO_FAULT ? "yes" : check.text);
  tide_plan_free(plan);
  const bool is_right = check.fault == TIDE_PLAN_NO_FAULT && outcome.verdict == TIDE_PLAN_OPTIMAL;
  return plan_two_pools(buffers, 4) && is_right ? 0 : 1;
}
