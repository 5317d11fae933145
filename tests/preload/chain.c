// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Buffers that grow and shrink by realloc(), smoothly and at random, back and forth over the thresholds; each
// byte is checked after each step. Prints a sum over the contents.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST ((size_t)3 << 20)

typedef struct buffer {
  unsigned char* address;
  size_t bytes;
  uint64_t sum;
} buffer;

static void buffer_resize(buffer* b, size_t bytes) {
  b->address = realloc(b->address, bytes);
  if (b->address == NULL) abort();
  const size_t kept = b->bytes < bytes ? b->bytes : bytes;
  for (size_t i = 0; i < kept; ++i) {
    if (b->address[i] != (unsigned char)(i * 7 + (i >> 12))) {
      (void)printf("chain: byte %zu has changed from %zu to %zu bytes\n", i, b->bytes, bytes);
      (void)fflush(stdout);
      abort();
    }
  }
  for (size_t i = kept; i < bytes; ++i) b->address[i] = (unsigned char)(i * 7 + (i >> 12));
  b->sum = b->sum * 31 + b->address[bytes / 2] + bytes;
  b->bytes = bytes;
}

int main(void) {
  buffer smooth = { NULL, 0, 0 };
  buffer wild = { NULL, 0, 0 };
  uint64_t state = 1;
  for (size_t bytes = 1; bytes < LARGEST; bytes += bytes / 16 + 1) {
    buffer_resize(&smooth, bytes);
    state = state * 6364136223846793005u + 1442695040888963407u;
    buffer_resize(&wild, 1 + (state >> 33) % ((size_t)1 << (state >> 59) % 22));
  }
  while (smooth.bytes > 16) buffer_resize(&smooth, smooth.bytes - smooth.bytes / 8 - 1);
  free(smooth.address);
  free(wild.address);
  (void)printf("chain: %016llx %016llx\n", (unsigned long long)smooth.sum, (unsigned long long)wild.sum);
  return 0;
}
