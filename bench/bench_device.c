// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the device allocator costs, on the dry machine: only its own work remains there. A pair is the release
// of one block, chosen at random, and the allocation of another; sizes are spread evenly over the logarithm.
//   pairs     with 64 and with 4096 blocks handed out; with 512 of up to 64 MiB, also with views
//   tail      the median and the 99.9th percentile of single allocations
//   holes     with 64 to 65,536 idle blocks between others, that no request may touch unless it fits
//   threads   each on its own stream of one allocator, beside as many that have an allocator each and so
//             share nothing, in turns. Two and more threads have allocators with several streams, where the
//             policy `tide` calls the machine at each release of a large block.
//   history   what an entry costs, a look at 100,000 of them, and threads that add to one history
// All but the last for the policy `torch`, then for `tide`, whose rows end so; PyTorch's own figure follows
// where TIDE_BENCH_TORCH names a file that has it (bench/torch/run).
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "tidemark/device.h"

enum { SEED = 7, PAIRS = 200000, LINE_BYTES = 128 };

static const size_t mib = (size_t)1 << 20;
static const tide_policy policies[] = { TIDE_POLICY_TORCH, TIDE_POLICY_TIDE };

#define POLICY_COUNT (sizeof policies / sizeof *policies)

typedef struct churn {
  tide_device_cache* device;
  tide_stream stream;
  size_t live;
  tide_block* blocks;  // owned
  uint32_t* sizes;     // owned; one for each pair, in bytes
  uint32_t* picks;     // owned; which block it replaces
} churn;

static uint32_t random_size(uint64_t* state, size_t least, size_t most) {
  const double u = (double)(bench_random(state) >> 11) / 9007199254740992.0;
  return (uint32_t)((double)least * exp(u * log((double)most / (double)least)));
}

static void churn_init(churn* c, tide_device_cache* device, tide_stream stream, size_t live, size_t most,
                       uint64_t seed) {
  *c = (churn){ .device = device, .stream = stream, .live = live };
  // Nothing that another thread writes shares a line of the processor's cache with the blocks.
  c->blocks = bench_alloc(1, live * sizeof *c->blocks + LINE_BYTES);
  c->sizes = bench_alloc(PAIRS, sizeof *c->sizes);
  c->picks = bench_alloc(PAIRS, sizeof *c->picks);
  uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  for (size_t i = 0; i < PAIRS; i++) {
    c->sizes[i] = random_size(&state, 512, most);
    c->picks[i] = (uint32_t)(bench_random(&state) % live);
  }
  for (size_t i = 0; i < live; i++) {
    bench_require(tide_device_alloc(device, stream, random_size(&state, 512, most), &c->blocks[i]), "alloc");
  }
}

static void churn_fini(churn* c) {
  for (size_t i = 0; i < c->live; i++) bench_require(tide_device_release(c->device, c->blocks[i]), "release");
  free(c->blocks);
  free(c->sizes);
  free(c->picks);
}

static void churn_work(void* user, uint64_t count) {
  churn* const c = user;
  for (uint64_t i = 0; i < count; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_device_release(c->device, *block) != TIDE_OK) abort();
    if (tide_device_alloc(c->device, c->stream, c->sizes[i], block) != TIDE_OK) abort();
  }
}

// The same through addresses alone, as a drop-in would.
static void churn_work_addresses(void* user, uint64_t count) {
  churn* const c = user;
  for (uint64_t i = 0; i < count; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_device_release_address(c->device, block->address) != TIDE_OK) abort();
    if (tide_device_alloc(c->device, c->stream, c->sizes[i], block) != TIDE_OK) abort();
  }
}

// ---------------------------------------------------------------------------------------------------
// Rigs

// An allocator on a machine of its own.
typedef struct rig {
  tide_machine* machine;
  tide_device_cache* device;
} rig;

static rig rig_new_with(tide_policy policy, double stitch_share) {
  rig r = { NULL, NULL };
  tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  options.policy = (uint32_t)policy;
  options.tide_stitch_share = stitch_share;
  bench_require(tide_machine_new_dry(NULL, &r.machine), "machine_new_dry");
  bench_require(tide_device_new(r.machine, 0, &options, &r.device), "device_new");
  return r;
}

