// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The test harness. A program includes this header once, writes tests, and has a main():
//
//   T_TEST(test_block__splits_in_two) { T_EQ(1 + 1, 2); }
//   static const char* const policies[] = { "torch", "tide", NULL };
//   T_TEST_OVER(test_block__merges, policies) { T_CHECK(strlen(t_variant()) > 0); }
//
// Every test runs in its own process, which calls exit() when it passes, so that a leak checker can run.
// Asserts work on every thread: they print and end the process. A role is a function for a second process:
// the program executes itself with `--role NAME ARGUMENT`, and runs no test there.
//
//   program [--list] [part of a name ...]
//   TIDE_TEST_SEED     the seed of t_rng; default 1; always printed
//   TIDE_TEST_SCALE    a factor for t_scaled(); default 1
//   TIDE_TEST_TIMEOUT  a factor for the limits of each test; default 1
//
// A test may use 60 s of processor time, 180 s under a sanitizer, so a busy computer does not matter. A test
// that hangs is killed after thirty times as long by the clock.
#ifndef TIDEMARK_TESTS_T_H
#define TIDEMARK_TESTS_T_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tidemark/base.h"

// ---------------------------------------------------------------------------------------------------
// Registration

typedef struct t_test {
  const char* name;
  void (*run)(void);
  const char* const* variants;  // borrowed for ever; ends with NULL; NULL: the test runs once
  struct t_test* next;
} t_test;

typedef struct t_role {
  const char* name;
  void (*run)(const char* argument);
  struct t_role* next;
} t_role;

static struct {
  t_test* first;
  t_test** last;
  t_role* roles;
  const char* program;
  const char* name;  // of the test that runs in this process
  const char* variant;
  uint64_t seed;
  double scale;
  double limit_s;  // of processor time
  uint64_t shrink_deadline_ns;
  int skip_pipe[2];
  int passed;
  int failed;
  int skipped;
} t_state;

static inline void t_register(t_test* test) {
  if (t_state.last == NULL) t_state.last = &t_state.first;
  *t_state.last = test;
  t_state.last = &test->next;
}

static inline void t_register_role(t_role* role) {
  role->next = t_state.roles;
  t_state.roles = role;
}

#define T_REGISTER(function, run, variants)                            \
  __attribute__((constructor)) static void function##_register(void) { \
    static t_test test = { #function, run, variants, NULL };           \
    t_register(&test);                                                 \
  }

#define T_TEST(function) T_TEST_OVER(function, NULL)
#define T_TEST_OVER(function, variants)    \
  static void function(void);              \
  T_REGISTER(function, function, variants) \
  static void function(void)

#define T_ROLE(function)                                               \
  static void function(const char* argument);                          \
  __attribute__((constructor)) static void function##_register(void) { \
    static t_role role = { #function, function, NULL };                \
    t_register_role(&role);                                            \
  }                                                                    \
  static void function(const char* argument)

// The variant of the running test; "" without variants.
static inline const char* t_variant(void) { return t_state.variant == NULL ? "" : t_state.variant; }

// ---------------------------------------------------------------------------------------------------
// Asserts

// Not inlined: there are thousands of asserts, and compilers and analysers process each of them.
__attribute__((noreturn, noinline, cold, unused, format(printf, 3, 4))) static void t_fail(const char* file,
                                                                                           int line,
                                                                                           const char* format,
                                                                                           ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)dprintf(STDERR_FILENO, "%s:%d: %s\n", file, line, text);
  _exit(1);
}

// Ends the test as skipped; the reason is printed.
__attribute__((noreturn, noinline, cold, unused, format(printf, 1, 2))) static void t_skip(const char* format,
                                                                                           ...) {
  char text[300];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const ssize_t written = write(t_state.skip_pipe[1], text, strlen(text));
  _exit(written < 0 ? 1 : 77);
}

#include "conformance/expect.h"

