// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The runner of the conformance suite: one child process for each check.
#include "conformance/conformance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/check.h"

#define SKIPPED 77
#define REASON_BYTES 300

// The files of checks. These references make the linker include them from the static library, with the
// constructors that register their checks.
extern const char tide_check_memory, tide_check_copy, tide_check_stream, tide_check_order, tide_check_event,
    tide_check_virtual, tide_check_capture, tide_check_launch, tide_check_rules, tide_check_fault;
__attribute__((used)) static const char* const files[] = {
  &tide_check_memory,  &tide_check_copy,    &tide_check_stream, &tide_check_order, &tide_check_event,
  &tide_check_virtual, &tide_check_capture, &tide_check_launch, &tide_check_rules, &tide_check_fault
};

static void skip_to_pipe(const char* reason);

tide_check_state tide_checks = { 1, 1.0, false, skip_to_pipe };
static tide_check* first_check;
static tide_check** last_check = &first_check;
static int skip_pipe[2];

tide_check* tide_check_first(void) { return first_check; }

void tide_check_register(tide_check* check) {
  *last_check = check;
  last_check = &check->next;
}

void tide_check_run(const tide_check* check, tide_machine* m) {
  if (check->is_real && !machine_has_memory(m)) tide_check_skip("the machine has no memory and no real time");
  check->run(m);
  tide_machine_free(m);
}

void tide_check_fail(const char* file, int line, const char* format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(text, sizeof text, format, list);
  va_end(list);
  (void)dprintf(STDERR_FILENO, "%s:%d: %s\n", file, line, text);
  _exit(1);
}

void tide_check_skip(const char* format, ...) {
  char reason[REASON_BYTES];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(reason, sizeof reason, format, list);
  va_end(list);
  tide_checks.skip(reason);
  _exit(1);
}

static void skip_to_pipe(const char* reason) {
  const ssize_t written = write(skip_pipe[1], reason, strlen(reason));
  _exit(written < 0 ? 1 : SKIPPED);
}

__attribute__((noreturn)) static void child_run(const tide_conformance* suite, const tide_check* check) {
  tide_machine* m = NULL;
  (void)alarm(suite->seconds);
  const tide_status status = suite->machine_new(suite->user, &m);
  if (status != TIDE_OK || m == NULL)
    tide_check_fail(check->name, 0, "no machine: %s", tide_last_error()->text);
  tide_check_run(check, m);
  exit(0);
}

typedef struct totals {
  int passed;
  int failed;
  int skipped;
} totals;

static void report(const tide_conformance* suite, const tide_check* check, int status, totals* sum) {
  char reason[REASON_BYTES] = "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    sum->passed++;
    (void)printf("ok   %s\n", check->name);
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED &&
             read(skip_pipe[0], reason, sizeof reason - 1) > 0) {
    sum->skipped++;
    (void)printf("skip %s: %s\n", check->name, reason);
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    sum->failed++;
    (void)printf("FAIL %s: not done after %u s\n", check->name, (unsigned)suite->seconds);
  } else {
    sum->failed++;
    (void)printf("FAIL %s: %s %d\n", check->name, WIFSIGNALED(status) ? "killed by signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
}

// Runs one check in a child process. Returns false if it cannot be started.
static bool check_fork(const tide_conformance* suite, const tide_check* check, totals* sum) {
  int status = 0;
  (void)fflush(NULL);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) child_run(suite, check);
  if (waitpid(child, &status, 0) != child) return false;
  report(suite, check, status, sum);
  return true;
}

int tide_conformance_run(const tide_conformance* suite) {
  if (suite == NULL || suite->size < sizeof *suite || suite->machine_new == NULL || pipe(skip_pipe) != 0)
    return -1;
  totals sum = { 0, 0, 0 };
  for (const tide_check* check = tide_check_first(); check != NULL; check = check->next) {
    if (suite->only != NULL && strstr(check->name, suite->only) == NULL) continue;
    if (!check_fork(suite, check, &sum)) sum.failed++;
  }
  (void)close(skip_pipe[0]);
  (void)close(skip_pipe[1]);
  (void)printf("%d passed, %d failed, %d skipped\n", sum.passed, sum.failed, sum.skipped);
  return sum.failed;
}
