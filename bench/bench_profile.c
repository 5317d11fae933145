// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the profile-guided arena costs, and how good its plans are. A drill is a run of some program: requests
// and releases in their order.
//   recording  an event, told by notes and through alloc and release, with 64 and 4096 pieces live; and the
//              same served by the fallback without a run, and by the C library
//   replay     an alloc and a release apart, in a drill where 500 of the one follow 500 of the other, and as
//              a pair in a drill where each follows the other; for plans of 1,000 to 500,000 requests; and
//              a release when these come in another order than recorded
//   planning   random runs, recordings of real runs, and a step of training as a generator makes it: seconds
//              to record and to plan, and how much larger than the lower bound the arena is, beside plain
//              best fit and a thorough search
// Each drill also runs with malloc and free. The clock is read every 500 steps, and rows have the median of
// these times, so that other work on the computer disturbs little. Nothing touches the memory that is handed
// out, and the arena of the recordings has no memory at all, only an address.
//
// The recordings lie in the folder `traces` of $TIDEMARK_DATA, by default ../shared, and are opened with the
// program `xz`; without either their rows are skipped.
#include "bench.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plan_problems.h"
#include "tidemark/problem.h"
#include "tidemark/profile.h"

enum { DRILL_BLOCK = 500, DRILL_LIVE = 64, DRILL_PATH = 1024, DRILL_PLANS = 3 };

extern char** environ;

// ---------------------------------------------------------------------------------------------------
// Drills

// A program keeps its blocks in slots, so that its table is no larger than the number of live blocks.
typedef struct drill {
  uint32_t* steps;  // owned; slot << 1 | is a release
  uint64_t* bytes;  // owned; of each request
  size_t step_count;
  size_t requests;
  size_t slots;
} drill;

// From 64 bytes to 64 KiB; every power of two is equally likely.
static uint64_t drill_size(uint64_t* state) {
  const uint64_t power = (uint64_t)64 << bench_random(state) % 10;
  return power + bench_random(state) % power;
}

static drill drill_new(size_t requests, size_t slots) {
  return (drill){ .steps = bench_alloc(2 * requests, sizeof(uint32_t)),
                  .bytes = bench_alloc(requests, sizeof(uint64_t)),
                  .slots = slots };
}

static void drill_free(drill* d) {
  free(d->steps);
  free(d->bytes);
  *d = (drill){ NULL, NULL, 0, 0, 0 };
}

static void drill_request(drill* d, size_t slot, uint64_t bytes) {
  d->steps[d->step_count++] = (uint32_t)slot << 1;
  d->bytes[d->requests++] = bytes;
}

static void drill_release(drill* d, size_t slot) { d->steps[d->step_count++] = (uint32_t)slot << 1 | 1; }

// Each request follows the release of the oldest of `live` pieces, or of any of them.
static drill drill_churn(size_t requests, size_t live, bool is_chain) {
  drill d = drill_new(requests, live);
  uint64_t state = 7;
  for (size_t i = 0; i < requests; i++) {
    const size_t slot = is_chain || i < live ? i % live : bench_random(&state) % live;
    if (i >= live) drill_release(&d, slot);
    drill_request(&d, slot, drill_size(&state));
  }
  for (size_t slot = 0; slot < live; slot++) drill_release(&d, slot);
  return d;
}

// Blocks of requests, each followed by the release of all of them in some order.
static drill drill_blocks(size_t requests, uint64_t order_seed) {
  drill d = drill_new(requests, DRILL_BLOCK);
  uint64_t state = 7;
  uint32_t order[DRILL_BLOCK];
  for (uint32_t i = 0; i < DRILL_BLOCK; i++) order[i] = i;
  while (d.requests < requests) {
    for (size_t i = 0; i < DRILL_BLOCK; i++) drill_request(&d, i, drill_size(&state));
    for (size_t left = DRILL_BLOCK; left > 0; left--) {
      const size_t pick = bench_random(&order_seed) % left;
      const uint32_t slot = order[pick];
      order[pick] = order[left - 1];
      order[left - 1] = slot;
      drill_release(&d, slot);
    }
  }
  return d;
}

