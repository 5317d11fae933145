// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Memory at unusual moments: in constructors and destructors, at exit, in threads that are ending, after the
// thread that made it is gone, and in a library that is loaded and unloaded (its path is the argument).
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)400000)

static void* from_constructor;
static pthread_key_t key;

// Makes a block with a known content, or prints that there is no memory.
static void* block_new(const char* moment) {
  void* const block = malloc(BYTES);
  if (block == NULL) (void)printf("no memory %s\n", moment);
  else memset(block, 42, BYTES);
  return block;
}

static void block_free(const char* moment, void* block) {
  bool is_good = block != NULL;
  for (size_t i = 0; is_good && i < BYTES; ++i) is_good = ((unsigned char*)block)[i] == 42;
  (void)printf("%s: %s\n", moment, is_good ? "good" : "wrong");
  free(block);
}

__attribute__((constructor)) static void at_start(void) { from_constructor = block_new("in a constructor"); }

__attribute__((destructor)) static void at_end(void) {
  block_free("made in a constructor, released in a destructor", from_constructor);
  block_free("made and released in a destructor", block_new("in a destructor"));
}

static void at_exit(void) { block_free("made and released at exit", block_new("at exit")); }

// Called when a thread ends, four rounds of it: each time the next block is made and the last one released.
static void at_thread_end(void* value) {
  char* const block = value;
  const char rounds = block[0];
  free(block);
  if (rounds == 0) return;
  char* const again = malloc(BYTES * (size_t)rounds);
  if (again == NULL) abort();
  again[0] = (char)(rounds - 1);
  (void)pthread_setspecific(key, again);
}

static void* thread_run(void* argument) {
  char* const block = calloc(BYTES, 1);
  if (block == NULL) abort();
  block[0] = 3;
  (void)pthread_setspecific(key, block);
  void** const slot = argument;
  free(*slot);
  *slot = block_new("in a thread");
  return NULL;
}

static void try_threads(void) {
  void* slots[4] = { NULL, block_new("before a thread"), NULL, NULL };
  if (pthread_key_create(&key, at_thread_end) != 0) abort();
  for (int round = 0; round < 20; ++round) {
    pthread_t threads[4];
    for (int i = 0; i < 4; ++i) {
      if (pthread_create(&threads[i], NULL, thread_run, &slots[i]) != 0) abort();
    }
    for (int i = 0; i < 4; ++i) (void)pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < 4; ++i) block_free("of a thread that is gone", slots[i]);
}

static void try_library(const char* path) {
  for (int round = 0; round < 3; ++round) {
    void* const library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
      (void)printf("%s\n", dlerror());
      return;
    }
    void* (*exchange)(void*) = NULL;
    void* const symbol = dlsym(library, "visitor_exchange");
    memcpy(&exchange, &symbol, sizeof exchange);
    block_free("of a library", exchange(block_new("for a library")));
    (void)dlclose(library);
  }
}

int main(int argc, char** argv) {
  (void)atexit(at_exit);
  try_threads();
  if (argc > 1) try_library(argv[1]);
  return 0;
}
