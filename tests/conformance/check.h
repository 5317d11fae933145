// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The macros for checks of the suite:
//
//   CHECK(event__never_recorded_is_done) { ... tide_machine* m ... T_OK(...); }
//
// A check gets a new machine and its own process. It need not free its objects: tide_machine_free() does. The
// asserts are those of expect.h, with one difference: if a call that must succeed returns
// TIDE_ERR_UNSUPPORTED, the check is skipped.
#ifndef TIDEMARK_CONFORMANCE_CHECK_H
#define TIDEMARK_CONFORMANCE_CHECK_H

#include "conformance/suite.h"

#define t_fail tide_check_fail
#define t_skip tide_check_skip
#define T_WHEN_UNSUPPORTED() \
  if (!tide_checks.is_strict) tide_check_skip("%s", tide_last_error()->text)

#include "conformance/tools.h"

static inline uint64_t t_seed(void) { return tide_checks.seed; }
static inline t_rng t_rng_new(uint64_t index) { return t_rng_of(t_seed(), index); }
static inline size_t t_scaled(size_t count) {
  const double scaled = (double)count * tide_checks.scale;
  return scaled < 1.0 ? 1 : (size_t)scaled;
}

#define CHECK_OF(function, is_real)                                          \
  static void function(tide_machine* m);                                     \
  __attribute__((constructor(1000))) static void function##_register(void) { \
    static tide_check check = { #function, function, is_real, NULL };        \
    tide_check_register(&check);                                             \
  }                                                                          \
  static void function(tide_machine* m)
#define CHECK(function) CHECK_OF(function, false)
#define CHECK_REAL(function) CHECK_OF(function, true)

// Defines a symbol for a file of checks, so that the linker includes the file: see conformance.c.
#define CHECK_FILE(name)         \
  extern const char tide_##name; \
  const char tide_##name = 0

#endif
