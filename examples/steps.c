// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// steps.h: the steps of a recorded run, and what leaks.
//
//   steps [RECORDING]
#include "example.h"

int main(int argc, char** argv) {
  tide_trace* const trace = recording_open(argc, argv);
  tide_ledger* ledger = NULL;
  tide_steps* steps = NULL;
  must(tide_ledger_new(trace, 0, &ledger));
  must(tide_steps_find(trace, 0, ledger, NULL, &steps));
  size_t count = 0;
  const tide_step* const items = tide_steps_items(steps, &count);
  (void)printf("%zu steps, found by: %s\n", tide_steps_whole(steps),
               tide_steps_source_name(tide_steps_get_source(steps)));
  for (size_t i = 0; i < count; i++) {
    (void)printf("  %5llu entries, peak %llu KiB, %llu KiB live at the end\n",
                 (unsigned long long)(items[i].end - items[i].first),
                 (unsigned long long)items[i].peak_bytes / 1024,
                 (unsigned long long)items[i].live_bytes / 1024);
  }
  size_t leak_count = 0;
  const tide_leak* const leaks = tide_steps_leaks(steps, &leak_count);
  for (size_t i = 0; i < leak_count; i++)
    (void)printf("%.1f blocks a step leak, %.0f bytes\n", leaks[i].blocks_per_step, leaks[i].bytes_per_step);
  tide_steps_free(steps);
  tide_ledger_free(ledger);
  tide_trace_free(trace);
  return count > 0 && leak_count == 0 ? 0 : 1;
}
