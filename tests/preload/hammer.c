// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Threads that use every allocation function with sizes around the thresholds and far above, release each
// other's blocks, and check what is in them. Prints a sum over the contents, which no allocator may change.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define SLOTS 24
#define STEPS 3000

typedef struct block {
  unsigned char* address;
  size_t bytes;
  uint64_t seed;  // of its contents
} block;

static struct {
  pthread_mutex_t lock;
  block shelf[16];  // blocks on their way from one thread to another
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void fail(const char* text, size_t bytes) {
  (void)printf("hammer: %s (%zu bytes)\n", text, bytes);
  (void)fflush(stdout);
  abort();
}

static uint64_t random_next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Half of them at the limits that matter, the others anywhere up to 4 MiB, small ones more often.
static size_t random_bytes(uint64_t* state) {
  static const size_t limits[] = { 1024, 4096, 32768, 65536, 131072, 1 << 20 };
  const uint64_t draw = random_next(state);
  if (draw % 2 == 0) return limits[(draw >> 8) % 6] - 40 + (draw >> 16) % 80;
  return 1 + (draw >> 32) % ((size_t)1 << (1 + (draw >> 8) % 22));
}

// The contents are marks at both ends and in each page.
static unsigned char mark_at(const block* b, size_t offset) { return (unsigned char)(b->seed + offset * 31); }

static size_t mark_next(size_t offset, size_t bytes) {
  if (offset < 64 || bytes - offset <= 64) return offset + 1;
  const size_t step = offset / 1024 * 1024 + 1024;
  return step < bytes - 64 ? step : bytes - 64;
}

static void block_fill(const block* b) {
  for (size_t i = 0; i < b->bytes; i = mark_next(i, b->bytes)) b->address[i] = mark_at(b, i);
}

// Marks below `bytes`, which may be fewer than the block had when it was filled.
static uint64_t block_check(const block* b, size_t bytes) {
  uint64_t sum = b->bytes;
  for (size_t i = 0; i < bytes; i = mark_next(i, b->bytes)) {
    if (b->address[i] != mark_at(b, i)) fail("a block has changed", b->bytes);
    sum = sum * 31 + b->address[i];
  }
  return sum;
}

static void check_zeros(const block* b) {
  for (size_t i = 0; i < b->bytes; ++i) {
    if (b->address[i] != 0) fail("calloc() has not cleared its memory", b->bytes);
  }
}

static block block_new(uint64_t* state) {
  block b = { NULL, random_bytes(state), random_next(state) };
  const size_t alignment = (size_t)16 << random_next(state) % 10;
  void* address = NULL;
  switch (random_next(state) % 8) {
    case 0:
      b.address = calloc(1, b.bytes);
      if (b.address != NULL) check_zeros(&b);
      break;
    case 1: b.address = posix_memalign(&address, alignment, b.bytes) == 0 ? address : NULL; break;
    case 2: b.address = aligned_alloc(alignment, b.bytes); break;
    case 3: b.address = memalign(alignment, b.bytes); break;
    case 4: b.address = reallocarray(NULL, b.bytes, 1); break;
    case 5: b.address = valloc(b.bytes); break;
    default: b.address = malloc(b.bytes); break;
  }
  const size_t natural = b.bytes < 16 ? 8 : 16;
  if (b.address == NULL || (uintptr_t)b.address % natural != 0) fail("no block, or a crooked one", b.bytes);
  if (malloc_usable_size(b.address) < b.bytes) fail("malloc_usable_size() is too small", b.bytes);
  block_fill(&b);
  return b;
}

static uint64_t block_resize(block* b, uint64_t* state) {
  const size_t bytes = random_bytes(state);
  const block before = *b;
  b->address = realloc(b->address, bytes);
  if (b->address == NULL) fail("no block", bytes);
  const block moved = { b->address, before.bytes, before.seed };
  const uint64_t sum = block_check(&moved, bytes < before.bytes ? bytes : before.bytes);
  b->bytes = bytes;
  block_fill(b);
  return sum;
}

// Puts a block on the shelf, and releases the one that lay there.
static void block_hand_over(block b, size_t place) {
  (void)pthread_mutex_lock(&shared.lock);
  const block taken = shared.shelf[place];
  shared.shelf[place] = b;
  (void)pthread_mutex_unlock(&shared.lock);
  if (taken.address != NULL) (void)block_check(&taken, taken.bytes);
  free(taken.address);
}

static uint64_t slot_step(block* slot, uint64_t* state) {
  if (slot->address == NULL) {
    *slot = block_new(state);
    return 1;
  }
  const uint64_t draw = random_next(state);
  if (draw % 4 == 0) return block_resize(slot, state);
  const uint64_t sum = block_check(slot, slot->bytes);
  if (draw % 4 == 1) block_hand_over(*slot, (draw >> 8) % 16);
  else free(slot->address);
  *slot = (block){ NULL, 0, 0 };
  return sum;
}

static void* hammer(void* argument) {
  uint64_t* const sum = argument;
  uint64_t state = *sum;
  block slots[SLOTS] = { { NULL, 0, 0 } };
  for (int step = 0; step < STEPS; ++step) {
    *sum = *sum * 31 + slot_step(&slots[random_next(&state) % SLOTS], &state);
  }
  for (int i = 0; i < SLOTS; ++i) free(slots[i].address);
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  uint64_t sums[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    sums[i] = (uint64_t)i + 1;
    if (pthread_create(&threads[i], NULL, hammer, &sums[i]) != 0) fail("no thread", 0);
  }
  uint64_t sum = 0;
  for (int i = 0; i < THREADS; ++i) {
    (void)pthread_join(threads[i], NULL);
    sum = sum * 31 + sums[i];
  }
  for (int i = 0; i < 16; ++i) free(shared.shelf[i].address);
  (void)printf("hammer: %016llx\n", (unsigned long long)sum);
  return 0;
}