static rig rig_new(tide_policy policy) {
  const tide_device_options options = TIDE_DEVICE_OPTIONS_INIT;
  return rig_new_with(policy, options.tide_stitch_share);
}

static void rig_free(rig r) {
  tide_device_free(r.device);
  tide_machine_free(r.machine);
}

static void reference_work(void* user, uint64_t count) {
  (void)user;
  while (count-- > 0) {
    void* volatile memory = malloc(64);
    free(memory);
  }
}

static void row(bench* run, const char* what, double value, const char* unit) {
  bench_row(run, "device", what, value, unit);
}

// PyTorch's figure of this name, if the file that bench/torch/run has just written has one.
static void pytorch_row(bench* run, const char* what) {
  const char* const name = getenv("TIDE_BENCH_TORCH");
  FILE* const file = name != NULL ? fopen(name, "r") : NULL;
  char line[256];
  if (file == NULL) return;
  while (fgets(line, sizeof line, file) != NULL) {
    char* const value = strchr(line, '\t');
    char* const unit = value != NULL ? strchr(value + 1, '\t') : NULL;
    if (unit == NULL) continue;
    *value = *unit = '\0';
    unit[strcspn(unit + 1, "\n") + 1] = '\0';
    if (strcmp(line, what) != 0) continue;
    bench_row_peer(run, "device", what, "PyTorch", strtod(value + 1, NULL), unit + 1);
  }
  (void)fclose(file);
}

static void pytorch_skip(bench* run) {
  const char* const name = getenv("TIDE_BENCH_TORCH");
  FILE* const file = name != NULL ? fopen(name, "r") : NULL;
  if (file != NULL) (void)fclose(file);
  else bench_skip(run, "device", "PyTorch", "TIDE_BENCH_TORCH names no file: see bench/torch/run");
}

// A row of one policy; `tide` is measured last, and so what PyTorch has follows it.
static void policy_row(bench* run, tide_policy policy, const char* what, double value, const char* unit) {
  char label[96];
  (void)snprintf(label, sizeof label, "%s%s", what, policy == TIDE_POLICY_TIDE ? ", tide" : "");
  row(run, label, value, unit);
  if (policy == TIDE_POLICY_TIDE) pytorch_row(run, what);
}

static void measure_pairs(bench* run, tide_policy policy, size_t live, size_t most, bool by_address) {
  const rig r = rig_new(policy);
  churn c;
  churn_init(&c, r.device, NULL, live, most, SEED);
  const bench_job job = { .work = by_address ? churn_work_addresses : churn_work,
                          .user = &c,
                          .count = PAIRS };
  char what[80];
  (void)snprintf(what, sizeof what, "pair, %zu live, 512 B to %zu MiB%s", live, most / mib,
                 by_address ? ", by address" : "");
  policy_row(run, policy, what, bench_ns(&job), "ns");
  churn_fini(&c);
  rig_free(r);
}

// Large blocks of `tide` where making views is not limited: a few of a thousand requests make one.
static void measure_stitching(bench* run) {
  const rig r = rig_new_with(TIDE_POLICY_TIDE, 1);
  churn c;
  churn_init(&c, r.device, NULL, 512, 64 * mib, SEED);
  const bench_job job = { .work = churn_work, .user = &c, .count = PAIRS };
  policy_row(run, TIDE_POLICY_TIDE, "pair, 512 live, 512 B to 64 MiB, with views", bench_ns(&job), "ns");
  churn_fini(&c);
  rig_free(r);
}

// ---------------------------------------------------------------------------------------------------
// Tail

// The time between two consecutive readings of the clock, the median of many.
static double clock_cost_ns(double* samples) {
  for (size_t i = 0; i < PAIRS; i++) {
    const uint64_t begin_ns = bench_now();
    samples[i] = (double)(bench_now() - begin_ns);
  }
  return bench_median(samples, PAIRS);
}

