// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Do two names refer to the same file? Existing files are compared by device and inode. For a file that does
// not exist yet, links are followed, even dangling ones, and its folder must exist. Anything but an ordinary
// file (a pipe, /dev/null) is never replaced, and so never the same.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "tool.h"

static const char* path_last_part(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

// Where a file would be created: its folder, and its name in it. False if that is impossible.
static bool place_find(const char* name, struct stat* out_folder, char out_part[TIDE__SYS_PATH]) {
  char path[TIDE__SYS_PATH];
  if (tide__sys_links_follow(name, path) != 0) return false;
  const size_t folder_bytes = (size_t)(path_last_part(path) - path);
  memcpy(out_part, path + folder_bytes, strlen(path) - folder_bytes + 1);
  path[folder_bytes] = '\0';
  return stat(*path != '\0' ? path : ".", out_folder) == 0;
}

static bool is_one_inode(const struct stat* a, const struct stat* b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool tool_file_is_same(const char* a, const char* b) {
  struct stat about[2];
  char parts[2][TIDE__SYS_PATH];
  const bool is_there = stat(a, &about[0]) == 0;
  if (is_there != (stat(b, &about[1]) == 0)) return false;
  if (is_there) return S_ISREG(about[0].st_mode) && is_one_inode(&about[0], &about[1]);
  return place_find(a, &about[0], parts[0]) && place_find(b, &about[1], parts[1]) &&
         is_one_inode(&about[0], &about[1]) && strcmp(parts[0], parts[1]) == 0;
}

bool tool_file_is_input(const char* path, const char* input) {
  struct stat about[2];
  if (strcmp(path, "-") == 0) return false;
  if (strcmp(input, "-") != 0) return tool_file_is_same(path, input);
  return stat(path, &about[0]) == 0 && fstat(STDIN_FILENO, &about[1]) == 0 && S_ISREG(about[0].st_mode) &&
         is_one_inode(&about[0], &about[1]);
}
