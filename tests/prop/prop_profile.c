// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Random programs against a model of profiles. Each is recorded once and then run again several times: the
// same, or with requests too many, missing, larger, smaller, released early, late, never, or on another
// thread. Every block is filled at birth and compared at death, no two blocks that live may overlap, reports
// must add up, runs that repeat the recorded one must come from the arena whole, and nothing may be left.
// Half of the profiles are freed before what is left of their blocks.
//
// One program is a trace. Everyday 3 * 1,000 are run (3 * 600 under the address sanitizer, 3 * 100 under the
// thread sanitizer), on the computer's own, on a host machine's device memory and on its pinned memory, and
// `--scale N` runs N times as many; a long test (scale 10 and more) runs 100,200 with or without a sanitizer.
// They run in batches, each in a process of its own; a trace that fails is made shorter before it is printed.
#define T_THREADS
#include "machine/machines.h"
#include "profile/program.h"
#include "stats.h"

#define PROP_RUNS 8
#define PROP_REQUESTS 60  // of the recorded run
#define PROP_BATCH 100
#define PROP_TRACES (T_HAS_THREAD_SANITIZER ? 100 : T_HAS_ADDRESS_SANITIZER ? 600 : 1000)

static const char* const prop_memories[] = { "cpu", "device", "pinned", NULL };

typedef struct prop_run {
  program program;
  bool is_hasty;           // releases on another thread are not waited for
  uint64_t leftover_seed;  // decides when blocks of earlier runs are released
} prop_run;

typedef struct prop_trace {
  tide_profile_planner planner;
  uint32_t escape_arenas;
  uint32_t trim_after;
  bool dies_first;   // the profile is freed before its last blocks are released
  size_t run_count;  // the first one is recorded
  prop_run runs[PROP_RUNS];
} prop_trace;

// ---------------------------------------------------------------------------------------------------
// Random traces

static size_t prop_bytes(t_rng* rng) { return 1 + t_rng_below(rng, 1 + t_rng_below(rng, 3000)); }

static void prop_make_program(program* run, t_rng* rng) {
  const size_t count = 1 + t_rng_below(rng, PROP_REQUESTS);
  const uint64_t longest = 1 + t_rng_below(rng, count);
  memset(run, 0, sizeof *run);
  run->count = count;
  for (size_t i = 0; i < count; i++) {
    program_request* const r = &run->requests[i];
    r->due = i + 1 + t_rng_below(rng, longest);
    if (r->due > count) r->due = count;
    if (t_rng_below(rng, 12) == 0) r->due = PROGRAM_NEVER;
    r->bytes = prop_bytes(rng);
    if (t_rng_below(rng, 4) == 0) r->alignment = (size_t)1 << t_rng_below(rng, 10);
  }
}

// Changes one request in one way.
static void prop_deviate(program* run, t_rng* rng) {
  const size_t at = t_rng_below(rng, run->count);
  program_request* const r = &run->requests[at];
  const bool is_managed = r->due != PROGRAM_NEVER;
  switch (t_rng_below(rng, 8)) {
    case 0: {
      const uint64_t due = at + 1 + t_rng_below(rng, run->count - at + 1);
      program_insert(run, at, (program_request){ prop_bytes(rng), 0, due, false });
      break;
    }
    case 1:
      if (run->count > 1) program_remove(run, at);
      break;
    case 2: r->bytes += 1 + t_rng_below(rng, 2000); break;
    case 3: r->bytes = 1 + t_rng_below(rng, r->bytes); break;
    case 4:
      if (is_managed) r->due = at + 1 + t_rng_below(rng, r->due - at);
      break;
    case 5:
      if (is_managed) r->due += t_rng_below(rng, run->count - r->due + 1);
      break;
    case 6: r->due = PROGRAM_NEVER; break;
    default: r->alignment = (size_t)1 << t_rng_below(rng, 10);
  }
}

