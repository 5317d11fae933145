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

// The source of the weights is not needed again, so its memory goes back to the system at once.
static void* convert_weights(tide_cpu_cache* cache, size_t count) {
  void* source = NULL;
  void* weights = NULL;
  must(tide_cpu_alloc_zeros(cache, count * sizeof(float), &source));
  must(tide_cpu_alloc(cache, count, &weights));
  for (size_t i = 0; i < count; i++) ((int8_t*)weights)[i] = (int8_t)((float*)source)[i];
  must(tide_cpu_forget(source));
  return weights;
}

int main(void) {
  tide_cpu_options options = TIDE_CPU_OPTIONS_INIT;
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  tide_cpu_cache* cache = NULL;
  options.max_cached_bytes = 64 * MIB;
  must(tide_cpu_new(&options, &cache));
  void* const weights = convert_weights(cache, 1 << 20);

  // The first run is warm-up: count from here on.
  run_model(cache);
  tide_cpu_reset_accumulated(cache);
  tide_cpu_reset_peaks(cache);
  for (int run = 0; run < 10; run++) run_model(cache);
  must(tide_cpu_get_stats(cache, &stats));
  (void)printf("%lld requests from idle memory, %lld from the system\n", (long long)stats.num_hits,
               (long long)stats.num_misses);
  const tide_sink console = tide_sink_file(1);
  (void)fflush(stdout);
  must(tide_cpu_print_stats(cache, &console));

  // Before a pause: give back what has been idle for long, keep less from now on, and keep 1 MiB for now.
  tide_cpu_poll(cache);
  must(tide_cpu_set_limits(cache, 16 * MIB, TIDE_NO_LIMIT));
  tide_cpu_trim(cache, 1 * MIB);
  tide_cpu_release(weights);
  tide_cpu_free(cache, NULL);
  return stats.num_hits > stats.num_misses ? 0 : 1;
}
