// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Statistics as return values, for tests that need one figure.
#ifndef TIDEMARK_TESTS_STATS_H
#define TIDEMARK_TESTS_STATS_H

#include "t.h"
#include "tidemark/graph.h"
#include "tidemark/profile.h"

static inline tide_profile_stats profile_stats(tide_profile* profile) {
  tide_profile_stats stats = TIDE_PROFILE_STATS_INIT;
  T_OK(tide_profile_get_stats(profile, &stats));
  return stats;
}

static inline tide_planner_stats planner_stats(const tide_planner* planner) {
  tide_planner_stats stats = TIDE_PLANNER_STATS_INIT;
  T_OK(tide_planner_get_stats(planner, &stats));
  return stats;
}

#endif
