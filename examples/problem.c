// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// problem.h: the smallest arena that would have served a recording.
//
//   problem [RECORDING]
#include "example.h"

int main(int argc, char** argv) {
  tide_trace* const trace = recording_open(argc, argv);
  tide_plan_options options = TIDE_PLAN_OPTIONS_INIT;
  tide_problem* problem = NULL;
  tide_plan* plan = NULL;
  options.seconds = 0;
  options.nodes = 100000;  // the same plan on every computer
  must(tide_problem_new(trace, 0, NULL, &problem));
  const tide_plan_problem view = tide_problem_plan(problem);
  must(tide_plan_solve(&view, &options, &plan));
  const tide_plan_outcome outcome = tide_plan_result(plan);
  (void)printf("%zu buffers: %s, %llu KiB, found by %s\n", view.count,
               tide_plan_verdict_name(outcome.verdict), (unsigned long long)outcome.peak / 1024,
               tide_plan_stage_name(outcome.stage));
  tide_plan_free(plan);
  tide_problem_free(problem);
  tide_trace_free(trace);
  return outcome.peak >= outcome.lower_bound ? 0 : 1;
}
