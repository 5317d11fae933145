// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How fast pinned memory is made and given back: one block of 8 GiB of a new cache, with the default options,
// by the machine alone (on cuda: cuMemHostAlloc), and with huge pages switched off. Runs on cuda, or else on
// the host machine. If memory is short, the block is smaller.
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/sys.h"
#include "tidemark/pinned.h"

typedef struct pages_way {
  const char* what;
  bool uses_machine;
  bool is_small;  // without huge pages
} pages_way;

static const pages_way pages_ways[] = {
  { "by default", false, false },
  { "by the machine alone", true, false },
  { "without huge pages", false, true },
};
enum { WAYS = sizeof pages_ways / sizeof pages_ways[0], ROUNDS = 3 };

// The rates of one way, in GiB/s.
typedef struct pages_rates {
  double made[ROUNDS];
  double given[ROUNDS];
  char fallback[256];  // why the memory was not registered; "" if it was
} pages_rates;

static double rate_of(size_t bytes, uint64_t begin_ns, uint64_t end_ns) {
  return (double)bytes / (double)((size_t)1 << 30) / ((double)(end_ns - begin_ns) * 1e-9);
}

static void way_measure(tide_machine* machine, const pages_way* way, size_t bytes, int round,
                        pages_rates* rates) {
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  tide_pinned_cache* pinned = NULL;
  tide_block block = { NULL, 0 };
  options.uses_machine = way->uses_machine;
  (void)prctl(PR_SET_THP_DISABLE, way->is_small ? 1 : 0, 0, 0, 0);
  bench_require(tide_pinned_new(machine, &options, &pinned), "pinned_new");
  uint64_t begin_ns = bench_now();
  bench_require(tide_pinned_alloc(pinned, bytes, &block), "alloc");
  rates->made[round] = rate_of(bytes, begin_ns, bench_now());
  memset(block.address, 1, bytes < 4096 ? bytes : 4096);
  bench_require(tide_pinned_release(pinned, block), "release");
  begin_ns = bench_now();
  bench_require(tide_pinned_empty(pinned), "empty");
  rates->given[round] = rate_of(bytes, begin_ns, bench_now());
  (void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  (void)snprintf(rates->fallback, sizeof rates->fallback, "%s", tide_pinned_fallback_reason(pinned));
  tide_pinned_free(pinned, NULL);
}

// 8 GiB, but at most a quarter of the memory that is available.
static size_t block_bytes(void) {
  const uint64_t most = tide__sys_available_bytes() / 4;
  size_t bytes = (size_t)8 << 30;
  while (bytes > (size_t)32 << 20 && bytes > most) bytes /= 2;
  return bytes;
}

static void way_print(bench* run, const pages_way* way, const char* machine, size_t bytes,
                      pages_rates* rates) {
  char label[96];
  (void)snprintf(label, sizeof label, "%zu MiB made %s, %s", bytes >> 20, way->what, machine);
  if (rates->fallback[0] != '\0') {
    bench_skip(run, "pages", label, rates->fallback);
    return;
  }
  bench_row(run, "pages", label, bench_median(rates->made, ROUNDS), "GiB/s");
  (void)snprintf(label, sizeof label, "the same given back");
  bench_row(run, "pages", label, bench_median(rates->given, ROUNDS), "GiB/s");
}

// The ways take turns, so that all meet the same conditions.
void bench_pages(bench* run) {
  tide_machine* machine = NULL;
  pages_rates rates[WAYS];
  if (tide_machine_new_cuda(NULL, &machine) != TIDE_OK) {
    bench_skip(run, "pages", "cuda", tide_last_error()->text);
    bench_require(tide_machine_new_host(NULL, &machine), "machine_new_host");
  }
  const size_t bytes = block_bytes();
  for (int i = 0; i < ROUNDS; i++) {
    for (int k = 0; k < WAYS; k++) way_measure(machine, &pages_ways[k], bytes, i, &rates[k]);
  }
  for (int k = 0; k < WAYS; k++) {
    way_print(run, &pages_ways[k], tide_machine_name(machine), bytes, &rates[k]);
  }
  tide_machine_free(machine);
}
