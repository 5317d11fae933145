// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Several threads on one profile, each with its own runs; releases on other threads while a run is under way.
#define T_THREADS
#include "program.h"

#define THREADS 4
#define RUNS 100

typedef struct worker {
  tide_profile* profile;
  const program* run;
  uint64_t shape;
  size_t same;      // runs that repeated the recorded one
  size_t deviated;  // runs that did not
  pthread_t thread;
} worker;

// ---------------------------------------------------------------------------------------------------
// Own runs

static void* worker_run(void* user) {
  worker* const w = user;
  performer a;
  performer_init(&a, w->profile);
  for (size_t i = 0; i < RUNS; i++) {
    program run = *w->run;
    const bool is_same = i % 4 != 3;
    if (!is_same) run.requests[i % run.count].bytes += 5000;
    const tide_profile_report report = performer_run(&a, TIDE_PROFILE_REPLAY, w->shape, &run);
    play_expect_consistent(&report);
    T_EQ(report.is_same, is_same);
    T_PTR_EQ(tide_profile_innermost(), NULL);
    w->same += is_same ? 1 : 0;
    w->deviated += is_same ? 0 : 1;
  }
  performer_fini(&a);
  return NULL;
}

static void expect_threads(bool has_own_shapes) {
  worker workers[THREADS];
  program runs[THREADS];
  size_t same = 0;
  play p;
  performer a;
  play_open(&p, NULL);
  performer_init(&a, p.profile);
  for (size_t i = 0; i < THREADS; i++) {
    t_rng rng = t_rng_new(i);
    const size_t shape = has_own_shapes ? i : 0;
    program_random(&runs[i], 40, 10, &rng);
    if (shape == i) (void)performer_run(&a, TIDE_PROFILE_RECORD, shape, &runs[i]);
    workers[i] = (worker){ .profile = p.profile, .run = &runs[shape], .shape = shape };
  }

  for (size_t i = 0; i < THREADS; i++) t_thread_start(&workers[i].thread, worker_run, &workers[i]);
  for (size_t i = 0; i < THREADS; i++) {
    t_thread_join(workers[i].thread);
    same += workers[i].same;
  }

  const tide_profile_stats stats = play_stats(&p);
  T_EQ(stats.replayed, THREADS * RUNS);
  T_EQ(stats.hits + stats.fallbacks, (uint64_t)THREADS * RUNS * 40);
  T_EQ(stats.hits, (uint64_t)THREADS * RUNS * 40 - (THREADS * RUNS - same));
  T_LE(stats.arenas, THREADS);
  T_EQ(stats.survivors, 0);
  performer_fini(&a);
  play_close(&p);
}

T_TEST(test_profile_threads__runs_of_one_plan_at_once) { expect_threads(false); }

T_TEST(test_profile_threads__runs_of_several_plans_at_once) { expect_threads(true); }

// A run of one thread is no run of another.
static void* no_run_here(void* user) {
  play* const p = user;
  T_EQ(tide_profile_current(p->profile), TIDE_PROFILE_NONE);
  T_PTR_EQ(tide_profile_innermost(), NULL);
  T_STATUS(tide_profile_end(p->profile, NULL), TIDE_ERR_STATE);
  play_steps(p, "x100");
  T_CHECK(!tide_profile_owns(p->profile, play_address(p, 'x')));
  play_steps(p, "-x");
  return NULL;
}

PLAY_TEST(test_profile_threads__a_run_belongs_to_its_thread, play_open(p, NULL)) {
  pthread_t thread;
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 -a");
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  t_thread_start(&thread, no_run_here, p);
  t_thread_join(thread);

  play_steps(p, "a100 -a");

  const tide_profile_report report = play_end(p);
  play_expect_same(&report, 1);
}

// Threads that record the same shape at once: one plan is left, and it works.
static void* record_here(void* user) {
  worker* const w = user;
  performer a;
  performer_init(&a, w->profile);
  for (int i = 0; i < 5; i++) T_EQ(performer_run(&a, TIDE_PROFILE_RECORD, 0, w->run).requests, 40);
  performer_fini(&a);
  return NULL;
}

PLAY_TEST(test_profile_threads__record_one_shape_at_once, play_open(p, NULL)) {
  worker workers[THREADS];
  program run;
  performer a;
  t_rng rng = t_rng_new(0);
  program_random(&run, 40, 10, &rng);

  for (size_t i = 0; i < THREADS; i++) {
    workers[i] = (worker){ .profile = p->profile, .run = &run };
    t_thread_start(&workers[i].thread, record_here, &workers[i]);
  }
  for (size_t i = 0; i < THREADS; i++) t_thread_join(workers[i].thread);

  T_EQ(play_stats(p).recorded, THREADS * 5);
  T_EQ(play_stats(p).plans, 1);
  performer_init(&a, p->profile);
  const tide_profile_report report = performer_run(&a, TIDE_PROFILE_REPLAY, 0, &run);
  play_expect_same(&report, 40);
  performer_fini(&a);
}

