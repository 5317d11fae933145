// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Files that a user named. What is there keeps its place until the new contents are complete. They are
// written to another file in the same folder, which then takes its place.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

#define LINKS_MOST 40  // on one path, the limit of Linux
#define ALL_MODE ((mode_t)0777)

static size_t folder_bytes(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

// Puts a name in the place of the last part of a path.
static int name_put(char path[TIDE__SYS_PATH], const char* name) {
  const size_t folder = *name == '/' ? 0 : folder_bytes(path);
  const size_t bytes = strlen(name) + 1;
  if (folder + bytes > TIDE__SYS_PATH) return ENAMETOOLONG;
  memcpy(path + folder, name, bytes);
  return 0;
}

// ---------------------------------------------------------------------------------------------------
// Links

// In a folder like /tmp, others can plant links. The kernel, if so configured, opens no file through them;
// replacing a file must not be a way around that.
static int planted_check(const char* path, const struct stat* link) {
  struct stat folder;
  char name[TIDE__SYS_PATH];
  const size_t bytes = folder_bytes(path);
  memcpy(name, bytes > 0 ? path : ".", bytes > 0 ? bytes : 1);
  name[bytes > 0 ? bytes : 1] = '\0';
  if (stat(name, &folder) != 0) return errno;
  const bool is_shared = (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0;
  return is_shared && link->st_uid != geteuid() && link->st_uid != folder.st_uid ? EACCES : 0;
}

// EINVAL: it is no link.
static int link_read(int link, const char* path, char out[TIDE__SYS_PATH]) {
  struct stat about;
  if (fstat(link, &about) != 0) return errno;
  if (!S_ISLNK(about.st_mode)) return EINVAL;
  const int error = planted_check(path, &about);
  if (error != 0) return error;
  const ssize_t bytes = readlinkat(link, "", out, TIDE__SYS_PATH);
  if (bytes < 0) return errno;
  if (bytes == 0) return ENOENT;
  if (bytes == TIDE__SYS_PATH) return ENAMETOOLONG;
  out[bytes] = '\0';
  return 0;
}

static int link_follow(char path[TIDE__SYS_PATH]) {
  char target[TIDE__SYS_PATH] = "";
  const int link = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (link < 0) return errno;
  const int error = link_read(link, path, target);
  (void)close(link);
  return error == 0 ? name_put(path, target) : error;
}

int tide__sys_links_follow(const char* path, char out[TIDE__SYS_PATH]) {
  const size_t bytes = strlen(path);
  if (bytes >= TIDE__SYS_PATH) return ENAMETOOLONG;
  memcpy(out, path, bytes + 1);
  for (int i = 0; i <= LINKS_MOST; i++) {
    const int error = link_follow(out);
    if (error != 0) return error == EINVAL || error == ENOENT ? 0 : error;
  }
  return ELOOP;
}

// ---------------------------------------------------------------------------------------------------
// Saving

static int temporary_name(tide__sys_save* save) {
  char name[40];
  (void)snprintf(name, sizeof name, ".tidemark-%016llx", (unsigned long long)tide__sys_random());
  memcpy(save->temporary, save->target, sizeof save->temporary);
  return name_put(save->temporary, name);
}

int tide__sys_save_find(const char* path, tide__sys_save* out) {
  struct stat about;
  out->file = -1;
  out->temporary[0] = '\0';
  const bool is_there = stat(path, &about) == 0;
  if (!is_there && errno != ENOENT) return errno;
  if (is_there && S_ISDIR(about.st_mode)) return EISDIR;
  if (is_there && !S_ISREG(about.st_mode)) {
    out->file = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    return out->file >= 0 ? 0 : errno;
  }
  const int error = tide__sys_links_follow(path, out->target);
  return error == 0 ? temporary_name(out) : error;
}

// If the group cannot be kept, its rights would be those of another group.
static void rights_copy(int file, const struct stat* old) {
  mode_t mode = old->st_mode & ALL_MODE;
  if (fchown(file, old->st_uid, old->st_gid) != 0 && fchown(file, (uid_t)-1, old->st_gid) != 0)
    mode &= ~(mode_t)S_IRWXG;
  (void)fchmod(file, mode);
}

int tide__sys_save_begin(tide__sys_save* save) {
  struct stat old;
  const bool is_there = lstat(save->target, &old) == 0;
  const mode_t mode = is_there ? S_IRUSR | S_IWUSR
                               : S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
  save->file = open(save->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (save->file < 0) {
    save->temporary[0] = '\0';  // it is not ours
    return errno;
  }
  if (is_there) rights_copy(save->file, &old);
  return 0;
}

int tide__sys_save_end(tide__sys_save* save) {
  const int file = save->file;
  save->file = -1;
  if (close(file) != 0) return errno;
  if (save->temporary[0] == '\0') return 0;
  if (rename(save->temporary, save->target) != 0) return errno;
  save->temporary[0] = '\0';
  return 0;
}

void tide__sys_save_drop(tide__sys_save* save) {
  if (save->file >= 0) (void)close(save->file);
  save->file = -1;
  if (save->temporary[0] != '\0') (void)unlink(save->temporary);
  save->temporary[0] = '\0';
}
