// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// profile.h: records one step of a program and serves all others from one planned arena.
#include "example.h"

static void step_of_the_program(tide_profile* profile) {
  void* activations = NULL;
  void* gradients = NULL;
  must(tide_profile_alloc(profile, 3 * MIB, 0, &activations));
  must(tide_profile_alloc(profile, MIB, 0, &gradients));
  tide_profile_release(profile, activations);
  tide_profile_release(profile, gradients);
}

int main(void) {
  const uint64_t batch_of_32[] = { 32, 224, 224 };
  const uint64_t shape = tide_profile_shape(batch_of_32, 3);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  tide_profile_stats stats = TIDE_PROFILE_STATS_INIT;
  tide_profile* profile = NULL;
  must(tide_profile_new(NULL, &profile));
  for (int step = 0; step < 10; step++) {
    must(tide_profile_begin(profile, TIDE_PROFILE_AUTO, shape));
    step_of_the_program(profile);
    must(tide_profile_end(profile, &report));
  }
  must(tide_profile_get_stats(profile, &stats));
  (void)printf("%llu steps recorded, %llu replayed; an arena of %llu MiB\n",
               (unsigned long long)stats.recorded, (unsigned long long)stats.replayed,
               (unsigned long long)(report.plan_bytes / MIB));
  tide_profile_free(profile);
  return report.is_same && report.fallbacks == 0 ? 0 : 1;
}
