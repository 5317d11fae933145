// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The conformance suite: checks any machine against the contract of machine.h.
//
//   static tide_status mine_new(void* user, tide_machine** out) { return tide_machine_new(&ops, ..., out); }
//
//   int main(int argc, char** argv) {
//     tide_conformance suite = TIDE_CONFORMANCE_INIT;
//     suite.machine_new = mine_new;
//     suite.only = argc > 1 ? argv[1] : NULL;
//     return tide_conformance_run(&suite) == 0 ? 0 : 1;
//   }
//
// Link with tidemark::conformance (CMake), or with -ltidemark_conformance before -ltidemark.
#ifndef TIDEMARK_CONFORMANCE_H
#define TIDEMARK_CONFORMANCE_H

#include "tidemark/machine.h"

TIDE_BEGIN_DECLS

typedef struct tide_conformance {
  uint32_t size;     // set by TIDE_CONFORMANCE_INIT
  uint32_t seconds;  // time limit of one check
  // Creates a machine. Called once for each check, in the process of the check, which frees the machine.
  tide_status (*machine_new)(void* user, tide_machine** out);
  void* user;        // for machine_new
  const char* only;  // runs only checks whose name contains this; NULL: all
} tide_conformance;
#define TIDE_CONFORMANCE_INIT \
  { sizeof(tide_conformance), 300, NULL, NULL, NULL }

// Runs the checks and prints one line for each: "ok", "skip" with the reason, or "FAIL" with the expectation.
// The last line is "N passed, N failed, N skipped". A check is skipped if the machine lacks a function that
// it needs, or has one device where it needs two. Each check runs in a child process, so a crash or a hang
// fails only that check. Do not create a machine or start a thread before this call: a driver may not survive
// fork(). Returns the number of failed checks, or -1 if `suite` is not valid.
int tide_conformance_run(const tide_conformance* suite);

TIDE_END_DECLS
#endif
