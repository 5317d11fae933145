// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program with several threads that starts children in the middle of their work: by fork(), whose children
// go on allocating, with threads of their own, and by posix_spawn() and system(). Nobody may hang, and what a
// child inherits is as it was.
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 3
#define CHILDREN 12
#define BYTES ((size_t)1500000)

static atomic_bool is_over;

static bool has_only(const unsigned char* memory, unsigned char value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[i] != value) return false;
  }
  return true;
}

// Blocks of many sizes, made, checked and released.
static bool round_of_work(size_t seed) {
  unsigned char* blocks[8];
  bool is_good = true;
  for (size_t i = 0; i < 8; ++i) {
    const size_t bytes = (seed * 7919 + i * 104729) % BYTES + 1;
    blocks[i] = malloc(bytes);
    if (blocks[i] == NULL) return false;
    memset(blocks[i], (int)i + 1, bytes < 5000 ? bytes : 5000);
  }
  for (size_t i = 0; i < 8; ++i) {
    is_good = is_good && blocks[i][0] == i + 1;
    free(blocks[i]);
  }
  return is_good;
}

static void* work(void* argument) {
  for (size_t seed = *(const size_t*)argument; !atomic_load(&is_over); ++seed) {
    if (!round_of_work(seed)) abort();
  }
  return NULL;
}

static void* work_once(void* argument) { return round_of_work(3) ? argument : NULL; }

// The status of a child: 0 when all went well.
static int child_run(unsigned char* inherited, int number) {
  (void)alarm(300);  // a child that hangs is a failure, not a test that never ends
  if (!has_only(inherited, 77, BYTES)) return 1;
  for (size_t seed = 0; seed < 20; ++seed) {
    if (!round_of_work(seed)) return 2;
  }
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, work_once, inherited) != 0) return 3;
  if (pthread_join(thread, &result) != 0 || result != inherited) return 4;
  free(inherited);
  if (number % 4 != 0) return 0;
  const pid_t grandchild = fork();
  if (grandchild == 0) _exit(round_of_work(5) ? 0 : 5);
  int status = -1;
  return waitpid(grandchild, &status, 0) == grandchild ? status : 6;
}

static int children_fork(unsigned char* block) {
  int good = 0;
  for (int number = 0; number < CHILDREN; ++number) {
    const pid_t child = fork();
    if (child == 0) {
      const int status = child_run(block, number);
      if (number % 2 == 0) _exit(status);
      exit(status);
    }
    int status = -1;
    (void)waitpid(child, &status, 0);
    if (status != 0) (void)printf("child %d: status %d\n", number, status);
    good += status == 0;
    (void)round_of_work((size_t)number);
  }
  return good;
}

static int children_spawn(void) {
  int good = 0;
  for (int number = 0; number < 5; ++number) {
    char* const line[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char[]){ "exit 3" }, NULL };
    pid_t child = 0;
    int status = -1;
    if (posix_spawnp(&child, "sh", NULL, NULL, line, environ) != 0) continue;
    (void)waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 3;
  }
  return good;
}

int main(void) {
  pthread_t workers[WORKERS];
  size_t seeds[WORKERS];
  for (size_t i = 0; i < WORKERS; ++i) {
    seeds[i] = i * 1000;
    if (pthread_create(&workers[i], NULL, work, &seeds[i]) != 0) return 1;
  }
  unsigned char* const block = malloc(BYTES);
  if (block == NULL) return 1;
  memset(block, 77, BYTES);
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  (void)printf("%d of %d forked children are well\n", children_fork(block), CHILDREN);
  (void)printf("%d of 5 spawned children are well\n", children_spawn());
  (void)printf("system: %d\n", system("exit 0"));  // NOLINT(cert-env33-c): that a shell runs is the test
  (void)printf("the parent's block is as it was: %d\n", has_only(block, 77, BYTES));
  atomic_store(&is_over, true);
  for (size_t i = 0; i < WORKERS; ++i) (void)pthread_join(workers[i], NULL);
  free(block);
  return 0;
}
