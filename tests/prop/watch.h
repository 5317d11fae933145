// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs of several threads, each run in a process of its own that is watched from outside. A run that ends
// badly is a failure like any other, and it is printed how to repeat it. So is a run in which no thread makes
// progress: first every thread prints what it does, with its stack.
//
//   watch_open();
//   watch_run(play, seed);              play(seed) in a process; returns if it ends well
//   ... in a thread of play():
//   watch_begin(number);
//   watch_step("park");                 again and again
#ifndef TIDEMARK_TESTS_WATCH_H
#define TIDEMARK_TESTS_WATCH_H

#include <stdatomic.h>

#include "prop/oplist.h"
#include "tidemark/report.h"

enum { WATCH_THREADS = 32, WATCH_FRAMES = 48, WATCH_TEXT = 8192 };

// Without progress: so much processor time, when a thread spins, or elapsed time, when all of them wait.
#define WATCH_BUSY_NS ((T_HAS_SANITIZER ? 60 : 15) * UINT64_C(1000000000))
#define WATCH_STILL_NS (200 * UINT64_C(1000000000))

typedef struct watch_thread {
  atomic_bool is_running;
  atomic_uint_fast64_t steps;
  _Atomic(const char*) doing;   // a literal
  _Atomic(const char*) inside;  // the callback that it is in; NULL: none
  pthread_t thread;
} watch_thread;

typedef struct watch_board {
  watch_thread threads[WATCH_THREADS];
  atomic_size_t shown;
} watch_board;

static watch_board* watched;  // shared with the processes of runs
static _Thread_local watch_thread* watch_own;

static inline void watch_open(void) { watched = shared_new(sizeof *watched); }

// ---------------------------------------------------------------------------------------------------
// In the process of a run

static inline void watch_begin(size_t number) {
  T_LT(number, WATCH_THREADS);
  watch_own = &watched->threads[number];
  watch_own->thread = pthread_self();
  atomic_store(&watch_own->doing, "begin");
  atomic_store(&watch_own->is_running, true);
}

static inline void watch_end(void) { atomic_store(&watch_own->is_running, false); }

static inline void watch_step(const char* doing) {
  atomic_store_explicit(&watch_own->doing, doing, memory_order_relaxed);
  (void)atomic_fetch_add_explicit(&watch_own->steps, 1, memory_order_relaxed);
}

static inline const char* watch_enter(const char* callback) {
  return watch_own != NULL ? atomic_exchange(&watch_own->inside, callback) : NULL;
}

static inline void watch_leave(const char* before) {
  if (watch_own != NULL) atomic_store(&watch_own->inside, before);
}

static inline size_t watch_frame(char* text, size_t capacity, uint64_t frame) {
  tide_frame_words words = { 0 };
  const bool is_known = tide_stack_describe(NULL, frame, &words);
  const int length = snprintf(text, capacity, "  %#" PRIx64 " %s\n", frame, is_known ? words.name : "");
  return length > 0 && (size_t)length < capacity ? (size_t)length : 0;
}

// The stack of a thread, with what it does. The process ends behind it, so nothing here need be safe.
static inline void watch_show(int number) {
  uint64_t frames[WATCH_FRAMES];
  char text[WATCH_TEXT];
  const watch_thread* const own = watch_own;
  const char* const inside = own != NULL ? atomic_load(&own->inside) : NULL;
  int begin = snprintf(text, sizeof text, "thread %d, in \"%s\"%s%s, step %" PRIu64 ":\n",
                       own != NULL ? (int)(own - watched->threads) : -1,
                       own != NULL ? atomic_load(&own->doing) : "?", inside != NULL ? ", inside " : "",
                       inside != NULL ? inside : "", own != NULL ? (uint64_t)atomic_load(&own->steps) : 0);
  size_t length = begin > 0 ? (size_t)begin : 0;
  const size_t count = tide_stack_gather(NULL, frames, WATCH_FRAMES);
  for (size_t i = 0; i < count; ++i) length += watch_frame(text + length, sizeof text - length, frames[i]);
  (void)!write(STDERR_FILENO, text, length);
  atomic_fetch_add(&watched->shown, 1);
  (void)number;
}

static inline void watch_show_all(int number) {
  for (size_t i = 0; i < WATCH_THREADS; ++i) {
    watch_thread* const one = &watched->threads[i];
    if (atomic_load(&one->is_running)) (void)pthread_kill(one->thread, SIGUSR1);
  }
  (void)number;
}

static inline void watch_listen(void) {
  struct sigaction one = { .sa_handler = watch_show, .sa_flags = SA_RESTART };
  struct sigaction all = { .sa_handler = watch_show_all, .sa_flags = SA_RESTART };
  T_EQ(sigaction(SIGUSR1, &one, NULL), 0);
  T_EQ(sigaction(SIGUSR2, &all, NULL), 0);
}

// ---------------------------------------------------------------------------------------------------
// Outside

static inline uint64_t watch_progress(void) {
  uint64_t sum = 0;
  for (size_t i = 0; i < WATCH_THREADS; ++i) sum += atomic_load(&watched->threads[i].steps);
  return sum;
}

static inline uint64_t watch_processor_ns(pid_t child) {
  struct timespec used = { 0, 0 };
  clockid_t clock;
  if (clock_getcpuclockid(child, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

// Has every thread of the run shown itself?
static inline bool watch_is_shown(void) {
  size_t running = 0;
  for (size_t i = 0; i < WATCH_THREADS; ++i) running += atomic_load(&watched->threads[i].is_running);
  return atomic_load(&watched->shown) >= running;
}

// Makes a run that hangs show itself, and ends it.
static inline void watch_stop(pid_t child) {
  const uint64_t end_ns = t_now_ns() + UINT64_C(10000000000);
  (void)fprintf(stderr, "no thread makes progress\n");
  (void)kill(child, SIGUSR2);
  while (!watch_is_shown() && t_now_ns() < end_ns) t_sleep_us(1000);
  (void)kill(child, SIGABRT);
  t_sleep_us(100000);
  (void)kill(child, SIGKILL);
}

// Waits for the end of a run; returns its status.
static inline int watch_wait(pid_t child) {
  uint64_t steps = 0;
  uint64_t since_ns = t_now_ns();
  uint64_t used_ns = 0;
  bool is_stopped = false;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const uint64_t now_steps = watch_progress();
    if (now_steps != steps) {
      steps = now_steps;
      since_ns = t_now_ns();
      used_ns = watch_processor_ns(child);
    }
    const bool is_busy = watch_processor_ns(child) > used_ns + WATCH_BUSY_NS;
    if (!is_stopped && (is_busy || t_now_ns() > since_ns + WATCH_STILL_NS)) {
      is_stopped = true;
      watch_stop(child);
    }
    t_sleep_us(2000);
  }
  return status;
}

static inline void watch_run(void (*play)(uint64_t seed), uint64_t seed) {
  (void)fflush(NULL);
  memset(watched, 0, sizeof *watched);
  const pid_t child = fork();
  T_CHECK(child >= 0);
  if (child == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    watch_listen();
    play(seed);
    exit(0);
  }
  const int status = watch_wait(child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status)) (void)fprintf(stderr, "killed by %s; ", t_signal_name(WTERMSIG(status)));
  T_FAIL("the run of TIDE_TEST_SEED=%" PRIu64 " failed in %s", seed, t_name());
}

#endif
