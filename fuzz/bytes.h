// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What fuzz targets share: the bytes that decide what happens, and what must hold.
#ifndef TIDEMARK_FUZZ_BYTES_H
#define TIDEMARK_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define FUZZ_REQUIRE(cond) \
  do {                     \
    if (!(cond)) abort();  \
  } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

typedef struct fuzz_bytes {
  const uint8_t* at;
  size_t left;
} fuzz_bytes;

// The next byte; 0 after the last.
static inline uint8_t fuzz_take(fuzz_bytes* b) {
  if (b->left == 0) return 0;
  b->left--;
  return *b->at++;
}

#endif
