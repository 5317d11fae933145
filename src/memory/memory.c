// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The computer's own memory as a source of arenas.
#include "tidemark/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arith.h"
#include "base/error.h"

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
                          "the computer has no %zu bytes of memory left", bytes);
}

static tide_status cpu_release(const tide_memory* memory, void* address) {
  (void)memory;
  free(address);
  return TIDE_OK;
}

tide_memory tide_memory_cpu(void) {
  return (tide_memory){ .alloc = cpu_alloc, .release = cpu_release, .is_host = true };
}
