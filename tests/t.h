// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The test harness. All files of a folder of tests are one program, together with t.c, which has main(). A
// file includes this header and writes tests:
//
//   T_TEST(test_block__splits_in_two) { T_EQ(1 + 1, 2); }
//   static const char* const policies[] = { "torch", "tide", NULL };
//   T_TEST_OVER(test_block__merges, policies) { T_CHECK(strlen(t_variant()) > 0); }
//
// Every test runs in its own process, which calls exit() when it passes, so that a leak checker can run.
// Asserts work on every thread: they print and end the process. A role is a function for a second process:
// the program executes itself with `--role NAME ARGUMENT`, and runs no test there.
//
// A file whose tests start threads, or call something that does, says `#define T_THREADS` before it includes
// anything. The thread sanitizer runs these files alone; in the others, starting a thread fails the test.
//
//   program [--list] [--file NAME] [part of a name ...]
//   TIDE_TEST_TIER     quick (default) or thorough: see t_scaled(), t_sample_step() and t_only_thorough()
//   TIDE_TEST_SEED     the seed of t_rng; default 1; always printed
//   TIDE_TEST_SCALE    a factor for t_scaled(); default 1
//   TIDE_TEST_TIMEOUT  a factor for the limits of each test; default 1
//   TIDE_TEST_HOST     if set: the quick tier leaves out "dry" variants of tests that have a "host" one
//
// A test may use 60 s of processor time, 180 s under a sanitizer, so a busy computer does not matter. A test
// that hangs is killed when the elapsed time is five times its limit when quick, thirty times when thorough.
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

#ifdef T_THREADS
#define T_HAS_THREADS true
#else
#define T_HAS_THREADS false
#endif

typedef struct t_test {
  const char* name;
  void (*run)(void);
  const char* const* variants;  // borrowed for ever; ends with NULL; NULL: the test runs once
  const char* file;             // where it is written
  bool may_start_threads;
  struct t_test* next;
} t_test;

typedef struct t_role {
  const char* name;
  void (*run)(const char* argument);
  const char* file;  // a header may give one role to several files of a program
  struct t_role* next;
} t_role;

void t_register(t_test* test);
void t_register_role(t_role* role);

#define T_REGISTER(function, run, variants)                                           \
  __attribute__((constructor)) static void function##_register(void) {                \
    static t_test test = { #function, run, variants, __FILE__, T_HAS_THREADS, NULL }; \
    t_register(&test);                                                                \
  }

#define T_TEST(function) T_TEST_OVER(function, NULL)
#define T_TEST_OVER(function, variants)    \
  static void function(void);              \
  T_REGISTER(function, function, variants) \
  static void function(void)

#define T_ROLE(function)                                               \
  static void function(const char* argument);                          \
  __attribute__((constructor)) static void function##_register(void) { \
    static t_role role = { #function, function, __FILE__, NULL };      \
    t_register_role(&role);                                            \
  }                                                                    \
  static void function(const char* argument)

// The variant of the running test; "" without variants. And its name, with the variant.
const char* t_variant(void);
const char* t_name(void);

// ---------------------------------------------------------------------------------------------------
// Asserts

__attribute__((noreturn, cold, format(printf, 3, 4))) void t_fail(const char* file, int line,
                                                                  const char* format, ...);

// Ends the test as skipped; the reason is printed.
__attribute__((noreturn, cold, format(printf, 1, 2))) void t_skip(const char* format, ...);

#include "conformance/expect.h"

// ---------------------------------------------------------------------------------------------------
// Tier, seed, scale, time, and resources of the process

bool t_is_thorough(void);

// The first line of a test that only the thorough tier runs, because it is long and cannot be shortened.
void t_only_thorough(void);
// The first line of a test that the quick tier runs with one variant, which the seed chooses.
void t_one_variant(const char* const* variants);

// A loop over many similar cases, such as a fault at every call, begins with the first plus t_sample_first()
// and advances by t_sample_step(). When thorough these are all; when quick every seventh, beginning where the
// seed says, so that seven seeds see them all.
size_t t_sample_first(void);
size_t t_sample_step(void);

uint64_t t_seed(void);
double t_scale(void);  // with the factor of the tier, a tenth when quick

// A generator for a test or thread. The same seed and index give the same numbers.
static inline t_rng t_rng_new(uint64_t index) { return t_rng_of(t_seed(), index); }

// How often a loop runs: `count` times the scale, and a tenth of that in the quick tier. A test that asserts
// that something did happen says how many it needs for that.
size_t t_scaled(size_t count);
size_t t_scaled_least(size_t count, size_t least);

// The same for random loops of a single thread. There the thread sanitizer finds nothing that other passes
// miss, so under it a quarter is enough.
size_t t_scaled_alone(size_t count);

// The processor time that this process has used. Limits in tests use it, because other programs do not change
// it.
uint64_t t_processor_ns(void);

size_t t_count_descriptors(void);
size_t t_count_threads(void);
size_t t_count_mappings(void);

// Starting a thread fails the running test from now on.
void t_forbid_threads(void);

// A test that hangs is killed when the elapsed time is this many times its limit of processor time.
unsigned t_hang_factor(void);

// SIGXCPU ends a process that exceeds its processor time. Child processes inherit the limit.
void t_limit_processor_time(double seconds);

// A positive number from the environment.
double t_env_number(const char* name, double otherwise);

const char* t_signal_name(int number);

// ---------------------------------------------------------------------------------------------------
// Shrinking of failing inputs

// Call this when an input has failed, before shrinking it. It prints the failure and the command that repeats
// it, in case shrinking fails. It also removes the test's limit of processor time; t_shrink_has_time() limits
// the shrinking instead.
__attribute__((cold, format(printf, 1, 2))) void t_shrink_begin(const char* format, ...);
bool t_shrink_has_time(void);
#define T_SHRINK_SECONDS 20u

#endif