// ---------------------------------------------------------------------------------------------------
// Drills out of lifetimes

typedef struct drill_event {
  uint64_t time;
  uint32_t buffer;
  bool is_request;  // at one time, releases come first
} drill_event;

static int drill_event_compare(const void* a, const void* b) {
  const drill_event* const x = a;
  const drill_event* const y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  if (x->is_request != y->is_request) return x->is_request ? 1 : -1;
  return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static drill_event* drill_sort(const tide_plan_buffer* buffers, size_t count, size_t* out_count) {
  drill_event* const events = bench_alloc(2 * count, sizeof *events);
  *out_count = 0;
  for (size_t i = 0; i < count; i++) {
    if (buffers[i].bytes == 0 || buffers[i].lower >= buffers[i].upper) continue;
    events[(*out_count)++] = (drill_event){ buffers[i].lower, (uint32_t)i, true };
    events[(*out_count)++] = (drill_event){ buffers[i].upper, (uint32_t)i, false };
  }
  qsort(events, *out_count, sizeof *events, drill_event_compare);
  return events;
}

static drill drill_of_buffers(const tide_plan_buffer* buffers, size_t count) {
  size_t event_count = 0;
  drill_event* const events = drill_sort(buffers, count, &event_count);
  uint32_t* const slots = bench_alloc(count, sizeof *slots);
  uint32_t* const idle = bench_alloc(count, sizeof *idle);
  size_t idle_count = 0;
  drill d = drill_new(count, 0);
  for (size_t i = 0; i < event_count; i++) {
    const uint32_t buffer = events[i].buffer;
    if (events[i].is_request) {
      slots[buffer] = idle_count > 0 ? idle[--idle_count] : (uint32_t)d.slots++;
      drill_request(&d, slots[buffer], buffers[buffer].bytes);
    } else {
      idle[idle_count++] = slots[buffer];
      drill_release(&d, slots[buffer]);
    }
  }
  free(events);
  free(slots);
  free(idle);
  return d;
}

// ---------------------------------------------------------------------------------------------------
// Recordings

static tide_status drill_source_read(void* user, void* out, size_t room, size_t* out_bytes) {
  *out_bytes = fread(out, 1, room, user);
  return TIDE_OK;
}

// Starts `xz` with its output in a pipe; NULL if there is no such program.
static FILE* drill_unpack(char* path, pid_t* out_pid) {
  int ends[2];
  posix_spawn_file_actions_t actions;
  char program[] = "xz";
  char option[] = "-dc";
  char* argv[] = { program, option, path, NULL };
  bench_verify(pipe(ends) == 0 && posix_spawn_file_actions_init(&actions) == 0, "pipe");
  (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
  (void)posix_spawn_file_actions_addclose(&actions, ends[1]);
  const int error = posix_spawnp(out_pid, program, &actions, NULL, argv, environ);
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)close(ends[1]);
  FILE* const stream = error == 0 ? fdopen(ends[0], "rb") : NULL;
  if (stream == NULL) (void)close(ends[0]);
  return stream;
}

// Reads the requests of a recording; false, with the reason, if it cannot be opened.
static bool drill_of_recording(const char* name, drill* out, const char** out_why) {
  char path[DRILL_PATH];
  tide_trace* trace = NULL;
  tide_problem* problem = NULL;
  pid_t pid = 0;
  const char* const data = getenv("TIDEMARK_DATA");
  const bool is_set = data != NULL && *data != '\0';
  const int length = snprintf(path, sizeof path, "%s/traces/%s.pickle.xz", is_set ? data : "../shared", name);
  *out_why = "it is not in the folder traces of TIDEMARK_DATA";
  if (length < 0 || length >= DRILL_PATH || access(path, R_OK) != 0) return false;
  FILE* const stream = drill_unpack(path, &pid);
  *out_why = "there is no program xz on the PATH";
  if (stream == NULL) return false;
  const tide_source source = { drill_source_read, stream };
  bench_require(tide_trace_read(&source, NULL, &trace), path);
  bench_require(tide_problem_new(trace, 0, NULL, &problem), path);
  const tide_plan_problem view = tide_problem_plan(problem);
  *out = drill_of_buffers(view.buffers, view.count);
  tide_problem_free(problem);
  tide_trace_free(trace);
  (void)fclose(stream);
  (void)waitpid(pid, NULL, 0);
  return true;
}

// ---------------------------------------------------------------------------------------------------
// Running a drill

typedef struct drill_rig {
  const drill* drill;     // borrowed
  tide_profile* profile;  // owned
  void** held;            // owned; the piece in each slot
  double* samples;        // owned; ns of a step in each stretch of DRILL_BLOCK of them, in one run
} drill_rig;

static size_t drill_stretches(const drill* d) { return (d->step_count + DRILL_BLOCK - 1) / DRILL_BLOCK; }

static inline void rig_malloc(drill_rig* rig, size_t slot, size_t bytes) {
  rig->held[slot] = malloc(bytes);
  if (rig->held[slot] == NULL) abort();
}

static inline void rig_free(drill_rig* rig, size_t slot) { free(rig->held[slot]); }

static inline void rig_malloc_aligned(drill_rig* rig, size_t slot, size_t bytes) {
  if (posix_memalign(&rig->held[slot], 64, bytes) != 0) abort();
}

static inline void rig_alloc(drill_rig* rig, size_t slot, size_t bytes) {
  if (tide_profile_alloc(rig->profile, bytes, 0, &rig->held[slot]) != TIDE_OK) abort();
}

static inline void rig_release(drill_rig* rig, size_t slot) {
  if (tide_profile_release(rig->profile, rig->held[slot]) != TIDE_OK) abort();
}

// An address as the program's own allocator would return it; nothing reads it.
static inline const void* rig_address(size_t slot) {
  return (const void*)((uintptr_t)1 << 40 | (uintptr_t)slot * 66064);
}

static inline void rig_note_alloc(drill_rig* rig, size_t slot, size_t bytes) {
  if (tide_profile_note_alloc(rig->profile, rig_address(slot), bytes, 0) != TIDE_OK) abort();
}

static inline void rig_note_release(drill_rig* rig, size_t slot) {
  if (tide_profile_note_release(rig->profile, rig_address(slot)) != TIDE_OK) abort();
}

typedef void (*rig_take)(drill_rig* rig, size_t slot, size_t bytes);
typedef void (*rig_give)(drill_rig* rig, size_t slot);

// Always inlined, so that `take` and `give` are no calls through pointers.
__attribute__((always_inline)) static inline void rig_play(drill_rig* rig, rig_take take, rig_give give) {
  const drill* const d = rig->drill;
  const uint64_t* bytes = d->bytes;
  uint64_t start = bench_now();
  for (size_t i = 0, sample = 0; i < d->step_count; sample++) {
    const size_t first = i;
    const size_t end = d->step_count - i < DRILL_BLOCK ? d->step_count : i + DRILL_BLOCK;
    for (; i < end; i++) {
      if (d->steps[i] & 1) give(rig, d->steps[i] >> 1);
      else take(rig, d->steps[i] >> 1, *bytes++);
    }
    const uint64_t now = bench_now();
    rig->samples[sample] = (double)(now - start) / (double)(end - first);
    start = now;
  }
}

static void rig_play_malloc(drill_rig* rig) { rig_play(rig, rig_malloc, rig_free); }
static void rig_play_aligned(drill_rig* rig) { rig_play(rig, rig_malloc_aligned, rig_free); }
static void rig_play_profile(drill_rig* rig) { rig_play(rig, rig_alloc, rig_release); }
static void rig_play_notes(drill_rig* rig) { rig_play(rig, rig_note_alloc, rig_note_release); }

static void rig_init(drill_rig* rig, const drill* d, const tide_profile_options* options) {
  *rig = (drill_rig){ .drill = d,
                      .held = bench_alloc(d->slots, sizeof(void*)),
                      .samples = bench_alloc(drill_stretches(d), sizeof(double)) };
  bench_require(tide_profile_new(options, &rig->profile), "profile_new");
}

static void rig_fini(drill_rig* rig) {
  tide_profile_free(rig->profile);
  free(rig->held);
  free(rig->samples);
}

static void rig_begin(drill_rig* rig, tide_profile_mode mode) {
  bench_require(tide_profile_begin(rig->profile, mode, 0), "profile_begin");
}

// The run must have been the one that was planned.
static tide_profile_report rig_end(drill_rig* rig) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  bench_require(tide_profile_end(rig->profile, &report), "profile_end");
  const bool is_recorded = report.mode == TIDE_PROFILE_RECORD;
  bench_verify(report.requests == rig->drill->requests, "requests are missing");
  bench_verify(is_recorded || (report.is_same && report.hits == report.requests), "the run deviates");
  return report;
}