// One sample for each allocation of a round, with the clock's cost in it. Releases are not timed.
static void churn_sample(const churn* c, double* samples) {
  for (size_t i = 0; i < PAIRS; i++) {
    tide_block* const block = &c->blocks[c->picks[i]];
    if (tide_device_release(c->device, *block) != TIDE_OK) abort();
    const uint64_t begin_ns = bench_now();
    if (tide_device_alloc(c->device, c->stream, c->sizes[i], block) != TIDE_OK) abort();
    samples[i] = (double)(bench_now() - begin_ns);
  }
}

// The clock's cost is taken off both figures. It is measured anew in every round, for the computer is not
// always equally fast; how much it varies from call to call stays in the percentile.
static void measure_tail(bench* run, tide_policy policy, size_t live) {
  const rig r = rig_new(policy);
  churn c;
  churn_init(&c, r.device, NULL, live, mib, SEED);
  double* const samples = bench_alloc(PAIRS, sizeof *samples);
  double medians[BENCH_RUNS];
  double tails[BENCH_RUNS];
  churn_work(&c, PAIRS);  // the first round makes segments
  for (size_t i = 0; i < BENCH_RUNS; i++) {
    const double clock_ns = clock_cost_ns(samples);
    churn_sample(&c, samples);
    medians[i] = bench_median(samples, PAIRS) - clock_ns;  // this sorts them
    tails[i] = samples[PAIRS - PAIRS / 1000] - clock_ns;
  }
  char what[64];
  (void)snprintf(what, sizeof what, "one alloc, %zu live, median", live);
  policy_row(run, policy, what, bench_median(medians, BENCH_RUNS), "ns");
  (void)snprintf(what, sizeof what, "one alloc, %zu live, 99.9th percentile", live);
  policy_row(run, policy, what, bench_median(tails, BENCH_RUNS), "ns");
  free(samples);
  churn_fini(&c);
  rig_free(r);
}

// ---------------------------------------------------------------------------------------------------
// Holes

// Makes `holes` idle blocks of mixed sizes, each between two that stay handed out.
static tide_block* holes_make(tide_device_cache* device, size_t holes, uint64_t* state) {
  tide_block* const fences = bench_alloc(2 * holes, sizeof *fences);
  for (size_t i = 0; i < holes; i++) {
    bench_require(tide_device_alloc(device, NULL, random_size(state, 512, mib), &fences[2 * i]), "alloc");
    bench_require(tide_device_alloc(device, NULL, 512, &fences[2 * i + 1]), "alloc");
  }
  for (size_t i = 0; i < holes; i++) bench_require(tide_device_release(device, fences[2 * i]), "release");
  return fences;
}

typedef struct landscape {
  rig rig;
  churn churn;
  tide_block* fences;  // owned; the second of two stays handed out
  size_t holes;
} landscape;

static void landscape_init(landscape* l, tide_policy policy, size_t holes) {
  uint64_t state = SEED;
  l->rig = rig_new(policy);
  l->fences = holes_make(l->rig.device, holes, &state);
  l->holes = holes;
  churn_init(&l->churn, l->rig.device, NULL, 64, mib, SEED);
}

static void landscape_fini(landscape* l) {
  churn_fini(&l->churn);
  for (size_t i = 0; i < l->holes; i++) {
    bench_require(tide_device_release(l->rig.device, l->fences[2 * i + 1]), "release");
  }
  free(l->fences);
  rig_free(l->rig);
}

// For scripts/count-instructions: a round of pairs among so many holes, then `pairs` more.
static void count_holes(tide_policy policy, size_t holes, uint64_t pairs) {
  landscape l;
  landscape_init(&l, policy, holes);
  churn_work(&l.churn, PAIRS);  // the first round makes segments
  churn_work(&l.churn, pairs);
  (void)printf("%llu pairs among %zu holes\n", (unsigned long long)pairs, holes);
  landscape_fini(&l);
}

// The same with so many blocks handed out, of up to so many MiB. The first rounds make segments and views.
static void count_pairs(rig r, size_t live, size_t most_mib, uint64_t pairs) {
  churn c;
  churn_init(&c, r.device, NULL, live, most_mib * mib, SEED);
  for (int i = 0; i < 4; i++) churn_work(&c, PAIRS);
  churn_work(&c, pairs);
  (void)printf("%llu pairs with %zu live, up to %zu MiB\n", (unsigned long long)pairs, live, most_mib);
  churn_fini(&c);
  rig_free(r);
}

