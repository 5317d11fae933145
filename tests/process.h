// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A second process of the same program that a test talks to over a socket: a role (T_ROLE) whose argument is
// the number of its end. It is to leave when the socket closes.
#ifndef TIDEMARK_TESTS_PROCESS_H
#define TIDEMARK_TESTS_PROCESS_H

#include <spawn.h>
#include <sys/socket.h>

#include "t.h"

typedef struct t_process {
  pid_t pid;
  int socket;
} t_process;

extern char** environ;

static inline t_process t_process_new(const char* role_name) {
  enum { THEIR_SOCKET = 3 };
  t_process p = { 0, -1 };
  int ends[2];
  T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  p.socket = ends[0];
  char program[] = "/proc/self/exe";
  char flag[] = "--role";
  char role[64];
  char socket_name[] = "3";
  (void)snprintf(role, sizeof role, "%s", role_name);
  char* const arguments[] = { program, flag, role, socket_name, NULL };
  posix_spawn_file_actions_t actions;
  T_EQ(posix_spawn_file_actions_init(&actions), 0);
  T_EQ(posix_spawn_file_actions_adddup2(&actions, ends[1], THEIR_SOCKET), 0);
  T_EQ(posix_spawn(&p.pid, program, &actions, NULL, arguments, environ), 0);
  T_EQ(posix_spawn_file_actions_destroy(&actions), 0);
  (void)close(ends[1]);
  return p;
}

// Kills it and waits until it is gone.
static inline void t_process_kill(t_process* p) {
  T_EQ(kill(p->pid, SIGKILL), 0);
  T_EQ(waitpid(p->pid, NULL, 0), p->pid);
  (void)close(p->socket);
}

// Lets it free what it has and leave.
static inline void t_process_end(t_process* p) {
  int status = 0;
  (void)close(p->socket);
  T_EQ(waitpid(p->pid, &status, 0), p->pid);
  T_CHECK(WIFEXITED(status));
  T_EQ(WEXITSTATUS(status), 0);
}

#endif
