// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Allocators under the workload of tensors. Each thread is bound to a processor and repeats a script
// (tensors_script.c). The cells are named by a letter and the number of threads:
//   A  64 B to 64 MiB, memory not touched: the cost of the allocator alone
//   B  the same, a byte of each page written
//   C  64 B to 64 KiB, touched
//   D  64 B to 4 MiB, touched, and sizes differ by up to a quarter in each run, as with dynamic shapes
//   X  64 B to 4 MiB; one thread allocates and touches, another releases, as a data loader hands over
//
// Other work on the computer distorts the wall clock, so rows also have the processor time, and the share
// that other programs used. In X this is the time of the busier thread, without its waits for the other.
// Whether threads hinder one another (A2) is measured in turns: the first thread alone and then both, with a
// static plan, which shares nothing, and with the allocator.
#define _GNU_SOURCE  // binding to a processor
#include "tensors.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "bench.h"
#include "tensors_script.h"
#include "tidemark/cpu.h"

enum {
  LANES = 2,
  PAGE = 4096,
  HUGE_PAGE = 2 << 20,
  ALIGNMENT = 64,
  RING = 64,                // tensors between the thread that allocates and the one that releases
  WARM_UPS = 3,             // runs of the script that do not count
  HAND_OVER_WARM_UPS = 16,  // the same, until two threads have fallen into step
  ROUNDS = 8,               // of turns, when the turns are several
  UNTOUCHED_RUNS = 64,      // between two looks at the clock
  TOUCHED_RUNS = 1,
  CLASSES = 64 * 8,  // of the toy: eight sizes in a doubling
  SLAB_BYTES = 65536
};

static const double kib = 1024;
static const double mib = 1024 * 1024;

static const tensors_cell cells[] = {
  { .name = "A1", .threads = 1, .low_bytes = 64, .high_bytes = 64.0 * 1024 * 1024 },
  { .name = "A2", .threads = 2, .low_bytes = 64, .high_bytes = 64.0 * 1024 * 1024 },
  { .name = "B1", .threads = 1, .low_bytes = 64, .high_bytes = 64.0 * 1024 * 1024, .is_touched = true },
  { .name = "B2", .threads = 2, .low_bytes = 64, .high_bytes = 64.0 * 1024 * 1024, .is_touched = true },
  { .name = "C1", .threads = 1, .low_bytes = 64, .high_bytes = 64.0 * 1024, .is_touched = true },
  { .name = "C2", .threads = 2, .low_bytes = 64, .high_bytes = 64.0 * 1024, .is_touched = true },
  { .name = "D1",
    .threads = 1,
    .low_bytes = 64,
    .high_bytes = 4.0 * 1024 * 1024,
    .jitter = 0.25,
    .is_touched = true },
  { .name = "X2",
    .threads = 2,
    .low_bytes = 64,
    .high_bytes = 4.0 * 1024 * 1024,
    .is_touched = true,
    .is_handed_over = true },
};
#define CELL_COUNT (sizeof cells / sizeof *cells)

static const char* const allocator_names[TENSORS_ALLOCATORS] = { "libc", "cache", "plan", "tide" };

const tensors_cell* tensors_cell_at(size_t index) { return index < CELL_COUNT ? &cells[index] : NULL; }

const tensors_cell* tensors_cell_find(const char* name) {
  for (size_t i = 0; i < CELL_COUNT; i++)
    if (strcmp(cells[i].name, name) == 0) return &cells[i];
  return NULL;
}

const char* tensors_allocator_name(tensors_allocator allocator) { return allocator_names[allocator]; }

bool tensors_allocator_find(const char* name, tensors_allocator* out) {
  for (size_t i = 0; i < TENSORS_ALLOCATORS; i++) {
    *out = (tensors_allocator)i;
    if (strcmp(allocator_names[i], name) == 0) return true;
  }
  return false;
}

bool tensors_allocator_can(tensors_allocator allocator, const tensors_cell* cell) {
  if (allocator == TENSORS_PLAN && cell->jitter > 0) return false;
  return !cell->is_handed_over || allocator == TENSORS_LIBC || allocator == TENSORS_TIDE;
}

// ---------------------------------------------------------------------------------------------------
// Threads and what they measured

// The threads of a turn, and their allocator.
typedef enum turn { TURN_PLAN_ALONE, TURN_PLAN_TOGETHER, TURN_ALONE, TURN_TOGETHER, TURNS } turn;

typedef struct tally {
  uint64_t operations;
  uint64_t ns;
  uint64_t processor_ns;
  uint64_t faults;
} tally;

