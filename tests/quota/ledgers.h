// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Ledgers for tests: a folder of their own, members, and what tide_quota_read() says about them.
#ifndef TIDEMARK_TESTS_QUOTA_LEDGERS_H
#define TIDEMARK_TESTS_QUOTA_LEDGERS_H

#include <sys/stat.h>

#include "t.h"
#include "tidemark/quota.h"

#ifndef MIB
#define MIB ((uint64_t)1 << 20)
#endif
#define FILE_BYTES 16384  // of a ledger
#define LEDGER_PATH_BYTES 128

static inline const char* ledger_folder(void) {
  static char folder[64];
  if (folder[0] == '\0') {
    (void)snprintf(folder, sizeof folder, "/tmp/tidemark-quota-XXXXXX");
    T_CHECK(mkdtemp(folder) != NULL);
  }
  return folder;
}

// The path of a new ledger in the folder of this test.
static inline const char* ledger_path(void) {
  static char path[LEDGER_PATH_BYTES];
  if (path[0] == '\0') (void)snprintf(path, sizeof path, "%s/ledger", ledger_folder());
  return path;
}

static inline void ledger_end(void) {
  (void)unlink(ledger_path());
  T_EQ(rmdir(ledger_folder()), 0);
}

// Options of a member that never waits, in a ledger of 100 MiB.
static inline tide_quota_options member_options(const char* ledger) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  options.ledger = ledger;
  options.total_bytes = 100 * MIB;
  options.wait_ns = 0;
  return options;
}

static inline tide_quota* member_join(const char* ledger, uint64_t guarantee, uint64_t limit) {
  tide_quota_options options = member_options(ledger);
  tide_quota* quota = NULL;
  options.guarantee_bytes = guarantee;
  options.limit_bytes = limit;
  T_OK(tide_quota_join(&options, &quota));
  return quota;
}

// What was read of a ledger.
typedef struct ledger_view {
  tide_quota_ledger ledger;
  tide_quota_member members[TIDE_QUOTA_MEMBERS];
  uint32_t count;
} ledger_view;

static inline bool ledger_note(void* user, const tide_quota_ledger* ledger, const tide_quota_member* member) {
  ledger_view* const view = user;
  view->ledger = *ledger;
  if (member != NULL) view->members[view->count++] = *member;
  return true;
}

static inline ledger_view ledger_look(const char* ledger) {
  ledger_view view = { .count = 0 };
  T_OK(tide_quota_read(ledger, ledger_note, &view));
  T_EQ(view.count, view.ledger.member_count);
  return view;
}

#endif