// ---------------------------------------------------------------------------------------------------
// Recording and replay

static void profile_row(bench* run, const char* what, const char* of, double value, const char* unit) {
  char label[96];
  (void)snprintf(label, sizeof label, "%s, %s", what, of);
  bench_row(run, "profile", label, value, unit);
}

static void profile_row_peer(bench* run, const char* what, const char* of, const char* peer, double ns) {
  char label[96];
  (void)snprintf(label, sizeof label, "%s, %s", what, of);
  bench_row_peer(run, "profile", label, peer, ns, "ns");
}

static void replay_plan(drill_rig* rig, const drill* d, tide_profile_planner planner) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.planner = planner;
  rig_init(rig, d, &options);
  rig_begin(rig, TIDE_PROFILE_RECORD);
  rig_play_notes(rig);
  (void)rig_end(rig);
}

// The stretches of all runs of a drill.
typedef struct stretches {
  double* all;   // owned
  double* even;  // owned; of drill_blocks(), the requests
  double* odd;   // owned; and the releases
  size_t count;
} stretches;

static size_t replay_runs(const drill* d) { return d->requests < 20000 ? 140000 / d->requests : BENCH_RUNS; }

static stretches stretches_new(const drill* d) {
  const size_t room = drill_stretches(d) * replay_runs(d);
  return (stretches){ .all = bench_alloc(room, sizeof(double)),
                      .even = bench_alloc(room, sizeof(double)),
                      .odd = bench_alloc(room, sizeof(double)) };
}

