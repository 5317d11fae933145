// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Runs a command, prints the processor time of it and its ended children, and returns its exit status. ./dev
// adds the times up.
//
//   t_clock COMMAND [ARGUMENT ...]
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

int main(int argc, char** argv) {
  struct rusage used;
  int status = 0;
  if (argc < 2) return 2;
  const pid_t child = fork();
  if (child < 0) return 2;
  if (child == 0) {
    (void)execvp(argv[1], argv + 1);
    perror(argv[1]);
    _exit(127);
  }
  if (waitpid(child, &status, 0) != child || getrusage(RUSAGE_CHILDREN, &used) != 0) return 2;
  (void)printf("processor time: %.2f s\n", seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
