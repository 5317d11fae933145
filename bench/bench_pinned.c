// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the cache of pinned memory costs, on the dry machine, where only its own work remains, and with uses
// on the host machine and cuda, too. A pair is the release of one block, chosen at random of 64 that are
// handed out, and the allocation of another; sizes are spread evenly over the logarithm from 512 bytes to 1
// MiB.
//   pairs     by handle, by address, under a cap, with a history
//   uses      with a use recorded on each block, beside the machine's own event record
//   threads   all on one cache, beside as many that have a cache each and so share nothing, in turns
//   slack     bytes pinned beyond what was asked for
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tidemark/pinned.h"

enum { PAIRS = 200000, LIVE = 64, MAX_TEAM = BENCH_MAX_THREADS, ROUNDS = 5, TEAM_REPEATS = 5 };

static const size_t mib = (size_t)1 << 20;

typedef struct pinned_churn {
  tide_pinned_cache* pinned;
  tide_machine* machine;
  tide_stream stream;
  tide_block blocks[LIVE];
  uint32_t* sizes;  // owned; one for each pair, in bytes
  uint32_t* picks;  // owned; which block it replaces
} pinned_churn;

static uint32_t pinned_size(uint64_t* state) {
  const double u = (double)(bench_random(state) >> 11) / 9007199254740992.0;
  return (uint32_t)(512.0 * exp(u * log((double)mib / 512.0)));
}

static tide_pinned_cache* pinned_open(tide_machine* machine, const tide_pinned_options* options) {
  tide_pinned_cache* pinned = NULL;
  bench_require(tide_pinned_new(machine, options, &pinned), "pinned_new");
  return pinned;
}

static void pinned_churn_init(pinned_churn* c, tide_machine* machine, tide_pinned_cache* pinned,
                              uint64_t seed) {
  *c = (pinned_churn){ .pinned = pinned, .machine = machine };
  c->sizes = bench_alloc(PAIRS, sizeof *c->sizes);
  c->picks = bench_alloc(PAIRS, sizeof *c->picks);
  uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  for (size_t i = 0; i < PAIRS; i++) {
    c->sizes[i] = pinned_size(&state);
    c->picks[i] = (uint32_t)(bench_random(&state) % LIVE);
  }
  for (size_t i = 0; i < LIVE; i++) {
    bench_require(tide_pinned_alloc(pinned, pinned_size(&state), &c->blocks[i]), "alloc");
  }
  bench_require(tide_machine_stream_new(machine, 0, TIDE_STREAM_NON_BLOCKING, 0, &c->stream), "stream_new");
}

static void pinned_churn_fini(pinned_churn* c) {
  for (size_t i = 0; i < LIVE; i++) bench_require(tide_pinned_release(c->pinned, c->blocks[i]), "release");
  bench_require(tide_machine_stream_free(c->machine, 0, c->stream), "stream_free");
  free(c->sizes);
  free(c->picks);
}

static void pairs_work(void* user, uint64_t count) {
  pinned_churn* const c = user;
  for (uint64_t i = 0; i < count; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_pinned_release(c->pinned, *block) != TIDE_OK) abort();
    if (tide_pinned_alloc(c->pinned, c->sizes[i], block) != TIDE_OK) abort();
  }
}

static void pairs_work_addresses(void* user, uint64_t count) {
  pinned_churn* const c = user;
  for (uint64_t i = 0; i < count; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_pinned_release_address(c->pinned, block->address) != TIDE_OK) abort();
    if (tide_pinned_alloc(c->pinned, c->sizes[i], block) != TIDE_OK) abort();
  }
}

static void uses_work(void* user, uint64_t count) {
  pinned_churn* const c = user;
  for (uint64_t i = 0; i < count; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_pinned_record(c->pinned, *block, 0, c->stream) != TIDE_OK) abort();
    if (tide_pinned_release(c->pinned, *block) != TIDE_OK) abort();
    if (tide_pinned_alloc(c->pinned, c->sizes[i], block) != TIDE_OK) abort();
  }
}

