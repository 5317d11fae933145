// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the device allocator costs, on the dry machine: only its own work remains there. A pair is the release
// of one block, chosen at random, and the allocation of another; sizes are spread evenly over the logarithm.
//   pairs     with 64 and with 4096 blocks handed out
//   holes     with 64 to 65,536 idle blocks between others, that no request may touch unless it fits
//   threads   each on its own stream
//   history   what an entry costs, and a look at 100,000 of them
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "tidemark/device.h"

enum { SEED = 7 };

static const size_t mib = (size_t)1 << 20;

typedef struct churn {
  tide_device* device;
  tide_stream stream;
  size_t live;
  tide_block* blocks;  // owned
  uint32_t* sizes;     // owned; one for each pair, in bytes
  uint32_t* picks;     // owned; which block it replaces
  uint64_t pairs;
} churn;

static uint64_t random_next(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static uint32_t random_size(uint64_t* state, size_t least, size_t most) {
  const double u = (double)(random_next(state) >> 11) / 9007199254740992.0;
  return (uint32_t)((double)least * exp(u * log((double)most / (double)least)));
}

static void churn_init(churn* c, tide_device* device, tide_stream stream, size_t live, uint64_t pairs,
                       size_t most, uint64_t seed) {
  *c = (churn){ .device = device, .stream = stream, .live = live, .pairs = pairs };
  c->blocks = bench_alloc(live, sizeof *c->blocks);
  c->sizes = bench_alloc(pairs, sizeof *c->sizes);
  c->picks = bench_alloc(pairs, sizeof *c->picks);
  uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
  for (uint64_t i = 0; i < pairs; i++) {
    c->sizes[i] = random_size(&state, 512, most);
    c->picks[i] = (uint32_t)(random_next(&state) % live);
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

// The same, under a name of its own.
__attribute__((noinline)) static void churn_counted(churn* c, uint64_t count) {
  churn_work(c, count);
  __asm__ volatile("" ::: "memory");
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

static tide_machine* machine_new(void) {
  tide_machine* machine = NULL;
  bench_require(tide_machine_new_dry(NULL, &machine), "machine_new_dry");
  return machine;
}

static tide_device* device_new(tide_machine* machine) {
  tide_device* device = NULL;
  bench_require(tide_device_new(machine, 0, NULL, &device), "device_new");
  return device;
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

static void measure_pairs(bench* run, size_t live, size_t most, bool by_address) {
  tide_machine* const machine = machine_new();
  tide_device* const device = device_new(machine);
  churn c;
  churn_init(&c, device, NULL, live, 200000, most, SEED);
  const bench_job job = { .work = by_address ? churn_work_addresses : churn_work,
                          .user = &c,
                          .count = c.pairs };
  char label[96];
  (void)snprintf(label, sizeof label, "pair, %zu live, 512 B to %zu MiB%s", live, most / mib,
                 by_address ? ", by address" : "");
  row(run, label, bench_ns(&job), "ns");
  churn_fini(&c);
  tide_device_free(device);
  tide_machine_free(machine);
}

// ---------------------------------------------------------------------------------------------------
// Holes

// Makes `holes` idle blocks of mixed sizes, each between two that stay handed out.
static tide_block* holes_make(tide_device* device, size_t holes, uint64_t* state) {
  tide_block* const fences = bench_alloc(2 * holes, sizeof *fences);
  for (size_t i = 0; i < holes; i++) {
    bench_require(tide_device_alloc(device, NULL, random_size(state, 512, mib), &fences[2 * i]), "alloc");
    bench_require(tide_device_alloc(device, NULL, 512, &fences[2 * i + 1]), "alloc");
  }
  for (size_t i = 0; i < holes; i++) bench_require(tide_device_release(device, fences[2 * i]), "release");
  return fences;
}

static void holes_begin(size_t holes, churn* out, tide_machine** out_machine, tide_block** out_fences) {
  uint64_t state = SEED;
  *out_machine = machine_new();
  tide_device* const device = device_new(*out_machine);
  *out_fences = holes_make(device, holes, &state);
  churn_init(out, device, NULL, 64, 200000, mib, SEED);
}

static void holes_end(size_t holes, churn* c, tide_machine* machine, tide_block* fences) {
  tide_device* const device = c->device;
  churn_fini(c);
  for (size_t i = 0; i < holes; i++) bench_require(tide_device_release(device, fences[2 * i + 1]), "release");
  free(fences);
  tide_device_free(device);
  tide_machine_free(machine);
}

// For scripts/count-instructions: pairs among TIDE_BENCH_HOLES holes, once, and nothing else.
static void count_holes(size_t holes) {
  churn c;
  tide_machine* machine = NULL;
  tide_block* fences = NULL;
  holes_begin(holes, &c, &machine, &fences);
  churn_work(&c, c.pairs);  // the first round makes segments
  churn_counted(&c, c.pairs);
  (void)printf("%llu pairs among %zu holes\n", (unsigned long long)c.pairs, holes);
  holes_end(holes, &c, machine, fences);
}

static void measure_holes(bench* run, size_t holes) {
  churn c;
  tide_machine* machine = NULL;
  tide_block* fences = NULL;
  holes_begin(holes, &c, &machine, &fences);
  const bench_job job = { .work = churn_work, .user = &c, .count = c.pairs };
  char label[64];
  (void)snprintf(label, sizeof label, "pair, 64 live, %zu holes", holes);
  row(run, label, bench_ns(&job), "ns");
  holes_end(holes, &c, machine, fences);
}

// ---------------------------------------------------------------------------------------------------
// Threads

enum { MAX_THREADS = 16, THREAD_PAIRS = 200000 };

typedef struct team {
  churn churns[MAX_THREADS];
  pthread_barrier_t start;
} team;

typedef struct member {
  team* team;
  size_t index;
} member;

static void* member_run(void* user) {
  const member* const m = user;
  (void)pthread_barrier_wait(&m->team->start);
  churn_work(&m->team->churns[m->index], THREAD_PAIRS);
  (void)pthread_barrier_wait(&m->team->start);
  return NULL;
}

static double team_seconds(team* t, size_t count) {
  pthread_t threads[MAX_THREADS];
  member members[MAX_THREADS];
  (void)pthread_barrier_init(&t->start, NULL, (unsigned)count + 1);
  for (size_t i = 0; i < count; i++) {
    members[i] = (member){ t, i };
    bench_verify(pthread_create(&threads[i], NULL, member_run, &members[i]) == 0, "pthread_create");
  }
  (void)pthread_barrier_wait(&t->start);
  const uint64_t begin = bench_now();
  (void)pthread_barrier_wait(&t->start);
  const double seconds = (double)(bench_now() - begin) * 1e-9;
  for (size_t i = 0; i < count; i++) (void)pthread_join(threads[i], NULL);
  (void)pthread_barrier_destroy(&t->start);
  return seconds;
}

static double measure_threads(bench* run, size_t count) {
  tide_machine* const machine = machine_new();
  tide_device* const device = device_new(machine);
  team* const t = bench_alloc(1, sizeof *t);
  for (size_t i = 0; i < count; i++) {
    tide_stream stream = NULL;
    bench_require(tide_machine_stream_new(machine, 0, 0, 0, &stream), "stream_new");
    churn_init(&t->churns[i], device, stream, 64, THREAD_PAIRS, mib, i + 1);
  }
  double rates[5];
  for (size_t i = 0; i < 5; i++) rates[i] = (double)(count * THREAD_PAIRS) / team_seconds(t, count) * 1e-6;
  const double rate = bench_median(rates, 5);
  char label[64];
  (void)snprintf(label, sizeof label, "%zu threads on own streams", count);
  row(run, label, rate, "Mpairs/s");
  for (size_t i = 0; i < count; i++) churn_fini(&t->churns[i]);
  free(t);
  tide_device_free(device);
  tide_machine_free(machine);
  return rate;
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
  tide_device* const device = user;
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

// One round of pairs with the history on or off.
static double history_round(churn* c, bool is_on) {
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.is_on = is_on;
  options.max_entries = ENTRIES;
  bench_require(tide_device_history(c->device, &options), "history");
  churn_work(c, 1000);
  const uint64_t begin = bench_now();
  churn_work(c, c->pairs);
  return (double)(bench_now() - begin) / (double)c->pairs;
}

static void measure_history(bench* run) {
  tide_machine* const machine = machine_new();
  tide_device* const device = device_new(machine);
  churn c;
  churn_init(&c, device, NULL, 64, 200000, mib, SEED);
  double more[BENCH_RUNS];  // on and off in turn: what differs between them is the history
  for (int i = 0; i < BENCH_RUNS; i++) {
    const double without = history_round(&c, false);
    more[i] = (history_round(&c, true) - without) / 3;  // a pair makes three entries
  }
  row(run, "history, an entry more", bench_median(more, BENCH_RUNS), "ns");
  const bench_job look = { .work = snapshot_work, .after = snapshot_verify, .user = device, .count = 10 };
  row(run, "snapshot with 100,000 entries", bench_ns(&look) * 1e-6, "ms");
  churn_fini(&c);
  tide_device_free(device);
  tide_machine_free(machine);
}

// The longest that a lock is held while a snapshot is taken and another thread works: the processor time of
// the holder, because what the system does to a thread meanwhile is not ours.
void bench_locks(bench* run) {
  if (tide__lock_longest_ns() == UINT64_MAX) {
    bench_skip(run, "locks", "the longest lock during a snapshot", "built without TIDEMARK_LOCK_TIMES");
    return;
  }
  tide_machine* const machine = machine_new();
  tide_device* const device = device_new(machine);
  team* const t = bench_alloc(1, sizeof *t);
  tide_history_options options = TIDE_HISTORY_OPTIONS_INIT;
  options.max_entries = ENTRIES;
  bench_require(tide_device_history(device, &options), "history");
  churn_init(&t->churns[0], device, NULL, 65536, THREAD_PAIRS, mib, SEED);
  churn_work(&t->churns[0], THREAD_PAIRS);
  pthread_t thread;
  member m = { t, 0 };
  (void)pthread_barrier_init(&t->start, NULL, 2);
  bench_verify(pthread_create(&thread, NULL, member_run, &m) == 0, "pthread_create");
  (void)pthread_barrier_wait(&t->start);
  (void)tide__lock_longest_ns();
  snapshot_work(device, 10);
  bench_row(run, "locks", "the longest lock during a snapshot", (double)tide__lock_longest_ns() * 1e-3, "us");
  (void)pthread_barrier_wait(&t->start);
  (void)pthread_join(thread, NULL);
  churn_fini(&t->churns[0]);
  free(t);
  tide_device_free(device);
  tide_machine_free(machine);
}

// PyTorch's figures, from the file that bench/torch/run has just written.
static void measure_torch(bench* run) {
  const char* const name = getenv("TIDE_BENCH_TORCH");
  FILE* const file = name != NULL ? fopen(name, "r") : NULL;
  if (file == NULL) {
    bench_skip(run, "device", "the same on PyTorch", "TIDE_BENCH_TORCH names no file: see bench/torch/run");
    return;
  }
  char line[256];
  while (fgets(line, sizeof line, file) != NULL) {
    char* const value = strchr(line, '\t');
    char* const unit = value != NULL ? strchr(value + 1, '\t') : NULL;
    if (unit == NULL) continue;
    *value = *unit = '\0';
    unit[strcspn(unit + 1, "\n") + 1] = '\0';
    bench_row_peer(run, "device", line, "torch", strtod(value + 1, NULL), unit + 1);
  }
  (void)fclose(file);
}

void bench_device(bench* run) {
  const char* const holes_text = getenv("TIDE_BENCH_HOLES");
  if (holes_text != NULL) {
    count_holes((size_t)strtoul(holes_text, NULL, 10));
    return;
  }
  const bench_job reference = { .work = reference_work, .count = 1000000 };
  row(run, "reference: malloc and free of 64 B", bench_ns(&reference), "ns");
  measure_pairs(run, 1, mib, false);
  measure_pairs(run, 64, mib, false);
  measure_pairs(run, 64, mib, true);
  measure_pairs(run, 4096, mib, false);
  measure_pairs(run, 4096, 4 * mib, false);
  measure_pairs(run, 512, 64 * mib, false);
  for (size_t holes = 64; holes <= 65536; holes *= 4) measure_holes(run, holes);
  const double one = measure_threads(run, 1);
  for (size_t count = 2; count <= MAX_THREADS; count *= 2) {
    const double rate = measure_threads(run, count);
    if (count == 8) row(run, "8 threads over 1", rate / one, "times");
  }
  measure_history(run);
  measure_torch(run);
}
