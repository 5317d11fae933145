// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// How much processor time a limit of nodes stands for. A node may look at some ten thousand numbers; how long
// that takes here, with this compiler, this sanitizer and this load, is found by doing it.
#ifndef TIDEMARK_TESTS_YARDSTICK_H
#define TIDEMARK_TESTS_YARDSTICK_H

#include <time.h>

#include "t.h"

enum { YARD_NUMBERS = 16384, YARD_NODE = 40, YARD_NS = 80000000 };

static inline uint64_t yardstick_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// What a walk over the numbers takes, of as many as take YARD_NS together: the clock of a process that has a
// limit of processor time goes in steps of some ms.
static inline uint64_t yardstick_walk_ns(void) {
  static volatile uint64_t numbers[YARD_NUMBERS];
  static uint64_t walk_ns = 0;
  if (walk_ns != 0) return walk_ns;
  const uint64_t begin = yardstick_now_ns();
  uint64_t walks = 0;
  for (; yardstick_now_ns() - begin < YARD_NS; walks++) {
    for (size_t k = 0; k < YARD_NUMBERS; k++) numbers[k] = numbers[k] + k;
  }
  walk_ns = (yardstick_now_ns() - begin) / walks;
  return walk_ns;
}

// What a solver may take that has `count` buffers and a limit of nodes: a node for each of both.
static inline uint64_t yardstick_allowance_ns(uint64_t count, uint64_t nodes) {
  return (uint64_t)20000000 + YARD_NODE * yardstick_walk_ns() * (count + nodes);
}

#endif
