// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the calls of the machine cost: on host memory, where the work is done and its result checked; on the
// dry machine, where only the call remains; and on CUDA where there is a driver. All run the same cases, on
// one device. Rows are named "<machine> <case>".
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/machine.h"

enum {
  SMALL_BYTES = 256,
  SLOTS = 1000,  // so many areas of SMALL_BYTES; no multiple of 256, so that values differ each time
  SMALL_OPERATIONS = 100000,
  MAPPINGS = 64
};
static const size_t large_bytes = (size_t)64 << 20;
static const size_t mapping_bytes = (size_t)2 << 20;

// A callback that keeps its stream busy until it is let go.
typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  bool is_open;
} gate;

// One machine with what the cases need. All pointers are owned.
typedef struct rig {
  bench* run;
  tide_machine* machine;
  tide_stream stream;
  tide_stream other;
  tide_event event;
  uint8_t* source;  // device memory of large_bytes each
  uint8_t* destination;
  uint8_t* pinned;  // host memory of large_bytes, to look at results
  uint64_t called;  // by callbacks; read when the stream is idle
  uint8_t salt;     // makes the values of each run different
  bool has_memory;  // false on the dry machine: there is nothing to look at
  gate gate;
} rig;

static void rig_row(const rig* r, const char* what, double value, const char* unit) {
  char label[64];
  (void)snprintf(label, sizeof label, "%s %s", tide_machine_name(r->machine), what);
  bench_row(r->run, "machine", label, value, unit);
}

static void rig_synchronize(void* user) {
  rig* r = user;
  bench_require(tide_machine_device_synchronize(r->machine, 0), "device_synchronize");
}

static void rig_fill(rig* r, void* address, uint8_t value, size_t bytes) {
  bench_require(tide_machine_fill(r->machine, 0, r->stream, address, value, bytes), "fill");
}

static void rig_copy(rig* r, void* destination, const void* source, size_t bytes) {
  bench_require(tide_machine_copy(r->machine, 0, r->stream, destination, source, bytes), "copy");
}

// Brings device memory into r->pinned, on a machine that has memory.
static void rig_read(rig* r, const void* address, size_t bytes) {
  rig_copy(r, r->pinned, address, bytes);
  rig_synchronize(r);
}

static bool is_filled(const uint8_t* memory, uint8_t value, size_t bytes) {
  return memory[0] == value && memcmp(memory, memory + 1, bytes - 1) == 0;
}

static void count_call(void* user) { ((rig*)user)->called++; }

// ---------------------------------------------------------------------------------------------------
// Many small pieces of work, through to the end of the last

static uint8_t slot_value(const rig* r, uint64_t round) { return (uint8_t)(round * 7 + r->salt); }

// Two fills, a copy and a callback: four operations.
static void small_round(rig* r, uint64_t round) {
  const size_t offset = (size_t)(round % SLOTS) * SMALL_BYTES;
  uint8_t* spare = r->source + (size_t)SLOTS * SMALL_BYTES + offset;
  rig_fill(r, r->source + offset, slot_value(r, round), SMALL_BYTES);
  rig_copy(r, r->destination + offset, r->source + offset, SMALL_BYTES);
  rig_fill(r, spare, 0, SMALL_BYTES);
  bench_require(tide_machine_call(r->machine, 0, r->stream, count_call, r), "call");
}

static void small_before(void* user) {
  rig* r = user;
  r->called = 0;
  r->salt++;
}

static void small_work(void* user, uint64_t count) {
  rig* r = user;
  for (uint64_t i = 0; i < count / 4; i++) small_round(r, i);
  bench_require(tide_machine_stream_synchronize(r->machine, 0, r->stream), "stream_synchronize");
}

static void small_after(void* user) {
  rig* r = user;
  const uint64_t rounds = SMALL_OPERATIONS / 4;
  bench_verify(r->called == rounds, "callbacks of small operations");
  if (!r->has_memory) return;
  rig_read(r, r->destination, (size_t)SLOTS * SMALL_BYTES);
  for (uint64_t round = rounds - SLOTS; round < rounds; round++) {
    const uint8_t* slot = r->pinned + (size_t)(round % SLOTS) * SMALL_BYTES;
    bench_verify(is_filled(slot, slot_value(r, round), SMALL_BYTES), "small operations");
  }
}

