// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A process for the tests of `tidemark top`: it makes caches on a dry machine, and publishes them if the
// environment says so. It prints what the statistics say, one line of numbers for each cache, and ends when
// standard input does.
//
//   publisher LABEL DEVICES      LABEL names the cache of device 0
//   alloc DEVICE BYTES           on standard input: allocates, and prints the numbers again
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/tidemark.h"

#define DEVICES_MOST 4

static tide_device_cache* devices[DEVICES_MOST];
static int device_count;
static tide_pinned_cache* pinned;
static tide_cpu_cache* cpus[2];

static void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "%s\n", tide_last_error()->text);
  exit(1);
}

static void stat_print(const tide_stat* stat) {
  (void)printf(" %lld %lld", (long long)stat->current, (long long)stat->peak);
}

// kind device reserved peak active peak allocated peak requested peak blocks allocations ooms
static void device_print(int index) {
  tide_device_stats stats = TIDE_DEVICE_STATS_INIT;
  must(tide_device_get_stats(devices[index], &stats));
  (void)printf("device %d", index);
  stat_print(&stats.reserved_bytes[TIDE_STAT_ALL]);
  stat_print(&stats.active_bytes[TIDE_STAT_ALL]);
  stat_print(&stats.allocated_bytes[TIDE_STAT_ALL]);
  stat_print(&stats.requested_bytes[TIDE_STAT_ALL]);
  (void)printf(" %lld %lld %lld\n", (long long)stats.allocation[TIDE_STAT_ALL].current,
               (long long)stats.allocation[TIDE_STAT_ALL].allocated, (long long)stats.num_ooms);
}

static void cpu_print(tide_cpu_cache* cpu) {
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  must(tide_cpu_get_stats(cpu, &stats));
  (void)printf("cpu -1");
  stat_print(&stats.reserved_bytes);
  stat_print(&stats.active_bytes);
  stat_print(&stats.active_bytes);
  (void)printf(" 0 0 %lld %lld %lld\n", (long long)stats.active.current, (long long)stats.active.allocated,
               (long long)stats.num_ooms);
}

static void pinned_print(void) {
  tide_pinned_stats stats = TIDE_PINNED_STATS_INIT;
  must(tide_pinned_get_stats(pinned, &stats));
  (void)printf("pinned -1");
  stat_print(&stats.reserved_bytes);
  stat_print(&stats.active_bytes);
  stat_print(&stats.active_bytes);
  (void)printf(" 0 0 %lld %lld %lld\n", (long long)stats.active_requests.current,
               (long long)stats.active_requests.allocated, (long long)stats.num_ooms);
}

static void all_print(void) {
  char path[1000];
  if (tide_monitor_path(path, sizeof path) > 0) must(tide_monitor_update());
  for (int i = 0; i < device_count; i++) device_print(i);
  pinned_print();
  for (int i = 0; i < 2; i++) cpu_print(cpus[i]);
  (void)puts(".");
  (void)fflush(stdout);
}

static void caches_make(tide_machine* machine, const char* label) {
  tide_block block;
  void* tensor = NULL;
  for (int i = 0; i < device_count; i++) {
    tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
    options.policy = i % 2 == 0 ? TIDE_POLICY_TORCH : TIDE_POLICY_TIDE;
    must(tide_device_new(machine, i, &options, &devices[i]));
    must(tide_device_alloc(devices[i], NULL, (size_t)(i + 1) * 30000001, &block));
  }
  must(tide_monitor_set_label(devices[0], label));
  must(tide_pinned_new(machine, NULL, &pinned));
  must(tide_pinned_alloc(pinned, 100000, &block));
  for (int i = 0; i < 2; i++) must(tide_cpu_new(NULL, &cpus[i]));
  must(tide_cpu_alloc(cpus[0], 500000, &tensor));
}

int main(int argc, char** argv) {
  tide_dry_options options = TIDE_DRY_OPTIONS_INIT;
  tide_machine* machine = NULL;
  char line[100];
  int index = 0;
  unsigned long long bytes = 0;
  tide_block block;
  device_count = argc == 3 ? atoi(argv[2]) : 0;
  if (device_count < 1 || device_count > DEVICES_MOST) return 2;
  options.device_count = (uint32_t)device_count;
  must(tide_machine_new_dry(&options, &machine));
  caches_make(machine, argv[1]);
  all_print();
  while (fgets(line, sizeof line, stdin) != NULL) {
    // NOLINTNEXTLINE(cert-err34-c): the lines come from the test
    if (sscanf(line, "alloc %d %llu", &index, &bytes) != 2 || index >= device_count) return 2;
    if (tide_device_alloc(devices[index], NULL, bytes, &block) != TIDE_OK) (void)fputs("full ", stdout);
    all_print();
  }
  return 0;  // the page goes with the process
}