static void measure_holes(bench* run, tide_policy policy, size_t holes) {
  landscape l;
  landscape_init(&l, policy, holes);
  const bench_job job = { .work = churn_work, .user = &l.churn, .count = PAIRS };
  char what[64];
  (void)snprintf(what, sizeof what, "pair, 64 live, %zu holes", holes);
  policy_row(run, policy, what, bench_ns(&job), "ns");
  landscape_fini(&l);
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { MAX_THREADS = BENCH_MAX_THREADS, TEAM_REPEATS = 5, TEAM_ROUNDS = 5 };

// Million pairs in a second, of all threads together.
static double team_rate(churn* churns, size_t count) {
  const bench_job job = { .work = churn_work, .count = PAIRS };
  void* users[MAX_THREADS];
  for (size_t i = 0; i < count; i++) users[i] = &churns[i];
  const uint64_t ns = bench_team_ns(&job, users, count, TEAM_REPEATS);
  return (double)(count * PAIRS * TEAM_REPEATS) / (double)ns * 1e3;
}

typedef struct crew {
  size_t count;
  rig shared;
  rig own[MAX_THREADS];
  churn together[MAX_THREADS];  // on `shared`
  churn apart[MAX_THREADS];     // each on its own
} crew;

static void churn_on_own_stream(churn* c, rig r, uint64_t seed) {
  tide_stream stream = NULL;
  bench_require(tide_machine_stream_new(r.machine, 0, 0, 0, &stream), "stream_new");
  churn_init(c, r.device, stream, 64, mib, seed);
}

// From now on the allocator has one stream more, whose memory it keeps apart from that of the others.
static void rig_add_stream(rig r) {
  tide_stream stream = NULL;
  tide_block block;
  bench_require(tide_machine_stream_new(r.machine, 0, 0, 0, &stream), "stream_new");
  bench_require(tide_device_alloc(r.device, stream, 512, &block), "alloc");
  bench_require(tide_device_release(r.device, block), "release");
}

static void crew_init(crew* w, tide_policy policy, size_t count) {
  w->count = count;
  w->shared = rig_new(policy);
  for (size_t i = 0; i < count; i++) {
    w->own[i] = rig_new(policy);
    if (count > 1) rig_add_stream(w->own[i]);  // so that all do the same work
    churn_on_own_stream(&w->together[i], w->shared, i + 1);
    churn_on_own_stream(&w->apart[i], w->own[i], i + 1);
  }
  (void)team_rate(w->together, count);  // the first round makes segments
  (void)team_rate(w->apart, count);
}

static void crew_fini(crew* w) {
  for (size_t i = 0; i < w->count; i++) {
    churn_fini(&w->together[i]);
    churn_fini(&w->apart[i]);
    rig_free(w->own[i]);
  }
  rig_free(w->shared);
}

static void threads_row(bench* run, tide_policy policy, size_t count, const char* what, double* values,
                        const char* unit) {
  char label[64];
  (void)snprintf(label, sizeof label, "%zu threads%s", count, what);
  policy_row(run, policy, label, bench_median(values, TEAM_ROUNDS), unit);
}

// Values to compare are measured in turns, because the computer is not always equally fast.
static void measure_threads(bench* run, tide_policy policy, size_t count) {
  crew w;
  double together[TEAM_ROUNDS];
  double apart[TEAM_ROUNDS];
  double over_one[TEAM_ROUNDS];
  double over_apart[TEAM_ROUNDS];
  crew_init(&w, policy, count);
  for (size_t i = 0; i < TEAM_ROUNDS; i++) {
    together[i] = team_rate(w.together, count);
    apart[i] = team_rate(w.apart, count);
    over_one[i] = together[i] / team_rate(w.together, 1);
    over_apart[i] = together[i] / apart[i];
  }
  threads_row(run, policy, count, " on own streams", together, "Mpairs/s");
  if (count > 1) {
    threads_row(run, policy, count, " over 1", over_one, "times");
    threads_row(run, policy, count, ", an allocator each", apart, "Mpairs/s");
    threads_row(run, policy, count, ", of what as many apart do", over_apart, "times");
  }
  crew_fini(&w);
}

// ---------------------------------------------------------------------------------------------------
// History

enum { ENTRIES = 100000 };

static bool count_entries(void* user, const tide_trace_entry* entries, size_t count) {
  uint64_t* const sum = user;
  for (size_t i = 0; i < count; i++) sum[1] += entries[i].bytes;
  sum[0] += count;
  return true;
}

static bool count_segment(void* user, const tide_segment_info* segment) {
  ((uint64_t*)user)[1] += segment->bytes;
  return true;
}

static bool count_block(void* user, const tide_block_info* block) {
  ((uint64_t*)user)[0] += block->bytes > 0;
  return true;
}

static void snapshot_work(void* user, uint64_t count) {
  tide_device_cache* const device = user;
  const tide_device_visitor visitor = { count_segment, count_block, (uint64_t[2]){ 0, 0 } };
  while (count-- > 0) {
    uint64_t sum[2] = { 0, 0 };
    bench_require(tide_device_history_visit(device, count_entries, sum), "history_visit");
    bench_verify(sum[0] > 0, "there are no entries");
    bench_require(tide_device_visit(device, &visitor), "visit");
  }
}

static void snapshot_verify(void* user) {
  uint64_t sum[2] = { 0, 0 };
  bench_require(tide_device_history_visit(user, count_entries, sum), "history_visit");
  bench_verify(sum[0] == ENTRIES, "entries are missing");
}

static void history_set(tide_device_cache* device, bool is_on) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = is_on;
  options.max_entries = ENTRIES;
  bench_require(tide_device_history(device, &options), "history");
}

