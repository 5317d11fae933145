// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Finds the next allocator at the first call of any function, which is made by the loader or a constructor,
// when the process has one thread. dlsym() may call calloc() and free() itself: those calls come back here
// and are served from static pages.
#include "next.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

#define PAGE_COUNT 8

static _Alignas(PRELOAD_PAGE_BYTES) unsigned char pages[PAGE_COUNT][PRELOAD_PAGE_BYTES];
static size_t pages_used;

bool preload_page_owns(const void* address) { return (uintptr_t)address - (uintptr_t)pages < sizeof pages; }

// A page of zeros, for anything that fits one.
static void* page_take(size_t bytes) {
  if (bytes <= PRELOAD_PAGE_BYTES && pages_used < PAGE_COUNT) return pages[pages_used++];
  errno = ENOMEM;
  return NULL;
}

static void next_find_one(const char* name, void* out) {
  void* const function = dlsym(RTLD_NEXT, name);
  if (function == NULL) {
    preload_say("there is no %s behind the preload library", name);
    abort();
  }
  memcpy(out, &function, sizeof function);
}

// Returns false while another call of it is under way.
static bool next_find(void) {
  static bool has_begun;
  if (has_begun) return false;
  has_begun = true;
  preload_functions found;
#define NEXT_FIND(name, result, parameters) next_find_one(#name, &found.name);
  PRELOAD_NEXT_MAP(NEXT_FIND)
#undef NEXT_FIND
  preload_next = found;
  return true;
}

// The first call of each function.
static void* first_malloc(size_t bytes) {
  return next_find() ? preload_next.malloc(bytes) : page_take(bytes);
}

static void first_free(void* address) {
  if (next_find()) preload_next.free(address);
}

static void* first_calloc(size_t count, size_t bytes) {
  if (next_find()) return preload_next.calloc(count, bytes);
  size_t total = 0;
  return page_take(__builtin_mul_overflow(count, bytes, &total) ? SIZE_MAX : total);
}

static void* first_realloc(void* address, size_t bytes) {
  return next_find() ? preload_next.realloc(address, bytes) : page_take(bytes);
}

static int first_posix_memalign(void** out, size_t alignment, size_t bytes) {
  if (next_find()) return preload_next.posix_memalign(out, alignment, bytes);
  *out = page_take(alignment <= PRELOAD_PAGE_BYTES ? bytes : SIZE_MAX);
  return *out != NULL ? 0 : ENOMEM;
}

static void* first_memalign(size_t alignment, size_t bytes) {
  if (next_find()) return preload_next.memalign(alignment, bytes);
  return page_take(alignment <= PRELOAD_PAGE_BYTES ? bytes : SIZE_MAX);
}

static void* first_aligned_alloc(size_t alignment, size_t bytes) {
  return next_find() ? preload_next.aligned_alloc(alignment, bytes) : first_memalign(alignment, bytes);
}

static size_t first_malloc_usable_size(void* address) {
  return next_find() ? preload_next.malloc_usable_size(address) : 0;
}

#define NEXT_FIRST(name, result, parameters) first_##name,
preload_functions preload_next = { PRELOAD_NEXT_MAP(NEXT_FIRST) };
#undef NEXT_FIRST
