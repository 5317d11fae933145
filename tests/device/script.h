// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs a Python script that lies beside the tests and reads what it prints. Without the folder of sources,
// or without python3, the test is skipped.
//
//   script s = script_open("tests/replay/model_case.py", (const char*[]){ path, NULL });
//   ... fgets(line, sizeof line, s.output) ...
//   script_close(&s);   // which must have succeeded
#ifndef TIDEMARK_TESTS_SCRIPT_H
#define TIDEMARK_TESTS_SCRIPT_H

#include <spawn.h>

#include "t.h"

#define SCRIPT_PATH 1024
#define SCRIPT_ARGUMENTS 6
#define SCRIPT_SOURCE "TIDEMARK_SOURCE"

extern char** environ;

typedef struct script {
  pid_t pid;
  FILE* output;  // owned
} script;

// A file below the folder that an environment variable names; the test is skipped unless both are there. Who
// starts a program by hand does so in the folder of sources.
static inline void script_path(char out[SCRIPT_PATH], const char* variable, const char* file) {
  const char* folder = getenv(variable);
  if (folder == NULL && strcmp(variable, SCRIPT_SOURCE) == 0) folder = ".";
  if (folder == NULL || *folder == '\0') t_skip("%s is not set", variable);
  const int length = snprintf(out, SCRIPT_PATH, "%s/%s", folder, file);
  T_CHECK(length > 0 && length < SCRIPT_PATH);
  if (access(out, R_OK) != 0) t_skip("%s has no %s", variable, file);
}

// Starts a program with its output in a pipe, and returns the end to read from.
static inline int script_spawn(char** argv, pid_t* out_pid) {
  int ends[2];
  T_EQ(pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  T_EQ(posix_spawn_file_actions_init(&actions), 0);
  T_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO), 0);
  T_EQ(posix_spawn_file_actions_addclose(&actions, ends[0]), 0);
  T_EQ(posix_spawn_file_actions_addclose(&actions, ends[1]), 0);
  const int error = posix_spawnp(out_pid, argv[0], &actions, NULL, argv, environ);
  if (error != 0) t_skip("%s: %s", argv[0], strerror(error));
  (void)posix_spawn_file_actions_destroy(&actions);
  (void)close(ends[1]);
  return ends[0];
}

static inline script script_open(const char* file, const char* const* arguments) {
  char path[SCRIPT_PATH];
  char texts[SCRIPT_ARGUMENTS][SCRIPT_PATH];
  char python[] = "python3";
  char* argv[SCRIPT_ARGUMENTS + 3] = { python, path };
  script_path(path, SCRIPT_SOURCE, file);
  for (size_t i = 0; arguments[i] != NULL; ++i) {
    T_LT(i, SCRIPT_ARGUMENTS);
    (void)snprintf(texts[i], SCRIPT_PATH, "%s", arguments[i]);
    argv[i + 2] = texts[i];
  }
  script s = { 0, NULL };
  s.output = fdopen(script_spawn(argv, &s.pid), "r");
  T_CHECK(s.output != NULL);
  return s;
}

static inline void script_close(script* s) {
  (void)fclose(s->output);
  int status = 0;
  T_EQ(waitpid(s->pid, &status, 0), s->pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    T_FAIL("the script ended with status 0x%x", (unsigned)status);
}

#endif
