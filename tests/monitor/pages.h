// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// What the tests of the monitor share: a folder for pages, and what a reader finds in it.
#ifndef TIDEMARK_TESTS_MONITOR_PAGES_H
#define TIDEMARK_TESTS_MONITOR_PAGES_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "process.h"
#include "tidemark/tidemark.h"

#define PAGES_MOST 64
#define PATH_BYTES 300

// A folder of this test, in memory if possible, which TIDEMARK_MONITOR names. It is removed with everything
// in it by folder_remove().
static char folder[PATH_BYTES];

static inline void folder_make(void) {
  (void)snprintf(folder, sizeof folder, "%s/tidemark-test-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  T_CHECK(mkdtemp(folder) != NULL);
  T_EQ(setenv("TIDEMARK_MONITOR", folder, 1), 0);
}

// Files in the folder, and the path of the last.
static inline size_t folder_count(char path[PATH_BYTES * 2]) {
  size_t count = 0;
  DIR* const list = opendir(folder);
  T_CHECK(list != NULL);
  for (const struct dirent* it = NULL; (it = readdir(list)) != NULL;) {
    if (it->d_name[0] == '.') continue;
    count++;
    if (path != NULL) (void)snprintf(path, (size_t)PATH_BYTES * 2, "%s/%s", folder, it->d_name);
  }
  T_EQ(closedir(list), 0);
  return count;
}

static inline void folder_remove(void) {
  char path[PATH_BYTES * 2];
  while (folder_count(path) > 0) T_EQ(unlink(path), 0);
  T_EQ(rmdir(folder), 0);
}

// What a reader found, one entry for each row.
typedef struct sight {
  tide_monitor_process process;
  tide_monitor_row row;  // all zeros: the process has none
} sight;

typedef struct sights {
  sight all[PAGES_MOST];
  size_t count;
} sights;

static inline bool sight_add(void* user, const tide_monitor_process* process, const tide_monitor_row* row) {
  sights* const s = user;
  T_LT(s->count, PAGES_MOST);
  sight* const it = &s->all[s->count++];
  *it = (sight){ .process = *process };
  if (row != NULL) it->row = *row;
  return true;
}

// Looks into the folder. The result is static.
static inline sights* look(void) {
  static sights s;
  s.count = 0;
  T_OK(tide_monitor_read(folder, sight_add, &s));
  return &s;
}

static inline const sight* sight_of_kind(const sights* s, tide_monitor_kind kind) {
  for (size_t i = 0; i < s->count; i++) {
    if (s->all[i].row.kind == kind) return &s->all[i];
  }
  T_FAIL("there is no row of kind %d among %zu", (int)kind, s->count);
}

static inline void stat_expect(tide_stat got, tide_stat want) {
  T_EQ(got.current, want.current);
  T_EQ(got.peak, want.peak);
  T_EQ(got.allocated, want.allocated);
  T_EQ(got.freed, want.freed);
}

static inline tide_machine* dry_machine_new(void) {
  tide_machine* machine = NULL;
  T_OK(tide_machine_new_dry(NULL, &machine));
  return machine;
}

#endif
