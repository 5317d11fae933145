// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// A process that is a member of a ledger, for tests/tool/test_ledger.py:
//
//   quota_member LEDGER TOTAL GUARANTEE LIMIT PRIORITY WAIT_MS NAME
//
// Reads "take BYTES" and "give BYTES" from standard input, and answers each line with "STATUS HELD". When it
// is asked for memory, it gives all that is wanted.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidemark/quota.h"

static tide_quota* quota;
static uint64_t held;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // guards held

static void answer(void* user, const tide_quota_ask* ask) {
  (void)user;
  (void)pthread_mutex_lock(&lock);
  const uint64_t bytes = ask->bytes < held ? ask->bytes : held;
  held -= bytes;
  (void)pthread_mutex_unlock(&lock);
  (void)tide_quota_give(quota, bytes);
}

static tide_status line_run(const char* line) {
  const uint64_t bytes = strtoull(line + 5, NULL, 10);
  const bool takes = strncmp(line, "take ", 5) == 0;
  const tide_status status = takes ? tide_quota_take(quota, bytes) : tide_quota_give(quota, bytes);
  (void)pthread_mutex_lock(&lock);
  if (status == TIDE_OK) held = takes ? held + bytes : held - bytes;
  (void)pthread_mutex_unlock(&lock);
  return status;
}

static void say(tide_status status) {
  (void)pthread_mutex_lock(&lock);
  (void)printf("%s %llu\n", tide_status_name(status), (unsigned long long)held);
  (void)pthread_mutex_unlock(&lock);
  (void)fflush(stdout);
}

int main(int argc, char** argv) {
  tide_quota_options options = TIDE_QUOTA_OPTIONS_INIT;
  char line[128];
  if (argc != 8) return 2;
  options.ledger = argv[1];
  options.total_bytes = strtoull(argv[2], NULL, 10);
  options.guarantee_bytes = strtoull(argv[3], NULL, 10);
  options.limit_bytes = strcmp(argv[4], "none") == 0 ? TIDE_NO_LIMIT : strtoull(argv[4], NULL, 10);
  options.priority = (int32_t)strtol(argv[5], NULL, 10);
  options.wait_ns = strtoull(argv[6], NULL, 10) * 1000000;
  options.name = argv[7];
  options.on_ask = answer;
  options.has_helper = true;
  const tide_status status = tide_quota_join(&options, &quota);
  if (status != TIDE_OK) (void)fprintf(stderr, "%s\n", tide_last_error()->text);
  if (status != TIDE_OK) return 1;
  say(TIDE_OK);
  while (fgets(line, sizeof line, stdin) != NULL) say(line_run(line));
  tide_quota_leave(quota);
  return 0;
}
