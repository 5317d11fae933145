// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// tidemark machines: which machines can be made here, their devices, and why one cannot be made.
#include <stdio.h>
#include <string.h>

#include "tidemark/machine.h"
#include "tool.h"

static tide_status host_make(tide_machine** out) { return tide_machine_new_host(NULL, out); }
static tide_status dry_make(tide_machine** out) { return tide_machine_new_dry(NULL, out); }
static tide_status cuda_make(tide_machine** out) { return tide_machine_new_cuda(NULL, out); }

static const struct {
  const char* name;
  const char* note;
  tide_status (*make)(tide_machine** out);
} kinds[] = {
  { "host", "real memory and streams of this computer", host_make },
  { "dry", "addresses without memory, for replays", dry_make },
  { "cuda", "the CUDA driver", cuda_make },
};

static void row_print(const char* machine, const char* device, double gib, const char* note) {
  (void)printf("%-8s %-24s %9.1f GiB  %s\n", machine, device, gib, note);
}

static tide_status devices_print(tide_machine* machine, const char* note) {
  for (int i = 0; i < tide_machine_device_count(machine); i++) {
    tide_device_info info = TIDE_DEVICE_INFO_INIT;
    const tide_status status = tide_machine_device_info(machine, i, &info);
    if (status != TIDE_OK) return status;
    row_print(tide_machine_name(machine), info.name, (double)info.total_bytes / (double)(1 << 30), note);
  }
  return TIDE_OK;
}

int tool_machines(int argc, char** argv) {
  if (argc > 1) {
    const bool is_help = strcmp(argv[1], "--help") == 0;
    (void)fprintf(is_help ? stdout : stderr, "usage: tidemark machines\n");
    return is_help ? 0 : TOOL_USAGE;
  }
  (void)printf("%-8s %-24s %13s  %s\n", "machine", "device", "memory", "what it is, or why it is not here");
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    tide_machine* machine = NULL;
    tide_status status = kinds[i].make(&machine);
    if (status == TIDE_OK) status = devices_print(machine, kinds[i].note);
    if (status != TIDE_OK)
      (void)printf("%-8s %-24s %13s  %s\n", kinds[i].name, "-", "-", tide_last_error()->text);
    tide_machine_free(machine);
  }
  return 0;
}
