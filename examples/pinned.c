// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// pinned.h: page-locked memory for copies. A block is released while its copy still runs, and handed out
// again only when the copy is done.
#include <string.h>

#include "example.h"

int main(void) {
  tide_host_options computer = TIDE_HOST_OPTIONS_INIT;
  tide_pinned_leaks leaks = TIDE_PINNED_LEAKS_INIT;
  tide_machine* machine = NULL;
  tide_pinned_cache* pinned = NULL;
  tide_stream stream = NULL;
  tide_block block;
  void* there = NULL;
  static char result[MIB];
  computer.capacity = 64 * MIB;
  must(tide_machine_new_host(&computer, &machine));
  must(tide_machine_stream_new(machine, 0, 0, 0, &stream));
  must(tide_machine_raw_alloc(machine, 0, MIB, &there));
  must(tide_pinned_new(machine, NULL, &pinned));

  for (int batch = 0; batch < 4; batch++) {
    must(tide_pinned_alloc(pinned, MIB, &block));
    memset(block.address, 'a' + batch, MIB);
    must(tide_pinned_copy(pinned, block, 0, stream, there, block.address, MIB));
    tide_pinned_release(pinned, block);  // the copy may still run
  }
  must(tide_pinned_download(pinned, 0, stream, result, there, MIB));
  (void)printf("the last batch: %c\n", result[0]);

  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_pinned_print_stats(pinned, &console));
  tide_pinned_free(pinned, &leaks);
  tide_machine_free(machine);
  return result[0] == 'd' && result[MIB - 1] == 'd' && leaks.blocks == 0 ? 0 : 1;
}