static void stretches_free(stretches* s) {
  free(s->all);
  free(s->even);
  free(s->odd);
}

static void stretches_add(stretches* s, const drill_rig* rig) {
  const size_t count = drill_stretches(rig->drill);
  for (size_t i = 0; i < count; i++, s->count++) {
    s->all[s->count] = rig->samples[i];
    (i % 2 == 0 ? s->even : s->odd)[s->count / 2] = rig->samples[i];
  }
}

// These recordings are not planned.
static void replay_once(drill_rig* rig, tide_profile_mode mode, void (*play)(drill_rig* rig)) {
  if (mode != TIDE_PROFILE_NONE) rig_begin(rig, mode);
  play(rig);
  if (mode == TIDE_PROFILE_RECORD) bench_require(tide_profile_cancel(rig->profile), "profile_cancel");
  else if (mode != TIDE_PROFILE_NONE) (void)rig_end(rig);
}

// Runs a drill as often as it needs; the first time is not counted.
static stretches replay(drill_rig* rig, tide_profile_mode mode, void (*play)(drill_rig* rig)) {
  stretches s = stretches_new(rig->drill);
  replay_once(rig, mode, play);
  for (size_t i = replay_runs(rig->drill); i > 0; i--) {
    replay_once(rig, mode, play);
    stretches_add(&s, rig);
  }
  return s;
}

