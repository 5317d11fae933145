// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A library to be preloaded behind ours whose dlsym() asks for memory, as those of older C libraries do, at
// the moment when ours looks for the allocator that is to serve such requests. At exit it uses what it was
// given as any memory and says how that went. It knows the versions of dlsym() in glibc only.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
typedef void* (*lookup)(void* library, const char* name);

static char* given[3];

void* dlsym(void* restrict library, const char* restrict name) {
  static const char* const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_2.27" };
  static lookup found;
  if (given[0] == NULL) {
    given[0] = calloc(1, 100);
    given[1] = malloc(200);
    given[2] = calloc(10, 30);
    free(malloc(10));
  }
  for (size_t i = 0; found == NULL && i < sizeof versions / sizeof versions[0]; ++i) {
    void* const symbol = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&found, &symbol, sizeof found);
  }
  return found != NULL ? found(library, name) : NULL;
}

__attribute__((destructor)) static void greedy_end(void) {
  if (given[0] == NULL || given[1] == NULL || given[2] == NULL) return;
  (void)memset(given[1], 8, 200);
  given[1] = realloc(given[1], 1000000);
  if (given[1] == NULL) return;
  const int is_good = given[0][99] == 0 && given[2][299] == 0 && given[1][0] == 8 && given[1][199] == 8;
  (void)fprintf(stderr, "the first blocks are %s\n", is_good ? "good" : "wrong");
  for (int i = 0; i < 3; ++i) free(given[i]);
}
#endif
