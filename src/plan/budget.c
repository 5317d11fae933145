// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Each query reads the clock, so callers query every hundred microseconds or so.
#include "plan/budget.h"

#include "base/sys.h"

#define BUDGET_CALL_NS 20000000u  // between two calls of on_progress
#define BUDGET_VERIFY_NS 1000.0   // a buffer, about

void tide__budget_init(tide__budget* budget, const tide_plan_options* options, size_t buffers) {
  const uint64_t now = tide__sys_clock_ns();
  // The plan is verified when the search is over.
  const double verifying_ns = (double)buffers * BUDGET_VERIFY_NS;
  double limit_ns = options->seconds * 1e9;
  limit_ns -= verifying_ns < limit_ns / 2 ? verifying_ns : limit_ns / 2;
  const bool has_limit = options->seconds > 0 && limit_ns < (double)(INT64_MAX / 2);
  *budget = (tide__budget){ .options = options,
                            .begin_ns = now,
                            .end_ns = has_limit ? now + (uint64_t)limit_ns : UINT64_MAX,
                            .next_call_ns = now,
                            .given = tide__budget_worth(2 * (uint64_t)buffers),
                            .caller = pthread_self() };
  tide__budget_share(budget, 0, 1);
}

void tide__budget_share(tide__budget* budget, uint32_t pool, uint32_t pools) {
  const uint64_t now = tide__sys_clock_ns();
  const uint64_t left_ns = budget->end_ns > now ? budget->end_ns - now : 0;
  budget->share_end_ns = budget->end_ns == UINT64_MAX ? UINT64_MAX : now + left_ns / pools;
  const uint64_t limit = budget->options->nodes;
  const uint64_t left = limit > budget->nodes ? limit - budget->nodes : 0;
  budget->share_nodes = limit == 0 ? UINT64_MAX : budget->nodes + left / pools;
  budget->progress = (tide_plan_progress){ .pool = pool, .peak = UINT64_MAX };
  tide__store_relaxed(&budget->is_over, budget->is_stopped ? 1 : 0);
}

uint64_t tide__budget_narrow(tide__budget* budget, uint32_t parts) {
  const uint64_t end_ns = budget->share_end_ns;
  const uint64_t now = tide__sys_clock_ns();
  if (end_ns != UINT64_MAX) budget->share_end_ns = now + (end_ns > now ? (end_ns - now) / parts : 0);
  return end_ns;
}

void tide__budget_widen(tide__budget* budget, uint64_t end_ns) {
  budget->share_end_ns = end_ns;
  tide__store_relaxed(&budget->is_over, budget->is_stopped ? 1 : 0);
}

static bool budget_wants_to_stop(tide__budget* budget, uint64_t now) {
  if (budget->options->on_progress == NULL || !pthread_equal(pthread_self(), budget->caller)) return false;
  if (now < budget->next_call_ns) return false;
  budget->progress.nodes = budget->nodes;
  budget->progress.seconds = (double)(now - budget->begin_ns) * 1e-9;
  const bool goes_on = budget->options->on_progress(budget->options->user, &budget->progress);
  budget->next_call_ns = tide__sys_clock_ns() + BUDGET_CALL_NS;
  budget->is_stopped = !goes_on;
  return !goes_on;
}

bool tide__budget_is_over(tide__budget* budget) {
  if (tide__load_relaxed(&budget->is_over) != 0) return true;
  const uint64_t now = tide__sys_clock_ns();
  if (now < budget->share_end_ns && !budget_wants_to_stop(budget, now)) return false;
  tide__store_relaxed(&budget->is_over, 1);
  return true;
}

uint64_t tide__budget_left(const tide__budget* budget) {
  if (budget->share_nodes == UINT64_MAX) return UINT64_MAX;
  return budget->nodes < budget->share_nodes ? budget->share_nodes - budget->nodes : 0;
}

void tide__budget_spend(tide__budget* budget, tide__effort effort) {
  const uint64_t paid = tide__budget_worth(effort.nodes);
  budget->nodes += effort.nodes;
  if (effort.work <= paid) return;
  budget->work += effort.work - paid;
  budget->nodes += budget->work / TIDE__BUDGET_WORK;
  budget->work %= TIDE__BUDGET_WORK;
}

bool tide__budget_keep(tide__budget* budget, uint64_t work) {
  const uint64_t given = work < budget->given ? work : budget->given;
  budget->given -= given;
  tide__budget_spend(budget, (tide__effort){ 0, work - given });
  return budget->given > 0 || tide__budget_left(budget) > 0;
}

double tide__budget_seconds(const tide__budget* budget) {
  return (double)(tide__sys_clock_ns() - budget->begin_ns) * 1e-9;
}

void tide__budget_tell(tide__budget* budget, tide_plan_stage stage, uint64_t peak, uint64_t lower_bound) {
  budget->progress.stage = stage;
  budget->progress.peak = peak;
  budget->progress.lower_bound = lower_bound;
}
