// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// cpu.h: memory of CPU tensors that stays between two runs of a model.
#include <string.h>

#include "example.h"

static void run_model(tide_cpu_cache* cache) {
  void* layers[8] = { NULL };
  for (size_t i = 0; i < 8; i++) {
    must(tide_cpu_alloc(cache, (i + 1) * 300000, &layers[i]));
    memset(layers[i], 1, (i + 1) * 300000);
    if (i > 0) tide_cpu_release(layers[i - 1]);
  }
  tide_cpu_release(layers[7]);
}

int main(void) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  tide_cpu_cache* cache = NULL;
  options.max_cached_bytes = 64 * MIB;
  must(tide_cpu_new(&options, &cache));
  for (int run = 0; run < 10; run++) run_model(cache);
  must(tide_cpu_get_stats(cache, &stats));
  (void)printf("%llu requests from idle memory, %llu from the system\n", (unsigned long long)stats.hits,
               (unsigned long long)stats.misses);

  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_cpu_print_stats(cache, &console));
  tide_cpu_trim(cache, 0);
  tide_cpu_free(cache, NULL);
  return stats.hits > stats.misses ? 0 : 1;
}