// The median of a step.
static double replay_median(drill_rig* rig, tide_profile_mode mode, void (*play)(drill_rig* rig)) {
  stretches s = replay(rig, mode, play);
  const double median = bench_median(s.all, s.count);
  stretches_free(&s);
  return median;
}

static void measure_recording(bench* run, const char* name, size_t live, bool is_chain) {
  drill d = drill_churn(100000, live, is_chain);
  drill_rig rig;
  rig_init(&rig, &d, NULL);
  profile_row(run, "recorded by notes, an event", name,
              replay_median(&rig, TIDE_PROFILE_RECORD, rig_play_notes), "ns");
  profile_row(run, "recorded and served, an event", name,
              replay_median(&rig, TIDE_PROFILE_RECORD, rig_play_profile), "ns");
  profile_row(run, "served, an event", name, replay_median(&rig, TIDE_PROFILE_NONE, rig_play_profile), "ns");
  profile_row_peer(run, "an event", name, "posix_memalign",
                   replay_median(&rig, TIDE_PROFILE_NONE, rig_play_aligned));
  profile_row_peer(run, "an event", name, "malloc", replay_median(&rig, TIDE_PROFILE_NONE, rig_play_malloc));
  rig_fini(&rig);
  drill_free(&d);
}

static void measure_pairs(bench* run, const char* name, size_t requests) {
  drill d = drill_churn(requests, DRILL_LIVE, false);
  drill_rig rig;
  replay_plan(&rig, &d, TIDE_PROFILE_TOP_FIT);
  profile_row(run, "replayed, a pair", name, 2 * replay_median(&rig, TIDE_PROFILE_REPLAY, rig_play_profile),
              "ns");
  profile_row_peer(run, "a pair", name, "malloc",
                   2 * replay_median(&rig, TIDE_PROFILE_NONE, rig_play_malloc));
  profile_row(run, "validated by notes, an event", name,
              replay_median(&rig, TIDE_PROFILE_VALIDATE, rig_play_notes), "ns");
  rig_fini(&rig);
  drill_free(&d);
}

static void measure_apart(bench* run, const char* name, size_t requests) {
  drill d = drill_blocks(requests, 7);
  drill other = drill_blocks(requests, 8);
  drill_rig rig;
  replay_plan(&rig, &d, TIDE_PROFILE_TOP_FIT);
  stretches ours = replay(&rig, TIDE_PROFILE_REPLAY, rig_play_profile);
  stretches theirs = replay(&rig, TIDE_PROFILE_NONE, rig_play_malloc);
  rig.drill = &other;
  stretches reordered = replay(&rig, TIDE_PROFILE_REPLAY, rig_play_profile);
  profile_row(run, "replayed, an alloc", name, bench_median(ours.even, ours.count / 2), "ns");
  profile_row(run, "replayed, a release", name, bench_median(ours.odd, ours.count / 2), "ns");
  profile_row(run, "replayed, a release, reordered", name, bench_median(reordered.odd, reordered.count / 2),
              "ns");
  profile_row_peer(run, "an alloc", name, "malloc", bench_median(theirs.even, theirs.count / 2));
  profile_row_peer(run, "a release", name, "malloc", bench_median(theirs.odd, theirs.count / 2));
  stretches_free(&ours);
  stretches_free(&theirs);
  stretches_free(&reordered);
  rig_fini(&rig);
  drill_free(&other);
  drill_free(&d);
}