// One thread.
typedef struct lane {
  size_t index;
  struct sample* sample;  // borrowed
  script script;          // owned
  void** addresses;       // owned; of each tensor
  size_t* bytes;          // owned; of each tensor, for the toy
  void* lists[CLASSES];   // the toy's idle memory
  size_t* offsets;        // owned; of the plan
  uint8_t* arena;         // of the plan
  uint64_t chance;
  uint64_t runs;
  uint64_t waited_ns;  // of the processor's time, for the other thread
  tally tallies[TURNS];
} lane;

// One measurement.
typedef struct sample {
  const tensors_cell* cell;
  tensors_allocator allocator;
  double seconds;
  tide_cpu_cache* cache;  // owned; TENSORS_TIDE alone
  pthread_barrier_t start;
  lane lanes[LANES];
  _Atomic(void*) ring[RING];
  tide__atomic_u32 is_over;
} sample;

static void* pages_map(size_t bytes) {
  void* const pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  bench_verify(pages != MAP_FAILED, "mmap");
  if (bytes >= HUGE_PAGE) (void)madvise(pages, bytes, MADV_HUGEPAGE);
  return pages;
}

// ---------------------------------------------------------------------------------------------------
// The allocators. Each has a function to take memory for a tensor and one to give it back, which call nothing
// but the allocator.

static inline void* libc_take(lane* l, size_t tensor, size_t bytes) {
  void* address = NULL;
  (void)l;
  (void)tensor;
  if (posix_memalign(&address, ALIGNMENT, bytes) != 0) bench_verify(false, "posix_memalign");
  return address;
}

static inline void libc_give(lane* l, size_t tensor, void* address) {
  (void)l;
  (void)tensor;
  free(address);
}

static inline void* tide_take(lane* l, size_t tensor, size_t bytes) {
  void* address = NULL;
  (void)tensor;
  const tide_status status = tide_cpu_alloc(l->sample->cache, bytes, &address);
  if (status != TIDE_OK) bench_require(status, "tide_cpu_alloc");
  return address;
}

static inline void tide_give(lane* l, size_t tensor, void* address) {
  (void)l;
  (void)tensor;
  const tide_status status = tide_cpu_release(address);
  if (status != TIDE_OK) bench_require(status, "tide_cpu_release");
}

static inline void* plan_take(lane* l, size_t tensor, size_t bytes) {
  (void)bytes;
  return l->arena + l->offsets[tensor];
}

static inline void plan_give(lane* l, size_t tensor, void* address) {
  (void)address;
  l->addresses[tensor] = NULL;
}

static inline unsigned highest_bit(size_t value) { return 63 - (unsigned)__builtin_clzll(value); }

// The number of a class of sizes, and the size.
static inline size_t toy_class(size_t bytes, size_t* out_rounded) {
  const size_t wanted = bytes < ALIGNMENT ? ALIGNMENT : bytes;
  const size_t step = (size_t)1 << (highest_bit(wanted) - 3);
  const size_t rounded = (wanted + step - 1) & ~(step - 1);
  const unsigned power = highest_bit(rounded);
  *out_rounded = rounded;
  return (size_t)power * 8 + ((rounded >> (power - 3)) & 7);
}

static inline void toy_push(lane* l, size_t number, void* block) {
  *(void**)block = l->lists[number];
  l->lists[number] = block;
}

// Small blocks are cut from pages by the slab; the first is the one returned.
static void* toy_refill(lane* l, size_t number, size_t bytes) {
  if (bytes >= SLAB_BYTES) return pages_map(bytes);
  const size_t slab_bytes = SLAB_BYTES > bytes * 8 ? SLAB_BYTES : bytes * 8;
  uint8_t* const slab = pages_map(slab_bytes);
  for (size_t offset = bytes; offset + bytes <= slab_bytes; offset += bytes)
    toy_push(l, number, slab + offset);
  return slab;
}

static inline void* cache_take(lane* l, size_t tensor, size_t bytes) {
  size_t rounded = 0;
  const size_t number = toy_class(bytes, &rounded);
  void* const block = l->lists[number];
  l->bytes[tensor] = bytes;
  if (block == NULL) return toy_refill(l, number, rounded);
  l->lists[number] = *(void**)block;
  return block;
}

static inline void cache_give(lane* l, size_t tensor, void* address) {
  size_t rounded = 0;
  toy_push(l, toy_class(l->bytes[tensor], &rounded), address);
}

// ---------------------------------------------------------------------------------------------------
// Running the script

