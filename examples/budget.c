// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A model that is larger than its budget. Each layer has a pool with a tag. The layers yield: those that
// are not in use are parked when another one needs the memory, and come back when it is their turn. They do
// not change, so each is copied away once and then only fetched.
#include "example.h"

#define LAYERS 12u
#define LAYER (8 * MIB)
#define STEPS 4u

typedef struct layer {
  char tag[32];
  tide_pool pool;
  tide_block weights;
} layer;

typedef struct job {
  tide_machine* machine;
  tide_device_cache* device;
  tide_stream stream;
  layer layers[LAYERS];
} job;

static void layer_load(job* j, unsigned number) {
  layer* const l = &j->layers[number];
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  (void)snprintf(l->tag, sizeof l->tag, "model/layer%u", number);
  options.tag = l->tag;
  scope.is_region = true;
  must(tide_device_pool_new(j->device, &options, &l->pool));
  must(tide_device_use(j->device, l->tag, j->stream));
  must(tide_device_pool_begin(j->device, l->pool, &scope));
  must(tide_device_alloc(j->device, j->stream, LAYER, &l->weights));
  must(tide_device_pool_end(j->device, l->pool));
  must(tide_machine_fill(j->machine, 0, j->stream, l->weights.address, (uint8_t)(number + 1), LAYER));
  must(tide_device_done(j->device, l->tag, j->stream));
}

// Adds up one byte of each layer: what a model would compute.
static unsigned step(const job* j) {
  unsigned sum = 0;
  for (unsigned i = 0; i < LAYERS; i++) {
    uint8_t byte = 0;
    must(tide_device_use(j->device, j->layers[i].tag, j->stream));
    must(tide_machine_copy(j->machine, 0, j->stream, &byte,
                           (uint8_t*)j->layers[i].weights.address + LAYER - 1, 1));
    must(tide_machine_stream_synchronize(j->machine, 0, j->stream));
    must(tide_device_done(j->device, j->layers[i].tag, j->stream));
    sum += byte;
  }
  return sum;
}

static void show(const job* j, const char* when) {
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  must(tide_device_budget_stats(j->device, "model", &stats));
  (void)printf("%-20s reserved %2llu MiB, sent %3llu MiB, fetched %3llu MiB\n", when,
               (unsigned long long)(stats.reserved_bytes / MIB), (unsigned long long)(stats.sent_bytes / MIB),
               (unsigned long long)(stats.fetched_bytes / MIB));
}

int main(void) {
  job j = { .machine = NULL };
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_budget budget = TIDE_BUDGET_INIT;
  host.capacity = 256 * MIB;
  options.policy = TIDE_POLICY_TIDE;
  budget.limit = 40 * MIB;
  budget.yields = true;
  budget.is_constant = true;
  must(tide_machine_new_host(&host, &j.machine));
  must(tide_machine_stream_new(j.machine, 0, 0, 0, &j.stream));
  must(tide_device_new(j.machine, 0, &options, &j.device));
  must(tide_device_budget_set(j.device, "model", &budget));

  for (unsigned i = 0; i < LAYERS; i++) layer_load(&j, i);
  show(&j, "96 MiB are loaded");
  for (unsigned s = 0; s < STEPS; s++) {
    if (step(&j) == LAYERS * (LAYERS + 1) / 2) continue;
    (void)fprintf(stderr, "budget: step %u is wrong\n", s);
    return 1;
  }
  show(&j, "after 4 steps");

  for (unsigned i = 0; i < LAYERS; i++) must(tide_device_release(j.device, j.layers[i].weights));
  tide_device_free(j.device);
  must(tide_machine_stream_free(j.machine, 0, j.stream));
  tide_machine_free(j.machine);
  return 0;
}
