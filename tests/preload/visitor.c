// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A library that a test program loads and unloads: it releases the program's block and makes one for it.
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)400000)

void* visitor_exchange(void* block);

void* visitor_exchange(void* block) {
  free(block);
  void* const made = malloc(BYTES);
  if (made != NULL) memset(made, 42, BYTES);
  return made;
}
