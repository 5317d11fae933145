// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Sources and sinks over a file descriptor, which the `user` pointer carries as a number; and files by name.
#include "base/file.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/sys.h"

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
  const int error = tide__sys_file_put(file_of(user), data, bytes);
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "writing descriptor %d: %s", file_of(user), strerror(error));
}

tide_source tide_source_file(int descriptor) {
  return (tide_source){ file_read, (void*)(intptr_t)descriptor };
}

tide_sink tide_sink_file(int descriptor) { return (tide_sink){ file_write, (void*)(intptr_t)descriptor }; }

// ---------------------------------------------------------------------------------------------------
// Files that a user named

static tide_status put_check(int error) {
  if (error == 0) return TIDE_OK;
  return TIDE_FAIL_NATIVE(TIDE_ERR_STATE, error, "cannot be written: %s", strerror(error));
}

static tide_status save_write(void* user, const void* data, size_t bytes) {
  return put_check(tide__sys_file_put(file_of(user), data, bytes));
}

tide_sink tide__file_sink(int descriptor) { return (tide_sink){ save_write, (void*)(intptr_t)descriptor }; }

static void save_guard(const tide__file_work* work, const char* unfinished) {
  if (work->guard != NULL) work->guard(unfinished);
}

tide_status tide__file_save(const char* path, const tide__file_work* work) {
  tide__sys_save save;
  TIDE_TRY(put_check(tide__sys_save_find(path, &save)));
  const bool is_direct = save.file >= 0;
  if (!is_direct) save_guard(work, save.temporary);
  tide_status status = is_direct ? TIDE_OK : put_check(tide__sys_save_begin(&save));
  const tide_sink sink = tide__file_sink(save.file);
  if (status == TIDE_OK) status = work->write(work->user, &sink);
  if (status == TIDE_OK) status = put_check(tide__sys_save_end(&save));
  tide__sys_save_drop(&save);
  if (!is_direct) save_guard(work, NULL);
  return status;
}