static void prop_make(prop_trace* trace, uint64_t round) {
  t_rng rng = t_rng_new(round);
  memset(trace, 0, sizeof *trace);
  trace->planner = (tide_profile_planner)t_rng_below(&rng, 3);
  trace->escape_arenas = (uint32_t)t_rng_below(&rng, 4);
  trace->trim_after = (uint32_t)t_rng_below(&rng, 4);
  trace->dies_first = t_rng_below(&rng, 2) == 0;
  trace->run_count = 2 + t_rng_below(&rng, PROP_RUNS - 1);
  prop_make_program(&trace->runs[0].program, &rng);
  for (size_t i = 1; i < trace->run_count; i++) {
    prop_run* const run = &trace->runs[i];
    run->program = trace->runs[0].program;
    run->leftover_seed = t_rng_next(&rng);
    if (t_rng_below(&rng, 5) >= 2) {
      for (uint64_t changes = 1 + t_rng_below(&rng, 4); changes > 0; changes--)
        prop_deviate(&run->program, &rng);
    }
    if (t_rng_below(&rng, 3) > 0) continue;
    run->is_hasty = t_rng_below(&rng, 2) == 0;
    for (size_t k = 0; k < run->program.count; k++)
      run->program.requests[k].is_elsewhere = t_rng_below(&rng, 6) == 0;
  }
}

// ---------------------------------------------------------------------------------------------------
// The other thread

typedef struct courier {
  tide_profile* profile;
  pthread_t thread;
  pthread_mutex_t lock;  // guards all below
  pthread_cond_t changed;
  program_block* parcels[PROGRAM_MOST];
  size_t count;
  bool is_busy;
  bool is_over;
  bool is_hasty;
} courier;

static program_block* courier_take(courier* c) {
  program_block* block = NULL;
  T_EQ(pthread_mutex_lock(&c->lock), 0);
  c->is_busy = false;
  T_EQ(pthread_cond_broadcast(&c->changed), 0);
  while (c->count == 0 && !c->is_over) T_EQ(pthread_cond_wait(&c->changed, &c->lock), 0);
  if (c->count > 0) {
    block = c->parcels[--c->count];
    c->is_busy = true;
  }
  T_EQ(pthread_mutex_unlock(&c->lock), 0);
  return block;
}

static void* courier_work(void* user) {
  courier* const c = user;
  for (program_block* block = NULL; (block = courier_take(c)) != NULL;) {
    block_compare(block);
    void* const address = block->address;
    atomic_store(&block->is_gone, true);
    T_OK(tide_profile_release(c->profile, address));
  }
  return NULL;
}

static void courier_drain(courier* c) {
  T_EQ(pthread_mutex_lock(&c->lock), 0);
  while (c->count > 0 || c->is_busy) T_EQ(pthread_cond_wait(&c->changed, &c->lock), 0);
  T_EQ(pthread_mutex_unlock(&c->lock), 0);
}

static void courier_send(void* user, program_block* block) {
  courier* const c = user;
  T_EQ(pthread_mutex_lock(&c->lock), 0);
  T_LT(c->count, PROGRAM_MOST);
  c->parcels[c->count++] = block;
  T_EQ(pthread_cond_broadcast(&c->changed), 0);
  T_EQ(pthread_mutex_unlock(&c->lock), 0);
  if (!c->is_hasty) courier_drain(c);
}

static void courier_init(courier* c) {
  memset(c, 0, sizeof *c);
  T_EQ(pthread_mutex_init(&c->lock, NULL), 0);
  T_EQ(pthread_cond_init(&c->changed, NULL), 0);
  t_thread_start(&c->thread, courier_work, c);
}

static void courier_fini(courier* c) {
  T_EQ(pthread_mutex_lock(&c->lock), 0);
  c->is_over = true;
  T_EQ(pthread_cond_broadcast(&c->changed), 0);
  T_EQ(pthread_mutex_unlock(&c->lock), 0);
  t_thread_join(c->thread);
  T_EQ(pthread_cond_destroy(&c->changed), 0);
  T_EQ(pthread_mutex_destroy(&c->lock), 0);
}

// ---------------------------------------------------------------------------------------------------
// Running a trace

// Where the memory comes from, for all traces of a process.
typedef struct prop_stage {
  tide_machine* machine;  // owned; NULL for the computer's own memory
  table own;
  tide_memory memory;
  courier courier;
} prop_stage;

static void stage_open(prop_stage* s, const char* memory) {
  memset(s, 0, sizeof *s);
  table_init(&s->own);
  s->memory = s->own.memory;
  if (strcmp(memory, "cpu") != 0) s->machine = machine_open("host", NULL);
  if (strcmp(memory, "device") == 0) s->memory = tide_machine_memory(s->machine, 0);
  if (strcmp(memory, "pinned") == 0) s->memory = tide_machine_pinned_memory(s->machine, 0);
  courier_init(&s->courier);
}