// On aarch64 the leak checker takes seconds at the end of every process, because it walks a table of the
// whole address space. It is off there unless ASAN_OPTIONS=detect_leaks=1 is set.
#if T_HAS_ADDRESS_SANITIZER && defined(__aarch64__)
const char* __asan_default_options(void);
const char* __asan_default_options(void) { return "detect_leaks=0"; }
#endif

// ---------------------------------------------------------------------------------------------------
// Seed, scale, time, and resources of the process

static inline uint64_t t_seed(void) { return t_state.seed; }

// A generator for a test or thread. The same seed and index give the same numbers.
static inline t_rng t_rng_new(uint64_t index) { return t_rng_of(t_seed(), index); }

static inline size_t t_scaled(size_t count) {
  const double scaled = (double)count * t_state.scale;
  return scaled < 1.0 ? 1 : (size_t)scaled;
}

// The same for random loops of a single thread. There the thread sanitizer finds nothing that other passes
// miss, so under it a quarter is enough.
static inline size_t t_scaled_alone(size_t count) {
  return t_scaled(T_HAS_THREAD_SANITIZER ? (count + 3) / 4 : count);
}

// The processor time that this process has used. Limits in tests use it, because other programs do not change
// it.
static inline uint64_t t_processor_ns(void) {
  struct timespec used;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

static inline size_t t_count_entries(const char* folder) {
  DIR* const dir = opendir(folder);
  if (dir == NULL) return 0;
  size_t count = 0;
  while (readdir(dir) != NULL) ++count;
  (void)closedir(dir);
  return count - 2;  // "." and ".."
}

static inline size_t t_count_descriptors(void) {
  return t_count_entries("/proc/self/fd") - 1;  // the folder itself
}

static inline size_t t_count_threads(void) { return t_count_entries("/proc/self/task"); }

static inline size_t t_count_mappings(void) {
  const int fd = open("/proc/self/maps", O_RDONLY);
  char text[4096];
  size_t count = 0;
  for (ssize_t n = 0; (n = read(fd, text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) count += text[i] == '\n';
  }
  (void)close(fd);
  return count;
}

// Programs that cmake/tests.cmake lists as programs of one thread must not start another.
#ifdef T_HAS_ONE_THREAD
int __wrap_pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*function)(void*),
                          void* user);
int __wrap_pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*function)(void*),
                          void* user) {
  (void)out, (void)attributes, (void)function, (void)user;
  T_FAIL("this program starts a thread: take it off TIDEMARK_TESTS_OF_ONE_THREAD in cmake/tests.cmake");
}
#endif

// ---------------------------------------------------------------------------------------------------
// Shrinking of failing inputs

#define T_SHRINK_SECONDS 20u

// The command that runs the test again.
static inline void t_print_repeat(FILE* stream, const char* name) {
  (void)fprintf(stream, "TIDE_TEST_SEED=%" PRIu64, t_state.seed);
  if (t_state.scale != 1) (void)fprintf(stream, " TIDE_TEST_SCALE=%g", t_state.scale);
  (void)fprintf(stream, " %s '%s'", t_state.program, name);
}

// Call this when an input has failed, before shrinking it. It prints the failure and the command that repeats
// it, in case shrinking fails. It also removes the test's limit of processor time; t_shrink_has_time() limits
// the shrinking instead.
__attribute__((noinline, cold, unused, format(printf, 1, 2))) static void t_shrink_begin(const char* format,
                                                                                         ...) {
  struct rlimit limit;
  va_list list;
  va_start(list, format);
  (void)vfprintf(stderr, format, list);
  va_end(list);
  (void)fprintf(stderr, "\nto repeat: ");
  t_print_repeat(stderr, t_state.name);
  (void)fprintf(stderr, "\nmaking it smaller, for up to %u s\n", T_SHRINK_SECONDS);
  t_state.shrink_deadline_ns = t_now_ns() + T_SHRINK_SECONDS * (uint64_t)1000000000;
  if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_CPU, &limit);
}

static inline bool t_shrink_has_time(void) { return t_now_ns() < t_state.shrink_deadline_ns; }

// ---------------------------------------------------------------------------------------------------
// The runner