static inline void touch(uint8_t* address, size_t bytes) {
  for (size_t offset = 0; offset < bytes; offset += PAGE) *(volatile uint8_t*)(address + offset) = 1;
}

// Compiled once for each allocator, whose functions become part of it.
static inline __attribute__((always_inline)) void lane_run(lane* l, void* (*take)(lane*, size_t, size_t),
                                                           void (*give)(lane*, size_t, void*)) {
  const bool is_touched = l->sample->cell->is_touched;
  const double jitter = l->sample->cell->jitter;
  for (size_t i = 0; i < l->script.event_count; i++) {
    const script_event* const event = &l->script.events[i];
    if (event->is_release) {
      give(l, event->tensor, l->addresses[event->tensor]);
      continue;
    }
    const size_t bytes = script_bytes(event->bytes, jitter, &l->chance);
    void* const address = take(l, event->tensor, bytes);
    if (is_touched) touch(address, bytes);
    l->addresses[event->tensor] = address;
  }
  l->runs++;
}

static void lane_run_by(lane* l, tensors_allocator allocator) {
  switch (allocator) {
    case TENSORS_CACHE: lane_run(l, cache_take, cache_give); break;
    case TENSORS_PLAN: lane_run(l, plan_take, plan_give); break;
    case TENSORS_TIDE: lane_run(l, tide_take, tide_give); break;
    default: lane_run(l, libc_take, libc_give); break;
  }
}

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  (void)clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// What this thread has used so far.
static tally tally_now(void) {
  struct rusage usage;
  (void)getrusage(RUSAGE_THREAD, &usage);
  return (tally){ 0, bench_now(), clock_ns(CLOCK_THREAD_CPUTIME_ID), (uint64_t)usage.ru_minflt };
}

static void tally_add(tally* sum, const tally* before, uint64_t operations) {
  const tally now = tally_now();
  sum->operations += operations;
  sum->ns += now.ns - before->ns;
  sum->processor_ns += now.processor_ns - before->processor_ns;
  sum->faults += now.faults - before->faults;
}

static void lane_work(lane* l, tally* sum, tensors_allocator allocator, double seconds) {
  const int runs = l->sample->cell->is_touched ? TOUCHED_RUNS : UNTOUCHED_RUNS;
  const tally before = tally_now();
  const uint64_t end = before.ns + (uint64_t)(seconds * 1e9);
  uint64_t operations = 0;
  do {
    for (int i = 0; i < runs; i++) lane_run_by(l, allocator);
    operations += l->script.tensors * (uint64_t)runs;
  } while (bench_now() < end);
  tally_add(sum, &before, operations);
}

// Threads that share nothing are only measured where the memory of their plans is not there.
static bool sample_has_turns(const sample* s) { return s->cell->threads > 1 && !s->cell->is_touched; }

static void lane_turn(lane* l, turn which, double seconds) {
  const bool is_alone = which == TURN_ALONE || which == TURN_PLAN_ALONE;
  const bool is_plan = which == TURN_PLAN_ALONE || which == TURN_PLAN_TOGETHER;
  (void)pthread_barrier_wait(&l->sample->start);
  if (is_alone && l->index > 0) return;
  lane_work(l, &l->tallies[which], is_plan ? TENSORS_PLAN : l->sample->allocator, seconds);
}

static void lane_repeat(lane* l) {
  for (int i = 0; i < WARM_UPS; i++) lane_run_by(l, l->sample->allocator);
  if (!sample_has_turns(l->sample)) {
    lane_turn(l, TURN_TOGETHER, l->sample->seconds);
    return;
  }
  for (int round = 0; round < ROUNDS; round++)
    for (int which = 0; which < TURNS; which++) lane_turn(l, (turn)which, l->sample->seconds / ROUNDS);
}

// ---------------------------------------------------------------------------------------------------
// Handing over: a ring of places, each NULL or a tensor on its way

// What a thread uses while it waits is not its work.
static void ring_put(lane* l, size_t place, void* address) {
  _Atomic(void*)* const slot = &l->sample->ring[place];
  if (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
    const uint64_t start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (atomic_load_explicit(slot, memory_order_acquire) != NULL) tide__cpu_relax();
    l->waited_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
  }
  atomic_store_explicit(slot, address, memory_order_release);
}