static void stage_close(prop_stage* s) {
  courier_fini(&s->courier);
  tide_machine_free(s->machine);
  table_fini(&s->own);
}

static bool program_is_same(const program* a, const program* b) {
  bool is_same = a->count == b->count;
  for (size_t i = 0; is_same && i < a->count; i++) {
    const program_request* const one = &a->requests[i];
    const program_request* const two = &b->requests[i];
    is_same = one->bytes == two->bytes && one->alignment == two->alignment && one->due == two->due;
  }
  return is_same;
}

// Blocks of earlier runs: some stay, some are released in the next run.
static void prop_scatter_leftovers(performer* a, const prop_run* run) {
  t_rng rng = { run->leftover_seed };
  for (size_t i = 0; i < a->count; i++) {
    if (t_rng_below(&rng, 3) > 0) a->live[i].due = t_rng_below(&rng, run->program.count + 1);
  }
}

static void prop_expect_report(const performer* a, const prop_trace* trace, const prop_run* run,
                               const tide_profile_report* r, uint64_t planned) {
  const size_t count = run->program.count;
  T_EQ(r->mode, TIDE_PROFILE_REPLAY);
  T_EQ(r->requests, count);
  T_EQ(r->hits, a->hits);
  play_expect_consistent(r);
  T_EQ(planned + r->surplus, r->requests + r->missing);
  T_LE(r->early + r->late + r->survivors, count);
  if (r->smaller + r->larger + r->surplus != 0) T_CHECK(r->first_actual != 0);
  if (run->is_hasty || !program_is_same(&run->program, &trace->runs[0].program)) return;
  T_CHECK(r->is_same);
  T_EQ(r->hits + r->escaped, count);
}

static void prop_replay(prop_stage* s, performer* a, const prop_trace* trace, const prop_run* run,
                        uint64_t planned) {
  prop_scatter_leftovers(a, run);
  s->courier.is_hasty = run->is_hasty;
  const bool has_leftovers = a->count > 0;
  const tide_profile_report report = performer_run(a, TIDE_PROFILE_REPLAY, 0, &run->program);
  prop_expect_report(a, trace, run, &report, planned);
  if (!has_leftovers && trace->escape_arenas > 0) T_EQ(report.escaped, 0);
  courier_drain(&s->courier);
  performer_tidy(a);
}

static void prop_record(performer* a, const prop_trace* trace) {
  const program* const run = &trace->runs[0].program;
  const tide_profile_report report = performer_run(a, TIDE_PROFILE_RECORD, 0, run);
  T_EQ(report.mode, TIDE_PROFILE_RECORD);
  T_EQ(report.requests, run->count);
  T_EQ(report.hits, 0);
  T_EQ(a->hits, 0);
  performer_tidy(a);
}

static void prop_release_all(prop_stage* s, performer* a) {
  performer_release_all(a);
  courier_drain(&s->courier);
  performer_tidy(a);
}

// When everything is released and trimmed, nothing is left.
static void prop_expect_nothing_left(prop_stage* s, performer* a) {
  prop_release_all(s, a);
  T_EQ(profile_stats(a->profile).survivors, 0);
  T_EQ(profile_stats(a->profile).bad_releases, 0);
  T_OK(tide_profile_trim(a->profile));
  T_EQ(profile_stats(a->profile).arenas, 0);
  T_EQ(profile_stats(a->profile).arena_bytes, 0);
}

static void prop_perform(prop_stage* s, const prop_trace* trace) {
  tide_profile_options options = TIDE_PROFILE_OPTIONS_INIT;
  counting_heap heap;
  performer a;
  counting_heap_init(&heap, SIZE_MAX, false);
  options.planner = trace->planner;
  options.escape_arenas = trace->escape_arenas;
  options.trim_after = trace->trim_after;
  options.plan_nodes = 2000;
  options.memory = options.fallback = s->memory;
  options.heap = &heap.heap;
  performer_init(&a, NULL);
  T_OK(tide_profile_new(&options, &a.profile));
  a.elsewhere = courier_send;
  a.user = &s->courier;
  s->courier.profile = a.profile;
  prop_record(&a, trace);
  for (size_t i = 1; i < trace->run_count; i++)
    prop_replay(s, &a, trace, &trace->runs[i], trace->runs[0].program.count);
  if (!trace->dies_first) prop_expect_nothing_left(s, &a);
  tide_profile_free(a.profile);
  s->courier.is_hasty = true;
  prop_release_all(s, &a);
  performer_fini(&a);
  if (s->machine != NULL) T_EQ(free_bytes(s->machine, 0), MACHINE_CAPACITY);
  T_EQ(s->own.count, 0);
  T_EQ(atomic_load(&heap.outstanding), 0);
}