// What a run costs beside its requests.
static void measure_begin(bench* run, const char* name, size_t requests) {
  drill d = drill_churn(requests, DRILL_LIVE, false);
  drill_rig rig;
  double us[BENCH_RUNS];
  replay_plan(&rig, &d, TIDE_PROFILE_TOP_FIT);
  for (size_t i = 0; i < BENCH_RUNS; i++) {
    const uint64_t start = bench_now();
    rig_begin(&rig, TIDE_PROFILE_REPLAY);
    const uint64_t middle = bench_now();
    rig_play_profile(&rig);
    const uint64_t last = bench_now();
    (void)rig_end(&rig);
    us[i] = (double)(bench_now() - last + (middle - start)) * 1e-3;
  }
  profile_row(run, "replayed, begin and end", name, bench_median(us, BENCH_RUNS), "us");
  rig_fini(&rig);
  drill_free(&d);
}

// ---------------------------------------------------------------------------------------------------
// Planning

// An arena that has an address but no memory.
static tide_status nowhere_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  (void)memory;
  (void)bytes;
  *out = (void*)((uintptr_t)1 << 44);
  return alignment <= TIDE_PROFILE_MAX_ALIGNMENT ? TIDE_OK : TIDE_ERR_UNSUPPORTED;
}

static tide_status nowhere_release(const tide_memory* memory, void* address) {
  (void)memory;
  (void)address;
  return TIDE_OK;
}

typedef struct planning {
  double record_seconds;
  double plan_seconds;
  double processor_seconds;  // of planning: the time of a computer that has nothing else to do
} planning;

static double percent_over(uint64_t bytes, uint64_t bound) {
  return ((double)bytes - (double)bound) * 100 / (double)bound;
}

// The processor time of this thread.
static double processor_seconds(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static planning planning_run(drill_rig* rig) {
  rig_begin(rig, TIDE_PROFILE_RECORD);
  const uint64_t start = bench_now();
  rig_play_notes(rig);
  const uint64_t middle = bench_now();
  const double processor = processor_seconds();
  (void)rig_end(rig);
  return (planning){ (double)(middle - start) * 1e-9, (double)(bench_now() - middle) * 1e-9,
                     processor_seconds() - processor };
}

// How much larger than the lower bound the arena is that other options make of the same requests, in percent;
// and the processor time for that.
static double planning_percent(const tide_profile_plan* plan, tide_profile_planner planner, uint64_t nodes,
                               double* out_seconds) {
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  tide_profile_request* const requests = bench_alloc(info.count, sizeof *requests);
  tide_profile_plan_options options = TIDE_PROFILE_PLAN_OPTIONS_INIT;
  tide_profile_plan* other = NULL;
  options.planner = planner;
  options.nodes = nodes;
  for (size_t i = 0; i < info.count; i++) requests[i] = tide_profile_plan_request(plan, i);
  const double start = processor_seconds();
  bench_require(tide_profile_plan_new(requests, info.count, &options, &other), "profile_plan_new");
  *out_seconds = processor_seconds() - start;
  const uint64_t bytes = tide_profile_plan_describe(other).bytes;
  tide_profile_plan_free(other);
  free(requests);
  return percent_over(bytes, info.lower_bound);
}

static const struct {
  const char* name;
  const char* time_name;
  tide_profile_planner planner;
  uint64_t nodes;
  bool is_better;  // than the default, or as good; otherwise the default is
} others[] = {
  { "best fit, over it", "best fit, processor time", TIDE_PROFILE_BEST_FIT, 1, false },
  { "top fit, over it", "top fit, processor time", TIDE_PROFILE_TOP_FIT, 1, false },
  { "thorough, over it", "thorough, processor time", TIDE_PROFILE_SMALLEST, TIDE_PROFILE_THOROUGH_NODES,
    true },
};

static void planning_bytes_rows(bench* run, const char* name, tide_profile* profile) {
  tide_profile_plan* plan = NULL;
  bench_require(tide_profile_get_plan(profile, 0, &plan), "profile_get_plan");
  const tide_profile_plan_info info = tide_profile_plan_describe(plan);
  profile_row(run, name, "requests", (double)info.count, "");
  profile_row(run, name, "lower bound", (double)info.lower_bound * 1e-6, "MB");
  const double own = percent_over(info.bytes, info.lower_bound);
  profile_row(run, name, "arena, over it", own, "%");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    double seconds = 0;
    const double percent = planning_percent(plan, others[i].planner, others[i].nodes, &seconds);
    bench_verify(others[i].is_better ? percent <= own : own <= percent, "another planner is better");
    profile_row(run, name, others[i].name, percent, "%");
    profile_row(run, name, others[i].time_name, seconds * 1e3, "ms");
  }
  tide_profile_plan_free(plan);
}