#define T_HANG_FACTOR 30  // limit by the clock, as a multiple of the limit of processor time

static inline const char* t_signal_name(int number) {
  switch (number) {
    case SIGABRT: return "SIGABRT";
    case SIGALRM: return "SIGALRM";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGKILL: return "SIGKILL";
    case SIGPIPE: return "SIGPIPE";
    case SIGSEGV: return "SIGSEGV";
    case SIGTERM: return "SIGTERM";
    case SIGTRAP: return "SIGTRAP";
    case SIGXCPU: return "SIGXCPU";
    default: return strsignal(number);
  }
}

static inline double t_env_number(const char* name, double otherwise) {
  const char* const text = getenv(name);
  if (text == NULL || *text == '\0') return otherwise;
  char* end = NULL;
  const double number = strtod(text, &end);
  if (*end == '\0' && number > 0 && number < 1e12) return number;
  (void)fprintf(stderr, "%s=%s is not a positive number\n", name, text);
  exit(2);
}

static inline uint64_t t_env_seed(void) {
  const char* const text = getenv("TIDE_TEST_SEED");
  if (text == NULL || *text == '\0') return 1;
  char* end = NULL;
  const uint64_t seed = strtoull(text, &end, 0);
  if (*end == '\0') return seed;
  (void)fprintf(stderr, "TIDE_TEST_SEED=%s is not a number\n", text);
  exit(2);
}

// SIGXCPU ends a process that exceeds its processor time. Child processes inherit the limit.
static inline void t_limit_processor_time(double seconds) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
  const rlim_t wanted = (rlim_t)(seconds + 0.999);
  if (limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max) limit.rlim_cur = wanted;
  (void)setrlimit(RLIMIT_CPU, &limit);
}

__attribute__((noreturn)) static inline void t_child(const t_test* test, const char* variant,
                                                     const char* name, const sigset_t* mask) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)sigprocmask(SIG_SETMASK, mask, NULL);
  t_limit_processor_time(t_state.limit_s);
  t_state.variant = variant;
  t_state.name = name;
  test->run();
  exit(0);
}

// Waits for a child. Returns false if it hung and was killed. SIGCHLD is blocked.
static inline bool t_wait(pid_t child, int* out_status) {
  const uint64_t deadline = t_now_ns() + (uint64_t)(T_HANG_FACTOR * t_state.limit_s * 1e9);
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, SIGCHLD);
  while (waitpid(child, out_status, WNOHANG) == 0) {
    const uint64_t now = t_now_ns();
    if (now >= deadline) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, out_status, 0);
      return false;
    }
    const struct timespec rest = { (time_t)((deadline - now) / 1000000000u),
                                   (long)((deadline - now) % 1000000000u) };
    (void)sigtimedwait(&set, NULL, &rest);
  }
  return true;
}

// ./dev searches for "not done after" and runs such a program once more, alone.
static inline void t_report_failure(const char* name, bool has_ended, int status) {
  (void)printf("FAIL %s: ", name);
  if (!has_ended) (void)printf("not done after %.0f s", T_HANG_FACTOR * t_state.limit_s);
  else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
    (void)printf("not done after %.0f s of processor time", t_state.limit_s);
  else if (WIFSIGNALED(status)) (void)printf("killed by %s", t_signal_name(WTERMSIG(status)));
  else (void)printf("exit status %d", WEXITSTATUS(status));
  (void)printf("; to repeat: ");
  t_print_repeat(stdout, name);
  (void)printf("\n");
}

static inline void t_report(const char* name, bool has_ended, int status, uint64_t ns) {
  char reason[300] = "";
  const ssize_t got = read(t_state.skip_pipe[0], reason, sizeof reason - 1);
  if (has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    ++t_state.passed;
    (void)printf("ok   %s (%" PRIu64 " ms)\n", name, ns / 1000000u);
  } else if (has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 77 && got > 0) {
    ++t_state.skipped;
    (void)printf("skip %s: %s\n", name, reason);
  } else {
    ++t_state.failed;
    t_report_failure(name, has_ended, status);
  }
  (void)fflush(stdout);
}

