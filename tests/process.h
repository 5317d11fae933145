// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A second process of the same program, connected by a socket. It runs a role (T_ROLE), whose argument is its
// descriptor of the socket, and must exit when the socket is closed.
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

// Kills the process and waits for its end.
static inline void t_process_kill(t_process* p) {
  T_EQ(kill(p->pid, SIGKILL), 0);
  T_EQ(waitpid(p->pid, NULL, 0), p->pid);
  (void)close(p->socket);
}

// Closes the socket and waits until the process has exited.
static inline void t_process_end(t_process* p) {
  int status = 0;
  (void)close(p->socket);
  T_EQ(waitpid(p->pid, &status, 0), p->pid);
  T_CHECK(WIFEXITED(status));
  T_EQ(WEXITSTATUS(status), 0);
}

#endif
