// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Two processes share a device of 100 MiB by a ledger: training, which needs 70 MiB for a moment in each
// step, and generation, whose layers have 60 MiB and yield. Half for each would be too little for both. While
// training needs the memory, layers of generation are parked; they come back when generation uses them.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "example.h"

#define TOTAL (100 * MIB)
#define STEPS 12u
#define LAYERS 4u
#define LAYER (15 * MIB)

static char ledger[64];

typedef struct job {
  tide_machine* machine;
  tide_device_cache* device;
} job;

// Each process has devices of its own here. On a GPU both would have the same one.
static job job_begin(const char* name) {
  job j = { .machine = NULL };
  tide_host_options host = TIDE_HOST_OPTIONS_INIT;
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  tide_quota_options quota = TIDE_QUOTA_OPTIONS_INIT;
  host.capacity = TOTAL;
  options.policy = TIDE_POLICY_TIDE;
  quota.ledger = ledger;  // a name such as "gpu0" is usual
  quota.name = name;
  quota.wait_ns = (uint64_t)60 * 1000000000;
  must(tide_machine_new_host(&host, &j.machine));
  must(tide_device_new(j.machine, 0, &options, &j.device));
  must(tide_device_join(j.device, &quota));
  return j;
}

static void job_end(const job* j) {
  tide_device_free(j->device);
  tide_machine_free(j->machine);
}

// ---------------------------------------------------------------------------------------------------
// Training: weights of 20 MiB, and activations of 50 MiB in each step

static int train(void) {
  const job j = job_begin("training");
  tide_block weights = { NULL, 0 };
  must(tide_device_alloc(j.device, NULL, 20 * MIB, &weights));
  for (unsigned s = 0; s < STEPS; s++) {
    tide_block activations = { NULL, 0 };
    must(tide_device_alloc(j.device, NULL, 50 * MIB, &activations));  // generation gives way
    must(tide_machine_fill(j.machine, 0, NULL, activations.address, (uint8_t)s, 50 * MIB));
    must(tide_machine_device_synchronize(j.machine, 0));
    must(tide_device_release(j.device, activations));  // idle, until generation asks for it
  }
  must(tide_device_release(j.device, weights));
  job_end(&j);
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Generation: four layers of 15 MiB, one after another

static const char* const tags[LAYERS] = { "model/0", "model/1", "model/2", "model/3" };

static tide_block layer_load(const job* j, unsigned number) {
  tide_pool_options options = TIDE_POOL_OPTIONS_INIT;
  tide_scope scope = TIDE_SCOPE_INIT;
  tide_pool pool = 0;
  tide_block layer = { NULL, 0 };
  options.tag = tags[number];
  scope.is_region = true;
  must(tide_device_pool_new(j->device, &options, &pool));
  must(tide_device_use(j->device, tags[number], NULL));
  must(tide_device_pool_begin(j->device, pool, &scope));
  must(tide_device_alloc(j->device, NULL, LAYER, &layer));
  must(tide_device_pool_end(j->device, pool));
  must(tide_machine_fill(j->machine, 0, NULL, layer.address, (uint8_t)(number + 1), LAYER));
  must(tide_device_done(j->device, tags[number], NULL));
  return layer;
}

// The last byte of a layer, which a real layer would compute with.
static uint8_t layer_run(const job* j, unsigned number, tide_block layer) {
  uint8_t byte = 0;
  must(tide_device_use(j->device, tags[number], NULL));
  must(tide_machine_copy(j->machine, 0, NULL, &byte, (uint8_t*)layer.address + LAYER - 1, 1));
  must(tide_machine_device_synchronize(j->machine, 0));
  must(tide_device_done(j->device, tags[number], NULL));
  return byte;
}

static int generate(void) {
  const job j = job_begin("generation");
  tide_block layers[LAYERS];
  unsigned wrong = 0;
  tide_budget budget = TIDE_BUDGET_INIT;
  budget.yields = true;
  budget.is_constant = true;
  must(tide_device_budget_set(j.device, "model", &budget));
  for (unsigned i = 0; i < LAYERS; i++) layers[i] = layer_load(&j, i);
  for (unsigned s = 0; s < STEPS; s++) {
    for (unsigned i = 0; i < LAYERS; i++) wrong += layer_run(&j, i, layers[i]) != i + 1;
  }
  tide_budget_stats stats = TIDE_BUDGET_STATS_INIT;
  must(tide_device_budget_stats(j.device, "model", &stats));
  (void)printf("generation: %u steps, layers parked %s, %u wrong\n", STEPS,
               stats.parked_count > 0 ? "for training" : "never", wrong);
  for (unsigned i = 0; i < LAYERS; i++) must(tide_device_release(j.device, layers[i]));
  job_end(&j);
  return wrong == 0 ? 0 : 1;
}

int main(void) {
  char folder[] = "/tmp/tidemark-example-XXXXXX";
  int status = 0;
  if (mkdtemp(folder) == NULL) return 1;
  (void)snprintf(ledger, sizeof ledger, "%s/ledger", folder);
  must(tide_quota_make(ledger, TOTAL));
  const pid_t child = fork();
  if (child < 0) return 1;
  if (child == 0) {
    const int code = generate();
    (void)fflush(stdout);
    _exit(code);
  }
  const int own = train();
  (void)waitpid(child, &status, 0);
  (void)printf("training: %u steps, none was refused\n", STEPS);
  must(tide_quota_remove(ledger));
  return own != 0 || status != 0 || rmdir(folder) != 0;
}