// ---------------------------------------------------------------------------------------------------
// Releases elsewhere

#define MAIL_SLOTS 8

// Blocks on their way to the threads that release them.
typedef struct mail {
  tide_profile* profile;
  pthread_mutex_t lock;
  program_block blocks[MAIL_SLOTS];
  size_t count;
  bool is_over;
} mail;

static bool mail_take(mail* m, program_block* out) {
  bool is_there = false;
  T_EQ(pthread_mutex_lock(&m->lock), 0);
  if (m->count > 0) {
    is_there = true;
    memcpy(out, &m->blocks[--m->count], sizeof *out);
  }
  T_EQ(pthread_mutex_unlock(&m->lock), 0);
  return is_there;
}

static bool mail_is_over(mail* m) {
  T_EQ(pthread_mutex_lock(&m->lock), 0);
  const bool is_over = m->is_over && m->count == 0;
  T_EQ(pthread_mutex_unlock(&m->lock), 0);
  return is_over;
}

static void* mail_releaser(void* user) {
  mail* const m = user;
  program_block block;
  while (!mail_is_over(m)) {
    if (!mail_take(m, &block)) continue;
    block_compare(&block);
    T_OK(tide_profile_release(m->profile, block.address));
  }
  return NULL;
}

// Gives a block away, or, when there is no room, releases it here.
static void mail_send(mail* m, const program_block* block) {
  T_EQ(pthread_mutex_lock(&m->lock), 0);
  const bool has_room = m->count < MAIL_SLOTS;
  if (has_room) memcpy(&m->blocks[m->count++], block, sizeof *block);
  T_EQ(pthread_mutex_unlock(&m->lock), 0);
  if (has_room) return;
  block_compare(block);
  T_OK(tide_profile_release(m->profile, block->address));
}

// A run in which each block is given away two requests later. Whether it is gone when its place is due is a
// matter of luck: the request is served in any case.
static tide_profile_report mailing_run(mail* m, tide_profile_mode mode, uint64_t* word) {
  tide_profile_report report = TIDE_PROFILE_REPORT_INIT;
  program_block blocks[40];
  memset(blocks, 0, sizeof blocks);
  T_OK(tide_profile_begin(m->profile, mode, 0));
  for (size_t i = 0; i < 40; i++) {
    void* address = NULL;
    blocks[i].bytes = 100 + 40 * (i % 7);
    T_OK(tide_profile_alloc(m->profile, blocks[i].bytes, 0, &address));
    blocks[i].address = address;
    blocks[i].word = (*word += 0x9e3779b97f4a7c15u);
    block_fill(&blocks[i]);
    if (i >= 2) mail_send(m, &blocks[i - 2]);
  }
  mail_send(m, &blocks[38]);
  mail_send(m, &blocks[39]);
  T_OK(tide_profile_end(m->profile, &report));
  return report;
}

PLAY_TEST(test_profile_threads__releases_elsewhere_while_a_run_goes_on, play_open(p, NULL)) {
  pthread_t threads[2];
  uint64_t word = 0;
  mail m = { .is_over = false };
  m.profile = p->profile;
  T_EQ(pthread_mutex_init(&m.lock, NULL), 0);
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 b140 c180 -a d220 -b e260 -c f300 -d g340 -e -f -g");
  for (size_t i = 0; i < 2; i++) t_thread_start(&threads[i], mail_releaser, &m);

  for (size_t i = 0; i < t_scaled(300); i++) {
    const tide_profile_report report = mailing_run(&m, TIDE_PROFILE_AUTO, &word);
    if (report.mode == TIDE_PROFILE_REPLAY) play_expect_consistent(&report);
  }

  T_EQ(pthread_mutex_lock(&m.lock), 0);
  m.is_over = true;
  T_EQ(pthread_mutex_unlock(&m.lock), 0);
  for (size_t i = 0; i < 2; i++) t_thread_join(threads[i]);
  T_EQ(play_stats(p).survivors, 0);
  T_EQ(play_stats(p).bad_releases, 0);
  T_OK(tide_profile_trim(p->profile));
  T_EQ(play_stats(p).arenas, 0);
  T_EQ(pthread_mutex_destroy(&m.lock), 0);
}

static void* run_once(void* user) {
  play* const p = user;
  T_OK(tide_profile_begin(p->profile, TIDE_PROFILE_REPLAY, 0));
  play_steps(p, "a100 -a");
  (void)play_end(p);
  return NULL;
}

PLAY_TEST(test_profile_threads__many_threads_one_after_another, play_open(p, NULL)) {
  (void)play_run(p, TIDE_PROFILE_RECORD, "a100 -a");
  const size_t outstanding = atomic_load(&p->heap.outstanding);
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    t_thread_start(&thread, run_once, p);
    t_thread_join(thread);
  }

  T_LE(play_stats(p).arenas, 1);
  T_LE(atomic_load(&p->heap.outstanding), outstanding + 10000);  // nothing is kept for each of them
}