// One round of pairs with the history on or off.
static double history_round(churn* c, bool is_on) {
  history_set(c->device, is_on);
  churn_work(c, 1000);
  const uint64_t begin = bench_now();
  churn_work(c, PAIRS);
  return (double)(bench_now() - begin) / PAIRS;
}

static void measure_history(bench* run) {
  const rig r = rig_new(TIDE_POLICY_TORCH);
  churn c;
  churn_init(&c, r.device, NULL, 64, mib, SEED);
  double more[BENCH_RUNS];  // on and off in turn: what differs between them is the history
  for (int i = 0; i < BENCH_RUNS; i++) {
    const double without = history_round(&c, false);
    more[i] = (history_round(&c, true) - without) / 3;  // a pair makes three entries
  }
  row(run, "history, an entry more", bench_median(more, BENCH_RUNS), "ns");
  const bench_job look = { .work = snapshot_work, .after = snapshot_verify, .user = r.device, .count = 10 };
  row(run, "snapshot with 100,000 entries", bench_ns(&look) * 1e-6, "ms");
  churn_fini(&c);
  rig_free(r);
}

// All threads add to one history.
static void measure_recorded_threads(bench* run, tide_policy policy, size_t count) {
  const rig r = rig_new(policy);
  churn churns[MAX_THREADS];
  double rates[TEAM_ROUNDS];
  for (size_t i = 0; i < count; i++) churn_on_own_stream(&churns[i], r, i + 1);
  history_set(r.device, true);
  (void)team_rate(churns, count);
  for (size_t i = 0; i < TEAM_ROUNDS; i++) rates[i] = team_rate(churns, count);
  threads_row(run, policy, count, " with a history", rates, "Mpairs/s");
  for (size_t i = 0; i < count; i++) churn_fini(&churns[i]);
  rig_free(r);
}

typedef struct locks_worker {
  churn* churn;
  pthread_barrier_t start;
} locks_worker;

static void* locks_worker_run(void* user) {
  locks_worker* const w = user;
  (void)pthread_barrier_wait(&w->start);
  for (int i = 0; i < TEAM_REPEATS; i++) churn_work(w->churn, PAIRS);
  return NULL;
}