static void measure_small(rig* r) {
  const bench_job job = { small_work, small_before, small_after, r, SMALL_OPERATIONS };
  rig_row(r, "stream of 100,000 small operations", 1e9 / bench_ns(&job), "operations/s");
}

// ---------------------------------------------------------------------------------------------------
// Single calls

static void fill_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) rig_fill(r, r->source, 1, SMALL_BYTES);
}

static void copy_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) rig_copy(r, r->destination, r->source, SMALL_BYTES);
}

static void call_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) bench_require(tide_machine_call(r->machine, 0, r->stream, count_call, r), "call");
}

static void record_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0)
    bench_require(tide_machine_event_record(r->machine, 0, r->event, r->stream), "event_record");
}

static void wait_before(void* user) { record_work(user, 1); }

static void wait_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0)
    bench_require(tide_machine_stream_wait(r->machine, 0, r->other, r->event), "stream_wait");
}

static void query(rig* r, uint64_t count, bool is_done_expected) {
  bool is_done = false;
  for (uint64_t i = 0; i < count; i++) {
    bench_require(tide_machine_event_query(r->machine, r->event, &is_done), "event_query");
    if (is_done != is_done_expected) break;
  }
  bench_verify(is_done == is_done_expected, "event_query");
}

static void query_idle_before(void* user) {
  record_work(user, 1);
  rig_synchronize(user);
}

static void query_idle_work(void* user, uint64_t count) { query(user, count, true); }
static void query_busy_work(void* user, uint64_t count) { query(user, count, false); }

static void gate_wait(void* user) {
  gate* g = user;
  (void)pthread_mutex_lock(&g->lock);
  while (!g->is_open) (void)pthread_cond_wait(&g->opened, &g->lock);
  (void)pthread_mutex_unlock(&g->lock);
}

static void gate_set(gate* g, bool is_open) {
  (void)pthread_mutex_lock(&g->lock);
  g->is_open = is_open;
  (void)pthread_cond_broadcast(&g->opened);
  (void)pthread_mutex_unlock(&g->lock);
}

// Nothing runs on the dry machine, so its stream is held by its own means.
static void query_busy_before(void* user) {
  rig* r = user;
  gate_set(&r->gate, false);
  if (r->has_memory) {
    bench_require(tide_machine_call(r->machine, 0, r->stream, gate_wait, &r->gate), "call");
  } else {
    bench_require(tide_dry_hold(r->machine, 0, r->stream, true), "hold");
    bench_require(tide_dry_work(r->machine, 0, r->stream, 1), "work");
  }
  record_work(r, 1);
}

static void query_busy_after(void* user) {
  rig* r = user;
  gate_set(&r->gate, true);
  if (!r->has_memory) bench_require(tide_dry_hold(r->machine, 0, r->stream, false), "hold");
  rig_synchronize(r);
}

static void latency_before(void* user) { ((rig*)user)->called = 0; }

static void latency_work(void* user, uint64_t count) {
  rig* r = user;
  for (uint64_t i = 0; i < count; i++) {
    call_work(r, 1);
    bench_require(tide_machine_stream_synchronize(r->machine, 0, r->stream), "stream_synchronize");
    if (r->called != i + 1) break;
  }
  bench_verify(r->called == count, "call and synchronize");
}

static void raw_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) {
    void* memory = NULL;
    bench_require(tide_machine_raw_alloc(r->machine, 0, (size_t)1 << 20, &memory), "raw_alloc");
    bench_require(tide_machine_raw_release(r->machine, 0, memory), "raw_release");
  }
}

static void pinned_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) {
    void* memory = NULL;
    bench_require(tide_machine_pinned_alloc(r->machine, (size_t)1 << 20, &memory), "pinned_alloc");
    bench_require(tide_machine_pinned_release(r->machine, memory), "pinned_release");
  }
}

