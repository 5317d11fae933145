// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The C library's memory as a source for arenas and caches, and filling.
#include "tidemark/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arith.h"
#include "base/error.h"
#include "base/sys.h"
#include "memory/fill.h"

// ---------------------------------------------------------------------------------------------------
// Filling

static void fill_junk(uint8_t* at, uint64_t bytes) {
  static const uint8_t word[8] = { 0xef, 0xbe, 0xed, 0x7f, 0xef, 0xbe, 0xed, 0x7f };
  for (uint64_t i = 0; i < bytes; i += sizeof word) memcpy(at + i, word, tide__min(sizeof word, bytes - i));
}

void tide__memory_fill(tide_fill fill, void* address, uint64_t bytes) {
  if (fill == TIDE_FILL_ZEROS) memset(address, 0, bytes);
  if (fill == TIDE_FILL_JUNK) fill_junk(address, bytes);
}

// ---------------------------------------------------------------------------------------------------
// The C library

static tide_status cpu_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  (void)memory;
  *out = NULL;
  TIDE_REQUIRE(bytes != 0 && bytes <= PTRDIFF_MAX && tide__is_power_of_two(alignment), TIDE_ERR_ARGUMENT,
               "cannot allocate %zu bytes at a multiple of %zu", bytes, alignment);
  const size_t least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  const int failed = posix_memalign(out, least, bytes);
  if (failed == 0) return TIDE_OK;
  *out = NULL;
  return TIDE_FAIL_NATIVE(failed == EINVAL ? TIDE_ERR_ARGUMENT : TIDE_ERR_NO_MEMORY, failed,
                          "no memory left for %zu bytes", bytes);
}

static tide_status cpu_release(const tide_memory* memory, void* address) {
  (void)memory;
  free(address);
  return TIDE_OK;
}

// ---------------------------------------------------------------------------------------------------
// With flags

#define RAW_HUGE_BYTES ((uint64_t)2 << 20)
#define RAW_ALIGNMENT 64
#define RAW_FLAGS (TIDE_RAW_ZEROS | TIDE_RAW_JUNK | TIDE_RAW_HUGE_PAGES)

static tide_status raw_alloc(const tide_memory* memory, size_t bytes, size_t alignment, void** out) {
  const uint64_t flags = memory->detail;
  *out = NULL;
  TIDE_REQUIRE((flags & ~(uint64_t)RAW_FLAGS) == 0, TIDE_ERR_ARGUMENT, "0x%llx are not flags of raw memory",
               (unsigned long long)flags);
  TIDE_REQUIRE((flags & TIDE_RAW_ZEROS) == 0 || (flags & TIDE_RAW_JUNK) == 0, TIDE_ERR_ARGUMENT,
               "memory cannot be filled with zeros and with junk");
  const bool is_huge = (flags & TIDE_RAW_HUGE_PAGES) != 0 && bytes >= RAW_HUGE_BYTES;
  const uint64_t least = is_huge ? RAW_HUGE_BYTES : RAW_ALIGNMENT;
  TIDE_TRY(cpu_alloc(memory, bytes, alignment < least ? (size_t)least : alignment, out));
  if (is_huge) tide__sys_ask_huge_pages(tide__address(*out), bytes & ~(RAW_HUGE_BYTES - 1));
  if ((flags & TIDE_RAW_ZEROS) != 0) tide__memory_fill(TIDE_FILL_ZEROS, *out, bytes);
  if ((flags & TIDE_RAW_JUNK) != 0) tide__memory_fill(TIDE_FILL_JUNK, *out, bytes);
  return TIDE_OK;
}

tide_memory tide_memory_raw(uint32_t flags) {
  return (tide_memory){ .alloc = raw_alloc, .release = cpu_release, .detail = flags, .is_host = true };
}

tide_memory tide_memory_cpu(void) {
  return (tide_memory){ .alloc = cpu_alloc, .release = cpu_release, .is_host = true };
}
