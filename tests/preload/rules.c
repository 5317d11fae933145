// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What C and POSIX say of each allocation function, and what the C library does where they leave it open, for
// small and for large blocks. Prints one line each, which no allocator may change.
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __GLIBC__
#define pvalloc valloc  // musl has none
#endif

// Read through volatile, so that no compiler foresees what a call returns.
static volatile size_t sizes[] = { 1, 100, 5000, 40000, 65536, 65537, 131072, 3000000 };
static volatile size_t none;  // set to 0 by main()
static volatile size_t impossible[] = { (size_t)1 << 62, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void tell(const char* what, size_t bytes, long long value) {
  (void)printf("%s, %zu bytes: %lld\n", what, bytes, value);
}

static bool has_only(const unsigned char* memory, unsigned char value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[i] != value) return false;
  }
  return true;
}

// A refused request: NULL and an errno.
static void tell_refusal(const char* what, size_t bytes, const void* address) {
  tell(what, bytes, address == NULL ? errno : -1);
  errno = 0;
}

static void try_nothing(void) {
  void* const first = malloc(none);
  void* const second = malloc(none);
  tell("two malloc(0) differ", 0, first != second && first != NULL);
  void* grown = realloc(first, 200000);
  tell("one grows", 200000, grown != NULL);
  free(grown);
  free(second);
  free(NULL);
  tell("malloc_usable_size(NULL)", 0, (long long)malloc_usable_size(NULL));
  free(calloc(none, 100));
  free(realloc(NULL, none));
}

static void try_impossible(void) {
  for (size_t i = 0; i < COUNT(impossible); ++i) {
    const size_t bytes = impossible[i];
    errno = 0;
    tell_refusal("malloc", bytes, malloc(bytes));
    tell_refusal("calloc", bytes, calloc(bytes, 1));
    tell_refusal("calloc of pairs", bytes, calloc(2, bytes));
    tell_refusal("calloc of many", bytes, calloc(bytes, bytes));
    tell_refusal("reallocarray", bytes, reallocarray(NULL, bytes, 4));
    tell_refusal("aligned_alloc", bytes, aligned_alloc(64, bytes));
    tell_refusal("memalign", bytes, memalign(4096, bytes));
    tell_refusal("valloc", bytes, valloc(bytes));
    tell_refusal("pvalloc", bytes, pvalloc(bytes));
    void* address = &address;
    tell("posix_memalign", bytes, posix_memalign(&address, 64, bytes));
  }
}

// A request that is refused leaves the block as it was.
static void try_refused_growth(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    unsigned char* const block = malloc(sizes[i]);
    memset(block, 7, sizes[i]);
    errno = 0;
    void* grown = realloc(block, impossible[i % COUNT(impossible)]);
    tell_refusal("realloc to too much", sizes[i], grown);
    if (grown == NULL) grown = reallocarray(block, impossible[1], 16);
    tell_refusal("reallocarray to too much", sizes[i], grown);
    if (grown != NULL) abort();
    tell("the block is as it was", sizes[i], has_only(block, 7, sizes[i]));
    free(block);
  }
}

static void try_realloc(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    for (size_t k = 0; k < COUNT(sizes); ++k) {
      unsigned char* const block = realloc(NULL, sizes[i]);
      memset(block, 9, sizes[i]);
      unsigned char* const kept = realloc(block, sizes[k]);
      const size_t bytes = sizes[i] < sizes[k] ? sizes[i] : sizes[k];
      tell("realloc keeps what both sizes have", sizes[k], has_only(kept, 9, bytes));
      memset(kept, 10, sizes[k]);
      void* const nothing = realloc(kept, none);
      tell("realloc to 0 is NULL", sizes[k], nothing == NULL);
      free(nothing);
    }
  }
}

// All that malloc_usable_size() promises may be written, and is kept.
static void try_usable(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    unsigned char* const block = malloc(sizes[i]);
    unsigned char* const other = malloc(sizes[i]);
    const size_t usable = malloc_usable_size(block);
    memset(other, 3, malloc_usable_size(other));
    memset(block, 5, usable);
    tell("usable", sizes[i], usable >= sizes[i]);
    tell("the neighbour is as it was", sizes[i], has_only(other, 3, malloc_usable_size(other)));
    unsigned char* const grown = realloc(block, usable * 3);
    tell("usable is kept", sizes[i], has_only(grown, 5, usable));
    free(grown);
    free(other);
  }
}

static void try_calloc(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    unsigned char* const dirty = malloc(sizes[i]);
    memset(dirty, 255, sizes[i]);
    free(dirty);
    unsigned char* const block = calloc(sizes[i], 1);
    tell("calloc clears", sizes[i], has_only(block, 0, sizes[i]));
    free(block);
  }
}

static void try_alignment(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    for (size_t alignment = 8; alignment <= (size_t)16 << 20; alignment *= 8) {
      void* address = NULL;
      tell("posix_memalign", sizes[i], posix_memalign(&address, alignment, sizes[i]));
      void* const second = aligned_alloc(alignment, sizes[i]);
      void* const third = memalign(alignment, sizes[i]);
      const uintptr_t all = (uintptr_t)address | (uintptr_t)second | (uintptr_t)third;
      tell("aligned", sizes[i], second != NULL && third != NULL && all % alignment == 0);
      free(address);
      free(second);
      free(third);
    }
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    void* const whole = pvalloc(sizes[i]);
    void* const plain = valloc(sizes[i]);
    tell("pages", sizes[i], ((uintptr_t)whole | (uintptr_t)plain) % page == 0);
#ifdef __GLIBC__
    tell("whole pages", sizes[i], malloc_usable_size(whole) >= (sizes[i] + page - 1) / page * page);
#endif
    free(whole);
    free(plain);
  }
}

static void try_wrong_alignment(void) {
  static volatile size_t wrong[] = { 0, 1, 3, 4, 24, 100, SIZE_MAX };
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    for (size_t k = 0; k < COUNT(wrong); ++k) {
      void* address = &address;
      tell("posix_memalign", sizes[i], posix_memalign(&address, wrong[k], sizes[i]));
      tell("and its result is as it was", sizes[i], address == (void*)&address);
    }
    void* const odd = memalign(wrong[4], sizes[i]);
    tell("memalign to 24", sizes[i], odd != NULL);
    free(odd);
  }
}

static void try_errno(void) {
  for (size_t i = 0; i < COUNT(sizes); ++i) {
    errno = EDOM;
    void* const block = malloc(sizes[i]);
    tell("errno after malloc", sizes[i], errno == EDOM);
    free(block);
    tell("errno after free", sizes[i], errno == EDOM);
  }
}

int main(int argc, char** argv) {
  (void)argv;
  none = (size_t)argc - 1;
  try_nothing();
  try_impossible();
  try_refused_growth();
  try_realloc();
  try_usable();
  try_calloc();
  try_alignment();
  try_wrong_alignment();
  try_errno();
  return 0;
}
