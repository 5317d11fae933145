// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The conformance suite on the machines of the library. Each check is one test for each machine.
#define T_THREADS
#include "machine/machines.h"

#include "conformance/suite.h"

static void skip_test(const char* reason) { t_skip("%s", reason); }

// The name of the running test is "NAME[machine]".
static const tide_check* check_of_test(void) {
  const size_t length = strcspn(t_name(), "[");
  for (const tide_check* check = tide_check_first(); check != NULL; check = check->next) {
    if (strlen(check->name) == length && strncmp(check->name, t_name(), length) == 0) return check;
  }
  T_FAIL("no check is called %s", t_name());
}

static void check_body(tide_machine* m) { check_of_test()->run(m); }

static void check_run(void) {
  tide_checks.seed = t_seed();
  tide_checks.scale = t_scale();
  tide_checks.is_strict = strcmp(machine_variant(), "cuda") != 0;
  tide_checks.skip = skip_test;
  if (check_of_test()->is_real && strcmp(machine_variant(), "dry") == 0)
    t_skip("has no memory and no real time");
  machine_run(check_body);
}

// Runs after the constructors of the checks, which have a priority.
__attribute__((constructor)) static void checks_register(void) {
  static t_test tests[512];
  size_t count = 0;
  for (const tide_check* check = tide_check_first(); check != NULL; check = check->next) {
    if (count == sizeof tests / sizeof *tests) abort();
    tests[count] = (t_test){ check->name, check_run, machine_names, __FILE__, T_HAS_THREADS, NULL };
    t_register(&tests[count++]);
  }
}