static void measure_calls(rig* r) {
  const struct {
    const char* what;
    bench_job job;
  } cases[] = {
    { "fill of 256 bytes, queue only", { fill_work, NULL, rig_synchronize, r, 10000 } },
    { "copy of 256 bytes, queue only", { copy_work, NULL, rig_synchronize, r, 10000 } },
    { "call, queue only", { call_work, NULL, rig_synchronize, r, 10000 } },
    { "call, run and synchronize", { latency_work, latency_before, NULL, r, 1000 } },
    { "event_record", { record_work, NULL, rig_synchronize, r, 10000 } },
    { "event_query, idle stream", { query_idle_work, query_idle_before, NULL, r, 100000 } },
    { "event_query, busy stream", { query_busy_work, query_busy_before, query_busy_after, r, 100000 } },
    { "stream_wait", { wait_work, wait_before, rig_synchronize, r, 10000 } },
    { "raw_alloc and raw_release, 1 MiB", { raw_work, NULL, NULL, r, 200 } },
    { "pinned_alloc and pinned_release, 1 MiB", { pinned_work, NULL, NULL, r, 200 } },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    rig_row(r, cases[i].what, bench_ns(&cases[i].job), "ns");
}

// ---------------------------------------------------------------------------------------------------
// A large copy

static void large_before(void* user) {
  rig* r = user;
  r->salt++;
  rig_fill(r, r->source, r->salt, large_bytes);
  rig_synchronize(r);
}

static void large_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) rig_copy(r, r->destination, r->source, large_bytes);
  bench_require(tide_machine_stream_synchronize(r->machine, 0, r->stream), "stream_synchronize");
}

static void large_after(void* user) {
  rig* r = user;
  rig_read(r, r->destination, large_bytes);
  bench_verify(is_filled(r->pinned, r->salt, large_bytes), "copy of 64 MiB");
}

static void memcpy_work(void* user, uint64_t count) {
  rig* r = user;
  while (count-- > 0) memcpy(r->destination, r->source, large_bytes);
}

static double gib_per_second(double ns) { return (double)large_bytes / (double)(1 << 30) / (ns / 1e9); }

static void measure_large(rig* r, bool is_host) {
  const bench_job job = { large_work, large_before, large_after, r, 1 };
  const bench_job peer = { memcpy_work, large_before, large_after, r, 1 };
  rig_row(r, "copy of 64 MiB", gib_per_second(bench_ns(&job)), "GiB/s");
  if (is_host)
    bench_row_peer(r->run, "machine", "host copy of 64 MiB", "memcpy", gib_per_second(bench_ns(&peer)),
                   "GiB/s");
}

// ---------------------------------------------------------------------------------------------------
// Virtual memory: MAPPINGS pieces go through all phases together, each phase timed for itself

typedef struct piece {
  void* address;
  tide_physical physical;
} piece;

static tide_status piece_reserve(rig* r, piece* p) {
  return tide_machine_address_reserve(r->machine, 0, mapping_bytes, 0, NULL, &p->address);
}
static tide_status piece_physical_new(rig* r, piece* p) {
  return tide_machine_physical_new(r->machine, 0, mapping_bytes, 0, &p->physical);
}
static tide_status piece_map(rig* r, piece* p) {
  return tide_machine_map(r->machine, p->address, p->physical);
}
static tide_status piece_set_access(rig* r, piece* p) {
  return tide_machine_set_access(r->machine, p->address, mapping_bytes, 0, TIDE_ACCESS_READ_WRITE);
}
// Not measured: shows that the memory is there.
static tide_status piece_use(rig* r, piece* p) {
  const tide_status status = tide_machine_fill(r->machine, 0, r->stream, p->address, 42, 4096);
  if (status != TIDE_OK || !r->has_memory) return status;
  rig_read(r, p->address, 4096);
  bench_verify(is_filled(r->pinned, 42, 4096), "mapped memory");
  return TIDE_OK;
}
static tide_status piece_unmap(rig* r, piece* p) {
  return tide_machine_unmap(r->machine, p->address, mapping_bytes);
}
static tide_status piece_physical_free(rig* r, piece* p) {
  return tide_machine_physical_free(r->machine, p->physical);
}
static tide_status piece_release(rig* r, piece* p) {
  return tide_machine_address_release(r->machine, p->address, mapping_bytes);
}