static void pinned_row(bench* run, const char* what, double value, const char* unit) {
  bench_row(run, "pinned", what, value, unit);
}

// ---------------------------------------------------------------------------------------------------
// One thread

typedef struct pinned_rig {
  tide_machine* machine;
  tide_pinned_cache* pinned;
  pinned_churn churn;
} pinned_rig;

static tide_machine* pinned_dry(void) {
  tide_machine* machine = NULL;
  bench_require(tide_machine_new_dry(NULL, &machine), "machine_new_dry");
  return machine;
}

static void rig_init(pinned_rig* rig, tide_machine* machine, const tide_pinned_options* options) {
  rig->machine = machine;
  rig->pinned = pinned_open(rig->machine, options);
  pinned_churn_init(&rig->churn, rig->machine, rig->pinned, 7);
}

static void rig_fini(pinned_rig* rig) {
  pinned_churn_fini(&rig->churn);
  tide_pinned_free(rig->pinned, NULL);
  tide_machine_free(rig->machine);
}

static double rig_ns(pinned_rig* rig, void (*work)(void*, uint64_t)) {
  const bench_job job = { .work = work, .user = &rig->churn, .count = PAIRS };
  return bench_ns(&job);
}

static void measure_pairs(bench* run) {
  pinned_rig rig;
  rig_init(&rig, pinned_dry(), NULL);
  pinned_row(run, "pair, 64 live, 512 B to 1 MiB", rig_ns(&rig, pairs_work), "ns");
  pinned_row(run, "pair, by address", rig_ns(&rig, pairs_work_addresses), "ns");
  const tide_history_options history = TIDE_HISTORY_OPTIONS_INIT;
  bench_require(tide_pinned_history(rig.pinned, &history), "history");
  pinned_row(run, "pair, with a history", rig_ns(&rig, pairs_work), "ns");
  rig_fini(&rig);
  tide_pinned_options options = TIDE_PINNED_OPTIONS_INIT;
  options.max_cached_bytes = (uint64_t)1 << 30;
  rig_init(&rig, pinned_dry(), &options);
  pinned_row(run, "pair, under a cap that is not reached", rig_ns(&rig, pairs_work), "ns");
  rig_fini(&rig);
}

typedef struct event_rig {
  tide_machine* machine;
  tide_event event;
  tide_stream stream;
} event_rig;

static void event_work(void* user, uint64_t count) {
  const event_rig* const rig = user;
  while (count-- > 0) {
    if (tide_machine_event_record(rig->machine, 0, rig->event, rig->stream) != TIDE_OK) abort();
  }
}

static void uses_row(bench* run, const tide_machine* machine, const char* what, double value,
                     const char* unit) {
  char label[64];
  (void)snprintf(label, sizeof label, "%s, %s", what, tide_machine_name(machine));
  pinned_row(run, label, value, unit);
}

static void measure_uses(bench* run, tide_machine* machine) {
  pinned_rig rig;
  rig_init(&rig, machine, NULL);
  event_rig events = { .machine = rig.machine, .stream = rig.churn.stream };
  bench_require(tide_machine_event_new(rig.machine, 0, &events.event), "event_new");
  const bench_job job = { .work = event_work, .user = &events, .count = PAIRS };
  double with_use[ROUNDS];
  double record[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    with_use[i] = rig_ns(&rig, uses_work);
    record[i] = bench_ns(&job);
  }
  const double pair_ns = bench_median(with_use, ROUNDS);
  const double record_ns = bench_median(record, ROUNDS);
  uses_row(run, machine, "pair with a use recorded on each", pair_ns, "ns");
  uses_row(run, machine, "event record of the machine alone", record_ns, "ns");
  uses_row(run, machine, "ratio of the two", pair_ns / record_ns, "x");
  bench_require(tide_machine_event_free(rig.machine, events.event), "event_free");
  rig_fini(&rig);
}

// ---------------------------------------------------------------------------------------------------
// Threads

