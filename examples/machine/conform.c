// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs the conformance suite on the small machine: conform [part of a name].
#include "small.h"
#include "tidemark/conformance.h"

static tide_status machine_new(void* user, tide_machine** out) {
  (void)user;
  return small_machine_new((uint64_t)256 << 20, out);
}

int main(int argc, char** argv) {
  tide_conformance suite = TIDE_CONFORMANCE_INIT;
  suite.machine_new = machine_new;
  suite.only = argc > 1 ? argv[1] : NULL;
  return tide_conformance_run(&suite) == 0 ? 0 : 1;
}