static const struct {
  const char* name;
  const char* what;  // NULL: no row
  tide_status (*run)(rig* r, piece* p);
} phases[] = {
  { "address_reserve", "address_reserve, 2 MiB", piece_reserve },
  { "physical_new", "physical_new, 2 MiB", piece_physical_new },
  { "map", "map, 2 MiB", piece_map },
  { "set_access", "set_access, 2 MiB", piece_set_access },
  { "fill", NULL, piece_use },
  { "unmap", "unmap, 2 MiB", piece_unmap },
  { "physical_free", "physical_free, 2 MiB", piece_physical_free },
  { "address_release", "address_release, 2 MiB", piece_release },
};
enum { PHASES = sizeof phases / sizeof *phases };

static double phase_run(rig* r, size_t phase, piece* pieces) {
  const uint64_t start = bench_now();
  for (size_t i = 0; i < MAPPINGS; i++) bench_require(phases[phase].run(r, &pieces[i]), phases[phase].name);
  const uint64_t end = bench_now();
  rig_synchronize(r);
  return (double)(end - start) / (double)MAPPINGS;
}

static void measure_virtual(rig* r) {
  double values[PHASES][BENCH_RUNS + 1];  // the first run is thrown away
  piece pieces[MAPPINGS];
  memset(pieces, 0, sizeof pieces);
  for (size_t run = 0; run <= BENCH_RUNS; run++)
    for (size_t phase = 0; phase < PHASES; phase++) values[phase][run] = phase_run(r, phase, pieces);
  for (size_t phase = 0; phase < PHASES; phase++)
    if (phases[phase].what != NULL)
      rig_row(r, phases[phase].what, bench_median(values[phase] + 1, BENCH_RUNS), "ns");
}

// ---------------------------------------------------------------------------------------------------

static void rig_init(rig* r, bench* run, tide_machine* machine) {
  const bool is_dry = strcmp(tide_machine_name(machine), "dry") == 0;
  void* memory[3] = { NULL, NULL, NULL };
  bench_require(tide_machine_raw_alloc(machine, 0, large_bytes, &memory[0]), "raw_alloc");
  bench_require(tide_machine_raw_alloc(machine, 0, large_bytes, &memory[1]), "raw_alloc");
  bench_require(tide_machine_pinned_alloc(machine, large_bytes, &memory[2]), "pinned_alloc");
  *r = (rig){ .run = run, .machine = machine, .has_memory = !is_dry };
  r->source = memory[0];
  r->destination = memory[1];
  r->pinned = memory[2];
  (void)pthread_mutex_init(&r->gate.lock, NULL);
  (void)pthread_cond_init(&r->gate.opened, NULL);
  bench_require(tide_machine_stream_new(machine, 0, 0, 0, &r->stream), "stream_new");
  bench_require(tide_machine_stream_new(machine, 0, 0, 0, &r->other), "stream_new");
  bench_require(tide_machine_event_new(machine, 0, &r->event), "event_new");
}

static void rig_fini(rig* r) {
  bench_require(tide_machine_event_free(r->machine, r->event), "event_free");
  bench_require(tide_machine_stream_free(r->machine, 0, r->other), "stream_free");
  bench_require(tide_machine_stream_free(r->machine, 0, r->stream), "stream_free");
  bench_require(tide_machine_pinned_release(r->machine, r->pinned), "pinned_release");
  bench_require(tide_machine_raw_release(r->machine, 0, r->destination), "raw_release");
  bench_require(tide_machine_raw_release(r->machine, 0, r->source), "raw_release");
  (void)pthread_cond_destroy(&r->gate.opened);
  (void)pthread_mutex_destroy(&r->gate.lock);
}

static void measure_machine(bench* run, tide_machine* machine) {
  rig r;
  rig_init(&r, run, machine);
  measure_small(&r);
  measure_calls(&r);
  if (r.has_memory) measure_large(&r, strcmp(tide_machine_name(machine), "host") == 0);
  measure_virtual(&r);
  rig_fini(&r);
  tide_machine_free(machine);
}

void bench_machine(bench* run) {
  tide_machine* machine = NULL;
  bench_require(tide_machine_new_host(NULL, &machine), "new_host");
  measure_machine(run, machine);
  bench_require(tide_machine_new_dry(NULL, &machine), "new_dry");
  measure_machine(run, machine);
  if (tide_machine_new_cuda(NULL, &machine) == TIDE_OK) measure_machine(run, machine);
  else bench_skip(run, "machine", "cuda", tide_last_error()->text);
}