// NULL when nothing more will come.
static void* ring_take(lane* l, size_t place) {
  _Atomic(void*)* const slot = &l->sample->ring[place];
  void* address = atomic_load_explicit(slot, memory_order_acquire);
  if (address == NULL) {
    const uint64_t start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (bool is_over = false; address == NULL && !is_over;) {
      tide__cpu_relax();
      is_over = tide__load_acquire(&l->sample->is_over) != 0;
      address = atomic_load_explicit(slot, memory_order_acquire);
    }
    l->waited_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
  }
  if (address != NULL) atomic_store_explicit(slot, NULL, memory_order_release);
  return address;
}

// Allocates all tensors of the script in their order. Returns the next place.
static size_t lane_hand_over(lane* l, size_t place) {
  sample* const s = l->sample;
  for (size_t i = 0; i < l->script.event_count; i++) {
    const script_event* const event = &l->script.events[i];
    if (event->is_release) continue;
    void* const address = s->allocator == TENSORS_TIDE ? tide_take(l, event->tensor, event->bytes)
                                                       : libc_take(l, event->tensor, event->bytes);
    touch(address, event->bytes);
    ring_put(l, place, address);
    place = (place + 1) % RING;
  }
  return place;
}

static void lane_produce(lane* l) {
  tally* const sum = &l->tallies[TURN_TOGETHER];
  size_t place = 0;
  uint64_t operations = 0;
  for (int i = 0; i < HAND_OVER_WARM_UPS; i++) place = lane_hand_over(l, place);
  l->waited_ns = 0;
  const tally before = tally_now();
  const uint64_t end = before.ns + (uint64_t)(l->sample->seconds * 1e9);
  do {
    place = lane_hand_over(l, place);
    operations += l->script.tensors;
  } while (bench_now() < end);
  tally_add(sum, &before, operations);
  sum->processor_ns -= l->waited_ns;
  tide__store_release(&l->sample->is_over, 1);
}

static void lane_consume(lane* l) {
  tally* const sum = &l->tallies[TURN_TOGETHER];
  const bool is_tide = l->sample->allocator == TENSORS_TIDE;
  const tally before = tally_now();
  uint64_t operations = 0;
  for (void* address = NULL; (address = ring_take(l, operations % RING)) != NULL; operations++) {
    if (is_tide) tide_give(l, 0, address);
    else libc_give(l, 0, address);
  }
  tally_add(sum, &before, operations);
  sum->processor_ns -= l->waited_ns;
}

// ---------------------------------------------------------------------------------------------------
// A sample

static void lane_bind(const lane* l) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(l->index % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void lane_init(lane* l, sample* s, size_t index) {
  const bool needs_plan = s->allocator == TENSORS_PLAN || sample_has_turns(s);
  const uint64_t seed = s->cell->is_handed_over ? 42 : (index + 1) * 0x9E3779B97F4A7C15u;
  size_t arena_bytes = 0;
  l->index = index;
  l->sample = s;
  l->chance = 77 + index;
  l->script = script_new(seed, s->cell->low_bytes, s->cell->high_bytes);
  l->addresses = bench_alloc(l->script.tensors, sizeof *l->addresses);
  l->bytes = bench_alloc(l->script.tensors, sizeof *l->bytes);
  if (!needs_plan) return;
  l->offsets = script_plan(&l->script, &arena_bytes);
  l->arena = pages_map(arena_bytes);
}

static void lane_fini(lane* l) {
  script_free(&l->script);
  free(l->addresses);
  free(l->bytes);
  free(l->offsets);
}

static void* lane_main(void* user) {
  lane* const l = user;
  lane_bind(l);
  if (!l->sample->cell->is_handed_over) lane_repeat(l);
  else if (l->index == 0) lane_produce(l);
  else lane_consume(l);
  return NULL;
}

static uint64_t lane_peak_bytes(const lane* l) {
  const tensors_cell* const cell = l->sample->cell;
  // One is being made and one released beside those in the ring.
  if (cell->is_handed_over) return l->index == 0 ? script_peak_in_flight(&l->script, RING + 2) : 0;
  return script_peak_bytes(&l->script, cell->jitter, 77 + l->index, cell->jitter > 0 ? l->runs : 1);
}

// The most memory this process ever had. What getrusage() says would count the program that started it.
static double peak_rss_mib(void) {
  char line[256];
  double result = 0;
  FILE* const file = fopen("/proc/self/status", "r");
  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, "VmHWM:", 6) == 0) result = strtod(line + 6, NULL) / kib;
  (void)fclose(file);
  return result;
}

