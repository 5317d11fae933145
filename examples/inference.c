// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// One model, three kinds of memory. The layers of a small perceptron allocate their outputs with
// tide_tensor_alloc() and do not know about caches or plans. For each batch size the program runs the model
// on the computer's memory, on a cache, and on an arena that a profile planned from the first run. The
// results are the same bit for bit, and counters show what served each run.
#include <stdio.h>
#include <stdlib.h>

#include "tidemark/tidemark.h"

#define LAYERS 6u
#define WIDTH 256u
#define RUNS 4u

static float weights[LAYERS][WIDTH];

static void must(tide_status status) {
  if (status == TIDE_OK) return;
  (void)fprintf(stderr, "inference: %s: %s\n", tide_status_name(status), tide_last_error()->text);
  exit(1);
}

static void check(bool is_right, const char* what) {
  if (is_right) return;
  (void)fprintf(stderr, "inference: wrong: %s\n", what);
  exit(1);
}

// ---------------------------------------------------------------------------------------------------
// The model

static float* tensor_new(size_t count) {
  void* address = NULL;
  must(tide_tensor_alloc(count * sizeof(float), &address));
  return address;
}

static void tensor_free(float* tensor) { must(tide_tensor_release(tensor)); }

// A layer allocates its output and a scratch tensor, like a kernel of a framework does.
static float* layer_run(size_t layer, const float* input, size_t batch) {
  float* const scratch = tensor_new(batch * WIDTH);
  for (size_t i = 0; i < batch * WIDTH; i++) scratch[i] = input[i] * weights[layer][i % WIDTH];
  float* const output = tensor_new(batch * WIDTH);
  for (size_t i = 0; i < batch * WIDTH; i++) {
    const float sum = scratch[i] + scratch[i - i % WIDTH + (i + 1) % WIDTH];
    output[i] = sum > 0 ? sum : 0;
  }
  tensor_free(scratch);
  return output;
}

static float model_run(size_t batch) {
  float* values = tensor_new(batch * WIDTH);
  for (size_t i = 0; i < batch * WIDTH; i++) values[i] = (float)(i % 97) / 97;
  for (size_t i = 0; i < LAYERS; i++) {
    float* const next = layer_run(i, values, batch);
    tensor_free(values);
    values = next;
  }
  float sum = 0;
  for (size_t i = 0; i < batch * WIDTH; i++) sum += values[i];
  tensor_free(values);
  return sum;
}

static void model_init(void) {
  for (size_t i = 0; i < (size_t)LAYERS * WIDTH; i++)
    weights[i / WIDTH][i % WIDTH] = (float)(i % 13) / 13 - 0.2f;
}

// ---------------------------------------------------------------------------------------------------
// Three kinds of memory

// A cache: the first run takes memory from the system, the others reuse it.
static float run_on_cache(size_t batch) {
  tide_cpu_cache* cache = NULL;
  tide_cpu_stats stats = TIDE_CPU_STATS_INIT;
  float result = 0;
  must(tide_cpu_new(NULL, &cache));
  must(tide_tensor_enter(cache));
  for (size_t i = 0; i < RUNS; i++) result = model_run(batch);
  must(tide_tensor_leave(cache));
  must(tide_cpu_get_stats(cache, &stats));
  check(stats.num_hits > stats.num_misses, "the cache serves most requests");
  (void)printf("  cache:  %3lld requests served from idle memory, %lld from the system\n",
               (long long)stats.num_hits, (long long)stats.num_misses);
  tide_cpu_free(cache, NULL);
  return result;
}

// A profile: the first run is recorded, the others use planned offsets in one arena.
static float run_on_plan(tide_profile* profile, size_t batch) {
  const uint64_t numbers[] = { batch, WIDTH, LAYERS };
  const uint64_t shape = tide_profile_shape(numbers, sizeof numbers / sizeof numbers[0]);
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  float result = 0;
  for (size_t i = 0; i < RUNS; i++) {
    must(tide_profile_begin(profile, TIDE_PROFILE_AUTO, shape));
    result = model_run(batch);
    must(tide_profile_end(profile, &report));
    check(i == 0 || report.hits == report.requests, "a replayed run lies in the arena");
  }
  (void)printf("  plan:   %3llu requests of a run in an arena of %llu bytes, the smallest is %llu\n",
               (unsigned long long)report.requests, (unsigned long long)report.plan_bytes,
               (unsigned long long)report.lower_bound);
  return result;
}

int main(void) {
  static const size_t batches[] = { 8, 32 };
  tide_profile* profile = NULL;
  model_init();
  must(tide_profile_new(NULL, &profile));
  for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
    const size_t batch = batches[i];
    (void)printf("batch of %zu\n", batch);
    const float plain = model_run(batch);
    const float cached = run_on_cache(batch);
    const float planned = run_on_plan(profile, batch);
    check(plain == cached, "the result on a cache is the same");
    check(plain == planned, "the result on a plan is the same");
    (void)printf("  result: %g each time\n", (double)plain);
  }
  tide_profile_free(profile);
  return 0;
}