typedef struct pinned_team {
  pinned_churn* churns[MAX_TEAM];
} pinned_team;

// Million pairs in a second, of all threads together.
static double team_rate(const pinned_team* t, size_t count) {
  const bench_job job = { .work = pairs_work, .count = PAIRS };
  void* users[MAX_TEAM];
  for (size_t i = 0; i < count; i++) users[i] = t->churns[i];
  const uint64_t ns = bench_team_ns(&job, users, count, TEAM_REPEATS);
  return (double)(count * PAIRS * TEAM_REPEATS) / (double)ns * 1e3;
}

static void measure_team(bench* run, size_t count) {
  pinned_team shared = { .churns = { NULL } };
  pinned_team apart = { .churns = { NULL } };
  tide_machine* const machine = pinned_dry();
  tide_pinned_cache* const one = pinned_open(machine, NULL);
  for (size_t i = 0; i < count; i++) {
    shared.churns[i] = bench_alloc(1, sizeof **shared.churns);
    apart.churns[i] = bench_alloc(1, sizeof **apart.churns);
    pinned_churn_init(shared.churns[i], machine, one, i + 1);
    pinned_churn_init(apart.churns[i], machine, pinned_open(machine, NULL), i + 1);
  }
  double rates[ROUNDS];
  double ratios[ROUNDS];
  (void)team_rate(&shared, count);  // the first round pins memory
  (void)team_rate(&apart, count);
  for (int i = 0; i < ROUNDS; i++) {
    rates[i] = team_rate(&shared, count);
    ratios[i] = rates[i] / team_rate(&apart, count);
  }
  char label[64];
  (void)snprintf(label, sizeof label, "%zu threads on one cache", count);
  pinned_row(run, label, bench_median(rates, ROUNDS), "Mpairs/s");
  (void)snprintf(label, sizeof label, "%zu threads, of what as many apart do", count);
  pinned_row(run, label, bench_median(ratios, ROUNDS), "x");
  for (size_t i = 0; i < count; i++) {
    tide_pinned_cache* const own = apart.churns[i]->pinned;
    pinned_churn_fini(shared.churns[i]);
    pinned_churn_fini(apart.churns[i]);
    tide_pinned_free(own, NULL);
    free(shared.churns[i]);
    free(apart.churns[i]);
  }
  tide_pinned_free(one, NULL);
  tide_machine_free(machine);
}

// ---------------------------------------------------------------------------------------------------
// Slack

static void measure_slack(bench* run) {
  tide_machine* const machine = pinned_dry();
  tide_pinned_cache* const pinned = pinned_open(machine, NULL);
  double worst = 0;
  for (size_t bytes = 4096; bytes <= 64 * mib; bytes += bytes / 4096 + 1) {
    const size_t rounded = tide_pinned_round(pinned, bytes);
    const double slack = (double)(rounded - bytes) / (double)bytes;
    if (slack > worst) worst = slack;
  }
  pinned_row(run, "largest slack of 4 KiB to 64 MiB", worst * 100, "%");
  const double gib = (double)((size_t)1 << 30);
  const double pinned_gib = (double)tide_pinned_round(pinned, (size_t)(20.4 * gib)) / gib;
  pinned_row(run, "pinned for one request of 20.4 GiB", pinned_gib, "GiB");
  tide_pinned_free(pinned, NULL);
  tide_machine_free(machine);
}

void bench_pinned(bench* run) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  measure_pairs(run);
  measure_uses(run, pinned_dry());
  tide_machine* machine = NULL;
  if (tide_machine_new_host(NULL, &machine) == TIDE_OK) measure_uses(run, machine);
  if (tide_machine_new_cuda(NULL, &machine) == TIDE_OK) measure_uses(run, machine);
  else bench_skip(run, "pinned", "cuda", tide_last_error()->text);
  measure_slack(run);
  for (size_t count = 1; count <= MAX_TEAM && (count <= 2 || (long)count <= processors); count *= 2) {
    measure_team(run, count);
  }
}