static void measure_planning(bench* run, const char* name, drill d) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  options.memory = (tide_memory){ .alloc = nowhere_alloc, .release = nowhere_release };
  drill_rig rig;
  double record_seconds[DRILL_PLANS];
  double plan_seconds[DRILL_PLANS];
  double processor[DRILL_PLANS];
  rig_init(&rig, &d, &options);
  for (size_t i = 0; i < DRILL_PLANS; i++) {
    const planning spent = planning_run(&rig);
    record_seconds[i] = spent.record_seconds;
    plan_seconds[i] = spent.plan_seconds;
    processor[i] = spent.processor_seconds;
  }
  const double record = bench_median(record_seconds, DRILL_PLANS);
  const double plan = bench_median(plan_seconds, DRILL_PLANS);
  profile_row(run, name, "recording", record, "s");
  profile_row(run, name, "planning", plan, "s");
  profile_row(run, name, "planning, processor time", bench_median(processor, DRILL_PLANS) * 1e3, "ms");
  profile_row(run, name, "recording, an event", record * 1e9 / (double)d.step_count, "ns");
  planning_bytes_rows(run, name, rig.profile);
  profile_row(run, name, "replayed, a pair", 2 * replay_median(&rig, TIDE_PROFILE_REPLAY, rig_play_profile),
              "ns");
  rig_fini(&rig);
  drill_free(&d);
}

static void measure_recordings(bench* run) {
  static const char* const names[] = { "llama_generate", "llama_train_fixed", "llama_ckpt_varlen" };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    drill d;
    const char* why = NULL;
    if (drill_of_recording(names[i], &d, &why)) measure_planning(run, names[i], d);
    else bench_skip(run, "profile", names[i], why);
  }
}

static void measure_training(bench* run) {
  plan_sample sample = plan_sample_train(100000, 1);
  measure_planning(run, "a step of training", drill_of_buffers(sample.buffers, sample.count));
  plan_sample_free(&sample);
}

static void measure_random(bench* run) {
  static const struct {
    const char* name;
    size_t requests;
    size_t live;
  } runs[] = { { "random, 100 requests", 100, 50 },
               { "random, 1,000 requests", 1000, 200 },
               { "random, 3,000 requests", 3000, 200 },
               { "random, 30,000 requests", 30000, 200 } };
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
    measure_planning(run, runs[i].name, drill_churn(runs[i].requests, runs[i].live, false));
  }
}

void bench_profile(bench* run) {
  static const struct {
    const char* name;
    size_t requests;
  } plans[] = { { "1,000 requests", 1000 }, { "100,000 requests", 100000 }, { "500,000 requests", 500000 } };
  measure_recording(run, "chain, 64 live", DRILL_LIVE, true);
  measure_recording(run, "random, 4096 live", 4096, false);
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    measure_apart(run, plans[i].name, plans[i].requests);
    measure_pairs(run, plans[i].name, plans[i].requests);
    measure_begin(run, plans[i].name, plans[i].requests);
  }
  measure_random(run);
  measure_recordings(run);
  measure_training(run);
}