// The longest that a lock is held while a snapshot is taken and another thread works. This is processor time
// of the holder, so that what the system does to a thread meanwhile does not count.
void bench_locks(bench* run) {
  if (tide__lock_longest_ns() == UINT64_MAX) {
    bench_skip(run, "locks", "the longest lock during a snapshot", "built without TIDEMARK_LOCK_TIMES");
    return;
  }
  const rig r = rig_new(TIDE_POLICY_TORCH);
  churn c;
  history_set(r.device, true);
  churn_init(&c, r.device, NULL, 65536, mib, SEED);
  churn_work(&c, PAIRS);
  pthread_t thread;
  locks_worker w = { .churn = &c };
  (void)pthread_barrier_init(&w.start, NULL, 2);
  bench_verify(pthread_create(&thread, NULL, locks_worker_run, &w) == 0, "pthread_create");
  (void)pthread_barrier_wait(&w.start);
  (void)tide__lock_longest_ns();
  snapshot_work(r.device, 10);
  bench_row(run, "locks", "the longest lock during a snapshot", (double)tide__lock_longest_ns() * 1e-3, "us");
  (void)pthread_join(thread, NULL);
  (void)pthread_barrier_destroy(&w.start);
  churn_fini(&c);
  rig_free(r);
}

static tide_policy policy_named(const char* name) {
  const bool is_tide = name != NULL && strcmp(name, "tide") == 0;
  bench_verify(is_tide || name == NULL || strcmp(name, "torch") == 0,
               "TIDE_BENCH_POLICY is neither torch nor tide");
  return is_tide ? TIDE_POLICY_TIDE : TIDE_POLICY_TORCH;
}

static void measure_policy_pairs(bench* run) {
  static const struct {
    size_t live;
    size_t most_mib;
    bool by_address;
  } cases[] = {
    { 1, 1, false },    { 64, 1, false },   { 64, 1, true },
    { 4096, 1, false }, { 4096, 4, false }, { 512, 64, false },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (size_t p = 0; p < POLICY_COUNT; p++) {
      measure_pairs(run, policies[p], cases[i].live, cases[i].most_mib * mib, cases[i].by_address);
    }
  }
}

// The number in a variable of the environment; `otherwise` without it.
static size_t env_number(const char* name, size_t otherwise) {
  const char* const text = getenv(name);
  return text != NULL ? (size_t)strtoul(text, NULL, 10) : otherwise;
}

// For scripts/count-instructions: runs what the environment asks for instead of the benchmark, if anything.
static bool count_asked(void) {
  const tide_policy policy = policy_named(getenv("TIDE_BENCH_POLICY"));
  const size_t holes = env_number("TIDE_BENCH_HOLES", 0);
  const size_t live = env_number("TIDE_BENCH_LIVE", 0);
  const size_t pairs = env_number("TIDE_BENCH_PAIRS", PAIRS);
  bench_verify(pairs <= PAIRS, "there are no so many pairs");
  const bool stitches = getenv("TIDE_BENCH_STITCH") != NULL;
  if (holes != 0) {
    count_holes(policy, holes, pairs);
  } else if (live != 0) {
    const rig r = stitches ? rig_new_with(policy, 1) : rig_new(policy);
    count_pairs(r, live, env_number("TIDE_BENCH_MOST_MIB", 1), pairs);
  }
  return holes != 0 || live != 0;
}

void bench_device(bench* run) {
  if (count_asked()) return;
  const bench_job reference = { .work = reference_work, .count = 1000000 };
  row(run, "reference: malloc and free of 64 B", bench_ns(&reference), "ns");
  pytorch_skip(run);
  measure_policy_pairs(run);
  measure_stitching(run);
  for (size_t p = 0; p < POLICY_COUNT; p++) measure_tail(run, policies[p], 64);
  for (size_t p = 0; p < POLICY_COUNT; p++) measure_tail(run, policies[p], 4096);
  for (size_t holes = 64; holes <= 65536; holes *= 4) {
    for (size_t p = 0; p < POLICY_COUNT; p++) measure_holes(run, policies[p], holes);
  }
  for (size_t count = 1; count <= MAX_THREADS; count *= 2) {
    for (size_t p = 0; p < POLICY_COUNT; p++) measure_threads(run, policies[p], count);
  }
  measure_history(run);
  for (size_t i = 0; i < 3; i++) {
    static const size_t counts[] = { 1, 2, MAX_THREADS };
    for (size_t p = 0; p < POLICY_COUNT; p++) measure_recorded_threads(run, policies[p], counts[i]);
  }
}
