// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A program that locks all its memory with mlockall(), before its first large block or after it, uses a few
// blocks on two threads, and says whether its resident memory is what it used. The limit for data keeps an
// allocator that fails from taking the whole computer.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)
#define MAX_RESIDENT_MIB 256
#define MAX_DATA_BYTES (2048 * MIB)

static void use_blocks(void) {
  for (size_t round = 0; round < 3; ++round) {
    unsigned char* const dirty = malloc(3 * MIB);
    if (dirty == NULL) abort();
    memset(dirty, 0x77, 3 * MIB);
    free(dirty);
    unsigned char* const zeros = calloc(3, MIB);
    if (zeros == NULL) abort();
    for (size_t i = 0; i < 3 * MIB; ++i) {
      if (zeros[i] != 0) (void)printf("byte %zu is not 0\n", i), abort();
    }
    unsigned char* const grown = realloc(zeros, 9 * MIB);
    if (grown == NULL || grown[3 * MIB - 1] != 0) abort();
    free(grown);
    free(malloc(100 * round));
  }
}

static void* thread_run(void* user) {
  use_blocks();
  return user;
}

// A user without privileges may lock a few MiB. mlockall() succeeds there, and mapping more fails afterwards.
static int can_map_locked(void) {
  void* const probe =
      mmap(NULL, MAX_RESIDENT_MIB * MIB / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return probe != MAP_FAILED && munmap(probe, MAX_RESIDENT_MIB * MIB / 4) == 0;
}

int main(int count, char** words) {
  const int flags = count > 1 ? atoi(words[1]) : MCL_FUTURE;
  const struct rlimit limit = { MAX_DATA_BYTES, MAX_DATA_BYTES };
  struct rusage usage;
  pthread_t thread;
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return 77;
  if (count > 2) use_blocks();
  if (mlockall(flags) != 0 || !can_map_locked()) {
    perror("locked memory");
    return 77;
  }
  use_blocks();
  if (pthread_create(&thread, NULL, thread_run, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
  (void)getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss > MAX_RESIDENT_MIB * 1024) {
    (void)printf("%ld MiB are resident\n", usage.ru_maxrss / 1024);
    return 1;
  }
  (void)printf("locked with %d: little is resident\n", flags);
  return 0;
}
