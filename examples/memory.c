// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// memory.h: one table of two functions for any kind of memory. The same routine uses the computer's own
// memory, a cache of it, and a device.
#include <string.h>

#include "example.h"

static void use(const char* what, const tide_memory memory) {
  void* address = NULL;
  must(memory.alloc(&memory, MIB, 256, &address));
  if (memory.is_host) memset(address, 7, MIB);
  (void)printf("%-28s %s\n", what, memory.is_host ? "readable here" : "only for the device");
  must(memory.release(&memory, address));
}

int main(void) {
  tide_machine* machine = NULL;
  tide_cpu_cache* cache = NULL;
  must(tide_machine_new_dry(NULL, &machine));
  must(tide_cpu_new(NULL, &cache));

  use("the C library", tide_memory_cpu());
  use("huge pages, filled with 0", tide_memory_raw(TIDE_RAW_HUGE_PAGES | TIDE_RAW_ZEROS));
  use("a cache for tensors", tide_cpu_memory(cache));
  use("a device without memory", tide_machine_memory(machine, 0));

  tide_cpu_free(cache, NULL);
  tide_machine_free(machine);
  return 0;
}
