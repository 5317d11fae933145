// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// monitor.h: publishes the statistics of this process, and reads those of all processes of the user. While it
// waits for a key, `tidemark top` in another terminal shows it.
//
//   monitor [wait]
#include <string.h>

#include "example.h"

static bool row_print(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  (void)user;
  if (row == NULL) return true;
  (void)printf("process %lld, %s %d %s: %lld of %lld reserved bytes are in use\n", (long long)process->pid,
               tide_monitor_kind_name((tide_monitor_kind)row->kind), row->device, row->label,
               (long long)row->allocated_bytes.current, (long long)row->reserved_bytes.current);
  return true;
}

int main(int argc, char** argv) {
  tide_machine* machine = NULL;
  tide_device_cache* device = NULL;
  tide_block block;
  char path[600];
  must(tide_machine_new_dry(NULL, &machine));
  must(tide_device_new(machine, 0, NULL, &device));
  must(tide_device_alloc(device, NULL, 3 * MIB, &block));
  must(tide_monitor_set_label(device, "example"));
  if (tide_monitor_open(NULL) != TIDE_OK) {  // without a place for the page the program works all the same
    (void)puts(tide_last_error()->text);
  } else {
    must(tide_monitor_update());  // at once; otherwise once a second
    (void)tide_monitor_path(path, sizeof path);
    (void)printf("the page is %s\n", path);
    must(tide_monitor_read(NULL, row_print, NULL));
    if (argc > 1 && strcmp(argv[1], "wait") == 0) (void)getchar();
    tide_monitor_close();
  }
  must(tide_device_release(device, block));
  tide_device_free(device);
  tide_machine_free(machine);
  return 0;
}
