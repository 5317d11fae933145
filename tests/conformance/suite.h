// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Internals of the conformance suite: the list of checks and how they run. For conformance.c and for tests of
// this tree that run single checks.
#ifndef TIDEMARK_CONFORMANCE_SUITE_H
#define TIDEMARK_CONFORMANCE_SUITE_H

#include "tidemark/machine.h"

typedef struct tide_check {
  const char* name;
  void (*run)(tide_machine* m);
  bool is_real;  // needs real memory and real time, so it cannot run on dry
  struct tide_check* next;
} tide_check;

// The settings of the checks in this process.
typedef struct tide_check_state {
  uint64_t seed;
  double scale;
  bool is_strict;                    // an absent function fails a check
  void (*skip)(const char* reason);  // ends the process
} tide_check_state;
extern tide_check_state tide_checks;

// The first check of the list, which is in the order of execution.
tide_check* tide_check_first(void);
void tide_check_register(tide_check* check);
// Runs a check on a machine, and frees the machine.
void tide_check_run(const tide_check* check, tide_machine* m);

__attribute__((noreturn, cold, format(printf, 3, 4))) void tide_check_fail(const char* file, int line,
                                                                           const char* format, ...);
__attribute__((noreturn, cold, format(printf, 1, 2))) void tide_check_skip(const char* format, ...);

#endif
