// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// The memory that the system can still give to this process. Linux grants addresses freely and kills a
// process that touches more pages than there are. So whoever touches many pages asks here first.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arith.h"
#include "base/sys.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, NAME_BYTES = 64 };

// Reads the beginning of a file as text; false if there is none.
static bool text_read(const char* path, char* text, size_t capacity) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  size_t length = 0;
  for (;;) {
    const ssize_t got = read(file, text + length, capacity - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += (size_t)got;
  }
  (void)close(file);
  text[length] = '\0';
  return length != 0;
}

// The number after a word at the beginning of a line; `otherwise` if there is none.
static uint64_t number_after(const char* text, const char* word, uint64_t otherwise) {
  const size_t length = strlen(word);
  for (const char* line = text; line != NULL; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, word, length) != 0) continue;
    char* end = NULL;
    const uint64_t number = strtoull(line + length, &end, 10);
    return end != line + length ? number : otherwise;
  }
  return otherwise;
}

// ---------------------------------------------------------------------------------------------------
// Control groups

// The names of the two versions. `label` is in the line of /proc/self/cgroup before the path of the group.
typedef struct group_names {
  const char* label;
  const char* folder;
  const char* limit;
  const char* used;
  const char* cached;  // in memory.stat: files that the system drops when memory is needed
} group_names;

static const group_names group_versions[] = {
  { "0::", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file " },
  { ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
    "total_inactive_file " },
};

static bool group_read(const group_names* names, const char* path, const char* file, char* text) {
  char whole[PATH_BYTES + 2 * NAME_BYTES];
  (void)snprintf(whole, sizeof whole, "%s%s/%s", names->folder, path, file);
  return text_read(whole, text, TEXT_BYTES);
}

// What one group leaves; UINT64_MAX if it has no limit.
static uint64_t group_left(const group_names* names, const char* path) {
  char text[TEXT_BYTES];
  if (!group_read(names, path, names->limit, text)) return UINT64_MAX;
  const uint64_t limit = number_after(text, "", UINT64_MAX);
  if (limit >= INT64_MAX - (uint64_t)USHRT_MAX) return UINT64_MAX;  // "max", or the largest number of pages
  if (!group_read(names, path, names->used, text)) return UINT64_MAX;
  const uint64_t used = number_after(text, "", 0);
  const uint64_t cached = group_read(names, path, "memory.stat", text) ? number_after(text, names->cached, 0)
                                                                       : 0;
  const uint64_t kept = used - tide__min(used, cached);
  return limit - tide__min(limit, kept);
}

// What a group and all groups around it leave.
static uint64_t groups_left(const group_names* names, const char* text) {
  char path[PATH_BYTES];
  const char* const found = strstr(text, names->label);
  if (found == NULL) return UINT64_MAX;
  const char* const begin = found + strlen(names->label);
  (void)snprintf(path, sizeof path, "%.*s", (int)tide__min(strcspn(begin, "\n"), sizeof path - 1), begin);
  uint64_t left = UINT64_MAX;
  for (;;) {
    left = tide__min(left, group_left(names, path));
    char* const last = strrchr(path, '/');
    if (last == NULL) return left;
    *last = '\0';
  }
}

uint64_t tide__sys_available_bytes(void) {
  char text[TEXT_BYTES];
  const int before = errno;
  uint64_t left = UINT64_MAX;
  if (text_read("/proc/meminfo", text, sizeof text)) {
    const uint64_t kib = number_after(text, "MemAvailable:", UINT64_MAX);
    if (kib < UINT64_MAX >> 10) left = kib << 10;
  }
  if (text_read("/proc/self/cgroup", text, sizeof text)) {
    for (size_t i = 0; i < sizeof group_versions / sizeof group_versions[0]; i++) {
      left = tide__min(left, groups_left(&group_versions[i], text));
    }
  }
  errno = before;
  return left;
}