// ---------------------------------------------------------------------------------------------------
// Processes

static prop_trace prop_current;

// Does a process of its own live through this? `count` traces from `first` on; 0: the current one, silently.
static bool prop_survives(uint64_t first, uint64_t count) {
  (void)fflush(NULL);
  const pid_t pid = fork();
  T_CHECK(pid >= 0);
  if (pid == 0) {
    static prop_stage stage;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count == 0 && freopen("/dev/null", "w", stderr) == NULL) _exit(2);
    stage_open(&stage, t_variant());
    if (count == 0) prop_perform(&stage, &prop_current);
    for (uint64_t i = 0; i < count; i++) {
      prop_make(&prop_current, first + i);
      prop_perform(&stage, &prop_current);
    }
    stage_close(&stage);
    _exit(0);
  }
  int status = 0;
  T_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Keeps a shorter trace if it fails still.
static bool prop_keep_shorter(const prop_trace* before) {
  if (!prop_survives(0, 0)) return true;
  prop_current = *before;
  return false;
}

static void prop_shrink(void) {
  static prop_trace before;
  for (size_t i = prop_current.run_count; i-- > 1 && t_shrink_has_time();) {
    before = prop_current;
    prop_current.run_count--;
    memmove(&prop_current.runs[i], &prop_current.runs[i + 1], (PROP_RUNS - 1 - i) * sizeof *before.runs);
    (void)prop_keep_shorter(&before);
  }
  for (size_t run = 0; run < prop_current.run_count; run++) {
    for (size_t i = prop_current.runs[run].program.count; i-- > 0 && t_shrink_has_time();) {
      before = prop_current;
      program_remove(&prop_current.runs[run].program, i);
      (void)prop_keep_shorter(&before);
    }
  }
}

static void prop_print(void) {
  (void)fprintf(stderr, "planner %d, %u escape arenas, trim after %u%s\n", (int)prop_current.planner,
                prop_current.escape_arenas, prop_current.trim_after,
                prop_current.dies_first ? ", dies first" : "");
  for (size_t i = 0; i < prop_current.run_count; i++) {
    const prop_run* const run = &prop_current.runs[i];
    (void)fprintf(stderr, "run %zu%s, leftovers %" PRIu64 ":", i, run->is_hasty ? ", hasty" : "",
                  run->leftover_seed);
    for (size_t k = 0; k < run->program.count; k++) {
      const program_request* const r = &run->program.requests[k];
      (void)fprintf(stderr, " %zu@%zu until %" PRId64 "%s;", r->bytes, r->alignment, (int64_t)r->due,
                    r->is_elsewhere ? " elsewhere" : "");
    }
    (void)fprintf(stderr, "\n");
  }
}

// The batch has failed: which of its traces is it?
static void prop_explain(uint64_t first) {
  for (uint64_t round = first; round < first + PROP_BATCH; round++) {
    prop_make(&prop_current, round);
    if (prop_survives(0, 0)) continue;
    t_shrink_begin("trace %" PRIu64 " of the seed fails", round);
    prop_shrink();
    prop_print();
    T_FAIL("trace %" PRIu64 " of the seed fails", round);
  }
  T_FAIL("traces %" PRIu64 " to %" PRIu64 " fail, but not one at a time", first, first + PROP_BATCH - 1);
}

T_TEST_OVER(prop_profile__programs_that_deviate, prop_memories) {
  const bool is_long = t_scaled(100) >= 1000;
  const size_t count = is_long ? 33334 : t_scaled(PROP_TRACES);
  for (uint64_t first = 0; first < count; first += PROP_BATCH) {
    if (!prop_survives(first, PROP_BATCH)) prop_explain(first);
  }
}
