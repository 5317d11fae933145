// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What a range that grows costs with the policy tide: a commit of 1 GiB of new memory, of memory that
// requests left idle and of decommitted memory, and a decommit of 1 GiB. Times are those of the machine's
// clock: on the dry machine they are what the calls cost on an H200, on the others what they take.
#include "bench.h"

#include <stdio.h>
#include <string.h>

#include "tidemark/device.h"

static const uint64_t gib = (uint64_t)1 << 30;

enum { PEAK = 32 };  // GiB that requests held: handles grow with it

typedef struct range_rig {
  bench* run;
  tide_machine* machine;
  tide_device_cache* device;
  tide_range* range;
} range_rig;

static uint64_t rig_clock(const range_rig* r) {
  uint64_t ns = 0;
  bench_require(tide_machine_clock(r->machine, &ns), "clock");
  return ns;
}

static double commit_us(const range_rig* r) {
  const uint64_t begin = rig_clock(r);
  bench_require(tide_device_range_commit(r->device, r->range, NULL, 0, gib), "commit");
  return (double)(rig_clock(r) - begin) / 1e3;
}

static double decommit_us(const range_rig* r) {
  const uint64_t begin = rig_clock(r);
  bench_require(tide_device_range_decommit(r->device, r->range, 0, gib), "decommit");
  return (double)(rig_clock(r) - begin) / 1e3;
}

static void rig_trim(const range_rig* r) { bench_require(tide_device_trim(r->device, 0), "trim"); }

// Leaves memory idle that requests of 1 GiB had.
static void rig_leave_idle(const range_rig* r) {
  tide_block blocks[PEAK];
  for (int i = 0; i < PEAK; i++) bench_require(tide_device_alloc(r->device, NULL, gib, &blocks[i]), "alloc");
  for (int i = 0; i < PEAK; i++) bench_require(tide_device_release(r->device, blocks[i]), "release");
}

enum { NEW, REQUESTS, DECOMMITTED, DECOMMIT, RANGE_CASES };
static const char* const range_cases[] = { "commit 1 GiB of new memory",
                                           "commit 1 GiB that requests left idle",
                                           "commit 1 GiB of decommitted memory", "decommit 1 GiB" };

static void rig_measure(const range_rig* r) {
  double values[RANGE_CASES][BENCH_RUNS + 1];  // the first run is thrown away
  for (int run = 0; run <= BENCH_RUNS; run++) {
    rig_trim(r);
    values[NEW][run] = commit_us(r);
    values[DECOMMIT][run] = decommit_us(r);
    values[DECOMMITTED][run] = commit_us(r);
    (void)decommit_us(r);
    rig_trim(r);
    rig_leave_idle(r);
    values[REQUESTS][run] = commit_us(r);
    (void)decommit_us(r);
  }
  for (int i = 0; i < RANGE_CASES; i++) {
    char label[64];
    (void)snprintf(label, sizeof label, "%s %s", tide_machine_name(r->machine), range_cases[i]);
    bench_row(r->run, "range", label, bench_median(values[i] + 1, BENCH_RUNS), "us");
  }
}

static void measure_range(bench* run, tide_machine* machine) {
  range_rig r = { .run = run, .machine = machine };
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = TIDE_POLICY_TIDE;
  bench_require(tide_device_new(machine, 0, &options, &r.device), "device_new");
  bench_require(tide_device_range_new(r.device, 4 * gib, &r.range), "range_new");
  rig_measure(&r);
  tide_device_free(r.device);
  tide_machine_free(machine);
}

void bench_range(bench* run) {
  tide_machine* machine = NULL;
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  host.capacity = 2 * gib * PEAK;  // of addresses: nothing touches the memory
  bench_require(tide_machine_new_host(&host, &machine), "new_host");
  measure_range(run, machine);
  bench_require(tide_machine_new_dry(NULL, &machine), "new_dry");
  measure_range(run, machine);
  if (tide_machine_new_cuda(NULL, &machine) == TIDE_OK) measure_range(run, machine);
  else bench_skip(run, "range", "cuda", tide_last_error()->text);
}
