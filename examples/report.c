// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// report.h: statistics as text, and a memory snapshot with the stacks of this program. The file opens in
// PyTorch's viewer and in `tidemark report`.
//
//   report [FILE]
#include <unistd.h>

#include "example.h"

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "example_report.pickle";
  tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_block block;
  must(tide_machine_new_dry(NULL, &machine));
  must(tide_device_new(machine, 0, NULL, &device));
  history.level = TIDE_HISTORY_ALL;
  history.gather = tide_stack_gather;
  must(tide_device_history(device, &history));
  for (size_t i = 1; i <= 3; i++) must(tide_device_alloc(device, NULL, i * MIB, &block));

  // A stack of one's own, and the name of its innermost frame.
  uint64_t frames[8];
  tide_frame_words words;
  const size_t depth = tide_stack_gather(NULL, frames, 8);
  if (depth > 0 && tide_stack_describe(NULL, frames[0], &words)) {
    (void)printf("%zu frames, the innermost is %s\n", depth, words.name);
  }

  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_device_print_stats(device, &console));
  must(tide_device_snapshot_to(device, path));
  (void)printf("the snapshot is in %s\n", path);
  if (argc == 1) (void)unlink(path);
  tide_device_free(device);
  tide_machine_free(machine);
  return 0;
}
