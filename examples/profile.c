// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// profile.h: records one step of a program and serves all others from one planned arena. The plan is saved to
// a file, and a second profile replays it without recording.
#include <unistd.h>

#include "example.h"

// One step; returns whether its memory came from an arena.
static bool step_of_the_program(tide_profile* profile) {
  void* activations = NULL;
  void* gradients = NULL;
  must(tide_profile_alloc(profile, 3 * MIB, 0, &activations));
  must(tide_profile_alloc(profile, MIB, 0, &gradients));
  const bool is_planned = tide_profile_owns(profile, activations) && tide_profile_owns(profile, gradients);
  tide_profile_release(profile, activations);
  tide_profile_release(profile, gradients);
  return is_planned;
}

static void save_plan(tide_profile* profile, uint64_t shape, FILE* file) {
  const tide_sink sink = tide_sink_file(fileno(file));
  tide_profile_plan* plan = NULL;
  must(tide_profile_get_plan(profile, shape, &plan));
  must(tide_profile_plan_write(plan, &sink));
  tide_profile_plan_free(plan);
}

static void load_plan(tide_profile* profile, uint64_t shape, FILE* file) {
  const tide_source source = tide_source_file(fileno(file));
  tide_profile_plan* plan = NULL;
  (void)lseek(fileno(file), 0, SEEK_SET);
  must(tide_profile_plan_read(&source, NULL, &plan));
  must(tide_profile_set_plan(profile, shape, plan));
  tide_profile_plan_free(plan);
}

// The first step is served from the plan already.
static bool replay_saved(uint64_t shape, FILE* file) {
  tide_profile* profile = NULL;
  must(tide_profile_new(NULL, &profile));
  load_plan(profile, shape, file);
  must(tide_profile_begin(profile, TIDE_PROFILE_REPLAY, shape));
  const bool is_planned = step_of_the_program(profile);
  must(tide_profile_end(profile, NULL));
  must(tide_profile_clear_plan(profile, shape));  // this shape will not come again
  must(tide_profile_trim(profile));               // nor does its arena have to stay
  tide_profile_free(profile);
  return is_planned;
}

int main(void) {
  const uint64_t batch_of_32[] = { 32, 224, 224 };
  const uint64_t shape = tide_profile_shape(batch_of_32, 3);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  tide_profile_stats stats = TIDE_PROFILE_STATS_INIT;
  tide_profile* profile = NULL;
  FILE* const file = tmpfile();
  if (file == NULL) return 1;
  must(tide_profile_new(NULL, &profile));
  for (int step = 0; step < 10; step++) {
    must(tide_profile_begin(profile, TIDE_PROFILE_AUTO, shape));
    step_of_the_program(profile);
    must(tide_profile_end(profile, &report));
  }
  must(tide_profile_get_stats(profile, &stats));
  save_plan(profile, shape, file);
  (void)printf("%llu steps recorded, %llu replayed; an arena of %llu MiB\n",
               (unsigned long long)stats.recorded, (unsigned long long)stats.replayed,
               (unsigned long long)(report.plan_bytes / MIB));
  tide_profile_free(profile);
  const bool is_planned = replay_saved(shape, file);
  (void)fclose(file);
  return report.is_same && report.fallbacks == 0 && is_planned ? 0 : 1;
}
