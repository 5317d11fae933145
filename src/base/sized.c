// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Structs of callers that were built with other versions of the headers.
#include "base/sized.h"

#include <string.h>

#include "base/error.h"

// No version of a public struct was shorter. The size of every version is a multiple of that of the size
// field.
enum { SIZED_LEAST = 12 };

static uint32_t sized_of(const void* theirs) {
  uint32_t size = 0;
  memcpy(&size, theirs, sizeof size);
  return size;
}

tide_status tide__sized_check(const char* call, const void* theirs, size_t bytes) {
  TIDE_REQUIRE(theirs != NULL, TIDE_ERR_ARGUMENT, "%s: the struct is NULL", call);
  const uint32_t size = sized_of(theirs);
  TIDE_REQUIRE(
      size <= bytes, TIDE_ERR_ARGUMENT,
      "%s: the size of the struct is %u, but Tidemark %s knows %zu bytes: it was not initialised with its "
      "_INIT macro, or comes from a newer header",
      call, (unsigned)size, tide_version(), bytes);
  TIDE_REQUIRE(size >= SIZED_LEAST && size % sizeof size == 0, TIDE_ERR_ARGUMENT,
               "%s: the size of the struct is %u: initialise it with its _INIT macro", call, (unsigned)size);
  return TIDE_OK;
}

tide_status tide__sized_read(const char* call, const void* theirs, void* own, size_t bytes) {
  TIDE_TRY(tide__sized_check(call, theirs, bytes));
  const size_t head = sizeof(uint32_t);
  memcpy((char*)own + head, (const char*)theirs + head, sized_of(theirs) - head);
  return TIDE_OK;
}

tide_status tide__sized_write(const char* call, const void* own, void* theirs, size_t bytes) {
  TIDE_TRY(tide__sized_check(call, theirs, bytes));
  const size_t head = sizeof(uint32_t);
  memcpy((char*)theirs + head, (const char*)own + head, sized_of(theirs) - head);
  return TIDE_OK;
}

void tide__sized_clear(void* theirs) {
  const size_t head = sizeof(uint32_t);
  memset((char*)theirs + head, 0, sized_of(theirs) - head);
}
