// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Files that processes of one user share by their names. Names in shared folders may be set up by other
// users, so nothing is followed or trusted: links are refused, and owner and mode are read from the open
// descriptor.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"

#define OTHERS_MODE ((mode_t)077)

const char* tide__sys_environment(const char* name) { return secure_getenv(name); }

uint32_t tide__sys_user(void) { return (uint32_t)geteuid(); }

uint64_t tide__sys_wall_clock_ns(void) {
  struct timespec now = { 0 };
  (void)clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// Is it of the given type, this user's own, and closed to others?
static int owner_check(int file, mode_t type) {
  struct stat found;
  if (fstat(file, &found) != 0) return errno;
  if ((found.st_mode & S_IFMT) != type) return EINVAL;
  if (found.st_uid != geteuid()) return EPERM;
  return (found.st_mode & OTHERS_MODE) == 0 ? 0 : EACCES;
}

// Keeps a descriptor that passes the check, and closes another.
static int owner_settle(int file, mode_t type, int* out) {
  if (file < 0) return errno;
  const int error = owner_check(file, type);
  if (error != 0) (void)close(file);
  else *out = file;
  return error;
}

// ---------------------------------------------------------------------------------------------------
// Folders

int tide__sys_folder_open(const char* path, bool makes, int* out) {
  if (makes && mkdir(path, S_IRWXU) != 0 && errno != EEXIST) return errno;
  return owner_settle(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), S_IFDIR, out);
}

int tide__sys_folder_visit(int folder, bool (*visit)(void* user, const char* name), void* user) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const list = copy >= 0 ? fdopendir(copy) : NULL;
  if (list == NULL) {
    const int error = errno;
    if (copy >= 0) (void)close(copy);
    return error;
  }
  int error = 0;
  for (;;) {
    errno = 0;
    const struct dirent* const entry = readdir(list);
    if (entry == NULL) error = errno;
    if (entry == NULL || !visit(user, entry->d_name)) break;
  }
  (void)closedir(list);
  return error;
}

int tide__sys_folder_remove(int folder, const char* name) {
  return unlinkat(folder, name, 0) == 0 ? 0 : errno;
}

// ---------------------------------------------------------------------------------------------------
// Files in them

// The one way to a file by a name that is ours. Opening a pipe must not wait, nor a device do anything.
static int own_open(int folder, const char* name, int flags, int* out) {
  const int safely = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  return owner_settle(openat(folder, name, flags | safely, S_IRUSR | S_IWUSR), S_IFREG, out);
}

// The umask may take rights of the owner away.
static int page_prepare(int file, uint64_t bytes) {
  if (fchmod(file, S_IRUSR | S_IWUSR) != 0) return errno;
  return tide__sys_file_fill(file, bytes);
}

int tide__sys_page_new(int folder, const char* name, uint64_t bytes, int* out) {
  int file = -1;
  int error = own_open(folder, name, O_RDWR | O_CREAT | O_EXCL, &file);
  if (error != 0) return error;
  error = page_prepare(file, bytes);
  if (error == 0) {
    *out = file;
    return 0;
  }
  (void)close(file);
  (void)unlinkat(folder, name, 0);
  return error;
}

int tide__sys_page_open(int folder, const char* name, int* out) {
  return own_open(folder, name, O_RDONLY, out);
}

int tide__sys_shared_open(int folder, const char* name, bool makes, int* out) {
  return own_open(folder, name, O_RDWR | (makes ? O_CREAT : 0), out);
}

int tide__sys_page_age(int file, uint64_t* out_ns) {
  struct stat found;
  if (fstat(file, &found) != 0) return errno;
  const uint64_t changed_ns = (uint64_t)found.st_mtim.tv_sec * 1000000000u + (uint64_t)found.st_mtim.tv_nsec;
  const uint64_t now_ns = tide__sys_wall_clock_ns();
  *out_ns = now_ns > changed_ns ? now_ns - changed_ns : 0;
  return 0;
}

bool tide__sys_page_is_whole(int file, uint64_t bytes) {
  struct stat found;
  return fstat(file, &found) == 0 && found.st_nlink > 0 && (uint64_t)found.st_size >= bytes;
}

int tide__sys_page_get(int file, uint64_t offset, void* out, size_t bytes) {
  char* at = out;
  while (bytes > 0) {
    const ssize_t count = pread(file, at, bytes, (off_t)offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENODATA;
    at += count;
    offset += (uint64_t)count;
    bytes -= (size_t)count;
  }
  return 0;
}

int tide__sys_page_put(int file, uint64_t offset, const void* data, size_t bytes) {
  const char* at = data;
  while (bytes > 0) {
    const ssize_t count = pwrite(file, at, bytes, (off_t)offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    at += count;
    offset += (uint64_t)count;
    bytes -= (size_t)count;
  }
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Files without a name

// Not every file system can make a file without a name. There the name is removed at once.
static int temporary_open(const char* folder, int* out) {
  const int nameless = open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  *out = nameless;
  if (nameless >= 0) return 0;
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/tidemark-XXXXXX", folder);
  if (length < 0 || (size_t)length >= sizeof path) return ENAMETOOLONG;
  *out = mkostemp(path, O_CLOEXEC);
  if (*out < 0) return errno;
  (void)unlink(path);
  return 0;
}

int tide__sys_temporary_new(const char* folder, uint64_t bytes, int* out) {
  int file = -1;
  int error = temporary_open(folder, &file);
  if (error == 0) error = tide__sys_file_fill(file, bytes);
  if (error == 0) {
    *out = file;
    return 0;
  }
  if (file >= 0) (void)close(file);
  return error;
}

// ---------------------------------------------------------------------------------------------------
// Processes

// Reads the beginning of a file of /proc. Returns the number of bytes, without the 0 that it adds.
static size_t proc_read(const char* path, char* out, size_t room) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t count = read(file, out, room - 1);
  (void)close(file);
  const size_t bytes = count > 0 ? (size_t)count : 0;
  out[bytes] = '\0';
  return bytes;
}

// The name of the program, the second field, may contain blanks and brackets. The start is the 22nd field.
uint64_t tide__sys_process_start(int64_t process) {
  char path[64];
  char text[1024] = "";
  (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process);
  (void)proc_read(path, text, sizeof text);
  const char* at = strrchr(text, ')');
  for (int field = 2; at != NULL && field < 22; field++) {
    at = strchr(at, ' ');
    if (at != NULL) at++;
  }
  return at != NULL ? strtoull(at, NULL, 10) : 0;
}

uint64_t tide__sys_process_space(void) {
  struct stat found;
  return stat("/proc/self/ns/pid", &found) == 0 ? (uint64_t)found.st_ino : 0;
}

// Arguments end with a 0 each. The folder of the program is left out.
void tide__sys_command(char* out, size_t room) {
  char text[512] = "";
  const size_t bytes = proc_read("/proc/self/cmdline", text, sizeof text);
  const char* const slash = strrchr(text, '/');
  const size_t begin = slash != NULL ? (size_t)(slash + 1 - text) : 0;
  for (size_t i = begin; i + 1 < bytes; i++) {
    if (text[i] == '\0') text[i] = ' ';
  }
  (void)snprintf(out, room, "%s", text + begin);
}
