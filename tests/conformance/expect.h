// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Asserts, random numbers, time and threads, for tests (t.h) and for checks of the conformance suite
// (check.h). The including file declares t_fail(), which prints and ends the process. If it defines
// T_WHEN_UNSUPPORTED, that runs first when a call that must succeed returns TIDE_ERR_UNSUPPORTED.
#ifndef TIDEMARK_CONFORMANCE_EXPECT_H
#define TIDEMARK_CONFORMANCE_EXPECT_H

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "tidemark/base.h"

// ---------------------------------------------------------------------------------------------------
// Sanitizers

#if defined(__has_feature)
#define T_HAS_FEATURE(x) __has_feature(x)
#else
#define T_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || T_HAS_FEATURE(address_sanitizer)
#define T_HAS_ADDRESS_SANITIZER 1
#else
#define T_HAS_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || T_HAS_FEATURE(thread_sanitizer)
#define T_HAS_THREAD_SANITIZER 1
#else
#define T_HAS_THREAD_SANITIZER 0
#endif
#define T_HAS_SANITIZER (T_HAS_ADDRESS_SANITIZER || T_HAS_THREAD_SANITIZER)

// ---------------------------------------------------------------------------------------------------
// Asserts

__attribute__((noreturn, noinline, cold, unused)) static void t_fail_order(const char* file, int line,
                                                                           const char* text, intmax_t a,
                                                                           intmax_t b) {
  t_fail(file, line, "%s: %jd (0x%jx) and %jd (0x%jx)", text, a, (uintmax_t)a, b, (uintmax_t)b);
}

__attribute__((noreturn, noinline, cold, unused)) static void t_fail_status(const char* file, int line,
                                                                            const char* text, tide_status got,
                                                                            tide_status want) {
#ifdef T_WHEN_UNSUPPORTED
  if (got == TIDE_ERR_UNSUPPORTED && want == TIDE_OK) T_WHEN_UNSUPPORTED();
#endif
  t_fail(file, line, "%s is %s, not %s (last error: %s)", text, tide_status_name(got), tide_status_name(want),
         tide_last_error()->text);
}

static inline void t_check_pointer(const char* file, int line, const char* text, const void* a,
                                   const void* b) {
  if (a != b) t_fail(file, line, "%s: %p and %p", text, a, b);
}

static inline void t_check_text(const char* file, int line, const char* text, const char* a, const char* b) {
  if (strcmp(a, b) != 0) t_fail(file, line, "%s: \"%s\" and \"%s\"", text, a, b);
}

static inline void t_check_contains(const char* file, int line, const char* a, const char* part) {
  if (strstr(a, part) == NULL) t_fail(file, line, "\"%s\" is not in \"%s\"", part, a);
}

static inline void t_check_status(const char* file, int line, const char* text, tide_status got,
                                  tide_status want) {
  if (got != want) t_fail_status(file, line, text, got, want);
}

static inline void t_take_any(tide_status status) { (void)status; }

static inline void t_check_filled(const char* file, int line, const void* memory, uint8_t value,
                                  size_t bytes) {
  const uint8_t* const p = memory;
  // One call of the library compares all bytes, where a sanitizer would look at each access of a loop.
  if (bytes == 0 || (p[0] == value && memcmp(p, p + 1, bytes - 1) == 0)) return;
  for (size_t i = 0; i < bytes; ++i) {
    if (p[i] != value) t_fail(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", i, bytes, p[i], value);
  }
}

#define T_FAIL(...) t_fail(__FILE__, __LINE__, __VA_ARGS__)
#define T_CHECK(condition)                      \
  do {                                          \
    if (!(condition)) T_FAIL("%s", #condition); \
  } while (0)
#define T_ORDER(a, order, b)                                                                  \
  do {                                                                                        \
    const __typeof__(a) t_a_ = (a);                                                           \
    const __typeof__(b) t_b_ = (b);                                                           \
    if (!((uintmax_t)t_a_ order(uintmax_t) t_b_)) {                                           \
      t_fail_order(__FILE__, __LINE__, #a " " #order " " #b, (intmax_t)t_a_, (intmax_t)t_b_); \
    }                                                                                         \
  } while (0)
#define T_EQ(a, b) T_ORDER(a, ==, b)  // for integers, enums and bools; compares as unsigned
#define T_NE(a, b) T_ORDER(a, !=, b)
#define T_LT(a, b) T_ORDER(a, <, b)
#define T_LE(a, b) T_ORDER(a, <=, b)
#define T_PTR_EQ(a, b) t_check_pointer(__FILE__, __LINE__, #a " == " #b, a, b)
#define T_STR_EQ(a, b) t_check_text(__FILE__, __LINE__, #a " == " #b, a, b)
#define T_STR_HAS(a, part) t_check_contains(__FILE__, __LINE__, a, part)
#define T_FILLED(memory, value, bytes) t_check_filled(__FILE__, __LINE__, memory, value, bytes)
#define T_STATUS(expression, want)                                                          \
  do {                                                                                      \
    const tide_status t_got_ = (expression);                                                \
    const tide_status t_want_ = (want);                                                     \
    if (t_got_ != t_want_) t_fail_status(__FILE__, __LINE__, #expression, t_got_, t_want_); \
  } while (0)
#define T_OK(expression) T_STATUS(expression, TIDE_OK)
#define T_ANY(expression) t_take_any(expression)  // accepts any status

// ---------------------------------------------------------------------------------------------------
// Random numbers

typedef struct t_rng {
  uint64_t state;
} t_rng;

// SplitMix64: every seed gives a sequence with the full period.
static inline uint64_t t_rng_next(t_rng* rng) {
  uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// A number below `limit`, which is not 0.
static inline uint64_t t_rng_below(t_rng* rng, uint64_t limit) { return t_rng_next(rng) % limit; }

// A generator for a test or thread. The same seed and index give the same numbers.
static inline t_rng t_rng_of(uint64_t seed, uint64_t index) {
  t_rng rng = { seed ^ (index * 0xd1342543de82ef95u) };
  return rng;
}

// ---------------------------------------------------------------------------------------------------
// Time and threads

static inline uint64_t t_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void t_sleep_us(uint64_t us) {
  const struct timespec pause = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
  (void)nanosleep(&pause, NULL);
}

// Waits for a condition that another thread or process makes true. Fails after five minutes.
#define T_WAIT(condition)                                                     \
  do {                                                                        \
    const uint64_t t_end_ = t_now_ns() + (uint64_t)300 * 1000000000u;         \
    while (!(condition) && t_now_ns() < t_end_) t_sleep_us(100);              \
    if (!(condition)) T_FAIL("after 300 s it is not so that %s", #condition); \
  } while (0)

static inline void t_thread_start(pthread_t* out, void* (*function)(void*), void* user) {
  const int error = pthread_create(out, NULL, function, user);
  if (error != 0) T_FAIL("pthread_create: %s", strerror(error));
}

static inline void t_thread_join(pthread_t thread) {
  const int error = pthread_join(thread, NULL);
  if (error != 0) T_FAIL("pthread_join: %s", strerror(error));
}

#endif
