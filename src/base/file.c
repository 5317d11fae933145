// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sources and sinks over a file descriptor, which the `user` pointer carries as a number.
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static int file_of(void* user) { return (int)(intptr_t)user; }

static tide_status file_read(void* user, void* out, size_t room, size_t* out_bytes) {
  ssize_t count = 0;
  do {
    count = read(file_of(user), out, room);
  } while (count < 0 && errno == EINTR);
  *out_bytes = count > 0 ? (size_t)count : 0;
  if (count >= 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, errno, "reading descriptor %d: %s", file_of(user), strerror(errno));
}

static tide_status file_write(void* user, const void* data, size_t bytes) {
  const char* at = data;
  while (bytes > 0) {
    const ssize_t count = write(file_of(user), at, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, errno, "writing descriptor %d: %s", file_of(user),
                              strerror(errno));
    }
    at += count;
    bytes -= (size_t)count;
  }
  return TIDE_OK;
}

tide_source tide_source_file(int descriptor) {
  return (tide_source){ file_read, (void*)(intptr_t)descriptor };
}

tide_sink tide_sink_file(int descriptor) { return (tide_sink){ file_write, (void*)(intptr_t)descriptor }; }