// Seconds that all processors have worked since the computer was started; 0 if unknown.
static double busy_seconds(void) {
  char line[256];
  double sum = 0;
  FILE* const file = fopen("/proc/stat", "r");
  if (file == NULL) return 0;
  char* text = fgets(line, sizeof line, file) != NULL ? line + strcspn(line, " ") : NULL;
  for (int field = 0; text != NULL && field < 8; field++) {
    const double ticks = strtod(text, &text);
    if (field != 3 && field != 4) sum += ticks;  // idle, and idle for a disk
  }
  (void)fclose(file);
  return sum / (double)sysconf(_SC_CLK_TCK);
}

static double per_operation(uint64_t value, const tally* t) {
  return t->operations == 0 ? 0 : (double)value / (double)t->operations;
}

static double growth(const tally* alone, const tally* together) {
  return per_operation(together->ns, together) / per_operation(alone->ns, alone);
}

static double processor_growth(const tally* alone, const tally* together) {
  return per_operation(together->processor_ns, together) / per_operation(alone->processor_ns, alone);
}

// Each thread counts alike, or, when one hands over to another, the clock of the first and the one with more
// work to do.
static tensors_result sample_result(const sample* s) {
  tensors_result result = { .peak_rss_mib = peak_rss_mib() };
  const double share = s->cell->is_handed_over ? 1 : 1 / (double)s->cell->threads;
  for (size_t i = 0; i < s->cell->threads; i++) {
    const tally* const t = &s->lanes[i].tallies[TURN_TOGETHER];
    const double processor_ns = per_operation(t->processor_ns, t);
    result.peak_live_mib += (double)lane_peak_bytes(&s->lanes[i]) / mib;
    result.faults += per_operation(t->faults, t) * share;
    if (!s->cell->is_handed_over) result.processor_ns += processor_ns * share;
    else if (processor_ns > result.processor_ns) result.processor_ns = processor_ns;
    if (!s->cell->is_handed_over || i == 0) result.ns += per_operation(t->ns, t) * share;
  }
  if (!sample_has_turns(s)) return result;
  const tally* const turns = s->lanes[0].tallies;
  result.growth = growth(&turns[TURN_ALONE], &turns[TURN_TOGETHER]);
  result.loss = growth(&turns[TURN_PLAN_ALONE], &turns[TURN_PLAN_TOGETHER]);
  result.processor_growth = processor_growth(&turns[TURN_ALONE], &turns[TURN_TOGETHER]);
  result.processor_loss = processor_growth(&turns[TURN_PLAN_ALONE], &turns[TURN_PLAN_TOGETHER]);
  return result;
}

static void sample_init(sample* s, const tensors_cell* cell, tensors_allocator allocator, double seconds) {
  s->cell = cell;
  s->allocator = allocator;
  s->seconds = seconds;
  if (allocator == TENSORS_TIDE) bench_require(tide_cpu_new(NULL, &s->cache), "tide_cpu_new");
  bench_verify(pthread_barrier_init(&s->start, NULL, (unsigned)cell->threads) == 0, "pthread_barrier_init");
  for (size_t i = 0; i < cell->threads; i++) lane_init(&s->lanes[i], s, i);
}

static void sample_fini(sample* s) {
  uint64_t orphans = 0;
  for (size_t i = 0; i < s->cell->threads; i++) lane_fini(&s->lanes[i]);
  (void)pthread_barrier_destroy(&s->start);
  if (s->cache == NULL) return;
  bench_verify(tide_cpu_check(s->cache) == 0, "tide_cpu_check");
  tide_cpu_free(s->cache, &orphans);
  bench_verify(orphans == 0, "everything was released");
}

static void sample_run(sample* s) {
  pthread_t threads[LANES];
  for (size_t i = 0; i < s->cell->threads; i++)
    bench_verify(pthread_create(&threads[i], NULL, lane_main, &s->lanes[i]) == 0, "pthread_create");
  for (size_t i = 0; i < s->cell->threads; i++) (void)pthread_join(threads[i], NULL);
}

tensors_result tensors_measure(const tensors_cell* cell, tensors_allocator allocator, double seconds) {
  static sample s;
  s = (sample){ .cell = NULL };
  sample_init(&s, cell, allocator, seconds);

  const double busy = busy_seconds();
  const uint64_t start = bench_now();
  const uint64_t processor = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  sample_run(&s);
  const double own = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - processor) / 1e9;
  const double wall = (double)(bench_now() - start) / 1e9 * (double)sysconf(_SC_NPROCESSORS_ONLN);

  tensors_result result = sample_result(&s);
  result.others = (busy_seconds() - busy - own) / wall;
  sample_fini(&s);
  return result;
}