static inline void t_run(const t_test* test, const char* variant, const char* name) {
  sigset_t set;
  sigset_t before;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, SIGCHLD);
  (void)sigprocmask(SIG_BLOCK, &set, &before);
  const uint64_t start = t_now_ns();
  (void)fflush(stdout);
  const pid_t child = fork();
  if (child == 0) t_child(test, variant, name, &before);
  int status = 0;
  const bool has_ended = t_wait(child, &status);
  (void)kill(-child, SIGKILL);  // processes that it left behind
  (void)sigprocmask(SIG_SETMASK, &before, NULL);
  t_report(name, has_ended, status, t_now_ns() - start);
}

static inline bool t_is_wanted(const char* name, int argc, char** argv) {
  bool is_filtered = false;
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-') continue;
    if (strstr(name, argv[i]) != NULL) return true;
    is_filtered = true;
  }
  return !is_filtered;
}

static inline void t_visit(const t_test* test, const char* variant, int argc, char** argv, bool only_list) {
  char name[256];
  const char* const plain = strncmp(test->name, "test_", 5) == 0 ? test->name + 5 : test->name;
  if (variant == NULL) (void)snprintf(name, sizeof name, "%s", plain);
  else (void)snprintf(name, sizeof name, "%s[%s]", plain, variant);
  if (!t_is_wanted(name, argc, argv)) return;
  if (only_list) (void)printf("%s\n", name);
  else t_run(test, variant, name);
}

static inline int t_run_role(const char* name, const char* argument) {
  for (const t_role* role = t_state.roles; role != NULL; role = role->next) {
    if (strcmp(role->name, name) != 0) continue;
    role->run(argument);
    return 0;
  }
  (void)fprintf(stderr, "no role %s\n", name);
  return 2;
}

static inline int t_open(void) {
  t_state.seed = t_env_seed();
  t_state.scale = t_env_number("TIDE_TEST_SCALE", 1);
  t_state.limit_s = (T_HAS_SANITIZER ? 180 : 60) * t_env_number("TIDE_TEST_TIMEOUT", 1);
  if (pipe(t_state.skip_pipe) != 0) return -1;
  (void)fcntl(t_state.skip_pipe[0], F_SETFL, O_NONBLOCK);
  (void)fcntl(t_state.skip_pipe[0], F_SETFD, FD_CLOEXEC);
  return fcntl(t_state.skip_pipe[1], F_SETFD, FD_CLOEXEC);
}

// Programs that are started in the background, or by nohup, inherit that these are ignored.
static void t_default_signals(void) {
  (void)signal(SIGINT, SIG_DFL);
  (void)signal(SIGQUIT, SIG_DFL);
  (void)signal(SIGHUP, SIG_DFL);
}

int main(int argc, char** argv) {
  t_default_signals();
  if (argc == 4 && strcmp(argv[1], "--role") == 0) return t_run_role(argv[2], argv[3]);
  const bool only_list = argc > 1 && strcmp(argv[1], "--list") == 0;
  if (argc > 1 && argv[1][0] == '-' && !only_list) {
    (void)fprintf(stderr, "usage: %s [--list] [part of a name ...]\n", argv[0]);
    return 2;
  }
  t_state.program = argv[0];
  if (t_open() != 0) return 2;
  if (!only_list) (void)printf("seed %" PRIu64 ", scale %g\n", t_state.seed, t_state.scale);
  for (const t_test* test = t_state.first; test != NULL; test = test->next) {
    if (test->variants == NULL) t_visit(test, NULL, argc, argv, only_list);
    for (size_t i = 0; test->variants != NULL && test->variants[i] != NULL; ++i) {
      t_visit(test, test->variants[i], argc, argv, only_list);
    }
  }
  if (only_list) return 0;
  (void)printf("%d passed, %d failed, %d skipped\n", t_state.passed, t_state.failed, t_state.skipped);
  return t_state.failed == 0 ? 0 : 1;
}

#endif
