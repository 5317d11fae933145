// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// replay.h: what another setting would have done with a recorded run.
//
//   replay [RECORDING]
#include "example.h"

int main(int argc, char** argv) {
  static const char* const settings[] = { "", "expandable_segments:True", "max_split_size_mb:64",
                                          "policy:tide" };
  tide_trace* const trace = recording_open(argc, argv);
  tide_replay* replay = NULL;
  bool is_right = true;
  must(tide_replay_new(trace, 0, NULL, &replay));
  for (size_t i = 0; i < 4; i++) {
    tide_device_options device = TIDE_DEVICE_OPTIONS_INIT;
    tide_replay_options options = TIDE_REPLAY_OPTIONS_INIT;
    tide_replay_result result = TIDE_REPLAY_RESULT_INIT;
    must(tide_device_options_parse(settings[i], &device));
    options.device = &device;
    must(tide_replay_run(replay, &options, &result));
    (void)printf("%-26s %8llu KiB reserved, %llu calls of the driver\n",
                 settings[i][0] != '\0' ? settings[i] : "(default)",
                 (unsigned long long)result.peak_reserved / 1024, (unsigned long long)result.driver_calls);
    is_right = is_right && result.peak_reserved >= result.peak_allocated;
  }
  tide_replay_free(replay);
  tide_trace_free(trace);
  return is_right ? 0 : 1;
}
